//! Decides whether a thing is in use, from the observations of its connections.
//!
//! ```text
//!   connect            last connection closed           idle timeout has passed
//!  ────────> active ───────────────────────────> waiting ────────────────────> idle
//!               ^            connect                │
//!               └───────────────────────────────────┘
//! ```
//!
//! A [`Book`] that has observed for no longer than the idle timeout answers *unknown*, because it
//! may have missed a connection; *unknown* is never treated as *idle*. Where observations are
//! stored is not decided here; the adapters decide that.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Default time between a key's last connection and *idle*.
pub const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

/// Default time that a connection stays open without a heartbeat.
pub const HEARTBEAT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// The state of an activity key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// At least one open connection.
    Active,
    /// No connection; the idle timer is running.
    Waiting,
    /// No connection and no idle timer; the key was observed for longer than the idle timeout.
    Idle,
    /// Not observed for long enough to decide.
    Unknown,
}

/// The timeouts that decide a key's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the end of the last connection until the key is *idle*.
    pub idle: Duration,
    /// From a connection's last heartbeat until it counts as closed.
    pub heartbeat: Duration,
}

impl Timeouts {
    /// The age at which a silent connection or an idle timer can be deleted: by then the connection
    /// has ended, and so has the idle timer that its end started, so the record no longer changes
    /// any answer.
    pub fn forgotten(&self) -> Duration {
        self.heartbeat.saturating_add(self.idle).saturating_mul(2)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { idle: IDLE_TIMEOUT_DEFAULT, heartbeat: HEARTBEAT_TIMEOUT_DEFAULT }
    }
}

/// The observations of one key.
#[derive(Debug, Clone, Default)]
struct Use {
    /// The last heartbeat of each open connection.
    connections: BTreeMap<String, Time>,
    /// When the last connection was closed; set only while none is open.
    closed_at: Option<Time>,
}

impl Use {
    /// Closes expired connections, each as of the instant at which it expired.
    fn expire(&mut self, now: Time, heartbeat: Duration) {
        let end = |seen: Time| seen + heartbeat;
        let last = self.connections.values().map(|&seen| end(seen)).max();
        self.connections.retain(|_, &mut seen| end(seen) > now);
        if self.connections.is_empty() {
            self.closed_at = self.closed_at.max(last);
        }
    }
}

/// The observations of all keys since `observed_since`.
#[derive(Debug, Clone)]
pub struct Book {
    timeouts: Timeouts,
    observed_since: Time,
    keys: BTreeMap<String, Use>,
}

impl Book {
    /// A book without observations from before `now`.
    pub fn new(timeouts: Timeouts, now: Time) -> Book {
        Book { timeouts, observed_since: now, keys: BTreeMap::new() }
    }

    /// Discards everything, as a server does when it is flushed or restarted.
    pub fn flush(&mut self, now: Time) {
        *self = Book::new(self.timeouts, now);
    }

    /// Records that a connection was opened or sent a heartbeat; stops the idle timer.
    pub fn connect(&mut self, key: &str, connection: &str, now: Time) {
        let used = self.keys.entry(key.to_owned()).or_default();
        used.expire(now, self.timeouts.heartbeat);
        used.connections.insert(connection.to_owned(), now);
        used.closed_at = None;
    }

    /// Records that a connection was closed; closing the last one starts the idle timer. An unknown
    /// connection changes nothing.
    pub fn disconnect(&mut self, key: &str, connection: &str, now: Time) {
        let Some(used) = self.keys.get_mut(key) else { return };
        used.expire(now, self.timeouts.heartbeat);
        if used.connections.remove(connection).is_some() && used.connections.is_empty() {
            used.closed_at = Some(now);
        }
    }

    /// Removes up to `limit` keys that are idle and would also be without what is recorded of them.
    /// Returns their number.
    pub fn forget_idle(&mut self, now: Time, limit: u32) -> u64 {
        if now <= self.observed_since + self.timeouts.idle {
            return 0;
        }
        let idle = self.keys.keys().filter(|key| self.state(key, now) == State::Idle);
        let idle: Vec<String> = idle.take(limit as usize).cloned().collect();
        for key in &idle {
            self.keys.remove(key);
        }
        idle.len() as u64
    }

    /// The state of a key at `now`.
    pub fn state(&self, key: &str, now: Time) -> State {
        if let Some(used) = self.keys.get(key) {
            let mut used = used.clone();
            used.expire(now, self.timeouts.heartbeat);
            if !used.connections.is_empty() {
                return State::Active;
            }
            if used.closed_at.is_some_and(|closed| now < closed + self.timeouts.idle) {
                return State::Waiting;
            }
        }
        if now > self.observed_since + self.timeouts.idle { State::Idle } else { State::Unknown }
    }
}

/// Since when a ledger's heartbeats have been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// When the ledger was opened: silence before this does not count against a connection, because
    /// its heartbeats could not be received.
    pub opened_at: Time,
    /// Since when every heartbeat has been recorded; none: no process records heartbeats now.
    pub since: Option<Time>,
}

/// The state of one key, from the rows of a ledger that outlives its readers: when each open
/// connection was last heard from, and when the last one closed. A key is idle only if every
/// heartbeat was recorded during the whole idle timeout; a connection that came while no process
/// was listening is in no row.
pub fn state_of(
    seen: &[Time],
    closed: Option<Time>,
    listening: Listening,
    now: Time,
    timeouts: Timeouts,
) -> State {
    let end = |seen: &Time| (*seen).max(listening.opened_at) + timeouts.heartbeat;
    if seen.iter().any(|seen| end(seen) > now) {
        return State::Active;
    }
    match seen.iter().map(end).chain(closed).max() {
        Some(closed) if now < closed + timeouts.idle => State::Waiting,
        _ if listening.since.is_some_and(|since| now > since + timeouts.idle) => State::Idle,
        _ => State::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_speaks_for_what_it_holds_and_listening_for_the_rest() {
        let timeouts =
            Timeouts { idle: Duration::from_secs(300), heartbeat: Duration::from_secs(60) };
        let s = Time::from_secs;
        let reading = Listening { opened_at: s(1_000), since: None };
        let listening = Listening { opened_at: s(1_000), since: Some(s(1_000)) };
        for (seen, closed, who, now, expected) in [
            (vec![], None, reading, s(9_000), State::Unknown),
            (vec![], None, listening, s(1_300), State::Unknown),
            (vec![], None, listening, s(1_301), State::Idle),
            (vec![s(2_000)], None, listening, s(2_059), State::Active),
            (vec![s(2_000)], None, listening, s(2_060), State::Waiting),
            (vec![s(2_000)], None, listening, s(2_360), State::Idle),
            (vec![s(2_000), s(2_100)], None, listening, s(2_110), State::Active),
            // Heard of before the start: it may be alive and just not have been listened to.
            (vec![s(10)], None, reading, s(1_059), State::Active),
            (vec![s(10)], None, reading, s(1_359), State::Waiting),
            (vec![s(10)], None, listening, s(1_360), State::Idle),
            (vec![], Some(s(2_000)), reading, s(2_299), State::Waiting),
            (vec![], Some(s(2_000)), listening, s(2_300), State::Idle),
            // A connection that came while nobody listened is in no row.
            (vec![], Some(s(10)), listening, s(1_001), State::Unknown),
            (vec![], Some(s(10)), listening, s(1_300), State::Unknown),
            (vec![], Some(s(10)), listening, s(1_301), State::Idle),
            (vec![], Some(s(2_000)), reading, s(2_300), State::Unknown),
            (vec![s(10)], None, reading, s(1_360), State::Unknown),
        ] {
            assert_eq!(state_of(&seen, closed, who, now, timeouts), expected, "{seen:?} {now}");
        }
    }

    const START: Time = Time::from_secs(1_000);

    fn at(seconds: u64) -> Time {
        START + Duration::from_secs(seconds)
    }

    fn book() -> Book {
        let timeouts =
            Timeouts { idle: Duration::from_secs(300), heartbeat: Duration::from_secs(90) };
        Book::new(timeouts, START)
    }

    #[test]
    fn what_nobody_has_observed_for_long_enough_is_unknown_and_not_idle() {
        let book = book();
        for (seconds, expected) in
            [(0, State::Unknown), (300, State::Unknown), (301, State::Idle), (9_000, State::Idle)]
        {
            assert_eq!(book.state("ws-1", at(seconds)), expected, "after {seconds} s");
        }
    }

    #[test]
    fn the_last_connection_to_close_starts_the_timer() {
        let mut book = book();
        book.connect("ws-1", "a", at(400));
        book.connect("ws-1", "b", at(400));
        book.disconnect("ws-1", "a", at(410));
        assert_eq!(book.state("ws-1", at(410)), State::Active);
        book.disconnect("ws-1", "b", at(420));
        assert_eq!(book.state("ws-1", at(719)), State::Waiting);
        assert_eq!(book.state("ws-1", at(720)), State::Idle);
    }

    #[test]
    fn a_second_close_of_one_connection_does_not_prolong_the_timer() {
        let mut book = book();
        book.connect("ws-1", "a", at(400));
        book.disconnect("ws-1", "a", at(400));
        book.disconnect("ws-1", "a", at(650));
        assert_eq!(book.state("ws-1", at(700)), State::Idle);
    }

    #[test]
    fn a_connection_without_a_heartbeat_ends_when_it_expires_and_not_when_it_is_noticed() {
        let mut book = book();
        book.connect("ws-1", "a", at(400));
        assert_eq!(book.state("ws-1", at(489)), State::Active);
        assert_eq!(book.state("ws-1", at(490)), State::Waiting);
        assert_eq!(book.state("ws-1", at(790)), State::Idle);
    }

    #[test]
    fn a_flush_makes_everything_unknown_again() {
        let mut book = book();
        book.connect("ws-1", "a", at(400));
        book.flush(at(410));
        assert_eq!(book.state("ws-1", at(420)), State::Unknown);
        assert_eq!(book.state("ws-2", at(710)), State::Unknown);
        assert_eq!(book.state("ws-2", at(711)), State::Idle);
    }
}
