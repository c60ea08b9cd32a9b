//! Exactly-once effects and conservation under crashes, pauses, lost and doubled messages
//! and unknown results; and the proof that the checks can fail.

use besom_tests::sim::{Plan, simulate};

/// How many seeds a test runs: `BESOM_SIM_SEEDS`, or 200.
fn seeds() -> u64 {
    std::env::var("BESOM_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

#[test]
fn effects_happen_exactly_once_whatever_goes_wrong() {
    let first = std::env::var("BESOM_SIM_SEED").ok().and_then(|text| text.parse().ok());
    let range = first.map_or(0..seeds(), |seed: u64| seed..seed + 1);
    let (mut troubles, mut things, mut terms) = (0, 0, 0);
    for seed in range {
        let report = simulate(Plan::of(seed));
        assert!(
            report.violations.is_empty(),
            "BESOM_SIM_SEED={seed}: {} violations after {} troubles:\n{}",
            report.violations.len(),
            report.troubles,
            report.violations.join("\n")
        );
        assert!(report.things > 50 && report.terms > 0, "seed {seed} had nothing to do");
        troubles += report.troubles;
        things += report.things;
        terms += report.terms;
    }
    println!("{things} things, {troubles} troubles, {terms} leaderships");
    assert!(troubles > 0, "a world without trouble proves nothing");
}

#[test]
fn a_store_without_a_fence_is_caught() {
    let caught = (0..20).find_map(|seed| {
        let report = simulate(Plan { fenced: false, ..Plan::of(seed) });
        report.violations.first().cloned()
    });
    assert!(caught.is_some(), "twenty worlds without a fence, and nothing was noticed");
}
