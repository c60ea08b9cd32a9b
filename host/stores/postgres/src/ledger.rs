//! Executes the writes of the books ([`besom_core::books`]): collects them by kind, and writes each
//! kind with one statement.

use std::borrow::Cow;
use std::collections::HashMap;

use besom_core::books::{Blocks, Tally, Write};
use besom_core::ids::{CommitId, Incarnation, TaskName};
use besom_core::item::{Item, Source};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::columns::{Columns, alike};
use super::error::{Job, invalid};
use super::items::{Identities, place, waiting};
use super::session::{Param, Pipeline, params};
use super::tally::Counters;
use super::text::{due_number, escaped, tenant_text};
use super::waiting::mark;
use besom_record::Changed;

/// The answer to [`BLOCKS`], from column `at` on. Before the commit ends, an operator may discard a
/// letter that is open now: then its version is blocked.
pub(super) fn blocks(row: &Row, at: usize) -> Job<Blocks> {
    let (settled, dead): (bool, bool) = (row.try_get(at)?, row.try_get(at + 1)?);
    Ok(Blocks { settled: settled || dead, dead })
}

/// What may block items of the tasks `{tasks}`, as two columns.
pub(super) const BLOCKS: &str = "EXISTS (SELECT 1 FROM @.settled s WHERE s.task = ANY({tasks})),
    EXISTS (SELECT 1 FROM @.dead d WHERE d.task = ANY({tasks}) AND d.resolved_at IS NULL)";

/// The writes of one transaction, collected by kind.
pub(super) struct Ledger<'a> {
    /// The numbers of the tasks.
    tasks: &'a HashMap<TaskName, i32>,
    now: Time,
    /// The number of the commit's row.
    commit: i64,
    /// The highest of the numbers.
    last: i64,
    /// The commit's number, then one per entry: for its history row, and for the retry or the dead
    /// letter that it becomes; each of these kinds is numbered separately.
    numbers: Vec<i64>,
    history: History<'a>,
    retries: Retries<'a>,
    dead: Dead<'a>,
    /// Finished timers and retries.
    gone: Leaving<'a>,
    /// Finished items of the log, which an acknowledged range covers.
    passed: Vec<Passed<'a>>,
    acknowledged: Ranges,
    /// Versions that are blocked from now on.
    blocked: Blocked<'a>,
    lifted: Identities<'a>,
    /// Identities whose dead letters are resolved.
    resolved: Identities<'a>,
    outbox: Outbox<'a>,
    /// Dead letters that move to the retries.
    revived: Revived,
    /// Dead letters that are removed.
    discarded: Vec<i64>,
}

/// Items that leave their place, identified by identity, run and place.
#[derive(Default)]
struct Leaving<'a> {
    identities: Identities<'a>,
    runs: Vec<i64>,
    parts: Vec<i32>,
    places: Vec<i16>,
    numbers: Vec<i64>,
}

impl<'a> Leaving<'a> {
    fn push(&mut self, task: i32, item: &'a Item, source: Source) {
        self.identities.push(task, &item.identity);
        let (at, no) = place(source);
        self.runs.push(item.run.0 as i64);
        self.parts.push(item.partition.0 as i32);
        self.places.push(at);
        self.numbers.push(no);
    }
}

/// An item that leaves the log at its end.
struct Passed<'a> {
    /// The numbers of its task and its partition.
    stream: (i32, i32),
    no: i64,
    item: &'a Item,
}

#[derive(Default)]
struct Blocked<'a> {
    identities: Identities<'a>,
    versions: Vec<Cow<'a, str>>,
    /// Whether an operator did it, rather than the task.
    given_up: Vec<bool>,
}

#[derive(Default)]
struct History<'a> {
    ids: Vec<i64>,
    identities: Identities<'a>,
    runs: Vec<i64>,
    outcomes: Vec<i16>,
    settled: Vec<bool>,
    reasons: Vec<Option<Cow<'a, str>>>,
    notes: Vec<Option<Vec<u8>>>,
    rows: Vec<i64>,
    undo_bytes: Vec<i64>,
    undo: Vec<Option<Vec<u8>>>,
}

impl<'a> History<'a> {
    /// The statement that writes the rows. Most batches belong to one task and run and have one
    /// outcome; a few groups of columns therefore need only a few prepared statements.
    fn insert(self, commit: i64) -> (String, Vec<Param<'a>>) {
        let of = self.identities;
        let origin = alike(&of.tasks) && alike(&of.tenants) && alike(&self.runs);
        let due = alike(&of.dues);
        let end = alike(&self.outcomes)
            && alike(&self.settled)
            && alike(&self.reasons)
            && alike(&self.notes);
        let mut columns = Columns::default();
        columns.one("commit_no", "int8", commit);
        columns.each("id", "int8", self.ids);
        columns.add("task", "int4", of.tasks, origin);
        columns.add("tenant", "text", of.tenants, origin);
        columns.add("run", "int8", self.runs, origin);
        columns.each("key", "text", of.keys);
        columns.add("due", "int8", of.dues, due);
        columns.add("outcome", "int2", self.outcomes, end);
        columns.add("settled", "bool", self.settled, end);
        columns.add("reason", "text", self.reasons, end);
        columns.add("notes", "bytea", self.notes, end);
        columns.each("rows", "int8", self.rows);
        columns.each("undo_bytes", "int8", self.undo_bytes);
        columns.each("undo", "bytea", self.undo);
        columns.insert("@.history")
    }
}

#[derive(Default)]
struct Retries<'a> {
    leaving: Leaving<'a>,
    to: Vec<i64>,
    run_at: Vec<i64>,
    attempts: Vec<i32>,
    guard_retries: Vec<i32>,
    errors: Vec<Cow<'a, str>>,
}

#[derive(Default)]
struct Dead<'a> {
    leaving: Leaving<'a>,
    ids: Vec<i64>,
    attempts: Vec<i32>,
    errors: Vec<Cow<'a, str>>,
    contexts: Vec<Cow<'a, str>>,
}

#[derive(Default)]
struct Revived {
    letters: Vec<i64>,
    /// Their numbers among the retries.
    to: Vec<i64>,
    run_at: Vec<i64>,
    attempts: Vec<i32>,
    guard_retries: Vec<i32>,
    deaths: Vec<i32>,
}

/// Ranges of positions to acknowledge.
#[derive(Default)]
struct Ranges {
    tasks: Vec<i32>,
    parts: Vec<i32>,
    /// The previous cursors.
    from: Vec<i64>,
    /// The new cursors.
    to: Vec<i64>,
}

#[derive(Default)]
struct Outbox<'a> {
    /// The indexes of their entries, which define the order.
    at: Vec<i32>,
    history: Vec<i64>,
    tasks: Vec<i32>,
    tenants: Vec<Cow<'a, str>>,
    topics: Vec<Cow<'a, str>>,
    keys: Vec<Cow<'a, str>>,
    payloads: Vec<&'a [u8]>,
}

/// How many numbers the writes of this many entries need. (Messages are numbered when they are
/// written: see [`OUTBOX`].)
pub(super) fn numbers_needed(entries: usize) -> usize {
    1 + entries
}

impl<'a> Ledger<'a> {
    /// Opens the ledger with unused numbers. [`Ledger::close`] writes the commit's row.
    pub(super) fn open(
        numbers: Vec<i64>,
        tasks: &'a HashMap<TaskName, i32>,
        now: Time,
    ) -> Job<Ledger<'a>> {
        Ok(Ledger {
            tasks,
            now,
            commit: numbers.first().copied().ok_or_else(out_of_numbers)?,
            last: numbers.iter().max().copied().unwrap_or_default(),
            numbers,
            history: History::default(),
            retries: Retries::default(),
            dead: Dead::default(),
            gone: Leaving::default(),
            passed: Vec::new(),
            acknowledged: Ranges::default(),
            blocked: Blocked::default(),
            lifted: Identities::default(),
            resolved: Identities::default(),
            outbox: Outbox::default(),
            revived: Revived::default(),
            discarded: Vec::new(),
        })
    }

    /// Adds a write; `undo` are the before-images of a history row, packed.
    pub(super) fn push(&mut self, write: Write<'a>, applied: Changed) -> Job<()> {
        match write {
            Write::Remove { item, source: Source::Log(seq) } => {
                let stream = (self.task(item), item.partition.0 as i32);
                self.passed.push(Passed { stream, no: seq.0 as i64, item });
            }
            Write::Remove { item, source } => self.gone.push(self.task(item), item, source),
            Write::Retry { at, item, source, run_at, attempts, guard_retries, error } => {
                let (task, to) = (self.task(item), self.number(at)?);
                let rows = &mut self.retries;
                rows.leaving.push(task, item, source);
                rows.to.push(to);
                rows.run_at.push(run_at.0);
                rows.attempts.push(attempts as i32);
                rows.guard_retries.push(guard_retries as i32);
                rows.errors.push(stored(error));
            }
            Write::SetAside { at, item, source, attempts, error, context } => {
                let (task, id) = (self.task(item), self.number(at)?);
                let rows = &mut self.dead;
                rows.leaving.push(task, item, source);
                rows.ids.push(id);
                rows.attempts.push(attempts as i32);
                rows.errors.push(stored(error));
                rows.contexts.push(stored(Cow::Owned(context.pack())));
            }
            Write::Acknowledge { task, partition, after, upto } => {
                let task = number_of(self.tasks, task);
                let rows = &mut self.acknowledged;
                rows.tasks.push(task);
                rows.parts.push(partition.0 as i32);
                rows.from.push(after.0 as i64);
                rows.to.push(upto.0 as i64);
            }
            Write::History { at, item, end, settled, reason, notes } => {
                let (task, id) = (self.task(item), self.number(at)?);
                let rows = &mut self.history;
                rows.ids.push(id);
                rows.identities.push(task, &item.identity);
                rows.runs.push(item.run.0 as i64);
                rows.outcomes.push(end as i16);
                rows.settled.push(settled);
                let notes = applied.noted(notes);
                let Changed { undo, rows: changed, said, .. } = applied;
                rows.rows.push(changed as i64);
                rows.reasons.push(reason.or(said.map(Cow::Owned)).map(stored));
                rows.notes.push(match &*notes {
                    [] => None,
                    notes => Some(postcard::to_stdvec(notes)?),
                });
                rows.undo_bytes.push(undo.as_ref().map_or(0, Vec::len) as i64);
                rows.undo.push(undo);
            }
            Write::Emit { at, item, topic, key, payload } => {
                let (task, history) = (self.task(item), self.number(at)?);
                let rows = &mut self.outbox;
                rows.at.push(at as i32);
                rows.history.push(history);
                rows.tasks.push(task);
                rows.tenants.push(tenant_text(item.identity.tenant.as_ref()));
                rows.topics.push(escaped(topic));
                rows.keys.push(escaped(key));
                rows.payloads.push(payload);
            }
            Write::Lift { item } => self.lifted.push(self.task(item), &item.identity),
            Write::Resolve { item } => self.resolved.push(self.task(item), &item.identity),
            Write::Block { item, given_up } => {
                let task = self.task(item);
                self.blocked.identities.push(task, &item.identity);
                self.blocked.versions.push(escaped(&item.version));
                self.blocked.given_up.push(given_up);
            }
            Write::Revive { at, letter, run_at, past, .. } => {
                let to = self.number(at)?;
                let rows = &mut self.revived;
                rows.letters.push(letter as i64);
                rows.to.push(to);
                rows.run_at.push(run_at.0);
                rows.attempts.push(past.attempts as i32);
                rows.guard_retries.push(past.guard_retries as i32);
                rows.deaths.push(past.deaths as i32);
            }
            Write::Discard { letter } => self.discarded.push(letter as i64),
        }
        Ok(())
    }

    fn task(&self, item: &Item) -> i32 {
        number_of(self.tasks, &item.identity.task)
    }

    fn number(&self, at: usize) -> Job<i64> {
        self.numbers.get(1 + at).copied().ok_or_else(out_of_numbers)
    }

    /// Removes the items from where they were waiting. Items of the log that only end are removed
    /// by the range that is acknowledged. Unless the items were looked up, each of these ranges has
    /// one run, tenant and due time.
    pub(super) fn take_all(&mut self, pipeline: &mut Pipeline<'a>, looked_up: bool) -> Taken<'a> {
        let mut expected = Vec::new();
        let (retries, dead) = (std::mem::take(&mut self.retries), std::mem::take(&mut self.dead));
        let mut ask = |rows: usize, sql: &'static str, leaving: Leaving<'a>, more| {
            let Leaving { identities: i, runs, parts, places, numbers } = leaving;
            let mut all = params![i.tasks, i.tenants, i.keys, i.dues, runs, parts, places, numbers];
            all.extend::<Vec<Param<'a>>>(more);
            expected.push((pipeline.push(sql, all), rows));
        };
        if !retries.to.is_empty() {
            let Retries { leaving, to, run_at, attempts, guard_retries, errors } = retries;
            let more = params![to, run_at, attempts, guard_retries, errors];
            ask(leaving.places.len(), RETRY, leaving, more);
        }
        if !dead.ids.is_empty() {
            let Dead { leaving, ids, attempts, errors, contexts } = dead;
            let more = params![ids, attempts, errors, self.now.0, contexts];
            ask(leaving.places.len(), BURY, leaving, more);
        }
        if !self.gone.identities.is_empty() {
            let leaving = std::mem::take(&mut self.gone);
            ask(leaving.places.len(), TAKE, leaving, Vec::new());
        }
        let mut log = None;
        if !self.acknowledged.tasks.is_empty() {
            let ranges = std::mem::take(&mut self.acknowledged);
            let passed = std::mem::take(&mut self.passed);
            let streams = ranges.tasks.len();
            let (place, items) = match looked_up {
                true => {
                    let Ranges { tasks, parts, from, to } = ranges;
                    let place = pipeline.push(ACKNOWLEDGE, params![tasks, parts, from, to]);
                    (place, Expected::Counted(passed.len()))
                }
                false => acknowledge(pipeline, ranges, passed),
            };
            log = Some(Acknowledged { place, items, streams });
        }
        Taken { items: expected, log }
    }

    /// Moves dead letters to the retries, except those whose identity already waits. The answer has
    /// the numbers of those that moved.
    pub(super) fn revive(&mut self, pipeline: &mut Pipeline<'_>) -> usize {
        let Revived { letters, to, run_at, attempts, guard_retries, deaths } =
            std::mem::take(&mut self.revived);
        pipeline.push(REVIVE, params![letters, to, run_at, attempts, guard_retries, deaths])
    }

    /// Writes the records and the sums, and the commit's row with its result; a discard by a
    /// command has no mark.
    pub(super) fn close(
        self,
        pipeline: &mut Pipeline<'a>,
        tally: &Tally<'a>,
        id: Option<CommitId>,
        node: &Incarnation,
        result: Vec<u8>,
    ) {
        Counters::of(tally, |task| number_of(self.tasks, task)).write(pipeline);
        if !self.discarded.is_empty() {
            pipeline.push("DELETE FROM @.dead WHERE id = ANY($1::int8[])", params![self.discarded]);
        }
        if !self.history.ids.is_empty() {
            let (sql, params) = self.history.insert(self.commit);
            pipeline.push(sql, params);
        }
        if !self.resolved.is_empty() {
            let i = self.resolved;
            pipeline.push(RESOLVE, params![i.tasks, i.tenants, i.keys, i.dues, self.now.0]);
        }
        // After the letters, which a discard holds until its versions are blocked.
        if !self.lifted.is_empty() {
            let i = self.lifted;
            pipeline.push(LIFTED, params![i.tasks, i.tenants, i.keys, i.dues]);
        }
        if !self.blocked.versions.is_empty() {
            let Blocked { identities: i, versions, given_up } = self.blocked;
            pipeline.push(
                SETTLED,
                params![i.tasks, i.tenants, i.keys, i.dues, versions, given_up, self.now.0],
            );
        }
        if !self.outbox.at.is_empty() {
            let Outbox { at, history, tasks, tenants, topics, keys, payloads } = self.outbox;
            let rows = params![at, history, tasks, tenants, topics, keys, payloads, self.now.0];
            pipeline.push(OUTBOX, rows);
        }
        pipeline.push(
            COMMIT,
            params![
                self.commit,
                self.last,
                id.map(mark),
                self.now.0,
                node.as_str().to_owned(),
                result
            ],
        );
    }
}

/// Statements that remove items.
pub(super) struct Taken<'a> {
    /// The place of each answer, and the number of rows that it must have.
    items: Vec<(usize, usize)>,
    log: Option<Acknowledged<'a>>,
}

/// The place of the answer to an acknowledgement, and what it must show.
struct Acknowledged<'a> {
    place: usize,
    items: Expected<'a>,
    /// The number of cursors moved.
    streams: usize,
}

/// The items that leave the log.
enum Expected<'a> {
    /// They were looked up: their number.
    Counted(usize),
    /// By their positions in the ranges, one range after the other; none: it leaves otherwise.
    Named(Vec<Option<&'a Item>>),
}

/// Acknowledges ranges whose items were not looked up.
fn acknowledge<'a>(
    pipeline: &mut Pipeline<'a>,
    ranges: Ranges,
    passed: Vec<Passed<'a>>,
) -> (usize, Expected<'a>) {
    let Ranges { tasks, parts, from, to } = ranges;
    let mut places: HashMap<(i32, i32), usize> = HashMap::with_capacity(tasks.len());
    let (mut bases, mut total) = (Vec::with_capacity(tasks.len()), 0);
    for (at, stream) in tasks.iter().copied().zip(parts.iter().copied()).enumerate() {
        places.insert(stream, at);
        bases.push(total - from[at]);
        total += to[at] - from[at];
    }
    let (mut runs, mut dues) = (vec![0; tasks.len()], vec![0; tasks.len()]);
    let mut tenants = vec![Cow::Borrowed(""); tasks.len()];
    let mut items = vec![None; total as usize];
    for Passed { stream, no, item } in passed {
        let Some(&at) = places.get(&stream) else { continue };
        runs[at] = item.run.0 as i64;
        tenants[at] = tenant_text(item.identity.tenant.as_ref());
        dues[at] = due_number(item.identity.due);
        items[(no + bases[at] - 1) as usize] = Some(item);
    }
    let params = params![tasks, parts, from, to, bases, runs, tenants, dues];
    (pipeline.push(ACKNOWLEDGE_NAMED, params), Expected::Named(items))
}

impl Taken<'_> {
    /// Whether exactly the items of the batch were removed.
    pub(super) fn is_complete(&self, answers: &[Vec<Row>]) -> Job<bool> {
        if self.items.iter().any(|(place, rows)| answers[*place].len() != *rows) {
            return Ok(false);
        }
        let Some(Acknowledged { place, items, streams }) = &self.log else { return Ok(true) };
        let row = answers[*place].first().ok_or_else(|| invalid("the database gave no answer"))?;
        if row.try_get::<_, i64>(0)? != *streams as i64 {
            return Ok(false);
        }
        let gone: i64 = row.try_get(1)?;
        let items = match items {
            Expected::Counted(items) => return Ok(gone == *items as i64),
            Expected::Named(items) => items,
        };
        // Without a row, an aggregate is NULL.
        let positions: Vec<i64> = row.try_get::<_, Option<_>>(2)?.unwrap_or_default();
        let keys: Vec<&str> = row.try_get::<_, Option<_>>(3)?.unwrap_or_default();
        let is_expected = |(at, key): (&i64, &&str)| {
            let item = usize::try_from(at - 1).ok().and_then(|at| items.get(at)).copied().flatten();
            item.is_some_and(|item| *key == escaped(&item.identity.key))
        };
        // A position in the log has one row, so equally many are the same.
        Ok(positions.len() == items.iter().flatten().count()
            && gone == positions.len() as i64
            && positions.iter().zip(&keys).all(is_expected))
    }
}

fn number_of(tasks: &HashMap<TaskName, i32>, task: &TaskName) -> i32 {
    tasks.get(task).copied().unwrap_or(0)
}

fn out_of_numbers() -> super::error::Failure {
    invalid("a commit has run out of numbers")
}

/// Encodes any text for PostgreSQL.
fn stored(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => escaped(text),
        Cow::Owned(text) => Cow::Owned(escaped(&text).into_owned()),
    }
}

// A plan is kept for as long as a connection lives, and may have been made when a table was empty.
// The planner would then read the whole table and compare each of its rows with each row of the
// batch. The statements below therefore look the rows up one by one (LIMIT and OFFSET keep the
// planner from turning a lookup into a join), and then change them by their physical places (`ctid`),
// which it cannot do in another order. An item cannot move between the two: only its owner moves it,
// and each commit locks the rows of its partitions. No condition beside `ctid` may be the
// predicate of a partial index: the planner could then read that index from end to end.

/// The letters are locked since they were selected.
const REVIVE: &str = "WITH u AS MATERIALIZED (
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int4[], $5::int4[], $6::int4[])
      u(id, no, run_at, attempts, guard_retries, deaths)),
  moved AS (
    INSERT INTO @.item (task, due, no, run_at, run, planned_at, part, place, tenant, key,
      version, payload, route, attempts, guard_retries, deaths, errors)
    SELECT d.task, d.due, u.no, u.run_at, d.run, d.planned_at, d.part, 2, d.tenant, d.key,
      d.version, d.payload, d.route, u.attempts, u.guard_retries, u.deaths, d.errors
    FROM u CROSS JOIN LATERAL (SELECT * FROM @.dead d WHERE d.id = u.id LIMIT 1) d
    ON CONFLICT DO NOTHING RETURNING no)
  DELETE FROM @.dead WHERE id = ANY (ARRAY(SELECT u.id FROM u JOIN moved m ON m.no = u.no))
  RETURNING id";

/// An item stays the same row and moves to another place.
const RETRY: &str = concat!(
    "WITH found AS MATERIALIZED (
    SELECT w.at, u.next, u.run_at, u.attempts, u.guard_retries, u.error
    FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::int4[], $7::int2[],
      $8::int8[], $9::int8[], $10::int8[], $11::int4[], $12::int4[], $13::text[])
      u(task, tenant, key, due, run, part, place, no, next, run_at, attempts, guard_retries, error)
    ",
    waiting!(),
    ")
  UPDATE @.item i SET place = 2, no = f.next, run_at = f.run_at, attempts = f.attempts,
    guard_retries = f.guard_retries, errors = array_append(coalesce(i.errors, '{}'), f.error)
  FROM found f WHERE i.ctid = f.at RETURNING 1"
);

const BURY: &str = concat!(
    "WITH found AS MATERIALIZED (
    SELECT w.at, u.id, u.tried, u.error, u.context
    FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::int4[],
      $7::int2[], $8::int8[], $9::int8[], $10::int4[], $11::text[], $13::text[])
      u(task, tenant, key, due, run, part, place, no, id, tried, error, context)
    ",
    waiting!(),
    "),
  gone AS (DELETE FROM @.item i USING found f WHERE i.ctid = f.at
    RETURNING f.id, f.tried, f.error AS said, f.context, i.*)
  INSERT INTO @.dead (id, task, due, at, run, planned_at, part, attempts, guard_retries, deaths,
    tenant, key, version, payload, route, errors, error, context)
  SELECT id, task, due, $12::int8, run, planned_at, part, tried, guard_retries, deaths, tenant,
    key, version, payload, route, array_append(coalesce(errors, '{}'), said), said, context
  FROM gone RETURNING 1"
);

const TAKE: &str = concat!(
    "DELETE FROM @.item WHERE ctid = ANY (ARRAY(
    SELECT w.at
    FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::int4[], $7::int2[],
      $8::int8[]) u(task, tenant, key, due, run, part, place, no)
    ",
    waiting!(),
    "))
  RETURNING 1"
);

/// `moved` moves the cursors of the ranges `u`.
macro_rules! moved {
    () => {
        "moved AS (UPDATE @.stream_head h SET acked = u.upto FROM u
    WHERE h.task = u.task AND h.part = u.part AND h.acked = u.behind RETURNING 1)"
    };
}

/// `w`: the items in the ranges `u`.
macro_rules! passed {
    () => {
        "CROSS JOIN LATERAL (SELECT i.ctid AS at, i.no, i.key, i.run, i.tenant, i.due FROM @.item i
      WHERE i.task = u.task AND i.part = u.part AND i.place = 0 AND i.no > u.behind
        AND i.no <= u.upto ORDER BY i.no LIMIT u.upto - u.behind) w"
    };
}

/// Moves the cursors, and removes the items that only end.
const ACKNOWLEDGE: &str = concat!(
    "WITH u AS MATERIALIZED (
    SELECT * FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[]) u(task, part, behind, upto)),
  ",
    moved!(),
    ",
  gone AS (DELETE FROM @.item WHERE ctid = ANY (ARRAY(SELECT w.at FROM u ",
    passed!(),
    ")) RETURNING 1)
  SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM gone)"
);

/// Like [`ACKNOWLEDGE`], for items that were not looked up: after a restore, others may have their
/// positions. Keys are returned; comparing everything else here is cheaper than returning it.
const ACKNOWLEDGE_NAMED: &str = concat!(
    "WITH u AS MATERIALIZED (
    SELECT * FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[], $5::int8[], $6::int8[],
      $7::text[], $8::int8[]) u(task, part, behind, upto, base, run, tenant, due)),
  ",
    moved!(),
    ",
  found AS MATERIALIZED (SELECT w.at, w.no + u.base AS no, w.key FROM u ",
    passed!(),
    "
    WHERE w.run = u.run AND w.tenant = u.tenant AND w.due = u.due),
  gone AS (DELETE FROM @.item WHERE ctid = ANY (ARRAY(SELECT at FROM found)) RETURNING 1)
  SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM gone), array_agg(no), array_agg(key)
  FROM found"
);

const SETTLED: &str = "INSERT INTO @.settled AS s (task, tenant, key, due, version, given_up, at)
  SELECT DISTINCT u.*, $7::int8
  FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::bool[]) u
  ON CONFLICT (task, tenant, key, due, version) DO UPDATE SET at = excluded.at,
    given_up = s.given_up OR excluded.given_up";

/// Resolves open dead letters of items that have been committed, and counts them as
/// [`Tally::resolved`] does. A letter that another commit changed since the lookup is judged again;
/// by `coalesce`, which is not the predicate of `dead_open`.
const RESOLVE: &str = "WITH resolved AS (UPDATE @.dead SET resolved_at = $5
    WHERE ctid = ANY (ARRAY(SELECT w.at
      FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[]) u(task, tenant, key, due)
      CROSS JOIN LATERAL (SELECT d.ctid AS at FROM @.dead d
        WHERE d.task = u.task AND d.tenant = u.tenant AND d.key = u.key AND d.due = u.due
          AND d.resolved_at IS NULL OFFSET 0) w)) AND coalesce(resolved_at, 0) = 0
    RETURNING task, tenant, run),
  shares AS (INSERT INTO @.run_share AS s (run, share, unlogged, ended)
    SELECT run, pg_backend_pid() % 256, 0, count(*) FROM resolved GROUP BY run ORDER BY run
    ON CONFLICT (run, share) DO UPDATE SET ended = s.ended + excluded.ended)
  INSERT INTO @.tally (task, tenant, planned, committed, skipped, dead, discarded, log, timers,
    retries, resolved, undo_bytes, rows)
  SELECT task, tenant, 0, 0, 0, 0, 0, 0, 0, 0, count(*), 0, 0 FROM resolved GROUP BY task, tenant";

const LIFTED: &str = "DELETE FROM @.settled WHERE ctid = ANY (ARRAY(
    SELECT w.at FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[]) u(task, tenant, key, due)
    CROSS JOIN LATERAL (SELECT s.ctid AS at FROM @.settled s
      WHERE s.task = u.task AND s.tenant = u.tenant AND s.key = u.key AND s.due = u.due OFFSET 0) w))";

/// Messages are numbered here, when the commit holds every row that it changes: two commits that
/// change one row emit in the order of their changes. The row of a sequence is locked until the commit
/// ends, so that its numbers become visible in their order; sequences are locked in one order. Each
/// message names the place of its sequence among them: a join would compare each message with each
/// sequence, because the planner expects ten rows of any `unnest`.
const OUTBOX: &str =
    "WITH m AS (SELECT *, dense_rank() OVER (ORDER BY sequence)::int4 AS place FROM (
      SELECT *, md5(u.tenant || E'\\x02' || u.topic || E'\\x02' || u.key) COLLATE \"C\" AS sequence
      FROM unnest($1::int4[], $2::int8[], $3::int4[], $4::text[], $5::text[], $6::text[], $7::bytea[])
        WITH ORDINALITY u(entry, history, task, tenant, topic, key, payload, i)) named),
  s AS (INSERT INTO @.outbox_sequence AS of (sequence, topic, last, head, due, turn)
    SELECT sequence, min(topic), count(*), 1, $8::int8, min(i) FROM m GROUP BY sequence ORDER BY sequence
    ON CONFLICT (sequence) DO UPDATE SET last = of.last + excluded.last,
      head = coalesce(of.head, of.last + 1),
      due = CASE WHEN of.head IS NULL THEN excluded.due ELSE of.due END,
      turn = CASE WHEN of.head IS NULL THEN excluded.turn ELSE of.turn END
    RETURNING sequence, last),
  ends AS (SELECT array_agg(last ORDER BY sequence COLLATE \"C\") AS lasts FROM s)
  INSERT INTO @.outbox (id, history, task, tenant, topic, key, no, payload, at)
  SELECT nextval('@.number'), n.history, n.task, n.tenant, n.topic, n.key, n.no, n.payload, $8::int8
  FROM (SELECT m.*, (SELECT lasts FROM ends)[m.place] + 1 - row_number() OVER (
      PARTITION BY m.place ORDER BY m.entry DESC, m.i DESC) AS no
    FROM m ORDER BY m.entry, m.i) n";

const COMMIT: &str =
    "INSERT INTO @.commit (no, last, id, at, node, result) VALUES ($1, $2, $3, $4, $5, $6)";
