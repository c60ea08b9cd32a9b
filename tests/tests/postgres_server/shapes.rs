//! `besom config map` describes tables as the usual frameworks create them, on both databases.

use std::path::Path;
use std::process::{Command, Output};

use besom_config::{Overrides, RawConfig, map};
use besom_core::collection::{Collection, Collections};
use besom_ports::shape::{Described, Shape};
use besom_tests::adapters::postgres::patient;
use besom_tests::conformance::block_on;
use besom_tests::servers::postgres::Server;
use rusqlite::Connection;
use serde_json::Value;

fn table(described: Described) -> Shape {
    match described {
        Described::Table(shape) => shape,
        Described::Unknown(known) => panic!("there are only {known:?}"),
    }
}

/// A table of a new SQLite file with these tables and rows.
fn of_sqlite(sql: &str, name: &str) -> Shape {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("product.db");
    Connection::open(&path).expect("opened").execute_batch(sql).expect("created");
    let before = std::fs::read(&path).expect("the file");
    let shape = table(besom_sqlite::describe(&path, name).expect("described"));
    assert_eq!(std::fs::read(&path).expect("the file"), before, "the file is not changed");
    shape
}

/// A table of a new PostgreSQL database with these tables and rows.
fn of_postgres(sql: &str, name: &str) -> Shape {
    let database = Server::shared().empty();
    database.sql(sql);
    let described = block_on(besom_postgres::describe(&database.url(), &patient(), name));
    table(described.expect("described"))
}

/// The section of a table, which is read as the collection that was meant.
fn section(shape: &Shape, name: &str, tenant: Option<&str>) -> String {
    let collection = shape.collection(name, tenant).expect("a collection");
    let section = map::section(shape, &collection);
    let parsed = RawConfig::parse(&section, Path::new("besom.toml"), &Overrides::default());
    let resolved = parsed.outline(&Collections::new());
    let errors: Vec<_> = resolved.problems().iter().filter(|p| p.is_error()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let read: Option<&Collection> = resolved.partial().collections.get(name);
    assert_eq!(read, Some(&collection));
    section
}

fn begins(section: &str, lines: &[&str]) {
    let found: Vec<&str> = section.lines().take(lines.len()).collect();
    assert_eq!(found, lines, "{section}");
}

/// The session tables of Django, Rails (activerecord-session_store) and Laravel, as their migrations
/// create them.
#[test]
fn session_tables_of_frameworks_are_mapped_on_sqlite() {
    let django = of_sqlite(
        "CREATE TABLE \"django_session\" (\"session_key\" varchar(40) NOT NULL PRIMARY KEY,
           \"session_data\" text NOT NULL, \"expire_date\" datetime NOT NULL);
         CREATE INDEX \"django_session_expire_date_a5c62663\" ON \"django_session\" (\"expire_date\");
         INSERT INTO django_session VALUES ('a', 'x', '2026-11-01 08:00:00.250000'),
           ('b', 'x', '2026-11-01 08:00:00')",
        "django_session",
    );
    begins(
        &section(&django, "sessions", None),
        &[
            "[collections.sessions]",
            "table = \"django_session\"",
            "key = [\"session_key\"]",
            "",
            "[collections.sessions.columns]",
            "session_key = \"text\"  # varchar(40)",
            "session_data = \"text\"  # TEXT",
            "expire_date = { type = \"timestamp\", encoding = \"datetime\" }  # datetime",
            "",
            "[collections.sessions.indexes]",
            "expire_date = [\"expire_date\"]",
        ],
    );
    let rails = of_sqlite(
        "CREATE TABLE \"sessions\" (\"id\" integer PRIMARY KEY AUTOINCREMENT NOT NULL,
           \"session_id\" varchar NOT NULL, \"data\" text, \"created_at\" datetime(6) NOT NULL,
           \"updated_at\" datetime(6) NOT NULL);
         CREATE UNIQUE INDEX \"index_sessions_on_session_id\" ON \"sessions\" (\"session_id\");
         CREATE INDEX \"index_sessions_on_updated_at\" ON \"sessions\" (\"updated_at\")",
        "Sessions",
    );
    let text = section(&rails, "sessions", None);
    begins(&text, &["[collections.sessions]", "key = [\"id\"]"]);
    for line in [
        "id = \"integer\"  # INTEGER",
        "updated_at = { type = \"timestamp\", encoding = \"datetime6\" }  # datetime(6); no row has a \
         value yet: confirm the encoding",
        "updated_at = [\"updated_at\"]",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    let laravel = of_sqlite(
        "CREATE TABLE \"sessions\" (\"id\" varchar not null, \"user_id\" integer, \"ip_address\" varchar,
           \"user_agent\" text, \"payload\" text not null, \"last_activity\" integer not null,
           primary key (\"id\"));
         CREATE INDEX \"sessions_user_id_index\" on \"sessions\" (\"user_id\");
         CREATE INDEX \"sessions_last_activity_index\" on \"sessions\" (\"last_activity\");
         INSERT INTO sessions VALUES ('a', 1, NULL, NULL, 'x', 1764000000)",
        "sessions",
    );
    let text = section(&laravel, "sessions", None);
    let line = "last_activity = { type = \"timestamp\", encoding = \"seconds\" }  # INTEGER; instants, \
                judging by the name and the numbers in the rows";
    assert!(text.contains(&format!("\n{line}\n")), "{text}");
    assert!(text.contains("\nuser_id = \"integer\"  # INTEGER\n"), "{text}");
}

#[test]
fn session_tables_of_frameworks_are_mapped_on_postgresql() {
    let django = of_postgres(
        "CREATE TABLE \"django_session\" (\"session_key\" varchar(40) NOT NULL PRIMARY KEY,
           \"session_data\" text NOT NULL, \"expire_date\" timestamp with time zone NOT NULL);
         CREATE INDEX \"django_session_session_key_c0390e0f_like\" ON \"django_session\"
           (\"session_key\" varchar_pattern_ops);
         CREATE INDEX \"django_session_expire_date_a5c62663\" ON \"django_session\" (\"expire_date\")",
        "django_session",
    );
    begins(
        &section(&django, "sessions", None),
        &[
            "[collections.sessions]",
            "table = \"django_session\"",
            "key = [\"session_key\"]",
            "",
            "[collections.sessions.columns]",
            "session_key = \"text\"  # character varying",
            "session_data = \"text\"  # text",
            "expire_date = \"timestamp\"  # timestamp with time zone",
            "",
            "[collections.sessions.indexes]",
            "expire_date = [\"expire_date\"]",
        ],
    );
    let laravel = of_postgres(
        "CREATE SCHEMA app;
         CREATE TABLE app.sessions (id varchar(255) NOT NULL PRIMARY KEY, user_id bigint,
           ip_address varchar(45), user_agent text, payload text NOT NULL, last_activity integer NOT NULL);
         CREATE INDEX ON app.sessions (user_id);
         CREATE INDEX ON app.sessions (last_activity);
         INSERT INTO app.sessions VALUES ('a', 1, NULL, NULL, 'x', 1764000000);
         GRANT USAGE ON SCHEMA app TO housekeeper; GRANT SELECT ON app.sessions TO housekeeper",
        "app.sessions",
    );
    let text = section(&laravel, "sessions", None);
    begins(&text, &["[collections.sessions]", "table = \"app.sessions\"", "key = [\"id\"]"]);
    let line = "last_activity = { type = \"timestamp\", encoding = \"seconds\" }";
    assert!(text.contains(&format!("\n{line}  # integer; instants")), "{text}");
}

/// The tables of Django, Rails and Laravel in one database, as their migrations create them on PostgreSQL; Laravel's has
/// the prefix that its configuration may give to tables. 1,500 of the sessions of each have expired, many at the same
/// moment, and ten have not.
const FRAMEWORKS: &str = r#"
CREATE TABLE "django_session" ("session_key" varchar(40) NOT NULL PRIMARY KEY, "session_data" text NOT NULL,
  "expire_date" timestamp with time zone NOT NULL);
CREATE INDEX "django_session_session_key_c0390e0f_like" ON "django_session" ("session_key" varchar_pattern_ops);
CREATE INDEX "django_session_expire_date_a5c62663" ON "django_session" ("expire_date");

CREATE TABLE "sessions" ("id" bigserial primary key, "session_id" character varying NOT NULL, "data" text,
  "created_at" timestamp(6) NOT NULL, "updated_at" timestamp(6) NOT NULL);
CREATE UNIQUE INDEX "index_sessions_on_session_id" ON "sessions" ("session_id");
CREATE INDEX "index_sessions_on_updated_at" ON "sessions" ("updated_at");

create table "laravel_sessions" ("id" varchar(255) not null, "user_id" bigint null, "ip_address" varchar(45) null,
  "user_agent" text null, "payload" text not null, "last_activity" integer not null);
alter table "laravel_sessions" add primary key ("id");
create index "laravel_sessions_user_id_index" on "laravel_sessions" ("user_id");
create index "laravel_sessions_last_activity_index" on "laravel_sessions" ("last_activity");

INSERT INTO django_session SELECT 'k' || i, 'x',
  CASE WHEN i <= 1500 THEN timestamptz '2020-01-01 08:00Z' + i % 2 * interval '1 day' ELSE '2999-01-01 00:00Z' END
  FROM generate_series(1, 1510) i;
INSERT INTO sessions (session_id, data, created_at, updated_at) SELECT 'k' || i, 'x', '2020-01-01',
  CASE WHEN i <= 1500 THEN timestamp '2020-01-01' ELSE '2999-01-01' END FROM generate_series(1, 1510) i;
INSERT INTO laravel_sessions SELECT 'k' || i, NULL, '::1', 'x', 'x',
  CASE WHEN i <= 1500 THEN 1764000000 ELSE extract(epoch FROM now())::integer END FROM generate_series(1, 1510) i;
"#;

/// Each table is mapped by one command and swept by six lines. `host/tests/cli.rs` has the same on SQLite.
#[test]
fn session_tables_of_frameworks_are_swept_on_postgresql() {
    let database = Server::shared().empty();
    database.sql(FRAMEWORKS);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("besom.toml");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
    let (url, cache) = (database.url(), cache.display().to_string());
    let head = format!("[store]\nurl = {url:?}  # the product's\n[runtime]\ncache = {cache:?}\n");
    std::fs::write(&file, &head).expect("written");
    let besom = |args: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
        command.args(args).current_dir(directory.path()).env_remove("BESOM_CONFIG");
        command.env_remove("BESOM_HOST_DEFAULT_MODE").output().expect("the binary runs")
    };
    let fine = |args: &[&str]| -> Vec<u8> {
        let out = besom(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    for (table, name) in
        [("django_session", "django"), ("sessions", "rails"), ("laravel_sessions", "laravel")]
    {
        fine(&["config", "map", table, "--name", name, "--write"]);
    }
    let mut text = std::fs::read_to_string(&file).expect("read");
    assert!(text.starts_with(&head), "{text}");
    for line in [
        "expire_date = \"timestamp\"  # timestamp with time zone",
        "updated_at = \"timestamp\"  # timestamp without time zone; read as UTC",
        "expire_date = [\"expire_date\"]",
        "updated_at = [\"updated_at\"]",
        "last_activity = [\"last_activity\"]",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    for (name, by, age) in [
        ("django", "expire_date", "0s"),
        ("rails", "updated_at", "30d"),
        ("laravel", "last_activity", "2h"),
    ] {
        let task = format!(
            "[tasks.{name}]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
             collections.rows = \"{name}\"\nsettings = {{ by = \"{by}\", older_than = \"{age}\" }}\n"
        );
        assert_eq!(task.lines().count(), 6);
        text.push_str(&format!("\n{task}"));
    }
    std::fs::write(&file, &text).expect("written");
    fine(&["check", "--store"]);
    let passed: Value = serde_json::from_slice(&fine(&["run", "--output", "json"])).expect("JSON");
    for task in passed.as_array().expect("tasks") {
        assert_eq!((&task["rows"], &task["dead"]), (&1_500.into(), &0.into()), "{passed:#}");
    }
    block_on(async {
        let product = database.connect().await;
        for table in ["django_session", "sessions", "laravel_sessions"] {
            let left = product.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await;
            assert_eq!(left.expect("counted").get::<_, i64>(0), 10, "{table}");
        }
    });
    fine(&["audit"]);
}

/// Types without a kind, tenants, foreign keys, expressions and partial indexes.
#[test]
fn what_a_mapping_cannot_have_is_said_or_left_out() {
    let sql = "CREATE TABLE team (id integer PRIMARY KEY);
         CREATE TABLE upload (team_id integer NOT NULL REFERENCES team, no integer NOT NULL,
           size numeric(12, 3), ok boolean, deleted_at timestamp, raw bytea, PRIMARY KEY (team_id, no));
         CREATE INDEX upload_a ON upload (team_id, deleted_at, no);
         CREATE INDEX upload_b ON upload (lower('x'), size);
         CREATE INDEX upload_c ON upload (team_id, size) WHERE ok";
    for shape in [of_postgres(sql, "upload"), of_sqlite(&sql.replace("bytea", "blob"), "upload")] {
        let whole = section(&shape, "upload", None);
        begins(
            &whole,
            &[
                "[collections.upload]",
                "# If team_id names the tenant of a row: --tenant team_id",
                "key = [\"team_id\", \"no\"]",
            ],
        );
        assert!(whole.contains("\n# foreign key: team_id refers to team"), "{whole}");
        assert!(whole.contains("\nsize = \"decimal\""), "{whole}");
        let own = section(&shape, "upload", Some("team_id"));
        begins(&own, &["[collections.upload]", "tenant = \"team_id\"", "key = [\"no\"]"]);
        let indexes = own.split_once(".indexes]\n").expect("indexes").1;
        assert_eq!(indexes, "deleted_at = [\"deleted_at\"]\n");
    }
    let odd = of_postgres(
        "CREATE TABLE odd (id uuid PRIMARY KEY, doc xml, mood text[], at timestamp, note text)",
        "odd",
    );
    let text = section(&odd, "odd", None);
    for line in [
        "id = \"uuid\"  # uuid",
        "# doc is not mapped: xml",
        "at = \"timestamp\"  # timestamp without time zone; read as UTC",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    let bare = of_sqlite("CREATE TABLE log (line TEXT)", "log");
    let refused = bare.collection("log", None).expect_err("refused");
    assert!(refused.contains("no primary key and no unique index"), "{refused}");
}

/// A primary key of SQLite may hold NULL, and so may a unique index.
#[test]
fn a_key_without_null_is_preferred() {
    let created = "CREATE TABLE s (id TEXT PRIMARY KEY, code TEXT UNIQUE, no INT NOT NULL UNIQUE);";
    for (sql, key) in [
        (created.to_owned(), "id"),
        (format!("{created} INSERT INTO s VALUES ('a', 'b', 1), (NULL, 'c', 2)"), "no"),
        ("CREATE TABLE s (code TEXT UNIQUE, no INT NOT NULL UNIQUE)".to_owned(), "no"),
        ("CREATE TABLE s (code TEXT UNIQUE, no INT)".to_owned(), "code"),
    ] {
        let shape = of_sqlite(&sql, "s");
        assert_eq!(shape.key, [key], "{sql}");
        let remark = shape.columns.iter().find(|found| found.name == key).expect("a column");
        let is_said = remark.remark.as_ref().is_some_and(|said| said.starts_with("may be NULL"));
        assert_eq!(is_said, key == "code", "{sql}: {remark:?}");
    }
}

/// The numbers of a column that is NULL in most rows are found.
#[test]
fn a_column_of_instants_whose_first_rows_are_null_is_mapped_as_such() {
    let sql = "CREATE TABLE s (id integer PRIMARY KEY, deleted_at bigint, seen_at bigint, none_at bigint);
         INSERT INTO s (id, deleted_at, seen_at)
           WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 900)
           SELECT id, CASE WHEN id = 400 THEN 1764000000 END, CASE WHEN id > 450 THEN 1764000000000 END FROM n;";
    for shape in [of_sqlite(sql, "s"), of_postgres(sql, "s")] {
        let text = section(&shape, "s", None);
        for (name, encoding) in [("deleted_at", "seconds"), ("seen_at", "millis")] {
            let line =
                format!("\n{name} = {{ type = \"timestamp\", encoding = \"{encoding}\" }}  # ");
            assert!(text.contains(&line), "{text}");
        }
        let none = text.lines().find(|line| line.starts_with("none_at = \"integer\""));
        assert!(none.is_some_and(|line| {
            line.contains("; no number was found in its rows; for instants: {")
        }));
    }
}

#[test]
fn an_unknown_table_is_answered_with_those_that_are_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("product.db");
    let sql = "CREATE TABLE b (id INTEGER PRIMARY KEY); CREATE VIEW a AS SELECT * FROM b";
    Connection::open(&path).expect("opened").execute_batch(sql).expect("created");
    let database = Server::shared().empty();
    database.sql(sql);
    let on_server = block_on(besom_postgres::describe(&database.url(), &patient(), "c"));
    for described in [besom_sqlite::describe(&path, "c"), on_server] {
        let Described::Unknown(mut known) = described.expect("described") else { panic!("known") };
        known.sort_unstable();
        assert_eq!(known, ["a", "b"]);
    }
    let view = table(besom_sqlite::describe(&path, "a").expect("described"));
    assert!(view.collection("a", None).is_err(), "a view has no key");
}
