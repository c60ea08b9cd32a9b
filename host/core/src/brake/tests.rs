use super::*;
use crate::mode::Mode;
use crate::plan::Trigger;
use crate::proposal::{Change, OnGuardFailed, RowRange};
use crate::time::Time;
use std::sync::Arc;

const FIVE_PERCENT: DeletesMax = DeletesMax::Share { millionths: 50_000, floor: 1_000 };

fn brake(run: u64, what: &str, used: u64, allowed: u64) -> Brake {
    let (run, what) = (RunId(run), what.to_owned());
    Brake { run, what, used, allowed: Some(allowed), estimate: Some(10_000) }
}

#[test]
fn a_share_does_not_apply_below_its_floor() {
    for (rows, allowed) in [
        (0, 1_000),
        (19_999, 1_000),
        (20_000, 1_000),
        (40_000, 2_000),
        (u64::MAX, 922_337_203_685_477_580),
    ] {
        assert_eq!(FIVE_PERCENT.of(rows), allowed, "{rows}");
    }
    assert_eq!(DeletesMax::Rows(7).of(1_000_000), 7);
}

#[test]
fn without_a_limit_there_is_no_brake() {
    let none = Brakes::default();
    assert!(!none.counts());
    assert_eq!((none.allowed("rows", Some(5)), none.allowed(LETTERS, None)), (None, None));
    assert!(!Brake::forbids(u64::MAX, None));
}

#[test]
fn the_limit_itself_is_allowed() {
    assert!(!Brake::forbids(10, Some(10)));
    assert!(Brake::forbids(11, Some(10)));
}

#[test]
fn rows_of_ranges_are_counted_and_not_items() {
    let range = |collection: &str, rows| {
        Arc::new(RowRange { collection: collection.into(), rows, ..RowRange::default() })
    };
    let proposal = Proposal {
        guards: Vec::new(),
        changes: vec![
            Change::DeleteRange(range("sessions", 800)),
            Change::MoveRange { range: range("orders", 30), into: "archive".into() },
            Change::UpdateRange {
                range: range("users", 9),
                fields: Vec::new(),
                increments: vec![],
            },
        ],
        on_guard_failed: OnGuardFailed::Skip(String::new()),
        notes: Vec::new(),
    };
    let most: Vec<_> = deleted(&proposal, u64::MAX).into_iter().collect();
    assert_eq!(most, [("orders", 30), ("sessions", 800)]);
    let fewer: Vec<_> = deleted(&proposal, 12).into_iter().collect();
    assert_eq!(fewer, [("orders", 12), ("sessions", 12)], "no more than were changed");
    assert!(deleted(&proposal, 0).is_empty());
}

#[test]
fn usual_is_the_median_of_earlier_runs_that_counted_any() {
    let brakes = [
        brake(9, "rows", 500, 1_000),
        brake(8, "rows", 30, 1_000),
        brake(8, LETTERS, 7, 10),
        brake(7, "rows", 0, 1_000),
        brake(6, "rows", 10, 1_000),
        brake(5, "rows", 20, 1_000),
    ];
    assert_eq!(usual(&brakes, "rows", RunId(9)), Some(20));
    assert_eq!(usual(&brakes, "others", RunId(9)), None);
    let released = Brake { allowed: None, ..brake(7, "rows", 9_000, 0) };
    assert_eq!(usual(&[brake(9, "rows", 5, 9), released.clone()], "rows", RunId(9)), None);
    let both = [brake(9, "rows", 5, 9), released, brake(6, "rows", 10, 1_000)];
    assert_eq!(usual(&both, "rows", RunId(9)), Some(10), "what a person has let go is not usual");
    let limited_again = [brake(8, "rows", 9_000, 1_000), brake(6, "rows", 10, 1_000)];
    assert_eq!(usual(&limited_again, "rows", RunId(9)), Some(10), "it was released");
}

fn deletes(rows: u64) -> Wanted {
    Wanted { deletes: BTreeMap::from([("rows".to_owned(), rows)]), ..Wanted::default() }
}

#[test]
fn a_trip_tells_what_was_wanted_allowed_and_usual() {
    let brakes = [brake(9, "rows", 900, 1_000), brake(8, "rows", 30, 1_000)];
    assert_eq!(Trip::of(&brakes, RunId(9), &deletes(100)), None);
    let trip = Trip::of(&brakes, RunId(9), &deletes(101)).expect("a trip");
    assert_eq!(
        trip.to_string(),
        "run 9 wanted to delete at least 1001 rows of rows; allowed: 1000 (of about 10000); usual: 30"
    );
    assert_eq!(Trip::of(&brakes, RunId(7), &deletes(5_000)), None, "another run");
    let letters = [brake(9, LETTERS, 8, 10)];
    let wanted = |letters, letters_more| Wanted {
        letters,
        letters_more,
        error: Some("no such key".into()),
        ..deletes(5_000)
    };
    let said = Trip::of(&letters, RunId(9), &wanted(3, 0)).expect("a trip").to_string();
    assert_eq!(
        said,
        "run 9 wanted to set aside at least 11 items; allowed: 10; usual: unknown, no earlier run \
         counted any within its limit; the next one: no such key"
    );
    assert_eq!(Trip::of(&letters, RunId(9), &wanted(2, 0)), None, "the limit itself is allowed");
    let refused = Trip::of(&letters, RunId(9), &wanted(0, 3)).expect("a trip");
    assert_eq!(refused.what(), Some(LETTERS), "its changes were refused");
}

#[test]
fn what_a_batch_wanted_is_told_apart() {
    let both = [brake(9, "rows", 0, 10), brake(9, LETTERS, 0, 10)];
    let wanted = |letters, letters_more, rows| Wanted { letters, letters_more, ..deletes(rows) };
    let what = |wanted| Trip::of(&both, RunId(9), &wanted).map(|trip| trip.key());
    assert_eq!(what(wanted(11, 0, 11)), Some("max_dead_letters"), "this is certain");
    assert_eq!(what(wanted(5, 6, 11)), Some("max_delete"));
    assert_eq!(what(wanted(5, 6, 10)), Some("max_dead_letters"), "the rest explains it");
    assert_eq!(what(wanted(5, 5, 10)), None);
}

#[test]
fn a_resumption_is_told_beforehand_that_it_would_trip_again() {
    let limit = |deletes: u64, letters| Brakes {
        deletes: Some(DeletesMax::Rows(deletes)),
        letters: NonZeroU32::new(letters),
        failures: None,
    };
    let rows = brake(9, "rows", 900, 1_000);
    let trip = Trip::of(std::slice::from_ref(&rows), RunId(9), &deletes(101)).expect("a trip");
    let said = trip.again(&limit(1_000, 1), &rows).expect("a warning");
    assert!(
        said.starts_with("run 9 is still beyond max_delete: it wants at least 1001 rows"),
        "{said}"
    );
    assert!(trip.again(&limit(1_000, 1), &Brake { allowed: None, ..rows.clone() }).is_some());
    assert_eq!(trip.again(&limit(1_001, 1), &rows), None, "raised");
    assert_eq!(trip.again(&Brakes::default(), &rows), None, "no limit any more");
    let done = Brake { used: 1_001, ..rows };
    assert_eq!(trip.again(&limit(1_000, 1), &done), None, "it has been done");
    let letters = brake(9, LETTERS, 8, 10);
    let wanted = Wanted { letters: 5, ..Wanted::default() };
    let trip = Trip::of(std::slice::from_ref(&letters), RunId(9), &wanted).expect("a trip");
    assert_eq!(trip.again(&limit(1, 5), &letters), None, "they are counted anew");
    let said = trip.again(&limit(1, 4), &letters).expect("a warning");
    assert!(
        said.contains("it wants at least 5 further items to be set aside; allowed: 4"),
        "{said}"
    );
}

fn run(id: u64, error: Option<&str>, scan_done: bool) -> Run {
    Run {
        id: RunId(id),
        task: "t".into(),
        slot: Time::EPOCH,
        trigger: Trigger::Schedule,
        term: crate::ids::Term(1),
        digest: String::new(),
        definition: String::new(),
        started_at: Time::EPOCH,
        ended_at: scan_done.then_some(Time::EPOCH),
        scan_done,
        error: error.map(str::to_owned),
        planned: 0,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 0,
        mode: Mode::Live,
        held: false,
    }
}

#[test]
fn runs_count_that_have_failed_one_after_the_other() {
    let (bad, good) = (Some("no"), None);
    let two = NonZeroU32::new(2).expect("a number");
    for (runs, trips) in [
        (vec![run(3, bad, true), run(2, bad, true)], true),
        (vec![run(4, None, false), run(3, bad, true), run(2, bad, true)], true),
        (vec![run(3, bad, true), run(2, good, true), run(1, bad, true)], false),
        (vec![run(3, bad, true)], false),
        (vec![run(3, Some("cancelled by ana: no"), true), run(2, bad, true)], false),
        (vec![], false),
    ] {
        let trip = Trip::by_failures(&runs, two);
        assert_eq!(trip.is_some(), trips, "{trip:?}");
    }
}

#[test]
fn a_resumption_keeps_what_was_deleted_and_forgets_what_was_set_aside() {
    let brakes =
        Brakes { deletes: Some(FIVE_PERCENT), letters: NonZeroU32::new(5), failures: None };
    let deletes = brake(1, "rows", 70, 60).resumed(&brakes);
    assert_eq!((deletes.used, deletes.allowed), (70, Some(1_000)));
    let letters = brake(1, LETTERS, 9, 9).resumed(&brakes);
    assert_eq!((letters.used, letters.allowed), (0, Some(5)));
    let released = brake(1, "rows", 70, 60).resumed(&Brakes::default());
    assert_eq!((released.used, released.allowed), (70, None));
}
