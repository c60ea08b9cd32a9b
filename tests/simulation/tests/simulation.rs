//! The invariants hold in many worlds, whatever goes wrong; and a store with a defect violates them.
//!
//! `BESOM_SIM_SEEDS` sets the number of worlds of each kind; `BESOM_SEED` runs one alone.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use besom_simulation::{Broken, DEATHS, Plan, READ, Report, Sum, TROUBLES, WRITES, simulate};

/// Worlds of one host that every run covers.
const SEEDS: u64 = 500;
/// Worlds of a cluster that every run covers.
const CLUSTER_SEEDS: u64 = 500;
/// Worlds of each kind among which one shows a defect.
const BROKEN_SEEDS: u64 = 1_000;
/// From this number of worlds on, every fault has to have happened.
const ALL_HAPPEN: u64 = SEEDS;

/// Violations of one world that are shown.
const SHOWN: usize = 20;

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

#[test]
fn effects_happen_exactly_once_whatever_goes_wrong() {
    run_worlds(Plan::of, SEEDS);
}

/// The same where the nodes share the partitions, and each executes what it owns.
#[test]
fn effects_happen_exactly_once_in_a_cluster() {
    run_worlds(Plan::of_cluster, CLUSTER_SEEDS);
}

/// Runs as many worlds as wanted, or the one whose seed is in `BESOM_SEED`.
fn run_worlds(plan: fn(u64) -> Plan, worlds: u64) {
    let seeds = match from_environment("BESOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("BESOM_SIM_SEEDS").unwrap_or(worlds),
    };
    let (sum, failures) = (Mutex::new(Sum::default()), Mutex::new(Vec::new()));
    simulate_all(seeds.map(plan).collect(), |plan, report| {
        let mut failed = failures.lock().expect("no world panicked");
        if !report.violations.is_empty() {
            let said = report.violations.iter().take(SHOWN).map(ToString::to_string);
            let said: Vec<String> = said.collect();
            let count = report.violations.len();
            failed.push(format!("{count} violations:\n{}\n{}", said.join("\n"), plan.replay()));
        } else if report.things <= 50 || report.terms == 0 {
            failed.push(format!("seed {}: there was nothing to do", plan.seed));
        }
        sum.lock().expect("no world panicked").add(&report);
        !failed.is_empty()
    });
    let failures = failures.into_inner().expect("no world panicked");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let sum = sum.into_inner().expect("no world panicked");
    eprintln!("{sum}");
    if sum.worlds >= ALL_HAPPEN {
        everything_has_happened(&sum, plan(0).cluster);
    }
}

/// Worlds in which a fault never happens prove nothing about it.
fn everything_has_happened(sum: &Sum, cluster: bool) {
    for write in DEATHS {
        // On a single machine the leader owns all partitions, and counts deaths as it loads.
        if ["bury", "claim"].contains(&write) && !cluster {
            continue;
        }
        let deaths = sum.deaths.get(write).copied().unwrap_or_default();
        assert!(deaths.before > 0, "no host was killed just before {write}");
        assert!(deaths.after > 0, "no host was killed just after {write}");
    }
    assert!(sum.disowned > 0, "no partition changed hands while a batch was executed");
    for write in WRITES {
        // Only a cluster has owners other than the leader.
        if write == "claim_partitions" && !cluster {
            continue;
        }
        let hits = sum.writes.get(write).copied().unwrap_or_default();
        assert!(hits.applied > 0, "{write} was never applied with an unknown result");
        assert!(hits.not_applied > 0, "{write} never had an unknown result without effect");
    }
    assert!(sum.writes.get(READ).is_some_and(|hits| hits.refused > 0), "no read has failed");
    for verb in
        ["brake", "cancel", "discard", "pause", "resign", "resume", "retry", "trigger", "undo"]
    {
        assert!(sum.commands.contains_key(verb), "nobody has asked for {verb}");
    }
    let kinds: BTreeSet<&str> = sum.troubles.keys().copied().collect();
    for kind in TROUBLES {
        assert!(kinds.contains(kind), "{kind} never happened");
    }
}

/// A world is a function of its seed: otherwise a seed that is printed could not be replayed.
#[test]
fn a_seed_determines_every_step() {
    for plan in [Plan::of(7), Plan::of_cluster(7)] {
        let (first, second) = (simulate(plan), simulate(plan));
        assert_eq!((first.events, first.digest), (second.events, second.digest));
    }
}

/// The invariants that find a defect first, by the number of worlds, in the first worlds that show it.
fn found_by(broken: Broken) -> BTreeSet<&'static str> {
    let found = Mutex::new(BTreeSet::new());
    let plan = |seed| match seed % 2 {
        0 => Plan { broken: Some(broken), ..Plan::of(seed / 2) },
        _ => Plan { broken: Some(broken), ..Plan::of_cluster(seed / 2) },
    };
    simulate_all((0..BROKEN_SEEDS).map(plan).collect(), |_, report| {
        let mut found = found.lock().expect("no world panicked");
        found.extend(report.violations.iter().map(|violation| violation.invariant));
        !found.is_empty()
    });
    found.into_inner().expect("no world panicked")
}

#[track_caller]
fn is_found(broken: Broken, by: &[&str]) {
    let found = found_by(broken);
    assert!(!found.is_empty(), "no invariant finds {broken:?} in {BROKEN_SEEDS} worlds");
    let expected = found.iter().any(|invariant| by.contains(invariant));
    assert!(expected, "{broken:?} was found by {found:?}, not by one of {by:?}");
}

#[test]
fn a_store_without_a_fence_is_found() {
    is_found(Broken::Fence, &["fences", "owners", "terms", "leader-per-term"]);
}

#[test]
fn a_store_without_owner_epochs_is_found() {
    is_found(Broken::Epoch, &["owners"]);
}

#[test]
fn a_store_that_purges_before_the_effects_is_found() {
    is_found(Broken::PurgeFirst, &["conservation", "streams"]);
}

#[test]
fn numbers_that_are_drawn_before_the_lock_are_found() {
    is_found(Broken::EarlyNumbers, &["streams", "conservation"]);
}

#[test]
fn messages_that_are_numbered_before_the_lock_are_found() {
    is_found(Broken::EarlyMessages, &["deliveries"]);
}

#[test]
fn slots_that_are_decided_twice_are_found() {
    is_found(Broken::Slots, &["slots"]);
}

#[test]
fn rows_per_second_that_are_forgotten_are_found() {
    is_found(Broken::Budget, &["paces"]);
}

#[test]
fn an_undo_that_ignores_what_has_changed_is_found() {
    is_found(Broken::Undo, &["undo"]);
}
