//! Applies the changes of many items in a few statements, and reads the before-images.
//!
//! The changes of an item take effect in their order: each has a level, and a level is applied
//! before the next. Changes of one level and one shape (the same operation on the same columns of a
//! table) form one statement, whichever items they belong to.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::brake::Dependants;
use besom_core::proposal::{Change, Fate, Guard, ReadSet, RowRange};
use besom_core::value::{Field, Value};
use tokio_postgres::Row;

use super::anchors;
use super::error::Job;
use super::guards::matched;
use super::mapping::{Mapping, Refusal, Table, quote};
use super::range_change::{self, Statement};
use super::readset;
use super::session::{Param, Pipeline};
use super::set::Set;
use super::together::{FOUND, INSERTED, LOCKED, Together};
use super::values::{Cell, Form};
use super::work::Work;
use besom_ports::store::Left;
use besom_record::images::Images;
use besom_record::{increased, kept, no_sum};

/// Maximum number of rows of one item that one statement changes.
const ROWS_MAX: usize = 1_024;

/// The result of an item's changes.
pub(super) enum Effect {
    /// The changes are applied.
    Done(Done),
    /// The changes cannot be applied, for this reason; the wave must be undone.
    Violated(String),
    /// Something in the wave cannot be applied, possibly this item; the wave must be undone.
    Unclear,
    /// A row that did not exist when it was read for its image existed when it was written; the
    /// wave must be undone.
    Overtaken,
    /// A guard on the number of deleted rows does not hold; the wave must be undone.
    Incomplete,
    /// The database has kept a row whose dependants are gone; the wave must be undone.
    Kept(String),
}

/// What is known of changes that were applied.
#[derive(Default)]
pub(super) struct Done {
    /// The before-images, if they are kept.
    pub(super) images: Option<Images>,
    /// The number of rows that were changed.
    pub(super) rows: u64,
    /// Those of them that were deleted as dependants of others.
    pub(super) dependants: Dependants,
    /// Why rows of a range were left as they were.
    pub(super) said: Option<String>,
    /// Whether foreign keys keep all of these rows.
    pub(super) keep: bool,
}

/// Operations on rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Operation {
    Insert,
    Upsert,
    Update,
    Increment,
    Delete,
}

/// Changes of one level and shape.
struct Group {
    table: Arc<Table>,
    operation: Operation,
    /// The columns that are set, in order.
    fields: Vec<String>,
    undo: bool,
    set: Set,
    /// The work of each row, its key if it is known, and the columns that are set.
    rows: Vec<(usize, Option<Vec<Value>>, Vec<Field>)>,
    /// Before-images that are already known, by row.
    given: BTreeMap<usize, Vec<Value>>,
    /// The positions of the answers: of the before-images, and of the change itself.
    before: Option<usize>,
    done: usize,
}

/// A read set or a range to delete, or a range to update: a statement of its own.
struct Single {
    table: Arc<Table>,
    work: usize,
    undo: bool,
    /// The number of rows that must exist, if a guard requires it.
    expected: Option<i64>,
    sql: String,
    params: Vec<Param<'static>>,
    /// What else it changes.
    together: Option<Together>,
    /// How it leaves the rows.
    left: Left,
    /// The columns that it adds to; then the last column says whether one of them is null.
    increments: Vec<Field>,
    done: usize,
}

enum Step {
    Group(Group),
    Single(Single),
}

/// Changes that were sent, and the positions of their answers.
pub(super) struct Asked {
    steps: Vec<Step>,
    refused: BTreeMap<usize, Refusal>,
}

/// Sends the changes of all works; `held` contains locked rows.
pub(super) fn ask(
    pipeline: &mut Pipeline<'_>,
    mapping: &Mapping,
    works: &[Work<'_>],
    held: anchors::Images,
) -> Asked {
    let mut levels: BTreeMap<(usize, usize, String), Step> = BTreeMap::new();
    let mut refused = BTreeMap::new();
    let mut shapes: BTreeMap<String, usize> = BTreeMap::new();
    for (at, work) in works.iter().enumerate() {
        // The shape of the previous change, and the keys it has touched.
        type Last = (String, Vec<Vec<Value>>);
        let (mut level, mut last): (usize, Option<Last>) = (0, None);
        for change in &work.proposal.changes {
            if matches!(change, Change::Emit { .. }) {
                continue;
            }
            let one = match One::of(mapping, at, work, change) {
                Ok(one) => one,
                Err(refusal) => {
                    refused.insert(at, refusal);
                    break;
                }
            };
            // Rows of one shape with different keys may change together, up to a bound.
            let same = match (&mut last, &one.key) {
                (Some((shape, keys)), Some(key))
                    if *shape == one.shape && keys.len() < ROWS_MAX && !keys.contains(key) =>
                {
                    keys.push(key.clone());
                    true
                }
                _ => false,
            };
            if !same {
                level += usize::from(last.is_some());
                last = Some((one.shape.clone(), one.key.iter().cloned().collect()));
            }
            let seen = shapes.len();
            let order = *shapes.entry(one.shape.clone()).or_insert(seen);
            one.join(&mut levels, (level, order), at);
        }
    }
    let mut steps: Vec<Step> = levels.into_values().collect();
    // Nothing has changed between the locks and the first change, whatever triggers exist.
    if let Some(Step::Group(group)) = steps.first_mut() {
        group.give(works, held);
    }
    for step in &mut steps {
        match step {
            Step::Group(group) => group.send(pipeline),
            Step::Single(single) => {
                let mut params = std::mem::take(&mut single.params);
                for sql in single.together.iter_mut().flat_map(|all| all.before.drain(..)) {
                    pipeline.push(sql, std::mem::take(&mut params));
                }
                single.done = pipeline.push(std::mem::take(&mut single.sql), params);
            }
        }
    }
    Asked { steps, refused }
}

/// One change, before it is grouped with others of its shape.
struct One {
    table: Arc<Table>,
    shape: String,
    key: Option<Vec<Value>>,
    what: What,
}

enum What {
    Rows {
        operation: Operation,
        fields: Vec<String>,
        undo: bool,
        cells: Vec<Cell>,
        forms: Vec<Form>,
        set: Vec<Field>,
    },
    Single(Single),
}

impl One {
    fn of(mapping: &Mapping, at: usize, work: &Work<'_>, change: &Change) -> Result<One, Refusal> {
        match change {
            Change::Insert { collection, fields } => {
                One::insert(mapping.table(collection)?, work, fields, Operation::Insert)
            }
            Change::Upsert { collection, fields } => {
                One::insert(mapping.table(collection)?, work, fields, Operation::Upsert)
            }
            Change::Update { collection, key, fields } => {
                One::keyed(mapping.table(collection)?, work, key, fields, Operation::Update)
            }
            Change::Increment { collection, key, fields } => {
                One::keyed(mapping.table(collection)?, work, key, fields, Operation::Increment)
            }
            Change::Delete { collection, key }
                if !mapping.table(collection)?.collection.dependants.is_empty() =>
            {
                let (collection, rest) = (collection.clone(), vec![key.clone()]);
                let set = ReadSet { collection, prefix: Vec::new(), rest };
                One::set(mapping, at, work, &set, None)
            }
            Change::Delete { collection, key } => {
                One::keyed(mapping.table(collection)?, work, key, &[], Operation::Delete)
            }
            Change::DeleteReadSet(set) => {
                let guarded = |guard: &Guard| match guard {
                    Guard::Complete(whole) => Arc::ptr_eq(whole, set) || whole == set,
                    _ => false,
                };
                let guarded = work.proposal.guards.iter().any(guarded);
                One::set(mapping, at, work, set, guarded.then_some(set.len() as i64))
            }
            Change::DeleteRange(_) | Change::UpdateRange { .. } | Change::MoveRange { .. } => {
                let (range, fate) = change.of_range().ok_or("a change of no range")?;
                One::range(mapping, at, work, range, fate)
            }
            Change::Emit { .. } | Change::Restore(_) => Err("it changes no row here".into()),
        }
    }

    /// Deletes the rows of a set; `expected`: so many of them must exist.
    fn set(
        mapping: &Mapping,
        at: usize,
        work: &Work<'_>,
        set: &ReadSet,
        expected: Option<i64>,
    ) -> Result<One, Refusal> {
        let table = mapping.table(&set.collection)?;
        let readset::Rows { from, on, params, .. } = readset::rows(table, work.tenant, set)?;
        let name = &table.name;
        let (sql, together) = if table.is_plain() {
            let returned = if work.undo { table.whole.sql().join(", ") } else { "1".to_owned() };
            let sql = format!("DELETE FROM {name} t USING {from} WHERE {on} RETURNING {returned}");
            (sql, None)
        } else {
            let held = Together::held(table);
            let held = format!("SELECT {held} FROM {from} JOIN {name} t ON {on} FOR UPDATE OF t");
            let (sql, together) = Together::cascade(mapping, table, &held, (false, work.undo))?;
            (sql, Some(together))
        };
        let single = Single {
            table: Arc::clone(table),
            work: at,
            undo: work.undo,
            expected,
            sql,
            params,
            together,
            left: Left::Gone,
            increments: Vec::new(),
            done: 0,
        };
        let what = What::Single(single);
        Ok(One { table: Arc::clone(table), shape: format!("read set of {at}"), key: None, what })
    }

    fn range(
        mapping: &Mapping,
        at: usize,
        work: &Work<'_>,
        range: &RowRange,
        fate: Fate<'_>,
    ) -> Result<One, Refusal> {
        let Statement { table, sql, params, together } =
            range_change::statement(mapping, work, range, fate)?;
        let single = Single {
            table: Arc::clone(&table),
            work: at,
            undo: work.undo,
            expected: None,
            sql,
            params,
            together,
            left: match fate {
                Fate::Deleted => Left::Gone,
                Fate::Set(fields, _) => Left::Set(fields.to_vec()),
                Fate::Moved(into) => Left::Moved(into.to_owned()),
            },
            increments: match fate {
                Fate::Set(_, increments) => increments.to_vec(),
                Fate::Deleted | Fate::Moved(_) => Vec::new(),
            },
            done: 0,
        };
        Ok(One { table, shape: format!("range of {at}"), key: None, what: What::Single(single) })
    }

    fn insert(
        table: &Arc<Table>,
        work: &Work<'_>,
        fields: &[Field],
        operation: Operation,
    ) -> Result<One, Refusal> {
        let given =
            |name: &String| fields.iter().find(|f| f.name == *name).map(|f| f.value.clone());
        let key: Option<Vec<Value>> = table.collection.key.iter().map(given).collect();
        if operation == Operation::Upsert && key.is_none() {
            let name = &table.collection.name;
            return Err(format!("an upsert into {name:?} needs the whole key"));
        }
        let (mut cells, mut forms, mut names) = (Vec::new(), Vec::new(), Vec::new());
        if let (Some(cell), Some((_, form))) = (table.tenant_cell(work.tenant)?, &table.tenant) {
            cells.push(cell);
            forms.push(form.clone());
        }
        for field in fields {
            cells.push(table.written(&field.name, &field.value)?);
            forms.push(table.form(&field.name)?.clone());
            names.push(field.name.to_string());
        }
        One::new(table, work, operation, (names, fields), key, (cells, forms))
    }

    fn keyed(
        table: &Arc<Table>,
        work: &Work<'_>,
        key: &[Value],
        fields: &[Field],
        operation: Operation,
    ) -> Result<One, Refusal> {
        if fields.is_empty() && operation != Operation::Delete {
            return Err("an update without columns".into());
        }
        let mut cells = table.key_cells(work.tenant, key)?;
        let mut forms: Vec<Form> = table.key_columns()?.into_iter().map(|(_, form)| form).collect();
        let mut names = Vec::new();
        for field in fields {
            if operation == Operation::Increment && !matches!(field.value, Value::Integer(_)) {
                return Err(format!("the increment of {} is not an integer", field.name));
            }
            cells.push(table.written(&field.name, &field.value)?);
            forms.push(table.form(&field.name)?.clone());
            names.push(field.name.to_string());
        }
        One::new(table, work, operation, (names, fields), Some(key.to_vec()), (cells, forms))
    }

    fn new(
        table: &Arc<Table>,
        work: &Work<'_>,
        operation: Operation,
        (fields, set): (Vec<String>, &[Field]),
        key: Option<Vec<Value>>,
        (cells, forms): (Vec<Cell>, Vec<Form>),
    ) -> Result<One, Refusal> {
        let mut shape = format!("{operation:?} {} {fields:?} {}", table.collection.name, work.undo);
        // A row whose key the database completes is returned alone.
        if key.is_none() && work.undo {
            shape = format!("{shape} {}", work.entry);
        }
        let set = if work.undo { set.to_vec() } else { Vec::new() };
        let what = What::Rows { operation, fields, undo: work.undo, cells, forms, set };
        Ok(One { table: Arc::clone(table), shape, key, what })
    }

    fn join(
        self,
        levels: &mut BTreeMap<(usize, usize, String), Step>,
        (level, order): (usize, usize),
        work: usize,
    ) {
        let place = (level, order, self.shape);
        match self.what {
            What::Single(single) => {
                levels.insert(place, Step::Single(single));
            }
            What::Rows { operation, fields, undo, cells, forms, set } => {
                let table = self.table;
                let step = levels.entry(place).or_insert_with(|| {
                    Step::Group(Group {
                        table,
                        operation,
                        fields,
                        undo,
                        set: Set::new(forms.iter().map(|form| form.wire).collect()),
                        rows: Vec::new(),
                        given: BTreeMap::new(),
                        before: None,
                        done: 0,
                    })
                });
                if let Step::Group(group) = step {
                    group.set.push(group.rows.len(), cells);
                    group.rows.push((work, self.key, set));
                }
            }
        }
    }
}

impl Group {
    /// Uses locked rows as before-images if all of them are available.
    fn give(&mut self, works: &[Work<'_>], mut held: anchors::Images) {
        let updates = matches!(self.operation, Operation::Update | Operation::Increment);
        // One row per work: the one that its first change applies to.
        let one_each = self.rows.windows(2).all(|pair| pair[0].0 != pair[1].0);
        if !(self.undo && updates && one_each) {
            return;
        }
        let image = |work: &usize| held.remove(&works[*work].entry);
        let images: Option<Vec<_>> = self.rows.iter().map(|(work, ..)| work).map(image).collect();
        self.given = images.into_iter().flatten().enumerate().collect();
    }

    fn send(&mut self, pipeline: &mut Pipeline<'_>) {
        let Ok(key) = self.table.key_columns() else { return };
        let reads_before =
            matches!(self.operation, Operation::Update | Operation::Increment | Operation::Upsert);
        if self.undo && reads_before && self.given.is_empty() {
            self.before = Some(self.send_before(pipeline, &key));
        }
        let set = std::mem::take(&mut self.set);
        let sql = match self.operation {
            Operation::Insert | Operation::Upsert => self.insert_sql(&set),
            Operation::Update | Operation::Increment => self.update_sql(&set, &key),
            Operation::Delete => {
                let images = match self.undo {
                    true => self.table.whole.sql().join(", "),
                    false => "1".to_owned(),
                };
                format!(
                    "DELETE FROM {} t USING {} WHERE {} RETURNING u.i, {images}",
                    self.table.name,
                    set.sql(1),
                    matched(&key)
                )
            }
        };
        self.done = pipeline.push(sql, set.params());
    }

    /// Sends the read of the before-images, which locks the rows until they are changed.
    fn send_before(&self, pipeline: &mut Pipeline<'_>, key: &[(String, Form)]) -> usize {
        let mut keys = Set::new(key.iter().map(|(_, form)| form.wire).collect());
        for (at, cells) in self.set.rows().enumerate() {
            keys.push(at, self.key_of(cells));
        }
        let sql = format!(
            "SELECT u.i, {} FROM {} JOIN {} t ON {} FOR NO KEY UPDATE OF t",
            self.table.whole.sql().join(", "),
            keys.sql(1),
            self.table.name,
            matched(key)
        );
        pipeline.push(sql, keys.params())
    }

    /// The tenant and the key among the cells of a row.
    fn key_of(&self, cells: Vec<Cell>) -> Vec<Cell> {
        let tenants = usize::from(self.table.tenant.is_some());
        if self.operation != Operation::Upsert {
            return cells.into_iter().take(tenants + self.table.collection.key.len()).collect();
        }
        let of = |name: &String| {
            let at = self.fields.iter().position(|field| field == name);
            at.and_then(|at| cells.get(tenants + at)).cloned().unwrap_or(Cell::Null)
        };
        let tenant = cells.first().cloned().into_iter().take(tenants);
        tenant.chain(self.table.collection.key.iter().map(of)).collect()
    }

    fn insert_sql(&self, set: &Set) -> String {
        let table = &self.table;
        let tenant = table.tenant.iter().map(|(name, form)| (name.clone(), form));
        let fields =
            self.fields.iter().filter_map(|name| Some((quote(name), table.form(name).ok()?)));
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (at, (name, form)) in tenant.chain(fields).enumerate() {
            names.push(name);
            values.push(form.meets(&format!("u.v{at}")));
        }
        let conflict = match self.operation {
            Operation::Upsert => self.on_conflict(),
            _ => String::new(),
        };
        let keys = table.collection.key.iter();
        let key = keys.filter_map(|k| Some(table.form(k).ok()?.read(&format!("t.{}", quote(k)))));
        let returned: Vec<String> = std::iter::once("t.xmax = 0".to_owned()).chain(key).collect();
        format!(
            "INSERT INTO {} AS t ({}) SELECT {} FROM {} ORDER BY u.i{conflict} RETURNING {}",
            table.name,
            names.join(", "),
            values.join(", "),
            set.sql(1),
            returned.join(", ")
        )
    }

    fn on_conflict(&self) -> String {
        let table = &self.table;
        let mut target: Vec<String> = table.tenant.iter().map(|(name, _)| name.clone()).collect();
        target.extend(table.collection.key.iter().map(|k| quote(k)));
        let mut set: Vec<String> = self
            .fields
            .iter()
            .filter(|name| !table.collection.key.contains(name))
            .map(|name| format!("{0} = excluded.{0}", quote(name)))
            .collect();
        if set.is_empty() {
            // At least one column has to be set for the row to be returned and locked.
            set.extend(target.last().map(|name| format!("{name} = excluded.{name}")));
        }
        format!(" ON CONFLICT ({}) DO UPDATE SET {}", target.join(", "), set.join(", "))
    }

    fn update_sql(&self, set: &Set, key: &[(String, Form)]) -> String {
        let increment = self.operation == Operation::Increment;
        let (assignments, conditions) =
            assigned(&self.table, &self.fields, key.len(), increment, ["t", "t"]);
        format!(
            "UPDATE {} t SET {assignments} FROM {} WHERE {}{conditions} RETURNING u.i",
            self.table.name,
            set.sql(1),
            matched(key),
        )
    }

    /// Reads the answers: before-images, and the violated works.
    fn read(&mut self, answers: &mut [Vec<Row>], results: &mut Results<'_>) -> Job<()> {
        let done = std::mem::take(&mut answers[self.done]);
        match self.operation {
            Operation::Insert => {
                self.rows.iter().for_each(|(work, ..)| results.changed(*work, 1));
                self.all_inserted(&done, results);
                for (at, (work, key, set)) in self.rows.iter().enumerate() {
                    if !self.undo {
                        break;
                    }
                    let key = match (key, done.get(at)) {
                        (Some(key), _) => key.clone(),
                        (None, Some(row)) => self.returned_key(row)?,
                        (None, None) => continue,
                    };
                    results.keep(*work, &self.table, &Left::Set(set.clone()), Err(key))?;
                }
            }
            Operation::Upsert => {
                self.rows.iter().for_each(|(work, ..)| results.changed(*work, 1));
                self.all_inserted(&done, results);
                let mut before = self.images(answers)?;
                for (at, (work, key, set)) in self.rows.iter().enumerate().filter(|_| self.undo) {
                    let key = key.clone().unwrap_or_default();
                    let row = before.remove(&at);
                    let inserted = done.get(at).map(|row| row.try_get::<_, bool>(0)).transpose()?;
                    if row.is_none() && inserted == Some(false) {
                        results.effects[*work] = Effect::Overtaken;
                    }
                    results.keep(*work, &self.table, &Left::Set(set.clone()), row.ok_or(key))?;
                }
            }
            Operation::Update | Operation::Increment => {
                let hit = self.counted(&done)?;
                let mut before = self.images(answers)?;
                let name = &self.table.collection.name;
                let or = match self.operation {
                    Operation::Increment => ", or its column is null or would overflow 64 bits",
                    _ => "",
                };
                for (at, (work, _, set)) in self.rows.iter().enumerate() {
                    results.changed(*work, hit[at]);
                    if hit[at] > 1 {
                        results.violated(*work, self.table.collection.ambiguous());
                    }
                    if hit[at] == 0 {
                        let said = format!("{name:?} has no such row to update{or}");
                        results.violated(*work, said);
                    }
                    if let Some(values) = before.remove(&at) {
                        let left = Left::Set(match self.operation {
                            Operation::Increment => {
                                let names = self.table.whole.names();
                                increased(set, &names.map(|(n, _)| n).collect::<Vec<_>>(), &values)
                            }
                            _ => set.clone(),
                        });
                        results.keep(*work, &self.table, &left, Ok(values))?;
                    }
                }
            }
            Operation::Delete => {
                let gone = self.counted(&done)?;
                let mut images: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
                for row in done.into_iter().filter(|_| self.undo) {
                    let at = row.try_get::<_, i32>(0)? as usize;
                    images.insert(at, self.table.whole.values(&row, 1)?);
                }
                let name = &self.table.collection.name;
                for ((work, ..), gone) in self.rows.iter().zip(&gone) {
                    results.changed(*work, *gone);
                    if *gone > 1 {
                        results.violated(*work, self.table.collection.ambiguous());
                    }
                    if *gone == 0 && results.works[*work].proposal.deletes_a_seen_row() {
                        results.violated(*work, kept(name));
                    }
                }
                for (at, values) in images {
                    results.keep(self.rows[at].0, &self.table, &Left::Gone, Ok(values))?;
                }
            }
        }
        Ok(())
    }

    /// How many rows of the answer belong to each row of the set.
    fn counted(&self, done: &[Row]) -> Job<Vec<usize>> {
        let mut counts = vec![0; self.rows.len()];
        for row in done {
            counts[row.try_get::<_, i32>(0)? as usize] += 1;
        }
        Ok(counts)
    }

    /// A trigger may prevent inserts; the answer does not show which.
    fn all_inserted(&self, done: &[Row], results: &mut Results<'_>) {
        if done.len() == self.rows.len() {
            return;
        }
        for (work, ..) in &self.rows {
            if self.rows.len() == 1 {
                results.violated(*work, "the row was not inserted".into());
            } else {
                results.effects[*work] = Effect::Unclear;
            }
        }
    }

    fn images(&mut self, answers: &mut [Vec<Row>]) -> Job<BTreeMap<usize, Vec<Value>>> {
        let mut images = std::mem::take(&mut self.given);
        if let Some(place) = self.before {
            for row in std::mem::take(&mut answers[place]) {
                let at = row.try_get::<_, i32>(0)? as usize;
                images.insert(at, self.table.whole.values(&row, 1)?);
            }
        }
        Ok(images)
    }

    fn returned_key(&self, row: &Row) -> Job<Vec<Value>> {
        let names = self.table.collection.key.iter().enumerate();
        let mut key = Vec::with_capacity(self.table.collection.key.len());
        for (at, name) in names {
            if let Ok(form) = self.table.form(name) {
                key.push(form.value_in(row, at + 1)?);
            }
        }
        Ok(key)
    }
}

/// Reads the rows of several tables: the last ones first, as they were deleted.
fn read_together(
    Together { tables, into, .. }: &Together,
    (work, undo, expected): (usize, bool, Option<i64>),
    gone: Vec<Row>,
    results: &mut Results<'_>,
) -> Job<()> {
    let of = |row: Row| Ok((row.try_get::<_, i32>(0)?, row));
    let mut gone = gone.into_iter().map(of).collect::<Job<Vec<_>>>()?;
    gone.sort_by_key(|(table, _)| std::cmp::Reverse(*table));
    let (mut found, mut locked, mut deleted, mut inserted) = (0, 0, 0, 0);
    let left = into.as_ref().map_or(Left::Gone, |into| Left::Moved(into.collection.name.clone()));
    let mut moved = Vec::new();
    for (place, row) in gone {
        match place {
            LOCKED => locked = i64::from(row.try_get::<_, i32>(1)?),
            FOUND => found = i64::from(row.try_get::<_, i32>(1)?),
            INSERTED => inserted = i64::from(row.try_get::<_, i32>(1)?),
            place => {
                let Some(table) = usize::try_from(place).ok().and_then(|at| tables.get(at)) else {
                    continue;
                };
                deleted += 1;
                results.changed(work, 1);
                if place > 0 {
                    results.went_along(work, &table.collection.name);
                }
                if !undo {
                    continue;
                }
                let values = table.whole.values(&row, 2)?;
                if let Some(into) = into {
                    moved.push(table.whole.key(&into.collection, &values));
                }
                results.keep(work, table, &left, Ok(values))?;
            }
        }
    }
    for key in moved {
        let Some(into) = into else { break };
        results.keep(work, into, &Left::Copy, Err(key))?;
    }
    let name = |table: &Table| kept(&table.collection.name);
    match (into, &tables[..]) {
        _ if expected.is_some_and(|expected| expected != found) => {
            results.effects[work] = Effect::Incomplete;
        }
        (_, [table, ..]) if deleted < locked => results.effects[work] = Effect::Kept(name(table)),
        (Some(into), _) if inserted < deleted => {
            let name = &into.collection.name;
            let said =
                format!("a row was not inserted into {name:?}: a trigger or a rule prevents it");
            results.effects[work] = Effect::Kept(said);
        }
        _ => {}
    }
    Ok(())
}

/// The results of the works.
struct Results<'w> {
    works: &'w [Work<'w>],
    effects: Vec<Effect>,
}

impl Results<'_> {
    fn keep(
        &mut self,
        work: usize,
        table: &Table,
        left: &Left,
        row: Result<Vec<Value>, Vec<Value>>,
    ) -> Job<()> {
        if let Effect::Done(Done { images: Some(images), .. }) = &mut self.effects[work] {
            let origin = table.origin(self.works[work].tenant);
            match row {
                Ok(values) => images.push(origin, left, table.whole.names(), &values)?,
                Err(key) => images.push_absent(origin, left, key)?,
            }
        }
        Ok(())
    }

    fn changed(&mut self, work: usize, rows: usize) {
        if let Effect::Done(done) = &mut self.effects[work] {
            done.rows += rows as u64;
        }
    }

    fn went_along(&mut self, work: usize, collection: &str) {
        if let Effect::Done(done) = &mut self.effects[work] {
            match done.dependants.get_mut(collection) {
                Some(rows) => *rows += 1,
                None => drop(done.dependants.insert(collection.to_owned(), 1)),
            }
        }
    }

    fn violated(&mut self, work: usize, said: String) {
        if matches!(self.effects[work], Effect::Done(_)) {
            self.effects[work] = Effect::Violated(said);
        }
    }
}

impl Asked {
    /// Reads the answers, by work, and frees the rows.
    pub(super) fn read(self, answers: &mut [Vec<Row>], works: &[Work<'_>]) -> Job<Vec<Effect>> {
        let nothing =
            |w: &Work<'_>| Done { images: w.undo.then(Images::default), ..Done::default() };
        let effects = works.iter().map(|work| Effect::Done(nothing(work))).collect();
        let mut results = Results { works, effects };
        for (work, refusal) in &self.refused {
            results.violated(*work, refusal.clone());
        }
        for step in self.steps {
            match step {
                Step::Group(mut group) => group.read(answers, &mut results)?,
                Step::Single(Single {
                    work, undo, expected, together: Some(all), done, ..
                }) => {
                    let gone = std::mem::take(&mut answers[done]);
                    read_together(&all, (work, undo, expected), gone, &mut results)?;
                }
                Step::Single(single) => {
                    let gone = std::mem::take(&mut answers[single.done]);
                    if single.expected.is_some_and(|expected| expected != gone.len() as i64) {
                        results.effects[single.work] = Effect::Incomplete;
                    }
                    results.changed(single.work, gone.len());
                    let (mut left, increments) = (single.left, single.increments);
                    let is_added = !increments.is_empty();
                    let set_alone = match &left {
                        Left::Set(fields) => fields.len(),
                        _ => 0,
                    };
                    let names: Vec<&str> = match is_added {
                        true => single.table.whole.names().map(|(name, _)| name).collect(),
                        false => Vec::new(),
                    };
                    for row in gone {
                        if is_added && row.try_get(row.len() - 1)? {
                            results.violated(single.work, no_sum(&single.table.collection.name));
                        }
                        if !single.undo {
                            continue;
                        }
                        let values = single.table.whole.values(&row, 0)?;
                        if let (Left::Set(fields), true) = (&mut left, is_added) {
                            fields.truncate(set_alone);
                            fields.extend(increased(&increments, &names, &values));
                        }
                        results.keep(single.work, &single.table, &left, Ok(values))?;
                    }
                }
            }
        }
        Ok(results.effects)
    }
}

/// The assignments of an update, from the columns of a set starting with `v{first}`, and its
/// additional condition: nothing is added to NULL. `found` and `changed` are the row's aliases
/// where it is searched for and where it is changed.
pub(super) fn assigned(
    table: &Table,
    fields: &[String],
    first: usize,
    increment: bool,
    [found, changed]: [&str; 2],
) -> (String, String) {
    let (mut assignments, mut conditions) = (Vec::new(), String::new());
    for (at, name) in fields.iter().enumerate() {
        let Ok(form) = table.form(name) else { continue };
        let (column, value) = (quote(name), form.meets(&format!("u.v{}", first + at)));
        if increment {
            assignments.push(format!("{column} = {changed}.{column} + {value}"));
            conditions.push_str(&format!(" AND {found}.{column} IS NOT NULL"));
        } else {
            assignments.push(format!("{column} = {value}"));
        }
    }
    (assignments.join(", "), conditions)
}
