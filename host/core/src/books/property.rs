//! The books balance, and every planned item ends exactly once, over any sequence of admissions,
//! settlements with repetitions, and commands. The writes are folded into maps.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use proptest::prelude::*;

use super::tests::apply;
use super::*;
use crate::ids::{Incarnation, OwnerEpoch, RunId, Term};
use crate::item::{Candidate, Identity};
use crate::proposal::Settle;
use crate::queue::Decision;

const PARTITIONS: u32 = 2;
const NODE: &str = "node";

#[derive(Debug, Clone, Default, PartialEq)]
struct Stream {
    acked: u64,
    tail: u64,
    items: BTreeMap<u64, Item>,
}

/// The engine's tables.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    streams: BTreeMap<Partition, Stream>,
    timers: BTreeMap<u64, Item>,
    retries: BTreeMap<u64, Item>,
    blocked: BTreeMap<Identity, BTreeMap<String, bool>>,
    letters: BTreeMap<u64, DeadLetter>,
    history: Vec<(Identity, End)>,
    counters: Counters,
    /// Of each run: items in the log, and items that have not ended.
    runs: BTreeMap<RunId, (i64, i64)>,
    /// How often each identity was planned.
    planned: BTreeMap<Identity, usize>,
    last: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Plan {
        picks: Vec<(u8, bool, bool, bool)>,
        quota: u64,
    },
    /// Settles the first items of every stream, and some timers and retries.
    Settle {
        items: Vec<(u8, u8)>,
        repeat: bool,
    },
    /// Commits an item that was never queued.
    Unqueued {
        pick: (u8, bool),
        how: u8,
    },
    Retry {
        of: u8,
    },
    Discard {
        of: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pick = (0u8..4, any::<bool>(), any::<bool>(), any::<bool>());
    let step = prop_oneof![
        3 => (proptest::collection::vec(pick, 0..8), 0u64..8)
            .prop_map(|(picks, quota)| Step::Plan { picks, quota }),
        5 => (proptest::collection::vec((0u8..6, 0u8..3), 0..8), any::<bool>())
            .prop_map(|(items, repeat)| Step::Settle { items, repeat }),
        1 => ((0u8..4, any::<bool>()), 0u8..3)
            .prop_map(|(pick, how)| Step::Unqueued { pick, how }),
        1 => any::<u8>().prop_map(|of| Step::Retry { of }),
        1 => any::<u8>().prop_map(|of| Step::Discard { of }),
    ];
    proptest::collection::vec(step, 1..40)
}

impl Places for Model {
    type Error = Infallible;

    fn owner(&mut self, entry: &Entry) -> Result<Option<Owner<'_>>, Infallible> {
        Ok(Some(Owner { node: NODE, epoch: entry.epoch }))
    }

    fn acked(&mut self, _: &TaskName, partition: Partition) -> Result<Option<Seq>, Infallible> {
        Ok(self.streams.get(&partition).map(|stream| Seq(stream.acked)))
    }

    fn is_there(&mut self, _: usize, entry: &Entry) -> Result<bool, Infallible> {
        let place = (entry.source, &entry.item.identity, entry.item.partition);
        let mut waiting = self.waiting();
        Ok(waiting.any(|(source, item)| (source, &item.identity, item.partition) == place))
    }
}

impl Model {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn waiting(&self) -> impl Iterator<Item = (Source, &Item)> {
        let log = self.streams.values().flat_map(|stream| &stream.items);
        log.map(|(seq, item)| (Source::Log(Seq(*seq)), item))
            .chain(self.timers.iter().map(|(id, item)| (Source::Timer(*id), item)))
            .chain(self.retries.iter().map(|(id, item)| (Source::Retry(*id), item)))
    }

    fn waits(&self, identity: &Identity) -> bool {
        self.waiting().any(|(_, item)| item.identity == *identity)
    }

    fn known(&self, identity: &Identity, version: &str) -> Known {
        let open = |letter: &DeadLetter| {
            let item = &letter.item;
            item.identity == *identity && item.version == version && letter.is_open()
        };
        let found = Found {
            waits: self.waits(identity),
            settled: self.blocked.get(identity).is_some_and(|of| of.contains_key(version)),
            dead: self.letters.values().any(open),
        };
        found.known()
    }

    fn plan(&mut self, page: &PlanPage) {
        let identity = |at: usize| {
            let Candidate { tenant, key, due, .. } = page.candidates[at].clone();
            Identity { task: page.task.clone(), tenant, key, due }
        };
        let known = |at: usize, _| {
            Ok::<_, Infallible>(self.known(&identity(at), &page.candidates[at].version))
        };
        let Admitted { items, logged, cursor, tally, planned } =
            admit(page, PARTITIONS, known).unwrap();
        let asked = planned.planned + planned.deduplicated + planned.blocked + planned.left;
        assert_eq!(asked, page.candidates.len() as u64, "every candidate is counted once");
        assert!(planned.planned <= page.quota);
        assert_eq!(planned.left > 0, cursor == CursorMove::Stay, "what is left is scanned again");
        for new in items {
            let item = new.item(page, Time::EPOCH);
            *self.planned.entry(item.identity.clone()).or_default() += 1;
            if item.identity.due.is_some() {
                let id = self.number();
                self.timers.insert(id, item);
                continue;
            }
            let stream = self.streams.entry(item.partition).or_default();
            stream.tail += 1;
            stream.items.insert(stream.tail, item);
        }
        let run = self.runs.entry(page.run).or_default();
        *run = (run.0 + logged as i64, run.1 + planned.planned as i64);
        self.add(&tally);
    }

    /// A batch of the items that wait: the first ones of each stream, and some of the others.
    fn batch(&self, picks: &[(u8, u8)]) -> (Vec<Entry>, Vec<Judged>) {
        let mut gap = BTreeSet::new();
        let (mut entries, mut judged) = (Vec::new(), Vec::new());
        for ((source, item), (what, how)) in self.waiting().zip(picks.iter().cycle()) {
            let logged = matches!(source, Source::Log(_));
            if *how == 2 || (logged && gap.contains(&item.partition)) {
                gap.insert(item.partition);
                continue;
            }
            let reason = String::from("so");
            let settle = match what {
                0 | 1 => Settle::Skip { reason, settled: *what == 1 },
                2 => Settle::Dead { attempts: 1, reason },
                _ => Settle::Retry { run_at: Time::EPOCH, attempts: 1, guard_retries: 0, reason },
            };
            let decision = match how {
                0 => apply(Vec::new(), settle),
                _ => Decision::Settle(settle),
            };
            judged.push(match what % 3 {
                0 => Judged::Held,
                1 => Judged::GuardFailed,
                _ => Judged::Violated("said".into()),
            });
            let (item, epoch) = (item.clone(), OwnerEpoch(1));
            entries.push(Entry { source, item, epoch, decision });
        }
        (entries, judged)
    }

    fn settle(&mut self, entries: &[Entry], judged: &[Judged], blocks: Blocks) {
        let node = Incarnation::from(NODE);
        let left = left_out(entries, &node, Time::EPOCH, self).unwrap();
        let judged: Vec<_> = left
            .into_iter()
            .zip(judged)
            .map(|(left, judged)| left.map_or_else(|| Ok(judged.clone()), Err))
            .collect();
        let Closed { writes, mut tally, outcomes } =
            close(entries, judged, |_| blocks, &Incarnation::from("n"));
        assert_eq!(outcomes.len(), entries.len());
        self.write(writes, &mut tally);
        self.add(&tally);
    }

    fn write<'a>(&mut self, writes: Vec<Write<'a>>, tally: &mut Tally<'a>) {
        for write in writes {
            match write {
                Write::Remove { item, source } => {
                    self.take(item, source);
                }
                Write::Retry { item, source, .. } => {
                    let (id, item) = (self.number(), self.take(item, source));
                    self.retries.insert(id, item);
                }
                Write::SetAside { item, source, .. } => {
                    let (id, item) = (self.number(), self.take(item, source));
                    let letter = DeadLetter {
                        id,
                        item,
                        at: Time::EPOCH,
                        resolved_at: None,
                        context: LetterContext::default(),
                    };
                    self.letters.insert(id, letter);
                }
                Write::Acknowledge { partition, after, upto, .. } => {
                    let stream = self.streams.get_mut(&partition).expect("a stream");
                    assert_eq!(stream.acked, after.0, "the cursor moves without a gap");
                    stream.acked = upto.0;
                }
                Write::History { item, end, .. } => {
                    self.history.push((item.identity.clone(), end));
                }
                Write::Emit { .. } => {}
                Write::Lift { item } => {
                    self.blocked.remove(&item.identity);
                }
                Write::Resolve { item } => {
                    for letter in self.letters.values_mut() {
                        let same = letter.item.identity == item.identity;
                        if same && letter.is_open() {
                            letter.resolved_at = Some(Time::EPOCH);
                            tally.resolved(&item.identity, letter.item.run);
                        }
                    }
                }
                Write::Block { item, given_up } => {
                    let versions = self.blocked.entry(item.identity.clone()).or_default();
                    *versions.entry(item.version.clone()).or_default() |= given_up;
                }
                Write::Revive { letter, item, .. } => {
                    if !self.waits(&item.identity) {
                        let id = self.number();
                        let letter = self.letters.remove(&letter).expect("a letter");
                        self.retries.insert(id, letter.item);
                        tally.revived(&item.identity);
                    }
                }
                Write::Discard { letter } => {
                    self.letters.remove(&letter).expect("a letter");
                }
            }
        }
    }

    fn take(&mut self, item: &Item, source: Source) -> Item {
        let taken = match source {
            Source::Log(seq) => {
                self.streams.get_mut(&item.partition).and_then(|of| of.items.remove(&seq.0))
            }
            Source::Timer(id) => self.timers.remove(&id),
            Source::Retry(id) => self.retries.remove(&id),
            Source::Unqueued(_) => None,
        };
        taken.expect("the item waits there")
    }

    fn add(&mut self, tally: &Tally<'_>) {
        for ((_, tenant), more) in &tally.counters {
            let sum = self.counters.entry(tenant.map(|t| t.as_str().to_owned())).or_default();
            *sum = Delta {
                planned: sum.planned + more.planned,
                committed: sum.committed + more.committed,
                skipped: sum.skipped + more.skipped,
                dead: sum.dead + more.dead,
                resolved: sum.resolved + more.resolved,
                discarded: sum.discarded + more.discarded,
                log: sum.log + more.log,
                timers: sum.timers + more.timers,
                retries: sum.retries + more.retries,
                undo_bytes: sum.undo_bytes + more.undo_bytes,
                rows: sum.rows + more.rows,
            };
        }
        for (run, leaving) in &tally.runs {
            let run = self.runs.entry(*run).or_default();
            *run = (run.0 - leaving.log, run.1 - leaving.ended);
        }
    }

    fn open_letters(&self, of: u8) -> Vec<DeadLetter> {
        let chosen = self.letters.values().rev().filter(|letter| letter.is_open());
        chosen.filter(|letter| of >> (letter.id % 8) & 1 == 1).cloned().collect()
    }

    /// Recounts everything.
    fn audit(&self) {
        let mut recounted = Counters::new();
        let mut runs: BTreeMap<RunId, (i64, i64)> = BTreeMap::new();
        let mut found: BTreeMap<&Identity, usize> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (source, item) in self.waiting() {
            assert!(seen.insert(&item.identity), "{:?} waits twice", item.identity);
            let run = runs.entry(item.run).or_default();
            run.1 += 1;
            *found.entry(&item.identity).or_default() += 1;
            match source {
                Source::Log(_) => {
                    run.0 += 1;
                    count(&mut recounted, &item.identity, |sum| sum.log += 1);
                }
                Source::Timer(_) => count(&mut recounted, &item.identity, |sum| sum.timers += 1),
                Source::Retry(_) => count(&mut recounted, &item.identity, |sum| sum.retries += 1),
                Source::Unqueued(_) => unreachable!("it waits nowhere"),
            }
        }
        for letter in self.letters.values() {
            count(&mut recounted, &letter.item.identity, |sum| sum.dead += 1);
            *found.entry(&letter.item.identity).or_default() += 1;
            match letter.resolved_at {
                None => runs.entry(letter.item.run).or_default().1 += 1,
                Some(_) => {
                    recounted.entry(account(&letter.item.identity)).or_default().resolved += 1;
                }
            }
        }
        for (identity, end) in &self.history {
            match end {
                End::Committed => count(&mut recounted, identity, |sum| sum.committed += 1),
                End::Skipped => count(&mut recounted, identity, |sum| sum.skipped += 1),
                End::Discarded => count(&mut recounted, identity, |sum| sum.discarded += 1),
                End::Dead => continue,
                End::Unknown => unreachable!("no item ends so"),
            }
            *found.entry(identity).or_default() += 1;
        }
        assert_eq!(self.counters, recounted, "the counters equal their recount");
        let open = |(_, run): &(&RunId, &(i64, i64))| **run != (0, 0);
        assert!(self.runs.iter().filter(open).eq(runs.iter()), "{:?} {runs:?}", self.runs);
        let planned: BTreeMap<&Identity, usize> =
            self.planned.iter().map(|(identity, times)| (identity, *times)).collect();
        assert_eq!(planned, found, "every planned item is in one place, or has ended once");
        for stream in self.streams.values() {
            assert!(stream.items.keys().copied().eq(stream.acked + 1..=stream.tail), "a gap");
        }
    }
}

type Counters = BTreeMap<Option<String>, Delta>;

fn account(identity: &Identity) -> Option<String> {
    identity.tenant.as_ref().map(|tenant| tenant.as_str().to_owned())
}

/// Counts a planned item where it was found.
fn count(recounted: &mut Counters, identity: &Identity, add: fn(&mut Delta)) {
    let sum = recounted.entry(account(identity)).or_default();
    sum.planned += 1;
    add(sum);
}

fn page(run: u64, picks: &[(u8, bool, bool, bool)], quota: u64) -> PlanPage {
    let candidate = |(key, tenant, due, version): &(u8, bool, bool, bool)| Candidate {
        tenant: tenant.then(|| "a".into()),
        key: key.to_string(),
        route: key.to_string(),
        due: due.then_some(Time::EPOCH),
        version: version.to_string(),
        payload: Vec::new(),
    };
    PlanPage {
        run: RunId(run),
        task: "t".into(),
        tenant: None,
        candidates: picks.iter().map(candidate).collect(),
        cursor: None,
        scanned: 0,
        quota,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_balance_and_every_item_ends_once(steps in steps()) {
        let mut model = Model::default();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Plan { picks, quota } => model.plan(&page(1 + at as u64 / 4, picks, *quota)),
                Step::Settle { items, repeat } => {
                    let (entries, judged) = model.batch(items);
                    // A store that knows what blocks gets the same result as one that does not.
                    let exact = Blocks {
                        settled: !model.blocked.is_empty(),
                        dead: model.letters.values().any(DeadLetter::is_open),
                    };
                    let mut knowing = model.clone();
                    knowing.settle(&entries, &judged, exact);
                    model.settle(&entries, &judged, Blocks::UNKNOWN);
                    prop_assert_eq!(&knowing, &model);
                    if *repeat {
                        knowing.settle(&entries, &judged, Blocks::UNKNOWN);
                        prop_assert_eq!(&knowing, &model, "a repetition changes nothing");
                    }
                }
                Step::Unqueued { pick: (key, tenant), how } => {
                    let identity = Identity {
                        task: "t".into(),
                        tenant: tenant.then(|| "a".into()),
                        key: key.to_string(),
                        due: None,
                    };
                    let Decision::Apply { proposal, .. } =
                        apply(Vec::new(), Settle::Skip { reason: "so".into(), settled: false })
                    else {
                        unreachable!("it is applied")
                    };
                    *model.planned.entry(identity.clone()).or_default() += 1;
                    let entry =
                        Entry::unqueued(Term(1), identity, Time::EPOCH, proposal, "refused", false);
                    let judged = match how {
                        0 => Judged::Held,
                        1 => Judged::GuardFailed,
                        _ => Judged::Violated("said".into()),
                    };
                    model.settle(&[entry], &[judged], Blocks::UNKNOWN);
                }
                Step::Retry { of } => {
                    let letters = model.open_letters(*of);
                    let mut tally = Tally::default();
                    model.write(retry(&letters, None, Time::EPOCH), &mut tally);
                    model.add(&tally);
                }
                Step::Discard { of } => {
                    let letters = model.open_letters(*of);
                    let (writes, mut tally) = discard(&letters, "why");
                    model.write(writes, &mut tally);
                    model.add(&tally);
                    for DeadLetter { item, .. } in &letters {
                        let known = model.known(&item.identity, &item.version);
                        prop_assert_ne!(known, Known::New, "a discard blocks its version");
                    }
                }
            }
            model.audit();
        }
    }
}
