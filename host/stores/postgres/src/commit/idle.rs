//! Activity keys that guards expect to be idle.

use besom_core::proposal::Guard;
use tokio_postgres::Row;

use super::{Attempt, Step, Stop};
use crate::embedded::{self, idle_keys};
use crate::session::{Pipeline, Session};
use crate::work::Work;
use besom_ports::activity::State;

impl<'a> Attempt<'a> {
    /// The activity keys known to be idle: the caller's observations, for one entry each, or the
    /// current state in the store's own table.
    pub(super) async fn idle(
        &self,
        session: &Session,
        waves: &[Vec<Work<'_>>],
    ) -> Step<Vec<(Option<usize>, String)>> {
        if !self.batch.activity_in_store {
            let seen = self.batch.idle.iter().map(|(at, key)| (Some(*at), key.clone()));
            return Ok(seen.collect());
        }
        let guards = waves.iter().flatten().flat_map(|work| &work.proposal.guards);
        let mut keys: Vec<String> = guards
            .filter_map(|guard| match guard {
                Guard::Idle(key) => Some(key.clone()),
                _ => None,
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let idle = idle_keys(session, self.setting.clock, keys, &self.setting.observation).await?;
        Ok(idle.into_iter().map(|key| (None, key)).collect())
    }

    /// The keys of the store's own table that successful guards depend on.
    pub(super) fn awaited(
        &self,
        waves: &[Vec<Work<'_>>],
        is_idle: &dyn Fn(&Work<'_>, &str) -> bool,
    ) -> Vec<String> {
        if !self.batch.activity_in_store {
            return Vec::new();
        }
        let guards = waves.iter().flatten().flat_map(|work| {
            work.proposal.guards.iter().filter_map(move |guard| match guard {
                Guard::Idle(key) if is_idle(work, key) => Some(key.clone()),
                _ => None,
            })
        });
        let mut keys: Vec<String> = guards.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Makes every heartbeat of these keys wait until the commit ends, and reads their states once
    /// more.
    pub(super) fn hold_idle(
        &self,
        pipeline: &mut Pipeline<'a>,
        keys: &[String],
    ) -> Option<embedded::Asked> {
        (!keys.is_empty()).then(|| embedded::hold(pipeline, self.setting.clock, keys))
    }

    /// Repeats the batch without the items whose keys have become active.
    pub(super) fn still_idle(
        &self,
        asked: &embedded::Asked,
        answers: &[Vec<Row>],
        keys: &[String],
        waves: &[Vec<Work<'_>>],
    ) -> Step<()> {
        let states = asked.read(answers, &self.setting.observation)?;
        let woken: Vec<&String> = keys
            .iter()
            .zip(states)
            .filter(|(_, state)| *state != State::Idle)
            .map(|(key, _)| key)
            .collect();
        if woken.is_empty() {
            return Ok(());
        }
        let wakes = |guard: &Guard| matches!(guard, Guard::Idle(key) if woken.contains(&key));
        let mut care = self.care.clone();
        let works = waves.iter().flatten();
        care.failed.extend(
            works.filter(|work| work.proposal.guards.iter().any(wakes)).map(|work| work.entry),
        );
        Err(Stop::Repeat(care))
    }
}
