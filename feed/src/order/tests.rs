use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn key(name: &str) -> Key {
    Key { tenant: String::new(), key: name.into() }
}

/// The message with a number; its payload is the number.
fn arrival(name: &str, number: u64, offset: i64) -> Arrival<u64> {
    Arrival {
        key: key(name),
        number,
        digest: number,
        time: number,
        bytes: 10,
        offset,
        message: number,
    }
}

fn order(bounds: Bounds) -> Order<u64> {
    let mut order = Order::new(bounds);
    order.begin(0, 0, 0);
    order
}

fn accepted(decisions: &[Decision<u64>]) -> Vec<u64> {
    let number = |decision: &Decision<u64>| match decision {
        Decision::Accept { number, .. } => Some(*number),
        _ => None,
    };
    decisions.iter().filter_map(number).collect()
}

#[test]
fn the_next_number_is_accepted_and_brings_those_that_wait() {
    let mut order = order(Bounds::default());
    assert_eq!(accepted(&order.offer(0, arrival("a", 1, 0), 0)), [1]);
    let early = order.offer(0, arrival("a", 3, 1), 0);
    assert_eq!(early, [Decision::Early { key: key("a"), number: 3, missing: 2..=2 }]);
    order.offer(0, arrival("a", 4, 2), 0);
    assert_eq!(
        (order.resume(0), order.early()),
        (Some(1), (2, 20)),
        "the early ones are read again"
    );
    assert_eq!(accepted(&order.offer(0, arrival("a", 2, 3), 0)), [2, 3, 4]);
    assert_eq!((order.resume(0), order.early()), (Some(4), (0, 0)));
}

#[test]
fn a_repeated_number_is_dropped_and_another_payload_is_named() {
    let mut order = order(Bounds::default());
    for number in 1..=20 {
        order.offer(0, arrival("a", number, 0), 0);
    }
    order.offer(0, arrival("a", 22, 0), 0);
    let mut other = |number| {
        let mut other = arrival("a", number, 21);
        other.digest = 99;
        order.offer(0, other, 0)
    };
    let differs = |number| [Decision::Differs { key: key("a"), number, message: number }];
    assert_eq!(other(20), differs(20));
    assert_eq!(other(13), differs(13));
    assert_eq!(other(22), differs(22), "of one that waits as well");
    assert_eq!(other(12), [Decision::Back { key: key("a"), number: 12, last: 20 }]);
    // After the restore of a backup, the producer gives numbers again to later messages.
    let mut again = arrival("a", 12, 21);
    (again.digest, again.time) = (99, 21);
    assert_eq!(order.offer(0, again, 0), differs(12));
    let repeated = |number| [Decision::Duplicate { key: key("a"), number }];
    assert_eq!(order.offer(0, arrival("a", 13, 22), 0), repeated(13));
    assert_eq!(order.offer(0, arrival("a", 22, 23), 0), repeated(22));
}

#[test]
fn a_gap_that_lasts_too_long_sets_its_messages_aside_with_its_bounds() {
    let mut order = order(Bounds { gap_ms_max: 1_000, ..Bounds::default() });
    order.offer(0, arrival("a", 1, 0), 0);
    order.offer(0, arrival("a", 5, 1), 100);
    order.offer(0, arrival("a", 7, 2), 500);
    assert_eq!(order.expire(1_099), []);
    let dead =
        |number| (0, Decision::Dead { key: key("a"), number, message: number, missing: 2..=4 });
    assert_eq!(order.expire(1_100), [dead(5), dead(7)]);
    assert_eq!((order.resume(0), order.early()), (Some(3), (0, 0)));
    assert_eq!(accepted(&order.offer(0, arrival("a", 2, 3), 1_200)), [2], "a resend goes on");
}

#[test]
fn the_key_that_waits_longest_makes_room() {
    let bounds = Bounds { early_max: 3, early_of_key_max: 2, ..Bounds::default() };
    let mut order = order(bounds);
    order.offer(0, arrival("a", 2, 0), 5);
    order.offer(0, arrival("b", 2, 1), 4);
    order.offer(0, arrival("c", 2, 2), 6);
    let full = order.offer(0, arrival("c", 3, 3), 7);
    let dead = Decision::Dead { key: key("b"), number: 2, message: 2, missing: 1..=1 };
    assert_eq!(full[1..], [dead]);
    let full = order.offer(0, arrival("c", 4, 4), 7);
    assert_eq!((full.len(), order.early().0), (4, 1), "all of a key are set aside at once");
}

#[test]
fn what_retention_removed_is_told_by_the_first_number_that_is_seen() {
    let mut order = Order::new(Bounds::default());
    order.begin(0, 100, 100);
    order.learn(0, key("old"), Position { last: 5, offset: 60, recent: vec![5], time: 0 });
    let lost = |name: &str, missing| Decision::Lost { key: key(name), missing };
    let told = order.offer(0, arrival("old", 9, 100), 0);
    assert_eq!((&told[0], accepted(&told)), (&lost("old", 6..=8), vec![9]));
    let told = order.offer(0, arrival("new", 4, 101), 0);
    assert_eq!((&told[0], accepted(&told)), (&lost("new", 1..=3), vec![4]));
    assert_eq!(
        accepted(&order.offer(0, arrival("old", 11, 102), 0)),
        [0_u64; 0],
        "a later gap is none"
    );
}

#[test]
fn numbers_that_were_given_up_are_passed_over() {
    let mut order = order(Bounds::default());
    order.skip(key("a"), 3);
    order.offer(0, arrival("a", 1, 0), 0);
    assert_eq!(accepted(&order.offer(0, arrival("a", 5, 1), 0)), [0_u64; 0], "4 is still missing");
    let told = order.offer(0, arrival("a", 4, 2), 0);
    assert_eq!(told[0], Decision::Lost { key: key("a"), missing: 2..=3 });
    assert_eq!(accepted(&told), [4, 5]);
}

#[test]
fn a_partition_of_somebody_else_decides_nothing_and_keeps_no_memory() {
    let mut order = order(Bounds::default());
    order.offer(0, arrival("a", 2, 0), 0);
    order.end(0);
    assert_eq!((order.early(), order.resume(0)), ((0, 0), None));
    assert_eq!(order.offer(0, arrival("a", 1, 1), 0), []);
}

/// A log of up to three keys: each producer sends its numbers in order, and now and then again from an
/// earlier one; then messages change places with later ones.
fn log() -> impl Strategy<Value = Vec<(usize, u64)>> {
    (vec((0..3_usize, 0..6_u64), 1..60), vec((0..60_usize, 0..8_usize), 0..30)).prop_map(
        |(sends, swaps)| {
            let (mut log, mut sent) = (Vec::new(), [0_u64; 3]);
            for (key, back) in sends {
                let from = sent[key].saturating_sub(back) + 1;
                sent[key] += 1;
                log.extend((from..=sent[key]).map(|number| (key, number)));
            }
            for (at, by) in swaps {
                let at = at % log.len();
                let other = (at + by).min(log.len() - 1);
                log.swap(at, other);
            }
            log
        },
    )
}

const NAMES: [&str; 3] = ["a", "b", "c"];

proptest! {
    /// A consumer commits its output with its positions and its offset, and ends at any moment: the next
    /// one goes on from what was committed.
    #[test]
    fn every_number_is_committed_once_and_in_order(
        log in log(),
        batches in vec((1..9_usize, any::<bool>()), 1..200),
    ) {
        let mut output: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let (mut positions, mut next) = (BTreeMap::<Key, Position>::new(), 0_i64);
        let mut order = Order::new(Bounds::default());
        order.begin(0, 0, 0);
        let mut read = 0;
        // At the end a consumer that lives reads the rest.
        for (size, ends) in batches.into_iter().chain([(usize::MAX, true), (usize::MAX, false)]) {
            let mut taken = Vec::new();
            for (offset, &(of, number)) in log.iter().enumerate().skip(read).take(size) {
                let offset = i64::try_from(offset).unwrap();
                for decision in order.offer(0, arrival(NAMES[of], number, offset), 0) {
                    match decision {
                        Decision::Accept { number, key, .. } => {
                            taken.push((NAMES.iter().position(|name| *name == key.key).unwrap(), number));
                        }
                        Decision::Dead { .. } | Decision::Differs { .. } | Decision::Lost { .. } => {
                            prop_assert!(false, "{decision:?}");
                        }
                        _ => {}
                    }
                }
                read += 1;
            }
            if ends {
                order = Order::new(Bounds::default());
                order.begin(0, next, 0);
                for (key, position) in &positions {
                    order.learn(0, key.clone(), position.clone());
                }
                read = usize::try_from(next).unwrap();
                continue;
            }
            for (of, number) in taken {
                output.entry(of).or_default().push(number);
                let key = key(NAMES[of]);
                positions.insert(key.clone(), order.position(0, &key).unwrap().clone());
            }
            let resume = order.resume(0).unwrap();
            prop_assert!(resume >= next, "an offset never goes back");
            next = resume;
        }
        for (of, name) in NAMES.iter().enumerate() {
            let sent = log.iter().filter(|(key, _)| *key == of).map(|(_, number)| *number).max();
            let expected: Vec<u64> = (1..=sent.unwrap_or(0)).collect();
            prop_assert_eq!(output.remove(&of).unwrap_or_default(), expected, "{}", name);
        }
    }

    /// Whatever arrives, memory stays within its bounds, and each message is accepted, dropped, held or
    /// set aside.
    #[test]
    fn memory_is_bounded_and_no_message_disappears(
        arrivals in vec((0..3_usize, 1..40_u64, 0..100_u64), 0..200),
    ) {
        let bounds = Bounds {
            early_of_key_max: 5,
            early_max: 8,
            early_bytes_max: 70,
            gap_ms_max: 300,
        };
        let mut order = order(bounds);
        let (mut now, mut ended) = (0, 0);
        for (offset, (of, number, later)) in arrivals.iter().enumerate() {
            now += later;
            let offset = i64::try_from(offset).unwrap();
            let mut all = order.offer(0, arrival(NAMES[*of], *number, offset), now);
            all.extend(order.expire(now).into_iter().map(|(_, decision)| decision));
            for decision in &all {
                if let Decision::Dead { number, missing, .. } = decision {
                    prop_assert!(missing.start() <= missing.end() && number > missing.end());
                }
            }
            ended += all.iter().filter(|one| !matches!(one, Decision::Early { .. })).count();
            let (early, bytes) = order.early();
            prop_assert!(early <= 7 && bytes <= 70, "{} messages, {} bytes", early, bytes);
            prop_assert_eq!(ended + early, usize::try_from(offset).unwrap() + 1);
        }
    }
}
