//! Dry run of a task: scans and acts as usual, and prints the result instead of committing it.

use std::fmt;
use std::sync::Arc;

use besom_core::collection::{Collections, all_dependants};
use besom_core::command::counted;
use besom_core::ids::Tenant;
use besom_core::item::Item;
use besom_core::proposal::{Change, Comparison, Condition, RowRange, Test, Verdict};
use besom_core::queue::check_changes_of_one_row;
use besom_core::refusal;
use besom_core::review::{Rows, Whole};
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use serde::Serialize;

use super::perform::{Ports, call_of};
use super::recorder::PAGE_FIRST;
use besom_config::printable;
use besom_ports::guests::{Call, Fault, StopFlag};
use besom_ports::task::TaskDefinition;

/// Number of tenants requested at a time.
const TENANTS_PAGE: u32 = 256;

/// What would happen to one item.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DryItem {
    /// The task of the item.
    pub task: String,
    /// The tenant of the item.
    pub tenant: Option<String>,
    /// The key of the item.
    pub key: String,
    /// When it would be executed; `None`: immediately.
    pub due: Option<String>,
    /// `propose`, `skip`, `retry`, `dead`, `fault`, or `refused`: a proposal that a commit would
    /// refuse.
    pub verdict: &'static str,
    /// The reason, for verdicts without changes.
    pub reason: Option<String>,
    /// Maximum number of rows that it would change.
    pub rows: u64,
    /// The same by collection.
    #[serde(skip)]
    pub rows_of: Vec<Rows>,
    /// How many guards would be checked.
    pub guards: usize,
    /// A description of each change.
    pub changes: Vec<String>,
    /// The reason that other items may share, if the item is refused because of the mapping, the
    /// grants or the settings of its task.
    #[serde(skip)]
    pub refused: Option<String>,
}

/// Scans everything that the task finds now, in all tenants, acts on it and passes on the result
/// for each item. Nothing is written. Returns the number of candidates that a run would not plan again: they were
/// undone, settled or discarded and have not changed since, or have an open dead letter. They are not acted on.
pub async fn dry_run(
    ports: &Ports,
    collections: &Collections,
    definition: &TaskDefinition,
    page: u32,
    show: &mut (dyn FnMut(DryItem) + Send),
) -> anyhow::Result<u64> {
    let now = ports.store.now().await?;
    // The size of the candidates is not known, and nothing is written that larger pages would make faster.
    let page = page.min(PAGE_FIRST);
    let call = call_of(definition, now, 0, &StopFlag::default());
    let stage = Stage { ports, collections, definition, call };
    if !definition.per_tenant {
        return stage.scan(None, page, show).await;
    }
    let mut after: Option<Tenant> = None;
    let mut blocked = 0;
    loop {
        let view = ports.store.snapshot(ports.snapshot_max).await?;
        let activity = Arc::clone(&ports.activity);
        let tenants =
            ports.guests.tenants(&stage.call, view, activity, after.as_ref(), TENANTS_PAGE).await?;
        for tenant in &tenants {
            blocked += stage.scan(Some(tenant), page, show).await?;
        }
        after = tenants.last().cloned();
        if tenants.len() < TENANTS_PAGE as usize {
            return Ok(blocked);
        }
    }
}

/// What the calls of a dry run need.
struct Stage<'a> {
    ports: &'a Ports,
    collections: &'a Collections,
    definition: &'a TaskDefinition,
    call: Call,
}

impl Stage<'_> {
    async fn scan(
        &self,
        tenant: Option<&Tenant>,
        limit: u32,
        show: &mut (dyn FnMut(DryItem) + Send),
    ) -> anyhow::Result<u64> {
        let Stage { ports, definition, call, .. } = self;
        let mut cursor: Option<Vec<u8>> = None;
        let mut left_out = 0;
        loop {
            let view = ports.store.snapshot(ports.snapshot_max).await?;
            let activity = Arc::clone(&ports.activity);
            let page =
                ports.guests.scan(call, view, activity, tenant, cursor.as_deref(), limit).await?;
            let (mut items, blocked) = ports.to_plan(definition, call.now, page.candidates).await?;
            left_out += blocked;
            // Each item is judged as of the time at which it would be executed.
            let at = |item: &Item| item.identity.due.map_or(call.now, |due| due.max(call.now));
            items.sort_by_key(at);
            for together in items.chunk_by(|a, b| at(a) == at(b)) {
                for batch in together.chunks(definition.limits.batch_items.max(1) as usize) {
                    self.act(batch, at(&batch[0]), show).await?;
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(left_out),
            }
        }
    }

    async fn act(
        &self,
        items: &[Item],
        now: Time,
        show: &mut (dyn FnMut(DryItem) + Send),
    ) -> anyhow::Result<()> {
        let ports = self.ports;
        let call = Call { now, ..self.call.clone() };
        let view = ports.store.snapshot(ports.snapshot_max).await?;
        let activity = Arc::clone(&ports.activity);
        let acted = ports.guests.act(&call, view, activity, items).await?;
        for (item, verdict) in items.iter().zip(acted.verdicts) {
            show(self.shown(item, verdict));
        }
        Ok(())
    }

    /// A change, with the collections whose rows go with the deleted ones.
    fn in_words(&self, change: &Change) -> String {
        let mut words = in_words(change);
        if let Some(name) = change.collection().filter(|_| change.deletes()) {
            let dependants = all_dependants(self.collections, name);
            let names: Vec<&str> = dependants.iter().map(|other| other.name.as_str()).collect();
            if !names.is_empty() {
                words.push_str(&format!(", and what refers to them in {}", names.join(", ")));
            }
        }
        words
    }

    fn shown(&self, item: &Item, verdict: Result<Verdict, Fault>) -> DryItem {
        let tenant = item.identity.tenant.as_ref();
        let mut shown = DryItem {
            task: item.identity.task.to_string(),
            tenant: tenant.map(ToString::to_string),
            key: item.identity.key.clone(),
            due: item.identity.due.filter(|due| *due > self.call.now).map(|due| due.to_string()),
            verdict: "propose",
            reason: None,
            rows: 0,
            rows_of: Vec::new(),
            guards: 0,
            changes: Vec::new(),
            refused: None,
        };
        match verdict {
            Ok(Verdict::Propose(proposal)) => {
                shown.guards = proposal.guards.len();
                let mut asked = Whole::default();
                asked.add(&proposal);
                shown.rows = asked.changed();
                shown.rows_of = asked.rows;
                shown.changes =
                    proposal.changes.iter().map(|change| self.in_words(change)).collect();
                if let Err(misfit) = refusal::check(self.collections, tenant, &proposal) {
                    shown.verdict = "refused";
                    shown.reason = Some(misfit.reason.clone());
                    shown.refused = Some(misfit.reason);
                } else if let Err(words) =
                    check_changes_of_one_row(self.collections, tenant, &proposal)
                {
                    (shown.verdict, shown.reason) = ("fault", Some(words));
                }
            }
            Ok(Verdict::Skip { reason, .. }) => {
                (shown.verdict, shown.reason) = ("skip", Some(reason));
            }
            Ok(Verdict::Retry { reason, .. }) => {
                (shown.verdict, shown.reason) = ("retry", Some(reason));
            }
            Ok(Verdict::Dead { reason }) => (shown.verdict, shown.reason) = ("dead", Some(reason)),
            Err(fault) => {
                (shown.verdict, shown.reason) = ("fault", Some(fault.message));
                shown.refused = fault.refused;
            }
        }
        shown
    }
}

pub(super) fn in_words(change: &Change) -> String {
    match change {
        Change::Insert { collection, fields } => {
            format!("insert into {collection}: {}", all(fields))
        }
        Change::Upsert { collection, fields } => {
            format!("upsert into {collection}: {}", all(fields))
        }
        Change::Update { collection, key, fields } => {
            format!("update {collection} {}: {}", keyed(key), all(fields))
        }
        Change::Increment { collection, key, fields } => {
            format!("increment {collection} {}: {}", keyed(key), all(fields))
        }
        Change::Delete { collection, key } => format!("delete from {collection} {}", keyed(key)),
        Change::DeleteReadSet(set) => {
            let rows = counted(set.len() as u64, "row");
            format!("delete from {}: the {rows} read before", set.collection)
        }
        Change::DeleteRange(range) => {
            let rows = counted(u64::from(range.rows), "row");
            format!("delete from {}: a range of at most {rows}{}", range.collection, meeting(range))
        }
        Change::UpdateRange { range, fields, increments } => {
            let rows = counted(u64::from(range.rows), "row");
            let (name, meeting) = (&range.collection, meeting(range));
            let added = |field: &Field| format!("{} += {}", field.name, field.value.shown());
            let set = (!fields.is_empty()).then(|| all(fields)).into_iter();
            let set: Vec<String> = set.chain(increments.iter().map(added)).collect();
            format!("update {name}: a range of at most {rows}{meeting}: {}", set.join(", "))
        }
        Change::MoveRange { range, into } => {
            let rows = counted(u64::from(range.rows), "row");
            let (name, meeting) = (&range.collection, meeting(range));
            format!("move from {name} into {into}: a range of at most {rows}{meeting}")
        }
        Change::Restore(restore) => {
            let rows = counted(restore.rows, "row");
            format!("put back {rows} of {}", restore.collections.join(", "))
        }
        Change::Emit { topic, key, payload } => {
            format!("emit to {topic}: {key}, {}", counted(payload.len() as u64, "byte"))
        }
    }
}

/// The conditions of a range besides its bounds.
fn meeting(range: &RowRange) -> String {
    let one = |condition: &Condition| {
        let column = &condition.column;
        match &condition.test {
            Test::Value(Comparison::Equal, Value::Null) => format!("{column} is null"),
            Test::Value(Comparison::NotEqual, Value::Null) => format!("{column} is not null"),
            Test::Value(comparison, value) => {
                format!("{column} {} {}", comparison.sign(), value.shown())
            }
            Test::Column(comparison, other) => format!("{column} {} {other}", comparison.sign()),
            Test::OneOf(values) => format!("{column} in {}", keyed(values)),
            Test::NoneOf(values) => format!("{column} not in {}", keyed(values)),
            Test::StartsWith(text) => format!("{column} begins with {text:?}"),
        }
    };
    match &range.conditions[..] {
        [] => String::new(),
        some => format!(" with {}", some.iter().map(one).collect::<Vec<_>>().join(" and ")),
    }
}

pub(super) fn all(fields: &[Field]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|field| format!("{} = {}", field.name, field.value.shown())).collect();
    fields.join(", ")
}

pub(super) fn keyed(key: &[Value]) -> String {
    let values: Vec<String> = key.iter().map(Value::shown).collect();
    format!("({})", values.join(", "))
}

impl fmt::Display for DryItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = self.tenant.as_deref().unwrap_or("-");
        let place = format!("{} {tenant}/{}", self.task, self.key);
        write!(f, "{}: {}", printable(&place), self.verdict)?;
        if let Some(due) = &self.due {
            write!(f, " at {due}")?;
        }
        match &self.reason {
            Some(reason) => writeln!(f, ", {}", printable(reason))?,
            // The commit judges the rows of ranges without guards.
            None if self.guards == 0 => writeln!(f)?,
            None => writeln!(f, " under {}", counted(self.guards as u64, "guard"))?,
        }
        for change in &self.changes {
            writeln!(f, "    {}", printable(change))?;
        }
        Ok(())
    }
}
