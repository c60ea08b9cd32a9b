//! Applies the plainest works in one statement: guard, change and before-image.
//!
//! Most items change one row by its key, and their guards depend only on that row. For these, the
//! statement that finds the row also judges it, reads it for the before-image, and changes or
//! deletes it; the general path needs a lock, an answer and a second statement.
//!
//! This is as safe as the lock: the row is read at the statement's snapshot and changed only if it
//! is still the same version. At READ COMMITTED, a statement that had to wait for another
//! transaction's change evaluates the newer version, finds a different `xmin`, and leaves the row
//! unchanged. (`ctid` alone is not sufficient: servers before the minor releases of November 2025
//! do not check it again.) Everything left unchanged takes the general path, which finds the
//! reason: a guard that does not hold, a missing row, a column that is null.
//!
//! Rows are changed in the order of their keys, like locks. A batch takes this path only as a whole
//! and with one statement per table; otherwise that order would be lost.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::proposal::{Change, Comparison, Condition, Guard, Test};
use besom_core::value::{Field, Value};
use tokio_postgres::Row;

use super::conditions::{Conditions, cell};
use super::effects::{Operation, assigned};
use super::error::Job;
use super::guards::matched;
use super::mapping::{Mapping, Table};
use super::session::Pipeline;
use super::set::Set;
use super::values::{Cell, Wire};
use super::work::Work;
use besom_ports::store::Left;
use besom_record::images::Images;
use besom_record::increased;

/// The statements sent, and the positions of their answers.
pub(super) struct Asked {
    tables: Vec<Answers>,
}

struct Answers {
    place: usize,
    table: Arc<Table>,
    /// The work of each row.
    rows: Vec<usize>,
}

/// Sends a batch of one wave, if all its works qualify.
pub(super) fn ask(
    pipeline: &mut Pipeline<'_>,
    mapping: &Mapping,
    waves: &[Vec<Work<'_>>],
    idle: &dyn Fn(&Work<'_>, &str) -> bool,
) -> Option<Asked> {
    let [works] = waves else { return None };
    let mut tables: BTreeMap<&str, Together> = BTreeMap::new();
    for (at, work) in works.iter().enumerate() {
        let plain = Plain::of(work, idle)?;
        let table = mapping.table(plain.collection).ok()?;
        // For a view or a partitioned table, `ctid` does not identify a row.
        if table.found.as_ref()?.kind != "r" {
            return None;
        }
        let together = match tables.entry(&table.name) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Together::new(table, work, &plain)?)
            }
        };
        together.add(at, work, &plain)?;
    }
    Some(Asked { tables: tables.into_values().map(|together| together.send(pipeline)).collect() })
}

/// A work that changes one row and depends on no other.
struct Plain<'w> {
    collection: &'w str,
    key: &'w [Value],
    /// The columns that are set; none if the row is deleted.
    fields: &'w [Field],
    operation: Operation,
    /// The conditions of all its guards on the row.
    conditions: Vec<&'w Condition>,
}

impl<'w> Plain<'w> {
    fn of(work: &Work<'w>, idle: &dyn Fn(&Work<'_>, &str) -> bool) -> Option<Plain<'w>> {
        let proposal = work.proposal;
        let mut changes =
            proposal.changes.iter().filter(|change| !matches!(change, Change::Emit { .. }));
        let (collection, key, fields, operation) = match (changes.next()?, changes.next()) {
            (Change::Update { collection, key, fields }, None) => {
                (collection, key, &fields[..], Operation::Update)
            }
            (Change::Increment { collection, key, fields }, None) => {
                (collection, key, &fields[..], Operation::Increment)
            }
            (Change::Delete { collection, key }, None) => {
                (collection, key, &[][..], Operation::Delete)
            }
            _ => return None,
        };
        let mut all = Vec::new();
        for guard in &proposal.guards {
            match guard {
                Guard::Columns { collection: c, key: k, conditions }
                    if c == collection && k == key =>
                {
                    all.extend(conditions);
                }
                Guard::Idle(key) if idle(work, key) => {}
                _ => return None,
            }
        }
        Some(Plain { collection, key, fields, operation, conditions: all })
    }
}

/// The works of one table: they set the same columns and have the same conditions.
struct Together {
    table: Arc<Table>,
    undo: bool,
    operation: Operation,
    fields: Vec<String>,
    questions: Vec<Question>,
    /// The conditions as SQL over the alias `t`.
    asked: String,
    /// The columns of the set: the key, then the conditions, then the fields.
    wires: Vec<Wire>,
    /// The rows of the set, with the work of each.
    rows: Vec<(Vec<Cell>, usize)>,
}

/// The shape of a comparison with a value, without the value.
type Question = (String, Comparison, bool);

/// The question and its value; `None` for another test, whose shape is not compared.
fn question(condition: &Condition) -> Option<(Question, &Value)> {
    match &condition.test {
        Test::Value(comparison, value) => {
            Some(((condition.column.clone(), *comparison, *value == Value::Null), value))
        }
        _ => None,
    }
}

impl Together {
    /// The group with the shape of its first work.
    fn new(table: &Arc<Table>, work: &Work<'_>, plain: &Plain<'_>) -> Option<Together> {
        let fields: Vec<String> = plain.fields.iter().map(|field| field.name.to_string()).collect();
        match plain.operation {
            // A trigger that keeps the row, and rows that go with it, are seen step by step.
            Operation::Delete if !table.is_plain() => return None,
            Operation::Delete => {}
            _ if fields.is_empty() => return None,
            _ => {}
        }
        // A row whose key changes has no place in the order.
        if fields.iter().any(|name| table.collection.key.contains(name)) {
            return None;
        }
        let mut wires: Vec<Wire> =
            table.key_columns().ok()?.iter().map(|(_, form)| form.wire).collect();
        let questions: Option<Vec<_>> = plain.conditions.iter().map(|c| question(c)).collect();
        let questions = questions?.into_iter().map(|(question, _)| question).collect();
        let conditions = Conditions::of(table, plain.conditions.iter().copied()).ok()?;
        let first = wires.len();
        let asked = conditions.sql(|place| format!("u.v{}", first + place));
        wires.extend(conditions.wires);
        for name in &fields {
            wires.push(table.form(name).ok()?.wire);
        }
        Some(Together {
            table: Arc::clone(table),
            undo: work.undo,
            operation: plain.operation,
            fields,
            questions,
            asked,
            wires,
            rows: Vec::new(),
        })
    }

    /// Adds a work if it has the same shape and can be encoded.
    fn add(&mut self, at: usize, work: &Work<'_>, plain: &Plain<'_>) -> Option<()> {
        let table = &self.table;
        let same = table.collection.name == plain.collection
            && self.undo == work.undo
            && self.operation == plain.operation
            && self.fields.iter().eq(plain.fields.iter().map(|field| &field.name))
            && self.questions.len() == plain.conditions.len();
        if !same {
            return None;
        }
        let mut cells = table.key_cells(work.tenant, plain.key).ok()?;
        for (asked, condition) in self.questions.iter().zip(&plain.conditions) {
            let (asks, value) = question(condition)?;
            if asks != *asked {
                return None;
            }
            let (column, comparison, _) = asked;
            cells.extend(cell(table, column, *comparison, value).ok()?);
        }
        for field in plain.fields {
            if self.operation == Operation::Increment && !matches!(field.value, Value::Integer(_)) {
                return None;
            }
            cells.push(table.written(&field.name, &field.value).ok()?);
        }
        self.rows.push((cells, at));
        Some(())
    }

    fn send(mut self, pipeline: &mut Pipeline<'_>) -> Answers {
        let table = &self.table;
        let key = table.key_columns().unwrap_or_default();
        // Only the database knows the order of texts.
        let known = self.wires[..key.len()].iter().all(|wire| *wire != Wire::Text);
        if known {
            self.rows.sort_by(|(a, _), (b, _)| {
                a[..key.len()]
                    .iter()
                    .zip(&b[..key.len()])
                    .map(|(a, b)| in_order(a, b))
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            });
        }
        let mut set = Set::new(self.wires.clone());
        let mut works = Vec::with_capacity(self.rows.len());
        for (at, (cells, work)) in self.rows.into_iter().enumerate() {
            set.push(at, cells);
            works.push(work);
        }

        let first = self.wires.len() - self.fields.len();
        let increment = self.operation == Operation::Increment;
        let (assignments, complete) = assigned(table, &self.fields, first, increment, ["t", "w"]);
        let conditions = matched(&key) + &self.asked + &complete;
        let images: Vec<String> = match self.undo {
            true => table.whole.sql(),
            false => Vec::new(),
        };
        let (name, rows) = (&table.name, set.sql(1));
        let returned: String = images.iter().map(|image| format!(", {image}")).collect();
        let order: Vec<_> = key.iter().map(|(name, _)| format!("t.{name}")).collect();
        let order = order.join(", ");
        let deletes = self.operation == Operation::Delete;
        let sql = if deletes && known {
            // It returns the version that it has deleted, for which the conditions hold: if it had to wait, the newer.
            format!("DELETE FROM {name} t USING {rows} WHERE {conditions} RETURNING u.i{returned}")
        } else if deletes {
            format!(
                "DELETE FROM {name} t USING (
                   SELECT u.i, t.tableoid AS part, t.ctid AS place, t.xmin AS version
                   FROM {rows} JOIN {name} t ON {conditions} ORDER BY {order}) u
                 WHERE t.ctid = u.place AND t.xmin = u.version AND t.tableoid = u.part
                 RETURNING u.i{returned}"
            )
        } else if known {
            format!(
                "UPDATE {name} w SET {assignments} FROM {rows} JOIN {name} t ON {conditions}
                 WHERE w.ctid = t.ctid AND w.xmin = t.xmin AND w.tableoid = t.tableoid
                 RETURNING u.i{returned}"
            )
        } else {
            let each = || images.iter().enumerate();
            let read: String = each().map(|(at, image)| format!(", {image} AS r{at}")).collect();
            let returned: String = each().map(|(at, _)| format!(", u.r{at}")).collect();
            format!(
                "UPDATE {name} w SET {assignments} FROM (
                   SELECT u.*, t.tableoid AS part, t.ctid AS place, t.xmin AS version{read}
                   FROM {rows} JOIN {name} t ON {conditions} ORDER BY {order}) u
                 WHERE w.ctid = u.place AND w.xmin = u.version AND w.tableoid = u.part
                 RETURNING u.i{returned}"
            )
        };
        let place = pipeline.push(sql, set.params());
        Answers { place, table: self.table, rows: works }
    }
}

/// How a work leaves its row, which had these values.
fn left(work: &Work<'_>, table: &Table, values: &[Value]) -> Left {
    let left = |change: &Change| match change {
        Change::Update { fields, .. } => Some(Left::Set(fields.to_vec())),
        Change::Increment { fields, .. } => {
            let names: Vec<&str> = table.whole.names().map(|(name, _)| name).collect();
            Some(Left::Set(increased(fields, &names, values)))
        }
        _ => None,
    };
    work.proposal.changes.iter().find_map(left).unwrap_or(Left::Gone)
}

/// The database's order of two key values, none of them a text.
fn in_order(a: &Cell, b: &Cell) -> Ordering {
    match (a, b) {
        (Cell::Integer(a), Cell::Integer(b)) | (Cell::Instant(a), Cell::Instant(b)) => a.cmp(b),
        (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
        (Cell::Float(a), Cell::Float(b)) => a.total_cmp(b),
        (Cell::Bytes(a), Cell::Bytes(b)) => a.cmp(b),
        (Cell::Uuid(a), Cell::Uuid(b)) => a.cmp(b),
        // A comparison with NULL finds no row.
        _ => Ordering::Equal,
    }
}

impl Asked {
    /// The finished entries, with their before-images if these are kept.
    pub(super) fn read(
        &self,
        answers: &mut [Vec<Row>],
        works: &[Work<'_>],
    ) -> Job<Vec<(usize, Option<Images>)>> {
        let mut done = Vec::with_capacity(works.len());
        for Answers { place, table, rows } in &self.tables {
            for row in std::mem::take(&mut answers[*place]) {
                let work = &works[rows[row.try_get::<_, i32>(0)? as usize]];
                let mut images = work.undo.then(Images::default);
                if let Some(images) = &mut images {
                    let values = table.whole.values(&row, 1)?;
                    let left = left(work, table, &values);
                    images.push(table.origin(work.tenant), &left, table.whole.names(), &values)?;
                }
                done.push((work.entry, images));
            }
        }
        Ok(done)
    }
}
