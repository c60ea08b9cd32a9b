//! What a store of activity in memory knows, and what it answers from that.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::time::Time;

use besom_ports::activity::{State, Timeouts};

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

#[cfg(test)]
mod tests {
    use super::*;

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
