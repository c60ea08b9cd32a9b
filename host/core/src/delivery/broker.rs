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
//! A message of which the broker says that it cannot take it holds up its own tenant and key alone. These
//! wait for a pause, which doubles for as long as the broker refuses the message, and are read again from
//! their first pending message: whether that is still the same one is the store's to know.
//!
//! A broker that is away uses no attempts: its messages wait, and nothing is given up but what the
//! broker refuses for good.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::message::{Claimed, End, Fate, Sequence};
use super::{Refused, STORE_RETRY, bounded};
use crate::backoff::{Backoff, Jitter};
use crate::time::Mono;

/// How many batches may be between their reading and the recording of their results.
const BATCHES_MAX: usize = 4;

/// The longest pause between two tries, whatever is configured: a single request to a broker that is away costs
/// little, and everything waits for it.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Maximum number of keys of a topic that are held at the same time. A message of another key that the
/// broker cannot take holds up the whole topic.
pub const HELD_MAX: usize = 100;

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

impl Rules {
    fn waits(&self) -> Backoff {
        Backoff { first: self.backoff, max: self.backoff_max, jitter: Jitter::HalfShorter }
    }
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
    /// Read the first pending messages of the topic, except those that are known or wait.
    Read {
        /// The messages that are sent already, or whose results are being recorded.
        known: Vec<u64>,
        /// Those whose messages wait.
        held: Vec<Sequence>,
    },
    /// Send a batch in this order.
    Send(Vec<Claimed>),
    /// Record the results of messages.
    Note(Vec<(u64, End)>),
}

/// A tenant and key whose first pending message the broker cannot take.
#[derive(Debug)]
struct Hold {
    /// How often in a row it was refused, less one.
    earlier: u32,
    /// When its messages are read again; none: they may be read since then.
    until: Option<Mono>,
    error: String,
}

/// Delivery of one topic under one leadership.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    held: BTreeMap<Sequence, Hold>,
    reading: bool,
    /// Those whose messages the answer to the read must not contain: a message before them may be missing.
    left_out: BTreeSet<Sequence>,
    /// The answer to the read may contain messages that follow one whose result is unknown.
    read_void: bool,
    /// Read, and sent next.
    ahead: Vec<Claimed>,
    /// The batch that is being sent.
    sending: Vec<(u64, Sequence)>,
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
    stops: bool,
    fenced: bool,
}

impl Machine {
    /// A machine that looks for messages immediately.
    pub fn new(rules: Rules, now: Mono) -> Machine {
        Machine {
            most: rules.batch as usize,
            rules,
            held: BTreeMap::new(),
            reading: false,
            left_out: BTreeSet::new(),
            read_void: false,
            ahead: Vec::new(),
            sending: Vec::new(),
            ended: Vec::new(),
            noting: Vec::new(),
            look_at: now,
            send_at: now,
            note_at: now,
            failures: 0,
            stops: false,
            fenced: false,
        }
    }

    /// Looks for messages in the next step: there are new ones.
    pub fn look(&mut self, now: Mono) {
        self.look_at = self.look_at.min(now);
    }

    /// Begins nothing new from the next step on: the results of what is under way are recorded.
    pub fn stop(&mut self) {
        self.stops = true;
    }

    /// Whether there is nothing left to do: another node leads, or it was stopped, and every result is recorded.
    pub fn is_over(&self) -> bool {
        let unrecorded = !self.ended.is_empty() || !self.noting.is_empty();
        self.fenced || self.stops && self.sending.is_empty() && !unrecorded
    }

    /// The latest time of the next step; none: only an answer can change anything.
    pub fn deadline(&self) -> Option<Mono> {
        if self.fenced {
            return None;
        }
        let send = self.may_send().then_some(self.send_at);
        let held = self.held.values().filter_map(|hold| hold.until).min();
        let look_at = held.map_or(self.look_at, |until| until.min(self.look_at));
        let read = self.may_read().then_some(look_at.max(self.send_at));
        let note = self.may_note().then_some(self.note_at);
        send.into_iter().chain(read).chain(note).min()
    }

    /// The keys whose first pending message the broker cannot take, with its error, at most [`HELD_MAX`].
    pub fn held(&self) -> impl ExactSizeIterator<Item = (&Sequence, &str)> {
        self.held.iter().map(|(sequence, hold)| (sequence, hold.error.as_str()))
    }

    /// Handles an event and pushes the resulting commands. `random` is uniformly distributed.
    pub fn step(
        &mut self,
        now: Mono,
        event: Event,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        for hold in self.held.values_mut() {
            if hold.until.is_some_and(|until| until <= now) {
                hold.until = None;
                self.look_at = self.look_at.min(now);
            }
        }
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
            self.sending = batch.iter().map(|message| (message.id, message.of())).collect();
            out.push(Command::Send(batch));
        }
        if self.may_read() && now >= self.look_at && now >= self.send_at {
            self.reading = true;
            self.read_void = false;
            let held = self.held.iter().filter(|(_, hold)| hold.until.is_some());
            self.left_out = held.map(|(sequence, _)| sequence.clone()).collect();
            let held = self.left_out.iter().cloned().collect();
            out.push(Command::Read { known: self.known(), held });
        }
    }

    fn may_note(&self) -> bool {
        !self.ended.is_empty() && self.noting.is_empty()
    }

    fn may_send(&self) -> bool {
        !self.stops && self.sending.is_empty() && !self.ahead.is_empty()
    }

    fn may_read(&self) -> bool {
        // While it is known, the message that is sent again next would be left out.
        let mut results = self.ended.iter().chain(&self.noting);
        if results.any(|(_, end)| matches!(end, End::Again { .. })) {
            return false;
        }
        let under_way = self.sending.len() + self.ended.len() + self.noting.len();
        let room = (self.rules.batch as usize).saturating_mul(BATCHES_MAX - 1);
        !self.stops && !self.reading && self.ahead.is_empty() && under_way <= room
    }

    fn known(&self) -> Vec<u64> {
        let results = self.ended.iter().chain(&self.noting).map(|(id, _)| *id);
        self.sending.iter().map(|(id, _)| *id).chain(results).collect()
    }

    fn on_read(&mut self, now: Mono, read: Result<Vec<Claimed>, Refused>) {
        self.reading = false;
        match read {
            Ok(_) if self.read_void => self.look_at = now,
            Ok(mut messages) => {
                self.forget_those_without(&messages);
                // Those that may be read since it began are read next.
                let waits = |left_out| self.held.get(left_out).is_some_and(|of| of.until.is_some());
                let is_all = messages.is_empty() && self.left_out.iter().all(waits);
                self.look_at = if is_all { now + self.rules.poll } else { now };
                if !self.left_out.is_empty() {
                    messages.retain(|message| !self.left_out.contains(&message.of()));
                }
                self.ahead = messages;
            }
            Err(Refused::Fenced) => self.fenced = true,
            Err(Refused::Later) => self.look_at = now + STORE_RETRY.max(self.rules.poll),
        }
    }

    /// Forgets the keys that may be read and of which nothing was: what was refused is discarded, for
    /// example. If others only had no room in the answer, their pauses begin anew.
    fn forget_those_without(&mut self, read: &[Claimed]) {
        let (sending, left_out) = (&self.sending, &self.left_out);
        self.held.retain(|sequence, hold| {
            hold.until.is_some()
                || left_out.contains(sequence)
                || sending.iter().any(|(_, of)| of == sequence)
                || read.iter().any(|message| message.is_of(sequence))
        });
    }

    fn on_sent(&mut self, now: Mono, fates: Vec<Fate>, random: u64) {
        let sent = std::mem::take(&mut self.sending);
        let many = sent.len();
        let mut fates = fates.into_iter();
        let mut failed = None;
        for (id, sequence) in sent {
            match fates.next() {
                Some(Fate::Accepted) => {
                    self.held.remove(&sequence);
                    self.ended.push((id, End::Delivered(None)));
                }
                Some(Fate::Refused(error)) => {
                    self.held.remove(&sequence);
                    self.ended.push((id, End::GivenUp { error: bounded(error), reply: None }));
                }
                Some(Fate::Held(error)) => {
                    let error = bounded(error);
                    match self.hold(now, &sequence, &error, random) {
                        true => self.ended.push((id, again(error))),
                        // The others have their results all the same.
                        false => failed = failed.or(Some((id, error))),
                    }
                    self.drop_read(sequence);
                }
                Some(Fate::Behind) => self.drop_read(sequence),
                Some(Fate::Unknown(error)) => {
                    failed = failed.or(Some((id, error)));
                    break;
                }
                None => {
                    let error = "the broker has not confirmed the message".to_owned();
                    failed = failed.or(Some((id, error)));
                    break;
                }
            }
        }
        let Some((id, error)) = failed else {
            self.failures = 0;
            self.most = self.most.saturating_mul(2).min(self.rules.batch as usize);
            return;
        };
        let pause = self.rules.waits().pause(self.failures, random);
        self.failures = self.failures.saturating_add(1);
        self.most = (many / 2).max(1);
        self.send_at = now + pause;
        self.ended.push((id, again(bounded(error))));
        self.ahead.clear();
        self.read_void = self.reading;
    }

    /// Holds a tenant and key whose message was refused. Whether there is room for it.
    fn hold(&mut self, now: Mono, sequence: &Sequence, error: &str, random: u64) -> bool {
        let earlier = match self.held.get(sequence) {
            Some(hold) => hold.earlier.saturating_add(1),
            None if self.held.len() >= HELD_MAX => return false,
            None => 0,
        };
        let until = Some(now + self.rules.waits().pause(earlier, random));
        let hold = Hold { earlier, until, error: error.to_owned() };
        self.held.insert(sequence.clone(), hold);
        true
    }

    /// Drops what was read, or is being read, behind a message that was not accepted.
    fn drop_read(&mut self, sequence: Sequence) {
        self.ahead.retain(|message| !message.is_of(&sequence));
        if self.reading {
            self.left_out.insert(sequence);
        }
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

/// The error is shown with the message; the pauses are the machine's own.
fn again(error: String) -> End {
    End::Again { after: Duration::ZERO, error }
}

#[cfg(test)]
mod tests;
