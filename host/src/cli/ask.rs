//! Queries the host of this configuration over its Unix socket.

use std::path::Path;
use std::time::Duration;

use besom_engine::api::{STORE, Served};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// Maximum time for a host on the same machine to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Maximum size of an answer, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// Why a host has not answered.
#[derive(Debug)]
pub enum Unanswered {
    /// No host listens, or its answer has not come in time or cannot be decoded.
    Silent,
    /// The host that listens serves another store, of this name.
    Other(String),
}

impl From<anyhow::Error> for Unanswered {
    fn from(_: anyhow::Error) -> Unanswered {
        Unanswered::Silent
    }
}

/// Sends a GET request to a host of this store, or of any (`None`), and decodes the JSON answer.
///
/// # Errors
/// [`Unanswered`].
pub async fn host<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    store: Option<&Served>,
) -> Result<T, Unanswered> {
    let answer = tokio::time::timeout(ANSWER_MAX, get(socket, path, store)).await;
    match answer.map_err(anyhow::Error::from)?? {
        (StatusCode::MISDIRECTED_REQUEST, body) => {
            Err(Unanswered::Other(String::from_utf8_lossy(&body).into_owned()))
        }
        (_, body) => Ok(serde_json::from_slice(&body).map_err(anyhow::Error::from)?),
    }
}

/// The name of the store that the host at a socket serves, if it is another one than this.
pub async fn other(socket: &Path, store: &Served) -> Option<String> {
    match host::<serde::de::IgnoredAny>(socket, "/status", Some(store)).await {
        Err(Unanswered::Other(theirs)) => Some(theirs),
        Ok(_) | Err(Unanswered::Silent) => None,
    }
}

async fn get(
    socket: &Path,
    path: &str,
    store: Option<&Served>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection task ends with the answer.
    tokio::spawn(connection);
    let mut request = Request::get(path).header(hyper::header::HOST, "localhost");
    if let Some(store) = store {
        request = request.header(STORE, store.header());
    }
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = answer.status();
    let is_answer = status.is_success() || status == StatusCode::MISDIRECTED_REQUEST;
    anyhow::ensure!(is_answer, "{status}");
    let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok((status, body))
}
