//! A store with one workspace, its two tasks, and the steps between an item and its commit, one by
//! one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom_config::{Config, Overrides, Plugin, RawConfig};
use besom_core::delivery::{self, Attempt, Claim};
use besom_core::ids::{CommitId, FencingToken, Incarnation, OwnerEpoch, Partition};
use besom_core::proposal::Change;
use besom_core::queue::{self, Decision};
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_engine::host::deliver::idempotency_key;
use besom_engine::host::perform::call_of;
use besom_ports::activity::{self, Activity};
use besom_ports::courier::Courier as _;
use besom_ports::guests::{Guests as _, Lane, StopFlag};
use besom_ports::store::{Batch, Claimed, EndOfScan, Entry, Outcome, SlotDecision, Store, Waiting};
use besom_product::model::default_collections;
use besom_runtime::{Runtime, Settings};
use besom_services::courier::HttpCourier;
use besom_tests::conformance::Fixture;
use besom_tests::conformance::world::{self, START};
use besom_tests::servers::orchestrator::Orchestrator;

/// The tenant and the workspace of every test here.
pub const TENANT: &str = "p";
pub const WORKSPACE: &str = "ws-1";

const TOPICS: [&str; 5] = ["stop", "start", "archive", "restore", "provision"];

/// One store, its host, its orchestrator.
pub struct Estate {
    pub fixture: Box<dyn Fixture>,
    pub orchestrator: Orchestrator,
    pub now: Time,
    runtime: Runtime,
    config: Config,
    courier: HttpCourier,
    fence: FencingToken,
    epochs: BTreeMap<Partition, OwnerEpoch>,
    commits: u128,
}

/// No key is in use.
struct Nobody;

#[async_trait]
impl Activity for Nobody {
    async fn states(&self, keys: &[String]) -> Result<Vec<activity::State>, activity::Error> {
        Ok(vec![activity::State::Idle; keys.len()])
    }

    async fn connect(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }

    async fn disconnect(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }

    async fn heartbeat(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }
}

impl Estate {
    /// With a workspace whose status is also its desired state, and further keys of the topics
    /// besides the URL.
    pub async fn new(fixture: Box<dyn Fixture>, status: &str, topic: &str) -> Estate {
        let orchestrator = Orchestrator::start().await;
        let store = fixture.store();
        fixture.set_now(START);
        fixture.create_model().await;
        store.set_collections(Arc::new(default_collections()));
        let cache = Some(besom_tests::compiled());
        let runtime = Runtime::start(Settings { cache, ..Settings::default() }).unwrap();
        let mut found = BTreeMap::new();
        for name in ["reconciler", "ttl-transitions"] {
            let loaded = runtime.load(besom_tests::plugin(name)).await.unwrap();
            let (manifest, digest) = (loaded.manifest, loaded.digest);
            found.insert(name, Plugin { manifest, digest, built_in: true });
        }
        let address = orchestrator.address();
        let mut text = format!(
            "[delivery]\nhosts = [\"{address}\"]\n\
             [host]\ndefault_mode = \"live\"\n[tasks.reconciler]\nplugin = \"reconciler\"\nschedule = \"@every 5s\"\n\
             [tasks.ttl]\nplugin = \"ttl-transitions\"\nschedule = \"@every 1m\"\n"
        );
        for name in TOPICS {
            text += &format!(
                "[topics.\"workspace.{name}\"]\nurl = \"http://{address}/{name}\"\n{topic}\n"
            );
        }
        let config = RawConfig::parse(&text, Path::new("besom.toml"), &Overrides::default())
            .resolve(&|name| Ok(found[name].clone()), &default_collections())
            .finish();
        let config = config.unwrap_or_else(|problems| panic!("{problems}"));
        let courier = HttpCourier::new(&config, fixture.store().identity()).unwrap();
        let mut estate = Estate {
            fixture,
            orchestrator,
            now: START,
            runtime,
            config,
            courier,
            fence: world::fence(1),
            epochs: BTreeMap::new(),
            commits: 0,
        };
        estate.lead(1).await;
        let row = [
            ("workspace_id", Value::Text(WORKSPACE.into())),
            ("status", Value::Text(status.into())),
            ("operation", Value::Text("NONE".into())),
            ("desired_state", Value::Text(status.into())),
            ("version", Value::Integer(1)),
            ("archive_ttl_seconds", Value::Integer(3_600)),
            ("last_access_at", Value::Timestamp(START)),
        ];
        let collection = "workspaces".to_owned();
        estate.write(Change::Insert { collection, fields: fields(&row) }).await;
        estate
    }

    pub fn store(&self) -> Arc<dyn Store> {
        self.fixture.store()
    }

    /// Another node leads from now on.
    pub async fn lead(&mut self, term: u64) {
        self.fence = world::fence(term);
        let node = Incarnation::from("node-1");
        let raised = self.store().raise_fence(&self.fence, &node, None).await.unwrap();
        self.epochs = raised.owned.into_iter().collect();
    }

    pub fn advance(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.fixture.set_now(self.now);
    }

    async fn write(&self, change: Change) {
        let collections = Arc::new(default_collections());
        self.fixture.write(&collections, &[(Some(TENANT.into()), change)]).await;
    }

    /// The user chooses a state, as products write it.
    pub async fn wants(&self, desired: &str) {
        let key = vec![Value::Text(WORKSPACE.into())];
        let written = [
            ("desired_state", Value::Text(desired.into())),
            ("last_manual_change_at", Value::Timestamp(self.now)),
            ("last_access_at", Value::Timestamp(self.now)),
        ];
        let collection = "workspaces".to_owned();
        let (of, by) = (collection.clone(), vec![Field::new("version", Value::Integer(1))]);
        self.write(Change::Increment { collection: of, key: key.clone(), fields: by }).await;
        self.write(Change::Update { collection, key, fields: fields(&written) }).await;
    }

    /// Status, operation, desired state and archive of the workspace.
    pub async fn state(&self) -> [String; 4] {
        let view = self.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let columns = ["status", "operation", "desired_state", "archive_key"].map(str::to_owned);
        let key = vec![Value::Text(WORKSPACE.into())];
        let rows = view.get_many(Some(&TENANT.into()), "workspaces", &[key], &columns).await;
        let row = rows.unwrap().remove(0).expect("the workspace");
        let word = |value: Value| match value {
            Value::Text(text) => text,
            Value::Null => "-".into(),
            other => panic!("{other:?}"),
        };
        let words: Vec<String> = row.into_iter().map(word).collect();
        words.try_into().expect("four columns")
    }

    /// Scans as a leader does; returns how many items were planned.
    pub async fn plan(&self, task: &str) -> u64 {
        let (store, definition) = (self.store(), &self.config.tasks[task]);
        let runs = vec![world::new_run(task, self.now)];
        let slots = SlotDecision { runs, ..SlotDecision::default() };
        let run = store.decide_slots(&self.fence, &slots).await.unwrap()[0];
        let view = store.snapshot(Duration::from_secs(60)).await.unwrap();
        let call = call_of(definition, self.now, 0, &StopFlag::default());
        let mut candidates = Vec::new();
        let mut cursor = None;
        loop {
            let (view, tenant) = (Arc::clone(&view), TENANT.into());
            let page = self
                .runtime
                .scan(&call, view, Arc::new(Nobody), Some(&tenant), cursor.as_deref(), world::ALL)
                .await
                .unwrap();
            candidates.extend(page.candidates);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let page = world::page(task, run, candidates);
        let planned = store.plan_page(&self.fence, &page).await.unwrap();
        store.end_scan(&self.fence, &EndOfScan::of(task.into(), run)).await.unwrap();
        planned.planned
    }

    /// The only waiting item, if there is one, with the current decision about it.
    pub async fn decide(&self, task: &str) -> Option<(Waiting, Decision)> {
        let (store, definition) = (self.store(), &self.config.tasks[task]);
        let mut waiting = store.read_retries(None, None, None, world::ALL).await.unwrap();
        waiting.retain(|waiting| waiting.item.identity.task.as_str() == task);
        for stream in store.backlog(None).await.unwrap() {
            if stream.task.as_str() == task {
                let (task, partition) = (&stream.task, stream.partition);
                let read = store.read_log(task, partition, stream.acked, world::ALL, usize::MAX);
                waiting.extend(read.await.unwrap());
            }
        }
        assert!(waiting.len() < 2, "{waiting:?}");
        let waiting = waiting.pop()?;
        let call = call_of(definition, self.now, 0, &StopFlag::default());
        let view = store.snapshot(Duration::from_secs(60)).await.unwrap();
        let items = std::slice::from_ref(&waiting.item);
        let acted = self.runtime.act(&call, view, Arc::new(Nobody), items).await.unwrap();
        let said = acted.verdicts.into_iter().next().expect("a verdict");
        let said = said.map_err(|fault| fault.message);
        let decision = queue::decide(&definition.retry, &waiting.item, self.now, said, true);
        Some((waiting, decision))
    }

    /// Commits a decision.
    pub async fn commit(&mut self, (waiting, decision): (Waiting, Decision)) -> Outcome {
        self.commits += 1;
        let (source, item) = (waiting.source, waiting.item);
        let epoch = self.epochs[&item.partition];
        let batch = Batch {
            id: CommitId(self.commits),
            node: Incarnation::from("node-1"),
            entries: vec![Entry { source, item, epoch, decision }],
            as_of: Time::EPOCH,
            idle: vec![(0, WORKSPACE.to_owned())],
            activity_in_store: false,
            lane: Lane::Normal,
            braked: false,
        };
        self.store().commit(&batch).await.unwrap().outcomes.remove(0)
    }

    /// One whole slot of a task; returns the outcome, if there was an item.
    pub async fn slot(&mut self, task: &str) -> Option<Outcome> {
        self.plan(task).await;
        let decided = self.decide(task).await?;
        Some(self.commit(decided).await)
    }

    /// Claims the messages that are due.
    pub async fn claim(&self) -> Vec<Claimed> {
        let room = TOPICS.iter().map(|name| (format!("workspace.{name}"), 8)).collect();
        let wait_max = Duration::from_secs(3_600);
        let claim = Claim { room, hold: Duration::from_secs(15), wait_max };
        self.store().claim_messages(&self.fence, &[], &claim).await.unwrap()
    }

    /// Sends a message; the result is not recorded yet.
    pub async fn send(&self, message: &Claimed) -> Attempt {
        let key = idempotency_key(self.store().identity(), message);
        let answer = self.courier.send(message, &key).await;
        let rules = self.config.topics[&message.topic].rules();
        let end = delivery::judge(&rules, message.attempt, answer, 0);
        Attempt { id: message.id, attempt: message.attempt, end }
    }

    /// Records the result of an attempt.
    pub async fn note(&self, attempt: Attempt) -> besom_ports::store::Result<()> {
        let none = Claim::default();
        self.store().claim_messages(&self.fence, &[attempt], &none).await.map(drop)
    }

    /// Delivers all due messages; returns the number of attempts.
    pub async fn deliver(&self) -> usize {
        let mut attempts = 0;
        loop {
            let claimed = self.claim().await;
            if claimed.is_empty() {
                return attempts;
            }
            for message in &claimed {
                attempts += 1;
                let attempt = self.send(message).await;
                self.note(attempt).await.unwrap();
            }
        }
    }

    /// Runs slots of the reconciler and deliveries until no work is left; returns the workspace's
    /// states on the way.
    pub async fn converge(&mut self) -> Vec<[String; 4]> {
        let mut states = vec![self.state().await];
        for _ in 0..20 {
            let outcome = self.slot("reconciler").await;
            let attempts = self.deliver().await;
            let state = self.state().await;
            if states.last() != Some(&state) {
                states.push(state);
            } else if outcome.is_none() && attempts == 0 {
                return states;
            }
            self.advance(5);
        }
        panic!("it does not come to an end: {states:#?}");
    }
}

fn fields(row: &[(&str, Value)]) -> Vec<Field> {
    row.iter().map(|(name, value)| Field::new(*name, value.clone())).collect()
}

/// A test on every store that computes generated columns.
macro_rules! on_every_store {
    ($($(#[$doc:meta])* async fn $name:ident($estate:ident: $status:expr, $topic:expr) $body:block)*) => {
        $($(#[$doc])* mod $name {
            use super::*;

            async fn run(fixture: Box<dyn besom_tests::conformance::Fixture>) {
                #[allow(unused_mut, reason = "some tests only look")]
                let mut $estate = Estate::new(fixture, $status, $topic).await;
                $body
                let audit = $estate.store().audit().await.unwrap();
                assert!(audit.balanced(), "{audit:#?}");
            }

            #[tokio::test]
            async fn sqlite() {
                run(Box::new(besom_tests::adapters::sqlite::Sqlite::open())).await;
            }

            #[tokio::test]
            async fn postgres() {
                run(Box::new(besom_tests::adapters::postgres::Postgres::open().await)).await;
            }
        })*
    };
}
pub(crate) use on_every_store;
