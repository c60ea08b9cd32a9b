//! The loops around [`besom_core::delivery`]: while this node leads, they carry out the commands of
//! its machines over the store, the courier and the brokers. They decide nothing.
//!
//! It runs beside the node and does not affect it: it has no part in the lease, and in a store with
//! one writer its writes have the lowest priority.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use besom_core::delivery::{
    Attempt, Claimed, Command, End, Event, Fate, Machine, Refused, Sequence, Settings, broker,
};
use besom_core::ids::FencingToken;
use besom_core::time::Mono;
use besom_snapshot::Cause;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::clock;
use super::feed::Feed;
use super::health::Health;
use besom_ports::courier::{Broker, Courier};
use besom_ports::store::{self, Store};

/// A message that fails holds a part of its topic if another one was delivered within this time.
const OTHERS_MAX: Duration = Duration::from_secs(60);
/// The pause before delivery is restarted after a bug.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time without any event before the machine is stepped anyway.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// What delivery needs.
#[derive(Clone)]
pub struct Delivery {
    /// Delivers the messages.
    pub courier: Arc<dyn Courier>,
    /// The topics and the limits of delivery.
    pub settings: Settings,
    /// The topics that are sent to brokers.
    pub brokers: Vec<ToBroker>,
    /// Takes messages of the product.
    pub feed: Arc<Feed>,
}

/// A topic that is sent to a broker.
#[derive(Clone)]
pub struct ToBroker {
    /// Its name, as messages have it.
    pub topic: String,
    /// The limits of its delivery.
    pub rules: broker::Rules,
    /// Keeps the messages.
    pub broker: Arc<dyn Broker>,
}

/// What tells delivery to stop, and what delivery tells then.
#[derive(Debug)]
pub struct Stopping {
    /// Whether it begins nothing new. Attempts under way are finished.
    pub asked: watch::Receiver<bool>,
    /// Whether it has finished since this node leads.
    pub done: watch::Sender<bool>,
}

/// Delivers while this node leads, until `fence` is closed. Attempts under way are dropped when the
/// leadership ends; the next leader repeats them with the same idempotency key.
pub async fn deliver(
    store: Arc<dyn Store>,
    delivery: Delivery,
    health: Arc<Health>,
    mut fence: watch::Receiver<Option<FencingToken>>,
    stopping: Stopping,
) {
    loop {
        let Ok(leading) = fence.wait_for(Option::is_some).await.map(|fence| fence.clone()) else {
            return;
        };
        let Some(leading) = leading else { continue };
        stopping.done.send_replace(false);
        tokio::select! {
            () = until_fenced(&store, &delivery, &health, &leading, &stopping.asked) => {}
            // Attempts under way are dropped here.
            _ = fence.wait_for(|now| now.as_ref() != Some(&leading)) => {}
        }
        stopping.done.send_replace(true);
        // If another node leads, this node's election discovers it as well.
        if fence.wait_for(|now| now.as_ref() != Some(&leading)).await.is_err() {
            return;
        }
    }
}

/// Delivers under one fence until the store rejects it, or until it was asked to stop and all has ended.
async fn until_fenced(
    store: &Arc<dyn Store>,
    delivery: &Delivery,
    health: &Health,
    fence: &FencingToken,
    stop: &watch::Receiver<bool>,
) {
    let mut topics: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
    if !delivery.settings.topics.is_empty() {
        topics.push(Box::pin(again(move || {
            let signals = Signals::new(stop, &delivery.feed);
            lead(store, delivery, health, fence, signals)
        })));
    }
    for to in &delivery.brokers {
        topics.push(Box::pin(again(move || {
            let signals = Signals::new(stop, &delivery.feed);
            publish(store, to, health, fence, signals)
        })));
    }
    topics.push(Box::pin(async {
        let mut stop = stop.clone();
        tokio::select! {
            () = delivery.feed.collect(fence, health) => {}
            () = asked(&mut stop) => {}
        }
    }));
    futures::future::join_all(topics).await;
}

/// Returns once delivery is asked to stop.
async fn asked(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|asked| *asked).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What a loop hears of beside the answers to its own commands.
struct Signals {
    stop: watch::Receiver<bool>,
    news: watch::Receiver<()>,
    stops: bool,
}

/// What a loop handles next.
enum Next<E> {
    /// What a command has come to.
    Answer(E),
    /// The deadline of its machine has passed.
    Tick,
    /// There are new messages.
    News,
    /// Delivery is asked to stop; said once.
    Stop,
}

impl Signals {
    fn new(stop: &watch::Receiver<bool>, feed: &Feed) -> Signals {
        Signals { stop: stop.clone(), news: feed.news(), stops: false }
    }

    /// Waits for an answer, a signal, or the deadline.
    async fn next<E: 'static>(
        &mut self,
        under_way: &mut JoinSet<E>,
        deadline: Option<Mono>,
    ) -> Result<Next<E>, JoinError> {
        let sleep = deadline.map(|at| at.since(clock::mono()));
        Ok(tokio::select! {
            Some(done) = under_way.join_next() => Next::Answer(done?),
            () = tokio::time::sleep(sleep.unwrap_or(LOOK_MAX)) => Next::Tick,
            Ok(()) = self.news.changed() => Next::News,
            () = asked(&mut self.stop), if !self.stops => {
                self.stops = true;
                Next::Stop
            }
        })
    }
}

/// Repeats a loop that a bug has ended. Its messages are delivered again.
async fn again<F: Future<Output = Result<(), JoinError>>>(mut run: impl FnMut() -> F) {
    while let Err(error) = run().await {
        tracing::error!(%error, "a delivery attempt has failed unexpectedly; restarting delivery");
        tokio::time::sleep(BEGIN_AGAIN).await;
    }
}

async fn lead(
    store: &Arc<dyn Store>,
    delivery: &Delivery,
    health: &Health,
    fence: &FencingToken,
    mut signals: Signals,
) -> Result<(), JoinError> {
    let mut random = SmallRng::from_os_rng();
    let mut receivers = Receivers::default();
    let mut machine = Machine::new(delivery.settings.clone(), clock::mono());
    // Dropped with all its tasks when the leadership ends.
    let mut under_way: JoinSet<Event> = JoinSet::new();
    let mut event = Event::Tick;
    loop {
        let mut commands = Vec::new();
        machine.step(clock::mono(), event, &mut || random.random(), &mut commands);
        for command in commands {
            let (store, fence) = (Arc::clone(store), fence.clone());
            match command {
                Command::Claim { ended, claim } => {
                    ended.iter().for_each(|attempt| receivers.note(attempt, health));
                    under_way.spawn(async move {
                        let claimed = store.claim_messages(&fence, &ended, &claim).await;
                        Event::Claimed(claimed.map_err(|error| refused("claimed", &error)))
                    })
                }
                Command::Send(message) => {
                    let sent = (message.topic.clone(), message.key.clone(), message.attempt);
                    receivers.sent.insert(message.id, sent);
                    let key = idempotency_key(store.identity(), &message);
                    let courier = Arc::clone(&delivery.courier);
                    under_way.spawn(async move {
                        let answer = courier.send(&message, &key).await;
                        tracing::debug!(
                            message = message.id,
                            topic = message.topic,
                            attempt = message.attempt,
                            ?answer,
                            "a delivery attempt has ended"
                        );
                        Event::Answered(message.id, answer)
                    })
                }
            };
        }
        if machine.is_over() {
            return Ok(());
        }
        event = Event::Tick;
        match signals.next(&mut under_way, machine.deadline()).await? {
            Next::Answer(answer) => event = answer,
            Next::Tick => {}
            Next::News => machine.look(clock::mono()),
            Next::Stop => machine.stop(),
        }
    }
}

/// What the receivers of HTTP say, by topic.
#[derive(Default)]
struct Receivers {
    /// The topic and key of each message under way, and the attempt.
    sent: BTreeMap<u64, (String, String, u32)>,
    /// The topics of which messages have failed and are tried again.
    failing: BTreeMap<String, Failing>,
}

/// The messages of a topic that have failed.
#[derive(Default)]
struct Failing {
    ids: BTreeSet<u64>,
    /// When another one was delivered since.
    delivered: Option<Mono>,
}

impl Receivers {
    /// Records whether a receiver accepts messages, and names those that are given up. A result that
    /// could not be stored is recorded again, without effect.
    fn note(&mut self, attempt: &Attempt, health: &Health) {
        // The result of an earlier attempt may be recorded again, to end the pause after it.
        let (topic, key) = match self.sent.entry(attempt.id) {
            Entry::Occupied(sent) if sent.get().2 == attempt.attempt => {
                let (topic, key, _) = sent.remove();
                (topic, key)
            }
            _ => return,
        };
        let (whole, part) = (format!("topic {topic}"), format!("a part of the topic {topic}"));
        let failing = self.failing.entry(topic.clone()).or_default();
        let now = clock::mono();
        match &attempt.end {
            End::Again { after, error } => {
                failing.ids.insert(attempt.id);
                let others = failing.delivered.is_some_and(|at| now.since(at) < OTHERS_MAX);
                let (what, other) = if others { (&part, &whole) } else { (&whole, &part) };
                let why = format!("{error}; the message is sent again");
                health.free_node(other);
                health.hold_node_for(what, (Cause::Broker, &why), *after);
                return;
            }
            End::Unsent { after, error } => {
                failing.ids.insert(attempt.id);
                let why = format!("{error}; its messages wait, and no attempt counts");
                health.free_node(&part);
                health.hold_node_for(&whole, (Cause::Broker, &why), *after);
                return;
            }
            End::Delivered(_) => failing.delivered = Some(now),
            End::GivenUp { error, .. } => {
                tracing::warn!(
                    topic,
                    key,
                    error,
                    "a message is given up: see `besom outbox ls --state given-up`"
                );
                health.gives_up();
            }
        }
        failing.ids.remove(&attempt.id);
        if failing.ids.is_empty() {
            self.failing.remove(&topic);
            health.free_node(&whole);
            health.free_node(&part);
        }
    }
}

/// Sends the messages of a topic to its broker.
async fn publish(
    store: &Arc<dyn Store>,
    to: &ToBroker,
    health: &Health,
    fence: &FencingToken,
    mut signals: Signals,
) -> Result<(), JoinError> {
    let mut random = SmallRng::from_os_rng();
    let mut machine = broker::Machine::new(to.rules.clone(), clock::mono());
    let mut under_way: JoinSet<broker::Event> = JoinSet::new();
    let mut event = broker::Event::Tick;
    loop {
        let mut commands = Vec::new();
        machine.step(clock::mono(), event, &mut || random.random(), &mut commands);
        note_held(&to.topic, machine.held(), health);
        for command in commands {
            let (store, fence) = (Arc::clone(store), fence.clone());
            match command {
                broker::Command::Read { known, held } => {
                    let (topic, rules) = (to.topic.clone(), to.rules.clone());
                    under_way.spawn(async move {
                        let (limit, bytes) = (rules.batch, rules.batch_bytes);
                        let read = store.read_messages(&topic, &known, &held, limit, bytes).await;
                        broker::Event::Read(read.map_err(|error| refused("read", &error)))
                    })
                }
                broker::Command::Note(ends) => under_way.spawn(async move {
                    let noted = store.end_messages(&fence, &ends).await;
                    broker::Event::Noted(noted.map_err(|error| refused("marked", &error)))
                }),
                broker::Command::Send(batch) => {
                    let ids: Vec<String> = batch
                        .iter()
                        .map(|message| idempotency_key(store.identity(), message))
                        .collect();
                    let broker = Arc::clone(&to.broker);
                    under_way.spawn(async move {
                        let fates = broker.send(&batch, &ids).await;
                        broker::Event::Sent(fates)
                    })
                }
            };
        }
        if machine.is_over() {
            return Ok(());
        }
        event = broker::Event::Tick;
        match signals.next(&mut under_way, machine.deadline()).await? {
            Next::Answer(answer) => event = answer,
            Next::Tick => {}
            Next::News => machine.look(clock::mono()),
            Next::Stop => machine.stop(),
        }
        if let broker::Event::Sent(fates) = &event {
            note_fates(&to.topic, fates, health);
        }
    }
}

/// Records whether a broker accepts messages.
fn note_fates(topic: &str, fates: &[Fate], health: &Health) {
    let what = format!("topic {topic}");
    let unconfirmed = fates.iter().find_map(|fate| match fate {
        Fate::Unknown(error) => Some(error),
        Fate::Accepted | Fate::Refused(_) | Fate::Held(_) | Fate::Behind => None,
    });
    match unconfirmed {
        Some(error) => {
            let why = format!("{error}; the messages wait and are sent again");
            health.hold_node(&what, Cause::Broker, &why);
        }
        None => health.free_node(&what),
    }
    for fate in fates {
        if let Fate::Refused(error) = fate {
            tracing::warn!(topic, error, "the broker refuses a message; it is given up");
            health.gives_up();
        }
    }
}

/// Maximum number of keys that are named of those whose messages wait.
const KEYS_SHOWN: usize = 3;

/// Records which keys of a topic wait, because its broker cannot take a message of theirs.
fn note_held<'a>(
    topic: &str,
    held: impl ExactSizeIterator<Item = (&'a Sequence, &'a str)>,
    health: &Health,
) {
    let (what, count) = (format!("a part of the topic {topic}"), held.len());
    let (mut keys, mut first) = (Vec::new(), None);
    for (Sequence { tenant, key }, error) in held.take(KEYS_SHOWN) {
        first = first.or(Some(error));
        keys.push(match tenant {
            Some(tenant) => format!("{key} of the tenant {tenant}"),
            None => key.clone(),
        });
    }
    let Some(error) = first else { return health.free_node(&what) };
    let keys = keys.join(", ");
    let wait = match count {
        1 => format!("the messages of the key {keys} wait"),
        2..=KEYS_SHOWN => format!("the messages of the keys {keys} wait"),
        _ => format!("the messages of {count} keys wait, among them {keys}"),
    };
    let others = match count {
        broker::HELD_MAX.. => "no more can, and a further one holds up the topic",
        _ => "others are sent",
    };
    health.hold_node(&what, Cause::Broker, &format!("{error}; {wait}, {others}"));
}

fn refused(what: &str, error: &store::Error) -> Refused {
    match error {
        store::Error::Fenced => Refused::Fenced,
        // The host ends and says why.
        store::Error::Damaged(_) => Refused::Later,
        error => {
            tracing::warn!(%error, "messages cannot be {what}; retrying");
            Refused::Later
        }
    }
}

/// The idempotency key: the same for every attempt of a message, and different from that of any
/// other message, including messages of other stores and messages to which a restored copy of this
/// store assigns the same number.
pub fn idempotency_key(identity: &str, message: &Claimed) -> String {
    let mut hash = Sha256::new();
    hash.update(identity.as_bytes());
    hash.update([0]);
    hash.update(message.id.to_be_bytes());
    hash.update(message.at.micros().to_be_bytes());
    hex::encode(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use besom_core::time::Time;

    use super::*;

    /// A topic is held while one of its messages fails, and what is given up is counted.
    #[test]
    fn the_node_says_which_receiver_fails_and_how_much_is_given_up() {
        let (health, mut receivers) = (Health::default(), Receivers::default());
        let mut nth = |id, attempt, end: Option<End>| {
            match end {
                None => drop(receivers.sent.insert(id, ("t".into(), format!("k{id}"), attempt))),
                Some(end) => receivers.note(&Attempt { id, attempt, end }, &health),
            }
            let mut held: Vec<_> = health.held().into_iter().map(|h| (h.what, h.cause)).collect();
            held.sort();
            held
        };
        let mut end = |id, end| nth(id, 1, end);
        let again = || Some(End::Again { after: Duration::from_secs(60), error: "503".into() });
        let holds = ("topic t".to_owned(), Cause::Broker);
        assert_eq!(end(1, None), []);
        assert_eq!(end(1, again()), std::slice::from_ref(&holds));
        // Another key gets through, and the first message still does not.
        end(2, None);
        assert_eq!(end(2, Some(End::Delivered(None))), std::slice::from_ref(&holds));
        end(1, None);
        let part = ("a part of the topic t".to_owned(), Cause::Broker);
        assert_eq!(end(1, again()), [part]);
        end(1, None);
        let given_up = Some(End::GivenUp { error: "404".into(), reply: None });
        assert_eq!(end(1, given_up), []);
        // An earlier result that is recorded again, to end a pause, is not that of the attempt under way.
        end(3, None);
        assert_eq!(end(3, again()), [holds]);
        nth(3, 2, None);
        nth(3, 1, again());
        assert_eq!(nth(3, 2, Some(End::Delivered(None))), []);
        assert_eq!(health.given_up(), 1);
    }

    #[test]
    fn the_node_names_keys_that_wait_for_a_message_that_a_broker_cannot_take() {
        let health = Health::default();
        let shown = |count: usize| {
            let of =
                |n: usize| Sequence { tenant: (n == 0).then(|| "p".into()), key: format!("k{n}") };
            let all: Vec<_> = (0..count).map(of).collect();
            note_held("t", all.iter().map(|of| (of, "too large")), &health);
            health.held().into_iter().map(|held| (held.what, held.why)).next()
        };
        let what = "a part of the topic t".to_owned();
        for (count, why) in [
            (1, "too large; the messages of the key k0 of the tenant p wait, others are sent"),
            (2, "too large; the messages of the keys k0 of the tenant p, k1 wait, others are sent"),
            (
                9,
                "too large; the messages of 9 keys wait, among them k0 of the tenant p, k1, k2, \
                 others are sent",
            ),
            (
                100,
                "too large; the messages of 100 keys wait, among them k0 of the tenant p, k1, k2, \
                 no more can, and a further one holds up the topic",
            ),
        ] {
            assert_eq!(shown(count), Some((what.clone(), why.to_owned())));
        }
        assert_eq!(shown(0), None);
    }

    #[test]
    fn a_key_is_of_one_message_of_one_store_and_of_all_its_attempts() {
        let message = |id, at, attempt| Claimed {
            id,
            at: Time(at),
            task: None,
            run: None,
            tenant: None,
            topic: "t".into(),
            key: "k".into(),
            sequence: 1,
            payload: Vec::new(),
            attempt,
        };
        let key = idempotency_key("store", &message(7, 9, 1));
        assert_eq!(key.len(), 32);
        assert_eq!(key, idempotency_key("store", &message(7, 9, 2)));
        for other in [
            idempotency_key("other", &message(7, 9, 1)),
            idempotency_key("store", &message(8, 9, 1)),
            idempotency_key("store", &message(7, 10, 1)),
        ] {
            assert_ne!(key, other);
        }
    }
}
