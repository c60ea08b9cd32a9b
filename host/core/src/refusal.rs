//! Decides whether a proposal fits the mapping, and whether refused items show a fault of their
//! task.
//!
//! A proposal that does not fit can never be committed, whatever the tables contain: it names what
//! is not mapped, or lacks the tenant. The same rules apply before a commit and in a dry run; the
//! stores build their statements by them ([`Collection`]). What depends on rows, privileges or the
//! schema of the database is not decided here.

use crate::collection::{Collection, Collections, Column, named};
use crate::ids::Tenant;
use crate::proposal::{Change, Condition, Filter, Guard, Proposal, ReadSet, RowRange, Test};
use crate::value::{Field, Kind, Value};

/// Why a proposal does not fit the mapping. The reason contains names but no values, so that items
/// with the same fault have the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The reason, in words.
    pub reason: String,
    /// Whether only a value's kind differs from that of its column. A row of another kind than
    /// mapped causes that as well, so the store decides whether the mapping is at fault.
    pub is_kind: bool,
}

impl From<String> for Misfit {
    fn from(reason: String) -> Misfit {
        Misfit { reason, is_kind: false }
    }
}

/// Checks the proposal of an item of that tenant.
///
/// # Errors
/// The first reason why it cannot be committed.
pub fn check(
    collections: &Collections,
    tenant: Option<&Tenant>,
    proposal: &Proposal,
) -> Result<(), Misfit> {
    let court = Court { collections, tenant: tenant.is_some() };
    proposal.guards.iter().try_for_each(|guard| court.guard(guard))?;
    proposal.changes.iter().try_for_each(|change| court.change(change))
}

struct Court<'a> {
    collections: &'a Collections,
    tenant: bool,
}

impl<'a> Court<'a> {
    fn guard(&self, guard: &Guard) -> Result<(), Misfit> {
        match guard {
            Guard::Columns { collection, key, conditions } => {
                let collection = self.row(collection, key)?;
                compared(collection, conditions)
            }
            Guard::Exists(filter) | Guard::AtLeast(filter, _) => self.filter(filter).map(drop),
            Guard::Absent(filter) | Guard::AtMost(filter, _) => {
                for (anchor, key) in self.filter(filter)?.anchors_of(filter)? {
                    self.row(&anchor.collection, &key)?;
                }
                Ok(())
            }
            Guard::Complete(set) => self.read_set(set),
            Guard::Idle(_) => Ok(()),
            Guard::Missing { collection, key } => self.row(collection, key).map(drop),
        }
    }

    fn change(&self, change: &Change) -> Result<(), Misfit> {
        match change {
            Change::Insert { collection, fields } => written(self.rows(collection)?, fields),
            Change::Upsert { collection, fields } => {
                let collection = self.rows(collection)?;
                let given = |column: &String| fields.iter().any(|field| field.name == *column);
                if !collection.key.iter().all(given) {
                    let name = &collection.name;
                    return Err(format!("an upsert into {name:?} needs the whole key").into());
                }
                written(collection, fields)
            }
            Change::Update { collection, key, fields } => {
                written(self.row(collection, key)?, fields)
            }
            Change::Increment { collection, key, fields } => {
                incremented(self.row(collection, key)?, fields)
            }
            Change::Delete { collection, key } => self.row(collection, key).map(drop),
            Change::DeleteReadSet(set) => self.read_set(set),
            Change::DeleteRange(range) => self.range(range).map(drop),
            Change::UpdateRange { range, fields, increments } => {
                let collection = self.range(range)?;
                let mut changed = fields.iter().chain(increments);
                if let Some(field) =
                    changed.find(|f| collection.key.iter().any(|name| f.name == *name))
                {
                    let (name, column) = (&collection.name, &field.name);
                    let why =
                        format!("{name}.{column} is part of the key, which a range cannot set");
                    return Err(why.into());
                }
                written(collection, fields)?;
                incremented(collection, increments)
            }
            Change::MoveRange { range, into } => {
                let (from, into) = (self.range(range)?, self.rows(into)?);
                moved(from, into).map_err(Misfit::from)
            }
            // The store says of each collection whether its rows can be put back.
            Change::Restore(_) => Ok(()),
            Change::Emit { .. } => Ok(()),
        }
    }

    /// A collection of which the item may have rows.
    fn rows(&self, name: &str) -> Result<&'a Collection, Misfit> {
        let collection = named(self.collections, name)?;
        collection.require_tenant(self.tenant)?;
        Ok(collection)
    }

    /// The collection of the row with that key.
    fn row(&self, name: &str, key: &[Value]) -> Result<&'a Collection, Misfit> {
        let collection = named(self.collections, name)?;
        collection.require_key(key.len())?;
        collection.require_tenant(self.tenant)?;
        for (name, value) in collection.key.iter().zip(key) {
            fits(collection, name, collection.column(name)?, value)?;
        }
        Ok(collection)
    }

    fn filter(&self, filter: &Filter) -> Result<&'a Collection, Misfit> {
        let collection = self.rows(&filter.collection)?;
        compared(collection, &filter.conditions)?;
        Ok(collection)
    }

    /// The collection of a range. Its index and bounds are checked by the store, as those of a read.
    fn range(&self, range: &RowRange) -> Result<&'a Collection, Misfit> {
        let collection = self.rows(&range.collection)?;
        compared(collection, &range.conditions)?;
        let Some(index) = collection.index_columns(range.index.as_deref()) else {
            let (name, index) = (&collection.name, range.index.as_deref().unwrap_or_default());
            return Err(format!("the collection {name:?} has no index {index:?}").into());
        };
        let bounded = range.lower.iter().chain(&range.upper);
        let first = index.iter().zip(&range.prefix);
        let next = index.get(range.prefix.len());
        for (name, value) in first.chain(bounded.filter_map(|value| Some((next?, value)))) {
            fits(collection, name, collection.column(name)?, value)?;
        }
        Ok(collection)
    }

    /// All keys of a read set are of one length.
    fn read_set(&self, set: &ReadSet) -> Result<(), Misfit> {
        let Some(rest) = set.rest.first() else { return Ok(()) };
        self.rows(&set.collection)?.require_key(set.prefix.len() + rest.len())?;
        Ok(())
    }
}

/// Whether rows of one collection can be moved into another, as far as the mapping shows.
fn moved(from: &Collection, into: &Collection) -> Result<(), String> {
    let (of, to) = (&from.name, &into.name);
    if of == to {
        return Err(format!("rows of {of:?} are moved into {to:?} itself"));
    }
    if let Some(dependant) = from.dependants.first() {
        return Err(format!(
            "rows of {of:?} cannot be moved into {to:?}: rows of {dependant:?} refer to them, and would have to be \
             moved with them"
        ));
    }
    if from.tenant != into.tenant {
        return Err(format!("{of:?} and {to:?} do not have the same tenant column"));
    }
    for name in from.columns.keys() {
        if !into.columns.contains_key(name) {
            return Err(format!("{} (rows of {of:?} are moved there)", into.lacks(name)));
        }
    }
    Ok(())
}

fn compared(collection: &Collection, conditions: &[Condition]) -> Result<(), Misfit> {
    conditions.iter().try_for_each(|Condition { column: name, test }| {
        let column = collection.column(name)?;
        match test {
            Test::Value(comparison, value) => {
                fits(collection, name, column, value)?;
                Ok(column.has_order(name, *comparison)?)
            }
            Test::OneOf(values) | Test::NoneOf(values) => {
                values.iter().try_for_each(|value| fits(collection, name, column, value))
            }
            Test::Column(comparison, other) => {
                column.comparable(name, collection.column(other)?, other)?;
                Ok(column.has_order(name, *comparison)?)
            }
            Test::StartsWith(_) => Ok(column.has_prefixes(name)?),
        }
    })
}

fn written(collection: &Collection, fields: &[Field]) -> Result<(), Misfit> {
    fields.iter().try_for_each(|Field { name, value }| {
        fits(collection, name, collection.column_to_write(name)?, value)
    })
}

/// Only an integer has an increment: of another number, the stores would add it or not.
fn incremented(collection: &Collection, fields: &[Field]) -> Result<(), Misfit> {
    let by = |field: &&Field| !matches!(field.value, Value::Integer(_));
    if let Some(Field { name, .. }) = fields.iter().find(by) {
        return Err(format!("the increment of {name} is not an integer").into());
    }
    let is_float = |name: &str| collection.columns.get(name).is_some_and(|c| c.kind == Kind::Float);
    if let Some(Field { name, .. }) = fields.iter().find(|field| is_float(&field.name)) {
        return Err(format!("{}.{name} is not an integer column", collection.name).into());
    }
    written(collection, fields)
}

fn fits(collection: &Collection, name: &str, column: Column, value: &Value) -> Result<(), Misfit> {
    match (column.kind, value.kind()) {
        (_, None) | (Kind::Float, Some(Kind::Integer)) => Ok(()),
        (wanted, Some(found)) if wanted == found => Ok(()),
        (wanted, Some(_)) => {
            let reason = format!("{}.{name}: {}", collection.name, wanted.unlike(value));
            Err(Misfit { reason, is_kind: true })
        }
    }
}

/// What is known about an item before its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement<'a> {
    /// Its proposal can be committed.
    Accepted,
    /// It is refused for a reason that other items may share.
    Refused(&'a str),
    /// Anything else: a skip, a retry, a fault of the item itself.
    Other,
}

/// The items of a task that were refused for the same reason, since one was last accepted.
///
/// A single item may be refused through its own fault. Many in a row without an accepted one are
/// refused because of the mapping, the grants or the settings, which concern all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Streak {
    reason: String,
    count: u32,
}

impl Streak {
    /// Adds the items of a batch. Returns the reason once at least `max` items were refused for it.
    pub fn add<'a>(
        &mut self,
        batch: impl Iterator<Item = Judgement<'a>> + Clone,
        max: u32,
    ) -> Option<&str> {
        if batch.clone().any(|judgement| judgement == Judgement::Accepted) {
            *self = Streak::default();
            return None;
        }
        for judgement in batch {
            let Judgement::Refused(reason) = judgement else { continue };
            if self.reason != reason {
                *self = Streak { reason: reason.to_owned(), count: 0 };
            }
            self.count = self.count.saturating_add(1);
        }
        (self.count > 0 && self.count >= max).then_some(&*self.reason)
    }

    /// Whether no item was refused since one was last accepted.
    pub fn is_over(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::collection::{Anchor, Encoding};
    use crate::proposal::OnGuardFailed;

    /// `things` of a tenant with an integer key, anchored by `owners`, which have none.
    fn collections() -> Collections {
        let column = |kind| Column { kind, encoding: Encoding::Native };
        let of = |name: &str, tenant: Option<&str>, columns: &[(&str, Kind)]| Collection {
            name: name.into(),
            table: name.into(),
            tenant: tenant.map(str::to_owned),
            key: vec!["id".into()],
            columns: columns.iter().map(|(name, kind)| ((*name).into(), column(*kind))).collect(),
            indexes: BTreeMap::new(),
            anchors: Vec::new(),
            dependants: Vec::new(),
            not_null: Default::default(),
            accept_cascades: false,
        };
        let anchor = Anchor { collection: "owners".into(), columns: vec!["owner".into()] };
        let columns = [("id", Kind::Integer), ("weight", Kind::Float), ("owner", Kind::Text)];
        let things = Collection { anchors: vec![anchor], ..of("things", Some("org"), &columns) };
        let owners = of("owners", None, &[("id", Kind::Text)]);
        [things, owners].map(|collection| (collection.name.clone(), collection)).into()
    }

    fn delete(collection: &str, key: Vec<Value>) -> Change {
        Change::Delete { collection: collection.into(), key }
    }

    fn set(name: &str, value: Value) -> Change {
        let fields = vec![Field::new(name, value)];
        Change::Update { collection: "things".into(), key: vec![Value::Integer(1)], fields }
    }

    fn filter(column: &str) -> Filter {
        let conditions = vec![Condition::equal(column, Value::Text("o".into()))];
        Filter { collection: "things".into(), conditions }
    }

    fn checked(
        tenant: Option<&str>,
        guards: Vec<Guard>,
        changes: Vec<Change>,
    ) -> Result<(), Misfit> {
        let on_guard_failed = OnGuardFailed::Skip(String::new());
        let proposal = Proposal { guards, changes, on_guard_failed, notes: vec![] };
        check(&collections(), tenant.map(Tenant::from).as_ref(), &proposal)
    }

    #[test]
    fn a_proposal_that_names_what_is_mapped_fits() {
        let key = || vec![Value::Integer(1)];
        let columns =
            |conditions| Guard::Columns { collection: "things".into(), key: key(), conditions };
        let guards = vec![
            columns(vec![Condition::equal("weight", Value::Integer(2))]),
            columns(vec![Condition::equal("org", Value::Text("a".into()))]),
            Guard::Exists(filter("owner")),
            Guard::Absent(filter("owner")),
            Guard::Idle("k".into()),
        ];
        let changes = vec![
            delete("things", key()),
            delete("owners", vec![Value::Text("o".into())]),
            set("weight", Value::Null),
        ];
        assert_eq!(checked(Some("a"), guards, changes), Ok(()));
        let alone = vec![delete("owners", vec![Value::Text("o".into())])];
        assert_eq!(checked(None, vec![], alone), Ok(()));
    }

    #[test]
    fn what_no_row_can_make_right_is_refused_with_its_name() {
        let one = || vec![Value::Integer(1)];
        for (tenant, change, reason, is_kind) in [
            (Some("a"), delete("gone", one()), "there is no collection \"gone\"", false),
            (
                None,
                delete("things", one()),
                "the collection \"things\" has tenants, but no tenant was given",
                false,
            ),
            (
                Some("a"),
                delete("things", vec![]),
                "the key of \"things\" has 1 column (id), but 0 values were given",
                false,
            ),
            (
                Some("a"),
                delete("things", vec![Value::Text("1".into())]),
                "things.id: expected integer, found text",
                true,
            ),
            (
                Some("a"),
                set("colour", Value::Null),
                "the collection \"things\" has no column \"colour\"",
                false,
            ),
            // It could move the row to another tenant.
            (
                Some("a"),
                set("org", Value::Text("b".into())),
                "the collection \"things\" has no column \"org\"",
                false,
            ),
            (
                Some("a"),
                Change::Upsert { collection: "things".into(), fields: vec![] },
                "an upsert into \"things\" needs the whole key",
                false,
            ),
        ] {
            let found = checked(tenant, vec![], vec![change]);
            assert_eq!(found, Err(Misfit { reason: reason.to_owned(), is_kind }));
        }
        let unanchored = checked(Some("a"), vec![Guard::Absent(filter("org"))], vec![]);
        assert!(unanchored.unwrap_err().reason.contains("does not fix the key"));
    }

    #[test]
    fn many_refusals_in_a_row_for_one_reason_are_the_tasks() {
        use Judgement::{Accepted, Other, Refused};
        for (batches, expected) in [
            (vec![vec![Refused("a"); 3]], Some("a")),
            (vec![vec![Refused("a"); 2]], None),
            (vec![vec![Refused("a"), Other], vec![Other, Refused("a"), Refused("a")]], Some("a")),
            (vec![vec![Refused("a"); 2], vec![Accepted], vec![Refused("a"); 2]], None),
            (vec![vec![Accepted, Refused("a"), Refused("a"), Refused("a")]], None),
            (vec![vec![Refused("a"), Refused("a"), Refused("b"), Refused("a")]], None),
            (vec![vec![Other; 9]], None),
        ] {
            let mut streak = Streak::default();
            let mut last = None;
            for batch in &batches {
                last = streak.add(batch.iter().copied(), 3).map(str::to_owned);
            }
            assert_eq!(last.as_deref(), expected, "{batches:?}");
        }
    }
}
