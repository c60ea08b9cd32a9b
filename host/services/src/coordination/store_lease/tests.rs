//! The store lease over a ledger in memory: its decisions, independent of files.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A ledger in memory: one row, and the fence that terms have to exceed.
#[derive(Default)]
struct Ledger {
    row: Mutex<Option<LeaseRow>>,
    path: Option<std::path::PathBuf>,
    /// The next write takes effect but its answer is lost.
    lose_answer: Mutex<bool>,
    /// The clock of the server that keeps the row; `None`: the row is in a file.
    server: Option<Arc<AtomicU64>>,
}

#[async_trait]
impl LeaseLedger for Ledger {
    fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    async fn server_time(&self) -> store::Result<Option<Time>> {
        let seconds = self.server.as_ref().map(|server| server.load(Ordering::Relaxed));
        Ok(seconds.map(|seconds| Time::from_secs(seconds as i64)))
    }

    async fn lease(&self) -> store::Result<Option<LeaseRow>> {
        Ok(self.row.lock().unwrap().clone())
    }

    async fn take_lease(
        &self,
        seen: Option<&LeaseRow>,
        next: &LeaseRow,
        at_least: Option<Term>,
    ) -> store::Result<Option<Term>> {
        let mut row = self.row.lock().unwrap();
        if row.as_ref() != seen {
            return Ok(None);
        }
        let held = row.as_ref().map_or(0, |row| row.leader.term.0);
        let term = Term(held.max(at_least.map_or(0, |t| t.0)) + 1);
        let mut next = next.clone();
        next.leader.term = term;
        *row = Some(next);
        if std::mem::take(&mut *self.lose_answer.lock().unwrap()) {
            return Err(store::Error::Unknown("the answer got lost".into()));
        }
        Ok(Some(term))
    }

    async fn renew_lease(
        &self,
        fence: &FencingToken,
        renewed_at: Time,
        now: Duration,
        expires_at: Duration,
        file_locked: bool,
    ) -> store::Result<bool> {
        let mut row = self.row.lock().unwrap();
        let held =
            |row: &&mut LeaseRow| row.leader.token_hash == fence.token_hash && row.expires_at > now;
        let Some(row) = row.as_mut().filter(held) else { return Ok(false) };
        row.leader.renewed_at = renewed_at;
        row.expires_at = expires_at;
        row.file_locked = file_locked;
        Ok(true)
    }

    async fn release_lease(&self, fence: &FencingToken) -> store::Result<()> {
        let mut row = self.row.lock().unwrap();
        if let Some(row) = row.as_mut().filter(|r| r.leader.token_hash == fence.token_hash) {
            row.expires_at = Duration::ZERO;
        }
        Ok(())
    }
}

struct Machine {
    ledger: Arc<Ledger>,
    seconds: Arc<AtomicU64>,
    _dir: Option<tempfile::TempDir>,
}

impl Machine {
    fn new(with_file: bool) -> Machine {
        let dir = with_file.then(|| tempfile::tempdir().unwrap());
        let path = dir.as_ref().map(|dir| dir.path().join("besom.db"));
        let ledger = Arc::new(Ledger { path, ..Ledger::default() });
        Machine { ledger, seconds: Arc::new(AtomicU64::new(100)), _dir: dir }
    }

    fn node(&self, name: &str) -> StoreLease {
        let seconds = Arc::clone(&self.seconds);
        let clock = LeaseClock {
            boot_id: "boot".into(),
            since_boot: Arc::new(move || Duration::from_secs(seconds.load(Ordering::Relaxed))),
            wall: Arc::new(|| Time::EPOCH),
        };
        StoreLease::new(self.ledger.clone(), name.into(), LEASE_TTL_DEFAULT, clock)
    }

    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

async fn won(lease: &StoreLease) -> FencingToken {
    match lease.campaign(None).await.unwrap() {
        Campaign::Won(fence) => fence,
        held => panic!("{held:?}"),
    }
}

#[tokio::test]
async fn the_lease_is_free_again_when_its_time_is_over_and_not_before() {
    let machine = Machine::new(false);
    let (a, b) = (machine.node("a"), machine.node("b"));
    let first = won(&a).await;
    machine.pass(14);
    let Campaign::Held { leader, retry_in } = b.campaign(None).await.unwrap() else {
        panic!("two leaders")
    };
    assert_eq!((leader.node, retry_in), ("a".into(), Duration::from_secs(1)));
    machine.pass(1);
    let second = won(&b).await;
    assert!(second.term > first.term);
    assert!(!a.renew(&first).await.unwrap());
    assert!(b.renew(&second).await.unwrap());
}

#[tokio::test]
async fn a_holder_that_died_is_followed_at_once_and_a_living_one_is_not() {
    let machine = Machine::new(true);
    let (a, b) = (machine.node("a"), machine.node("b"));
    won(&a).await;
    assert!(matches!(b.campaign(None).await.unwrap(), Campaign::Held { .. }));
    assert_eq!(b.leader().await.unwrap().unwrap().node, "a".into());
    drop(a);
    b.changed(Duration::from_secs(3600)).await;
    assert_eq!(b.leader().await.unwrap(), None);
    won(&b).await;
}

#[tokio::test]
async fn a_frozen_holder_keeps_its_lock_and_loses_the_lease() {
    let machine = Machine::new(true);
    let (frozen, b, c) = (machine.node("a"), machine.node("b"), machine.node("c"));
    let old = won(&frozen).await;
    machine.pass(15);
    let fence = won(&b).await;
    // The lock becomes free, but the new holder never had it and is alive.
    drop(frozen);
    assert!(matches!(c.campaign(None).await.unwrap(), Campaign::Held { .. }));
    assert!(b.renew(&fence).await.unwrap());
    assert!(fence.term > old.term);
    drop(b);
    won(&c).await;
}

/// Two machines, each with its own boot and its own time since then, and one server.
#[tokio::test]
async fn on_a_server_the_lease_of_another_machine_counts_by_the_servers_clock() {
    let server = Arc::new(AtomicU64::new(1_800_000_000));
    let ledger = Arc::new(Ledger { server: Some(Arc::clone(&server)), ..Ledger::default() });
    let machine = |name: &str, up: u64| {
        let clock = LeaseClock {
            boot_id: format!("boot of {name}"),
            since_boot: Arc::new(move || Duration::from_secs(up)),
            wall: Arc::new(|| Time::EPOCH),
        };
        StoreLease::new(ledger.clone(), name.into(), LEASE_TTL_DEFAULT, clock)
    };
    let (a, b) = (machine("a", 10), machine("b", 1_000_000));
    let first = won(&a).await;
    server.fetch_add(10, Ordering::Relaxed);
    assert_eq!(b.leader().await.unwrap().unwrap().node, "a".into());
    assert!(matches!(b.campaign(None).await.unwrap(), Campaign::Held { .. }));
    assert!(a.renew(&first).await.unwrap());
    server.fetch_add(14, Ordering::Relaxed);
    assert!(matches!(b.campaign(None).await.unwrap(), Campaign::Held { .. }));
    server.fetch_add(1, Ordering::Relaxed);
    assert!(won(&b).await.term > first.term);
    assert!(!a.renew(&first).await.unwrap());
}

#[tokio::test]
async fn a_campaign_finds_its_own_success_after_its_answer_got_lost() {
    let machine = Machine::new(true);
    let a = machine.node("a");
    *machine.ledger.lose_answer.lock().unwrap() = true;
    assert!(matches!(a.campaign(None).await, Err(Error::Unavailable(_))));
    assert_eq!(won(&a).await.term, Term(1));
}

#[tokio::test]
async fn a_resigned_lease_is_free_at_once_and_its_term_is_not_used_again() {
    let machine = Machine::new(true);
    let (a, b) = (machine.node("a"), machine.node("b"));
    let first = won(&a).await;
    a.resign(&first).await.unwrap();
    assert_eq!(b.leader().await.unwrap(), None);
    let Campaign::Won(second) = b.campaign(Some(Term(41))).await.unwrap() else {
        panic!("it is free")
    };
    assert_eq!(second.term, Term(42));
}
