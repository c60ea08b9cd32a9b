//! The endpoints behind real sockets: their answers, access control, and what they leave unchanged.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use besom_core::time::Time;
use futures::StreamExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Bounds, Endpoint, Error, Listener, Rights, Sockets, Tokens, router};
use besom_doubles::activity::MemoryActivity;
use besom_ports::activity::Timeouts;

mod feed;
mod noise;
mod ring;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An activity service with a manual clock.
struct Observed {
    activity: Arc<MemoryActivity>,
    seconds: Arc<AtomicI64>,
}

impl Observed {
    fn new() -> Observed {
        let seconds = Arc::new(AtomicI64::new(1_750_000_000));
        let clock = {
            let seconds = Arc::clone(&seconds);
            Arc::new(move || Time::from_secs(seconds.load(Ordering::Relaxed)))
        };
        Observed { activity: Arc::new(MemoryActivity::new(Timeouts::default(), clock)), seconds }
    }

    fn pass(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// A listener that is being served.
struct Serving {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Serving {
    fn start(listener: Listener, observed: &Observed) -> Serving {
        let (stop, stopping) = watch::channel(false);
        let activity = observed.activity.clone();
        let endpoint = Endpoint::new(activity, PATIENCE, SOCKETS, None, stopping.clone());
        Serving { stop, task: tokio::spawn(listener.serve(router(endpoint), stopping)) }
    }

    fn of(listener: Listener, router: axum::Router) -> Serving {
        let (stop, stopping) = watch::channel(false);
        Serving { stop, task: tokio::spawn(listener.serve(router, stopping)) }
    }

    async fn end(self) {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("it ends").expect("it does not panic");
    }
}

fn socket() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("besom.sock");
    (directory, path)
}

/// Sends one request and returns the status and the rest of the response.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.expect("the request is taken");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    let answer = String::from_utf8(answer).expect("a text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {answer:?}")), answer)
}

fn request(line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{line} HTTP/1.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text
}

async fn ask(path: &Path, line: &str, body: &str) -> (u16, String) {
    let stream = UnixStream::connect(path).await.expect("somebody listens");
    exchange(stream, &request(line, &[("host", "besom")], body)).await
}

#[tokio::test]
async fn reports_make_the_state() {
    let (_directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    // The time that passes, in seconds; the report; the state afterwards.
    let steps = [
        (0, "", "", "unknown"),
        (1, "connect?connection=tab-1", "", "active"),
        (1, "connect", r#"{"connection": "tab-2"}"#, "active"),
        (1, "disconnect?connection=tab-1", "", "active"),
        (1, "disconnect", r#"{"connection": "tab-2"}"#, "waiting"),
        (301, "", "", "idle"),
        (1, "heartbeat?connection=tab%203", "", "active"),
        (59, "heartbeat?connection=tab%203", "", "active"),
        (59, "", "", "active"),
        (2, "", "", "waiting"),
    ];
    for (seconds, what, body, state) in steps {
        observed.pass(seconds);
        if !what.is_empty() {
            let (status, answer) = ask(&path, &format!("POST /activity/ws-1/{what}"), body).await;
            assert_eq!(status, 204, "{what}: {answer}");
        }
        let (status, answer) = ask(&path, "GET /activity/ws-1", "").await;
        assert_eq!(status, 200, "{answer}");
        let said = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let said: serde_json::Value = serde_json::from_str(said).expect("JSON");
        assert_eq!(said, serde_json::json!({ "id": "ws-1", "state": state }), "after {what:?}");
    }
    serving.end().await;
}

#[tokio::test]
async fn what_is_not_understood_is_refused_with_the_reason_and_changes_nothing() {
    let (_directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    let long = "x".repeat(513);
    let (long_id, long_connection) = (
        format!("POST /activity/{long}/connect?connection=a"),
        format!("POST /activity/ws-1/connect?connection={long}"),
    );
    let large = format!(r#"{{"connection": "{}"}}"#, "x".repeat(5_000));
    let cases: [(&str, &str, u16, &str); 14] = [
        ("POST /activity/ws-1/connect", "", 400, "no connection given"),
        ("POST /activity/ws-1/connect?connection=", "", 400, "no connection given"),
        ("POST /activity/ws-1/connect", "{}", 400, "no connection given"),
        ("POST /activity/ws-1/connect", "{\"connection\"", 400, "invalid body"),
        ("POST /activity/ws-1/connect", r#"{"conn": "a"}"#, 400, "unknown field"),
        ("POST /activity/ws-1/connect?conn=a", "", 400, "invalid query"),
        (&long_id, "", 400, "at most 512 bytes"),
        (&long_connection, "", 400, "at most 512 bytes"),
        ("POST /activity/a%00b/connect?connection=a", "", 400, "contains a NUL"),
        ("POST /activity/ws-1/connect?connection=a%00", "", 400, "contains a NUL"),
        ("POST /activity//connect?connection=a", "", 400, "is empty"),
        ("POST /activity/ws-1/connect", &large, 413, ""),
        ("POST /activity/ws-1/wave?connection=a", "", 404, "connect, disconnect or heartbeat"),
        ("DELETE /activity/ws-1", "", 405, ""),
    ];
    for (line, body, wanted, words) in cases {
        let (status, answer) = ask(&path, line, body).await;
        assert_eq!(status, wanted, "{line}: {answer}");
        assert!(answer.contains(words), "{line}: {answer}");
    }
    let (_, answer) = ask(&path, "GET /activity/ws-1", "").await;
    assert!(answer.contains("unknown"), "{answer}");
    serving.end().await;
}

#[tokio::test]
async fn an_activity_that_is_away_asks_the_caller_to_come_again() {
    let (_directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    observed.activity.set_away(true);
    for line in ["POST /activity/ws-1/connect?connection=a", "GET /activity/ws-1"] {
        let (status, answer) = ask(&path, line, "").await;
        assert!(status == 503 && answer.contains("retry-after: 1"), "{line}: {answer}");
    }
    observed.activity.set_away(false);
    assert_eq!(ask(&path, "GET /activity/ws-1", "").await.0, 200);
    serving.end().await;
}

#[tokio::test]
async fn the_socket_is_its_owners_alone_and_goes_with_its_host() {
    let (directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    let there = std::fs::symlink_metadata(&path).unwrap();
    assert!(there.file_type().is_socket());
    assert_eq!(there.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing beside it");
    serving.end().await;
    assert!(!path.exists());
}

/// Under any umask of the process, nobody else can connect before the mode is set: it is bound in a
/// directory of its owner alone, which a process that died there may have left.
#[tokio::test]
async fn a_directory_that_a_dead_host_has_left_is_replaced() {
    let (directory, path) = socket();
    let left = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::create_dir(&left).unwrap();
    drop(std::os::unix::net::UnixListener::bind(left.join("s")).unwrap());
    let listener = Listener::unix(&path).await.unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing beside it");
    drop(listener);
    // Whatever else is there stays.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("precious"), "data").unwrap();
    assert!(matches!(Listener::unix(&path).await, Err(Error::Io { .. })));
    assert_eq!(std::fs::read_to_string(left.join("precious")).unwrap(), "data");
}

#[tokio::test]
async fn a_socket_that_a_dead_host_has_left_is_replaced_and_a_live_one_is_not() {
    let (_directory, path) = socket();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead host leaves its socket");
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    assert_eq!(ask(&path, "GET /activity/ws-1", "").await.0, 200);
    let second = Listener::unix(&path).await;
    assert!(matches!(second, Err(Error::Taken(ref taken)) if *taken == path));
    assert_eq!(ask(&path, "GET /activity/ws-1", "").await.0, 200, "the first goes on");
    serving.end().await;
    let successor = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    assert_eq!(ask(&path, "GET /activity/ws-1", "").await.0, 200);
    successor.end().await;
}

#[tokio::test]
async fn what_is_no_socket_is_left_as_it_is() {
    let (_directory, path) = socket();
    std::fs::write(&path, "precious").unwrap();
    let refused = Listener::unix(&path).await.err().expect("it is refused").to_string();
    assert!(refused.contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_client_that_says_nothing_does_not_hold_up_the_end() {
    let (_directory, path) = socket();
    let observed = Observed::new();
    let serving = Serving::start(Listener::unix(&path).await.unwrap(), &observed);
    let mut silent = UnixStream::connect(&path).await.unwrap();
    silent.write_all(b"POST /activity/ws-1/conn").await.unwrap();
    // Answered after the silent connection was accepted, because connections are accepted in order.
    assert_eq!(ask(&path, "GET /activity/ws-1", "").await.0, 200);
    serving.end().await;
    drop(silent);
}

/// A token file with this mode.
fn token_file(directory: &Path, content: &str, mode: u32) -> PathBuf {
    let path = directory.join("token");
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[tokio::test]
async fn over_tcp_only_who_shows_the_token_and_is_no_web_page_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), &format!("{SECRET}\n"), 0o600);
    let tokens = vec![Tokens::read(&file, Rights::All).unwrap()];
    let listener = Listener::tcp(ANY, tokens, None, None).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let observed = Observed::new();
    let serving = Serving::start(listener, &observed);
    let own = address.to_string();
    let shown = format!("Bearer {SECRET}");
    let right = ("authorization", shown.as_str());
    let cases: [(&[(&str, &str)], u16); 12] = [
        (&[("host", &own), right], 200),
        (&[("host", "localhost:80"), right], 200),
        (&[("host", "127.0.0.1"), right], 200),
        (&[("host", "[::1]"), right], 200),
        (&[("host", "[::1]:8080"), right], 200),
        (&[("host", &own)], 401),
        (&[("host", &own), ("authorization", "Bearer wrong")], 401),
        (&[("host", &own), ("authorization", SECRET)], 401),
        // A web page, and a name that DNS rebinding has pointed to this address.
        (&[("host", &own), ("origin", "https://evil.example"), right], 403),
        (&[("host", "evil.example"), right], 403),
        (&[right], 403),
        (&[("host", &own), ("host", "evil.example"), right], 400),
    ];
    for (headers, wanted) in cases {
        let stream = TcpStream::connect(address).await.unwrap();
        let (status, answer) = exchange(stream, &request("GET /activity/ws-1", headers, "")).await;
        assert_eq!(status, wanted, "{headers:?}: {answer}");
    }
    let elsewhere = request("GET http://evil.example/activity/ws-1", &[("host", &own), right], "");
    let stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(exchange(stream, &elsewhere).await.0, 400);
    serving.end().await;
}

/// Sends a request over a kept connection and reads the response: the status, and whether the
/// connection remains open.
async fn next(stream: &mut TcpStream, request: &str) -> Option<(u16, bool)> {
    let request = request.replace("connection: close\r\n", "");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let read = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("in time");
        answer.push(read.ok()?);
    }
    let head = String::from_utf8(answer).expect("a text");
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, !head.to_ascii_lowercase().contains("connection: close")))
}

/// Whether the other side has closed an idle connection, or does so in time.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await;
    matches!(read.expect("in time"), Ok(0) | Err(_))
}

/// A heartbeat, whose response has no body.
const HEARTBEAT: &str = "POST /activity/ws-1/heartbeat?connection=a";

#[tokio::test]
async fn where_nobody_has_to_show_anything_nobody_is_a_stranger() {
    let listener = Listener::tcp_of_this_machine(ANY).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let serving = Serving::start(listener, &Observed::new());
    let own = address.to_string();
    let beat = request(HEARTBEAT, &[("host", &own)], "");
    // More connections from one address than unauthenticated callers may have.
    let mut all = Vec::new();
    for _ in 0..2 * Bounds::default().strangers_per_address_max {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(next(&mut stream, &beat).await, Some((204, true)));
        all.push(stream);
    }
    for stream in &mut all {
        assert_eq!(next(stream, &beat).await, Some((204, true)), "it was kept");
    }
    serving.end().await;
}

/// Whoever sends a header and keeps back the body does not keep a place.
#[tokio::test]
async fn a_body_that_does_not_come_ends_the_request() {
    let listener = Listener::tcp_of_this_machine(ANY).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let bounds = Bounds { request_max: Duration::from_millis(200), ..Bounds::of(8) };
    let (stop, stopping) = watch::channel(false);
    let activity = Observed::new().activity.clone();
    let endpoint = Endpoint::new(activity, PATIENCE, SOCKETS, None, stopping.clone());
    let task = tokio::spawn(listener.serve_within(router(endpoint), bounds, stopping));
    let own = address.to_string();
    let whole =
        request("POST /activity/ws-1/heartbeat", &[("host", &own)], r#"{"connection": "a"}"#);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&whole.as_bytes()[..whole.len() - 5]).await.unwrap();
    let mut said = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut said)).await;
    read.expect("it is closed in time").expect("an answer");
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    assert!(said.ends_with("the request took too long"), "{said}");
    stop.send_replace(true);
    tokio::time::timeout(PATIENCE, task).await.expect("it ends").expect("it does not panic");
}

/// Idle connections make room; busy ones end with their response while a caller is waiting.
#[tokio::test]
async fn known_connections_make_room_for_newcomers() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), SECRET, 0o600);
    let tokens = vec![Tokens::read(&file, Rights::All).unwrap()];
    let listener = Listener::tcp(ANY, tokens, None, None).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let observed = Observed::new();
    // No connection in this test is closed because it is idle for too long.
    let bounds = Bounds { header_max: 100 * PATIENCE, ..Bounds::of(8) };
    let (stop, stopping) = watch::channel(false);
    let endpoint =
        Endpoint::new(observed.activity.clone(), PATIENCE, SOCKETS, None, stopping.clone());
    let task = tokio::spawn(listener.serve_within(router(endpoint), bounds, stopping));
    let (own, shown) = (address.to_string(), format!("Bearer {SECRET}"));
    let beat = request(HEARTBEAT, &[("host", &own), ("authorization", &shown)], "");
    let mut all = std::collections::VecDeque::new();
    for n in 0..5 * bounds.connections_max {
        let mut newcomer = TcpStream::connect(address).await.unwrap();
        assert_eq!(next(&mut newcomer, &beat).await.map(|(status, _)| status), Some(204), "{n}");
        all.push_back(newcomer);
        if all.len() > bounds.connections_max {
            let mut longest = all.pop_front().expect("one");
            assert!(is_closed(&mut longest).await, "{n}: it rested for the longest");
            // The other connections remain open.
            let last = all.back_mut().expect("one");
            assert_eq!(next(last, &beat).await, Some((204, true)), "{n}");
        }
    }
    // All connections are in the middle of a request: each is answered, and one of them then makes
    // room.
    let headers = [("host", own.as_str()), ("authorization", shown.as_str()), EXPECTS];
    let slow = request("POST /activity/ws-1/heartbeat", &headers, r#"{"connection": "a"}"#);
    let (head, body) = slow.split_at(slow.find('{').expect("a body"));
    let mut all: Vec<TcpStream> = all.into();
    for stream in &mut all {
        assert_eq!(next(stream, head).await, Some((100, true)), "its body is waited for");
    }
    let newcomer = TcpStream::connect(address).await.unwrap();
    let waiting = tokio::spawn(async move { exchange(newcomer, &beat).await });
    for stream in &mut all {
        assert_eq!(next(stream, body).await.map(|(status, _)| status), Some(204));
    }
    let (status, answer) =
        tokio::time::timeout(PATIENCE, waiting).await.expect("in time").expect("it does not panic");
    assert_eq!(status, 204, "{answer}");
    stop.send_replace(true);
    tokio::time::timeout(PATIENCE, task).await.expect("it ends").expect("it does not panic");
}

/// Whoever has one token cannot keep out those with another, however many responses without an end
/// are read with it.
#[tokio::test]
async fn a_token_with_most_of_the_connections_makes_room_for_others() {
    const OTHER: &str = "another-token-of-at-least-32-characters";
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), &format!("one {SECRET}\ntwo {OTHER}\n"), 0o600);
    let tokens = vec![Tokens::read(&file, Rights::All).unwrap()];
    let listener = Listener::tcp(ANY, tokens, None, None).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let bounds = Bounds { header_max: 100 * PATIENCE, ..Bounds::of(8) };
    let endless = axum::routing::get(|| async {
        let lines = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        axum::body::Body::from_stream(futures::stream::iter([Ok("\n".into())]).chain(lines))
    });
    let answered = axum::routing::get(|| async { "answered" });
    let router = axum::Router::new().route("/watch", endless).route("/", answered);
    let (stop, stopping) = watch::channel(false);
    let task = tokio::spawn(listener.serve_within(router, bounds, stopping));
    let own = address.to_string();
    let asks = |path: &str, token: &str| {
        let shown = format!("Bearer {token}");
        request(&format!("GET {path}"), &[("host", &own), ("authorization", &shown)], "")
    };
    let mut watching = Vec::new();
    for _ in 0..bounds.connections_max {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(asks("/watch", SECRET).as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200");
        watching.push(stream);
    }
    let mut later = Vec::new();
    for oldest in watching.iter_mut().take(3) {
        let stream = TcpStream::connect(address).await.unwrap();
        let (status, said) = exchange(stream, &asks("/", OTHER)).await;
        assert!(status == 200 && said.ends_with("answered"), "{said}");
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, oldest.read_to_end(&mut rest)).await;
        ended.expect("it is closed").ok();
        // Room for one more is left, which is used up again.
        let mut again = TcpStream::connect(address).await.unwrap();
        again.write_all(asks("/watch", SECRET).as_bytes()).await.unwrap();
        again.read_exact(&mut [0; 12]).await.unwrap();
        later.push(again);
    }
    stop.send_replace(true);
    task.abort();
}

/// Asks the host to report when it waits for the body.
const EXPECTS: (&str, &str) = ("expect", "100-continue");

/// Allows two WebSockets in total.
const SOCKETS: Sockets = Sockets { all: 2, per_ticket: 1 };
/// A loopback address with a port chosen by the system.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// A token of the minimum length.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_token_that_others_can_read_or_can_guess_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let two = format!("{SECRET}\nann short\n");
    for (content, mode, words) in [
        (SECRET, 0o640, "chmod 600"),
        (SECRET, 0o604, "chmod 600"),
        (" \n", 0o600, "empty"),
        ("s3cret", 0o600, "line 1: a token of 6 characters is too short"),
        (&two, 0o600, "line 2: a token of 5"),
        ("one two three", 0o600, "write TOKEN or NAME TOKEN"),
    ] {
        let read = Tokens::read(&token_file(directory.path(), content, mode), Rights::All);
        let said = read.err().expect("it is refused").to_string();
        assert!(said.contains(words) && said.contains("token"), "{mode:o}: {said}");
    }
}

#[tokio::test]
async fn beyond_this_machine_there_is_no_token_without_tls() {
    let directory = tempfile::tempdir().unwrap();
    let tokens =
        || vec![Tokens::read(&token_file(directory.path(), SECRET, 0o600), Rights::All).unwrap()];
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Listener::tcp(everywhere, tokens(), None, None).await.err().expect("refused");
    assert!(refused.to_string().contains("tls_cert"), "{refused}");
    assert!(Listener::tcp(ANY, tokens(), None, None).await.is_ok());
}

/// Silent callers take neither the places of others nor keep their own forever.
#[tokio::test]
async fn strangers_who_say_nothing_are_few_and_are_closed() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), SECRET, 0o600);
    let tokens = vec![Tokens::read(&file, Rights::All).unwrap()];
    let listener = Listener::tcp(ANY, tokens, None, None).await.unwrap();
    let address = listener.address().unwrap().expect("TCP was asked for");
    let observed = Observed::new();
    let bounds = Bounds {
        connections_max: 8,
        strangers_max: 4,
        strangers_per_address_max: 3,
        header_max: Duration::from_secs(2),
        ..Bounds::default()
    };
    let (stop, stopping) = watch::channel(false);
    let endpoint =
        Endpoint::new(observed.activity.clone(), PATIENCE, SOCKETS, None, stopping.clone());
    let task = tokio::spawn(listener.serve_within(router(endpoint), bounds, stopping));
    let shown = format!("Bearer {SECRET}");
    let own = address.to_string();
    let headers = [("host", own.as_str()), ("authorization", shown.as_str())];
    // Authenticated connections keep their places and do not count as unauthenticated.
    let mut known = TcpStream::connect(address).await.unwrap();
    let get = request("GET /activity/ws-1", &headers, "").replace("connection: close\r\n", "");
    known.write_all(get.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    known.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        silent.push(stream);
    }
    // One more connection from the same address replaces the oldest, and an authenticated caller
    // gets in.
    let stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(exchange(stream, &request("GET /activity/ws-1", &headers, "")).await.0, 200);
    let mut oldest = silent.remove(0);
    let ended = tokio::time::timeout(PATIENCE, oldest.read(&mut answer)).await.expect("in time");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    for mut stream in silent {
        let mut said = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
        read.expect("each is closed in time").ok();
    }
    // Their places are then free for others.
    let stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(exchange(stream, &request("GET /activity/ws-1", &headers, "")).await.0, 200);
    stop.send_replace(true);
    tokio::time::timeout(PATIENCE, task).await.expect("it ends").expect("it does not panic");
}
