//! Evaluates guards inside the commit's transaction.

use besom_core::activity::state_of;
use besom_core::proposal::{Change, Filter, Guard};
use besom_core::time::Time;
use besom_core::value::Value;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Row, params_from_iter};

use super::effects::{Effects, Stop};
use super::error::Job;
use super::hint;
use super::statements::Statements;
use besom_ports::activity::State;
pub(super) use besom_record::activity::Observation;

/// How a guard on activity is evaluated.
pub(super) enum Activity<'a> {
    /// From this store's own table.
    Table(&'a Observation),
    /// From the keys that the caller has observed to be idle.
    Keys(Vec<&'a str>),
}

impl<'a> Effects<'a> {
    /// Whether the guard holds. The image of a row that one of `changes` replaces is kept.
    pub(super) fn holds(
        &mut self,
        guard: &'a Guard,
        changes: &[Change],
        activity: &Activity<'_>,
        now: Time,
    ) -> Result<bool, Stop> {
        let holds = self.try_to_hold(guard, changes, activity, now);
        self.judged(holds)
    }

    fn try_to_hold(
        &mut self,
        guard: &'a Guard,
        changes: &[Change],
        activity: &Activity<'_>,
        now: Time,
    ) -> Result<bool, Stop> {
        match guard {
            Guard::Columns { collection, key, conditions } => {
                let questions = self.questions;
                let table = self.mapping.table(collection)?;
                let of_change = replaces(changes, collection, key);
                let mut kept =
                    self.images.as_mut().filter(|kept| of_change && !kept.has(collection, key));
                let columns = if kept.is_some() { table.whole(self.conn)? } else { "1" };
                let mut sql = format!("SELECT {columns} FROM {} WHERE ", table.name);
                let mut params = Vec::new();
                table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
                table.push_terms(conditions, &mut sql, &mut params)?;
                let mut statement = self.conn.prepare_cached(&sql)?;
                questions.of_row(|| {
                    let mut rows = statement.query(params_from_iter(params.iter()))?;
                    let Some(row) = rows.next()? else { return Ok(false) };
                    if let Some(kept) = &mut kept {
                        kept.keep((collection, key), row)?;
                    }
                    Ok(true)
                })
            }
            Guard::Exists(filter) => self.matches(filter, 1),
            Guard::Absent(filter) => Ok(self.is_anchored(filter)? && !self.matches(filter, 1)?),
            Guard::AtLeast(filter, rows) => self.matches(filter, *rows),
            Guard::AtMost(filter, rows) => {
                Ok(self.is_anchored(filter)? && !self.matches(filter, rows.saturating_add(1))?)
            }
            Guard::Missing { collection, key } => {
                let questions = self.questions;
                let table = self.mapping.table(collection)?;
                let mut sql = format!("SELECT 1 FROM {} WHERE ", table.name);
                let mut params = Vec::new();
                table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
                let found = || Ok(self.conn.exists(&sql, params_from_iter(params.iter()))?);
                questions.of_row(found).map(|found| !found)
            }
            Guard::Complete(set) => self.complete(set),
            Guard::Idle(key) => Ok(match activity {
                Activity::Table(observation) => {
                    activity_of(self.conn, key, observation, now)? == State::Idle
                }
                Activity::Keys(idle) => idle.contains(&key.as_str()),
            }),
        }
    }

    /// Whether there is an anchor for the absence of rows that match. The single writer needs none,
    /// but a task that is correct on one store has to be correct on every other.
    fn is_anchored(&self, filter: &Filter) -> Result<bool, Stop> {
        let collection = &self.mapping.table(&filter.collection)?.collection;
        for (anchor, key) in collection.anchors_of(filter)? {
            let table = self.mapping.table(&anchor.collection)?;
            let mut sql = format!("SELECT 1 FROM {} WHERE ", table.name);
            let mut params = Vec::new();
            table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
            if self.conn.exists(&sql, params_from_iter(params.iter()))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether at least so many rows match.
    fn matches(&self, filter: &Filter, rows: u32) -> Result<bool, Stop> {
        let Some(before) = rows.checked_sub(1) else { return Ok(true) };
        let table = self.mapping.table(&filter.collection)?;
        let hint = hint::of_question(self.conn, table, true, &filter.conditions)?;
        let mut sql = format!("SELECT 1 FROM {}{hint} WHERE ", table.name);
        let mut params = Vec::new();
        table.push_tenant(self.tenant, &mut sql, &mut params)?;
        table.push_terms(&filter.conditions, &mut sql, &mut params)?;
        if before > 0 {
            sql.push_str(" LIMIT 1 OFFSET ?");
            params.push(ToSqlOutput::from(before));
        }
        Ok(self.questions.ask(|| self.conn.exists(&sql, params_from_iter(params.iter())))?)
    }
}

/// Whether one of the changes replaces that row.
fn replaces(changes: &[Change], of: &str, row: &[Value]) -> bool {
    changes.iter().any(|change| match change {
        Change::Update { collection, key, .. } | Change::Increment { collection, key, .. } => {
            collection == of && key == row
        }
        Change::Insert { .. }
        | Change::Upsert { .. }
        | Change::Delete { .. }
        | Change::DeleteReadSet(_)
        | Change::DeleteRange(_)
        | Change::UpdateRange { .. }
        | Change::MoveRange { .. }
        | Change::Restore(_)
        | Change::Emit { .. } => false,
    })
}

/// The state of an activity key in the embedded table.
pub(super) fn activity_of(
    conn: &Connection,
    key: &str,
    observation: &Observation,
    now: Time,
) -> Job<State> {
    let at = |r: &Row<'_>| r.get(0).map(Time);
    let connections = conn.all("SELECT seen_at FROM besom_activity WHERE key = ?1", [key], at)?;
    let closed_at = conn.first("SELECT closed_at FROM besom_idle WHERE key = ?1", [key], at)?;
    Ok(state_of(&connections, closed_at, observation.listening, now, observation.timeouts))
}
