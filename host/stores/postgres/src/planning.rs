//! Turns a page of a scan into items: due ones become timers, the others entries of their streams.
//!
//! It takes two round trips: the first finds the new candidates of the page; the second writes
//! everything and commits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use besom_core::books::{Admitted, CursorMove, Found, Known, New, admit};
use besom_core::ids::{FencingToken, Partition, TaskName, Tenant};
use besom_core::item::Candidate;
use besom_core::time::Time;
use tokio_postgres::Row;

use super::arrivals;
use super::clock::Clock;
use super::error::{Failure, Job, invalid};
use super::items::{Identities, route};
use super::leadership::{check_fence, hold_fence};
use super::session::{NUMBERS, Pipeline, Session, Tx, numbers, params};
use super::tally::Counters;
use super::tasks::Tasks;
use super::text::{NO_DUE, due_number, escaped, tenant_text};
use besom_ports::store::{Error, PlanPage, Planned, Result};

/// The cursor of (task, tenant).
pub(super) async fn cursor(
    session: &Session,
    task: &TaskName,
    tenant: Option<&Tenant>,
) -> Job<Option<Vec<u8>>> {
    let row = session
        .row(
            "SELECT cursor FROM @.cursor
             WHERE task = (SELECT id FROM @.task WHERE name = $1) AND tenant = $2",
            params![task.as_str().to_owned(), tenant_text(tenant)],
        )
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

const RUN: &str = "SELECT slot, task, scan_done FROM @.run WHERE id = $1";

/// What there is of each candidate of a page, as [`Found`] has it.
const FOUND: &str = "SELECT
    EXISTS (SELECT 1 FROM @.item w WHERE w.task = $1 AND w.tenant = u.tenant AND w.key = u.key
            AND w.due = u.due),
    EXISTS (SELECT 1 FROM @.settled s WHERE s.task = $1 AND s.tenant = u.tenant AND s.key = u.key
            AND s.due = u.due AND s.version = u.version),
    EXISTS (SELECT 1 FROM @.dead d WHERE d.task = $1 AND d.tenant = u.tenant AND d.key = u.key
            AND d.due = u.due AND d.version = u.version AND d.resolved_at IS NULL)
  FROM unnest($2::text[], $3::text[], $4::int8[], $5::text[])
    WITH ORDINALITY u(tenant, key, due, version, i) ORDER BY u.i";

/// Plans a page under the fence.
pub(super) async fn plan_page(
    session: Session,
    clock: &Clock,
    tasks: &Tasks,
    fence: &FencingToken,
    page: &PlanPage,
    partitions: u32,
) -> Result<Planned> {
    let task = tasks.number(&session, &page.task).await?;
    let mut identities = Identities::default();
    let mut versions = Vec::with_capacity(page.candidates.len());
    for candidate in &page.candidates {
        identities.add(task, candidate.tenant.as_ref(), &candidate.key, candidate.due);
        versions.push(escaped(&candidate.version));
    }
    let dues = page.candidates.iter().filter(|c| c.due.is_some()).count();
    let mut first = Pipeline::default();
    hold_fence(&mut first, fence);
    first.push(RUN, params![page.run.0 as i64]);
    first.push(NUMBERS, params![dues as i32]);
    let Identities { tenants, keys, dues, .. } = identities;
    first.push(FOUND, params![task, tenants, keys, dues, versions]);
    let (mut tx, answers) = Tx::begin_with(session, clock, first).await?;
    let done = match decide(&answers, page, task, partitions) {
        Ok((slot, numbers, admitted)) => {
            let admitted = Page { page, task, slot, numbers, admitted };
            match admitted.write(&mut tx).await {
                // A dead letter of an identity was retried since the page was compared.
                Err(Failure::Sql(e)) if is_waiting(&e) => {
                    let why = "another transaction has queued the same candidates";
                    Err(Error::Busy(why.into()).into())
                }
                written => written,
            }
        }
        Err(failure) => Err(failure),
    };
    tx.finish(done).await
}

/// Whether each candidate is blocked.
pub(super) async fn blocked(
    session: &Session,
    tasks: &Tasks,
    task: &TaskName,
    candidates: &[Candidate],
) -> Job<Vec<bool>> {
    let Some(task) = tasks.find(session, task).await? else {
        return Ok(vec![false; candidates.len()]);
    };
    let (mut identities, mut versions) = (Identities::default(), Vec::new());
    for candidate in candidates {
        identities.add(task, candidate.tenant.as_ref(), &candidate.key, candidate.due);
        versions.push(escaped(&candidate.version));
    }
    let Identities { tenants, keys, dues, .. } = identities;
    let rows = session.query(FOUND, params![task, tenants, keys, dues, versions]).await?;
    let blocked = |row: &Row| -> Job<bool> {
        let (waits, settled, dead) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Found { waits, settled, dead }.known() == Known::Blocked)
    };
    rows.iter().map(blocked).collect()
}

fn is_waiting(e: &tokio_postgres::Error) -> bool {
    e.as_db_error().is_some_and(|e| e.constraint() == Some("item_pkey"))
}

/// What has to be written for a page.
struct Page<'a> {
    page: &'a PlanPage,
    task: i32,
    slot: i64,
    /// Unused numbers, one for each candidate with a due time.
    numbers: Vec<i64>,
    admitted: Admitted<'a>,
}

/// Reads the answers: the slot of the run, the numbers, and what becomes of the candidates.
fn decide<'a>(
    answers: &[Vec<Row>],
    page: &'a PlanPage,
    task: i32,
    partitions: u32,
) -> Job<(i64, Vec<i64>, Admitted<'a>)> {
    check_fence(&answers[0])?;
    let slot = open_scan(&answers[1], page, task)?;
    let numbers = numbers(&answers[2])?;
    let known = |at: usize, _| -> Job<Known> {
        let row = answers[3].get(at).ok_or_else(|| invalid("a page without answers"))?;
        let (waits, settled, dead) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(Found { waits, settled, dead }.known())
    };
    Ok((slot, numbers, admit(page, partitions, known)?))
}

/// The slot of a run whose scan is open.
fn open_scan(answer: &[Row], page: &PlanPage, task: i32) -> Job<i64> {
    let run = page.run;
    let Some(row) = answer.first() else { return Err(invalid(format!("there is no run {run}"))) };
    if row.try_get::<_, i32>(1)? != task {
        return Err(invalid(format!("the run {run} belongs to another task")));
    }
    if row.try_get(2)? {
        return Err(invalid(format!("the scan of run {run} has ended")));
    }
    Ok(row.try_get(0)?)
}

/// Appends to the streams. A new stream also gets its head; afterwards only the owner writes the
/// head, and planning does not touch it. Each item names the place of its stream among the parts,
/// which are in ascending order: a join would compare each item with each stream, because the
/// planner expects ten rows of any `unnest`.
const APPEND: &str = "WITH grown AS (
    INSERT INTO @.stream_tail AS s (task, part, tail)
    SELECT $1::int4, g.part, g.more FROM unnest($2::int4[], $3::int8[]) g(part, more) ORDER BY g.part
    ON CONFLICT (task, part) DO UPDATE SET tail = s.tail + excluded.tail
    RETURNING s.part, s.tail, s.xmax = 0 AS fresh),
  heads AS (
    INSERT INTO @.stream_head (task, part, acked)
    SELECT $1::int4, part, 0 FROM grown WHERE fresh ON CONFLICT DO NOTHING),
  ends AS (SELECT array_agg(tail ORDER BY part) AS tails FROM grown)
  INSERT INTO @.item (task, due, no, run_at, run, planned_at, part, place, tenant, key, version,
    payload, route)
  SELECT $1::int4, $4::int8, (SELECT tails FROM ends)[u.at] - u.behind, $5::int8, $6::int8,
    $7::int8, u.part, 0, u.tenant, u.key, u.version, u.payload, u.route
  FROM unnest($8::int4[], $9::int4[], $10::int8[], $11::text[], $12::text[], $13::text[],
    $14::bytea[], $15::text[]) u(part, at, behind, tenant, key, version, payload, route)";

const TIMERS: &str = "INSERT INTO @.item (task, due, no, run_at, run, planned_at, part, place,
    tenant, key, version, payload, route)
  SELECT $1::int4, u.due, u.no, u.due, $2::int8, $3::int8, u.part, 1, u.tenant, u.key, u.version,
    u.payload, u.route
  FROM unnest($4::int8[], $5::int8[], $6::int4[], $7::text[], $8::text[], $9::text[], $10::bytea[],
    $11::text[]) u(due, no, part, tenant, key, version, payload, route)";

/// Candidates in columns, for `unnest`.
#[derive(Default)]
struct Columns<'a> {
    parts: Vec<i32>,
    tenants: Vec<Cow<'a, str>>,
    keys: Vec<Cow<'a, str>>,
    versions: Vec<Cow<'a, str>>,
    payloads: Vec<&'a [u8]>,
    routes: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, candidate: &'a Candidate, partition: Partition) {
        self.parts.push(partition.0 as i32);
        self.tenants.push(tenant_text(candidate.tenant.as_ref()));
        self.keys.push(escaped(&candidate.key));
        self.versions.push(escaped(&candidate.version));
        self.payloads.push(&candidate.payload);
        self.routes.push(route(&candidate.route, &candidate.key));
    }
}

impl Page<'_> {
    async fn write(self, tx: &mut Tx) -> Job<Planned> {
        let Page { page, task, slot, numbers, admitted } = self;
        let Admitted { items, logged, cursor, tally, planned } = admitted;
        let run = page.run.0 as i64;
        let mut pipeline = Pipeline::default();
        // Stream by stream, each in order.
        let mut streams: BTreeMap<Partition, Vec<&Candidate>> = BTreeMap::new();
        let mut timers = Columns::default();
        let mut dues = Vec::new();
        for New { candidate, partition } in items {
            if candidate.due.is_some() {
                dues.push(due_number(candidate.due));
                timers.push(candidate, partition);
            } else {
                streams.entry(partition).or_default().push(candidate);
            }
        }
        if !streams.is_empty() {
            let (mut parts, mut more): (Vec<i32>, Vec<i64>) = Default::default();
            let (mut at, mut behind): (Vec<i32>, Vec<i64>) = Default::default();
            let mut all = Columns::default();
            for (partition, candidates) in &streams {
                parts.push(partition.0 as i32);
                more.push(candidates.len() as i64);
                for (i, candidate) in candidates.iter().enumerate() {
                    at.push(parts.len() as i32);
                    behind.push((candidates.len() - 1 - i) as i64);
                    all.push(candidate, *partition);
                }
            }
            let Columns { parts: of, tenants, keys, versions, payloads, routes } = all;
            pipeline.push(
                APPEND,
                params![
                    task, parts, more, NO_DUE, tx.now.0, run, slot, of, at, behind, tenants, keys,
                    versions, payloads, routes
                ],
            );
        }
        if !dues.is_empty() {
            let numbers: Vec<i64> = numbers.into_iter().take(dues.len()).collect();
            let Columns { parts, tenants, keys, versions, payloads, routes } = timers;
            pipeline.push(
                TIMERS,
                params![
                    task, run, slot, dues, numbers, parts, tenants, keys, versions, payloads,
                    routes
                ],
            );
        }
        let counts = [planned.planned, planned.deduplicated, planned.blocked, page.scanned];
        let [new, deduplicated, blocked, scanned] = counts.map(|n| n as i64);
        pipeline.push(
            "UPDATE @.run SET planned = planned + $2, deduplicated = deduplicated + $3,
               blocked = blocked + $4, logged = logged + $5, scanned = scanned + $6
             WHERE id = $1",
            params![run, new, deduplicated, blocked, logged as i64, scanned],
        );
        move_cursor(&mut pipeline, task, page.tenant.as_ref(), cursor, tx.now);
        Counters::of(&tally, |_| task).write(&mut pipeline);
        arrivals::note(&mut pipeline, logged > 0, planned.earliest_due, None);
        tx.session.run(pipeline).await?;
        Ok(planned)
    }
}

fn move_cursor<'a>(
    pipeline: &mut Pipeline<'a>,
    task: i32,
    tenant: Option<&'a Tenant>,
    cursor: CursorMove<'a>,
    now: Time,
) {
    let tenant = tenant_text(tenant);
    match cursor {
        CursorMove::Stay => 0,
        CursorMove::To(cursor) => pipeline.push(
            "INSERT INTO @.cursor (task, tenant, cursor, moved_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (task, tenant)
             DO UPDATE SET cursor = excluded.cursor, moved_at = excluded.moved_at",
            params![task, tenant, cursor, now.0],
        ),
        CursorMove::Begin => pipeline
            .push("DELETE FROM @.cursor WHERE task = $1 AND tenant = $2", params![task, tenant]),
    };
}
