//! From the command line to a configuration and a store. This file and `main.rs` are the
//! only ones that name adapters.

mod activity;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use besom_core::activity::Timeouts;
use besom_core::clock::SkewBounds;
use besom_core::ids::{NodeName, TaskName};

pub use self::activity::activity;
use super::patience::patiently;
use super::{Failure, Global, ask, cluster};
use crate::api::host::HostStatus;
use crate::child;
use crate::config::{
    Config, Overrides, Parsed, Plugin, PluginFault, Problems, Resolved, TaskOutline, read,
};
use crate::coordination::store_lease::{LeaseClock, StoreLease};
use crate::host::clock::{self, StoreTime};
use crate::model::collections_for;
use crate::ports::coordination::{Coordination, LeaderRecord};
use crate::ports::embedded::{Embedded, LeaseLedger};
use crate::ports::members::{Members as _, Membership};
use crate::ports::store::{self, Store};
use crate::runtime::{LoadError, Metering, Runtime, Settings};
use crate::secret;
use crate::store::{postgres, sqlite};

/// Opens the store of a configuration, creating the file and the engine's tables where they
/// are missing.
pub async fn open_store(config: &Config) -> Result<Arc<dyn Store>, store::Error> {
    let store: Arc<dyn Store> = open_embedded(config).await?;
    Ok(store)
}

/// The same with what a host also needs of it: its activity and its lease.
pub async fn open_embedded(config: &Config) -> Result<Arc<dyn Embedded>, store::Error> {
    let timeouts = Timeouts {
        idle: config.activity.idle_timeout,
        heartbeat: config.activity.heartbeat_timeout,
    };
    let store: Arc<dyn Embedded> = match &config.store.url {
        Some(url) => postgres::PostgresStore::open(url, of_server(config, timeouts)?).await?,
        None => {
            let options = sqlite::Options {
                activity: timeouts,
                guard_timeout: config.store.guard_timeout,
                ..sqlite::Options::default()
            };
            let path = config.store.path.clone();
            // Opening may wait for another process that is recovering the file.
            let open = move || sqlite::SqliteStore::open(path, options);
            let opened = tokio::task::spawn_blocking(open).await;
            opened.map_err(|e| store::Error::Unavailable(e.to_string()))??
        }
    };
    store.set_collections(Arc::clone(&config.collections));
    Ok(store)
}

/// Looks at the address of the store without connecting: what may be a risk about it.
///
/// # Errors
/// It cannot be read, or a file that it needs.
pub fn store_risk(config: &Config) -> Result<Option<&'static str>, store::Error> {
    let Some(url) = &config.store.url else { return Ok(None) };
    let options = of_server(config, Timeouts::default())?;
    let unchecked = postgres::is_unchecked(url, &options)?;
    Ok(unchecked.then_some(
        "nobody checks that the server is the one that is meant: a machine on the way could be it",
    ))
}

/// How a server is spoken to.
fn of_server(config: &Config, activity: Timeouts) -> Result<postgres::Options, store::Error> {
    let cluster = match config.coordination.is_cluster() {
        true => config.coordination.cluster.clone(),
        false => String::new(),
    };
    let config = &config.store;
    let password = match &config.password_file {
        None => std::env::var("PGPASSWORD").ok(),
        Some(path) => Some(secret::line(path).map_err(|words| {
            store::Error::Invalid(format!("store.password_file {}: {words}", path.display()))
        })?),
    };
    Ok(postgres::Options {
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
        idle_in_transaction_timeout: config.idle_in_transaction_timeout,
        tcp_user_timeout: config.tcp_user_timeout,
        activity,
        ..postgres::Options::default()
    })
}

/// Connections of one host to a server, at most.
pub fn connections(config: &Config) -> usize {
    let store = &config.store;
    let pools = [store.commit_connections, store.act_connections, store.read_connections];
    pools.iter().map(|most| *most as usize).sum::<usize>() + postgres::Options::default().leader_max
}

/// Whether there is a database to look at: a server is asked, a file has to be there.
pub fn is_there(config: &Config) -> bool {
    config.store.url.is_some() || config.store.path.exists()
}

/// Refuses where there is no database to look at.
///
/// # Errors
/// There is none, or the configuration cannot be read.
pub fn refuse_absent(global: &Global) -> Result<(), Failure> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
    let model = collections_for(&parsed.plugins());
    let resolved = parsed.outline(&model);
    if is_there(resolved.partial()) { Ok(()) } else { Err(absent(resolved.partial())) }
}

fn absent(config: &Config) -> Failure {
    let path = config.store.path.display();
    Failure::Unreachable(format!(
        "there is no database {path}; `besom serve`, `besom run` and `besom demo` create it"
    ))
}

/// What a configuration says of its tasks without their plugins.
#[derive(Debug, Clone, Default)]
pub struct Outline {
    /// Plugin, expression and time zone, by task.
    pub tasks: BTreeMap<TaskName, TaskOutline>,
    /// What is wrong with the file, as it is printed.
    pub problems: Vec<String>,
    /// How long a lease lasts.
    pub lease_ttl: std::time::Duration,
    /// How long a node that vanished is shown.
    pub nodes_shown: std::time::Duration,
    /// Who holds the lease; none: nobody does.
    pub leader: Option<LeaderRecord>,
    /// Why it is not known who holds it.
    pub leader_fault: Option<String>,
    /// The members of the cluster; none: in no cluster, or they could not be read.
    pub members: Option<Membership>,
}

/// What the host of this configuration says of itself; none: it does not run here.
pub async fn host_status(global: &Global) -> Option<HostStatus> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone())).ok()?;
    ask::host(&parsed.sections().api.socket, "/status").await
}

/// For verbs that only look at the store: no plugin is loaded, and a configuration with
/// faults in it does not keep the store from being read. They are said on stderr.
pub async fn reading(global: &Global) -> Result<(Arc<dyn Store>, Outline), Failure> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
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
        eprintln!("{}", problems.join("\n"));
        tracing::warn!("a host would refuse this configuration; the store is read all the same");
    }
    let (lease_ttl, nodes_shown) = (config.lease.ttl, config.retention.nodes);
    let store = open_embedded(config).await?;
    // What the store says is worth having without it.
    let (leader, members, leader_fault) = match leader(config, &store).await {
        Ok((leader, members)) => (leader, members, None),
        Err(failure) => (None, None, Some(failure.to_string())),
    };
    let outline =
        Outline { tasks, problems, lease_ttl, nodes_shown, leader, leader_fault, members };
    Ok((store, outline))
}

/// The store, for verbs that can do without it: none where it is not there (yet), or where
/// the configuration does not say which it is. One that does not answer is said on stderr.
pub async fn beside(global: &Global) -> Option<Arc<dyn Store>> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone())).ok()?;
    let model = collections_for(&parsed.plugins());
    let resolved = parsed.outline(&model);
    let config = resolved.partial();
    if !is_there(config) {
        return None;
    }
    match open_embedded(config).await {
        Ok(store) => Some(store as _),
        Err(error) => {
            tracing::warn!(%error, "the store does not answer");
            None
        }
    }
}

/// What the lease in the store writes down for people is by `time`.
fn lease_clock(time: &Arc<StoreTime>) -> LeaseClock {
    let time = Arc::clone(time);
    LeaseClock::of_machine(Arc::new(clock::since_boot), Arc::new(move || time.store()))
}

/// For who only looks: nothing is written by it.
pub fn onlookers_clock() -> Arc<StoreTime> {
    StoreTime::of_machine(SkewBounds::DEFAULT)
}

/// Who holds the lease and who is a member, as an onlooker sees it: nothing is taken or renewed.
async fn leader(
    config: &Config,
    store: &Arc<dyn Embedded>,
) -> Result<(Option<LeaderRecord>, Option<Membership>), Failure> {
    let onlooker = NodeName::from("onlooker");
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

/// For verbs that write documents: the configuration has to be right, plugins aside. The
/// tables of the entity model are created where the file maps no others.
pub async fn writing(global: &Global) -> Result<(Arc<dyn Store>, Outline), Failure> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
    let tasks = parsed.outlines();
    let model = collections_for(&parsed.plugins());
    let config = parsed.outline(&model).finish()?;
    let store = open_store(&config).await?;
    if config.collections.get("documents") == model.get("documents") {
        store.create_entity_model().await?;
    }
    let outline = Outline { tasks, lease_ttl: config.lease.ttl, ..Outline::default() };
    Ok((store, outline))
}

/// The plugins of a configuration, loaded into a runtime.
pub struct Loader {
    runtime: Runtime,
}

impl Loader {
    /// Starts a runtime with the bounds of a configuration.
    pub fn start(parsed: &Parsed) -> Result<Loader, Failure> {
        let (cache, is_named) = parsed.cache_dir();
        let users_cache = if is_named { None } else { users_cache() };
        let mut settings =
            Settings { users_cache, cache: Some(cache.into()), ..Settings::default() };
        let plugins = &parsed.sections().plugins;
        settings.component_bytes_max = plugins.bytes_max;
        let (memory, time) = (plugins.compile_memory, plugins.compile_time);
        settings.compiler = Some(child::Limits::of_this_program(memory, time));
        settings.patient_after = parsed.sections().host.long_after;
        let threads = parsed.sections().host.guest_threads;
        if threads > 0 {
            settings.threads = threads as usize;
        }
        let runtime = Runtime::start(settings).map_err(|e| Failure::Failed(format!("{e:#}")))?;
        Ok(Loader { runtime })
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Loads every plugin that the configuration names, and resolves it.
    pub async fn resolve(&self, parsed: Parsed) -> Resolved {
        let mut found = BTreeMap::new();
        for name in parsed.plugins() {
            found.insert(name.to_owned(), self.load(name, parsed.plugins_dir()).await);
        }
        let lookup = |name: &str| {
            found
                .get(name)
                .cloned()
                .unwrap_or_else(|| Err(format!("`{name}` was not loaded").into()))
        };
        let defaults = collections_for(&parsed.plugins());
        parsed.resolve(&lookup, &defaults)
    }

    /// Loads a plugin by the name that tasks give it.
    ///
    /// # Errors
    /// What is wrong with it, and how to mend that.
    pub async fn load(&self, name: &str, dir: &Path) -> Result<Plugin, PluginFault> {
        let built_in = crate::built_in::find(name);
        let loaded = match built_in {
            Some(Ok(built_in)) => {
                // As its tasks will ask for it, if they do not say otherwise.
                let metering = Metering::counting(!crate::built_in::is_uncounted(name));
                self.runtime.load_built_in(built_in, metering).await
            }
            Some(Err(message)) => {
                let fix = crate::built_in::FIX.to_owned();
                return Err(PluginFault { message: message.to_owned(), fix });
            }
            None => {
                let file = file(name, dir)?;
                own_directory(name, dir)?;
                self.runtime.load_file(file).await
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

/// Where this user's programs keep what they can make again.
fn users_cache() -> Option<PathBuf> {
    let absolute = |variable: &str| {
        std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("besom"))
}

fn file(name: &str, dir: &Path) -> Result<PathBuf, PluginFault> {
    let fix = |fix: String| PluginFault { message: format!("there is no plugin `{name}`"), fix };
    if !name.ends_with(".wasm") {
        let near = crate::config::keys::nearest(name, crate::built_in::names());
        return Err(fix(match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "built in are {}; your own is named as its file, `{name}.wasm` in {}",
                crate::built_in::names().collect::<Vec<_>>().join(", "),
                dir.display()
            ),
        }));
    }
    // A plugin is a file of that directory, not a way out of it.
    let plain = Path::new(name).components().count() == 1 && !name.starts_with('.');
    if !plain {
        return Err(fix(format!("name a file of {}, without a path", dir.display())));
    }
    Ok(dir.join(name))
}

/// Whoever can write the directory can exchange every file of it.
fn own_directory(name: &str, dir: &Path) -> Result<(), PluginFault> {
    // That it is not there is said of the file.
    let Ok(found) = std::fs::metadata(dir) else { return Ok(()) };
    crate::runtime::trusted(&found).map_err(|why| PluginFault {
        message: format!("the plugin `{name}`: the directory {}: {why}", dir.display()),
        fix: "let it belong to this user or to root, and be written by nobody else".to_owned(),
    })
}

fn fault(name: &str, dir: &Path, error: &LoadError) -> PluginFault {
    let fix = match error {
        LoadError::Read { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
            let files = wasm_files(dir);
            match crate::config::keys::nearest(name, files.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("put it into {}", dir.display()),
            }
        }
        LoadError::Read { .. } => "make it readable for this user".to_owned(),
        LoadError::Foreign { .. } => {
            "let it belong to this user or to root, and be written by nobody else".to_owned()
        }
        LoadError::Mismatch(_) | LoadError::Type(_) => {
            "build it with this version's SDK for wasm32-wasip2, or use another Besom".to_owned()
        }
        LoadError::Compile(_) => {
            "build it again for wasm32-wasip2; what compiling may take stands in [plugins]"
                .to_owned()
        }
        LoadError::Process(_) => {
            "try again; where it stays so, see that this user can start processes, that there is \
             memory left, and that /proc is mounted"
                .to_owned()
        }
        LoadError::Describe(_) | LoadError::Manifest(_) => "mend the plugin's describe".to_owned(),
    };
    PluginFault { message: format!("the plugin `{name}`: {error}"), fix }
}

fn wasm_files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".wasm"))
        .collect()
}

/// The whole configuration with its plugins loaded: what `serve` and `run` need. Warnings
/// are said on stderr.
pub async fn running(global: &Global) -> Result<(Config, Loader), Failure> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
    let loader = Loader::start(&parsed)?;
    let config = loader.resolve(parsed).await.finish()?;
    warn(&Problems(config.warnings.clone()));
    Ok((config, loader))
}

/// The same, checked against the database as well: nothing is started on a mapping that
/// does not fit. Needs the tables to be there.
pub async fn checked(global: &Global) -> Result<(Config, Loader, Arc<dyn Embedded>), Failure> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
    let loader = Loader::start(&parsed)?;
    let mut resolved = loader.resolve(parsed).await;
    let faulty = resolved.problems().iter().any(|problem| problem.is_error());
    if faulty && !is_there(resolved.partial()) {
        // Opening would create it, and nothing is to come of a wrong file.
        resolved.finish()?;
        return Err(missing(&global.config));
    }
    let max = resolved.partial().host.connect_wait_max;
    let opened = match resolved.partial().store.url.is_some() && !faulty {
        true => patiently(max, async || Ok(open_embedded(resolved.partial()).await?)).await,
        false => open_embedded(resolved.partial()).await.map_err(Failure::from),
    };
    let store = match opened {
        Ok(store) => store,
        // What is wrong with the file may be why the store cannot be opened.
        Err(error) => return Err(resolved.finish().map_or_else(Failure::from, |_| error)),
    };
    let faults = store.check(&resolved.used_collections()).await?;
    resolved.mapping_faults(&faults);
    let config = resolved.finish()?;
    warn(&Problems(config.warnings.clone()));
    Ok((config, loader, store))
}

fn warn(warnings: &Problems) {
    if !warnings.0.is_empty() {
        eprintln!("{warnings}");
    }
}

/// Who leads, by the lease that the store keeps.
pub fn store_lease(
    config: &Config,
    store: &Arc<dyn Embedded>,
    node: &NodeName,
    time: &Arc<StoreTime>,
) -> Arc<dyn Coordination> {
    let clock = lease_clock(time);
    let ttl = config.lease.ttl;
    Arc::new(StoreLease::new(Arc::clone(store) as _, node.clone(), ttl, clock))
}
