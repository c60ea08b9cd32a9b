//! Items as rows: shared by the queue and the dead letters.

use std::borrow::Cow;

use besom_core::ids::{Partition, RunId, Seq, TaskName, Tenant};
use besom_core::item::{Identity, Item, Source};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::error::{Job, invalid};
use super::text::{due_number, due_of, escaped, plain, tenant_of, tenant_text};

/// The columns that [`read`] expects, in this order.
pub(super) const COLUMNS: &str = "tenant, key, due, part, route, version, payload, run, planned_at,
    attempts, guard_retries, deaths, errors";

/// Where an item waits, as stored in `item.place` and `item.no`. No item is stored at place 3.
pub(super) fn place(source: Source) -> (i16, i64) {
    match source {
        Source::Log(seq) => (0, seq.0 as i64),
        Source::Timer(id) => (1, id as i64),
        Source::Retry(id) => (2, id as i64),
        Source::Unqueued(term) => (3, term.0 as i64),
    }
}

/// See [`place`].
pub(super) fn source(place: i16, no: i64) -> Job<Source> {
    match place {
        0 => Ok(Source::Log(Seq(no as u64))),
        1 => Ok(Source::Timer(no as u64)),
        2 => Ok(Source::Retry(no as u64)),
        other => Err(invalid(format!("an item waits in an unknown place, {other}"))),
    }
}

/// `w`: the items of the rows `u`, looked up by their identities, that are still at their places. The
/// last part of a statement or subquery.
macro_rules! waiting {
    () => {
        "CROSS JOIN LATERAL (SELECT i.ctid AS at, i.run, i.part, i.place, i.no FROM @.item i
      WHERE i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due LIMIT 1) w
    WHERE w.run = u.run AND w.part = u.part AND w.place = u.place AND w.no = u.no"
    };
}
pub(super) use waiting;

/// Reads the item in a row, from column `at` on.
pub(super) fn read(task: &TaskName, row: &Row, at: usize) -> Job<Item> {
    let key = plain(row.try_get(at + 1)?);
    let route: Option<String> = row.try_get(at + 4)?;
    let errors: Option<Vec<String>> = row.try_get(at + 12)?;
    Ok(Item {
        route: route.map_or_else(|| key.clone(), plain),
        identity: Identity {
            task: task.clone(),
            tenant: tenant_of(row.try_get(at)?),
            key,
            due: due_of(row.try_get(at + 2)?),
        },
        partition: Partition(row.try_get::<_, i32>(at + 3)? as u32),
        version: plain(row.try_get(at + 5)?),
        payload: row.try_get(at + 6)?,
        run: RunId(row.try_get::<_, i64>(at + 7)? as u64),
        planned_at: Time(row.try_get(at + 8)?),
        attempts: row.try_get::<_, i32>(at + 9)? as u32,
        guard_retries: row.try_get::<_, i32>(at + 10)? as u32,
        deaths: row.try_get::<_, i32>(at + 11)? as u32,
        errors: errors.unwrap_or_default().into_iter().map(plain).collect(),
    })
}

/// The route as stored: NULL if it equals the key.
pub(super) fn route(route: &str, key: &str) -> Option<String> {
    (route != key).then(|| escaped(route).into_owned())
}

/// Identities in columns, for `unnest`.
#[derive(Default)]
pub(super) struct Identities<'a> {
    pub(super) tasks: Vec<i32>,
    pub(super) tenants: Vec<Cow<'a, str>>,
    pub(super) keys: Vec<Cow<'a, str>>,
    pub(super) dues: Vec<i64>,
}

impl<'a> Identities<'a> {
    /// Adds one; its task by number.
    pub(super) fn push(&mut self, task: i32, identity: &'a Identity) {
        self.add(task, identity.tenant.as_ref(), &identity.key, identity.due);
    }

    /// Adds one in parts.
    pub(super) fn add(
        &mut self,
        task: i32,
        tenant: Option<&'a Tenant>,
        key: &'a str,
        due: Option<Time>,
    ) {
        self.tasks.push(task);
        self.tenants.push(tenant_text(tenant));
        self.keys.push(escaped(key));
        self.dues.push(due_number(due));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}
