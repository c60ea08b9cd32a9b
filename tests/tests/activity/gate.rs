//! Who may open WebSockets over TCP, how many, and how long one stays open without being recorded.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use besom_core::time::Time;
use besom_doubles::activity::MemoryActivity;
use besom_engine::api::{Endpoint, Listener, Pages, Rights, Sockets, Tickets, Tokens, router};
use besom_ports::activity::{Activity, State, Timeouts};
use besom_tests::conformance::block_on;
use futures::{SinkExt as _, StreamExt as _};
use ring::hmac;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

/// A served endpoint over activity in memory.
struct Served {
    address: SocketAddr,
    activity: Arc<MemoryActivity>,
    endpoint: Arc<Endpoint>,
    stop: watch::Sender<bool>,
    directory: tempfile::TempDir,
}

type Socket = WebSocketStream<TcpStream>;
/// Its name and its value.
type Header<'a> = (&'static str, &'a str);

impl Served {
    async fn new(heartbeat: Duration, sockets_max: u32) -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, secret: &str| {
            let file = directory.path().join(name);
            std::fs::write(&file, format!("{secret}\n")).expect("a secret");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&file, mode).expect("its mode");
            file
        };
        let token = file("token", SECRET);
        let tokens = vec![Tokens::read(&token, Rights::All).expect("a token")];
        let tickets = Tickets::read(&file("keys", KEY), LONG).expect("a key");
        let pages = Pages { origins: ["https://app.example".to_owned()].into(), tickets };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::tcp(any, tokens, Some(pages), None).await.expect("it binds");
        let address = listener.address().expect("an address").expect("TCP was asked for");
        let clock = Arc::new(|| Time::from_secs(1_750_000_000));
        let activity = Arc::new(MemoryActivity::new(Timeouts::default(), clock));
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::clone(&activity) as Arc<dyn Activity>;
        let bounds = Sockets { all: sockets_max, per_ticket: 2 };
        let endpoint = Endpoint::new(shared, heartbeat, bounds, None, stopping.clone());
        tokio::spawn(listener.serve(router(Arc::clone(&endpoint)), stopping));
        Served { address, activity, endpoint, stop, directory }
    }

    async fn open(&self, headers: &[Header<'_>]) -> Result<Socket, u16> {
        let url = format!("ws://{}/activity/ws-1/ws", self.address);
        let mut request = url.into_client_request().expect("a request");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("a value"));
        }
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn state(&self) -> State {
        self.activity.states(&["ws-1".to_owned()]).await.expect("states")[0]
    }

    async fn known(&self, state: State) {
        while self.state().await != state {
            tokio::task::yield_now().await;
        }
    }
}

/// Reads until the other end closes.
async fn closed(socket: &mut Socket) -> Option<CloseFrame> {
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Close(frame) = message {
            return frame;
        }
    }
    None
}

const LONG: Duration = Duration::from_secs(600);
const SECRET: &str = "0123456789abcdef0123456789abcdef";
const BEARER: Header<'_> = ("authorization", "Bearer 0123456789abcdef0123456789abcdef");
const PAGE: Header<'_> = ("origin", "https://app.example");
/// A subprotocol that a client names.
fn protocol(text: &str) -> Header<'_> {
    ("sec-websocket-protocol", text)
}

/// The key that signs tickets; pages do not know it.
const KEY: &str = "fedcba9876543210fedcba9876543210";

/// A subprotocol with a ticket for `id` that expires in this many seconds, as a back end issues it.
fn ticket(id: &str, ends_in: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    let expires = now.saturating_add_signed(ends_in);
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes());
    let signed = hmac::sign(&key, format!("activity\n{id}\n{expires}").as_bytes());
    let hex: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("besom, besom.ticket.{expires}.{hex}")
}

#[test]
fn a_web_page_of_a_listed_origin_shows_a_ticket_of_one_thing_and_never_the_token() {
    block_on(async {
        let served = Served::new(LONG, 100).await;
        let (good, other) = (ticket("ws-1", 300), ticket("ws-2", 300));
        let (late, far) = (ticket("ws-1", -1), ticket("ws-1", 100_000));
        let good = protocol(&good);
        let token = protocol("besom, besom.token.0123456789abcdef0123456789abcdef");
        let cases: [(&[Header<'_>], Option<u16>); 14] = [
            (&[BEARER], None),
            (&[token], None),
            (&[PAGE, good], None),
            (&[("host", "activity.example"), PAGE, good], None),
            (&[], Some(401)),
            (&[PAGE, protocol(&other)], Some(401)),
            (&[PAGE, protocol(&late)], Some(401)),
            (&[PAGE, protocol(&far)], Some(401)),
            (&[PAGE, protocol("besom, besom.ticket.wrong")], Some(401)),
            (&[PAGE, token], Some(403)),
            (&[PAGE, BEARER], Some(403)),
            (&[("origin", "https://evil.example"), good], Some(403)),
            (&[("origin", "null"), good], Some(403)),
            (&[("host", "evil.example"), BEARER], Some(403)),
        ];
        for (headers, refused) in cases {
            assert_eq!(served.open(headers).await.err(), refused, "{headers:?}");
        }
    });
}

#[test]
fn a_socket_ends_with_the_token_that_opened_it() {
    block_on(async {
        let served = Served::new(Duration::from_secs(3), 100).await;
        let mut revoked = served.open(&[BEARER]).await.expect("a WebSocket");
        let ticketed = served.open(&[PAGE, protocol(&ticket("ws-1", 300))]).await;
        let mut ticketed = ticketed.expect("a WebSocket");
        std::fs::write(served.directory.path().join("token"), "f".repeat(32)).expect("written");
        let frame = closed(&mut revoked).await.expect("a reason");
        assert_eq!(frame.reason.as_str(), "the token was revoked");
        assert_eq!(served.open(&[BEARER]).await.err(), Some(401));
        // It was opened with a ticket, which the token did not sign.
        ticketed.send(Message::Text("here".into())).await.expect("it is open");
        served.known(State::Active).await;
    });
}

#[test]
fn one_ticket_opens_no_more_sockets_than_its_share() {
    block_on(async {
        let served = Served::new(LONG, 100).await;
        let (mine, others) = (ticket("ws-1", 300), ticket("ws-1", 301));
        let open = async |ticket: &str| served.open(&[PAGE, protocol(ticket)]).await;
        let first = open(&mine).await.expect("a WebSocket");
        let _second = open(&mine).await.expect("a WebSocket");
        assert_eq!(open(&mine).await.err(), Some(503));
        let _another = open(&others).await.expect("another ticket has a share of its own");
        drop(first);
        while open(&mine).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_web_page_opens_websockets_and_nothing_else() {
    block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let served = Served::new(LONG, 100).await;
        let mut stream = TcpStream::connect(served.address).await.expect("it listens");
        let request = format!(
            "GET /activity/ws-1 HTTP/1.1\r\nhost: {}\r\norigin: https://app.example\r\n\
             authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
             sec-websocket-protocol: {}\r\nconnection: close\r\n\r\n",
            served.address,
            ticket("ws-1", 300)
        );
        stream.write_all(request.as_bytes()).await.expect("the request is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    });
}

#[test]
fn open_is_active_and_closed_is_waiting() {
    block_on(async {
        let served = Served::new(LONG, 100).await;
        let mut socket = served.open(&[BEARER]).await.expect("a WebSocket");
        served.known(State::Active).await;
        socket.close(None).await.expect("it closes");
        served.known(State::Waiting).await;
    });
}

#[test]
fn one_socket_too_many_is_refused_until_another_has_gone() {
    block_on(async {
        let served = Served::new(LONG, 2).await;
        let first = served.open(&[BEARER]).await.expect("a WebSocket");
        let _second = served.open(&[BEARER]).await.expect("a WebSocket");
        assert_eq!(served.open(&[BEARER]).await.err(), Some(503));
        drop(first);
        while served.open(&[BEARER]).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_socket_that_cannot_be_reported_is_closed_so_that_its_client_asks_another_host() {
    block_on(async {
        let served = Served::new(Duration::from_millis(600), 100).await;
        served.activity.set_away(true);
        let mut socket = served.open(&[BEARER]).await.expect("it is not refused");
        let frame = closed(&mut socket).await.expect("a close frame");
        assert_eq!(u16::from(frame.code), 1013);
    });
}

#[test]
fn what_could_not_be_reported_at_first_is_reported_later() {
    block_on(async {
        let served = Served::new(Duration::from_secs(6), 100).await;
        served.activity.set_away(true);
        let mut socket = served.open(&[BEARER]).await.expect("it is not refused");
        served.activity.set_away(false);
        let known = served.known(State::Active);
        tokio::select! {
            () = known => {}
            frame = closed(&mut socket) => panic!("it was closed: {frame:?}"),
        }
    });
}

#[test]
fn a_message_too_large_ends_the_connection() {
    block_on(async {
        let served = Served::new(LONG, 100).await;
        let mut socket = served.open(&[BEARER]).await.expect("a WebSocket");
        served.known(State::Active).await;
        socket.send(Message::text("x".repeat(10_000))).await.expect("it is sent");
        served.known(State::Waiting).await;
    });
}

#[test]
fn the_end_of_a_host_waits_for_its_close_frames() {
    block_on(async {
        let served = Served::new(LONG, 100).await;
        let mut sockets = Vec::new();
        for _ in 0..10 {
            sockets.push(served.open(&[BEARER]).await.expect("a WebSocket"));
        }
        served.known(State::Active).await;
        served.stop.send_replace(true);
        served.endpoint.closed().await;
        for socket in &mut sockets {
            let frame = closed(socket).await.expect("a close frame");
            assert_eq!(u16::from(frame.code), 1001);
        }
        assert_eq!(served.state().await, State::Active, "left to expire");
    });
}
