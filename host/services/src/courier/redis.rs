//! A broker: a stream of Redis, or of a Redis Cluster.
//!
//! A batch is one transaction (`MULTI`), so that Redis appends all of its messages or none. Redis
//! replicates asynchronously: with `replicas`, a batch counts as accepted only once so many replicas
//! have it (`WAIT`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::delivery::event::{self, Envelope, Origin};
use besom_core::delivery::{Claimed, Fate};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo as _, RedisError, Value, cmd, pipe,
};
use tokio::sync::Mutex;

use crate::activity::redis::Options;
use crate::activity::redis::keys::slot;
use besom_config::delivery::{RedisServers, Route as Topic};
use besom_ports::activity::Error;
use besom_ports::courier::Broker;

/// The stream of a topic.
pub struct RedisStream {
    servers: Vec<ConnectionInfo>,
    is_secure: bool,
    /// The user and the CA certificates.
    options: Options,
    password_file: Option<PathBuf>,
    stream: String,
    store: String,
    content_type: String,
    schema: Option<String>,
    envelope: Envelope,
    length_max: u64,
    replicas: u32,
    timeout: Duration,
    line: Mutex<Line>,
}

const NO_ANSWER: &str = "no answer within the topic's timeout";

/// The open connection, and what is known of the servers.
#[derive(Default)]
struct Line {
    open: Option<Connection>,
    is_cluster: bool,
    /// Whether too few replicas have confirmed the last batch: the next one is appended only once
    /// there are enough of them.
    lacking: bool,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    async fn run(&mut self, pipeline: &redis::Pipeline) -> Result<(), String> {
        match self {
            Connection::Single(open) => run(open, pipeline).await,
            Connection::Cluster(open) => run(open, pipeline).await,
        }
    }

    /// Waits for the replicas of the server that has the stream.
    async fn wait(&mut self, of: &RedisStream) -> Result<Value, RedisError> {
        match self {
            Connection::Single(open) => open.req_packed_command(&of.wait()).await,
            Connection::Cluster(open) => {
                let route = Route::new(slot(&of.stream), SlotAddr::Master);
                let route = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                open.route_command(of.wait(), route).await
            }
        }
    }
}

impl RedisStream {
    /// The stream of a topic whose URL names these servers. Nothing is connected yet.
    ///
    /// # Errors
    /// Certificates or a password that cannot be read.
    pub fn new(
        topic: &str,
        route: &Topic,
        servers: &RedisServers,
        ca: Option<&Path>,
        store: &str,
    ) -> anyhow::Result<RedisStream> {
        let urls = servers.urls();
        let infos: Result<Vec<ConnectionInfo>, RedisError> =
            urls.iter().map(|url| url.as_str().into_connection_info()).collect();
        let options = Options {
            user: route.user.clone(),
            ca: ca.map(Path::to_path_buf),
            ..Options::default()
        };
        if servers.secure {
            options.certificates()?;
        }
        if let Some(file) = &route.password_file {
            super::password(file).map_err(|why| anyhow::anyhow!("topics.{topic}: {why}"))?;
        }
        Ok(RedisStream {
            servers: infos?,
            is_secure: servers.secure,
            options,
            password_file: route.password_file.clone(),
            stream: route.stream.clone().unwrap_or_else(|| topic.to_owned()),
            store: store.to_owned(),
            content_type: route.content_type.clone(),
            schema: route.schema.clone(),
            envelope: route.envelope,
            length_max: route.length_max,
            replicas: route.replicas,
            timeout: route.timeout,
            line: Mutex::new(Line { is_cluster: servers.hosts.len() > 1, ..Line::default() }),
        })
    }

    /// The stream and its servers, for messages.
    fn place(&self) -> String {
        let servers: Vec<String> =
            self.servers.iter().map(|info| info.addr().to_string()).collect();
        format!("Redis {}, stream {}", servers.join(", "), self.stream)
    }

    fn batch(&self, batch: &[Claimed], ids: &[String]) -> redis::Pipeline {
        let origin = Origin {
            store: &self.store,
            content_type: &self.content_type,
            schema: self.schema.as_deref(),
        };
        let mut pipeline = pipe();
        pipeline.atomic();
        for (message, id) in batch.iter().zip(ids) {
            let append = pipeline.cmd("XADD").arg(&self.stream);
            if self.length_max > 0 {
                append.arg("MAXLEN").arg("~").arg(self.length_max);
            }
            append.arg("*");
            match self.envelope {
                Envelope::Binary => {
                    for (name, value) in event::attributes(origin, message, id) {
                        append.arg(name).arg(value.to_string());
                    }
                    append.arg("data").arg(&message.payload);
                }
                Envelope::Structured => {
                    append.arg("event").arg(event::structured(origin, message, id));
                }
            }
        }
        pipeline
    }

    /// The connection, and whether replicas were lacking when it was used last.
    async fn connection(&self) -> Result<(Connection, bool), String> {
        let mut line = self.line.lock().await;
        let open = match &line.open {
            Some(open) => open.clone(),
            None => self.open(line.is_cluster).await?,
        };
        line.open = Some(open.clone());
        Ok((open, line.lacking))
    }

    async fn open(&self, is_cluster: bool) -> Result<Connection, String> {
        // Read for each connection, so that a replaced password takes effect with the next one.
        let password = self.password_file.as_deref().map(super::password).transpose()?;
        let options = Options { password, ..self.options.clone() };
        let words = |error: RedisError| said(&error);
        if is_cluster {
            let mut client = ClusterClient::builder(self.servers.clone())
                .connection_timeout(self.timeout)
                .response_timeout(self.timeout)
                .retries(3);
            if let Some(user) = &options.user {
                client = client.username(user);
            }
            if let Some(password) = &options.password {
                client = client.password(password);
            }
            if self.is_secure {
                client = client.certs(options.certificates().map_err(|Error(words)| words)?);
            }
            let client = client.build().map_err(words)?;
            return Ok(Connection::Cluster(client.get_async_connection().await.map_err(words)?));
        }
        let Some(info) = self.servers.first().cloned() else {
            return Err("the topic names no server".to_owned());
        };
        let client = options.client_of(info).map_err(|Error(words)| words)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let open = client.get_multiplexed_async_connection_with_config(&config).await;
        Ok(Connection::Single(open.map_err(words)?))
    }

    async fn append(&self, pipeline: &redis::Pipeline) -> Result<(), String> {
        let (mut open, mut lacking) = self.connection().await?;
        let done: Result<(), String> = async {
            if lacking {
                // Whatever is appended without replicas is appended again.
                self.replicated(open.wait(self).await)?;
                lacking = false;
            }
            open.run(pipeline).await?;
            if self.replicas > 0 {
                lacking = true;
                self.replicated(open.wait(self).await)?;
                lacking = false;
            }
            Ok(())
        }
        .await;
        let mut line = self.line.lock().await;
        line.lacking = lacking;
        if let Err(error) = &done {
            // A new connection, with the slots as they are then.
            line.open = None;
            line.is_cluster |= error.contains("Moved: ");
        }
        done
    }

    fn wait(&self) -> redis::Cmd {
        let mut wait = cmd("WAIT");
        // Before the answer is given up.
        let millis = (self.timeout / 2).as_millis().max(1);
        wait.arg(self.replicas).arg(u64::try_from(millis).unwrap_or(u64::MAX));
        wait
    }

    fn replicated(&self, answer: Result<Value, RedisError>) -> Result<(), String> {
        match answer.map_err(|error| said(&error))? {
            Value::Int(have) if have >= i64::from(self.replicas) => Ok(()),
            Value::Int(have) => Err(format!(
                "only {have} of {} replicas have the batch (`replicas` of the topic)",
                self.replicas
            )),
            other => Err(format!("WAIT answered {other:?}")),
        }
    }
}

#[async_trait]
impl Broker for RedisStream {
    async fn send(&self, batch: &[Claimed], ids: &[String]) -> Vec<Fate> {
        let pipeline = self.batch(batch, ids);
        let done = tokio::time::timeout(self.timeout, self.append(&pipeline)).await;
        match done.unwrap_or_else(|_| Err(NO_ANSWER.to_owned())) {
            Ok(()) => batch.iter().map(|_| Fate::Accepted).collect(),
            Err(error) => vec![Fate::Unknown(format!("{}: {error}", self.place()))],
        }
    }
}

/// Runs a transaction. A command that fails within it is an error, too: all commands of a batch are
/// alike.
async fn run(open: &mut impl ConnectionLike, pipeline: &redis::Pipeline) -> Result<(), String> {
    let answers: Vec<Value> = pipeline.query_async(open).await.map_err(|error| said(&error))?;
    for answer in answers {
        if let Value::ServerError(error) = answer {
            return Err(said(&error.into()));
        }
    }
    Ok(())
}

fn said(error: &RedisError) -> String {
    if error.is_timeout() {
        return NO_ANSWER.to_owned();
    }
    let words = error.to_string();
    if error.is_connection_dropped() {
        return format!("{words} (a message above Redis' proto-max-bulk-len ends the connection)");
    }
    // The commands of a batch are refused for the same reason.
    let first = words.split_once("(Index 0, error: ").map(|(_, rest)| {
        rest.split_once("), (Index").or_else(|| rest.split_once(")]")).map_or(rest, |(own, _)| own)
    });
    first.unwrap_or(&words).to_owned()
}
