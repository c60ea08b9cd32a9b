//! Built-in task `ttl-transitions`: moves idle workspaces to standby, and those unused for long
//! to the archive. It writes only `desired_state`.
//!
//! This file scans, reads and proposes; [`decide`] contains the two rules.
//!
//! Workspaces in use (connected, or with a running idle timer) are not planned. A workspace whose
//! activity is *unknown* is planned and skipped with that reason, so that an outage of activity is
//! visible in the history.

pub mod decide;

use std::collections::{BTreeMap, BTreeSet};

use besom_sdk::prelude::*;
use besom_sdk::{Page, activity::State};
use decide::{Decision, NONE, PENDING, RUNNING, STANDBY, Use, Workspace};

/// The columns that the decision depends on.
const DECIDING: [&str; 6] = [
    "status",
    "operation",
    "desired_state",
    "standby_ttl_seconds",
    "archive_ttl_seconds",
    "last_access_at",
];

/// Columns that show a concurrent write: a user who writes RUNNING over RUNNING changes only
/// these. A table may have either, both or none.
const TOUCHED: [&str; 2] = ["version", "last_manual_change_at"];

/// The columns guarded with the values that were read, besides those of [`TOUCHED`].
const AS_READ: [&str; 4] = ["status", "operation", "desired_state", "last_access_at"];

/// The task, with the setting `archive_ttl_min`.
#[derive(Debug)]
pub struct TtlTransitions;

fn workspace(row: &Row) -> Result<Workspace> {
    Ok(Workspace {
        status: row.get("status")?,
        operation: row.get("operation")?,
        desired_state: row.get("desired_state")?,
        standby_ttl_s: row.get("standby_ttl_seconds")?,
        archive_ttl_s: row.get("archive_ttl_seconds")?,
        last_access_us: row.get::<Option<Time>>("last_access_at")?.map(Time::micros),
    })
}

fn used(state: State) -> Use {
    match state {
        State::Active => Use::Active,
        State::Waiting => Use::Waiting,
        State::Idle => Use::Idle,
        State::Unknown => Use::Unknown,
    }
}

/// The columns of [`TOUCHED`] that are mapped.
fn touched(ctx: &Context) -> impl Iterator<Item = &'static str> {
    TOUCHED.into_iter().filter(|column| ctx.has_column("workspaces", column))
}

/// The columns to read, besides the key.
fn columns(ctx: &Context) -> Vec<&'static str> {
    DECIDING.into_iter().chain(touched(ctx)).collect()
}

/// The workspaces in their desired state without a current operation.
fn settled(ctx: &Context, status: &'static str) -> Range {
    Range::of("workspaces")
        .index("by_status_operation")
        .prefix(status)
        .prefix(NONE)
        .equal("desired_state", status)
        .columns(["workspace_id"])
        .columns(columns(ctx))
}

/// The two ranges of a scan, in their order: running workspaces, then standby ones.
fn parts(ctx: &Context) -> Result<[Range; 2]> {
    Ok([settled(ctx, RUNNING), TtlTransitions::candidates(ctx)?])
}

impl Task for TtlTransitions {
    fn describe() -> Manifest {
        Manifest::new("ttl-transitions", env!("CARGO_PKG_VERSION"))
            .doc("Moves idle workspaces to standby, and those unused for long to the archive.")
            .setting(Setting::duration("archive_ttl_min", "0s").doc(
                "The shortest archive_ttl_seconds that a workspace may have: workspaces used \
                 more recently are not read.",
            ))
            .collection(
                Access::to("workspaces")
                    .read()
                    .update()
                    .columns(["workspace_id"])
                    .columns(DECIDING)
                    .optional(TOUCHED),
            )
            .activity()
    }

    /// The workspaces that may be archived; [`parts`] adds the running ones.
    fn candidates(ctx: &Context) -> Result<Range> {
        let latest = ctx.now.minus_ms(ctx.duration_ms("archive_ttl_min")?);
        Ok(settled(ctx, STANDBY).upper(latest))
    }

    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        let seen: Vec<String> = ["status", "last_access_at"]
            .into_iter()
            .chain(touched(ctx))
            .map(|column| row.value(column).map(|value| shown(&value)))
            .collect::<Result<_>>()?;
        Ok(Some(Candidate::of(&[row.value("workspace_id")?])?.version(seen.join("|"))))
    }

    /// The tenants of either range. They must be in the order of the database, which is unknown
    /// here, so the tenants of the whole collection provide it.
    fn tenants(ctx: &Context, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        let [running, standby] = parts(ctx)?;
        let running = store::tenants(&running, after, limit)?;
        let standby = store::tenants(&standby, after, limit)?;
        if running.is_empty() || running == standby {
            return Ok(standby);
        }
        if standby.is_empty() {
            return Ok(running);
        }
        let mut wanted: BTreeSet<String> = running.into_iter().chain(standby).collect();
        let all = Range::of("workspaces").columns(["workspace_id"]);
        let mut tenants = Vec::new();
        let mut at = after.map(str::to_owned);
        while !wanted.is_empty() && tenants.len() < limit as usize {
            let page = store::tenants(&all, at.as_deref(), limit)?;
            let Some(last) = page.last() else { break };
            at = Some(last.clone());
            tenants.extend(page.into_iter().filter(|tenant| wanted.remove(tenant)));
        }
        tenants.truncate(limit as usize);
        Ok(tenants)
    }

    /// Scans first running, then standby workspaces. The first byte of the cursor is the range.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let (part, after) = match cursor.as_deref() {
            None => (0, None),
            Some([part, after @ ..]) => (*part, (!after.is_empty()).then(|| after.to_vec())),
            Some([]) => return Err(Error::permanent("malformed-cursor", "the cursor is empty")),
        };
        let parts = parts(ctx)?;
        let Some(range) = parts.get(usize::from(part)) else {
            return Err(Error::permanent(
                "malformed-cursor",
                format!("the scan has no part {part}"),
            ));
        };
        let mut range = range.clone().limit(limit);
        range.after = after;
        let page = store::page(None, &range)?;
        let next = match page.next {
            Some(after) => Some([&[part], &after[..]].concat()),
            None if part == 0 => Some(vec![1]),
            None => None,
        };
        let scanned = page.rows.len() as u64;
        let candidates = worth_planning(ctx, &page.rows)?;
        Ok(Page { candidates, next, scanned, extra: Vec::new() })
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let touched: Vec<&str> = touched(ctx).collect();
        let rows = store::get_each(items, "workspaces", &columns(ctx), Item::key_values)?;
        let uses = uses_of_running(items, &rows)?;
        let verdicts = each(items, rows, |item, row| {
            let Some(row) = row else { return Ok(Verdict::skip("the workspace is gone")) };
            let used = uses.get(&item.index).cloned().unwrap_or(Ok(Use::Unknown))?;
            Ok(match decide::decide(&workspace(&row)?, used, ctx.now.micros()) {
                Decision::Leave(leave) => Verdict::skip(leave.reason()),
                Decision::StandBy => {
                    let idle = Guard::Idle(activity_key(item)?);
                    send(item, &row, &touched, STANDBY)?.guard(idle).into()
                }
                Decision::Archive => send(item, &row, &touched, PENDING)?.into(),
            })
        })?;
        log::batch(items, &verdicts, "workspaces", "to change state", "");
        Ok(verdicts)
    }
}

/// The candidates among the rows: all but those that `act` would skip for a known reason.
fn worth_planning(ctx: &Context, rows: &[Row]) -> Result<Vec<Candidate>> {
    let mut running = Vec::new();
    for row in rows {
        if row.get::<String>("status")? == RUNNING {
            running.push(key::plain(&row.value("workspace_id")?)?);
        }
    }
    let mut uses = activity::states(None, &running)?.into_iter().map(used);
    let mut candidates = Vec::new();
    for row in rows {
        let workspace = workspace(row)?;
        let used = if workspace.status == RUNNING { uses.next() } else { None };
        let used = used.unwrap_or(Use::Unknown);
        let decision = decide::decide(&workspace, used, ctx.now.micros());
        if !matches!(decision, Decision::Leave(_))
            || decision == Decision::Leave(decide::Leave::Unknown)
        {
            candidates.extend(TtlTransitions::candidate(ctx, row)?);
        }
    }
    Ok(candidates)
}

/// The activity of the items whose workspace is running, by item index. Standby workspaces are
/// archived even while activity is unknown.
fn uses_of_running(
    items: &[Item],
    rows: &[Result<Option<Row>>],
) -> Result<BTreeMap<u32, Result<Use>>> {
    let runs = |row: &Result<Option<Row>>| {
        let row = row.as_ref().ok().and_then(Option::as_ref);
        row.is_some_and(|row| row.get::<String>("status").is_ok_and(|status| status == RUNNING))
    };
    let running: Vec<Item> =
        items.iter().zip(rows).filter(|(_, row)| runs(row)).map(|(item, _)| item.clone()).collect();
    let states = activity::states_each(&running, activity_key)?;
    Ok(running.iter().map(|item| item.index).zip(states.into_iter().map(|s| s.map(used))).collect())
}

/// The workspace's activity key, as the product reports it to the activity endpoint.
fn activity_key(item: &Item) -> Result<String> {
    item.key_values()?.iter().map(key::plain).collect::<Result<Vec<_>>>().map(|key| key.join("/"))
}

/// Sets the desired state of the workspace if it has not changed since it was read.
fn send(item: &Item, row: &Row, touched: &[&str], target: &str) -> Result<Proposal> {
    let key = item.key_values()?;
    let mut as_read = Guard::row("workspaces", key.clone());
    for column in AS_READ.iter().chain(touched) {
        as_read = as_read.equal(column, row.value(column)?);
    }
    Ok(Proposal::new()
        .guard(as_read)
        .update("workspaces", key, [("desired_state", target.into())])
        .or_skip("the workspace was used or changed since it was read")
        .note("from", row.value("status")?)
        .note("to", target))
}

/// A value as part of an item's version.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Text(text) => text.clone(),
        Value::Integer(number) | Value::Timestamp(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

besom_sdk::export!(TtlTransitions);

#[cfg(test)]
mod tests;
