//! The end of items' executions: history, retries, dead letters. Collected per batch, written by a
//! few statements.

use besom_core::ids::{CommitId, Incarnation};
use besom_core::item::{Item, Source};
use besom_core::proposal::{Change, Settle};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::columns::{Columns, alike};
use super::error::{Job, invalid};
use super::items::{Identities, key_hash, place};
use super::session::{Param, Pipeline, params};
use super::tally::Tally;
use super::text::{escaped, tenant_text};
use super::waiting::mark;
use crate::ports::store::Outcome;
pub(super) use crate::store::record::ends::{End, Remarks};

/// Items that leave their place, identified by identity and place.
#[derive(Default)]
pub(super) struct Leaving {
    identities: Identities,
    places: Vec<i16>,
    numbers: Vec<i64>,
}

impl Leaving {
    fn push(&mut self, task: i32, item: &Item, source: Source) {
        self.identities.push(task, &item.identity);
        let (at, no) = place(source);
        self.places.push(at);
        self.numbers.push(no);
    }
}

/// Whether anything of a task may block an identity, for any of its items. For most tasks nothing
/// does, and then no item is looked up.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// A version was settled or discarded.
    pub(super) settled: bool,
    /// There is an open dead letter.
    pub(super) dead: bool,
}

impl Blocks {
    /// The answer to [`BLOCKS`], from column `at` on.
    pub(super) fn read(row: &Row, at: usize) -> Job<Blocks> {
        Ok(Blocks { settled: row.try_get(at)?, dead: row.try_get(at + 1)? })
    }
}

/// What may block items of the tasks `{tasks}`, as two columns.
pub(super) const BLOCKS: &str = "EXISTS (SELECT 1 FROM @.settled s WHERE s.task = ANY({tasks})),
    EXISTS (SELECT 1 FROM @.dead d WHERE d.task = ANY({tasks}) AND d.resolved_at IS NULL)";

/// The books of one commit while its entries are settled.
pub(super) struct Books {
    /// The number of the commit's row.
    pub(super) commit: i64,
    pub(super) tally: Tally,
    now: Time,
    blocks: Blocks,
    /// The highest of the numbers.
    last: i64,
    /// The commit's number, then one per entry: for its history row, and for the retry or the dead
    /// letter that it becomes; each of these kinds is numbered separately.
    numbers: Vec<i64>,
    history: History,
    retries: Retries,
    dead: Dead,
    /// Finished timers and retries.
    gone: Leaving,
    /// Versions that are blocked from now on.
    settled: Settled,
    /// Identities that nothing blocks any more, if their tasks have any blocks.
    lifted: Identities,
    /// Committed identities, if their tasks have dead letters.
    done: Identities,
    outbox: Outbox,
}

#[derive(Default)]
struct Settled {
    identities: Identities,
    versions: Vec<String>,
    /// Whether an operator did it, rather than the task.
    given_up: Vec<bool>,
}

#[derive(Default)]
struct History {
    ids: Vec<i64>,
    identities: Identities,
    hashes: Vec<i32>,
    runs: Vec<i64>,
    outcomes: Vec<i16>,
    settled: Vec<bool>,
    reasons: Vec<Option<String>>,
    notes: Vec<Option<Vec<u8>>>,
    undo_bytes: Vec<i64>,
    undo: Vec<Option<Vec<u8>>>,
}

impl History {
    /// The statement that writes the rows. Most batches belong to one task and run and have one
    /// outcome; a few groups of columns therefore need only a few prepared statements.
    fn insert<'a>(self, commit: i64) -> (String, Vec<Param<'a>>) {
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
        columns.each("key_hash", "int4", self.hashes);
        columns.add("due", "int8", of.dues, due);
        columns.add("outcome", "int2", self.outcomes, end);
        columns.add("settled", "bool", self.settled, end);
        columns.add("reason", "text", self.reasons, end);
        columns.add("notes", "bytea", self.notes, end);
        columns.each("undo_bytes", "int8", self.undo_bytes);
        columns.each("undo", "bytea", self.undo);
        columns.insert("@.history")
    }
}

#[derive(Default)]
struct Retries {
    leaving: Leaving,
    to: Vec<i64>,
    run_at: Vec<i64>,
    attempts: Vec<i32>,
    guard_retries: Vec<i32>,
    errors: Vec<String>,
}

#[derive(Default)]
struct Dead {
    leaving: Leaving,
    ids: Vec<i64>,
    attempts: Vec<i32>,
    errors: Vec<String>,
}

#[derive(Default)]
struct Outbox {
    /// The indexes of their entries, which define the order.
    at: Vec<i32>,
    history: Vec<i64>,
    tasks: Vec<i32>,
    tenants: Vec<String>,
    topics: Vec<String>,
    keys: Vec<String>,
    payloads: Vec<Vec<u8>>,
}

/// How many numbers the books of this many entries need. (Messages are numbered when they are
/// written: see [`OUTBOX`].)
pub(super) fn numbers_needed(entries: usize) -> usize {
    1 + entries
}

impl Books {
    /// Opens the books with unused numbers. [`Books::close`] writes the commit's row.
    pub(super) fn open(numbers: Vec<i64>, blocks: Blocks, now: Time) -> Job<Books> {
        Ok(Books {
            last: numbers.iter().max().copied().unwrap_or_default(),
            commit: number(&numbers, 0)?,
            tally: Tally::default(),
            now,
            blocks,
            numbers,
            history: History::default(),
            retries: Retries::default(),
            dead: Dead::default(),
            gone: Leaving::default(),
            settled: Settled::default(),
            lifted: Identities::default(),
            done: Identities::default(),
            outbox: Outbox::default(),
        })
    }

    /// Records that the item leaves the place where it was waiting.
    pub(super) fn took(&mut self, task: i32, item: &Item, source: Source) {
        let delta = self.tally.of(task, item.identity.tenant.as_ref());
        match source {
            Source::Log(_) => {
                delta.log -= 1;
                self.tally.left_log(item.run);
            }
            Source::Timer(_) => delta.timers -= 1,
            Source::Retry(_) => delta.retries -= 1,
            Source::Unqueued(_) => delta.planned += 1,
        }
    }

    /// Records that the item has ended.
    pub(super) fn leaves(&mut self, task: i32, item: &Item, source: Source) {
        self.tally.ended(item.run);
        // The log is acknowledged as a range, and what was never queued waits nowhere.
        if !matches!(source, Source::Log(_) | Source::Unqueued(_)) {
            self.gone.push(task, item, source);
        }
    }

    /// Records that the item's changes were applied; the caller has recorded that it leaves.
    pub(super) fn committed(
        &mut self,
        at: usize,
        task: i32,
        item: &Item,
        remarks: Remarks<'_>,
        changes: &[Change],
    ) -> Job<Outcome> {
        self.tally.of(task, item.identity.tenant.as_ref()).committed += 1;
        // A committed item is no longer settled, discarded or set aside.
        self.lift(task, item);
        if self.blocks.dead {
            self.done.push(task, &item.identity);
        }
        let history = self.history(at, task, item, End::Committed, remarks)?;
        for change in changes {
            if let Change::Emit { topic, key, payload } = change {
                self.outbox.at.push(at as i32);
                self.outbox.history.push(history);
                self.outbox.tasks.push(task);
                self.outbox.tenants.push(tenant_text(item.identity.tenant.as_ref()));
                self.outbox.topics.push(escaped(topic).into_owned());
                self.outbox.keys.push(escaped(key).into_owned());
                self.outbox.payloads.push(payload.clone());
            }
        }
        Ok(Outcome::Committed)
    }

    /// Ends or moves the item without effects. `said` is appended to the reason.
    pub(super) fn settle(
        &mut self,
        at: usize,
        task: i32,
        item: &Item,
        source: Source,
        settle: &Settle,
        said: Option<&str>,
    ) -> Job<Outcome> {
        let with = |reason: &str| match said {
            Some(said) => format!("{reason}: {said}"),
            None => reason.to_owned(),
        };
        let tenant = item.identity.tenant.as_ref();
        match settle {
            Settle::Skip { reason, settled } => {
                let reason = with(reason);
                self.tally.of(task, tenant).skipped += 1;
                self.leaves(task, item, source);
                if *settled {
                    self.lift(task, item);
                    self.block(task, item, false);
                }
                let remarks =
                    Remarks { settled: *settled, reason: Some(&reason), ..Remarks::default() };
                self.history(at, task, item, End::Skipped, remarks)?;
                Ok(Outcome::Skipped(reason))
            }
            Settle::Retry { run_at, attempts, guard_retries, reason } => {
                self.tally.of(task, tenant).retries += 1;
                self.retries.leaving.push(task, item, source);
                self.retries.to.push(number(&self.numbers, 1 + at)?);
                self.retries.run_at.push(run_at.0);
                self.retries.attempts.push(*attempts as i32);
                self.retries.guard_retries.push(*guard_retries as i32);
                self.retries.errors.push(escaped(&with(reason)).into_owned());
                Ok(Outcome::Retried(*run_at))
            }
            Settle::Dead { attempts, reason } => {
                let reason = with(reason);
                self.tally.of(task, tenant).dead += 1;
                self.dead.leaving.push(task, item, source);
                self.dead.ids.push(number(&self.numbers, 1 + at)?);
                self.dead.attempts.push(*attempts as i32);
                self.dead.errors.push(escaped(&reason).into_owned());
                let remarks = Remarks { reason: Some(&reason), ..Remarks::default() };
                self.history(at, task, item, End::Dead, remarks)?;
                Ok(Outcome::Dead(reason))
            }
        }
    }

    /// An operator has discarded the item: its version is not planned again.
    pub(super) fn give_up(&mut self, task: i32, item: &Item) {
        self.block(task, item, true);
    }

    /// Nothing blocks the item's versions any more.
    fn lift(&mut self, task: i32, item: &Item) {
        if self.blocks.settled {
            self.lifted.push(task, &item.identity);
        }
    }

    fn block(&mut self, task: i32, item: &Item, given_up: bool) {
        self.settled.identities.push(task, &item.identity);
        self.settled.versions.push(escaped(&item.version).into_owned());
        self.settled.given_up.push(given_up);
    }

    /// Adds the history row of an entry, and returns its number.
    pub(super) fn history(
        &mut self,
        at: usize,
        task: i32,
        item: &Item,
        end: End,
        remarks: Remarks<'_>,
    ) -> Job<i64> {
        let id = number(&self.numbers, 1 + at)?;
        let undo_bytes = remarks.undo.as_ref().map_or(0, Vec::len) as i64;
        if undo_bytes > 0 {
            self.tally.of(task, item.identity.tenant.as_ref()).undo_bytes += undo_bytes;
        }
        let rows = &mut self.history;
        rows.ids.push(id);
        rows.identities.push(task, &item.identity);
        rows.hashes.push(key_hash(&item.identity.key));
        rows.runs.push(item.run.0 as i64);
        rows.outcomes.push(end as i16);
        rows.settled.push(remarks.settled);
        rows.reasons.push(remarks.reason.map(|reason| escaped(reason).into_owned()));
        rows.notes.push(match remarks.notes {
            [] => None,
            notes => Some(postcard::to_stdvec(notes)?),
        });
        rows.undo_bytes.push(undo_bytes);
        rows.undo.push(remarks.undo);
        Ok(id)
    }

    /// Removes the items from where they were waiting; entries of streams that only end are
    /// acknowledged as ranges of positions. Returns the indexes of the answers, and the number of
    /// rows that each must have.
    pub(super) fn take_all(&mut self, pipeline: &mut Pipeline<'_>, ranges: Ranges) -> Taken {
        let mut expected = Vec::new();
        let moved = |leaving: &Leaving| leaving.places.iter().filter(|p| **p == 0).count();
        let of_the_log = ranges.entries - moved(&self.retries.leaving) - moved(&self.dead.leaving);
        let mut ask = |rows: usize, sql: &'static str, params| {
            expected.push((pipeline.push(sql, params), rows));
        };
        if !self.retries.to.is_empty() {
            let Retries { leaving, to, run_at, attempts, guard_retries, errors } =
                std::mem::take(&mut self.retries);
            let Leaving { identities: i, places, numbers } = leaving;
            ask(
                to.len(),
                RETRY,
                params![
                    i.tasks,
                    i.tenants,
                    i.keys,
                    i.dues,
                    places,
                    numbers,
                    to,
                    run_at,
                    attempts,
                    guard_retries,
                    errors
                ],
            );
        }
        if !self.dead.ids.is_empty() {
            let Dead { leaving, ids, attempts, errors } = std::mem::take(&mut self.dead);
            let Leaving { identities: i, places, numbers } = leaving;
            ask(
                ids.len(),
                BURY,
                params![
                    i.tasks, i.tenants, i.keys, i.dues, places, numbers, ids, attempts, errors,
                    self.now.0
                ],
            );
        }
        if !self.gone.identities.is_empty() {
            let Leaving { identities: i, places, numbers } = std::mem::take(&mut self.gone);
            ask(places.len(), TAKE, params![i.tasks, i.tenants, i.keys, i.dues, places, numbers]);
        }
        let mut log = None;
        if !ranges.tasks.is_empty() {
            let Ranges { tasks, parts, from, to, .. } = ranges;
            log = Some((pipeline.push(ACKNOWLEDGE, params![tasks, parts, from, to]), of_the_log));
        }
        Taken { items: expected, log }
    }

    /// Writes the results of the entries, and the commit's row with its result; a discard by a
    /// command has no mark.
    pub(super) fn close(
        self,
        pipeline: &mut Pipeline<'_>,
        id: Option<CommitId>,
        node: &Incarnation,
        result: Vec<u8>,
    ) {
        self.tally.write_counters(pipeline);
        if !self.history.ids.is_empty() {
            let (sql, params) = self.history.insert(self.commit);
            pipeline.push(sql, params);
        }
        if !self.lifted.is_empty() {
            let i = self.lifted;
            pipeline.push(LIFTED, params![i.tasks, i.tenants, i.keys, i.dues]);
        }
        if !self.done.is_empty() {
            let i = self.done;
            pipeline.push(RESOLVE, params![i.tasks, i.tenants, i.keys, i.dues, self.now.0]);
        }
        if !self.settled.versions.is_empty() {
            let Settled { identities: i, versions, given_up } = self.settled;
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

/// Ranges of positions to acknowledge, as columns.
#[derive(Default)]
pub(super) struct Ranges {
    pub(super) tasks: Vec<i32>,
    pub(super) parts: Vec<i32>,
    /// The previous cursors.
    pub(super) from: Vec<i64>,
    /// The new cursors.
    pub(super) to: Vec<i64>,
    /// The number of positions in all of them.
    pub(super) entries: usize,
}

/// Statements that remove items, and the number of rows that each must affect.
pub(super) struct Taken {
    pub(super) items: Vec<(usize, usize)>,
    pub(super) log: Option<(usize, usize)>,
}

fn number(numbers: &[i64], at: usize) -> Job<i64> {
    numbers.get(at).copied().ok_or_else(|| invalid("a commit has run out of numbers"))
}

/// An item stays the same row and moves to another place.
const RETRY: &str = "UPDATE @.item i SET place = 2, no = u.next, run_at = u.run_at,
    attempts = u.attempts, guard_retries = u.guard_retries,
    errors = array_append(coalesce(i.errors, '{}'), u.error)
  FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int2[], $6::int8[], $7::int8[],
    $8::int8[], $9::int4[], $10::int4[], $11::text[])
    u(task, tenant, key, due, place, no, next, run_at, attempts, guard_retries, error)
  WHERE i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
    AND i.place = u.place AND i.no = u.no
  RETURNING 1";

const BURY: &str = "WITH u AS MATERIALIZED (
    SELECT * FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int2[], $6::int8[],
      $7::int8[], $8::int4[], $9::text[])
      u(task, tenant, key, due, place, no, id, tried, error)),
  gone AS (DELETE FROM @.item i USING u
    WHERE i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
      AND i.place = u.place AND i.no = u.no
    RETURNING u.id, u.tried, u.error AS said, i.*)
  INSERT INTO @.dead (id, task, due, at, run, planned_at, part, attempts, guard_retries, deaths,
    tenant, key, version, payload, route, errors, error)
  SELECT id, task, due, $10::int8, run, planned_at, part, tried, guard_retries, deaths, tenant,
    key, version, payload, route, array_append(coalesce(errors, '{}'), said), said
  FROM gone RETURNING 1";

const TAKE: &str = "DELETE FROM @.item i
  USING unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int2[], $6::int8[])
    u(task, tenant, key, due, place, no)
  WHERE i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
    AND i.place = u.place AND i.no = u.no
  RETURNING 1";

const ACKNOWLEDGE: &str = "WITH gone AS (DELETE FROM @.item i
    USING unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[]) u(task, part, behind, upto)
    WHERE i.task = u.task AND i.part = u.part AND i.place = 0 AND i.no > u.behind AND i.no <= u.upto
    RETURNING 1)
  SELECT count(*) FROM gone";

const SETTLED: &str = "INSERT INTO @.settled AS s (task, tenant, key, due, version, given_up, at)
  SELECT DISTINCT u.*, $7::int8
  FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::bool[]) u
  ON CONFLICT (task, tenant, key, due, version) DO UPDATE SET at = excluded.at,
    given_up = s.given_up OR excluded.given_up";

/// Resolves open dead letters of items that have been committed. They stay in the books.
const RESOLVE: &str = "WITH resolved AS (UPDATE @.dead d SET resolved_at = $5
    FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[]) u(task, tenant, key, due)
    WHERE d.task = u.task AND d.tenant = u.tenant AND d.key = u.key AND d.due = u.due
      AND d.resolved_at IS NULL
    RETURNING d.task, d.tenant, d.run),
  shares AS (INSERT INTO @.run_share AS s (run, share, unlogged, ended)
    SELECT run, pg_backend_pid() % 256, 0, count(*) FROM resolved GROUP BY run ORDER BY run
    ON CONFLICT (run, share) DO UPDATE SET ended = s.ended + excluded.ended)
  INSERT INTO @.tally (task, tenant, planned, committed, skipped, dead, discarded, log, timers,
    retries, resolved, undo_bytes)
  SELECT task, tenant, 0, 0, 0, 0, 0, 0, 0, 0, count(*), 0 FROM resolved GROUP BY task, tenant";

const LIFTED: &str = "DELETE FROM @.settled s
  USING unnest($1::int4[], $2::text[], $3::text[], $4::int8[]) u(task, tenant, key, due)
  WHERE s.task = u.task AND s.tenant = u.tenant AND s.key = u.key AND s.due = u.due";

/// Messages are numbered here, when the commit holds every row that it changes: two commits that
/// change one row emit in the order of their changes.
const OUTBOX: &str = "INSERT INTO @.outbox (id, history, task, tenant, topic, key, payload, at)
  SELECT nextval('@.number'), m.history, m.task, m.tenant, m.topic, m.key, m.payload, $8::int8
  FROM (SELECT * FROM unnest($1::int4[], $2::int8[], $3::int4[], $4::text[], $5::text[],
    $6::text[], $7::bytea[]) WITH ORDINALITY
    u(entry, history, task, tenant, topic, key, payload, i) ORDER BY u.entry, u.i) m";

const COMMIT: &str =
    "INSERT INTO @.commit (no, last, id, at, node, result) VALUES ($1, $2, $3, $4, $5, $6)";
