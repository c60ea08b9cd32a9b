//! The producer against a partition log that keeps Kafka's rules for sequence numbers.

use proptest::prelude::*;

use super::*;

const IDENTITY: Identity = Identity { id: 7, epoch: 0 };

/// A message whose key has no others.
fn entry(id: u64, partition: i32) -> Entry {
    of(id, partition, u32::try_from(id).unwrap())
}

fn of(id: u64, partition: i32, sequence: u32) -> Entry {
    Entry { id, partition, sequence, bytes: 100 }
}

fn large() -> Answer {
    Answer::TooLarge("too large".into())
}

fn begun(entries: &[Entry]) -> Producer {
    let mut producer = Producer::default();
    producer.begin(entries);
    producer.set_identity(IDENTITY);
    producer
}

fn unknown(why: &str) -> Vec<Fate> {
    vec![Fate::Unknown(why.into())]
}

fn ids(batches: &[RecordBatch]) -> Vec<&[u64]> {
    batches.iter().map(|batch| &*batch.ids).collect()
}

#[test]
fn keys_have_the_partitions_of_kafkas_own_clients() {
    // From the tests of Kafka's Java client.
    for (key, hash) in [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ] {
        assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        assert!((0..5).contains(&partition_of(key.as_bytes(), 5)));
    }
}

#[test]
fn sequence_numbers_begin_again_after_the_largest() {
    assert_eq!(after(0, 3), 3);
    assert_eq!(after(i32::MAX, 1), 0);
    assert_eq!(after(i32::MAX - 1, 3), 1);
}

#[test]
fn each_partition_gets_one_batch_at_a_time() {
    let all = [entry(1, 0), entry(2, 1), entry(3, 0)];
    let mut producer = begun(&all);
    let batches = producer.batches();
    assert_eq!(ids(&batches), [&[1, 3][..], &[2]]);
    assert_eq!(producer.batches(), [], "they are under way");
    producer.answered(0, Answer::Appended);
    producer.answered(1, Answer::Appended);
    assert_eq!(producer.end(""), [Fate::Accepted, Fate::Accepted, Fate::Accepted]);
    producer.begin(&[entry(4, 0)]);
    assert_eq!(producer.batches()[0].sequence, 2);
}

#[test]
fn a_batch_in_doubt_is_repeated_as_it_was() {
    let mut producer = begun(&[entry(1, 0), entry(2, 0), entry(3, 0)]);
    let first = producer.batches().remove(0);
    producer.answered(0, Answer::Unknown("away".into()));
    assert_eq!(producer.batches(), [], "nothing else is sent to its partition");
    assert_eq!(producer.end(""), unknown("away"));
    // The caller halves its batch.
    producer.begin(&[entry(1, 0)]);
    let again = producer.batches().remove(0);
    assert_eq!(again, RecordBatch { is_repeated: true, ..first });
    // The broker says of another attempt that it was not appended, not of the first one.
    producer.answered(0, Answer::Refused("no leader".into()));
    assert_eq!(producer.end(""), unknown("no leader"));
    producer.begin(&[entry(1, 0)]);
    assert_eq!(producer.batches()[0].ids, [1, 2, 3]);
    producer.answered(0, Answer::Appended);
    assert_eq!(producer.end(""), [Fate::Accepted]);
    producer.begin(&[entry(2, 0), entry(3, 0), entry(4, 0)]);
    assert_eq!(ids(&producer.batches()), [&[4]], "the others were in the batch");
}

#[test]
fn what_is_accepted_behind_a_failure_is_not_sent_again() {
    let all = [entry(1, 0), entry(2, 1)];
    let mut producer = begun(&all);
    producer.batches();
    producer.answered(0, Answer::Refused("unauthorised".into()));
    producer.answered(1, Answer::Appended);
    assert_eq!(producer.end(""), unknown("unauthorised"));
    producer.begin(&all);
    assert_eq!(ids(&producer.batches()), [&[1]]);
    producer.answered(0, Answer::Appended);
    assert_eq!(producer.end(""), [Fate::Accepted, Fate::Accepted]);
}

#[test]
fn a_batch_that_is_too_large_is_split_until_one_message_is_alone() {
    let all: Vec<_> = (1..=8).map(|id| of(id, 0, u32::try_from(id % 2).unwrap())).collect();
    let mut producer = begun(&all);
    let mut arrived = Vec::new();
    loop {
        let batches = producer.batches();
        let Some(batch) = batches.first() else { break };
        assert_eq!(usize::try_from(batch.sequence).unwrap(), arrived.len());
        if batch.ids.contains(&6) {
            producer.answered(0, large());
        } else {
            arrived.extend(batch.ids.iter().copied());
            producer.answered(0, Answer::Appended);
        }
    }
    assert_eq!(arrived, [1, 2, 3, 4, 5, 7], "and nothing of its key behind it");
    let fates = producer.end("");
    assert_eq!(fates[..5], [const { Fate::Accepted }; 5]);
    assert_eq!(fates[5..], [Fate::Held("too large".into()), Fate::Accepted, Fate::Behind]);
    // In another call it may be taken.
    producer.begin(&[all[5], all[7]]);
    let batch = producer.batches().remove(0);
    assert_eq!((batch.sequence, batch.ids), (6, vec![6]));
}

/// What is behind a message that is held in another partition, or waits for something else.
#[test]
fn a_call_ends_at_the_first_unknown_message_behind_one_that_is_held() {
    let mut producer = begun(&[of(1, 0, 1), of(2, 1, 2), of(3, 0, 1), of(4, 2, 3), of(5, 0, 4)]);
    producer.batches();
    producer.answered(0, large());
    producer.answered(1, Answer::Appended);
    producer.answered(2, Answer::Refused("no leader".into()));
    for answer in [large(), Answer::Appended] {
        producer.batches();
        producer.answered(0, answer);
    }
    let expected = [Fate::Held("too large".into()), Fate::Accepted, Fate::Behind];
    let fates = producer.end("");
    assert_eq!((&fates[..3], &fates[3..]), (&expected[..], &unknown("no leader")[..]));
    producer.begin(&[of(4, 2, 1), of(5, 0, 2)]);
    assert_eq!(ids(&producer.batches()), [&[4]], "the other was appended");
}

/// The key that was held is read again before the others are confirmed.
#[test]
fn a_doubt_outlives_a_call_with_earlier_messages_of_a_key_that_was_held() {
    let mut producer = begun(&[of(1, 0, 1), of(2, 0, 2)]);
    producer.bytes_max = 100;
    producer.batches();
    producer.answered(0, large());
    let doubt = producer.batches().remove(0);
    assert_eq!((doubt.sequence, &*doubt.ids), (0, &[2][..]), "a refused batch takes no number");
    producer.answered(0, Answer::Unknown("away".into()));
    assert_eq!(producer.end("")[1..], unknown("away"));
    for all in [&[of(1, 0, 1)][..], &[of(1, 0, 1), of(2, 0, 2)]] {
        producer.begin(all);
        assert!(!producer.needs_identity());
        let again = producer.batches().remove(0);
        assert_eq!(again, RecordBatch { is_repeated: true, ..doubt.clone() });
        producer.answered(0, Answer::Unknown("away".into()));
        producer.end("");
    }
    producer.begin(&[of(1, 0, 1)]);
    producer.batches();
    producer.answered(0, Answer::Appended);
    let next = producer.batches().remove(0);
    assert_eq!((next.sequence, &*next.ids), (1, &[1][..]));
}

/// Whether an attempt has appended it, and taken a number, is not known.
#[test]
fn a_doubt_that_is_too_large_is_held_under_another_identity() {
    let mut producer = begun(&[of(1, 0, 1), of(2, 0, 2)]);
    producer.bytes_max = 100;
    producer.batches();
    producer.answered(0, Answer::Unknown("away".into()));
    producer.end("");
    producer.begin(&[of(1, 0, 1), of(2, 0, 2)]);
    producer.batches();
    producer.answered(0, large());
    assert!(producer.needs_identity());
    producer.set_identity(Identity { id: 8, epoch: 0 });
    let next = producer.batches().remove(0);
    assert_eq!((next.sequence, &*next.ids), (0, &[2][..]));
    producer.answered(0, Answer::Appended);
    assert_eq!(producer.end(""), [Fate::Held("too large".into()), Fate::Accepted]);
}

#[test]
fn another_leaders_messages_make_the_numbers_of_a_doubt_useless() {
    let mut producer = begun(&[entry(1, 0), entry(2, 1)]);
    producer.batches();
    producer.answered(0, Answer::Unknown("away".into()));
    producer.answered(1, Answer::Appended);
    producer.end("");
    producer.begin(&[entry(9, 0)]);
    assert!(producer.needs_identity());
    assert_eq!(producer.batches(), []);
    producer.set_identity(Identity { id: 8, epoch: 0 });
    assert_eq!(producer.batches()[0].sequence, 0);
}

#[test]
fn a_forgotten_producer_is_renewed_once() {
    let mut producer = begun(&[entry(1, 0)]);
    for (renewed, reason) in [(true, "not sent"), (false, "unknown producer")] {
        producer.batches();
        producer.answered(0, Answer::Forgotten("unknown producer".into()));
        assert!(producer.needs_identity());
        producer.set_identity(IDENTITY);
        assert_eq!(producer.batches().is_empty(), !renewed, "{reason}");
    }
    assert_eq!(producer.end("not sent"), unknown("unknown producer"));
}

/// A partition with Kafka's rules.
#[derive(Default)]
struct Log {
    messages: Vec<u64>,
    /// For each producer: the last batch, and the next number.
    of: BTreeMap<i64, (i32, usize, i32)>,
}

impl Log {
    fn append(&mut self, batch: &RecordBatch) -> Answer {
        let state = self.of.get(&batch.identity.id).copied();
        if state.is_some_and(|(at, count, _)| (at, count) == (batch.sequence, batch.ids.len())) {
            return Answer::Appended;
        }
        let expected = state.map_or(0, |(_, _, next)| next);
        if batch.sequence != expected {
            return Answer::Forgotten("out of order".into());
        }
        self.messages.extend(&batch.ids);
        let next = after(batch.sequence, batch.ids.len());
        self.of.insert(batch.identity.id, (batch.sequence, batch.ids.len(), next));
        Answer::Appended
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Whatever is lost on the way, every partition has each message once, in the order of its key, if the
    /// broker remembers the producer; and the first copies are in this order in any case. Without
    /// messages that are too large, the whole partition is in order.
    #[test]
    fn every_key_is_in_order_and_has_everything(
        keys in prop::collection::vec(0..7_u32, 1..40),
        luck in prop::collection::vec(any::<u8>(), 1..300),
        forgets in any::<bool>(),
        are_large in any::<bool>(),
    ) {
        let partition = |key: u32| i32::try_from(key % 3).unwrap();
        let all: Vec<Entry> =
            keys.iter().zip(1..).map(|(key, id)| of(id, partition(*key), *key)).collect();
        let mut logs: BTreeMap<i32, Log> = BTreeMap::new();
        let mut producer = Producer { bytes_max: 500, ..Producer::default() };
        let (mut pending, mut held, mut identities) = (all.clone(), BTreeSet::new(), 0);
        let mut luck = luck.into_iter().chain(std::iter::repeat(7));
        let mut is_raised = !are_large;
        for calls in 0..5_000 {
            if pending.is_empty() {
                break;
            }
            is_raised |= calls > 40;
            let many = usize::from(luck.next().unwrap()) % 12 + 1;
            // The pauses of the keys that are held end sooner or later.
            if luck.next().unwrap().is_multiple_of(4) || calls > 40 {
                held.clear();
            }
            let waits = |entry: &&Entry| !held.contains(&entry.sequence);
            let batch: Vec<Entry> = pending.iter().filter(waits).take(many).copied().collect();
            producer.begin(&batch);
            loop {
                if producer.needs_identity() {
                    identities += 1;
                    producer.set_identity(Identity { id: identities, epoch: 0 });
                }
                let batches = producer.batches();
                if batches.is_empty() {
                    break;
                }
                for batch in batches {
                    let log = logs.entry(batch.partition).or_default();
                    let is_large = batch.ids.iter().any(|id| id % 5 == 3) && !is_raised;
                    let answer = match luck.next().unwrap() % 8 {
                        1..8 if is_large => large(),
                        0 => Answer::Unknown("not sent".into()),
                        1 => {
                            log.append(&batch);
                            Answer::Unknown("no answer".into())
                        }
                        2 => Answer::Refused("no leader".into()),
                        3 if forgets => {
                            log.of.clear();
                            log.append(&batch)
                        }
                        4 if batch.ids.len() > 1 && !batch.is_repeated => large(),
                        _ => log.append(&batch),
                    };
                    producer.answered(batch.partition, answer);
                }
            }
            for (entry, fate) in batch.iter().zip(producer.end("")) {
                match fate {
                    Fate::Accepted => pending.retain(|other| other.id != entry.id),
                    Fate::Held(_) => drop(held.insert(entry.sequence)),
                    Fate::Behind => prop_assert!(held.contains(&entry.sequence)),
                    Fate::Refused(_) | Fate::Unknown(_) => break,
                }
            }
        }
        prop_assert_eq!(pending, []);
        // A large message in doubt costs the identity.
        let is_once = !forgets && (!are_large || identities == 1);
        for (partition, key) in (0..3).flat_map(|p| (0..7).map(move |key| (p, key))) {
            let is_of = |e: &&Entry| e.partition == partition && (!are_large || e.sequence == key);
            let expected: Vec<u64> = all.iter().filter(is_of).map(|e| e.id).collect();
            let log = logs.get(&partition).map(|log| &*log.messages).unwrap_or_default();
            let messages: Vec<u64> =
                log.iter().filter(|id| expected.contains(id)).copied().collect();
            let mut first = Vec::new();
            for id in &messages {
                if !first.contains(id) {
                    first.push(*id);
                }
            }
            prop_assert_eq!(&first, &expected);
            prop_assert!(!is_once || messages == expected, "{:?}", messages);
        }
    }
}
