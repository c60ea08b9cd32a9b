//! The connection to a host: its pictures as they come, questions, actions. It is made again
//! and again, for as long as somebody looks.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use besom_core::command::Action;
use besom_core::snapshot::{Answer, Frame, MODEL, Query, Refusal, Snapshot};
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

use crate::api::admin;
use crate::courier::tls;
use crate::host::clock;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take: a command waits for a leader for a while.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How long a host may say nothing: it says something every two seconds.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// How long the first picture may take.
const FIRST_MAX: Duration = Duration::from_secs(20);
/// Pauses between attempts: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// The longest line, and the longest answer, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// Where a host listens.
#[derive(Debug, Clone)]
pub enum Address {
    /// At its Unix socket.
    Unix(PathBuf),
    /// At a TCP address.
    Tcp(Arc<Remote>),
}

/// A host that is reached over TCP.
pub struct Remote {
    /// Its name or address, and its port.
    pub at: Authority,
    /// What it is shown.
    pub token: String,
    /// How its certificate is checked; none: it is this machine, spoken to in clear.
    pub tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Remote {
    /// A host at `HOST:PORT`. Beyond loopback it is spoken to by TLS, and so it is where `ca`, a file
    /// with the authority of its certificate, is named; otherwise the system's authorities count.
    ///
    /// # Errors
    /// An address that is none, or authorities that cannot be read.
    pub fn new(at: &str, token: String, ca: Option<&Path>) -> anyhow::Result<Remote> {
        let authority: Authority = at
            .parse()
            .ok()
            .filter(|at: &Authority| at.port().is_some())
            .with_context(|| format!("`{at}` is not an address: write HOST:PORT"))?;
        let host = authority.host();
        let near = host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let tls = match near && ca.is_none() {
            true => None,
            false => Some(TlsConnector::from(Arc::new(tls::client(ca)?))),
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

/// How the hosts of a deployment are spoken to: one at a time, the next where one is lost.
#[derive(Debug, Clone)]
pub struct Link {
    addresses: Arc<[Address]>,
    /// Whose turn it is, counted on.
    turn: Arc<AtomicUsize>,
    readonly: bool,
}

impl Link {
    /// A link to the hosts at these addresses, of which there is at least one. `readonly`: the
    /// right to change things is given up.
    pub fn new(addresses: Vec<Address>, readonly: bool) -> Link {
        Link { addresses: addresses.into(), turn: Arc::default(), readonly }
    }

    /// The host whose turn it is.
    pub fn address(&self) -> &Address {
        &self.addresses[self.turn.load(Ordering::Relaxed) % self.addresses.len()]
    }

    /// Watches until the receiver is gone. What is told: each connection, each picture, each
    /// loss with its reason.
    pub async fn watch(self, feeds: mpsc::Sender<Feed>) {
        let mut pause = RETRY.0;
        loop {
            let mut seen = false;
            let why = match self.pictures(&feeds, &mut seen).await {
                Ok(()) => return,
                Err(error) => self.words(&error),
            };
            if seen {
                pause = RETRY.0;
            }
            // Another host may be there; only after a round of all of them is waited.
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
            if !turn.is_multiple_of(self.addresses.len()) {
                if feeds.send(Feed::Lost { why, retry_at: None }).await.is_err() {
                    return;
                }
                continue;
            }
            let retry_at = clock::wall() + pause;
            if feeds.send(Feed::Lost { why, retry_at: Some(retry_at) }).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    /// An error with what may help.
    fn words(&self, error: &anyhow::Error) -> String {
        let no_host = error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        });
        match no_host {
            true => format!("no host listens at {}: `besom serve` starts one", self.address()),
            false => format!("{}: {error:#}", self.address()),
        }
    }

    /// One connection's pictures; fine: nobody wants them any more.
    async fn pictures(&self, feeds: &mpsc::Sender<Feed>, seen: &mut bool) -> anyhow::Result<()> {
        let request = self.request(Method::GET, "/v1/watch", Bytes::new())?;
        let mut sender = self.connect().await?;
        let answer = tokio::time::timeout(FIRST_MAX, sender.send_request(request)).await??;
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
                anyhow::anyhow!("the host has said nothing for {} s", patience.as_secs())
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
                    anyhow::bail!("the host told a difference before the whole")
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

    /// Asks something.
    pub async fn ask(&self, query: &Query) -> Answer {
        self.answer("/v1/ask", query).await
    }

    /// Has something done.
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
        let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
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
    // It ends with the sender, or with the body of its answer.
    tokio::spawn(connection);
    Ok(sender)
}

fn understood(status: StatusCode) -> anyhow::Result<()> {
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED => anyhow::bail!("the host does not take this token"),
        StatusCode::NOT_FOUND => {
            anyhow::bail!("the host is of a version that does not know this question")
        }
        status => anyhow::bail!("the host answers {status}"),
    }
}

fn another_version(error: serde_json::Error) -> anyhow::Error {
    anyhow::anyhow!("the host speaks another version than {MODEL} of this model: {error}")
}

/// A body as lines.
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
            anyhow::ensure!(looked <= BYTES_MAX, "a line of the host has no end");
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
                None => anyhow::bail!("the host has ended the connection"),
            }
        }
    }
}
