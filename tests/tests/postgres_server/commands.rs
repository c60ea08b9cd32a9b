//! Commands over many dead letters, given by the verbs of the command line.

use besom_tests::conformance::block_on;

use super::granted::{SHARES, SUPERUSER, Site};

/// Expired shares, each of which is a dead letter while the trigger exists.
fn site_of_letters(letters: u32, keys: &str) -> Site {
    let site = Site::with(&format!("retry = {{ attempts_max = 1 }}\n{keys}"));
    site.product(&format!(
        "{SHARES}
         INSERT INTO shares SELECT 'p', 'over-' || n, 'f', now() - interval '1 day', 600, NULL
         FROM generate_series(2, {letters}) n;
         CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'not yet'; END $$;
         CREATE TRIGGER raises BEFORE UPDATE ON shares FOR EACH ROW EXECUTE FUNCTION raises()"
    ));
    let passed = site.json_with(1, SUPERUSER, &["run"]);
    assert_eq!(passed[0]["dead"], letters, "{passed:#}");
    site
}

/// A pass that finds nothing to plan because of dead letters says so, with the commands that help.
#[test]
fn a_retry_of_many_letters_takes_several_transactions_and_counts_all_of_them() {
    let site = site_of_letters(1_050, "[host]\ncommand_letters = 100");
    let blocked = site.besom(SUPERUSER, &["run"]);
    let said = String::from_utf8_lossy(&blocked.stderr);
    for words in [
        "1050 candidates of share-expiry not planned: 1050 open dead letters",
        "`besom dead ls --task share-expiry`",
        "`besom dead retry --task share-expiry`",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let blocked = site.json(SUPERUSER, &["run"]);
    let counts = ["planned", "dead", "blocked", "dead_open"].map(|key| blocked[0][key].as_u64());
    assert_eq!(counts, [0, 0, 1_050, 1_050].map(Some), "{blocked:#}");

    site.product("DROP TRIGGER raises ON shares");
    let retry = ["dead", "retry", "--all", "--expect", "1050", "--wait", "0s"];
    let asked = site.json(SUPERUSER, &retry);
    assert_eq!(asked["applied"], false, "{asked:#}");
    let passed = site.json(SUPERUSER, &["run"]);
    let counts = ["committed", "dead", "pending", "blocked"].map(|key| passed[0][key].as_u64());
    assert_eq!(counts, [1_050, 0, 0, 0].map(Some), "{passed:#}");
    let id = asked["command"].to_string();
    let shown = site.json(SUPERUSER, &["commands", "show", &id]);
    assert_eq!(shown["result"], "will be retried: 1050 dead letters", "{shown:#}");
    assert_eq!(site.json(SUPERUSER, &["audit"])["balanced"], true);
}

/// Another session holds the letters for longer than a statement waits.
#[test]
fn a_command_that_keeps_failing_is_logged_and_refused_with_the_reason() {
    let site = site_of_letters(30, "[host]\ncommand_attempts_max = 3");
    let asked = site.json(SUPERUSER, &["dead", "retry", "--all", "--wait", "0s"]);
    let id = asked["command"].to_string();
    block_on(async {
        let rival = site.database.connect().await;
        rival.batch_execute("BEGIN; SELECT * FROM besom.dead FOR UPDATE").await.expect("held");
        let run = ["run", "--set", "store.lock_timeout=100ms"];
        let passed = site.besom(SUPERUSER, &run);
        let said = String::from_utf8_lossy(&passed.stderr);
        assert_eq!(passed.status.code(), Some(0), "{said}");
        let logged = said.lines().filter(|line| line.contains("a command could not be applied"));
        let logged = logged.filter(|line| line.contains(&format!("command={id}"))).count();
        assert_eq!(logged, 3, "{said}");
        rival.batch_execute("ROLLBACK").await.expect("released");
    });
    let shown = site.json(SUPERUSER, &["commands", "show", &id]);
    assert_eq!(shown["refused"], true, "{shown:#}");
    let result = shown["result"].as_str().expect("why");
    assert!(result.starts_with("it failed 3 times in a row: the store is busy"), "{result}");
    assert!(result.contains("lock timeout"), "{result}");
    assert_eq!(
        site.json(SUPERUSER, &["dead", "ls", "--limit", "100"]).as_array().map(Vec::len),
        Some(30)
    );
}
