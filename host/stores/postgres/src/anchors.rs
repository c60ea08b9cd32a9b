//! Anchors: the rows that are locked from the guards to the commit.
//!
//! Every row that a guard depends on and every row that a change names by its key is locked before
//! anything is judged or changed: table by table, and row by row in the order of the keys, for all
//! waves of a batch at once. Two commits that need the same rows therefore wait for each other in
//! one order, and never deadlock.
//!
//! The statement that locks a row also judges a guard's conditions on *that row's own columns*, and
//! reads the row for the before-image. At READ COMMITTED, a statement that had to wait for a row
//! recomputes everything it selects of it from the version that it finally locked, so both apply to
//! the locked row. That holds for the locked row only: a guard's conditions on other rows are left
//! to a later statement.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use besom_core::proposal::{Change, Guard};
use besom_core::value::Value;
use tokio_postgres::Row;

use super::conditions::Conditions;
use super::error::Job;
use super::guards::matched;
use super::mapping::{Mapping, Refusal, Table};
use super::session::Pipeline;
use super::set::Set;
use super::values::{Cell, Wire};
use super::work::Work;

/// The strength of a row's lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// The row cannot change; rows that refer to it may still be inserted.
    AsItIs,
    /// Inserts of rows that refer to it wait as well, and pending ones are waited for.
    Alone,
}

/// The rows to lock, by table and collection.
#[derive(Default)]
pub(super) struct Anchors {
    collections: BTreeMap<(String, String), Rows>,
}

/// The rows of one collection.
struct Rows {
    table: Arc<Table>,
    hold: Hold,
    /// The conditions on its rows, by their text.
    shapes: BTreeMap<String, Conditions>,
    rows: Vec<Wanted>,
}

/// A row, and what it is needed for.
struct Wanted {
    key: Vec<Cell>,
    /// The guard that depends on it, by number.
    guard: Option<usize>,
    /// The guard's condition on it: the shape, and the values.
    asked: Option<(String, Vec<Cell>)>,
    /// The entry that needs its before-image.
    image: Option<usize>,
}

/// The positions of the answers.
pub(super) struct Asked {
    collections: Vec<Answers>,
}

struct Answers {
    place: usize,
    table: Arc<Table>,
    /// For each row: its guard, whether the guard is judged here, and the entry that needs the row.
    rows: Vec<(Option<usize>, bool, Option<usize>)>,
}

/// The results of the locks.
#[derive(Default)]
pub(super) struct Held {
    /// Guards whose row exists and is locked.
    pub(super) locked: HashSet<usize>,
    /// Guards on a row's own columns that hold.
    pub(super) holding: HashSet<usize>,
    /// Locked rows, by the entry whose first change applies to them.
    pub(super) images: Images,
}

/// Rows as they were when locked, by the entry whose first change applies to them.
pub(super) type Images = HashMap<usize, Vec<Value>>;

impl Anchors {
    /// Adds a row to lock; `guard` depends on it.
    pub(super) fn row(
        &mut self,
        table: &Arc<Table>,
        guard: Option<usize>,
        key: Vec<Cell>,
        hold: Hold,
    ) {
        self.add(table, Wanted { key, guard, asked: None, image: None }, hold);
    }

    /// Adds a row with a guard's condition; `image` is the entry that needs its before-image.
    pub(super) fn judged(
        &mut self,
        table: &Arc<Table>,
        guard: usize,
        key: Vec<Cell>,
        mut conditions: Conditions,
        image: Option<usize>,
    ) {
        let cells = std::mem::take(&mut conditions.cells);
        let shape = conditions.sql(|place| place.to_string());
        let asked = Some((shape.clone(), cells));
        let wanted = Wanted { key, guard: Some(guard), asked, image };
        self.add(table, wanted, Hold::AsItIs).shapes.entry(shape).or_insert(conditions);
    }

    /// Adds the rows that a work changes, except those that its own guards look at: they have been
    /// added already.
    pub(super) fn changed(&mut self, mapping: &Mapping, work: &Work<'_>) -> Result<(), Refusal> {
        for change in &work.proposal.changes {
            let (collection, key, hold) = match change {
                Change::Update { collection, key, .. }
                | Change::Increment { collection, key, .. } => (collection, key, Hold::AsItIs),
                Change::Delete { collection, key } => (collection, key, Hold::Alone),
                Change::Insert { .. }
                | Change::Upsert { .. }
                | Change::DeleteReadSet(_)
                | Change::DeleteRange(_)
                | Change::UpdateRange { .. }
                | Change::MoveRange { .. }
                | Change::Restore(_)
                | Change::Emit { .. } => continue,
            };
            let known = hold == Hold::AsItIs
                && work.proposal.guards.iter().any(
                    |guard| matches!(guard, Guard::Columns { collection: c, key: k, .. } if c == collection && k == key),
                );
            if known {
                continue;
            }
            let table = mapping.table(collection)?;
            let image = wanted_image(work, collection, key);
            let key = table.key_cells(work.tenant, key)?;
            self.add(table, Wanted { key, guard: None, asked: None, image }, hold);
        }
        Ok(())
    }

    fn add(&mut self, table: &Arc<Table>, wanted: Wanted, hold: Hold) -> &mut Rows {
        let place = (table.name.clone(), table.collection.name.clone());
        let rows = self.collections.entry(place).or_insert_with(|| Rows {
            table: Arc::clone(table),
            hold: Hold::AsItIs,
            shapes: BTreeMap::new(),
            rows: Vec::new(),
        });
        rows.hold = rows.hold.max(hold);
        rows.rows.push(wanted);
        rows
    }

    /// Sends the locks: one statement per collection.
    pub(super) fn send(self, pipeline: &mut Pipeline<'_>) -> Asked {
        let rows = self.collections.into_values();
        Asked { collections: rows.filter_map(|rows| rows.send(pipeline)).collect() }
    }
}

/// The entry of a work whose first change applies to that row and needs its before-image. The images
/// of several rows of a collection are read together, with their change.
pub(super) fn wanted_image(work: &Work<'_>, collection: &str, key: &[Value]) -> Option<usize> {
    let updated = |change| match change {
        &Change::Update { collection: ref c, key: ref k, .. }
        | &Change::Increment { collection: ref c, key: ref k, .. }
            if c == collection =>
        {
            Some(k)
        }
        _ => None,
    };
    let mut changes = work.proposal.changes.iter().filter(|c| !matches!(c, Change::Emit { .. }));
    let first = work.undo && changes.next().and_then(updated)? == key;
    (first && changes.all(|change| updated(change).is_none())).then_some(work.entry)
}

impl Rows {
    /// Rows are locked in the order of their keys. FOR NO KEY UPDATE keeps a row from changing and
    /// lets others insert rows that refer to it; an absence, and a row to be deleted, need those
    /// inserts to wait.
    fn send(mut self, pipeline: &mut Pipeline<'_>) -> Option<Answers> {
        // The cells of a key exist, so its columns do.
        let key = self.table.key_columns().ok()?;
        let mut wires: Vec<Wire> = key.iter().map(|(_, form)| form.wire).collect();
        // The shape that a row is judged by, if there are several.
        let chosen = (self.shapes.len() > 1).then(|| {
            wires.push(Wire::Integer);
            wires.len() - 1
        });
        let (mut verdicts, mut places) = (Vec::new(), BTreeMap::new());
        for (at, (shape, conditions)) in self.shapes.iter().enumerate() {
            let first = wires.len();
            places.insert(shape.as_str(), (at, first));
            wires.extend(conditions.wires.iter().copied());
            let sql = conditions.sql(|place| format!("u.v{}", first + place));
            verdicts.push(format!("(true{sql})"));
        }
        let verdict = match (verdicts.as_slice(), chosen) {
            ([], _) => "NULL::bool".to_owned(),
            ([alone], _) => alone.clone(),
            (several, chosen) => {
                let when = |(at, sql): (usize, &String)| format!(" WHEN {at} THEN {sql}");
                let whens: String = several.iter().enumerate().map(when).collect();
                format!("CASE u.v{}{whens} END", chosen.unwrap_or_default())
            }
        };
        // Several guards may look at the same row, and most rows may have only guards.
        let mut imaged = HashSet::new();
        for row in &mut self.rows {
            row.image = row.image.filter(|entry| imaged.insert(*entry));
        }
        let some = !imaged.is_empty() && imaged.len() < self.rows.len();
        let flag = some.then(|| {
            wires.push(Wire::Bool);
            wires.len() - 1
        });
        let read = match flag {
            Some(flag) => {
                let read = |kept| format!(", CASE WHEN u.v{flag} THEN {kept} END");
                self.table.whole.sql().into_iter().map(read).collect()
            }
            None if imaged.is_empty() => String::new(),
            None => format!(", {}", self.table.whole.sql().join(", ")),
        };
        let width = wires.len();
        let mut set = Set::new(wires);
        let mut rows = Vec::with_capacity(self.rows.len());
        for (at, wanted) in self.rows.into_iter().enumerate() {
            rows.push((wanted.guard, wanted.asked.is_some(), wanted.image));
            let mut cells = wanted.key;
            cells.resize(width, Cell::Null);
            if let Some(flag) = flag {
                cells[flag] = Cell::Bool(wanted.image.is_some());
            }
            if let Some((shape, values)) = wanted.asked
                && let Some((number, first)) = places.get(shape.as_str())
            {
                if let Some(chosen) = chosen {
                    cells[chosen] = Cell::Integer(*number as i64);
                }
                for (place, value) in values.into_iter().enumerate() {
                    cells[first + place] = value;
                }
            }
            set.push(at, cells);
        }
        let order: Vec<_> = key.iter().map(|(name, _)| format!("t.{name}")).collect();
        let strength = match self.hold {
            Hold::AsItIs => "NO KEY UPDATE",
            Hold::Alone => "UPDATE",
        };
        let sql = format!(
            "SELECT u.i, {verdict}{read} FROM {} JOIN {} t ON {} ORDER BY {} FOR {strength} OF t",
            set.sql(1),
            self.table.name,
            matched(&key),
            order.join(", ")
        );
        let place = pipeline.push(sql, set.params());
        Some(Answers { place, table: self.table, rows })
    }
}

impl Asked {
    /// Reads the answers, and frees the rows.
    pub(super) fn read(&self, answers: &mut [Vec<Row>]) -> Job<Held> {
        let mut held = Held::default();
        for collection in &self.collections {
            for row in std::mem::take(&mut answers[collection.place]) {
                let at = row.try_get::<_, i32>(0)? as usize;
                let (guard, judged, image) = collection.rows[at];
                if let Some(guard) = guard {
                    held.locked.insert(guard);
                    // A comparison with NULL does not hold.
                    if judged && row.try_get::<_, Option<bool>>(1)? == Some(true) {
                        held.holding.insert(guard);
                    }
                }
                if let Some(entry) = image {
                    held.images.insert(entry, collection.table.whole.values(&row, 2)?);
                }
            }
        }
        Ok(held)
    }
}
