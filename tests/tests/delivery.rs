//! The delivery loop: it runs while its node leads, calls the routes, and respects its concurrency.
//! Over the store in memory and real HTTP.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_config::{Config, Overrides, RawConfig};
use besom_core::delivery::{Settings, State};
use besom_core::ids::{FencingToken, Incarnation};
use besom_core::proposal::Change;
use besom_engine::host::deliver::{Delivery, Stopping, deliver};
use besom_engine::host::feed::{Bounds, Feed, Refused};
use besom_engine::host::health::Health;
use besom_ports::store::{Entered, MessageQuery, Offered, Store};
use besom_product::model::default_collections;
use besom_services::courier::HttpCourier;
use besom_sqlite::{Options, SqliteStore};
use besom_tests::adapters::memory::Memory;
use besom_tests::conformance::Fixture;
use besom_tests::conformance::world::fence;
use besom_tests::servers::orchestrator::{Orchestrator, Reply};
use tokio::sync::watch;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store, a receiver, and the delivery between them.
struct Way {
    store: Arc<dyn Store>,
    orchestrator: Orchestrator,
    leading: watch::Sender<Option<FencingToken>>,
    fixture: Memory,
    feed: Arc<Feed>,
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
}

impl Way {
    async fn new(more: &str) -> Way {
        Way::with("", more).await
    }

    /// With keys of `[delivery]` and of the topic.
    async fn with(delivery: &str, more: &str) -> Way {
        let (orchestrator, fixture) = (Orchestrator::start().await, Memory::open());
        let address = orchestrator.address();
        let text = format!(
            "[delivery]\nhosts = [\"{address}\"]\npoll = \"10ms\"\n{delivery}\n\
             [topics.t]\nurl = \"http://{address}/t\"\n{more}\n"
        );
        let config = config(&text);
        let topics = config.topics.iter().map(|(name, route)| (name.clone(), route.rules()));
        let settings = Settings {
            topics: topics.collect(),
            concurrency: config.delivery.concurrency,
            poll: config.delivery.poll,
        };
        let store = fixture.store();
        let courier = Arc::new(HttpCourier::new(&config, store.identity()).unwrap());
        let fed = config.topics.iter().filter(|(_, route)| route.feed);
        let fed = fed.map(|(name, _)| name.clone()).collect();
        let bounds = Bounds {
            pending_messages: config.delivery.pending_max,
            poll: config.delivery.poll,
            ..Bounds::default()
        };
        let feed = Feed::new(Arc::clone(&store), fed, bounds);
        let (leading, leads) = watch::channel(None);
        let (stop, asked) = watch::channel(false);
        let (done, stopped) = watch::channel(false);
        tokio::spawn(deliver(
            Arc::clone(&store),
            Delivery { courier, settings, brokers: Vec::new(), feed: Arc::clone(&feed) },
            Arc::default(),
            leads,
            Stopping { asked, done },
        ));
        Way { store, orchestrator, leading, fixture, feed, stop, stopped }
    }

    async fn lead(&self, term: u64) {
        let fence = fence(term);
        self.store.raise_fence(&fence, &Incarnation::from("n"), None).await.unwrap();
        self.leading.send_replace(Some(fence));
    }

    async fn emit(&self, keys: impl IntoIterator<Item = usize>) {
        let change = |key: usize| Change::Emit {
            topic: "t".into(),
            key: key.to_string(),
            payload: b"{}".to_vec(),
        };
        let changes: Vec<_> = keys.into_iter().map(|key| (None, change(key))).collect();
        self.fixture.inner().write(&changes).unwrap();
    }

    async fn in_state(&self, state: State) -> usize {
        let query = MessageQuery { state: Some(state), limit: 1_000, ..MessageQuery::default() };
        self.store.messages(&query).await.unwrap().len()
    }
}

fn config(text: &str) -> Config {
    RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default())
        .outline(&default_collections())
        .finish()
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// Waits until the condition holds.
async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !look().await {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leads_delivers_and_nobody_else() {
    let way = Way::new("").await;
    way.emit(0..20).await;
    tokio::task::yield_now().await;
    assert!(way.orchestrator.seen().is_empty());
    way.lead(1).await;
    until("all are delivered", async || way.in_state(State::Delivered).await == 20).await;
    assert_eq!(way.orchestrator.seen().len(), 20);
    way.emit(20..21).await;
    until("and what comes later", async || way.in_state(State::Delivered).await == 21).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_cannot_be_read_gives_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let chmod = |mode| std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode));
    chmod(0o600).unwrap();
    let keys = format!(
        "token_file = \"{}\"\nattempts_max = 1\nbackoff = \"10ms\"\nbackoff_max = \"20ms\"",
        token.display()
    );
    let way = Way::new(&keys).await;
    chmod(0o644).unwrap();
    way.emit(0..3).await;
    way.lead(1).await;
    let all = async || {
        let query = MessageQuery { limit: 10, ..MessageQuery::default() };
        let all = way.store.messages(&query).await.unwrap();
        all.into_iter().map(|message| message.delivery).collect::<Vec<_>>()
    };
    let says = |error: &Option<String>| error.as_ref().is_some_and(|e| e.contains("chmod 600"));
    until("all have failed", async || all().await.iter().all(|of| says(&of.error))).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(all().await.iter().all(|of| of.state == State::Pending), "{:?}", all().await);
    assert!(way.orchestrator.seen().is_empty());
    chmod(0o600).unwrap();
    let mut now = besom_core::time::Time::from_secs(1_900_000_000);
    until("all are delivered", async || {
        // Slowly: a request that takes longer than its message is hidden would be made twice.
        tokio::time::sleep(Duration::from_millis(20)).await;
        now = now + Duration::from_secs(1);
        way.fixture.set_now(now);
        way.in_state(State::Delivered).await == 3
    })
    .await;
    assert!(all().await.iter().all(|of| of.attempts == 1), "{:?}", all().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_under_way_than_the_topic_allows() {
    let way = Way::new("concurrency = 3\ntimeout = \"100ms\"\nattempts_max = 1").await;
    // No call is answered: calls that are not given up yet are in flight.
    way.orchestrator.answer(|_, _| Reply::Silence);
    way.emit(0..12).await;
    way.lead(1).await;
    until("all are given up", async || {
        let told = way.orchestrator.seen().len();
        let given_up = way.in_state(State::GivenUp).await;
        assert!(told <= given_up + 3, "{told} told, {given_up} given up");
        given_up == 12
    })
    .await;
    assert_eq!(way.orchestrator.seen().len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_under_way_at_a_takeover_is_delivered_again_with_its_key() {
    let way = Way::new("timeout = \"50s\"").await;
    way.orchestrator.answer(|_, before| match before {
        0 => Reply::Silence,
        _ => Reply::ok(""),
    });
    way.emit(0..1).await;
    way.lead(1).await;
    until("it is told", async || way.orchestrator.seen().len() == 1).await;
    way.leading.send_replace(None);
    way.lead(2).await;
    way.emit(1..2).await;
    assert_eq!(way.in_state(State::Delivered).await, 0);
    // Its hold is over.
    let now = way.store.now().await.unwrap();
    way.fixture.set_now(now + Duration::from_secs(60));
    let first = || -> Vec<String> {
        let seen = way.orchestrator.seen().into_iter();
        seen.filter(|request| request.headers["besom-key"] == "0").map(|r| r.key).collect()
    };
    until("it is told again", async || first().len() == 2).await;
    assert_eq!(first()[0], first()[1]);
    until("it is delivered", async || way.in_state(State::Delivered).await >= 1).await;
}

/// An orderly stop repeats nothing: what is under way is finished, and its result recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_finishes_its_requests_and_begins_no_other() {
    let mut way = Way::new("concurrency = 1").await;
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    way.orchestrator.answer(move |_, _| {
        wait.lock().unwrap().recv().unwrap();
        Reply::ok("")
    });
    way.emit(0..3).await;
    way.lead(1).await;
    until("one is under way", async || way.orchestrator.seen().len() == 1).await;
    way.stop.send_replace(true);
    assert!(!*way.stopped.borrow(), "its answer is awaited");
    answer.send(()).unwrap();
    way.stopped.wait_for(|done| *done).await.unwrap();
    assert_eq!(way.in_state(State::Delivered).await, 1);
    assert_eq!(way.orchestrator.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_an_event_in_either_mode() {
    let way = Way::new("feed = true\nschema = \"urn:example\"").await;
    way.emit([7]).await;
    way.emit([7]).await;
    way.lead(1).await;
    until("both are delivered", async || way.in_state(State::Delivered).await == 2).await;
    let seen = way.orchestrator.seen();
    assert_eq!(seen.len(), 2);
    for (request, number) in seen.iter().zip(1..) {
        let of = |name: &str| {
            let value = request.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or("-").to_owned()
        };
        assert_eq!(
            ["ce-specversion", "ce-type", "ce-subject", "ce-dataschema", "content-type"].map(of),
            ["1.0", "t", "7", "urn:example", "application/json"]
        );
        assert_eq!(of("ce-id"), request.key);
        assert_eq!(of("ce-source"), format!("urn:besom:{}", way.store.identity()));
        assert_eq!(of("ce-sequence"), format!("{number:020}"));
        assert_eq!(of("besom-sequence"), number.to_string());
        assert_eq!(of("ce-datacontenttype"), "-", "Content-Type takes its place");
        assert_eq!((request.body.as_slice(), of("content-length").as_str()), (&b"{}"[..], "2"));
    }
    let (topic, key) = ("t".to_owned(), "8".to_owned());
    let empty = Offered { topic, tenant: None, key, number: None, payload: Vec::new() };
    way.feed.enter("t", &[empty]).await.unwrap();
    until("it is delivered", async || way.in_state(State::Delivered).await == 3).await;
    assert_eq!(way.orchestrator.seen()[2].headers["content-length"], "0");

    let way = Way::new("envelope = \"structured\"").await;
    way.emit([7]).await;
    way.lead(1).await;
    until("it is delivered", async || way.in_state(State::Delivered).await == 1).await;
    let request = way.orchestrator.seen().remove(0);
    assert_eq!(request.headers["content-type"], "application/cloudevents+json");
    assert_eq!(request.headers.get("ce-id"), None);
    assert_eq!(
        (request.field("subject"), request.field("id")),
        ("7".into(), request.key.as_str().into())
    );
    assert_eq!(request.field("data"), serde_json::json!({}));
}

/// Waits for messages of the product in the outbox, and for room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_the_product_are_delivered_and_bounded() {
    let way = Way::with("pending_max = 2", "feed = true").await;
    let offered = |key: &str, number| Offered {
        topic: "t".into(),
        tenant: None,
        key: key.into(),
        number,
        payload: b"{}".to_vec(),
    };
    let enter = async |one: Offered| way.feed.enter("t", &[one]).await;
    assert_eq!(enter(offered("k", Some(1))).await.unwrap(), [Entered::Stored { sequence: 1 }]);
    assert_eq!(enter(offered("k", Some(2))).await.unwrap(), [Entered::Stored { sequence: 2 }]);
    let full = enter(offered("k", Some(3))).await;
    let Err(Refused::Full(why)) = full else { panic!("{full:?}") };
    assert!(why.starts_with("2 messages of the product to the topic `t` are waiting"), "{why}");
    // The table is read by the leader, and only while there is room.
    way.fixture.insert_messages(&[offered("l", None), offered("m", None)]).await;
    way.lead(1).await;
    until("all are delivered", async || way.in_state(State::Delivered).await == 4).await;
    until("there is room again", async || enter(offered("k", Some(3))).await.is_ok()).await;
    until("it is delivered", async || way.in_state(State::Delivered).await == 5).await;
    let other = way.feed.enter("u", &[offered("k", None)]).await;
    assert!(matches!(&other, Err(Refused::Topic(why)) if why.contains("feed = true")), "{other:?}");
}

/// A store on SQLite, into which a product inserts rows, and a leader that takes them up and sends nothing.
struct Table {
    product: rusqlite::Connection,
    feed: Arc<Feed>,
    health: Arc<Health>,
    _leads: watch::Sender<Option<FencingToken>>,
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Table {
    async fn of(topics: &[&str], bounds: Bounds) -> Table {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("besom.db");
        let store = SqliteStore::open(file.clone(), Options::default()).unwrap();
        let product = rusqlite::Connection::open(file).unwrap();
        product.busy_timeout(PATIENCE).unwrap();
        let topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        let poll = bounds.poll;
        let feed = Feed::new(store.clone(), topics, bounds);
        let courier = Arc::new(HttpCourier::new(&config(""), store.identity()).unwrap());
        let settings = Settings { topics: BTreeMap::new(), concurrency: 1, poll };
        let delivery = Delivery { courier, settings, brokers: Vec::new(), feed: feed.clone() };
        let fence = fence(1);
        store.raise_fence(&fence, &Incarnation::from("n"), None).await.unwrap();
        let (leads, fences) = watch::channel(Some(fence));
        let health: Arc<Health> = Arc::default();
        let (stop, asked) = watch::channel(false);
        let stopping = Stopping { asked, done: watch::channel(false).0 };
        tokio::spawn(deliver(store, delivery, health.clone(), fences, stopping));
        Table { product, feed, health, _leads: leads, _stop: stop, _dir: dir }
    }

    fn insert(&self, topic: &str) {
        let sql = "INSERT INTO besom_feed (topic, key, payload) VALUES (?1, 'k', '{}')";
        self.product.execute(sql, [topic]).unwrap();
    }

    fn count(&self, table: &str, topic: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table} WHERE topic = ?1");
        self.product.query_row(&sql, [topic], |row| row.get(0)).unwrap()
    }
}

/// On SQLite, where a number that was damaged cannot be counted up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_moved_holds_up_its_topic_alone_and_is_told() {
    let bounds = Bounds { poll: Duration::from_millis(10), ..Bounds::default() };
    let table = Table::of(&["s", "t"], bounds).await;
    table.insert("t");
    until("it is moved", async || table.count("besom_outbox", "t") == 1).await;

    let highest = "UPDATE besom_outbox_sequence SET last = 9223372036854775807 WHERE topic = 't'";
    table.product.execute(highest, []).unwrap();
    table.insert("t");
    table.insert("s");
    until("the other topic goes on", async || table.count("besom_outbox", "s") == 1).await;
    let told = || table.health.held().into_iter().any(|held| held.what == "rows of the topic t");
    until("it is told", async || told()).await;
    assert_eq!(table.count("besom_feed", "t"), 1);

    let lower = "UPDATE besom_outbox_sequence SET last = 1 WHERE topic = 't'";
    table.product.execute(lower, []).unwrap();
    until("it is moved as well", async || table.count("besom_outbox", "t") == 2).await;
    until("nothing is told any more", async || !told()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_row_is_taken_up_when_it_is_inserted_however_seldom_the_table_is_read() {
    let poll = Duration::from_secs(24 * 3600);
    let table = Table::of(&["t"], Bounds { poll, pending_bytes: 1_000, ..Bounds::default() }).await;
    for row in 1..=3 {
        table.insert("t");
        until("it is moved", async || table.count("besom_outbox", "t") == row).await;
    }
    // How much was moved is known by its bound only, which exceeds what may wait: it is measured.
    let offered = Offered {
        topic: "t".into(),
        tenant: None,
        key: "k".into(),
        number: None,
        payload: b"{}".to_vec(),
    };
    let entered = table.feed.enter("t", &[offered]).await.unwrap();
    assert_eq!(entered, [Entered::Stored { sequence: 4 }]);
}
