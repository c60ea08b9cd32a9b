//! Sockets: bound with care, served until told to stop.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;

/// How long open requests may hold up the end of the host.
pub const CLOSE_MAX: Duration = Duration::from_secs(1);

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

/// The secret that callers over TCP show.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token from a file that only its owner can read.
    ///
    /// # Errors
    /// A file that others can read, or that is empty.
    pub fn read(path: &Path) -> Result<Token, Error> {
        let fail = |words: String| Error::Token { path: path.to_owned(), words };
        let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        let mode = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
        let mode = mode.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(fail(format!("others can read it (mode {mode:o}): chmod 600")));
        }
        match text.trim() {
            "" => Err(fail("it is empty: put a long random text into it".into())),
            token => Ok(Token(token.into())),
        }
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

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        Peer::Local(stream.io().peer_cred().ok().map(|cred| cred.uid()))
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Peer {
        Peer::Remote(*stream.remote_addr())
    }
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
    /// The tokens that callers show, and what each allows; none: only this machine can call.
    tokens: Vec<(Token, Rights)>,
    /// The origins of web pages that may open a WebSocket.
    origins: Arc<[String]>,
}

/// A bound socket.
pub enum Listener {
    /// A Unix socket, removed at the end.
    Unix(UnixListener, PathBuf),
    /// TCP, and who may call.
    Tcp(TcpListener, Gate),
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

    /// Binds a TCP address, for callers with this token; web pages of these origins may open
    /// WebSockets.
    pub async fn tcp(
        address: SocketAddr,
        token: Token,
        origins: &[String],
    ) -> Result<Listener, Error> {
        let tokens = vec![(token, Rights::All)];
        let listener = bind(address).await?;
        Ok(Listener::Tcp(listener, Gate { tokens, origins: origins.into() }))
    }

    /// Binds a TCP address, for callers with one of these tokens. Without any nobody may call.
    pub async fn tcp_with(
        address: SocketAddr,
        tokens: Vec<(Token, Rights)>,
    ) -> Result<Listener, Error> {
        if tokens.is_empty() {
            return Err(Error::Open(address));
        }
        let listener = bind(address).await?;
        Ok(Listener::Tcp(listener, Gate { tokens, origins: Arc::default() }))
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

    /// Serves until `stop` becomes true, and then until the open requests are answered, but
    /// no longer than [`CLOSE_MAX`].
    ///
    /// # Errors
    /// What the system refuses.
    pub async fn serve(self, router: Router, stop: watch::Receiver<bool>) -> io::Result<()> {
        let mut stopping = stop.clone();
        let late = async {
            stopped(&mut stopping).await;
            tokio::time::sleep(CLOSE_MAX).await;
        };
        tokio::select! {
            served = self.serve_all(router, stop) => served,
            () = late => Ok(()),
        }
    }

    async fn serve_all(self, router: Router, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        match self {
            Listener::Unix(listener, path) => {
                let stopped = async move {
                    stopped(&mut stop).await;
                    // While it still listens: afterwards the path may be another host's.
                    let _ = std::fs::remove_file(path);
                };
                let router = router.into_make_service_with_connect_info::<Peer>();
                axum::serve(listener, router).with_graceful_shutdown(stopped).await
            }
            Listener::Tcp(listener, gate) => {
                let router = router.layer(middleware::from_fn_with_state(gate, only_with_token));
                let router = router.into_make_service_with_connect_info::<Peer>();
                let stopped = async move { stopped(&mut stop).await };
                axum::serve(listener, router).with_graceful_shutdown(stopped).await
            }
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let fail = |error| Error::Io { at: address.to_string(), error };
    TcpListener::bind(address).await.map_err(fail)
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone stops it as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn only_with_token(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let socket = text(header::UPGRADE).is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
    if headers.contains_key(header::ORIGIN) {
        let allowed = |origin: &str| gate.origins.iter().any(|allowed| allowed == origin);
        if !(socket && text(header::ORIGIN).is_some_and(allowed)) {
            return (StatusCode::FORBIDDEN, "not for web pages").into_response();
        }
    } else if !text(header::HOST).is_some_and(is_plain) {
        return (StatusCode::FORBIDDEN, "name the host by its address").into_response();
    }
    if gate.tokens.is_empty() {
        return next.run(request).await;
    }
    let header = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let mut protocols = text(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default().split(',');
    let protocol = protocols.find_map(|protocol| protocol.trim().strip_prefix(TOKEN_PROTOCOL));
    let shown = header.or(protocol.filter(|_| socket));
    let rights = shown.and_then(|shown| {
        // Every token is compared: the time of an answer does not tell which one was nearly right.
        gate.tokens.iter().fold(
            None,
            |known, (token, rights)| if token.matches(shown) { Some(*rights) } else { known },
        )
    });
    match rights {
        Some(rights) => {
            request.extensions_mut().insert(rights);
            next.run(request).await
        }
        None => {
            (StatusCode::UNAUTHORIZED, "show the token: Authorization: Bearer ...").into_response()
        }
    }
}

/// Whether a host is an address or `localhost`: no name was bent to this address.
fn is_plain(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|host| {
        let name = host.host();
        name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
    })
}
