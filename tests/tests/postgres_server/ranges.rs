//! Changes of the rows of a range: rows that the database refuses, that others hold, and partitions.

use std::sync::Arc;
use std::time::Duration;

use besom_core::proposal::{Change, Comparison, Condition, RowRange, Test};
use besom_core::value::{Field, Row, Value};
use besom_ports::store::Outcome;
use besom_postgres::Options;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{
    child, collections, counter, dependent, leaf, parent, text, thing,
};
use besom_tests::conformance::world::{apply, apply_to, candidate, unqueued};
use besom_tests::conformance::{World, block_on};
use besom_tests::refused_rows;

fn delete(collection: &str) -> Vec<Change> {
    let collection = collection.to_owned();
    let range = RowRange { collection, rows: 100, ..RowRange::default() };
    vec![Change::DeleteRange(Arc::new(range))]
}

#[test]
fn rows_that_the_database_refuses_stay_alone() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        refused_rows::refused_rows_of_a_range_stay_alone(&world).await;
        refused_rows::what_depends_on_all_rows_fails_with_one(&world).await;
        let clear = "DELETE FROM children; DELETE FROM parents";
        product.batch_execute(clear).await.expect("the rows are gone");
        let trigger = "CREATE FUNCTION p13() RETURNS trigger LANGUAGE plpgsql AS $$
                         BEGIN RAISE EXCEPTION 'p13 stays' USING ERRCODE = '40001'; END $$;
                       CREATE TRIGGER p13 BEFORE UPDATE ON parents FOR EACH ROW WHEN (old.id = 'p13')
                         EXECUTE FUNCTION p13()";
        product.batch_execute(trigger).await.expect("the product's trigger");
        refused_rows::a_row_that_cannot_be_set_stays_alone(&world).await;
        product.batch_execute("DROP TRIGGER p13 ON parents; DELETE FROM parents").await.unwrap();
        refused_rows::a_row_that_cannot_be_added_to_stays_alone(&world).await;
        let trigger = "DELETE FROM parents;
                       CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS $$
                         BEGIN
                           IF old.id IN ('p05', 'p40') THEN RAISE EXCEPTION 'never'; END IF;
                           IF old.id = 'p13' THEN RAISE EXCEPTION 'not yet'; END IF;
                           RETURN old;
                         END $$;
                       CREATE TRIGGER refuses BEFORE DELETE ON parents FOR EACH ROW
                         EXECUTE FUNCTION refuses()";
        product.batch_execute(trigger).await.expect("the product's trigger");
        refused_rows::refused_rows_are_named_with_the_words_of_the_database(&world).await;
        let trigger = "DROP TRIGGER refuses ON parents; DELETE FROM parents;
                       CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$
                         BEGIN RETURN NULL; END $$;
                       CREATE TRIGGER p13 BEFORE DELETE ON parents FOR EACH ROW WHEN (old.id = 'p13')
                         EXECUTE FUNCTION stays()";
        product.batch_execute(trigger).await.expect("the product's trigger");
        refused_rows::a_row_that_is_kept_is_told(&world).await;
        let clear = "ALTER TABLE parents DISABLE TRIGGER p13; DELETE FROM parents;
                     ALTER TABLE parents ENABLE TRIGGER p13";
        product.batch_execute(clear).await.expect("the rows are gone");
        refused_rows::a_row_that_is_kept_stays_with_its_dependants(&world).await;
        refused_rows::a_row_that_cannot_be_moved_stays(&world).await;
        product.batch_execute("DELETE FROM things; DELETE FROM archived").await.unwrap();
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        refused_rows::rows_are_not_moved_without_a_column(&world, run).await;
    });
}

/// Rows are not moved where they would be lost, converted, or moved again for ever.
#[test]
fn tables_that_cannot_take_the_rows_are_refused() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1)]).await;
        let range = RowRange { collection: "things".into(), rows: 10, ..RowRange::default() };
        for (change, words) in [
            ("ALTER TABLE archived DROP title, ADD title text GENERATED ALWAYS AS ('z') STORED", "computes"),
            ("ALTER TABLE archived DROP title, ADD title varchar(3)", "its values would be converted"),
            ("ALTER TABLE archived DROP title, ADD title text, ALTER price TYPE numeric(8,1)", "converted"),
            ("ALTER TABLE archived DROP price", "has no column \"price\": ALTER TABLE"),
            ("DROP TABLE archived; CREATE VIEW archived AS SELECT * FROM things", "is no table"),
            (
                "DROP VIEW archived; DROP TABLE things;
                 CREATE TABLE things (tenant_id text, id text, title text, n bigint, ratio double precision, data bytea,
                   at timestamptz, flag boolean, doc json, reference uuid, price numeric, born date, most bigint,
                   PRIMARY KEY (tenant_id, id))
                   PARTITION BY LIST (tenant_id);
                 CREATE TABLE archived PARTITION OF things DEFAULT;
                 INSERT INTO things (tenant_id, id, title, n) VALUES ('a', 't', 't', 1)",
                "is a partition of the other",
            ),
        ] {
            product.batch_execute(change).await.unwrap();
            let range = Arc::new(range.clone());
            let moved = Change::MoveRange { range, into: "archived".into() };
            let said = world.refusal(candidate(words), apply(vec![], vec![moved])).await;
            assert!(said.contains(words), "{change}: {said}");
            assert_eq!(world.rows("things", &["id"]).await, [vec![text("t")]], "{change}");
        }
    });
}

/// A grandchild that is inserted while the deletion waits for its parent is seen, also where the database would delete
/// it by itself; a dependant that a trigger keeps, keeps its row; and columns that a foreign key compares otherwise are
/// refused.
#[test]
fn rows_that_go_with_others_are_those_of_the_foreign_key() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.store().set_collections(dependent());
        let cascades = "ALTER TABLE children DROP CONSTRAINT children_tenant_id_parent_fkey, ADD FOREIGN KEY (tenant_id, parent)
               REFERENCES parents ON DELETE CASCADE;
             ALTER TABLE leaves DROP CONSTRAINT leaves_tenant_id_parent_seq_fkey, ADD FOREIGN KEY (tenant_id, parent, seq)
               REFERENCES children ON DELETE CASCADE";
        product.batch_execute(cascades).await.unwrap();
        let single =
            |id: &str| vec![Change::Delete { collection: "parents".into(), key: vec![text(id)] }];
        for (at, changes) in [single("p"), delete("parents")].into_iter().enumerate() {
            world.write(vec![parent("p"), child("p", 1, "x"), leaf("l", "p", 1)]).await;
            let late = "BEGIN; INSERT INTO leaves (tenant_id, leaf, parent, seq) VALUES ('a', 'late', 'p', 1)";
            product.batch_execute(late).await.unwrap();
            let key = format!("k{at}");
            let item = world.settle(candidate(&key), apply(vec![], changes));
            let ended = async {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                product.batch_execute("COMMIT").await
            };
            futures::future::join(item, ended).await.1.unwrap();
            let row = world.history().await.pop().unwrap();
            let left = world.rows("leaves", &["leaf"]).await.len();
            // A single row waits for it; a range leaves the row that it goes with.
            assert_eq!((row.rows, left), if at == 0 { (4, 0) } else { (0, 2) });
            product.batch_execute("DELETE FROM parents").await.unwrap();
        }
        world.write(vec![parent("p"), child("p", 1, "x"), child("p", 2, "x"), parent("q")]).await;
        let stays = "CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
             CREATE TRIGGER stays BEFORE DELETE ON children FOR EACH ROW WHEN (old.seq = 2)
               EXECUTE FUNCTION stays()";
        product.batch_execute(stays).await.unwrap();
        world.settle(candidate("kept"), apply(vec![], delete("parents"))).await;
        assert_eq!(world.rows("parents", &["id"]).await, [vec![text("p")]]);
        assert_eq!(world.rows("children", &["seq"]).await.len(), 2);
        let loose = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             ALTER TABLE children ALTER parent TYPE text COLLATE loose";
        product.batch_execute(loose).await.unwrap();
        // As at a start.
        world.store().set_collections(dependent());
        let said = world.refusal(candidate("alike"), apply(vec![], delete("parents"))).await;
        assert!(said.contains("parent (text) is not compared as id (text) is"), "{said}");
        world.balanced().await;
    });
}

/// A foreign key is not only looked at when a host starts.
#[test]
fn a_foreign_key_that_deletes_other_rows_holds_the_task_once_it_is_made() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![parent("p"), child("p", 1, "x")]).await;
        let cascades = "ALTER TABLE children DROP CONSTRAINT children_tenant_id_parent_fkey,
             ADD CONSTRAINT of FOREIGN KEY (tenant_id, parent) REFERENCES parents ON DELETE CASCADE";
        product.batch_execute(cascades).await.unwrap();
        let single = vec![Change::Delete { collection: "parents".into(), key: vec![text("p")] }];
        for (key, changes) in [("single", single), ("range", delete("parents"))] {
            let said = world.refusal(candidate(key), apply(vec![], changes)).await;
            assert!(said.contains("\"of\" also deletes rows of children"), "{said}");
        }
        assert_eq!(world.rows("children", &["seq"]).await.len(), 1);
        let mut accepted = (*collections()).clone();
        accepted.get_mut("parents").unwrap().accept_cascades = true;
        world.store().set_collections(Arc::new(accepted));
        let item = world.log("task").await.remove(0);
        world.commit(vec![(&item, apply(vec![], delete("parents")))]).await;
        assert_eq!(world.rows("children", &["seq"]).await.len(), 0);
        world.balanced().await;
    });
}

/// A table may inherit at any time, and the statements then change its rows as well.
#[test]
fn a_table_that_inherits_while_a_host_serves_keeps_its_rows() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1)]).await;
        world.settle(candidate("before"), apply(vec![], delete("things"))).await;
        world.write(vec![thing("t", 1)]).await;
        let heir = "CREATE TABLE heirs (LIKE things); INSERT INTO heirs SELECT * FROM things;
             ALTER TABLE heirs INHERIT things";
        product.batch_execute(heir).await.unwrap();
        let title = vec![Field { name: "title".into(), value: text("new") }];
        let key = vec![text("t")];
        let single = Change::Update { collection: "things".into(), key, fields: title };
        for (key, changes) in [("single", vec![single]), ("range", delete("things"))] {
            let said = world.refusal(candidate(key), apply(vec![], changes)).await;
            assert!(said.starts_with("heirs inherits from things"), "{said}");
        }
        let sql = "SELECT count(*) FROM ONLY heirs WHERE title IS DISTINCT FROM 'new'";
        assert_eq!(product.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
        product.batch_execute("ALTER TABLE heirs NO INHERIT things").await.unwrap();
        for item in world.log("task").await {
            world.commit(vec![(&item, apply(vec![], delete("things")))]).await;
        }
        assert_eq!(world.rows("things", &["id"]).await.len(), 0);
        assert_eq!(product.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
        world.balanced().await;
    });
}

/// The rest is left to the next run, with the reason.
#[test]
fn fewer_rows_of_a_range_are_changed_if_all_of_them_take_too_long() {
    block_on(async {
        let statement_timeout = Duration::from_millis(1_000);
        let lock_timeout = Duration::from_millis(100);
        let options = Options { statement_timeout, lock_timeout, ..patient() };
        let fixture = Postgres::open_with(options).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write((0..80).map(|n| thing(&format!("t{n}"), n)).collect()).await;
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
                      BEGIN PERFORM pg_sleep(0.02); RETURN old; END $$;
                    CREATE TRIGGER slow BEFORE DELETE ON things FOR EACH ROW EXECUTE FUNCTION slow()";
        product.batch_execute(slow).await.unwrap();
        let committed = world.settle(candidate("k"), apply(vec![], delete("things"))).await;
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        // Of 100 at most.
        assert_eq!(world.rows("things", &["id"]).await.len(), 80 - 12);
        let row = world.history().await.pop().unwrap();
        let reason = row.reason.unwrap_or_default();
        assert!(row.rows == 12 && reason.starts_with("12 rows at once at most"), "{reason}");
        world.balanced().await;
    });
}

/// A row of which another transaction holds a dependant stays with all of them; the commit does not wait, and takes the
/// others.
#[test]
fn a_row_whose_dependant_is_held_stays() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.store().set_collections(dependent());
        for id in ["p", "q"] {
            world
                .write(vec![parent(id), child(id, 1, "x"), child(id, 2, "x"), leaf(id, id, 1)])
                .await;
        }
        for held in [
            "children SET state = 'h' WHERE parent = 'p' AND seq = 2",
            "leaves SET seq = 2 WHERE leaf = 'p'",
        ] {
            product.batch_execute(&format!("BEGIN; UPDATE {held}")).await.unwrap();
            // A commit that waited would fail here: the row is held until it has ended.
            world.settle(candidate(held), apply(vec![], delete("parents"))).await;
            product.batch_execute("ROLLBACK").await.unwrap();
            for (table, column, count) in
                [("parents", "id", 1), ("children", "parent", 2), ("leaves", "parent", 1)]
            {
                let left = world.rows(table, &[column]).await;
                assert_eq!(left, vec![vec![text("p")]; count], "{held}: {table}");
            }
        }
        let rows: Vec<u64> = world.history().await.iter().map(|row| row.rows).collect();
        assert_eq!(rows, [4, 0]);
        world.settle(candidate("free"), apply(vec![], delete("parents"))).await;
        assert_eq!(world.rows("parents", &["id"]).await.len(), 0);
        world.balanced().await;
    });
}

/// A row that refers to a deleted one, and is committed while the deletion waits or runs, goes with it or keeps it: it
/// never stays behind.
#[test]
fn rows_that_are_inserted_meanwhile_go_or_keep_what_they_refer_to() {
    block_on(async {
        let fixture = Postgres::open().await;
        let database = fixture.database();
        let (product, other) = (database.connect().await, database.connect().await);
        let world = World::new(Box::new(fixture)).await;
        world.store().set_collections(dependent());
        for round in 0..40 {
            world.write((0..8).map(|at| parent(&format!("p{at}"))).collect()).await;
            let insert = "INSERT INTO children (tenant_id, parent, seq) VALUES ('a', 'p3', 1)";
            // A transaction that holds the row while the commit reads, and one that inserts beside it.
            product.batch_execute(&format!("BEGIN; {insert}")).await.unwrap();
            let racing = async {
                let other = other.batch_execute(
                    "INSERT INTO children (tenant_id, parent, seq) VALUES ('a', 'p5', 1)",
                );
                let ended = product.batch_execute("COMMIT");
                futures::future::join(other, ended).await
            };
            let key = format!("k{round}");
            let item = world.settle(candidate(&key), apply(vec![], delete("parents")));
            let (committed, (inserted, _)) = futures::future::join(item, racing).await;
            assert_eq!(committed.outcomes, [Outcome::Committed]);
            let parents = world.rows("parents", &["id"]).await;
            let children = world.rows("children", &["parent"]).await;
            assert!(children.iter().all(|child| parents.contains(child)), "{parents:?}");
            let held = parents.iter().filter(|row| row[0] == text("p3")).count();
            assert_eq!(children.iter().filter(|row| row[0] == text("p3")).count(), held);
            // An insert that came too late has found no parent.
            assert!(inserted.is_ok() || !parents.contains(&vec![text("p5")]));
            product.batch_execute("DELETE FROM children; DELETE FROM parents").await.unwrap();
        }
        world.balanced().await;
    });
}

/// A row is kept by one of its own table only if that one stays: `c` is beyond the range, `b` refers to `a`, and `e`
/// and `f` to each other.
#[test]
fn rows_that_others_of_their_table_refer_to_are_kept_and_no_dead_letters() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let own = "ALTER TABLE parents ADD above text, ADD UNIQUE (id), ADD FOREIGN KEY (above) REFERENCES parents (id)";
        product.batch_execute(own).await.unwrap();
        world.write(["a", "b", "c", "d", "e", "f"].map(parent).to_vec()).await;
        let refer = "UPDATE parents p SET above = n.above
                     FROM (VALUES ('b', 'a'), ('c', 'b'), ('d', 'a'), ('e', 'f'), ('f', 'e')) n (id, above)
                     WHERE p.id = n.id;
                     UPDATE parents SET total = 1 WHERE id = 'c'";
        product.batch_execute(refer).await.unwrap();
        let old = || {
            let range = RowRange {
                collection: "parents".into(),
                conditions: vec![Condition {
                    column: "total".into(),
                    test: Test::Value(Comparison::Equal, Value::Integer(0)),
                }],
                rows: 100,
                ..RowRange::default()
            };
            vec![Change::DeleteRange(Arc::new(range))]
        };
        for (key, outcome, rows) in [("some", Outcome::Committed, 3), ("none", Outcome::Kept, 0)] {
            let committed = world.settle(candidate(key), apply(vec![], old())).await;
            assert_eq!(committed.outcomes, [outcome]);
            let left: Vec<Row> = ["a", "b", "c"].map(|id| vec![text(id)]).to_vec();
            assert_eq!(world.rows("parents", &["id"]).await, left);
            let row = world.history().await.pop().unwrap();
            assert_eq!(row.rows, rows);
            let said = row.reason.unwrap_or_default();
            assert!(said.starts_with("2 rows could not be changed: (\"a\"), (\"b\"): "), "{said}");
        }
        product.batch_execute("DELETE FROM parents WHERE id = 'c'").await.unwrap();
        world.settle(candidate("all"), apply(vec![], old())).await;
        assert_eq!(world.rows("parents", &["id"]).await.len(), 0);
        world.balanced().await;
    });
}

#[test]
fn a_row_that_another_transaction_holds_stays() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(["a", "b", "c"].map(|id| thing(id, 1)).to_vec()).await;
        product.batch_execute("BEGIN; UPDATE things SET n = 7 WHERE id = 'b'").await.unwrap();
        let committed = world.settle(candidate("k"), apply_to(3, delete("things"))).await;
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        product.batch_execute("COMMIT").await.unwrap();
        let left: Vec<Row> = vec![vec![text("b"), Value::Integer(7)]];
        assert_eq!(world.rows("things", &["id", "n"]).await, left);
        let row = &world.history().await[0];
        assert_eq!((row.rows, row.stayed()), (2, Some(1)));
    });
}

/// In several partitions rows have the same `ctid`.
#[test]
fn rows_of_a_partitioned_table_are_changed() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let parted = "DROP TABLE counters;
            CREATE TABLE counters (id bigint PRIMARY KEY, n bigint) PARTITION BY RANGE (id);
            CREATE TABLE counters_a PARTITION OF counters FOR VALUES FROM (0) TO (10);
            CREATE TABLE counters_b PARTITION OF counters FOR VALUES FROM (10) TO (20)";
        product.batch_execute(parted).await.unwrap();
        world.write((5..15).map(|id| counter(id, id)).collect()).await;
        // No more rows than the item stands for, wherever they are.
        let some = |rows| RowRange { collection: "counters".into(), rows, ..RowRange::default() };
        let few = Change::DeleteRange(Arc::new(some(3)));
        world.settle(candidate("few"), apply(vec![], vec![few])).await;
        assert_eq!(world.rows("counters", &["id"]).await.len(), 7);
        product.batch_execute("DELETE FROM counters").await.unwrap();
        world.write((5..15).map(|id| counter(id, id)).collect()).await;
        let range = RowRange {
            collection: "counters".into(),
            lower: Some(Value::Integer(8)),
            upper: Some(Value::Integer(11)),
            rows: 100,
            ..RowRange::default()
        };
        let range = Arc::new(range);
        let fields = besom_tests::conformance::tables::fields([("n", Value::Integer(0))]);
        let update = Change::UpdateRange { range: Arc::clone(&range), fields, increments: vec![] };
        world.settle(candidate("set"), apply(vec![], vec![update])).await;
        let set = world.rows("counters", &["n"]).await;
        assert_eq!(set.iter().filter(|row| row[0] == Value::Integer(0)).count(), 4);
        assert_eq!(world.latest_images().await.len(), 4);
        let gone = vec![Change::DeleteRange(range)];
        world.settle(candidate("delete"), apply(vec![], gone)).await;
        let left: Vec<Row> = [5, 6, 7, 12, 13, 14].map(|id| vec![Value::Integer(id)]).to_vec();
        assert_eq!(world.rows("counters", &["id"]).await, left);
        assert_eq!(world.latest_images().await.len(), 4);
    });
}

/// A preview says what a run would meet: the rows of a view are changed one by one only.
#[test]
fn rows_of_a_view_are_refused_in_a_trial_as_in_a_commit() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let view = "ALTER TABLE counters RENAME TO all_counters;
                    CREATE VIEW counters AS SELECT * FROM all_counters WHERE n > 0";
        product.batch_execute(view).await.unwrap();
        // The store looks again what is behind the name.
        world.store().set_collections(collections());
        product.batch_execute("INSERT INTO all_counters VALUES (1, 1), (2, 1)").await.unwrap();
        let entry = unqueued(world.fence.term, world.now, None, delete("counters"));
        let batch = world.batch(vec![entry]);
        let tried = world.store().try_commit(&batch).await.unwrap();
        let committed = world.store().commit(&batch).await.unwrap();
        for outcome in [&tried.outcomes[0], &committed.outcomes[0]] {
            let Outcome::Skipped(why) = outcome else { panic!("{outcome:?}") };
            assert!(why.contains("is no table") && why.contains("chunk = 0"), "{why}");
        }
        assert_eq!(world.rows("counters", &["id"]).await.len(), 2);
    });
}
