//! Retention by the indexes that products have: of jobs by their state and end, and of deleted rows alone.

use std::path::Path;
use std::process::Command;

use besom_tests::conformance::block_on;
use besom_tests::servers::postgres::{Disk, Server};
use serde_json::Value;

/// The plan of each statement is logged.
const SETTINGS: [&str; 3] =
    ["session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0", "jit=off"];

/// Tables like those of Oban, GoodJob and Solid Queue, with their indexes, and posts with a tenant of which one in ten is
/// deleted, with comments. Of 20,000 rows 15,000 are old, and thousands of them ended at the same moment.
const TABLES: &str = r#"
CREATE TYPE oban_job_state AS ENUM
  ('available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state oban_job_state NOT NULL DEFAULT 'available',
  queue text NOT NULL DEFAULT 'default', worker text NOT NULL, args jsonb NOT NULL DEFAULT '{}',
  errors jsonb[] NOT NULL DEFAULT ARRAY[]::jsonb[], attempt integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL DEFAULT 20, inserted_at timestamp NOT NULL DEFAULT timezone('UTC', now()),
  scheduled_at timestamp NOT NULL DEFAULT timezone('UTC', now()), attempted_at timestamp, completed_at timestamp,
  attempted_by text[], discarded_at timestamp, priority integer NOT NULL DEFAULT 0, tags text[], meta jsonb,
  cancelled_at timestamp);
CREATE INDEX oban_jobs_args_index ON oban_jobs USING gin (args);
CREATE INDEX oban_jobs_state_queue_priority_scheduled_at_id_index
  ON oban_jobs (state, queue, priority, scheduled_at, id);
CREATE INDEX oban_jobs_state_cancelled_at_index ON oban_jobs (state, cancelled_at);
CREATE INDEX oban_jobs_state_discarded_at_index ON oban_jobs (state, discarded_at);

CREATE TABLE good_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue_name text, priority integer,
  serialized_params jsonb, scheduled_at timestamp(6), performed_at timestamp(6), finished_at timestamp(6), error text,
  created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL, retried_good_job_id uuid);
CREATE INDEX index_good_jobs_jobs_on_finished_at ON good_jobs (finished_at)
  WHERE retried_good_job_id IS NULL AND finished_at IS NOT NULL;
CREATE INDEX index_good_jobs_on_discarded ON good_jobs (finished_at)
  WHERE finished_at IS NOT NULL AND error IS NOT NULL;
CREATE INDEX index_good_jobs_on_scheduled_at ON good_jobs (scheduled_at) WHERE finished_at IS NULL;

CREATE TABLE solid_queue_jobs (id bigserial PRIMARY KEY, queue_name varchar NOT NULL, class_name varchar NOT NULL,
  arguments text, priority integer NOT NULL DEFAULT 0, active_job_id varchar, scheduled_at timestamp(6),
  finished_at timestamp(6), created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL);
CREATE INDEX index_solid_queue_jobs_for_filtering ON solid_queue_jobs (queue_name, finished_at);
CREATE INDEX index_solid_queue_jobs_for_alerting ON solid_queue_jobs (scheduled_at, finished_at);
CREATE INDEX index_solid_queue_jobs_on_finished_at ON solid_queue_jobs (finished_at);
CREATE TABLE old_jobs (LIKE solid_queue_jobs INCLUDING DEFAULTS, PRIMARY KEY (id));

CREATE TABLE posts (team_id integer, id integer, title text, deleted_at timestamptz, PRIMARY KEY (team_id, id));
CREATE INDEX index_posts_on_deleted_at ON posts (team_id, deleted_at) WHERE deleted_at IS NOT NULL;
CREATE TABLE comments (team_id integer, id integer, post_id integer NOT NULL, PRIMARY KEY (team_id, id),
  FOREIGN KEY (team_id, post_id) REFERENCES posts);
CREATE INDEX ON comments (team_id, post_id);

CREATE VIEW n AS SELECT i, i % 10 AS one,
  CASE WHEN i <= 15000 THEN timestamp '2020-01-01 08:00' + i % 3 * interval '1 day' ELSE '2999-01-01' END AS at
  FROM generate_series(1, 20000) i;
INSERT INTO oban_jobs (state, queue, worker, scheduled_at, discarded_at, cancelled_at)
  SELECT (CASE one WHEN 0 THEN 'discarded' WHEN 1 THEN 'cancelled' WHEN 2 THEN 'completed' ELSE 'available' END)
    ::oban_job_state, CASE i % 4 WHEN 0 THEN 'default' ELSE 'mail' END, 'w', at,
    CASE one WHEN 0 THEN at END, CASE one WHEN 1 THEN at END FROM n;
INSERT INTO good_jobs (finished_at, error, created_at, updated_at)
  SELECT CASE WHEN one < 2 THEN at END, CASE one WHEN 0 THEN 'e' WHEN 9 THEN 'e' END, at, at FROM n;
INSERT INTO solid_queue_jobs (queue_name, class_name, finished_at, created_at, updated_at)
  SELECT CASE one WHEN 0 THEN 'mail' WHEN 1 THEN 'default' ELSE 'other' END, 'c', at, at, at FROM n;
INSERT INTO posts SELECT i % 3, i, 't', CASE WHEN one = 0 THEN at END FROM n;
INSERT INTO comments SELECT i % 3, i, i FROM n;
"#;

#[test]
fn rows_are_swept_by_the_indexes_that_products_have() {
    let server: &'static Server = Box::leak(Box::new(Server::start(Disk::Ignored, &SETTINGS)));
    let database = server.empty();
    database.sql(TABLES);
    database.sql("VACUUM ANALYZE");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("besom.toml");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
    let (url, cache) = (database.url(), cache.display().to_string());
    let head = format!("[store]\nurl = {url:?}\n[runtime]\ncache = {cache:?}\n");
    std::fs::write(&file, head).expect("written");
    let besom = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
        command.args(args).current_dir(directory.path()).env_remove("BESOM_CONFIG");
        let out = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.success(), out.stdout, said)
    };
    let fine = |args: &[&str]| {
        let (is_fine, out, said) = besom(args);
        assert!(is_fine, "{args:?}: {said}");
        out
    };
    for table in ["oban_jobs", "good_jobs", "solid_queue_jobs", "old_jobs"] {
        fine(&["config", "map", table, "--write"]);
    }
    for table in ["posts", "comments"] {
        fine(&["config", "map", table, "--tenant", "team_id", "--write"]);
    }
    let mapped = std::fs::read_to_string(&file).expect("read");
    for line in [
        "state_queue_priority_scheduled_at = [\"state\", \"queue\", \"priority\", \"scheduled_at\"]",
        "# no index begins with a timestamp or a date, as `retention` needs it unless its `where` or `per` names \
         the columns before it: CREATE INDEX CONCURRENTLY \"oban_jobs_by_attempted_at\" ON \"oban_jobs\" (\"attempted_at\", \"id\")",
        "# the index index_good_jobs_jobs_on_finished_at covers only some of the rows, and is not used",
        "finished_at = { columns = [\"finished_at\"], not_null = [\"finished_at\", \"error\"] }",
        "deleted_at = { columns = [\"deleted_at\"], not_null = [\"deleted_at\"] }",
    ] {
        assert!(mapped.contains(&format!("\n{line}\n")), "{line}: {mapped}");
    }
    let posts = "[collections.posts]\n";
    let mut text = mapped.replacen(posts, &format!("{posts}dependants = [\"comments\"]\n"), 1);
    for (task, rows, settings) in [
        ("a", "rows = \"oban_jobs\"", "by = \"discarded_at\", where = \"state = 'discarded'\""),
        (
            "b",
            "rows = \"oban_jobs\"",
            "by = \"cancelled_at\", where = \"state in ('retryable', 'cancelled')\", action = \"set\", \
             set = \"cancelled_at = null, attempt = attempt + 3\"",
        ),
        (
            "c",
            "rows = \"oban_jobs\"",
            "by = \"scheduled_at\", where = \"state = 'completed' and queue in ('mail', 'default') and priority = 0\"",
        ),
        ("d", "rows = \"good_jobs\"", "by = \"finished_at\", where = \"error is not null\""),
        (
            "e",
            "rows = \"solid_queue_jobs\", into = \"old_jobs\"",
            "by = \"finished_at\", where = \"queue_name in ('default', 'mail')\", action = \"archive\"",
        ),
        ("f", "rows = \"posts\"", "by = \"deleted_at\""),
    ] {
        text.push_str(&format!(
            "[tasks.{task}]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
             collections = {{ {rows} }}\nsettings = {{ {settings}, older_than = \"30d\" }}\n"
        ));
    }
    // An index with fewer rows than the mapping says.
    let partial = "{ columns = [\"deleted_at\"], not_null = [\"deleted_at\"] }";
    std::fs::write(&file, text.replacen(partial, "[\"deleted_at\"]", 1)).expect("written");
    let (is_fine, _, said) = besom(&["check", "--store"]);
    let fix = "but one over some: if the task may leave out the others, write { columns, not_null = [\"deleted_at\"] }";
    assert!(!is_fine && said.contains(fix), "{said}");
    // One that lacks rows that are meant.
    std::fs::write(&file, text.replacen("error is not null", "", 1)).expect("written");
    let (is_fine, _, said) = besom(&["check"]);
    assert!(!is_fine && said.contains("no mapped index begins with `finished_at`"), "{said}");
    // Values that the columns refuse, at their places.
    let set = "set = \"cancelled_at = null, ";
    for (from, to, place, words) in [
        ("'discarded'", "'discardd'", "'discardd'", "did you mean `discarded`?"),
        (
            set,
            "set = \"cancelled_at = null, state = 'available?', ",
            "'available?'",
            "no label of the type oban_job_state",
        ),
        (
            set,
            "set = \"cancelled_at = null, queue = null, ",
            "null, attempt",
            "`queue` is NOT NULL",
        ),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from}");
        std::fs::write(&file, &wrong).expect("written");
        let (is_fine, _, said) = besom(&["check", "--store"]);
        let at = wrong.lines().find_map(|line| line.find(place)).expect("a line");
        let column = format!(":{}: error: ", at + 1);
        assert!(!is_fine && said.contains(words) && said.contains(&column), "{to}: {said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
    }

    std::fs::write(&file, &text).expect("written");
    fine(&["check", "--store"]);
    let before = server.log().len();
    let passed: Value = serde_json::from_slice(&fine(&["run", "--output", "json"])).expect("JSON");
    let log = server.log().split_off(before);
    let rows = passed.as_array().expect("tasks").iter().map(|task| &task["rows"]);
    let expected = [1_500, 1_500, 1_500, 1_500, 3_000, 3_000];
    assert!(rows.eq(expected.iter()), "{passed:#}");
    block_on(async {
        let product = database.connect().await;
        for (sql, expected) in [
            ("SELECT count(*) FROM oban_jobs", 17_000),
            ("SELECT count(*) FROM oban_jobs WHERE state IN ('discarded', 'completed')", 1_000),
            (
                "SELECT count(*) FROM oban_jobs WHERE state = 'cancelled' AND cancelled_at IS NULL AND attempt = 3",
                1_500,
            ),
            ("SELECT count(*) FROM good_jobs", 18_500),
            ("SELECT count(*) FROM good_jobs WHERE finished_at < now() AND error IS NULL", 1_500),
            ("SELECT count(*) FROM solid_queue_jobs", 17_000),
            (
                "SELECT count(*) FROM old_jobs WHERE queue_name <> 'other' AND finished_at < now()",
                3_000,
            ),
            ("SELECT count(*) FROM posts", 18_500),
            ("SELECT count(*) FROM posts WHERE deleted_at < now()", 0),
            ("SELECT count(*) FROM comments", 18_500),
        ] {
            let found = product.query_one(sql, &[]).await.expect("counted");
            assert_eq!(found.get::<_, i64>(0), expected, "{sql}");
        }
    });
    fine(&["audit"]);

    for (index, table) in [
        ("oban_jobs_state_discarded_at_index", "oban_jobs"),
        ("oban_jobs_state_cancelled_at_index", "oban_jobs"),
        ("oban_jobs_state_queue_priority_scheduled_at_id_index", "oban_jobs"),
        ("index_good_jobs_on_discarded", "good_jobs"),
        ("index_solid_queue_jobs_for_filtering", "solid_queue_jobs"),
        ("index_posts_on_deleted_at", "posts"),
    ] {
        // Rows with the same value are sorted by their keys, and no others.
        let read = log.split("Query Text: ").filter(|explained| {
            explained.contains(&format!(" on {table} ")) && explained.contains("(true")
        });
        let mut by_it = 0;
        for explained in read {
            assert!(!explained.contains(&format!("Seq Scan on {table} ")), "{explained}");
            let is_by_it = explained.contains(index);
            by_it += u32::from(is_by_it);
        }
        assert!(by_it > 0, "no read by {index}:\n{log}");
    }
}

/// Messages refer to users in two ways and go with either; posts lose an editor and stay. The same on SQLite is in
/// `host/tests/cli.rs`.
#[test]
fn rows_go_by_each_of_their_foreign_keys_and_come_back() {
    let server: &'static Server = Box::leak(Box::new(Server::start(Disk::Ignored, &SETTINGS)));
    let database = server.empty();
    database.sql(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE INDEX users_by_deletion ON users (deleted_at, id);
         CREATE TABLE messages (id bigint PRIMARY KEY,
           sender bigint NOT NULL REFERENCES users ON DELETE CASCADE,
           recipient bigint NOT NULL REFERENCES users ON DELETE CASCADE);
         CREATE INDEX messages_by_sender ON messages (sender);
         CREATE INDEX messages_by_recipient ON messages (recipient);
         CREATE TABLE posts (id bigint PRIMARY KEY,
           author bigint NOT NULL REFERENCES users ON DELETE CASCADE,
           editor bigint REFERENCES users ON DELETE SET NULL);
         CREATE INDEX posts_by_author ON posts (author);
         INSERT INTO users VALUES (1, '2020-01-01'), (2, '2020-01-02'), (3, NULL), (4, NULL);
         INSERT INTO messages VALUES (10, 1, 3), (20, 3, 1), (30, 3, 4), (40, 1, 1), (50, 1, 2);
         INSERT INTO posts VALUES (10, 1, 3), (20, 3, 1), (30, 3, 4)",
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("besom.toml");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
    let (url, cache) = (database.url(), cache.display().to_string());
    let head = format!("[store]\nurl = {url:?}\n[runtime]\ncache = {cache:?}\n");
    std::fs::write(&file, head).expect("written");
    let besom = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
        command.args(args).current_dir(directory.path()).env_remove("BESOM_CONFIG");
        let out = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{args:?}: {said}");
        (out.stdout, said)
    };
    for table in ["users", "messages", "posts"] {
        besom(&["config", "map", table, "--write"]);
    }
    let mapped = std::fs::read_to_string(&file).expect("read");
    let users = "[collections.users]\n";
    let with = format!("{users}dependants = [\"messages\", \"posts\"]\n");
    let text = mapped.replacen(users, &with, 1)
        + "\n[tasks.gone]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
           collections.rows = \"users\"\nsettings = { by = \"deleted_at\", older_than = \"30d\" }\n";
    std::fs::write(&file, text).expect("written");
    let (_, said) = besom(&["check", "--store"]);
    assert!(said.contains("also changes rows of posts (editor)"), "{said}");
    let all = || {
        let sql = "SELECT string_agg(r, ' ' ORDER BY r COLLATE \"C\") FROM (
            SELECT 'u' || id AS r FROM users UNION ALL SELECT 'm' || id FROM messages
            UNION ALL SELECT 'p' || id || coalesce('e' || editor, '') FROM posts) x";
        block_on(async {
            let product = database.connect().await;
            product.query_one(sql, &[]).await.expect("read").get::<_, String>(0)
        })
    };
    let (out, _) = besom(&["run", "--output", "json"]);
    let runs: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(runs[0]["rows"], 7, "{runs:#}");
    assert_eq!(all(), "m30 p20 p30e4 u3 u4");
    besom(&["audit"]);
    besom(&["undo", "1", "--reason", "a test"]);
    assert_eq!(all(), "m10 m20 m30 m40 m50 p10e3 p20 p30e4 u1 u2 u3 u4");
}
