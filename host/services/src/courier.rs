//! Receivers of messages: the courier over HTTP, and the brokers.
//!
//! The courier makes one POST per attempt, to the URL that the configuration assigns to the
//! message's topic.
//!
//! This module decides the form of a request, its maximum duration, and how much of a response is
//! read. Redirects are not followed, so that a receiver cannot send the courier to a host that the
//! operator has not listed. There are no proxies and no cookies. Each attempt has its own
//! connection, so that a slow receiver delays only its own attempts.

pub mod kafka;
pub mod redis;
mod request;
pub mod tls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::delivery::event::Envelope;
use besom_core::delivery::{Answer, Claimed, Reply};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use besom_config::Config;
use besom_config::delivery::{Receiver, Target};
use besom_ports::courier::Courier;

/// The prepared route of a topic.
struct Way {
    target: Target,
    token_file: Option<PathBuf>,
    content_type: String,
    schema: Option<String>,
    envelope: Envelope,
    timeout: Duration,
    reply_bytes_max: usize,
}

/// The courier of a configuration.
pub struct HttpCourier {
    ways: BTreeMap<String, Way>,
    /// The identity of the store, which is the source of all messages.
    store: String,
    /// `None`: no route needs TLS.
    tls: Option<TlsConnector>,
}

/// Checks that the token of a file can be sent.
///
/// # Errors
/// Why not, with the file.
pub fn look_at_token(file: &Path) -> Result<(), String> {
    request::token(file).map(drop)
}

/// Checks that the password of a file can be used.
///
/// # Errors
/// Why not, with the file.
pub fn look_at_password(file: &Path) -> Result<(), String> {
    password(file).map(drop)
}

/// The password of a broker's user.
fn password(file: &Path) -> Result<String, String> {
    let text = besom_system::secret::line(file)
        .map_err(|words| format!("password_file {}: {words}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Checks that the client certificate of a broker and its key can be used.
///
/// # Errors
/// Why not, with the file.
pub fn look_at_identity(cert: &Path, key: &Path) -> Result<(), String> {
    tls::identity(tls::Identity { cert, key }).map(drop).map_err(|error| format!("{error:#}"))
}

impl HttpCourier {
    /// Creates the courier for the topics of a configuration over HTTP. Their URLs were validated
    /// with the configuration. `store` is the identity of the store.
    ///
    /// # Errors
    /// An invalid URL, a token that cannot be read, or certificates that cannot be used.
    pub fn new(config: &Config, store: &str) -> anyhow::Result<HttpCourier> {
        let mut ways = BTreeMap::new();
        for (topic, route) in &config.topics {
            let receiver = Receiver::parse(&route.url)
                .map_err(|(why, fix)| anyhow::anyhow!("topics.{topic}.url {why}: {fix}"))?;
            let Receiver::Http(target) = receiver else { continue };
            if let Some(file) = &route.token_file {
                request::token(file).map_err(|e| anyhow::anyhow!("topics.{topic}: {e}"))?;
            }
            let way = Way {
                target,
                token_file: route.token_file.clone(),
                content_type: route.content_type.clone(),
                schema: route.schema.clone(),
                envelope: route.envelope,
                timeout: route.timeout,
                reply_bytes_max: usize::try_from(route.reply_bytes_max).unwrap_or(usize::MAX),
            };
            ways.insert(topic.clone(), way);
        }
        let secure = ways.values().any(|way| way.target.secure);
        let tls = secure.then(|| tls::client(config.delivery.ca.as_deref())).transpose()?;
        let tls = tls.map(|tls| TlsConnector::from(Arc::new(tls)));
        Ok(HttpCourier { ways, store: store.to_owned(), tls })
    }

    async fn attempt(&self, way: &Way, message: &Claimed, key: &str) -> Result<Answer, String> {
        let request = match request::build(way, &self.store, message, key) {
            Ok(request) => request,
            Err(error) => return Ok(Answer::Unsent(error)),
        };
        let host = way.target.host.trim_matches(['[', ']']).to_owned();
        let stream = TcpStream::connect((host.as_str(), way.target.port))
            .await
            .map_err(|error| format!("cannot connect to {host}:{}: {error}", way.target.port))?;
        // The request is small: do not wait to combine it with more data.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.as_ref().filter(|_| way.target.secure) else {
            return exchange(stream, request, way).await;
        };
        let name = rustls::pki_types::ServerName::try_from(host.clone())
            .map_err(|error| format!("{host}: {error}"))?;
        let stream =
            tls.connect(name, stream).await.map_err(|e| format!("TLS with {host}: {e}"))?;
        exchange(stream, request, way).await
    }
}

#[async_trait]
impl Courier for HttpCourier {
    async fn send(&self, message: &Claimed, idempotency_key: &str) -> Answer {
        let Some(way) = self.ways.get(&message.topic) else {
            return Answer::Failed(format!("the topic `{}` has no route", message.topic));
        };
        let attempt = self.attempt(way, message, idempotency_key);
        match tokio::time::timeout(way.timeout, attempt).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Failed(error),
            Err(_) => Answer::Failed(format!("no answer within {:?}", way.timeout)),
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    way: &Way,
) -> Result<Answer, String> {
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let mut connection = std::pin::pin!(connection);
    let mut answered = std::pin::pin!(async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        taken(response, way.reply_bytes_max).await
    });
    // The connection makes progress only while it is polled, and is dropped with this attempt.
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        ended = &mut connection => match ended {
            // The connection may close as soon as the response is complete.
            Ok(()) => answered.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

/// The response, of which at most `bytes_max` bytes are read.
async fn taken(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, String> {
    let (head, mut rest) = response.into_parts();
    let (mut body, mut cut) = (Vec::new(), false);
    while let Some(frame) = rest.frame().await {
        let frame = frame.map_err(|error| format!("the response was interrupted: {error}"))?;
        let Some(data) = frame.data_ref() else { continue };
        let left = bytes_max - body.len();
        body.extend_from_slice(&data[..data.len().min(left)]);
        if data.len() > left {
            cut = true;
            break;
        }
    }
    let seconds = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = seconds.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    Ok(Answer::Replied { reply: Reply { status: head.status.as_u16(), body, cut }, retry_after })
}
