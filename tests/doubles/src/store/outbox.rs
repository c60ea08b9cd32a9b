//! The outbox: emitted messages and their deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::command::MessageCriteria;
use besom_core::delivery::feed::{Judged, judge};
use besom_core::delivery::{
    Attempt, Claim, Claimed, Delivery, End, Reply, Sequence, State as Stage,
};
use besom_core::ids::{FencingToken, RunId, TaskName, Tenant};
use besom_core::time::Time;

use super::fault::Broken;
use super::state::{Numbered, State};
use besom_ports::store::{
    self, Entered, MessageQuery, MessageSelector, Offered, OutboxTopic, Result,
};

/// How long after another a commit does not see its messages, with [`Broken::EarlyMessages`].
const EARLY: Duration = Duration::from_millis(250);

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The topic, which decides the route.
    pub topic: String,
    /// The key that orders messages.
    pub key: String,
    /// The content.
    pub payload: Vec<u8>,
    /// The task that emitted it; none: the product itself.
    pub task: Option<TaskName>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<Tenant>,
    pub(super) run: Option<RunId>,
    /// The history row of the item that emitted it.
    pub(super) history: Option<u64>,
    pub(super) sequence: u64,
    pub(super) id: u64,
    pub(super) at: Time,
    pub(super) attempts: u32,
    pub(super) next_at: Time,
    /// Whether an attempt is under way.
    pub(super) is_claimed: bool,
    pub(super) error: Option<String>,
    pub(super) stage: Stage,
    pub(super) reply: Option<Reply>,
    pub(super) ended_at: Option<Time>,
    /// The product's own number.
    pub(super) entered: Option<u64>,
}

/// The origin of a message, and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) task: Option<&'a TaskName>,
    pub(super) run: Option<RunId>,
    pub(super) history: Option<u64>,
    pub(super) tenant: Option<&'a Tenant>,
    pub(super) now: Time,
}

impl Message {
    /// Its number among those of its topic, tenant and key.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When it was emitted.
    pub fn emitted_at(&self) -> Time {
        self.at
    }

    /// Whether it is delivered.
    pub fn state(&self) -> Stage {
        self.stage
    }

    /// The sequence: messages that share it are delivered in order.
    fn stream(&self) -> (&str, Option<&Tenant>, &str) {
        (&self.topic, self.tenant.as_ref(), &self.key)
    }

    fn is_chosen(&self, selector: &MessageSelector) -> bool {
        let MessageCriteria { ids, topic } = selector.criteria();
        ids.is_none_or(|ids| ids.contains(&self.id))
            && topic.is_none_or(|topic| self.topic == topic)
    }

    fn claimed(&self, attempt: u32) -> Claimed {
        Claimed {
            id: self.id,
            at: self.at,
            task: self.task.clone(),
            run: self.run,
            tenant: self.tenant.clone(),
            topic: self.topic.clone(),
            key: self.key.clone(),
            sequence: self.sequence,
            payload: self.payload.clone(),
            attempt,
        }
    }

    pub(super) fn delivery(&self) -> Delivery {
        Delivery {
            id: self.id,
            sequence: self.sequence,
            emitted_at: self.at,
            payload: self.payload.clone(),
            state: self.stage,
            attempts: self.attempts,
            error: self.error.clone(),
            reply: self.reply.clone(),
            ended_at: self.ended_at,
        }
    }
}

impl State {
    pub(super) fn emit(
        &mut self,
        origin: Origin<'_>,
        topic: &str,
        key: &str,
        payload: &[u8],
        entered: Option<u64>,
    ) -> u64 {
        let id = self.next_id(Numbered::Message);
        let own = (topic, origin.tenant, key);
        let waits = self.outbox.iter().any(|m| m.stage == Stage::Pending && m.stream() == own);
        let stream = (topic.to_owned(), origin.tenant.cloned(), key.to_owned());
        let is_early = self.is_broken(Broken::EarlyMessages);
        let last = self.sequences.entry(stream.clone()).or_default();
        let mut sequence = *last + 1;
        if is_early {
            let (at, seen) = self.early_messages.entry(stream).or_insert((origin.now, *last));
            let wait = origin.now.since(*at);
            if wait > EARLY {
                (*at, *seen) = (origin.now, *last);
            } else if !wait.is_zero() {
                // A transaction that has not seen the messages of the one before.
                sequence = *seen + 1;
            }
        }
        *last = (*last).max(sequence);
        Arc::make_mut(&mut self.outbox).push(Message {
            topic: topic.to_owned(),
            key: key.to_owned(),
            payload: payload.to_vec(),
            task: origin.task.cloned(),
            tenant: origin.tenant.cloned(),
            run: origin.run,
            history: origin.history,
            sequence,
            id,
            at: origin.now,
            attempts: 0,
            next_at: if waits { Time::EPOCH } else { origin.now },
            is_claimed: false,
            error: None,
            stage: Stage::Pending,
            reply: None,
            ended_at: None,
            entered,
        });
        sequence
    }

    /// See [`store::Store::enter_messages`].
    pub(super) fn enter_messages(&mut self, offered: &[Offered], now: Time) -> Vec<Entered> {
        offered.iter().map(|one| self.enter_message(one, now)).collect()
    }

    fn enter_message(&mut self, one: &Offered, now: Time) -> Entered {
        let stream = (one.topic.clone(), one.tenant.clone(), one.key.clone());
        let highest = self.entered.get(&stream).copied().unwrap_or_default();
        let highest = match judge(highest, one.number) {
            Judged::Gap(missing) => return Entered::Gap { missing },
            Judged::Known(number) => {
                let of = |m: &&Message| {
                    m.entered == Some(number)
                        && m.stream() == (&one.topic, one.tenant.as_ref(), &one.key)
                };
                return match self.outbox.iter().find(of) {
                    Some(stored) if stored.payload != one.payload => Entered::Differs,
                    _ => Entered::Repeated,
                };
            }
            Judged::New(highest) => highest,
        };
        self.entered.insert(stream, highest);
        let origin =
            Origin { task: None, run: None, history: None, tenant: one.tenant.as_ref(), now };
        let sequence = self.emit(origin, &one.topic, &one.key, &one.payload, one.number);
        Entered::Stored { sequence }
    }

    /// See [`store::Store::last_entered`].
    pub(super) fn last_entered(&self, topic: &str, tenant: Option<&Tenant>, key: &str) -> u64 {
        let stream = (topic.to_owned(), tenant.cloned(), key.to_owned());
        self.entered.get(&stream).copied().unwrap_or_default()
    }

    /// See [`store::Store::feed_topics`].
    pub(super) fn feed_topics(&self, known: &[String], others_max: u32) -> store::FeedTopics {
        let waiting: BTreeSet<&String> = self.feed.iter().map(|one| &one.topic).collect();
        let others = waiting.iter().filter(|topic| !known.contains(topic));
        store::FeedTopics {
            known: known.iter().filter(|topic| waiting.contains(topic)).cloned().collect(),
            others: others.take(others_max as usize).map(|&topic| topic.clone()).collect(),
        }
    }

    /// See [`store::Store::collect_messages`].
    pub(super) fn collect_messages(
        &mut self,
        fence: &FencingToken,
        topics: &[String],
        limit: u32,
        bytes: u64,
        now: Time,
    ) -> Result<u64> {
        self.check_fence(fence)?;
        let (mut moved, mut left, mut full) = (Vec::new(), bytes, false);
        self.feed.retain(|one| {
            let goes = !full && topics.contains(&one.topic) && moved.len() < limit as usize;
            let size = one.payload.len() as u64;
            full |= goes && size > left && !moved.is_empty();
            let goes = goes && !full;
            if goes {
                left = left.saturating_sub(size);
                moved.push(one.clone());
            }
            !goes
        });
        self.enter_messages(&moved, now);
        Ok(moved.len() as u64)
    }

    pub(super) fn claim_messages(
        &mut self,
        fence: &FencingToken,
        ended: &[Attempt],
        claim: &Claim,
        now: Time,
    ) -> Result<Vec<Claimed>> {
        self.check_fence(fence)?;
        self.end_attempts(ended, now);
        let never = now + claim.wait_max;
        let mut claimed = Vec::new();
        for (topic, limit) in &claim.room {
            let mut seen = BTreeSet::new();
            let mut first = Vec::new();
            for message in self.outbox.iter().filter(|m| m.topic == *topic) {
                // Only the first message of a sequence is delivered, and blocks the others even before
                // it is due.
                if message.stage == Stage::Pending
                    && seen.insert(message.stream())
                    && (message.next_at <= now || message.next_at > never)
                {
                    first.push((message.next_at.min(now), message.id));
                }
            }
            first.sort_unstable();
            first.truncate(*limit as usize);
            if first.is_empty() {
                continue;
            }
            let taken: BTreeSet<u64> = first.into_iter().map(|(_, id)| id).collect();
            for message in Arc::make_mut(&mut self.outbox) {
                if !taken.contains(&message.id) {
                    continue;
                }
                message.attempts += 1;
                message.next_at = now + claim.hold;
                message.is_claimed = true;
                claimed.push(message.claimed(message.attempts));
            }
        }
        Ok(claimed)
    }

    /// Makes the first of each sequence due that was behind another until now.
    fn advance(&mut self, now: Time) {
        let mut seen = BTreeSet::new();
        let mut due = BTreeSet::new();
        for message in self.outbox.iter().filter(|m| m.stage == Stage::Pending) {
            if seen.insert(message.stream()) && message.next_at == Time::EPOCH {
                due.insert(message.id);
            }
        }
        if due.is_empty() {
            return;
        }
        for message in Arc::make_mut(&mut self.outbox) {
            if due.contains(&message.id) {
                message.next_at = now;
            }
        }
    }

    /// Whether a later message of its sequence was delivered, or may have been. One that was discarded is
    /// superseded by any later one.
    fn is_superseded(&self, of: &Message) -> bool {
        let is_discarded = of.error.as_deref() == Some(store::DISCARDED);
        let arrived = |m: &Message| match m.stage {
            Stage::Delivered => true,
            Stage::Pending => m.attempts > 0,
            Stage::GivenUp => false,
        };
        let later = |m: &Message| m.id > of.id && m.stream() == of.stream();
        self.outbox.iter().any(|m| later(m) && (is_discarded || arrived(m)))
    }

    /// See [`store::CommandEffect::RetryMessages`].
    pub(super) fn retry_messages(&mut self, selector: &MessageSelector, now: Time) -> u64 {
        let again: BTreeSet<u64> = self
            .outbox
            .iter()
            .filter(|m| m.stage == Stage::GivenUp && m.is_chosen(selector))
            .filter(|m| selector.force || !self.is_superseded(m))
            .filter(|m| !selector.ids.is_empty() || m.error.as_deref() != Some(store::DISCARDED))
            .map(|m| m.id)
            .collect();
        // The first of each sequence of which one is chosen.
        let mut first: BTreeMap<_, (&Message, bool)> = BTreeMap::new();
        for message in self.outbox.iter().filter(|m| m.stage == Stage::Pending) {
            let (_, chosen) = first.entry(message.stream()).or_insert((message, false));
            *chosen |= message.is_chosen(selector);
        }
        let due: BTreeSet<u64> = first
            .into_values()
            .filter(|(first, chosen)| *chosen && first.next_at > now && !first.is_claimed)
            .map(|(first, _)| first.id)
            .collect();
        for message in Arc::make_mut(&mut self.outbox) {
            if due.contains(&message.id) {
                message.next_at = now;
            }
            if again.contains(&message.id) {
                (message.stage, message.attempts, message.next_at) = (Stage::Pending, 0, now);
                (message.reply, message.ended_at) = (None, None);
            }
        }
        (due.len() + again.len()) as u64
    }

    /// See [`store::CommandEffect::DiscardMessages`].
    pub(super) fn discard_messages(&mut self, selector: &MessageSelector, now: Time) -> u64 {
        let mut discarded = 0;
        for message in Arc::make_mut(&mut self.outbox) {
            if message.is_chosen(selector) && message.stage == Stage::Pending {
                (message.stage, message.ended_at) = (Stage::GivenUp, Some(now));
                message.error = Some(store::DISCARDED.to_owned());
                discarded += 1;
            }
        }
        self.advance(now);
        discarded
    }

    fn end_attempts(&mut self, attempts: &[Attempt], now: Time) {
        let outbox = Arc::make_mut(&mut self.outbox);
        for Attempt { id, attempt, end } in attempts {
            let of = |m: &&mut Message| m.id == *id && m.attempts == *attempt;
            let Some(message) = outbox.iter_mut().find(of) else { continue };
            if message.stage != Stage::Pending {
                continue;
            }
            message.is_claimed = false;
            match end {
                End::Delivered(reply) => {
                    (message.stage, message.error) = (Stage::Delivered, None);
                    (message.reply, message.ended_at) = (reply.clone(), Some(now));
                }
                End::Again { after, error } | End::Unsent { after, error } => {
                    (message.next_at, message.error) = (now + *after, Some(error.clone()));
                    message.attempts -= u32::from(matches!(end, End::Unsent { .. }));
                }
                End::GivenUp { error, reply } => {
                    (message.stage, message.error) = (Stage::GivenUp, Some(error.clone()));
                    (message.reply, message.ended_at) = (reply.clone(), Some(now));
                }
            }
        }
        self.advance(now);
    }

    /// See [`store::Store::read_messages`].
    pub(super) fn read_messages(
        &self,
        topic: &str,
        known: &[u64],
        held: &[Sequence],
        limit: u32,
        bytes: u64,
    ) -> Vec<Claimed> {
        let (mut read, mut left) = (Vec::new(), bytes);
        let is_held = |m: &Message| held.iter().any(|of| of.key == m.key && of.tenant == m.tenant);
        let pending = |m: &&Message| {
            m.topic == topic && m.stage == Stage::Pending && !known.contains(&m.id) && !is_held(m)
        };
        for message in self.outbox.iter().filter(pending).take(limit as usize) {
            let size = message.payload.len() as u64;
            if size > left && !read.is_empty() {
                break;
            }
            left = left.saturating_sub(size);
            read.push(message.claimed(message.attempts + 1));
        }
        read
    }

    /// See [`store::Store::end_messages`].
    pub(super) fn end_messages(
        &mut self,
        fence: &FencingToken,
        ends: &[(u64, End)],
        now: Time,
    ) -> Result<()> {
        self.check_fence(fence)?;
        for message in Arc::make_mut(&mut self.outbox) {
            let Some((_, end)) = ends.iter().find(|(id, _)| *id == message.id) else { continue };
            if message.stage != Stage::Pending {
                continue;
            }
            message.attempts += 1;
            match end {
                End::Delivered(_) => {
                    (message.stage, message.error) = (Stage::Delivered, None);
                    message.ended_at = Some(now);
                }
                End::Again { error, .. } | End::Unsent { error, .. } => {
                    message.error = Some(error.clone());
                }
                End::GivenUp { error, .. } => {
                    (message.stage, message.error) = (Stage::GivenUp, Some(error.clone()));
                    message.ended_at = Some(now);
                }
            }
        }
        Ok(())
    }

    /// See [`store::Store::outbox_topics`].
    pub(super) fn outbox_topics(&self, count_max: u32) -> Vec<OutboxTopic> {
        let mut topics: BTreeMap<&str, OutboxTopic> = BTreeMap::new();
        for message in self.outbox.iter() {
            let open = message.stage == Stage::GivenUp
                && message.error.as_deref() != Some(store::DISCARDED)
                && !self.is_superseded(message);
            if message.stage != Stage::Pending && !open {
                continue;
            }
            let found = topics.entry(&message.topic).or_default();
            found.topic.clone_from(&message.topic);
            if open {
                found.given_up += 1;
                found.last_given_up = message.ended_at.zip(message.error.clone());
            } else {
                found.waiting = (found.waiting + 1).min(u64::from(count_max));
                if found.oldest.is_none() {
                    (found.oldest, found.waiting_error) = (Some(message.at), message.error.clone());
                }
            }
        }
        for row in &self.feed {
            let found = topics.entry(&row.topic).or_default();
            found.topic.clone_from(&row.topic);
            found.inserted = (found.inserted + 1).min(u64::from(count_max));
        }
        topics.into_values().collect()
    }

    pub(super) fn messages(&self, query: &MessageQuery) -> Vec<store::Message> {
        let asked = |m: &&Message| {
            query.topic.as_ref().is_none_or(|topic| m.topic == *topic)
                && query.state.is_none_or(|stage| m.stage == stage)
                && query.history.is_none_or(|history| m.history == Some(history))
                && query.id.is_none_or(|id| m.id == id)
                && query.key.as_ref().is_none_or(|key| m.key == *key)
        };
        let found = self.outbox.iter().rev().filter(asked).take(query.limit as usize);
        let row = |m: &Message| store::Message {
            task: m.task.clone(),
            tenant: m.tenant.clone(),
            topic: m.topic.clone(),
            key: m.key.clone(),
            delivery: m.delivery(),
            next_at: m.next_at,
            superseded: self.is_superseded(m),
        };
        found.map(row).collect()
    }

    /// The pending messages of a task and a topic; counts at most this many.
    pub(super) fn pending_messages(
        &self,
        task: Option<&TaskName>,
        topic: &str,
        limit: u32,
    ) -> store::Pending {
        let mut pending = store::Pending::default();
        let waits =
            |m: &&Message| m.topic == topic && m.task.as_ref() == task && m.stage == Stage::Pending;
        for message in self.outbox.iter().filter(waits).take(limit as usize) {
            pending.messages += 1;
            pending.bytes += (message.key.len() + message.payload.len()) as u64;
        }
        pending
    }

    /// Removes the oldest pending messages of a task and a topic.
    pub(super) fn drop_messages(
        &mut self,
        task: &TaskName,
        topic: &str,
        count: u32,
    ) -> store::Pending {
        let mut gone = store::Pending::default();
        Arc::make_mut(&mut self.outbox).retain(|m| {
            let waits =
                m.topic == topic && m.task.as_ref() == Some(task) && m.stage == Stage::Pending;
            let goes = waits && gone.messages < u64::from(count);
            if goes {
                gone.messages += 1;
                gone.bytes += (m.key.len() + m.payload.len()) as u64;
            }
            !goes
        });
        gone
    }

    /// Removes old pending messages of topics without a route: of each topic, the oldest `limit` are
    /// examined.
    pub(super) fn prune_unrouted(
        &mut self,
        before: Time,
        routed: Option<&[String]>,
        limit: u32,
    ) -> u64 {
        let Some(routed) = routed else { return 0 };
        let mut unrouted: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
        for message in self.outbox.iter().filter(|m| m.stage == Stage::Pending) {
            if !routed.contains(&message.topic) {
                unrouted.entry(&message.topic).or_default().push(message);
            }
        }
        let mut gone = BTreeSet::new();
        for messages in unrouted.into_values() {
            let examined = messages.into_iter().take(limit as usize);
            gone.extend(examined.filter(|m| m.at < before).map(|m| m.id));
        }
        Arc::make_mut(&mut self.outbox).retain(|m| !gone.contains(&m.id));
        gone.len() as u64
    }

    /// Removes messages that ended long ago.
    pub(super) fn prune_messages(&mut self, before: Time, limit: u32) -> u64 {
        let mut pruned = 0;
        Arc::make_mut(&mut self.outbox).retain(|message| {
            let old = message.ended_at.is_some_and(|at| at < before) && pruned < u64::from(limit);
            pruned += u64::from(old);
            !old
        });
        pruned
    }
}

/// The latest message of each key among a task's own messages.
pub(super) fn deliveries(
    outbox: &[Message],
    task: &TaskName,
    tenant: Option<&Tenant>,
    topic: &str,
    keys: &[String],
) -> Vec<Option<Delivery>> {
    let own = |m: &&Message, key: &str| {
        m.stream() == (topic, tenant, key) && m.task.as_ref() == Some(task)
    };
    let latest = |key: &String| outbox.iter().rev().find(|m| own(m, key)).map(Message::delivery);
    keys.iter().map(latest).collect()
}
