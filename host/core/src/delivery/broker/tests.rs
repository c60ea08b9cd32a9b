//! The machine of a topic with a broker, and a world around it in which anything may fail.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const SEC: Duration = Duration::from_secs(1);

fn rules(batch: u32) -> Rules {
    let (backoff, backoff_max) = (SEC, SEC * 8);
    Rules { batch, batch_bytes: 1 << 20, backoff, backoff_max, poll: SEC }
}

fn message(id: u64, key: &str, sequence: u64) -> Claimed {
    Claimed { key: key.into(), sequence, ..super::super::tests::message(id, "t") }
}

fn step(machine: &mut Machine, seconds: u64, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    let now = Mono::START + SEC * u32::try_from(seconds).unwrap();
    machine.step(now, event, &mut || 0, &mut out);
    out
}

fn read(known: &[u64]) -> Command {
    read_without(known, &[])
}

fn read_without(known: &[u64], held: &[&str]) -> Command {
    Command::Read { known: known.to_vec(), held: held.iter().copied().map(of).collect() }
}

fn of(key: &str) -> Sequence {
    Sequence { tenant: None, key: key.into() }
}

fn again(error: &str) -> End {
    super::again(error.into())
}

fn delivered(id: u64) -> (u64, End) {
    (id, End::Delivered(None))
}

fn large() -> Fate {
    Fate::Held("too large".into())
}

fn held(machine: &Machine) -> Vec<(&str, &str)> {
    machine.held().map(|(sequence, error)| (sequence.key.as_str(), error)).collect()
}

fn at(millis: u64) -> Option<Mono> {
    Some(Mono::START + Duration::from_millis(millis))
}

#[test]
fn a_message_that_cannot_be_taken_holds_up_its_key_alone() {
    let mut machine = Machine::new(rules(4), Mono::START);
    step(&mut machine, 0, Event::Tick);
    let first = vec![message(1, "a", 1), message(2, "b", 1), message(3, "a", 2)];
    step(&mut machine, 0, Event::Read(Ok(first)));
    let ahead = vec![message(4, "a", 3), message(5, "b", 2)];
    assert_eq!(step(&mut machine, 0, Event::Read(Ok(ahead))), []);
    let fates = vec![large(), Fate::Accepted, Fate::Behind];
    let noted = Command::Note(vec![(1, again("too large")), delivered(2)]);
    let sent = step(&mut machine, 0, Event::Sent(fates));
    assert_eq!(sent, [noted, Command::Send(vec![message(5, "b", 2)])]);
    assert_eq!(held(&machine), [("a", "too large")]);
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), [read_without(&[5], &["a"])]);
    assert_eq!(step(&mut machine, 0, Event::Read(Ok(vec![]))), []);
    let noted = Command::Note(vec![delivered(5)]);
    assert_eq!(step(&mut machine, 0, Event::Sent(vec![Fate::Accepted])), [noted]);
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), []);
    // Each pause is twice as long, and half of it is random.
    assert_eq!(machine.deadline(), at(500));
    let all: Vec<_> = [(1, 1), (3, 2), (4, 3)].map(|(id, no)| message(id, "a", no)).into();
    for (seconds, pause) in [(1, 1_000), (2, 2_000), (4, 4_000), (8, 4_000), (12, 4_000)] {
        assert_eq!(step(&mut machine, seconds, Event::Tick), [read(&[])]);
        let sent = step(&mut machine, seconds, Event::Read(Ok(all.clone())));
        assert_eq!(sent[0], Command::Send(all.clone()));
        step(&mut machine, seconds, Event::Read(Ok(vec![])));
        let fates = vec![large(), Fate::Behind, Fate::Behind];
        let noted = Command::Note(vec![(1, again("too large"))]);
        assert_eq!(step(&mut machine, seconds, Event::Sent(fates)), [noted]);
        assert_eq!(machine.held[&of("a")].until, at(seconds * 1_000 + pause));
        assert_eq!(step(&mut machine, seconds, Event::Noted(Ok(()))), []);
    }
    step(&mut machine, 16, Event::Tick);
    step(&mut machine, 16, Event::Read(Ok(all)));
    assert_eq!(held(&machine), [("a", "too large")], "until something of it arrives");
    let fates = vec![Fate::Accepted, large(), Fate::Behind];
    let noted = Command::Note(vec![delivered(1), (3, again("too large"))]);
    assert_eq!(step(&mut machine, 16, Event::Sent(fates)), [noted]);
    assert_eq!(machine.held[&of("a")].until, at(16_500), "the pauses begin anew");
}

#[test]
fn a_key_of_another_tenant_is_another() {
    let mut machine = Machine::new(rules(2), Mono::START);
    step(&mut machine, 0, Event::Tick);
    let other = Claimed { tenant: Some("p".into()), ..message(2, "a", 1) };
    step(&mut machine, 0, Event::Read(Ok(vec![message(1, "a", 1)])));
    step(&mut machine, 0, Event::Read(Ok(vec![other.clone(), message(3, "a", 2)])));
    let sent = step(&mut machine, 0, Event::Sent(vec![large()]));
    assert_eq!(sent[1..], [Command::Send(vec![other])]);
}

/// Its answer cannot know of the hold, even if it arrives after the pause.
#[test]
fn a_read_under_way_has_nothing_of_a_key_that_is_held_meanwhile() {
    for seconds in [0, 9] {
        let mut machine = Machine::new(rules(3), Mono::START);
        step(&mut machine, 0, Event::Tick);
        let sent = step(&mut machine, 0, Event::Read(Ok(vec![message(1, "a", 1)])));
        assert_eq!(sent[1], read(&[1]));
        step(&mut machine, 0, Event::Sent(vec![large()]));
        step(&mut machine, 0, Event::Noted(Ok(())));
        let late = vec![message(2, "a", 2), message(3, "b", 1)];
        let then = step(&mut machine, seconds, Event::Read(Ok(late)));
        let held = if seconds == 0 { &["a"][..] } else { &[] };
        let sent = Command::Send(vec![message(3, "b", 1)]);
        assert_eq!(then, [sent, read_without(&[3], held)]);
    }
}

/// Without a wait for the next poll, or for those of which nothing more is read.
#[test]
fn a_key_whose_pause_ends_during_a_read_is_read_next() {
    let mut machine = Machine::new(rules(3), Mono::START);
    step(&mut machine, 0, Event::Tick);
    step(&mut machine, 0, Event::Read(Ok(vec![message(1, "a", 1)])));
    step(&mut machine, 0, Event::Read(Ok(vec![])));
    step(&mut machine, 0, Event::Sent(vec![large()]));
    step(&mut machine, 0, Event::Noted(Ok(())));
    machine.look_at = Mono::START;
    assert_eq!(step(&mut machine, 0, Event::Tick), [read_without(&[], &["a"])]);
    assert_eq!(step(&mut machine, 1, Event::Read(Ok(vec![]))), [read(&[])]);
    assert_eq!(held(&machine).len(), 1, "it may be there still");
    assert_eq!(step(&mut machine, 1, Event::Read(Ok(vec![]))), []);
    assert_eq!(held(&machine), [], "somebody has discarded it");
}

#[test]
fn a_message_of_one_key_too_many_holds_up_the_topic() {
    let many = u32::try_from(HELD_MAX).unwrap() + 2;
    let mut machine = Machine::new(rules(many), Mono::START);
    step(&mut machine, 0, Event::Tick);
    let all: Vec<_> = (1..=many).map(|n| message(n.into(), &n.to_string(), 1)).collect();
    step(&mut machine, 0, Event::Read(Ok(all)));
    step(&mut machine, 0, Event::Read(Ok(vec![message(500, "other", 1)])));
    let mut fates = vec![large(); HELD_MAX + 1];
    fates.push(Fate::Accepted);
    let commands = step(&mut machine, 0, Event::Sent(fates));
    let [Command::Note(ends)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((ends.len(), held(&machine).len()), (HELD_MAX + 2, HELD_MAX));
    assert!(ends.contains(&delivered(many.into())), "it is not sent again");
    assert!(ends.contains(&(u64::from(many) - 1, again("too large"))));
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), []);
    assert_eq!(machine.deadline(), at(500), "the pause of the topic");
}

#[test]
fn the_next_batch_is_read_while_one_is_sent_and_another_recorded() {
    let mut machine = Machine::new(rules(2), Mono::START);
    assert_eq!(step(&mut machine, 0, Event::Tick), [read(&[])]);
    let first = vec![message(1, "a", 1), message(2, "b", 1)];
    let sent = step(&mut machine, 0, Event::Read(Ok(first.clone())));
    assert_eq!(sent, [Command::Send(first), read(&[1, 2])]);
    let second = vec![message(3, "a", 2)];
    assert_eq!(step(&mut machine, 0, Event::Read(Ok(second.clone()))), []);
    let accepted = Event::Sent(vec![Fate::Accepted, Fate::Accepted]);
    let noted = vec![(1, End::Delivered(None)), (2, End::Delivered(None))];
    let commands = step(&mut machine, 0, accepted);
    assert_eq!(commands, [Command::Note(noted), Command::Send(second), read(&[3, 1, 2])]);
    assert_eq!(step(&mut machine, 0, Event::Read(Ok(vec![]))), []);
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), []);
    let noted = Command::Note(vec![(3, End::Delivered(None))]);
    assert_eq!(step(&mut machine, 0, Event::Sent(vec![Fate::Accepted])), [noted]);
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), []);
    // Nothing was found a second ago.
    assert_eq!(machine.deadline(), Some(Mono::START + SEC));
}

/// A broker that rejects whatever contains one message.
#[test]
fn a_message_that_a_broker_cannot_take_is_soon_alone_and_what_is_before_it_arrives() {
    let mut machine = Machine::new(rules(8), Mono::START);
    let (culprit, mut pending): (u64, Vec<u64>) = (6, (1..=12).collect());
    let (mut sizes, mut blamed) = (Vec::new(), None);
    let mut events = VecDeque::from([Event::Tick]);
    for seconds in 0..60 {
        events.push_back(Event::Tick);
        while let Some(event) = events.pop_front() {
            for command in step(&mut machine, seconds, event) {
                match command {
                    Command::Read { known, .. } => {
                        let next = pending.iter().filter(|id| !known.contains(id)).take(8);
                        let next = next.map(|id| message(*id, "a", *id)).collect();
                        events.push_back(Event::Read(Ok(next)));
                    }
                    Command::Send(batch) => {
                        sizes.push(batch.len());
                        let bad = batch.iter().any(|message| message.id == culprit);
                        events.push_back(Event::Sent(match bad {
                            true => vec![Fate::Unknown("too large".into())],
                            false => batch.iter().map(|_| Fate::Accepted).collect(),
                        }));
                    }
                    Command::Note(results) => {
                        for (id, end) in results {
                            match end {
                                End::Again { .. } => blamed = Some(id),
                                _ => pending.retain(|pending| *pending != id),
                            }
                        }
                        events.push_back(Event::Noted(Ok(())));
                    }
                }
            }
        }
    }
    assert_eq!((blamed, pending[0]), (Some(culprit), culprit));
    assert_eq!(sizes[..7], [8, 4, 4, 2, 1, 2, 1], "then only the message itself");
    assert!(sizes[7..].iter().all(|size| *size == 1), "{sizes:?}");
}

#[test]
fn what_follows_an_unconfirmed_message_is_sent_again_after_a_pause() {
    let mut machine = Machine::new(rules(3), Mono::START);
    step(&mut machine, 0, Event::Tick);
    let all: Vec<_> = (1..=3).map(|n| message(n, "a", n)).collect();
    step(&mut machine, 0, Event::Read(Ok(all.clone())));
    let ahead = vec![message(4, "a", 4)];
    step(&mut machine, 0, Event::Read(Ok(ahead)));
    let fates = vec![Fate::Accepted, Fate::Unknown("away".into())];
    let noted = Command::Note(vec![delivered(1), (2, again("away"))]);
    assert_eq!(step(&mut machine, 0, Event::Sent(fates)), [noted], "what was read is void");
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), []);
    let until = machine.deadline().expect("a pause");
    assert!(until > Mono::START && until <= Mono::START + SEC, "{until:?}");
    assert_eq!(step(&mut machine, 1, Event::Tick), [read(&[])]);
    let rest: Vec<_> = (2..=4).map(|n| message(n, "a", n)).collect();
    let sent = step(&mut machine, 1, Event::Read(Ok(rest.clone())));
    assert_eq!(sent, [Command::Send(rest[..1].to_vec())], "half of the batch that failed");
    let done = step(&mut machine, 1, Event::Sent(vec![Fate::Accepted]));
    assert!(done.contains(&Command::Send(rest[1..].to_vec())), "{done:?}");
}

#[test]
fn a_read_that_overlaps_with_a_failure_is_not_used() {
    let mut machine = Machine::new(rules(1), Mono::START);
    step(&mut machine, 0, Event::Tick);
    let sent = step(&mut machine, 0, Event::Read(Ok(vec![message(1, "a", 1)])));
    assert_eq!(sent[1], read(&[1]));
    step(&mut machine, 0, Event::Sent(vec![]));
    let late = Event::Read(Ok(vec![message(2, "a", 2)]));
    assert_eq!(step(&mut machine, 0, late), []);
    assert_eq!(step(&mut machine, 0, Event::Noted(Ok(()))), []);
    assert_eq!(step(&mut machine, 1, Event::Tick), [read(&[])]);
}

#[test]
fn a_stale_leader_begins_nothing() {
    for fenced in [Event::Read(Err(Refused::Fenced)), Event::Noted(Err(Refused::Fenced))] {
        let mut machine = Machine::new(rules(1), Mono::START);
        step(&mut machine, 0, Event::Tick);
        assert_eq!(step(&mut machine, 0, fenced), []);
        assert!(machine.is_over() && machine.deadline().is_none());
    }
}

/// The store and the broker around a machine.
struct World {
    pending: BTreeMap<u64, Claimed>,
    given_up: Vec<u64>,
    log: Vec<Claimed>,
    /// Answers that have not arrived.
    answers: VecDeque<Event>,
    /// Whether the broker takes large messages by now.
    is_raised: bool,
}

fn is_large(message: &Claimed) -> bool {
    message.id % 5 == 3
}

impl World {
    fn perform(&mut self, command: Command, luck: u8) {
        let event = match command {
            Command::Read { known, held } => {
                let waits = |m: &Claimed| known.contains(&m.id) || held.contains(&m.of());
                let rest = self.pending.values().filter(|m| !waits(m));
                match luck % 8 {
                    0 => Event::Read(Err(Refused::Later)),
                    _ => Event::Read(Ok(rest.take(3).cloned().collect())),
                }
            }
            Command::Note(ends) => {
                // An unknown result: recorded, and answered as if it were not.
                if luck % 8 != 1 {
                    for (id, end) in ends {
                        if !matches!(end, End::Again { .. })
                            && self.pending.remove(&id).is_some()
                            && matches!(end, End::GivenUp { .. })
                        {
                            self.given_up.push(id);
                        }
                    }
                }
                let failed = matches!(luck % 8, 0 | 1);
                Event::Noted(if failed { Err(Refused::Later) } else { Ok(()) })
            }
            Command::Send(batch) => {
                // The broker keeps a prefix, and confirms a prefix of it.
                let kept =
                    if luck.is_multiple_of(4) { usize::from(luck / 4) % 4 } else { batch.len() };
                let kept = kept.min(batch.len());
                let confirmed =
                    if luck.is_multiple_of(3) { kept.min(usize::from(luck) % 3) } else { kept };
                let (mut fates, mut held) = (Vec::new(), BTreeSet::new());
                for (at, message) in batch.into_iter().enumerate().take(kept) {
                    let fate = match message.id % 11 == 10 {
                        _ if held.contains(&message.of()) => Fate::Behind,
                        _ if is_large(&message) && !self.is_raised => {
                            held.insert(message.of());
                            // Somebody discards it.
                            if luck % 16 == 7 && self.pending.remove(&message.id).is_some() {
                                self.given_up.push(message.id);
                            }
                            large()
                        }
                        true => Fate::Refused("no".into()),
                        false => {
                            self.log.push(message);
                            Fate::Accepted
                        }
                    };
                    if at < confirmed {
                        fates.push(fate);
                    }
                }
                Event::Sent(fates)
            }
        };
        self.answers.push_back(event);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Whatever fails and whichever answer comes first: every message is in the broker's log or
    /// given up, and the first copies of a key's messages are in their order.
    #[test]
    fn nothing_is_lost_and_every_key_is_in_order(
        keys in prop::collection::vec(0..4_u8, 1..30),
        luck in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let mut sequences = BTreeMap::<u8, u64>::new();
        let pending = keys.iter().zip(1_u64..).map(|(key, id)| {
            let sequence = sequences.entry(*key).or_default();
            *sequence += 1;
            (id, message(id, &key.to_string(), *sequence))
        });
        let mut world = World {
            pending: pending.collect(),
            given_up: Vec::new(),
            log: Vec::new(),
            answers: VecDeque::new(),
            is_raised: false,
        };
        let mut machine = Machine::new(rules(3), Mono::START);
        let mut left = luck.len();
        // Afterwards nothing fails, and large messages are taken.
        let mut luck = luck.into_iter().chain(std::iter::repeat(5));
        let (mut now, mut event) = (Mono::START, Event::Tick);
        for _ in 0..5_000 {
            let mut out = Vec::new();
            machine.step(now, event, &mut || 0, &mut out);
            for command in out {
                left = left.saturating_sub(1);
                world.is_raised = left == 0;
                world.perform(command, luck.next().unwrap());
            }
            let at = usize::from(luck.next().unwrap()) % world.answers.len().max(1);
            event = world.answers.remove(at).unwrap_or(Event::Tick);
            if world.answers.is_empty() && let Some(deadline) = machine.deadline() {
                now = now.max(deadline);
            }
            if world.pending.is_empty() {
                break;
            }
        }
        prop_assert!(world.pending.is_empty(), "{:?}", machine);
        for key in 0..4_u8 {
            let key = key.to_string();
            let mut last = 0;
            for message in world.log.iter().filter(|message| message.key == key) {
                let missing = last + 1..message.sequence;
                let given_up = |sequence: u64| {
                    let of = keys.iter().zip(1_u64..).filter(|(of, _)| of.to_string() == key);
                    let id = of.map(|(_, id)| id).nth(usize::try_from(sequence).unwrap() - 1);
                    id.is_some_and(|id| world.given_up.contains(&id))
                };
                prop_assert!(missing.into_iter().all(given_up), "{:?}", world.log);
                last = last.max(message.sequence);
            }
        }
    }
}
