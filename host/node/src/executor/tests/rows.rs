//! Tasks whose rows per second are limited, and how many rows of ranges one commit changes.

use std::num::NonZeroU32;

use besom_core::proposal::RowRange;

use super::*;

/// Proposals to delete ranges of so many rows.
fn ranges(rows: &[u32]) -> Result<Acted, guests::Error> {
    let verdict = |rows: &u32| {
        let range = RowRange {
            collection: "things".into(),
            index: None,
            prefix: Vec::new(),
            lower: None,
            upper: None,
            conditions: Vec::new(),
            after: None,
            until: None,
            rows: *rows,
        };
        Ok(Verdict::Propose(Proposal {
            guards: Vec::new(),
            changes: vec![Change::DeleteRange(range.into())],
            on_guard_failed: OnGuardFailed::Skip("gone".into()),
            notes: Vec::new(),
        }))
    };
    Ok(Acted { verdicts: rows.iter().map(verdict).collect(), usage: Usage::default() })
}

#[test]
fn a_commit_changes_as_many_rows_of_ranges_as_the_store_and_the_host_allow() {
    for (rows_max, rows, expected) in [
        (None, [1_000, 1_000], 2),
        (None, [1_000, 1_001], 1),
        (Some(500), [500, 500], 1),
        (Some(9_000), [1_200, 1_200], 1),
        // A single item may exceed it.
        (Some(100), [500, 500], 1),
    ] {
        let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
        let ticket = read_log(&bench.fed(&[("sweep", 0, 2)], vec![], vec![]));
        let items = vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 0, 2)];
        let read = LogRead { rows_max, ..whole(items) };
        bench.step(Event::LogRead(ticket, Ok(read)));
        let committed = commits(&bench.step(Event::Acted(ticket, ranges(&rows))));
        let entries: Vec<usize> = committed.iter().map(|(_, b)| b.entries.len()).collect();
        assert_eq!(entries, [expected], "{rows_max:?} {rows:?}");
    }
}

#[test]
fn a_commit_of_retries_changes_as_many_rows_of_ranges_as_beside_others() {
    for (rows, expected) in [([250, 250], 2), ([250, 251], 1)] {
        let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
        let retry = |id: u64| Waiting { source: Source::Retry(id), ..timer("sweep", id, at(400)) };
        let (ticket, _) = acts(&bench.fed(&[], vec![], vec![retry(1), retry(2)]))[0].clone();
        let committed = commits(&bench.step(Event::Acted(ticket, ranges(&rows))));
        let entries: Vec<usize> = committed.iter().map(|(_, b)| b.entries.len()).collect();
        assert_eq!(entries, [expected], "{rows:?}");
    }
}

/// A task with a budget of rows, with a batch of two items that was executed; and its request for
/// rows.
fn rationed() -> (Bench, Ticket, Vec<Command>) {
    let task = TaskDefinition {
        rows_per_second: NonZeroU32::new(10),
        ..(*definition("sweep", Lane::Normal)).clone()
    };
    let mut bench = Bench::new(&[Arc::new(task)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 2)], vec![], vec![]));
    let items = vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 0, 2)];
    bench.step(Event::LogRead(ticket, Ok(whole(items))));
    let asked = bench.step(Event::Acted(ticket, acted(&["a", "b"])));
    (bench, ticket, asked)
}

fn rows_asked(commands: &[Command]) -> Option<u64> {
    commands.iter().find_map(|command| match command {
        Command::TakeRows { rows, .. } => Some(*rows),
        _ => None,
    })
}

#[test]
fn a_batch_of_a_rationed_task_is_committed_once_its_rows_are_taken() {
    let (mut bench, ticket, asked) = rationed();
    assert_eq!((rows_asked(&asked), commits(&asked).len()), (Some(2), 0));
    let granted = bench.step(Event::RowsTaken(ticket, Ok(Allowance::Now)));
    assert_eq!(commits(&granted).len(), 1);
    let again = bench.step(Event::RowsTaken(ticket, Ok(Allowance::Now)));
    assert_eq!(commits(&again).len(), 0, "an answer that came twice");
}

#[test]
fn what_has_to_wait_for_rows_asks_again_at_the_time_it_was_told() {
    let (mut bench, ticket, _) = rationed();
    let until = at(1_700);
    let told = bench.step(Event::RowsTaken(ticket, Ok(Allowance::NotBefore(until))));
    assert_eq!((rows_asked(&told), commits(&told).len()), (None, 0));
    assert_eq!(bench.executor.deadline(), Some(until));
    bench.now = until;
    assert_eq!(rows_asked(&bench.fill()), Some(2));
    assert_eq!(rows_asked(&bench.fill()), None, "the question is under way");
    assert_eq!(commits(&bench.step(Event::RowsTaken(ticket, Ok(Allowance::Now)))).len(), 1);
}

/// Nothing is executed while waiting: a host that dies then is not counted, and a host that stops
/// does not wait for the budget.
#[test]
fn what_waits_for_rows_is_not_in_execution_and_is_given_back_by_a_host_that_stops() {
    let (mut bench, ticket, _) = rationed();
    let told = bench.step(Event::RowsTaken(ticket, Ok(Allowance::NotBefore(at(9_000)))));
    assert!(told.iter().any(|command| matches!(command, Command::Abandon(_))), "{told:?}");
    bench.executor.drain(bench.now);
    bench.fill();
    assert!(bench.executor.is_idle());
}

#[test]
fn without_an_answer_about_rows_nothing_is_committed_and_it_is_asked_again() {
    let (mut bench, ticket, _) = rationed();
    let away = store::Error::Unavailable("away".into());
    let told = bench.step(Event::RowsTaken(ticket, Err(away)));
    assert_eq!((rows_asked(&told), commits(&told).len()), (None, 0));
    bench.now = bench.executor.deadline().expect("a time to ask again");
    assert_eq!(rows_asked(&bench.fill()), Some(2));
}
