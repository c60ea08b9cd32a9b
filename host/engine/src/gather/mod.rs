//! Gathers the state of the deployment into a [`Snapshot`] while it is being observed.
//!
//! All data comes from sources that every host can read: the store, the coordination, and the rows
//! that the nodes write about themselves. So any host can answer for all of them, and a host that
//! is unavailable is shown with the age of its last report. While there is no observer, nothing is
//! read. Otherwise reading takes only a small part of the time, regardless of the size of the
//! deployment.
//!
//! ```text
//! Sources ── read ──> Reading ── picture (pure) ──> Snapshot ──> watch ──> each observer
//! ```

pub mod answer;
mod cache;
mod events;
pub mod explain;
pub mod held_back;
mod picture;
mod rates;
mod reading;
pub mod refused;
pub mod resumed;
pub mod rows;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use besom_core::ids::Incarnation;
use besom_core::time::Time;
use besom_snapshot::{DepthSample, Snapshot};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::host::Live;
use crate::host::editing::Desk;
use crate::host::health::Health;
use besom_node::Work;
use besom_ports::coordination::Coordination;
use besom_ports::members::Members;
use besom_ports::store::{self, Depth, Store};
use cache::Cache;
use picture::Picture;

/// Minimum interval between readings while the deployment is being observed.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// Maximum interval between readings, however long they take.
const EVERY_MAX: Duration = Duration::from_secs(15);
/// Readings may take one part in this number of the time.
const PART_OF_TIME: u32 = 20;
/// How often the waiting items are counted while there is no observer, and how many counts are kept
/// (15 minutes), so that the dashboard opens with a history.
const SAMPLE_EVERY: Duration = Duration::from_secs(15);
const SAMPLES: usize = 60;
/// How long the store may take for one complete reading.
const READ_MAX: Duration = Duration::from_secs(10);

/// The active configuration of a host.
#[derive(Debug, Clone, Default)]
pub struct Defined {
    /// Its tasks and collections.
    pub work: Work,
    /// The digest of the configuration.
    pub digest: String,
    /// When it was loaded.
    pub at: Time,
    /// Why the latest version of the file was rejected; `None`: it was not.
    pub fault: Option<String>,
}

/// The sources of the data.
pub struct Sources {
    /// The database.
    pub store: Arc<dyn Store>,
    /// Leader election.
    pub coordination: Arc<dyn Coordination>,
    /// The members; `None`: this host is not in a cluster.
    pub members: Option<Arc<dyn Members>>,
    /// The services that this host cannot reach and the tasks that it holds.
    pub health: Arc<Health>,
    /// This incarnation of the node.
    pub node: Incarnation,
    /// The name of the cluster or of the database.
    pub cluster: String,
    /// The duration of a lease.
    pub lease: Duration,
    /// How long a node is shown after it was last seen.
    pub nodes_shown: Duration,
    /// Number of points on the ring for a node of weight 1; 0: there is no ring.
    pub virtual_nodes: u32,
    /// The topics with a route.
    pub routes: BTreeSet<String>,
    /// This host's configuration file.
    pub desk: Desk,
    /// This host's active configuration.
    pub defined: watch::Receiver<Arc<Defined>>,
    /// What this host is doing.
    pub live: watch::Receiver<Live>,
}

/// Gathers while there are observers. Clones share one gatherer.
#[derive(Clone)]
pub struct Gatherer(Arc<Inner>);

struct Inner {
    sources: Sources,
    latest: watch::Sender<Option<Arc<Snapshot>>>,
    /// Notified when an observer has arrived, or when an action should become visible.
    wake: Notify,
    /// Recent numbers of waiting items, also from times without observers.
    depths: Mutex<VecDeque<DepthSample>>,
}

impl Gatherer {
    /// Creates a gatherer. [`Gatherer::run`] does the reading.
    pub fn new(sources: Sources) -> Gatherer {
        let (latest, _) = watch::channel(None);
        Gatherer(Arc::new(Inner { sources, latest, wake: Notify::new(), depths: Mutex::default() }))
    }

    /// The sources of the data.
    pub fn sources(&self) -> &Sources {
        &self.0.sources
    }

    /// Observes until the receiver is dropped. The first snapshot may be outdated; `None`: there is
    /// none yet.
    pub fn look(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        let receiver = self.0.latest.subscribe();
        self.0.wake.notify_one();
        receiver
    }

    /// Reads immediately, because an action should become visible.
    pub fn hurry(&self) {
        self.0.wake.notify_one();
    }

    /// Gathers until the future is dropped.
    pub async fn run(self) {
        let Inner { sources, latest, wake, depths } = &*self.0;
        let (mut defined, mut live) = (sources.defined.clone(), sources.live.clone());
        let mut cache = Cache::default();
        let mut picture = Picture::default();
        loop {
            if latest.receiver_count() == 0 {
                tokio::select! {
                    () = wake.notified() => {}
                    () = tokio::time::sleep(SAMPLE_EVERY) => sample(sources, depths).await,
                }
                continue;
            }
            let begun = Instant::now();
            let read = tokio::time::timeout(READ_MAX, cache.read(sources)).await;
            let read = read.unwrap_or_else(|_| {
                Err(store::Error::Busy(format!("no answer within {} s", READ_MAX.as_secs())))
            });
            match &read {
                Err(store::Error::Damaged(_)) => sources.health.lose_store(),
                read => sources.health.note(crate::host::health::Part::Store, read),
            }
            let snapshot = match read {
                Ok(reading) => {
                    keep(depths, reading.now, &reading.depths);
                    picture.of(sources, &reading)
                }
                Err(_) => picture.without_store(sources),
            };
            latest.send_replace(Some(Arc::new(snapshot)));
            let pause = (begun.elapsed() * PART_OF_TIME).clamp(EVERY_MIN, EVERY_MAX);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = wake.notified() => {}
                Ok(()) = defined.changed() => {}
                Ok(()) = live.changed() => {}
            }
        }
    }
}

impl Gatherer {
    /// Recent numbers of waiting items, oldest first.
    fn depths(&self) -> Vec<DepthSample> {
        let depths = self.0.depths.lock().unwrap_or_else(PoisonError::into_inner);
        depths.iter().cloned().collect()
    }
}

/// Counts the waiting items with one query, which the store answers from its counters.
async fn sample(sources: &Sources, kept: &Mutex<VecDeque<DepthSample>>) {
    let store = sources.store.as_ref();
    let read = async { tokio::try_join!(store.now(), store.depths()) };
    if let Ok(Ok((now, depths))) = tokio::time::timeout(READ_MAX, read).await {
        keep(kept, now, &depths);
    }
}

/// Adds a count if the last one is old enough.
fn keep(kept: &Mutex<VecDeque<DepthSample>>, now: Time, depths: &[Depth]) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.back().is_some_and(|last| now < last.at + SAMPLE_EVERY) {
        return;
    }
    let waits = |depth: &Depth| Some((depth.task.as_ref()?.to_string(), depth.log + depth.retries));
    kept.push_back(DepthSample { at: now, tasks: depths.iter().filter_map(waits).collect() });
    while kept.len() > SAMPLES {
        kept.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_kept_each_quarter_of_a_minute_for_fifteen_minutes() {
        let kept = Mutex::default();
        for second in 0..2_000 {
            let task = Some("sweep".into());
            let depth = Depth { task, log: second as u64, retries: 1, ..Depth::default() };
            keep(&kept, Time::from_secs(second), &[depth]);
        }
        let kept = kept.into_inner().expect("no thread has failed");
        assert_eq!(kept.len(), SAMPLES);
        let last = kept.back().expect("one");
        assert_eq!((last.at, last.tasks["sweep"]), (Time::from_secs(1_995), 1_996));
        assert_eq!(kept.front().map(|first| first.at), Some(Time::from_secs(1_110)));
    }
}
