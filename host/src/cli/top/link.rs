//! The connection of the dashboard to a host: snapshots, queries and actions. Reconnects until the
//! dashboard is closed.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use besom_core::backoff::Backoff;
use besom_core::command::Action;
use besom_snapshot::{Answer, Frame, MODEL, Query, Refusal, Snapshot};
use besom_tui::dash::Feed;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use besom_engine::api::{STORE, Served, admin};
use besom_engine::host::clock;
use besom_services::courier::tls;

/// Maximum time for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Maximum time for an answer, which includes the time that a command waits for a leader.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Maximum silence of a host, which sends a frame at least every two seconds.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// Maximum time until the first snapshot.
const FIRST_MAX: Duration = Duration::from_secs(20);
/// The pauses between attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(4));
/// Maximum size of a line and of an answer, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// The address of the admin API of a host.
#[derive(Debug, Clone)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A TCP address with its token and TLS settings.
    Tcp(Arc<Remote>),
}

/// A host reached over TCP.
pub struct Remote {
    /// Host name or address, and port.
    pub at: Authority,
    /// The bearer token sent with each request.
    pub token: String,
    /// The TLS client; `None` for a loopback address without TLS.
    pub tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Remote {
    /// Creates a remote for `HOST:PORT`. Uses TLS for any address except loopback, and for loopback if `ca`
    /// or `identity` is given. `ca` is a file with the certificate authority; without it, the system's are
    /// used. `identity` is for hosts that require client certificates.
    ///
    /// # Errors
    /// An invalid address, or a file with authorities that cannot be read.
    pub fn new(
        at: &str,
        token: String,
        ca: Option<&Path>,
        identity: Option<tls::Identity<'_>>,
    ) -> anyhow::Result<Remote> {
        let authority: Authority = at
            .parse()
            .ok()
            .filter(|at: &Authority| at.port().is_some())
            .with_context(|| format!("`{at}` is not an address: write HOST:PORT"))?;
        let host = authority.host();
        let near = host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let tls = match near && ca.is_none() && identity.is_none() {
            true => None,
            false => Some(TlsConnector::from(Arc::new(tls::client_with(ca, identity)?))),
        };
        Ok(Remote { at: authority, token, tls })
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let host = self.at.host().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, self.at.port_u16().unwrap_or_default())).await?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned())?;
                handshake(tls.connect(name, stream).await.context("TLS")?).await
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(remote) => write!(f, "{}", remote.at),
        }
    }
}

/// Connects to the hosts of a deployment, one at a time; a lost connection moves on to the next host.
#[derive(Debug, Clone)]
pub struct Link {
    addresses: Arc<[Address]>,
    /// Counts the lost connections; selects the current address.
    turn: Arc<AtomicUsize>,
    readonly: bool,
    /// The store that the hosts have to serve; `None`: any.
    store: Option<Arc<Served>>,
}

impl Link {
    /// Creates a link to the hosts at `addresses`, which must not be empty. With `readonly`, the hosts
    /// refuse every change requested through this link.
    pub fn new(addresses: Vec<Address>, readonly: bool) -> Link {
        Link { addresses: addresses.into(), turn: Arc::default(), readonly, store: None }
    }

    /// The same link, refused by hosts of other stores.
    pub fn only_for(self, store: Option<Served>) -> Link {
        Link { store: store.map(Arc::new), ..self }
    }

    /// The address of the current host.
    pub fn address(&self) -> &Address {
        &self.addresses[self.turn.load(Ordering::Relaxed) % self.addresses.len()]
    }

    /// Sends each connection, each snapshot and each loss with its reason to `feeds`, until the receiver is
    /// closed.
    pub async fn watch(self, feeds: mpsc::Sender<Feed>) {
        let mut failures = 0;
        loop {
            let mut seen = false;
            let why = match self.pictures(&feeds, &mut seen).await {
                Ok(()) => return,
                Err(error) => self.words(&error),
            };
            if seen {
                failures = 0;
            }
            // Tries every address once before it pauses.
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
            if !turn.is_multiple_of(self.addresses.len()) {
                if feeds.send(Feed::Lost { why, retry_at: None }).await.is_err() {
                    return;
                }
                continue;
            }
            let pause = PAUSES.pause(failures, 0);
            failures = failures.saturating_add(1);
            let retry_at = clock::wall() + pause;
            if feeds.send(Feed::Lost { why, retry_at: Some(retry_at) }).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Describes an error, with a hint if no host listens.
    fn words(&self, error: &anyhow::Error) -> String {
        let no_host = error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        });
        match no_host {
            true => format!("no host listens at {}: `besom serve` starts one", self.address()),
            false if let Some(Misdirected(words)) = error.downcast_ref() => words.clone(),
            false => format!("{}: {error:#}", self.address()),
        }
    }

    /// The refusal of a host that serves another store.
    fn misdirected(&self, theirs: &[u8]) -> anyhow::Error {
        let theirs = String::from_utf8_lossy(theirs);
        let words =
            self.store.as_ref().map(|store| store.unlike(&theirs, self.address(), "api.socket"));
        Misdirected(words.unwrap_or_else(|| theirs.into_owned())).into()
    }

    /// Forwards the snapshots of one connection. Returns `Ok` if the receiver is closed.
    async fn pictures(&self, feeds: &mpsc::Sender<Feed>, seen: &mut bool) -> anyhow::Result<()> {
        let request = self.request(Method::GET, "/v1/watch", Bytes::new())?;
        let mut sender = self.connect().await?;
        let answer = tokio::time::timeout(FIRST_MAX, sender.send_request(request)).await??;
        if answer.status() == StatusCode::MISDIRECTED_REQUEST {
            return Err(self.misdirected(&bytes(answer.into_body()).await?));
        }
        understood(answer.status())?;
        if feeds.send(Feed::Connected).await.is_err() {
            return Ok(());
        }
        let mut lines = Lines { body: answer.into_body(), rest: Vec::new() };
        let mut last: Option<Snapshot> = None;
        loop {
            let patience = if last.is_some() { SILENT_MAX } else { FIRST_MAX };
            let line = tokio::time::timeout(patience, lines.next()).await;
            let line = line.map_err(|_| {
                anyhow::anyhow!("the host has not sent anything for {} s", patience.as_secs())
            })??;
            let frame: Frame = serde_json::from_slice(&line).map_err(another_version)?;
            let now = match (frame, last.take()) {
                (Frame::Whole(whole), _) => *whole,
                (Frame::At(at), Some(last)) => Snapshot { at, ..last },
                (Frame::Patch(patch), Some(mut last)) => {
                    patch.apply(&mut last)?;
                    last
                }
                (Frame::At(_) | Frame::Patch(_), None) => {
                    anyhow::bail!("the host sent a patch before a complete snapshot")
                }
            };
            *seen = true;
            let picture = Arc::new(now.clone());
            last = Some(now);
            if feeds.send(Feed::Snapshot(picture)).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Sends a query and waits for its answer.
    pub async fn ask(&self, query: &Query) -> Answer {
        self.answer("/v1/ask", query).await
    }

    /// Requests an action and waits for its result.
    pub async fn act(&self, action: Action, reason: String) -> Answer {
        self.answer("/v1/act", &admin::Request { action, reason }).await
    }

    async fn answer(&self, path: &str, body: &impl Serialize) -> Answer {
        let asked = tokio::time::timeout(ANSWER_MAX, self.post(path, body)).await;
        let asked = asked.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("no answer within {} s", ANSWER_MAX.as_secs()))
        });
        asked.unwrap_or_else(|error| Answer::Refused(Refusal { message: self.words(&error) }))
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Answer> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        let request = self.request(Method::POST, path, body)?;
        let answer = self.connect().await?.send_request(request).await?;
        let status = answer.status();
        let body = bytes(answer.into_body()).await?;
        if status == StatusCode::MISDIRECTED_REQUEST {
            return Err(self.misdirected(&body));
        }
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok(answer),
            Err(error) => {
                understood(status)?;
                Err(another_version(error))
            }
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::CONTENT_TYPE, "application/json");
        request = match self.address() {
            Address::Unix(_) => request.header(header::HOST, "localhost"),
            Address::Tcp(remote) => request
                .header(header::HOST, remote.at.as_str())
                .header(header::AUTHORIZATION, format!("Bearer {}", remote.token)),
        };
        if self.readonly {
            request = request.header(admin::READONLY, "1");
        }
        if let Some(store) = &self.store {
            request = request.header(STORE, store.header());
        }
        Ok(request.body(Full::new(body))?)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let connected = async {
            match self.address() {
                Address::Unix(path) => handshake(UnixStream::connect(path).await?).await,
                Address::Tcp(remote) => remote.connect().await,
            }
        };
        tokio::time::timeout(CONNECT_MAX, connected)
            .await
            .map_err(|_| anyhow::anyhow!("no connection within {} s", CONNECT_MAX.as_secs()))?
    }
}

async fn handshake<S>(stream: S) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection task ends when the sender or the body of the answer is dropped.
    tokio::spawn(connection);
    Ok(sender)
}

/// A host that serves another store, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misdirected(String);

/// The whole body of an answer.
async fn bytes(body: Incoming) -> anyhow::Result<Bytes> {
    let body = Limited::new(body, BYTES_MAX).collect().await;
    Ok(body.map_err(|error| anyhow::anyhow!(error))?.to_bytes())
}

fn understood(status: StatusCode) -> anyhow::Result<()> {
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED => anyhow::bail!("the host does not accept this token"),
        StatusCode::NOT_FOUND => {
            anyhow::bail!("the version of the host does not support this request")
        }
        status => anyhow::bail!("the host answered {status}"),
    }
}

fn another_version(error: serde_json::Error) -> anyhow::Error {
    anyhow::anyhow!("the host uses another version of the data model than {MODEL}: {error}")
}

/// Reads the lines of a body.
struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.rest[looked..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=looked + end).collect();
                line.pop();
                return Ok(line);
            }
            looked = self.rest.len();
            anyhow::ensure!(looked <= BYTES_MAX, "the host sent a line that is too long");
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                None => anyhow::bail!("the host closed the connection"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
