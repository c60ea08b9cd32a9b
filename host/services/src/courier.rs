//! Receivers of messages: the courier over HTTP, and the brokers.
//!
//! The courier makes one POST per attempt, to the URL that the configuration assigns to the
//! message's topic.
//!
//! This module decides the form of a request, its maximum duration, and how much of a response is
//! read. Redirects are not followed, so that a receiver cannot send the courier to a host that the
//! operator has not listed. There are no proxies and no cookies. A connection is kept for a few seconds after
//! an attempt, for the next one; attempts under way never share one, so that a slow receiver delays only its
//! own attempts.

pub mod kafka;
pub mod redis;
mod request;
pub mod tls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use besom_core::delivery::event::Envelope;
use besom_core::delivery::{Answer, Claimed, Reply};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Response, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use besom_config::Config;
use besom_config::delivery::{Receiver, Target};
use besom_ports::courier::Courier;

/// How long a connection without an attempt is kept. Receivers close idle connections after 5 s or more; an attempt
/// on one that is being closed fails.
const IDLE_MAX: Duration = Duration::from_secs(3);

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
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
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
        let tls = if secure { tls::client(config.delivery.ca.as_deref())? } else { tls::none()? };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is small: do not wait to combine it with more data.
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(HttpCourier { ways, store: store.to_owned(), client })
    }

    async fn attempt(&self, way: &Way, message: &Claimed, key: &str) -> Result<Answer, String> {
        let request = match request::build(way, &self.store, message, key) {
            Ok(request) => request,
            Err(error) => return Ok(Answer::Unsent(error)),
        };
        let response = self.client.request(request).await.map_err(|error| {
            let Target { host, port, .. } = &way.target;
            let is_away = error.is_connect();
            let error = anyhow::Error::from(error);
            match is_away {
                true => format!("cannot connect to {host}:{port}: {}", error.root_cause()),
                false => error.root_cause().to_string(),
            }
        })?;
        taken(response, way.reply_bytes_max).await
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
    let retry_after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| wait(text.trim(), SystemTime::now()));
    Ok(Answer::Replied { reply: Reply { status: head.status.as_u16(), body, cut }, retry_after })
}

/// The wait that a `Retry-After` asks for, in seconds or as a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_asks_for_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, seconds) in [
            ("120", Some(120)),
            ("99999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(wait(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
