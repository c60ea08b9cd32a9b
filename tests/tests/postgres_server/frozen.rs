//! A host that no longer reads answers, because it is frozen or disappeared. Its locks are released
//! within a bound.
//!
//! A proxy between the store and its server forwards until the server has sent a certain amount,
//! and then reads nothing more, like the socket of a stopped process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::delivery::Claim;
use besom_core::proposal::Change;
use besom_core::value::{Field, Value};
use besom_ports::store::{Error, Store};
use besom_postgres::{Options, PostgresStore};
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{fields, text};
use besom_tests::conformance::world::{apply, candidate, fence};
use besom_tests::conformance::{World, block_on};
use besom_tests::servers::postgres::{Disk, ROLE, Server, Setup};
use tokio_postgres::Client;

/// The number of bytes of an answer that are forwarded; more than any answer that the store
/// requests by itself.
const FORWARDED: usize = 1 << 20;

/// More than the buffers of two sockets hold.
const LARGE: usize = 24 << 20;

trait Wire: Read + Write + Send + Sized + 'static {
    fn twin(&self) -> Self;
}

impl Wire for TcpStream {
    fn twin(&self) -> TcpStream {
        self.try_clone().expect("a socket is shared")
    }
}

impl Wire for UnixStream {
    fn twin(&self) -> UnixStream {
        self.try_clone().expect("a socket is shared")
    }
}

/// A port that forwards to the server until one connection is sent too much.
fn wire<W: Wire>(dial: impl Fn() -> W + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.expect("a connection"), dial());
            let (from, to) = (client.twin(), server.twin());
            std::thread::spawn(move || forward(from, to, usize::MAX));
            std::thread::spawn(move || forward(server, client, FORWARDED));
        }
    });
    port
}

/// Forwards until the connection ends. After `most` bytes in one answer the sockets stay open and
/// are not read.
fn forward(mut from: impl Read, mut to: impl Write, most: usize) {
    let mut buffer = vec![0; 1 << 16];
    let mut sent = 0;
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            return;
        }
        sent += read;
        if sent >= most {
            loop {
                std::thread::park();
            }
        }
    }
}

fn unix(url: &str) -> UnixStream {
    let host = url.split("host=").nth(1).and_then(|rest| rest.split('&').next()).expect("a host");
    UnixStream::connect(format!("{host}/.s.PGSQL.5432")).expect("the server's socket")
}

struct Stage {
    world: World,
    onlooker: Client,
    product: Client,
    /// The same store, through a proxy that stops forwarding.
    frozen: Arc<PostgresStore>,
}

async fn stage(server: &'static Server, tcp: bool, options: Options) -> Stage {
    let fixture = Postgres::open_on(server, options.clone()).await;
    let database = fixture.database();
    let (onlooker, product) = (database.connect().await, database.connect().await);
    let url = database.url();
    let name = url.split("///").nth(1).and_then(|rest| rest.split('?').next()).expect("a name");
    let port = match tcp {
        true => {
            let port = server.port();
            wire(move || TcpStream::connect(("127.0.0.1", port)).expect("the server's port"))
        }
        false => {
            let url = url.clone();
            wire(move || unix(&url))
        }
    };
    let by_wire = format!("postgres://{ROLE}@127.0.0.1:{port}/{name}?sslmode=disable");
    let world = World::new(Box::new(fixture)).await;
    let frozen = PostgresStore::open(&by_wire, options).await.expect("the store opens");
    frozen.set_collections(besom_tests::conformance::tables::collections());
    Stage { world, onlooker, product, frozen }
}

impl Stage {
    /// Returns once the server waits for its client to read an answer.
    async fn until_untaken(&self) {
        let sql = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event = 'ClientWrite'";
        while self.onlooker.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// A batch that changes a row whose image exceeds the proxy's limit; the row stays locked while
    /// the server waits.
    async fn freeze_a_commit(&self) {
        let large = Value::Bytes(vec![7; LARGE]);
        let row = fields([("id", text("t")), ("title", text("t")), ("data", large)]);
        self.world.write(vec![Change::Insert { collection: "things".into(), fields: row }]).await;
        self.world.planned("task", vec![candidate("k")]).await;
        let item = self.world.only("task").await;
        let set = Change::Update {
            collection: "things".into(),
            key: vec![text("t")],
            fields: vec![Field::new("n", Value::Integer(2))],
        };
        let batch = self.world.batch(vec![self.world.entry(&item, apply(vec![], vec![set]))]);
        let store = Arc::clone(&self.frozen);
        tokio::spawn(async move { store.commit(&batch).await });
        self.until_untaken().await;
    }
}

fn over_tcp() -> &'static Server {
    Box::leak(Box::new(Server::with(&Setup { tcp: true, ..Setup::new(Disk::Ignored) })))
}

/// Payloads that are not read hold no lock: the claim is committed before they are read.
#[test]
fn messages_that_are_not_taken_in_hold_no_fence() {
    block_on(async {
        let stage = stage(Server::shared(), false, patient()).await;
        let payload = vec![7; LARGE / 16];
        let emit = |key: usize| Change::Emit {
            topic: "t".into(),
            key: key.to_string(),
            payload: payload.clone(),
        };
        stage.world.settle(candidate("e"), apply(vec![], (0..16).map(emit).collect())).await;
        let (store, leader) = (Arc::clone(&stage.frozen), stage.world.fence.clone());
        let minute = Duration::from_secs(60);
        let claim = Claim { room: vec![("t".to_owned(), 16)], hold: minute, wait_max: minute };
        tokio::spawn(async move { store.claim_messages(&leader, &[], &claim).await });
        stage.until_untaken().await;
        stage.world.store().raise_fence(&fence(2), &"node-2".into(), None).await.unwrap();
    });
}

/// The server ends a commit whose images are not read, and its rows are unlocked.
#[test]
fn a_frozen_host_holds_rows_for_a_bounded_time() {
    block_on(async {
        let tcp_user_timeout = Duration::from_secs(1);
        let options = Options { tcp_user_timeout, ..patient() };
        let stage = stage(over_tcp(), true, options).await;
        stage.freeze_a_commit().await;
        let asked = Instant::now();
        stage.product.batch_execute("SET lock_timeout = '60s'").await.unwrap();
        let changed = stage.product.execute("UPDATE things SET n = 5 WHERE id = 't'", &[]).await;
        assert_eq!(changed.expect("the row is free"), 1, "{:?}", asked.elapsed());
    });
}

/// On a Unix socket there is no TCP timeout: the node that takes over ends the write whose client
/// reads no answer.
#[test]
fn whoever_takes_over_ends_a_write_whose_host_is_frozen() {
    block_on(async {
        let tcp_user_timeout = Duration::from_secs(1);
        let options = Options { tcp_user_timeout, ..patient() };
        let stage = stage(Server::shared(), false, options).await;
        stage.freeze_a_commit().await;
        let store = stage.world.store();
        let table = store.partition_table().await.unwrap();
        let all: Vec<_> = table.iter().map(|row| row.partition).collect();
        let (mut term, mut refused) = (2, 0);
        // Each attempt waits for a second.
        while let Err(error) = store.raise_fence(&fence(term), &"node-2".into(), Some(&all)).await {
            assert!(matches!(error, Error::Busy(_)), "{error:?}");
            refused += 1;
            term += 1;
            assert!(refused < 10, "the frozen write is still there");
        }
        assert!(refused > 0, "the frozen write held its partition");
        let changed = stage.product.execute("UPDATE things SET n = 5 WHERE id = 't'", &[]).await;
        assert_eq!(changed.expect("the row is free"), 1);
    });
}
