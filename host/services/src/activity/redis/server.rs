//! One Redis server: a connection that is opened on demand, reopened with growing pauses, and
//! shared by all concurrent callers.

use std::time::{Duration, Instant};

use besom_core::backoff::Backoff;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, ServerError, Value};
use redis::{ConnectionAddr, ServerErrorKind, cmd, pipe};
use tokio::sync::Mutex;

use super::options::Options;
use super::scripts;

/// The pause after the first failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);

/// Why a server did not execute a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server does not answer.
    Away(String),
    /// The server rejects the credentials or the permissions of the user.
    Refused(String),
    /// Another server has the slot, or none does: the slot table has changed.
    Elsewhere(String),
    /// The slot is migrating, and the key is already at that address.
    Asking(String),
    /// The server answered with another error.
    Said(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Away(words)
            | Fault::Refused(words)
            | Fault::Elsewhere(words)
            | Fault::Asking(words)
            | Fault::Said(words) => f.write_str(words),
        }
    }
}

/// A Redis server.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    connect: AsyncConnectionConfig,
    backoff: Backoff,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    open: Option<MultiplexedConnection>,
    failures: u32,
    /// Until this time no connection is attempted, and callers receive the last fault.
    pause: Option<(Instant, Fault)>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("open", &self.open.is_some()).finish()
    }
}

impl Server {
    pub(super) fn new(client: Client, options: &Options) -> Server {
        let connect = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.call_timeout));
        let backoff = Backoff::new(BACKOFF_FIRST, options.backoff_max);
        Server { client, connect, backoff, line: Mutex::default() }
    }

    /// The address, for messages.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// The host of the address.
    pub(super) fn host(&self) -> Option<&str> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host),
            _ => None,
        }
    }

    /// The settings of this server, with another address.
    pub(super) fn at(&self, host: &str, port: u16) -> redis::ConnectionInfo {
        let info = self.client.get_connection_info().clone();
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        info.set_addr(addr)
    }

    /// Sends commands in one round trip and returns their answers.
    pub(super) async fn run(&self, pipeline: &Pipeline) -> Result<Vec<Answer>, Fault> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.send(pipeline).await?;
        let forgotten = |answer: &Answer| matches!(answer, Err(Fault::Said(words)) if words.starts_with("NOSCRIPT"));
        if !answers.iter().any(forgotten) {
            return Ok(answers);
        }
        // The scripts were flushed. Repeating the commands that were already executed has no
        // further effect, because they refer to connections by name.
        self.send(&scripts::load()).await?;
        self.send(pipeline).await
    }

    async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Answer>, Fault> {
        let mut connection = self.connection().await?;
        match connection.req_packed_commands(pipeline, 0, pipeline.len()).await {
            Ok(values) => Ok(values.into_iter().map(answer).collect()),
            Err(error) => {
                let fault = self.fault(&error);
                if matches!(fault, Fault::Away(_)) {
                    // A failed connection is dropped; the next caller opens another.
                    self.line.lock().await.open = None;
                }
                Err(fault)
            }
        }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Fault> {
        let mut line = self.line.lock().await;
        if let Some(open) = &line.open {
            return Ok(open.clone());
        }
        if let Some((until, fault)) = &line.pause
            && Instant::now() < *until
        {
            return Err(fault.clone());
        }
        match self.open().await {
            Ok(open) => {
                *line = Line { open: Some(open.clone()), ..Line::default() };
                Ok(open)
            }
            Err(fault) => {
                let pause = self.backoff.pause(line.failures, 0);
                line.failures = line.failures.saturating_add(1);
                line.pause = Some((Instant::now() + pause, fault.clone()));
                Err(fault)
            }
        }
    }

    async fn open(&self) -> Result<MultiplexedConnection, Fault> {
        let open = self.client.get_multiplexed_async_connection_with_config(&self.connect).await;
        let mut open = open.map_err(|error| self.fault(&error))?;
        let load = scripts::load();
        let loaded = open.req_packed_commands(&load, 0, load.len()).await;
        for value in loaded.map_err(|error| self.fault(&error))? {
            // A missing password or missing permissions show here.
            if let Err(fault) = answer(value) {
                return Err(match fault {
                    Fault::Said(words) => Fault::Refused(format!("{}: {words}", self.address())),
                    fault => fault,
                });
            }
        }
        Ok(open)
    }

    fn fault(&self, error: &RedisError) -> Fault {
        let words = format!("{}: {error}", self.address());
        match error.kind() {
            ErrorKind::AuthenticationFailed => Fault::Refused(words),
            ErrorKind::Server(ServerErrorKind::NoPerm) => Fault::Refused(words),
            ErrorKind::InvalidClientConfig => Fault::Refused(words),
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => Fault::Refused(words),
            // An invalid certificate does not become valid by retrying.
            _ if words.contains("invalid peer certificate") => Fault::Refused(words),
            // The database does not exist. Other errors, such as too many clients, are temporary.
            _ if words.contains("switch database") => Fault::Refused(words),
            _ => Fault::Away(words),
        }
    }
}

/// The answer to one command.
pub(super) type Answer = Result<Value, Fault>;

fn answer(value: Value) -> Answer {
    match value {
        Value::ServerError(error) => Err(said(&error)),
        value => Ok(value),
    }
}

fn said(error: &ServerError) -> Fault {
    let details = error.details().unwrap_or_default();
    let words = format!("{} {details}", error.code());
    // `ASK 3999 127.0.0.1:6381`
    let address = || details.split(' ').nth(1).unwrap_or_default().to_owned();
    match error.kind() {
        Some(ServerErrorKind::Ask) => Fault::Asking(address()),
        Some(
            ServerErrorKind::Moved
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly,
        ) => Fault::Elsewhere(words),
        Some(ServerErrorKind::BusyLoading) => Fault::Away(words),
        Some(ServerErrorKind::NoPerm) => Fault::Refused(words),
        _ if matches!(error.code(), "NOAUTH" | "WRONGPASS") => Fault::Refused(words),
        _ => Fault::Said(words),
    }
}

/// A command preceded by the one that makes a server accept it while the slot is migrating.
pub(super) fn asking(command: &redis::Cmd) -> Pipeline {
    let mut pipeline = pipe();
    pipeline.add_command(cmd("ASKING")).add_command(command.clone());
    pipeline
}
