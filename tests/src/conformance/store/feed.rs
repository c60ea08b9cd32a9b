//! Messages of the product itself: which are stored, under which number, and how they reach the outbox.

use std::time::Duration;

use besom_core::delivery::End;
use besom_core::proposal::Change;
use besom_ports::store::{Claimed, Entered, Error, Offered, OutboxTopic, Retention};

use crate::conformance::World;
use crate::conformance::world::{apply, candidate, task, tenant};

const MINUTE: Duration = Duration::from_secs(60);
const NO_LIMIT: u64 = u64::MAX;

fn offered(key: &str, number: Option<u64>, payload: &str) -> Offered {
    let (topic, payload) = ("t".into(), payload.into());
    Offered { topic, tenant: Some(tenant("a")), key: key.into(), number, payload }
}

fn stored(sequence: u64) -> Entered {
    Entered::Stored { sequence }
}

async fn entered(world: &World, offered: &[Offered]) -> Vec<Entered> {
    world.store().enter_messages(offered).await.expect("an answer for each")
}

async fn read(world: &World, topic: &str) -> Vec<Claimed> {
    world.store().read_messages(topic, &[], &[], 100, NO_LIMIT).await.expect("messages")
}

fn told(messages: &[Claimed]) -> Vec<(&str, u64, &str)> {
    messages
        .iter()
        .map(|m| (m.key.as_str(), m.sequence, std::str::from_utf8(&m.payload).expect("a text")))
        .collect()
}

/// A message of the product has no task, and shares the sequence of its key with those of tasks.
pub async fn an_entered_message_is_delivered_as_any_other(world: &mut World) {
    assert_eq!(entered(world, &[offered("k", None, "one")]).await, [stored(1)]);
    let emit = Change::Emit { topic: "t".into(), key: "k".into(), payload: b"two".to_vec() };
    world.settle(candidate("k"), apply(vec![], vec![emit])).await;
    let without = Offered { tenant: None, ..offered("k", None, "another's") };
    let both = [offered("k", None, "three"), without];
    assert_eq!(entered(world, &both).await, [stored(3), stored(1)]);
    let messages = read(world, "t").await;
    let expected = [("k", 1, "one"), ("k", 2, "two"), ("k", 3, "three"), ("k", 1, "another's")];
    assert_eq!(told(&messages), expected);
    assert_eq!((messages[0].task.clone(), messages[0].run), (None, None));
    assert_eq!((messages[0].tenant.clone(), messages[0].at), (Some(tenant("a")), world.now));
    assert_eq!((messages[1].task.clone(), messages[3].tenant.clone()), (Some(task("task")), None));
    let claim = super::outbox::of(&[("t", 10)]);
    let claimed = world.store().claim_messages(&world.fence, &[], &claim).await.expect("a claim");
    assert_eq!(told(&claimed), [expected[0], expected[3]], "the first of each sequence");
}

/// Whatever characters topics, tenants and keys have, two of them are one sequence only if all three are equal.
pub async fn no_two_names_are_one_sequence(world: &mut World) {
    for separator in ["\u{1}", "\u{2}", "\u{1f}", "|", "\u{1}2", "\u{1}1"] {
        let of = |tenant: &str, key: &str| Offered {
            tenant: Some(tenant.into()),
            ..offered(key, Some(1), "same")
        };
        let (left, right) = (format!("x{separator}t"), format!("t{separator}k"));
        let both = [of("x", &format!("t{separator}t{separator}k")), of(&left, &right)];
        assert_eq!(entered(world, &both).await, [stored(1), stored(1)], "{separator:?}");
        let one = [of(&left, "k"), of("x", &right)];
        assert_eq!(entered(world, &one).await, [stored(1), stored(1)], "{separator:?}");
    }
}

/// Each number is stored once and after the one before it.
pub async fn a_number_is_stored_once_and_in_its_turn(world: &mut World) {
    let gap = |missing| Entered::Gap { missing };
    assert_eq!(entered(world, &[offered("k", Some(2), "b")]).await, [gap(1)]);
    let batch = [
        offered("k", Some(1), "a"),
        offered("k", Some(3), "c"),
        offered("k", Some(2), "b"),
        offered("k", Some(2), "b"),
        offered("k", Some(2), "B"),
        offered("k", None, "unnumbered"),
        offered("k", Some(3), "c"),
    ];
    let answers =
        [stored(1), gap(2), stored(2), Entered::Repeated, Entered::Differs, stored(3), stored(4)];
    assert_eq!(entered(world, &batch).await, answers);
    assert_eq!(entered(world, &[offered("k", Some(1), "a")]).await, [Entered::Repeated]);
    assert_eq!(entered(world, &[offered("k", Some(1), "A")]).await, [Entered::Differs]);
    assert_eq!(entered(world, &[offered("k", Some(9), "z")]).await, [gap(4)]);
    let expected = [("k", 1, "a"), ("k", 2, "b"), ("k", 3, "unnumbered"), ("k", 4, "c")];
    assert_eq!(told(&read(world, "t").await), expected);
}

/// Topics, tenants and keys have their own numbers.
pub async fn numbers_belong_to_a_topic_a_tenant_and_a_key(world: &mut World) {
    let one = offered("k", Some(1), "x");
    let others = [
        one.clone(),
        Offered { key: "l".into(), ..one.clone() },
        Offered { topic: "u".into(), ..one.clone() },
        Offered { tenant: Some(tenant("b")), ..one.clone() },
        Offered { tenant: None, ..one.clone() },
        Offered { number: Some(2), ..one },
    ];
    let answers = entered(world, &others).await;
    assert_eq!(answers, [stored(1), stored(1), stored(1), stored(1), stored(1), stored(2)]);
    let last = async |topic: &str, of: Option<&str>, key: &str| {
        let of = of.map(tenant);
        world.store().last_entered(topic, of.as_ref(), key).await.expect("a number")
    };
    assert_eq!(last("t", Some("a"), "k").await, 2);
    assert_eq!((last("t", None, "k").await, last("u", Some("a"), "k").await), (1, 1));
    assert_eq!(last("t", Some("a"), "nobody's").await, 0);
}

/// A number stays known after its message was delivered and pruned, and after a restart.
pub async fn a_number_outlives_its_message(world: &mut World) {
    entered(world, &[offered("k", Some(1), "a")]).await;
    let [message] = &read(world, "t").await[..] else { panic!("one message") };
    let ends = [(message.id, End::Delivered(None))];
    world.store().end_messages(&world.fence, &ends).await.expect("recorded");
    assert_eq!(entered(world, &[offered("k", Some(1), "A")]).await, [Entered::Differs]);
    world.advance(MINUTE * 3);
    let keep = Retention { history: MINUTE, undo: &[], nodes: MINUTE, routed: None };
    world.store().prune(&world.fence, keep, 100).await.expect("pruned");
    world.fixture.reopen().await;
    // Nothing is known any more that differs.
    assert_eq!(entered(world, &[offered("k", Some(1), "A")]).await, [Entered::Repeated]);
    assert_eq!(entered(world, &[offered("k", Some(2), "b")]).await, [stored(2)]);
}

/// Producers that send the same number at once store it once.
pub async fn a_number_that_two_send_at_once_is_stored_once(world: &mut World) {
    for number in 1..=20 {
        let one = [offered("k", Some(number), "x")];
        let store = world.store();
        let (first, second) = tokio::join!(store.enter_messages(&one), store.enter_messages(&one));
        let mut answers = [first.expect("an answer"), second.expect("an answer")].concat();
        answers.sort_by_key(|answer| *answer == Entered::Repeated);
        assert_eq!(answers, [stored(number), Entered::Repeated]);
    }
    assert_eq!(read(world, "t").await.len(), 20);
}

/// Rows of the table are moved in their order, within both limits, and only of the topics asked for.
pub async fn inserted_messages_are_moved_in_their_order(world: &mut World) {
    let rows = [
        offered("k", None, "one"),
        Offered { topic: "u".into(), ..offered("k", None, "u") },
        Offered { tenant: None, ..offered("ü", None, "two") },
        offered("k", None, "three"),
        offered("k", None, "four"),
    ];
    world.fixture.insert_messages(&rows).await;
    let topics = ["t".to_owned(), "nobody's".to_owned()];
    let collect = async |world: &World, limit, bytes| {
        let moved = world.store().collect_messages(&world.fence, &topics, limit, bytes).await;
        moved.expect("moved")
    };
    assert!(read(world, "t").await.is_empty());
    assert_eq!(collect(world, 1, NO_LIMIT).await, 1);
    assert_eq!(collect(world, 100, 2).await, 1, "one, though it is larger");
    assert_eq!(collect(world, 100, 8).await, 1, "both would be larger");
    assert_eq!(collect(world, 100, 8).await, 1);
    assert_eq!(collect(world, 100, 8).await, 0);
    let messages = read(world, "t").await;
    assert_eq!(
        told(&messages),
        [("k", 1, "one"), ("ü", 1, "two"), ("k", 2, "three"), ("k", 3, "four")]
    );
    assert_eq!((messages[0].tenant.clone(), messages[1].tenant.clone()), (Some(tenant("a")), None));
    assert!(read(world, "u").await.is_empty());
    let rest = world.store().collect_messages(&world.fence, &["u".into()], 9, NO_LIMIT).await;
    assert_eq!(rest.expect("moved"), 1);
}

/// The store says which topics have rows: those that are known, and some of the others.
pub async fn topics_of_inserted_messages_are_told(world: &mut World) {
    let topics = async |world: &World, known: &[&str], others_max| {
        let known: Vec<String> = known.iter().map(|&topic| topic.to_owned()).collect();
        let found = world.store().feed_topics(&known, others_max).await.expect("topics");
        (found.known, found.others)
    };
    assert_eq!(topics(world, &["t"], 9).await, (vec![], vec![]));
    let of = |topic: &str| Offered { topic: topic.into(), ..offered("k", None, "x") };
    world.fixture.insert_messages(&["t", "u", "v", "u", "w"].map(of)).await;
    let owned = |topics: &[&str]| topics.iter().map(|&topic| topic.to_owned()).collect::<Vec<_>>();
    let (known, others) = topics(world, &["v", "nobody's", "t"], 9).await;
    assert_eq!((known, others), (owned(&["v", "t"]), owned(&["u", "w"])));
    let (known, others) = topics(world, &[], 2).await;
    assert_eq!((known.len(), others.len()), (0, 2));
    let counted = async |world: &World, count_max| {
        let topics = world.store().outbox_topics(9, count_max).await.expect("topics");
        let of = |of: OutboxTopic| (of.topic, of.inserted, of.waiting);
        topics.into_iter().map(of).collect::<Vec<_>>()
    };
    let of = |topic: &str, rows: u64| (topic.to_owned(), rows, 0);
    assert_eq!(counted(world, 9).await, [of("t", 1), of("u", 2), of("v", 1), of("w", 1)]);
    assert_eq!(counted(world, 1).await[1], of("u", 1));
    let moved = world.store().collect_messages(&world.fence, &owned(&["u"]), 9, NO_LIMIT).await;
    assert_eq!(moved.expect("moved"), 2);
    assert_eq!(topics(world, &["u"], 9).await, (vec![], owned(&["t", "v", "w"])));
    assert_eq!(counted(world, 9).await[1], ("u".to_owned(), 0, 2));
}

/// A replaced leader moves nothing.
pub async fn a_stale_leader_moves_no_message(world: &mut World) {
    world.fixture.insert_messages(&[offered("k", None, "one")]).await;
    let stale = world.fence.clone();
    world.lead(2, "node-2").await;
    let done = world.store().collect_messages(&stale, &["t".into()], 9, NO_LIMIT).await;
    assert!(matches!(done, Err(Error::Fenced)), "{done:?}");
    assert!(read(world, "t").await.is_empty());
    let moved = world.store().collect_messages(&world.fence, &["t".into()], 9, NO_LIMIT).await;
    assert_eq!(moved.expect("moved"), 1);
}

/// The messages of the product are counted apart from those of tasks.
pub async fn what_waits_of_the_product_is_counted(world: &mut World) {
    let emit = Change::Emit { topic: "t".into(), key: "k".into(), payload: b"of a task".to_vec() };
    world.settle(candidate("k"), apply(vec![], vec![emit])).await;
    entered(world, &[offered("k", None, "one"), offered("k", None, "two")]).await;
    let pending = world.store().pending_messages(None, "t", 100).await.expect("a count");
    assert_eq!((pending.messages, pending.bytes), (2, 8));
    assert_eq!(world.store().pending_messages(None, "t", 1).await.expect("a count").messages, 1);
    let of_task = world.store().pending_messages(Some(&task("task")), "t", 100).await;
    assert_eq!(of_task.expect("a count").messages, 1);
}
