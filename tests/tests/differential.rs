//! The same random operations on the model and on a database have the same results.
//!
//! Each seed is a sequence of steps; after each step everything that the port shows is compared.
//! `BESOM_SEED` runs one seed alone.

use std::collections::BTreeSet;
use std::time::Duration;

use besom_core::ids::{CommitId, OwnerEpoch};
use besom_core::item::{Candidate, Item, Source};
use besom_core::proposal::{Change, Settle};
use besom_core::value::{Row, Value};
use besom_doubles::store as memory;
use besom_ports::guests::Lane;
use besom_ports::store::{
    Batch, Command, CommandEffect, Committed, DeadSelector, Decision, Entry, Letters, Outcome,
    PlanPage, Planned, Retention, Waiting,
};
use besom_postgres::Options;
use besom_tests::adapters::memory::Memory;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::tables::{fields, text};
use besom_tests::conformance::world::{
    ALL, LETTERS, apply, candidate, dead, n_is, page, proposal, range, retry, set_n, settled, skip,
    task, tenant,
};
use besom_tests::conformance::{Fixture, World, block_on};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Seeds that every run covers.
const SEEDS: u64 = 40;
/// How many of these run on PostgreSQL, where every read is a round trip.
const POSTGRES_SEEDS: usize = 12;
/// Steps of one seed.
const STEPS: usize = 60;
const TASKS: [&str; 2] = ["one", "two"];

/// An operation that is chosen once and applied to both stores.
#[derive(Debug, Clone)]
enum Step {
    Plan { task: &'static str, candidates: Vec<Candidate>, quota: u64, cursor: Option<Vec<u8>> },
    Commit { picks: Vec<(usize, Decision)>, stale: bool, again: bool },
    Advance(Duration),
    Lead,
    Die,
    RetryDead(DeadSelector),
    DiscardDead(DeadSelector),
    Write(Vec<Change>),
    Prune { history: Duration, undo: Duration, limit: u32 },
    Restart,
}

fn key(rng: &mut StdRng) -> String {
    format!("k{}", rng.random_range(0..12))
}

fn some_candidate(rng: &mut StdRng, world: &World) -> Candidate {
    let due = rng.random_bool(0.4).then(|| world.now + Duration::from_secs(rng.random_range(0..4)));
    let key = key(rng);
    Candidate {
        tenant: [Some("a"), Some("a"), Some("b"), None].choose(rng).copied().flatten().map(tenant),
        route: if rng.random_bool(0.5) { "one".into() } else { key.clone() },
        due,
        version: format!("v{}", rng.random_range(0..3)),
        ..candidate(&key)
    }
}

fn some_change(rng: &mut StdRng) -> Change {
    let (key, n) = (key(rng), rng.random_range(0..3));
    let named = fields([("id", text(&key)), ("title", text("x")), ("n", Value::Integer(n))]);
    let collection = "things".to_owned();
    match rng.random_range(0..7) {
        0 | 1 => Change::Upsert { collection, fields: named },
        2 => Change::Insert { collection, fields: named },
        3 => set_n(&key, n),
        4 => Change::Delete { collection, key: vec![text(&key)] },
        5 => {
            let by = if rng.random_bool(0.1) { i64::MAX } else { 1 };
            let fields = fields([("n", Value::Integer(by))]);
            Change::Increment { collection, key: vec![text(&key)], fields }
        }
        _ => Change::Emit { topic: "t".into(), key, payload: vec![1] },
    }
}

fn some_decision(rng: &mut StdRng, world: &World) -> Decision {
    let later = world.now + Duration::from_secs(rng.random_range(0..3));
    match rng.random_range(0..8) {
        0 => skip("nothing to do"),
        1 => settled("left alone"),
        2 => retry(later, 1, "failed"),
        3 => dead(["broken", "gone"].choose(rng).expect("one of two")),
        4 => Decision::Apply {
            proposal: proposal(vec![n_is(&key(rng), 1)], vec![some_change(rng)]),
            on_guard_failed: Settle::Retry {
                run_at: later,
                attempts: 0,
                guard_retries: 1,
                reason: "changed".into(),
            },
            on_violation: Settle::Retry {
                run_at: later,
                attempts: 1,
                guard_retries: 0,
                reason: "violation".into(),
            },
            undo: false,
        },
        _ => {
            let changes = (0..rng.random_range(0..4)).map(|_| some_change(rng)).collect();
            apply(vec![], changes)
        }
    }
}

fn some_selector(rng: &mut StdRng) -> DeadSelector {
    DeadSelector {
        ids: vec![],
        task: rng.random_bool(0.5).then(|| task(TASKS[rng.random_range(0..2)])),
        error: rng.random_bool(0.3).then(|| "broken".to_owned()),
        expect: rng.random_bool(0.3).then(|| rng.random_range(0..4)),
    }
}

fn some_step(rng: &mut StdRng, world: &World) -> Step {
    match rng.random_range(0..20) {
        0..6 => Step::Plan {
            task: TASKS[rng.random_range(0..2)],
            candidates: (0..rng.random_range(0..8)).map(|_| some_candidate(rng, world)).collect(),
            quota: rng.random_range(0..9),
            cursor: rng.random_bool(0.7).then(|| vec![rng.random()]),
        },
        6..13 => Step::Commit {
            picks: (0..rng.random_range(1..9))
                .map(|_| (rng.random_range(0..24), some_decision(rng, world)))
                .collect(),
            stale: rng.random_bool(0.1),
            again: rng.random_bool(0.1),
        },
        13 | 14 => Step::Advance(Duration::from_millis(rng.random_range(0..3_000))),
        15 => match rng.random_range(0..3) {
            0 => Step::Lead,
            1 => Step::Die,
            _ => Step::Restart,
        },
        16 => Step::RetryDead(some_selector(rng)),
        17 => Step::DiscardDead(some_selector(rng)),
        18 => Step::Write(vec![some_change(rng)]),
        _ => Step::Prune {
            history: Duration::from_secs(rng.random_range(0..30)),
            undo: Duration::from_secs(rng.random_range(0..10)),
            // With a small limit SQLite examines only a part of the history.
            limit: rng.random_range(30..60),
        },
    }
}

/// The result of a step, without what adapters may choose: ids and database messages.
#[derive(Debug, PartialEq)]
enum Result {
    Planned(Planned),
    Committed(Vec<Outcome>, usize),
    Count(u64),
    Pruned { history: u64, undo: u64 },
    Refused,
    Done,
}

/// A reason without the database's message.
fn plain(reason: &str) -> String {
    let said = reason.find("violation: ").map(|at| at + "violation".len());
    reason[..said.unwrap_or(reason.len())].to_owned()
}

fn committed(committed: Committed) -> Result {
    let outcome = |outcome| match outcome {
        Outcome::Dead(reason) => Outcome::Dead(plain(&reason)),
        other => other,
    };
    let outcomes = committed.outcomes.into_iter().map(outcome).collect();
    Result::Committed(outcomes, committed.runs_ended.len())
}

/// All waiting items, in an order that both stores share.
async fn waiting(world: &World) -> Vec<Waiting> {
    let mut all = Vec::new();
    for name in TASKS {
        all.extend(world.log(name).await);
    }
    all.extend(world.timers().await);
    all.extend(world.retries().await);
    all
}

async fn batch(world: &World, picks: &[(usize, Decision)], stale: bool) -> Batch {
    let all = waiting(world).await;
    let entries: Vec<Entry> = picks
        .iter()
        .filter_map(|(pick, decision)| Some(world.entry(all.get(*pick)?, decision.clone())))
        .map(|entry| match stale {
            true => Entry { epoch: OwnerEpoch(entry.epoch.0 + 1), ..entry },
            false => entry,
        })
        .collect();
    world.batch(entries)
}

async fn command(world: &World, effect: CommandEffect) -> Result {
    let command = Command::RetryDead(DeadSelector::default());
    let id = world.store().submit(&command, "ann", "why").await.unwrap();
    let asked = world.asked(id).await;
    let applied = world.store().apply_command(&world.fence, &asked, &effect, "done", LETTERS).await;
    Result::Count(applied.unwrap().dead)
}

async fn perform(world: &mut World, step: Step, term: u64) -> Result {
    match step {
        Step::Plan { task, candidates, quota, cursor } => {
            let run = world.run(task).await;
            let page = PlanPage { quota, cursor, ..page(task, run, candidates) };
            let planned = world.store().plan_page(&world.fence, &page).await.unwrap();
            world.end_scan(task, run).await;
            Result::Planned(planned)
        }
        Step::Commit { picks, stale, again } => {
            let batch = batch(world, &picks, stale).await;
            let first = committed(world.store().commit(&batch).await.unwrap());
            if again {
                assert_eq!(committed(world.store().commit(&batch).await.unwrap()), first);
            }
            first
        }
        Step::Advance(span) => {
            world.advance(span);
            Result::Done
        }
        Step::Lead => {
            world.lead(term, &format!("node-{term}")).await;
            Result::Done
        }
        Step::Die => {
            let all = waiting(world).await;
            let begun: Vec<(Source, &Item)> =
                all.iter().step_by(2).map(|waiting| (waiting.source, &waiting.item)).collect();
            world
                .store()
                .begin(CommitId(u128::from(term)), &"dead".into(), Lane::Normal, &begun)
                .await
                .unwrap();
            let counted = world.store().bury(&world.fence, &["dead".into()]).await;
            Result::Count(counted.unwrap().len() as u64)
        }
        Step::Restart => {
            world.reopen().await;
            Result::Done
        }
        Step::RetryDead(selector) => command(world, CommandEffect::RetryDead(selector)).await,
        Step::DiscardDead(selector) => command(world, CommandEffect::DiscardDead(selector)).await,
        Step::Write(changes) => match world.unqueued(Some(tenant("a")), changes).await {
            Outcome::Committed => Result::Done,
            Outcome::Skipped(_) => Result::Refused,
            other => panic!("a write is well or refused: {other:?}"),
        },
        Step::Prune { history, undo, limit } => {
            let undo: Vec<_> = TASKS.iter().map(|name| (task(name), undo)).collect();
            let keep = Retention { history, undo: &undo, nodes: history, routed: None };
            let pruned = world.store().prune(&world.fence, keep, limit).await.unwrap();
            Result::Pruned { history: pruned.history, undo: pruned.undo }
        }
    }
}

/// The visible content of a store, without ids.
#[derive(Debug, PartialEq)]
struct Seen {
    waiting: Vec<(String, Item, besom_core::time::Time)>,
    dead: Vec<(Item, Option<besom_core::time::Time>)>,
    history: Vec<String>,
    images: Vec<usize>,
    books: besom_ports::store::Audit,
    depths: BTreeSet<String>,
    rows: Vec<Row>,
    cursors: Vec<Option<Vec<u8>>>,
    runs: Vec<String>,
    outbox: usize,
}

impl Seen {
    /// The lines in which two stores differ: those of this one with +, of the other with -.
    fn differences(&self, other: &Seen) -> Vec<String> {
        if self == other {
            return Vec::new();
        }
        let (own, others) = (self.lines(), other.lines());
        let more = |all: &[String], rest: &[String], sign: char| -> Vec<String> {
            let missing = all.iter().filter(|line| !rest.contains(line));
            missing.map(|line| format!("{sign} {line}")).collect()
        };
        let mut found = more(&own, &others, '+');
        found.extend(more(&others, &own, '-'));
        if found.is_empty() {
            found.push(format!("the same in another order:\n{}", own.join("\n")));
        }
        found
    }

    fn lines(&self) -> Vec<String> {
        fn each<'a, T: std::fmt::Debug + 'a>(
            what: &'static str,
            all: impl IntoIterator<Item = &'a T>,
        ) -> impl Iterator<Item = String> {
            all.into_iter().map(move |one| format!("{what}: {one:?}"))
        }
        let Seen { waiting, dead, history, images, books, depths, rows, cursors, runs, outbox } =
            self;
        each("waits", waiting)
            .chain(each("dead", dead))
            .chain(each("history", history))
            .chain(each("images", [images]))
            .chain(each("books", &books.rows))
            .chain(each("violations", &books.violations))
            .chain(each("depth", depths))
            .chain(each("row", rows))
            .chain(each("cursors", [cursors]))
            .chain(each("run", runs))
            .chain(each("outbox", [outbox]))
            .collect()
    }
}

fn item(mut item: Item) -> Item {
    item.errors = item.errors.iter().map(|error| plain(error)).collect();
    item
}

async fn seen(world: &World) -> Seen {
    let store = world.store();
    let place = |source| match source {
        Source::Log(seq) => format!("log {seq}"),
        Source::Timer(_) => "timer".to_owned(),
        Source::Retry(_) => "retry".to_owned(),
        Source::Unqueued(_) => unreachable!("it waits nowhere"),
    };
    let all = waiting(world).await;
    let (mut history, mut images) = (Vec::new(), Vec::new());
    for row in world.history().await {
        let reason = row.reason.as_deref().map(plain);
        let (id, run, at) = (row.identity, row.run, row.at);
        let rest = (row.settled, reason, row.node, row.commit);
        history.push(format!("{id:?} {run} {at} {} {rest:?}", row.outcome));
        images.push(store.before_images(row.id).await.unwrap().unwrap_or_default().len());
    }
    let letters =
        store.dead_letters(&DeadSelector::default(), Letters::All, None, ALL).await.unwrap();
    let depths = store.depths().await.unwrap();
    let depth = |d: besom_ports::store::Depth| {
        (d.log + d.timers + d.retries + d.dead > 0).then(|| {
            let counts = (d.log, d.timers, d.retries, d.dead, d.next_due, d.oldest);
            format!("{:?} {counts:?}", d.task)
        })
    };
    let mut cursors = Vec::new();
    for name in TASKS {
        cursors.push(store.cursor(&task(name), None).await.unwrap());
    }
    let view = store.snapshot(Duration::from_secs(3_600)).await.unwrap();
    let columns = range("things", None, &["id", "title", "n"]);
    let mut rows = Vec::new();
    for name in ["a", "b"] {
        rows.extend(view.read_range(Some(&tenant(name)), &columns).await.unwrap().rows);
    }
    let run = |run: besom_core::plan::Run| {
        let counts = (run.planned, run.deduplicated, run.blocked, run.open, run.scanned);
        format!("{} {} {counts:?} {:?}", run.id, run.task, run.ended_at)
    };
    let mut books = world.balanced().await;
    books.rows.sort_by(|a, b| (&a.task, &a.tenant).cmp(&(&b.task, &b.tenant)));
    Seen {
        waiting: all.into_iter().map(|w| (place(w.source), item(w.item), w.run_at)).collect(),
        dead: letters.into_iter().map(|letter| (item(letter.item), letter.resolved_at)).collect(),
        history,
        images,
        books,
        depths: depths.into_iter().filter_map(depth).collect::<BTreeSet<_>>(),
        rows,
        cursors,
        runs: store.active_runs().await.unwrap().into_iter().map(run).collect(),
        outbox: world.fixture.outbox().await.len(),
    }
}

async fn compare(seed: u64, name: &str, other: Box<dyn Fixture>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut model = World::new(Box::new(Memory::open())).await;
    let mut other = World::new(other).await;
    for number in 0..STEPS {
        let step = some_step(&mut rng, &model);
        let term = number as u64 + 2;
        let expected = perform(&mut model, step.clone(), term).await;
        let actual = perform(&mut other, step.clone(), term).await;
        assert_eq!(actual, expected, "{name}, BESOM_SEED={seed}, step {number}: {step:#?}");
        let (actual, expected) = (seen(&other).await, seen(&model).await);
        let differences = actual.differences(&expected);
        assert!(
            differences.is_empty(),
            "BESOM_SEED={seed}, after step {number}: {step:#?}\n{name}, and what the model has:\n{}",
            differences.join("\n")
        );
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("BESOM_SEED") {
        Ok(seed) => vec![seed.parse().expect("BESOM_SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    }
}

#[test]
fn the_model_and_sqlite_agree_on_random_operations() {
    for seed in seeds() {
        block_on(async { compare(seed, "SQLite", Box::new(Sqlite::open())).await });
    }
}

#[test]
fn the_model_and_postgresql_agree_on_random_operations() {
    // As many partitions as the model has: keys share streams alike.
    let options = Options { partitions: memory::PARTITIONS_DEFAULT, ..Options::default() };
    for seed in seeds().into_iter().take(POSTGRES_SEEDS) {
        block_on(async {
            let postgres = Postgres::open_with(options.clone()).await;
            compare(seed, "PostgreSQL", Box::new(postgres)).await;
        });
    }
}
