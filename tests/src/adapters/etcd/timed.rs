//! Handles whose leases run on the tests' clock.
//!
//! A lease that was not renewed in time by that clock is revoked without its holder. For etcd and
//! every client that equals its expiry: its keys are deleted, and renewing it fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Term};
use besom_core::ring::NodeName;
use besom_ports::coordination::{Campaign, Coordination, LeaderRecord, Result};
use besom_ports::members::{Announcement, MemberState, Members, Membership, StoreAway};
use besom_services::coordination::etcd::{Clocks, Etcd, Identity, Options};

use crate::conformance::coordination::Contest;
use crate::conformance::members::Company;
use crate::conformance::{block_on, world::START};

/// How long the leases of the suites last.
pub const TTL: Duration = Duration::from_secs(15);

/// The machine's monotonic clock, for tests in real time, with a wall clock that stands still.
pub fn clocks() -> Clocks {
    Clocks { since_boot: Arc::new(besom_engine::host::clock::since_boot), wall: Arc::new(|| START) }
}

/// Lease time, and the handles that use it.
pub struct Timeline {
    urls: Vec<String>,
    cluster: String,
    /// Microseconds.
    now: AtomicU64,
    handles: Mutex<Vec<Arc<Timed>>>,
}

/// A handle under that time.
pub struct Timed {
    etcd: Etcd,
    name: NodeName,
    timeline: Arc<Timeline>,
    /// When its lease ends; none: it has none.
    ends_at: Mutex<Option<Duration>>,
}

impl Timeline {
    /// A new cluster of Besom in these members of etcd.
    pub fn new(urls: Vec<String>) -> Arc<Timeline> {
        static CLUSTERS: AtomicU64 = AtomicU64::new(0);
        let cluster = format!("case-{}", CLUSTERS.fetch_add(1, Ordering::Relaxed));
        let now = AtomicU64::new(3_600_000_000);
        Arc::new(Timeline { urls, cluster, now, handles: Mutex::default() })
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.now.load(Ordering::Relaxed))
    }

    /// One incarnation of a node.
    pub fn handle(self: &Arc<Self>, name: &str, incarnation: &str) -> Arc<Timed> {
        let identity = Identity {
            name: name.into(),
            incarnation: incarnation.into(),
            hostname: format!("{name}.example"),
        };
        let mut options = Options::new(self.urls.clone(), &self.cluster, TTL);
        // A machine under load may be slow; slow servers have their own tests.
        options.attempt_timeout = Duration::from_secs(60);
        options.hedge_after = Duration::from_secs(30);
        options.jitter_max = Duration::ZERO;
        let timeline = Arc::clone(self);
        let clocks =
            Clocks { since_boot: Arc::new(move || timeline.now()), wall: Arc::new(|| START) };
        let timed = Arc::new(Timed {
            etcd: Etcd::new(identity, options, clocks).expect("a handle"),
            name: name.into(),
            timeline: Arc::clone(self),
            ends_at: Mutex::default(),
        });
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&timed));
        timed
    }

    /// Lets lease time pass: what nobody renewed in time ends.
    pub fn advance(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).expect("a span of a test");
        self.now.fetch_add(micros, Ordering::Relaxed);
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ended: Vec<String> = handles
            .iter()
            .filter(|handle| handle.end())
            .map(|handle| format!("/besom/{}/members/{}", self.cluster, handle.name))
            .collect();
        if ended.is_empty() {
            return;
        }
        let urls = self.urls.clone();
        // Called between two awaits of a test, where its runtime cannot be blocked on.
        std::thread::scope(|scope| {
            scope.spawn(move || block_on(revoke(&urls, &ended)));
        });
    }
}

/// Ends the leases of these keys.
async fn revoke(urls: &[String], keys: &[String]) {
    let mut client = etcd_client::Client::connect(urls, None).await.expect("etcd is there");
    for key in keys {
        let found = client.get(key.as_str(), None).await.expect("an answer");
        let lease = found.kvs().first().map(etcd_client::KeyValue::lease);
        if let Some(lease) = lease {
            client.lease_client().revoke(lease).await.expect("it ends");
        }
    }
}

impl Timed {
    fn ends_at(&self) -> std::sync::MutexGuard<'_, Option<Duration>> {
        self.ends_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its lease has just ended.
    fn end(&self) -> bool {
        let now = self.timeline.now();
        let mut ends_at = self.ends_at();
        let ended = ends_at.is_some_and(|end| end <= now);
        if ended {
            *ends_at = None;
        }
        ended
    }

    fn renewed(&self, renewed: bool) {
        if renewed {
            *self.ends_at() = Some(self.timeline.now() + TTL);
        }
    }
}

#[async_trait]
impl Coordination for Timed {
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign> {
        let answer = self.etcd.campaign(at_least).await;
        self.renewed(answer.is_ok());
        answer
    }

    async fn renew(&self, fence: &FencingToken) -> Result<bool> {
        let answer = self.etcd.renew(fence).await;
        self.renewed(matches!(answer, Ok(true)));
        answer
    }

    async fn resign(&self, fence: &FencingToken) -> Result<()> {
        self.etcd.resign(fence).await
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        self.etcd.leader().await
    }

    async fn changed(&self, timeout: Duration) {
        self.etcd.changed(timeout).await;
    }
}

#[async_trait]
impl Members for Timed {
    async fn join(&self, announcement: &Announcement) -> Result<u64> {
        let answer = self.etcd.join(announcement).await;
        self.renewed(answer.is_ok());
        answer
    }

    async fn keep_alive(&self) -> Result<bool> {
        let answer = self.etcd.keep_alive().await;
        self.renewed(matches!(answer, Ok(true)));
        answer
    }

    async fn set_state(&self, name: &NodeName, state: MemberState) -> Result<bool> {
        self.etcd.set_state(name, state).await
    }

    async fn say_of_store(&self, away: Option<StoreAway>) -> Result<bool> {
        self.etcd.say_of_store(away).await
    }

    async fn leave(&self) -> Result<()> {
        *self.ends_at() = None;
        self.etcd.leave().await
    }

    async fn members(&self) -> Result<Membership> {
        self.etcd.members().await
    }

    async fn members_changed(&self, since: u64, timeout: Duration) {
        self.etcd.members_changed(since, timeout).await;
    }
}

impl Timeline {
    /// The fixture of the coordination's suite.
    pub fn contest(urls: Vec<String>) -> Contest {
        let timeline = Timeline::new(urls);
        let (one, two) = (timeline.handle("n1", "n1-a"), timeline.handle("n2", "n2-a"));
        let advance = Box::new(move |span| timeline.advance(span));
        Contest { one, two, advance, keep: Box::new(()) }
    }

    /// The fixture of the membership's suite.
    pub fn company(urls: Vec<String>) -> Company {
        let timeline = Timeline::new(urls);
        let (one, two) = (timeline.handle("n1", "n1-a"), timeline.handle("n2", "n2-a"));
        let twin = timeline.handle("n1", "n1-b");
        Company {
            one: one.clone(),
            one_leads: one,
            two: two.clone(),
            two_leads: two,
            twin,
            advance: Box::new(move |span| timeline.advance(span)),
            keep: Box::new(()),
        }
    }
}
