//! The store on SQLite, and what is kept in its file, under the conformance suites.

use std::sync::Arc;

use besom_core::value::{Field, Value};
use besom_sqlite::Options;
use besom_tests::adapters::lease::Machine;
use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::activity::Observed;
use besom_tests::conformance::coordination::Contest;
use besom_tests::conformance::tables::text;
use besom_tests::conformance::{Fixture, World, block_on};
use besom_tests::{refused_rows, statements, undo_bytes, undone_rows, whole_rows};

mod store {
    use super::*;

    async fn open() -> Box<dyn Fixture> {
        Box::new(Sqlite::open())
    }

    besom_tests::store_conformance!(crate::store::open);
}

mod activity_in_the_store {
    use super::*;

    async fn open() -> Observed {
        let sqlite = Sqlite::open();
        let activity = sqlite.activity();
        let set_now = Box::new(move |now| sqlite.set_now(now));
        Observed { activity, set_now, keep: Box::new(()) }
    }

    besom_tests::activity_conformance!(crate::activity_in_the_store::open);
}

/// Two processes of one machine, each with the file open.
mod coordination {
    use super::*;

    async fn open() -> Contest {
        let (sqlite, machine) = (Sqlite::open(), Machine::new());
        Contest {
            one: Arc::new(machine.lease(sqlite.inner(), "n1".into())),
            two: Arc::new(machine.lease(sqlite.another(), "n2".into())),
            advance: Box::new(move |span| machine.advance(span)),
            keep: Box::new(sqlite),
        }
    }

    besom_tests::coordination_conformance!(crate::coordination::open);
}

#[test]
fn every_statement_can_be_prepared() {
    let sqlite = Sqlite::open();
    let file = rusqlite::Connection::open(sqlite.path()).unwrap();
    // It creates the table of its statistics.
    file.execute_batch("ANALYZE").unwrap();
    let faults: Vec<String> = statements::of("sqlite")
        .into_iter()
        .filter_map(|(source, sql)| {
            let error = file.prepare(&sql).err()?;
            Some(format!("{source}: {error}\n{sql}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn before_images_have_a_size_limit() {
    let limits = Options { undo_bytes: undo_bytes::MAX, ..Options::default() };
    block_on(async {
        let world = World::new(Box::new(Sqlite::open_with(limits))).await;
        undo_bytes::the_images_of_a_commit_are_bounded(&world).await;
        undo_bytes::rows_of_guards_are_not_kept(&world).await;
    });
}

#[test]
fn rows_that_the_database_refuses_stay_alone() {
    block_on(async {
        let sqlite = Sqlite::open();
        let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        refused_rows::refused_rows_of_a_range_stay_alone(&world).await;
        refused_rows::what_depends_on_all_rows_fails_with_one(&world).await;
        product.execute_batch("DELETE FROM children; DELETE FROM parents").expect("the rows");
        for raise in ["abort", "fail"] {
            let trigger = format!(
                "CREATE TRIGGER p13 BEFORE UPDATE ON parents WHEN old.id = 'p13'
                 BEGIN SELECT raise({raise}, 'p13 stays'); END"
            );
            product.execute_batch(&trigger).expect("the product's trigger");
            refused_rows::a_row_that_cannot_be_set_stays_alone(&world).await;
            product.execute_batch("DROP TRIGGER p13; DELETE FROM parents").expect("the rows");
        }
        refused_rows::a_row_that_cannot_be_added_to_stays_alone(&world).await;
        product.execute_batch("DELETE FROM parents").expect("the rows");
        let trigger = "CREATE TRIGGER refuses BEFORE DELETE ON parents
                       BEGIN SELECT CASE WHEN old.id IN ('p05', 'p40') THEN raise(ABORT, 'never')
                                         WHEN old.id = 'p13' THEN raise(ABORT, 'not yet') END; END";
        product.execute_batch(trigger).expect("the product's trigger");
        refused_rows::refused_rows_are_named_with_the_words_of_the_database(&world).await;
        product.execute_batch("DROP TRIGGER refuses; DELETE FROM parents").expect("the rows");
        let trigger = "CREATE TRIGGER p13 BEFORE DELETE ON parents WHEN old.id = 'p13'
                       BEGIN SELECT raise(IGNORE); END";
        product.execute_batch(trigger).expect("the product's trigger");
        refused_rows::a_row_that_is_kept_is_told(&world).await;
        product.execute_batch("DROP TRIGGER p13; DELETE FROM parents").expect("the rows");
        product.execute_batch(trigger).expect("the product's trigger");
        refused_rows::a_row_that_is_kept_stays_with_its_dependants(&world).await;
        refused_rows::a_row_that_cannot_be_moved_stays(&world).await;
        product.execute_batch("DELETE FROM things; DELETE FROM archived").expect("the rows");
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        refused_rows::rows_are_not_moved_without_a_column(&world, run).await;
    });
}

/// Columns that no mapping knows, one of them added while the store is open, values of any storage class, and the
/// row id, which no column is another name of.
#[test]
fn every_change_keeps_the_row_as_it_is_stored() {
    block_on(async {
        let sqlite = Sqlite::open();
        let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        let row = "INSERT INTO things (rowid, tenant_id, id, title, n, data, ratio)
                   VALUES (77, 'a', 't', 'thing', 1, 'a text', 2)";
        let mut stored = vec![
            ("rowid", Value::Integer(77)),
            ("tenant_id", text("a")),
            ("at", Value::Null),
            ("born", Value::Null),
            ("data", text("a text")),
            ("doc", Value::Null),
            ("flag", Value::Null),
            ("id", text("t")),
            ("most", Value::Null),
            ("n", Value::Integer(1)),
            ("price", Value::Null),
            ("ratio", Value::Float(2.0)),
            ("reference", Value::Null),
            ("title", text("thing")),
        ];
        whole_rows::every_change_keeps_the_row_as_it_is_stored(&world, run, row, &stored).await;
        run("ALTER TABLE things ADD more BLOB DEFAULT x'00ff';
             ALTER TABLE things ADD twice GENERATED ALWAYS AS (n * 2)")
        .await;
        stored.extend([("more", Value::Bytes(vec![0, 255])), ("twice", Value::Integer(2))]);
        whole_rows::every_change_keeps_the_row_as_it_is_stored(&world, run, row, &stored).await;
    });
}

#[test]
fn rows_come_back_into_tables_that_have_changed() {
    block_on(async {
        let open = || async {
            let sqlite = Sqlite::open();
            let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
            (World::new(Box::new(sqlite)).await, product)
        };
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        undone_rows::columns_that_were_added_or_dropped_are_told(&world, run).await;
        let refuse = "CREATE TRIGGER thirteen BEFORE INSERT ON things WHEN new.n = 13
                      BEGIN SELECT raise(ABORT, 'no thirteen'); END";
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        undone_rows::rows_that_constraints_refuse_stay_alone(&world, run, refuse).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        undone_rows::rows_of_a_table_that_is_gone_stay_kept(&world, run).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        let add = "BEGIN UPDATE things SET n = n + 100 WHERE id = new.id; END";
        let on_update = format!("CREATE TRIGGER u AFTER UPDATE OF title ON things {add}");
        let on_insert = format!("CREATE TRIGGER i AFTER INSERT ON things {add}");
        undone_rows::what_triggers_have_set_is_told(&world, run, (&on_update, &on_insert)).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        let astray = "CREATE TRIGGER b AFTER INSERT ON things WHEN new.id = 'b'
                      BEGIN DELETE FROM things WHERE id = 'b'; END;
                      CREATE TRIGGER c AFTER INSERT ON things WHEN new.id = 'c'
                      BEGIN UPDATE things SET id = 'x' WHERE id = 'c'; END";
        undone_rows::rows_that_a_trigger_leads_astray_stay_kept(&world, run, astray).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        let keep = "CREATE TRIGGER keep BEFORE DELETE ON archived WHEN old.id = 'b'
                    BEGIN SELECT raise(ABORT, 'it is kept'); END";
        undone_rows::a_row_whose_copy_cannot_be_removed_stays_archived(&world, run, keep).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        let keep = "CREATE TRIGGER keep BEFORE DELETE ON archived WHEN old.id = 'b'
                    BEGIN SELECT raise(IGNORE); END";
        undone_rows::a_row_whose_copy_cannot_be_removed_stays_archived(&world, run, keep).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        undone_rows::rows_to_which_others_refer_are_not_removed(&world, run).await;
    });
}

/// Each storage class in one column, a text that is not UTF-8, a table without row ids, and a row id that another row
/// has taken.
#[test]
fn rows_come_back_with_their_storage_classes_and_row_ids() {
    use besom_core::proposal::{Change, RowRange};
    use besom_tests::conformance::world::{apply, candidate};
    use besom_tests::undone_rows::{latest, undo};
    block_on(async {
        let sqlite = Sqlite::open();
        let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        product
            .execute_batch(
                "DROP TABLE counters;
                 CREATE TABLE counters (id INTEGER NOT NULL, n, PRIMARY KEY (id)) WITHOUT ROWID;
                 DROP TABLE settings;
                 CREATE TABLE settings (name TEXT NOT NULL UNIQUE, value, \"Été\" DEFAULT 'lost', PRIMARY KEY (name));
                 INSERT INTO counters VALUES (1, 1), (2, 2.5), (3, 'three'), (4, x'04'), (5, NULL),
                   (6, CAST(x'ff41' AS TEXT)), (7, 9e999);
                 INSERT INTO settings (rowid, name, value, \"Été\")
                 VALUES (70, 'a', 1, 'x'), (71, 'b', '1', 'y'), (72, 'c', 1.0, 'z')",
            )
            .expect("the product's tables");
        let dump = |sql: &str| -> Vec<String> {
            let mut statement = product.prepare(sql).expect("a query");
            let rows = statement.query_map([], |row| row.get(0)).expect("rows");
            rows.map(|row| row.expect("a row")).collect()
        };
        let all = |collection: &str| {
            let range =
                RowRange { collection: collection.into(), rows: 100, ..RowRange::default() };
            Change::DeleteRange(Arc::new(range))
        };
        let counters = "SELECT id || typeof(n) || hex(CAST(n AS BLOB)) FROM counters ORDER BY id";
        let settings =
            "SELECT rowid || name || typeof(value) || \"Été\" FROM settings ORDER BY name";
        let before = (dump(counters), dump(settings));
        for (collection, sql) in [("counters", counters), ("settings", settings)] {
            world.settle(candidate(collection), apply(vec![], vec![all(collection)])).await;
            assert_eq!(dump(sql), Vec::<String>::new());
            assert_eq!(undo(&world, latest(&world).await, &[]).await.reason, None, "{collection}");
        }
        assert_eq!((dump(counters), dump(settings)), before);
        // What was set comes back as well.
        let range = RowRange { collection: "counters".into(), rows: 100, ..RowRange::default() };
        let set = vec![Field::new("n", Value::Integer(0))];
        let set = Change::UpdateRange { range: Arc::new(range), fields: set, increments: vec![] };
        world.settle(candidate("set"), apply(vec![], vec![set])).await;
        assert_ne!(dump(counters), before.0);
        assert_eq!(undo(&world, latest(&world).await, &[]).await.reason, None);
        assert_eq!(dump(counters), before.0);
        // The row id is taken, the key is free: the row comes back under another row id.
        world.settle(candidate("settings"), apply(vec![], vec![all("settings")])).await;
        let item = latest(&world).await;
        product.execute("INSERT INTO settings (rowid, name) VALUES (71, 'z')", []).expect("a row");
        let undone = undo(&world, item, &[]).await;
        assert_eq!(undone.rows, 3);
        assert!(undone.reason.is_some_and(|reason| reason.contains("rowid")));
        let names = dump("SELECT name FROM settings ORDER BY name");
        assert_eq!(names, ["a", "b", "c", "z"]);
        // Such a key is no other name of the row id.
        let of_key = "DROP TABLE counters; CREATE TABLE counters (id integer primary key desc, n);
             INSERT INTO counters (rowid, id, n) VALUES (80, 1, 1), (90, NULL, 2)";
        product.execute_batch(of_key).expect("the product's table");
        let counters = "SELECT rowid || coalesce(id, '-') || n FROM counters ORDER BY n";
        world.settle(candidate("key"), apply(vec![], vec![all("counters")])).await;
        assert_eq!(dump(counters), Vec::<String>::new());
        assert_eq!(undo(&world, latest(&world).await, &[]).await.reason, None);
        assert_eq!(dump(counters), ["8011", "90-2"]);
    });
}

/// A column that is called as SQLite calls the row id is a column like the others.
#[test]
fn a_column_called_rowid_comes_back_with_its_value() {
    use besom_core::proposal::{Change, RowRange};
    use besom_tests::conformance::world::{apply, candidate};
    use besom_tests::undone_rows::{latest, undo};
    block_on(async {
        for columns in ["rowid TEXT", "rowid TEXT, oid TEXT DEFAULT 'o'", "_rowid_, RowId, oid"] {
            let sqlite = Sqlite::open();
            let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
            let world = World::new(Box::new(sqlite)).await;
            let own = format!(
                "DROP TABLE settings;
                 CREATE TABLE settings (name TEXT PRIMARY KEY, value, {columns});
                 INSERT INTO settings (name, value, rowid) VALUES ('a', 1, 'A'), ('b', 2, 7), ('c', 3, NULL)"
            );
            product.execute_batch(&own).expect("the product's table");
            let dump = || -> Vec<String> {
                let sql = "SELECT name || value || coalesce(typeof(rowid) || rowid, '-') FROM settings ORDER BY name";
                let mut statement = product.prepare(sql).expect("a query");
                let rows = statement.query_map([], |row| row.get(0)).expect("rows");
                rows.map(|row| row.expect("a row")).collect()
            };
            let before = dump();
            let range = RowRange { collection: "settings".into(), rows: 9, ..RowRange::default() };
            let all = vec![Change::DeleteRange(Arc::new(range))];
            world.settle(candidate("k"), apply(vec![], all)).await;
            assert_eq!(dump(), Vec::<String>::new());
            assert_eq!(undo(&world, latest(&world).await, &[]).await.reason, None, "{columns}");
            assert_eq!(dump(), before, "{columns}");
        }
    });
}

/// One row would take all others of the commit with it.
#[test]
fn rows_stay_where_a_trigger_may_roll_back_the_transaction() {
    use besom_core::proposal::Change;
    use besom_tests::conformance::tables::thing;
    use besom_tests::conformance::world::{apply, candidate};
    use besom_tests::undone_rows::{latest, rehearsed, undo};
    block_on(async {
        let sqlite = Sqlite::open();
        let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        world.write(vec![thing("a", 1), thing("b", 2)]).await;
        let gone = |id: &str| Change::Delete { collection: "things".into(), key: vec![text(id)] };
        world.settle(candidate("k"), apply(vec![], vec![gone("a"), gone("b")])).await;
        let item = latest(&world).await;
        let run = |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        run("CREATE TRIGGER no BEFORE\n INSERT\n ON things WHEN NEW.id = 'a'
             BEGIN SELECT raise ( rollback, 'no'); END");
        let found = rehearsed(&world, item).await;
        assert_eq!((found.rows, found.stay.len()), (0, 2));
        let why = "a trigger of its table may roll back the whole transaction";
        assert!(found.stay.iter().all(|stay| stay.why.starts_with(why)), "{:?}", found.stay);
        let undone = undo(&world, item, &[]).await;
        assert!(undone.rows == 0 && undone.reason.is_some_and(|said| said.contains(why)));
        // For other changes of the table, such a trigger is none of this.
        run(
            "DROP TRIGGER no; CREATE TRIGGER no BEFORE DELETE ON things BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
        );
        assert_eq!(undo(&world, item, &[]).await.rows, 2);
        world.balanced().await;
    });
}

/// A table with a column called `rowid`, an archive that would overwrite or convert rows, and a child that is compared
/// otherwise than its foreign key compares it.
#[test]
fn rows_of_unusual_tables_are_changed_or_refused() {
    use besom_core::proposal::{Change, RowRange};
    use besom_ports::store::Outcome;
    use besom_tests::conformance::tables::{dependent, thing};
    use besom_tests::conformance::world::{apply, candidate};

    block_on(async {
        let sqlite = Sqlite::open();
        let product = rusqlite::Connection::open(sqlite.path()).expect("the file opens");
        let world = World::new(Box::new(sqlite)).await;
        let run = |sql: &str| product.execute_batch(sql).expect("a statement of the product");
        let range = |collection: &str, upper: i64| {
            Arc::new(RowRange {
                collection: collection.into(),
                index: Some("by_n".into()),
                upper: Some(Value::Integer(upper)),
                rows: 10,
                ..RowRange::default()
            })
        };
        // Each place may be one of the user's columns.
        const THINGS: &str =
            "tenant_id TEXT, id TEXT, title TEXT, n INTEGER, ratio REAL, data BLOB, at INTEGER,
            flag INTEGER, doc TEXT, reference TEXT, price TEXT, born TEXT, most INTEGER, PRIMARY KEY (tenant_id, id)";
        for hidden in [
            "rowid DEFAULT 7,",
            "rowid DEFAULT 7, oid DEFAULT 7,",
            "rowid, oid, _rowid_ DEFAULT 7,",
            "",
        ] {
            run(&format!(
                "DROP TABLE things; CREATE TABLE things ({hidden} {THINGS});
                 CREATE INDEX things_by_n ON things (tenant_id, n, id)"
            ));
            world.write((1..=4).map(|n| thing(&n.to_string(), n)).collect()).await;
            let gone = vec![Change::DeleteRange(range("things", 2))];
            world.settle(candidate(&format!("k{hidden}")), apply(vec![], gone)).await;
            let left = world.rows("things", &["id"]).await;
            assert_eq!(left, [vec![text("3")], vec![text("4")]], "{hidden}");
            run("DELETE FROM things");
        }
        let refusal = async |change: Change, key: &str| {
            world.refusal(candidate(key), apply(vec![], vec![change])).await
        };
        let moved = || Change::MoveRange { range: range("things", 9), into: "archived".into() };
        world.write(vec![thing("a", 1), thing("b", 1)]).await;
        // What is in the archive stays, whatever its own rule for conflicts is.
        run(&format!(
            "DROP TABLE archived; CREATE TABLE archived ({THINGS} ON CONFLICT REPLACE);
             INSERT INTO archived (tenant_id, id, title) VALUES ('a', 'a', 'kept')"
        ));
        let committed = world.settle(candidate("moved"), apply(vec![], vec![moved()])).await;
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        assert_eq!(world.rows("things", &["id"]).await, [vec![text("a")]]);
        let titles = world.rows("archived", &["id", "title"]).await;
        assert_eq!(titles, [vec![text("a"), text("kept")], vec![text("b"), text("b")]]);
        run("ALTER TABLE archived DROP price; ALTER TABLE archived ADD price AS (n) ");
        assert!(
            refusal(moved(), "computed").await.contains("computes the column \"price\" itself")
        );
        run("ALTER TABLE archived DROP price; ALTER TABLE archived ADD price INTEGER");
        assert!(refusal(moved(), "converted").await.contains("its values would be converted"));
        // The foreign key compares as the parent's column does.
        run("DROP TABLE leaves; DROP TABLE children;
             CREATE TABLE children (tenant_id TEXT, parent TEXT COLLATE NOCASE, seq INTEGER, state TEXT,
               PRIMARY KEY (tenant_id, parent, seq), FOREIGN KEY (tenant_id, parent) REFERENCES parents);
             CREATE TABLE leaves (tenant_id TEXT, leaf TEXT, parent TEXT, seq INTEGER,
               PRIMARY KEY (tenant_id, leaf));
             INSERT INTO parents (tenant_id, id) VALUES ('a', 'p'), ('a', 'P');
             INSERT INTO children (tenant_id, parent, seq) VALUES ('a', 'p', 1), ('a', 'P', 2)");
        world.store().set_collections(dependent());
        let gone = Change::Delete { collection: "parents".into(), key: vec![text("p")] };
        let said = refusal(gone, "alike").await;
        assert!(
            said.contains("parent (TEXT NOCASE) is not compared as id (TEXT BINARY)"),
            "{said}"
        );
        assert_eq!(world.rows("parents", &["id"]).await.len(), 2);
        assert_eq!(world.rows("children", &["seq"]).await.len(), 2);
    });
}

/// The tables of the built-in entity model.
mod entity_model {
    use super::*;
    use besom_core::proposal::Change;
    use besom_core::value::{Field, Value};
    use besom_product::model::{default_collections, product};
    use rusqlite::Connection;

    async fn created() -> (Sqlite, Connection) {
        let sqlite = Sqlite::open();
        for _ in 0..2 {
            product::create_tables(&*sqlite.inner()).await.expect("missing tables are created");
        }
        let conn = Connection::open(sqlite.path()).expect("the file opens");
        (sqlite, conn)
    }

    #[test]
    fn what_a_client_has_attached_is_found_by_the_client_not_by_its_project() {
        block_on(async {
            let (_sqlite, conn) = created().await;
            for sql in [
                "SELECT 1 FROM attachments
                 WHERE project_id = 'p' AND client_id IS 'c' AND state IS NOT 'detached'",
                "SELECT doc_id, (1 AND state IS NOT 'detached') FROM attachments
                 WHERE project_id = 'p' AND client_id IS 'c' ORDER BY doc_id",
            ] {
                let plan: String = conn
                    .query_row(&format!("EXPLAIN QUERY PLAN {sql}"), [], |row| row.get(3))
                    .expect("a plan");
                assert!(
                    plan.contains("attachments_by_client (project_id=? AND client_id=?)"),
                    "{plan}"
                );
            }
        });
    }

    #[test]
    fn a_workspace_that_is_not_where_it_is_to_be_is_unsettled_whatever_its_name() {
        block_on(async {
            let (sqlite, conn) = created().await;
            let states = [("o'k", "RUNNING", "NONE"), ("a\0b", "STANDBY", "NONE")];
            let states = states.into_iter().chain([("busy", "RUNNING", "STOPPING")]);
            let changes: Vec<_> = states
                .map(|(id, desired, operation)| {
                    let text = |name: &str, text: &str| Field::new(name, Value::Text(text.into()));
                    let fields = vec![
                        text("workspace_id", id),
                        text("status", "RUNNING"),
                        text("operation", operation),
                        text("desired_state", desired),
                        Field::new("last_access_at", Value::Timestamp(besom_core::time::Time(7))),
                    ];
                    (Some("p".into()), Change::Upsert { collection: "workspaces".into(), fields })
                })
                .collect();
            for _ in 0..2 {
                sqlite.write(&Arc::new(default_collections()), &changes).await;
            }
            let sql = "SELECT workspace_id FROM workspaces
                 WHERE project_id = 'p' AND unsettled = 1 ORDER BY workspace_id";
            let mut found = conn.prepare(sql).expect("a statement");
            let found: Vec<Vec<u8>> = found
                .query_map([], |row| {
                    row.get_ref(0)?.as_bytes().map(<[u8]>::to_vec).map_err(Into::into)
                })
                .expect("rows")
                .map(|row| row.expect("a row"))
                .collect();
            assert_eq!(found, [&b"a\0b"[..], b"busy"]);
        });
    }
}
