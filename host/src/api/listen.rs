//! Sockets: bound with care, served until told to stop.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;

/// A socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another host is listening.
    #[error("{0}: another host is listening there; give each its own socket")]
    Taken(PathBuf),
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

    /// Compares without telling by its time how much was right.
    fn matches(&self, shown: &str) -> bool {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(shown.as_bytes()) == Sha256::digest(self.0.as_bytes())
    }
}

/// A bound socket.
pub enum Listener {
    /// A Unix socket, removed at the end.
    Unix(UnixListener, PathBuf),
    /// TCP, with the token its callers show.
    Tcp(TcpListener, Token),
}

impl Listener {
    /// Binds a Unix socket of mode 0600. One that a dead host has left is replaced; one
    /// that answers is not.
    pub async fn unix(path: &Path) -> Result<Listener, Error> {
        let io = |error| Error::Io { at: path.display().to_string(), error };
        if path.exists() {
            if UnixStream::connect(path).await.is_ok() {
                return Err(Error::Taken(path.to_owned()));
            }
            std::fs::remove_file(path).map_err(io)?;
        }
        // Bound under another name and moved, so that nobody connects before the mode is set.
        let hidden = path.with_extension(format!("{}.tmp", std::process::id()));
        let listener = UnixListener::bind(&hidden).map_err(io)?;
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        std::fs::rename(&hidden, path).map_err(io)?;
        Ok(Listener::Unix(listener, path.to_owned()))
    }

    /// Binds a TCP address.
    pub async fn tcp(address: SocketAddr, token: Token) -> Result<Listener, Error> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Error::Io { at: address.to_string(), error })?;
        Ok(Listener::Tcp(listener, token))
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(self, router: Router, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let stopped = async move {
            // A sender that is gone stops it as well.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        match self {
            Listener::Unix(listener, path) => {
                let served = axum::serve(listener, router).with_graceful_shutdown(stopped).await;
                // Another host may have taken the path over meanwhile; it binds anew anyway.
                let _ = std::fs::remove_file(path);
                served
            }
            Listener::Tcp(listener, token) => {
                let router = router.layer(middleware::from_fn_with_state(token, only_with_token));
                axum::serve(listener, router).with_graceful_shutdown(stopped).await
            }
        }
    }
}

async fn only_with_token(State(token): State<Token>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "not for web pages").into_response();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let plain =
        name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if !plain {
        return (StatusCode::FORBIDDEN, "name the host by its address").into_response();
    }
    let shown = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    match shown {
        Some(shown) if token.matches(shown) => next.run(request).await,
        _ => {
            (StatusCode::UNAUTHORIZED, "show the token: Authorization: Bearer ...").into_response()
        }
    }
}
