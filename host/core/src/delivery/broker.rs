//! Decides how the messages of one topic reach a broker, which accepts many at once and keeps their
//! order.
//!
//! ```text
//!  pending ──Read──> ahead ──Send──> sending ──accepted──> ended ──Note──> delivered │ given up
//!     ^                │                │
//!     └────────────────┴── not confirmed: read again from the first, after a pause
//! ```
//!
//! Messages are read in the order of their sequences and sent in one batch at a time, so that what a
//! broker has accepted is always a prefix of what was sent. If the result of a message is unknown,
//! everything from it on is read and sent again: a message can arrive twice, and never after a later
//! one of its sequence for the first time. While one batch is sent, the next is read and the results
//! of the previous one are recorded.
//!
//! A batch that is not accepted is halved, and each one that is accepted allows twice as many, up to the
//! configured number: a message that the broker cannot take is soon alone and gets the error, and those
//! before it arrive.
//!
//! A broker that is away uses no attempts: its messages wait, and nothing is given up but what the
//! broker refuses for good.

use std::time::Duration;

use super::message::{Claimed, End, Fate};
use super::{Refused, STORE_RETRY, bounded};
use crate::backoff::{Backoff, Jitter};
use crate::time::Mono;

/// How many batches may be between their reading and the recording of their results.
const BATCHES_MAX: usize = 4;

/// The delivery rules of a topic with a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Maximum number of messages in one batch.
    pub batch: u32,
    /// Maximum size of the payloads of one batch, in bytes; a larger message is a batch of its own.
    pub batch_bytes: u64,
    /// The wait after the first failure; it doubles with each further failure.
    pub backoff: Duration,
    /// The upper bound of the wait.
    pub backoff_max: Duration,
    /// How often messages are looked for when there were none.
    pub poll: Duration,
}

/// An input of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The answer to [`Command::Read`].
    Read(Result<Vec<Claimed>, Refused>),
    /// The answer to [`Command::Send`]: what became of each message, in the order of the batch.
    Sent(Vec<Fate>),
    /// The answer to [`Command::Note`].
    Noted(Result<(), Refused>),
}

/// An output of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Read the first pending messages of the topic, except those that are known.
    Read {
        /// The messages that are sent already, or whose results are being recorded.
        known: Vec<u64>,
    },
    /// Send a batch in this order.
    Send(Vec<Claimed>),
    /// Record the results of messages.
    Note(Vec<(u64, End)>),
}

/// Delivery of one topic under one leadership.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    reading: bool,
    /// The answer to the read may contain messages that follow one whose result is unknown.
    read_void: bool,
    /// Read, and sent next.
    ahead: Vec<Claimed>,
    /// The batch that is being sent.
    sending: Vec<u64>,
    /// Results that are not recorded yet.
    ended: Vec<(u64, End)>,
    /// Results that are being recorded.
    noting: Vec<(u64, End)>,
    look_at: Mono,
    send_at: Mono,
    note_at: Mono,
    /// Batches in a row that were not accepted as a whole.
    failures: u32,
    /// Maximum number of messages in the next batch.
    most: usize,
    fenced: bool,
}

impl Machine {
    /// A machine that looks for messages immediately.
    pub fn new(rules: Rules, now: Mono) -> Machine {
        Machine {
            most: rules.batch as usize,
            rules,
            reading: false,
            read_void: false,
            ahead: Vec::new(),
            sending: Vec::new(),
            ended: Vec::new(),
            noting: Vec::new(),
            look_at: now,
            send_at: now,
            note_at: now,
            failures: 0,
            fenced: false,
        }
    }

    /// Whether another node leads: nothing new is begun.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The latest time of the next step; none: only an answer can change anything.
    pub fn deadline(&self) -> Option<Mono> {
        if self.fenced {
            return None;
        }
        let send = self.may_send().then_some(self.send_at);
        let read = self.may_read().then_some(self.look_at.max(self.send_at));
        let note = self.may_note().then_some(self.note_at);
        send.into_iter().chain(read).chain(note).min()
    }

    /// Handles an event and pushes the resulting commands. `random` is uniformly distributed.
    pub fn step(
        &mut self,
        now: Mono,
        event: Event,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        match event {
            Event::Tick => {}
            Event::Read(read) => self.on_read(now, read),
            Event::Sent(fates) => self.on_sent(now, fates, random()),
            Event::Noted(noted) => self.on_noted(now, noted),
        }
        if self.fenced {
            return;
        }
        if self.may_note() && now >= self.note_at {
            self.noting = std::mem::take(&mut self.ended);
            out.push(Command::Note(self.noting.clone()));
        }
        if self.may_send() && now >= self.send_at {
            let mut batch = std::mem::take(&mut self.ahead);
            self.ahead = batch.split_off(self.most.clamp(1, batch.len()));
            self.sending = batch.iter().map(|message| message.id).collect();
            out.push(Command::Send(batch));
        }
        if self.may_read() && now >= self.look_at && now >= self.send_at {
            self.reading = true;
            self.read_void = false;
            out.push(Command::Read { known: self.known() });
        }
    }

    fn may_note(&self) -> bool {
        !self.ended.is_empty() && self.noting.is_empty()
    }

    fn may_send(&self) -> bool {
        self.sending.is_empty() && !self.ahead.is_empty()
    }

    fn may_read(&self) -> bool {
        // While it is known, the message that is sent again next would be left out.
        let mut results = self.ended.iter().chain(&self.noting);
        if results.any(|(_, end)| matches!(end, End::Again { .. })) {
            return false;
        }
        let under_way = self.sending.len() + self.ended.len() + self.noting.len();
        let room = (self.rules.batch as usize).saturating_mul(BATCHES_MAX - 1);
        !self.reading && self.ahead.is_empty() && under_way <= room
    }

    fn known(&self) -> Vec<u64> {
        let results = self.ended.iter().chain(&self.noting).map(|(id, _)| *id);
        self.sending.iter().copied().chain(results).collect()
    }

    fn on_read(&mut self, now: Mono, read: Result<Vec<Claimed>, Refused>) {
        self.reading = false;
        match read {
            Ok(_) if self.read_void => self.look_at = now,
            Ok(messages) => {
                self.look_at = if messages.is_empty() { now + self.rules.poll } else { now };
                self.ahead = messages;
            }
            Err(Refused::Fenced) => self.fenced = true,
            Err(Refused::Later) => self.look_at = now + STORE_RETRY.max(self.rules.poll),
        }
    }

    fn on_sent(&mut self, now: Mono, fates: Vec<Fate>, random: u64) {
        let sent = std::mem::take(&mut self.sending);
        let many = sent.len();
        let mut fates = fates.into_iter();
        let mut failed = None;
        for id in sent {
            match fates.next() {
                Some(Fate::Accepted) => self.ended.push((id, End::Delivered(None))),
                Some(Fate::Refused(error)) => {
                    self.ended.push((id, End::GivenUp { error: bounded(error), reply: None }));
                }
                Some(Fate::Unknown(error)) => {
                    failed = Some((id, error));
                    break;
                }
                None => {
                    failed = Some((id, "the broker has not confirmed the message".to_owned()));
                    break;
                }
            }
        }
        let Some((id, error)) = failed else {
            self.failures = 0;
            self.most = self.most.saturating_mul(2).min(self.rules.batch as usize);
            return;
        };
        let jitter = Jitter::HalfShorter;
        let waits = Backoff { first: self.rules.backoff, max: self.rules.backoff_max, jitter };
        let pause = waits.pause(self.failures, random);
        self.failures = self.failures.saturating_add(1);
        self.most = (many / 2).max(1);
        self.send_at = now + pause;
        // Shown with the message; the pause is the machine's own.
        self.ended.push((id, End::Again { after: Duration::ZERO, error: bounded(error) }));
        self.ahead.clear();
        self.read_void = self.reading;
    }

    fn on_noted(&mut self, now: Mono, noted: Result<(), Refused>) {
        let noting = std::mem::take(&mut self.noting);
        match noted {
            Ok(()) => {}
            Err(Refused::Fenced) => self.fenced = true,
            Err(Refused::Later) => {
                self.ended.splice(0..0, noting);
                self.note_at = now + STORE_RETRY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::time::Time;

    const SEC: Duration = Duration::from_secs(1);

    fn rules(batch: u32) -> Rules {
        let (backoff, backoff_max) = (SEC, SEC * 8);
        Rules { batch, batch_bytes: 1 << 20, backoff, backoff_max, poll: SEC }
    }

    fn message(id: u64, key: &str, sequence: u64) -> Claimed {
        Claimed {
            id,
            at: Time::EPOCH,
            task: None,
            run: None,
            tenant: None,
            topic: "t".into(),
            key: key.into(),
            sequence,
            payload: Vec::new(),
            attempt: 1,
        }
    }

    fn step(machine: &mut Machine, seconds: u64, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        let now = Mono::START + SEC * u32::try_from(seconds).unwrap();
        machine.step(now, event, &mut || 0, &mut out);
        out
    }

    fn read(known: &[u64]) -> Command {
        Command::Read { known: known.to_vec() }
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
                        Command::Read { known } => {
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
        let again = End::Again { after: Duration::ZERO, error: "away".into() };
        let noted = Command::Note(vec![(1, End::Delivered(None)), (2, again)]);
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
            assert!(machine.is_fenced() && machine.deadline().is_none());
        }
    }

    /// The store and the broker around a machine.
    struct World {
        pending: BTreeMap<u64, Claimed>,
        given_up: Vec<u64>,
        log: Vec<Claimed>,
        /// Answers that have not arrived.
        answers: VecDeque<Event>,
    }

    impl World {
        fn perform(&mut self, command: Command, luck: u8) {
            let event = match command {
                Command::Read { known } => {
                    let rest = self.pending.values().filter(|m| !known.contains(&m.id));
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
                    let kept = if luck.is_multiple_of(4) {
                        usize::from(luck / 4) % 4
                    } else {
                        batch.len()
                    };
                    let kept = kept.min(batch.len());
                    let confirmed =
                        if luck.is_multiple_of(3) { kept.min(usize::from(luck) % 3) } else { kept };
                    let mut fates = Vec::new();
                    for (at, message) in batch.into_iter().enumerate().take(kept) {
                        let fate = match message.id % 11 == 10 {
                            true => Fate::Refused("too large".into()),
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
            };
            let mut machine = Machine::new(rules(3), Mono::START);
            // Afterwards nothing fails.
            let mut luck = luck.into_iter().chain(std::iter::repeat(5));
            let (mut now, mut event) = (Mono::START, Event::Tick);
            for _ in 0..5_000 {
                let mut out = Vec::new();
                machine.step(now, event, &mut || 0, &mut out);
                for command in out {
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
}
