//! Slots are explained, and runs begin and end.

use std::time::Duration;

use besom_core::ids::{RunId, Term};
use besom_core::time::Time;
use besom_ports::store::{
    EndOfScan, Error, NewRun, Seen, SlotDecision, SlotOutcome, SlotRecord, TaskState, Trigger,
};

use crate::conformance::World;
use crate::conformance::world::{ALL, START, candidate, due, new_run, page, skip, task, tenant};

fn at(seconds: u64) -> Time {
    START + Duration::from_secs(seconds)
}

fn slot(seconds: u64, outcome: SlotOutcome, reason: &str) -> SlotRecord {
    let (task, reason) = (task("task"), reason.to_owned());
    let (from, to) = (at(seconds), at(seconds));
    SlotRecord { task, from, to, count: 1, outcome, reason, run: None, term: Term(1) }
}

async fn decide(world: &World, slots: Vec<SlotRecord>, runs: Vec<NewRun>) -> Vec<RunId> {
    let decision = SlotDecision { slots, runs, ..SlotDecision::default() };
    world.store().decide_slots(&world.fence, &decision).await.unwrap()
}

async fn slots(world: &World) -> Vec<SlotRecord> {
    world.store().slots(&task("task"), Time(i64::MIN), Time::MAX, ALL).await.unwrap()
}

/// A run is written as it was decided.
pub async fn a_run_starts_with_its_definition(world: &mut World) {
    let new = NewRun { definition: "{\"x\":1}".into(), ..new_run("task", at(30)) };
    let other = new_run("other", at(30));
    let ids = decide(world, vec![], vec![new.clone(), other]).await;
    let run = world.store().run(ids[0]).await.unwrap().unwrap();
    assert_eq!((run.task, run.slot, run.trigger), (new.task, new.slot, new.trigger));
    assert_eq!((run.digest, run.definition, run.term), (new.digest, new.definition, Term(1)));
    assert_eq!((run.started_at, run.ended_at, run.scan_done), (world.now, None, false));
    let active = world.store().active_runs().await.unwrap();
    assert_eq!(active.iter().map(|run| run.id).collect::<Vec<_>>(), ids);
    let of_other = world.store().runs(Some(&task("other")), ALL).await.unwrap();
    assert_eq!(of_other.iter().map(|run| run.id).collect::<Vec<_>>(), [ids[1]]);
    let newest = world.store().runs(None, 1).await.unwrap();
    assert_eq!(newest[0].id, ids[1]);
    assert_eq!(world.store().run(RunId(9_999)).await.unwrap(), None);
}

/// A slot that ran has the number of its run.
pub async fn a_slot_that_ran_gets_the_id_of_its_run(world: &mut World) {
    let new = NewRun { trigger: Trigger::Schedule, ..new_run("task", at(30)) };
    let ids = decide(world, vec![slot(30, SlotOutcome::Ran, "")], vec![new]).await;
    assert_eq!(slots(world).await[0].run, Some(ids[0]));
}

/// A decision that is repeated after a lost answer returns the runs that it has started.
pub async fn a_decision_that_is_repeated_changes_nothing(world: &mut World) {
    let new = NewRun { trigger: Trigger::Schedule, ..new_run("task", at(60)) };
    let at_start = NewRun { trigger: Trigger::Takeover, ..new_run("task", at(60)) };
    let skipped = [0, 30].map(|seconds| slot(seconds, SlotOutcome::Skipped, "busy"));
    let decision = SlotDecision {
        slots: skipped.into_iter().chain([slot(60, SlotOutcome::Ran, "")]).collect(),
        runs: vec![new, at_start],
        ..SlotDecision::default()
    };
    let first = world.store().decide_slots(&world.fence, &decision).await.unwrap();
    let written = slots(world).await;
    world.advance(Duration::from_secs(1));
    let again = world.store().decide_slots(&world.fence, &decision).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(slots(world).await, written);
    assert_eq!(written.iter().map(|slot| slot.count).collect::<Vec<_>>(), [1, 2]);
    let active = world.store().active_runs().await.unwrap();
    assert_eq!(active.iter().map(|run| run.id).collect::<Vec<_>>(), first);
}

/// A late copy of a decision, after the slots were decided again, changes nothing; otherwise its
/// slots would be decided, and shown, twice.
pub async fn a_late_copy_of_a_decision_changes_nothing(world: &mut World) {
    let state = |seconds: u64| TaskState {
        task: task("task"),
        schedule: "* * * * *".into(),
        last_slot: Some(at(seconds)),
        paused: None,
        tenant_cursor: None,
        queued_slots: Vec::new(),
    };
    let seen = |last_slot| vec![Seen { task: task("task"), last_slot, queued_slots: Vec::new() }];
    let run = |seconds| vec![NewRun { trigger: Trigger::Schedule, ..new_run("task", at(seconds)) }];
    let first = SlotDecision {
        slots: vec![slot(30, SlotOutcome::Ran, "on time")],
        runs: run(30),
        states: vec![state(30)],
        seen: seen(None),
    };
    let ids = world.store().decide_slots(&world.fence, &first).await.unwrap();
    let second = SlotDecision {
        slots: vec![slot(60, SlotOutcome::Skipped, "busy")],
        runs: vec![],
        states: vec![state(60)],
        seen: seen(Some(at(30))),
    };
    world.store().decide_slots(&world.fence, &second).await.unwrap();
    let (written, states) = (slots(world).await, world.store().task_states().await.unwrap());
    // The same decision as a later leader would write it.
    let late = SlotDecision { slots: vec![slot(30, SlotOutcome::Ran, "late")], ..first.clone() };
    for copy in [&first, &late] {
        assert_eq!(world.store().decide_slots(&world.fence, copy).await.unwrap(), ids);
    }
    let other = SlotDecision { runs: run(45), ..first.clone() };
    for refused in [&second, &other] {
        let refused = world.store().decide_slots(&world.fence, refused).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(slots(world).await, written);
    assert_eq!(world.store().task_states().await.unwrap(), states);
    assert_eq!(world.store().active_runs().await.unwrap().len(), 1);
}

/// A slot of a schedule runs once: another leadership does not start it again.
pub async fn a_slot_has_one_scheduled_run(world: &mut World) {
    let new = NewRun { trigger: Trigger::Schedule, ..new_run("task", at(30)) };
    decide(world, vec![], vec![new.clone()]).await;
    world.lead(2, "node-2").await;
    let again = SlotDecision { runs: vec![new.clone()], ..Default::default() };
    let refused = world.store().decide_slots(&world.fence, &again).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let other = NewRun { task: task("other"), ..new };
    decide(world, vec![], vec![other, new_run("task", at(30))]).await;
    assert_eq!(world.store().active_runs().await.unwrap().len(), 3);
}

/// Consecutive slots with the same outcome are one row.
pub async fn equal_consecutive_outcomes_share_a_row(world: &mut World) {
    for seconds in [0, 30, 60] {
        decide(world, vec![slot(seconds, SlotOutcome::Skipped, "busy")], vec![]).await;
    }
    decide(world, vec![slot(90, SlotOutcome::Skipped, "another reason")], vec![]).await;
    decide(world, vec![slot(120, SlotOutcome::Skipped, "busy")], vec![]).await;
    decide(world, vec![slot(150, SlotOutcome::Paused, "busy")], vec![]).await;
    let rows: Vec<_> = slots(world)
        .await
        .into_iter()
        .map(|s| (s.from, s.to, s.count, s.outcome, s.reason))
        .collect();
    let expected = [
        (at(150), at(150), 1, SlotOutcome::Paused, "busy".to_owned()),
        (at(120), at(120), 1, SlotOutcome::Skipped, "busy".to_owned()),
        (at(90), at(90), 1, SlotOutcome::Skipped, "another reason".to_owned()),
        (at(0), at(60), 3, SlotOutcome::Skipped, "busy".to_owned()),
    ];
    assert_eq!(rows, expected);
}

/// The history of slots is read by time; rows that overlap it are included.
pub async fn slots_are_found_by_the_time_they_touch(world: &mut World) {
    for (seconds, reason) in [(0, "x"), (30, "x"), (60, "y"), (90, "z")] {
        decide(world, vec![slot(seconds, SlotOutcome::Missed, reason)], vec![]).await;
    }
    let found = world.store().slots(&task("task"), at(10), at(60), ALL).await.unwrap();
    let reasons: Vec<_> = found.iter().map(|slot| slot.reason.as_str()).collect();
    assert_eq!(reasons, ["y", "x"]);
    let newest = world.store().slots(&task("task"), at(0), at(90), 1).await.unwrap();
    assert_eq!(newest[0].reason, "z");
    let none = world.store().slots(&task("other"), at(0), at(90), ALL).await.unwrap();
    assert!(none.is_empty());
}

/// The states of tasks survive the leader.
pub async fn task_states_are_stored_and_survive_a_restart(world: &mut World) {
    let state = TaskState {
        task: task("task"),
        schedule: "*/30 * * * * * UTC".into(),
        last_slot: Some(at(30)),
        paused: None,
        tenant_cursor: Some(tenant("a")),
        queued_slots: vec![at(60), at(90)],
    };
    let decision = SlotDecision { states: vec![state.clone()], ..Default::default() };
    world.store().decide_slots(&world.fence, &decision).await.unwrap();
    world.reopen().await;
    assert_eq!(world.store().task_states().await.unwrap(), [state]);
}

/// A run without items ends with its scan, and only once.
pub async fn a_run_without_items_ends_with_its_scan(world: &mut World) {
    let run = world.run("task").await;
    world.advance(Duration::from_secs(5));
    let ended_at = world.now;
    assert!(world.end_scan("task", run).await);
    world.advance(Duration::from_secs(5));
    let late = EndOfScan { error: Some("late".into()), ..EndOfScan::of(task("task"), run) };
    assert!(world.store().end_scan(&world.fence, &late).await.unwrap());
    let run = world.store().run(run).await.unwrap().unwrap();
    assert_eq!((run.ended_at, run.error), (Some(ended_at), None));
    assert!(world.store().active_runs().await.unwrap().is_empty());
}

/// After a restore, the number of a run that is lost may be that of another task's, whose scan goes on.
pub async fn the_scan_of_another_task_is_not_ended(world: &mut World) {
    let run = world.run("task").await;
    for (task, run) in [(task("other"), run), (task("task"), RunId(run.0 + 1))] {
        let end = EndOfScan { error: Some("trap".into()), ..EndOfScan::of(task, run) };
        let refused = world.store().end_scan(&world.fence, &end).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    world.plan("task", run, vec![candidate("a")]).await;
    assert!(!world.end_scan("task", run).await);
    assert_eq!(world.store().run(run).await.unwrap().unwrap().error, None);
}

/// After a restore, the run may lack pages that the leader was told of: its scan goes on.
pub async fn a_scan_whose_pages_are_lost_is_not_ended(world: &mut World) {
    let run = world.run("task").await;
    world.plan("task", run, vec![candidate("a")]).await;
    let end = EndOfScan { planned: 2, ..EndOfScan::of(task("task"), run) };
    let refused = world.store().end_scan(&world.fence, &end).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    world.plan("task", run, vec![candidate("b")]).await;
    assert!(!world.store().end_scan(&world.fence, &end).await.unwrap());
    assert!(world.store().run(run).await.unwrap().unwrap().scan_done);
}

/// A scan that failed, or has not ended, is not the last complete scan.
pub async fn the_last_scan_that_came_to_its_end_is_found(world: &mut World) {
    let last = async |world: &World| {
        let run = world.store().last_scanned(&task("task")).await.unwrap();
        run.map(|run| run.id)
    };
    let other = world.run("other").await;
    assert!(world.end_scan("other", other).await);
    let complete = world.run("task").await;
    assert_eq!(last(world).await, None, "it goes on");
    world.plan("task", complete, vec![candidate("a")]).await;
    assert!(!world.end_scan("task", complete).await);
    assert_eq!(last(world).await, Some(complete), "its items wait, and its scan is done");
    let failed = world.run("task").await;
    let failed = EndOfScan { error: Some("trap".into()), ..EndOfScan::of(task("task"), failed) };
    world.store().end_scan(&world.fence, &failed).await.unwrap();
    world.run("task").await;
    assert_eq!(last(world).await, Some(complete));
}

/// A run ends with the last of its items in the log, however they ended.
pub async fn a_run_ends_with_its_last_log_item(world: &mut World) {
    let run = world.run("task").await;
    world.plan("task", run, vec![candidate("a"), candidate("b")]).await;
    let items = world.log("task").await;
    let first = world.commit(vec![(&items[0], skip("no"))]).await;
    assert!(first.runs_ended.is_empty());
    assert!(!world.end_scan("task", run).await);
    let last = world.commit(vec![(&items[1], skip("no"))]).await;
    assert_eq!(last.runs_ended, [run]);
    let run = world.store().run(run).await.unwrap().unwrap();
    assert_eq!((run.open, run.ended_at), (0, Some(world.now)));
}

/// A scan that has not ended keeps its run active even if the log is empty.
pub async fn a_run_does_not_end_before_its_scan(world: &mut World) {
    let run = world.run("task").await;
    world.plan("task", run, vec![candidate("a")]).await;
    let item = world.only("task").await;
    assert!(world.commit(vec![(&item, skip("no"))]).await.runs_ended.is_empty());
    assert_eq!(world.store().active_runs().await.unwrap().len(), 1);
    assert!(world.end_scan("task", run).await);
}

/// Timers do not keep a run active; otherwise the next planning of shares would be skipped for a
/// day.
pub async fn timers_outlive_their_run(world: &mut World) {
    let run = world.planned("task", vec![due("k", at(3_600))]).await;
    assert!(world.store().run(run).await.unwrap().unwrap().ended_at.is_some());
    assert_eq!(world.timers().await[0].item.run, run);
}

/// The run has the error of its scan; the task has the tenant cursor.
pub async fn the_end_of_a_scan_keeps_its_error_and_the_tenant_cursor(world: &mut World) {
    let state = TaskState {
        task: task("task"),
        schedule: "s".into(),
        last_slot: None,
        paused: None,
        tenant_cursor: None,
        queued_slots: vec![],
    };
    let decision = SlotDecision {
        runs: vec![new_run("task", world.now)],
        states: vec![state],
        ..Default::default()
    };
    let run = world.store().decide_slots(&world.fence, &decision).await.unwrap()[0];
    let at = tenant("t7");
    let (cursor, error) = (Some(at.clone()), Some("trap".into()));
    let end = EndOfScan { cursor, error, ..EndOfScan::of(task("task"), run) };
    world.store().end_scan(&world.fence, &end).await.unwrap();
    let run = world.store().run(run).await.unwrap().unwrap();
    assert_eq!(run.error.as_deref(), Some("trap"));
    let states = world.store().task_states().await.unwrap();
    assert_eq!(states[0].tenant_cursor, Some(at));
}

/// A request that can never succeed is refused as invalid.
pub async fn a_page_for_no_run_or_after_its_scan_is_invalid(world: &mut World) {
    let run = world.planned("task", vec![]).await;
    for (task, run) in [("task", RunId(9_999)), ("other", run), ("task", run)] {
        let page = page(task, run, vec![candidate("k")]);
        let refused = world.store().plan_page(&world.fence, &page).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert!(world.log("task").await.is_empty());
}
