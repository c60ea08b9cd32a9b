//! Gathers what is known of the deployment into a [`Snapshot`], while somebody looks.
//!
//! Everything comes from where every host can read it: the store, the coordination and what
//! the nodes say of themselves with their signs of life. So any host answers for all of them,
//! and one that is away is shown with the age of what it last said. Nobody looks: nothing is
//! read. While somebody does, reading takes at most a small part of the time, however large
//! the deployment is.
//!
//! ```text
//! Sources ── read ──> Reading ── picture (pure) ──> Snapshot ──> watch ──> each onlooker
//! ```

pub mod answer;
mod books;
mod events;
mod picture;
mod rates;
mod reading;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use besom_core::ids::NodeName;
use besom_core::snapshot::{DepthSample, Snapshot};
use besom_core::time::Time;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::host::Live;
use crate::host::editing::Desk;
use crate::host::health::Health;
use crate::node::Work;
use crate::ports::coordination::Coordination;
use crate::ports::members::Members;
use crate::ports::store::{self, Depth, Store};
use books::Books;
use picture::Picture;

/// How often it is read at most, while somebody looks.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// How often it is read at least, however long that takes.
const EVERY_MAX: Duration = Duration::from_secs(15);
/// Reading may take one part in so many of the time.
const PART_OF_TIME: u32 = 20;
/// How often it is counted what waits while nobody looks, and how many counts are kept: those
/// of 15 minutes. Whoever opens the dashboard sees how it came to be.
const SAMPLE_EVERY: Duration = Duration::from_secs(15);
const SAMPLES: usize = 60;
/// How long the store may take for all of it.
const READ_MAX: Duration = Duration::from_secs(10);

/// What a host works by at the moment.
#[derive(Debug, Clone, Default)]
pub struct Defined {
    /// Its tasks.
    pub work: Work,
    /// The digest of its configuration.
    pub digest: String,
    /// When it took it over.
    pub at: Time,
    /// Why the file was not taken over when it last changed; none: it was.
    pub fault: Option<String>,
}

/// Where everything comes from.
pub struct Sources {
    /// The database.
    pub store: Arc<dyn Store>,
    /// Who leads.
    pub coordination: Arc<dyn Coordination>,
    /// Who is there; none: this host is in no cluster.
    pub members: Option<Arc<dyn Members>>,
    /// What this host cannot reach.
    pub health: Arc<Health>,
    /// This incarnation.
    pub node: NodeName,
    /// The cluster's name, or the database's.
    pub cluster: String,
    /// How long a lease lasts.
    pub lease: Duration,
    /// For how long a node that vanished is shown.
    pub nodes_shown: Duration,
    /// Points on the ring of a node of weight 1; 0: no ring decides.
    pub virtual_nodes: u32,
    /// This host's configuration file.
    pub desk: Desk,
    /// What this host works by.
    pub defined: watch::Receiver<Arc<Defined>>,
    /// What this host does.
    pub live: watch::Receiver<Live>,
}

/// Gathers while somebody looks. Its clones are the same gatherer.
#[derive(Clone)]
pub struct Gatherer(Arc<Inner>);

struct Inner {
    sources: Sources,
    latest: watch::Sender<Option<Arc<Snapshot>>>,
    /// Somebody has begun to look, or something was done that is to be seen.
    wake: Notify,
    /// How much has waited of late, also while nobody looked.
    depths: Mutex<VecDeque<DepthSample>>,
}

impl Gatherer {
    /// A gatherer that reads nothing yet. [`Gatherer::run`] does.
    pub fn new(sources: Sources) -> Gatherer {
        let (latest, _) = watch::channel(None);
        Gatherer(Arc::new(Inner { sources, latest, wake: Notify::new(), depths: Mutex::default() }))
    }

    /// Where everything comes from.
    pub fn sources(&self) -> &Sources {
        &self.0.sources
    }

    /// Looks from now on, until the receiver is dropped. The first picture there may be of
    /// earlier; none: nobody has looked yet.
    pub fn look(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        let receiver = self.0.latest.subscribe();
        self.0.wake.notify_one();
        receiver
    }

    /// Reads at once: something was done that somebody waits to see.
    pub fn hurry(&self) {
        self.0.wake.notify_one();
    }

    /// Gathers, until the future is dropped.
    pub async fn run(self) {
        let Inner { sources, latest, wake, depths } = &*self.0;
        let (mut defined, mut live) = (sources.defined.clone(), sources.live.clone());
        let mut books = Books::default();
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
            let read = tokio::time::timeout(READ_MAX, books.read(sources)).await;
            let read = read.unwrap_or_else(|_| {
                Err(store::Error::Busy(format!("no answer within {} s", READ_MAX.as_secs())))
            });
            sources.health.note(crate::host::health::Part::Store, &read);
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
    /// How much has waited of late, oldest first.
    fn depths(&self) -> Vec<DepthSample> {
        let depths = self.0.depths.lock().unwrap_or_else(PoisonError::into_inner);
        depths.iter().cloned().collect()
    }
}

/// Counts what waits: one question to the store, which it answers from its counters.
async fn sample(sources: &Sources, kept: &Mutex<VecDeque<DepthSample>>) {
    let store = sources.store.as_ref();
    let read = async { tokio::try_join!(store.now(), store.depths()) };
    if let Ok(Ok((now, depths))) = tokio::time::timeout(READ_MAX, read).await {
        keep(kept, now, &depths);
    }
}

/// Keeps a count, where the last one is old enough.
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
