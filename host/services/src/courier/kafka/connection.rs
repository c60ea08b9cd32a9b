//! A connection to a broker of Kafka: TLS, SASL, and one request after the other.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use besom_config::delivery::Sasl;
use bytes::{Buf as _, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, InitProducerIdRequest, InitProducerIdResponse,
    MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse, RequestHeader,
    ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes, VersionRange};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::sasl;

/// How the client names itself to brokers.
const CLIENT: &str = "besom";
/// Maximum size of an answer, in bytes: those that are read here describe one topic.
const ANSWER_BYTES_MAX: usize = 16 << 20;
pub(super) const NO_ANSWER: &str = "no answer within the topic's timeout";

/// How brokers are connected to.
pub(super) struct Access {
    /// `None`: without TLS.
    pub(super) tls: Option<TlsConnector>,
    pub(super) user: Option<User>,
}

/// The user of SASL.
pub(super) struct User {
    pub(super) name: String,
    pub(super) password_file: PathBuf,
    pub(super) sasl: Sasl,
}

/// A request, with the versions of it that are used here.
pub(super) trait Call: Encodable + HeaderVersion {
    type Answer: Decodable + HeaderVersion;
    const KEY: ApiKey;
    const USED: VersionRange;
}

macro_rules! calls {
    ($($request:ty, $answer:ty, $key:ident, $min:literal, $max:literal;)*) => {$(
        impl Call for $request {
            type Answer = $answer;
            const KEY: ApiKey = ApiKey::$key;
            const USED: VersionRange = VersionRange { min: $min, max: $max };
        }
    )*};
}

// From the oldest versions that have what is needed (Kafka 1.0), to the newest that name a topic by its
// name. The version of ApiVersions is the one that every broker understands.
calls! {
    ApiVersionsRequest, ApiVersionsResponse, ApiVersions, 0, 0;
    SaslHandshakeRequest, SaslHandshakeResponse, SaslHandshake, 1, 1;
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslAuthenticate, 0, 2;
    MetadataRequest, MetadataResponse, Metadata, 4, 12;
    InitProducerIdRequest, InitProducerIdResponse, InitProducerId, 0, 4;
    ProduceRequest, ProduceResponse, Produce, 3, 11;
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection. After an error or a dropped call, it must not be used again: an answer may be
/// left in it.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    versions: BTreeMap<i16, VersionRange>,
    requests: i32,
    /// When the broker ends the session of the user.
    ends: Option<Instant>,
}

impl Connection {
    /// Connects, and identifies the user.
    pub(super) async fn open(
        access: &Access,
        host: &str,
        port: u16,
        deadline: Instant,
    ) -> Result<Connection, String> {
        let opened = timeout_at(deadline, Connection::try_open(access, host, port)).await;
        let opened = opened.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()));
        opened.map_err(|error| format!("{host}:{port}: {error}"))
    }

    async fn try_open(access: &Access, host: &str, port: u16) -> Result<Connection, String> {
        let host = host.trim_matches(['[', ']']);
        let stream =
            TcpStream::connect((host, port)).await.map_err(|e| format!("cannot connect: {e}"))?;
        // A request is complete when it is written: do not wait to combine it with more data.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Stream> = match &access.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = rustls::pki_types::ServerName::try_from(host.to_owned())
                    .map_err(|error| error.to_string())?;
                Box::new(tls.connect(name, stream).await.map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                        "it ended the TLS handshake: has the listener TLS?".to_owned()
                    }
                    _ => format!("TLS: {error}"),
                })?)
            }
        };
        let mut open = Connection { stream, versions: BTreeMap::new(), requests: 0, ends: None };
        let versions = open.call(&ApiVersionsRequest::default()).await.map_err(|error| {
            let hint = match access.tls.is_some() {
                true => "does it accept the client certificate (`cert`)?",
                false => "does the listener need TLS (kafka+ssl://)?",
            };
            format!("{error}; {hint}")
        })?;
        let range = |of: kafka_protocol::messages::api_versions_response::ApiVersion| {
            (of.api_key, VersionRange { min: of.min_version, max: of.max_version })
        };
        open.versions = versions.api_keys.into_iter().map(range).collect();
        if let Some(user) = &access.user
            && let Some(lifetime) = sasl::authenticate(&mut open, user).await?
        {
            // A new connection is opened before the broker ends this one.
            open.ends = Some(Instant::now() + lifetime.mul_f32(0.8));
        }
        Ok(open)
    }

    /// Whether the user's session ends soon.
    pub(super) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }

    /// Makes a request and waits for its answer until the deadline.
    pub(super) async fn ask<C: Call>(
        &mut self,
        request: &C,
        deadline: Instant,
    ) -> Result<C::Answer, String> {
        let answer = timeout_at(deadline, self.call(request)).await;
        answer.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()))
    }

    /// Like [`Connection::ask`], without a deadline of its own.
    pub(super) async fn call<C: Call>(&mut self, request: &C) -> Result<C::Answer, String> {
        let key = C::KEY as i16;
        let version = match self.versions.get(&key) {
            _ if C::KEY == ApiKey::ApiVersions => C::USED.min,
            Some(offered) if !C::USED.intersect(offered).is_empty() => {
                C::USED.intersect(offered).max
            }
            offered => {
                let offered = offered.map_or("none".to_owned(), ToString::to_string);
                let (name, used) = (C::KEY, C::USED);
                return Err(format!("it offers {name:?} in versions {offered}, not in {used}"));
            }
        };
        self.requests = self.requests.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.requests)
            .with_client_id(Some(StrBytes::from_static_str(CLIENT)));
        let mut frame = BytesMut::zeroed(4);
        let invalid = |error| format!("a request cannot be encoded: {error}");
        header.encode(&mut frame, C::header_version(version)).map_err(invalid)?;
        request.encode(&mut frame, version).map_err(invalid)?;
        let length = u32::try_from(frame.len() - 4).map_err(|_| "a request is too large")?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)?;

        let mut answer = self.frame().await?;
        let foreign = |_| "its answer is not in Kafka's protocol".to_owned();
        let header = ResponseHeader::decode(&mut answer, C::Answer::header_version(version));
        if header.map_err(foreign)?.correlation_id != self.requests {
            return Err("it answered another request".to_owned());
        }
        C::Answer::decode(&mut answer, version).map_err(foreign)
    }

    async fn frame(&mut self) -> Result<Bytes, String> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await.map_err(lost)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > ANSWER_BYTES_MAX {
            return Err("its answer is not in Kafka's protocol".to_owned());
        }
        let mut answer = BytesMut::with_capacity(length);
        while answer.len() < length {
            let left = length - answer.len();
            if (&mut self.stream).take(left as u64).read_buf(&mut answer).await.map_err(lost)? == 0
            {
                return Err(ENDED.to_owned());
            }
        }
        Ok(answer.copy_to_bytes(length))
    }
}

const ENDED: &str = "it closed the connection";

fn lost(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            ENDED.to_owned()
        }
        _ => error.to_string(),
    }
}

/// The lifetime of a session that a broker reports; 0: without end.
pub(super) fn lifetime(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}
