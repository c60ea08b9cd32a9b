//! Anchors and guards, for many items at once.
//!
//! All anchors are locked first, collection by collection and row by row in the order of their
//! keys; the guards are evaluated by later statements, which see whatever was committed while
//! the locks were awaited. A row that a guard looks at is its own anchor; an absence has the
//! anchor that the mapping names, and fails where that row does not exist: then nobody would
//! wait for its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use besom_core::collection::{Anchor, Collection};
use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard, ReadSet};
use besom_core::value::Value;
use tokio_postgres::Row;

use super::conditions::Conditions;
use super::error::Job;
use super::mapping::{Mapping, Refusal, Table};
use super::readset;
use super::session::Pipeline;
use super::set::Set;
use super::values::{Cell, Form};
use super::work::Work;

/// What the guards of an item have come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All hold.
    Hold,
    /// One does not.
    Fail,
    /// One cannot be asked, for this reason.
    Refused(Refusal),
}

/// Guards that were asked, and where their answers will be.
#[derive(Default)]
pub(super) struct Asked {
    /// Guards by number: the work they belong to.
    owners: Vec<usize>,
    /// What is settled already, by work.
    settled: BTreeMap<usize, Verdict>,
    /// Guards that hold if their number comes back.
    lists: Vec<usize>,
    /// Anchors: the number comes back where the row was found and locked.
    anchors: Vec<usize>,
    /// Guards that have to have at least one anchor of theirs.
    anchored: BTreeSet<usize>,
    /// Guards that hold if so many rows were counted.
    counts: Vec<(usize, usize, i64)>,
}

/// Guards of one shape: one statement.
struct Group {
    sql: Box<dyn Fn(&Set) -> String>,
    set: Set,
}

/// The rows of a collection to be locked.
struct Locks {
    table: Arc<Table>,
    set: Set,
    /// Whether inserters below these rows have to wait.
    exclusive: bool,
}

/// Asks for the anchors and the guards of all works; `idle` says whether an activity key is
/// known to be idle, by work.
pub(super) fn ask(
    pipeline: &mut Pipeline<'_>,
    mapping: &Mapping,
    works: &[Work<'_>],
    idle: &dyn Fn(&Work<'_>, &str) -> bool,
) -> Asked {
    let mut asking = Asking::new(mapping);
    for (at, work) in works.iter().enumerate() {
        for guard in &work.proposal.guards {
            if asking.asked.settled.contains_key(&at) {
                break;
            }
            if let Err(refusal) = asking.guard(at, work, guard, idle) {
                asking.asked.settled.insert(at, Verdict::Refused(refusal));
            }
        }
    }
    asking.send(pipeline)
}

struct Asking<'m> {
    mapping: &'m Mapping,
    asked: Asked,
    locks: BTreeMap<String, Locks>,
    groups: BTreeMap<String, Group>,
    /// Whole statements of one guard: its number, the statement, the count it needs.
    single: Vec<(usize, readset::Counting, i64)>,
}

impl<'m> Asking<'m> {
    fn new(mapping: &'m Mapping) -> Asking<'m> {
        Asking {
            mapping,
            asked: Asked::default(),
            locks: BTreeMap::new(),
            groups: BTreeMap::new(),
            single: Vec::new(),
        }
    }

    fn number(&mut self, work: usize) -> usize {
        self.asked.owners.push(work);
        self.asked.owners.len() - 1
    }

    fn guard(
        &mut self,
        at: usize,
        work: &Work<'_>,
        guard: &Guard,
        idle: &dyn Fn(&Work<'_>, &str) -> bool,
    ) -> Result<(), Refusal> {
        let mapping = self.mapping;
        match guard {
            Guard::Columns { collection, key, conditions } => {
                let table = mapping.table(collection)?;
                let cells = table.key_cells(work.tenant, key)?;
                let conditions = Conditions::of(table, conditions)?;
                let number = self.number(at);
                self.lock(table, number, cells.clone(), false)?;
                self.columns(table, number, cells, conditions)
            }
            Guard::Exists(filter) => self.filter(at, work.tenant, filter, true),
            Guard::Absent(filter) => self.filter(at, work.tenant, filter, false),
            Guard::Complete(set) => self.complete(at, work, set),
            Guard::Idle(key) => {
                if !idle(work, key) {
                    self.asked.settled.insert(at, Verdict::Fail);
                }
                Ok(())
            }
        }
    }

    /// The row has these values.
    fn columns(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        mut cells: Vec<Cell>,
        conditions: Conditions,
    ) -> Result<(), Refusal> {
        let key = table.key_columns()?;
        let behind = key.len();
        let row = format!(
            "EXISTS (SELECT 1 FROM {} t WHERE {}{})",
            table.name,
            matched(&key),
            conditions.sql(|place| format!("u.v{}", behind + place))
        );
        let wires = key.iter().map(|(_, form)| form.wire).chain(conditions.wires).collect();
        cells.extend(conditions.cells);
        self.listed(row, wires, number, cells);
        Ok(())
    }

    /// A row matches, or none does.
    fn filter(
        &mut self,
        at: usize,
        tenant: Option<&Tenant>,
        filter: &Filter,
        exists: bool,
    ) -> Result<(), Refusal> {
        let table = self.mapping.table(&filter.collection)?;
        let mut cells: Vec<Cell> = table.tenant_cell(tenant)?.into_iter().collect();
        let mut wires: Vec<_> = table.tenant.iter().map(|(_, form)| form.wire).collect();
        let of_tenant = match &table.tenant {
            Some((name, form)) => form.equals(&format!("t.{name}"), "u.v0"),
            None => "true".to_owned(),
        };
        let conditions = Conditions::of(table, &filter.conditions)?;
        let behind = cells.len();
        let rows = format!(
            "SELECT 1 FROM {} t WHERE {of_tenant}{}",
            table.name,
            conditions.sql(|place| format!("u.v{}", behind + place))
        );
        wires.extend(conditions.wires.iter().copied());
        cells.extend(conditions.cells);
        if exists {
            // The row that was found stays as it is until the commit.
            let found = format!("EXISTS ({rows} LIMIT 1 FOR SHARE OF t)");
            let number = self.number(at);
            self.listed(found, wires, number, cells);
            return Ok(());
        }
        let mut anchors = Vec::new();
        for (anchor, key) in fixed_anchors(&table.collection, filter) {
            let target = self.mapping.table(&anchor.collection)?;
            anchors.push((target, target.key_cells(tenant, &key)?));
        }
        if anchors.is_empty() {
            let name = &table.collection.name;
            return Err(format!(
                "a guard on the absence of {name} fixes the key of none of its anchors"
            ));
        }
        let number = self.number(at);
        for (target, cells) in anchors {
            self.lock(target, number, cells, true)?;
        }
        self.asked.anchored.insert(number);
        self.listed(format!("NOT EXISTS ({rows})"), wires, number, cells);
        Ok(())
    }

    /// Every row of the set is still there. Where the same set is then deleted, the rows that
    /// are deleted are counted as well; otherwise they are held.
    fn complete(&mut self, at: usize, work: &Work<'_>, set: &Arc<ReadSet>) -> Result<(), Refusal> {
        if set.is_empty() {
            return Ok(());
        }
        let table = self.mapping.table(&set.collection)?;
        let deleted = work.proposal.changes.iter().any(
            |change| matches!(change, Change::DeleteReadSet(gone) if Arc::ptr_eq(gone, set) || gone == set),
        );
        let (counting, expected) = readset::count(table, work.tenant, set, !deleted)?;
        let number = self.number(at);
        self.single.push((number, counting, expected));
        Ok(())
    }

    fn listed(
        &mut self,
        holds: String,
        wires: Vec<super::values::Wire>,
        number: usize,
        cells: Vec<Cell>,
    ) {
        let group = self.groups.entry(holds.clone()).or_insert_with(|| Group {
            sql: Box::new(move |set| format!("SELECT u.i FROM {} WHERE {holds}", set.sql(1))),
            set: Set::new(wires),
        });
        group.set.push(number, cells);
    }

    fn lock(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        cells: Vec<Cell>,
        exclusive: bool,
    ) -> Result<(), Refusal> {
        let key = table.key_columns()?;
        let locks = self.locks.entry(table.collection.name.clone()).or_insert_with(|| Locks {
            table: Arc::clone(table),
            set: Set::new(key.iter().map(|(_, form)| form.wire).collect()),
            exclusive: false,
        });
        locks.exclusive |= exclusive;
        locks.set.push(number, cells);
        Ok(())
    }

    fn send(self, pipeline: &mut Pipeline<'_>) -> Asked {
        let mut asked = self.asked;
        for locks in self.locks.into_values() {
            if let Ok(key) = locks.table.key_columns() {
                let sql = lock_sql(&locks, &key);
                asked.anchors.push(pipeline.push(sql, locks.set.params()));
            }
        }
        for group in self.groups.into_values() {
            asked.lists.push(pipeline.push((group.sql)(&group.set), group.set.params()));
        }
        for (number, counting, expected) in self.single {
            let place = pipeline.push(counting.sql, counting.params);
            asked.counts.push((place, number, expected));
        }
        asked
    }
}

/// Locks rows in the order of their keys. FOR NO KEY UPDATE holds a row as it is and lets
/// others insert below it; only an absence needs them to wait.
fn lock_sql(locks: &Locks, key: &[(String, Form)]) -> String {
    let order: Vec<_> = key.iter().map(|(name, _)| format!("t.{name}")).collect();
    let strength = if locks.exclusive { "UPDATE" } else { "NO KEY UPDATE" };
    format!(
        "SELECT u.i FROM {} JOIN {} t ON {} ORDER BY {} FOR {strength} OF t",
        locks.set.sql(1),
        locks.table.name,
        matched(key),
        order.join(", ")
    )
}

/// `t.key = u.v0 AND ...`: the row of a set's row.
pub(super) fn matched(key: &[(String, Form)]) -> String {
    let each = |(at, (name, form)): (usize, &(String, Form))| {
        form.equals(&format!("t.{name}"), &format!("u.v{at}"))
    };
    key.iter().enumerate().map(each).collect::<Vec<_>>().join(" AND ")
}

/// The anchors of a collection whose keys a filter fixes, with those keys.
fn fixed_anchors<'c>(collection: &'c Collection, filter: &Filter) -> Vec<(&'c Anchor, Vec<Value>)> {
    let fixed = |column: &String| {
        let equal = |c: &&Condition| c.column == *column && c.comparison == Comparison::Equal;
        filter.conditions.iter().find(equal).map(|c| c.value.clone())
    };
    let key = |anchor: &'c Anchor| {
        let key: Option<Vec<Value>> = anchor.columns.iter().map(fixed).collect();
        key.map(|key| (anchor, key))
    };
    collection.anchors.iter().filter_map(key).collect()
}

impl Asked {
    /// What the answers say, by work.
    pub(super) fn read(&self, answers: &[Vec<Row>], works: usize) -> Job<Vec<Verdict>> {
        let numbers = |places: &[usize]| -> Job<BTreeSet<usize>> {
            let mut found = BTreeSet::new();
            for place in places {
                for row in &answers[*place] {
                    found.insert(row.try_get::<_, i32>(0)? as usize);
                }
            }
            Ok(found)
        };
        let locked = numbers(&self.anchors)?;
        let mut holding = numbers(&self.lists)?;
        holding.retain(|number| !self.anchored.contains(number) || locked.contains(number));
        for (place, number, expected) in &self.counts {
            if super::session::only::<i64>(&answers[*place])? == *expected {
                holding.insert(*number);
            }
        }
        let mut verdicts = vec![Verdict::Hold; works];
        for (number, work) in self.owners.iter().enumerate() {
            if !holding.contains(&number) {
                verdicts[*work] = Verdict::Fail;
            }
        }
        for (work, verdict) in &self.settled {
            // A guard before the one that cannot be asked may have failed already.
            if verdicts[*work] == Verdict::Hold {
                verdicts[*work] = verdict.clone();
            }
        }
        Ok(verdicts)
    }
}
