//! The store's clock is corrected.

use super::*;

/// The store's clock went back further than a reading of it can be wrong.
#[test]
fn what_was_decided_ahead_of_the_stores_clock_waits_and_the_clock_is_read_again() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 1)], vec![], vec![]));
    let read = whole(vec![logged("sweep", "a", 0, 1)]);
    let (ticket, _) = acts(&bench.step(Event::LogRead(ticket, Ok(read))))[0].clone();
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["a"])))).remove(0);
    assert_eq!(batch.as_of, bench.now);
    let outcomes = vec![Outcome::Left(LeftOut::NotDue)];
    let left = Committed {
        outcomes,
        at: batch.as_of - Duration::from_secs(1),
        runs_ended: vec![],
        braked: Default::default(),
    };
    let commands = bench.step(Event::Committed(ticket, batch.id, Ok(left)));
    assert!(commands.contains(&Command::ReadClock), "{commands:?}");
    assert!(commands.contains(&Command::Abandon(batch.id)), "{commands:?}");
    assert_eq!(acts(&commands), []);
    assert!(!bench.executor.is_drained(bench.now), "it still waits");
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A hold is measured by the store's clock, which may be wrong while it begins.
#[test]
fn a_hold_ends_in_time_although_the_clock_was_set_back() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    bench.now = bench.now + HOUR;
    let due = timer("sweep", 5, at(500));
    let ticket = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].0;
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    // The store's clock is right again: the batch is an hour early, and the task is held.
    let outcomes = vec![Outcome::Left(LeftOut::NotDue)];
    let left = Committed {
        outcomes,
        at: batch.as_of - HOUR,
        runs_ended: vec![],
        braked: Default::default(),
    };
    let commands = bench.step(Event::Committed(ticket, batch.id, Ok(left)));
    assert_eq!((acts(&commands), bench.executor.is_held(&"sweep".into())), (vec![], true));
    bench.now = bench.now - HOUR;
    assert_eq!(acts(&again(&mut bench, &due)), [], "it is still held");
    bench.now = bench.now + Duration::from_secs(1);
    assert_eq!(acts(&again(&mut bench, &due)).len(), 1);
}

/// Such a batch would occupy its lane until the time that the wrong clock showed.
#[test]
fn batches_executed_ahead_of_a_wrong_time_are_given_back() {
    let mut bench = Bench::with(Settings::default(), &[definition("expire", Lane::Due)]);
    let later = bench.now + HOUR;
    bench.now = later - Settings::default().due_ahead;
    let ticket = acts(&bench.fed(&[], vec![timer("expire", 1, later)], vec![]))[0].0;
    assert_eq!(commits(&bench.step(Event::Acted(ticket, acted(&["1"])))), []);
    bench.now = bench.now - HOUR;
    let commands = bench.fill();
    let given_back = commands.iter().any(|c| matches!(c, Command::Abandon(_)));
    assert!(given_back && bench.executor.is_idle(), "{commands:?}");
    let read = timers_read(&commands).expect("the timers are read again");
    let overdue = timer("expire", 2, bench.now - Duration::from_secs(1));
    let timers = Ok(vec![overdue, timer("expire", 1, later)]);
    let begun = acts(&bench.step(Event::TimersRead(read, timers)));
    assert_eq!(begun.iter().map(|(_, keys)| keys).collect::<Vec<_>>(), [&["2"]]);
}

#[test]
fn readings_of_the_clock_may_differ_by_less_than_a_second() {
    let mut bench = Bench::with(Settings::default(), &[definition("expire", Lane::Due)]);
    let due = bench.now + Duration::from_millis(5);
    let ticket = acts(&bench.fed(&[], vec![timer("expire", 1, due)], vec![]))[0].0;
    assert_eq!(commits(&bench.step(Event::Acted(ticket, acted(&["1"])))), []);
    bench.now = bench.now - Duration::from_millis(900);
    assert_eq!(bench.fill(), []);
    bench.now = due;
    assert_eq!(commits(&bench.fill()).len(), 1);
}
