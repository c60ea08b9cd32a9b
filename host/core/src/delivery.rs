//! Decides which messages are delivered next, and what happens to a message that a receiver
//! refused.
//!
//! A [`Machine`] lives as long as one leadership: the next leader starts with an empty one, so that
//! an answer to an earlier leadership is never mistaken for its own.
//!
//! ```text
//!            Claim                Send              Claim
//!  pending ─────────> claimed ──────────> answered ───────> delivered │ put off │ given up
//!     ^                  │ hold                                           │
//!     └──────────────────┴────────────────────────────────────────────────┘
//! ```
//!
//! Decided here: how many attempts run concurrently, per topic and in total; when to look for
//! messages again; whether an answer is final, and otherwise how long to wait. Not decided here:
//! which message is the first of its key (the store) and what a request looks like (the courier).
//!
//! A claim counts the attempt and hides the message for the hold before anything is sent: a message
//! that kills its host is counted, and one that its host abandoned becomes visible again by itself.
//! The transaction of a claim records the results before it: while a result cannot be recorded, nothing
//! is claimed; otherwise messages that are being delivered would be claimed again.
//!
//! While its receiver answers quickly, more messages of a topic are claimed than can be sent at once, so that
//! a place does not wait for a transaction. One that finds no place in time is given back.
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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use message::{
    Attempt, Claimed, Delivery, End, Fate, PAYLOAD_BYTES_MAX, Reply, Sequence, State,
};

use crate::backoff::{Backoff, Jitter};
use crate::time::Mono;

/// How long the store is not asked after a failure.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// How long after the end of a pause a message is claimed: the store counts from its commit.
const CLAIM_MARGIN: Duration = Duration::from_millis(50);
/// Longest pause of a topic whose messages all wait for a token.
const TOPIC_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a topic has only failed before a success makes its other messages due: the receiver is back.
const OUTAGE_MIN: Duration = Duration::from_secs(30);
/// Maximum number of messages of a topic that become due so; others wait for their own pause.
const OUTAGE_MESSAGES_MAX: usize = 1_000;
/// How many messages are claimed beyond each place of a topic whose receiver answers quickly.
const AHEAD: u32 = 4;
/// A receiver answers quickly if it accepted the last message within this time,
const QUICK_MAX: Duration = Duration::from_secs(1);
/// and that had at most so many bytes: what is claimed ahead stays in memory.
const QUICK_BYTES_MAX: usize = 64 << 10;
/// How long a claimed message may wait for its place.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Added to these times: how long a claimed message stays hidden.
const HOLD_MARGIN: Duration = Duration::from_secs(5);
/// What is recorded of a message that was claimed and found no place.
const NO_PLACE: &str = "its receiver is slow: it waits for a place";
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
}

/// An output of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Record the results of attempts and claim messages, in one transaction. Sent again after
    /// [`Event::Claimed`] only.
    Claim {
        /// The results; those of attempts that are not the latest of their message have no effect.
        ended: Vec<Attempt>,
        /// What is claimed.
        claim: Claim,
    },
    /// Hand a message to the courier.
    Send(Claimed),
}

/// What is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// The topics, each with the number of messages that may be claimed.
    pub room: Vec<(String, u32)>,
    /// How long the messages stay hidden from other claims.
    pub hold: Duration,
    /// The longest time for which a message is hidden or put off. One that is for longer is due: the store's clock
    /// was set back.
    pub wait_max: Duration,
}

/// A message that is being sent.
#[derive(Debug, Clone)]
struct Sending {
    topic: String,
    attempt: u32,
    bytes: usize,
    since: Mono,
}

/// A claimed message that waits for its place.
#[derive(Debug)]
struct Ready {
    message: Claimed,
    since: Mono,
}

/// Why messages of a topic are not sent for a while.
#[derive(Debug, Clone)]
struct Wait {
    until: Mono,
    error: String,
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
    sending: BTreeMap<u64, Sending>,
    /// Number of messages of each topic that are being sent.
    busy: BTreeMap<String, u32>,
    /// The claimed messages of each topic that wait for their places; never empty.
    ready: BTreeMap<String, VecDeque<Ready>>,
    /// The topics of which more is claimed than can be sent at once.
    quick: BTreeSet<String>,
    /// Attempts that have ended and are not recorded yet.
    ended: Vec<Attempt>,
    /// Attempts whose results are recorded by the claim under way.
    noting: Vec<Attempt>,
    claiming: bool,
    /// When messages are looked for although no result has to be recorded.
    look_at: Mono,
    /// The store has failed: it is asked for nothing before this time.
    retry_at: Mono,
    /// Index of the topic with the first choice; each claim advances it by one.
    turn: usize,
    /// The topics of which no request could be made: the number of times in a row.
    unsent: BTreeMap<String, u32>,
    /// Of these, the ones that wait.
    waiting: BTreeMap<String, Wait>,
    /// The topics whose receivers have only failed since a time.
    outages: BTreeMap<String, Outage>,
    stops: bool,
    fenced: bool,
}

impl Machine {
    /// A machine that looks for messages immediately.
    pub fn new(settings: Settings, now: Mono) -> Machine {
        Machine {
            settings,
            sending: BTreeMap::new(),
            busy: BTreeMap::new(),
            ready: BTreeMap::new(),
            quick: BTreeSet::new(),
            ended: Vec::new(),
            noting: Vec::new(),
            claiming: false,
            look_at: now,
            retry_at: now,
            turn: 0,
            unsent: BTreeMap::new(),
            waiting: BTreeMap::new(),
            outages: BTreeMap::new(),
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
        let idle = self.sending.is_empty() && self.ready.is_empty() && self.ended.is_empty();
        self.fenced || self.stops && idle && !self.claiming
    }

    /// The latest time of the next step; none: only an answer can change anything.
    pub fn deadline(&self) -> Option<Mono> {
        if self.fenced {
            return None;
        }
        let claim = (!self.claiming).then(|| self.claim_at()).flatten();
        let waits = self.waiting.values().map(|wait| wait.until);
        let ready = self.ready.values().filter_map(|of| of.front());
        let late = ready.map(|of| of.since + PLACE_WAIT_MAX);
        claim.into_iter().chain(waits).chain(late).min()
    }

    /// When the store is asked next.
    fn claim_at(&self) -> Option<Mono> {
        match self.ended.is_empty() {
            false => Some(self.retry_at),
            true => self.room().next().map(|_| self.look_at.max(self.retry_at)),
        }
    }

    /// Handles an event and pushes the resulting commands. `random` is uniformly distributed.
    pub fn step(
        &mut self,
        now: Mono,
        event: Event,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        self.waiting.retain(|_, wait| wait.until > now);
        match event {
            Event::Tick => {}
            Event::Claimed(claimed) => self.on_claimed(now, claimed),
            Event::Answered(id, answer) => self.on_answered(now, id, answer, random()),
        }
        if self.fenced {
            return;
        }
        self.give_back(now);
        while let Some(topic) = self.next_topic() {
            self.send(now, &topic, out);
        }
        if !self.claiming && self.claim_at().is_some_and(|at| at <= now) {
            self.claim(now, out);
        }
    }

    fn on_claimed(&mut self, now: Mono, claimed: Result<Vec<Claimed>, Refused>) {
        self.claiming = false;
        let noting = std::mem::take(&mut self.noting);
        match claimed {
            Ok(messages) => messages.into_iter().for_each(|message| self.take(now, message)),
            Err(Refused::Fenced) => self.fenced = true,
            Err(Refused::Later) => {
                self.ended.splice(0..0, noting);
                self.retry_at = now + STORE_RETRY;
            }
        }
    }

    fn take(&mut self, now: Mono, message: Claimed) {
        // Its hold has ended: the result of the request under way is that of its latest attempt.
        if let Some(sent) = self.sending.get_mut(&message.id) {
            sent.attempt = message.attempt;
            return;
        }
        let ready = self.ready.entry(message.topic.clone()).or_default();
        ready.retain(|of| of.message.id != message.id);
        ready.push_back(Ready { message, since: now });
    }

    fn on_answered(&mut self, now: Mono, id: u64, answer: Answer, random: u64) {
        let Some(sent) = self.sending.remove(&id) else { return };
        if let Some(busy) = self.busy.get_mut(&sent.topic) {
            *busy -= 1;
        }
        let Some(rules) = self.settings.topics.get(&sent.topic) else { return };
        // A receiver that names the time gets its messages then.
        let asked = matches!(&answer, Answer::Replied { retry_after: Some(_), .. });
        let end = match of_topic(answer) {
            Answer::Unsent(error) => {
                // Those that were claimed together fail together, and count once.
                let times = self.unsent.entry(sent.topic.clone()).or_default();
                let wait = self.waiting.entry(sent.topic.clone()).or_insert_with(|| {
                    *times = times.saturating_add(1);
                    let pause = rules.waits().pause(*times - 1, random).min(TOPIC_PAUSE_MAX);
                    Wait { until: now + pause, error: bounded(error) }
                });
                End::Unsent { after: wait.until.since(now), error: wait.error.clone() }
            }
            answer => {
                self.unsent.remove(&sent.topic);
                judge(rules, sent.attempt, answer, random)
            }
        };
        let delivered = matches!(end, End::Delivered(_));
        match delivered && now.since(sent.since) <= QUICK_MAX && sent.bytes <= QUICK_BYTES_MAX {
            true => self.quick.insert(sent.topic.clone()),
            false => self.quick.remove(&sent.topic),
        };
        let attempt = Attempt { id, attempt: sent.attempt, end };
        let due = self.note_outage(now, sent.topic, &attempt, asked);
        self.ended.push(attempt);
        self.ended.extend(due);
    }

    /// Records whether a receiver is away. Once it is back, the messages that wait for their pauses are due: their
    /// last results are returned, without a pause, to be recorded again. One that was claimed again meanwhile has
    /// another attempt, and stays as it is.
    fn note_outage(
        &mut self,
        now: Mono,
        topic: String,
        attempt: &Attempt,
        asked: bool,
    ) -> Vec<Attempt> {
        match &attempt.end {
            End::Again { error, .. } => {
                let outage = self.outages.entry(topic);
                let outage =
                    outage.or_insert_with(|| Outage { since: now, failed: BTreeMap::new() });
                outage.failed.remove(&attempt.id);
                if !asked && outage.failed.len() < OUTAGE_MESSAGES_MAX {
                    outage.failed.insert(attempt.id, (attempt.attempt, error.clone()));
                }
            }
            End::Delivered(_) => {
                let Some(Outage { since, mut failed }) = self.outages.remove(&topic) else {
                    return Vec::new();
                };
                failed.remove(&attempt.id);
                if now.since(since) >= OUTAGE_MIN {
                    let due = |(id, (attempt, error))| {
                        let end = End::Again { after: Duration::ZERO, error };
                        Attempt { id, attempt, end }
                    };
                    return failed.into_iter().map(due).collect();
                }
            }
            End::GivenUp { .. } => {
                if let Some(outage) = self.outages.get_mut(&topic) {
                    outage.failed.remove(&attempt.id);
                }
            }
            End::Unsent { .. } => {}
        }
        Vec::new()
    }

    /// Ends the claims of messages that cannot be sent now: their topic waits, no place has become free in time, or
    /// delivery stops.
    fn give_back(&mut self, now: Mono) {
        let (waiting, ended, stops) = (&self.waiting, &mut self.ended, self.stops);
        self.ready.retain(|topic, ready| {
            let wait = waiting.get(topic);
            while let Some(first) = ready.front() {
                if wait.is_none() && !stops && now.since(first.since) < PLACE_WAIT_MAX {
                    break;
                }
                let (id, attempt) = (first.message.id, first.message.attempt);
                let (after, error) = match wait {
                    Some(wait) => (wait.until.since(now), wait.error.clone()),
                    None => (Duration::ZERO, NO_PLACE.to_owned()),
                };
                ended.push(Attempt { id, attempt, end: End::Unsent { after, error } });
                ready.pop_front();
            }
            !ready.is_empty()
        });
    }

    /// The topics, the one whose turn it is first.
    fn in_turn(&self) -> impl Iterator<Item = (&String, &Rules)> {
        let topics = self.settings.topics.len();
        self.settings.topics.iter().cycle().skip(self.turn % topics.max(1)).take(topics)
    }

    fn busy(&self, topic: &str) -> u32 {
        self.busy.get(topic).copied().unwrap_or_default()
    }

    /// The topic of which a message is sent next. Those of which none is being sent come first. One place
    /// is kept for each of them, up to half of all, so that receivers that do not answer cannot take all.
    fn next_topic(&self) -> Option<String> {
        let of_all = self.settings.concurrency.saturating_sub(self.sending.len() as u32);
        if of_all == 0 || self.ready.is_empty() {
            return None;
        }
        let is_ready = |topic: &str| self.ready.contains_key(topic);
        if let Some((topic, _)) = self.in_turn().find(|(t, _)| is_ready(t) && self.busy(t) == 0) {
            return Some(topic.clone());
        }
        let idle = |topic: &&String| self.busy(topic) == 0 && !self.waiting.contains_key(*topic);
        let kept = self.settings.topics.keys().filter(idle).count() as u32;
        if of_all <= kept.min(self.settings.concurrency / 2) {
            return None;
        }
        let mut all = self.in_turn();
        let next = all.find(|(t, rules)| is_ready(t) && self.busy(t) < rules.concurrency);
        next.map(|(topic, _)| topic.clone())
    }

    fn send(&mut self, now: Mono, topic: &str, out: &mut Vec<Command>) {
        let Some(ready) = self.ready.get_mut(topic) else { return };
        if let Some(Ready { message, .. }) = ready.pop_front() {
            let (attempt, bytes) = (message.attempt, message.payload.len());
            let sending = Sending { topic: topic.to_owned(), attempt, bytes, since: now };
            self.sending.insert(message.id, sending);
            *self.busy.entry(topic.to_owned()).or_default() += 1;
            out.push(Command::Send(message));
        }
        if self.ready.get(topic).is_some_and(VecDeque::is_empty) {
            self.ready.remove(topic);
        }
    }

    /// How many messages of each topic may be claimed, in the order of their turn: at least one of each that is not
    /// full, so that none waits for another.
    fn room(&self) -> impl Iterator<Item = (&String, u32)> {
        let ready = |topic: &str| self.ready.get(topic).map_or(0, |ready| ready.len() as u32);
        let claimed = self.sending.len() + self.ready.values().map(VecDeque::len).sum::<usize>();
        let most = self.settings.concurrency.saturating_mul(1 + AHEAD);
        let mut left = most.saturating_sub(claimed as u32);
        let may = |topic: &str| !self.stops && !self.waiting.contains_key(topic);
        self.in_turn().filter(move |(topic, _)| may(topic)).filter_map(move |(topic, rules)| {
            let ahead = if self.quick.contains(topic) { AHEAD } else { 0 };
            let most = rules.concurrency.saturating_mul(1 + ahead);
            let more = most.saturating_sub(self.busy(topic) + ready(topic)).min(left.max(1));
            left = left.saturating_sub(more);
            (more > 0).then_some((topic, more))
        })
    }

    fn claim(&mut self, now: Mono, out: &mut Vec<Command>) {
        let rules = || self.settings.topics.values();
        let timeout = rules().map(|rules| rules.timeout).max().unwrap_or_default();
        let hold = timeout + PLACE_WAIT_MAX + HOLD_MARGIN;
        let pause = rules().map(|rules| rules.backoff_max).max().unwrap_or_default();
        let wait_max = hold.max(pause).max(TOPIC_PAUSE_MAX);
        let room = self.room().map(|(topic, more)| (topic.clone(), more)).collect();
        let claim = Claim { room, hold, wait_max };
        self.turn = self.turn.wrapping_add(1);
        self.claiming = true;
        self.noting = std::mem::take(&mut self.ended);
        let pauses = self.noting.iter().filter_map(|attempt| match &attempt.end {
            End::Again { after, .. } | End::Unsent { after, .. } => Some(*after + CLAIM_MARGIN),
            End::Delivered(_) | End::GivenUp { .. } => None,
        });
        self.look_at = now + pauses.chain([self.settings.poll]).min().unwrap_or_default();
        out.push(Command::Claim { ended: self.noting.clone(), claim });
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
