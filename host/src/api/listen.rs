//! Sockets: bound with care, served until told to stop.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::connections::{self, Bounds, Door, Stranger};

/// How long open requests may hold up the end of the host.
pub const CLOSE_MAX: Duration = Duration::from_secs(1);
/// How long a request may take to be read, and until its answer begins: a command waits for a leader.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another host is listening.
    #[error("{0}: another host is listening there; give each its own socket")]
    Taken(PathBuf),
    /// Something else is there.
    #[error("{0}: this is not a socket; name another path, or move it away")]
    NotASocket(PathBuf),
    /// Everybody could call.
    #[error("{0}: other machines can reach this address; name a token file, or listen on loopback")]
    Open(SocketAddr),
    /// Tokens and answers could be read on the way.
    #[error(
        "{0}: other machines can reach this address: set tls_cert and tls_key, or listen on loopback"
    )]
    Plain(SocketAddr),
    /// TLS cannot be used.
    #[error("{path}: {words}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        words: String,
    },
    /// The token cannot be used.
    #[error("{path}: {words}")]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the fix.
        words: String,
    },
    /// The system refuses.
    #[error("{at}: {error}")]
    Io {
        /// The path or address.
        at: String,
        /// What it says.
        error: io::Error,
    },
}

/// Characters of a token: as many as 128 bits have in hexadecimal.
const TOKEN_CHARS_MIN: usize = 32;

/// The secret that a caller over TCP shows.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token of a caller from a file that only its owner can read: the first of
    /// [`Tokens`].
    ///
    /// # Errors
    /// A file that others can read, or whose token is short.
    pub fn read(path: &Path) -> Result<Token, Error> {
        Ok(parsed(path)?.remove(0).token)
    }

    /// What it says, to be shown to a host.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Compares without telling by its time how much was right.
    fn matches(&self, shown: &str) -> bool {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(shown.as_bytes()) == Sha256::digest(self.0.as_bytes())
    }
}

/// A token, and whose it is.
#[derive(Clone)]
struct Named {
    name: Option<Arc<str>>,
    token: Token,
}

/// A file of tokens, a line each: `TOKEN`, or `NAME TOKEN`. It is read again when it has changed,
/// so that tokens are exchanged, and withdrawn, without a restart.
#[derive(Clone)]
pub struct Tokens(Arc<File>);

struct File {
    path: PathBuf,
    rights: Rights,
    known: Mutex<(Option<FileVersion>, Vec<Named>)>,
}

/// By what a file is known to be as it was: its number, its size and when it was written.
#[derive(PartialEq, Eq, Clone, Copy)]
struct FileVersion(u64, u64, i64, i64);

impl FileVersion {
    fn of(path: &Path) -> Option<FileVersion> {
        let found = std::fs::metadata(path).ok()?;
        Some(FileVersion(found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }
}

impl Tokens {
    /// Reads the tokens of a file that only its owner can read.
    ///
    /// # Errors
    /// A file that others can read, that holds no token, or a short one.
    pub fn read(path: &Path, rights: Rights) -> Result<Tokens, Error> {
        let version = FileVersion::of(path);
        let known = Mutex::new((version, parsed(path)?));
        Ok(Tokens(Arc::new(File { path: path.to_owned(), rights, known })))
    }

    /// Whose token is shown, if it is one of these.
    fn find(&self, shown: &str) -> Option<Bearer> {
        let version = FileVersion::of(&self.0.path);
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != version {
            // What cannot be read lets nobody in: a token may have been withdrawn by it.
            let named = parsed(&self.0.path).unwrap_or_else(|error| {
                tracing::warn!(%error, "nobody is let in by these tokens");
                Vec::new()
            });
            *known = (version, named);
        }
        // Every token is compared: the time of an answer does not tell which one was nearly right.
        let mut found = None;
        for named in &known.1 {
            if named.token.matches(shown) {
                found = Some(named);
            }
        }
        found.map(|named| Bearer { name: named.name.clone(), rights: self.0.rights })
    }
}

/// The tokens of a file, at least one.
fn parsed(path: &Path) -> Result<Vec<Named>, Error> {
    let fail = |words: String| Error::Token { path: path.to_owned(), words };
    let bytes = crate::secret::read(path).map_err(fail)?;
    let text = String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8".into()))?;
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, token) = match words.as_slice() {
            [] => continue,
            [token] => (None, *token),
            [name, token] => (Some(Arc::from(*name)), *token),
            _ => return Err(fail(format!("line {}: write TOKEN or NAME TOKEN", number + 1))),
        };
        if token.len() < TOKEN_CHARS_MIN {
            return Err(fail(format!(
                "line {}: a token of {} characters can be guessed: make one of at least \
                 {TOKEN_CHARS_MIN} with `openssl rand -hex 32`",
                number + 1,
                token.chars().count()
            )));
        }
        all.push(Named { name, token: Token(token.into()) });
    }
    match all.is_empty() {
        true => Err(fail("it is empty: `openssl rand -hex 32` makes a token".into())),
        false => Ok(all),
    }
}

/// Who has shown a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The name beside the token, where the file has one.
    pub name: Option<Arc<str>>,
    /// What the token allows.
    pub rights: Rights,
}

/// TLS of a TCP socket, from PEM files.
#[derive(Debug, Clone, Copy)]
pub struct TlsFiles<'a> {
    /// The certificate, with those between it and the authority.
    pub cert: &'a Path,
    /// Its key (mode 0600).
    pub key: &'a Path,
    /// The authority that callers' certificates have to come from; none: they need none.
    pub client_ca: Option<&'a Path>,
}

impl TlsFiles<'_> {
    fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let fail = |path: &Path, words: String| Error::Tls { path: path.to_owned(), words };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Error> {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let all: Vec<_> = read.map_err(|error| fail(path, error.to_string()))?;
            match all.is_empty() {
                true => Err(fail(path, "it holds no certificate".into())),
                false => Ok(all),
            }
        };
        let key = crate::secret::read(self.key).map_err(|words| fail(self.key, words))?;
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

/// Before the token, in the subprotocol with which a web page shows it.
const TOKEN_PROTOCOL: &str = "besom.token.";

/// Who is on the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, by the number of its user; none: the system does not say.
    Local(Option<u32>),
    /// Somebody at an address.
    Remote(SocketAddr),
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Look, and change things.
    All,
    /// Only look.
    Look,
}

/// Who may call over TCP.
#[derive(Clone, Default)]
pub struct Gate {
    /// The tokens that callers show; none: only this machine can call.
    tokens: Vec<Tokens>,
    /// The origins of web pages that may open a WebSocket.
    origins: Arc<[String]>,
    /// Whether callers have seen the certificate of the name that they mean.
    encrypted: bool,
}

/// A bound socket.
pub enum Listener {
    /// A Unix socket, removed at the end.
    Unix(UnixListener, PathBuf),
    /// TCP, and who may call.
    Tcp(TcpListener, Gate),
    /// The same, encrypted.
    Tls(TcpListener, TlsAcceptor, Gate),
}

impl Listener {
    /// Binds a Unix socket of mode 0600. One that a dead host has left is replaced; one
    /// that answers is not, nor is anything that is no socket.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::NotASocket`], or what the system refuses.
    pub async fn unix(path: &Path) -> Result<Listener, Error> {
        let io = |error| Error::Io { at: path.display().to_string(), error };
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
            Ok(there) if !there.file_type().is_socket() => {
                return Err(Error::NotASocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path).await {
                // Only this says that nobody listens; a host that is too busy says otherwise.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(io(error)),
                Ok(_) | Err(_) => return Err(Error::Taken(path.to_owned())),
            },
        }
        // Bound under another name and moved, so that nobody connects before the mode is set.
        let hidden = path.with_extension(format!("{}.tmp", std::process::id()));
        let listener = UnixListener::bind(&hidden).map_err(io)?;
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        std::fs::rename(&hidden, path).map_err(io)?;
        Ok(Listener::Unix(listener, path.to_owned()))
    }

    /// Binds a TCP address, for callers with one of these tokens; web pages of these origins may
    /// open WebSockets.
    ///
    /// # Errors
    /// No token, no TLS where other machines can reach the address, files that cannot be used, or
    /// what the system refuses.
    pub async fn tcp(
        address: SocketAddr,
        tokens: Vec<Tokens>,
        origins: &[String],
        tls: Option<TlsFiles<'_>>,
    ) -> Result<Listener, Error> {
        if tokens.is_empty() {
            return Err(Error::Open(address));
        }
        let gate = Gate { tokens, origins: origins.into(), encrypted: tls.is_some() };
        match tls {
            Some(files) => {
                let tls = files.acceptor()?;
                Ok(Listener::Tls(bind(address).await?, tls, gate))
            }
            None if address.ip().is_loopback() => Ok(Listener::Tcp(bind(address).await?, gate)),
            None => Err(Error::Plain(address)),
        }
    }

    /// Binds a TCP address that only this machine can reach, for what every local user may
    /// see and change.
    ///
    /// # Errors
    /// [`Error::Open`] for any other address, or what the system refuses.
    pub async fn tcp_of_this_machine(address: SocketAddr) -> Result<Listener, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::Open(address));
        }
        Ok(Listener::Tcp(bind(address).await?, Gate::default()))
    }

    /// Its address, where it is TCP.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Listener::Unix(..) => Ok(None),
            Listener::Tcp(socket, _) | Listener::Tls(socket, ..) => socket.local_addr().map(Some),
        }
    }

    /// Serves until `stop` becomes true, and then until the open requests are answered, but
    /// no longer than [`CLOSE_MAX`].
    pub async fn serve(self, router: Router, stop: watch::Receiver<bool>) {
        self.serve_within(router, Bounds::default(), stop).await;
    }

    /// The same with other bounds.
    pub async fn serve_within(
        self,
        router: Router,
        bounds: Bounds,
        mut stop: watch::Receiver<bool>,
    ) {
        let serving = self.serve_all(router, bounds, stop.clone());
        let late = async {
            // A sender that is gone stops it as well.
            let _ = stop.wait_for(|stop| *stop).await;
            tokio::time::sleep(CLOSE_MAX).await;
        };
        tokio::select! {
            () = serving => {}
            () = late => {}
        }
    }

    async fn serve_all(self, router: Router, bounds: Bounds, stop: watch::Receiver<bool>) {
        let router = router.layer(middleware::from_fn(within_time));
        let guarded =
            |gate| router.clone().layer(middleware::from_fn_with_state(gate, only_with_token));
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

/// A request is read, and its answer begun, within [`REQUEST_MAX`].
async fn within_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => closing(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
    }
}

/// An answer after which the connection is closed.
fn closing(status: StatusCode, words: &'static str) -> Response {
    (status, [(header::CONNECTION, "close")], words).into_response()
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let fail = |error| Error::Io { at: address.to_string(), error };
    TcpListener::bind(address).await.map_err(fail)
}

async fn only_with_token(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let socket = text(header::UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
    if headers.contains_key(header::ORIGIN) {
        let allowed = |origin: &str| gate.origins.iter().any(|allowed| allowed == origin);
        if !(socket && text(header::ORIGIN).is_some_and(allowed)) {
            return closing(StatusCode::FORBIDDEN, "not for web pages");
        }
    } else if !gate.encrypted && !text(header::HOST).is_some_and(is_plain) {
        return closing(StatusCode::FORBIDDEN, "name the host by its address");
    }
    if gate.tokens.is_empty() {
        return next.run(request).await;
    }
    let header = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let mut protocols = text(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default().split(',');
    let protocol = protocols.find_map(|protocol| protocol.trim().strip_prefix(TOKEN_PROTOCOL));
    let shown = header.or(protocol.filter(|_| socket));
    let bearer = shown.and_then(|shown| {
        gate.tokens.iter().fold(None, |known, tokens| tokens.find(shown).or(known))
    });
    match bearer {
        Some(bearer) => {
            if let Some(place) = request.extensions().get::<Stranger>() {
                place.is_known();
            }
            request.extensions_mut().insert(bearer);
            next.run(request).await
        }
        None => closing(StatusCode::UNAUTHORIZED, "show the token: Authorization: Bearer ..."),
    }
}

/// Whether a host is an address or `localhost`: no name was bent to this address.
fn is_plain(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|host| {
        let name = host.host();
        name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
    })
}
