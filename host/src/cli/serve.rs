//! `besom serve`: the host, until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::TaskName;
use tokio::sync::watch;

use super::assembly::{Assembly, asked_to_stop};
use super::open::Loader;
use super::{Exit, Failure, Global};
use crate::api::{self, Endpoint, Listener, Token};
use crate::config::activity::Activity;
use crate::config::{self, Config, Overrides};
use crate::host::reload::{Reload, Sign};
use crate::host::wake::Wake;
use crate::host::{Control, Reconfigured, setup};

/// How long a host that found the activity socket taken waits before it looks again.
const SOCKET_RETRY: Duration = Duration::from_secs(1);

/// `besom serve`.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Runs the host until SIGTERM or SIGINT.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        serve(global, Assembly::new(global, true).await?).await
    }
}

/// Runs a node with its endpoint and its reloads, to its end.
pub async fn serve(global: &Global, assembly: Assembly) -> Result<Exit, Failure> {
    let (stop, stopped) = watch::channel(false);
    let endpoint = endpoint(&assembly, stopped.clone());
    let mut listeners = listen(&assembly.config, &endpoint, stopped).await?;
    let signals = |error: std::io::Error| Failure::Failed(format!("signals: {error}"));
    let files = Reload::watch(&global.config, &assembly.config.plugins.dir).map_err(signals)?;
    let mut running = assembly.start(false);
    let host = api::host::Host {
        node: assembly.ports.node.clone(),
        live: running.live.clone(),
        health: Arc::clone(&assembly.ports.health),
    };
    listeners.extend(answer(&assembly.config, host, stop.subscribe()).await);
    let Assembly { config, loader, .. } = assembly;
    let reloading = reload(files, global.clone(), config, loader, running.control.clone());
    let mut reloading = tokio::spawn(reloading);
    let ended = tokio::select! {
        signal = asked_to_stop() => {
            tracing::info!(signal = signal.map_err(signals)?, "stopping");
            running.shutdown().await;
            (&mut running.ended).await
        }
        ended = &mut running.ended => ended,
        // Reloads end only with the node, or by a fault of the program.
        _ = &mut reloading => (&mut running.ended).await,
    };
    reloading.abort();
    stop.send_replace(true);
    for task in listeners {
        // It was told to stop; how it ended was said by itself.
        let _ = task.await;
    }
    endpoint.closed().await;
    ended.map_err(|error| Failure::Failed(format!("the host has failed: {error}")))?;
    Ok(Exit::Fine)
}

/// The endpoint for reports of activity. A connection wakes its workspace.
fn endpoint(assembly: &Assembly, stopping: watch::Receiver<bool>) -> Arc<Endpoint> {
    let (config, ports) = (&assembly.config, &assembly.ports);
    let connected = Wake::of(config, &ports.store)
        .map(|wake| -> api::Connected { Box::new(move |id| wake.connected(id)) });
    let Activity { heartbeat_timeout, websockets_max, .. } = config.activity;
    let activity = Arc::clone(&ports.activity);
    Endpoint::new(activity, heartbeat_timeout, websockets_max, connected, stopping)
}

/// Listens for reports of activity.
async fn listen(
    config: &Config,
    endpoint: &Arc<Endpoint>,
    stop: watch::Receiver<bool>,
) -> Result<Vec<tokio::task::JoinHandle<()>>, Failure> {
    let router = api::router(Arc::clone(endpoint));
    let fail = |error: api::Error| Failure::Failed(error.to_string());
    let mut tasks = Vec::new();
    if let Some(address) = config.activity.tcp {
        let Some(file) = &config.activity.token_file else {
            return Err(Failure::Failed("[activity] tcp needs token_file".into()));
        };
        let token = Token::read(file).map_err(fail)?;
        let listener =
            Listener::tcp(address, token, &config.activity.origins).await.map_err(fail)?;
        tasks.push(tokio::spawn(served(listener, router.clone(), stop.clone())));
    }
    let path = config.activity.socket.clone();
    match Listener::unix(&path).await {
        Ok(listener) => tasks.push(tokio::spawn(served(listener, router, stop))),
        // Another host of this database takes the reports; they meet in the store.
        Err(api::Error::Taken(_)) => tasks.push(tokio::spawn(async move {
            let mut stopped = stop.clone();
            loop {
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep(SOCKET_RETRY) => {}
                }
                if let Ok(listener) = Listener::unix(&path).await {
                    return served(listener, router, stop).await;
                }
            }
        })),
        Err(error) => return Err(fail(error)),
    }
    Ok(tasks)
}

/// Answers verbs on this machine. Without it the host works all the same.
async fn answer(
    config: &Config,
    host: api::host::Host,
    stop: watch::Receiver<bool>,
) -> Option<tokio::task::JoinHandle<()>> {
    match Listener::unix(&config.api.socket).await {
        Ok(listener) => Some(tokio::spawn(served(listener, api::host::router(host), stop))),
        Err(error) => {
            tracing::warn!(%error, "this host cannot be asked how it is");
            None
        }
    }
}

async fn served(listener: Listener, router: axum::Router, stop: watch::Receiver<bool>) {
    if let Err(error) = listener.serve(router, stop).await {
        tracing::error!(%error, "a socket is not served any more");
    }
}

/// Takes up a changed configuration; a bad one is said and left.
async fn reload(
    mut files: Reload,
    global: Global,
    mut config: Config,
    loader: Loader,
    control: tokio::sync::mpsc::Sender<Control>,
) {
    loop {
        let sign = files.changed().await;
        let loaded = match config::read(&global.config, &Overrides::from_env(global.set.clone())) {
            Ok(parsed) => loader.resolve(parsed).await.finish(),
            Err(problems) => Err(problems),
        };
        let new = match loaded {
            Ok(new) => new,
            Err(problems) => {
                tracing::error!(
                    "the changed configuration is refused; the host goes on with the old one\n\
                     {problems}"
                );
                continue;
            }
        };
        let changes = config.diff(&new);
        if sign == Sign::Changed && changes.is_empty() {
            continue;
        }
        for key in &changes.needs_restart {
            tracing::warn!(%key, "changed, but needs a restart");
        }
        let names = |tasks: &[TaskName]| -> String {
            tasks.iter().map(TaskName::as_str).collect::<Vec<_>>().join(", ")
        };
        tracing::info!(
            added = names(&changes.added),
            removed = names(&changes.removed),
            changed = names(&changes.changed),
            collections = changes.collections,
            "reloaded"
        );
        let gone: Vec<String> = config
            .tasks
            .values()
            .map(|task| task.digest.clone())
            .filter(|digest| new.tasks.values().all(|task| task.digest != *digest))
            .collect();
        let reconfigured = Reconfigured { work: setup::work(&new), digest: new.digest() };
        config = new;
        if control.send(Control::Reconfigure(Box::new(reconfigured))).await.is_err() {
            return;
        }
        for digest in gone {
            // Calls under way keep their version.
            loader.runtime().unload(&digest);
        }
    }
}
