//! The TLS addresses of hosts: which clients are accepted, and `besom top` over TLS.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use besom_engine::api::{Bounds, Listener, Rights, TlsFiles, Tokens};
use besom_tests::servers::certificates::Authority;
use besom_tests::servers::redis::wait_for;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A loopback address with a port that the system chooses.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The files of a host, and its authority.
struct Site {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Site {
    fn new() -> Site {
        let (directory, authority) =
            (tempfile::tempdir().expect("a directory"), Authority::new("the tests' own"));
        let site = Site { directory, authority };
        let (certificate, key) = site.authority.sign("localhost", false);
        site.put("host.pem", &certificate);
        site.put("host.key", &key);
        site.put("ca.pem", site.authority.certificate());
        site.put("token", TOKEN);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).expect("set");
    }
}

/// A served listener that answers `hello` to accepted clients.
struct Serving {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn start(site: &Site, client_ca: Option<&Path>, bounds: Bounds) -> Serving {
        let tokens = vec![Tokens::read(&site.path("token"), Rights::All).expect("a token")];
        let (cert, key) = (site.path("host.pem"), site.path("host.key"));
        let tls = TlsFiles { cert: &cert, key: &key, client_ca };
        let listener = Listener::tcp(ANY, tokens, None, Some(tls)).await.expect("it listens");
        let address = listener.address().expect("an address").expect("TCP was asked for");
        let (stop, stopping) = watch::channel(false);
        let router = Router::new().route("/", get(async || "hello"));
        let task = tokio::spawn(listener.serve_within(router, bounds, stopping));
        Serving { address, stop, task }
    }

    async fn end(self) {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("it ends").expect("it does not panic");
    }
}

/// A client's trusted authority, certificate and protocol versions.
fn client(trusted: &Authority, own: Option<&(String, String)>, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(trusted.certificate().as_bytes());
    roots.add(authority.expect("a certificate")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            config.with_client_auth_cert(vec![certificate.expect("one")], key).expect("a pair")
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// The first line of the answer to a request with that token, and the negotiated protocol.
async fn ask(
    address: SocketAddr,
    client: &TlsConnector,
    token: Option<&str>,
) -> std::io::Result<(String, Option<Vec<u8>>)> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = client.connect(name, stream).await?;
    let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let request = format!(
        "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\r\n",
        token.unwrap_or_default()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("in time")?;
    let answer = String::from_utf8(answer).expect("a text");
    Ok((answer.lines().next().unwrap_or_default().to_owned(), protocol))
}

const FINE: &str = "HTTP/1.1 200 OK";

#[tokio::test]
async fn over_tls_whoever_shows_the_token_is_served_and_nobody_else() {
    let site = Site::new();
    let serving = Serving::start(&site, None, Bounds::default()).await;
    let at = serving.address;
    let known = client(&site.authority, None, &[]);
    assert_eq!(ask(at, &known, Some(TOKEN)).await.expect("an answer").0, FINE);
    for token in [None, Some("ffffffffffffffffffffffffffffffff")] {
        let (status, _) = ask(at, &known, token).await.expect("an answer");
        assert!(status.starts_with("HTTP/1.1 401 "), "{status}");
    }
    // A client that trusts another authority sends no request.
    let stranger = client(&Authority::new("another"), None, &[]);
    ask(at, &stranger, Some(TOKEN)).await.expect_err("the certificate is not trusted");
    // Requests without TLS are not answered.
    let mut clear = TcpStream::connect(at).await.expect("connected");
    let request =
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    clear.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, clear.read_to_end(&mut answer)).await;
    // A reset connection counts as closed.
    let _ = read.expect("in time");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    serving.end().await;
}

#[tokio::test]
async fn with_an_authority_for_clients_their_certificate_has_to_come_from_it() {
    let site = Site::new();
    let clients = Authority::new("clients");
    site.put("clients.pem", clients.certificate());
    let ca = site.path("clients.pem");
    let serving = Serving::start(&site, Some(&ca), Bounds::default()).await;
    let at = serving.address;
    let with = |own| client(&site.authority, own, &[]);
    let own = clients.sign("ops", false);
    assert_eq!(ask(at, &with(Some(&own)), Some(TOKEN)).await.expect("an answer").0, FINE);
    // The certificate does not replace the token.
    let (status, _) = ask(at, &with(Some(&own)), None).await.expect("an answer");
    assert!(status.starts_with("HTTP/1.1 401 "), "{status}");
    let foreign = Authority::new("foreign").sign("ops", false);
    let expired = clients.sign("ops", true);
    for (who, shown) in
        [("nothing", None), ("foreign", Some(&foreign)), ("expired", Some(&expired))]
    {
        let answer = ask(at, &with(shown), Some(TOKEN)).await;
        assert!(answer.is_err(), "{who}: {answer:?}");
    }
    serving.end().await;
}

#[tokio::test]
async fn http_1_is_the_only_protocol_that_is_agreed_on() {
    let site = Site::new();
    let serving = Serving::start(&site, None, Bounds::default()).await;
    let at = serving.address;
    let both = client(&site.authority, None, &["h2", "http/1.1"]);
    let (status, protocol) = ask(at, &both, Some(TOKEN)).await.expect("an answer");
    assert_eq!((status.as_str(), protocol.as_deref()), (FINE, Some(&b"http/1.1"[..])));
    let newer = client(&site.authority, None, &["h2"]);
    ask(at, &newer, Some(TOKEN)).await.expect_err("there is no protocol in common");
    serving.end().await;
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_closed() {
    let site = Site::new();
    let bounds = Bounds { header_max: Duration::from_millis(500), ..Bounds::default() };
    let serving = Serving::start(&site, None, bounds).await;
    let mut silent = TcpStream::connect(serving.address).await.expect("connected");
    // The beginning of a TLS record that never ends.
    silent.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut answer)).await;
    let _ = read.expect("it is closed in time");
    assert!(answer.is_empty(), "{answer:?}");
    // Other clients are served as before.
    let known = client(&site.authority, None, &[]);
    assert_eq!(ask(serving.address, &known, Some(TOKEN)).await.expect("an answer").0, FINE);
    serving.end().await;
}

/// A process that is killed with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn top_looks_at_a_host_over_tls() {
    let site = Site::new();
    // The host binds this port a moment later.
    let port = TcpListener::bind(ANY).and_then(|found| found.local_addr()).expect("a port").port();
    let config = format!(
        "[api]\ntcp = \"127.0.0.1:{port}\"\nreadonly_token_file = \"token\"\n\
         tls_cert = \"host.pem\"\ntls_key = \"host.key\"\n[node]\nname = \"one\"\n"
    );
    site.put("besom.toml", &config);
    let start = |args: &[&str], stdout: Stdio| {
        let log = fs::File::create(site.path(&format!("{}.log", args[0]))).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
        command.args(args).current_dir(site.directory.path()).env_remove("BESOM_CONFIG");
        command.stdin(Stdio::null()).stdout(stdout).stderr(log);
        Started(command.spawn().expect("it starts"))
    };
    let _host = start(&["serve"], Stdio::null());
    // `top --plain` exits with 69 if no host answers.
    let listens = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    wait_for("the host to listen", listens);
    let at = format!("localhost:{port}");
    let args = ["top", "--plain", "--connect", &at, "--ca", "ca.pem", "--token-file", "token"];
    let mut top = start(&args, Stdio::piped());
    let lines = BufReader::new(top.0.stdout.take().expect("a pipe")).lines();
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // The test has found the line.
            let _ = tell.send(line);
        }
    });
    let mut before = Vec::new();
    loop {
        let line = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let log = fs::read_to_string(site.path("serve.log")).unwrap_or_default();
            panic!("no leader is in {before:#?}\n{log}")
        });
        if line.contains("leader one") && line.contains("term 1") {
            break;
        }
        before.push(line);
    }
    drop(top);
    reader.join().expect("the reader");
}
