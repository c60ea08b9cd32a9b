//! `besom plugin` and `besom task pin`, and a plugin file that is replaced or not signed.

use besom_doubles::signer::Signer;
use serde_json::Value;

use crate::load::{SECOND_US, now_us};
use crate::reload::{SWEEP, runs, shares_every};
use crate::site::{Site, wait_for};

const FILE: &str = "plugins.d/sweep.wasm";

fn site() -> Site {
    let site = Site::new(SWEEP);
    site.create_tables();
    site.database()
        .execute_batch(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX sessions_by_expiry ON sessions (expires_at, session_id);",
        )
        .expect("a table");
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    site
}

/// Replaces the plugin's file by one with the same code and an additional section.
fn replace(site: &Site) {
    let mut bytes = std::fs::read(site.path(FILE)).expect("the plugin");
    // A custom section: its size, and a name of four letters.
    bytes.extend([0, 6, 4, b'n', b'o', b't', b'e', 1]);
    // It is renamed into place, as deployments do, so that a host never reads a partial file.
    std::fs::write(site.path("new.wasm"), bytes).expect("written");
    std::fs::rename(site.path("new.wasm"), site.path(FILE)).expect("renamed");
}

/// The only plugin that `plugin ls` knows.
#[track_caller]
fn listed(site: &Site) -> Value {
    let (code, rows) = site.json(&["plugin", "ls"]);
    assert_eq!((code, rows.as_array().map(Vec::len)), (0, Some(1)), "{rows:#}");
    rows[0].clone()
}

#[test]
fn a_pin_is_written_kept_and_compared_with_the_file_that_is_there() {
    let site = site();
    let before = listed(&site);
    assert_eq!(
        (&before["plugin"], &before["pin"], &before["fault"]),
        (&"sweep.wasm".into(), &"not pinned".into(), &Value::Null)
    );
    let (code, pinned) = site.json(&["plugin", "pin", "sweep", "--reason", "reviewed"]);
    assert_eq!((code, &pinned[0]["written"]), (0, &Value::Bool(true)), "{pinned:#}");
    assert_eq!(pinned[0]["digest"], before["digest"]);
    let asks = pinned[0]["asks"].as_array().expect("what it asks for");
    assert!(asks.contains(&"delete sessions".into()), "{asks:?}");
    let digest = before["digest"].as_str().expect("a digest");
    let text = std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    assert!(text.contains(&format!("sha256 = \"{digest}\"")), "{text}");
    assert_eq!(listed(&site)["pin"], "pinned");
    let (_, kept) = site.json(&["commands", "ls"]);
    let row = &kept[0];
    assert!(row["what"].as_str().is_some_and(|what| what.contains(digest)), "{row:#}");
    assert_eq!(row["reason"], "reviewed");
    // The second time, nothing is written and nothing is recorded.
    let (_, again) = site.json(&["plugin", "pin", "--all"]);
    assert_eq!(again[0]["written"], false, "{again:#}");
    assert_eq!(site.json(&["commands", "ls"]).1, kept);

    // A pass loads the file; then it is replaced.
    assert_eq!(site.json(&["run"]).0, 0);
    replace(&site);
    let now = listed(&site);
    assert_eq!(now["pin"], "differs");
    assert_ne!(now["digest"], before["digest"]);
    let (code, diff) = site.json(&["plugin", "diff", "sweep"]);
    assert_eq!(code, 0, "{diff:#}");
    assert_eq!(
        (&diff["before"], &diff["pinned"], &diff["now"]),
        (&before["digest"], &before["digest"], &now["digest"])
    );
    assert_eq!((&diff["added"], &diff["removed"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    // The new file is not run.
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("sweep.wasm"), "{said}");
    assert_eq!(site.said(&["plugin", "pin", "nobody"]).0, 2);
}

#[test]
fn a_pinned_file_that_is_replaced_is_refused_and_the_code_that_runs_stays() {
    let site = site();
    assert_eq!(site.json(&["plugin", "pin", "sweep"]).0, 0);
    let db = site.database();
    let sweeps = |name: &str| {
        let row = rusqlite::params![name, now_us() / SECOND_US - 60];
        db.execute("INSERT INTO sessions VALUES (?1, ?2)", row).expect("a session");
        wait_for("the session to be swept", || {
            let sql = "SELECT count(*) FROM sessions";
            db.query_row(sql, [], |row| row.get::<_, u64>(0)).ok().filter(|left| *left == 0)
        });
    };
    let mut host = site.serve();
    host.leads();
    sweeps("before");
    let loads = |site: &Site| -> Vec<String> {
        let (_, kept) = site.json(&["commands", "ls"]);
        let kept = kept.as_array().expect("commands").clone();
        let what = kept.iter().filter_map(|row| row["what"].as_str());
        what.filter(|what| what.starts_with("load ")).map(str::to_owned).collect()
    };
    let before = loads(&site);
    assert_eq!(before.len(), 1, "{before:?}");

    replace(&site);
    host.says("refused");
    let fault = wait_for("the refusal in the status", || {
        let (_, status) = site.json(&["status"]);
        status["nodes"][0]["config_fault"].as_str().map(str::to_owned)
    });
    assert!(fault.contains("sweep.wasm") && fault.contains("sha256"), "{fault}");
    sweeps("afterwards");
    assert_eq!(loads(&site), before, "nothing else was taken up");

    // The operator pins the new file: it is loaded, and the load is recorded.
    assert_eq!(site.json(&["plugin", "pin", "sweep", "--reason", "the new one"]).0, 0);
    host.says(" reloaded");
    sweeps("by the new one");
    wait_for("the load to be kept", || (loads(&site).len() == 2).then_some(()));
    let (_, kept) = site.json(&["commands", "ls"]);
    let reload = kept
        .as_array()
        .expect("commands")
        .iter()
        .find_map(|row| row["what"].as_str().filter(|what| what.starts_with("reload ")));
    let reload = reload.unwrap_or_else(|| panic!("{kept:#}"));
    assert!(reload.contains("changed sweep: plugin sweep.wasm "), "{reload}");
    host.stop();
    site.balanced();
}

/// The emergency stop of a task is its removal from the file, whatever has become of other files.
#[test]
fn a_task_is_removed_although_the_file_of_another_was_replaced() {
    let site = site();
    assert_eq!(site.json(&["plugin", "pin", "sweep"]).0, 0);
    let pinned = std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    let rewrite = |text: String| {
        std::fs::write(site.path("besom.toml.new"), text).expect("written");
        std::fs::rename(site.path("besom.toml.new"), site.path("besom.toml")).expect("renamed");
    };
    rewrite(format!("{pinned}\n{}", shares_every("@every 1s")));
    let mut host = site.serve();
    host.leads();
    let names = || -> Vec<String> {
        let (_, status) = site.json(&["status"]);
        let tasks = status["tasks"].as_array().expect("tasks").clone();
        tasks.iter().filter_map(|task| task["task"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(), ["share-expiry", "sweep"]);
    replace(&site);
    host.says("refused");
    rewrite(pinned);
    host.says("reloaded");
    host.says("keep the code that they run with");
    let db = site.database();
    let before = runs(&db, "share-expiry");
    let row = rusqlite::params!["afterwards", now_us() / SECOND_US - 60];
    db.execute("INSERT INTO sessions VALUES (?1, ?2)", row).expect("a session");
    wait_for("the other task to work on", || {
        let sql = "SELECT count(*) FROM sessions";
        db.query_row(sql, [], |row| row.get::<_, u64>(0)).ok().filter(|left| *left == 0)
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(runs(&db, "share-expiry"), before, "the removed task runs no more");
    let listed = String::from_utf8(site.besom(&["status"]).stdout).expect("a text");
    for words in ["keep the code that they run with; all other changes", "have taken effect"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    assert!(!listed.contains("the changed file is invalid"), "{listed}");
    assert!(!host.log().contains("the changed configuration was refused"), "{}", host.log());
    let (_, status) = site.json(&["status"]);
    assert_eq!(status["file_refused"], false, "{status:#}");
    let fault = status["nodes"][0]["config_fault"].as_str().expect("the fault");
    assert!(fault.contains("sweep.wasm"), "{fault}");
    host.stop();
    site.balanced();
}

/// The tasks that do not run because of their plugin files, as the status shows them.
fn refused(site: &Site) -> Vec<(String, String)> {
    let (_, status) = site.json(&["status"]);
    let tasks = status["tasks"].as_array().expect("tasks").clone();
    let held = |task: &Value| {
        let held = task["held"].as_array()?.iter().find(|held| held["cause"] == "plugin")?.clone();
        Some((task["task"].as_str()?.to_owned(), held["why"].as_str()?.to_owned()))
    };
    tasks.iter().filter_map(held).collect()
}

/// A session that is over; whether it is still there.
fn over(site: &Site, name: &str) -> impl Fn() -> bool {
    let db = site.database();
    let row = rusqlite::params![name, now_us() / SECOND_US - 60];
    db.execute("INSERT INTO sessions VALUES (?1, ?2)", row).expect("a session");
    let name = name.to_owned();
    move || {
        let sql = "SELECT count(*) FROM sessions WHERE session_id = ?1";
        db.query_row(sql, [&name], |row| row.get::<_, u64>(0)).expect("a count") > 0
    }
}

#[test]
fn a_refused_file_stops_its_task_alone_until_it_is_pinned() {
    let site = site();
    assert_eq!(site.json(&["task", "pin", "sweep"]).0, 0);
    let pinned = std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    let with = |schedule: &str| {
        let text = format!("{pinned}\n{}", shares_every(schedule));
        std::fs::write(site.path("besom.toml.new"), text).expect("written");
        std::fs::rename(site.path("besom.toml.new"), site.path("besom.toml")).expect("renamed");
    };
    with("@every 1s");
    // Both files are known to the compiled plugins, none to the store.
    assert_eq!(site.said(&["check"]).0, 0);
    replace(&site);
    let (code, said) = site.said(&["check"]);
    assert_eq!(code, 78, "{said}");
    assert!(
        said.contains("is not the pinned file") && said.contains("besom task pin sweep"),
        "{said}"
    );
    let session = over(&site, "kept");
    let db = site.database();
    // A pass runs the other task, and says by its code that one did not run.
    let (code, said) = site.said(&["run"]);
    assert!(code == 78 && said.contains("the other tasks do"), "{code}: {said}");
    assert!(runs(&db, "share-expiry") > 0 && runs(&db, "sweep") == 0);
    assert_eq!(site.said(&["run", "share-expiry"]).0, 0);
    let (code, said) = site.said(&["run", "sweep"]);
    assert!(code == 78 && said.contains("besom task pin sweep"), "{code}: {said}");

    let mut host = site.serve();
    host.leads();
    let before = runs(&db, "share-expiry");
    wait_for("the other task", || (runs(&db, "share-expiry") > before).then_some(()));
    let said = host.lines(&["the plugin file of sweep is refused"]);
    assert_eq!(said.len(), 1, "{}", host.log());
    let held = wait_for("the refusal in the status", || refused(&site).pop());
    assert!(held.0 == "sweep" && held.1.contains("besom task pin sweep"), "{held:?}");
    // Other changes are taken up meanwhile.
    with("@every 2s");
    host.says(" reloaded");
    assert!(session(), "nothing of the new file has run");
    assert_eq!(host.lines(&["the plugin file of sweep is refused"]).len(), 1, "it is said once");

    let text = || std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    let unchanged = text();
    let (code, rehearsed) = site.json(&["task", "pin", "sweep", "--dry-run"]);
    assert_eq!((code, &rehearsed["written"]), (0, &false.into()), "{rehearsed:#}");
    assert_eq!(text(), unchanged);
    let (code, pin) = site.json(&["task", "pin", "sweep", "--reason", "examined"]);
    assert_eq!((code, &pin["written"]), (0, &true.into()), "{pin:#}");
    let difference = &pin["difference"];
    assert!(pinned.contains(difference["before"].as_str().expect("the former")), "{pin:#}");
    // The former file is known from the compiled plugins, with its imports.
    assert_eq!(
        (&difference["imports"], &difference["added"], &difference["removed"]),
        (&true.into(), &Value::Array(vec![]), &Value::Array(vec![])),
        "{pin:#}"
    );
    wait_for("the session to be swept", || (!session()).then_some(()));
    wait_for("the end of the refusal", || refused(&site).is_empty().then_some(()));
    host.stop();
    site.balanced();
}

#[test]
fn a_file_needs_the_signature_of_a_trusted_key_where_that_is_required() {
    let site = site();
    let [ours, theirs] = [1, 2].map(Signer::new);
    let keys = format!("[plugins]\ntrusted_keys = [\"{}\"]\nrequire_signature = ", ours.public());
    let configure = |required: bool| {
        let text = format!("{keys}{required}\n{SWEEP}{}", shares_every("@every 1s"));
        std::fs::write(site.path("besom.toml.new"), text).expect("written");
        std::fs::rename(site.path("besom.toml.new"), site.path("besom.toml")).expect("renamed");
    };
    let sign = |signer: &Signer| {
        let content = std::fs::read(site.path(FILE)).expect("the plugin");
        let beside = site.path(&format!("{FILE}.minisig"));
        std::fs::write(beside, signer.sign(&content)).expect("written");
    };
    let refused_for = |words: &str| {
        let (code, said) = site.said(&["check"]);
        assert!(
            code == 78 && said.contains(words) && said.contains("besom.toml:"),
            "{code}: {said}"
        );
    };
    configure(false);
    assert_eq!(site.said(&["check"]).0, 0, "a signature is optional");
    configure(true);
    refused_for("it is not signed");
    // Nothing of it is run to pin it either.
    let (code, said) = site.said(&["task", "pin", "sweep"]);
    assert!(code == 1 && said.contains("it is not signed"), "{code}: {said}");
    sign(&theirs);
    refused_for("by none of plugins.trusted_keys");
    std::fs::write(site.path(&format!("{FILE}.minisig")), "x").expect("written");
    refused_for("is not a signature of minisign");
    sign(&ours);
    assert_eq!(site.said(&["check"]).0, 0);

    let mut host = site.serve();
    host.leads();
    let session = over(&site, "one");
    wait_for("the session to be swept", || (!session()).then_some(()));
    // Replaced without a new signature: the code that runs stays.
    replace(&site);
    refused_for("of another content");
    host.says("are refused, and these plugins keep the code that they run with");
    let session = over(&site, "two");
    wait_for("the old code to go on", || (!session()).then_some(()));
    host.stop();
    // After a restart, only the other task runs, until the signature comes.
    let mut host = site.serve();
    host.leads();
    let held = wait_for("the refusal in the status", || refused(&site).pop());
    assert!(held.0 == "sweep" && held.1.contains("of another content"), "{held:?}");
    let session = over(&site, "three");
    let db = site.database();
    let before = runs(&db, "share-expiry");
    wait_for("the other task", || (runs(&db, "share-expiry") > before + 1).then_some(()));
    assert!(session(), "nothing of the new file has run");
    sign(&ours);
    wait_for("the session to be swept", || (!session()).then_some(()));
    host.stop();
    site.balanced();
}
