//! A host and a reader with the roles that `besom grants` prints.

use std::path::Path;
use std::process::{Command, Output};

use besom_tests::conformance::block_on;
use besom_tests::servers::postgres::{Database, Server};
use serde_json::Value;

/// The product's table, and an expired share.
pub(super) const SHARES: &str = "
CREATE TABLE shares (
    project_id text NOT NULL, share_id text NOT NULL, file_id text NOT NULL,
    start_date timestamptz NOT NULL, limit_seconds bigint, unshared_at timestamptz,
    PRIMARY KEY (project_id, share_id));
CREATE INDEX shares_by_unshared_start ON shares (project_id, unshared_at, start_date, share_id);
CREATE INDEX shares_by_unshared_limit
    ON shares (project_id, unshared_at, limit_seconds, start_date, share_id);
INSERT INTO shares VALUES ('p', 'over', 'f', now() - interval '1 day', 600, NULL);
CREATE TABLE secrets (id int);";

pub(super) const SUPERUSER: &str = "postgres";

/// A directory with a configuration, and a database.
pub(super) struct Site {
    pub(super) directory: tempfile::TempDir,
    pub(super) database: Database,
}

impl Site {
    fn new() -> Site {
        Site::with("")
    }

    /// The task has these keys in addition.
    pub(super) fn with(task: &str) -> Site {
        let site = Site {
            directory: tempfile::tempdir().expect("a directory"),
            database: Server::shared().bare(),
        };
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
        let config = format!(
            "[store]\nurl = {:?}\n[tasks.share-expiry]\nplugin = \"share-expiry\"\n\
             schedule = \"@every 1m\"\n{task}\n[runtime]\ncache = {:?}\n",
            site.database.url_of("e2e_host"),
            cache.display().to_string()
        );
        std::fs::write(site.directory.path().join("besom.toml"), config).expect("written");
        site
    }

    pub(super) fn besom(&self, role: &str, args: &[&str]) -> Output {
        self.command(role, args).output().expect("the binary runs")
    }

    /// A verb, ready to be started.
    pub(super) fn command(&self, role: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
        command
            .args(args)
            .env("BESOM_STORE_URL", self.database.url_of(role))
            .env_remove("BESOM_CONFIG")
            .env("BESOM_HOST_DEFAULT_MODE", "live")
            .current_dir(self.directory.path());
        command
    }

    #[track_caller]
    pub(super) fn json(&self, role: &str, args: &[&str]) -> Value {
        self.json_with(0, role, args)
    }

    /// The same with another exit code.
    #[track_caller]
    pub(super) fn json_with(&self, code: i32, role: &str, args: &[&str]) -> Value {
        let out = self.besom(role, &[args, &["--output", "json"]].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}\n{said}"))
    }

    /// A pass of the only task commits and sets aside so many items, and leaves none.
    #[track_caller]
    fn passes(&self, committed: u64, dead: u64) {
        let passed = self.json_with(i32::from(dead > 0), SUPERUSER, &["run"]);
        let counts = ["committed", "dead", "pending"].map(|key| passed[0][key].as_u64());
        assert_eq!(counts, [committed, dead, 0].map(Some), "{passed:#}");
    }

    /// Runs statements of the product.
    pub(super) fn product(&self, sql: &str) {
        block_on(async {
            let product = self.database.connect().await;
            product.batch_execute(sql).await.expect("the product's statements");
        });
    }
}

/// Without a row there is no tenant to scan for, and one has to be made up.
#[test]
fn a_table_without_candidates_is_checked_whatever_the_type_of_its_tenants() {
    for ty in ["bigint", "uuid", "text"] {
        let site = Site::new();
        let none = SHARES.replace("project_id text", &format!("project_id {ty}"));
        let none = none.lines().filter(|line| !line.starts_with("INSERT")).collect::<Vec<_>>();
        site.product(&none.join("\n"));
        // A check creates no tables of Besom's own, and says that they are missing; a pass does.
        let new = site.json(SUPERUSER, &["check", "--store"]);
        assert_eq!((&new["errors"], &new["warnings"]), (&0.into(), &1.into()), "{ty}: {new:#}");
        let said = new["diagnostics"][0]["message"].as_str().unwrap_or_default();
        assert!(said.starts_with("there is no schema \"besom\""), "{said}");
        let refused = site.besom(SUPERUSER, &["undo", "1", "--dry-run"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(69), "{said}");
        assert!(said.contains("no tables of Besom") && !said.contains("check --store"), "{said}");
        assert_eq!(site.json(SUPERUSER, &["check", "--store"])["warnings"], 1, "it is as it was");
        let ran = site.besom(SUPERUSER, &["run"]);
        assert_eq!(ran.status.code(), Some(0), "{ty}: {ran:?}");
        let checked = site.json(SUPERUSER, &["check", "--store"]);
        assert_eq!(
            (&checked["errors"], &checked["warnings"]),
            (&0.into(), &0.into()),
            "{ty}: {checked:#}"
        );
        // What the scan is refused for is found nevertheless.
        site.product("DROP INDEX shares_by_unshared_start");
        let refused = site.besom(SUPERUSER, &["check", "--store"]);
        assert_eq!(refused.status.code(), Some(78), "{ty}: {refused:?}");
    }
}

#[test]
fn a_pass_and_the_verbs_that_look_need_no_more_than_besom_prints() {
    let site = Site::new();
    let (host, reader) = ("e2e_host", "e2e_reader");
    let printed = site.besom(host, &["grants", "--reader", reader]);
    assert_eq!(printed.status.code(), Some(0), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).expect("a text");
    for line in [
        "-- REVOKE CREATE ON SCHEMA public FROM PUBLIC;",
        "-- ALTER ROLE \"e2e_host\" CONNECTION LIMIT ",
    ] {
        assert!(printed.lines().any(|found| found.starts_with(line)), "{line}: {printed}");
    }
    site.product(SHARES);
    // The suggested statements are run as well: they remove no right that is needed.
    site.product(&printed.replace("-- REVOKE", "REVOKE").replace("-- ALTER", "ALTER"));

    let checked = site.json(host, &["check", "--store"]);
    assert_eq!(checked["warnings"], 0, "{checked:#}");
    let passed = site.json(host, &["run"]);
    assert_eq!(passed[0]["committed"], 1, "{passed:#}");
    let open = block_on(async {
        let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
        site.database.connect().await.query_one(sql, &[]).await.expect("a count").get::<_, i64>(0)
    });
    assert_eq!(open, 0);

    let audit = site.json(reader, &["audit"]);
    assert_eq!(audit["balanced"], true, "{audit:#}");
    let status = site.json(reader, &["status"]);
    assert_eq!(status["tasks"][0]["task"], "share-expiry", "{status:#}");
    for args in [
        &["runs", "ls"][..],
        &["dead", "ls"],
        &["commands", "ls"],
        &["outbox", "ls"],
        &["task", "show", "share-expiry"],
    ] {
        site.json(reader, args);
    }
    let pause = ["task", "pause", "share-expiry", "--reason", "r", "--wait", "0s"];
    let refused = site.besom(reader, &pause);
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    assert_eq!(site.json(reader, &["commands", "ls"]), serde_json::json!([]));
}

/// Statements name the columns that tasks set, and what an undo needs is suggested, and named by the check.
#[test]
fn a_role_sets_only_the_columns_of_its_tasks_and_is_told_what_an_undo_needs() {
    let columns = "key = [\"id\"]\nindexes = { by_end = [\"ended_at\", \"id\"] }\n\
                   columns = { id = \"integer\", state = \"text\", ended_at = \"timestamp\" }\n";
    let site = Site::with(&format!(
        "[collections.jobs]\n{columns}[collections.logs]\n{columns}\
         [tasks.close]\nplugin = \"retention\"\ncollections.rows = \"jobs\"\n\
         settings = {{ by = \"ended_at\", older_than = \"1d\", where = \"state = 'open'\", action = \"set\", set = \"state = 'closed'\" }}\n\
         [tasks.prune]\nplugin = \"retention\"\ncollections.rows = \"logs\"\n\
         settings = {{ by = \"ended_at\", older_than = \"1d\" }}\n"
    ));
    let host = "e2e_host";
    let printed = site.besom(host, &["grants", "--reader", "e2e_reader"]);
    let printed = String::from_utf8(printed.stdout).expect("a text");
    for line in [
        "GRANT SELECT, UPDATE (\"state\") ON \"jobs\" TO \"e2e_host\";",
        "GRANT SELECT, UPDATE (\"id\"), DELETE ON \"logs\" TO \"e2e_host\";",
        "-- GRANT INSERT ON \"logs\" TO \"e2e_host\";",
        "-- GRANT INSERT ON \"jobs\" TO \"e2e_host\";",
        "-- GRANT UPDATE ON \"logs\" TO \"e2e_host\";",
    ] {
        assert!(printed.lines().any(|found| found == line), "{line}: {printed}");
    }
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (id int PRIMARY KEY, state text, ended_at timestamptz NOT NULL);
             CREATE INDEX ON {name} (ended_at, id);
             INSERT INTO {name} SELECT i, 'open', now() - interval '2 days' FROM generate_series(1, 9) i;"
        )
    };
    site.product(&format!("{SHARES}{}{}{printed}", table("jobs"), table("logs")));
    let checked = site.json(host, &["check", "--store"]);
    let said = checked["diagnostics"][0]["message"].as_str().unwrap_or_default();
    assert_eq!(checked["warnings"], 1, "{checked:#}");
    assert!(
        said.contains("`logs`") && said.contains("GRANT INSERT ON logs TO \"e2e_host\""),
        "{said}"
    );
    // Besides what the warning is about, the role has all rights.
    site.json(host, &["run"]);
    let runs = site.json(host, &["runs", "ls"]);
    let run_of = |task: &str| {
        let runs = runs.as_array().expect("runs");
        let own = runs.iter().find(|run| run["task"] == task && run["planned"] == 1);
        own.unwrap_or_else(|| panic!("{runs:#?}"))["run"].to_string()
    };
    let undone = site.json(host, &["undo", &run_of("close"), "--reason", "x"]);
    assert_eq!(undone["rows"], 9, "{undone:#}");
    let prune = run_of("prune");
    assert_eq!(site.json_with(1, host, &["undo", &prune, "--reason", "x"])["rows"], 0);
    // A row has taken the key of one that is gone.
    let forcing =
        printed.lines().filter(|line| line.starts_with("-- GRANT") && line.contains("logs"));
    let forcing: Vec<&str> = forcing.map(|line| line.trim_start_matches("-- ")).collect();
    site.product(&format!("{}INSERT INTO logs VALUES (5, 'new', now())", forcing.join("")));
    assert_eq!(site.json(host, &["check", "--store"])["warnings"], 0);
    let keys = site.directory.path().join("keys");
    std::fs::write(&keys, "logs (5)\n").expect("written");
    let keys = keys.display().to_string();
    let forced = site.json(host, &["undo", &prune, "--force-keys", &keys, "--reason", "x"]);
    assert_eq!(forced["rows"], 9, "{forced:#}");
}

/// A pass would never end if it waited for a database that a trigger declares to be away.
#[test]
fn a_row_whose_trigger_raises_a_shutdown_becomes_a_dead_letter_and_its_neighbours_are_committed() {
    let site = Site::with("retry = { attempts_max = 1 }");
    site.product(&format!(
        "{SHARES}
         INSERT INTO shares SELECT 'p', 'over-' || n, 'f', now() - interval '1 day', 600, NULL
         FROM generate_series(1, 9) n;
         CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'shutting down' USING ERRCODE = '57P01'; END $$;
         CREATE TRIGGER raises BEFORE UPDATE ON shares FOR EACH ROW
         WHEN (old.share_id = 'over') EXECUTE FUNCTION raises()"
    ));
    site.passes(9, 1);
    let dead = site.json(SUPERUSER, &["dead", "ls"]);
    let error = dead[0]["error"].as_str().expect("why");
    assert!(error.contains("shutting down (57P01)"), "{error}");
    assert_eq!(site.json(SUPERUSER, &["audit"])["balanced"], true);
}

/// So many rows that raise stand before the good ones that no good row is tried among the first.
#[test]
fn rows_whose_triggers_raise_any_sqlstate_become_dead_letters_and_the_others_are_committed() {
    let site = Site::with("retry = { attempts_max = 1 }");
    site.product(&format!(
        "{SHARES}
         INSERT INTO shares SELECT 'p', code || '-' || n, 'f', now() - interval '1 day', 600, NULL
         FROM generate_series(1, 3) n,
           unnest(ARRAY['0A000', '42P01', '42501', '42703', '55006', '57P01']) code;
         INSERT INTO shares SELECT 'p', 'sound-' || n, 'f', now() - interval '1 day', 600, NULL
         FROM generate_series(1, 9) n;
         CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'not this one'
             USING ERRCODE = split_part(old.share_id, '-', 1); END $$;
         CREATE TRIGGER raises BEFORE UPDATE ON shares FOR EACH ROW
         WHEN (old.share_id ~ '^[0-9]') EXECUTE FUNCTION raises()"
    ));
    // The share `over` is one of the tables' own rows.
    site.passes(10, 18);
    let dead = site.json(SUPERUSER, &["dead", "ls", "--limit", "100"]);
    for letter in dead.as_array().expect("letters") {
        let key = letter["key"].as_str().expect("a key");
        let code = key.split(['/', '-']).find(|part| part.len() == 5).expect(key);
        let error = letter["error"].as_str().expect("why");
        assert!(error.contains(&format!("not this one ({code})")), "{key}: {error}");
    }
    assert_eq!(site.json(SUPERUSER, &["audit"])["balanced"], true);
}
