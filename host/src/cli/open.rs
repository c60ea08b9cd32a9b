//! Opens the configuration, the store and the plugins for the verbs. Only the files of the command line
//! name adapters.

mod activity;
pub mod unmatched;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use besom_core::activity::Timeouts;
use besom_core::clock::SkewBounds;
use besom_core::collection::Collections;
use besom_core::ids::{Incarnation, TaskName};
use besom_ports::shape::Described;
use serde::de::DeserializeOwned;

pub use self::activity::activity;
use super::ask::Unanswered;
use super::patience::{patiently, telling};
use super::{Failure, Global, ask, check, cluster};
use besom_config::sections::Sections;
use besom_config::{
    Config, Diagnostic, Parsed, Plugin, PluginFault, Problems, Resolved, TaskOutline,
};
use besom_engine::api::Served;
use besom_engine::api::host::HostStatus;
use besom_engine::host::clock::{self, StoreTime};
use besom_ports::coordination::{Coordination, LeaderRecord};
use besom_ports::embedded::{Dialect, Embedded, LeaseLedger, Scripts};
use besom_ports::members::{Members as _, Membership};
use besom_ports::store::{self, MappingFault, Store};
use besom_postgres as postgres;
use besom_product::model::{collections_for, product};
use besom_product::retention::{self, Wrong};
use besom_runtime::{LoadError, Metering, Runtime, Settings};
use besom_services::coordination::store_lease::{LeaseClock, StoreLease};
use besom_snapshot::Snapshot;
use besom_sqlite as sqlite;
use besom_system::child;
use besom_system::secret;

/// How long a host checks the structure of a SQLite file before it uses it. Besom's own tables come
/// first; files of several hundred MiB are checked as a whole.
const CHECK_MAX: Duration = Duration::from_secs(2);

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// How long the structure of a file is checked.
    check_max: Duration,
    /// Whether the file and the engine's tables are created. Otherwise a database without these tables is
    /// refused.
    creates: bool,
    /// Whether the database is only compared with the mapping, which needs no tables of the engine.
    looks: bool,
}

impl Opening {
    /// For a caller that writes, also to tables of the product.
    pub fn writing() -> Opening {
        Opening { check_max: sqlite::Options::default().check_max, creates: true, looks: false }
    }

    /// For a caller that only reads: nothing is created.
    pub fn reading() -> Opening {
        Opening { creates: false, ..Opening::writing() }
    }

    /// To compare the database with the mapping: nothing is created.
    pub fn looking() -> Opening {
        Opening { looks: true, ..Opening::writing() }
    }

    /// Opens the store of a configuration.
    ///
    /// # Errors
    /// The store cannot be reached or opened, a file that its address needs cannot be read, or the tables of
    /// the engine are missing and not created.
    pub async fn open(self, config: &Config) -> Result<Arc<dyn Embedded>, Failure> {
        Ok(self.scripted(config).await?.0)
    }

    /// Like [`Opening::open`], for a caller that also creates or fills tables of the product.
    ///
    /// # Errors
    /// As for [`Opening::open`].
    pub async fn scripted(
        self,
        config: &Config,
    ) -> Result<(Arc<dyn Embedded>, Arc<dyn Scripts>), Failure> {
        let Opening { check_max, creates, looks } = self;
        let timeouts = Timeouts {
            idle: config.activity.idle_timeout,
            heartbeat: config.activity.heartbeat_timeout,
        };
        let (store, scripts): (Arc<dyn Embedded>, Arc<dyn Scripts>) = match &config.store.url {
            Some(url) => {
                let (options, _) = of_server(config, url)?;
                let options = postgres::Options { activity: timeouts, creates, looks, ..options };
                let store = postgres::PostgresStore::open(url, options).await?;
                (Arc::clone(&store) as _, store)
            }
            None => {
                let options = sqlite::Options {
                    activity: timeouts,
                    check_max,
                    creates,
                    looks,
                    guard_timeout: config.store.guard_timeout,
                    undo_bytes: config.store.undo_bytes,
                    write_share: config.store.write_share,
                    ..sqlite::Options::default()
                };
                if let Some(words) = no_file(config) {
                    let error = store::Error::Unavailable(format!("{words}: {NO_FILE_FIX}"));
                    return Err(error.into());
                }
                let path = config.store.path.clone();
                let is_new = !path.exists();
                // Opening may wait for another process that is recovering the file.
                let open = move || sqlite::SqliteStore::open(path, options);
                let opened = tokio::task::spawn_blocking(open).await;
                let store = opened.map_err(|e| store::Error::Unavailable(e.to_string()))??;
                if is_new {
                    // A misspelt path would otherwise go unnoticed.
                    let path = config.store.path.display();
                    tracing::info!(%path, "created the database, because it did not exist");
                }
                (Arc::clone(&store) as _, store)
            }
        };
        store.set_collections(Arc::clone(&config.collections));
        Ok((store, scripts))
    }
}

/// What a host would miss of Besom's own tables on a server.
///
/// # Errors
/// The server cannot be reached.
pub async fn lack(config: &Config) -> Result<Option<postgres::Lack>, Failure> {
    let Some(url) = &config.store.url else { return Ok(None) };
    let (options, _) = of_server(config, url)?;
    Ok(postgres::lack(url, &options).await?)
}

/// Describes a table of the product. Reads only: it needs no tables of the engine, and creates none.
///
/// # Errors
/// The database cannot be reached or read.
pub async fn describe(config: &Config, table: &str) -> Result<Described, Failure> {
    if let Some(url) = &config.store.url {
        let (options, _) = of_server(config, url)?;
        return Ok(postgres::describe(url, &options, table).await?);
    }
    if !is_there(config) {
        return Err(absent(config));
    }
    let (path, table) = (config.store.path.clone(), table.to_owned());
    let described = tokio::task::spawn_blocking(move || sqlite::describe(&path, &table)).await;
    Ok(described.map_err(|e| store::Error::Unavailable(e.to_string()))??)
}

/// The fix for a risk that [`store_risk`] returns.
pub const STORE_RISK_FIX: &str =
    "write sslmode=verify-full and set store.root_certificate to the certificate authority";

/// Returns a warning if connections to the store are not authenticated. Does not connect.
///
/// # Errors
/// The URL, or a file that it refers to, cannot be read.
pub fn store_risk(config: &Config) -> Result<Option<&'static str>, Failure> {
    let Some(url) = &config.store.url else { return Ok(None) };
    let (_, unchecked) = of_server(config, url)?;
    Ok(unchecked.then_some(
        "the identity of the server is not verified: another machine on the network could impersonate it",
    ))
}

/// Returns the connection options of a PostgreSQL store, and whether its identity is not verified.
///
/// # Errors
/// [`Failure::Setting`] for the address and its files; whatever fails later is the server's.
fn of_server(config: &Config, url: &str) -> Result<(postgres::Options, bool), Failure> {
    let cluster = match config.coordination.is_cluster() {
        true => config.coordination.cluster.clone(),
        false => String::new(),
    };
    let config = &config.store;
    let password = match config.password_file.clone() {
        None => {
            std::env::var("PGPASSWORD").ok().map(|text| postgres::Password { text, again: None })
        }
        Some(path) => {
            let read = move || {
                let at = |words| format!("store.password_file {}: {words}", path.display());
                secret::line(&path).map_err(at)
            };
            Some(postgres::Password {
                text: read().map_err(Failure::Setting)?,
                again: Some(Arc::new(read)),
            })
        }
    };
    let options = postgres::Options {
        password,
        root_certificate: config.root_certificate.clone(),
        schema: config.schema.clone(),
        cluster,
        partitions: config.partitions,
        writers_max: config.commit_connections as usize,
        snapshots_max: config.act_connections as usize,
        readers_max: config.read_connections as usize,
        connect_timeout: config.connect_timeout,
        statement_timeout: config.statement_timeout,
        lock_timeout: config.lock_timeout,
        guard_timeout: config.guard_timeout,
        undo_bytes: config.undo_bytes,
        write_share: config.write_share,
        idle_in_transaction_timeout: config.idle_in_transaction_timeout,
        tcp_user_timeout: config.tcp_user_timeout,
        ..postgres::Options::default()
    };
    let unchecked = postgres::is_unchecked(url, &options);
    let unchecked = unchecked.map_err(|error| Failure::Setting(error.to_string()))?;
    Ok((options, unchecked))
}

/// Maximum number of connections from one host to the server.
pub fn connections(config: &Config) -> usize {
    let store = &config.store;
    let pools = [store.commit_connections, store.act_connections, store.read_connections];
    pools.iter().map(|most| *most as usize).sum::<usize>() + postgres::Options::default().leader_max
}

/// The fix for [`no_file`].
pub const NO_FILE_FIX: &str = "set store.path to a file";

/// Returns an error message if `store.path` exists and is not a regular file.
pub fn no_file(config: &Config) -> Option<String> {
    let path = &config.store.path;
    let kind = std::fs::metadata(path).ok().filter(|_| config.store.url.is_none())?.file_type();
    let what = match (kind.is_file(), kind.is_dir()) {
        (true, _) => return None,
        (false, true) => "a directory",
        (false, false) => "not a regular file",
    };
    Some(format!("store.path refers to {}, which is {what}", path.display()))
}

/// Whether a database exists, as far as it can be known without connecting: a server is assumed to.
pub fn is_there(config: &Config) -> bool {
    config.store.url.is_some() || config.store.path.exists()
}

/// Fails if the database does not exist.
///
/// # Errors
/// The SQLite file does not exist, or the configuration cannot be read.
pub fn refuse_absent(global: &Global) -> Result<(), Failure> {
    let parsed = global.parsed()?;
    let model = collections_for(&parsed.plugins());
    let resolved = parsed.outline(&model);
    if is_there(resolved.partial()) { Ok(()) } else { Err(absent(resolved.partial())) }
}

/// The failure of a verb that needs a database which does not exist, with the fix.
pub fn absent(config: &Config) -> Failure {
    let path = config.store.path.display();
    Failure::Unreachable(format!(
        "the database {path} does not exist: correct store.path, or create your tables in it first \
         (`besom serve` creates it for a configuration without tasks, `besom demo` with tables)"
    ))
}

/// What is known of a configuration and its cluster without loading plugins.
#[derive(Debug, Clone, Default)]
pub struct Outline {
    /// Plugin, schedule, time zone and policy of each task.
    pub tasks: BTreeMap<TaskName, TaskOutline>,
    /// Errors in the configuration file, as printed.
    pub problems: Vec<String>,
    /// Duration of a lease.
    pub lease_ttl: std::time::Duration,
    /// How long a vanished node is shown.
    pub nodes_shown: std::time::Duration,
    /// The topics with a route.
    pub routes: BTreeSet<String>,
    /// The leader refuses the file, and these tasks are only there; the inner `None`: which is unknown.
    pub refused: Option<Option<Vec<TaskName>>>,
    /// The current leader; `None` if there is none, or if it is unknown.
    pub leader: Option<LeaderRecord>,
    /// Why the leader is unknown.
    pub leader_fault: Option<String>,
    /// The members of the cluster; `None` without a cluster, or if they could not be read.
    pub members: Option<Membership>,
}

/// Returns the state of the deployment as the local host sees it, or `None` if no host of this store answers on this
/// machine.
pub async fn snapshot(global: &Global) -> Option<Snapshot> {
    asked(global, "/v1/snapshot").await
}

/// Returns the status that the local host reports, or `None` if no host of this store answers on this machine.
pub async fn host_status(global: &Global) -> Option<HostStatus> {
    asked(global, "/status").await
}

/// Asks the local host. That the host at the socket serves another store is logged.
async fn asked<T: DeserializeOwned>(global: &Global, path: &str) -> Option<T> {
    let parsed = global.parsed().ok()?;
    let socket = &parsed.sections().api.socket;
    let store = served(parsed.sections(), parsed.path());
    match ask::host(socket, path, store.as_ref()).await {
        Ok(answer) => Some(answer),
        Err(Unanswered::Silent) => None,
        Err(Unanswered::Other(theirs)) => {
            let words = store.map(|store| store.unlike(&theirs, socket.display(), "api.socket"));
            tracing::warn!("{}", words.unwrap_or(theirs));
            None
        }
    }
}

/// The file of a store that no configuration names.
const STORE_DEFAULT: &str = "besom.db";

/// The store of a configuration, as a host tells it from others; `None`: the configuration names none. Does not
/// connect.
pub fn served(sections: &Sections, file: &Path) -> Option<Served> {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (store, names) = match &sections.store.url {
        Some(url) => {
            let schema = &sections.store.schema;
            let store = format!("{}, schema {schema}", postgres::database_of(url).ok()?);
            (store.clone(), vec![store])
        }
        None => {
            let path = whole(&sections.store.path);
            let path = path.canonicalize().unwrap_or(path);
            let mut names = vec![path.display().to_string()];
            match std::fs::metadata(&path) {
                // The same file can have another path in a container.
                Ok(found) => names.push(format!("{}:{}", found.dev(), found.ino())),
                // The default: the environment of the host may name its store.
                Err(_) if path.file_name() == Some(STORE_DEFAULT.as_ref()) => return None,
                Err(_) => {}
            }
            (path.display().to_string(), names)
        }
    };
    Some(Served::new(format!("{store} ({})", whole(file).display()), names))
}

/// Opens the store for verbs that only read it. Loads no plugins. Prints errors of the configuration to
/// stderr and continues if it still names a store.
///
/// # Errors
/// The configuration names no usable store, or the store cannot be reached.
pub async fn reading(global: &Global) -> Result<(Arc<dyn Store>, Outline), Failure> {
    let parsed = global.parsed()?;
    let tasks = parsed.outlines();
    let model = collections_for(&parsed.plugins());
    let resolved = parsed.outline(&model);
    let problems: Vec<String> =
        resolved.problems().iter().filter(|d| d.is_error()).map(ToString::to_string).collect();
    let config = resolved.partial();
    if !is_there(config) {
        if !problems.is_empty() {
            return Err(resolved.finish().map_or_else(Failure::from, |_| missing(&global.config)));
        }
        return Err(absent(config));
    }
    if !problems.is_empty() {
        to_stderr!("{}", problems.join("\n"));
        tracing::warn!("a host would refuse this configuration; using the store anyway");
    }
    let (lease_ttl, nodes_shown) = (config.lease.ttl, config.retention.nodes);
    let routes = config.topics.keys().cloned().collect();
    let store = Opening::reading().open(config).await?;
    // The store can be shown even if the leader is unknown.
    let (leader, members, leader_fault) = match leader(config, &store).await {
        Ok((leader, members)) => (leader, members, None),
        Err(failure) => (None, None, Some(failure.to_string())),
    };
    let outline = Outline {
        tasks,
        problems,
        lease_ttl,
        nodes_shown,
        routes,
        leader,
        leader_fault,
        members,
        refused: None,
    };
    Ok((store, outline))
}

/// Opens the store for verbs that can work without it. Returns `None` if it does not exist yet, if the
/// configuration does not name it, or if it cannot be reached, which is logged as a warning.
pub async fn beside(global: &Global) -> Option<Arc<dyn Store>> {
    let parsed = global.parsed().ok()?;
    let model = collections_for(&parsed.plugins());
    let resolved = parsed.outline(&model);
    let config = resolved.partial();
    if !is_there(config) {
        return None;
    }
    match Opening::reading().open(config).await {
        Ok(store) => Some(store as _),
        // No host has used it yet.
        Err(Failure::Denied(words)) if words.contains(store::NO_TABLES) => None,
        Err(error) => {
            tracing::warn!(%error, "cannot reach the store");
            None
        }
    }
}

/// Returns the clock of the lease in the store; timestamps written for people come from `time`.
fn lease_clock(time: &Arc<StoreTime>) -> LeaseClock {
    let time = Arc::clone(time);
    LeaseClock::of_machine(Arc::new(clock::since_boot), Arc::new(move || time.store()))
}

/// Returns a clock for readers; no timestamp of it is written to the store.
pub fn onlookers_clock() -> Arc<StoreTime> {
    StoreTime::of_machine(SkewBounds::DEFAULT)
}

/// Reads the current leader and the members, without taking or renewing a lease.
async fn leader(
    config: &Config,
    store: &Arc<dyn Embedded>,
) -> Result<(Option<LeaderRecord>, Option<Membership>), Failure> {
    let onlooker = Incarnation::from("onlooker");
    let time = onlookers_clock();
    if let Some(etcd) = cluster::etcd(config, &onlooker, &time)? {
        let (leader, members) = tokio::join!(etcd.leader(), etcd.members());
        return Ok((leader?, members.ok()));
    }
    let ledger: Arc<dyn LeaseLedger> = Arc::clone(store) as _;
    let lease = StoreLease::new(ledger, onlooker, config.lease.ttl, lease_clock(&time));
    Ok((lease.leader().await?, None))
}

fn missing(path: &Path) -> Failure {
    Failure::Failed(format!("{} names no database", path.display()))
}

/// Opens the store for verbs that write documents. Creates the tables of the entity model unless the
/// file maps other ones.
///
/// # Errors
/// Any error in the configuration except in plugins, or a store that cannot be reached.
pub async fn writing(global: &Global) -> Result<(Arc<dyn Store>, Outline), Failure> {
    let parsed = global.parsed()?;
    let tasks = parsed.outlines();
    let model = collections_for(&parsed.plugins());
    let config = parsed.outline(&model).finish()?;
    let (store, scripts) = Opening::writing().scripted(&config).await?;
    if config.collections.get("documents") == model.get("documents") {
        product::create_tables(&*scripts).await?;
    }
    let outline = Outline { tasks, lease_ttl: config.lease.ttl, ..Outline::default() };
    Ok((store, outline))
}

/// Loads the plugins of a configuration into a runtime.
pub struct Loader {
    runtime: Runtime,
}

/// Plugins by their names in the configuration, or why they cannot be used.
pub type Found = BTreeMap<String, Result<Plugin, PluginFault>>;

impl Loader {
    /// Starts a runtime with the limits of a configuration.
    ///
    /// # Errors
    /// The runtime or its cache directory cannot be set up.
    pub fn start(parsed: &Parsed) -> Result<Loader, Failure> {
        let (cache, is_named) = parsed.cache_dir();
        let users_cache = if is_named { None } else { users_cache() };
        let mut settings =
            Settings { users_cache, cache: Some(cache.into()), ..Settings::default() };
        let plugins = &parsed.sections().plugins;
        settings.component_bytes_max = plugins.bytes_max;
        let (memory, time) = (plugins.compile_memory, plugins.compile_time);
        settings.compiler = Some(child::Limits::of_this_program(memory, time));
        settings.slice = parsed.sections().host.guest_slice;
        settings.verdict_bytes_max =
            usize::try_from(parsed.sections().host.batch_bytes).unwrap_or(usize::MAX);
        let threads = parsed.sections().host.guest_threads;
        if threads > 0 {
            settings.threads = threads as usize;
        }
        let runtime = Runtime::start(settings).map_err(|e| Failure::Failed(format!("{e:#}")))?;
        Ok(Loader { runtime })
    }

    /// The runtime that holds the loaded plugins.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Loads every plugin that the configuration names, and resolves the configuration with them.
    pub async fn resolve(&self, parsed: Parsed) -> Resolved {
        let found = self.load_all(&parsed).await;
        Loader::resolve_with(parsed, &found)
    }

    /// Loads every plugin that the configuration names, by its name there.
    pub async fn load_all(&self, parsed: &Parsed) -> Found {
        let mut found = Found::new();
        for name in parsed.plugins() {
            found.insert(name.to_owned(), self.load_admitted(name, parsed).await);
        }
        found
    }

    /// Replaces the plugins that cannot be used by the code that tasks run with: its digest by the
    /// plugin's name.
    pub fn keep_running(&self, found: &mut Found, running: &BTreeMap<String, String>) {
        for (name, loaded) in found.iter_mut().filter(|(_, loaded)| loaded.is_err()) {
            if let Some(known) = running.get(name).and_then(|digest| self.runtime.find(digest)) {
                let (manifest, digest) = (known.manifest, known.digest);
                *loaded = Ok(Plugin { manifest, digest, built_in: false });
            }
        }
    }

    /// Resolves the configuration with these plugins.
    pub fn resolve_with(parsed: Parsed, found: &Found) -> Resolved {
        let lookup = |name: &str| {
            found
                .get(name)
                .cloned()
                .unwrap_or_else(|| Err(format!("`{name}` was not loaded").into()))
        };
        let defaults = collections_for(&parsed.plugins());
        let file = std::fs::metadata(parsed.path());
        let mut resolved = parsed.resolve(&lookup, &defaults);
        let tasks: Vec<_> = resolved.partial().tasks.values().cloned().collect();
        let collections = Arc::clone(&resolved.partial().collections);
        let on = dialect(resolved.partial());
        for task in tasks {
            if let Some((collection, needed)) = retention::needed(&task) {
                resolved.narrow(&task.name, &collection, needed);
            }
            for Wrong { setting, range, message } in retention::faults(&task, &collections, on) {
                resolved.setting_fault(&task.name, setting, range, format!("{setting}: {message}"));
            }
        }
        // Whoever can change the file can change every grant and pin in it.
        if let Ok(Err(why)) = file.map(|found| besom_runtime::closed(&found)) {
            resolved.refuse(why, "make it writable by its owner alone: chmod go-w");
        }
        resolved
    }

    /// Loads a plugin by its name in the configuration. Of a file that no pin admits, nothing is
    /// compiled or run.
    ///
    /// # Errors
    /// Why the plugin cannot be used, with the fix.
    pub async fn load_admitted(&self, name: &str, parsed: &Parsed) -> Result<Plugin, PluginFault> {
        let admitted = parsed.admitted(name);
        let admits = move |digest: &str| {
            admitted.is_none_or(|admitted| admitted.iter().any(|known| known == digest))
        };
        self.load_if(name, parsed, admits).await
    }

    /// Loads a plugin by its name in the configuration, whatever is pinned.
    ///
    /// # Errors
    /// Why the plugin cannot be used, with the fix.
    pub async fn load(&self, name: &str, parsed: &Parsed) -> Result<Plugin, PluginFault> {
        self.load_if(name, parsed, |_| true).await
    }

    /// Loads a plugin by its name in the configuration if its digest is admitted. Of another file, nothing is
    /// compiled or run.
    ///
    /// # Errors
    /// Why the plugin cannot be used, with the fix.
    pub async fn load_if(
        &self,
        name: &str,
        parsed: &Parsed,
        admits: impl FnOnce(&str) -> bool + Send + 'static,
    ) -> Result<Plugin, PluginFault> {
        let dir = parsed.plugins_dir();
        let built_in = besom_runtime::built_in::find(name);
        let loaded = match built_in {
            Some(Ok(built_in)) => {
                // The default of its tasks; a task with other limits loads its own version.
                let metering = Metering::counting(!besom_runtime::built_in::is_uncounted(name));
                self.runtime.load_built_in(built_in, metering).await
            }
            Some(Err(message)) => {
                return Err(PluginFault::new(message, besom_runtime::built_in::FIX));
            }
            None => {
                let file = file(name, dir)?;
                own_directory(name, dir)?;
                let signing = parsed.sections().plugins.signing();
                self.runtime.load_signed(file, signing, admits).await
            }
        };
        match loaded {
            Ok(loaded) => Ok(Plugin {
                manifest: loaded.manifest,
                digest: loaded.digest,
                built_in: built_in.is_some(),
            }),
            Err(error) => Err(fault(name, dir, &error)),
        }
    }
}

/// Returns the cache directory of this user.
fn users_cache() -> Option<PathBuf> {
    let absolute = |variable: &str| {
        std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("besom"))
}

fn file(name: &str, dir: &Path) -> Result<PathBuf, PluginFault> {
    let fix = |fix: String| PluginFault::new(format!("there is no plugin `{name}`"), fix);
    if !name.ends_with(".wasm") {
        let near = besom_config::keys::nearest(name, besom_runtime::built_in::names());
        return Err(fix(match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "the built-in plugins are {}; name your own by its file, such as `{name}.wasm` in {}",
                besom_runtime::built_in::names().collect::<Vec<_>>().join(", "),
                dir.display()
            ),
        }));
    }
    // A plugin name must not lead out of the plugin directory.
    let plain = Path::new(name).components().count() == 1 && !name.starts_with('.');
    if !plain {
        return Err(fix(format!("name a file in {}, without a path", dir.display())));
    }
    Ok(dir.join(name))
}

/// Refuses a plugin directory that others can write: they could replace every plugin in it.
fn own_directory(name: &str, dir: &Path) -> Result<(), PluginFault> {
    // A missing directory is reported with the missing file.
    let Ok(found) = std::fs::metadata(dir) else { return Ok(()) };
    besom_runtime::trusted(&found).map_err(|why| {
        PluginFault::new(
            format!("the plugin `{name}`: the directory {}: {why}", dir.display()),
            "make it owned by this user or by root, and writable by no one else",
        )
    })
}

fn fault(name: &str, dir: &Path, error: &LoadError) -> PluginFault {
    let fix = match error {
        LoadError::Read { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
            let files = wasm_files(dir);
            match besom_config::keys::nearest(name, files.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("put it into {}", dir.display()),
            }
        }
        LoadError::Read { .. } => "make it readable by this user".to_owned(),
        LoadError::Foreign { .. } => {
            "make it owned by this user or by root, and writable by no one else".to_owned()
        }
        LoadError::Unvouched(why) => why.fix().to_owned(),
        LoadError::Refused { .. } => "run `besom task pin` for the task".to_owned(),
        LoadError::Mismatch(_) | LoadError::Type(_) => {
            "build it with this version's SDK for wasm32-wasip2, or use another Besom".to_owned()
        }
        LoadError::Compile(_) => {
            "rebuild it for wasm32-wasip2, or raise the compile limits in [plugins]".to_owned()
        }
        LoadError::Process(_) => {
            "try again; if it persists, check that this user can start processes, that memory is \
             available, and that /proc is mounted"
                .to_owned()
        }
        LoadError::Describe(_) | LoadError::Manifest(_) => {
            "correct the `describe` function of the plugin".to_owned()
        }
    };
    let refused = match error {
        LoadError::Refused { digest } => Some(digest.clone()),
        _ => None,
    };
    let untrusted = matches!(error, LoadError::Unvouched(_));
    let message = format!("the plugin `{name}`: {error}");
    PluginFault { refused, untrusted, ..PluginFault::new(message, fix) }
}

fn wasm_files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".wasm"))
        .collect()
}

/// Logs the tasks that are left out because their plugin files are refused, unless it was logged before.
pub fn say_refused(config: &Config, before: &BTreeMap<TaskName, Diagnostic>) {
    for (task, why) in config.refused.iter().filter(|(task, why)| before.get(*task) != Some(why)) {
        tracing::error!(
            "the plugin file of {task} is refused: it does not run, the other tasks do\n{why}"
        );
    }
}

/// Reads the whole configuration, loads its plugins and compares the mapping with the database, whose tables
/// must exist. Prints warnings to stderr. Tasks whose plugin files are refused, or whose tables differ from
/// their mappings, are left out, and logged.
///
/// # Errors
/// All problems of the configuration and the mapping, or a store that cannot be reached within
/// `host.connect_wait_max`.
pub async fn checked(
    global: &Global,
    purpose: Purpose,
) -> Result<(Config, Loader, Arc<dyn Embedded>), Failure> {
    let parsed = global.parsed()?;
    let loader = Loader::start(&parsed)?;
    let mut resolved = loader.resolve(parsed).await;
    resolved.leave_out_refused(|_| true);
    say_refused(resolved.partial(), &BTreeMap::new());
    let faulty = resolved.problems().iter().any(|problem| problem.is_error());
    if faulty && !is_there(resolved.partial()) {
        // Opening would create the database, which an invalid configuration must not do.
        resolved.finish()?;
        return Err(missing(&global.config));
    }
    let max = resolved.partial().host.connect_wait_max;
    let needs_tables = |config: &Config| config.tasks.values().any(|task| !task.grants.is_empty());
    if needs_tables(resolved.partial()) && !is_there(resolved.partial()) {
        // A new file has none of the tables that the tasks need: the path is misspelt.
        return Err(absent(resolved.partial()));
    }
    // Without Besom's tables, nothing was removed that could be put back.
    let creates = purpose != Purpose::Restore;
    let opening = Opening { check_max: CHECK_MAX, creates, looks: false };
    let open = async || opening.open(resolved.partial()).await;
    // Without a limit, as the next step: large tables can take long.
    let opened = telling("opening the store", Duration::MAX, async {
        match resolved.partial().store.url.is_some() && !faulty {
            true => patiently(max, open).await,
            false => open().await,
        }
    });
    let store = match opened.await? {
        Ok(store) => store,
        // Errors in the file may be the reason, so they are reported instead.
        Err(error) => return Err(resolved.finish().map_or_else(Failure::from, |_| error)),
    };
    let used = resolved.used_collections();
    let checking = store.check(&used);
    let checked =
        telling("comparing the mapping with the database", Duration::MAX, checking).await??;
    let mut faults = needed(resolved.partial(), checked);
    match purpose {
        Purpose::Serve | Purpose::Pass if !faulty => {
            faults = unmatched::hold(&*store, &mut resolved, faults).await?;
            unmatched::say(resolved.partial(), None);
        }
        // The file is refused, with all that is wrong.
        Purpose::Serve | Purpose::Pass if faults.iter().all(|fault| fault.warning) => {
            faults.extend(cascades(&*store, resolved.partial(), &used).await?);
        }
        Purpose::Serve | Purpose::Pass => {}
        // A table that differs keeps its own rows away, and not those of the others. What a scan or a rule would meet
        // is no concern of rows that are put back.
        Purpose::Restore => {
            faults.retain(|fault| !fault.warning);
            faults.iter_mut().for_each(|fault| fault.warning = true);
        }
    }
    resolved.mapping_faults(&faults);
    let config = resolved.finish()?;
    warn(&Problems(config.warnings.clone()));
    Ok((config, loader, store))
}

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// This process joins its cluster and serves the activity endpoint.
    Serve,
    /// Tasks are run once.
    Pass,
    /// Rows that were removed are put back or purged.
    Restore,
}

/// The collections of which tasks may delete rows although a foreign key then deletes rows that are not kept, and those
/// of which the role does not see each row. A privilege that is missing holds its task alone, and is not among them.
pub async fn cascades(
    store: &dyn Store,
    config: &Config,
    used: &Collections,
) -> store::Result<Vec<MappingFault>> {
    let mut found = store.check_granted(used, &check::granted(config, used)).await?;
    found.retain(|fault| [MappingFault::CASCADES, MappingFault::HIDDEN].contains(&&*fault.place));
    Ok(found)
}

/// Faults of the mapping without warnings that concern no task: about a collection that none uses, or an index that
/// none reads by.
pub fn needed(config: &Config, faults: Vec<MappingFault>) -> Vec<MappingFault> {
    let used = config.related(config.tasks.values().flat_map(|task| task.grants.keys()));
    let is_read = |fault: &MappingFault, index: &str| {
        let mut tasks =
            config.tasks.values().filter(|task| task.grants.contains_key(&fault.collection));
        tasks.any(|task| retention::reads(task, &fault.collection, index).unwrap_or(true))
    };
    let matters = |fault: &MappingFault| {
        !fault.warning
            || used.contains_key(&fault.collection)
                && fault.place.strip_prefix("indexes.").is_none_or(|index| is_read(fault, index))
    };
    faults.into_iter().filter(matters).collect()
}

/// The database of the store.
pub fn dialect(config: &Config) -> Dialect {
    match config.store.url {
        Some(_) => Dialect::Postgres,
        None => Dialect::Sqlite,
    }
}

fn warn(warnings: &Problems) {
    if !warnings.0.is_empty() {
        to_stderr!("{warnings}");
    }
}

/// Returns the coordination that uses the lease in the store.
pub fn store_lease(
    config: &Config,
    store: &Arc<dyn Embedded>,
    node: &Incarnation,
    time: &Arc<StoreTime>,
) -> Arc<dyn Coordination> {
    let clock = lease_clock(time);
    let ttl = config.lease.ttl;
    Arc::new(StoreLease::new(Arc::clone(store) as _, node.clone(), ttl, clock))
}
