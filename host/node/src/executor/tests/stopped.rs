//! Tasks that are paused, outside their windows, or stopped by a brake.

use besom_core::brake::{Brakes, DeletesMax, Wanted};
use besom_core::window::{Window, Windows};

use super::*;

fn paused(names: &[&str]) -> BTreeSet<TaskName> {
    names.iter().map(|name| TaskName::from(*name)).collect()
}

/// Whether anything is begun: a read of the log, or a call.
fn begun(commands: &[Command]) -> bool {
    let begins = |c: &Command| matches!(c, Command::ReadLog { .. } | Command::Act { .. });
    commands.iter().any(begins)
}

#[test]
fn nothing_of_a_paused_task_is_begun_until_it_is_resumed() {
    let tasks = [definition("sweep", Lane::Normal), definition("other", Lane::Normal)];
    let mut bench = Bench::new(&tasks);
    bench.executor.pause(paused(&["sweep"]));
    let later = bench.now + Duration::from_millis(10);
    let fed = bench.fed(&[("sweep", 0, 2)], vec![timer("sweep", 1, later)], vec![]);
    assert!(!begun(&fed), "{fed:?}");
    bench.now = later;
    assert!(!begun(&bench.fill()));
    assert!(bench.executor.is_drained(bench.now), "a pass does not wait for it");
    bench.executor.pause(paused(&["other"]));
    assert!(begun(&bench.fill()));
}

#[test]
fn a_batch_that_is_being_executed_is_not_committed_once_its_task_is_paused() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 1)], vec![], vec![]));
    bench.step(Event::LogRead(ticket, Ok(whole(vec![logged("sweep", "a", 0, 1)]))));
    bench.executor.pause(paused(&["sweep"]));
    let given_back = bench.step(Event::Acted(ticket, acted(&["a"])));
    assert_eq!(commits(&given_back).len(), 0);
    assert!(given_back.iter().any(|c| matches!(c, Command::Abandon(_))), "{given_back:?}");
    assert!(!begun(&given_back) && bench.executor.is_idle());
    bench.executor.pause(paused(&[]));
    assert!(begun(&bench.fill()), "its item is where it was");
}

#[test]
fn a_task_works_while_its_window_is_open() {
    let window = Window::read("00:01-00:02", "UTC").expect("a window");
    let windows = Windows::new(vec![window]);
    let task = TaskDefinition { windows, ..(*definition("sweep", Lane::Normal)).clone() };
    // It is a second after midnight.
    let mut bench = Bench::new(&[Arc::new(task)]);
    let fed = bench.fed(&[("sweep", 0, 2)], vec![], vec![]);
    assert!(!begun(&fed), "{fed:?}");
    assert_eq!(bench.executor.deadline(), Some(at(60_000)));
    bench.now = at(60_000);
    let ticket = read_log(&bench.fill());
    let items = vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 0, 2)];
    bench.step(Event::LogRead(ticket, Ok(whole(items))));
    bench.now = at(120_000);
    bench.fill();
    let cut = bench.step(Event::Acted(ticket, acted(&["a", "b"])));
    assert_eq!((commits(&cut).len(), begun(&cut)), (0, false), "the window has closed: {cut:?}");
    assert_eq!(bench.executor.deadline(), Some(at(86_400_000 + 60_000)));
    // Without its windows it works at any time.
    let task = definition("sweep", Lane::Normal);
    bench.executor.define([("sweep".into(), task)].into(), things());
    assert!(begun(&bench.fill()));
}

#[test]
fn a_batch_that_a_brake_leaves_out_is_reported_with_its_rows_and_waits() {
    let brakes = Brakes { deletes: Some(DeletesMax::Rows(1)), ..Brakes::default() };
    let task = TaskDefinition { brakes, ..(*definition("sweep", Lane::Normal)).clone() };
    let mut bench = Bench::new(&[Arc::new(task)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 2)], vec![], vec![]));
    let items = vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 0, 2)];
    bench.step(Event::LogRead(ticket, Ok(whole(items))));
    let sent = bench.step(Event::Acted(ticket, acted(&["a", "b"])));
    let (ticket, batch) = commits(&sent).remove(0);
    assert!(batch.braked);
    let left = batch.all_left(LeftOut::Braked, bench.now);
    let told = bench.step(Event::Committed(ticket, batch.id, Ok(left)));
    let deletes = BTreeMap::from([("things".to_owned(), 2)]);
    let wanted = Wanted { deletes, ..Wanted::default() };
    let trip = Command::Trip("sweep".into(), [(RunId(1), wanted)].into());
    assert!(told.contains(&trip), "{told:?}");
    assert!(told.contains(&Command::Abandon(batch.id)), "{told:?}");
    assert!(!begun(&told), "it is held until the pause arrives");
    bench.executor.pause(paused(&["sweep"]));
    bench.now = bench.now + Duration::from_secs(60);
    assert!(!begun(&bench.fill()));
    bench.executor.pause(paused(&[]));
    // Its position is read again.
    let stream =
        Stream { task: "sweep".into(), partition: Partition(0), acked: Seq(0), tail: Seq(2) };
    assert!(begun(&bench.step(Event::Backlog(Ok(vec![stream])))), "it is tried again");
}

/// A restored database gives the number of a run that it has lost to one of another task.
#[test]
fn an_item_is_never_executed_by_the_definition_of_another_task() {
    let tasks = [definition("sweep", Lane::Normal), definition("other", Lane::Normal)];
    let mut bench = Bench::new(&tasks);
    bench.executor.pin(RunId(1), Arc::clone(&tasks[1]));
    let fed = bench.fed(&[("sweep", 0, 1)], vec![], vec![]);
    let ticket = read_log(&fed);
    let item = logged("sweep", "a", 0, 1);
    let acts = bench.step(Event::LogRead(ticket, Ok(whole(vec![item]))));
    let by = acts.iter().find_map(|command| match command {
        Command::Act { definition, .. } => Some(definition.name.clone()),
        _ => None,
    });
    assert_eq!(by, Some(TaskName::from("sweep")), "{acts:?}");
}
