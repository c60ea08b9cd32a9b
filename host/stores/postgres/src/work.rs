//! The items of a batch whose changes are applied, divided into waves.
//!
//! The items of one wave are applied together: all guards, then all changes. An item that reads or
//! changes what an earlier one changes starts the next wave, so that the batch takes effect as if
//! one item came after the other. The executor puts no two items that change the same row into one
//! batch; what remains is a guard that reads what an earlier item changes.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use besom_core::collection::{Collections, all_dependants};
use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Condition, Filter, Guard, Proposal, ReadSet};
use besom_core::value::{Field, Value};

/// An item whose changes are applied.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    /// Its index in the batch.
    pub(super) entry: usize,
    pub(super) tenant: Option<&'a Tenant>,
    pub(super) proposal: &'a Proposal,
    /// Whether before-images are kept.
    pub(super) undo: bool,
    /// Maximum number of rows that one of its ranges changes.
    pub(super) rows_max: u32,
}

impl<'a> Work<'a> {
    /// See [`collections`].
    pub(super) fn collections(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        collections(self.proposal)
    }
}

/// The collections that guards and changes use; of a change that moves rows, the one that they leave.
pub(super) fn collections(proposal: &Proposal) -> impl Iterator<Item = &str> {
    let Proposal { changes, guards, .. } = proposal;
    let changed = changes.iter().filter_map(Change::collection);
    let guarded = guards.iter().filter_map(|guard| match guard {
        Guard::Columns { collection, .. } | Guard::Missing { collection, .. } => {
            Some(collection.as_str())
        }
        Guard::Exists(filter)
        | Guard::Absent(filter)
        | Guard::AtLeast(filter, _)
        | Guard::AtMost(filter, _) => Some(filter.collection.as_str()),
        Guard::Complete(set) => Some(set.collection.as_str()),
        Guard::Idle(_) => None,
    });
    changed.chain(guarded)
}

/// Divides works into waves, in order.
pub(super) fn waves<'a>(works: Vec<Work<'a>>, collections: &Collections) -> Vec<Vec<Work<'a>>> {
    let mut waves: Vec<Vec<Work<'a>>> = Vec::new();
    let (mut written, mut footprint) = (Written::default(), Footprint::default());
    for work in works {
        footprint.fill(&work, collections);
        if waves.is_empty() || footprint.all().any(|extent| written.touches(extent)) {
            waves.push(Vec::new());
            written = Written::default();
        }
        for extent in &footprint.writes {
            written.add(extent);
        }
        if let Some(wave) = waves.last_mut() {
            wave.push(work);
        }
    }
    waves
}

type Mark = u128;

/// Marks are already hashes.
type Marks = HashSet<Mark, BuildHasherDefault<Marked>>;

#[derive(Default)]
struct Marked(u64);

impl Hasher for Marked {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, byte| all.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, mark: u128) {
        self.0 = mark as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Rows of a collection in a tenant: all, those whose key begins with a value, or one.
struct Extent {
    /// The marks of all rows, of the first key value, and of the whole key.
    marks: [Option<Mark>; 3],
    /// Whether every row of the last mark is meant, or one unknown row of it.
    whole: bool,
}

/// The extents that an item reads and writes.
#[derive(Default)]
struct Footprint {
    reads: Vec<Extent>,
    writes: Vec<Extent>,
}

/// What earlier items of a wave have written.
#[derive(Default)]
struct Written {
    /// Marks that contain a written row.
    containing: Marks,
    /// Marks of which any row may be written.
    covered: Marks,
}

impl Written {
    fn add(&mut self, extent: &Extent) {
        let marks = extent.marks.iter().flatten();
        self.containing.extend(marks);
        if extent.whole {
            self.covered.extend(extent.finest());
        }
    }

    fn touches(&self, extent: &Extent) -> bool {
        extent.marks.iter().flatten().any(|mark| self.covered.contains(mark))
            || (extent.whole && extent.finest().is_some_and(|mark| self.containing.contains(&mark)))
    }
}

impl Extent {
    fn finest(&self) -> Option<Mark> {
        self.marks.iter().rev().flatten().next().copied()
    }

    /// The rows whose key begins with these values; the key has this many columns.
    fn new<'v>(
        table: &str,
        tenant: Option<&Tenant>,
        begin: impl IntoIterator<Item = &'v Value>,
        columns: usize,
        whole: bool,
    ) -> Extent {
        // Each part is hashed with its length, so that a prefix never equals a longer value.
        let mut parts = Vec::with_capacity(128);
        part(&mut parts, table.as_bytes());
        part(&mut parts, tenant.map_or("", Tenant::as_str).as_bytes());
        let mut marks = [Some(mark(&parts)), None, None];
        for (at, value) in begin.into_iter().enumerate() {
            match value {
                Value::Text(text) => part(&mut parts, text.as_bytes()),
                Value::Integer(i) => part(&mut parts, &i.to_le_bytes()),
                other => part(&mut parts, format!("{other:?}").as_bytes()),
            }
            if at == 0 {
                marks[1] = Some(mark(&parts));
            } else if at + 1 == columns {
                marks[2] = Some(mark(&parts));
            }
        }
        Extent { marks, whole }
    }
}

fn part(parts: &mut Vec<u8>, bytes: &[u8]) {
    parts.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    parts.extend_from_slice(bytes);
}

fn mark(parts: &[u8]) -> Mark {
    xxhash_rust::xxh3::xxh3_128(parts)
}

impl Footprint {
    fn all(&self) -> impl Iterator<Item = &Extent> {
        self.reads.iter().chain(&self.writes)
    }

    /// Fills this with a work's extents, reusing the memory of the previous one.
    fn fill(&mut self, work: &Work<'_>, collections: &Collections) {
        let Footprint { reads, writes } = self;
        reads.clear();
        writes.clear();
        let look = Look { collections, tenant: work.tenant };
        for guard in &work.proposal.guards {
            reads.extend(match guard {
                Guard::Columns { collection, key, .. } | Guard::Missing { collection, key } => {
                    look.row(collection, key)
                }
                Guard::Exists(filter)
                | Guard::Absent(filter)
                | Guard::AtLeast(filter, _)
                | Guard::AtMost(filter, _) => look.filter(filter),
                Guard::Complete(set) => look.set(set),
                Guard::Idle(_) => None,
            });
        }
        for change in &work.proposal.changes {
            writes.extend(match change {
                Change::Insert { collection, fields } | Change::Upsert { collection, fields } => {
                    look.inserted(collection, fields)
                }
                Change::Update { collection, key, fields }
                | Change::Increment { collection, key, fields } => {
                    look.updated(collection, key, fields)
                }
                Change::Delete { collection, key } => look.row(collection, key),
                Change::DeleteReadSet(set) => look.set(set),
                Change::DeleteRange(range)
                | Change::UpdateRange { range, .. }
                | Change::MoveRange { range, .. } => look.extent(&range.collection, [], true),
                Change::Emit { .. } | Change::Restore(_) => None,
            });
            writes.extend(change.into().and_then(|into| look.extent(into, [], true)));
            look.dependants(change, writes);
        }
    }
}

/// Finds the extents of one item. An unmapped collection touches nothing.
struct Look<'a> {
    collections: &'a Collections,
    tenant: Option<&'a Tenant>,
}

impl Look<'_> {
    fn extent<'v>(
        &self,
        collection: &str,
        begin: impl IntoIterator<Item = &'v Value>,
        whole: bool,
    ) -> Option<Extent> {
        let definition = self.collections.get(collection)?;
        let tenant = self.tenant.filter(|_| definition.tenant.is_some());
        // Two collections may be mapped to one table.
        Some(Extent::new(&definition.table, tenant, begin, definition.key.len(), whole))
    }

    /// The rows that go with deleted ones.
    fn dependants(&self, change: &Change, writes: &mut Vec<Extent>) {
        let (name, key) = match change {
            Change::Delete { collection, key } => (collection, &key[..]),
            Change::DeleteReadSet(set) => (&set.collection, &set.prefix[..]),
            Change::DeleteRange(range) => (&range.collection, &[][..]),
            _ => return,
        };
        for dependant in all_dependants(self.collections, name) {
            // A key that begins with that of the row it goes with.
            let mut anchors = dependant.anchors_in(name).peekable();
            let begins = anchors.peek().is_some()
                && anchors.all(|anchor| {
                    anchor.columns.first().is_some_and(|own| dependant.key.first() == Some(own))
                });
            let begin = if begins { key.first() } else { None };
            writes.extend(self.extent(&dependant.name, begin, true));
        }
    }

    fn row(&self, collection: &str, key: &[Value]) -> Option<Extent> {
        self.extent(collection, key, true)
    }

    fn filter(&self, filter: &Filter) -> Option<Extent> {
        let first = self.collections.get(&filter.collection)?.key.first()?;
        let mut of_it = filter.conditions.iter().filter(|c| c.column == *first);
        self.extent(&filter.collection, of_it.find_map(Condition::fixed), true)
    }

    fn set(&self, set: &ReadSet) -> Option<Extent> {
        self.extent(&set.collection, set.prefix.iter().take(1), true)
    }

    /// A key that the database generates cannot be another item's.
    fn inserted(&self, collection: &str, fields: &[Field]) -> Option<Extent> {
        let key = &self.collections.get(collection)?.key;
        let given = |name: &String| fields.iter().find(|f| f.name == *name).map(|f| &f.value);
        let begin: Vec<&Value> = key.iter().map_while(given).collect();
        let whole = begin.len() == key.len();
        self.extent(collection, begin, whole)
    }

    fn updated(&self, collection: &str, key: &[Value], fields: &[Field]) -> Option<Extent> {
        let definition = self.collections.get(collection)?;
        // A row whose key changes may become any row.
        if fields.iter().any(|field| definition.key.iter().any(|name| field.name == *name)) {
            return self.extent(collection, [], true);
        }
        self.row(collection, key)
    }
}

#[cfg(test)]
mod tests {
    use besom_core::proposal::{Condition, OnGuardFailed};

    use super::*;

    fn document(id: &str) -> Value {
        Value::Text(id.into())
    }

    fn set_epoch(id: &str) -> Change {
        let fields = vec![Field::new("epoch", Value::Integer(1))];
        Change::Update { collection: "documents".into(), key: vec![document(id)], fields }
    }

    fn nobody_attached(id: &str) -> Guard {
        let conditions = vec![Condition::equal("doc_id", document(id))];
        Guard::Absent(Filter { collection: "attachments".into(), conditions })
    }

    fn detach(id: &str, client: &str) -> Change {
        let key = vec![document(id), document(client)];
        Change::Delete { collection: "attachments".into(), key }
    }

    fn any_attached() -> Guard {
        Guard::Exists(Filter { collection: "attachments".into(), conditions: vec![] })
    }

    fn sizes(items: Vec<(Vec<Guard>, Vec<Change>)>) -> Vec<usize> {
        let proposals: Vec<Proposal> = items
            .into_iter()
            .map(|(guards, changes)| Proposal {
                guards,
                changes,
                on_guard_failed: OnGuardFailed::Retry(0),
                notes: vec![],
            })
            .collect();
        let tenant = Tenant::from("t");
        let works = proposals.iter().enumerate().map(|(entry, proposal)| Work {
            entry,
            tenant: Some(&tenant),
            proposal,
            undo: true,
            rows_max: u32::MAX,
        });
        waves(works.collect(), &besom_product::model::default_collections())
            .iter()
            .map(Vec::len)
            .collect()
    }

    #[test]
    fn items_that_touch_different_rows_are_one_wave() {
        let item = |id: &str| (vec![nobody_attached(id)], vec![set_epoch(id), detach(id, "c")]);
        assert_eq!(sizes(vec![item("a"), item("b"), item("c")]), [3]);
    }

    #[test]
    fn an_item_that_reads_what_an_earlier_one_wrote_begins_a_wave() {
        for (first, second, expected) in [
            ((vec![], vec![set_epoch("a")]), (vec![], vec![set_epoch("a")]), vec![1, 1]),
            ((vec![], vec![detach("a", "c")]), (vec![nobody_attached("a")], vec![]), vec![1, 1]),
            ((vec![], vec![detach("a", "c")]), (vec![nobody_attached("b")], vec![]), vec![2]),
            ((vec![], vec![detach("a", "c")]), (vec![any_attached()], vec![]), vec![1, 1]),
            // The guards of a wave come before its changes.
            ((vec![nobody_attached("a")], vec![]), (vec![], vec![detach("a", "c")]), vec![2]),
            ((vec![], vec![detach("a", "c")]), (vec![], vec![detach("a", "d")]), vec![2]),
        ] {
            assert_eq!(sizes(vec![first, second]), expected);
        }
    }
}
