//! Streams: sequenced, without gaps, acknowledged from their cursor on.

use besom_core::ids::Seq;
use besom_core::item::Source;
use besom_ports::store::{
    Applied, Command, CommandEffect, Error, LeftOut, Outcome, Repaired, StreamRow,
};

use crate::conformance::tables::thing;
use crate::conformance::world::{
    ALL, LETTERS, apply, candidate, dead, due as timed, in_one_stream, retry, skip, task,
};
use crate::conformance::{Corruption, World};

/// Positions start at 1 and continue where the page before ended.
pub async fn a_stream_is_numbered_without_gaps(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b"])).await;
    world.planned("task", in_one_stream(&["b", "c", "a", "d"])).await;
    let items = world.log("task").await;
    let positions: Vec<_> =
        items.iter().map(|w| (w.source, w.item.identity.key.as_str())).collect();
    let log = |seq| Source::Log(Seq(seq));
    assert_eq!(positions, [(log(1), "a"), (log(2), "b"), (log(3), "c"), (log(4), "d")]);
    let streams = world.store().backlog(None).await.unwrap();
    assert_eq!((streams.len(), streams[0].acked, streams[0].tail), (1, Seq(0), Seq(4)));
}

/// Tasks do not share a stream, even in one partition.
pub async fn each_task_has_its_own_stream(world: &mut World) {
    world.planned("one", in_one_stream(&["a"])).await;
    world.planned("two", in_one_stream(&["a"])).await;
    for name in ["one", "two"] {
        assert_eq!(world.only(name).await.source, Source::Log(Seq(1)), "{name}");
    }
}

/// The backlog is read by partition.
pub async fn the_backlog_is_found_by_partition(world: &mut World) {
    let keys: Vec<String> = (0..40).map(|n| format!("key-{n}")).collect();
    world.planned("task", keys.iter().map(|k| candidate(k)).collect()).await;
    let all = world.store().backlog(None).await.unwrap();
    assert!(all.len() > 1, "the keys spread over partitions");
    let wanted = [all[0].partition];
    assert_eq!(world.store().backlog(Some(&wanted)).await.unwrap(), all[..1]);
    assert!(world.store().backlog(Some(&[])).await.unwrap().is_empty());
}

/// A read is bounded by items and by bytes, but makes progress.
pub async fn a_read_of_the_log_is_bounded(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b", "c"])).await;
    let stream = world.store().backlog(None).await.unwrap().remove(0);
    for (acked, limit, bytes, expected) in [
        (0, ALL, usize::MAX, vec!["a", "b", "c"]),
        (0, 2, usize::MAX, vec!["a", "b"]),
        (1, ALL, usize::MAX, vec!["b", "c"]),
        (0, ALL, 1, vec!["a"]),
        (3, ALL, usize::MAX, vec![]),
    ] {
        let store = world.store();
        let read = store.read_log(&stream.task, stream.partition, Seq(acked), limit, bytes).await;
        let read = read.unwrap();
        let keys: Vec<_> = read.iter().map(|w| w.item.identity.key.as_str()).collect();
        assert_eq!(keys, expected, "after {acked}, {limit} items, {bytes} bytes");
    }
}

/// The cursor passes an item however it ends.
pub async fn an_acknowledgement_moves_the_cursor(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b", "c", "d"])).await;
    let items = world.log("task").await;
    world
        .commit(vec![
            (&items[0], skip("no")),
            (&items[1], retry(world.now, 1, "again")),
            (&items[2], dead("never")),
        ])
        .await;
    let stream = world.store().backlog(None).await.unwrap().remove(0);
    assert_eq!((stream.acked, stream.tail), (Seq(3), Seq(4)));
    assert_eq!(world.log("task").await, items[3..]);
    world.balanced().await;
}

/// An empty stream is not in the backlog, and its numbers continue.
pub async fn an_empty_stream_goes_on_where_it_was(world: &mut World) {
    for position in 1..=3 {
        world.planned("task", in_one_stream(&["a"])).await;
        let item = world.only("task").await;
        assert_eq!(item.source, Source::Log(Seq(position)));
        world.commit(vec![(&item, skip("done"))]).await;
        assert!(world.store().backlog(None).await.unwrap().is_empty());
    }
}

/// An item that is already acknowledged is left out; the items that follow are not.
pub async fn a_stale_cursor_leaves_its_stream_out(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b"])).await;
    let items = world.log("task").await;
    world.commit(vec![(&items[0], skip("first"))]).await;
    let both = world.commit(vec![(&items[0], skip("again")), (&items[1], skip("again"))]).await;
    assert_eq!(both.outcomes, vec![Outcome::Left(LeftOut::NotThere); 2]);
    let rest = world.commit(vec![(&items[1], skip("second"))]).await;
    assert_eq!(rest.outcomes, [Outcome::Skipped("second".into())]);
    assert_eq!(world.history().await.len(), 2);
    world.balanced().await;
}

/// A store that was restored may have another item where one was read: nothing of it is settled.
pub async fn an_item_that_is_not_the_one_at_its_place_is_left_out(world: &mut World) {
    world.settle(candidate("retry"), retry(world.now, 1, "failed")).await;
    world.planned("task", vec![candidate("log"), timed("timer", world.now)]).await;
    let mut waiting = world.log("task").await;
    waiting.extend(world.timers().await);
    waiting.extend(world.retries().await);
    assert_eq!(waiting.len(), 3);
    for there in &waiting {
        let (mut of_another_run, mut of_another_key) = (there.clone(), there.clone());
        of_another_run.item.run.0 += 1;
        of_another_key.item.identity.key = "another".to_owned();
        for other in [of_another_run, of_another_key] {
            let decision = apply(vec![], vec![thing("t", 1)]);
            let left = world.commit(vec![(&other, decision)]).await;
            assert_eq!(left.outcomes, [Outcome::Left(LeftOut::NotThere)], "{:?}", other.source);
        }
        let done = world.commit(vec![(there, skip("done"))]).await;
        assert_eq!(done.outcomes, [Outcome::Skipped("done".into())]);
    }
    assert!(world.rows("things", &["id"]).await.is_empty());
    world.balanced().await;
}

/// The other streams of a batch are not left out with one that has lost its last items.
pub async fn an_item_beyond_the_end_leaves_its_stream_out_alone(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b"])).await;
    world.planned("other", vec![candidate("c")]).await;
    let there = world.log("task").await;
    let mut beyond = there[1].clone();
    beyond.source = Source::Log(Seq(3));
    let other = world.only("other").await;
    let decisions = [&there[0], &there[1], &beyond, &other].map(|item| (item, skip("done")));
    let outcomes = world.commit(decisions.into()).await.outcomes;
    let left = Outcome::Left(LeftOut::NotThere);
    assert_eq!(outcomes, [left.clone(), left.clone(), left, Outcome::Skipped("done".into())]);
    assert_eq!(world.log("task").await, there);
    world.balanced().await;
}

/// A stream that has lost an item in its middle is left out, and its neighbours are not: the audit
/// and every read name it until it is repaired.
pub async fn an_item_lost_inside_a_stream_leaves_its_stream_out_alone(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b", "c"])).await;
    world.planned("other", vec![candidate("d")]).await;
    let (items, other) = (world.log("task").await, world.only("other").await);
    let partition = items[0].item.partition;
    world.fixture.corrupt(&Corruption::LoseLog(task("task"), partition, Seq(2))).await;
    let decisions = [&items[0], &items[1], &items[2], &other].map(|item| (item, skip("done")));
    let outcomes = world.commit(decisions.into()).await.outcomes;
    let left = Outcome::Left(LeftOut::NotThere);
    assert_eq!(outcomes, [left.clone(), left.clone(), left, Outcome::Skipped("done".into())]);
    assert_eq!(world.history().await.len(), 1);
    let violations = world.store().audit().await.unwrap().violations;
    assert!(violations.iter().any(|v| v.contains("task")), "{violations:?}");
    let head = [(partition, Seq(0))];
    let read = world.store().read_logs(&task("task"), &head, ALL, ALL, usize::MAX).await.unwrap();
    assert_eq!(read.broken.len(), 1, "{read:?}");
    assert_eq!(repair(world).await.repaired, Repaired { streams: 1, lost: 1 });
    world.balanced().await;
}

/// An entry that is not next in its stream is left out.
pub async fn a_batch_that_skips_an_item_is_left_out(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b", "c"])).await;
    let items = world.log("task").await;
    let ahead = world.commit(vec![(&items[1], skip("no"))]).await;
    assert_eq!(ahead.outcomes, [Outcome::Left(LeftOut::NotThere)]);
    let gap = world.commit(vec![(&items[0], skip("no")), (&items[2], skip("no"))]).await;
    assert_eq!(gap.outcomes, vec![Outcome::Left(LeftOut::NotThere); 2]);
    assert_eq!(world.log("task").await, items);
    world.balanced().await;
}

/// A missing item is detected and named.
pub async fn a_gap_in_the_log_is_named(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b", "c"])).await;
    let stream = world.store().backlog(None).await.unwrap().remove(0);
    let lost = Corruption::LoseLog(task("task"), stream.partition, Seq(2));
    world.fixture.corrupt(&lost).await;
    let store = world.store();
    let read = store.read_log(&stream.task, stream.partition, Seq(0), ALL, usize::MAX).await;
    match read {
        Err(Error::Invalid(message)) => assert!(message.contains('2'), "{message}"),
        other => panic!("a gap is no result: {other:?}"),
    }
}

/// A broken stream does not prevent reading the others, whatever its place among them.
pub async fn a_broken_stream_holds_back_itself_alone(world: &mut World) {
    let keys: Vec<String> = (0..40).map(|n| format!("key-{n}")).collect();
    world.planned("task", keys.iter().map(|k| candidate(k)).collect()).await;
    let all = world.store().backlog(None).await.unwrap();
    let (first, last) = (all[0].partition, all[all.len() - 1].partition);
    assert_ne!(first, last, "the keys spread over partitions");
    let items = world.log("task").await;
    for partition in [first, last] {
        let stream = all.iter().find(|s| s.partition == partition).expect("a stream");
        assert!(stream.tail.0 >= 1);
        // A row after it exists, so that the gap shows.
        let route = items.iter().find(|w| w.item.partition == partition).expect("its item");
        let mut again = candidate("another");
        again.key = format!("behind-{}", partition.0);
        again.route.clone_from(&route.item.route);
        world.planned("task", vec![again]).await;
        world.fixture.corrupt(&Corruption::LoseLog(task("task"), partition, Seq(1))).await;
    }
    let streams: Vec<_> = all.iter().map(|s| (s.partition, s.acked)).collect();
    let read = world.store().read_logs(&task("task"), &streams, ALL, ALL, usize::MAX).await;
    let read = read.unwrap();
    let broken: Vec<_> = read.broken.iter().map(|broken| broken.partition).collect();
    assert_eq!(broken, [first, last]);
    for broken in &read.broken {
        assert!(broken.why.contains('1'), "{}", broken.why);
    }
    let expected: u64 =
        all.iter().filter(|s| !broken.contains(&s.partition)).map(|s| s.tail.0 - s.acked.0).sum();
    assert_eq!(read.items.len() as u64, expected);
}

async fn repair(world: &World) -> Applied {
    let (store, fence) = (world.store(), &world.fence);
    let command = Command::RepairStreams { task: task("task") };
    let id = store.submit(&command, "ada", "a row was deleted").await.unwrap();
    let effect = CommandEffect::RepairStreams(task("task"));
    let applied = store
        .apply_command(fence, &world.asked(id).await, &effect, "numbered anew", LETTERS)
        .await
        .unwrap();
    // Repeating it changes nothing and returns the same result.
    assert_eq!(
        store
            .apply_command(fence, &world.asked(id).await, &effect, "numbered anew", LETTERS)
            .await
            .unwrap(),
        applied
    );
    applied
}

/// After a repair the remaining items are executed in order; the missing ones are written off in
/// the books and may be planned again.
pub async fn a_repair_keeps_what_is_there_and_writes_off_the_rest(world: &mut World) {
    let run = world.planned("task", in_one_stream(&["a", "b", "c", "d", "e"])).await;
    let stream = world.store().backlog(None).await.unwrap().remove(0);
    let items = world.log("task").await;
    world.commit(vec![(&items[0], skip("done"))]).await;
    for lost in [2, 4] {
        let corruption = Corruption::LoseLog(task("task"), stream.partition, Seq(lost));
        world.fixture.corrupt(&corruption).await;
    }
    let rows = world.store().streams(Some(&task("task"))).await.unwrap();
    let [StreamRow { stream: broken, items: 2 }] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((broken.acked, broken.tail), (Seq(1), Seq(5)));

    let applied = repair(world).await;
    assert_eq!(applied.repaired, Repaired { streams: 1, lost: 2 });
    assert_eq!(applied.refused, None);
    let audit = world.balanced().await;
    let counted: Vec<_> = audit.rows.iter().map(|row| &row.counted).collect();
    assert_eq!((counted[0].planned, counted[0].discarded, counted[0].pending), (5, 2, 2));

    // A batch begun before the repair is left out, and the numbers continue after the last one.
    let left = world.commit(vec![(&items[2], skip("done"))]).await;
    assert_eq!(left.outcomes, [Outcome::Left(LeftOut::NotThere)]);
    let rest = world.log("task").await;
    let keys: Vec<_> = rest.iter().map(|w| (w.source, w.item.identity.key.as_str())).collect();
    assert_eq!(keys, [(Source::Log(Seq(6)), "c"), (Source::Log(Seq(7)), "e")]);
    let done = world.commit(vec![(&rest[0], skip("done")), (&rest[1], skip("done"))]).await;
    assert_eq!(done.outcomes.len(), 2);
    assert_eq!(done.runs_ended, [run], "it waits for nothing that is lost");

    world.planned("task", in_one_stream(&["b", "d"])).await;
    assert_eq!(world.log("task").await.len(), 2);
    world.balanced().await;
}

/// A repair that was not needed changes nothing.
pub async fn there_is_nothing_to_repair_where_no_stream_is_broken(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b"])).await;
    let items = world.log("task").await;
    let applied = repair(world).await;
    assert!(applied.refused.as_ref().is_some_and(|why| why.contains("task")), "{applied:?}");
    assert_eq!(world.log("task").await, items);
    world.balanced().await;
}

/// A missing timer is written off with its run and may be planned again.
pub async fn a_repair_writes_off_lost_timers(world: &mut World) {
    let due = world.now + std::time::Duration::from_secs(60);
    let timer = || timed("timed", due);
    world.planned("task", vec![timer(), candidate("kept")]).await;
    let Source::Timer(id) = world.timers().await[0].source else { panic!("a timer") };
    world.fixture.corrupt(&Corruption::LoseTimer(id)).await;
    assert_eq!(repair(world).await.repaired, Repaired { streams: 0, lost: 1 });
    world.balanced().await;
    world.planned("task", vec![timer()]).await;
    assert_eq!(world.timers().await.len(), 1);
    world.balanced().await;
}

/// A stream without any of its rows is broken, like one with a gap.
pub async fn a_stream_that_has_lost_everything_is_broken(world: &mut World) {
    world.planned("task", in_one_stream(&["a"])).await;
    let stream = world.store().backlog(None).await.unwrap().remove(0);
    let lost = Corruption::LoseLog(task("task"), stream.partition, Seq(1));
    world.fixture.corrupt(&lost).await;
    let head = [(stream.partition, Seq(0))];
    let read = world.store().read_logs(&stream.task, &head, ALL, ALL, usize::MAX).await.unwrap();
    assert_eq!(read.broken.len(), 1, "{read:?}");
    assert_eq!(read.looked, [stream.partition]);
}

/// A stream for which there was no room was not examined, and counts neither as intact nor as
/// broken.
pub async fn a_read_says_which_streams_it_has_looked_at(world: &mut World) {
    let keys: Vec<String> = (0..40).map(|n| format!("key-{n}")).collect();
    world.planned("task", keys.iter().map(|k| candidate(k)).collect()).await;
    let all = world.store().backlog(None).await.unwrap();
    let streams: Vec<_> = all.iter().map(|s| (s.partition, s.acked)).collect();
    let read = world.store().read_logs(&task("task"), &streams, ALL, 1, usize::MAX).await.unwrap();
    assert_eq!((read.items.len(), &read.looked[..]), (1, &[streams[0].0][..]));
}

/// The row of a stream is lost, and its items are not: they are executed after a repair.
pub async fn a_stream_whose_position_is_lost_goes_on_after_a_repair(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b", "c"])).await;
    let items = world.log("task").await;
    world.commit(vec![(&items[0], skip("done"))]).await;
    world.fixture.corrupt(&Corruption::LosePositions(task("task"))).await;
    let audit = world.store().audit().await.unwrap();
    assert!(!audit.balanced(), "{audit:#?}");

    assert_eq!(repair(world).await.repaired, Repaired { streams: 1, lost: 0 });
    world.balanced().await;
    let rest = world.log("task").await;
    let keys: Vec<_> = rest.iter().map(|w| w.item.identity.key.as_str()).collect();
    assert_eq!(keys, ["b", "c"]);
    let done = world.commit(rest.iter().map(|item| (item, skip("done"))).collect()).await;
    assert_eq!(done.outcomes, vec![Outcome::Skipped("done".into()); 2]);
    world.planned("task", in_one_stream(&["d"])).await;
    assert_eq!(world.log("task").await.len(), 1);
    world.balanced().await;
}

/// The history shows that items went through streams that have no rows. A repair restores them at
/// positions that were not used before.
pub async fn positions_that_are_lost_while_nothing_waits_are_restored(world: &mut World) {
    world.planned("task", in_one_stream(&["a", "b"])).await;
    let items = world.log("task").await;
    world.commit(items.iter().map(|item| (item, skip("done"))).collect()).await;
    world.balanced().await;
    world.fixture.corrupt(&Corruption::LosePositions(task("task"))).await;
    let violations = world.store().audit().await.unwrap().violations;
    assert!(violations.iter().any(|v| v.contains("task")), "{violations:?}");

    let repaired = repair(world).await.repaired;
    assert!(repaired.streams >= 1 && repaired.lost == 0, "{repaired:?}");
    world.balanced().await;
    world.planned("task", in_one_stream(&["c"])).await;
    let next = world.only("task").await;
    let Source::Log(at) = next.source else { panic!("{next:?}") };
    assert!(at > Seq(2), "{at:?}");
    let done = world.commit(vec![(&next, skip("done"))]).await;
    assert_eq!(done.outcomes, [Outcome::Skipped("done".into())]);
    world.balanced().await;
}

/// New items may have come before the repair: their streams begin at the first position again.
pub async fn positions_that_were_used_twice_are_made_up_for(world: &mut World) {
    let keys: Vec<String> = (0..400).map(|n| format!("key-{n}")).collect();
    for _ in 0..2 {
        world.planned("task", keys.iter().map(|key| candidate(key)).collect()).await;
        let items = world.log("task").await;
        world.commit(items.iter().map(|item| (item, skip("done"))).collect()).await;
        world.fixture.corrupt(&Corruption::LosePositions(task("task"))).await;
    }
    world.planned("task", keys.iter().map(|key| candidate(key)).collect()).await;
    let items = world.log("task").await;
    world.commit(items.iter().map(|item| (item, skip("done"))).collect()).await;
    assert!(!world.store().audit().await.unwrap().balanced());
    assert!(repair(world).await.repaired.streams >= 1);
    world.balanced().await;
    world.planned("task", vec![candidate("next")]).await;
    assert_eq!(world.log("task").await.len(), 1);
    world.balanced().await;
}
