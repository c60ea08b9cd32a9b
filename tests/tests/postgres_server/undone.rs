//! What only this server may refuse when rows are put back.

use std::sync::Arc;

use besom_core::proposal::{Change, RowRange};
use besom_core::value::Row;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{collections, parent, text, thing};
use besom_tests::conformance::world::{apply, candidate, set_n};
use besom_tests::conformance::{World, block_on};
use besom_tests::undone_rows::{latest, undo};

use crate::granted::{SUPERUSER, Site};

fn delete(collection: &str, id: &str) -> Change {
    Change::Delete { collection: collection.into(), key: vec![text(id)] }
}

async fn ids(world: &World, collection: &str) -> Vec<Row> {
    world.rows(collection, &["id"]).await
}

/// No statement can pass over a row that has such a key: each is inserted, and the one that meets it stays.
#[test]
fn rows_of_a_table_with_a_deferrable_key_come_back() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let constraint =
            "ALTER TABLE things ADD CONSTRAINT one_n UNIQUE (n) DEFERRABLE INITIALLY DEFERRED";
        product.batch_execute(constraint).await.expect("added");
        world.write((0..5).map(|n| thing(&format!("t{n}"), n)).collect()).await;
        let all = (0..5).map(|n| delete("things", &format!("t{n}"))).collect();
        world.settle(candidate("k"), apply(vec![], all)).await;
        let item = latest(&world).await;
        world.write(vec![thing("theirs", 3)]).await;
        let undone = undo(&world, item, &[]).await;
        let reason = undone.reason.expect("a row stays");
        assert!(reason.contains("(\"t3\")") && reason.contains("one_n"), "{reason}");
        assert_eq!(undone.rows, 4);
        world.write(vec![set_n("theirs", 9)]).await;
        assert_eq!(undo(&world, item, &[]).await.rows, 1);
        assert_eq!(ids(&world, "things").await.len(), 6);
        world.balanced().await;
    });
}

/// A row that would be stored under another key stays, and is not inserted under that one.
#[test]
fn rows_whose_key_is_declared_otherwise_since_are_not_inserted() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write((0..80).map(|n| thing(&format!("t{n}"), n)).collect()).await;
        let range = RowRange { collection: "things".into(), rows: 100, ..RowRange::default() };
        let all = vec![Change::DeleteRange(Arc::new(range))];
        world.settle(candidate("k"), apply(vec![], all)).await;
        let item = latest(&world).await;
        let mut renamed = (*collections()).clone();
        let things = renamed.get_mut("things").expect("it is mapped");
        things.key = vec!["thing".into()];
        let id = things.columns.remove("id").expect("its key");
        things.columns.insert("thing".into(), id);
        let own_keys = "ALTER TABLE things RENAME id TO thing;
                        ALTER TABLE things ALTER thing SET DEFAULT gen_random_uuid()::text";
        let padded = "ALTER TABLE things RENAME thing TO id;
                      ALTER TABLE things ALTER id DROP DEFAULT, ALTER id TYPE char(8)";
        for (sql, mapping) in [(own_keys, Arc::new(renamed)), (padded, collections())] {
            product.batch_execute(sql).await.expect("altered");
            world.store().set_collections(mapping);
            let undone = undo(&world, item, &[]).await;
            let reason = undone.reason.expect("no row comes back");
            assert!(reason.contains("another key"), "{reason}");
            let rows = product.query_one("SELECT count(*) FROM things", &[]).await.expect("read");
            assert_eq!((undone.rows, rows.get::<_, i64>(0)), (0, 0));
        }
        product.batch_execute("ALTER TABLE things ALTER id TYPE text").await.expect("altered");
        world.store().set_collections(collections());
        assert_eq!(undo(&world, item, &[]).await.rows, 80);
        world.balanced().await;
    });
}

/// A missing privilege keeps the rows of that table away, and no others.
#[test]
fn rows_that_the_role_may_not_insert_stay_and_hold_up_no_others() {
    block_on(async {
        let fixture = Postgres::open_as_granted().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1), parent("p")]).await;
        world.settle(candidate("k"), apply(vec![], vec![delete("things", "a")])).await;
        let of_things = latest(&world).await;
        world.settle(candidate("l"), apply(vec![], vec![delete("parents", "p")])).await;
        let of_parents = latest(&world).await;
        product.batch_execute("REVOKE INSERT ON things FROM granted").await.expect("revoked");
        let refused = undo(&world, of_things, &[]).await;
        let reason = refused.reason.expect("it stays");
        assert!(
            reason.contains("permission denied") && reason.contains("besom grants"),
            "{reason}"
        );
        assert_eq!((refused.rows, undo(&world, of_parents, &[]).await.rows), (0, 1));
        product.batch_execute("GRANT INSERT ON things TO granted").await.expect("granted");
        assert_eq!(undo(&world, of_things, &[]).await.rows, 1);
        assert_eq!(ids(&world, "things").await, [[text("a")]]);
        world.balanced().await;
    });
}

/// Rows that no partition takes are found by one statement, however many they are and wherever they stand.
#[test]
fn many_rows_without_a_partition_stay_and_keep_no_others_away() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let run = async |sql: &str| product.batch_execute(sql).await.expect("it runs");
        // The odd ones of each list are in a partition that will be gone; `i` and `v0` are names of columns.
        run("DROP TABLE counters;
             CREATE TABLE counters (id bigint, n bigint, v0 int, i text, PRIMARY KEY (id, v0))
               PARTITION BY LIST (v0);
             CREATE TABLE even PARTITION OF counters FOR VALUES IN (0) PARTITION BY RANGE (id);
             CREATE TABLE even_low PARTITION OF even FOR VALUES FROM (0) TO (2000);
             CREATE TABLE even_high PARTITION OF even FOR VALUES FROM (2000) TO (9000);
             CREATE TABLE odd PARTITION OF counters FOR VALUES IN (1);
             INSERT INTO counters SELECT i, i, i % 2, 'x' FROM generate_series(1, 4000) i")
        .await;
        let range = RowRange { collection: "counters".into(), rows: 9_000, ..RowRange::default() };
        let all = apply(vec![], vec![Change::DeleteRange(Arc::new(range))]);
        world.settle(candidate("k"), all).await;
        let item = latest(&world).await;
        run("DROP TABLE odd; DROP TABLE even_high").await;
        let undone = undo(&world, item, &[]).await;
        assert_eq!(undone.rows, 999);
        let reason = undone.reason.expect("rows stay");
        assert!(reason.contains("rows that stay as they are: 3001"), "{reason}");
        assert!(reason.contains("no partition of \"counters\" takes it"), "{reason}");
        run("CREATE TABLE rest PARTITION OF counters DEFAULT;
             CREATE TABLE even_rest PARTITION OF even DEFAULT")
        .await;
        let undone = undo(&world, item, &[]).await;
        assert_eq!((undone.rows, undone.reason), (3_001, None));
        world.balanced().await;
    });
}

/// Rows that this role does not see would go with the row that it removes.
#[test]
fn rows_to_which_hidden_rows_may_refer_are_not_removed() {
    block_on(async {
        let fixture = Postgres::open_as_granted().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![parent("p")]).await;
        world.settle(candidate("k"), apply(vec![], vec![delete("parents", "p")])).await;
        let back = undo(&world, latest(&world).await, &[]).await;
        assert_eq!(back.rows, 1);
        let theirs = "CREATE TABLE theirs (tenant_id text, parent text,
               FOREIGN KEY (tenant_id, parent) REFERENCES parents (tenant_id, id) ON DELETE CASCADE);
             INSERT INTO theirs SELECT tenant_id, id FROM parents;
             GRANT SELECT ON theirs TO granted; ALTER TABLE theirs ENABLE ROW LEVEL SECURITY";
        product.batch_execute(theirs).await.expect("it runs");
        let refused = undo(&world, back.id, &[]).await;
        let reason = refused.reason.expect("it stays");
        assert!(reason.contains("row-level security may hide them"), "{reason}");
        let left = product.query_one("SELECT count(*) FROM theirs", &[]).await.expect("a count");
        assert_eq!((refused.rows, left.get::<_, i64>(0)), (0, 1));
        product
            .batch_execute(
                "DELETE FROM theirs; CREATE POLICY all_of_them ON theirs TO granted USING (true)",
            )
            .await
            .expect("it runs");
        // A policy says nothing about the rows that it lets through.
        assert_eq!(undo(&world, back.id, &[]).await.rows, 0);
        product.batch_execute("DROP TABLE theirs").await.expect("it runs");
        assert_eq!(undo(&world, back.id, &[]).await.rows, 1);
        world.balanced().await;
    });
}

/// A rule makes a statement of it that the database does not accept, now or later: other undos do not wait.
#[test]
fn rows_of_a_table_with_a_rule_stay_and_hold_up_no_others() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1), thing("b", 2)]).await;
        let both = ["a", "b"].map(|id| delete("things", id)).to_vec();
        world.settle(candidate("k"), apply(vec![], both)).await;
        let item = latest(&world).await;
        for rule in ["DO INSTEAD NOTHING", "DO ALSO DELETE FROM things WHERE id = 'a'"] {
            let rule = format!("CREATE RULE r AS ON INSERT TO things {rule}");
            product.batch_execute(&rule).await.expect("a rule");
            let refused = undo(&world, item, &[]).await;
            assert_eq!(refused.rows, 0, "{rule}");
            let reason = refused.reason.expect("they stay");
            assert!(reason.contains("rows that stay as they are: 2"), "{rule}: {reason}");
            product.batch_execute("DROP RULE r ON things").await.expect("dropped");
        }
        assert_eq!(undo(&world, item, &[]).await.rows, 2);
        world.balanced().await;
    });
}

/// What the database reads otherwise because of its settings, or casts from a text otherwise than it reads it.
#[test]
fn values_come_back_whatever_the_settings_of_the_database_are() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let run = async |sql: &str| product.batch_execute(sql).await.expect("it runs");
        run(r"DO $$ DECLARE setting text; BEGIN
               FOREACH setting IN ARRAY ARRAY['array_nulls = off', 'xmloption = document',
                 'bytea_output = escape', $s$lc_monetary = 'C.UTF-8'$s$] LOOP
                 EXECUTE format('ALTER DATABASE %I SET %s', current_database(), setting);
               END LOOP; END $$")
        .await;
        let mut world = World::new(Box::new(fixture)).await;
        world.reopen().await;
        run(r"DROP TABLE counters;
             CREATE TABLE gone (i int);
             CREATE TABLE counters (id bigint PRIMARY KEY, n bigint, a text[], x xml, b bytea, m money,
               of regclass, all_of regclass[]);
             INSERT INTO counters VALUES
               (1, 1, ARRAY[NULL, 'NULL', 'b'], XMLPARSE(CONTENT 'a <b/> c'), '\x00ff', 1.5, 0::regclass, '{-}'),
               (2, 2, '{}', NULL, NULL, NULL, 'pg_class', '{pg_class,gone}'),
               (3, 3, NULL, XMLPARSE(DOCUMENT '<a/>'), '', -2, 'gone', NULL);
             DROP TABLE gone")
            .await;
        let dump = async || -> Vec<String> {
            let sql = "SELECT t::text || (a[1] IS NULL)::text || of::oid::text FROM counters t ORDER BY id";
            let rows = product.query(sql, &[]).await.expect("rows");
            rows.iter().map(|row| row.get::<_, Option<String>>(0).unwrap_or_default()).collect()
        };
        let before = dump().await;
        assert_eq!(before.len(), 3);
        let range = RowRange { collection: "counters".into(), rows: 10, ..RowRange::default() };
        let all = apply(vec![], vec![Change::DeleteRange(Arc::new(range))]);
        world.settle(candidate("k"), all).await;
        assert_eq!(dump().await, Vec::<String>::new());
        let undone = undo(&world, latest(&world).await, &[]).await;
        assert_eq!((undone.rows, undone.reason), (3, None));
        assert_eq!(dump().await, before);
        // What a value names is gone since: that row stays, alone.
        run("CREATE TABLE later (i int); UPDATE counters SET of = 'later' WHERE id = 2").await;
        let range = RowRange { collection: "counters".into(), rows: 10, ..RowRange::default() };
        let all = apply(vec![], vec![Change::DeleteRange(Arc::new(range))]);
        world.settle(candidate("l"), all).await;
        run("DROP TABLE later").await;
        let undone = undo(&world, latest(&world).await, &[]).await;
        assert_eq!(undone.rows, 2);
        assert!(undone.reason.is_some_and(|said| said.contains("\"later\" does not exist")));
    });
}

/// Gives a site the task `r`, which deletes the old rows of the table `r` with this key.
fn old_rows(site: &Site, key: &str, columns: &str) {
    let config = site.directory.path().join("besom.toml");
    let before = std::fs::read_to_string(&config).expect("a configuration");
    let cache = before.split_once("[runtime]").expect("a section").1;
    let task = format!(
        "[store]\nurl = {:?}\n[collections.r]\nkey = [{key}]\ncolumns = {{ {columns} }}\n\
         indexes = {{ by_at = [\"at\"] }}\n[tasks.r]\nplugin = \"retention\"\nschedule = \"@every 1h\"\n\
         collections = {{ rows = \"r\" }}\nsettings = {{ by = \"at\", older_than = \"14d\" }}\n[runtime]{cache}",
        site.database.url()
    );
    std::fs::write(&config, task).expect("written");
}

/// An item may be put back before the one with the rows that its own refer to: then it is tried again.
#[test]
fn a_tree_comes_back_whole_in_whatever_items_it_went() {
    let site = Site::with("");
    site.product(
        "CREATE TABLE r (id int PRIMARY KEY, at timestamptz NOT NULL, par int REFERENCES r (id));
         CREATE INDEX ON r (at, id); CREATE INDEX ON r (par);
         INSERT INTO r SELECT i, '2000-01-01', nullif(i / 2, 0) FROM generate_series(1, 5000) i",
    );
    old_rows(&site, "\"id\"", "id = \"integer\", at = \"timestamp\"");
    let count = || {
        block_on(async {
            let product = site.database.connect().await;
            let row = product.query_one("SELECT count(*) FROM r", &[]).await.expect("a count");
            row.get::<_, i64>(0)
        })
    };
    site.json(SUPERUSER, &["run"]);
    assert_eq!(count(), 0);
    let runs = site.json(SUPERUSER, &["quarantine", "ls"]);
    assert!(runs.as_array().is_some_and(|runs| !runs.is_empty()), "{runs:#}");
    let span = "r@2020-01-01T00:00:00Z..2100-01-01T00:00:00Z";
    let undone = site.json(SUPERUSER, &["undo", span, "--reason", "a wrong rule"]);
    assert_eq!((&undone["rows"], &undone["staying"]), (&5_000.into(), &0.into()), "{undone:#}");
    assert_eq!(count(), 5_000);
}

/// Whatever spelling of a key the database accepts names its rows, and only these come back.
#[test]
fn rows_are_chosen_by_any_spelling_of_their_keys() {
    let site = Site::with("");
    site.product(
        "CREATE TABLE r (id uuid, at timestamptz, n bytea, i int, PRIMARY KEY (id, at, n));
         CREATE INDEX ON r (at);
         INSERT INTO r SELECT md5(i::text)::uuid, timestamptz '2000-01-01Z' + i * interval '1 hour', int4send(i), i
           FROM generate_series(1, 100) i",
    );
    let columns = "id = \"uuid\", at = \"timestamp\", n = \"bytes\"";
    old_rows(&site, "\"id\", \"at\", \"n\"", columns);
    let numbers = || {
        block_on(async {
            let product = site.database.connect().await;
            let sql = "SELECT coalesce(array_agg(i ORDER BY i), '{}') FROM r";
            let row = product.query_one(sql, &[]).await.expect("the rows");
            row.get::<_, Vec<i32>>(0)
        })
    };
    site.json(SUPERUSER, &["run"]);
    assert_eq!(numbers().len(), 0);
    let run = site.json(SUPERUSER, &["quarantine", "ls"])[0]["run"].to_string();
    // The hashes of 1 and 2, the instant of 3, and the bytes of 4.
    for key in [
        "{C4CA4238-A0B9-2382-0DCC-509A6F75849B}",
        "c81e728d9d4c2f636f067f89cc14862c",
        "2000-01-01 05:00:00+02",
        "X'00000004'",
    ] {
        let undone = site.json(SUPERUSER, &["undo", &run, "--key", key, "--reason", "asked for"]);
        assert_eq!((&undone["rows"], &undone["staying"]), (&1.into(), &0.into()), "{undone:#}");
    }
    assert_eq!(numbers(), [1_i32, 2, 3, 4]);
    let kept = || site.json(SUPERUSER, &["quarantine", "ls", "--task", "r"])[0]["undone"].clone();
    assert_eq!(kept(), "partly");
    let rest = site.json(SUPERUSER, &["undo", &run, "--reason", "all of them"]);
    assert_eq!((&rest["rows"], numbers().len()), (&96.into(), 100), "{rest:#}");
    assert_eq!(kept(), "yes");
}
