//! Guards, for many items at once.
//!
//! All anchors are locked first (`anchors`). A guard that compares columns of one row is judged
//! by the statement that locks that row; every other guard is evaluated by a later statement,
//! which sees whatever was committed while the locks were awaited. An absence has the anchor
//! that the mapping names, and fails where that row does not exist: then nobody would wait for
//! its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Anchor, Collection};
use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard, ReadSet};
use besom_core::value::Value;
use tokio_postgres::Row;

use super::anchors::{self, Anchors, Hold, Images, wanted_image};
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
pub(super) struct Asked {
    anchors: anchors::Asked,
    guards: Guards,
}

/// What is needed to judge them.
#[derive(Default)]
struct Guards {
    /// Guards by number: the work they belong to.
    owners: Vec<usize>,
    /// What is settled already, by work.
    settled: BTreeMap<usize, Verdict>,
    /// Guards that hold if their number comes back.
    lists: Vec<usize>,
    /// Guards that have to have at least one anchor of theirs.
    anchored: BTreeSet<usize>,
    /// Guards that hold if so many rows were counted.
    counts: Vec<(usize, usize, i64)>,
}

/// The row of an anchor: its table, and its tenant and key.
type AnchorRow<'m> = (&'m Arc<Table>, Vec<Cell>);

/// Guards of one shape: one statement.
struct Group {
    sql: Box<dyn Fn(&Set) -> String>,
    set: Set,
}

/// How long the server works on one statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// With guards that ask for rows by conditions, without the time that it waits for locks.
    pub(super) guards: Duration,
    /// Waiting for a lock.
    pub(super) lock: Duration,
    /// Of any other kind.
    pub(super) statement: Duration,
}

/// Asks for the anchors of all works and the guards of `works`, which are the first of them;
/// `later` are those of later waves, which are judged when those before them are applied. `idle`
/// says whether an activity key is known to be idle, by work.
pub(super) fn ask<'w>(
    pipeline: &mut Pipeline<'_>,
    mapping: &Mapping,
    works: &[Work<'w>],
    later: impl Iterator<Item = &'w Work<'w>>,
    idle: &dyn Fn(&Work<'_>, &str) -> bool,
    bounds: Bounds,
) -> Asked {
    let mut asking = Asking::new(mapping);
    for (at, work) in works.iter().enumerate() {
        // What cannot be named cannot be locked, and is refused when it is to be changed.
        let _ = asking.anchors.changed(mapping, work);
        for guard in &work.proposal.guards {
            if asking.asked.settled.contains_key(&at) {
                break;
            }
            if let Err(refusal) = asking.guard(at, work, guard, idle) {
                asking.asked.settled.insert(at, Verdict::Refused(refusal));
            }
        }
    }
    for work in later {
        let _ = asking.ahead(work);
    }
    asking.send(pipeline, bounds)
}

/// Locks the anchors of works that are to be judged one by one.
pub(super) fn lock<'w>(
    pipeline: &mut Pipeline<'_>,
    mapping: &Mapping,
    works: impl Iterator<Item = &'w Work<'w>>,
    bounds: Bounds,
) {
    ask(pipeline, mapping, &[], works, &|_, _| false, bounds);
}

struct Asking<'m> {
    mapping: &'m Mapping,
    asked: Guards,
    anchors: Anchors,
    groups: BTreeMap<String, Group>,
    /// Whole statements of one guard: its number, the statement, the count it needs.
    single: Vec<(usize, readset::Counting, i64)>,
}

impl<'m> Asking<'m> {
    fn new(mapping: &'m Mapping) -> Asking<'m> {
        Asking {
            mapping,
            asked: Guards::default(),
            anchors: Anchors::default(),
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
                let image = wanted_image(work, collection, key);
                self.anchors.judged(table, number, cells, conditions, image);
                Ok(())
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

    /// Locks what a work will need when the waves before its own are applied.
    fn ahead(&mut self, work: &Work<'_>) -> Result<(), Refusal> {
        for guard in &work.proposal.guards {
            match guard {
                Guard::Columns { collection, key, .. } => {
                    let table = self.mapping.table(collection)?;
                    let key = table.key_cells(work.tenant, key)?;
                    self.anchors.row(table, None, key, Hold::AsItIs);
                }
                Guard::Absent(filter) => {
                    for (target, key) in self.absence(work.tenant, filter)? {
                        self.anchors.row(target, None, key, Hold::Alone);
                    }
                }
                Guard::Exists(_) | Guard::Complete(_) | Guard::Idle(_) => {}
            }
        }
        self.anchors.changed(self.mapping, work)
    }

    /// The anchors of an absence: whoever inserts what is to be absent locks them as well.
    fn absence(
        &self,
        tenant: Option<&Tenant>,
        filter: &Filter,
    ) -> Result<Vec<AnchorRow<'m>>, Refusal> {
        let table = self.mapping.table(&filter.collection)?;
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
        Ok(anchors)
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
        let anchors = self.absence(tenant, filter)?;
        let number = self.number(at);
        for (target, cells) in anchors {
            self.anchors.row(target, Some(number), cells, Hold::Alone);
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

    fn send(self, pipeline: &mut Pipeline<'_>, bounds: Bounds) -> Asked {
        let anchors = self.anchors.send(pipeline);
        let mut guards = self.asked;
        let bounded = !self.groups.is_empty();
        let within = |span: Duration| format!("SET LOCAL statement_timeout = {}", span.as_millis());
        // What such a guard costs depends on what is in the table. Its rows may have to be waited
        // for as well, which is nobody's fault and is told by the time-out of locks.
        if bounded {
            pipeline.simple(within(bounds.guards.saturating_add(bounds.lock)));
        }
        for group in self.groups.into_values() {
            let (sql, params) = ((group.sql)(&group.set), group.set.params());
            guards.lists.push(pipeline.push_bounded(sql, params, bounds.guards));
        }
        if bounded {
            pipeline.simple(within(bounds.statement));
        }
        for (number, counting, expected) in self.single {
            let place = pipeline.push(counting.sql, counting.params);
            guards.counts.push((place, number, expected));
        }
        Asked { anchors, guards }
    }
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
    /// What the answers say, by work, and the rows that are to be changed as they are.
    pub(super) fn read(&self, answers: &[Vec<Row>], works: usize) -> Job<(Vec<Verdict>, Images)> {
        let guards = &self.guards;
        let held = self.anchors.read(answers)?;
        let mut holding = held.holding;
        for place in &guards.lists {
            for row in &answers[*place] {
                let number = row.try_get::<_, i32>(0)? as usize;
                if !guards.anchored.contains(&number) || held.locked.contains(&number) {
                    holding.insert(number);
                }
            }
        }
        for (place, number, expected) in &guards.counts {
            if super::session::only::<i64>(&answers[*place])? == *expected {
                holding.insert(*number);
            }
        }
        let mut verdicts = vec![Verdict::Hold; works];
        for (number, work) in guards.owners.iter().enumerate() {
            if !holding.contains(&number) {
                verdicts[*work] = Verdict::Fail;
            }
        }
        for (work, verdict) in &guards.settled {
            // A guard before the one that cannot be asked may have failed already.
            if verdicts[*work] == Verdict::Hold {
                verdicts[*work] = verdict.clone();
            }
        }
        Ok((verdicts, held.images))
    }
}
