//! Built-in task `reconciler`: brings workspaces to their desired state, one step at a time,
//! through calls to the product's orchestrator. It writes `status`, `operation` and `archive_key`,
//! and never `desired_state`.
//!
//! This file scans, reads and proposes; [`decide`] contains the rules; [`call`] encodes the calls
//! and interprets the answers.

pub mod call;
pub mod decide;

use std::collections::BTreeMap;

use besom_sdk::deliveries::Delivery;
use besom_sdk::prelude::*;
use besom_sdk::{Page, Result};
use decide::{Bounds, Call, Decision, FAILED, NONE, Operation, Sent, Workspace};

const WORKSPACES: &str = "workspaces";

/// The columns that the decision depends on, guarded with the values that were read.
const DECIDING: [&str; 4] = ["status", "operation", "desired_state", "archive_key"];

/// An optional column that shows a concurrent write.
const VERSION: &str = "version";

/// An indexed column, 1 if the workspace needs work. The table generates it.
const UNSETTLED: &str = "unsettled";

/// The time until a workspace that changed before the commit is decided again.
const LOOK_AGAIN_MS: u64 = 500;

/// The task, with [`Bounds`] from its settings.
#[derive(Debug)]
pub struct Reconciler;

fn workspace(row: &Row) -> Result<Workspace> {
    Ok(Workspace {
        status: row.get("status")?,
        operation: row.get("operation")?,
        desired_state: row.get("desired_state")?,
        archive_key: row.get("archive_key")?,
    })
}

fn bounds(ctx: &Context) -> Result<Bounds> {
    let micros = |name: &str| -> Result<i64> {
        Ok(i64::try_from(ctx.duration_ms(name)?).unwrap_or(i64::MAX).saturating_mul(1_000))
    };
    Ok(Bounds {
        ask_every_us: micros("ask_every")?,
        operation_max_us: micros("operation_max")?,
        failures_max: u32::try_from(ctx.setting::<i64>("failures_max")?).unwrap_or(u32::MAX),
        retry_after_us: micros("retry_after")?,
        failed_retry_us: micros("failed_retry")?,
    })
}

/// The columns to read, besides the key.
fn columns(ctx: &Context) -> Vec<&'static str> {
    let version = ctx.has_column(WORKSPACES, VERSION).then_some(VERSION);
    DECIDING.into_iter().chain(version).collect()
}

/// The name of a workspace in messages, which is also their key.
fn name(key: &[Value]) -> Result<String> {
    key.iter().map(key::plain).collect::<Result<Vec<_>>>().map(|parts| parts.join("/"))
}

impl Task for Reconciler {
    fn describe() -> Manifest {
        let access = Access::to(WORKSPACES)
            .read()
            .update()
            .columns(["workspace_id", UNSETTLED])
            .columns(DECIDING)
            .optional([VERSION]);
        let manifest = Manifest::new("reconciler", env!("CARGO_PKG_VERSION"))
            .doc("Brings workspaces to their desired state step by step, through the orchestrator.")
            .setting(
                Setting::duration("ask_every", "10s")
                    .doc("The time between two calls about an operation answered with 202."),
            )
            .setting(
                Setting::duration("operation_max", "1h")
                    .doc("An operation still answered with 202 after this time has failed."),
            )
            .setting(
                Setting::integer("failures_max", 3)
                    .minimum(1i64)
                    .maximum(100i64)
                    .doc("Failed calls before the operation is set to FAILED."),
            )
            .setting(
                Setting::duration("retry_after", "1m")
                    .doc("The time between a failed call and the next call."),
            )
            .setting(
                Setting::duration("failed_retry", "1h").doc(
                    "The time after which a FAILED operation is started again, if still needed.",
                ),
            )
            .collection(access);
        Operation::ALL.into_iter().fold(manifest, |m, operation| m.topic(operation.topic()))
    }

    fn candidates(ctx: &Context) -> Result<Range> {
        Ok(Range::of(WORKSPACES)
            .index("by_unsettled")
            .prefix(1i64)
            .columns(["workspace_id"])
            .columns(columns(ctx)))
    }

    fn candidate(_: &Context, row: &Row) -> Result<Option<Candidate>> {
        let at = workspace(row)?;
        let version = [at.status, at.operation, at.desired_state].join("|");
        Ok(Some(Candidate::of(&[row.value("workspace_id")?])?.version(version)))
    }

    /// Plans only workspaces that need a step now. A workspace that waits for an answer is not
    /// planned, because each such item would add a line to the history.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let bounds = bounds(ctx)?;
        let mut range = Self::candidates(ctx)?.limit(limit);
        range.after = cursor;
        let page = store::page(None, &range)?;
        let (mut seen, mut asked) = (Vec::new(), Vec::new());
        for row in &page.rows {
            let read = workspace(row).and_then(|at| Ok((at, name(&[row.value("workspace_id")?])?)));
            match read {
                Ok((at, name)) => {
                    asked.push(at.call_that_matters().map(|operation| (operation, name)));
                    seen.push((row, at));
                }
                Err(error) => log::warn(format!("skipped a workspace: {}", error.message)),
            }
        }
        let calls = calls(None, &asked)?;
        let mut candidates = Vec::new();
        for ((row, at), delivery) in seen.into_iter().zip(calls) {
            let decision =
                decide::decide(&at, &call::sent(delivery.as_ref()), &bounds, ctx.now.micros());
            if !matches!(decision, Decision::Leave(_)) {
                candidates.extend(Self::candidate(ctx, row)?);
            }
        }
        let scanned = page.rows.len() as u64;
        Ok(Page { candidates, next: page.next, scanned, extra: Vec::new() })
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let bounds = bounds(ctx)?;
        let rows = store::get_each(items, WORKSPACES, &columns(ctx), Item::key_values)?;
        let mut sent = sent_of(items, &rows)?;
        let verdicts = each(items, rows, |item, row| {
            let Some(row) = row else { return Ok(Verdict::skip("the workspace is gone")) };
            let at = workspace(&row)?;
            let sent = sent.remove(&item.index).unwrap_or(Sent::Nothing);
            let step = Step { ctx, item, row: &row, at: &at, name: name(&item.key_values()?)? };
            step.take(decide::decide(&at, &sent, &bounds, ctx.now.micros()))
        })?;
        log::batch(items, &verdicts, "workspaces", "to take a step", "");
        Ok(verdicts)
    }
}

/// The latest call for each entry, in their order, with one read per operation.
fn calls(
    of: Option<&Item>,
    asked: &[Option<(Operation, String)>],
) -> Result<Vec<Option<Delivery>>> {
    let mut found = vec![None; asked.len()];
    for operation in Operation::ALL {
        let places = asked.iter().enumerate().filter_map(|(at, asked)| match asked {
            Some((of, name)) if *of == operation => Some((at, name.clone())),
            _ => None,
        });
        let (places, names): (Vec<usize>, Vec<String>) = places.unzip();
        for (at, delivery) in
            places.into_iter().zip(deliveries::latest(of, operation.topic(), &names)?)
        {
            found[at] = delivery;
        }
    }
    Ok(found)
}

/// The state of the relevant calls by item index, with one read per tenant and operation.
fn sent_of(items: &[Item], rows: &[Result<Option<Row>>]) -> Result<BTreeMap<u32, Sent>> {
    type Asked<'a> = (&'a Item, Option<(Operation, String)>);
    let mut by_tenant: BTreeMap<Option<&str>, Vec<Asked<'_>>> = BTreeMap::new();
    for (item, row) in items.iter().zip(rows) {
        // An invalid row becomes the verdict of its item in `act`.
        let Ok(Some(row)) = row else { continue };
        let Ok(at) = workspace(row) else { continue };
        let Ok(name) = item.key_values().and_then(|key| name(&key)) else { continue };
        let asked = at.call_that_matters().map(|operation| (operation, name));
        by_tenant.entry(item.tenant.as_deref()).or_default().push((item, asked));
    }
    let mut sent = BTreeMap::new();
    for (items, asked) in by_tenant.into_values().map(|group| group.into_iter().unzip()) {
        let (items, asked): (Vec<&Item>, Vec<_>) = (items, asked);
        for (item, delivery) in items.iter().zip(calls(items.first().copied(), &asked)?) {
            sent.insert(item.index, call::sent(delivery.as_ref()));
        }
    }
    Ok(sent)
}

/// One workspace of a batch, with everything that its proposal needs.
struct Step<'a> {
    ctx: &'a Context,
    item: &'a Item,
    row: &'a Row,
    at: &'a Workspace,
    name: String,
}

impl Step<'_> {
    fn take(&self, decision: Decision) -> Result<Verdict> {
        Ok(match decision {
            Decision::Leave(leave) => Verdict::skip(leave.reason()),
            Decision::Begin(operation) => {
                let call = Call {
                    operation_id: format!(
                        "{}/{}/{}/{}",
                        self.item.tenant.as_deref().unwrap_or_default(),
                        self.name,
                        operation.word(),
                        self.ctx.now.micros()
                    ),
                    begun_us: self.ctx.now.micros(),
                    failures: 0,
                };
                self.call(self.set([("operation", operation.word().into())])?, operation, &call)?
            }
            Decision::Again(operation, call) => self.call(self.guarded()?, operation, &call)?,
            Decision::Finish { operation, call, archive_key } => self
                .set([
                    ("status", operation.to().into()),
                    ("operation", NONE.into()),
                    ("archive_key", archive_key.into()),
                ])?
                .note("operation_id", call.operation_id)
                .note("status", operation.to())
                .into(),
            Decision::Fail(operation, call, reason) => self
                .set([("operation", FAILED.into())])?
                .note("operation_id", call.operation_id)
                .note("failed", operation.word())
                .note("reason", reason)
                .into(),
            Decision::Clear => self.set([("operation", NONE.into())])?.into(),
        })
    }

    /// A proposal with the guard that the row is unchanged since it was read.
    fn guarded(&self) -> Result<Proposal> {
        let mut as_read = Guard::row(WORKSPACES, self.item.key_values()?);
        for column in columns(self.ctx) {
            as_read = as_read.equal(column, self.row.value(column)?);
        }
        Ok(Proposal::new()
            .guard(as_read)
            .or_retry(LOOK_AGAIN_MS)
            .note("from", self.at.shown())
            .note("desired_state", self.at.desired_state.as_str()))
    }

    fn set<const N: usize>(&self, fields: [(&str, Value); N]) -> Result<Proposal> {
        Ok(self.guarded()?.update(WORKSPACES, self.item.key_values()?, fields))
    }

    fn call(&self, proposal: Proposal, operation: Operation, call: &Call) -> Result<Verdict> {
        let tenant = self.item.tenant.as_deref();
        let payload = call::payload(operation, call, tenant, &self.name, self.at);
        Ok(proposal
            .emit(operation.topic(), self.name.clone(), payload)
            .note("operation", operation.word())
            .note("operation_id", call.operation_id.as_str())
            .into())
    }
}

besom_sdk::export!(Reconciler);

#[cfg(test)]
mod tests;
