//! Checks the verdicts of a guest against the contract, the grants and the limits. Pure. A
//! violation is a fault of its own item; the other items are not affected.

use std::sync::Arc;

use besom_core::delivery::PAYLOAD_BYTES_MAX;
use besom_core::ids::Tenant;
use besom_core::proposal::{
    Change, Filter, GUARD_ROWS_MAX, Guard, OnGuardFailed, Proposal, ReadSet, RowRange, Verdict,
};
use besom_core::value::{Field, Value};

use super::access::{Access, Operation, Refusal, is_refusal};
use super::bindings::besom::task::types as wit;
use super::imports::PREFIX_MAX;
use super::page::CURSOR_BYTES_MAX;
use super::readset::ReadSets;
use super::{bounds, convert};
use besom_ports::guests::{Fault, Limits};

/// Maximum number of guards of one item, and of the conditions in all of them.
const GUARDS_MAX: usize = 1_000;
const GUARD_CONDITIONS_MAX: usize = 4_000;
/// Maximum number of guards of one item that search rows by conditions (`exists`, `absent`, `at-least`,
/// `at-most`). Their cost depends on the contents of the table.
const QUESTIONS_MAX: usize = 64;
/// Maximum number of notes of one item, and their size in bytes.
const NOTES_MAX: usize = 64;
const NOTES_BYTES_MAX: usize = 16 * 1024;
/// Maximum size of a message's key, and of all messages of an item, in bytes.
const MESSAGE_KEY_BYTES_MAX: usize = 1024;
const MESSAGES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum length of an activity key, in bytes.
const ACTIVITY_KEY_BYTES_MAX: usize = 1024;
/// Maximum time by which a guest may postpone an item: a year.
const AFTER_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1_000;

/// What the verdicts of one call are checked against.
pub(super) struct Court<'a> {
    /// The grants of the task.
    pub(super) access: &'a Access,
    /// The limits of the task.
    pub(super) limits: &'a Limits,
    /// The read sets of the call.
    pub(super) sets: &'a ReadSets,
}

/// What is wrong with a verdict.
enum Violation {
    Limit(String),
    Contract(String),
    /// What is not granted: other items may ask for the same.
    Refused(String),
}

impl From<Refusal> for Violation {
    fn from(refusal: Refusal) -> Violation {
        match refusal.code {
            "limit-exceeded" => Violation::Limit(refusal.message),
            code if is_refusal(code) => Violation::Refused(refusal.message),
            _ => Violation::Contract(refusal.message),
        }
    }
}

impl From<convert::Malformed> for Violation {
    fn from(message: convert::Malformed) -> Violation {
        Violation::Contract(message)
    }
}

fn limit(what: &str, count: u64, max: u64) -> Result<(), Violation> {
    if count > max {
        return Err(Violation::Limit(format!("{count} {what}: at most {max}")));
    }
    Ok(())
}

/// Refuses increments that are no integers.
fn are_increments(collection: &str, fields: &[Field]) -> Result<(), Violation> {
    match fields.iter().find(|field| !matches!(field.value, Value::Integer(_))) {
        None => Ok(()),
        Some(Field { name, .. }) => Err(Violation::Contract(format!(
            "an increment must be an integer: `{collection}.{name}` is incremented by another type"
        ))),
    }
}

/// Cuts off a text of the guest, or one that names what it asked for.
fn cut(text: String) -> String {
    bounds::cut(text, bounds::MESSAGE_BYTES_MAX)
}

impl Court<'_> {
    /// Checks the verdict on an item of that tenant.
    pub(super) fn hear(
        &self,
        tenant: Option<&Tenant>,
        verdict: wit::Verdict,
    ) -> Result<Verdict, Fault> {
        self.verdict(tenant, verdict).map_err(|violation| match violation {
            Violation::Limit(message) => Fault::new("limit", cut(message)),
            Violation::Contract(message) => Fault::new("contract", cut(message)),
            Violation::Refused(message) => {
                let message = cut(message);
                Fault { refused: Some(message.clone()), ..Fault::new("contract", message) }
            }
        })
    }

    fn verdict(
        &self,
        tenant: Option<&Tenant>,
        verdict: wit::Verdict,
    ) -> Result<Verdict, Violation> {
        Ok(match verdict {
            wit::Verdict::Propose(proposal) => Verdict::Propose(self.proposal(tenant, proposal)?),
            wit::Verdict::Skip(wit::Skipped { reason, settled, extra: _ }) => {
                Verdict::Skip { reason: cut(reason), settled }
            }
            wit::Verdict::Retry(wit::Retried { after, reason, extra: _ }) => {
                Verdict::Retry { after_ms: after.min(AFTER_MS_MAX), reason: cut(reason) }
            }
            wit::Verdict::Dead(reason) => Verdict::Dead { reason: cut(reason) },
        })
    }

    fn proposal(
        &self,
        tenant: Option<&Tenant>,
        proposal: wit::Proposal,
    ) -> Result<Proposal, Violation> {
        limit("guards", proposal.guards.len() as u64, GUARDS_MAX as u64)?;
        limit("changes", proposal.changes.len() as u64, u64::from(self.limits.changes))?;
        limit("notes", proposal.notes.len() as u64, NOTES_MAX as u64)?;
        let notes = convert::fields(proposal.notes)?;
        let weight: usize = notes.iter().map(|n| n.name.len() + n.value.weight()).sum();
        limit("bytes of notes", weight as u64, NOTES_BYTES_MAX as u64)?;
        let compared = proposal.guards.iter().map(|guard| match guard {
            wit::Guard::Columns(guard) => bounds::tests(&guard.conditions),
            wit::Guard::Exists(filter)
            | wit::Guard::Absent(filter)
            | wit::Guard::AtLeast(wit::Counted { filter, .. })
            | wit::Guard::AtMost(wit::Counted { filter, .. }) => bounds::tests(&filter.conditions),
            wit::Guard::Complete(_) | wit::Guard::Idle(_) | wit::Guard::Missing(_) => 0,
        });
        let compared = compared.sum::<usize>() as u64;
        limit("conditions in all guards", compared, GUARD_CONDITIONS_MAX as u64)?;
        let questions = proposal.guards.iter();
        let questions = questions
            .filter(|guard| {
                matches!(
                    guard,
                    wit::Guard::Exists(_)
                        | wit::Guard::Absent(_)
                        | wit::Guard::AtLeast(_)
                        | wit::Guard::AtMost(_)
                )
            })
            .count();
        limit("guards on rows by conditions", questions as u64, QUESTIONS_MAX as u64)?;
        let guards = proposal.guards.into_iter().map(|guard| self.guard(tenant, guard));
        let guards = guards.collect::<Result<Vec<_>, _>>()?;
        self.complete(&guards)?;
        let changes = proposal.changes.into_iter().map(|change| self.change(tenant, change));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let is_set = changes.iter().any(|change| matches!(change, Change::UpdateRange { .. }));
        let what = if is_set { "rows to delete or set" } else { "rows to delete" };
        let bounded = changes.iter().filter(|change| change.deletes() || change.range().is_some());
        let deletes = bounded.map(Change::rows);
        limit(what, deletes.sum(), self.limits.deletes)?;
        let messages = changes.iter().map(|change| match change {
            Change::Emit { key, payload, .. } => (key.len() + payload.len()) as u64,
            _ => 0,
        });
        limit("bytes in all messages", messages.sum(), MESSAGES_BYTES_MAX)?;
        let on_guard_failed = match proposal.on_guard_failed {
            wit::GuardFailed::Skip(reason) => OnGuardFailed::Skip(cut(reason)),
            wit::GuardFailed::Retry(after) => OnGuardFailed::Retry(after.min(AFTER_MS_MAX)),
        };
        Ok(Proposal { guards, changes, on_guard_failed, notes })
    }

    /// Checks the guards on read sets. The commit looks up all their rows, so each set may occur
    /// once, and together they may contain at most as many rows as one call may read.
    fn complete(&self, guards: &[Guard]) -> Result<(), Violation> {
        let mut sets: Vec<&Arc<ReadSet>> = Vec::new();
        for guard in guards {
            let Guard::Complete(set) = guard else { continue };
            if sets.iter().any(|known| Arc::ptr_eq(known, set)) {
                return Err(Violation::Contract(
                    "two guards of one proposal check the same read set".into(),
                ));
            }
            sets.push(set);
        }
        let rows = sets.iter().map(|set| set.len() as u64).sum();
        limit("rows of read sets in guards", rows, self.limits.rows_read)
    }

    /// Checks a guard. It reveals whether rows exist, so it requires the right to read them.
    fn guard(&self, tenant: Option<&Tenant>, guard: wit::Guard) -> Result<Guard, Violation> {
        Ok(match guard {
            wit::Guard::Columns(wit::ColumnGuard { collection, key, conditions }) => {
                self.may_compare(&collection, &conditions)?;
                Guard::Columns {
                    key: convert::values(key)?,
                    conditions: convert::conditions(conditions)?,
                    collection: self.access.collection(collection),
                }
            }
            wit::Guard::Exists(filter) => {
                self.may_compare(&filter.collection, &filter.conditions)?;
                Guard::Exists(self.filter(filter)?)
            }
            wit::Guard::Absent(filter) => {
                self.may_compare(&filter.collection, &filter.conditions)?;
                Guard::Absent(self.filter(filter)?)
            }
            wit::Guard::Missing(wit::RowReference { collection, key }) => {
                self.may_compare(&collection, &[])?;
                let key = convert::values(key)?;
                Guard::Missing { collection: self.access.collection(collection), key }
            }
            wit::Guard::AtLeast(counted) => {
                let (filter, rows) = self.counted(counted)?;
                Guard::AtLeast(filter, rows)
            }
            wit::Guard::AtMost(counted) => {
                let (filter, rows) = self.counted(counted)?;
                Guard::AtMost(filter, rows)
            }
            wit::Guard::Complete(id) => Guard::Complete(self.read_set(tenant, id)?),
            wit::Guard::Idle(key) => {
                self.access.to_activity()?;
                let most = ACTIVITY_KEY_BYTES_MAX as u64;
                limit("bytes in the key of an activity", key.len() as u64, most)?;
                Guard::Idle(key)
            }
        })
    }

    fn counted(&self, counted: wit::Counted) -> Result<(Filter, u32), Violation> {
        let wit::Counted { filter, rows } = counted;
        limit("rows that a guard counts", u64::from(rows), u64::from(GUARD_ROWS_MAX))?;
        self.may_compare(&filter.collection, &filter.conditions)?;
        Ok((self.filter(filter)?, rows))
    }

    fn filter(&self, filter: wit::Filter) -> Result<Filter, Violation> {
        let filter = convert::filter(filter)?;
        Ok(Filter { collection: self.access.collection(filter.collection), ..filter })
    }

    fn may_compare(&self, collection: &str, conditions: &[wit::Condition]) -> Result<(), Refusal> {
        bounds::conditions(conditions)?;
        let columns = bounds::named(conditions);
        self.access.to_columns(collection, Operation::Read, columns)
    }

    fn read_set(&self, tenant: Option<&Tenant>, id: u64) -> Result<Arc<ReadSet>, Refusal> {
        Ok(Arc::clone(self.sets.of(id, tenant)?))
    }

    fn change(&self, tenant: Option<&Tenant>, change: wit::Change) -> Result<Change, Violation> {
        Ok(match change {
            wit::Change::Insert(wit::RowChange { collection, fields }) => {
                let fields = self.fields(&collection, &[Operation::Insert], fields)?;
                Change::Insert { collection: self.access.collection(collection), fields }
            }
            wit::Change::Upsert(wit::RowChange { collection, fields }) => {
                let both = [Operation::Insert, Operation::Update];
                let fields = self.fields(&collection, &both, fields)?;
                Change::Upsert { collection: self.access.collection(collection), fields }
            }
            wit::Change::Update(wit::KeyedChange { collection, key, fields }) => {
                let fields = self.fields(&collection, &[Operation::Update], fields)?;
                let collection = self.access.collection(collection);
                Change::Update { collection, key: convert::values(key)?, fields }
            }
            wit::Change::Increment(wit::KeyedChange { collection, key, fields }) => {
                let fields = self.fields(&collection, &[Operation::Update], fields)?;
                are_increments(&collection, &fields)?;
                let collection = self.access.collection(collection);
                Change::Increment { collection, key: convert::values(key)?, fields }
            }
            wit::Change::Delete(wit::RowReference { collection, key }) => {
                self.access.to(&collection, Operation::Delete)?;
                let collection = self.access.collection(collection);
                Change::Delete { collection, key: convert::values(key)? }
            }
            wit::Change::DeleteReadSet(id) => {
                let set = self.read_set(tenant, id)?;
                self.access.to(self.access.name_of(&set.collection), Operation::Delete)?;
                Change::DeleteReadSet(set)
            }
            wit::Change::DeleteRange(range) => {
                Change::DeleteRange(Arc::new(self.range(Operation::Delete, range)?))
            }
            wit::Change::UpdateRange(wit::RangeChange { range, mut fields, increments }) => {
                let set = fields.len();
                fields.extend(increments);
                let mut fields = self.fields(&range.collection, &[Operation::Update], fields)?;
                let increments = fields.split_off(set);
                are_increments(&range.collection, &increments)?;
                let range = Arc::new(self.range(Operation::Update, range)?);
                Change::UpdateRange { range, fields, increments }
            }
            wit::Change::MoveRange(wit::RangeMove { range, into }) => {
                self.access.to_whole(&into, Operation::Insert)?;
                Change::MoveRange {
                    range: Arc::new(self.range(Operation::Delete, range)?),
                    into: self.access.collection(into),
                }
            }
            wit::Change::Emit(wit::Message { topic, key, payload, extra: _ }) => {
                self.access.to_topic(&topic)?;
                let most = MESSAGE_KEY_BYTES_MAX as u64;
                limit("bytes in the key of a message", key.len() as u64, most)?;
                if key.contains('\0') {
                    return Err(Violation::Contract(
                        "the key of a message contains a NUL byte".into(),
                    ));
                }
                limit("bytes in a message", payload.len() as u64, PAYLOAD_BYTES_MAX as u64)?;
                Change::Emit { topic, key, payload }
            }
        })
    }

    /// Checks a range. Which rows it has shows what is in them, so it requires the right to read the columns
    /// of its conditions.
    fn range(&self, operation: Operation, range: wit::RowRange) -> Result<RowRange, Violation> {
        self.access.to(&range.collection, operation)?;
        self.may_compare(&range.collection, &range.conditions)?;
        if range.rows == 0 {
            let name = &range.collection;
            return Err(Violation::Contract(format!("a range of `{name}` of no rows")));
        }
        bounds::at_most("values in `prefix`", range.prefix.len(), PREFIX_MAX)?;
        range.prefix.iter().chain(&range.lower).chain(&range.upper).try_for_each(bounds::value)?;
        let optional = |value: Option<wit::Value>| value.map(convert::value).transpose();
        let most = CURSOR_BYTES_MAX as u64;
        for cursor in range.after.iter().chain(&range.until) {
            limit("bytes in a cursor", cursor.len() as u64, most)?;
        }
        Ok(RowRange {
            index: range.index.filter(|name| !name.is_empty()),
            prefix: convert::values(range.prefix)?,
            lower: optional(range.lower)?,
            upper: optional(range.upper)?,
            conditions: convert::conditions(range.conditions)?,
            after: range.after,
            until: range.until,
            rows: range.rows,
            collection: self.access.collection(range.collection),
        })
    }

    fn fields(
        &self,
        collection: &str,
        operations: &[Operation],
        fields: Vec<wit::Field>,
    ) -> Result<Vec<Field>, Violation> {
        for operation in operations {
            let columns = fields.iter().map(|f| f.name.as_str());
            self.access.to_columns(collection, *operation, columns)?;
        }
        if fields.is_empty() {
            return Err(Violation::Contract(format!("a change of `{collection}` sets no column")));
        }
        let mut names: Vec<&str> = match &*fields {
            // Not even a list, for most changes set one column.
            [_] => Vec::new(),
            fields => fields.iter().map(|f| f.name.as_str()).collect(),
        };
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Violation::Contract(format!(
                "a change of `{collection}` sets `{}` twice",
                twice[0]
            )));
        }
        Ok(convert::fields(fields)?)
    }
}

#[cfg(test)]
mod tests {
    use besom_core::collection::Operations;

    use super::*;
    use besom_ports::guests::{CollectionRequest, Lane, Manifest};

    fn access() -> Access {
        let read = Operations { read: true, ..Operations::default() };
        let request = CollectionRequest {
            collection: "things".into(),
            operations: read,
            columns: vec!["id".into()],
            ..CollectionRequest::default()
        };
        let manifest = Manifest {
            name: "guarding".into(),
            version: "1".into(),
            doc: String::new(),
            settings: vec![],
            collections: vec![request],
            topics: vec![],
            activity: false,
            per_tenant: false,
            lane: Lane::Normal,
            extra: vec![],
        };
        Access {
            grants: Arc::new([("things".to_owned(), read)].into()),
            aliases: Arc::default(),
            columns: Arc::default(),
            activity: false,
            manifest: manifest.into(),
            topics: vec![],
        }
    }

    #[test]
    fn a_name_in_a_fault_is_cut_off() {
        let (access, sets) = (access(), ReadSets::default());
        let limits = super::super::Settings::default().describe;
        let limits = Limits { changes: 10, ..limits };
        let court = Court { access: &access, limits: &limits, sets: &sets };
        let long = || "x".repeat(1 << 20);
        let delete = wit::RowReference { collection: long(), key: vec![] };
        let emit = wit::Message { topic: long(), key: "k".into(), payload: vec![], extra: vec![] };
        for change in [wit::Change::Delete(delete), wit::Change::Emit(emit)] {
            let proposal = wit::Proposal {
                guards: vec![],
                changes: vec![change],
                on_guard_failed: wit::GuardFailed::Retry(0),
                notes: vec![],
                extra: vec![],
            };
            let fault = court.hear(None, wit::Verdict::Propose(proposal)).unwrap_err();
            let refused = fault.refused.map_or(0, |reason| reason.len());
            assert!(fault.message.len() <= bounds::MESSAGE_BYTES_MAX, "{}", fault.message.len());
            assert!(refused <= bounds::MESSAGE_BYTES_MAX, "{refused}");
        }
    }

    #[test]
    fn what_guards_cost_in_the_commit_is_bounded() {
        let (access, mut sets) = (access(), ReadSets::default());
        for ids in [0..6_i64, 6..10] {
            let keys = ids.map(|id| vec![Value::Integer(id)]).collect();
            sets.collect(None, "things", None, keys).unwrap();
        }
        let limits = |rows_read| Limits { rows_read, ..super::super::Settings::default().describe };
        let heard = |guards: Vec<wit::Guard>, rows_read| {
            let limits = limits(rows_read);
            let proposal = wit::Proposal {
                guards,
                changes: vec![],
                on_guard_failed: wit::GuardFailed::Skip("guard".into()),
                notes: vec![],
                extra: vec![],
            };
            let court = Court { access: &access, limits: &limits, sets: &sets };
            let heard = court.hear(None, wit::Verdict::Propose(proposal));
            heard.map(drop).map_err(|fault| (fault.cause.to_string(), fault.message))
        };
        let filter = || wit::Filter { collection: "things".into(), conditions: vec![] };
        let questions = |count: usize| {
            let counted = |rows| wit::Counted { filter: filter(), rows };
            let each = |at| match at % 4 {
                0 => wit::Guard::Exists(filter()),
                1 => wit::Guard::Absent(filter()),
                2 => wit::Guard::AtLeast(counted(1)),
                _ => wit::Guard::AtMost(counted(GUARD_ROWS_MAX)),
            };
            (0..count).map(each).collect::<Vec<_>>()
        };
        let complete = |ids: &[u64]| ids.iter().map(|&id| wit::Guard::Complete(id)).collect();
        let limit = |said: &str| Err(("limit".to_owned(), said.to_owned()));
        assert_eq!(heard(questions(QUESTIONS_MAX), 10), Ok(()));
        assert_eq!(
            heard(questions(QUESTIONS_MAX + 1), 10),
            limit("65 guards on rows by conditions: at most 64")
        );
        let rows = GUARD_ROWS_MAX + 1;
        for guard in [wit::Guard::AtLeast, wit::Guard::AtMost] {
            let guard = guard(wit::Counted { filter: filter(), rows });
            let said = "1001 rows that a guard counts: at most 1000";
            assert_eq!(heard(vec![guard], 10), limit(said));
        }
        assert_eq!(heard(complete(&[0, 1]), 10), Ok(()));
        assert_eq!(heard(complete(&[0, 1]), 9), limit("10 rows of read sets in guards: at most 9"));
        let (cause, said) = heard(complete(&[0, 1, 0]), 100).unwrap_err();
        assert_eq!(cause, "contract");
        assert!(said.contains("the same read set"), "{said}");
    }
}
