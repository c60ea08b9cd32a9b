//! Items per second from their planning to their commit, with guard, history and
//! before-image, beside a bare log with a cursor that has none of these.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use besom_core::ids::{CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, RunId, Term};
use besom_core::item::Candidate;
use besom_core::mode::Mode;
use besom_core::proposal::{Change, Condition, Guard, OnGuardFailed, Proposal, Settle};
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_ports::guests::Lane;
use besom_ports::store::{Batch, Decision, Entry, NewRun, PlanPage, SlotDecision, Store, Trigger};
use rusqlite::{Connection, params};

use super::report::{Figures, cpu, median, ms};
use super::{bare, place};

/// Batch sizes, and how many batches.
const CASES: [(u32, u32); 3] = [(1, 400), (100, 200), (1_000, 40)];
const REPEATS: u32 = 3;

/// A share's id.
pub fn key(number: u32) -> String {
    format!("share-{number:08}")
}

/// So many shares, open.
pub fn fill(conn: &Connection, count: u32) -> Result<()> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let mut insert = conn.prepare("INSERT INTO shares VALUES (?1, ?2, 'f', ?3, NULL, NULL)")?;
    for number in 0..count {
        insert.execute(params![place::TENANT, key(number), number])?;
    }
    conn.execute_batch("COMMIT")?;
    Ok(())
}

/// Both, taking turns, for each batch size.
pub async fn run() -> Result<()> {
    for (size, rounds) in CASES {
        let (mut bare, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut bare_cpu, mut our_cpu) = (Vec::new(), Vec::new());
        let mut steps = Steps::default();
        for _ in 0..REPEATS {
            let items = f64::from(size * rounds);
            let dir = tempfile::tempdir()?;
            let (limit, used) = bare::log_and_cursor(&dir.path().join("bare.db"), size, rounds)?;
            bare_cpu.push(used.as_secs_f64() * 1e6 / items);
            let (took, used, of) = sweep(size, rounds).await?;
            our_cpu.push(used.as_secs_f64() * 1e6 / items);
            bare.push(items / limit.as_secs_f64());
            ours.push(items / took.as_secs_f64());
            ratios.push(limit.as_secs_f64() / took.as_secs_f64());
            steps = of;
        }
        let each = |span: Duration| ms(span) / f64::from(rounds);
        Figures::of("queue", format!("batches of {size}"))
            .with("items_per_s", median(ours))
            .with("bare_items_per_s", median(bare))
            .with("ratio", median(ratios))
            .with("cpu_us_per_item", median(our_cpu))
            .with("bare_cpu_us_per_item", median(bare_cpu))
            .with("plan_ms", each(steps.plan))
            .with("read_ms", each(steps.read))
            .with("begin_ms", each(steps.begin))
            .with("commit_ms", each(steps.commit))
            .show();
    }
    Ok(())
}

#[derive(Default)]
struct Steps {
    plan: Duration,
    read: Duration,
    begin: Duration,
    commit: Duration,
}

struct Leader {
    fence: FencingToken,
    node: Incarnation,
    epochs: BTreeMap<Partition, OwnerEpoch>,
    run: RunId,
}

async fn lead(store: &dyn Store) -> Result<Leader> {
    let fence = FencingToken { term: Term(1), token_hash: [1; 32] };
    let node = Incarnation::from("bench");
    let epochs = store.raise_fence(&fence, &node, None).await?.owned.into_iter().collect();
    let run = NewRun {
        task: "bench".into(),
        slot: Time::EPOCH,
        trigger: Trigger::Pass,
        digest: String::new(),
        definition: "{}".into(),
        mode: Mode::Live,
    };
    let decision = SlotDecision { runs: vec![run], ..SlotDecision::default() };
    let run = store.decide_slots(&fence, &decision).await?[0];
    Ok(Leader { fence, node, epochs, run })
}

async fn sweep(size: u32, rounds: u32) -> Result<(Duration, Duration, Steps)> {
    let place = place::Place::new(&place::shipped()).await?;
    fill(&place.sql()?, size * rounds)?;
    let store = place.store()?;
    let leader = lead(store.as_ref()).await?;
    let mut steps = Steps::default();
    let (began, used) = (Instant::now(), cpu());
    for round in 0..rounds {
        let mut last = Instant::now();
        let mut lap = |step: &mut Duration| {
            *step += last.elapsed();
            last = Instant::now();
        };
        let page = PlanPage {
            run: leader.run,
            task: "bench".into(),
            tenant: Some(place::TENANT.into()),
            candidates: (0..size).map(|i| candidate(round * size + i)).collect(),
            cursor: None,
            scanned: u64::from(size),
            quota: u64::MAX,
        };
        let planned = store.plan_page(&leader.fence, &page).await?;
        anyhow::ensure!(planned.planned == u64::from(size), "{planned:?}");
        lap(&mut steps.plan);
        let streams: Vec<_> =
            store.backlog(None).await?.into_iter().map(|s| (s.partition, s.acked)).collect();
        let task = "bench".into();
        let waiting = store.read_logs(&task, &streams, size, size, usize::MAX).await?.items;
        lap(&mut steps.read);
        let id = CommitId(u128::from(round) + 1);
        let items: Vec<_> = waiting.iter().map(|w| (w.source, &w.item)).collect();
        store.begin(id, &leader.node, Lane::Normal, &items).await?;
        lap(&mut steps.begin);
        let entries = waiting
            .into_iter()
            .map(|waiting| Entry {
                source: waiting.source,
                epoch: leader.epochs[&waiting.item.partition],
                decision: end(&waiting.item.identity.key),
                item: waiting.item,
            })
            .collect();
        let batch = Batch {
            id,
            node: leader.node.clone(),
            entries,
            as_of: Time::EPOCH,
            idle: Vec::new(),
            activity_in_store: true,
            lane: Lane::Normal,
            braked: false,
        };
        let committed = store.commit(&batch).await?;
        lap(&mut steps.commit);
        let all = committed.outcomes.len() == size as usize
            && committed.outcomes.iter().all(|o| *o == besom_ports::store::Outcome::Committed);
        anyhow::ensure!(all, "not everything was committed");
    }
    let (took, used) = (began.elapsed(), cpu() - used);
    let audit = store.audit().await?;
    anyhow::ensure!(audit.balanced(), "{audit:?}");
    Ok((took, used, steps))
}

fn candidate(number: u32) -> Candidate {
    let key = key(number);
    Candidate {
        tenant: Some(place::TENANT.into()),
        route: key.clone(),
        key,
        due: None,
        version: "1".into(),
        payload: vec![0; 16],
    }
}

/// What share-expiry proposes.
fn end(key: &str) -> Decision {
    let row = vec![Value::Text(key.to_owned())];
    let open = Guard::Columns {
        collection: "shares".into(),
        key: row.clone(),
        conditions: vec![Condition::equal("unshared_at", Value::Null)],
    };
    let change = Change::Update {
        collection: "shares".into(),
        key: row,
        fields: vec![Field::new("unshared_at", Value::Timestamp(Time(1)))],
    };
    let skip = || Settle::Skip { reason: "changed meanwhile".into(), settled: false };
    Decision::Apply {
        proposal: Proposal {
            guards: vec![open],
            changes: vec![change],
            on_guard_failed: OnGuardFailed::Skip("changed meanwhile".into()),
            notes: Vec::new(),
        },
        on_guard_failed: skip(),
        on_violation: skip(),
        undo: true,
    }
}
