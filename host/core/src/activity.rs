//! Decides whether a thing is in use, from the observations of its connections.
//!
//! ```text
//!   connect            last connection closed           idle timeout has passed
//!  ────────> active ───────────────────────────> waiting ────────────────────> idle
//!               ^            connect                │
//!               └───────────────────────────────────┘
//! ```
//!
//! Whoever has observed for no longer than the idle timeout answers *unknown*, because a connection
//! may have been missed; *unknown* is never treated as *idle*. Where observations are stored is not
//! decided here; the adapters decide that.

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
}
