//! `besom serve`: runs the host until SIGTERM or SIGINT.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::ring::VIRTUAL_NODES;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{Notify, watch};

use super::assembly::{Assembly, Running, asked_to_stop};
use super::open::{self, Loader, Purpose, unmatched};
use super::{Exit, Failure, Global, ask, endpoints, exposed, kept};
use besom_config::activity::Activity;
use besom_config::api::Api;
use besom_config::{self as config, Config, Diagnostic, Overrides, Problems, Resolved};
use besom_engine::api::{
    self, Bounds, Endpoint, Listener, Pages, Rights, Served, Sockets, Tickets, TlsFiles, Tokens,
};
use besom_engine::gather::{Defined, Gatherer, Sources};
use besom_engine::host::editing::Desk;
use besom_engine::host::health::Health;
use besom_engine::host::recorder::Recorder;
use besom_engine::host::reload::{Reload, Sign};
use besom_engine::host::wake::Wake;
use besom_engine::host::{Control, Reconfigured, clock, setup, undo};
use besom_ports::store::Store;
use besom_ports::task::TaskDefinition;
use besom_snapshot::{CODE_KEPT, Cause};

/// Interval at which a host retries a socket that another host uses.
const SOCKET_RETRY: Duration = Duration::from_secs(1);

/// `besom serve`.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Runs the host until SIGTERM or SIGINT.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        serve(global, Assembly::new(global, Purpose::Serve).await?, asked_to_stop()).await
    }
}

/// Runs a node with its endpoints and reloads until `asked` resolves to the name of what stops it.
///
/// # Errors
/// An endpoint that cannot listen, or a node that failed or lost the store.
pub async fn serve(
    global: &Global,
    assembly: Assembly,
    asked: impl Future<Output = std::io::Result<&'static str>>,
) -> Result<Exit, Failure> {
    let (stop, stopped) = watch::channel(false);
    for words in exposed::files(&assembly.config) {
        tracing::warn!(fix = exposed::FIX, "{words}");
    }
    if let Some(words) = exposed::configuration(&global.config) {
        tracing::warn!(fix = exposed::CONFIGURATION_FIX, "{words}");
    }
    if let Some(words) = open::store_risk(&assembly.config)? {
        tracing::warn!(fix = open::STORE_RISK_FIX, "{words}");
    }
    assembly.ports.health.refuse(refusals(&assembly.config));
    let fits = within_descriptors(&assembly.config);
    let endpoint = endpoint(&assembly, fits.websockets, stopped.clone());
    let bounds = Bounds::of(fits.connections);
    let router = api::of_products(Arc::clone(&endpoint), Arc::clone(&assembly.feed));
    let mut listeners = listen(&assembly.config, router, bounds, stopped).await?;
    let signals = |error: std::io::Error| Failure::Failed(format!("signals: {error}"));
    let saved = Arc::new(Notify::new());
    let files = Reload::watch(&global.config, &assembly.config.plugins.dir, Arc::clone(&saved))
        .map_err(signals)?;
    if assembly.config.tasks.is_empty() && !assembly.feed.is_used() {
        tracing::warn!("no tasks are configured: nothing runs until the configuration names one");
    }
    let mut running = assembly.start(false);
    let (defined, defines) = watch::channel(Arc::new(Defined {
        work: assembly.work(),
        digest: assembly.config.digest(),
        at: clock::wall(),
        fault: None,
    }));
    let gatherer = Gatherer::new(sources(global, &assembly, defines, &running, saved));
    let gathering = tokio::spawn(gatherer.clone().run());
    let host = api::host::Host {
        node: assembly.ports.node.clone(),
        live: running.live.clone(),
        health: Arc::clone(&assembly.ports.health),
    };
    listeners.extend(answer(&assembly.config, host, gatherer, &stop).await?);
    let Assembly { config, loader, ports, .. } = assembly;
    let by = format!("{} (host)", ports.node.node_name());
    kept::note_loads(ports.store.as_ref(), &config, &by, "the host has started", |_| true).await;
    let (store, health) = (Arc::clone(&ports.store), Arc::clone(&ports.health));
    let told = Told { defined, recorder: Arc::clone(&ports.recorder), health, store, by };
    let reloading = reload(files, global.clone(), config, loader, running.control.clone(), told);
    let mut reloading = tokio::spawn(reloading);
    let ended = tokio::select! {
        signal = asked => {
            tracing::info!(signal = signal.map_err(signals)?, "stopping");
            running.shutdown().await;
            (&mut running.ended).await
        }
        ended = &mut running.ended => ended,
        // Reloading ends only with the node, or by a panic.
        _ = &mut reloading => (&mut running.ended).await,
    };
    reloading.abort();
    gathering.abort();
    stop.send_replace(true);
    for task in listeners {
        // The listeners were stopped above and log their own errors.
        let _ = task.await;
    }
    endpoint.closed().await;
    let ended = ended.map_err(|error| Failure::Failed(format!("the host failed: {error}")))?;
    ended.map_err(|lost| Failure::Unreachable(lost.to_string()))?;
    Ok(Exit::Fine)
}

/// The tasks that are left out, because their plugin files are refused or their tables differ from their mappings, and
/// why.
fn refusals(config: &Config) -> BTreeMap<TaskName, (Cause, String)> {
    let words = |why: &Diagnostic| match &why.fix {
        Some(fix) => format!("{}; {fix}", why.message),
        None => why.message.clone(),
    };
    let refused =
        config.refused.iter().map(|(task, why)| (task.clone(), (Cause::Plugin, words(why))));
    let unmatched = config.unmatched.iter().map(|(task, faults)| {
        let all: Vec<_> = faults.iter().map(|(_, placed)| words(placed)).collect();
        (task.clone(), (Cause::Mapping, all.join("; ")))
    });
    unmatched.chain(refused).collect()
}

/// Creates the endpoint for reports of activity. A connection wakes its workspace if `activity.wake`
/// allows it.
fn endpoint(
    assembly: &Assembly,
    websockets: u32,
    stopping: watch::Receiver<bool>,
) -> Arc<Endpoint> {
    let (config, ports) = (&assembly.config, &assembly.ports);
    let connected = Wake::of(config, ports.store.clone(), ports.coordination.clone(), &ports.node)
        .map(|wake| -> api::Connected { Box::new(move |id| wake.connected(id)) });
    let Activity { heartbeat_timeout, websockets_per_ticket, .. } = config.activity;
    let bounds = Sockets { all: websockets, per_ticket: websockets_per_ticket };
    let activity = Arc::clone(&ports.activity);
    Endpoint::new(activity, heartbeat_timeout, bounds, connected, stopping)
}

/// File descriptors reserved for the lease, the store, plugins and other files, in addition to the
/// connections of the admin API.
const DESCRIPTORS_KEPT: u64 = 384;

/// The file descriptors available to the activity endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fits {
    websockets: u32,
    /// Connections of each listening address.
    connections: u32,
}

impl Fits {
    /// Divides `most` descriptors: connections get up to half of what is not reserved, WebSockets the rest.
    fn within(most: u64, config: &Config) -> Fits {
        let doors = |tcp: bool| 1 + u64::from(tcp);
        let (api, activity) = (&config.api, &config.activity);
        let kept = DESCRIPTORS_KEPT + doors(api.tcp.is_some()) * u64::from(api.connections_max);
        let room = most.saturating_sub(kept).max(most / 4);
        let least =
            |wanted: u32, room: u64| u32::try_from(room).unwrap_or(u32::MAX).min(wanted).max(1);
        let doors = doors(activity.tcp.is_some());
        let connections = least(activity.connections_max, room / 2 / doors);
        let rest = room.saturating_sub(doors * u64::from(connections));
        Fits { websockets: least(activity.websockets_max, rest), connections }
    }
}

/// Raises the limit of open files to its maximum, and returns what fits within it. Logs a warning for each
/// key that does not fit.
fn within_descriptors(config: &Config) -> Fits {
    let limit = getrlimit(Resource::Nofile);
    // Only the soft limit is raised; an administrator restricts the hard limit.
    let raised = Rlimit { current: limit.maximum, ..limit };
    let most = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let fits = Fits::within(most.unwrap_or(u64::MAX), config);
    let Activity { websockets_max, connections_max, .. } = config.activity;
    for (key, wanted, fits) in [
        ("activity.websockets_max", websockets_max, fits.websockets),
        ("activity.connections_max", connections_max, fits.connections),
    ] {
        if fits < wanted {
            tracing::warn!(
                descriptors = most,
                wanted,
                fits,
                "{key} exceeds the limit of open files: raise the limit (LimitNOFILE, ulimit -n)"
            );
        }
    }
    fits
}

/// Starts the listeners of the product's endpoints.
///
/// # Errors
/// A token, ticket or certificate file that cannot be used, or an address that cannot be opened.
async fn listen(
    config: &Config,
    router: axum::Router,
    bounds: Bounds,
    stop: watch::Receiver<bool>,
) -> Result<Vec<tokio::task::JoinHandle<()>>, Failure> {
    let fail = |error: api::Error| Failure::Failed(error.to_string());
    let mut tasks = Vec::new();
    if let Some(address) = config.activity.tcp {
        let Some(file) = &config.activity.token_file else {
            return Err(Failure::Failed("[activity] tcp needs token_file".into()));
        };
        let tokens = vec![Tokens::read(file, Rights::All).map_err(fail)?];
        let Activity { tls_cert, tls_key, origins, ticket_key_file, ticket_life_max, .. } =
            &config.activity;
        let pages = match ticket_key_file {
            Some(file) => {
                let tickets = Tickets::read(file, *ticket_life_max).map_err(fail)?;
                Some(Pages { origins: origins.as_slice().into(), tickets })
            }
            None => None,
        };
        let tls = tls_files(tls_cert, tls_key, &None);
        let listener = Listener::tcp(address, tokens, pages, tls).await.map_err(fail)?;
        let served = listener.serve_within(router.clone(), bounds, stop.clone());
        tasks.push(tokio::spawn(served));
    }
    let path = config.activity.socket.clone();
    let store = open::served(&config.sections, &config.origin);
    let router = api::only_for(router, store.as_ref());
    match Listener::unix(&path).await {
        Ok(listener) => tasks.push(tokio::spawn(listener.serve_within(router, bounds, stop))),
        Err(api::Error::Taken(_)) => {
            tasks.push(tokio::spawn(async move {
                // Another host of this store receives the reports; both keep them in the store.
                if let Some(words) = others(&path, store.as_ref(), "activity.socket").await {
                    tracing::warn!("reports of activity do not reach this host: {words}");
                }
                served_once_free(path, router, bounds, stop).await;
            }));
        }
        Err(error) => return Err(fail(error)),
    }
    Ok(tasks)
}

/// Says that a socket belongs to a host of another store, with the fix; `None`: it does not, as far as is known.
async fn others(path: &Path, store: Option<&Served>, key: &str) -> Option<String> {
    let theirs = ask::other(path, store?).await?;
    Some(store?.unlike(&theirs, path.display(), key))
}

/// Retries until the other host on this machine releases the socket, then listens on it.
async fn served_once_free(
    path: PathBuf,
    router: axum::Router,
    bounds: Bounds,
    stop: watch::Receiver<bool>,
) {
    let mut stopped = stop.clone();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(SOCKET_RETRY) => {}
        }
        if let Ok(listener) = Listener::unix(&path).await {
            return listener.serve_within(router, bounds, stop).await;
        }
    }
}

/// Collects what the admin API reads from.
fn sources(
    global: &Global,
    assembly: &Assembly,
    defined: watch::Receiver<Arc<Defined>>,
    running: &Running,
    saved: Arc<Notify>,
) -> Sources {
    let Assembly { config, ports, .. } = assembly;
    let of_store = || match &config.store.url {
        Some(_) => config.store.schema.clone(),
        None => {
            let name = config.store.path.file_stem().unwrap_or_default();
            name.to_string_lossy().into_owned()
        }
    };
    let cluster = ports.cluster.is_some().then(|| config.coordination.cluster.clone());
    Sources {
        store: Arc::clone(&ports.store),
        coordination: Arc::clone(&ports.coordination),
        members: ports.cluster.as_ref().map(|cluster| Arc::clone(&cluster.members)),
        health: Arc::clone(&ports.health),
        node: ports.node.clone(),
        virtual_nodes: if cluster.is_some() { VIRTUAL_NODES } else { 0 },
        cluster: cluster.unwrap_or_else(of_store),
        lease: config.lease.ttl,
        nodes_shown: config.retention.nodes,
        routes: config.topics.keys().cloned().collect(),
        desk: Desk {
            host: ports.node.node_name().to_owned(),
            path: global.config.clone(),
            overrides: Overrides::from_env(global.set.clone()),
            saved,
        },
        defined,
        live: running.live.clone(),
    }
}

/// Serves the admin API on the Unix socket, and over TCP if configured. A Unix socket that cannot be
/// opened is logged and does not stop the host.
async fn answer(
    config: &Config,
    host: api::host::Host,
    gatherer: Gatherer,
    stop: &watch::Sender<bool>,
) -> Result<Vec<tokio::task::JoinHandle<()>>, Failure> {
    let fail = |error: api::Error| Failure::Failed(error.to_string());
    let (readonly, bounds) = (config.api.readonly, Bounds::of(config.api.connections_max));
    let source = Arc::new(gatherer);
    let admin = api::admin::Admin { source, readonly, stopping: stop.subscribe() };
    let router = api::host::router(host).merge(api::admin::router(admin));
    let mut tasks = Vec::new();
    if let Some(address) = config.api.tcp {
        let files = [
            (&config.api.token_file, Rights::All),
            (&config.api.readonly_token_file, Rights::Look),
        ];
        let tokens = files.into_iter().filter_map(|(file, rights)| Some((file.as_ref()?, rights)));
        let tokens = tokens.map(|(file, rights)| Tokens::read(file, rights));
        let tokens = tokens.collect::<Result<_, _>>().map_err(fail)?;
        let Api { tls_cert, tls_key, tls_client_ca, .. } = &config.api;
        let tls = tls_files(tls_cert, tls_key, tls_client_ca);
        let listener = Listener::tcp(address, tokens, None, tls).await.map_err(fail)?;
        let served = listener.serve_within(router.clone(), bounds, stop.subscribe());
        tasks.push(tokio::spawn(served));
    }
    let path = config.api.socket.clone();
    let store = open::served(&config.sections, &config.origin);
    let router = api::only_for(router, store.as_ref());
    match Listener::unix(&path).await {
        Ok(listener) => {
            tasks.push(tokio::spawn(listener.serve_within(router, bounds, stop.subscribe())));
        }
        Err(api::Error::Taken(_)) => {
            let stop = stop.subscribe();
            tasks.push(tokio::spawn(async move {
                let other = others(&path, store.as_ref(), "api.socket").await;
                let words = other.unwrap_or_else(|| {
                    format!("{}: set api.socket to give each its own", path.display())
                });
                tracing::warn!(
                    "another host uses the admin socket; retrying until it is free: {words}"
                );
                served_once_free(path, router, bounds, stop).await;
            }));
        }
        Err(error) => tracing::warn!(%error, "status socket unavailable"),
    }
    Ok(tasks)
}

/// Returns the TLS files of a TCP address; `None` for an address without TLS, which is a loopback address.
fn tls_files<'a>(
    cert: &'a Option<PathBuf>,
    key: &'a Option<PathBuf>,
    client_ca: &'a Option<PathBuf>,
) -> Option<TlsFiles<'a>> {
    let (cert, key) = (cert.as_deref()?, key.as_deref()?);
    Some(TlsFiles { cert, key, client_ca: client_ca.as_deref() })
}

/// Receivers of a new configuration besides the node.
struct Told {
    defined: watch::Sender<Arc<Defined>>,
    recorder: Arc<Recorder>,
    health: Arc<Health>,
    store: Arc<dyn Store>,
    /// The author of the records of reloads: this host.
    by: String,
}

/// Reloads a changed configuration. An invalid one is reported, and the running configuration stays.
async fn reload(
    mut files: Reload,
    global: Global,
    mut config: Config,
    loader: Loader,
    control: tokio::sync::mpsc::Sender<Control>,
    told: Told,
) {
    let started = config.clone();
    loop {
        let sign = tokio::select! {
            sign = files.changed() => sign,
            () = unmatched::until_matched(told.store.as_ref(), &config),
                if !config.unmatched.is_empty() => Sign::Changed,
        };
        let loaded = loaded(&loader, &global, &config, told.store.as_ref()).await;
        let (new, resolved, unused) = match loaded {
            Ok(new) => new,
            Err(problems) => {
                told.recorder.config_refused(problems.to_string());
                tracing::error!(
                    "the changed configuration was refused; the running configuration stays\n\
                     {problems}"
                );
                let fault = Some(problems.to_string());
                told.defined.send_modify(|now| Arc::make_mut(now).fault = fault);
                continue;
            }
        };
        let of_topics = endpoints::topic_faults(&new).into_iter().map(|(_, words)| words);
        for words in endpoints::faults(&new).into_iter().chain(of_topics) {
            tracing::error!("a restart with these files would fail: {words}: {}", endpoints::FIX);
        }
        let mut changes = config.diff(&new);
        let unused = unused.map(|problems| format!("{CODE_KEPT}\n{problems}"));
        let is_same = sign == Sign::Changed
            && changes.is_empty()
            && new.refused == config.refused
            && new.unmatched == config.unmatched;
        match is_same {
            true => told.recorder.config_stands(),
            false => told.recorder.config_taken(&global.config.display().to_string()),
        }
        if let Some(fault) = &unused {
            told.recorder.config_refused(fault.clone());
            tracing::error!("{fault}");
        }
        if is_same {
            told.defined.send_if_modified(|now| {
                let changes = now.fault != unused;
                if changes {
                    if unused.is_none() {
                        tracing::info!(
                            "the files are valid again and have what this host runs with"
                        );
                    }
                    Arc::make_mut(now).fault = unused;
                }
                changes
            });
            continue;
        }
        open::say_refused(&new, &config.refused);
        unmatched::say(&new, Some(&config));
        told.health.refuse(refusals(&new));
        let pending = started.diff(&new).needs_restart;
        changes.needs_restart.retain(|key| {
            let is_pending = pending.contains(key);
            if !is_pending {
                tracing::info!(%key, "the file has the value again that this host runs with");
            }
            is_pending
        });
        told.recorder.config_waits(pending);
        for key in &changes.needs_restart {
            match key.as_str() {
                "store.path" | "store.url" | "store.schema" => tracing::warn!(
                    %key,
                    "the change takes effect after a restart: the host would then use another database"
                ),
                _ => tracing::warn!(%key, "the change takes effect after a restart"),
            }
        }
        let names = |tasks: &[TaskName]| -> String {
            tasks.iter().map(TaskName::as_str).collect::<Vec<_>>().join(", ")
        };
        tracing::info!(
            added = names(&changes.added),
            removed = names(&changes.removed),
            changed = names(&changes.changed),
            collections = changes.collections,
            "reloaded the configuration"
        );
        let is_new = |task: &TaskDefinition| {
            let before = config.tasks.get(&task.name);
            before.is_none_or(|before| before.digest != task.digest || !task.is_within(before))
        };
        let (store, by) = (told.store.as_ref(), told.by.as_str());
        let reason = "the configuration was reloaded";
        if !changes.is_empty() {
            kept::note_reload(store, (&config, &new), &changes, by, reason).await;
        }
        kept::note_loads(store, &new, by, reason, is_new).await;
        let gone: Vec<String> = config
            .tasks
            .values()
            .map(|task| task.digest.clone())
            .filter(|digest| new.tasks.values().all(|task| task.digest != *digest))
            .collect();
        let configured = setup::work(&new);
        let mut work = configured.clone();
        undo::add(&mut work);
        let reconfigured = Reconfigured { work, digest: new.digest() };
        told.defined.send_replace(Arc::new(Defined {
            work: configured,
            digest: reconfigured.digest.clone(),
            at: clock::wall(),
            fault: unused,
        }));
        config = new;
        if control.send(Control::Reconfigure(Box::new(reconfigured))).await.is_err() {
            return;
        }
        for digest in gone {
            // Calls in progress keep their version.
            loader.runtime().unload(&digest);
        }
        say_mapping(told.store.as_ref(), &resolved).await;
    }
}

/// Reads a changed file and takes it up, as far as the database allows.
async fn loaded(
    loader: &Loader,
    global: &Global,
    running: &Config,
    store: &dyn Store,
) -> Result<(Config, Resolved, Option<Problems>), Problems> {
    let parsed = config::read(&global.config, &Overrides::from_env(global.set.clone()))?;
    let (_, mut resolved, unused) = taken_up(loader, parsed, running, &global.config).await?;
    unmatched::hold_again(store, &mut resolved, running).await;
    let new = resolved.clone().finish()?;
    cascades(store, &new, &resolved).await?;
    Ok((new, resolved, unused))
}

/// Resolves a changed file. Where only files of plugins cannot be used, the rest of the changes is taken
/// up with the code that runs, and the problems are returned with it: a faulty plugin must not keep
/// another task from being removed. Tasks that do not run and whose plugin files are refused are left out.
async fn taken_up(
    loader: &Loader,
    parsed: config::resolve::Parsed,
    running: &Config,
    file: &Path,
) -> Result<(Config, Resolved, Option<Problems>), Problems> {
    let blank = parsed.is_blank();
    let usable = |mut resolved: Resolved| {
        resolved.leave_out_refused(|task| !running.tasks.contains_key(task));
        let new = resolved.clone().finish()?;
        running.refuse_truncated(&new, file, blank)?;
        Ok((new, resolved))
    };
    let mut found = loader.load_all(&parsed).await;
    let problems = match usable(Loader::resolve_with(parsed.clone(), &found)) {
        Ok((new, resolved)) => return Ok((new, resolved, None)),
        Err(problems) => problems,
    };
    let of_task = |task: &Arc<TaskDefinition>| (task.plugin.clone(), task.digest.clone());
    let code = running.tasks.values().map(of_task).collect();
    loader.keep_running(&mut found, &code);
    match usable(Loader::resolve_with(parsed, &found)) {
        Ok((new, resolved)) => Ok((new, resolved, Some(problems))),
        Err(_) => Err(problems),
    }
}

/// Refuses tasks that would delete rows with which the database deletes others. If the database does not answer, it
/// is asked again at the next start.
async fn cascades(store: &dyn Store, new: &Config, resolved: &Resolved) -> Result<(), Problems> {
    match open::cascades(store, new, &resolved.used_collections()).await {
        Ok(faults) if faults.is_empty() => Ok(()),
        Ok(faults) => Err(Problems(resolved.placed(&faults))),
        Err(error) => {
            tracing::warn!(%error, "foreign keys that delete rows could not be looked for");
            Ok(())
        }
    }
}

/// Logs where the mapping differs from the database. It comes after the reload, which may be meant
/// to stop a task at once; a task that meets a difference is held, and the others continue.
async fn say_mapping(store: &dyn Store, resolved: &Resolved) {
    match store.check(&resolved.used_collections()).await {
        Ok(faults) => {
            let found = resolved.placed(&open::needed(resolved.partial(), faults));
            if !found.is_empty() {
                tracing::warn!("the mapping differs from the database\n{}", Problems(found));
            }
        }
        Err(error) => {
            tracing::warn!(%error, "the mapping could not be compared with the database");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_websockets_fit_the_descriptors_beside_what_else_needs_them() {
        let mut config =
            besom_config::RawConfig::parse("", "besom.toml".as_ref(), &Overrides::default())
                .outline(&besom_core::collection::Collections::default())
                .finish()
                .expect("it is empty");
        assert_eq!(config.activity.connections_max, 1024);
        let within = |most, config: &Config| {
            let fits = Fits::within(most, config);
            (fits.websockets, fits.connections)
        };
        assert_eq!(within(u64::MAX, &config), (10_000, 1024));
        assert_eq!(within(1 << 20, &config), (10_000, 1024));
        // 384 are kept, and 64 for the admin API.
        assert_eq!(within(4096, &config), (4096 - 448 - 1024, 1024));
        assert_eq!(within(1024, &config), (288, 288));
        assert_eq!(within(16, &config), (2, 2));
        config.sections.activity.tcp = Some(([127, 0, 0, 1], 1).into());
        config.sections.api.tcp = config.activity.tcp;
        assert_eq!(within(4096, &config), (4096 - 512 - 2 * 896, 896));
    }
}
