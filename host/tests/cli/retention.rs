//! Retention tasks over tables of a product, as a person would set them up.

use serde_json::Value;

use crate::site::Site;

/// The session tables of Django, Rails and Laravel, as their migrations create them on SQLite, each mapped
/// by one command and swept by six lines: 1,500 expired sessions, of which many expired at the same
/// moment, and some that have not. Laravel's has the prefix that its configuration may give to tables.
/// `tests/tests/postgres_server/shapes.rs` has the same on PostgreSQL.
#[test]
fn session_tables_of_frameworks_are_swept_without_code() {
    let site = Site::new("[store]\npath = \"app.db\"  # the product's\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    product
        .execute_batch(&format!(
            "CREATE TABLE \"django_session\" (\"session_key\" varchar(40) NOT NULL PRIMARY KEY,
               \"session_data\" text NOT NULL, \"expire_date\" datetime NOT NULL);
             CREATE INDEX \"django_session_expire_date_a5c62663\" ON \"django_session\" (\"expire_date\");
             CREATE TABLE \"sessions\" (\"id\" integer PRIMARY KEY AUTOINCREMENT NOT NULL,
               \"session_id\" varchar NOT NULL, \"data\" text, \"created_at\" datetime(6) NOT NULL,
               \"updated_at\" datetime(6) NOT NULL);
             CREATE UNIQUE INDEX \"index_sessions_on_session_id\" ON \"sessions\" (\"session_id\");
             CREATE INDEX \"index_sessions_on_updated_at\" ON \"sessions\" (\"updated_at\");
             CREATE TABLE \"laravel_sessions\" (\"id\" varchar not null, \"user_id\" integer,
               \"ip_address\" varchar, \"user_agent\" text, \"payload\" text not null,
               \"last_activity\" integer not null, primary key (\"id\"));
             CREATE INDEX \"laravel_sessions_user_id_index\" on \"laravel_sessions\" (\"user_id\");
             CREATE INDEX \"laravel_sessions_last_activity_index\" on \"laravel_sessions\" (\"last_activity\");
             CREATE TABLE node_sessions (sid TEXT PRIMARY KEY, expires_at TEXT NOT NULL, data BLOB);
             CREATE INDEX node_sessions_by_expiry ON node_sessions (expires_at);
             INSERT INTO node_sessions VALUES ('js', '2026-01-02T03:04:05.678Z', NULL);
             CREATE TABLE n (i INTEGER PRIMARY KEY, past);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 1510)
               INSERT INTO n SELECT i, i <= 1500 FROM c;
             INSERT INTO django_session SELECT hex(i), 'x',
               iif(past, '2026-01-0' || (1 + i % 2) || ' 08:00:00', '2999-01-01 00:00:00.250000') FROM n;
             INSERT INTO sessions (session_id, created_at, updated_at) SELECT hex(i), '2026-01-01 00:00:00.000000',
               iif(past, '2026-01-01 00:00:00.000000', '2999-01-01 00:00:00.000000') FROM n;
             INSERT INTO laravel_sessions
               SELECT hex(i), NULL, '::1', 'x', 'x', iif(past, 1764000000, {}) FROM n;
             INSERT INTO node_sessions
               SELECT hex(i), iif(past, '2026-01-02T03:04:05.670Z', '2999-01-01T00:00:00.000Z'), NULL FROM n;
             DROP TABLE n",
            now.as_secs()
        ))
        .expect("created");
    for (table, name) in [
        ("django_session", "django"),
        ("sessions", "rails"),
        ("laravel_sessions", "laravel"),
        ("node_sessions", "node"),
    ] {
        let out = site.besom(&["config", "map", table, "--name", name, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let is_as_it_was = || {
        let engines = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'besom%'";
        let engines: i64 = product.query_row(engines, [], |r| r.get(0)).expect("counted");
        let mode: String =
            product.query_row("PRAGMA journal_mode", [], |r| r.get(0)).expect("a mode");
        engines == 0 && mode == "delete"
    };
    assert!(is_as_it_was(), "the database is only read");
    // Long ago, and in other forms, which have no order with the others: they stay.
    product
        .execute_batch(
            "UPDATE node_sessions SET expires_at = '2020-01-01T00:00:00Z' WHERE sid = hex(1501);
             UPDATE node_sessions SET expires_at = '2020-01-01 00:00:00.000' WHERE sid = hex(1502)",
        )
        .expect("updated");
    let file = site.dir().join("besom.toml");
    let mut text = std::fs::read_to_string(&file).expect("read");
    assert!(text.starts_with("[store]\npath = \"app.db\"  # the product's\n"), "{text}");
    for (name, by, age) in [
        ("django", "expire_date", "0s"),
        ("rails", "updated_at", "30d"),
        ("laravel", "last_activity", "2h"),
        ("node", "expires_at", "0s"),
    ] {
        let task = format!(
            "[tasks.{name}]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
             collections.rows = \"{name}\"\nsettings = {{ by = \"{by}\", older_than = \"{age}\" }}\n"
        );
        assert_eq!(task.lines().count(), 6);
        text.push_str(&format!("\n{task}"));
    }
    std::fs::write(&file, &text).expect("written");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    assert!(is_as_it_was(), "a check changes nothing");
    let out = site.command(&["run"]).env_remove("BESOM_HOST_DEFAULT_MODE").output();
    let out = out.expect("the binary runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (code, said) = site.fails(&["review", "show", "django"]);
    assert!(code == 2 && said.contains("django, whose runs are executed at once"), "{said}");
    for table in ["django_session", "sessions", "laravel_sessions", "node_sessions"] {
        let left = format!("SELECT count(*) FROM {table}");
        let left: i64 = product.query_row(&left, [], |r| r.get(0)).expect("counted");
        assert_eq!(left, 10, "{table}");
    }
    assert_eq!(site.json(&["audit"]).0, 0);

    // A fault of a condition is shown under its characters.
    let wrong = text.replacen("older_than = \"0s\"", "where = \"session_dat = 'x'\"", 1);
    std::fs::write(&file, &wrong).expect("written");
    let (code, said) = site.fails(&["check"]);
    assert_eq!(code, 78, "{said}");
    let (_, said) = said.split_once("no column `session_dat`").expect("the fault");
    let at = said.find("session_dat = 'x'").expect("the line is shown");
    let column = at - said[..at].rfind('\n').expect("a line") - 1;
    let marks = said[at..].lines().nth(1).unwrap_or_default();
    assert_eq!(marks.find('^'), Some(column), "{said}");

    // Without an age, the column has to hold an expiry, by its name or by the rows.
    let ageless = text.replace(", older_than = \"0s\"", "").replace(", older_than = \"30d\"", "");
    std::fs::write(&file, &ageless).expect("written");
    product
        .execute_batch(
            "CREATE TABLE visits (id INTEGER PRIMARY KEY, at TEXT); CREATE INDEX visits_at ON visits (at);
             INSERT INTO visits (at) VALUES ('2020-01-01 00:00:00'), (NULL)",
        )
        .expect("created");
    assert!(site.besom(&["config", "map", "visits", "--write"]).status.success());
    let mut ageless = std::fs::read_to_string(&file).expect("read");
    ageless.push_str(
        "\n[tasks.visits]\nplugin = \"retention\"\ncollections.rows = \"visits\"\nsettings.by = \"at\"\n",
    );
    std::fs::write(&file, &ageless).expect("written");
    let updated = "without older_than, every row whose `updated_at` has passed is deleted, as if it were an expiry; \
                   by its name, `updated_at` is when something has happened";
    let at = "every row whose `at` has passed is deleted, as if it were an expiry; no row of `visits` has one that is \
              still to come";
    let (code, said) = site.fails(&["check"]);
    assert_eq!((code, said.matches("older_than, every row").count()), (0, 1), "{said}");
    assert!(said.contains(updated) && said.contains("such as older_than = \"30d\""), "{said}");
    assert!(said.contains("settings = { by = \"updated_at\" }"), "{said}");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!((code, said.matches("older_than, every row").count()), (0, 2), "{said}");
    assert!(said.contains(updated) && said.contains(at), "{said}");
    product
        .execute_batch("UPDATE visits SET at = '2999-01-01 00:00:00' WHERE at IS NULL")
        .expect("set");
    let (_, said) = site.fails(&["check", "--store"]);
    assert!(said.contains(updated) && !said.contains(at), "{said}");

    // A column by which no index reads is answered with the index.
    let unread = text.replacen("by = \"updated_at\"", "by = \"created_at\"", 1);
    std::fs::write(&file, &unread).expect("written");
    let (code, said) = site.fails(&["check"]);
    assert_eq!(code, 78, "{said}");
    let index = "CREATE INDEX \"sessions_by_created_at\" ON \"sessions\" (\"created_at\", \"id\")";
    assert!(said.contains("no mapped index begins with `created_at`"), "{said}");
    assert!(said.contains(&format!("If the table has none: {index}")), "{said}");
    let elsewhere =
        unread.replacen("path = \"app.db\"", "url = \"postgres://besom@127.0.0.1:1/app\"", 1);
    std::fs::write(&file, elsewhere).expect("written");
    let (_, said) = site.fails(&["check"]);
    assert!(said.contains("CREATE INDEX CONCURRENTLY \"sessions_by_created_at\" ON"), "{said}");
    product.execute_batch(index).expect("as it is printed");

    std::fs::write(&file, &text).expect("written");
    product.execute_batch("CREATE VIEW all_sessions AS SELECT * FROM sessions").expect("a view");
    let out = site.besom(&["config", "map", "all_sessions", "--key", "id"]);
    let section = String::from_utf8_lossy(&out.stdout);
    assert!(section.contains("# tasks can only read the rows of a view of SQLite"), "{section}");
    let (code, said) = site.fails(&["config", "map", "django_sesion"]);
    assert!(code == 1 && said.contains("did you mean `django_session`?"), "{said}");
    let (code, said) = site.fails(&["config", "map", "sessions", "--name", "rails", "--write"]);
    assert!(code == 1 && said.contains("has [collections.rails] already"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), text, "the file is as it was");

    // Two lines from a table to a preview.
    let mapped = ["config", "map", "laravel_sessions", "--name", "php sessions"];
    let printed = site.besom(&[&mapped[..], &["--older-than", "36h"]].concat());
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let task = "[tasks.old-php-sessions]  # without a mode, it only shows what it would delete\n\
                plugin = \"retention\"\nschedule = \"@hourly\"\ncollections.rows = \"php sessions\"\n\
                settings = { by = \"last_activity\", older_than = \"36h\" }\n";
    assert!(printed.ends_with(&format!("\n\n{task}")), "{printed}");
    let (_, said) =
        site.fails(&[&mapped[..], &["--older-than", "36h", "--by", "last_actvity"]].concat());
    assert!(said.contains("did you mean `last_activity`?"), "{said}");
    let newest = ["--keep", "20", "--per", "user_id"];
    let printed = site.besom(&[&mapped[..], &newest].concat());
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let settings = "settings = { by = \"last_activity\", keep = 20, per = \"user_id\" }\n";
    let create = "# no index begins with user_id and a timestamp or a date, as `retention` needs it unless its `where` \
                  names the columns before it: CREATE INDEX \"laravel_sessions_by_user_id_last_activity\" ON \
                  \"laravel_sessions\" (\"user_id\", \"last_activity\", \"id\")";
    assert!(printed.ends_with(settings) && printed.contains(create), "{printed}");
    let both = site.besom(&[&mapped[..], &newest, &["--older-than", "36h"]].concat());
    let both = String::from_utf8_lossy(&both.stdout).into_owned();
    let settings = "older_than = \"36h\", keep = 20, per = \"user_id\" }\n";
    assert!(both.ends_with(settings), "{both}");
    for (flags, words) in [
        (&["--per", "user_id"][..], "--keep <ROWS>"),
        (&["--by", "last_activity"], "<--older-than <SPAN>|--keep <ROWS>>"),
        (&["--keep", "0"], "0 is not in 1..=1000"),
        (
            &["--keep", "1", "--per", "user_d"],
            "--per: the table has no column `user_d`; did you mean `user_id`?",
        ),
    ] {
        let (_, said) = site.fails(&[&mapped[..], flags].concat());
        assert!(said.contains(words), "{said}");
    }
    let map = ["config", "map", "orders", "--older-than", "1d", "--write"];
    product
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, made DATE, due DATE);
             CREATE INDEX orders_by_time ON orders (made);
             CREATE INDEX orders_by_due ON orders (due);
             INSERT INTO orders VALUES (1, '2026-01-01', '2999-01-01');",
        )
        .expect("created");
    let (code, said) = site.fails(&map);
    assert!(code == 1 && said.contains("with --by: `due`, `made`"), "{said}");
    let out = site.besom(&[&map[..], &["--by", "made"]].concat());
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("Then see what the task would delete: besom run old-orders"), "{said}");
    let (code, said) = site.fails(&[&map[..], &["--by", "made", "--name", "old.orders"]].concat());
    assert_eq!(code, 0, "{said}");
    let mut run = site.command(&["run", "old-orders"]);
    let out = run.env_remove("BESOM_HOST_DEFAULT_MODE").output().expect("the binary runs");
    let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains('1'), "{said}");
    let kept: i64 =
        product.query_row("SELECT count(*) FROM orders", [], |r| r.get(0)).expect("counted");
    assert_eq!(kept, 1, "it only shows");
    // The names of tasks have fewer characters than those of collections.
    let (code, said) = site.fails(&[&map[..], &["--by", "made", "--name", "old/orders"]].concat());
    assert_eq!(code, 0, "{said}");
    let (code, said) = site.fails(&[&map[..], &["--by", "made", "--name", "old orders"]].concat());
    assert!(code == 1 && said.contains("has [tasks.old-old-orders] already"), "{said}");
}

/// Orders that are archived with columns that nobody mapped, and sessions that are deleted with the rows that refer to
/// them, as a person would set it up.
#[test]
fn rows_are_archived_and_rows_go_with_others() {
    let site = Site::new("[store]\npath = \"app.db\"\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, closed_at TEXT, note BLOB);
             CREATE INDEX orders_by_close ON orders (closed_at);
             CREATE TABLE old_orders (id INTEGER PRIMARY KEY, closed_at TEXT, moved INTEGER DEFAULT 1);
             CREATE TABLE sessions (id TEXT PRIMARY KEY, seen TEXT NOT NULL);
             CREATE INDEX sessions_by_seen ON sessions (seen);
             CREATE TABLE events (id INTEGER PRIMARY KEY, session TEXT NOT NULL REFERENCES sessions);
             CREATE INDEX events_by_session ON events (session);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 2500)
               INSERT INTO orders SELECT i, iif(i > 2400, '2999-01-01', '2020-01-01') || ' 00:00:00', x'00ff' FROM c;
             INSERT INTO sessions SELECT 's' || id, closed_at FROM orders;
             INSERT INTO events (session) SELECT 's' || (1 + id % 2500) FROM orders;
             INSERT INTO events (session) SELECT session FROM events;",
        )
        .expect("created");
    for table in ["orders", "old_orders", "sessions", "events"] {
        let out = site.besom(&["config", "map", table, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let file = site.dir().join("besom.toml");
    let mapped = std::fs::read_to_string(&file).expect("read");
    let anchor = "\nanchor = { collection = \"sessions\", columns = [\"session\"] }\n";
    assert!(mapped.contains(anchor), "a foreign key to a mapped table: {mapped}");
    let head = "[collections.sessions]\n";
    let dependants = format!("{head}dependants = [\"events\"]\n");
    let mut text = mapped.replacen(head, &dependants, 1);
    text.push_str(
        "\n[tasks.orders]\nplugin = \"retention\"\nschedule = \"@hourly\"\n\
         collections = { rows = \"orders\", into = \"old_orders\" }\n\
         settings = { by = \"closed_at\", older_than = \"30d\", action = \"archive\" }\n\
         [tasks.sessions]\nplugin = \"retention\"\nschedule = \"@hourly\"\ncollections.rows = \"sessions\"\n\
         settings = { by = \"seen\", older_than = \"30d\" }\n",
    );
    // The mapping shows that the other table has no such column.
    std::fs::write(&file, &text).expect("written");
    let (code, said) = site.fails(&["check"]);
    assert!(code == 78 && said.contains("the rows have a column `note`"), "{code}: {said}");
    // Without it in the mapping, the database shows it, and nothing is moved.
    let unmapped = text.replacen("note = ", "# note = ", 1);
    std::fs::write(&file, &unmapped).expect("written");
    let (code, said) = site.fails(&["check", "--store"]);
    let add = "ALTER TABLE \"old_orders\" ADD COLUMN \"note\" BLOB";
    assert!(code == 78 && said.contains(add), "{code}: {said}");
    let (code, said) = site.fails(&["run", "orders"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("ALTER TABLE \"old_orders\" ADD COLUMN \"note\""), "{said}");
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        product.query_row(&sql, [], |row| row.get(0)).expect("counted")
    };
    assert_eq!([count("orders"), count("old_orders")], [2_500, 0]);
    product.execute_batch("ALTER TABLE old_orders ADD COLUMN note BLOB").expect("added");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    let rehearsed = site.besom(&["run", "--dry-run"]).stdout;
    let rehearsed = String::from_utf8_lossy(&rehearsed);
    for line in [
        "orders: 5 items would change at most 2400 rows (96 % of about 2500 of orders)\n",
        "a range of at most 500 rows, and what refers to them in events\n",
        "sessions: 5 items would change at most 2400 rows (96 % of about 2500 of sessions)\n",
        "10 items (10 propose); nothing was committed.\n",
    ] {
        assert!(rehearsed.contains(line), "{rehearsed}");
    }
    let (code, runs) = site.json(&["run"]);
    assert_eq!(code, 0, "{runs:#}");
    let tables = ["orders", "old_orders", "sessions", "events"];
    assert_eq!(tables.map(count), [100, 2_400, 100, 200]);
    let intact = "SELECT count(*) FROM old_orders WHERE note = x'00ff' AND moved = 1";
    let intact: i64 = product.query_row(intact, [], |row| row.get(0)).expect("counted");
    assert_eq!(intact, 2_400);
    let rows = |task: &str| {
        let runs = runs.as_array().expect("runs");
        let run = runs.iter().find(|run| run["task"] == task).expect("a run");
        run["rows"].as_u64()
    };
    assert_eq!(rows("orders"), Some(2_400));
    assert_eq!(rows("sessions"), Some(2_400 + 4_800));
    assert_eq!(site.json(&["audit"]).0, 0);
    // A row whose key is taken there stays as a dead letter, and the pass says why.
    product
        .execute_batch(
            "INSERT INTO orders VALUES (1, '2020-01-01 00:00:00', NULL), (3000, '2020-01-01 00:00:00', NULL)",
        )
        .expect("inserted");
    let (code, runs) = site.json(&["run", "orders"]);
    assert_eq!(
        (code, &runs[0]["rows"], &runs[0]["refused"]),
        (1, &1.into(), &1.into()),
        "{runs:#}"
    );
    let why = runs[0]["refusal"].as_str().unwrap_or_default();
    assert!(why.starts_with("1 row could not be changed: (1): UNIQUE"), "{why}");
}

/// Jobs that are found by their state and end, and posts by an index without those that were never deleted.
/// `tests/tests/postgres_server/jobs.rs` has more of them on PostgreSQL.
#[test]
fn rows_are_found_by_the_indexes_that_a_product_has() {
    let site = Site::new("[store]\npath = \"app.db\"\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, finished_at DATETIME,
               attempts INTEGER NOT NULL DEFAULT 2);
             CREATE INDEX jobs_by_state ON jobs (state, finished_at);
             CREATE TABLE posts (id INTEGER PRIMARY KEY, title TEXT, deleted_at DATETIME);
             CREATE INDEX posts_by_deletion ON posts (deleted_at) WHERE deleted_at IS NOT NULL;
             CREATE INDEX posts_by_title ON posts (title) WHERE title <> '';
             CREATE TABLE comments (id INTEGER PRIMARY KEY, post INTEGER NOT NULL REFERENCES posts);
             CREATE INDEX comments_by_post ON comments (post);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 6000)
               INSERT INTO jobs (id, state, finished_at) SELECT i, iif(i % 4 = 0, 'waiting', iif(i % 4 = 1, 'lost', iif(i % 4 = 2, 'done', 'failed'))),
                 iif(i % 4 = 0, NULL, iif(i > 4800, '2999-01-01', '2020-01-0' || (1 + i / 4 % 3)) || ' 08:00:00') FROM c;
             INSERT INTO posts SELECT id, 'x', iif(id % 5 = 0, iif(id > 5000, '2999-01-01', '2020-01-01') || ' 08:00:00', NULL)
               FROM jobs;
             INSERT INTO comments (post) SELECT id FROM posts;",
        )
        .expect("created");
    for table in ["jobs", "posts", "comments"] {
        let out = site.besom(&["config", "map", table, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let file = site.dir().join("besom.toml");
    let mapped = std::fs::read_to_string(&file).expect("read");
    let partial = "{ columns = [\"deleted_at\"], not_null = [\"deleted_at\"] }";
    for line in [
        "# no index begins with a timestamp or a date, as `retention` needs it unless its `where` or `per` names \
         the columns before it: CREATE INDEX \"jobs_by_finished_at\" ON \"jobs\" (\"finished_at\", \"id\")",
        "state_finished_at = [\"state\", \"finished_at\"]",
        "# the index posts_by_title covers only some of the rows, and is not used",
        &format!("deleted_at = {partial}"),
    ] {
        assert!(mapped.contains(&format!("\n{line}\n")), "{line}: {mapped}");
    }
    assert_eq!(mapped.matches("# no index begins").count(), 1, "comments tell no age: {mapped}");
    let head = "[collections.posts]\n";
    let mut text = mapped.replacen(head, &format!("{head}dependants = [\"comments\"]\n"), 1);
    for (task, rows, settings) in [
        (
            "ended",
            "jobs",
            "by = \"finished_at\", older_than = \"7d\", where = \"state in ('done', 'failed')\"",
        ),
        (
            "lost",
            "jobs",
            "by = \"finished_at\", older_than = \"7d\", where = \"state = 'lost'\", action = \"set\", \
             set = \"state = 'given up', attempts = attempts - 1\", chunk = 0",
        ),
        ("posts", "posts", "by = \"deleted_at\", older_than = \"7d\""),
    ] {
        text.push_str(&format!(
            "\n[tasks.{task}]\nplugin = \"retention\"\nschedule = \"@hourly\"\ncollections.rows = \"{rows}\"\n\
             settings = {{ {settings} }}\n"
        ));
    }
    // Where rows would be left out, or all of them read, nothing starts.
    for (from, to, code, words) in [
        (
            partial,
            "[\"deleted_at\"]",
            "78",
            "not_null = [\"deleted_at\"] }; otherwise: CREATE INDEX",
        ),
        (
            "state in ('done', 'failed')",
            "state != 'lost'",
            "78",
            "no mapped index begins with `finished_at`",
        ),
        (
            "not_null = [\"deleted_at\"]",
            "not_null = [\"deleted\"]",
            "78",
            "did you mean `deleted_at`?",
        ),
    ] {
        std::fs::write(&file, text.replacen(from, to, 1)).expect("written");
        let (found, said) = site.fails(&["check", "--store"]);
        assert!(found.to_string() == code && said.contains(words), "{from}: {found}: {said}");
    }
    std::fs::write(&file, &text).expect("written");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    let (code, runs) = site.json(&["run"]);
    assert_eq!(code, 0, "{runs:#}");
    let rows: Vec<_> = runs.as_array().expect("runs").iter().map(|run| &run["rows"]).collect();
    assert_eq!(rows, [2_400, 1_200, 2_000], "{runs:#}");
    for (sql, expected) in [
        ("SELECT count(*) FROM jobs WHERE state IN ('done', 'failed')", 600),
        (
            "SELECT count(*) FROM jobs WHERE state = 'given up' AND finished_at < '2999-01-01'",
            1_200,
        ),
        ("SELECT count(*) FROM jobs WHERE attempts = 1 AND state = 'given up'", 1_200),
        ("SELECT count(*) FROM jobs WHERE attempts = 2", 2_400),
        ("SELECT count(*) FROM jobs", 3_600),
        ("SELECT count(*) FROM posts", 5_000),
        ("SELECT count(*) FROM posts WHERE deleted_at < '2999-01-01'", 0),
        ("SELECT count(*) FROM comments", 5_000),
    ] {
        let found: i64 = product.query_row(sql, [], |row| row.get(0)).expect("counted");
        assert_eq!(found, expected, "{sql}");
    }
    assert_eq!(site.json(&["audit"]).0, 0);
}

/// Messages refer to users in two ways and go with either; posts lose an editor and stay. A dependant that lacks the
/// anchor of a foreign key is refused: the database would delete its rows, and nobody would keep them.
/// `tests/tests/postgres_server/jobs.rs` has the same on PostgreSQL.
#[test]
fn rows_go_by_each_of_their_foreign_keys_and_come_back() {
    let site = Site::new("[store]\npath = \"app.db\"\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, deleted_at DATETIME);
             CREATE INDEX users_by_deletion ON users (deleted_at, id);
             CREATE TABLE messages (id INTEGER PRIMARY KEY,
               sender INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
               recipient INTEGER NOT NULL REFERENCES users ON DELETE CASCADE);
             CREATE INDEX messages_by_sender ON messages (sender);
             CREATE INDEX messages_by_recipient ON messages (recipient);
             CREATE TABLE posts (id INTEGER PRIMARY KEY,
               author INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
               editor INTEGER REFERENCES users ON DELETE SET NULL);
             CREATE INDEX posts_by_author ON posts (author);
             CREATE INDEX posts_by_editor ON posts (editor);
             INSERT INTO users VALUES (1, '2020-01-01 00:00:00'), (2, NULL), (3, NULL);
             INSERT INTO messages VALUES (10, 1, 2), (20, 2, 1), (30, 2, 3), (40, 1, 1);
             INSERT INTO posts VALUES (10, 1, 2), (20, 2, 1), (30, 2, 3);",
        )
        .expect("created");
    for table in ["users", "messages", "posts"] {
        let out = site.besom(&["config", "map", table, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let file = site.dir().join("besom.toml");
    let mapped = std::fs::read_to_string(&file).expect("read");
    let author = "\nanchor = { collection = \"users\", columns = [\"author\"] }\n";
    for line in [
        author,
        "\n# foreign key: editor refers to users; no anchor: the row stays, without the reference, when the other \
         one is deleted\n",
    ] {
        assert!(mapped.contains(line), "{line}: {mapped}");
    }
    let head = "[collections.users]\n";
    let with = format!("{head}dependants = [\"messages\", \"posts\"]\n");
    let text = mapped.replacen(head, &with, 1)
        + "\n[tasks.gone]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
           collections.rows = \"users\"\nsettings = { by = \"deleted_at\", older_than = \"30d\" }\n";
    let sender = "{ collection = \"users\", columns = [\"sender\"] }";
    for (from, to, code, words) in [
        (format!(", {sender}"), String::new(), 78, "deletes rows of messages (sender): those"),
        (
            author.to_owned(),
            author
                .replace("{ coll", "[{ coll")
                .replace(" }", " }, { collection = \"users\", columns = [\"editor\"] }]"),
            0,
            "rows of posts (editor) that refer to it are deleted as `dependants`",
        ),
        (
            "dependants = [\"messages\", \"posts\"]".to_owned(),
            "dependants = [\"messages\", \"posts\"]".to_owned(),
            0,
            "also changes rows of posts (editor)",
        ),
    ] {
        let changed = text.replacen(&from, &to, 1);
        assert_eq!(changed == text, from == to, "{from}: {text}");
        std::fs::write(&file, changed).expect("written");
        let (found, said) = site.fails(&["check", "--store"]);
        assert!(found == code && said.contains(words), "{from}: {found}: {said}");
    }
    let all = || -> String {
        let sql = "SELECT group_concat(r, ' ') FROM (
            SELECT 'u' || id AS r FROM users UNION ALL SELECT 'm' || id FROM messages
            UNION ALL SELECT 'p' || id || coalesce('e' || editor, '') FROM posts ORDER BY r)";
        product.query_row(sql, [], |row| row.get(0)).expect("read")
    };
    let (code, runs) = site.json(&["run"]);
    assert_eq!((code, &runs[0]["rows"]), (0, &Value::from(5)), "{runs:#}");
    assert_eq!(all(), "m30 p20 p30e3 u2 u3");
    assert_eq!(site.json(&["audit"]).0, 0);
    let (code, undone) = site.json(&["undo", "1", "--reason", "a test"]);
    assert_eq!((code, &undone["rows"]), (0, &Value::from(5)), "{undone:#}");
    assert_eq!(all(), "m10 m20 m30 m40 p10e2 p20 p30e3 u1 u2 u3");
}

/// A table without row ids whose key is compared otherwise by its column than by its index: a row that is named by
/// its key has to meet the bounds as well, with and without a trigger.
#[test]
fn a_row_with_a_key_that_a_collation_calls_equal_stays() {
    let site = Site::new(
        "[store]\npath = \"app.db\"\n[tasks.old]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
         collections.rows = \"t\"\nsettings = { by = \"at\", older_than = \"1d\" }\n\
         [collections.t]\nkey = [\"k\"]\n\
         columns = { k = \"text\", at = { type = \"timestamp\", encoding = \"seconds\" } }\n\
         indexes = { by_at = [\"at\"] }\n",
    );
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    let fill = "INSERT INTO t VALUES ('a', unixepoch() - 864000), ('A', unixepoch() + 864000)";
    product
        .execute_batch(&format!(
            "CREATE TABLE t (k TEXT COLLATE NOCASE, at INTEGER, PRIMARY KEY (k COLLATE BINARY)) WITHOUT ROWID;
             CREATE INDEX i ON t (at, k); {fill};"
        ))
        .expect("created");
    for trigger in ["", "CREATE TRIGGER g AFTER DELETE ON t BEGIN SELECT 1; END"] {
        product.execute_batch(trigger).expect("created");
        let (code, runs) = site.json(&["run", "old"]);
        assert_eq!((code, &runs[0]["rows"]), (0, &Value::from(1)), "{trigger}: {runs:#}");
        let left: String =
            product.query_row("SELECT group_concat(k) FROM t", [], |row| row.get(0)).expect("read");
        assert_eq!(left, "A", "{trigger}");
        product.execute_batch(&format!("DELETE FROM t; {fill}")).expect("filled");
    }
}

/// A scan may read `rows_read` rows in one call; rows that do not meet the condition count as well.
#[test]
fn a_condition_that_few_rows_meet_is_read_in_several_calls() {
    let site = Site::new(
        "[store]\npath = \"app.db\"\n[tasks.notes]\nplugin = \"retention\"\nschedule = \"@hourly\"\n\
         collections.rows = \"notes\"\n\
         settings = { by = \"at\", where = \"state = 'old'\", chunk = 100 }\n\
         [tasks.notes.limits]\nrows_read = 1000\n",
    );
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, state TEXT);
             CREATE INDEX notes_by_at ON notes (at);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 12000)
               INSERT INTO notes SELECT i, 1700000000 + i, iif(i % 5000 < 30, 'old', 'new') FROM c;",
        )
        .expect("created");
    let out = site.besom(&["config", "map", "notes", "--write"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (code, runs) = site.json(&["run"]);
    assert_eq!((code, &runs[0]["rows"]), (0, &Value::from(89)), "{runs:#}");
    let left = || -> i64 {
        product.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).expect("counted")
    };
    assert_eq!(left(), 12_000 - 89);
    // Also if every row meets it: a call reads as many whole parts as it may.
    let file = site.dir().join("besom.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    for (chunk, rows_left) in [("300", 5_000), ("1000", 2_000), ("2000", 0)] {
        let condition = format!("where = \"id > {rows_left}\", chunk = {chunk}");
        let text = text.replace("where = \"state = 'old'\", chunk = 100", &condition);
        std::fs::write(&file, text).expect("written");
        let (code, said) = site.fails(&["run"]);
        assert_eq!(code, 0, "{chunk}: {said}");
        let kept = (1..=rows_left).filter(|id| id % 5_000 >= 30).count() as i64;
        assert_eq!(left(), kept, "{chunk}");
    }
}
