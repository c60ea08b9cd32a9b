//! The outbox: which messages can be claimed, in which order and how often, and what is recorded of
//! them.

use std::time::Duration;

use besom_core::delivery::{self, End, Reply, Sequence, State};
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_ports::store::{
    Attempt, Claimed, Command, CommandEffect, DISCARDED, Delivery, Error, MessageQuery,
    MessageSelector, Outcome, Retention,
};

use crate::conformance::World;
use crate::conformance::tables::thing;
use crate::conformance::world::{LETTERS, apply, candidate, fence, task, tenant};

const MINUTE: Duration = Duration::from_secs(60);

fn emit(topic: &str, key: &str, payload: &str) -> Change {
    Change::Emit { topic: topic.into(), key: key.into(), payload: payload.into() }
}

/// One commit that emits these messages, in their order.
async fn emitted(world: &mut World, messages: &[(&str, &str, &str)]) {
    let changes = messages.iter().map(|(topic, key, text)| emit(topic, key, text)).collect();
    world.settle(candidate("k"), apply(vec![], changes)).await;
}

async fn claim(world: &World, topic: &str, limit: u32) -> Vec<Claimed> {
    world.store().claim_messages(&world.fence, &[], &of(&[(topic, limit)])).await.expect("a claim")
}

/// A claim with a hold of a minute.
pub(super) fn of(room: &[(&str, u32)]) -> delivery::Claim {
    let room = room.iter().map(|(topic, limit)| ((*topic).to_owned(), *limit)).collect();
    delivery::Claim { room, hold: MINUTE, wait_max: MINUTE * 60 }
}

fn payloads(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|message| std::str::from_utf8(&message.payload).unwrap()).collect()
}

fn reply(status: u16, body: &str) -> Reply {
    Reply { status, body: body.into(), cut: false }
}

async fn end(world: &World, message: &Claimed, end: End) {
    let attempt = Attempt { id: message.id, attempt: message.attempt, end };
    let claim = delivery::Claim::default();
    let claimed = world.store().claim_messages(&world.fence, &[attempt], &claim).await;
    assert_eq!(claimed.expect("it is recorded"), []);
}

async fn delivered(world: &World, message: &Claimed) {
    end(world, message, End::Delivered(Some(reply(200, "done")))).await;
}

async fn latest(
    world: &World,
    of: &str,
    tenant: Option<&Tenant>,
    topic: &str,
    keys: &[&str],
) -> Vec<Option<Delivery>> {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let view = world.store().snapshot(MINUTE).await.expect("a snapshot");
    view.deliveries(&task(of), tenant, topic, &keys).await.expect("deliveries")
}

/// The pending messages of a task's topic and their bytes; delivered ones do not count.
pub async fn what_waits_of_a_topic_is_counted_up_to_a_bound(world: &mut World) {
    emitted(world, &[("t", "k", "one"), ("t", "ü", "three"), ("t", "k", "2"), ("u", "k", "")])
        .await;
    let pending = async |world: &World, topic: &str, limit: u32| {
        let found = world
            .store()
            .pending_messages(Some(&task("task")), topic, limit)
            .await
            .expect("a count");
        (found.messages, found.bytes)
    };
    assert_eq!(pending(world, "t", 10).await, (3, 13));
    assert_eq!(pending(world, "t", 2).await.0, 2);
    assert_eq!(pending(world, "u", 10).await, (1, 1));
    assert_eq!(pending(world, "nobody's", 10).await, (0, 0));
    let another = world.store().pending_messages(Some(&task("another")), "t", 10).await;
    assert_eq!(another.expect("a count").messages, 0);
    let claimed = claim(world, "t", 10).await;
    assert_eq!(pending(world, "t", 10).await.0, 3, "what is under way waits as well");
    delivered(world, &claimed[0]).await;
    assert_eq!(pending(world, "t", 10).await.0, 2);
}

/// A claim returns the message with its origin and hides it until the hold is over.
pub async fn a_claimed_message_is_hidden_for_the_hold(world: &mut World) {
    emitted(world, &[("t", "k", "one")]).await;
    let at = world.now;
    let first = claim(world, "t", 10).await;
    let [message] = &first[..] else { panic!("{first:?}") };
    assert_eq!(
        (message.task.clone(), message.tenant.clone()),
        (Some(task("task")), Some(tenant("a")))
    );
    assert_eq!((message.topic.as_str(), message.key.as_str(), message.at), ("t", "k", at));
    assert_eq!((payloads(&first), message.attempt), (vec!["one"], 1));
    assert!(claim(world, "t", 10).await.is_empty());
    world.advance(MINUTE);
    let again = claim(world, "t", 10).await;
    assert_eq!((again[0].id, again[0].attempt), (message.id, 2), "the attempt was counted");
}

/// The results are recorded first: what they make due is claimed by the same call.
pub async fn a_claim_records_results_and_finds_what_they_make_due(world: &mut World) {
    emitted(world, &[("t", "a", "a1"), ("t", "a", "a2"), ("t", "b", "b1"), ("t", "b", "b2")]).await;
    let first = claim(world, "t", 10).await;
    assert_eq!(payloads(&first), ["a1", "b1"]);
    let end = |at: usize, end| Attempt { id: first[at].id, attempt: 1, end };
    let again = End::Unsent { after: Duration::ZERO, error: "no place".into() };
    let ended = [end(0, End::Delivered(None)), end(1, again)];
    let store = world.store();
    let next = store.claim_messages(&world.fence, &ended, &of(&[("t", 10)])).await;
    let next = next.expect("a claim");
    let mut found: Vec<_> =
        next.iter().map(|m| (payloads(std::slice::from_ref(m))[0].to_owned(), m.attempt)).collect();
    found.sort_unstable();
    assert_eq!(found, [("a2".to_owned(), 1), ("b1".to_owned(), 1)]);
    // The last of two results of an attempt counts, as long as it goes on.
    let b1 = next.iter().find(|message| message.key == "b").expect("b1");
    let later = |after| {
        let end = End::Again { after, error: "away".into() };
        Attempt { id: b1.id, attempt: b1.attempt, end }
    };
    let both = [later(MINUTE), later(Duration::ZERO)];
    let again = store.claim_messages(&world.fence, &both, &of(&[("t", 10)])).await;
    let again = again.expect("a claim");
    assert_eq!((payloads(&again), again[0].attempt), (vec!["b1"], 2));
    // Recorded a second time, the result of an earlier attempt has no effect.
    let repeated = store.claim_messages(&world.fence, &ended[..1], &of(&[("t", 10)])).await;
    assert_eq!(repeated.expect("a claim"), []);
    world.balanced().await;
}

/// Nothing waits for longer than a message can: a clock that was set back would hold it up for as long as the jump.
pub async fn a_message_that_waits_for_too_long_is_due(world: &mut World) {
    emitted(world, &[("t", "a", "a1"), ("t", "b", "b1"), ("u", "a", "u1")]).await;
    let first = claim(world, "t", 1).await;
    let again = End::Again { after: MINUTE * 60 * 24, error: "away".into() };
    end(world, &first[0], again).await;
    let second = claim(world, "t", 9).await;
    let a1 = second.iter().find(|message| message.payload == b"a1");
    let again = End::Again { after: MINUTE * 60, error: "away".into() };
    end(world, a1.expect("a day is longer than an hour"), again).await;
    assert_eq!(second.len(), 2);
    assert!(claim(world, "t", 9).await.is_empty());
    world.advance(MINUTE * 60);
    let both = claim(world, "t", 9).await;
    let mut both = payloads(&both);
    both.sort_unstable();
    assert_eq!(both, ["a1", "b1"]);
}

/// An attempt that could not be made is given back; the message waits as after any other.
pub async fn an_attempt_that_could_not_be_made_is_given_back(world: &mut World) {
    emitted(world, &[("t", "a", "a1")]).await;
    let first = claim(world, "t", 10).await;
    end(world, &first[0], End::Again { after: MINUTE, error: "away".into() }).await;
    world.advance(MINUTE);
    let second = claim(world, "t", 10).await;
    end(world, &second[0], End::Unsent { after: MINUTE * 10, error: "no token".into() }).await;
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    let read = world.store().messages(&query).await.expect("messages").remove(0).delivery;
    assert_eq!((read.attempts, read.error.as_deref()), (1, Some("no token")));
    world.advance(MINUTE * 5);
    assert!(claim(world, "t", 10).await.is_empty());
    world.advance(MINUTE * 5);
    let third = claim(world, "t", 10).await;
    assert_eq!(third[0].attempt, 2);
    delivered(world, &third[0]).await;
    let read = world.store().messages(&query).await.expect("messages").remove(0).delivery;
    assert_eq!((read.attempts, read.state), (2, State::Delivered));
}

/// Of one topic, tenant and key only the first message can be claimed; other sequences are
/// independent.
pub async fn messages_of_a_key_go_one_after_the_other(world: &mut World) {
    emitted(world, &[("t", "a", "a1"), ("t", "a", "a2"), ("t", "b", "b1"), ("u", "a", "u1")]).await;
    let first = claim(world, "t", 10).await;
    assert_eq!(payloads(&first), ["a1", "b1"]);
    assert!(claim(world, "t", 10).await.is_empty());
    assert_eq!(payloads(&claim(world, "u", 10).await), ["u1"]);
    let again = End::Again { after: MINUTE * 10, error: "away".into() };
    end(world, &first[0], again).await;
    delivered(world, &first[1]).await;
    world.advance(MINUTE * 5);
    assert!(claim(world, "t", 10).await.is_empty(), "what waits keeps its place");
    world.advance(MINUTE * 5);
    let first = claim(world, "t", 10).await;
    assert_eq!(payloads(&first), ["a1"]);
    delivered(world, &first[0]).await;
    assert_eq!(payloads(&claim(world, "t", 10).await), ["a2"]);
}

/// The numbers of all messages of `key`, oldest first.
async fn numbers(world: &World, key: &str) -> Vec<u64> {
    let query = MessageQuery { limit: 1_000, ..MessageQuery::default() };
    let mut all = world.store().messages(&query).await.expect("messages");
    all.retain(|message| message.key == key);
    all.iter().rev().map(|message| message.delivery.sequence).collect()
}

/// Each topic, tenant and key counts from 1. What was not committed took no number, and a number is
/// not assigned again when its message is pruned.
pub async fn messages_of_a_key_are_numbered_without_gaps(world: &mut World) {
    emitted(world, &[("t", "a", "1"), ("t", "b", "1"), ("t", "a", "2"), ("u", "a", "1")]).await;
    let first = claim(world, "t", 10).await;
    let claimed: Vec<_> = first.iter().map(|m| (m.key.as_str(), m.sequence)).collect();
    assert_eq!(claimed, [("a", 1), ("b", 1)]);
    // One entry of a batch is rolled back, and one of its own batch.
    world.write(vec![thing("s", 1)]).await;
    let keys = ["k1", "k2"].map(candidate);
    world.planned("task", keys.to_vec()).await;
    let items = world.log("task").await;
    let refused = apply(vec![], vec![emit("t", "a", "lost"), thing("s", 2)]);
    let kept = apply(vec![], vec![emit("t", "a", "3"), emit("t", "a", "4")]);
    let done = world.commit(vec![(&items[0], refused), (&items[1], kept)]).await;
    assert!(matches!(done.outcomes[..], [Outcome::Dead(_), Outcome::Committed]), "{done:?}");
    assert_eq!(numbers(world, "a").await, [1, 2, 1, 3, 4]);
    let other = Some(tenant("b"));
    world.unqueued(other, vec![emit("t", "a", "other")]).await;
    assert_eq!(numbers(world, "a").await, [1, 2, 1, 3, 4, 1], "another tenant counts for itself");

    for message in &first {
        delivered(world, message).await;
    }
    for expected in 2..=4 {
        let all = claim(world, "t", 10).await;
        let next = all.iter().find(|message| message.tenant == Some(tenant("a"))).unwrap();
        assert_eq!(next.sequence, expected);
        delivered(world, next).await;
    }
    world.advance(MINUTE * 10);
    let keep = Retention { history: MINUTE, undo: &[], nodes: MINUTE, routed: None };
    world.store().prune(&world.fence, keep, 1_000).await.unwrap();
    assert_eq!(numbers(world, "a").await, [1, 1], "of the other topic, and of the other tenant");
    emitted(world, &[("t", "a", "5")]).await;
    assert_eq!(numbers(world, "a").await, [1, 1, 5]);
    world.balanced().await;
}

/// A receiver sees one order per key, whichever task emitted a message.
pub async fn messages_of_two_tasks_share_the_sequence_of_their_key(world: &mut World) {
    emitted(world, &[("t", "k", "one")]).await;
    world.planned("other", vec![candidate("k")]).await;
    let item = world.only("other").await;
    world.commit(vec![(&item, apply(vec![], vec![emit("t", "k", "two")]))]).await;
    assert_eq!(numbers(world, "k").await, [1, 2]);
    let first = claim(world, "t", 10).await;
    assert_eq!(payloads(&first), ["one"]);
    delivered(world, &first[0]).await;
    let second = claim(world, "t", 10).await;
    assert_eq!((payloads(&second), second[0].sequence), (vec!["two"], 2));
    let own = latest(world, "task", Some(&tenant("a")), "t", &["k"]).await.remove(0).unwrap();
    assert_eq!((own.payload.as_slice(), own.sequence), (&b"one"[..], 1));
}

async fn read(world: &World, topic: &str, known: &[u64], limit: u32) -> Vec<Claimed> {
    world.store().read_messages(topic, known, &[], limit, 1 << 20).await.expect("a read")
}

/// A broker gets many messages of a key at once. What is known is left out; nothing is counted.
pub async fn what_a_broker_gets_is_read_in_the_order_of_each_key(world: &mut World) {
    let all = [("t", "a", "a1"), ("t", "b", "b1"), ("t", "a", "a2"), ("u", "a", "u1")];
    emitted(world, &all).await;
    emitted(world, &[("t", "a", "a3")]).await;
    let first = read(world, "t", &[], 3).await;
    assert_eq!(payloads(&first), ["a1", "b1", "a2"]);
    let message = &first[0];
    assert_eq!(
        (message.task.clone(), message.tenant.clone(), message.topic.as_str(), message.attempt),
        (Some(task("task")), Some(tenant("a")), "t", 1)
    );
    let run = world.store().runs(Some(&task("task")), 1).await.expect("runs").remove(0).id;
    assert!(message.run.is_some_and(|of| of < run), "{message:?} {run:?}");
    let numbers: Vec<u64> = first.iter().map(|message| message.sequence).collect();
    assert_eq!(numbers, [1, 1, 2]);
    let known: Vec<u64> = first.iter().map(|message| message.id).collect();
    assert_eq!(payloads(&read(world, "t", &known, 3).await), ["a3"]);
    assert_eq!(payloads(&read(world, "t", &known[1..2], 9).await), ["a1", "a2", "a3"]);
    let store = world.store();
    let few = store.read_messages("t", &[], &[], 9, 3).await.expect("a read");
    assert_eq!(payloads(&few), ["a1"], "the second would exceed the bytes");
    let one = store.read_messages("t", &[], &[], 9, 1).await.expect("a read");
    assert_eq!(payloads(&one), ["a1"], "a single one may be larger");
    assert!(read(world, "nobody's", &[], 9).await.is_empty());
}

/// Of each sequence that is held nothing is read, and of all others the same as otherwise: another tenant,
/// or none, and any text as a key.
pub async fn what_is_held_is_left_out_of_what_a_broker_gets(world: &mut World) {
    let odd = "a\u{0}'\u{1}";
    emitted(world, &[("t", "a", "a1"), ("t", odd, "odd"), ("u", "a", "u1"), ("t", "a", "a2")])
        .await;
    world.unqueued(Some(tenant("b")), vec![emit("t", "a", "b1")]).await;
    world.unqueued(None, vec![emit("t", "a", "none")]).await;
    emitted(world, &[("t", "c", "c1"), ("t", "c", "c2")]).await;
    let sequence =
        |of: Option<&str>, key: &str| Sequence { tenant: of.map(tenant), key: key.into() };
    let a = || sequence(Some("a"), "a");
    let all = ["a1", "odd", "a2", "b1", "none", "c1", "c2"];
    for (held, left) in [
        (vec![], &all[..]),
        (vec![a()], &["odd", "b1", "none", "c1", "c2"]),
        (vec![sequence(Some("b"), "a")], &["a1", "odd", "a2", "none", "c1", "c2"]),
        (vec![sequence(None, "a"), a()], &["odd", "b1", "c1", "c2"]),
        (vec![sequence(Some("a"), odd), a(), sequence(Some("a"), "c")], &["b1", "none"]),
        (vec![sequence(None, "c"), sequence(Some("c"), "a"), sequence(Some(""), "a")], &all),
    ] {
        let read = world.store().read_messages("t", &[], &held, 9, 1 << 20).await.expect("a read");
        assert_eq!(payloads(&read), left, "{held:?}");
    }
    let known = [read(world, "t", &[], 9).await[1].id];
    let held = [a()];
    let two = world.store().read_messages("t", &known, &held, 2, 1 << 20).await.expect("a read");
    assert_eq!(payloads(&two), ["b1", "none"], "they take no room");
    let other = world.store().read_messages("u", &[], &held, 9, 1 << 20).await.expect("a read");
    assert!(other.is_empty(), "{other:?}");
}

/// Results are recorded under the fence, each once, and what is to be sent again keeps its place.
pub async fn the_results_of_a_broker_are_recorded_once(world: &mut World) {
    let all = [("t", "a", "1"), ("t", "a", "2"), ("t", "a", "3"), ("t", "b", "4")];
    emitted(world, &all).await;
    let ids: Vec<u64> = read(world, "t", &[], 9).await.iter().map(|message| message.id).collect();
    let again = |error: &str| End::Again { after: MINUTE, error: error.into() };
    let refused = || End::GivenUp { error: "too large".into(), reply: None };
    let ends = [(ids[0], End::Delivered(None)), (ids[1], again("away")), (ids[3], refused())];
    let stale = fence(0);
    let done = world.store().end_messages(&stale, &ends).await;
    assert!(matches!(done, Err(Error::Fenced)), "{done:?}");
    assert_eq!(read(world, "t", &[], 9).await.len(), 4);
    world.store().end_messages(&world.fence, &ends).await.expect("recorded");
    // What has ended keeps its first result.
    let late = [(ids[0], refused()), (ids[3], End::Delivered(None))];
    world.store().end_messages(&world.fence, &late).await.expect("ignored");
    let left = read(world, "t", &[], 9).await;
    assert_eq!((payloads(&left), left[0].attempt), (vec!["2", "3"], 2));
    let query = MessageQuery { limit: 9, ..MessageQuery::default() };
    let shown = world.store().messages(&query).await.expect("messages");
    let shown: Vec<_> = shown
        .iter()
        .rev()
        .map(|m| (m.delivery.state, m.delivery.attempts, m.delivery.error.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            (State::Delivered, 1, None),
            (State::Pending, 1, Some("away")),
            (State::Pending, 0, None),
            (State::GivenUp, 1, Some("too large")),
        ]
    );
    assert_eq!(retried(world, &[ids[3]], None).await, 1);
    assert_eq!(payloads(&read(world, "t", &[], 9).await), ["2", "3", "4"]);
    world.balanced().await;
}

/// What waits is counted by topic, up to a bound, with the time of the first.
pub async fn topics_say_how_many_messages_wait(world: &mut World) {
    let waiting = async |world: &World, topics_max, count_max| {
        let topics = world.store().outbox_topics(topics_max, count_max).await.expect("topics");
        topics
            .into_iter()
            .filter_map(|of| Some((of.topic, of.waiting, of.oldest?)))
            .collect::<Vec<_>>()
    };
    assert_eq!(waiting(world, 9, 9).await, []);
    let first = world.now;
    emitted(world, &[("u", "k", "1"), ("t", "k", "1")]).await;
    world.advance(MINUTE);
    emitted(world, &[("t", "k", "2"), ("t", "l", "1"), ("v", "k", "1")]).await;
    let of = |topic: &str, count: u64, at| (topic.to_owned(), count, at);
    let all = [of("t", 3, first), of("u", 1, first), of("v", 1, world.now)];
    assert_eq!(waiting(world, 9, 9).await, all);
    assert_eq!(waiting(world, 9, 2).await, [of("t", 2, first), all[1].clone(), all[2].clone()]);
    let claimed = claim(world, "u", 9).await;
    assert_eq!(waiting(world, 9, 9).await, all, "what is under way waits too");
    delivered(world, &claimed[0]).await;
    let claimed = claim(world, "t", 1).await;
    end(world, &claimed[0], End::GivenUp { error: "no".into(), reply: None }).await;
    assert_eq!(waiting(world, 9, 9).await, [of("t", 2, world.now), of("v", 1, world.now)]);
}

/// An operator who knows that a receiver is back does not wait for the pauses.
pub async fn what_waits_for_its_next_attempt_can_be_tried_now(world: &mut World) {
    emitted(world, &[("t", "a", "a1"), ("t", "a", "a2"), ("t", "b", "b1"), ("u", "a", "u1")]).await;
    let again = || End::Again { after: MINUTE * 10, error: "away".into() };
    let mut ids = Vec::new();
    for topic in ["t", "u"] {
        for message in claim(world, topic, 9).await {
            ids.push(message.id);
            end(world, &message, again()).await;
        }
    }
    assert_eq!(retried(world, &[ids[0] + 1], None).await, 1, "the second of its key");
    let claimed = claim(world, "t", 9).await;
    assert_eq!((payloads(&claimed), claimed[0].attempt), (vec!["a1"], 2));
    end(world, &claimed[0], again()).await;
    assert_eq!(retried(world, &[], Some("t")).await, 2);
    let claimed = claim(world, "t", 9).await;
    let mut found = payloads(&claimed);
    found.sort_unstable();
    assert_eq!(found, ["a1", "b1"]);
    assert!(claim(world, "u", 9).await.is_empty());
    for message in &claimed {
        delivered(world, message).await;
    }
    assert_eq!(payloads(&claim(world, "t", 9).await), ["a2"]);
    assert_eq!(retried(world, &[], None).await, 1, "what is being tried is left alone");
    assert_eq!(payloads(&claim(world, "u", 9).await), ["u1"]);
    world.balanced().await;
}

/// Topics name what was given up until it is delivered or discarded, or a later message has superseded it.
pub async fn topics_say_what_was_given_up(world: &mut World) {
    let given_up = async |world: &World| {
        let topics = world.store().outbox_topics(9, 9).await.expect("topics");
        topics
            .into_iter()
            .filter_map(|of| Some((of.topic, of.given_up, of.last_given_up?)))
            .collect::<Vec<_>>()
    };
    let give_up = async |world: &World, message: &Claimed, why: &str| {
        end(world, message, End::GivenUp { error: why.into(), reply: None }).await;
    };
    emitted(world, &[("t", "a", "1"), ("t", "a", "2"), ("t", "b", "1"), ("u", "a", "1")]).await;
    assert_eq!(given_up(world).await, []);
    let claimed = claim(world, "t", 9).await;
    give_up(world, &claimed[0], "first").await;
    let first = world.now;
    world.advance(MINUTE);
    let other = claim(world, "u", 9).await.remove(0);
    give_up(world, &other, "other").await;
    let of_u = ("u".to_owned(), 1, (world.now, "other".to_owned()));
    let of_t = |count: u64, at, why: &str| ("t".to_owned(), count, (at, why.to_owned()));
    assert_eq!(given_up(world).await, [of_t(1, first, "first"), of_u.clone()]);
    give_up(world, &claimed[1], "second").await;
    assert_eq!(given_up(world).await, [of_t(2, world.now, "second"), of_u.clone()]);
    let later = claim(world, "t", 9).await.remove(0);
    delivered(world, &later).await;
    assert_eq!(given_up(world).await, [of_t(1, world.now, "second"), of_u], "a1 is superseded");
    assert_eq!(retried(world, &[other.id], None).await, 1);
    assert_eq!(given_up(world).await, [of_t(1, world.now, "second")]);
    assert_eq!(discarded(world, &[other.id], None).await, 1);
    assert_eq!(given_up(world).await, [of_t(1, world.now, "second")]);
    world.balanced().await;
}

/// A message that was given up does not block the messages behind it.
pub async fn what_is_given_up_makes_way(world: &mut World) {
    emitted(world, &[("t", "k", "one"), ("t", "k", "two")]).await;
    let first = claim(world, "t", 10).await;
    let given_up = End::GivenUp { error: "answered 400".into(), reply: Some(reply(400, "no")) };
    end(world, &first[0], given_up).await;
    assert_eq!(payloads(&claim(world, "t", 10).await), ["two"]);
    let query = MessageQuery { state: Some(State::GivenUp), limit: 10, ..MessageQuery::default() };
    let shown = world.store().messages(&query).await.unwrap();
    let [one] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!(one.delivery.error.as_deref(), Some("answered 400"));
    assert_eq!(one.delivery.reply, Some(reply(400, "no")));
    assert_eq!(one.delivery.ended_at, Some(world.now));
    for (id, key) in [(one.delivery.id, "k"), (one.delivery.id + 1, "k"), (one.delivery.id, "l")] {
        let query = MessageQuery { id: Some(id), key: Some(key.into()), ..query.clone() };
        let found = world.store().messages(&query).await.unwrap();
        assert_eq!(found.len(), usize::from((id, key) == (one.delivery.id, "k")));
    }
    let all = MessageQuery { state: None, ..query };
    let superseded: Vec<_> =
        world.store().messages(&all).await.unwrap().iter().map(|one| one.superseded).collect();
    assert_eq!(superseded, [false, true], "newest first");
}

/// Messages of a key that were all given up are retried in their order. One that was delivered after them supersedes
/// them, and one that is being tried may have arrived; with `force`, they are retried all the same.
pub async fn what_no_later_message_has_overtaken_is_tried_again(world: &mut World) {
    emitted(world, &[("t", "k", "1"), ("t", "k", "2"), ("t", "k", "3"), ("t", "k", "4")]).await;
    let given_up = || End::GivenUp { error: "away".into(), reply: None };
    let mut ids = Vec::new();
    for _ in 0..3 {
        let message = claim(world, "t", 10).await.remove(0);
        ids.push(message.id);
        end(world, &message, given_up()).await;
    }
    assert_eq!(retried(world, &[ids[2], ids[0]], None).await, 2, "4 was not tried yet");
    let first = claim(world, "t", 10).await.remove(0);
    assert_eq!(first.payload, b"1");
    delivered(world, &first).await;
    let third = claim(world, "t", 10).await.remove(0);
    assert_eq!((third.payload.as_slice(), third.attempt), (b"3".as_slice(), 1));
    let again = End::Again { after: Duration::ZERO, error: "away".into() };
    end(world, &third, again).await;
    assert_eq!(retried(world, &[ids[1]], None).await, 0, "3 may have arrived");
    assert_eq!(payloads(&claim(world, "t", 10).await), ["3"]);
    let force = MessageSelector { force: true, ..MessageSelector::default() };
    assert_eq!(retried_of(world, force).await, 1);
    world.balanced().await;
}

/// Retried messages are due at once, with fresh attempts; a message that a later one of its key has
/// followed stays as it is.
pub async fn what_was_given_up_is_tried_again_unless_a_later_one_has_followed(world: &mut World) {
    emitted(world, &[("t", "a", "a1"), ("t", "a", "a2"), ("t", "b", "b1"), ("u", "a", "u1")]).await;
    let given_up = || End::GivenUp { error: "away".into(), reply: Some(reply(503, "no")) };
    let (mut followed, mut done) = (0, 0);
    for topic in ["t", "t", "u"] {
        for message in claim(world, topic, 10).await {
            match message.payload.as_slice() {
                b"a1" => followed = message.id,
                b"a2" => done = message.id,
                _ => {}
            }
            match done == message.id {
                true => delivered(world, &message).await,
                false => end(world, &message, given_up()).await,
            }
        }
    }
    assert_eq!(retried(world, &[followed, done], None).await, 0);
    assert_eq!(retried(world, &[], Some("u")).await, 1);
    let again = claim(world, "u", 10).await;
    assert_eq!((payloads(&again), again[0].attempt), (vec!["u1"], 1));
    assert_eq!(retried(world, &[], None).await, 1, "what is under way is not given up");
    let [Some(b1)] = &latest(world, "task", Some(&tenant("a")), "t", &["b"]).await[..] else {
        panic!("b1 is there")
    };
    assert_eq!((b1.state, b1.attempts, &b1.reply, b1.ended_at), (State::Pending, 0, &None, None));
    assert_eq!(b1.error.as_deref(), Some("away"), "why it was given up is still told");
    assert_eq!(payloads(&claim(world, "t", 10).await), ["b1"]);
    world.balanced().await;
}

/// How many messages are retried.
async fn retried(world: &World, ids: &[u64], topic: Option<&str>) -> u64 {
    let topic = topic.map(str::to_owned);
    retried_of(world, MessageSelector { ids: ids.to_vec(), topic, force: false }).await
}

/// How many messages of a selection are retried.
async fn retried_of(world: &World, which: MessageSelector) -> u64 {
    let command = Command::RetryMessages(which.clone());
    let id = world.store().submit(&command, "ann", "it is back").await.unwrap();
    let effect = CommandEffect::RetryMessages(which);
    let applied = world
        .store()
        .apply_command(&world.fence, &world.asked(id).await, &effect, "done", LETTERS)
        .await
        .unwrap();
    let twice = world
        .store()
        .apply_command(&world.fence, &world.asked(id).await, &effect, "done", LETTERS)
        .await
        .unwrap();
    assert_eq!(twice, applied, "it takes effect once, and says what that was");
    let row = world.store().command(id).await.unwrap().expect("it is kept");
    let said = row.result.unwrap_or_default();
    assert_eq!(row.refused, applied.messages == 0, "{said}");
    match applied.messages {
        0 => assert!(said.contains("no message matches"), "{said}"),
        1 => assert_eq!(said, "done: 1 message"),
        more => assert_eq!(said, format!("done: {more} messages")),
    }
    applied.messages
}

/// A message that an operator discards makes way for the next of its key, and can be retried.
pub async fn what_is_discarded_makes_way(world: &mut World) {
    let all = [("t", "a", "a1"), ("t", "a", "a2"), ("t", "b", "b1"), ("u", "a", "u1")];
    emitted(world, &all).await;
    let a1 = claim(world, "t", 1).await.remove(0);
    assert_eq!(payloads(std::slice::from_ref(&a1)), ["a1"]);
    assert_eq!(discarded(world, &[a1.id], None).await, 1, "also while it is being sent");
    delivered(world, &a1).await;
    let query = MessageQuery { state: Some(State::GivenUp), limit: 9, ..MessageQuery::default() };
    let given_up = world.store().messages(&query).await.unwrap();
    let [message] = &given_up[..] else { panic!("{given_up:?}") };
    assert_eq!((message.delivery.id, message.delivery.error.as_deref()), (a1.id, Some(DISCARDED)));
    assert_eq!(discarded(world, &[a1.id], None).await, 0, "it waits no more");
    assert_eq!(payloads(&claim(world, "t", 9).await), ["a2", "b1"]);
    assert_eq!(discarded(world, &[], Some("t")).await, 2);
    assert_eq!(payloads(&claim(world, "u", 9).await), ["u1"]);
    assert_eq!(retried(world, &[], Some("t")).await, 0, "somebody has discarded them on purpose");
    let given_up = world.store().messages(&query).await.unwrap();
    let ids: Vec<u64> = given_up.iter().map(|message| message.delivery.id).collect();
    assert_eq!(retried(world, &ids, None).await, 2, "by their numbers: the latest of each key");
    world.balanced().await;
}

/// A message that is discarded in the middle makes no way for those behind it, as long as one before it
/// waits: for its next attempt, or for the answer to the present one.
pub async fn what_is_discarded_in_the_middle_leaves_the_order(world: &mut World) {
    emitted(world, &[("t", "a", "1"), ("t", "a", "2"), ("t", "a", "3"), ("t", "a", "4")]).await;
    let query = MessageQuery { limit: 9, ..MessageQuery::default() };
    let mut all = world.store().messages(&query).await.unwrap();
    all.sort_unstable_by_key(|message| message.delivery.id);
    let ids: Vec<u64> = all.iter().map(|message| message.delivery.id).collect();
    assert_eq!(discarded(world, &ids[1..2], None).await, 1);
    let first = claim(world, "t", 9).await;
    assert_eq!(payloads(&first), ["1"]);
    assert_eq!(discarded(world, &ids[2..3], None).await, 1);
    assert!(claim(world, "t", 9).await.is_empty(), "the first is being sent");
    end(world, &first[0], End::Again { after: MINUTE * 3, error: "away".into() }).await;
    world.advance(MINUTE * 2);
    assert!(claim(world, "t", 9).await.is_empty(), "the first waits for its next attempt");
    world.advance(MINUTE);
    let first = claim(world, "t", 9).await;
    assert_eq!(payloads(&first), ["1"]);
    delivered(world, &first[0]).await;
    assert_eq!(payloads(&claim(world, "t", 9).await), ["4"]);
    world.balanced().await;
}

/// The next message does not wait for the next attempt of one that is discarded, and the latest one that
/// is retried does not come before an earlier one that waits.
pub async fn what_is_discarded_takes_its_wait_along(world: &mut World) {
    emitted(world, &[("t", "a", "1"), ("t", "a", "2"), ("t", "a", "3")]).await;
    let first = claim(world, "t", 9).await.remove(0);
    end(world, &first, End::Again { after: MINUTE * 60, error: "away".into() }).await;
    assert_eq!(discarded(world, &[first.id], None).await, 1);
    let second = claim(world, "t", 9).await;
    assert_eq!(payloads(&second), ["2"]);
    let query = MessageQuery { limit: 1, ..MessageQuery::default() };
    let third = world.store().messages(&query).await.unwrap().remove(0).delivery.id;
    assert_eq!(discarded(world, &[third], None).await, 1);
    assert_eq!(retried(world, &[third], None).await, 1);
    assert!(claim(world, "t", 9).await.is_empty(), "the second is being sent");
    delivered(world, &second[0]).await;
    assert_eq!(payloads(&claim(world, "t", 9).await), ["3"]);
    world.balanced().await;
}

/// A message that is tried again is delivered also if the one behind it, which came next, is gone.
pub async fn what_is_tried_again_may_be_before_what_is_gone(world: &mut World) {
    emitted(world, &[("t", "a", "1"), ("t", "a", "2")]).await;
    let first = claim(world, "t", 9).await.remove(0);
    end(world, &first, End::GivenUp { error: "answered 404".into(), reply: None }).await;
    let second = claim(world, "t", 9).await.remove(0);
    end(world, &second, End::Again { after: MINUTE * 60, error: "away".into() }).await;
    let gone = world.store().drop_messages(&task("task"), "t", 1).await.expect("removed");
    assert_eq!(gone.messages, 1);
    assert_eq!(retried(world, &[first.id], None).await, 1);
    assert_eq!(payloads(&claim(world, "t", 9).await), ["1"]);
    world.balanced().await;
}

/// A topic may be given another receiver while messages wait.
pub async fn a_topic_changes_from_a_broker_to_http(world: &mut World) {
    let keys: Vec<String> = (0..5).map(|n| n.to_string()).collect();
    let all: Vec<_> = keys.iter().flat_map(|key| [("t", key.as_str(), "1"); 2]).collect();
    emitted(world, &all).await;
    // The broker accepted both messages of three keys, and one of the fourth.
    let read = read(world, "t", &[], 7).await;
    let ends: Vec<_> = read.iter().map(|message| (message.id, End::Delivered(None))).collect();
    world.store().end_messages(&world.fence, &ends).await.expect("recorded");
    let claimed = claim(world, "t", 2).await;
    let found: Vec<_> = claimed.iter().map(|m| (m.key.as_str(), m.sequence)).collect();
    assert_eq!(found, [("3", 2), ("4", 1)], "as many as asked for, though others had come first");
    for message in &claimed {
        delivered(world, message).await;
    }
    emitted(world, &[("t", "0", "3")]).await;
    let claimed = claim(world, "t", 9).await;
    let mut found: Vec<_> = claimed.iter().map(|m| (m.key.as_str(), m.sequence)).collect();
    found.sort_unstable();
    assert_eq!(found, [("0", 3), ("4", 2)]);
    world.balanced().await;
}

/// A key whose messages are many does not delay others: each gets its turn.
pub async fn keys_take_turns(world: &mut World) {
    emitted(world, &[("t", "a", "a1"), ("t", "a", "a2"), ("t", "a", "a3")]).await;
    world.advance(Duration::from_secs(1));
    emitted(world, &[("t", "b", "b1"), ("t", "b", "b2")]).await;
    let mut order = Vec::new();
    loop {
        world.advance(Duration::from_secs(1));
        let Some(message) = claim(world, "t", 1).await.pop() else { break };
        order.extend(payloads(std::slice::from_ref(&message)).iter().map(|&text| text.to_owned()));
        delivered(world, &message).await;
    }
    assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
}

/// How many messages are discarded.
async fn discarded(world: &World, ids: &[u64], topic: Option<&str>) -> u64 {
    let topic = topic.map(str::to_owned);
    let which = MessageSelector { ids: ids.to_vec(), topic, force: false };
    let command = Command::DiscardMessages(which.clone());
    let id = world.store().submit(&command, "ann", "too large").await.unwrap();
    let effect = CommandEffect::DiscardMessages(which);
    let store = world.store();
    let applied = store
        .apply_command(&world.fence, &world.asked(id).await, &effect, "given up", LETTERS)
        .await
        .unwrap();
    let row = world.store().command(id).await.unwrap().expect("it is kept");
    let said = row.result.unwrap_or_default();
    assert_eq!(row.refused, applied.messages == 0, "{said}");
    let expected =
        if row.refused { "no message matches among those that wait" } else { "given up: " };
    assert!(said.contains(expected), "{said}");
    applied.messages
}

/// The limit applies to each topic, and the oldest messages are claimed first.
pub async fn claims_are_bounded_by_topic(world: &mut World) {
    let keys: Vec<String> = (0..5).map(|n| n.to_string()).collect();
    let all: Vec<_> = ["t", "u"]
        .iter()
        .flat_map(|topic| keys.iter().map(move |key| (*topic, key.as_str(), key.as_str())))
        .collect();
    emitted(world, &all).await;
    let claim = of(&[("t", 2), ("u", 1)]);
    let claimed = world.store().claim_messages(&world.fence, &[], &claim).await.unwrap();
    let places: Vec<_> = claimed.iter().map(|m| (m.topic.as_str(), m.key.as_str())).collect();
    assert_eq!(places, [("t", "0"), ("t", "1"), ("u", "0")]);
}

/// The oldest pending messages of that task and topic are removed, and no others.
pub async fn the_oldest_that_wait_can_be_removed(world: &mut World) {
    let all =
        [("t", "a", "1"), ("t", "b", "2"), ("u", "c", "3"), ("t", "d", "44"), ("t", "e", "5")];
    emitted(world, &all).await;
    let first = claim(world, "t", 1).await.remove(0);
    delivered(world, &first).await;
    let gone = async |of: &str, topic: &str, count: u32| {
        let gone = world.store().drop_messages(&task(of), topic, count).await.expect("removed");
        (gone.messages, gone.bytes)
    };
    assert_eq!(gone("another", "t", 10).await, (0, 0));
    assert_eq!(gone("task", "t", 2).await, (2, 5));
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    let left = world.store().messages(&query).await.unwrap();
    let left: Vec<_> = left.iter().map(|message| message.key.as_str()).collect();
    assert_eq!(left, ["e", "c", "a"]);
    assert_eq!(gone("task", "t", 10).await, (1, 2));
    assert_eq!(gone("task", "t", 10).await, (0, 0));
    world.balanced().await;
}

/// Messages of a topic without a route are kept as long as the history; others wait for their
/// receiver.
pub async fn what_has_no_route_is_forgotten_with_the_history(world: &mut World) {
    emitted(world, &[("t", "a", "1"), ("u", "b", "2"), ("u", "c", "3"), ("v", "d", "4")]).await;
    world.advance(MINUTE * 10);
    emitted(world, &[("u", "e", "5")]).await;
    let routed = ["t".to_owned()];
    let prune = async |history: Duration, limit: u32| {
        let keep = Retention { history, undo: &[], nodes: MINUTE * 1_000, routed: Some(&routed) };
        world.store().prune(&world.fence, keep, limit).await.unwrap();
        let query = MessageQuery { limit: 10, ..MessageQuery::default() };
        let left = world.store().messages(&query).await.unwrap();
        left.into_iter().map(|message| message.key).collect::<Vec<_>>()
    };
    assert_eq!(prune(MINUTE * 11, 100).await, ["e", "d", "c", "b", "a"]);
    let bounded = prune(MINUTE, 1).await;
    assert!(bounded.len() < 5 && bounded.contains(&"c".to_owned()), "{bounded:?}");
    assert_eq!(prune(MINUTE, 100).await, ["e", "a"]);
    world.balanced().await;
}

/// Of each topic, a call examines only as many messages as it may remove: the oldest.
pub async fn what_has_no_route_goes_oldest_first(world: &mut World) {
    emitted(world, &[("u", "a", "1"), ("u", "b", "2"), ("v", "c", "3")]).await;
    assert_eq!(payloads(&claim(world, "u", 1).await), ["1"], "an attempt does not make it younger");
    world.advance(MINUTE * 10);
    let prune = async || {
        let keep =
            Retention { history: MINUTE, undo: &[], nodes: MINUTE * 1_000, routed: Some(&[]) };
        world.store().prune(&world.fence, keep, 1).await.unwrap();
        let query = MessageQuery { limit: 10, ..MessageQuery::default() };
        let left = world.store().messages(&query).await.unwrap();
        left.into_iter().map(|message| message.key).collect::<Vec<_>>()
    };
    assert_eq!(prune().await, ["b"], "one of each topic");
    assert!(prune().await.is_empty());
}

/// If the routes are unknown, no pending message is removed.
pub async fn a_topic_that_is_not_asked_for_stays_in_the_outbox(world: &mut World) {
    emitted(world, &[("doc-changed", "k", "x")]).await;
    assert!(claim(world, "t", 10).await.is_empty());
    world.advance(MINUTE * 60 * 24 * 365);
    let keep = Retention { history: MINUTE, undo: &[], nodes: MINUTE, routed: None };
    world.store().prune(&world.fence, keep, 100).await.unwrap();
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    let left = world.store().messages(&query).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].delivery.state, left[0].delivery.attempts), (State::Pending, 0));
}

/// A former leader can neither claim a message nor record a result.
pub async fn a_stale_leader_neither_claims_nor_marks(world: &mut World) {
    emitted(world, &[("t", "k", "one"), ("t", "l", "two")]).await;
    let stale = world.fence.clone();
    let mine = world.store().claim_messages(&stale, &[], &of(&[("t", 1)])).await.unwrap();
    world.lead(2, "node-2").await;
    let claimed = world.store().claim_messages(&stale, &[], &of(&[("t", 1)])).await;
    assert!(matches!(claimed, Err(Error::Fenced)), "{claimed:?}");
    let attempt =
        Attempt { id: mine[0].id, attempt: 1, end: End::Delivered(Some(reply(200, "mine"))) };
    for wrong in [stale, fence(3)] {
        let none = delivery::Claim::default();
        let ended = std::slice::from_ref(&attempt);
        let marked = world.store().claim_messages(&wrong, ended, &none).await;
        assert!(matches!(marked, Err(Error::Fenced)), "{marked:?}");
    }
    let left = latest(world, "task", Some(&tenant("a")), "t", &["k"]).await;
    assert_eq!(left[0].as_ref().unwrap().state, State::Pending);
}

/// The first result of a message's latest attempt counts.
pub async fn an_attempt_that_is_not_the_latest_changes_nothing(world: &mut World) {
    emitted(world, &[("t", "k", "one")]).await;
    let first = claim(world, "t", 1).await.remove(0);
    world.advance(MINUTE);
    let second = claim(world, "t", 1).await.remove(0);
    end(world, &first, End::GivenUp { error: "late".into(), reply: None }).await;
    end(world, &second, End::Delivered(Some(reply(201, "done")))).await;
    end(world, &second, End::GivenUp { error: "twice".into(), reply: None }).await;
    let of = latest(world, "task", Some(&tenant("a")), "t", &["k"]).await.remove(0).unwrap();
    assert_eq!((of.state, of.attempts, of.error), (State::Delivered, 2, None));
    assert_eq!((of.reply, of.ended_at), (Some(reply(201, "done")), Some(world.now)));
}

/// A task reads the latest message of each key, with the reply, only of its own task and tenant.
pub async fn a_task_sees_what_became_of_its_own_messages(world: &mut World) {
    emitted(world, &[("t", "a", "old"), ("t", "b", "b")]).await;
    let first = claim(world, "t", 10).await;
    let cut = Reply { status: 200, body: vec![0, 159, 255], cut: true };
    end(world, &first[0], End::Delivered(Some(cut.clone()))).await;
    let a = Some(tenant("a"));
    let seen = latest(world, "task", a.as_ref(), "t", &["a", "none", "b"]).await;
    assert_eq!(seen[0].as_ref().and_then(|d| d.reply.clone()), Some(cut));
    assert_eq!(seen[1], None);
    assert_eq!(seen[2].as_ref().map(|d| (d.state, d.attempts)), Some((State::Pending, 1)));
    emitted(world, &[("t", "a", "new")]).await;
    let seen = latest(world, "task", a.as_ref(), "t", &["a"]).await.remove(0).unwrap();
    assert_eq!((seen.payload.as_slice(), seen.state), (&b"new"[..], State::Pending));
    let b = Some(tenant("b"));
    for (of, tenant, topic) in [
        ("other", a.as_ref(), "t"),
        ("task", b.as_ref(), "t"),
        ("task", None, "t"),
        ("task", a.as_ref(), "u"),
    ] {
        assert_eq!(
            latest(world, of, tenant, topic, &["a"]).await,
            [None],
            "{of} {tenant:?} {topic}"
        );
    }
}

/// A snapshot does not see later answers.
pub async fn a_snapshot_holds_deliveries_as_they_were(world: &mut World) {
    emitted(world, &[("t", "k", "one")]).await;
    let message = claim(world, "t", 1).await.remove(0);
    let view = world.store().snapshot(MINUTE).await.unwrap();
    let (own, keys) = (task("task"), ["k".to_owned()]);
    let state = async || {
        let seen = view.deliveries(&own, Some(&tenant("a")), "t", &keys).await.unwrap();
        seen[0].as_ref().unwrap().state
    };
    assert_eq!(state().await, State::Pending);
    delivered(world, &message).await;
    assert_eq!(state().await, State::Pending);
    drop(view);
    let after = latest(world, "task", Some(&tenant("a")), "t", &["k"]).await;
    assert_eq!(after[0].as_ref().unwrap().state, State::Delivered);
}

/// The same message counts each time that its key is asked for.
pub async fn deliveries_are_bounded_as_every_read(world: &mut World) {
    let long = "x".repeat(1_000);
    emitted(world, &[("t", "k", &long), ("t", "l", &long)]).await;
    let view = world.store().snapshot(MINUTE).await.unwrap();
    view.read_at_most(10_000);
    let (own, tenant) = (task("task"), tenant("a"));
    let asked = async |times: usize| {
        let keys: Vec<String> =
            ["k", "l"].map(str::to_owned).into_iter().cycle().take(times).collect();
        view.deliveries(&own, Some(&tenant), "t", &keys).await
    };
    assert_eq!(asked(6).await.unwrap().iter().flatten().count(), 6);
    let refused = asked(2_000).await;
    assert!(matches!(refused, Err(Error::TooLarge(_))), "{:?}", refused.map(|found| found.len()));
    assert_eq!(asked(1).await.unwrap().len(), 1, "the snapshot can be read further");
}

/// Keys and texts may contain any character, and be long.
pub async fn any_key_is_delivered(world: &mut World) {
    let long = "k".repeat(4_000);
    let odd = "\u{1}0 ü/\n'\"";
    emitted(world, &[("t", &long, "l1"), ("t", odd, "o1"), ("t", &long, "l2"), ("t", "", "e1")])
        .await;
    let first = claim(world, "t", 10).await;
    assert_eq!(payloads(&first), ["l1", "o1", "e1"]);
    assert_eq!(first[1].key, odd);
    for message in &first {
        end(world, message, End::Again { after: MINUTE, error: "a\0b".into() }).await;
    }
    let seen = latest(world, "task", Some(&tenant("a")), "t", &[odd, "", &long]).await;
    assert_eq!(seen[0].as_ref().unwrap().error.as_deref(), Some("a\0b"));
    assert!(seen.iter().all(Option::is_some));
}

/// Ended messages are removed with the history, however they ended.
pub async fn messages_at_their_end_are_pruned_with_the_history(world: &mut World) {
    emitted(world, &[("t", "a", "1"), ("t", "b", "2"), ("t", "c", "3")]).await;
    let first = claim(world, "t", 2).await;
    delivered(world, &first[0]).await;
    end(world, &first[1], End::GivenUp { error: "no".into(), reply: None }).await;
    world.advance(MINUTE * 10);
    let keep = |history| Retention { history, undo: &[], nodes: MINUTE * 1_000, routed: None };
    world.store().prune(&world.fence, keep(MINUTE * 11), 100).await.unwrap();
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    assert_eq!(world.store().messages(&query).await.unwrap().len(), 3);
    world.store().prune(&world.fence, keep(MINUTE), 100).await.unwrap();
    let left = world.store().messages(&query).await.unwrap();
    assert_eq!(left.iter().map(|m| m.key.as_str()).collect::<Vec<_>>(), ["c"]);
    world.balanced().await;
}

/// A restart changes neither the store's identity nor the claimed messages.
pub async fn the_store_keeps_its_identity_and_its_attempts(world: &mut World) {
    let identity = world.store().identity().to_owned();
    assert!(!identity.is_empty());
    emitted(world, &[("t", "k", "one")]).await;
    claim(world, "t", 1).await;
    world.reopen().await;
    assert_eq!(world.store().identity(), identity);
    assert!(claim(world, "t", 1).await.is_empty());
    world.advance(MINUTE);
    assert_eq!(claim(world, "t", 1).await[0].attempt, 2);
}
