//! Evaluates guards for many items at once.
//!
//! All anchors are locked first (`anchors`). A guard that compares columns of one row is judged by
//! the statement that locks that row. Every other guard is evaluated by a later statement, which
//! sees everything that was committed while the locks were awaited. A guard on absence has the
//! anchor that the mapping names, and fails if the anchor's row does not exist, because then
//! inserts would not wait for its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Filter, Guard, ReadSet};
use tokio_postgres::Row;

use super::anchors::{self, Anchors, Hold, Images, wanted_image};
use super::conditions::Conditions;
use super::error::Job;
use super::mapping::{Mapping, Refusal, Table};
use super::readset;
use super::session::Pipeline;
use super::set::Set;
use super::values::{Cell, Form, Wire};
use super::work::Work;

/// The result of an item's guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All hold.
    Hold,
    /// At least one does not hold.
    Fail,
    /// One cannot be evaluated, for this reason.
    Refused(Refusal),
}

/// Guards that were sent, and the positions of their answers.
pub(super) struct Asked {
    anchors: anchors::Asked,
    guards: Guards,
}

/// The state needed to judge them.
#[derive(Default)]
struct Guards {
    /// Guards by number: the work they belong to.
    owners: Vec<usize>,
    /// The verdicts that are already known, by work.
    settled: BTreeMap<usize, Verdict>,
    /// Guards that hold if their number is returned.
    lists: Vec<usize>,
    /// Guards that need at least one of their anchors.
    anchored: BTreeSet<usize>,
    /// Guards that hold if the given number of rows was counted.
    counts: Vec<(usize, usize, i64)>,
}

/// The row of an anchor: its table, and its tenant and key.
type AnchorRow<'m> = (&'m Arc<Table>, Vec<Cell>);

/// How many rows have to match.
#[derive(Clone, Copy)]
enum Matching {
    AtLeast(u32),
    AtMost(u32),
}

/// Guards of one shape: one statement.
struct Group {
    sql: Box<dyn Fn(&Set) -> String>,
    set: Set,
}

/// Time limits of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// For guards that search rows by conditions, not counting the time they wait for locks.
    pub(super) guards: Duration,
    /// For waiting for a lock.
    pub(super) lock: Duration,
    /// For any other statement.
    pub(super) statement: Duration,
}

/// The longest statement of a trial, which locks rows only to see what would become of them.
const TRIAL_MAX: Duration = Duration::from_secs(5);

impl Bounds {
    /// Those of a trial.
    pub(super) fn of_trial(self) -> Bounds {
        let within = |span: Duration| span.min(TRIAL_MAX);
        Bounds { guards: within(self.guards), statement: within(self.statement), ..self }
    }
}

/// Sends the locks of the anchors of all works and the guards of `works`, the first wave; `later`
/// are works of later waves, whose guards are judged after the earlier waves have been applied.
/// `idle` says whether a work's activity key is known to be idle.
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
        // A row that cannot be named cannot be locked; its change is refused later.
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

/// Locks the anchors of works that are judged one by one.
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
    /// Statements for a single guard: its number, the statement, the required count.
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
            Guard::Exists(filter) => self.filter(at, work.tenant, filter, Matching::AtLeast(1)),
            Guard::Absent(filter) => self.filter(at, work.tenant, filter, Matching::AtMost(0)),
            Guard::AtLeast(filter, rows) => {
                self.filter(at, work.tenant, filter, Matching::AtLeast(*rows))
            }
            Guard::AtMost(filter, rows) => {
                self.filter(at, work.tenant, filter, Matching::AtMost(*rows))
            }
            // There is no row to lock: an insert that is not committed is not seen.
            Guard::Missing { collection, key } => {
                let table = mapping.table(collection)?;
                let cells = table.key_cells(work.tenant, key)?;
                let columns = table.key_columns()?;
                let holds = format!(
                    "NOT EXISTS (SELECT 1 FROM {} t WHERE {})",
                    table.name,
                    matched(&columns)
                );
                let number = self.number(at);
                let wires = columns.iter().map(|(_, form)| form.wire).collect();
                self.listed(holds, wires, number, cells);
                Ok(())
            }
            Guard::Complete(set) => self.complete(at, work, set),
            Guard::Idle(key) => {
                if !idle(work, key) {
                    self.asked.settled.insert(at, Verdict::Fail);
                }
                Ok(())
            }
        }
    }

    /// Locks what a work needs after the waves before its own have been applied.
    fn ahead(&mut self, work: &Work<'_>) -> Result<(), Refusal> {
        for guard in &work.proposal.guards {
            match guard {
                Guard::Columns { collection, key, .. } => {
                    let table = self.mapping.table(collection)?;
                    let key = table.key_cells(work.tenant, key)?;
                    self.anchors.row(table, None, key, Hold::AsItIs);
                }
                Guard::Absent(filter) | Guard::AtMost(filter, _) => {
                    for (target, key) in self.absence(work.tenant, filter)? {
                        self.anchors.row(target, None, key, Hold::Alone);
                    }
                }
                Guard::Exists(_)
                | Guard::AtLeast(..)
                | Guard::Complete(_)
                | Guard::Idle(_)
                | Guard::Missing { .. } => {}
            }
        }
        self.anchors.changed(self.mapping, work)
    }

    /// Adds the anchors of an absence: an insert of an absent row locks them as well.
    fn absence(
        &self,
        tenant: Option<&Tenant>,
        filter: &Filter,
    ) -> Result<Vec<AnchorRow<'m>>, Refusal> {
        let table = self.mapping.table(&filter.collection)?;
        let mut anchors = Vec::new();
        for (anchor, key) in table.collection.anchors_of(filter)? {
            let target = self.mapping.table(&anchor.collection)?;
            anchors.push((target, target.key_cells(tenant, &key)?));
        }
        Ok(anchors)
    }

    /// Adds a guard on the number of rows that match.
    fn filter(
        &mut self,
        at: usize,
        tenant: Option<&Tenant>,
        filter: &Filter,
        matching: Matching,
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
        // Whether at least `n + 1` rows match: whether there is one after `n`.
        let skipped = match matching {
            Matching::AtLeast(rows) => rows.saturating_sub(1),
            Matching::AtMost(rows) => rows,
        };
        let mut after = String::new();
        if skipped > 0 {
            after = format!(" OFFSET u.v{}", wires.len());
            wires.push(Wire::Integer);
            cells.push(Cell::Integer(i64::from(skipped)));
        }
        match matching {
            Matching::AtLeast(0) => return Ok(()),
            Matching::AtLeast(_) => {
                // The rows that were found are kept unchanged until the commit, those before the last as well.
                let found = format!("EXISTS ({rows} LIMIT 1{after} FOR SHARE OF t)");
                let number = self.number(at);
                self.listed(found, wires, number, cells);
                return Ok(());
            }
            Matching::AtMost(_) => {}
        }
        let anchors = self.absence(tenant, filter)?;
        let number = self.number(at);
        for (target, cells) in anchors {
            self.anchors.row(target, Some(number), cells, Hold::Alone);
        }
        self.asked.anchored.insert(number);
        self.listed(format!("NOT EXISTS ({rows}{after})"), wires, number, cells);
        Ok(())
    }

    /// Adds a guard that every row of the set exists. If the same set is then deleted, the deleted
    /// rows are counted as well; otherwise the rows are locked.
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

    fn listed(&mut self, holds: String, wires: Vec<Wire>, number: usize, cells: Vec<Cell>) {
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
        // The cost of such a guard depends on the table's content. Waiting for its rows' locks is
        // not the item's fault and is reported by the lock timeout.
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

/// `t.key = u.v0 AND ...`: joins a row of a table with a row of a set.
pub(super) fn matched(key: &[(String, Form)]) -> String {
    let each = |(at, (name, form)): (usize, &(String, Form))| {
        form.equals(&format!("t.{name}"), &format!("u.v{at}"))
    };
    key.iter().enumerate().map(each).collect::<Vec<_>>().join(" AND ")
}

impl Asked {
    /// The results by work, and the before-images of the rows that will be changed.
    pub(super) fn read(
        &self,
        answers: &mut [Vec<Row>],
        works: usize,
    ) -> Job<(Vec<Verdict>, Images)> {
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
            // A guard before the one that cannot be evaluated may have failed already.
            if verdicts[*work] == Verdict::Hold {
                verdicts[*work] = verdict.clone();
            }
        }
        Ok((verdicts, held.images))
    }
}
