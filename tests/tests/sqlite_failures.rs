//! The store on SQLite with real failures of the machine: another writer that keeps its lock, and a
//! file that cannot grow.

use std::process::Command;
use std::time::Duration;

use besom_core::proposal::{Change, Guard};
use besom_core::value::Value;
use besom_ports::guests::Lane;
use besom_ports::store::{Error, Outcome, Store};
use besom_snapshot::Cause;
use besom_sqlite::{Options, SqliteStore};
use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::store::read_sets::set;
use besom_tests::conformance::tables::{child, fields, parent, text, thing};
use besom_tests::conformance::world::{apply, candidate, n_is, set_n};
use besom_tests::conformance::{World, block_on};
use rusqlite::Connection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Marks the child process whose files cannot grow.
const WITHOUT_ROOM: &str = "BESOM_TEST_WITHOUT_ROOM";

/// Limits of a store that waits for another process's writer for a short time only.
fn impatient() -> Options {
    Options { busy_max: Duration::from_millis(100), ..Options::default() }
}

#[test]
fn another_writer_makes_every_write_busy_and_nothing_is_lost() {
    block_on(async {
        let sqlite = Sqlite::open_with(impatient());
        let path = sqlite.path().to_owned();
        let world = World::new(Box::new(sqlite)).await;
        world.write(vec![thing("t", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let batch = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
        let other = Connection::open(path).expect("the file opens");
        other.execute_batch("BEGIN IMMEDIATE; UPDATE things SET ratio = 7").expect("it writes");
        let (commit, mark, begin) = (
            world.store().commit(&batch).await,
            world.store().find_commit(world.mark()).await,
            world
                .store()
                .begin(batch.id, &world.node, Lane::Normal, &[(item.source, &item.item)])
                .await,
        );
        assert!(matches!(commit, Err(Error::Busy(_))), "{commit:?}");
        assert!(matches!(mark, Err(Error::Busy(_))), "{mark:?}");
        assert!(matches!(begin, Err(Error::Busy(_))), "{begin:?}");
        assert_eq!(world.only("task").await, item, "reading goes on");
        other.execute_batch("COMMIT").expect("it lets go");
        world.store().commit(&batch).await.expect("the same batch commits");
        let rows = world.rows("things", &["n", "ratio"]).await;
        assert_eq!(rows, [[Value::Integer(2), Value::Float(7.0)]], "both have written");
        world.balanced().await;
    });
}

/// What a commit has waited for the product, and what the product has waited for it.
#[test]
fn waits_and_holds_of_the_write_lock_are_felt() {
    block_on(async {
        let sqlite = Sqlite::open();
        let path = sqlite.path().to_owned();
        let world = World::new(Box::new(sqlite)).await;
        let store = world.store();
        let felt = || async { store.strain(&[]).await.expect("measured") };
        felt().await;
        let other = Connection::open(path).expect("the file opens");
        other.execute_batch("BEGIN IMMEDIATE").expect("it writes");
        let wait = Duration::from_millis(120);
        let lets_go = std::thread::spawn(move || {
            std::thread::sleep(wait);
            other.execute_batch("COMMIT").expect("it lets go");
        });
        world.write(vec![thing("t", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        lets_go.join().expect("it ends");
        let strain = felt().await;
        assert!(strain.latency.is_some_and(|latency| latency >= wait / 2), "{strain:?}");
        assert!(strain.lock_wait.is_some_and(|held| held > Duration::ZERO), "{strain:?}");
        let calm = felt().await;
        assert_eq!((calm.latency, calm.lock_wait), (Some(Duration::ZERO), Some(Duration::ZERO)));
    });
}

/// A read of the store does not wait for a writer of the product.
#[test]
fn a_store_is_opened_and_read_while_another_writes() {
    block_on(async {
        let sqlite = Sqlite::open_with(impatient());
        let path = sqlite.path().to_owned();
        let world = World::new(Box::new(sqlite)).await;
        let other = Connection::open(&path).expect("the file opens");
        other.execute_batch("BEGIN IMMEDIATE").expect("it writes");
        let options = Options { busy_max: Duration::from_millis(100), ..Options::default() };
        let onlooker = SqliteStore::open(&path, options).expect("it is opened");
        assert_eq!(onlooker.identity(), world.store().identity());
        onlooker.depths().await.expect("it is read");
    });
}

/// A row that the product keeps does not count as deleted.
#[test]
fn a_row_that_a_trigger_keeps_is_set_aside_with_the_reason() {
    block_on(async {
        let sqlite = Sqlite::open();
        let product = Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        world.write(vec![thing("kept", 1), thing("gone", 1)]).await;
        let trigger = "CREATE TRIGGER keep BEFORE DELETE ON things WHEN old.id = 'kept'
                       BEGIN SELECT raise(ignore); END";
        product.execute_batch(trigger).expect("the product's trigger");
        for (key, is_kept) in [("kept", true), ("gone", false)] {
            let delete = Change::Delete { collection: "things".into(), key: vec![text(key)] };
            let decision = apply(vec![n_is(key, 1)], vec![delete]);
            let committed = world.settle(candidate(key), decision).await;
            let told =
                matches!(&committed.outcomes[0], Outcome::Dead(why) if why.contains("a trigger"));
            assert_eq!(told, is_kept, "{key}: {committed:?}");
        }
        assert_eq!(world.rows("things", &["id"]).await, [[text("kept")]]);
        world.balanced().await;
    });
}

/// A statement that stops with FAIL keeps its changes, and a trigger may write before it keeps a
/// row: an item that is set aside leaves neither.
#[test]
fn nothing_is_left_of_an_item_whose_statement_stopped_half_way() {
    let log = "INSERT INTO noted VALUES (old.id)";
    for trigger in [
        format!("AFTER DELETE ON things WHEN old.id = 'b' BEGIN {log}; SELECT raise(fail, 'no'); END"),
        format!("BEFORE DELETE ON things WHEN old.id = 'b' BEGIN {log}; SELECT raise(ignore); END"),
        format!("BEFORE DELETE ON things WHEN old.id = 'b' BEGIN {log}; SELECT raise(abort, 'no'); END"),
        "AFTER DELETE ON things WHEN old.id = 'b' BEGIN INSERT INTO once VALUES (1); END".into(),
        "AFTER DELETE ON things WHEN old.id = 'b' BEGIN INSERT OR FAIL INTO noted SELECT 'x' FROM once;
           INSERT OR FAIL INTO once VALUES (1); END"
            .into(),
    ] {
        block_on(async {
            let sqlite = Sqlite::open();
            let product = Connection::open(sqlite.path()).expect("the file opens");
            let world = World::new(Box::new(sqlite)).await;
            world.write(["a", "b", "c"].map(|key| thing(key, 1)).to_vec()).await;
            let tables = "CREATE TABLE noted (id); CREATE TABLE once (n UNIQUE ON CONFLICT FAIL);
                          INSERT INTO once VALUES (1)";
            product.execute_batch(tables).expect("the product's tables");
            product.execute_batch(&format!("CREATE TRIGGER t {trigger}")).expect("its trigger");
            world.planned("task", ["a", "b", "c"].map(candidate).to_vec()).await;
            let items = world.log("task").await;
            let entries = items.iter().map(|item| {
                let key = item.item.identity.key.clone();
                let delete =
                    Change::Delete { collection: "things".into(), key: vec![text(key.as_str())] };
                world.entry(item, apply(vec![n_is(&key, 1)], vec![delete]))
            });
            let batch = world.batch(entries.collect());
            let committed = world.store().commit(&batch).await.expect("it commits");
            let died: Vec<bool> =
                committed.outcomes.iter().map(|o| matches!(o, Outcome::Dead(_))).collect();
            let of_b: Vec<bool> = items.iter().map(|i| i.item.identity.key == "b").collect();
            assert_eq!(died, of_b, "{trigger}: {committed:?}");
            assert_eq!(world.rows("things", &["id"]).await, [[text("b")]], "{trigger}");
            let noted: i64 = product
                .query_row("SELECT count(*) FROM noted", [], |row| row.get(0))
                .expect("a count");
            assert_eq!(noted, 0, "{trigger}");
            world.balanced().await;
        });
    }
}

/// If deleting a read set stops half way, or the database keeps a row, the whole set remains
/// unchanged.
#[test]
fn a_read_set_is_deleted_as_a_whole_or_not_at_all() {
    for raise in ["raise(ignore)", "raise(fail, 'no')"] {
        block_on(async {
            let sqlite = Sqlite::open();
            let product = Connection::open(sqlite.path()).expect("the file opens");
            let world = World::new(Box::new(sqlite)).await;
            world.write(vec![parent("p")]).await;
            world.write((1..=5).map(|seq| child("p", seq, "x")).collect()).await;
            let trigger = format!(
                "CREATE TRIGGER keep BEFORE DELETE ON children WHEN old.seq = 3 BEGIN SELECT {raise}; END"
            );
            product.execute_batch(&trigger).expect("the product's trigger");
            let rows = set(&[1, 2, 3, 4]);
            let delete = vec![Change::DeleteReadSet(rows.clone())];
            let decision = apply(vec![Guard::Complete(rows)], delete);
            let committed = world.settle(candidate("k"), decision).await;
            assert!(matches!(&committed.outcomes[0], Outcome::Dead(_)), "{raise}: {committed:?}");
            assert_eq!(world.rows("children", &["seq"]).await.len(), 5, "{raise}");
            world.balanced().await;
        });
    }
}

#[test]
fn a_migration_under_a_running_store_costs_no_item_anything() {
    block_on(async {
        let sqlite = Sqlite::open();
        let product = Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        world.write(vec![thing("t", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let batch = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
        for (away, back) in [
            ("ALTER TABLE things RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO things"),
            ("ALTER TABLE things RENAME COLUMN n TO m", "ALTER TABLE things RENAME COLUMN m TO n"),
        ] {
            product.execute_batch(away).expect("the product's migration");
            let refused = world.store().commit(&batch).await;
            let Err(Error::Refused(Cause::Schema, why)) = &refused else { panic!("{refused:?}") };
            assert!(why.contains("besom check --store"), "{why}");
            product.execute_batch(back).expect("and back");
        }
        world.store().commit(&batch).await.expect("the same batch commits");
        assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(2)]]);
        world.balanced().await;
    });
}

#[test]
fn a_file_that_cannot_grow_loses_nothing_and_the_store_goes_on() {
    // The limit applies to a process, and its signal has to be ignored.
    let ended = Command::new("/bin/sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("this test's program"))
        .args(["--exact", "the_process_whose_files_cannot_grow", "--ignored", "--nocapture"])
        .env(WITHOUT_ROOM, "1")
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

/// Not a separate test: the child process of
/// [`a_file_that_cannot_grow_loses_nothing_and_the_store_goes_on`].
#[test]
#[ignore = "started by another test"]
fn the_process_whose_files_cannot_grow() {
    if std::env::var_os(WITHOUT_ROOM).is_none() {
        return;
    }
    block_on(async {
        let sqlite = Sqlite::open();
        let directory = sqlite.path().parent().expect("a directory").to_owned();
        let mut world = World::new(Box::new(sqlite)).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let large = Change::Insert {
            collection: "things".into(),
            fields: fields([
                ("id", text("t")),
                ("title", text("t")),
                ("data", Value::Bytes(vec![7; 4 << 20])),
            ]),
        };
        let decision = apply(vec![], vec![large]);
        let batch = world.batch(vec![world.entry(&item, decision.clone())]);
        let files = std::fs::read_dir(&directory).expect("a directory");
        let largest = files.map(|file| file.and_then(|f| f.metadata()).map_or(0, |m| m.len()));
        let bound = largest.max().expect("a file") + (256 << 10);
        let unbound = getrlimit(Resource::Fsize);
        let limit = |current| Rlimit { current, maximum: unbound.maximum };
        setrlimit(Resource::Fsize, limit(Some(bound))).expect("a limit");
        let failed = world.store().commit(&batch).await;
        setrlimit(Resource::Fsize, limit(unbound.current)).expect("no limit");

        // After a write that failed within COMMIT, the result is unknown.
        assert!(matches!(failed, Err(Error::Unknown(_) | Error::Unavailable(_))), "{failed:?}");
        let found = world.store().find_commit(batch.id).await.expect("the store works again");
        assert_eq!(found, None);
        assert_eq!(world.only("task").await, item, "the item waits as it did");
        assert!(world.rows("things", &["id"]).await.is_empty());
        world.balanced().await;
        world.commit(vec![(&item, decision)]).await;
        world.advance(Duration::from_secs(1));
        world.reopen().await;
        assert_eq!(world.rows("things", &["id"]).await, [[text("t")]]);
        world.balanced().await;
    });
}
