//! The services that this host cannot reach and the tasks that it holds, and since when.
//!
//! A service that does not answer is retried. It is logged when it fails, periodically while it
//! stays unavailable, and when it answers again. A service that alternates between success and
//! failure (read-only, disk full) counts as unavailable until it has answered steadily for a while,
//! so that it is logged once and not at every change. The same applies to tasks that are held.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::ids::{TaskName, Term};
use besom_core::time::{Mono, Time};
use besom_snapshot::{Cause, Held};

use tokio::sync::Notify;

use super::clock;
use besom_ports::store::Missing;

/// How often a continuing failure is logged.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// A service that fails again within this time after an answer counts as flapping.
const FLAP_MAX: Duration = Duration::from_secs(10);
/// A flapping service counts as available once it has answered for this long.
const STEADY: Duration = Duration::from_secs(5);
/// Whatever is held is retried every few seconds. A hold that has not been renewed for this long no
/// longer applies: its partitions belong to another node.
const RENEWED_MAX: Duration = Duration::from_secs(60);

/// What is held of a task that a host has left out.
fn left_out(cause: Cause) -> &'static str {
    match cause {
        Cause::Plugin => "plugin",
        _ => "mapping",
    }
}

/// A service that the host depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The database.
    Store,
    /// Leader election and membership.
    Coordination,
    /// The activity service.
    Activity,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Store => "the store",
            Part::Coordination => "the coordination",
            Part::Activity => "the activity",
        })
    }
}

/// The unavailable services and the current holds.
#[derive(Debug, Default)]
pub struct Health {
    away: Mutex<BTreeMap<Part, Away>>,
    held: Mutex<BTreeMap<(Option<TaskName>, String), Holding>>,
    /// The tasks that this host has left out: since when, and why.
    refused: Mutex<BTreeMap<TaskName, (Time, Cause, String)>>,
    /// When the store answered last.
    store_answered: AtomicU64,
    /// Whether the store is lost. The host ends and says why; until then nothing is retried, and no
    /// service is said to be unavailable or to answer again.
    store_lost: AtomicBool,
    store_lost_now: Notify,
    /// The messages that were given up.
    given_up: AtomicU64,
    /// The term of the last leader that this node was told to wait for.
    awaited: AtomicU64,
    /// Whether it was logged that this node has stepped aside.
    aside: AtomicBool,
    clocks: Clocks,
}

/// Reads the wall clock and the monotonic clock.
struct Clocks(Box<dyn Fn() -> (Time, Mono) + Send + Sync>);

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks(Box::new(|| (clock::wall(), clock::mono())))
    }
}

impl fmt::Debug for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clocks").finish_non_exhaustive()
    }
}

/// A current or recent hold.
#[derive(Debug)]
struct Holding {
    cause: Cause,
    why: String,
    since: Time,
    renewed: Mono,
    /// How long it applies without being renewed.
    lasts: Duration,
    said: Mono,
    /// Whether the log says that it is held.
    told: bool,
    /// Since when the work continues; `None`: it is held.
    free: Option<Mono>,
}

#[derive(Debug)]
struct Away {
    since: Time,
    why: String,
    said: Mono,
    /// Since when it has answered without a failure.
    back: Option<Mono>,
    /// Whether it alternates between success and failure.
    flaps: bool,
}

impl Away {
    fn is_away(&self) -> bool {
        self.back.is_none() || self.flaps
    }
}

impl Health {
    /// Uses the given clocks in place of the machine's.
    pub fn by(clocks: impl Fn() -> (Time, Mono) + Send + Sync + 'static) -> Health {
        Health { clocks: Clocks(Box::new(clocks)), ..Health::default() }
    }

    fn now(&self) -> (Time, Mono) {
        (self.clocks.0)()
    }

    /// Records the result of a call to a service.
    pub fn note<T, E: fmt::Display>(&self, part: Part, answer: &Result<T, E>) {
        match answer {
            Ok(_) => self.answered(part),
            Err(error) => self.missed(part, error),
        }
    }

    /// Records that the service has answered.
    pub fn answered(&self, part: Part) {
        let (wall, mono) = self.now();
        self.answered_at(part, wall, mono);
    }

    /// Whether the store has answered any call since then.
    pub fn store_answered_since(&self, since: Mono) -> bool {
        Mono(self.store_answered.load(Ordering::Relaxed)) >= since
    }

    /// Records that the store is lost for good.
    pub fn lose_store(&self) {
        if !self.store_lost.swap(true, Ordering::Relaxed) {
            self.store_lost_now.notify_one();
        }
    }

    /// Waits until the store is lost; one caller is told, once.
    pub async fn store_lost(&self) {
        self.store_lost_now.notified().await;
    }

    /// Whether this node has not been waiting for the leader of this term yet.
    pub fn awaits(&self, term: Term) -> bool {
        self.awaited.swap(term.0, Ordering::Relaxed) != term.0
    }

    /// Counts a message that is given up.
    pub fn gives_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// How many messages were given up since the start.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether it is new that this node has stepped aside, or has not.
    pub fn is_news(&self, aside: bool) -> bool {
        self.aside.swap(aside, Ordering::Relaxed) != aside
    }

    fn is_silent(&self) -> bool {
        self.store_lost.load(Ordering::Relaxed)
    }

    fn answered_at(&self, part: Part, wall: Time, now: Mono) {
        if self.is_silent() {
            return;
        }
        if part == Part::Store {
            self.store_answered.fetch_max(now.0, Ordering::Relaxed);
        }
        let mut parts = self.lock();
        let Some(away) = parts.get_mut(&part) else { return };
        let back = *away.back.get_or_insert(now);
        if away.flaps && now.since(back) >= STEADY {
            away.flaps = false;
        } else if away.flaps || back != now {
            if !away.flaps && now.since(back) > FLAP_MAX {
                parts.remove(&part);
            }
            return;
        }
        let for_s = wall.since(away.since).as_secs_f64();
        tracing::info!("{part} answers again, after {for_s:.1} s");
    }

    /// Records that the service did not answer.
    pub fn missed(&self, part: Part, error: &dyn fmt::Display) {
        let (wall, mono) = self.now();
        self.missed_at(part, error, wall, mono);
    }

    fn missed_at(&self, part: Part, error: &dyn fmt::Display, wall: Time, now: Mono) {
        if self.is_silent() {
            return;
        }
        let mut parts = self.lock();
        if parts.get(&part).is_some_and(|away| {
            !away.flaps && away.back.is_some_and(|back| now.since(back) > FLAP_MAX)
        }) {
            parts.remove(&part);
        }
        let Some(away) = parts.get_mut(&part) else {
            tracing::warn!(%error, "{part} is not answering; retrying");
            let why = error.to_string();
            let away = Away { since: wall, why, said: now, back: None, flaps: false };
            parts.insert(part, away);
            return;
        };
        away.flaps |= away.back.take().is_some();
        away.why = error.to_string();
        if now.since(away.said) >= SAY_EVERY {
            away.said = now;
            let for_s = wall.since(away.since).as_secs();
            tracing::warn!(%error, "{part} has not been answering for {for_s} s");
        }
    }

    /// The unavailable services.
    pub fn missing(&self) -> Vec<Missing> {
        let parts = self.lock();
        let missing = |(part, away): (&Part, &Away)| Missing {
            what: part.to_string(),
            since: away.since,
            why: away.why.clone(),
        };
        parts.iter().filter(|(_, away)| away.is_away()).map(missing).collect()
    }

    /// Holds a part of a task: it is retried later, and no item uses an attempt. `what` names the
    /// part (`scan`, `stream 17`). Called at each failed attempt.
    pub fn hold(&self, task: &TaskName, what: &str, cause: Cause, why: &str) {
        self.hold_at(Some(task), what, (cause, why), RENEWED_MAX, self.now());
    }

    /// Holds a part of a task that is retried after `pause` only.
    pub fn hold_for(&self, task: &TaskName, what: &str, said: (Cause, &str), pause: Duration) {
        let lasts = pause + RENEWED_MAX;
        self.hold_at(Some(task), what, said, lasts, self.now());
    }

    /// Ends a hold.
    pub fn free(&self, task: &TaskName, what: &str) {
        let (wall, mono) = self.now();
        self.free_at(Some(task), what, wall, mono);
    }

    /// Holds the whole node. Has to be repeated at least every [`RENEWED_MAX`].
    pub fn hold_node(&self, what: &str, cause: Cause, why: &str) {
        self.hold_at(None, what, (cause, why), RENEWED_MAX, self.now());
    }

    /// Holds a part of the whole node that is retried after `pause` only.
    pub fn hold_node_for(&self, what: &str, said: (Cause, &str), pause: Duration) {
        self.hold_at(None, what, said, pause + RENEWED_MAX, self.now());
    }

    /// Ends a hold of the whole node.
    pub fn free_node(&self, what: &str) {
        let (wall, mono) = self.now();
        self.free_at(None, what, wall, mono);
    }

    fn hold_at(
        &self,
        task: Option<&TaskName>,
        what: &str,
        (cause, why): (Cause, &str),
        lasts: Duration,
        (wall, now): (Time, Mono),
    ) {
        let who = || task.map_or("this node".to_owned(), ToString::to_string);
        let mut held = self.holdings();
        let key = (task.cloned(), what.to_owned());
        // What has worked for a moment only is still the same hold; later, another one begins.
        let again = |known: &Holding| match known.free {
            Some(free) => now.since(free) < STEADY,
            None => now.since(known.renewed) <= known.lasts,
        };
        if let Some(known) = held.get_mut(&key).filter(|known| again(known)) {
            let other = known.why != why;
            (known.renewed, known.lasts) = (now, lasts);
            known.free = None;
            known.cause = cause;
            why.clone_into(&mut known.why);
            if now.since(known.said) >= SAY_EVERY {
                (known.said, known.told) = (now, true);
                let for_s = wall.since(known.since).as_secs();
                tracing::warn!(%cause, why, "{} has been held for {for_s} s: {what}", who());
            } else if other {
                tracing::debug!(%cause, why, "{} is now held for another reason: {what}", who());
            }
            return;
        }
        match task {
            Some(task) => tracing::warn!(%cause, why, "{task} is held: {what}; retrying"),
            None => tracing::warn!(%cause, why, "this node: {what}"),
        }
        let why = why.to_owned();
        let (since, said, renewed) = (wall, now, now);
        let new = Holding { cause, why, since, renewed, lasts, said, told: true, free: None };
        held.insert(key, new);
    }

    fn free_at(&self, task: Option<&TaskName>, what: &str, wall: Time, now: Mono) {
        let mut held = self.holdings();
        if held.is_empty() {
            return;
        }
        let Some(known) = held.get_mut(&(task.cloned(), what.to_owned())) else { return };
        if known.free.is_some_and(|since| now.since(since) > RENEWED_MAX) {
            held.remove(&(task.cloned(), what.to_owned()));
        } else if known.free.is_none() {
            known.free = Some(now);
            if !std::mem::take(&mut known.told) {
                return;
            }
            let for_s = wall.since(known.since).as_secs_f64();
            let who = task.map_or("this node".to_owned(), ToString::to_string);
            tracing::info!("{who} is no longer held, after {for_s:.1} s: {what}");
        }
    }

    /// Sets the tasks that this host does not run, because their plugin files are refused or their tables differ
    /// from their mappings, and why. They are among the holds until they are set again.
    pub fn refuse(&self, tasks: BTreeMap<TaskName, (Cause, String)>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |task: &TaskName| refused.get(task).map_or_else(|| self.now().0, |of| of.0);
        let with_time = |(task, (cause, why))| {
            let since = since(&task);
            (task, (since, cause, why))
        };
        let new = tasks.into_iter().map(with_time).collect();
        *refused = new;
    }

    /// Whether anything is held, or was held a moment ago.
    pub fn holds_any(&self) -> bool {
        !self.holdings().is_empty()
    }

    /// The current holds.
    pub fn held(&self) -> Vec<Held> {
        self.held_at(self.now().1)
    }

    fn held_at(&self, now: Mono) -> Vec<Held> {
        let is_held = |held: &Holding| held.free.is_none() && now.since(held.renewed) <= held.lasts;
        let holdings = self.holdings();
        let held = holdings.iter().filter(|(_, held)| is_held(held));
        let held = held.map(|((task, what), held)| Held {
            task: task.as_ref().map(ToString::to_string),
            what: what.clone(),
            cause: held.cause,
            since: held.since,
            why: held.why.clone(),
        });
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = refused.iter().map(|(task, (since, cause, why))| Held {
            task: Some(task.to_string()),
            what: left_out(*cause).to_owned(),
            cause: *cause,
            since: *since,
            why: why.clone(),
        });
        held.chain(refused).collect()
    }

    fn holdings(&self) -> MutexGuard<'_, BTreeMap<(Option<TaskName>, String), Holding>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, Away>> {
        // Entries are inserted and removed as a whole, so a poisoned lock is harmless.
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_away_is_known_since_it_first_did_not_answer() {
        let health = Health::default();
        assert_eq!(health.missing(), []);
        health.note(Part::Store, &Err::<(), _>("refused"));
        let first = health.missing();
        assert_eq!((first[0].what.as_str(), first[0].why.as_str()), ("the store", "refused"));
        health.note(Part::Store, &Err::<(), _>("reset"));
        let second = health.missing();
        assert_eq!((second[0].since, second[0].why.as_str()), (first[0].since, "reset"));
        health.note(Part::Coordination, &Ok::<_, String>(()));
        health.note(Part::Store, &Ok::<_, String>(()));
        assert_eq!(health.missing(), []);
    }

    fn secs(s: u64) -> Mono {
        Mono(s * 1_000_000)
    }

    #[test]
    fn a_task_that_is_left_out_is_held_until_it_no_longer_is() {
        let (health, sweep, other) = (Health::default(), TaskName::from("sweep"), "other".into());
        let why = |cause, words: &str| (cause, words.to_owned());
        health.refuse([(sweep.clone(), why(Cause::Plugin, "is not the pinned file"))].into());
        let [first] = health.held().try_into().expect("one task");
        assert_eq!((first.task.as_deref(), first.cause), (Some("sweep"), Cause::Plugin));
        assert_eq!((first.what.as_str(), first.why.as_str()), ("plugin", "is not the pinned file"));
        let both = [(sweep, why(Cause::Mapping, "again")), (other, why(Cause::Plugin, "too"))];
        health.refuse(both.into());
        let held = health.held();
        let again = held.iter().find(|held| held.why == "again").expect("the same task");
        assert_eq!((again.what.as_str(), again.cause), ("mapping", Cause::Mapping));
        assert_eq!((held.len(), again.since), (2, first.since));
        health.refuse(BTreeMap::new());
        assert_eq!(health.held(), []);
    }

    #[test]
    fn what_answers_and_refuses_in_turns_is_away_until_it_has_been_steady() {
        let health = Health::default();
        let (full, wall) = ("the disk is full", Time::EPOCH);
        health.missed_at(Part::Store, &full, wall, secs(0));
        health.answered_at(Part::Store, wall, secs(1));
        assert_eq!(health.missing(), [], "the first time it is believed");
        for second in 2..20 {
            health.missed_at(Part::Store, &full, wall, secs(second));
            health.answered_at(Part::Store, wall, secs(second));
            assert_eq!(health.missing()[0].why, full, "{second}");
            assert_eq!(health.missing()[0].since, wall);
        }
        health.answered_at(Part::Store, wall, secs(23));
        assert_eq!(health.missing().len(), 1);
        health.answered_at(Part::Store, wall, secs(24));
        assert_eq!(health.missing(), []);
    }

    #[test]
    fn what_is_held_is_known_until_it_goes_on_or_is_not_tried_any_more() {
        let (health, task, wall) = (Health::default(), TaskName::from("sweep"), Time::EPOCH);
        let hold = |why: &str, now| {
            health.hold_at(Some(&task), "scan", (Cause::Privilege, why), RENEWED_MAX, (wall, now));
        };
        hold("denied", secs(0));
        hold("denied", secs(5));
        let held = health.held_at(secs(6));
        assert_eq!((held[0].task.as_deref(), held[0].what.as_str()), (Some("sweep"), "scan"));
        assert_eq!((held[0].cause, held[0].since), (Cause::Privilege, wall));
        health.free_at(Some(&task), "scan", wall, secs(7));
        assert_eq!(health.held_at(secs(7)), []);
        hold("denied", secs(8));
        assert_eq!(health.held_at(secs(8)).len(), 1);
        assert_eq!(health.held_at(secs(69)), [], "nobody tries it any more");
        let pause = Duration::from_secs(300);
        health.hold_at(Some(&task), "guards", (Cause::Slow, "late"), pause, (wall, secs(70)));
        assert_eq!(health.held_at(secs(369)).len(), 1, "it is tried again after the pause only");
    }

    fn at(s: i64) -> (Time, Mono) {
        (Time::from_secs(s), secs(s.unsigned_abs()))
    }

    #[test]
    fn a_hold_after_an_earlier_one_has_ended_begins_when_it_begins() {
        let (health, task) = (Health::default(), TaskName::from("sweep"));
        let said = (Cause::Privilege, "denied");
        let hold = |s| health.hold_at(Some(&task), "scan", said, RENEWED_MAX, at(s));
        let free = |s| health.free_at(Some(&task), "scan", at(s).0, at(s).1);
        let since = |s| health.held_at(at(s).1).first().map(|held| held.since);
        hold(0);
        free(15);
        hold(16);
        assert_eq!(since(16), Some(at(0).0), "it has worked for a moment only");
        free(20);
        assert_eq!(since(21), None);
        hold(35);
        assert_eq!(since(40), Some(at(35).0));
    }

    #[test]
    fn the_end_of_a_hold_is_logged_once_for_each_line_that_said_that_it_is_held() {
        let (health, task) = (Health::default(), TaskName::from("sweep"));
        let lines = counted(|| {
            for s in 0..=65 {
                let said = (Cause::Privilege, "denied");
                health.hold_at(Some(&task), "scan", said, RENEWED_MAX, at(s));
                health.free_at(Some(&task), "scan", at(s).0, at(s).1);
            }
        });
        // At its beginning, and after 30 s and 60 s.
        assert_eq!(lines, (3, 3));
    }

    /// How many warnings and how many other lines the work logs.
    fn counted(work: impl FnOnce()) -> (usize, usize) {
        use std::sync::Arc;
        use std::sync::atomic::AtomicUsize;

        use tracing::span;

        #[derive(Default)]
        struct Counts(AtomicUsize, AtomicUsize);
        struct Counting(Arc<Counts>);
        impl tracing::Subscriber for Counting {
            fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
                *metadata.level() <= tracing::Level::INFO
            }
            fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
                span::Id::from_u64(1)
            }
            fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
            fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
            fn event(&self, event: &tracing::Event<'_>) {
                let warns = *event.metadata().level() == tracing::Level::WARN;
                let count = if warns { &self.0.0 } else { &self.0.1 };
                count.fetch_add(1, Ordering::Relaxed);
            }
            fn enter(&self, _: &span::Id) {}
            fn exit(&self, _: &span::Id) {}
        }
        let counts = Arc::<Counts>::default();
        tracing::subscriber::with_default(Counting(Arc::clone(&counts)), work);
        (counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed))
    }
}
