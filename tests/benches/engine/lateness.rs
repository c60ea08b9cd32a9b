//! How late shares end: ten thousand fall due within one second while a million more wait.
//! Lateness is the return of the commit minus the due time, beside bare commits on the same
//! disk; once with nothing else to do, once with compaction running.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use besom_config::template::Template;
use besom_core::ids::{CommitId, FencingToken, Incarnation, Term};
use besom_core::item::Candidate;
use besom_core::mode::Mode;
use besom_core::time::Time;
use besom_demo::authors::{self, Session};
use besom_engine::host::clock;
use besom_ports::store::{EndOfScan, NewRun, PlanPage, SlotDecision, Store as _, Trigger};
use rusqlite::params;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::report::{Figures, percentile};
use super::{bare, place};

/// Shares that wait.
pub const PENDING: u32 = 1_000_000;
/// Shares that fall due within the second.
const DUE: u32 = 10_000;
const LIMIT: Duration = Duration::from_secs(7 * 86_400);
const HOUR: Duration = Duration::from_secs(3_600);
/// From the preparation to the second in which they fall due.
const AHEAD: Duration = Duration::from_secs(60);
const DOCUMENTS: u32 = 300;
const EDITS: u32 = 2_000;

/// When commits returned, by their mark.
pub type Returned = Arc<Mutex<HashMap<String, Time>>>;

/// Listens to the host's own words about its commits.
pub fn listen() -> Returned {
    let returned = Returned::default();
    let listener = Listener(Arc::clone(&returned))
        .with_filter(Targets::new().with_target("besom_engine::host::perform", Level::DEBUG));
    tracing_subscriber::registry().with(listener).init();
    returned
}

struct Listener(Returned);

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let now = clock::wall();
        let mut mark = Mark(None);
        event.record(&mut mark);
        if let Some(mark) = mark.0 {
            self.0.lock().unwrap_or_else(|e| e.into_inner()).insert(mark, now);
        }
    }
}

struct Mark(Option<String>);

impl Visit for Mark {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "returned" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

fn configuration() -> Template {
    place::shipped()
        .task("share-expiry", "schedule", "\"@every 30s\"")
        .task("compaction", "schedule", "\"@every 1s\"")
        .setting("compaction", "min_changes", "100")
}

/// Alone, then beside compaction.
pub async fn run(returned: &Returned) -> Result<()> {
    one(returned, false).await?;
    one(returned, true).await
}

async fn one(returned: &Returned, compacting: bool) -> Result<()> {
    let place = place::Place::new(&configuration()).await?;
    if compacting {
        documents(&place)?;
    }
    // Whole pages of a scan take a while; what is due must not come before they are planned.
    let began = clock::wall();
    prepare(&place, None).await?;
    let due = clock::wall() + AHEAD;
    prepare(&place, Some(due)).await?;
    let took = clock::wall().since(began);
    ensure!(clock::wall() + Duration::from_secs(20) < due, "planning took {took:?}");
    let commits = bare::commits(&place.file("bare.db"), 500)?;
    let tasks: &[&str] =
        if compacting { &["share-expiry", "compaction"] } else { &["share-expiry"] };
    let assembly = place.assembly(tasks).await?;
    let running = assembly.start(false);
    let sql = place.sql()?;
    if compacting {
        tokio::time::sleep(due.since(clock::wall()).saturating_sub(Duration::from_secs(2))).await;
        sql.execute("UPDATE documents SET server_seq = ?1", [EDITS])?;
    }
    tokio::time::sleep(due.since(clock::wall()) + Duration::from_secs(4)).await;
    let late = latenesses(&sql, returned, due)?;
    running.shutdown().await;
    running.ended.await??;
    let compacted: u32 =
        sql.query_row("SELECT COUNT(*) FROM documents WHERE compacted_seq > 0", [], |r| r.get(0))?;
    let case = if compacting { "compaction running" } else { "nothing else" };
    Figures::of("lateness", format!("{DUE} due in 1 s, {case}"))
        .with("p50_ms", percentile(&late, 50.0))
        .with("p99_ms", percentile(&late, 99.0))
        .with("max_ms", percentile(&late, 100.0))
        .with("ended", late.len() as f64)
        .with("bare_commit_p50_ms", percentile(&commits, 50.0))
        .with("bare_commit_p99_ms", percentile(&commits, 99.0))
        .with("documents_compacted", f64::from(compacted))
        .show();
    ensure!(late.len() == DUE as usize, "{} of {DUE} shares ended", late.len());
    ensure!(late[0] >= 0.0, "a share ended {} ms before its time", -late[0]);
    Ok(())
}

/// Milliseconds from the due time to the return of the commit, sorted.
fn latenesses(sql: &rusqlite::Connection, returned: &Returned, from: Time) -> Result<Vec<f64>> {
    let returned = returned.lock().unwrap_or_else(|e| e.into_inner());
    let mut history = sql.prepare(
        "SELECT h.due, c.id FROM besom_history h JOIN besom_commit c ON c.no = h.commit_no
         WHERE h.outcome = 1 AND typeof(h.due) = 'integer' AND h.due >= ?1",
    )?;
    let rows = history
        .query_map([from.0], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, [u8; 16]>(1)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut late = Vec::with_capacity(rows.len());
    for (due, mark) in rows {
        let mark = CommitId(u128::from_be_bytes(mark)).to_string();
        let at = returned.get(&mark).context("a commit that has not returned")?;
        late.push((at.0 - due) as f64 / 1_000.0);
    }
    late.sort_by(f64::total_cmp);
    Ok(late)
}

/// Shares and their timers: a million that end three to twenty-three hours from now, or those
/// that end within the second from `due` on.
pub async fn prepare(place: &place::Place, due: Option<Time>) -> Result<()> {
    let (count, first, span, name) = match due {
        Some(due) => (DUE, due, Duration::from_secs(1), "due"),
        None => (PENDING, clock::wall() + HOUR * 3, HOUR * 20, "later"),
    };
    let step = span.as_micros() as i64 / i64::from(count);
    let starts = |n: u32| Time(first.0 + step * i64::from(n) - LIMIT.as_micros() as i64);
    let sql = place.sql()?;
    sql.execute_batch("BEGIN IMMEDIATE")?;
    {
        let mut insert = sql.prepare("INSERT INTO shares VALUES (?1, ?2, 'f', ?3, NULL, NULL)")?;
        for n in 0..count {
            insert.execute(params![place::TENANT, key(name, n), starts(n).0])?;
        }
    }
    sql.execute_batch("COMMIT")?;
    let store = place.store()?;
    let term = store.fence().await?.map_or(1, |fence| fence.term.0 + 1);
    let fence = FencingToken { term: Term(term), token_hash: [1; 32] };
    store.raise_fence(&fence, &Incarnation::from("bench"), None).await?;
    let run = NewRun {
        task: "share-expiry".into(),
        slot: clock::wall(),
        trigger: Trigger::Pass,
        digest: String::new(),
        definition: "{}".into(),
        mode: Mode::Live,
    };
    let decision = SlotDecision { runs: vec![run], ..SlotDecision::default() };
    let run = store.decide_slots(&fence, &decision).await?[0];
    let numbers: Vec<u32> = (0..count).collect();
    for some in numbers.chunks(10_000) {
        let candidate = |n: &u32| Candidate {
            tenant: Some(place::TENANT.into()),
            key: key(name, *n),
            route: key(name, *n),
            due: Some(starts(*n) + LIMIT),
            version: format!("{}|-", starts(*n).0),
            payload: Vec::new(),
        };
        let page = PlanPage {
            run,
            task: "share-expiry".into(),
            tenant: Some(place::TENANT.into()),
            candidates: some.iter().map(candidate).collect(),
            cursor: None,
            scanned: some.len() as u64,
            quota: u64::MAX,
        };
        store.plan_page(&fence, &page).await?;
    }
    store.end_scan(&fence, &EndOfScan::of("share-expiry".into(), run)).await?;
    Ok(())
}

fn key(name: &str, number: u32) -> String {
    format!("{name}-{number:07}")
}

/// Documents that are worth a compaction once their `server_seq` says so.
fn documents(place: &place::Place) -> Result<()> {
    let log = authors::write(&Session { seed: 1, authors: 3, transactions: EDITS })?;
    let sql = place.sql()?;
    sql.execute_batch("PRAGMA cache_size = -262144; BEGIN IMMEDIATE")?;
    for number in 0..DOCUMENTS {
        let id = super::tasks::document(number);
        sql.prepare_cached(
            "INSERT INTO documents (project_id, doc_id, created_at, updated_at)
             VALUES (?1, ?2, 0, 0)",
        )?
        .execute(params![place::TENANT, id])?;
        for (seq, edit) in (1_u32..).zip(&log.edits) {
            sql.prepare_cached(
                "INSERT INTO changes VALUES (?1, ?2, ?3, 'author', ?3, ?3, 'edit', ?4, NULL)",
            )?
            .execute(params![place::TENANT, id, seq, edit.payload])?;
        }
    }
    sql.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}
