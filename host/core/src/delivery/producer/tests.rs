//! The producer against a partition log that keeps Kafka's rules for sequence numbers.

use proptest::prelude::*;

use super::*;

const IDENTITY: Identity = Identity { id: 7, epoch: 0 };

fn entry(id: u64, partition: i32) -> Entry {
    Entry { id, partition, bytes: 100 }
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
    let all: Vec<_> = (1..=8).map(|id| entry(id, 0)).collect();
    let mut producer = begun(&all);
    let mut arrived = Vec::new();
    loop {
        let batches = producer.batches();
        let Some(batch) = batches.first() else { break };
        assert_eq!(usize::try_from(batch.sequence).unwrap(), arrived.len());
        if batch.ids.contains(&6) {
            producer.answered(0, Answer::TooLarge("too large".into()));
        } else {
            arrived.extend(batch.ids.iter().copied());
            producer.answered(0, Answer::Appended);
        }
    }
    assert_eq!(arrived, [1, 2, 3, 4, 5], "and nothing behind it");
    let fates = producer.end("");
    assert_eq!(fates[5..], unknown("too large"));
    assert_eq!(fates.len(), 6);
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
    /// Whatever is lost on the way, every partition has each message once, in order, if the broker
    /// remembers the producer; and the first copies are in order in any case.
    #[test]
    fn every_partition_is_in_order_and_has_everything(
        partitions in prop::collection::vec(0..3_i32, 1..40),
        luck in prop::collection::vec(any::<u8>(), 1..300),
        forgets in any::<bool>(),
    ) {
        let all: Vec<Entry> = partitions.iter().zip(1..).map(|(p, id)| entry(id, *p)).collect();
        let mut logs: BTreeMap<i32, Log> = BTreeMap::new();
        let mut producer = Producer { bytes_max: 500, ..Producer::default() };
        let (mut confirmed, mut identities) = (0, 0);
        let mut luck = luck.into_iter().chain(std::iter::repeat(7));
        for _ in 0..5_000 {
            if confirmed == all.len() {
                break;
            }
            let many = usize::from(luck.next().unwrap()) % 12 + 1;
            producer.begin(&all[confirmed..(confirmed + many).min(all.len())]);
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
                    let answer = match luck.next().unwrap() % 8 {
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
                        4 if batch.ids.len() > 1 && !batch.is_repeated => {
                            Answer::TooLarge("too large".into())
                        }
                        _ => log.append(&batch),
                    };
                    producer.answered(batch.partition, answer);
                }
            }
            confirmed +=
                producer.end("").iter().take_while(|fate| **fate == Fate::Accepted).count();
        }
        prop_assert_eq!(confirmed, all.len());
        for partition in 0..3 {
            let expected: Vec<u64> =
                all.iter().filter(|e| e.partition == partition).map(|e| e.id).collect();
            let messages = logs.remove(&partition).unwrap_or_default().messages;
            let mut first = Vec::new();
            for id in &messages {
                if !first.contains(id) {
                    first.push(*id);
                }
            }
            prop_assert_eq!(&first, &expected);
            prop_assert!(forgets || messages == expected, "{:?}", messages);
        }
    }
}
