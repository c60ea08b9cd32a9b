//! Decides which messages are delivered next, and what happens to a message that a receiver
//! refused.
//!
//! A [`Machine`] lives as long as one leadership: the next leader starts with an empty one, so that
//! an answer to an earlier leadership is never mistaken for its own.
//!
//! ```text
//!            Claim                Send              Note
//!  pending ─────────> claimed ──────────> answered ──────> delivered │ put off │ given up
//!     ^                  │ hold                                          │
//!     └──────────────────┴───────────────────────────────────────────────┘
//! ```
//!
//! Decided here: how many attempts run concurrently, per topic and in total; when to look for
//! messages again; whether an answer is final, and otherwise how long to wait. Not decided here:
//! which message is the first of its key (the store) and what a request looks like (the courier).
//!
//! A claim counts the attempt and hides the message for the hold before anything is sent: a message
//! that kills its host is counted, and one that its host abandoned becomes visible again by itself.
//! While a result cannot be recorded, nothing is claimed; otherwise messages that are being
//! delivered would be claimed again.
//!
//! Where no request can be made, because of a token that cannot be read for example, or the receiver does not
//! accept the token, the attempt is given back: no message is given up for it, and the topic waits as a whole.

pub mod broker;
pub mod event;
pub mod feed;
mod message;
pub mod producer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use message::{
    Attempt, Claimed, Delivery, End, Fate, PAYLOAD_BYTES_MAX, Reply, Sequence, State,
};

use crate::backoff::{Backoff, Jitter};
use crate::time::Mono;

/// How long the store is not asked after a failure.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Longest pause of a topic whose messages all wait, for a token or for a broker.
pub const TOPIC_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a topic has only failed before a success makes its other messages due: the receiver is back.
const OUTAGE_MIN: Duration = Duration::from_secs(30);
/// Maximum number of messages of a topic that become due so; others wait for their own pause.
const OUTAGE_MESSAGES_MAX: usize = 1_000;
/// Added to the longest request timeout: how long a claimed message stays hidden.
const HOLD_MARGIN: Duration = Duration::from_secs(5);
/// How much of an error text is kept, in bytes.
const ERROR_BYTES_MAX: usize = 512;

/// The delivery rules of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The time limit of one attempt, from the connection to the end of the answer.
    pub timeout: Duration,
    /// Attempts before a message is abandoned.
    pub attempts_max: u32,
    /// The wait after the first failure; it doubles with each further failure.
    pub backoff: Duration,
    /// The upper bound of the wait.
    pub backoff_max: Duration,
    /// Concurrent attempts of this topic.
    pub concurrency: u32,
}

impl Rules {
    fn waits(&self) -> Backoff {
        Backoff { first: self.backoff, max: self.backoff_max, jitter: Jitter::HalfShorter }
    }
}

/// What is delivered, and how much of it concurrently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The topics with a route. Messages of other topics stay pending.
    pub topics: BTreeMap<String, Rules>,
    /// Concurrent attempts of all topics.
    pub concurrency: u32,
    /// How often messages are looked for when no event announces any.
    pub poll: Duration,
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The receiver answered.
    Replied {
        /// The receiver's answer.
        reply: Reply,
        /// The wait that the receiver asked for, if any.
        retry_after: Option<Duration>,
    },
    /// The message may not have been received, for this reason.
    Failed(String),
    /// No request could be made of it, for a reason on this side. Nothing was sent.
    Unsent(String),
}

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Another node leads.
    Fenced,
    /// The store is busy or unreachable.
    Later,
}

/// An input of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The answer to [`Command::Claim`].
    Claimed(Result<Vec<Claimed>, Refused>),
    /// What came of [`Command::Send`].
    Answered(u64, Answer),
    /// The answer to [`Command::Note`].
    Noted(Result<(), Refused>),
}

/// An output of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Claim messages, at most the given number of each topic, and hide them for `hold`.
    Claim {
        /// The topics, with the number of messages of each.
        room: Vec<(String, u32)>,
        /// How long the messages stay hidden from other claims.
        hold: Duration,
    },
    /// Hand a message to the courier.
    Send(Claimed),
    /// Record the results of attempts.
    Note(Vec<Attempt>),
}

/// A message between its claim and the recording of its result.
#[derive(Debug, Clone)]
struct UnderWay {
    topic: String,
    attempt: u32,
}

/// The messages of a topic that have failed since its last success.
#[derive(Debug)]
struct Outage {
    since: Mono,
    /// The latest attempt of each, and its error.
    failed: BTreeMap<u64, (u32, String)>,
}

/// Delivery under one leadership.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    under_way: BTreeMap<u64, UnderWay>,
    /// Attempts that have ended and are not recorded yet.
    ended: Vec<Attempt>,
    /// Attempts whose results are being recorded.
    noting: Vec<Attempt>,
    claiming: bool,
    /// The topics that the store was asked for since it was asked for all.
    asked: BTreeSet<String>,
    look_at: Mono,
    /// The store has failed: nothing is recorded before this time.
    note_at: Mono,
    /// Index of the topic with the first choice; each claim advances it by one.
    turn: usize,
    /// The topics of which no request could be made: the number of times in a row.
    unsent: BTreeMap<String, u32>,
    /// Of these, the ones that are not claimed before a time.
    waiting: BTreeMap<String, Mono>,
    /// The topics whose receivers have only failed since a time.
    outages: BTreeMap<String, Outage>,
    fenced: bool,
}

impl Machine {
    /// A machine that looks for messages immediately.
    pub fn new(settings: Settings, now: Mono) -> Machine {
        Machine {
            settings,
            under_way: BTreeMap::new(),
            ended: Vec::new(),
            noting: Vec::new(),
            claiming: false,
            asked: BTreeSet::new(),
            look_at: now,
            note_at: now,
            turn: 0,
            unsent: BTreeMap::new(),
            waiting: BTreeMap::new(),
            outages: BTreeMap::new(),
            fenced: false,
        }
    }

    /// Attempts that have begun and are not recorded yet.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
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
        let note = (!self.ended.is_empty() && self.noting.is_empty()).then_some(self.note_at);
        let look = self.may_claim().then_some(self.look_at);
        note.into_iter().chain(look).chain(self.waiting.values().copied()).min()
    }

    /// Handles an event and pushes the resulting commands. `random` is uniformly distributed.
    pub fn step(
        &mut self,
        now: Mono,
        event: Event,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        self.waiting.retain(|_, until| *until > now);
        match event {
            Event::Tick => {}
            Event::Claimed(claimed) => self.on_claimed(now, claimed, out),
            Event::Answered(id, answer) => self.on_answered(now, id, answer, random()),
            Event::Noted(noted) => self.on_noted(now, noted),
        }
        if self.fenced {
            return;
        }
        if !self.ended.is_empty() && self.noting.is_empty() && now >= self.note_at {
            self.noting = std::mem::take(&mut self.ended);
            out.push(Command::Note(self.noting.clone()));
        }
        if self.may_claim() && now >= self.look_at {
            self.claim(out);
        }
    }

    fn on_claimed(
        &mut self,
        now: Mono,
        claimed: Result<Vec<Claimed>, Refused>,
        out: &mut Vec<Command>,
    ) {
        self.claiming = false;
        match claimed {
            Ok(messages) => {
                for message in messages {
                    let (topic, attempt) = (message.topic.clone(), message.attempt);
                    self.under_way.insert(message.id, UnderWay { topic, attempt });
                    out.push(Command::Send(message));
                }
                // With fewer places than topics, some were left out: their turn is now.
                match self.room().is_empty() {
                    true => self.look_again(now + self.settings.poll),
                    false => self.look_at = now,
                }
            }
            Err(Refused::Fenced) => self.fenced = true,
            Err(Refused::Later) => self.look_again(now + STORE_RETRY.max(self.settings.poll)),
        }
    }

    fn on_answered(&mut self, now: Mono, id: u64, answer: Answer, random: u64) {
        let Some(sent) = self.under_way.get(&id) else { return };
        let Some(rules) = self.settings.topics.get(&sent.topic) else { return };
        // A receiver that names the time gets its messages then.
        let asked = matches!(&answer, Answer::Replied { retry_after: Some(_), .. });
        let end = match of_topic(answer) {
            Answer::Unsent(error) => {
                // Those that were claimed together fail together, and count once.
                let times = self.unsent.entry(sent.topic.clone()).or_default();
                let until = self.waiting.entry(sent.topic.clone()).or_insert_with(|| {
                    *times = times.saturating_add(1);
                    now + rules.waits().pause(*times - 1, random).min(TOPIC_PAUSE_MAX)
                });
                End::Unsent { after: until.since(now), error: bounded(error) }
            }
            answer => {
                self.unsent.remove(&sent.topic);
                judge(rules, sent.attempt, answer, random)
            }
        };
        let attempt = Attempt { id, attempt: sent.attempt, end };
        let topic = sent.topic.clone();
        self.ended.push(attempt.clone());
        self.note_outage(now, topic, attempt, asked);
    }

    /// Records whether a receiver is away. Once it is back, the messages that wait for their pauses are due: their
    /// last results are recorded again, without a pause. One that was claimed again meanwhile has another
    /// attempt, and stays as it is.
    fn note_outage(&mut self, now: Mono, topic: String, attempt: Attempt, asked: bool) {
        match attempt.end {
            End::Again { error, .. } => {
                let outage = self.outages.entry(topic);
                let outage =
                    outage.or_insert_with(|| Outage { since: now, failed: BTreeMap::new() });
                outage.failed.remove(&attempt.id);
                if !asked && outage.failed.len() < OUTAGE_MESSAGES_MAX {
                    outage.failed.insert(attempt.id, (attempt.attempt, error));
                }
            }
            End::Delivered(_) => {
                let Some(Outage { since, mut failed }) = self.outages.remove(&topic) else {
                    return;
                };
                failed.remove(&attempt.id);
                if now.since(since) >= OUTAGE_MIN {
                    let due = |(id, (attempt, error))| {
                        let end = End::Again { after: Duration::ZERO, error };
                        Attempt { id, attempt, end }
                    };
                    self.ended.extend(failed.into_iter().map(due));
                }
            }
            End::GivenUp { .. } => {
                if let Some(outage) = self.outages.get_mut(&topic) {
                    outage.failed.remove(&attempt.id);
                }
            }
            End::Unsent { .. } => {}
        }
    }

    fn on_noted(&mut self, now: Mono, noted: Result<(), Refused>) {
        let noting = std::mem::take(&mut self.noting);
        match noted {
            Ok(()) => {
                for attempt in noting {
                    self.under_way.remove(&attempt.id);
                }
                // Messages that waited behind these, for their turn or for room, can be claimed
                // now.
                self.look_again(now);
            }
            Err(Refused::Fenced) => self.fenced = true,
            Err(Refused::Later) => {
                self.ended.splice(0..0, noting);
                self.note_at = now + STORE_RETRY;
            }
        }
    }

    /// Asks for all topics again, from that time on.
    fn look_again(&mut self, at: Mono) {
        self.asked.clear();
        self.look_at = at;
    }

    fn may_claim(&self) -> bool {
        let unwritten = !self.ended.is_empty() || !self.noting.is_empty();
        !self.fenced && !self.claiming && !unwritten && !self.room().is_empty()
    }

    /// How many messages of each topic that was not asked for yet may be claimed, in the order of their
    /// turn. One place is kept for each topic without any under way, so that receivers that do not answer
    /// cannot take all. If there are more such topics than places, the first in turn have one each. Topics with
    /// messages under way come before further places for those without: most of these have no messages.
    fn room(&self) -> Vec<(String, u32)> {
        let mut under_way: BTreeMap<&str, u32> = BTreeMap::new();
        for sent in self.under_way.values() {
            *under_way.entry(&sent.topic).or_default() += 1;
        }
        let count = |topic: &str| under_way.get(topic).copied().unwrap_or_default();
        let all: u32 = under_way.values().sum();
        let mut left = self.settings.concurrency.saturating_sub(all);
        let waits = |topic: &str| self.waiting.contains_key(topic);
        let is_idle = |topic: &&String| count(topic) == 0 && !waits(topic);
        let mut kept = self.settings.topics.keys().filter(is_idle).count() as u32;
        let topics = self.settings.topics.len().max(1);
        let in_turn = self.settings.topics.iter().cycle().skip(self.turn % topics).take(topics);
        // Each with its messages under way, what more it may have, and what it gets.
        let mut room: Vec<(&String, u32, u32, u32)> = in_turn
            .filter(|(topic, _)| !self.asked.contains(*topic) && !waits(topic))
            .map(|(topic, rules)| {
                let busy = count(topic);
                (topic, busy, rules.concurrency.saturating_sub(busy), 0)
            })
            .collect();
        for (_, busy, more, gets) in &mut room {
            if *busy == 0 {
                kept -= 1;
                *gets = left.min(*more).min(1);
                left -= *gets;
            }
        }
        for of_idle in [false, true] {
            for (_, busy, more, gets) in &mut room {
                if (*busy == 0) == of_idle {
                    let further = left.saturating_sub(kept).min(*more - *gets);
                    *gets += further;
                    left -= further;
                }
            }
        }
        room.retain(|(.., gets)| *gets > 0);
        room.into_iter().map(|(topic, _, _, gets)| (topic.clone(), gets)).collect()
    }

    fn claim(&mut self, out: &mut Vec<Command>) {
        let longest = self.settings.topics.values().map(|rules| rules.timeout).max();
        let hold = longest.unwrap_or_default() + HOLD_MARGIN;
        let room = self.room();
        self.turn = self.turn.wrapping_add(1);
        self.asked.extend(room.iter().map(|(topic, _)| topic.clone()));
        self.claiming = true;
        out.push(Command::Claim { room, hold });
    }
}

/// An answer that says nothing about the message: the receiver does not accept the token of the route.
fn of_topic(answer: Answer) -> Answer {
    match answer {
        Answer::Replied { reply, .. } if matches!(reply.status, 401 | 407) => {
            let status = reply.status;
            Answer::Unsent(format!("answered {status}: the receiver does not accept the token"))
        }
        answer => answer,
    }
}

/// Whether a status says that the receiver will never accept this very message. 409 does not: receivers answer it while
/// they process an earlier attempt with the same idempotency key.
fn is_refusal(status: u16) -> bool {
    matches!(status, 400 | 410 | 413 | 414 | 415 | 422 | 431 | 451)
}

/// Interprets an answer. A status of 2xx is final, and so is one that refuses the message itself. Silence and any
/// other status are retried: a receiver that is being replaced, or a route that is wrong, answers 404 or 302.
pub fn judge(rules: &Rules, attempt: u32, answer: Answer, random: u64) -> End {
    let (error, reply, again, asked) = match answer {
        Answer::Failed(error) | Answer::Unsent(error) => (error, None, true, None),
        Answer::Replied { reply, .. } if (200..300).contains(&reply.status) => {
            return End::Delivered(Some(reply));
        }
        Answer::Replied { reply, retry_after } => {
            let status = reply.status;
            let again = !is_refusal(status);
            let error = match status {
                300..=399 => format!("answered {status}: redirects are not followed"),
                _ => format!("answered {status}"),
            };
            (error, Some(reply), again, retry_after)
        }
    };
    let error = bounded(error);
    if !again {
        return End::GivenUp { error, reply };
    }
    if attempt >= rules.attempts_max {
        let error = format!("{error} (attempt {attempt} of {})", rules.attempts_max);
        return End::GivenUp { error, reply };
    }
    let own = rules.waits().pause(attempt.saturating_sub(1), random);
    let after = asked.map_or(own, |asked| asked.max(own).min(rules.backoff_max.max(own)));
    End::Again { after, error }
}

fn bounded(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    error
}
