//! Reviews: what runs would change, and the decisions about held runs.

use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::brake::{Brake, Brakes, DeletesMax};
use besom_core::ids::RunId;
use besom_core::mode::Mode;
use besom_core::proposal::Change;
use besom_core::review::{Operation, Plan, State};
use besom_ports::store::{
    Applied, Command, CommandEffect, End, Error, LeftOut, NewReview, NewRun, Outcome, Retention,
    ReviewQuery, SlotDecision,
};

use crate::conformance::World;
use crate::conformance::tables::{text, thing};
use crate::conformance::world::{
    apply, candidate, due, fence, in_one_stream, n_is, new_run, page, set_n, task, tenant, unqueued,
};

/// Starts a run in a mode.
async fn run_in(world: &World, mode: Mode) -> RunId {
    let runs = vec![NewRun { mode, ..new_run("task", world.now) }];
    let decision = SlotDecision { runs, ..SlotDecision::default() };
    world.store().decide_slots(&world.fence, &decision).await.unwrap()[0]
}

async fn open(world: &World, run: RunId, within: Option<Duration>) {
    let mut plan = Plan { items: 3, ..Plan::default() };
    plan.add_rows("things", Operation::Delete, 3);
    let review = NewReview { run, within, plan };
    world.store().open_review(&world.fence, &review).await.unwrap();
}

/// Applies an effect, step by step.
async fn decide(world: &World, effect: CommandEffect, limit: u32) -> Applied {
    let command = Command::Approve { run: RunId(1) };
    let id = world.store().submit(&command, "ann", "because").await.unwrap();
    let limit = NonZeroU32::new(limit).expect("a limit");
    for _ in 0..100 {
        let fence = &world.fence;
        let step = world
            .store()
            .apply_command(fence, &world.asked(id).await, &effect, "done", limit)
            .await
            .unwrap();
        if step.progress.is_none() {
            return step;
        }
    }
    panic!("it does not end");
}

fn reject(run: RunId) -> CommandEffect {
    CommandEffect::Reject { task: task("task"), run, state: State::Rejected, error: None }
}

async fn state_of(world: &World, run: RunId) -> Option<State> {
    let query = ReviewQuery { run: Some(run), limit: 1, ..ReviewQuery::default() };
    world.store().reviews(&query).await.unwrap().pop().map(|review| review.state)
}

/// Only a run that waits for an approval is held, also across a restart.
pub async fn a_run_is_held_by_its_mode(world: &mut World) {
    for (mode, held) in [(Mode::Live, false), (Mode::Preview, false), (Mode::Approve, true)] {
        let run = run_in(world, mode).await;
        world.reopen().await;
        let run = world.store().run(run).await.unwrap().unwrap();
        assert_eq!((run.mode, run.held), (mode, held));
    }
    let active = world.store().active_runs().await.unwrap();
    assert_eq!(active.iter().filter(|run| run.held).count(), 1);
}

/// Nothing of a held run is committed, not even what changes nothing, and a batch with one of its items is left
/// out as a whole.
pub async fn nothing_of_a_held_run_is_committed(world: &mut World) {
    world.write(vec![thing("a", 1), thing("b", 1)]).await;
    let live = world.run("task").await;
    world.plan("task", live, vec![candidate("x")]).await;
    let held = run_in(world, Mode::Approve).await;
    world.plan("task", held, vec![candidate("y")]).await;
    let log = world.log("task").await;
    let of = |key: &str| log.iter().find(|w| w.item.identity.key == key).expect("an item");
    let left = Outcome::Left(LeftOut::Braked);
    let alone = world.commit(vec![(of("y"), apply(vec![], vec![set_n("a", 2)]))]).await;
    assert_eq!(alone.outcomes, std::slice::from_ref(&left));
    let both = [(of("x"), apply(vec![], vec![set_n("b", 2)])), (of("y"), apply(vec![], vec![]))];
    assert_eq!(world.commit(both.to_vec()).await.outcomes, [left.clone(), left]);
    assert!(world.history().await.is_empty());
    let rows = world.rows("things", &["n"]).await;
    assert!(rows.iter().all(|row| row[0] == besom_core::value::Value::Integer(1)), "{rows:?}");
    let other = world.commit(vec![(of("x"), apply(vec![], vec![set_n("b", 2)]))]).await;
    assert_eq!(other.outcomes, [Outcome::Committed], "another run is not held");
    world.balanced().await;
}

/// An approval releases what was planned, once.
pub async fn an_approval_releases_a_run(world: &mut World) {
    world.write(vec![thing("a", 1)]).await;
    let run = run_in(world, Mode::Approve).await;
    world.plan("task", run, vec![candidate("x")]).await;
    let other = run_in(world, Mode::Live).await;
    let brake = |run, allowed| {
        let (what, estimate) = ("things".to_owned(), Some(9));
        Brake { run, what, used: 0, allowed: Some(allowed), estimate }
    };
    world.store().set_brakes(&world.fence, &[brake(run, 1), brake(other, 1)]).await.unwrap();
    let brakes = Brakes { deletes: Some(DeletesMax::Rows(5)), ..Brakes::default() };
    let set = async |world: &World| world.store().brakes(&task("task"), 10).await.unwrap();
    let refused = decide(world, CommandEffect::Approve(run, brakes), 10).await.refused;
    assert_eq!(refused, Some(format!("there is no review of run {run}")));
    assert_eq!(set(world).await, [brake(other, 1), brake(run, 1)]);
    open(world, run, Some(Duration::from_secs(60))).await;
    assert_eq!(state_of(world, run).await, Some(State::Waiting));
    world.advance(Duration::from_secs(5));
    assert_eq!(decide(world, CommandEffect::Approve(run, brakes), 10).await.refused, None);
    assert_eq!(set(world).await, [brake(other, 1), brake(run, 5)], "only those of this run");
    let query = ReviewQuery { limit: 10, ..ReviewQuery::default() };
    let review = world.store().reviews(&query).await.unwrap().remove(0);
    let decided = (review.state, review.by.as_str(), review.reason.as_str(), review.decided_at);
    assert_eq!(decided, (State::Approved, "ann", "because", Some(world.now)));
    assert!(!world.store().run(run).await.unwrap().unwrap().held);
    let at = world.now;
    let already = format!("the review of run {run} is approved already, by ann at {at}: because");
    let late = CommandEffect::NotWaiting(run, "it does not wait".into());
    for effect in [CommandEffect::Approve(run, Brakes::default()), reject(run), late] {
        assert_eq!(decide(world, effect, 10).await.refused.as_ref(), Some(&already));
    }
    let other = CommandEffect::NotWaiting(RunId(987), "it does not wait".into());
    assert_eq!(decide(world, other, 10).await.refused.as_deref(), Some("it does not wait"));
    let item = world.only("task").await;
    let done = world.commit(vec![(&item, apply(vec![], vec![set_n("a", 2)]))]).await;
    assert_eq!(done.outcomes, [Outcome::Committed]);
    world.balanced().await;
}

/// A rejection discards the items of the run and no others, and nothing blocks planning them again.
pub async fn a_rejection_discards_what_was_planned(world: &mut World) {
    let later = world.now + Duration::from_secs(600);
    let earlier = world.run("task").await;
    world.plan("task", earlier, vec![due("other", later)]).await;
    world.end_scan("task", earlier).await;
    for limit in [2, 100] {
        let run = run_in(world, Mode::Approve).await;
        let mut all = in_one_stream(&["k1", "k2", "k3"]);
        all.extend(["a", "b", "c"].map(candidate));
        all.extend(["t", "u", "v"].map(|key| due(key, later)));
        assert_eq!(world.plan("task", run, all).await.planned, 9);
        open(world, run, Some(Duration::from_secs(60))).await;
        let applied = decide(world, reject(run), limit).await;
        assert_eq!((applied.dead, applied.refused), (9, None), "{limit}");
        assert_eq!(state_of(world, run).await, Some(State::Rejected));
        assert_eq!(world.log("task").await, []);
        let timers = world.timers().await;
        assert_eq!(timers.len(), 1, "the timer of another run is kept");
        assert_eq!(timers[0].item.run, earlier);
        let rows = world.history().await;
        let own: Vec<_> = rows.iter().filter(|row| row.run == run).collect();
        assert_eq!(own.len(), 9);
        assert!(own.iter().all(|row| row.outcome == End::Discarded));
        let ended = world.store().run(run).await.unwrap().unwrap();
        assert!(ended.ended_at.is_some() && ended.held);
        assert_eq!(ended.error, None);
        world.balanced().await;
    }
}

/// A run that is stopped while it plans has no review yet; what it has planned is discarded.
pub async fn a_held_run_is_stopped_while_it_plans(world: &mut World) {
    let run = run_in(world, Mode::Approve).await;
    world.plan("task", run, vec![candidate("x")]).await;
    let error = Some("cancelled by ann: because".to_owned());
    let effect = CommandEffect::Reject {
        task: task("task"),
        run,
        state: State::Rejected,
        error: error.clone(),
    };
    let applied = decide(world, effect, 10).await;
    assert_eq!((applied.dead, applied.refused), (1, None));
    assert_eq!(state_of(world, run).await, None);
    assert_eq!(world.store().run(run).await.unwrap().unwrap().error, error);
    let said =
        world.store().plan_page(&world.fence, &page("task", run, vec![candidate("z")])).await;
    assert!(matches!(said, Err(Error::Invalid(_))), "its scan has ended: {said:?}");
    world.balanced().await;
}

/// Discarding everything that a task has planned rejects its reviews.
pub async fn a_discard_of_everything_rejects_reviews(world: &mut World) {
    let run = run_in(world, Mode::Approve).await;
    world.plan("task", run, vec![candidate("x")]).await;
    open(world, run, Some(Duration::from_secs(60))).await;
    let effect = CommandEffect::DiscardPlanned(task("task"), "cut".into());
    assert_eq!(decide(world, effect, 10).await.dead, 1);
    assert_eq!(state_of(world, run).await, Some(State::Rejected));
    // One that was approved is not executed any more either.
    let run = run_in(world, Mode::Approve).await;
    world.plan("task", run, vec![candidate("x")]).await;
    open(world, run, Some(Duration::from_secs(60))).await;
    assert_eq!(
        decide(world, CommandEffect::Approve(run, Brakes::default()), 10).await.refused,
        None
    );
    let effect = CommandEffect::DiscardPlanned(task("task"), "cut".into());
    assert_eq!(decide(world, effect, 10).await.dead, 1);
    let query = ReviewQuery { run: Some(run), limit: 1, ..ReviewQuery::default() };
    let ended = world.store().reviews(&query).await.unwrap().remove(0);
    let why = "what was left of it was discarded: because (approved by ann)";
    assert_eq!((ended.state, ended.by.as_str(), ended.reason.as_str()), (State::Done, "ann", why));
    world.balanced().await;
}

/// Reviews are found by run, task and state, and opened once, under the fence.
pub async fn reviews_are_listed_newest_first(world: &mut World) {
    let shown = run_in(world, Mode::Preview).await;
    open(world, shown, None).await;
    let waiting = run_in(world, Mode::Approve).await;
    open(world, waiting, Some(Duration::from_secs(60))).await;
    let opened_at = world.now;
    world.advance(Duration::from_secs(5));
    open(world, waiting, Some(Duration::from_secs(600))).await;
    world.reopen().await;
    let all = ReviewQuery { limit: 10, ..ReviewQuery::default() };
    let list = async |query: ReviewQuery| -> Vec<RunId> {
        let found = world.store().reviews(&query).await.unwrap();
        found.into_iter().map(|review| review.run).collect()
    };
    assert_eq!(list(all.clone()).await, [waiting, shown]);
    assert_eq!(list(ReviewQuery { limit: 1, ..all.clone() }).await, [waiting]);
    assert_eq!(list(ReviewQuery { waiting: true, ..all.clone() }).await, [waiting]);
    assert_eq!(list(ReviewQuery { run: Some(shown), ..all.clone() }).await, [shown]);
    assert_eq!(list(ReviewQuery { before: Some(waiting), ..all.clone() }).await, [shown]);
    assert_eq!(list(ReviewQuery { task: Some(task("task")), ..all.clone() }).await.len(), 2);
    assert_eq!(list(ReviewQuery { task: Some(task("other")), ..all.clone() }).await, []);
    let found = world.store().reviews(&all).await.unwrap().remove(0);
    assert_eq!((found.opened_at, found.state), (opened_at, State::Waiting));
    assert_eq!(found.expires_at, Some(opened_at + Duration::from_secs(60)), "it is opened once");
    assert_eq!(found.plan.words(), "3 rows of things deleted");
    let refused = decide(world, CommandEffect::Approve(shown, Brakes::default()), 10)
        .await
        .refused
        .expect("a refusal");
    assert!(refused.contains("nothing to decide"), "{refused}");
    let none = NewReview { run: RunId(987), within: None, plan: Plan::default() };
    let said = world.store().open_review(&world.fence, &none).await;
    assert!(matches!(said, Err(Error::Invalid(_))), "{said:?}");
    let stale = fence(1);
    world.lead(2, "node-2").await;
    let said = world.store().open_review(&stale, &none).await;
    assert!(matches!(said, Err(Error::Fenced)), "{said:?}");
}

/// Reviews are kept as long as their run.
pub async fn reviews_are_pruned_with_their_run(world: &mut World) {
    let run = run_in(world, Mode::Preview).await;
    open(world, run, None).await;
    world.end_scan("task", run).await;
    world.advance(Duration::from_secs(3_600));
    let minute = Duration::from_secs(60);
    let keep = Retention { history: minute, undo: &[], nodes: minute, routed: None };
    for _ in 0..3 {
        world.store().prune(&world.fence, keep, 100).await.unwrap();
    }
    assert_eq!(world.store().run(run).await.unwrap(), None, "the run is gone");
    assert_eq!(state_of(world, run).await, None);
}

/// What a commit would do is found out, item by item, and nothing is changed.
pub async fn a_commit_is_tried_and_taken_back(world: &mut World) {
    world.write(vec![thing("a", 1), thing("b", 1)]).await;
    let of = |changes| unqueued(world.fence.term, world.now, Some(tenant("a")), changes);
    let delete = |id: &str| Change::Delete { collection: "things".into(), key: vec![text(id)] };
    let mut guarded = of(vec![delete("b")]);
    if let besom_ports::store::Decision::Apply { proposal, .. } = &mut guarded.decision {
        proposal.guards.push(n_is("b", 7));
    }
    let nothing = of(vec![set_n("nothing", 1)]);
    let emits = Change::Emit { topic: "done".into(), key: "k".into(), payload: vec![1] };
    let entries = vec![of(vec![set_n("a", 2)]), guarded, nothing, of(vec![delete("b"), emits])];
    let batch = world.batch(entries);
    for _ in 0..2 {
        let tried = world.store().try_commit(&batch).await.unwrap();
        let [changed, guarded, violated, deleted] = &tried.outcomes[..] else {
            panic!("{tried:?}")
        };
        assert_eq!((changed, deleted), (&Outcome::Committed, &Outcome::Committed));
        assert!(matches!(guarded, Outcome::Skipped(why) if why == "guard"), "{guarded:?}");
        assert!(
            matches!(violated, Outcome::Skipped(why) if why.starts_with("violation")),
            "{violated:?}"
        );
        let rows: Vec<u64> = tried.changes.iter().map(|changes| changes.rows).collect();
        assert_eq!(rows, [1, 0, 0, 1]);
        let image = &tried.changes[0].images[0];
        assert_eq!((image.collection.as_str(), &image.key), ("things", &vec![text("a")]));
        assert!(tried.changes[3].images.len() == 1 && tried.changes[3].bytes > 0);
        assert_eq!(tried.changes[1].images, []);
    }
    assert_eq!(world.rows("things", &["id"]).await.len(), 2);
    assert!(world.history().await.is_empty());
    let messages = besom_ports::store::MessageQuery { limit: 10, ..Default::default() };
    assert!(world.store().messages(&messages).await.unwrap().is_empty());
    world.balanced().await;
    let done = world.store().commit(&batch).await.unwrap();
    assert_eq!(done.outcomes.len(), 4, "the same batch can be committed afterwards");
    assert_eq!(world.rows("things", &["id"]).await.len(), 1);
    world.balanced().await;
    let stale = world.fence.term;
    world.lead(2, "node-2").await;
    let late = unqueued(stale, world.now, Some(tenant("a")), vec![set_n("a", 3)]);
    let said = world.store().try_commit(&world.batch(vec![late])).await;
    assert!(matches!(said, Err(Error::Fenced)), "{said:?}");
}
