//! Queries the host of this configuration over its Unix socket.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// Maximum time for a host on the same machine to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Maximum size of an answer, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// Sends a GET request and decodes the JSON answer. Returns `None` if no host listens at the socket,
/// if it does not answer in time, or if the answer cannot be decoded.
pub async fn host<T: DeserializeOwned>(socket: &Path, path: &str) -> Option<T> {
    tokio::time::timeout(ANSWER_MAX, get(socket, path)).await.ok()?.ok()
}

async fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> anyhow::Result<T> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection task ends with the answer.
    tokio::spawn(connection);
    let request =
        Request::get(path).header(hyper::header::HOST, "localhost").body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    anyhow::ensure!(answer.status().is_success(), "{}", answer.status());
    let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok(serde_json::from_slice(&body)?)
}
