//! A node's measurements: counts are exact, estimates stay within their bounds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use besom_core::ids::{Partition, Tenant};
use besom_core::item::Identity;
use besom_core::time::Time;
use runs::{RUNS_MAX, TOLD_AFTER_END};

const START: Mono = Mono(1_000_000_000);

fn after(seconds: u64) -> Mono {
    START + Duration::from_secs(seconds)
}

fn item(key: &str, run: u64) -> Item {
    Item {
        identity: Identity {
            task: "sweep".into(),
            tenant: Some(Tenant::from("a")),
            key: format!("{key}/{run}"),
            due: None,
        },
        route: key.to_owned(),
        partition: Partition(7),
        version: "v".into(),
        payload: Vec::new(),
        run: RunId(run),
        planned_at: Time::EPOCH,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: Vec::new(),
    }
}

fn report(meter: &mut Meter, now: Mono) -> Report {
    let mut report = Report::default();
    meter.fill(now, &mut report);
    report
}

/// One batch of one item each second.
fn land(meter: &mut Meter, seconds: u64, item: &Item, end: End) {
    let batch = CommitId(u128::from(seconds));
    meter.begin(after(seconds), batch, [item]);
    meter.land(after(seconds) + Duration::from_millis(3), batch, [(item, end)]);
}

#[test]
fn what_leaves_a_commit_is_counted_by_how_it_does() {
    let mut meter = Meter::new(START);
    let items = [item("a", 1), item("b", 1), item("c", 2), item("d", 2)];
    meter.begin(START, CommitId(1), &items);
    assert_eq!(report(&mut meter, START).running, 4);
    let ends = [End::Committed, End::Skipped, End::Retried, End::Dead];
    meter.land(after(1), CommitId(1), items.iter().zip(ends));
    let said = report(&mut meter, after(1));
    assert_eq!((said.running, said.died), (0, 1));
    assert_eq!(said.finished, [("sweep".to_owned(), 3)].into(), "a retry is no end");
    assert_eq!(said.rates, [3]);
    assert_eq!((said.latency.count(), said.latency.quantile(1.0)), (3, Some(1_000_000)));
    assert_eq!(said.hot_of, 3);
    let runs: Vec<_> =
        said.runs.iter().map(|r| (r.run, r.committed, r.skipped, r.retried, r.dead)).collect();
    assert_eq!(runs, [(1, 1, 1, 0, 0), (2, 0, 0, 1, 1)]);
}

#[test]
fn what_is_abandoned_is_not_running_and_was_nothing() {
    let mut meter = Meter::new(START);
    for batch in 1..=3 {
        meter.begin(START, CommitId(batch), &[item("a", 1)]);
    }
    meter.abandon(CommitId(1));
    assert_eq!(report(&mut meter, START).running, 2);
    meter.abandon_all();
    let said = report(&mut meter, after(1));
    assert_eq!((said.running, said.latency.count(), said.rates), (0, 0, vec![0]));
}

#[test]
fn rates_are_samples_of_the_last_quarter_of_an_hour() {
    let mut meter = Meter::new(START);
    for second in [0, 14, 15, 45] {
        land(&mut meter, second, &item("a", 1), End::Committed);
    }
    assert_eq!(report(&mut meter, after(46)).rates, [2, 1, 0, 1]);
    let last = RATE_SAMPLE_S * RATE_SAMPLES as u64;
    let rates = report(&mut meter, after(last)).rates;
    assert_eq!((rates.len(), &rates[..3]), (RATE_SAMPLES, &[1, 0, 1][..]));
    assert_eq!(report(&mut meter, after(last * 9)).rates, vec![0; RATE_SAMPLES]);
}

#[test]
fn latencies_and_hot_keys_are_forgotten_after_a_quarter_of_an_hour() {
    let mut meter = Meter::new(START);
    land(&mut meter, 0, &item("early", 1), End::Committed);
    land(&mut meter, 600, &item("late", 1), End::Committed);
    for (at, count, hot) in
        [(601, 2, vec!["early", "late"]), (901, 1, vec!["late"]), (1_800, 0, vec![])]
    {
        let said = report(&mut meter, after(at));
        assert_eq!((said.latency.count(), said.hot_of), (count, count), "after {at} s");
        assert_eq!(said.hot.iter().map(|hot| hot.key.as_str()).collect::<Vec<_>>(), hot);
    }
}

#[test]
fn the_usage_of_a_run_adds_up() {
    let mut meter = Meter::new(START);
    for (fuel, memory_bytes) in [(10, 300), (30, 200), (20, 100)] {
        let used = Used { fuel, memory_bytes, host_calls: 2, rows_read: 5, instances: 1 };
        meter.used(START, RunId(4), &used);
    }
    let run = &report(&mut meter, START).runs[0];
    assert_eq!((run.run, run.fuel, run.fuel_most, run.memory_most), (4, 60, 30, 300));
    assert_eq!((run.host_calls, run.rows_read, run.instances), (6, 15, 3));
}

#[test]
fn a_run_is_told_of_for_a_moment_after_its_end() {
    let mut meter = Meter::new(START);
    land(&mut meter, 0, &item("a", 1), End::Committed);
    land(&mut meter, 0, &item("a", 2), End::Committed);
    meter.ended(&[RunId(1), RunId(99)]);
    let told = |meter: &mut Meter, at: Mono| -> Vec<u64> {
        report(meter, at).runs.iter().map(|run| run.run).collect()
    };
    assert_eq!(told(&mut meter, after(30)), [1, 2]);
    assert_eq!(told(&mut meter, after(1) + TOLD_AFTER_END), [2]);
    assert!(told(&mut meter, after(3_600)).is_empty());
}

#[test]
fn the_runs_touched_last_are_counted() {
    let mut meter = Meter::new(START);
    let most = RUNS_MAX as u64;
    for run in 0..=most {
        meter.used(after(run), RunId(run), &Used::default());
    }
    let runs: Vec<u64> = report(&mut meter, after(most)).runs.iter().map(|run| run.run).collect();
    assert_eq!(runs, (1..=most).collect::<Vec<_>>());
}

#[test]
fn work_that_is_spread_evenly_has_no_hot_key() {
    let mut meter = Meter::new(START);
    for n in 0..20_000 {
        land(&mut meter, 0, &item(&format!("k{}", n % 2_000), 1), End::Committed);
    }
    let said = report(&mut meter, after(1));
    assert_eq!((said.hot, said.hot_of), (Vec::new(), 20_000));
}

/// Keys of a skewed stream: low numbers are frequent.
fn stream() -> impl Strategy<Value = Vec<u16>> {
    let key = (0_u16..400, 0_u16..400, 0_u16..400).prop_map(|(a, b, c)| a.min(b).min(c));
    prop::collection::vec(key, 1..3_000)
}

proptest! {
    /// The bounds of the algorithm, against an exact count, over several panes.
    #[test]
    fn a_sketch_errs_upwards_and_within_its_bound(keys in stream(), panes in 1_usize..4) {
        let mut sketches: Vec<Sketch> = (0..panes).map(|_| Sketch::default()).collect();
        let mut exact: BTreeMap<String, u64> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            let key = key.to_string();
            sketches[at % panes].add(&item(&key, 1));
            *exact.entry(key).or_default() += 1;
        }
        let total = keys.len() as u64;
        let bound = total / hot::COUNTERS as u64;
        let (hot, of) = hot::hottest(&sketches.iter().collect::<Vec<_>>());
        prop_assert_eq!(of, total);
        prop_assert!(hot.len() <= hot::TOLD_MAX);
        prop_assert!(hot.windows(2).all(|pair| pair[0].count >= pair[1].count));
        for told in &hot {
            let count = exact[&told.key];
            prop_assert!(count <= told.count && told.count <= count + bound, "{told:?}: {count}");
        }
        // A key that is certainly among the hottest is reported: fewer than this many keys can be
        // as hot.
        let share = total / hot::TOLD_MAX as u64;
        for (key, count) in exact.iter().filter(|(_, count)| **count > share + bound) {
            prop_assert!(hot.iter().any(|told| told.key == *key), "{key}: {count} of {total}");
        }
    }
}
