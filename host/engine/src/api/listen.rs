//! Sockets: bound securely, and served until stopped.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::connections::{self, Bounds, Door, Place};
use super::tokens::{Standing, Ticket, Tickets, Tokens};

/// How long requests under way may delay the end of the host.
pub const CLOSE_MAX: Duration = Duration::from_secs(1);

/// How often refused requests are logged.
const DENIED_EVERY: Duration = Duration::from_secs(60);

/// Why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another host is listening on the socket.
    #[error("{0}: another host is listening there; give each its own socket")]
    Taken(PathBuf),
    /// The path exists and is not a socket.
    #[error("{0}: exists and is not a socket; use another path, or move the file away")]
    NotASocket(PathBuf),
    /// The address is reachable by other machines, and no token is set.
    #[error("{0}: other machines can reach this address; set a token file, or listen on loopback")]
    Open(SocketAddr),
    /// The address is reachable by other machines, and TLS is not set up.
    #[error(
        "{0}: other machines can reach this address: set tls_cert and tls_key, or listen on loopback"
    )]
    Plain(SocketAddr),
    /// The TLS files cannot be used.
    #[error("{path}: {words}")]
    Tls {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong.
        words: String,
    },
    /// The token file cannot be used.
    #[error("{path}: {words}")]
    Token {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong and how to fix it.
        words: String,
    },
    /// The operating system reported an error.
    #[error("{at}: {error}")]
    Io {
        /// The path or address concerned.
        at: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// The PEM files for TLS on a TCP socket.
#[derive(Debug, Clone, Copy)]
pub struct TlsFiles<'a> {
    /// The certificate, followed by the intermediate certificates.
    pub cert: &'a Path,
    /// The private key (mode 0600).
    pub key: &'a Path,
    /// The CA that must have issued the callers' certificates; `None`: callers need no certificate.
    pub client_ca: Option<&'a Path>,
}

impl TlsFiles<'_> {
    /// Checks that the files can be used.
    ///
    /// # Errors
    /// What is wrong, with the file.
    pub fn check(&self) -> Result<(), Error> {
        self.acceptor().map(drop)
    }

    fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let fail = |path: &Path, words: String| Error::Tls { path: path.to_owned(), words };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Error> {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let all: Vec<_> = read.map_err(|error| fail(path, error.to_string()))?;
            match all.is_empty() {
                true => Err(fail(path, "it contains no certificate".into())),
                false => Ok(all),
            }
        };
        let key = besom_system::secret::read(self.key).map_err(|words| fail(self.key, words))?;
        let key = PrivateKeyDer::from_pem_slice(&key);
        let key = key.map_err(|error| fail(self.key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| fail(self.cert, error.to_string()))?;
        let config = match self.client_ca {
            None => config.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| fail(path, error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier = verifier.map_err(|error| fail(path, error.to_string()))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let mut config = config
            .with_single_cert(certificates(self.cert)?, key)
            .map_err(|error| fail(self.cert, error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The prefix of the token in the subprotocol, for WebSocket clients that cannot set a header.
const TOKEN_PROTOCOL: &str = "besom.token.";
/// The prefix of the ticket in the subprotocol, for web pages.
const TICKET_PROTOCOL: &str = "besom.ticket.";

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine, with its user id; `None`: the system does not report it.
    Local(Option<u32>),
    /// A process at this address.
    Remote(SocketAddr),
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Read, and make changes.
    All,
    /// Read only.
    Look,
}

/// The web pages that may open WebSockets, each with a ticket.
#[derive(Clone)]
pub struct Pages {
    /// The allowed origins.
    pub origins: Arc<[String]>,
    /// The keys that sign their tickets.
    pub tickets: Tickets,
}

/// Access control for a TCP socket.
#[derive(Clone, Default)]
pub struct Gate {
    /// The accepted tokens; empty: no token is required, and only this machine can connect.
    tokens: Vec<Tokens>,
    /// The web pages that may open a WebSocket; `None`: none may.
    pages: Option<Pages>,
    /// Whether callers use TLS and so have verified the host's name.
    encrypted: bool,
    denied: Arc<Denied>,
}

/// Counts the requests that were refused, so that guessing leaves a trace and cannot flood the log.
#[derive(Default)]
struct Denied(Mutex<Option<Denials>>);

struct Denials {
    said: Instant,
    /// Requests since then.
    more: u64,
}

impl Denied {
    /// How many requests to report now, this one included; `None`: a report was made a moment ago.
    fn note(&self, now: Instant) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *known {
            Some(denials) if now.duration_since(denials.said) < DENIED_EVERY => {
                denials.more += 1;
                None
            }
            denials => {
                let more = denials.as_ref().map_or(0, |denials| denials.more);
                *denials = Some(Denials { said: now, more: 0 });
                Some(more + 1)
            }
        }
    }
}

/// A bound socket.
pub enum Listener {
    /// A Unix socket, which is removed at the end.
    Unix(UnixListener, PathBuf),
    /// A TCP socket with its access control.
    Tcp(TcpListener, Gate),
    /// A TCP socket with TLS and its access control.
    Tls(TcpListener, TlsAcceptor, Gate),
}

impl Listener {
    /// Binds a Unix socket of mode 0600. A stale socket of a dead host is replaced; a socket that
    /// accepts connections, or any other file, is not.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::NotASocket`], or an error of the operating system.
    pub async fn unix(path: &Path) -> Result<Listener, Error> {
        let io = |error| Error::Io { at: path.display().to_string(), error };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(Error::NotASocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path).await {
                // Only this error shows that no process is listening; a busy host causes other
                // errors.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(io(error)),
                Ok(_) | Err(_) => return Err(Error::Taken(path.to_owned())),
            },
        }
        // Bound in a directory that nobody else can enter and renamed, so that no client connects
        // before the mode is set.
        let closed = path.with_extension(format!("{}.tmp", std::process::id()));
        let hidden = closed.join("s");
        let mut directory = std::fs::DirBuilder::new();
        directory.mode(0o700);
        if directory.create(&closed).is_err() {
            // A process of the same number may have died at this point.
            std::fs::remove_file(&hidden).ok();
            std::fs::remove_dir(&closed).map_err(io)?;
            directory.create(&closed).map_err(io)?;
        }
        let bound = UnixListener::bind(&hidden).and_then(|listener| {
            std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&hidden, path)?;
            Ok(listener)
        });
        if bound.is_err() {
            std::fs::remove_file(&hidden).ok();
        }
        std::fs::remove_dir(&closed).map_err(io)?;
        Ok(Listener::Unix(bound.map_err(io)?, path.to_owned()))
    }

    /// Binds a TCP address, for callers with one of these tokens and for web pages with a ticket.
    ///
    /// # Errors
    /// There is no token, TLS is missing although other machines can reach the address, a file
    /// cannot be used, or the operating system reports an error.
    pub async fn tcp(
        address: SocketAddr,
        tokens: Vec<Tokens>,
        pages: Option<Pages>,
        tls: Option<TlsFiles<'_>>,
    ) -> Result<Listener, Error> {
        if tokens.is_empty() {
            return Err(Error::Open(address));
        }
        let gate = Gate { tokens, pages, encrypted: tls.is_some(), denied: Arc::default() };
        match tls {
            Some(files) => {
                let tls = files.acceptor()?;
                Ok(Listener::Tls(bind(address).await?, tls, gate))
            }
            None if address.ip().is_loopback() => Ok(Listener::Tcp(bind(address).await?, gate)),
            None => Err(Error::Plain(address)),
        }
    }

    /// Binds a TCP address that only this machine can reach, for data that every local user may
    /// read and change.
    ///
    /// # Errors
    /// [`Error::Open`] for any other address, or an error of the operating system.
    pub async fn tcp_of_this_machine(address: SocketAddr) -> Result<Listener, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::Open(address));
        }
        Ok(Listener::Tcp(bind(address).await?, Gate::default()))
    }

    /// The address of a TCP socket.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Listener::Unix(..) => Ok(None),
            Listener::Tcp(socket, _) | Listener::Tls(socket, ..) => socket.local_addr().map(Some),
        }
    }

    /// Serves until `stop` becomes true, and then until the open requests are answered, at most
    /// [`CLOSE_MAX`].
    pub async fn serve(self, router: Router, stop: watch::Receiver<bool>) {
        self.serve_within(router, Bounds::default(), stop).await;
    }

    /// Like [`Listener::serve`], with the given limits.
    pub async fn serve_within(
        self,
        router: Router,
        bounds: Bounds,
        mut stop: watch::Receiver<bool>,
    ) {
        let serving = self.serve_all(router, bounds, stop.clone());
        let late = async {
            // A dropped sender also stops it.
            let _ = stop.wait_for(|stop| *stop).await;
            tokio::time::sleep(CLOSE_MAX).await;
        };
        tokio::select! {
            () = serving => {}
            () = late => {}
        }
    }

    async fn serve_all(self, router: Router, bounds: Bounds, stop: watch::Receiver<bool>) {
        let router = router.layer(middleware::from_fn_with_state(bounds.request_max, within_time));
        let guarded =
            |gate| router.clone().layer(middleware::from_fn_with_state(gate, only_with_right));
        match self {
            Listener::Unix(listener, path) => {
                let remove = || {
                    let _ = std::fs::remove_file(path);
                };
                connections::serve(&Door::Unix(listener), router, bounds, stop, remove).await;
            }
            Listener::Tcp(listener, gate) => {
                let router = guarded(gate);
                connections::serve(&Door::Tcp(listener, None), router, bounds, stop, || {}).await;
            }
            Listener::Tls(listener, tls, gate) => {
                let (door, router) = (Door::Tcp(listener, Some(tls)), guarded(gate));
                connections::serve(&door, router, bounds, stop, || {}).await;
            }
        }
    }
}

/// Limits the time to read a request and to begin its response.
async fn within_time(State(max): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(max, next.run(request)).await {
        Ok(response) => response,
        Err(_) => closing(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
    }
}

/// A response after which the connection is closed.
fn closing(status: StatusCode, words: impl Into<String>) -> Response {
    (status, [(header::CONNECTION, "close")], words.into()).into_response()
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let fail = |error| Error::Io { at: address.to_string(), error };
    TcpListener::bind(address).await.map_err(fail)
}

async fn only_with_right(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let right = gate.judge(&request);
    if let Ok(right) = &right
        && let Some(place) = request.extensions().get::<Place>()
    {
        // If no token is required, every caller counts as authenticated.
        place.is_known(match right {
            Some(Right::Token(standing)) => Some(standing.shown()),
            Some(Right::Ticket(_)) | None => None,
        });
    }
    let right = match right {
        Err((status, words)) => {
            if let Some(requests) = gate.denied.note(Instant::now()) {
                let from = match request.extensions().get() {
                    Some(ConnectInfo(Peer::Remote(address))) => Some(address.ip().to_string()),
                    Some(ConnectInfo(Peer::Local(_))) | None => None,
                };
                tracing::warn!(
                    requests,
                    from,
                    status = status.as_u16(),
                    why = words,
                    "requests were denied; at most one of these lines a minute"
                );
            }
            return closing(status, words);
        }
        Ok(None) => return next.run(request).await,
        Ok(Some(right)) => right,
    };
    match right {
        Right::Token(standing) => request.extensions_mut().insert(standing).map(drop),
        Right::Ticket(ticket) => request.extensions_mut().insert(ticket).map(drop),
    };
    next.run(request).await
}

/// The credentials of a caller over TCP.
enum Right {
    Token(Standing),
    /// Valid only for the WebSocket of the id that it was signed for.
    Ticket(Ticket),
}

impl Gate {
    /// The credentials of a request; `None`: none are required.
    fn judge(&self, request: &Request) -> Result<Option<Right>, (StatusCode, String)> {
        let forbidden = |words: &str| Err((StatusCode::FORBIDDEN, words.to_owned()));
        let headers = request.headers();
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let socket = text(header::UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
        let shown = |prefix| {
            let mut protocols = text(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default().split(',');
            protocols.find_map(|protocol| protocol.trim().strip_prefix(prefix)).filter(|_| socket)
        };
        let page = headers.contains_key(header::ORIGIN);
        if page {
            let origins = self.pages.as_ref().map_or(&[][..], |pages| &pages.origins);
            let allowed = |origin: &str| origins.iter().any(|allowed| allowed == origin);
            if !(socket && text(header::ORIGIN).is_some_and(allowed)) {
                return forbidden("requests from web pages are not allowed");
            }
        } else if !self.encrypted {
            // A second name, in another header or in the request line, could be the one that counts
            // for whoever forwards the request.
            let once = headers.get_all(header::HOST).iter().count() <= 1;
            if !once || request.uri().authority().is_some() {
                let words = "send one Host header, and a path in the request line";
                return Err((StatusCode::BAD_REQUEST, words.to_owned()));
            }
            if !text(header::HOST).is_some_and(is_plain) {
                return forbidden("the Host header must contain an IP address or localhost");
            }
        }
        if let (Some(ticket), Some(pages)) = (shown(TICKET_PROTOCOL), &self.pages) {
            let id = socket_of(request.uri().path());
            let id =
                id.ok_or((StatusCode::FORBIDDEN, "a ticket is only valid for WebSockets".into()))?;
            let judged = pages.tickets.judge(ticket, &id, SystemTime::now());
            let right = judged.map_err(|words| (StatusCode::UNAUTHORIZED, words))?;
            return Ok(Some(Right::Ticket(right)));
        }
        if page {
            // The token allows reports for every id, and every user of the page could read it.
            return forbidden("a web page must send a ticket, not the token");
        }
        if self.tokens.is_empty() {
            return Ok(None);
        }
        let header = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let shown = header.or(shown(TOKEN_PROTOCOL));
        let standing = shown.and_then(|shown| Standing::of(&self.tokens, shown));
        let right = standing.map(Right::Token).ok_or_else(|| {
            (
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: send Authorization: Bearer ...".to_owned(),
            )
        })?;
        Ok(Some(right))
    }
}

/// The id in the path of a WebSocket, `/activity/{id}/ws`.
fn socket_of(path: &str) -> Option<String> {
    let id = path.strip_prefix("/activity/")?.strip_suffix("/ws")?;
    let id = Some(id).filter(|id| !id.is_empty() && !id.contains('/'))?;
    percent_decode_str(id).decode_utf8().ok().map(String::from)
}

/// Whether the host is an IP address or `localhost`. Other names could be bound to this address by
/// DNS rebinding.
fn is_plain(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|host| {
        let name = host.host();
        name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_are_denied_are_counted_and_reported_once_a_minute() {
        let (denied, begun) = (Denied::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let told: Vec<_> = [0, 1, 59, 60, 61].map(|s| denied.note(at(s))).into_iter().collect();
        assert_eq!(told, [Some(1), None, None, Some(3), None]);
    }
}
