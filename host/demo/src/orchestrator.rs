//! A stand-in for the product's orchestrator. It answers the calls of the reconciler like a real
//! one, slowly and with occasional failures, but has no effects.
//!
//! It listens on the loopback interface only and requires its token. Because it has no effects, it
//! keeps no state: the same call gets the same answer.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The default address: any free port.
pub const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The duration of an operation, in milliseconds.
const TAKES_MS: RangeInclusive<u64> = 200..=2_000;

/// One call in this many is answered with 503.
const UNAVAILABLE_ONE_IN: u32 = 8;

/// Size of a generated token, in bytes.
const TOKEN_BYTES: usize = 16;

/// The operation whose answer contains the key of the archive.
const ARCHIVING: &str = "ARCHIVING";

/// The base path of the calls.
pub(super) const PATH: &str = "/workspaces";

/// The running stand-in. It stops when this is dropped.
pub struct Orchestrator {
    address: SocketAddr,
    token: PathBuf,
    serving: JoinHandle<()>,
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Desk {
    /// The required value of the `Authorization` header.
    authorization: String,
    rng: Mutex<StdRng>,
}

impl Desk {
    /// The duration of the next call, in milliseconds, and whether it fails.
    fn draw(&self) -> (u64, bool) {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        (rng.random_range(TAKES_MS), rng.random_ratio(1, UNAVAILABLE_ONE_IN))
    }
}

/// The body of a call.
#[derive(Deserialize)]
struct Call {
    operation: String,
    operation_id: String,
    workspace_id: String,
}

/// The answer to a successful call.
#[derive(Serialize)]
struct Done {
    #[serde(skip_serializing_if = "Option::is_none")]
    archive_key: Option<String>,
}

impl Orchestrator {
    /// Listens at an address. The token is read from the file, which is created if it is missing.
    ///
    /// # Errors
    /// The address is in use, or the file can be neither read nor written.
    pub async fn start(address: SocketAddr, token: &Path, seed: u64) -> io::Result<Orchestrator> {
        let secret = secret(token, &mut rand::rng())?;
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let authorization = format!("Bearer {secret}");
        let rng = Mutex::new(StdRng::seed_from_u64(seed));
        let router = Router::new()
            .route(&format!("{PATH}/{{step}}"), post(call))
            .with_state(Arc::new(Desk { authorization, rng }));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the demo's orchestrator has stopped");
            }
        });
        Ok(Orchestrator { address, token: token.to_owned(), serving })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of its token file.
    pub fn token(&self) -> &Path {
        &self.token
    }
}

/// The token of the file, which only its owner can read.
fn secret(path: &Path, rng: &mut impl Rng) -> io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let bytes: [u8; TOKEN_BYTES] = rng.random();
            let drawn = hex::encode(bytes);
            writeln!(file, "{drawn}")?;
            Ok(drawn)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(std::fs::read_to_string(path)?.trim().to_owned())
        }
        Err(error) => Err(error),
    }
}

async fn call(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> Response {
    let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    if shown != Some(desk.authorization.as_bytes()) {
        return (
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong: send the token in orchestrator.token",
        )
            .into_response();
    }
    let Ok(call) = serde_json::from_slice::<Call>(&body) else {
        return (StatusCode::BAD_REQUEST, "the body is not a call of the reconciler")
            .into_response();
    };
    let (takes, unavailable) = desk.draw();
    tokio::time::sleep(Duration::from_millis(takes)).await;
    if unavailable {
        return (StatusCode::SERVICE_UNAVAILABLE, "no capacity at the moment").into_response();
    }
    axum::Json(done(&call)).into_response()
}

/// The answer to a successful call.
fn done(call: &Call) -> Done {
    let archive_key = (call.operation == ARCHIVING)
        .then(|| format!("archive/{}/{}", call.workspace_id, call.operation_id));
    Done { archive_key }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, authorization.parse().unwrap())])
    }

    fn desk() -> State<Arc<Desk>> {
        let rng = Mutex::new(StdRng::seed_from_u64(1));
        State(Arc::new(Desk { authorization: "Bearer secret".into(), rng }))
    }

    const ARCHIVE: &str =
        r#"{"operation": "ARCHIVING", "operation_id": "p/ws/1", "workspace_id": "ws"}"#;
    const STOP: &str =
        r#"{"operation": "STOPPING", "operation_id": "p/ws/2", "workspace_id": "ws"}"#;

    #[test]
    fn a_call_takes_its_time_and_is_now_and_then_refused() {
        let State(desk) = desk();
        let drawn: Vec<(u64, bool)> = (0..64).map(|_| desk.draw()).collect();
        assert!(drawn.iter().all(|(takes, _)| TAKES_MS.contains(takes)), "{drawn:?}");
        let refused = drawn.iter().filter(|(_, refused)| *refused).count();
        assert!((1..32).contains(&refused), "{refused} of 64");
    }

    #[test]
    fn only_an_archiving_is_answered_with_a_key() {
        for (body, content) in [(ARCHIVE, r#"{"archive_key":"archive/ws/p/ws/1"}"#), (STOP, "{}")] {
            let call = serde_json::from_str(body).unwrap();
            assert_eq!(serde_json::to_string(&done(&call)).unwrap(), content);
        }
    }

    #[tokio::test]
    async fn who_is_not_the_reconciler_gets_no_answer() {
        for (authorization, body, status) in [
            ("Bearer other", STOP, StatusCode::UNAUTHORIZED),
            ("secret", STOP, StatusCode::UNAUTHORIZED),
            ("Bearer secret", "{}", StatusCode::BAD_REQUEST),
        ] {
            let answer = call(desk(), headers(authorization), body.into()).await;
            assert_eq!(answer.status(), status, "{authorization} {body}");
        }
    }

    #[test]
    fn a_token_is_drawn_once_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orchestrator.token");
        let drawn = secret(&path, &mut StdRng::seed_from_u64(1)).unwrap();
        assert_eq!(drawn.len(), 2 * TOKEN_BYTES);
        assert_eq!(secret(&path, &mut StdRng::seed_from_u64(2)).unwrap(), drawn);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
