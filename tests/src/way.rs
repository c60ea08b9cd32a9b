//! Delivery to one broker, over the store in memory: what the tests of all brokers share.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_config::delivery::Receiver;
use besom_config::{Config, Overrides, RawConfig};
use besom_core::delivery::{Settings, State};
use besom_core::ids::{FencingToken, Incarnation, Tenant};
use besom_core::proposal::Change;
use besom_engine::host::deliver::{Delivery, Stopping, ToBroker, deliver};
use besom_engine::host::feed::{Bounds, Feed};
use besom_ports::courier::Broker;
use besom_ports::store::{Command, CommandEffect, Message, MessageQuery, MessageSelector, Store};
use besom_product::model::default_collections;
use besom_services::courier::HttpCourier;
use besom_services::courier::kafka::KafkaTopic;
use besom_services::courier::redis::RedisStream;
use tokio::sync::watch;

use crate::adapters::memory::Memory;
use crate::conformance::Fixture;
use crate::conformance::world::fence;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store, and the delivery of the topic `t` to a broker.
pub struct Way {
    /// The store.
    pub store: Arc<dyn Store>,
    leading: watch::Sender<Option<FencingToken>>,
    fixture: Memory,
}

impl Way {
    /// Delivery to the servers of a URL, with further keys of the topic.
    pub async fn new(url: &str, more: &str) -> Way {
        Way::trusting(None, url, more).await
    }

    /// With the certificates of an authority.
    pub async fn trusting(ca: Option<&Path>, url: &str, more: &str) -> Way {
        let text = format!(
            "[delivery]\nhosts = [\"127.0.0.1\"]\npoll = \"10ms\"\n\
             [topics.t]\nurl = \"{url}\"\ntimeout = \"2s\"\nbackoff = \"10ms\"\n\
             backoff_max = \"100ms\"\n{more}\n"
        );
        let config: Config =
            RawConfig::parse(&text, Path::new("besom.toml"), &Overrides::default())
                .outline(&default_collections())
                .finish()
                .unwrap_or_else(|problems| panic!("{problems}"));
        let fixture = Memory::open();
        let store = fixture.store();
        let route = &config.topics["t"];
        let identity = store.identity();
        let broker: Arc<dyn Broker> = match Receiver::parse(&route.url).expect("a URL") {
            Receiver::Redis(servers) => {
                Arc::new(RedisStream::new("t", route, &servers, ca, identity).unwrap())
            }
            Receiver::Kafka(servers) => {
                Arc::new(KafkaTopic::new("t", route, &servers, ca, identity).unwrap())
            }
            Receiver::Http(_) => panic!("{url} is no broker"),
        };
        let brokers = vec![ToBroker {
            topic: "t".into(),
            rules: route.broker_rules(config.delivery.poll),
            broker,
        }];
        let courier = Arc::new(HttpCourier::new(&config, store.identity()).unwrap());
        let settings =
            Settings { topics: BTreeMap::new(), concurrency: 1, poll: config.delivery.poll };
        let (leading, leads) = watch::channel(None);
        let feed = Feed::new(Arc::clone(&store), Vec::new(), Bounds::default());
        let delivery = Delivery { courier, settings, brokers, feed };
        let stopping = Stopping { asked: watch::channel(false).1, done: watch::channel(false).0 };
        tokio::spawn(deliver(Arc::clone(&store), delivery, Arc::default(), leads, stopping));
        Way { store, leading, fixture }
    }

    /// Begins a leadership.
    pub async fn lead(&self, term: u64) {
        let fence = fence(term);
        self.store.raise_fence(&fence, &Incarnation::from("n"), None).await.unwrap();
        self.leading.send_replace(Some(fence));
    }

    /// Emits messages, each to the key of its number modulo `keys`.
    pub fn emit(&self, numbers: impl IntoIterator<Item = usize>, keys: usize) {
        let message = |n: usize| ((n % keys).to_string(), format!("{{\"n\":{n}}}"));
        self.emit_as_they_are(numbers.into_iter().map(message));
    }

    /// Emits messages: the key and the payload of each.
    pub fn emit_as_they_are(&self, messages: impl IntoIterator<Item = (String, String)>) {
        let change = |(key, payload): (String, String)| Change::Emit {
            topic: "t".into(),
            key,
            payload: payload.into_bytes(),
        };
        let changes: Vec<_> = messages
            .into_iter()
            .map(|message| (Some(Tenant::from("p")), change(message)))
            .collect();
        self.fixture.inner().write(&changes).unwrap();
    }

    /// The messages in a state.
    pub async fn in_state(&self, state: State) -> Vec<Message> {
        let query = MessageQuery { state: Some(state), limit: 100_000, ..MessageQuery::default() };
        self.store.messages(&query).await.unwrap()
    }

    /// Discards a message, as an operator does.
    pub async fn discard(&self, id: u64) {
        let which = MessageSelector { ids: vec![id], ..MessageSelector::default() };
        let command = Command::DiscardMessages(which.clone());
        let command = self.store.submit(&command, "ann", "too large").await.unwrap();
        let command = self.store.command(command).await.unwrap().expect("the command");
        let effect = CommandEffect::DiscardMessages(which);
        let leading = self.leading.borrow().clone().expect("a leader");
        let letters = NonZeroU32::MIN;
        let applied = self.store.apply_command(&leading, &command, &effect, "", letters).await;
        assert_eq!(applied.unwrap().messages, 1);
    }

    /// Waits until so many messages are delivered.
    pub async fn until_delivered(&self, count: usize) {
        let begin = Instant::now();
        while self.in_state(State::Delivered).await.len() < count {
            let late = begin.elapsed() >= PATIENCE;
            assert!(!late, "{:?}", self.in_state(State::Pending).await.last());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a pending message with an error that contains these words.
    pub async fn until_held(&self, words: &str) {
        let begin = Instant::now();
        loop {
            let pending = self.in_state(State::Pending).await;
            let errors = || pending.iter().filter_map(|message| message.delivery.error.as_deref());
            if errors().any(|error| error.contains(words)) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{words}: {:?}", errors().next());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until the condition holds.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !look().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What was emitted for `numbers`, by key.
pub fn emitted(numbers: usize, keys: usize) -> BTreeMap<String, Vec<String>> {
    let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for n in 0..numbers {
        of.entry((n % keys).to_string()).or_default().push(format!("{{\"n\":{n}}}"));
    }
    of
}
