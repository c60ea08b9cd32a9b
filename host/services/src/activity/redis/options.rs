//! Connection settings for Redis, and their limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    TlsCertificates,
};

use super::keys::{CONNECTIONS_DEFAULT, TIMER_DEFAULT, Template};
use besom_ports::activity::{Error, Timeouts};

/// Default for the maximum duration of connecting.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// Default for the maximum duration of a call.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Default for the longest pause between two attempts to connect.
pub const BACKOFF_MAX_DEFAULT: Duration = Duration::from_secs(5);
/// Default for the maximum number of commands per round trip.
pub const BATCH_MAX_DEFAULT: usize = 500;

/// Connection settings for Redis, and their limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// `redis://HOST:PORT[/DATABASE]`, or `rediss://` for TLS. Several entries are nodes of one
    /// Redis Cluster; a single entry may be one too, which the server reports.
    pub servers: Vec<String>,
    /// The user of the access control list.
    pub user: Option<String>,
    /// The password of the user.
    pub password: Option<String>,
    /// The CA certificates (PEM) for the server; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate and its key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The key of the connection count, with the placeholder `{id}`.
    pub connections_key: String,
    /// The key of the timer, with the placeholder `{id}`.
    pub timer_key: String,
    /// When a connection and a timer expire.
    pub timeouts: Timeouts,
    /// Maximum duration of connecting.
    pub connect_timeout: Duration,
    /// Maximum duration of a call.
    pub call_timeout: Duration,
    /// The longest pause between two attempts to connect.
    pub backoff_max: Duration,
    /// Maximum number of commands per round trip.
    pub batch_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            servers: Vec::new(),
            user: None,
            password: None,
            ca: None,
            identity: None,
            connections_key: CONNECTIONS_DEFAULT.into(),
            timer_key: TIMER_DEFAULT.into(),
            timeouts: Timeouts::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            call_timeout: CALL_TIMEOUT_DEFAULT,
            backoff_max: BACKOFF_MAX_DEFAULT,
            batch_max: BATCH_MAX_DEFAULT,
        }
    }
}

impl Options {
    /// The templates of the two keys.
    pub(super) fn templates(&self) -> Result<(Template, Template), Error> {
        let parse = |text: &str| {
            let fix = "it must contain {id} exactly once, as in \"ws_conn:{id}\"";
            Template::parse(text).ok_or_else(|| Error(format!("the key `{text}`: {fix}")))
        };
        Ok((parse(&self.connections_key)?, parse(&self.timer_key)?))
    }

    /// One client for each configured server.
    pub(super) fn clients(&self) -> Result<Vec<Client>, Error> {
        if self.servers.is_empty() {
            return Err(Error("no Redis server is configured".into()));
        }
        self.servers.iter().map(|url| self.client(url)).collect()
    }

    fn client(&self, url: &str) -> Result<Client, Error> {
        let wrong = |words: &str| {
            let url = besom_system::secret::redact(url);
            Error(format!("`{url}`: {words}; write redis://HOST:PORT, or rediss:// for TLS"))
        };
        let info = url.into_connection_info().map_err(|error| wrong(&error.to_string()))?;
        if info.redis_settings().password().is_some() {
            return Err(Error(
                "a Redis URL contains a password; put the password into a file and set \
                 redis_password_file"
                    .into(),
            ));
        }
        self.client_of(info)
    }

    /// A client with the user, the password and the certificates.
    pub(crate) fn client_of(&self, info: ConnectionInfo) -> Result<Client, Error> {
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info = info.set_redis_settings(settings);
        let client = match info.addr() {
            ConnectionAddr::TcpTls { .. } => Client::build_with_tls(info, self.certificates()?),
            _ => Client::open(info),
        };
        client.map_err(|error| Error(format!("Redis: {error}")))
    }

    pub(crate) fn certificates(&self) -> Result<TlsCertificates, Error> {
        // There is one crypto provider per process; it may already be installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root_cert = self.ca.as_deref().map(read).transpose()?;
        let client_tls = match &self.identity {
            None => None,
            Some((cert, key)) => {
                let client_key = besom_system::secret::read(key)
                    .map_err(|words| Error(format!("{}: {words}", key.display())))?;
                Some(ClientTlsConfig { client_cert: read(cert)?, client_key })
            }
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| {
        Error(format!("{}: {error}; check its path and permissions", path.display()))
    })
}
