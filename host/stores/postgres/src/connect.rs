//! Connects to the server of a URL: the target, TLS, the pools of connections, and their limits.
//!
//! Each use has its own pool, so that open snapshots or status queries never take a connection from
//! a commit or the lease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    ConfigConnectImpl, Connect, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError,
    RecyclingMethod, Runtime,
};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{classify, words};
use super::options::{Options, ReadPassword};
use super::session::Session;
use super::tls::{Trust, client, distrust};
use besom_ports::store::{Error, Result};

/// How many unanswered keep-alive probes end a silent connection.
const PROBES: u32 = 3;

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The leader's own writes.
    Lead,
    /// Commits and other writes.
    Write,
    /// Snapshots.
    Act,
    /// All other reads.
    Look,
}

/// The server to connect to.
pub(super) struct Target {
    config: Config,
    /// Reads the password again for each connection.
    again: Option<ReadPassword>,
    trust: Trust,
    encrypt: SslMode,
    /// The server as shown in messages: without a password.
    pub(super) shown: String,
}

impl Target {
    /// Parses a URL (or libpq's `key=value` text) with its `sslmode` and `sslrootcert`.
    pub(super) fn parse(url: &str, options: &Options) -> Result<Target> {
        let (url, mode) = without_mode(url);
        let mut config: Config = url.parse().map_err(|e: tokio_postgres::Error| {
            Error::Invalid(format!(
                "store.url cannot be read: {}; write postgres://USER@HOST:PORT/DATABASE",
                words(&e)
            ))
        })?;
        let (encrypt, trust) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, Trust::Anybody),
            // A peer that offers no TLS could ask for the password in clear text.
            None if is_far(&config) => (SslMode::Require, Trust::Anybody),
            None | Some("prefer" | "allow") => (SslMode::Prefer, Trust::Anybody),
            Some("require") if options.root_certificate.is_some() => {
                (SslMode::Require, Trust::Root)
            }
            Some("require") => (SslMode::Require, Trust::Anybody),
            Some("verify-ca") => (SslMode::Require, Trust::Root),
            Some("verify-full") => (SslMode::Require, Trust::Name),
            Some(other) => {
                return Err(Error::Invalid(format!(
                    "unknown sslmode {other:?}: use disable, prefer, require, verify-ca or \
                     verify-full"
                )));
            }
        };
        // A Unix socket is not encrypted, whatever the mode, as in libpq.
        let local = !config.get_hosts().is_empty()
            && config.get_hostaddrs().is_empty()
            && config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let encrypt = if local { SslMode::Disable } else { encrypt };
        config.ssl_mode(encrypt);
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::Invalid(
                "store.url names no host: write postgres://USER@HOST:PORT/DATABASE".into(),
            ));
        }
        // Of several servers the primary is needed: a standby is behind and refuses writes.
        let several = config.get_hosts().len().max(config.get_hostaddrs().len()) > 1;
        if several && config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let mut again = None;
        if config.get_password().is_none()
            && let Some(password) = &options.password
        {
            config.password(&password.text);
            again.clone_from(&password.again);
        }
        if config.get_application_name().is_none() {
            config.application_name("besom");
        }
        config.connect_timeout(options.connect_timeout);
        config.tcp_user_timeout(options.tcp_user_timeout);
        config.keepalives_idle(options.tcp_user_timeout);
        let shown = shown(&config);
        Ok(Target { config, again, trust, encrypt, shown })
    }
}

/// Separates `sslmode` from the rest: the driver supports only three of its values.
fn without_mode(url: &str) -> (String, Option<String>) {
    let Some((before, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut mode = None;
    let mut rest = Vec::new();
    for pair in query.split('&') {
        match pair.strip_prefix("sslmode=") {
            Some(value) => mode = Some(value.to_owned()),
            None => rest.push(pair),
        }
    }
    let rest = rest.join("&");
    (if rest.is_empty() { before.to_owned() } else { format!("{before}?{rest}") }, mode)
}

/// Whether this URL connects to another machine without verifying the server's identity. Does not
/// connect.
///
/// # Errors
/// Returns an error if the URL is invalid.
pub fn is_unchecked(url: &str, options: &Options) -> Result<bool> {
    let target = Target::parse(url, options)?;
    Ok(is_far(&target.config) && matches!(target.trust, Trust::Anybody))
}

/// Whether one of the servers is on another machine.
fn is_far(config: &Config) -> bool {
    let far = |host: &Host| match host {
        Host::Tcp(name) => {
            name != "localhost"
                && !name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        Host::Unix(_) => false,
    };
    let addresses = config.get_hostaddrs();
    config.get_hosts().iter().any(far)
        && (addresses.is_empty() || !addresses.iter().all(std::net::IpAddr::is_loopback))
}

/// The server and the database of a URL, without a password. Does not connect.
///
/// # Errors
/// Returns an error if the URL is invalid.
pub fn database_of(url: &str) -> Result<String> {
    Ok(Target::parse(url, &Options::default())?.shown)
}

fn shown(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        // No name contains an `@`: the end of a password that is not escaped is before it.
        Some(Host::Tcp(name)) => name.rsplit('@').next().unwrap_or_default().to_owned(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("PostgreSQL at {host}:{port}, database {database}")
}

/// The pools.
pub(super) struct Pools {
    lead: Pool,
    write: Pool,
    act: Pool,
    look: Pool,
    prefix: Arc<str>,
    losses: Arc<Losses>,
    cancelling: Arc<Cancelling>,
    shown: String,
    wait_max: Duration,
}

/// How statements are cancelled: through other connections.
pub(super) struct Cancelling {
    tls: Option<MakeRustlsConnect>,
    patience: Duration,
}

/// Cancels a connection's current statement.
#[derive(Clone)]
pub(super) struct Canceller {
    token: CancelToken,
    through: Arc<Cancelling>,
}

impl Canceller {
    pub(super) fn new(token: CancelToken, through: &Arc<Cancelling>) -> Canceller {
        Canceller { token, through: Arc::clone(through) }
    }

    /// Sends the cancellation, and does not wait until the statement has ended.
    pub(super) async fn cancel(&self) {
        let told = async {
            match &self.through.tls {
                None => self.token.cancel_query(NoTls).await,
                Some(tls) => self.token.cancel_query(tls.clone()).await,
            }
        };
        match tokio::time::timeout(self.through.patience, told).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a statement cannot be cancelled"),
            Err(_) => {
                tracing::debug!("a statement cannot be cancelled: the server does not answer");
            }
        }
    }
}

/// When a connection was last found broken. Older connections are not handed out any more: when a
/// server ends, all its connections end, but each is only known to be broken once its own end has
/// been read.
#[derive(Default)]
pub(super) struct Losses {
    last: Mutex<Option<Instant>>,
    /// How often a statement did not match the tables, which may have changed since the catalog was
    /// read.
    doubts: AtomicU64,
}

impl Losses {
    /// Records that a connection has broken.
    pub(super) fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Records that the catalog may have changed.
    pub(super) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    fn outlived_by(&self, made: Instant) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|last| made > last)
    }
}

impl Pools {
    /// How often the cached catalog was doubted.
    pub(super) fn doubts(&self) -> u64 {
        self.losses.doubts.load(Ordering::Relaxed)
    }

    pub(super) fn new(dial: &Dial, options: &Options, schema: &str) -> Result<Pools> {
        let write = format!("{}; {}", settings(options, true), search_path(&options.schema));
        let read = format!("{}; {}", settings(options, false), search_path(&options.schema));
        let losses = Arc::new(Losses::default());
        let pool = |size, settings: &str| pool(dial, options, &losses, size, settings.to_owned());
        Ok(Pools {
            lead: pool(options.leader_max, &write)?,
            write: pool(options.writers_max, &write)?,
            act: pool(options.snapshots_max, &read)?,
            look: pool(options.readers_max, &read)?,
            prefix: format!("{schema}.").into(),
            losses: Arc::clone(&losses),
            cancelling: Arc::new(Cancelling {
                tls: dial.tls.clone(),
                patience: options.connect_timeout,
            }),
            shown: dial.shown.clone(),
            wait_max: options.connect_timeout,
        })
    }

    /// Takes a connection for a use; waits if all are in use.
    pub(super) async fn take(&self, what: Use) -> Result<Session> {
        let pool = match what {
            Use::Lead => &self.lead,
            Use::Write => &self.write,
            Use::Act => &self.act,
            Use::Look => &self.look,
        };
        let object: Object = pool.get().await.map_err(|e| self.error(e))?;
        Ok(self.session(object))
    }

    fn session(&self, object: Object) -> Session {
        let (prefix, losses) = (Arc::clone(&self.prefix), Arc::clone(&self.losses));
        Session::new(object, prefix, losses, Arc::clone(&self.cancelling))
    }

    /// The first connection of a store that is being opened. Permanent errors (a wrong password, an
    /// untrusted certificate) are returned with the fix.
    pub(super) async fn first(&self) -> Result<Session> {
        match self.lead.get().await {
            Ok(object) => Ok(self.session(object)),
            Err(PoolError::Backend(e)) if refusal(&e).is_some() => {
                let fix = refusal(&e).unwrap_or_default();
                Err(named(Error::Denied(format!("{}: {fix}", words(&e))), &self.shown))
            }
            Err(e) => Err(self.error(e)),
        }
    }

    fn error(&self, e: PoolError) -> Error {
        let at = |error: Error| named(error, &self.shown);
        match e {
            PoolError::Backend(e) => at(classify(&e)),
            PoolError::PostCreateHook(HookError::Backend(e)) => at(classify(&e)),
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Error::Busy(format!(
                "all connections have been in use for more than {} ms",
                self.wait_max.as_millis()
            )),
            PoolError::Timeout(_) => at(Error::Unavailable("no answer in time".into())),
            other => at(Error::Unavailable(other.to_string())),
        }
    }
}

/// The fix for a login that is permanently refused.
fn refusal(e: &tokio_postgres::Error) -> Option<String> {
    let fix = match e.code().map(SqlState::code) {
        Some("28P01" | "28000") => {
            "check the user and the password (store.url, store.password_file or PGPASSWORD), and \
             that the server's pg_hba.conf admits this node"
        }
        Some("3D000") => "create the database, or name another one in store.url",
        Some(_) => return None,
        None if words(e).contains("server does not support TLS") => {
            "enable ssl on the server; or accept that the password and the data cross the network in \
             clear text, and add sslmode=disable to store.url"
        }
        None => return distrust(e),
    };
    Some(fix.to_owned())
}

/// Adds the server's name to an error.
fn named(error: Error, shown: &str) -> Error {
    match error {
        Error::Unavailable(said) => Error::Unavailable(format!("{shown}: {said}")),
        Error::Denied(said) => Error::Denied(format!("{shown}: {said}")),
        other => other,
    }
}

/// The parameters of a connection.
#[derive(Clone)]
pub(super) struct Dial {
    config: Config,
    again: Option<ReadPassword>,
    /// None: not encrypted.
    tls: Option<MakeRustlsConnect>,
    shown: String,
}

impl Dial {
    pub(super) fn new(target: &Target, options: &Options) -> Result<Dial> {
        let tls = match target.encrypt {
            SslMode::Disable => None,
            _ => Some(client(target.trust, options.root_certificate.as_deref())?),
        };
        Ok(Dial {
            config: target.config.clone(),
            again: target.again.clone(),
            tls: tls.map(MakeRustlsConnect::new),
            shown: target.shown.clone(),
        })
    }

    fn manager(&self) -> Manager {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        Manager::from_connect(self.config.clone(), self.clone(), config)
    }

    /// The parameters with the password as it is now. If it cannot be read, the server decides about
    /// the earlier one.
    fn config(&self) -> Config {
        let mut config = self.config.clone();
        match self.again.as_ref().map(|read| read()) {
            Some(Ok(password)) => drop(config.password(password)),
            Some(Err(error)) => tracing::warn!(%error, "the password cannot be read again"),
            None => {}
        }
        config
    }

    /// A connection outside all pools, whose messages are read.
    pub(super) async fn line(&self) -> Result<Line> {
        let at = |e| named(classify(&e), &self.shown);
        Ok(match &self.tls {
            None => {
                let (client, connection) = self.config().connect(NoTls).await.map_err(at)?;
                Line { client, messages: Box::new(connection) }
            }
            Some(tls) => {
                let (client, connection) = self.config().connect(tls.clone()).await.map_err(at)?;
                Line { client, messages: Box::new(connection) }
            }
        })
    }
}

impl Connect for Dial {
    fn connect(
        &self,
        _: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let config = self.config();
        Box::pin(async move {
            match self.tls.clone() {
                None => ConfigConnectImpl { tls: NoTls }.connect(&config).await,
                Some(tls) => ConfigConnectImpl { tls }.connect(&config).await,
            }
        })
    }
}

/// A dedicated connection.
pub(super) struct Line {
    pub(super) client: Client,
    /// Has to be polled for the client to receive its answers.
    pub(super) messages: Box<dyn Messages>,
}

/// A server's messages, including unsolicited ones.
pub(super) trait Messages: Send {
    /// The next unsolicited message; none: the connection has ended.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>>;
}

impl<S, T> Messages for Connection<S, T>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> {
        self.poll_message(context)
    }
}

fn pool(
    dial: &Dial,
    options: &Options,
    losses: &Arc<Losses>,
    size: usize,
    settings: String,
) -> Result<Pool> {
    let manager = dial.manager();
    let losses = Arc::clone(losses);
    let young =
        Hook::sync_fn(move |_: &mut deadpool_postgres::ClientWrapper, metrics| {
            match losses.outlived_by(metrics.created) {
                true => Ok(()),
                false => Err(HookError::message(
                    "another connection has broken since this one was opened",
                )),
            }
        });
    let set = Hook::async_fn(move |object: &mut deadpool_postgres::ClientWrapper, _| {
        let settings = settings.clone();
        Box::pin(async move { object.batch_execute(&settings).await.map_err(HookError::Backend) })
    });
    Pool::builder(manager)
        .max_size(size.max(1))
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.connect_timeout))
        .create_timeout(Some(options.connect_timeout))
        .post_create(set)
        .pre_recycle(young)
        .build()
        .map_err(|e| Error::Invalid(format!("the connection pool cannot be created: {e}")))
}

/// How often the server looks whether the client of a running statement is still there.
const CLIENT_CHECK: Duration = Duration::from_secs(2);

/// A session's settings. Writers join only by key: their plans are nested loops over indexes
/// whatever the statistics are, and are prepared once.
///
/// No statement or transaction timeout ends a server process that waits for its client to read an
/// answer, or for the rest of a message; only TCP can detect that. A frozen host's kernel keeps
/// acknowledging, so only `tcp_user_timeout` bounds an answer that is not read; the keep-alives
/// bound the rest of a message that a vanished host never sends. (Unix-domain sockets ignore all
/// four.)
fn settings(options: &Options, write: bool) -> String {
    let untaken = options.tcp_user_timeout;
    let mut sql = format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET timezone = 'UTC'; \
         SET default_transaction_isolation = 'read committed'; SET client_encoding = 'UTF8'; \
         SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET extra_float_digits = 1; \
         SET bytea_output = 'hex'; SET array_nulls = on; SET xmloption = 'content'; SET lc_monetary = 'C'; \
         SET jit = off; SET tcp_user_timeout = {}; SET tcp_keepalives_idle = {}; \
         SET tcp_keepalives_interval = {}; SET tcp_keepalives_count = {PROBES};",
        options.statement_timeout.as_millis(),
        options.lock_timeout.as_millis(),
        untaken.as_millis(),
        (untaken / 2).as_secs().max(1),
        (untaken / (2 * PROBES)).as_secs().max(1),
    );
    // From PostgreSQL 14 on the server looks whether its client is still there: a statement of a host
    // that was killed would else run to its end, with the locks that it holds.
    sql.push_str(&format!(
        " SELECT set_config('client_connection_check_interval', '{}', false) WHERE \
         current_setting('client_connection_check_interval', true) IS NOT NULL \
         AND version() LIKE '%linux%';",
        CLIENT_CHECK.as_millis()
    ));
    if write {
        sql.push_str(&format!(
            " SET idle_in_transaction_session_timeout = {}; SET plan_cache_mode = \
             force_generic_plan; SET enable_hashjoin = off; SET enable_mergejoin = off; \
             SET enable_seqscan = off",
            options.idle_in_transaction_timeout.as_millis()
        ));
        // Committed data may be announced to others at once, so it must survive a crash.
        sql.push_str(
            "; SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'",
        );
    } else {
        // A read of a task takes one processor of the server, never several.
        sql.push_str(
            " SET default_transaction_read_only = on; SET max_parallel_workers_per_gather = 0",
        );
    }
    sql
}

/// Removes the engine's own schema from the search path, so that no unqualified name of the product
/// is resolved or created there. For a role with the schema's name, `"$user"` would include it. And `pg_catalog`, which is
/// then searched first: a `now()` of the product would otherwise be the store's clock.
fn search_path(schema: &str) -> String {
    let schema = schema.replace('\'', "''");
    format!(
        "SELECT set_config('search_path', coalesce(string_agg(part, ',' ORDER BY place), \
         CASE current_setting('search_path') WHEN '' THEN '' ELSE 'public' END), false) \
         FROM unnest(string_to_array(current_setting('search_path'), ',')) WITH ORDINALITY p(part, place) \
         WHERE CASE btrim(part, ' \"') WHEN '$user' THEN current_user::text ELSE btrim(part, ' \"') END \
               NOT IN ('{schema}', 'pg_catalog')"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_how_the_server_is_known() {
        let read = |url: &str, root: Option<&str>| {
            let options = Options { root_certificate: root.map(Into::into), ..Options::default() };
            Target::parse(url, &options).map(|t| (t.encrypt, t.trust))
        };
        for (query, expected) in [
            // Beyond this machine, nothing is sent in clear text unless the URL says so.
            ("", (SslMode::Require, Trust::Anybody)),
            ("?sslmode=prefer", (SslMode::Prefer, Trust::Anybody)),
            ("?sslmode=disable", (SslMode::Disable, Trust::Anybody)),
            // As libpq has it: who names authorities wants them asked.
            ("?sslmode=require&application_name=x", (SslMode::Require, Trust::Root)),
            ("?application_name=x&sslmode=verify-ca", (SslMode::Require, Trust::Root)),
            ("?sslmode=verify-full", (SslMode::Require, Trust::Name)),
        ] {
            let found = read(&format!("postgres://u@h/d{query}"), Some("/r")).expect(query);
            assert_eq!(found, expected, "{query}");
        }
        for mode in ["", "&sslmode=prefer", "&sslmode=require"] {
            let local = read(&format!("postgres:///d?host=/run/postgresql&user=u{mode}"), None);
            assert_eq!(local.expect("a target").0, SslMode::Disable, "{mode}");
        }
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let found = read(&format!("postgres://u@{host}/d"), None).expect("a target");
            assert_eq!(found, (SslMode::Prefer, Trust::Anybody), "{host}");
        }
        let found = read("postgres://u@h/d?sslmode=require", None).expect("a target");
        assert_eq!(found, (SslMode::Require, Trust::Anybody));
        for wrong in ["postgres://u@h/d?sslmode=maybe", "postgres:///d", "http://x"] {
            assert!(matches!(read(wrong, None), Err(Error::Invalid(_))), "{wrong}");
        }
    }

    #[test]
    fn of_several_servers_the_one_that_can_be_written_is_asked() {
        let read = |url: &str| {
            let target = Target::parse(url, &Options::default()).expect(url);
            target.config.get_target_session_attrs()
        };
        for (url, expected) in [
            ("postgres://u@a/d", TargetSessionAttrs::Any),
            ("postgres://u@a:5432,b:5432/d", TargetSessionAttrs::ReadWrite),
            ("postgres://u@a,b/d?target_session_attrs=read-write", TargetSessionAttrs::ReadWrite),
        ] {
            assert_eq!(read(url), expected, "{url}");
        }
    }

    #[test]
    fn a_server_of_another_machine_is_to_be_checked() {
        let options = Options { root_certificate: Some("ca".into()), ..Options::default() };
        for (url, expected) in [
            ("postgres://u@h/d", true),
            ("postgres://u@h/d?sslmode=prefer", true),
            ("postgres://u@h/d?sslmode=verify-full", false),
            ("postgres://u@10.0.0.7/d?sslmode=disable", true),
            ("postgres://u@localhost/d", false),
            ("postgres://u@127.0.0.1/d", false),
            ("postgres:///d?host=/run/postgresql&user=u", false),
            ("postgres://u@h/d?hostaddr=127.0.0.1", false),
        ] {
            assert_eq!(is_unchecked(url, &options).unwrap(), expected, "{url}");
        }
        assert!(is_unchecked("postgres://u@h/d?sslmode=maybe", &options).is_err());
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        for url in ["postgres://u:secret@h:6543/d", "postgres://u:s@cr@et@h:6543/d"] {
            let target = Target::parse(url, &Options::default()).unwrap();
            assert_eq!(target.shown, "PostgreSQL at h:6543, database d");
        }
    }
}
