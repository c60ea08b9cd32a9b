//! Commands: submitted by any process, applied once, under the fence.

use std::time::Duration;

use besom_core::ids::Term;
use besom_ports::store::{
    Applied, Brakes, Command, CommandEffect, CommandRow, DeadSelector, Error, SlotDecision,
    SlotOutcome, SlotRecord, TaskState,
};

use crate::conformance::World;
use crate::conformance::world::{LETTERS, candidate, dead, due, new_run, skip, task};

async fn submit(world: &World, command: Command) -> u64 {
    world.store().submit(&command, "ann", "because").await.unwrap()
}

async fn apply(world: &World, id: u64, effect: CommandEffect) -> Applied {
    world
        .store()
        .apply_command(&world.fence, &world.asked(id).await, &effect, "done", LETTERS)
        .await
        .unwrap()
}

fn pause() -> Command {
    Command::Pause { task: task("task") }
}

async fn state(world: &World) -> TaskState {
    let states = world.store().task_states().await.unwrap();
    states.into_iter().find(|state| state.task.as_str() == "task").expect("the task is known")
}

/// A command waits for the next leader.
pub async fn a_command_waits_until_a_leader_applies_it(world: &mut World) {
    let error = Some("x".into());
    let selector = DeadSelector { ids: vec![1, 2], task: None, error, expect: Some(2) };
    let first = submit(world, pause()).await;
    let second = submit(world, Command::RetryDead(selector)).await;
    world.reopen().await;
    let pending = world.store().pending_commands(10).await.unwrap();
    assert_eq!(pending.iter().map(|row| row.id).collect::<Vec<_>>(), [first, second]);
    let row = &pending[0];
    assert_eq!((&row.command, row.by.as_str(), row.reason.as_str()), (&pause(), "ann", "because"));
    assert_eq!((row.at, row.applied_at, &row.result), (world.now, None, &None));
    assert_eq!(world.store().pending_commands(1).await.unwrap().len(), 1);

    world.advance(Duration::from_secs(1));
    apply(world, first, CommandEffect::Refuse("no".into())).await;
    let row = world.store().command(first).await.unwrap().unwrap();
    assert_eq!((row.applied_at, row.result.as_deref()), (Some(world.now), Some("done")));
    assert!(row.refused && !pending[0].refused);
    assert_eq!(world.store().pending_commands(10).await.unwrap()[0].id, second);
    assert_eq!(world.store().command(9_999).await.unwrap(), None);
}

/// Commands are listed with their results, newest first, in pages.
pub async fn commands_are_listed_newest_first(world: &mut World) {
    let asked = [pause(), Command::Resign, edited()];
    let mut ids = Vec::new();
    for command in asked.clone() {
        ids.push(submit(world, command).await);
    }
    apply(world, ids[1], CommandEffect::Note).await;
    world.reopen().await;
    let rows = world.store().commands(None, 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [ids[2], ids[1], ids[0]]);
    assert!(rows.iter().rev().map(|row| &row.command).eq(asked.iter()));
    assert_eq!((rows[1].applied_at, rows[1].result.as_deref()), (Some(world.now), Some("done")));
    assert_eq!((rows[0].applied_at, &rows[0].result), (None, &None));
    assert!(rows.iter().all(|row| !row.refused));

    let page = world.store().commands(None, 2).await.unwrap();
    assert_eq!(page, rows[..2]);
    assert_eq!(world.store().commands(Some(page[1].id), 2).await.unwrap(), rows[2..]);
    assert!(world.store().commands(Some(ids[0]), 2).await.unwrap().is_empty());
}

fn edited() -> Command {
    Command::Edited { task: task("task"), change: "schedule = \"@hourly\"".into() }
}

/// Applying a command again under a second leader changes nothing.
pub async fn a_command_is_applied_once(world: &mut World) {
    world.settle(candidate("k"), dead("corrupt")).await;
    let id = submit(world, Command::RetryDead(DeadSelector::default())).await;
    let effect = || CommandEffect::RetryDead(DeadSelector::default());
    assert_eq!(apply(world, id, effect()).await.dead, 1);
    let waiting = world.retries().await.remove(0);
    world.commit(vec![(&waiting, dead("still corrupt"))]).await;
    let before = Applied { dead: 1, ..Applied::default() };
    assert_eq!(apply(world, id, effect()).await, before, "what it has done is told again");
    assert!(world.retries().await.is_empty());
    let unknown = CommandRow { id: 9_999, ..world.asked(id).await };
    let nothing =
        world.store().apply_command(&world.fence, &unknown, &effect(), "done", LETTERS).await;
    assert!(matches!(nothing, Err(Error::Invalid(_))), "{nothing:?}");
}

/// A restored store has given the number of a command that it has lost to another one, which is neither
/// applied in its place nor marked (seed 341 of a cluster).
pub async fn a_command_that_was_lost_is_not_applied_in_place_of_another(world: &mut World) {
    let id = submit(world, pause()).await;
    let found = world.asked(id).await;
    let earlier = found.at - Duration::from_secs(1);
    let other = Command::Trigger { task: task("task") };
    for lost in [
        CommandRow { at: earlier, ..found.clone() },
        CommandRow { by: "bob".into(), ..found.clone() },
        CommandRow { command: other, ..found.clone() },
    ] {
        let effect = CommandEffect::Pause(task("task"));
        let store = world.store();
        let applied = store.apply_command(&world.fence, &lost, &effect, "done", LETTERS).await;
        let said = applied.expect_err("nothing is applied").to_string();
        assert!(said.contains(&format!("the command {id} is another one now")), "{said}");
    }
    assert_eq!(world.asked(id).await, found, "it waits");
    apply(world, id, CommandEffect::Pause(task("task"))).await;
    assert!(state(world).await.paused.is_some());
    // Its result is told to nobody else.
    let lost = CommandRow { at: earlier, ..found };
    let effect = CommandEffect::Pause(task("task"));
    let applied = world.store().apply_command(&world.fence, &lost, &effect, "done", LETTERS).await;
    assert!(matches!(applied, Err(Error::Invalid(_))), "{applied:?}");
}

/// A trigger starts a run in the transaction that marks the command as applied.
pub async fn a_trigger_starts_a_run(world: &mut World) {
    let id = submit(world, Command::Trigger { task: task("task") }).await;
    let decision = SlotDecision { runs: vec![new_run("task", world.now)], ..Default::default() };
    let applied = apply(world, id, CommandEffect::Slots(decision)).await;
    let active = world.store().active_runs().await.unwrap();
    assert_eq!(applied.runs, active.iter().map(|run| run.id).collect::<Vec<_>>());
    assert_eq!(applied.runs.len(), 1);
    // After a lost answer, the repeated call returns the existing run.
    let decision = SlotDecision { runs: vec![new_run("task", world.now)], ..Default::default() };
    world.reopen().await;
    assert_eq!(apply(world, id, CommandEffect::Slots(decision)).await, applied);
    assert_eq!(world.store().active_runs().await.unwrap().len(), 1);
}

/// A pause has its author, reason and time, and no slot decision ends it.
pub async fn a_pause_holds_until_it_is_resumed(world: &mut World) {
    let at = world.now;
    let id = submit(world, pause()).await;
    world.advance(Duration::from_secs(1));
    apply(world, id, CommandEffect::Pause(task("task"))).await;
    let paused = state(world).await.paused.expect("it is paused");
    assert_eq!((paused.by.as_str(), paused.reason.as_str(), paused.since), ("ann", "because", at));

    let slot = SlotRecord {
        task: task("task"),
        from: world.now,
        to: world.now,
        count: 1,
        outcome: SlotOutcome::Paused,
        reason: "because".into(),
        run: None,
        term: Term(1),
    };
    let last_slot = Some(world.now);
    let states = vec![TaskState { paused: None, last_slot, ..state(world).await }];
    let decision = SlotDecision { slots: vec![slot], states, ..SlotDecision::default() };
    world.store().decide_slots(&world.fence, &decision).await.unwrap();
    let after = state(world).await;
    assert!(after.paused.is_some() && after.last_slot == last_slot, "{after:?}");

    world.advance(Duration::from_secs(60));
    let id = submit(world, Command::Resume { task: task("task"), release: false }).await;
    apply(world, id, CommandEffect::Resume(task("task"), Brakes::default())).await;
    let resumed = state(world).await;
    assert_eq!(resumed.paused, None);
    assert_eq!(resumed.last_slot, Some(world.now), "the schedule counts from now");
}

/// The items that a cancelled run has planned remain; the run ends with them.
pub async fn a_cancelled_run_ends_with_its_last_item(world: &mut World) {
    let run = world.run("task").await;
    world.plan("task", run, vec![candidate("a"), due("b", world.now)]).await;
    let id = submit(world, Command::Cancel { run }).await;
    apply(world, id, CommandEffect::Cancel(run, "cancelled by ann".into())).await;
    let cancelled = world.store().run(run).await.unwrap().unwrap();
    assert!(cancelled.scan_done && cancelled.ended_at.is_none(), "{cancelled:?}");
    assert_eq!(cancelled.error.as_deref(), Some("cancelled by ann"));
    let item = world.only("task").await;
    assert_eq!(world.commit(vec![(&item, skip("no"))]).await.runs_ended, [run]);
    assert_eq!(world.timers().await.len(), 1);
}

/// Cancelling an ended run does not change it.
pub async fn cancelling_a_run_that_has_ended_changes_nothing(world: &mut World) {
    let run = world.planned("task", vec![]).await;
    let before = world.store().run(run).await.unwrap();
    world.advance(Duration::from_secs(1));
    let id = submit(world, Command::Cancel { run }).await;
    apply(world, id, CommandEffect::Cancel(run, "too late".into())).await;
    assert_eq!(world.store().run(run).await.unwrap(), before);
    assert!(world.store().pending_commands(10).await.unwrap().is_empty());
}
