//! Dead letters: set aside with every error, retried or discarded by command.

use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::item::Candidate;
use besom_ports::store::{
    Applied, Audit, Command, CommandEffect, DeadLetter, DeadSelector, Letters, Outcome, Retention,
};
use besom_snapshot::DeadGroup;

use crate::conformance::World;
use crate::conformance::world::{
    ALL, LETTERS, apply as commits, candidate, dead, dead_after, due, retry, skip, task, tenant,
};

/// A retention that keeps nothing beyond the present.
const ALL_GOES: Retention<'_> =
    Retention { history: Duration::ZERO, undo: &[], nodes: Duration::ZERO, routed: None };

async fn letters(world: &World, selector: &DeadSelector) -> Vec<DeadLetter> {
    world.store().dead_letters(selector, Letters::Open, None, ALL).await.unwrap()
}

async fn apply(world: &World, effect: CommandEffect) -> Applied {
    let command = Command::RetryDead(DeadSelector::default());
    let id = world.store().submit(&command, "ann", "fixed it").await.unwrap();
    world
        .store()
        .apply_command(&world.fence, &world.asked(id).await, &effect, "done", LETTERS)
        .await
        .unwrap()
}

fn by_task(name: &str) -> DeadSelector {
    DeadSelector { task: Some(task(name)), ..DeadSelector::default() }
}

/// An item that is set aside keeps its payload, counters and errors, and says which node set it aside.
pub async fn a_dead_letter_keeps_its_item_and_every_error(world: &mut World) {
    world.settle(candidate("k"), retry(world.now, 1, "first")).await;
    let waiting = world.retries().await.remove(0);
    world.commit(vec![(&waiting, dead_after(2, "second"))]).await;
    let letter = letters(world, &DeadSelector::default()).await.remove(0);
    assert_eq!(letter.item.errors, ["first", "second"]);
    assert_eq!((letter.item.attempts, letter.at), (2, world.now));
    assert_eq!(letter.context.node.as_ref(), Some(&world.node));
    assert_eq!(letter.item.identity, waiting.item.identity);
    assert_eq!(letter.item.payload, waiting.item.payload);
    let row = world.history().await.remove(0);
    assert_eq!((row.outcome.as_str(), row.reason.as_deref()), ("dead", Some("second")));
    world.balanced().await;
}

/// Dead letters are found by number, or by task and last error, newest first.
pub async fn dead_letters_are_selected_by_id_task_and_error(world: &mut World) {
    for (name, key, error) in [("one", "a", "x"), ("one", "b", "y"), ("two", "c", "x")] {
        world.planned(name, vec![candidate(key)]).await;
        let item = world.only(name).await;
        world.commit(vec![(&item, dead(error))]).await;
    }
    let all = letters(world, &DeadSelector::default()).await;
    let first = all[2].id;
    let error = |error: &str| Some(error.to_owned());
    for (selector, expected) in [
        (DeadSelector::default(), vec!["c", "b", "a"]),
        (by_task("one"), vec!["b", "a"]),
        (DeadSelector { error: error("x"), ..Default::default() }, vec!["c", "a"]),
        (DeadSelector { error: error("x"), ..by_task("one") }, vec!["a"]),
        (DeadSelector { error: error("z"), ..Default::default() }, vec![]),
        (DeadSelector { ids: vec![first], ..by_task("two") }, vec!["a"]),
    ] {
        let found = letters(world, &selector).await;
        let keys: Vec<_> = found.iter().map(|l| l.item.identity.key.as_str()).collect();
        assert_eq!(keys, expected, "{selector:?}");
    }
    let newest = world.store().dead_letters(&DeadSelector::default(), Letters::Open, None, 1).await;
    assert_eq!(newest.unwrap(), all[..1]);
}

/// A retried letter is due at once, with fresh attempts.
pub async fn a_retried_dead_letter_waits_with_fresh_attempts(world: &mut World) {
    world.settle(candidate("k"), retry(world.now, 4, "first")).await;
    let waiting = world.retries().await.remove(0);
    world.commit(vec![(&waiting, dead("second"))]).await;
    let applied = apply(world, CommandEffect::RetryDead(by_task("task"))).await;
    assert_eq!(applied.dead, 1);
    assert!(letters(world, &DeadSelector::default()).await.is_empty());
    let retry = world.retries().await.remove(0);
    let item = &retry.item;
    assert_eq!((retry.run_at, item.attempts, item.guard_retries), (world.now, 0, 0));
    assert_eq!((item.deaths, &item.errors[..]), (0, &["first".to_owned(), "second".into()][..]));
    let counted = world.balanced().await.rows.remove(0).counted;
    assert_eq!((counted.planned, counted.dead, counted.pending), (1, 0, 1));

    world.commit(vec![(&retry, skip("well"))]).await;
    let counted = world.balanced().await.rows.remove(0).counted;
    assert_eq!((counted.planned, counted.skipped, counted.pending), (1, 1, 0));
}

/// Of several dead letters of one identity the newest is retried; the others stay while it waits.
pub async fn a_dead_letter_whose_identity_waits_stays_open(world: &mut World) {
    for version in ["v1", "v2"] {
        let found = Candidate { version: version.into(), ..candidate("k") };
        world.settle(found, dead("corrupt")).await;
    }
    let retried = || CommandEffect::RetryDead(DeadSelector::default());
    assert_eq!(apply(world, retried()).await.dead, 1);
    assert_eq!(world.retries().await.remove(0).item.version, "v2");
    assert_eq!(apply(world, retried()).await.dead, 0);
    let open = letters(world, &DeadSelector::default()).await;
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].item.version, "v1");
    world.balanced().await;
}

/// The history has the author and the reason of a discard.
pub async fn a_discarded_dead_letter_is_history_with_who_and_why(world: &mut World) {
    world.settle(candidate("k"), dead("corrupt")).await;
    world.settle(candidate("l"), dead("corrupt")).await;
    let id = letters(world, &DeadSelector::default()).await[0].id;
    let one = DeadSelector { ids: vec![id], ..DeadSelector::default() };
    assert_eq!(apply(world, CommandEffect::DiscardDead(one)).await.dead, 1);
    assert_eq!(letters(world, &DeadSelector::default()).await.len(), 1);
    let row = world.history().await.pop().unwrap();
    assert_eq!((row.outcome.as_str(), row.identity.key.as_str()), ("discarded", "l"));
    let reason = row.reason.unwrap();
    assert!(reason.contains("ann") && reason.contains("fixed it"), "{reason}");
    let counted = world.balanced().await.rows.remove(0).counted;
    assert_eq!((counted.planned, counted.dead, counted.discarded), (2, 1, 1));
}

/// A command on a group names the expected number; if another number matches, nothing changes, and
/// the result has both numbers.
pub async fn another_number_of_dead_letters_than_expected_is_refused(world: &mut World) {
    for key in ["k", "l"] {
        world.settle(candidate(key), dead("corrupt")).await;
    }
    let expecting = |count| DeadSelector { expect: Some(count), ..by_task("task") };
    let asked = async |effect: CommandEffect| {
        let command = Command::DiscardDead(DeadSelector::default());
        let id = world.store().submit(&command, "ann", "all of them").await.unwrap();
        let applied = world
            .store()
            .apply_command(&world.fence, &world.asked(id).await, &effect, "so be it", LETTERS)
            .await;
        let again = world
            .store()
            .apply_command(&world.fence, &world.asked(id).await, &effect, "so be it", LETTERS)
            .await;
        assert_eq!(again.unwrap(), *applied.as_ref().unwrap(), "it is told again");
        let row = world.store().command(id).await.unwrap().unwrap();
        (applied.unwrap(), row.refused, row.result.unwrap())
    };
    for count in [1, 3] {
        for effect in [CommandEffect::RetryDead, CommandEffect::DiscardDead] {
            let (applied, refused, result) = asked(effect(expecting(count))).await;
            assert_eq!((applied.dead, refused), (0, true));
            assert_eq!(applied.refused.as_ref(), Some(&result));
            let numbers = [format!("{count} dead letter"), "found 2".to_owned()];
            assert!(numbers.iter().all(|number| result.contains(number)), "{result}");
        }
    }
    assert_eq!(letters(world, &DeadSelector::default()).await.len(), 2);
    assert!(world.retries().await.is_empty());
    let (applied, refused, result) = asked(CommandEffect::DiscardDead(expecting(2))).await;
    assert_eq!((applied.dead, applied.refused, refused), (2, None, false));
    assert_eq!(result, "so be it: 2 dead letters");
    assert!(letters(world, &DeadSelector::default()).await.is_empty());
    world.balanced().await;
}

/// Submits a command over dead letters, which takes three at a time.
async fn begun(world: &World, effect: &CommandEffect) -> (u64, Applied) {
    let command = Command::RetryDead(DeadSelector::default());
    let id = world.store().submit(&command, "ann", "fixed it").await.unwrap();
    (id, step(world, id, effect).await)
}

async fn step(world: &World, id: u64, effect: &CommandEffect) -> Applied {
    let three = NonZeroU32::new(3).unwrap();
    world
        .store()
        .apply_command(&world.fence, &world.asked(id).await, effect, "will be retried", three)
        .await
        .unwrap()
}

async fn letters_of_keys(world: &World, keys: &[&str]) {
    for key in keys {
        world.settle(candidate(key), dead("corrupt")).await;
    }
}

async fn keys_of(world: &World) -> Vec<String> {
    let open = letters(world, &DeadSelector::default()).await;
    open.into_iter().map(|letter| letter.item.identity.key).collect()
}

/// A command over more letters than it takes at once stays pending with its progress; another leader
/// continues it, and the result counts all of them.
pub async fn a_command_over_many_letters_takes_several_transactions(world: &mut World) {
    letters_of_keys(world, &["g", "c", "a", "e", "b", "d", "f", "h"]).await;
    let effect = CommandEffect::RetryDead(DeadSelector { expect: Some(8), ..by_task("task") });
    let (id, first) = begun(world, &effect).await;
    assert_eq!((first.dead, first.progress.map(|at| at.found)), (3, Some(8)));
    let row = world.store().command(id).await.unwrap().unwrap();
    assert_eq!((row.applied_at, row.refused), (None, false), "it is pending");
    assert_eq!(row.result.as_deref(), Some("in progress: 3 of 8 dead letters"));
    assert_eq!(world.store().pending_commands(10).await.unwrap(), [row]);
    assert_eq!(world.retries().await.len(), 3, "what it has moved is committed");
    world.balanced().await;

    world.reopen().await;
    world.lead(2, "node-2").await;
    // The expected number was checked when it began.
    assert_eq!(step(world, id, &effect).await.dead, 6);
    let last = step(world, id, &effect).await;
    assert_eq!(last, Applied { dead: 8, ..Applied::default() });
    assert_eq!(step(world, id, &effect).await, last, "it is told again");
    let row = world.store().command(id).await.unwrap().unwrap();
    assert_eq!(row.result.as_deref(), Some("will be retried: 8 dead letters"));
    assert!(row.applied_at.is_some() && !row.refused);
    let mut keys: Vec<String> =
        world.retries().await.into_iter().map(|waiting| waiting.item.identity.key).collect();
    keys.sort();
    assert_eq!(keys, ["a", "b", "c", "d", "e", "f", "g", "h"]);
    assert!(keys_of(world).await.is_empty());
    world.balanced().await;
}

/// What is set aside during a command is not the command's, whether it was retried by the same
/// command before or is new.
pub async fn a_letter_that_is_set_aside_during_a_command_is_left_alone(world: &mut World) {
    letters_of_keys(world, &["a", "b", "c", "d", "e", "f", "g"]).await;
    let effect = CommandEffect::RetryDead(DeadSelector::default());
    let (id, _) = begun(world, &effect).await;
    for waiting in world.retries().await {
        world.commit(vec![(&waiting, dead("still corrupt"))]).await;
    }
    letters_of_keys(world, &["ca", "z"]).await;
    assert_eq!(step(world, id, &effect).await.dead, 6);
    let done = step(world, id, &effect).await;
    assert_eq!((done.dead, done.progress), (7, None));
    let mut left = keys_of(world).await;
    left.sort();
    assert_eq!(left, ["a", "b", "c", "ca", "z"]);
    assert_eq!(world.retries().await.len(), 4);
    world.balanced().await;
}

/// Of several letters of one identity only the newest is retried, also where a transaction of the
/// command ends between them.
pub async fn a_retry_in_several_transactions_takes_an_identity_once(world: &mut World) {
    for version in ["v1", "v2", "v3", "v4", "v5"] {
        let found = Candidate { version: version.into(), ..candidate("k") };
        world.settle(found, dead("corrupt")).await;
    }
    let effect = CommandEffect::RetryDead(DeadSelector::default());
    let (id, first) = begun(world, &effect).await;
    assert_eq!(first.dead, 1);
    let waiting = world.retries().await.remove(0);
    assert_eq!(waiting.item.version, "v5");
    world.commit(vec![(&waiting, skip("nothing to do"))]).await;
    let done = step(world, id, &effect).await;
    assert_eq!((done.dead, done.progress), (1, None));
    assert_eq!(letters(world, &DeadSelector::default()).await.len(), 4);
    assert!(world.retries().await.is_empty());
    world.balanced().await;
}

/// A discard in several transactions counts and records each letter once; one that a commit has
/// resolved in the meantime is left out.
pub async fn a_discard_in_several_transactions_leaves_out_what_was_resolved(world: &mut World) {
    letters_of_keys(world, &["a", "b", "c", "d", "e", "f", "g"]).await;
    let effect = CommandEffect::DiscardDead(by_task("task"));
    let (id, first) = begun(world, &effect).await;
    assert_eq!(first.dead, 3);
    let repaired = Candidate { version: "v2".into(), ..candidate("e") };
    world.settle(repaired, commits(vec![], vec![])).await;
    assert_eq!(step(world, id, &effect).await.dead, 6);
    let done = step(world, id, &effect).await;
    assert_eq!((done.dead, done.progress), (6, None));
    let discarded = world.history().await;
    let discarded = discarded.iter().filter(|row| row.outcome.as_str() == "discarded").count();
    assert_eq!(discarded, 6);
    assert!(keys_of(world).await.is_empty());
    world.balanced().await;
}

/// A command that is given up between its transactions is refused, with what it has done.
pub async fn a_command_that_is_given_up_tells_what_it_has_done(world: &mut World) {
    letters_of_keys(world, &["a", "b", "c", "d"]).await;
    let (id, _) = begun(world, &CommandEffect::RetryDead(DeadSelector::default())).await;
    let given_up = CommandEffect::Refuse("too slow".into());
    let store = world.store();
    let applied = store
        .apply_command(&world.fence, &world.asked(id).await, &given_up, "too slow", LETTERS)
        .await
        .unwrap();
    assert_eq!((applied.dead, applied.progress), (3, None));
    let row = store.command(id).await.unwrap().unwrap();
    assert_eq!(row.result.as_deref(), Some("stopped after 3 dead letters: too slow"));
    assert!(row.refused && row.applied_at.is_some());
    assert_eq!(letters(world, &DeadSelector::default()).await.len(), 1);
}

async fn discard(world: &World, selector: DeadSelector) {
    assert_eq!(apply(world, CommandEffect::DiscardDead(selector)).await.dead, 1);
}

/// Whether a candidate would be planned; if so, it is skipped again, unsettled.
async fn is_planned(world: &World, version: &str) -> bool {
    let run = world.run("task").await;
    let found = Candidate { version: version.into(), ..candidate("k") };
    let planned = world.plan("task", run, vec![found]).await;
    assert_eq!(planned.planned + planned.blocked, 1);
    if planned.planned == 1 {
        let item = world.only("task").await;
        world.commit(vec![(&item, skip("not now"))]).await;
    }
    planned.planned == 1
}

/// A discarded version is not planned again, whatever is pruned, until it changes.
pub async fn a_discarded_item_is_not_planned_again_until_its_version_changes(world: &mut World) {
    world.settle(candidate("k"), dead("corrupt")).await;
    discard(world, DeadSelector::default()).await;
    assert!(!is_planned(world, "v1").await);
    world.reopen().await;
    world.advance(Duration::from_secs(86_400));
    world.store().prune(&world.fence, ALL_GOES, 100).await.unwrap();
    assert!(!is_planned(world, "v1").await);
    assert!(is_planned(world, "v2").await);
    assert!(!is_planned(world, "v1").await, "a skip that is not settled lifts nothing");
    let counted = world.balanced().await.rows.remove(0).counted;
    assert_eq!((counted.planned, counted.skipped, counted.discarded), (2, 1, 1));
}

/// Each discarded version stays discarded, in whatever order they were.
pub async fn every_discarded_version_of_an_item_is_blocked(world: &mut World) {
    for version in ["v1", "v2"] {
        let found = Candidate { version: version.into(), ..candidate("k") };
        world.settle(found, dead("corrupt")).await;
    }
    let newest_first = letters(world, &DeadSelector::default()).await;
    for letter in newest_first {
        discard(world, DeadSelector { ids: vec![letter.id], ..DeadSelector::default() }).await;
    }
    assert!(!is_planned(world, "v1").await);
    assert!(!is_planned(world, "v2").await);
}

/// A later commit lifts the block of a discarded version.
pub async fn a_later_commit_lifts_a_discard(world: &mut World) {
    world.settle(candidate("k"), dead("corrupt")).await;
    discard(world, DeadSelector::default()).await;
    let repaired = Candidate { version: "v2".into(), ..candidate("k") };
    world.settle(repaired, commits(vec![], vec![])).await;
    assert!(is_planned(world, "v1").await);
    world.balanced().await;
}

/// Whichever comes first, nothing of an item is blocked after its commit: a discard before it is
/// lifted, and one after it finds the letter resolved.
pub async fn a_discard_beside_a_commit_of_its_item_blocks_nothing(world: &mut World) {
    for _ in 0..10 {
        world.settle(candidate("k"), dead("corrupt")).await;
        let repaired = Candidate { version: "v2".into(), ..candidate("k") };
        world.planned("task", vec![repaired]).await;
        let item = world.only("task").await;
        let batch = world.batch(vec![world.entry(&item, commits(vec![], vec![]))]);
        let id = world
            .store()
            .submit(&Command::DiscardDead(DeadSelector::default()), "ann", "useless")
            .await
            .unwrap();
        let effect = CommandEffect::DiscardDead(DeadSelector::default());
        let (store, asked) = (world.store(), world.asked(id).await);
        let (committed, discarded) = tokio::join!(
            store.commit(&batch),
            store.apply_command(&world.fence, &asked, &effect, "done", LETTERS)
        );
        assert_eq!(committed.unwrap().outcomes, [Outcome::Committed]);
        let all = DeadSelector::default();
        let all = world.store().dead_letters(&all, Letters::All, None, ALL).await.unwrap();
        let resolved = all.iter().filter(|letter| !letter.is_open()).count() as u64;
        assert_eq!(discarded.unwrap().dead + resolved, 1, "{all:?}");
        assert!(is_planned(world, "v1").await);
        world.balanced().await;
        world.advance(Duration::from_secs(60));
        world.store().prune(&world.fence, ALL_GOES, 100).await.unwrap();
    }
}

/// A later commit resolves a dead letter; the books count both items.
pub async fn a_later_commit_resolves_an_open_dead_letter(world: &mut World) {
    world.settle(candidate("k"), dead("corrupt")).await;
    let set_aside = world.history().await[0].run;
    let other = Candidate { tenant: Some(tenant("b")), ..candidate("k") };
    world.settle(other, dead("corrupt")).await;
    world.planned("task", vec![due("k", world.now)]).await;
    let timer = world.timers().await.remove(0);
    world.commit(vec![(&timer, skip("nothing to do"))]).await;
    world.advance(Duration::from_secs(60));
    let repaired = Candidate { version: "v2".into(), ..candidate("k") };
    world.settle(repaired, commits(vec![], vec![])).await;

    let open = letters(world, &DeadSelector::default()).await;
    let tenants: Vec<_> = open.iter().map(|l| l.item.identity.tenant.clone()).collect();
    assert_eq!(tenants, [Some(tenant("b"))], "another tenant's key is another item");
    let all = DeadSelector::default();
    let all = world.store().dead_letters(&all, Letters::All, None, ALL).await.unwrap();
    assert_eq!(all.iter().map(|l| l.resolved_at).collect::<Vec<_>>(), [None, Some(world.now)]);
    let depths = world.store().depths().await.unwrap();
    assert_eq!(depths.iter().map(|depth| depth.dead).sum::<u64>(), 1, "one is to be looked at");

    let resolved = || DeadSelector { ids: vec![all[1].id], ..DeadSelector::default() };
    assert_eq!(apply(world, CommandEffect::RetryDead(resolved())).await.dead, 0);
    assert_eq!(apply(world, CommandEffect::DiscardDead(resolved())).await.dead, 0);
    assert!(is_planned(world, "v1").await, "nothing blocks what was done");
    let before = world.balanced().await;
    let of_a = |audit: &Audit| {
        let row = audit.rows.iter().find(|row| row.tenant == Some(tenant("a")));
        row.expect("tenant a").counted.clone()
    };
    let counted = of_a(&before);
    assert_eq!((counted.planned, counted.committed, counted.dead), (4, 1, 1));
    assert_eq!((counted.skipped, counted.resolved), (2, 1));

    world.advance(Duration::from_secs(60));
    world.store().prune(&world.fence, ALL_GOES, 100).await.unwrap();
    let all = world.store().dead_letters(&DeadSelector::default(), Letters::All, None, ALL).await;
    assert_eq!(all.unwrap(), open, "it is forgotten with the history, the open one is not");
    assert_eq!(world.balanced().await, before);
    assert_eq!(world.store().run(set_aside).await.unwrap(), None, "nothing refers to its run");
}

/// A skip resolves no dead letter.
pub async fn a_later_skip_leaves_a_dead_letter_open(world: &mut World) {
    world.settle(candidate("k"), dead("corrupt")).await;
    let next = Candidate { version: "v2".into(), ..candidate("k") };
    world.settle(next, skip("not now")).await;
    assert_eq!(letters(world, &DeadSelector::default()).await.len(), 1);
}

/// A page continues below the last number of the page before.
pub async fn dead_letters_are_read_in_pages(world: &mut World) {
    for key in ["a", "b", "c"] {
        world.settle(candidate(key), dead("broken")).await;
    }
    let (mut before, mut keys) = (None, Vec::new());
    loop {
        let selector = by_task("task");
        let page = world.store().dead_letters(&selector, Letters::Open, before, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        keys.push(page.iter().map(|l| l.item.identity.key.clone()).collect::<Vec<_>>());
    }
    assert_eq!(keys, [vec!["c", "b"], vec!["a"]]);
}

/// Open letters are grouped by error, with their number and the first and last time; resolved ones
/// do not count.
pub async fn open_dead_letters_are_grouped_by_task_and_last_error(world: &mut World) {
    let start = world.now;
    let long = "e".repeat(5_000);
    let letters = [
        ("one", "a", "x\u{0}\u{1}y"),
        ("two", "b", long.as_str()),
        ("one", "c", "x\u{0}\u{1}y"),
        ("one", "d", long.as_str()),
        ("one", "e", "x"),
        ("two", "f", "x\u{0}\u{1}y"),
    ];
    for (name, key, error) in letters {
        world.planned(name, vec![candidate(key)]).await;
        let item = world.only(name).await;
        world.commit(vec![(&item, dead(error))]).await;
        world.advance(Duration::from_secs(1));
    }
    // A later commit resolves one of them.
    let later = Candidate { version: "v2".into(), ..candidate("d") };
    world.planned("one", vec![later]).await;
    let item = world.only("one").await;
    world.commit(vec![(&item, commits(vec![], vec![]))]).await;

    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let group = |task: &str, error: &str, count, first, last| DeadGroup {
        task: task.into(),
        error: error.into(),
        count,
        first: at(first),
        last: at(last),
    };
    let expected = [
        group("two", "x\u{0}\u{1}y", 1, 5, 5),
        group("one", "x", 1, 4, 4),
        group("one", "x\u{0}\u{1}y", 2, 0, 2),
        group("two", &long, 1, 1, 1),
    ];
    assert_eq!(world.store().dead_groups(10).await.unwrap(), expected);
    assert_eq!(world.store().dead_groups(2).await.unwrap(), expected[..2]);
    // A command on a group selects as many letters as the group counts.
    for group in &expected {
        let selector = DeadSelector { error: Some(group.error.clone()), ..by_task(&group.task) };
        assert_eq!(letters_of(world, &selector).await, group.count);
    }
}

async fn letters_of(world: &World, selector: &DeadSelector) -> u64 {
    letters(world, selector).await.len() as u64
}
