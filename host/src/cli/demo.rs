//! `besom demo`: fills a directory with sample data and runs the built-in tasks on it.

mod board;
mod cluster;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::assembly::{Assembly, asked_to_stop};
use super::open::Purpose;
use super::top::link::{Address, Link};
use super::top::{self, quiet::Quiet};
use super::watch::Watch;
use super::{Exit, Failure, Global, output, run, serve};
use besom_tui::console;
use besom_tui::dash::{Options as Shown, State};

use besom_demo::life::{Life, World};
use besom_demo::orchestrator::{ANYWHERE, Orchestrator};
use besom_demo::{self as demo, Place};
use besom_engine::host::clock;
use besom_engine::host::wake::Wake;
use besom_ports::activity::Activity;
use besom_ports::store::Store;
use besom_product::model::default_collections;
use besom_product::model::product::Product;
use besom_sqlite::{Options, SqliteStore};

/// Interval between two reads of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// `besom demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the demo: new, empty, or created by an earlier demo.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Run every task to completion, print what has changed, and exit with 0 if the books balance.
    #[arg(long)]
    exit: bool,
    /// Start this many hosts as a cluster, with the etcd, PostgreSQL and Redis installed on this
    /// machine. With --exit, the leader is killed once during the run.
    #[arg(long, value_name = "HOSTS")]
    cluster: Option<usize>,
    /// Print lines instead of opening the dashboard.
    #[arg(long)]
    plain: bool,
    /// Import a public editing trace as a document; repeatable.
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
}

impl Args {
    /// Creates the data, then runs the tasks: once to completion, or as a host.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let mut say = |words: &str| to_stderr!("{}", besom_config::printable(words));
        let fail = |error: anyhow::Error| Failure::Failed(format!("{error:#}"));
        let traces = self.traces.clone();
        let replayed = tokio::task::spawn_blocking(move || {
            demo::import::replay(&traces, &mut |words| {
                to_stderr!("{}", besom_config::printable(words));
            })
        })
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?
        // The messages about traces contain their causes.
        .map_err(|error| Failure::Failed(error.to_string()))?;
        if let Some(hosts) = self.cluster {
            return cluster::run(global, &self.dir, hosts, self.exit, self.plain, &replayed).await;
        }
        let place = Place::claim(&self.dir).map_err(|error| Failure::Usage(error.to_string()))?;
        say(&match place.is_unfinished() {
            true => format!(
                "filling {} with documents, clients, shares and workspaces of {} tenants",
                self.dir.display(),
                demo::seed::TENANTS.len()
            ),
            false => format!("continuing the demo in {}", self.dir.display()),
        });
        let store = SqliteStore::open(place.database(), Options::default())?;
        store.set_collections(Arc::new(default_collections()));
        let orchestrator = match self.exit {
            true => None,
            false => orchestrator(place.called(), &place.token()).await,
        };
        let prepared =
            demo::prepare(&place, &*store, store.clone(), &replayed, clock::wall(), &mut say)
                .await
                .map_err(fail)?;
        let product = Product::new(store, Arc::new(default_collections()));
        if let Some(orchestrator) = &orchestrator {
            place.enliven(orchestrator).map_err(|error| Failure::Failed(error.to_string()))?;
        }
        let global = Global { config: place.config(), ..global.clone() };
        say("loading the built-in tasks");
        let assembly = Assembly::new(&global, Purpose::Serve).await?;
        if let Some(seeded) = &prepared.seeded {
            let activity = assembly.ports.activity.as_ref();
            demo::seed::use_workspaces(activity, &seeded.activity)
                .await
                .map_err(|error| Failure::Failed(error.to_string()))?;
        }
        if !self.exit {
            let ports = &assembly.ports;
            let (store, leader) = (ports.store.clone(), ports.coordination.clone());
            let wake = Wake::of(&assembly.config, store.clone(), leader, &ports.node);
            let _living = live(store, product, ports.activity.clone(), wake);
            to_stderr!(
                "besom is running in {}; press Ctrl-C to stop. In another terminal: \
                 besom --config {} status",
                self.dir.display(),
                place.config().display()
            );
            if !self.plain && console::is_possible() {
                let log = self.dir.join("besom.log");
                return dashboard(&global, assembly, &log).await;
            }
            let store = Arc::clone(&assembly.ports.store);
            let mut watch = Watch::begin(store.as_ref(), assembly.config.tasks.keys()).await;
            let mut serving = std::pin::pin!(serve::serve(&global, assembly, asked_to_stop()));
            let mut tick = tokio::time::interval(LOOK_EVERY);
            return loop {
                tokio::select! {
                    ended = &mut serving => break ended,
                    _ = tick.tick() => watch.look(store.as_ref()).await,
                }
            };
        }
        self.play_out(&global, &assembly).await
    }

    async fn play_out(&self, global: &Global, assembly: &Assembly) -> Result<Exit, Failure> {
        let fail = |error: anyhow::Error| Failure::Failed(format!("{error:#}"));
        let store = assembly.ports.store.as_ref();
        let before = demo::measure(store).await.map_err(fail)?;
        // A workspace becomes idle when the idle timeout has passed since its last connection.
        let idle = assembly.config.activity.idle_timeout;
        to_stderr!("waiting {idle:?} until workspaces without a connection count as idle");
        tokio::time::sleep(idle + Duration::from_millis(200)).await;
        let passed = run::pass(assembly).await?;
        let after = demo::measure(store).await.map_err(fail)?;
        let summary = demo::summary(store, &before, &after).await.map_err(fail)?;
        let balanced = summary.balanced;
        output::show(global.output, &summary, || {
            format!(
                "{}\n{}\n{}\n",
                run::text(&passed),
                demo::table(&before, &after),
                if balanced { "The books balance." } else { "The books do not balance." }
            )
        })?;
        Ok(if balanced { Exit::Fine } else { Exit::Failed })
    }
}

/// Starts the orchestrator that the reconciler calls, at the configured address or at a free one. If it
/// cannot start, the demo continues without it: the calls are retried.
async fn orchestrator(called: Option<SocketAddr>, token: &Path) -> Option<Orchestrator> {
    let address = called.unwrap_or(ANYWHERE);
    let started = Orchestrator::start(address, token, demo::seed::SEED).await;
    started
        .map_err(|error| tracing::warn!(%error, %address, "the demo orchestrator could not start"))
        .ok()
}

/// Simulates users that keep changing the demo's store, until the result is dropped.
fn live(
    store: Arc<dyn Store>,
    product: Product,
    activity: Arc<dyn Activity>,
    wake: Option<Wake>,
) -> demo::life::Living {
    let connected = move |workspace: &str| {
        if let Some(wake) = &wake {
            wake.connected(workspace);
        }
    };
    let world = World { store, product, activity, connected: Box::new(connected) };
    // A new seed for each start: the authors of an earlier start have made other edits.
    Life::new(world, demo::seed::SEED ^ clock::wall().micros().unsigned_abs()).begin()
}

/// Runs the host and, on the same terminal, its dashboard. Leaving the dashboard stops the host.
async fn dashboard(global: &Global, assembly: Assembly, log: &Path) -> Result<Exit, Failure> {
    let quiet = Quiet::begin(Some(log))?;
    let address = Address::Unix(assembly.config.api.socket.clone());
    let link = Link::new(vec![address], false);
    let (left, leaves) = tokio::sync::oneshot::channel::<()>();
    let asked = async {
        tokio::select! {
            signal = asked_to_stop() => signal,
            // The dashboard has ended, for whatever reason.
            _ = leaves => Ok("the dashboard"),
        }
    };
    let shown = async {
        let shown = top::show(link, State::new(top::themed(Shown::default()))).await;
        // The host may have ended already.
        let _ = left.send(());
        shown
    };
    let (served, shown) =
        quiet.during(async { tokio::join!(serve::serve(global, assembly, asked), shown) }).await;
    served.and(shown)
}
