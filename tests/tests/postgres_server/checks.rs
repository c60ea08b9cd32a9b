//! The diagnostics of `besom check --store` about mapped tables and the role.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use besom::cli::grants::{Wanted, statements};
use besom_core::collection::{Collection, Column, Encoding, Operations};
use besom_core::ids::{CommitId, Term};
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::{Kind, Value};
use besom_ports::guests::Lane;
use besom_ports::store::{Batch, Error, MappingFault, Outcome, Range, Store};
use besom_postgres::{Options, PostgresStore};
use besom_product::model::product;
use besom_snapshot::Cause;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::block_on;
use besom_tests::conformance::world::unqueued;

const SESSIONS: &str =
    "CREATE TABLE sessions (session_id text PRIMARY KEY, expires_at timestamptz);
    CREATE INDEX ON sessions (expires_at);";

fn sessions() -> BTreeMap<String, Collection> {
    let column = |name: &str, kind| (name.to_owned(), Column { kind, encoding: Encoding::Native });
    let sessions = Collection {
        name: "sessions".into(),
        table: "sessions".into(),
        tenant: None,
        key: vec!["session_id".into()],
        columns: [column("session_id", Kind::Text), column("expires_at", Kind::Timestamp)].into(),
        indexes: [("by_expiry".to_owned(), vec!["expires_at".to_owned()])].into(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    [("sessions".to_owned(), sessions)].into()
}

/// Each fault's place, whether it is only a warning, and its message.
fn shown(faults: Vec<MappingFault>) -> Vec<(String, bool, String)> {
    faults.into_iter().map(|fault| (fault.place, fault.warning, fault.message)).collect()
}

/// Creates a role with all rights on Besom's tables and none on the product's.
fn role(name: &str) -> String {
    format!(
        "DO 'BEGIN CREATE ROLE {name} LOGIN; EXCEPTION WHEN duplicate_object THEN END';
         GRANT USAGE ON SCHEMA besom, public TO {name};
         GRANT ALL ON ALL TABLES IN SCHEMA besom TO {name}"
    )
}

/// The next page begins among rows with equal values of the index.
#[test]
fn an_index_that_does_not_go_on_with_the_key_is_remarked() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product.batch_execute(SESSIONS).await.unwrap();
        let store = fixture.inner();
        let found = shown(store.check(&sessions()).await.unwrap());
        let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(place, "indexes.by_expiry");
        let fix = "CREATE INDEX CONCURRENTLY ON sessions (expires_at, session_id)";
        assert!(message.contains(fix), "{message}");
        product.batch_execute(fix).await.unwrap();
        assert_eq!(shown(store.check(&sessions()).await.unwrap()), []);
        let broken = "UPDATE pg_index SET indisvalid = false
                      WHERE indexrelid = 'sessions_expires_at_session_id_idx'::regclass";
        product.batch_execute(broken).await.unwrap();
        let found = shown(store.check(&sessions()).await.unwrap());
        let repair = "REINDEX INDEX CONCURRENTLY sessions_expires_at_session_id_idx";
        assert!(found.iter().any(|(_, _, message)| message.contains(repair)), "{found:?}");
    });
}

/// A migration of the product holds a table for long.
#[test]
fn a_locked_table_is_named_with_its_holder_and_the_others_are_compared() {
    block_on(async {
        let lock_timeout = Duration::from_millis(50);
        let fixture = Postgres::open_with(Options { lock_timeout, ..patient() }).await;
        let product = fixture.database().connect().await;
        let others = SESSIONS.replace("sessions", "others");
        product.batch_execute(&format!("{SESSIONS} {others}")).await.unwrap();
        let locked = "SET application_name = 'migrate'; BEGIN;
                      LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE";
        product.batch_execute(locked).await.unwrap();
        let pid: i32 = product.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let mut both = sessions();
        let other = Collection {
            name: "others".into(),
            table: "others".into(),
            ..both["sessions"].clone()
        };
        both.insert("others".into(), other);
        let store = fixture.inner();
        let found = shown(store.check(&both).await.unwrap());
        let [(of_others, true, _), (place, false, message)] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            (of_others.as_str(), place.as_str()),
            ("indexes.by_expiry", MappingFault::LOCKED)
        );
        let holder = format!("process {pid} of the server");
        for part in ["\"sessions\" is locked by", &holder, "application \"migrate\""] {
            assert!(message.contains(part), "{part}: {message}");
        }
        product.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(store.check(&both).await.unwrap().len(), 2, "none is locked");
    });
}

#[test]
fn a_key_that_may_be_null_is_warned_of() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let table = "CREATE TABLE sessions (session_id text UNIQUE, expires_at timestamptz);
                     CREATE INDEX ON sessions (expires_at, session_id)";
        product.batch_execute(table).await.unwrap();
        let store = fixture.inner();
        let found = shown(store.check(&sessions()).await.unwrap());
        let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(place, "key");
        let fix = "ALTER TABLE sessions ALTER COLUMN \"session_id\" SET NOT NULL";
        assert!(
            message.contains("\"session_id\" may be NULL in rows of \"sessions\""),
            "{message}"
        );
        assert!(message.contains(fix), "{message}");
        product.batch_execute(fix).await.unwrap();
        assert_eq!(shown(store.check(&sessions()).await.unwrap()), []);
    });
}

/// PostgreSQL builds no index of a partitioned table concurrently.
#[test]
fn an_index_of_a_partitioned_table_is_proposed_as_it_can_be_built() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let table = "CREATE TABLE sessions (session_id text PRIMARY KEY, expires_at timestamptz)
                       PARTITION BY HASH (session_id);
                     CREATE TABLE one PARTITION OF sessions FOR VALUES WITH (MODULUS 1, REMAINDER 0)";
        product.batch_execute(table).await.unwrap();
        let store = fixture.inner();
        let found = shown(store.check(&sessions()).await.unwrap());
        let [(place, false, message)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(place, "indexes.by_expiry");
        let fix = "CREATE INDEX ON sessions (expires_at, session_id)";
        assert!(message.contains(fix), "{message}");
        product.batch_execute(fix).await.unwrap();
        assert_eq!(shown(store.check(&sessions()).await.unwrap()), []);
    });
}

/// A guard locks rows, for which PostgreSQL requires more than SELECT.
#[test]
fn a_role_that_may_not_lock_rows_is_told_what_to_be_granted() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(&format!(
                "{SESSIONS} CREATE INDEX ON sessions (expires_at, session_id);
                 CREATE TABLE uses (id text PRIMARY KEY, session_id text REFERENCES sessions);
                 {}",
                role("reader")
            ))
            .await
            .unwrap();
        let url = fixture.database().url_of("reader");
        let store = PostgresStore::open(&url, patient()).await.unwrap();
        let mut all = sessions();
        let refused = shown(store.check(&all).await.unwrap());
        assert!(refused.iter().any(|(place, warning, message)| {
            place == "table"
                && !warning
                && message.contains("GRANT SELECT ON sessions TO \"reader\"")
        }));

        product.batch_execute("GRANT SELECT ON sessions, uses TO reader").await.unwrap();
        let grant = "GRANT UPDATE (\"session_id\") ON sessions TO \"reader\"";
        let found = shown(store.check(&all).await.unwrap());
        let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
        assert!(place == "table" && message.contains(grant), "{place}: {message}");

        // Where absences are asked for under its rows, none could be.
        let mut uses = all["sessions"].clone();
        (uses.name, uses.table, uses.key) = ("uses".into(), "uses".into(), vec!["id".into()]);
        let text = uses.columns["session_id"];
        uses.columns = [("id".to_owned(), text), ("session_id".to_owned(), text)].into();
        uses.indexes.clear();
        uses.anchors = vec![besom_core::collection::Anchor {
            collection: "sessions".into(),
            columns: vec!["session_id".into()],
        }];
        all.insert("uses".into(), uses);
        let found = shown(store.check(&all).await.unwrap());
        assert!(
            found.iter().any(|(_, warning, said)| !warning && said.contains(grant)),
            "{found:?}"
        );
        product.batch_execute(grant).await.unwrap();
        let found = shown(store.check(&all).await.unwrap());
        assert!(!found.iter().any(|(_, _, said)| said.contains("ON sessions")), "{found:?}");

        // Rows that it does not see are no reason to refuse, but none of them would be swept.
        let hide = "ALTER TABLE sessions ENABLE ROW LEVEL SECURITY";
        product.batch_execute(hide).await.unwrap();
        let reads = Operations { read: true, ..Operations::default() };
        let granted = BTreeMap::from([("sessions".to_owned(), reads)]);
        let hidden = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        let fix = "CREATE POLICY besom ON sessions TO \"reader\" USING (true)";
        let is_told = |(place, warning, message): &(String, bool, String)| {
            place == MappingFault::HIDDEN && *warning && message.contains(fix)
        };
        assert!(hidden.iter().any(is_told), "{hidden:?}");
    });
}

/// A row is kept without what cannot be read, which is said beforehand.
#[test]
fn columns_that_the_role_may_not_read_are_named() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let sql = format!(
            "{SESSIONS} ALTER TABLE sessions ADD secret text; {};
             GRANT SELECT (session_id, expires_at), UPDATE, DELETE ON sessions TO sweeper",
            role("sweeper")
        );
        product.batch_execute(&sql).await.unwrap();
        let url = fixture.database().url_of("sweeper");
        let store = PostgresStore::open(&url, patient()).await.unwrap();
        let operations = Operations { read: true, delete: true, ..Operations::default() };
        let granted = [("sessions".to_owned(), operations)].into();
        let found = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        let said = found.iter().find(|(_, _, said)| said.contains("may not read columns"));
        let (place, warning, said) = said.expect("a warning");
        assert!(place == "table" && *warning, "{place}");
        assert!(said.contains("secret; GRANT SELECT ON sessions TO \"sweeper\""), "{said}");
        product.batch_execute("GRANT SELECT ON sessions TO sweeper").await.unwrap();
        let found = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        assert!(!found.iter().any(|(_, _, said)| said.contains("secret")), "{found:?}");
    });
}

/// The default until PostgreSQL 15.
#[test]
fn a_schema_in_which_everybody_may_create_is_warned_of_once() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product.batch_execute(SESSIONS).await.unwrap();
        let url = fixture.database().url();
        let store = PostgresStore::open(&url, patient()).await.unwrap();
        let granted = [("sessions".to_owned(), Operations::default())].into();
        let remarks = async || shown(store.check_granted(&sessions(), &granted).await.unwrap());
        assert_eq!(remarks().await, []);
        product.batch_execute("GRANT CREATE ON SCHEMA public TO PUBLIC").await.unwrap();
        let found = remarks().await;
        let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
        assert!(place == "table", "{place}");
        assert!(message.contains("REVOKE CREATE ON SCHEMA public FROM PUBLIC"), "{message}");
        // A schema of the search path that comes before the table's.
        product
            .batch_execute(
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE SCHEMA before;
                 GRANT USAGE, CREATE ON SCHEMA before TO PUBLIC;
                 DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = before, public',
                   current_database()); END $$",
            )
            .await
            .unwrap();
        assert_eq!(remarks().await, []);
        let store = PostgresStore::open(&url, patient()).await.unwrap();
        let found = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
        assert!(place == "table", "{place}");
        assert!(message.contains("REVOKE CREATE ON SCHEMA before FROM PUBLIC"), "{message}");
    });
}

/// A product freezes its time for tests with functions of the names of the server's own ones.
#[test]
fn functions_of_the_product_are_not_the_stores_clock() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let later = "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql
                       AS $$ SELECT pg_catalog.clock_timestamp() + interval '100 years' $$;
                     CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql
                       AS $$ SELECT pg_catalog.now() + interval '100 years' $$;
                     DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog',
                       current_database()); END $$";
        product.batch_execute(later).await.unwrap();
        let url = fixture.database().url();
        let store = PostgresStore::open(&url, patient()).await.unwrap();
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let apart = store.now().await.unwrap().0.abs_diff(since.as_micros() as i64);
        assert!(apart < 3_600_000_000, "{apart} us");
    });
}

/// `"$user"` is first in the search path: the role's own schema must not come before the product's.
#[test]
fn a_role_named_like_the_schema_finds_the_products_tables() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(
                "CREATE TABLE run (session_id text PRIMARY KEY, expires_at timestamptz);
                 CREATE INDEX ON run (expires_at, session_id);
                 DO 'BEGIN CREATE ROLE besom LOGIN; EXCEPTION WHEN duplicate_object THEN END';
                 GRANT ALL ON SCHEMA besom, public TO besom;
                 GRANT ALL ON ALL TABLES IN SCHEMA besom, public TO besom;
                 GRANT ALL ON ALL SEQUENCES IN SCHEMA besom TO besom",
            )
            .await
            .unwrap();
        let url = fixture.database().url_of("besom");
        let store: Arc<PostgresStore> = PostgresStore::open(&url, patient()).await.unwrap();
        let mut all = sessions();
        all.get_mut("sessions").unwrap().table = "run".into();
        assert_eq!(shown(store.check(&all).await.unwrap()), []);
        product::create_tables(&*store).await.unwrap();
        let made = "SELECT schemaname::text FROM pg_tables WHERE tablename = 'documents'";
        let schemas: Vec<String> =
            product.query(made, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(schemas, ["public"]);
    });
}

/// The role needs every right that a task is granted, and a missing one is reported before it is
/// needed.
#[test]
fn what_a_task_may_do_and_the_role_may_not_is_named() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(&format!(
                "{SESSIONS}
                 {};
                 GRANT SELECT, UPDATE ON sessions TO sweeper",
                role("sweeper")
            ))
            .await
            .unwrap();
        let url = fixture.database().url_of("sweeper");
        let store = PostgresStore::open(&url, patient()).await.unwrap();
        let delete = Operations { read: true, delete: true, ..Operations::default() };
        let granted = BTreeMap::from([("sessions".to_owned(), delete)]);
        let found = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        let [(undo, true, back), (_, false, message)] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(message.contains("GRANT DELETE ON sessions TO \"sweeper\""), "{message}");
        assert_eq!(undo, MappingFault::UNDO);
        assert!(back.contains("GRANT INSERT ON sessions TO \"sweeper\""), "{back}");
        product.batch_execute("GRANT DELETE, INSERT ON sessions TO sweeper").await.unwrap();
        assert_eq!(shown(store.check_granted(&sessions(), &granted).await.unwrap()), []);
        let rule = "CREATE RULE soft AS ON DELETE TO sessions DO INSTEAD NOTHING";
        product.batch_execute(rule).await.unwrap();
        let found = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        let [(_, false, message)] = found.as_slice() else { panic!("{found:?}") };
        assert!(message.contains("something else in place of DELETE"), "{message}");
        assert!(message.contains("DROP RULE \"soft\" ON sessions"), "{message}");
    });
}

#[test]
fn what_the_database_does_beside_a_granted_operation_is_named() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(&format!(
                "{SESSIONS}
                 CREATE SCHEMA other;
                 CREATE TABLE other.uses (id int PRIMARY KEY,
                   session text REFERENCES sessions ON DELETE CASCADE) PARTITION BY RANGE (id);
                 CREATE TABLE uses_1 PARTITION OF other.uses FOR VALUES FROM (0) TO (9);
                 CREATE TABLE notes (id int PRIMARY KEY,
                   use int REFERENCES other.uses ON DELETE SET NULL,
                   note int REFERENCES notes ON DELETE CASCADE);
                 CREATE TABLE kept (session text REFERENCES sessions);
                 CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
                 CREATE TRIGGER deleted AFTER DELETE ON sessions EXECUTE FUNCTION nothing();
                 CREATE TRIGGER updated AFTER UPDATE ON sessions EXECUTE FUNCTION nothing();
                 CREATE TRIGGER off AFTER DELETE ON sessions EXECUTE FUNCTION nothing();
                 ALTER TABLE sessions DISABLE TRIGGER off;
                 CREATE RULE ruled AS ON INSERT TO sessions DO ALSO NOTHING"
            ))
            .await
            .unwrap();
        let store = PostgresStore::open(&fixture.database().url(), patient()).await.unwrap();
        let beside = async |operations| {
            let granted = BTreeMap::from([("sessions".to_owned(), operations)]);
            let found = shown(store.check_granted(&sessions(), &granted).await.unwrap());
            let place = |warning: bool| if warning { "table" } else { MappingFault::CASCADES };
            assert!(found.iter().all(|(at, warning, _)| at == place(*warning)));
            found.into_iter().map(|(_, _, said)| said).collect::<Vec<_>>()
        };
        let none = Operations::default();
        assert_eq!(beside(Operations { read: true, ..none }).await, [""; 0]);
        let deletes = beside(Operations { delete: true, ..none }).await;
        let [cascade, changed, keepers, triggers] = deletes.as_slice() else {
            panic!("{deletes:?}")
        };
        assert!(cascade.contains("also deletes rows of other.uses:"), "{cascade}");
        assert!(changed.contains("also changes rows of notes:"), "{changed}");
        assert!(keepers.contains("stays if rows of kept (session) refer to it"), "{keepers}");
        let fix = "map them with `besom config map kept --write`, which writes their anchors, and write \
                   dependants = [\"kept\"] in [collections.sessions]";
        assert!(keepers.contains(fix), "{keepers}");
        assert!(triggers.contains("its triggers run (deleted):"), "{triggers}");
        let writes = beside(Operations { insert: true, update: true, ..none }).await;
        let [triggers] = writes.as_slice() else { panic!("{writes:?}") };
        assert!(triggers.contains("(ruled, updated)"), "{triggers}");
    });
}

/// Besom reads a timestamp without a time zone as UTC, and `now()` writes local time into it.
#[test]
fn a_time_without_zone_in_a_database_with_another_zone_is_warned_of() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(&format!(
                "{SESSIONS} CREATE INDEX ON sessions (expires_at, session_id);
                 ALTER TABLE sessions ALTER COLUMN expires_at TYPE timestamp"
            ))
            .await
            .unwrap();
        let found = async |zone: &str| {
            let set = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L',
                         current_database(), 'ZONE'); END $$";
            product.batch_execute(&set.replace("ZONE", zone)).await.unwrap();
            let store = PostgresStore::open(&fixture.database().url(), patient()).await.unwrap();
            shown(store.check(&sessions()).await.unwrap())
        };
        for utc in ["UTC", "GMT", "Etc/Zulu"] {
            assert_eq!(found(utc).await, [], "{utc}");
        }
        // London has UTC in winter.
        for other in ["Europe/London", "America/New_York"] {
            let found = found(other).await;
            let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(place, "columns.expires_at");
            assert!(message.contains(&format!("the time zone {other},")), "{message}");
            let fix = format!("USING \"expires_at\" AT TIME ZONE '{other}'");
            assert!(message.ends_with(&fix), "{message}");
        }
        let zoned = "ALTER TABLE sessions ALTER COLUMN expires_at TYPE timestamptz";
        product.batch_execute(zoned).await.unwrap();
        assert_eq!(found("America/New_York").await, []);
    });
}

/// In a wrong unit everything has expired.
#[test]
fn instants_in_another_unit_are_a_fault_and_are_refused_when_read() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(
                "CREATE TABLE sessions (session_id text PRIMARY KEY, expires_at int8);
                 CREATE INDEX ON sessions (expires_at, session_id);
                 INSERT INTO sessions VALUES ('a', 1700000000000), ('b', 1700000000000),
                   ('c', 1700000000000), ('d', 1700000000), ('e', 0), ('f', NULL)",
            )
            .await
            .unwrap();
        let mut all = sessions();
        let column = Column { kind: Kind::Timestamp, encoding: Encoding::Millis };
        all.get_mut("sessions").unwrap().columns.insert("expires_at".into(), column);
        let store = PostgresStore::open(&fixture.database().url(), patient()).await.unwrap();
        store.set_collections(Arc::new(all.clone()));
        let columns = vec!["expires_at".to_owned()];
        let get = async |key: &str| {
            let view = store.snapshot(Duration::from_secs(60)).await.unwrap();
            view.get_many(None, "sessions", &[vec![Value::Text(key.into())]], &columns).await
        };
        let page = async || {
            let view = store.snapshot(Duration::from_secs(60)).await.unwrap();
            let range = Range {
                collection: "sessions".into(),
                index: Some("by_expiry".into()),
                columns: columns.clone(),
                limit: 10,
                bytes_max: 1 << 20,
                ..Range::default()
            };
            view.read_range(None, &range).await
        };
        let instant = |micros| Some(vec![Value::Timestamp(Time(micros))]);
        assert_eq!(shown(store.check(&all).await.unwrap()), []);
        assert_eq!(get("a").await.unwrap(), [instant(1_700_000_000_000_000)]);
        product
            .batch_execute(
                "UPDATE sessions SET expires_at = expires_at / 1000 WHERE session_id < 'd'",
            )
            .await
            .unwrap();
        let found = shown(store.check(&all).await.unwrap());
        let [(place, false, message)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(place, "columns.expires_at");
        let fix = "4 of 5 values looked at are instants of our time only in another unit: write \
                   encoding = \"seconds\"";
        assert!(message.contains(fix), "{message}");
        for refused in [get("a").await.err(), page().await.err()] {
            let Some(Error::Refused(Cause::Schema, why)) = &refused else { panic!("{refused:?}") };
            assert!(why.contains(fix), "{why}");
        }
        product
            .batch_execute(
                "UPDATE sessions SET expires_at = expires_at * 1000 WHERE session_id < 'd'",
            )
            .await
            .unwrap();
        assert_eq!(page().await.unwrap().rows.len(), 6);
        // A few such rows are not the mapping's fault.
        assert_eq!(get("d").await.unwrap(), [instant(1_700_000_000_000)]);
    });
}

/// A text column holds anything; odd texts are at the ends of the index, behind many others.
#[test]
fn texts_that_are_not_spelt_as_their_kind_are_warned_of() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        product
            .batch_execute(
                "CREATE TABLE sessions (session_id text PRIMARY KEY, expires_at text);
                 CREATE INDEX ON sessions (expires_at, session_id);
                 INSERT INTO sessions SELECT 'session-' || n,
                   to_char(timestamp '2026-01-01' + n * interval '1 minute', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
                 FROM generate_series(1, 500) n",
            )
            .await
            .unwrap();
        let store = PostgresStore::open(&fixture.database().url(), patient()).await.unwrap();
        let of = |kind, encoding| {
            let mut all = sessions();
            let columns = &mut all.get_mut("sessions").unwrap().columns;
            columns.insert("expires_at".into(), Column { kind, encoding });
            all
        };
        let instants = of(Kind::Timestamp, Encoding::Rfc3339);
        store.set_collections(Arc::new(instants.clone()));
        assert_eq!(shown(store.check(&instants).await.unwrap()), []);
        let odd = "INSERT INTO sessions VALUES ('a', ''), ('b', '0'), ('c', 'never'), ('d', NULL)";
        product.batch_execute(odd).await.unwrap();
        let found = shown(store.check(&instants).await.unwrap());
        let [(place, true, message)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(place, "columns.expires_at");
        assert!(message.contains("3 of 600 values looked at are not spelt as one"), "{message}");
        // None of many is.
        for (kind, encoding, fix) in [
            (Kind::Timestamp, Encoding::Datetime, "write encoding = \"rfc3339\""),
            (Kind::Date, Encoding::Native, "map it as text, or correct the rows"),
        ] {
            let found = shown(store.check(&of(kind, encoding)).await.unwrap());
            let [(_, false, message)] = found.as_slice() else { panic!("{kind:?}: {found:?}") };
            assert!(message.contains("all 600 values") && message.contains(fix), "{message}");
        }
    });
}

/// The output of `besom grants` is sufficient for a host and for a reader, and gives neither more.
#[test]
fn the_rights_that_besom_prints_are_enough_and_no_more() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let table = format!(
            "{SESSIONS} CREATE INDEX ON sessions (expires_at, session_id);
             CREATE TABLE secrets (id int);
             INSERT INTO sessions VALUES ('a', now()), ('b', now())"
        );
        product.batch_execute(&table).await.unwrap();
        let delete = Operations { read: true, delete: true, ..Operations::default() };
        let granted = BTreeMap::from([("sessions".to_owned(), delete)]);
        let wanted = Wanted { operations: delete, ..Wanted::default() };
        let wanted = BTreeMap::from([("sessions".to_owned(), wanted)]);
        let all = statements(&sessions(), &wanted, "tidy", "tidy", "tidy_look").join(";\n");
        // Twice, because the statements are run again after tasks change.
        for _ in 0..2 {
            product.batch_execute(&all).await.unwrap();
        }
        let options = Options { schema: "tidy".into(), ..patient() };
        let url = fixture.database().url_of("tidy");
        let store = PostgresStore::open(&url, options.clone()).await.unwrap();
        store.set_collections(Arc::new(sessions()));
        assert_eq!(shown(store.check(&sessions()).await.unwrap()), []);
        let lacks = shown(store.check_granted(&sessions(), &granted).await.unwrap());
        let lacks: Vec<&str> = lacks.iter().map(|(place, ..)| place.as_str()).collect();
        assert_eq!(lacks, [MappingFault::UNDO], "what an undo needs is only suggested");
        let key = vec![Value::Text("a".into())];
        let change = Change::Delete { collection: "sessions".into(), key };
        let entry = unqueued(Term(0), store.now().await.unwrap(), None, vec![change]);
        let batch = Batch {
            id: CommitId(1),
            node: "node-1".into(),
            entries: vec![entry],
            as_of: Time::EPOCH,
            idle: Vec::new(),
            activity_in_store: false,
            lane: Lane::Normal,
            braked: false,
        };
        let committed = store.commit(&batch).await.unwrap();
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        // The reader can read the tables that the host has created.
        let look = PostgresStore::open(&fixture.database().url_of("tidy_look"), options).await;
        look.unwrap().nodes().await.unwrap();
        for (role, sql, may) in [
            ("tidy", "SELECT * FROM sessions", true),
            ("tidy", "UPDATE sessions SET expires_at = now()", false),
            ("tidy", "INSERT INTO sessions VALUES ('c')", false),
            ("tidy", "SELECT * FROM secrets", false),
            ("tidy", "CREATE TABLE public.mine (id int)", false),
            ("tidy_look", "SELECT * FROM tidy.run", true),
            ("tidy_look", "DELETE FROM tidy.run", false),
            ("tidy_look", "SELECT * FROM sessions", false),
        ] {
            let done = product.batch_execute(&format!("SET ROLE {role}; {sql}")).await;
            assert_eq!(done.is_ok(), may, "{role}: {sql}: {done:?}");
            product.batch_execute("RESET ROLE").await.unwrap();
        }
    });
}

/// A mapping of Besom's own tables is rejected, because a task could change its own books.
#[test]
fn besoms_own_tables_and_the_catalog_cannot_be_mapped() {
    block_on(async {
        let fixture = Postgres::open().await;
        let store = fixture.inner();
        for table in [
            "besom.run",
            "besom.item",
            "pg_catalog.pg_class",
            "pg_class",
            "information_schema.tables",
        ] {
            let mut all = sessions();
            all.get_mut("sessions").unwrap().table = table.into();
            let found = shown(store.check(&all).await.unwrap());
            let refused = found.iter().any(|(place, warning, message)| {
                place == "table" && !warning && message.contains("no task may name it")
            });
            assert!(refused, "{table}: {found:?}");
        }
    });
}

/// Whoever checks may be another role than the later host: what it created would be in the host's way.
#[test]
fn a_look_at_the_mapping_creates_nothing_and_says_what_is_missing() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let looks = || Options { schema: "apart".into(), looks: true, ..patient() };
        let url = fixture.database().url();
        product.batch_execute(SESSIONS).await.unwrap();
        let store = PostgresStore::open(&url, looks()).await.unwrap();
        let faults = store.check(&sessions()).await.unwrap();
        assert!(faults.iter().all(|fault| !fault.message.contains("apart")), "{faults:?}");
        let lack = besom_postgres::lack(&url, &looks()).await.unwrap().expect("no schema");
        assert!(
            lack.message.contains("there is no schema \"apart\"") && !lack.is_error,
            "{lack:?}"
        );
        let there = "SELECT to_regnamespace('apart') IS NOT NULL";
        let there: bool = product.query_one(there, &[]).await.unwrap().get(0);
        assert!(!there);
        drop(PostgresStore::open(&url, Options { looks: false, ..looks() }).await.unwrap());
        assert_eq!(besom_postgres::lack(&url, &looks()).await.unwrap(), None);
    });
}
