//! Every wait is bounded: for a connection, a statement, a frozen leader.

use std::future::Future;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use besom_core::proposal::{Change, Condition, Filter, Guard};
use besom_core::value::Value;
use besom_ports::store::{Error, Outcome, Range, Store};
use besom_postgres::{Options, PostgresStore};
use besom_snapshot::Cause;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{collections, counter, fields, text, thing};
use besom_tests::conformance::world::{
    apply, candidate, dead, fence, in_one_stream, page, range, set_n, tenant,
};
use besom_tests::conformance::{World, block_on};
use besom_tests::measured::memory_kib;
use besom_tests::servers::postgres::Server;
use besom_tests::undo_bytes;

#[test]
fn nodes_that_start_together_make_one_store() {
    block_on(async {
        let database = Server::shared().empty();
        let url = database.url();
        let options = || Options { partitions: 16, cluster: "c".into(), ..patient() };
        let all = (0..8).map(|_| PostgresStore::open(&url, options()));
        for store in futures::future::join_all(all).await {
            let table = store.unwrap().partition_table().await.unwrap();
            assert_eq!(table.len(), 16);
        }
    });
}

#[test]
fn whoever_finds_all_connections_taken_is_told_in_time() {
    block_on(async {
        let connect_timeout = Duration::from_millis(300);
        let options = Options { snapshots_max: 1, connect_timeout, ..patient() };
        let fixture = Postgres::open_with(options).await;
        let store = fixture.inner();
        let held = store.snapshot(Duration::from_secs(60)).await.unwrap();
        let asked = Instant::now();
        let Err(Error::Busy(said)) = store.snapshot(Duration::from_secs(60)).await else {
            panic!("a second snapshot on one connection");
        };
        assert!(asked.elapsed() >= connect_timeout);
        assert!(said.contains("all connections have been in use"), "{said}");
        // Other uses have their own connections, and a snapshot that ends frees its connection.
        assert!(store.now().await.is_ok());
        drop(held);
        assert!(store.snapshot(Duration::from_secs(60)).await.is_ok());
    });
}

/// A killed host leaves no statement running on the server.
#[test]
fn a_statement_ends_with_the_process_that_has_sent_it() {
    // Its connections close; the server learns nothing else.
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    block_on(async {
        let fixture = Postgres::open().await;
        let (url, client) = (fixture.database().url(), fixture.database().connect().await);
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1)]).await;
        let slow = "CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql AS $$
                      BEGIN PERFORM pg_sleep(60); RETURN true; END $$;
                    ALTER TABLE things ENABLE ROW LEVEL SECURITY;
                    ALTER TABLE things FORCE ROW LEVEL SECURITY;
                    CREATE POLICY slow ON things USING (slow()) WITH CHECK (true)";
        client.batch_execute(slow).await.expect("the product's policy");
        process.spawn(async move {
            let store = PostgresStore::open(&url, patient()).await.expect("it opens");
            store.set_collections(collections());
            let view = store.snapshot(Duration::from_secs(60)).await.expect("a snapshot");
            let _ = view.read_range(Some(&tenant("a")), &range("things", None, &["n"])).await;
        });
        let slowly = async || -> i64 {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'
                       AND datname = current_database() AND wait_event = 'PgSleep'";
            client.query_one(sql, &[]).await.expect("asked").get(0)
        };
        let patience = Duration::from_secs(20);
        let begun = Instant::now();
        while slowly().await == 0 {
            assert!(begun.elapsed() < patience, "it is never read");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        process.shutdown_background();
        let killed = Instant::now();
        while slowly().await > 0 {
            assert!(killed.elapsed() < patience, "the statement goes on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// Unlike one that waits for a lock, it would take as long at every attempt.
#[test]
fn a_commit_whose_own_statement_takes_too_long_says_so() {
    block_on(async {
        let (lock_timeout, statement_timeout) =
            (Duration::from_millis(100), Duration::from_millis(300));
        let options = Options { lock_timeout, statement_timeout, ..patient() };
        let fixture = Postgres::open_with(options).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("slow", 1), thing("quick", 1)]).await;
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
                      BEGIN IF old.id = 'slow' THEN PERFORM pg_sleep(60); END IF; RETURN new; END $$;
                    CREATE TRIGGER slow BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION slow()";
        product.batch_execute(slow).await.expect("the product's trigger");
        for key in ["slow", "quick"] {
            world.planned("task", in_one_stream(&[key])).await;
            let items = world.log("task").await;
            let item = items.last().expect("the item waits");
            let batch = world.batch(vec![world.entry(item, apply(vec![], vec![set_n(key, 2)]))]);
            let committed = world.store().commit(&batch).await;
            match committed {
                Err(Error::TimedOut(said)) if key == "slow" => {
                    assert!(said.contains("300 ms (`store.statement_timeout`)"), "{said}");
                    // Nothing was changed, and the item can be postponed.
                    let later = world.batch(vec![world.entry(item, dead("too slow"))]);
                    world.store().commit(&later).await.expect("it is set aside");
                }
                Ok(committed) if key == "quick" => {
                    assert_eq!(committed.outcomes, [Outcome::Committed]);
                }
                other => panic!("{key}: {other:?}"),
            }
        }
        world.balanced().await;
    });
}

/// A snapshot that is not dropped is closed after its time, and its connection serves the next one.
#[test]
fn a_snapshot_ends_with_its_time() {
    block_on(async {
        let options = Options { snapshots_max: 1, ..patient() };
        let world = World::new(Box::new(Postgres::open_with(options).await)).await;
        let held = world.store().snapshot(Duration::from_millis(50)).await.unwrap();
        // Waits until the first has been closed.
        let next = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let late = held.count(Some(&"a".into()), "things", &[], 1).await;
        assert!(matches!(late, Err(Error::Refused(Cause::Slow, _))), "{late:?}");
        let count = next.count(Some(&"a".into()), "things", &[], 1).await;
        assert_eq!(count.unwrap(), 0);
    });
}

/// A read that is abandoned also ends on the server, and its error differs from that of an
/// unavailable server.
#[test]
fn a_read_ends_with_the_time_of_its_call() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let waiting = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let reads = async || -> i64 {
            let sql = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
            waiting.query_one(sql, &[]).await.expect("the activity").get(0)
        };
        let a = "a".into();
        for dropped in [false, true] {
            product.batch_execute("BEGIN; LOCK TABLE things").await.expect("locked");
            let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
            let wait = Duration::from_millis(if dropped { 60_000 } else { 300 });
            view.read_by(Instant::now() + wait);
            let read = view.count(Some(&a), "things", &[], 1);
            match tokio::time::timeout(Duration::from_secs(1), read).await {
                Ok(late) => {
                    assert!(matches!(late, Err(Error::Refused(Cause::Slow, _))), "{late:?}");
                    assert!(!dropped);
                }
                Err(_) => assert!(dropped, "the read did not end with its time"),
            }
            drop(view);
            let asked = Instant::now();
            while reads().await > 0 {
                assert!(asked.elapsed() < Duration::from_secs(30), "a read goes on at the server");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            product.batch_execute("ROLLBACK").await.expect("unlocked");
        }
    });
}

/// Guards have their own time limit: the batch is refused so that its items are tried one by one,
/// and no task is held for it. Waiting for a lock does not count.
#[test]
fn guards_that_take_too_long_are_ended_and_change_nothing() {
    block_on(async {
        let (guard_timeout, lock_timeout) = (Duration::from_millis(100), Duration::from_millis(50));
        let options = Options { guard_timeout, lock_timeout, ..patient() };
        let fixture = Postgres::open_with(options).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1), counter(1, 0)]).await;
        product
            .batch_execute(
                "ALTER TABLE things RENAME TO slow_things;
                 CREATE VIEW things AS SELECT * FROM slow_things
                   WHERE n <> 77 OR pg_sleep(60)::text = 'never'",
            )
            .await
            .unwrap();
        let mut world = world;
        world.reopen().await;
        let exists = |n| {
            let conditions = vec![Condition::equal("n", Value::Integer(n))];
            Guard::Exists(Filter { collection: "things".into(), conditions })
        };
        product
            .batch_execute(
                "INSERT INTO slow_things (tenant_id, id, title, n) VALUES ('a', 's', 's', 77)",
            )
            .await
            .unwrap();
        let count = || {
            let (collection, key) = ("counters".to_owned(), vec![Value::Integer(1)]);
            vec![Change::Increment { collection, key, fields: fields([("n", Value::Integer(1))]) }]
        };
        world.planned("task", in_one_stream(&["slow", "quick"])).await;
        let items = world.log("task").await;
        let slow = world.entry(&items[0], apply(vec![exists(77)], count()));
        let quick = world.entry(&items[1], apply(vec![exists(1)], count()));
        let said = world.store().commit(&world.batch(vec![slow, quick.clone()])).await;
        let Err(Error::GuardsTimedOut(said)) = said else { panic!("{said:?}") };
        assert!(said.contains("store.guard_timeout"), "{said}");
        let failed = world.entry(&items[0], dead(&said));
        let committed = world.store().commit(&world.batch(vec![failed, quick])).await.unwrap();
        assert_eq!(committed.outcomes[1], Outcome::Committed);
        assert_eq!(world.rows("counters", &["n"]).await, [[Value::Integer(1)]]);
        world.balanced().await;
    });
}

/// A migration of the product: its tasks are held, and others go on. A row that somebody has locked is another matter.
#[test]
fn a_locked_table_is_told_from_a_locked_row() {
    block_on(async {
        let options = Options { lock_timeout: Duration::from_millis(50), ..patient() };
        let fixture = Postgres::open_with(options).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.log("task").await.pop().expect("an item");
        let batch = || world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("a", 2)]))]);
        let pid: i32 = product.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let named = |said: &str| {
            let by = format!("\"things\" is locked by process {pid} of the server");
            assert!(said.contains(&by), "{said}");
        };
        product.batch_execute("BEGIN; SELECT FROM things FOR UPDATE").await.unwrap();
        let said = world.store().commit(&batch()).await;
        assert!(matches!(said, Err(Error::Busy(_))), "{said:?}");
        // As CREATE INDEX has it.
        product.batch_execute("ROLLBACK; BEGIN; LOCK TABLE things IN SHARE MODE").await.unwrap();
        match world.store().commit(&batch()).await {
            Err(Error::Refused(Cause::Locked, said)) => named(&said),
            other => panic!("{other:?}"),
        }
        product.batch_execute("LOCK TABLE things IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        match view.count(Some(&"a".into()), "things", &[], 1).await {
            Err(Error::Refused(Cause::Locked, said)) => named(&said),
            other => panic!("{other:?}"),
        }
        product.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(view.count(Some(&"a".into()), "things", &[], 1).await.unwrap(), 1);
        assert_eq!(world.store().commit(&batch()).await.unwrap().outcomes, [Outcome::Committed]);
        world.balanced().await;
    });
}

#[test]
fn before_images_have_a_size_limit() {
    block_on(async {
        let options = Options { undo_bytes: undo_bytes::MAX, ..patient() };
        let world = World::new(Box::new(Postgres::open_with(options).await)).await;
        undo_bytes::the_images_of_a_commit_are_bounded(&world).await;
        undo_bytes::rows_of_guards_are_not_kept(&world).await;
    });
}

/// Commits run side by side; those with large before-images take turns, and none fails for it.
#[test]
fn commits_with_large_images_take_turns() {
    block_on(async {
        let world = World::new(Box::new(Postgres::open_with(patient()).await)).await;
        let ids = ["a", "b", "c", "d"];
        let large = text(&"x".repeat(6 << 20));
        for id in ids {
            let fields = fields([("id", text(id)), ("title", large.clone())]);
            world.write(vec![Change::Insert { collection: "things".into(), fields }]).await;
        }
        world.planned("task", ids.map(candidate).into()).await;
        let items = world.log("task").await;
        let batches: Vec<_> = items
            .iter()
            .map(|item| {
                let change = set_n(&item.item.identity.key, 1);
                world.batch(vec![world.entry(item, apply(Vec::new(), vec![change]))])
            })
            .collect();
        let store = world.store();
        let all = futures::future::join_all(batches.iter().map(|batch| store.commit(batch))).await;
        for done in all {
            assert_eq!(done.expect("a commit").outcomes, [Outcome::Committed]);
        }
        let [image] = &world.latest_images().await[..] else { panic!("one image") };
        let row = image.row.as_ref().expect("a row");
        assert!(row.iter().any(|field| field.name == "title" && field.value == large));
        world.balanced().await;
    });
}

/// The server counts the rows that `exists` and `tenants` examine.
#[test]
fn a_question_counts_the_rows_that_it_has_looked_at() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        product
            .batch_execute(
                "INSERT INTO things (tenant_id, id, title, n)
                   SELECT 'a', 'k' || i, 'x', i FROM generate_series(1, 2000) i;
                 INSERT INTO things (tenant_id, id, title, n) VALUES ('b', 'b', 'y', 1);
                 ANALYZE things",
            )
            .await
            .unwrap();
        let view = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let a = "a".into();
        let by_key = [Condition::equal("id", text("k7"))];
        for _ in 0..100 {
            assert_eq!(view.count(Some(&a), "things", &by_key, 1).await.unwrap(), 1);
        }
        let seeks = view.looked_at();
        assert!((1..=300).contains(&seeks), "{seeks} rows were looked at to find 100");
        let nobody = [Condition::equal("title", text("nobody"))];
        assert_eq!(view.count(Some(&a), "things", &nobody, 1).await.unwrap(), 0);
        let looked = view.looked_at() - seeks;
        assert!((2_000..=4_500).contains(&looked), "{looked} of 2,000 rows");
        let before = view.looked_at();
        let unnamed = Range { conditions: nobody.to_vec(), ..range("things", None, &["id"]) };
        assert!(view.tenants(&unnamed, None, 10).await.unwrap().is_empty());
        let looked = view.looked_at() - before;
        assert!((2_000..=5_000).contains(&looked), "{looked} rows for the tenants");
    });
}

#[test]
fn a_statement_that_takes_too_long_makes_the_store_busy() {
    block_on(async {
        let statement_timeout = Duration::from_millis(100);
        let fixture = Postgres::open_with(Options { statement_timeout, ..patient() }).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let batch = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
        product.batch_execute("BEGIN; UPDATE things SET n = 5").await.unwrap();
        let busy = world.store().commit(&batch).await;
        assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
        product.batch_execute("ROLLBACK").await.unwrap();
        assert!(world.store().commit(&batch).await.is_ok());
        world.balanced().await;
    });
}

/// Polls a future once.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context)
}

/// A leader that freezes within a transaction holds the fence. The server ends the transaction, so
/// the next leader waits no longer than that, and the former leader writes nothing when it resumes.
#[test]
fn a_frozen_leader_holds_the_next_one_up_for_a_bounded_time() {
    block_on(async {
        let idle_in_transaction_timeout = Duration::from_millis(300);
        let options = Options { idle_in_transaction_timeout, ..patient() };
        let fixture = Postgres::open_with(options).await;
        let onlooker = fixture.database().connect().await;
        let next = fixture.another().await;
        let mut world = World::new(Box::new(fixture)).await;
        let run = world.run("task").await;
        // From now on the leader's statements are prepared: polling once sends its first request.
        world.plan("task", run, vec![candidate("a")]).await;

        let (store, leader) = (world.store(), world.fence.clone());
        let page = page("task", run, vec![candidate("b")]);
        let mut planning = store.plan_page(&leader, &page);
        let within = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state = 'idle in transaction'";
        assert!(poll_once(&mut planning).is_pending(), "the page is not planned yet");
        // It is not polled again: it is frozen and holds the fence.
        while onlooker.query_one(within, &[]).await.unwrap().get::<_, i64>(0) != 1 {
            tokio::task::yield_now().await;
        }
        let asked = Instant::now();
        next.raise_fence(&fence(2), &"node-2".into(), None).await.unwrap();
        let waited = asked.elapsed();
        assert!(waited < idle_in_transaction_timeout + Duration::from_secs(1), "{waited:?}");

        let thawed = planning.await;
        assert!(thawed.is_err(), "{thawed:?}");
        world.lead(3, "node-2").await;
        assert_eq!(world.log("task").await.len(), 1, "only what was planned before");
        world.balanced().await;
    });
}

/// The store's commits are durable even if the database's default is asynchronous: a trigger of the
/// product records the setting.
#[test]
fn a_commit_waits_for_the_disk_whatever_the_default_is() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let found = product.query_one("SHOW synchronous_commit", &[]).await.unwrap();
        assert_eq!(found.get::<_, &str>(0), "off", "the tests' server does not wait");
        world.write(vec![thing("t", 1)]).await;
        product
            .batch_execute(
                "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                   'BEGIN NEW.title = current_setting($$synchronous_commit$$); RETURN NEW; END';
                 CREATE TRIGGER note BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION note()",
            )
            .await
            .unwrap();
        world.settle(candidate("k"), apply(vec![], vec![set_n("t", 2)])).await;
        assert_eq!(world.rows("things", &["title"]).await, [[text("on")]]);
    });
}

/// A deferred constraint in a schema that the store's role may not name does not affect a batch in
/// which another item has a violation.
#[test]
fn deferred_constraints_of_a_schema_out_of_reach_hinder_no_batch() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let url = fixture.database().url_of("modest");
        let mut world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1)]).await;
        product
            .batch_execute(
                "DO 'BEGIN CREATE ROLE modest LOGIN; EXCEPTION WHEN duplicate_object THEN END';
                 GRANT USAGE ON SCHEMA besom, public TO modest;
                 GRANT ALL ON ALL TABLES IN SCHEMA besom, public TO modest;
                 GRANT ALL ON ALL SEQUENCES IN SCHEMA besom TO modest;
                 CREATE SCHEMA hidden;
                 CREATE TABLE hidden.x (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
            )
            .await
            .unwrap();
        let modest = PostgresStore::open(&url, patient()).await.unwrap();
        modest.set_collections(besom_tests::conformance::tables::collections());
        world.planned("task", vec![candidate("a"), candidate("b")]).await;
        let items = world.log("task").await;
        let again = apply(vec![], vec![thing("t", 5)]);
        let fresh = apply(vec![], vec![thing("u", 5)]);
        let entries = vec![world.entry(&items[0], again), world.entry(&items[1], fresh)];
        let committed = modest.commit(&world.batch(entries)).await.unwrap();
        assert!(!matches!(committed.outcomes[0], Outcome::Committed), "{committed:?}");
        assert_eq!(committed.outcomes[1], Outcome::Committed);
        world.reopen().await;
        world.balanced().await;
    });
}

/// The small answers between large rows share their memory, which has to be freed as well.
#[test]
fn rows_beyond_the_room_for_images_are_not_held() {
    let size_kib = |name| memory_kib(std::process::id(), name).expect("the process's own state");
    block_on(async {
        let options = Options { undo_bytes: undo_bytes::MAX, ..patient() };
        let world = World::new(Box::new(Postgres::open_with(options).await)).await;
        let large = text(&"x".repeat(8 << 20));
        let row = fields([("id", text("a")), ("title", large)]);
        world.write(vec![Change::Insert { collection: "things".into(), fields: row }]).await;
        world.planned("task", in_one_stream(&["key"])).await;
        let [item] = &world.log("task").await[..] else { panic!("one item") };
        let changes = (0..100).map(|n| set_n("a", n)).collect();
        let entry = world.entry(item, apply(vec![], changes));
        // From here on the peak is measured.
        std::fs::write("/proc/self/clear_refs", "5").expect("written");
        let before = size_kib("VmRSS");
        let said = world.store().commit(&world.batch(vec![entry])).await;
        assert!(matches!(said, Err(Error::TooLarge(_))), "{said:?}");
        // Held, they would be 800 MiB; the tests that run beside this one use far less.
        let more = size_kib("VmHWM").saturating_sub(before);
        assert!(more < 400 << 10, "{more} KiB");
    });
}

/// The server would read and send every other row as well, and change it, before it learns that
/// nothing of it is wanted.
#[test]
fn a_commit_without_room_for_its_images_ends_at_the_server() {
    block_on(async {
        let options = Options { undo_bytes: undo_bytes::MAX, ..patient() };
        let fixture = Postgres::open_with(options).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let large = text(&"x".repeat(8 << 20));
        let row = fields([("id", text("a")), ("title", large)]);
        world.write(vec![Change::Insert { collection: "things".into(), fields: row }]).await;
        // A sequence keeps its value when its transaction is rolled back.
        let counted = "CREATE SEQUENCE changes;
            CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$
              BEGIN PERFORM nextval('changes'); RETURN new; END $$;
            CREATE TRIGGER counted BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION counted()";
        product.batch_execute(counted).await.expect("the product's trigger");
        world.planned("task", in_one_stream(&["key"])).await;
        let [item] = &world.log("task").await[..] else { panic!("one item") };
        let many = 200;
        let entry = world.entry(item, apply(vec![], (0..many).map(|n| set_n("a", n)).collect()));
        let said = world.store().commit(&world.batch(vec![entry])).await;
        assert!(matches!(said, Err(Error::TooLarge(_))), "{said:?}");
        let last = "SELECT last_value FROM changes";
        let changes: i64 = product.query_one(last, &[]).await.expect("asked").get(0);
        assert!(changes < many / 2, "{changes} changes for nothing");
        // What was sent to cancel it meets no other statement.
        let small = world.entry(item, apply(vec![], vec![thing("b", 1)]));
        let done = world.store().commit(&world.batch(vec![small])).await.unwrap();
        assert_eq!(done.outcomes, [Outcome::Committed]);
        world.balanced().await;
    });
}

/// Its locks would outlive the host that has stopped.
#[test]
fn a_commit_that_nobody_waits_for_ends_at_the_server() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("slow", 1)]).await;
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
                      BEGIN PERFORM pg_sleep(600); RETURN new; END $$;
                    CREATE TRIGGER slow BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION slow()";
        product.batch_execute(slow).await.expect("the product's trigger");
        world.planned("task", in_one_stream(&["key"])).await;
        let [item] = &world.log("task").await[..] else { panic!("one item") };
        let batch = world.batch(vec![world.entry(item, apply(vec![], vec![set_n("slow", 2)]))]);
        let sleeps = async |expected: i64| {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'
                       AND datname = current_database() AND wait_event = 'PgSleep'";
            let begun = Instant::now();
            while product.query_one(sql, &[]).await.expect("asked").get::<_, i64>(0) != expected {
                assert!(begun.elapsed() < Duration::from_secs(60), "not {expected}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let store = world.store();
        tokio::select! {
            done = store.commit(&batch) => panic!("{done:?}"),
            () = sleeps(1) => {}
        }
        sleeps(0).await;
        assert_eq!(world.store().find_commit(batch.id).await.unwrap(), None);
        assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(1)]]);
        world.balanced().await;
    });
}
