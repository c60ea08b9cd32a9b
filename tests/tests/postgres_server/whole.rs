//! Rows are kept with all columns, in the database's own spelling.

use std::sync::Arc;

use besom_core::proposal::{Change, RowRange};
use besom_core::value::Value;
use besom_ports::store::{Error, Outcome};
use besom_snapshot::Cause;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::tables::{text, thing};
use besom_tests::conformance::world::{apply, candidate, set_n};
use besom_tests::conformance::{World, block_on};
use besom_tests::undone_rows::{latest, rehearsed, undo};
use besom_tests::{undone_rows, whole_rows};

/// Columns that no mapping knows: name, type, what is inserted, and what is kept.
const COLUMNS: [(&str, &str, &str, Option<&str>); 24] = [
    ("padded", "char(6)", "'ab'", Some("ab    ")),
    ("blank", "text", "''", Some("")),
    ("marks", "text", r#"E'(a,"b")\\ c'"#, Some(r#"(a,"b")\ c"#)),
    ("none", "text", "NULL", None),
    ("spelt", "json", r#"'{"b" : 1,  "a":2}'"#, Some(r#"{"b" : 1,  "a":2}"#)),
    ("nan", "numeric", "'NaN'", Some("NaN")),
    ("endless", "numeric", "'Infinity'", Some("Infinity")),
    ("scaled", "numeric(10,4)", "1.5", Some("1.5000")),
    ("single", "real", "0.1", Some("0.1")),
    ("never", "timestamptz", "'infinity'", Some("infinity")),
    ("ancient", "timestamptz", "'0044-03-15 12:00+00 BC'", Some("0044-03-15 12:00:00+00 BC")),
    ("wall", "timestamp(3)", "'2026-11-28 08:12:26.5'", Some("2026-11-28 08:12:26.5")),
    ("day", "date", "'2026-11-28'", Some("2026-11-28")),
    ("span", "interval", "'1 year 2 days 03:04:05'", Some("1 year 2 days 03:04:05")),
    ("list", "int[]", "'[2:3]={7,8}'", Some("[2:3]={7,8}")),
    ("words", "text[]", r#"'{a,NULL,"b c"}'"#, Some(r#"{a,NULL,"b c"}"#)),
    ("feeling", "mood", "'glad'", Some("glad")),
    ("small", "positive", "7", Some("7")),
    ("pair", "pair", "'(1,\"x y\")'", Some("(1,\"x y\")")),
    ("hollow", "pair", "'(,)'", Some("(,)")),
    ("within", "int4range", "'[1,5)'", Some("[1,5)")),
    ("address", "inet", "'10.0.0.1/8'", Some("10.0.0.1/8")),
    ("flags", "bit varying(8)", "B'0101'", Some("0101")),
    ("twice", "bigint GENERATED ALWAYS AS (n * 2) STORED", "", Some("2")),
];

#[test]
fn every_change_keeps_the_row_as_it_is_stored() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let types = "CREATE TYPE mood AS ENUM ('glad'); CREATE TYPE pair AS (a int, b text);
            CREATE DOMAIN positive AS int CHECK (value > 0)";
        product.batch_execute(types).await.unwrap();
        for (name, ty, ..) in COLUMNS {
            product.batch_execute(&format!("ALTER TABLE things ADD {name} {ty}")).await.unwrap();
        }
        product.batch_execute("ALTER TABLE things ADD raw bytea").await.unwrap();
        let given = COLUMNS.iter().filter(|(_, _, value, _)| !value.is_empty());
        let (names, values): (Vec<&str>, Vec<&str>) =
            given.map(|column| (column.0, column.2)).unzip();
        let row = format!(
            r"INSERT INTO things (tenant_id, id, title, n, flag, data, raw, {})
              VALUES ('a', 't', 'thing', 1, false, '\x00ff', '\x', {})",
            names.join(", "),
            values.join(", ")
        );
        let text_or_null = |value: Option<&str>| value.map_or(Value::Null, text);
        let mut stored = vec![
            ("tenant_id", text("a")),
            ("at", Value::Null),
            ("born", Value::Null),
            ("data", Value::Bytes(vec![0, 255])),
            ("doc", Value::Null),
            ("flag", text("f")),
            ("id", text("t")),
            ("most", Value::Null),
            ("n", text("1")),
            ("price", Value::Null),
            ("ratio", Value::Null),
            ("reference", Value::Null),
            ("title", text("thing")),
        ];
        stored.extend(COLUMNS.iter().map(|column| (column.0, text_or_null(column.3))));
        stored.push(("raw", Value::Bytes(vec![])));
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        whole_rows::every_change_keeps_the_row_as_it_is_stored(&world, run, &row, &stored).await;
    });
}

#[test]
fn rows_come_back_into_tables_that_have_changed() {
    block_on(async {
        let open = async || {
            let fixture = Postgres::open().await;
            let product = fixture.database().connect().await;
            (World::new(Box::new(fixture)).await, product)
        };
        let (world, product) = open().await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        undone_rows::columns_that_were_added_or_dropped_are_told(&world, run).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        let refuse = "ALTER TABLE things ADD CONSTRAINT thirteen CHECK (n <> 13)";
        undone_rows::rows_that_constraints_refuse_stay_alone(&world, run, refuse).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        undone_rows::rows_of_a_table_that_is_gone_stay_kept(&world, run).await;
        let (world, product) = open().await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        let on_update = "CREATE FUNCTION before() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN NEW.n := NEW.n + 100; RETURN NEW; END $$;
            CREATE TRIGGER u BEFORE UPDATE OF title ON things FOR EACH ROW EXECUTE FUNCTION before()";
        let on_insert = "CREATE FUNCTION after() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN UPDATE things SET n = n + 100 WHERE id = NEW.id; RETURN NULL; END $$;
            CREATE TRIGGER i AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION after()";
        undone_rows::what_triggers_have_set_is_told(&world, run, (on_update, on_insert)).await;
        for (when, key) in
            [("AFTER", "UPDATE things SET id = 'x' WHERE id = 'c'"), ("BEFORE", "NEW.id := 'x'")]
        {
            let (world, product) = open().await;
            let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
            let astray = format!(
                "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS
                   $$ BEGIN DELETE FROM things WHERE id = 'b'; RETURN NULL; END $$;
                 CREATE TRIGGER b AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION again();
                 CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS
                   $$ BEGIN IF NEW.id = 'c' THEN {key}; END IF; RETURN NEW; END $$;
                 CREATE TRIGGER c {when} INSERT ON things FOR EACH ROW EXECUTE FUNCTION other()"
            );
            undone_rows::rows_that_a_trigger_leads_astray_stay_kept(&world, run, &astray).await;
        }
        for said in ["RAISE EXCEPTION 'it is kept'", "RETURN NULL"] {
            let (world, product) = open().await;
            let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
            let keep = format!(
                "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
                   $$ BEGIN IF OLD.id = 'b' THEN {said}; END IF; RETURN OLD; END $$;
                 CREATE TRIGGER keep BEFORE DELETE ON archived FOR EACH ROW EXECUTE FUNCTION keep()"
            );
            undone_rows::a_row_whose_copy_cannot_be_removed_stays_archived(&world, run, &keep)
                .await;
        }
        let (world, product) = open().await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        undone_rows::rows_to_which_others_refer_are_not_removed(&world, run).await;
    });
}

/// Of rows that are written as they were kept, only what may be stored otherwise is read: a computed column, or the
/// value of a type that the product has defined; and everything, once the columns were declared anew.
#[test]
fn many_rows_come_back_as_they_were_or_it_is_told() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        run("DROP TABLE counters;
             CREATE TYPE pair AS (a int, b char(3));
             CREATE FUNCTION factor() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2';
             CREATE TABLE counters (id bigint PRIMARY KEY, n bigint, price numeric(10,2), pair pair, raw bytea,
               code char(6), at timestamptz, twice bigint GENERATED ALWAYS AS (n * factor()) STORED,
               bytes bytea GENERATED ALWAYS AS (int8send(id)) STORED);
             INSERT INTO counters (id, n, price, pair, raw, code, at)
             SELECT i, i, i / 100.0, ('(' || i || ',x)')::pair, int8send(i), 'c' || i, to_timestamp(i / 7.0)
             FROM generate_series(1, 200) i")
        .await;
        let dump = async || -> Vec<String> {
            let rows = product.query("SELECT t::text FROM counters t ORDER BY id", &[]).await;
            rows.unwrap().iter().map(|row| row.get(0)).collect()
        };
        let before = dump().await;
        let removed = async || {
            let (collection, rows) = ("counters".to_owned(), 1_000);
            let range = RowRange { collection, rows, ..RowRange::default() };
            let change = Change::DeleteRange(Arc::new(range));
            world.settle(candidate("k"), apply(vec![], vec![change])).await;
            assert_eq!(dump().await, Vec::<String>::new());
            latest(&world).await
        };
        let item = removed().await;
        let undone = undo(&world, item, &[]).await;
        assert_eq!((undone.rows, undone.reason), (200, None));
        assert_eq!(dump().await, before);
        // The undo of the undo, and of that.
        undo(&world, undone.id, &[]).await;
        let back = undo(&world, latest(&world).await, &[]).await;
        assert_eq!((back.rows, dump().await), (200, before.clone()));
        // A row that has a key, and then one that a constraint refuses: both stay, alone.
        let item = removed().await;
        run("INSERT INTO counters (id, n) VALUES (7, 0)").await;
        let undone = undo(&world, item, &[]).await;
        assert_eq!(undone.rows, 199);
        run("DELETE FROM counters WHERE id = 7").await;
        assert_eq!(undo(&world, item, &[]).await.rows, 1);
        assert_eq!(dump().await, before);
        let item = removed().await;
        run("ALTER TABLE counters ADD CONSTRAINT thirteen CHECK (n <> 13)").await;
        assert_eq!(undo(&world, item, &[]).await.rows, 199);
        run("ALTER TABLE counters DROP CONSTRAINT thirteen").await;
        assert_eq!(undo(&world, item, &[]).await.rows, 1);
        assert_eq!(dump().await, before);
        for (change, column) in [
            (
                "CREATE OR REPLACE FUNCTION factor() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 3'",
                "twice",
            ),
            ("ALTER TABLE counters ALTER price TYPE numeric(10,1)", "price"),
        ] {
            let item = removed().await;
            run(change).await;
            let undone = undo(&world, item, &[]).await;
            let said = undone.reason.unwrap_or_default();
            assert_eq!(undone.rows, 200, "{said}");
            assert!(said.contains(&format!("other values in {column}")), "{said}");
        }
    });
}

/// An identity column that is always generated keeps its value, a partitioned table takes its rows back, and what a
/// trigger of the product changes is told.
#[test]
fn identities_partitions_and_triggers() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let run = async |sql: &str| product.batch_execute(sql).await.unwrap();
        run("DROP TABLE counters;
             CREATE TABLE counters (id bigint NOT NULL, n bigint, no int GENERATED ALWAYS AS IDENTITY,
               PRIMARY KEY (id)) PARTITION BY RANGE (id);
             CREATE TABLE low PARTITION OF counters FOR VALUES FROM (0) TO (100);
             CREATE TABLE high PARTITION OF counters FOR VALUES FROM (100) TO (200);
             INSERT INTO counters (id, n) SELECT i, i FROM generate_series(1, 150) i")
        .await;
        let dump = async || -> Vec<String> {
            let rows = product.query("SELECT t::text FROM counters t ORDER BY id", &[]).await;
            rows.unwrap().iter().map(|row| row.get(0)).collect()
        };
        let before = dump().await;
        let all = || {
            let (collection, rows) = ("counters".to_owned(), 1_000);
            let range = RowRange { collection, rows, ..RowRange::default() };
            apply(vec![], vec![Change::DeleteRange(Arc::new(range))])
        };
        world.settle(candidate("k"), all()).await;
        assert_eq!(dump().await, Vec::<String>::new());
        let item = latest(&world).await;
        assert_eq!(undo(&world, item, &[]).await.reason, None);
        assert_eq!(dump().await, before);
        // One partition is gone, and a trigger sets a column of the others.
        world.settle(candidate("k"), all()).await;
        let item = latest(&world).await;
        run("DROP TABLE high;
             CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN NEW.n := NEW.n + 100; RETURN NEW; END $$;
             CREATE TRIGGER stamp BEFORE INSERT ON low FOR EACH ROW EXECUTE FUNCTION stamp();
             CREATE TRIGGER told AFTER INSERT ON counters FOR EACH STATEMENT EXECUTE FUNCTION stamp()")
        .await;
        let found = rehearsed(&world, item).await;
        assert_eq!((found.rows, found.stay.len()), (99, 51));
        let why = "no partition of \"counters\" takes it: create one";
        assert!(found.stay.iter().all(|stay| stay.why.starts_with(why)), "{:?}", found.stay);
        assert_eq!(found.triggers, ["told on counters"]);
        assert!(found.notes[0].contains("other values in n"), "{:?}", found.notes);
        assert_eq!(undo(&world, item, &[]).await.rows, 99);
    });
}

/// A column that a deployment adds, removes or renames while the host runs: the next commit keeps what there is then.
#[test]
fn a_change_of_the_columns_is_noticed_by_the_next_commit() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1)]).await;
        world.settle(candidate("first"), apply(vec![], vec![set_n("t", 2)])).await;
        for (at, change) in [
            "ALTER TABLE things ADD more text DEFAULT 'kept'",
            "ALTER TABLE things RENAME more TO other",
            "ALTER TABLE things ALTER other TYPE varchar(9)",
            "ALTER TABLE things DROP other, ADD other text DEFAULT 'new'",
            // Another table takes its name.
            "CREATE TABLE next (LIKE things INCLUDING ALL, newest int DEFAULT 5);
             INSERT INTO next (tenant_id, id, title, n) SELECT tenant_id, id, title, n FROM things;
             ALTER TABLE things RENAME TO former; ALTER TABLE next RENAME TO things",
        ]
        .into_iter()
        .enumerate()
        {
            product.batch_execute(change).await.unwrap();
            world.planned("task", vec![candidate(&format!("k{at}"))]).await;
            let item = world.only("task").await;
            let decision = apply(vec![], vec![set_n("t", 3 + at as i64)]);
            let committed = world.commit(vec![(&item, decision)]).await;
            assert_eq!(committed.outcomes, [Outcome::Committed], "{change}");
            let [image] = world.latest_images().await.try_into().expect("one image");
            let kept: Vec<&str> = image.stored.iter().map(|field| field.name.as_str()).collect();
            let sql = "SELECT attname::text FROM pg_attribute WHERE attrelid = 'things'::regclass
                       AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
            let now = product.query(sql, &[]).await.unwrap();
            let now: Vec<&str> = now.iter().map(|row| row.get(0)).collect();
            assert_eq!(kept, now, "{change}");
        }
        world.balanced().await;
    });
}

/// A table that is away while the catalog is read, as in a migration, costs no item an attempt, and no row its image.
#[test]
fn a_table_that_was_away_keeps_its_rows_whole() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("t", 1)]).await;
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let batch = || world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
        product.batch_execute("ALTER TABLE things RENAME TO away").await.unwrap();
        for _ in 0..2 {
            let refused = world.store().commit(&batch()).await;
            assert!(matches!(refused, Err(Error::Refused(Cause::Schema, _))), "{refused:?}");
        }
        product.batch_execute("ALTER TABLE away RENAME TO things").await.unwrap();
        let committed = world.store().commit(&batch()).await.unwrap();
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        let [image] = world.latest_images().await.try_into().expect("one image");
        assert_eq!(image.stored.len(), 13);
        world.balanced().await;
    });
}
