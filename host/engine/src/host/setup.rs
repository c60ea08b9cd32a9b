//! Converts a configuration into the settings of a node.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::election::Timing;
use besom_core::ids::Incarnation;
use besom_core::lane::PerLane;
use besom_core::plan::GRACE_DEFAULT;

use besom_config::Config;
use besom_node::planner::Scheduled;
use besom_node::{Settings, Work, executor, holdings, planner};

/// How often old history is removed.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of candidates of a page on SQLite: all other writers wait while a page is written.
const SQLITE_PAGE_MAX: u32 = 1_000;

/// The tasks and collections of a configuration. Its schedules are valid, because the configuration
/// was loaded with the same parser.
pub fn work(config: &Config) -> Work {
    let tasks = config.tasks.iter().map(|(name, definition)| {
        let schedule = definition
            .schedule
            .as_deref()
            .and_then(|expression| Schedule::parse(expression, &definition.timezone).ok());
        (name.clone(), Scheduled { definition: Arc::clone(definition), schedule })
    });
    Work {
        tasks: tasks.collect(),
        left_out: BTreeMap::new(),
        collections: Arc::clone(&config.collections),
    }
}

/// How many candidates of a scan are written at once.
fn page_items(config: &Config) -> u32 {
    match &config.store.url {
        Some(_) => config.host.scan_page_items,
        None => config.host.scan_page_items.min(SQLITE_PAGE_MAX),
    }
}

/// The settings of a node. `pass`: it plans everything at once and ends (`besom run`).
/// `partitions`: those of the cluster's store; `None`: this host is not in a cluster.
pub fn settings(
    config: &Config,
    node: Incarnation,
    partitions: Option<NonZeroU32>,
    pass: bool,
) -> Settings {
    Settings {
        node,
        timing: Timing { ttl: config.lease.ttl, renew: config.lease.renew },
        executor: executor::Settings {
            batches: PerLane::of(|row| config.host.batches[row.lane] as usize),
            long_after: config.host.long_after,
            heavy_wait_max: config.host.heavy_wait_max,
            commit_items: config.host.batch_items.max(1) as usize,
            commit_rows: config.host.batch_rows.into(),
            commit_bytes: usize::try_from(config.host.batch_bytes).unwrap_or(usize::MAX),
            commit_bytes_in_flight: usize::try_from(config.host.commit_bytes_in_flight)
                .unwrap_or(usize::MAX),
            memory_in_flight: config.host.memory_in_flight,
            window: config.host.timers_ahead,
            activity_in_store: !config.activity.in_redis(),
            ignore_backoff: pass,
            refused_items_max: config.host.refused_items_max,
            ..executor::Settings::default()
        },
        planner: planner::Settings {
            page: page_items(config),
            grace: GRACE_DEFAULT,
            pass,
            command_letters: NonZeroU32::new(config.host.command_letters)
                .unwrap_or(NonZeroU32::MIN),
            command_attempts_max: config.host.command_attempts_max,
            rounds_max: config.host.pass_rounds_max,
            idle_rounds_max: config.host.pass_idle_rounds_max,
            ..planner::Settings::default()
        },
        drain_max: config.host.drain_max,
        prune_every: PRUNE_EVERY,
        cluster: partitions.map(|partitions| holdings::Settings {
            partitions,
            verify_every: config.coordination.verify_every,
            poll_every: config.coordination.poll_every,
        }),
    }
}

/// The name of the node; by default the name of the machine.
pub fn node_name(config: &Config) -> String {
    config.node.name.clone().unwrap_or_else(hostname)
}

/// The incarnation of the node that this process is: its name and a number that is drawn once.
pub fn incarnation(config: &Config) -> Incarnation {
    let name = node_name(config);
    let mut seed = [0; 8];
    seed.copy_from_slice(&super::seed()[..8]);
    Incarnation::new(&name, u64::from_le_bytes(seed) as u32)
}

/// The machine's name.
pub fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".into() } else { name }
}
