//! The product migrates its tables, and privileges change, under a running store: no item is
//! blamed, and held work resumes by itself.

use besom_core::proposal::{Change, Guard};
use besom_core::value::Value;
use besom_ports::store::{Batch, Committed, Error, Outcome};
use besom_snapshot::Cause;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::store::read_sets::set;
use besom_tests::conformance::tables::{child, parent, text, thing};
use besom_tests::conformance::world::{apply, candidate, in_one_stream, n_is, range, set_n};
use besom_tests::conformance::{World, block_on};
use besom_tests::servers::postgres::ROLE;
use tokio_postgres::Client;

/// Every connection of a pool may fail once after a change.
const ATTEMPTS: usize = 20;

struct Product {
    world: World,
    client: Client,
}

impl Product {
    async fn new() -> Product {
        let fixture = Postgres::open().await;
        let client = fixture.database().connect().await;
        Product { world: World::new(Box::new(fixture)).await, client }
    }

    async fn sql(&self, sql: &str) {
        self.client.batch_execute(sql).await.expect("the product's statement");
    }

    /// Rows, and a batch that sets the `n` of each to 2 if it is 1.
    async fn batch(&mut self, keys: &[&str]) -> Batch {
        self.world.write(keys.iter().map(|key| thing(key, 1)).collect()).await;
        self.world.planned("task", in_one_stream(keys)).await;
        let items = self.world.log("task").await;
        let items = &items[items.len() - keys.len()..];
        let entries = items.iter().zip(keys).map(|(item, key)| {
            self.world.entry(item, apply(vec![n_is(key, 1)], vec![set_n(key, 2)]))
        });
        let entries = entries.collect();
        self.world.batch(entries)
    }

    /// Commits as a host does: a batch that is busy or refused is repeated unchanged.
    async fn until_committed(&self, batch: &Batch) -> Committed {
        let mut said = Vec::new();
        for _ in 0..ATTEMPTS {
            match self.world.store().commit(batch).await {
                Ok(committed) => return committed,
                Err(error @ (Error::Busy(_) | Error::Refused(..))) => said.push(error),
                Err(error) => panic!("{error:?} after {said:?}"),
            }
        }
        panic!("it does not heal: {said:?}");
    }

    async fn refused(&self, batch: &Batch) -> (Cause, String) {
        let mut said = Vec::new();
        for _ in 0..ATTEMPTS {
            match self.world.store().commit(batch).await {
                Err(Error::Refused(cause, why)) => return (cause, why),
                // A statement that was prepared before the change is prepared again first.
                Err(error @ Error::Busy(_)) => said.push(error),
                other => panic!("{other:?} after {said:?}"),
            }
        }
        panic!("it is never refused: {said:?}");
    }
}

/// A row that a trigger keeps, by returning nothing or by marking it, does not count as deleted.
#[test]
fn a_row_that_a_trigger_keeps_is_set_aside_with_the_reason() {
    block_on(async {
        for body in ["RETURN NULL", "UPDATE things SET n = 9 WHERE id = old.id; RETURN NULL"] {
            let product = Product::new().await;
            product.world.write(vec![thing("kept", 1), thing("gone", 1)]).await;
            product
                .sql(&format!(
                    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN IF old.id = 'kept' THEN {body}; END IF; RETURN old; END $$;
                     CREATE TRIGGER keep BEFORE DELETE ON things FOR EACH ROW EXECUTE FUNCTION keep()"
                ))
                .await;
            for (key, is_kept) in [("kept", true), ("gone", false)] {
                let delete = Change::Delete { collection: "things".into(), key: vec![text(key)] };
                let decision = apply(vec![n_is(key, 1)], vec![delete]);
                let committed = product.world.settle(candidate(key), decision).await;
                let why = &committed.outcomes[0];
                let told = matches!(why, Outcome::Dead(why) if why.contains("a trigger"));
                assert_eq!(told, is_kept, "{body}, {key}: {committed:?}");
            }
            let rows = product.world.rows("things", &["id", "n"]).await;
            assert_eq!(rows, [[text("kept"), Value::Integer(1)]], "{body}");
            product.world.balanced().await;
        }
    });
}

/// The index that keeps keys apart may be dropped while a host serves.
#[test]
fn a_key_of_several_rows_changes_none_of_them() {
    block_on(async {
        let delete = Change::Delete { collection: "things".into(), key: vec![text("twin")] };
        for (change, guards) in [
            (set_n("twin", 2), vec![]),
            (set_n("twin", 2), vec![n_is("twin", 1)]),
            (delete.clone(), vec![n_is("twin", 1)]),
            (delete, vec![]),
        ] {
            let product = Product::new().await;
            product.world.write(vec![thing("twin", 1), thing("one", 1)]).await;
            product
                .sql(
                    "ALTER TABLE things DROP CONSTRAINT things_pkey;
                     INSERT INTO things SELECT * FROM things WHERE id = 'twin'",
                )
                .await;
            product.world.planned("task", in_one_stream(&["twin", "one"])).await;
            let items = product.world.log("task").await;
            let ends = [apply(guards, vec![change.clone()]), apply(vec![], vec![set_n("one", 2)])];
            let entries = items.iter().zip(ends).map(|(item, end)| product.world.entry(item, end));
            let batch = product.world.batch(entries.collect());
            let committed = product.until_committed(&batch).await;
            let told = matches!(&committed.outcomes[0], Outcome::Dead(why) if why.contains("several rows"));
            assert!(told, "{change:?}: {committed:?}");
            assert_eq!(committed.outcomes[1], Outcome::Committed, "{change:?}");
            let sql = "SELECT array_agg(n::int8 ORDER BY id) FROM things";
            let row = product.client.query_one(sql, &[]).await.expect("rows");
            assert_eq!(row.get::<_, Vec<i64>>(0), [2, 1, 1], "{change:?}");
            product.world.balanced().await;
        }
    });
}

/// A row of a read set that a trigger keeps is named, and the whole set remains unchanged.
#[test]
fn a_read_set_of_which_a_trigger_keeps_a_row_is_set_aside_with_the_reason() {
    block_on(async {
        let product = Product::new().await;
        product.world.write(vec![parent("p")]).await;
        product.world.write((1..=5).map(|seq| child("p", seq, "x")).collect()).await;
        product
            .sql(
                "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN IF old.seq = 3 THEN RETURN NULL; END IF; RETURN old; END $$;
                 CREATE TRIGGER keep BEFORE DELETE ON children FOR EACH ROW EXECUTE FUNCTION keep()",
            )
            .await;
        let rows = set(&[1, 2, 3, 4]);
        let delete = vec![Change::DeleteReadSet(rows.clone())];
        let decision = apply(vec![Guard::Complete(rows)], delete);
        let committed = product.world.settle(candidate("k"), decision).await;
        let told =
            matches!(&committed.outcomes[0], Outcome::Dead(why) if why.contains("a trigger"));
        assert!(told, "{committed:?}");
        assert_eq!(product.world.rows("children", &["seq"]).await.len(), 5);
        product.world.balanced().await;
    });
}

#[test]
fn a_column_that_changes_its_type_is_read_and_written_again_without_a_restart() {
    block_on(async {
        let mut product = Product::new().await;
        let before = product.batch(&["a"]).await;
        product.until_committed(&before).await;
        let batch = product.batch(&["b"]).await;
        for ty in ["integer", "bigint", "smallint"] {
            product.sql(&format!("ALTER TABLE things ALTER COLUMN n TYPE {ty}")).await;
            let mut read = Err(Error::Busy("not read yet".into()));
            for _ in 0..ATTEMPTS {
                read = product.world.read(&range("things", None, &["n"])).await;
                if read.is_ok() {
                    break;
                }
            }
            let read = read.unwrap_or_else(|error| panic!("as {ty}: {error}"));
            assert_eq!(read.rows, [vec![Value::Integer(2)], vec![Value::Integer(1)]], "as {ty}");
        }
        let committed = product.until_committed(&batch).await;
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        product.world.balanced().await;
    });
}

/// A trigger's function keeps its plan for the life of its connection: connections that fail
/// because of it are closed.
#[test]
fn a_column_under_a_trigger_changes_its_type_and_no_connection_goes_on_with_the_old_plan() {
    block_on(async {
        let mut product = Product::new().await;
        product
            .sql(
                "CREATE TABLE seen (n bigint);
                 CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                   BEGIN INSERT INTO seen VALUES (new.n); RETURN new; END $$;
                 CREATE TRIGGER note BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION note()",
            )
            .await;
        let before = product.batch(&["a"]).await;
        product.until_committed(&before).await;
        let batch = product.batch(&["b"]).await;
        product.sql("ALTER TABLE things ALTER COLUMN n TYPE integer").await;
        let committed = product.until_committed(&batch).await;
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        product.world.balanced().await;
    });
}

/// What a trigger sets for its session outlives the transaction, and a name without its schema would
/// mean another table for the next batch, or for the next item of this one.
#[test]
fn a_trigger_that_changes_the_search_path_diverts_no_change_to_another_table() {
    block_on(async {
        let mut product = Product::new().await;
        product
            .sql(
                "CREATE SCHEMA archive;
                 CREATE TABLE archive.things (LIKE things INCLUDING ALL);
                 CREATE FUNCTION divert() RETURNS trigger LANGUAGE plpgsql AS $$
                   BEGIN PERFORM set_config('search_path', 'archive', false); RETURN new; END $$;
                 CREATE TRIGGER divert AFTER UPDATE ON things FOR EACH ROW EXECUTE FUNCTION divert()",
            )
            .await;
        let batches = [product.batch(&["a", "b"]).await, product.batch(&["c", "d"]).await];
        product.sql("INSERT INTO archive.things SELECT * FROM things").await;
        for batch in &batches {
            let committed = product.until_committed(batch).await;
            assert_eq!(committed.outcomes, [Outcome::Committed, Outcome::Committed]);
        }
        for (table, n) in [("public.things", 2i64), ("archive.things", 1)] {
            let sql = format!("SELECT array_agg(n::int8) FROM {table}");
            let row = product.client.query_one(&sql, &[]).await.expect("rows");
            assert_eq!(row.get::<_, Vec<i64>>(0), [n; 4], "{table}");
        }
        product.world.balanced().await;
    });
}

#[test]
fn a_table_that_is_away_during_a_migration_costs_no_item_anything() {
    block_on(async {
        let mut product = Product::new().await;
        let first = product.batch(&["a"]).await;
        product.until_committed(&first).await;
        let batch = product.batch(&["b", "c"]).await;
        for (away, back) in [
            ("ALTER TABLE things RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO things"),
            ("ALTER TABLE things RENAME n TO m", "ALTER TABLE things RENAME m TO n"),
        ] {
            product.sql(away).await;
            let (cause, why) = product.refused(&batch).await;
            assert_eq!(cause, Cause::Schema, "{why}");
            assert!(why.contains("besom check --store"), "{why}");
            product.sql(back).await;
        }
        let committed = product.until_committed(&batch).await;
        assert_eq!(committed.outcomes, [Outcome::Committed, Outcome::Committed]);
        product.world.balanced().await;
    });
}

const DENY: &str = "CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'permission denied for table things' USING ERRCODE = '42501'; END $$;
  CREATE TRIGGER deny BEFORE UPDATE ON things FOR EACH ROW";

/// The SQLSTATEs are those of a lost connection, a shutdown, a full disk and an internal error. The
/// connection works, so they come from the product's own code.
#[test]
fn a_trigger_that_raises_an_error_of_the_server_does_not_pass_for_a_server_that_is_away() {
    block_on(async {
        for (code, when) in [
            ("08006", "BEFORE UPDATE"),
            ("57P01", "BEFORE UPDATE"),
            ("53100", "BEFORE UPDATE"),
            ("XX000", "BEFORE UPDATE"),
            ("57P01", "AFTER UPDATE"),
        ] {
            let mut product = Product::new().await;
            let batch = product.batch(&["a", "b"]).await;
            let constraint = match when {
                "AFTER UPDATE" => ("CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED"),
                _ => ("", ""),
            };
            product
                .sql(&format!(
                    "CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END $$;
                     CREATE {} TRIGGER raises {when} ON things {} FOR EACH ROW
                     WHEN (old.id = 'b') EXECUTE FUNCTION raises()",
                    constraint.0, constraint.1
                ))
                .await;
            for _ in 0..3 {
                let raised = product.world.store().commit(&batch).await;
                let Err(Error::Raised(why)) = raised else { panic!("{code} {when}: {raised:?}") };
                assert!(why.contains(&format!("lost ({code})")), "{why}");
            }
            product.sql("DROP TRIGGER raises ON things").await;
            let committed = product.until_committed(&batch).await;
            assert_eq!(committed.outcomes, vec![Outcome::Committed; 2], "{code} {when}");
            product.world.balanced().await;
        }
    });
}

/// The server itself ends the connection: nobody's item is to blame.
#[test]
fn a_connection_that_the_server_ends_is_a_server_that_is_away() {
    block_on(async {
        let mut product = Product::new().await;
        let batch = product.batch(&["a"]).await;
        product
            .sql(
                "CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                 BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(9);
                   RETURN new; END $$;
                 CREATE TRIGGER ends BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION ends()",
            )
            .await;
        let away = product.world.store().commit(&batch).await;
        assert!(matches!(away, Err(Error::Unavailable(_) | Error::Unknown(_))), "{away:?}");
    });
}

#[test]
fn a_missing_privilege_is_nobodys_item_and_heals_once_it_is_granted() {
    block_on(async {
        let mut product = Product::new().await;
        let batch = product.batch(&["a", "b", "c"]).await;
        product.sql(&format!("REVOKE UPDATE ON things FROM {ROLE}")).await;
        for _ in 0..8 {
            let (cause, why) = product.refused(&batch).await;
            assert_eq!(cause, Cause::Privilege);
            assert!(why.contains("permission denied for table things"), "{why}");
            assert!(why.contains("grant"), "{why}");
        }
        product.sql(&format!("GRANT UPDATE ON things TO {ROLE}")).await;
        let committed = product.until_committed(&batch).await;
        assert_eq!(committed.outcomes, vec![Outcome::Committed; 3]);
        product.world.balanced().await;
    });
}

/// The function runs as Besom's role, which may lack what the product's role has.
#[test]
fn a_privilege_that_a_trigger_lacks_is_nobodys_item_and_heals_once_it_is_granted() {
    block_on(async {
        let mut product = Product::new().await;
        let batch = product.batch(&["a", "b", "c"]).await;
        product
            .sql(
                &"CREATE TABLE seen (id text);
                 REVOKE ALL ON seen FROM {ROLE};
                 CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
                   BEGIN INSERT INTO seen VALUES (new.id); RETURN new; END $$;
                 CREATE TRIGGER note BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION note()"
                    .replace("{ROLE}", ROLE),
            )
            .await;
        for _ in 0..2 {
            let (cause, why) = product.refused(&batch).await;
            assert_eq!(cause, Cause::Privilege);
            assert!(why.contains("permission denied for table seen"), "{why}");
            assert!(why.contains("a trigger or a function needs it"), "{why}");
        }
        product.sql(&format!("GRANT INSERT ON seen TO {ROLE}")).await;
        let committed = product.until_committed(&batch).await;
        assert_eq!(committed.outcomes, vec![Outcome::Committed; 3]);
        product.world.balanced().await;
    });
}

/// A trigger may choose any SQLSTATE, also one that otherwise means that the tables differ from
/// their mapping; and what its function runs into is the row's as well.
#[test]
fn a_row_whose_trigger_raises_fails_alone_whatever_it_raises() {
    block_on(async {
        for code in [
            "0A000", "42P01", "42703", "42501", "42883", "55006", "0B000", "38000", "40001",
            "40P01", "55P03",
        ] {
            let mut product = Product::new().await;
            let batch = product.batch(&["a", "b", "c"]).await;
            product
                .sql(&format!(
                    "CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
                     BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '{code}'; END $$;
                     CREATE TRIGGER raises BEFORE UPDATE ON things FOR EACH ROW
                     EXECUTE FUNCTION raises()"
                ))
                .await;
            // All of them: no neighbour shows that the statement as such is possible.
            let committed = product.until_committed(&batch).await;
            let said = format!("not this one ({code})");
            for outcome in &committed.outcomes {
                let told = matches!(outcome, Outcome::Dead(why) if why.contains(&said));
                assert!(told, "{code}: {outcome:?}");
                let mapped = matches!(outcome, Outcome::Dead(why) if why.contains("mapping"));
                assert!(!mapped, "{outcome:?}");
            }
            product.world.balanced().await;
        }
        let mut product = Product::new().await;
        let batch = product.batch(&["a", "b", "c"]).await;
        product
            .sql(
                "CREATE FUNCTION reads() RETURNS trigger LANGUAGE plpgsql AS $$
                   BEGIN PERFORM 1 FROM nowhere; RETURN new; END $$;
                 CREATE TRIGGER reads BEFORE UPDATE ON things FOR EACH ROW
                 WHEN (old.id = 'b') EXECUTE FUNCTION reads()",
            )
            .await;
        let committed = product.until_committed(&batch).await;
        let [Outcome::Committed, Outcome::Dead(why), Outcome::Committed] =
            committed.outcomes.as_slice()
        else {
            panic!("{committed:?}")
        };
        assert!(why.contains("nowhere"), "{why}");
        product.world.balanced().await;
    });
}

/// Row security reports the same error for one row as a missing privilege for a table.
#[test]
fn an_item_is_to_blame_where_its_neighbours_could_do_the_same() {
    block_on(async {
        let mut product = Product::new().await;
        let batch = product.batch(&["a", "b", "c"]).await;
        product.sql(&format!("{DENY} WHEN (old.id = 'b') EXECUTE FUNCTION deny()")).await;
        let committed = product.until_committed(&batch).await;
        let [Outcome::Committed, Outcome::Dead(why), Outcome::Committed] =
            committed.outcomes.as_slice()
        else {
            panic!("{committed:?}")
        };
        assert!(why.contains("permission denied"), "{why}");
        product.world.balanced().await;
    });
}
