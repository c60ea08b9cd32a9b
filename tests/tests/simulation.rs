//! Exactly-once effects and conservation under crashes, pauses, lost and doubled messages
//! and unknown results; and the proof that the checks can fail.
//!
//! `BESOM_SIM_SEEDS` sets the number of worlds of each kind; `BESOM_SEED` runs one alone.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use besom_tests::sim::{Plan, Report, Violation, simulate};

/// Worlds that every run covers.
const SEEDS: u64 = 150;

/// A number from the environment.
fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: this is not a number")))
}

/// Runs worlds on all processors, each world on one thread; the order of the reports is undefined,
/// and no world is started after `inspect` has returned that it is done.
fn simulate_all(plans: Vec<Plan>, inspect: impl Fn(Plan, Report) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(plans.len()) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(plan) = plans.get(number as usize) else { return };
                    if inspect(*plan, simulate(*plan)) {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

#[derive(Default)]
struct Sum {
    worlds: u64,
    things: usize,
    troubles: u64,
    terms: u64,
}

#[test]
fn effects_happen_exactly_once_whatever_goes_wrong() {
    run_worlds(Plan::of);
}

/// The same where the nodes share the partitions, and each executes what it owns.
#[test]
fn effects_happen_exactly_once_in_a_cluster() {
    run_worlds(Plan::of_cluster);
}

/// Runs as many worlds as wanted, or the one whose seed is in `BESOM_SEED`.
fn run_worlds(plan: fn(u64) -> Plan) {
    let seeds = match from_environment("BESOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("BESOM_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let (sum, failures) = (Mutex::new(Sum::default()), Mutex::new(Vec::new()));
    simulate_all(seeds.map(plan).collect(), |plan, report| {
        let mut failed = failures.lock().expect("no world panicked");
        if !report.violations.is_empty() {
            let said: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
            failed.push(format!(
                "BESOM_SEED={}: {} violations after {} troubles:\n{}",
                plan.seed,
                said.len(),
                report.troubles,
                said.join("\n")
            ));
        }
        if report.things <= 50 || report.terms == 0 {
            failed.push(format!("BESOM_SEED={}: there was nothing to do", plan.seed));
        }
        let mut sum = sum.lock().expect("no world panicked");
        sum.worlds += 1;
        sum.things += report.things;
        sum.troubles += report.troubles;
        sum.terms += report.terms;
        !failed.is_empty()
    });
    let failures = failures.into_inner().expect("no world panicked");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let Sum { worlds, things, troubles, terms } = sum.into_inner().expect("no world panicked");
    eprintln!("{worlds} worlds, {things} things, {troubles} troubles, {terms} leaderships");
    assert!(troubles > 0, "a world without trouble proves nothing");
}

/// The checks can fail: without fence and owner epochs a replaced leader continues to write, and
/// the simulation reports these violations.
#[test]
fn a_store_without_a_fence_is_caught() {
    let caught = Mutex::new(None);
    let plans = (0..60).map(|seed| Plan { fenced: false, ..Plan::of(seed) }).collect();
    simulate_all(plans, |plan, report| {
        let stale = report.violations.iter().find_map(|violation| match violation {
            Violation::StaleTerm { term, after, .. } => Some((plan.seed, *term, *after)),
            _ => None,
        });
        let mut caught = caught.lock().expect("no world panicked");
        *caught = caught.or(stale);
        caught.is_some()
    });
    let caught = caught.into_inner().expect("no world panicked");
    let (_, term, after) = caught.expect("a replaced leader wrote in one of sixty worlds");
    assert!(term < after, "term {term} wrote after term {after}");
}
