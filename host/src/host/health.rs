//! What this host cannot reach, and since when.
//!
//! A server that is away is asked again and again; it is said when it goes, from time to time
//! while it stays away, and when it is back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::time::{Mono, Time};

use super::clock;
use crate::ports::store::Missing;

/// How often it is said that something is still away.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// What a host depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The database.
    Store,
    /// Who leads, and who is there.
    Coordination,
    /// Who is active.
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

/// The parts that are away.
#[derive(Debug, Default)]
pub struct Health {
    away: Mutex<BTreeMap<Part, Away>>,
}

#[derive(Debug)]
struct Away {
    since: Time,
    why: String,
    said: Mono,
}

impl Health {
    /// Notes what came of asking a part.
    pub fn note<T, E: fmt::Display>(&self, part: Part, answer: &Result<T, E>) {
        match answer {
            Ok(_) => self.answered(part),
            Err(error) => self.missed(part, error),
        }
    }

    /// The part has answered.
    pub fn answered(&self, part: Part) {
        if let Some(away) = self.lock().remove(&part) {
            let for_s = clock::wall().since(away.since).as_secs_f64();
            tracing::info!("{part} answers again, after {for_s:.1} s");
        }
    }

    /// The part did not answer.
    pub fn missed(&self, part: Part, error: &dyn fmt::Display) {
        let (wall, now) = (clock::wall(), clock::mono());
        let mut parts = self.lock();
        let Some(away) = parts.get_mut(&part) else {
            tracing::warn!(%error, "{part} does not answer; it is asked again");
            let why = error.to_string();
            parts.insert(part, Away { since: wall, why, said: now });
            return;
        };
        away.why = error.to_string();
        if now.since(away.said) >= SAY_EVERY {
            away.said = now;
            let for_s = wall.since(away.since).as_secs();
            tracing::warn!(%error, "{part} has not answered for {for_s} s");
        }
    }

    /// What is away.
    pub fn missing(&self) -> Vec<Missing> {
        let parts = self.lock();
        let missing = |(part, away): (&Part, &Away)| Missing {
            what: part.to_string(),
            since: away.since,
            why: away.why.clone(),
        };
        parts.iter().map(missing).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, Away>> {
        // Each entry is put in and taken out whole.
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
}
