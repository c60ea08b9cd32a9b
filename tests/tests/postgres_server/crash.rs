//! The server is unavailable and returns: no confirmed effect is lost, none is doubled, and the
//! same store continues.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use besom_core::proposal::Change;
use besom_core::value::{Field, Value};
use besom_ports::store::{Batch, Error, Outcome, Store};
use besom_postgres::{Options, PostgresStore};
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{text, thing};
use besom_tests::conformance::world::{apply, candidate, skip};
use besom_tests::conformance::{World, block_on};
use besom_tests::servers::postgres::{Database, Disk, Server};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

/// A server that the test may kill.
fn server() -> &'static Server {
    Box::leak(Box::new(Server::start(Disk::Synced, &[])))
}

fn options() -> Options {
    Options { connect_timeout: Duration::from_secs(2), ..patient() }
}

#[test]
fn a_server_that_is_away_at_the_start_is_named_and_may_come() {
    block_on(async {
        let server = server();
        let database = server.empty();
        server.kill();
        let Err(error) = PostgresStore::open(&database.url(), options()).await else {
            panic!("a store without a server");
        };
        let Error::Unavailable(said) = &error else { panic!("{error:?} is final") };
        assert!(said.contains("PostgreSQL at ") && said.contains("database test_1"), "{said}");
        server.start_again();
        assert!(PostgresStore::open(&database.url(), options()).await.is_ok());
    });
}

/// No connection of the pools has survived, and the store need not be opened again.
#[test]
fn a_store_goes_on_when_its_server_is_back() {
    block_on(async {
        let server = server();
        let world = World::new(Box::new(Postgres::open_on(server, options()).await)).await;
        world.write(vec![thing("t", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let batch = world.batch(vec![world.entry(&item, skip("done"))]);

        server.kill();
        let store = world.store();
        for away in [store.now().await.err(), store.commit(&batch).await.err()] {
            assert!(matches!(away, Some(Error::Unavailable(_))), "{away:?}");
        }
        let view = store.snapshot(Duration::from_secs(1)).await;
        assert!(matches!(view.err(), Some(Error::Unavailable(_))));

        server.start_again();
        assert_eq!(world.only("task").await, item, "what was confirmed is there");
        let committed = store.commit(&batch).await.unwrap();
        assert_eq!(committed.outcomes, [Outcome::Skipped("done".into())]);
        world.balanced().await;
    });
}

/// A proxy of the server's socket that forwards all data, but not the end of a connection.
fn without_ends(database: &Database) -> (String, tempfile::TempDir) {
    let (url, place) = (database.url(), tempfile::tempdir().unwrap());
    let part = |name: &str| url.split(['?', '&']).find_map(|part| part.strip_prefix(name)).unwrap();
    let (host, socket) = (part("host="), format!(".s.PGSQL.{}", part("port=")));
    let between = UnixListener::bind(place.path().join(&socket)).unwrap();
    let server = Path::new(host).join(socket);
    tokio::spawn(async move {
        while let Ok((client, _)) = between.accept().await {
            let (mut said, mut heard) = client.into_split();
            let (mut answers, mut asked) = UnixStream::connect(&server).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut said, &mut asked).await });
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut answers, &mut heard).await;
                // The client's end stays open.
                std::future::pending::<()>().await;
            });
        }
    });
    (url.replace(host, &place.path().display().to_string()), place)
}

/// The server announces the end of a connection, which is read later: until then the connection is
/// not used again.
#[test]
fn a_connection_that_is_said_to_end_is_not_used_again() {
    block_on(async {
        let database = Server::shared().database();
        let (url, _place) = without_ends(&database);
        let store = PostgresStore::open(&url, options()).await.unwrap();
        let (product, operator) = (database.connect().await, database.connect().await);
        product.batch_execute("BEGIN; LOCK TABLE besom.stream_tail").await.unwrap();
        let ended = async {
            let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
            while operator.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                tokio::task::yield_now().await;
            }
            product.batch_execute("ROLLBACK").await.unwrap();
        };
        let (asked, ()) = tokio::join!(store.backlog(None), ended);
        assert!(matches!(asked, Err(Error::Unavailable(_))), "{asked:?}");
        let again = tokio::time::timeout(Duration::from_secs(20), store.backlog(None)).await;
        assert_eq!(again.expect("another connection answers").unwrap(), []);
    });
}

/// The items of the test below, each in its own stream; this many are committed before the server
/// is killed.
const ITEMS: usize = 60;
const BEFORE: usize = 20;
const WORKERS: usize = 6;

fn by_one(id: &str) -> Change {
    let fields = vec![Field::new("n", Value::Integer(1))];
    Change::Increment { collection: "things".into(), key: vec![text(id)], fields }
}

/// The state that the workers share.
struct Work {
    store: Arc<dyn Store>,
    committed: AtomicUsize,
    enough: Notify,
    /// Whether the server is back.
    back: watch::Receiver<bool>,
    unknown: AtomicUsize,
}

impl Work {
    /// Commits a batch as a host does: unknown results are looked up, and failed commits are
    /// repeated.
    async fn commit(&self, batch: &Batch, again: &Batch) {
        match self.store.commit(batch).await {
            Ok(done) => assert_eq!(done.outcomes, [Outcome::Committed]),
            Err(error) => {
                self.back.clone().wait_for(|back| *back).await.expect("the server comes back");
                let known = match error {
                    Error::Unknown(_) => {
                        self.unknown.fetch_add(1, Ordering::Relaxed);
                        self.store.find_commit(batch.id).await.expect("it is looked up")
                    }
                    Error::Unavailable(_) | Error::Busy(_) => None,
                    other => panic!("{other}"),
                };
                if known.is_none() {
                    let done = self.store.commit(again).await.expect("the server is back");
                    assert_eq!(done.outcomes, [Outcome::Committed]);
                }
            }
        }
        if self.committed.fetch_add(1, Ordering::Relaxed) + 1 == BEFORE {
            self.enough.notify_one();
        }
    }
}

/// The server is killed during several commits: each takes effect once.
#[test]
fn commits_under_way_when_the_server_is_killed_take_effect_once() {
    block_on(async {
        let server = server();
        let world = World::new(Box::new(Postgres::open_on(server, options()).await)).await;
        let names: Vec<String> = (0..ITEMS).map(|n| format!("t{n}")).collect();
        world.write(names.iter().map(|name| thing(name, 0)).collect()).await;
        // One partition for each item, because a stream would wait for its first item.
        let mut partitions = std::collections::BTreeSet::new();
        world.planned("task", names.iter().map(|name| candidate(name)).collect()).await;
        let items = world.log("task").await;
        let first = items.iter().filter(|item| partitions.insert(item.item.partition));
        let batches: Vec<(Batch, Batch)> = first
            .map(|item| {
                let changes = vec![by_one(&item.item.identity.key)];
                let entry = world.entry(item, apply(vec![], changes));
                (world.batch(vec![entry.clone()]), world.batch(vec![entry]))
            })
            .collect();
        let all = batches.len();
        assert!(all > BEFORE + WORKERS, "{all} streams");

        let (tell, back) = watch::channel(false);
        let work = Arc::new(Work {
            store: world.store(),
            committed: AtomicUsize::new(0),
            enough: Notify::new(),
            back,
            unknown: AtomicUsize::new(0),
        });
        let mut workers = tokio::task::JoinSet::new();
        let batches = Arc::new(batches);
        for worker in 0..WORKERS {
            let (work, batches) = (Arc::clone(&work), Arc::clone(&batches));
            workers.spawn(async move {
                for (batch, again) in batches.iter().skip(worker).step_by(WORKERS) {
                    work.commit(batch, again).await;
                }
            });
        }
        work.enough.notified().await;
        server.kill();
        server.start_again();
        tell.send_replace(true);
        while let Some(done) = workers.join_next().await {
            done.unwrap();
        }

        assert_eq!(work.committed.load(Ordering::Relaxed), all);
        let rows = world.rows("things", &["n"]).await;
        let applied = rows.iter().filter(|row| **row == [Value::Integer(1)]).count();
        let untouched = rows.iter().filter(|row| **row == [Value::Integer(0)]).count();
        assert_eq!((applied, untouched), (all, ITEMS - all), "each once, no other");
        assert_eq!(world.history().await.len(), all);
        world.balanced().await;
    });
}
