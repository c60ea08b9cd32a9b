//! A changed configuration takes effect while the host runs; a bad one does not.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::host::Host;
use crate::load::{SECOND_US, add_share, now_us};
use crate::site::{Site, row_of, wait_for};

/// A change has to take effect within this time at least once in this many attempts, because the
/// machine may be busy.
const TAKEN_UP_MAX: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 8;

pub fn shares_every(schedule: &str) -> String {
    format!("[tasks.share-expiry]\nplugin = \"share-expiry\"\nschedule = \"{schedule}\"\n")
}

/// A user's own task, on a table with the index that every framework creates.
pub const SWEEP: &str = r#"
[tasks.sweep]
plugin = "sweep.wasm"
schedule = "@every 1s"
[tasks.sweep.grants]
sessions = ["read", "delete"]
[collections.sessions]
table = "sessions"
key = ["session_id"]
columns = { session_id = "text", expires_at = { type = "timestamp", encoding = "seconds" } }
indexes = { by_expiry = ["expires_at"] }
"#;

pub fn runs(db: &Connection, task: &str) -> u64 {
    let sql =
        "SELECT count(*) FROM besom_run r JOIN besom_task t ON t.id = r.task WHERE t.name = ?1";
    db.query_row(sql, [task], |row| row.get(0)).expect("runs")
}

/// Waits until the host has logged it for the nth time; returns how long that took.
fn says_again(host: &Host, words: &str, times: usize) -> Duration {
    let begun = Instant::now();
    wait_for(words, || (host.lines(&[words]).len() >= times).then_some(()));
    begun.elapsed()
}

#[test]
fn a_changed_schedule_takes_effect_within_a_second_and_drops_no_work() {
    let site = Site::new(&shares_every("@every 1h"));
    site.create_tables();
    let db = site.database();
    let mut host = site.serve();
    host.leads();
    // Planned at the start, and due while the configuration changes again and again.
    wait_for("the first run", || (runs(&db, "share-expiry") > 0).then_some(()));
    let mut taken_up = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let seconds = 3600 + attempt;
        site.configure(&shares_every(&format!("@every {seconds}s")));
        let took = says_again(&host, " reloaded", attempt);
        taken_up.push(took);
        if took <= TAKEN_UP_MAX {
            break;
        }
    }
    eprintln!("a changed file was taken up after {taken_up:?}");
    assert!(taken_up.last().is_some_and(|took| *took <= TAKEN_UP_MAX), "{taken_up:?}");

    // The task runs by the new schedule.
    let before = runs(&db, "share-expiry");
    for number in 0..50 {
        add_share(&db, &format!("share-{number}"), now_us() + number * SECOND_US / 20);
    }
    site.configure(&shares_every("@every 1s"));
    wait_for("runs by the new schedule", || (runs(&db, "share-expiry") > before + 1).then_some(()));
    let reloads = host.lines(&[" reloaded"]).len();
    for more in 1..=3 {
        host.signal(Signal::HUP);
        says_again(&host, " reloaded", reloads + more);
    }
    let open = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
    wait_for("every share to end", || {
        db.query_row(open, [], |row| row.get::<_, u64>(0)).ok().filter(|n| *n == 0)
    });
    host.stop();
    let audit = site.balanced();
    let books = row_of(&audit["tasks"], "share-expiry");
    assert_eq!((&books["committed"], &books["dead"]), (&50.into(), &0.into()), "{audit}");
}

#[test]
fn a_bad_file_is_refused_with_its_faults_and_the_old_one_goes_on() {
    let site = Site::new(&shares_every("@every 1s"));
    site.create_tables();
    let db = site.database();
    let mut host = site.serve();
    host.leads();
    site.configure("[tasks.share-expiry]\nplugin = \"share-expiri\"\nschedule = \"0 0 30 2 *\"\n");
    host.says("refused");
    host.says("did you mean `share-expiry`?");
    host.says("besom.toml:3:17");
    let before = runs(&db, "share-expiry");
    wait_for("the old schedule to go on", || {
        (runs(&db, "share-expiry") > before + 1).then_some(())
    });

    // What is listed is what runs, and not what the file says.
    let edited = shares_every("@every 9h") + "mode = \"preview\"\n[tasks.bad]\nplugin = \"no\"\n";
    site.configure(&edited);
    let status = wait_for("the refusal in the status", || {
        let (_, status) = site.json(&["status"]);
        (status["file_refused"] == true && status["only_in_file"][0] == "bad").then_some(status)
    });
    assert_eq!(status["tasks"].as_array().map(Vec::len), Some(1), "{status:#}");
    assert_eq!(status["tasks"][0]["mode"], "live", "{status:#}");
    assert_eq!(status["as_in_file"], false, "{status:#}");
    let listed = String::from_utf8(site.besom(&["status"]).stdout).expect("a text");
    assert!(listed.contains("as they run, which is not as in the file. Only in the file: bad."));
    assert!(!listed.contains("previews only"), "{listed}");
    // From another machine, only the file is known.
    let elsewhere = ["status", "--set", "api.socket=elsewhere.sock"];
    let (_, status) = site.json(&elsewhere);
    assert_eq!((&status["file_refused"], &status["as_in_file"]), (&true.into(), &true.into()));
    let listed = String::from_utf8(site.besom(&elsewhere).stdout).expect("a text");
    assert!(listed.contains("The tasks are listed as in the file. The leader runs them as before"));

    std::fs::write(site.path("besom.toml"), b"[tasks.\xff").expect("written");
    wait_for("the second refusal", || (host.lines(&["refused"]).len() >= 3).then_some(()));
    site.configure(&shares_every("@every 2s"));
    host.says(" reloaded");
    host.stop();
    site.balanced();
}

/// An editor that fails, or a full disk, leaves an empty file.
#[test]
fn a_truncated_file_is_refused_and_every_task_goes_on() {
    let site = Site::new(&shares_every("@every 1s"));
    site.create_tables();
    let db = site.database();
    let mut host = site.serve();
    host.leads();
    let whole = std::fs::read(site.path("besom.toml")).expect("the file");
    for (nth, (text, said)) in [
        ("", "the file is empty, which would remove 1 task"),
        ("# [tasks.share-expiry]\n\n", "the file is empty, which would remove 1 task"),
        ("[lease]\nttl = \"20s\"\n", "the file names no task, which would remove 1 task"),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(site.path("besom.toml"), text).expect("written");
        wait_for("the refusal", || (host.lines(&["refused"]).len() > nth).then_some(()));
        assert!(host.log().contains(said), "{said}: {}", host.log());
        let before = runs(&db, "share-expiry");
        wait_for("the task to go on", || (runs(&db, "share-expiry") > before + 1).then_some(()));
    }
    wait_for("the refusal to be reported", || {
        let (_, status) = site.json(&["status"]);
        let fault = status["nodes"][0]["config_fault"].as_str()?.to_owned();
        fault.contains("restore the content of the file").then_some(())
    });
    std::fs::write(site.path("besom.toml"), &whole).expect("written");
    wait_for("the end of the refusal", || {
        let (_, status) = site.json(&["status"]);
        status["nodes"][0]["config_fault"].is_null().then_some(())
    });
    host.stop();
}

#[test]
fn what_waits_for_a_restart_is_named_until_the_file_is_as_it_was() {
    let tasks = shares_every("@every 1h");
    let site = Site::new(&tasks);
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    let topic = "[delivery]\nhosts = [\"localhost:1\"]\n\
                 [topics.\"orders.paid\"]\nurl = \"http://localhost:1/\"\n";
    let waits = |keys: &[&str]| {
        wait_for("the keys", || {
            let (_, status) = site.json(&["status"]);
            (status["nodes"][0]["needs_restart"] == serde_json::json!(keys)).then_some(())
        });
        let said = String::from_utf8(site.besom(&["status"]).stdout).expect("a text");
        said.lines().find(|line| line.contains("wait for a restart")).map(str::to_owned)
    };
    assert_eq!(waits(&[]), None);
    site.configure(&format!("{tasks}{topic}"));
    let keys = ["delivery.hosts", "topics.orders.paid"];
    let said = waits(&keys).expect("a line");
    assert!(
        said.ends_with(": changes that wait for a restart: delivery.hosts, topics.orders.paid"),
        "{said}"
    );
    // A change that takes effect at once, and a file that is refused, leave it as it is.
    site.configure(&format!("{}{topic}", shares_every("@every 2h")));
    wait_for("the reload", || {
        let (_, status) = site.json(&["status"]);
        (status["tasks"][0]["next"] != Value::Null).then_some(())
    });
    assert!(waits(&keys).is_some());
    site.configure(&tasks);
    assert_eq!(waits(&[]), None);
    host.stop();
}

#[test]
fn a_plugin_dropped_in_is_loaded_on_reload_and_at_start() {
    let site = Site::new(&shares_every("@every 1h"));
    site.create_tables();
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
         CREATE INDEX sessions_by_expiry ON sessions (expires_at);",
    )
    .expect("a table");
    let add = |name: &str, expires_us: i64| {
        let row = rusqlite::params![name, expires_us / SECOND_US];
        db.execute("INSERT INTO sessions VALUES (?1, ?2)", row).expect("a session");
    };
    let left = || {
        let mut select = db.prepare("SELECT session_id FROM sessions ORDER BY 1").expect("select");
        let rows = select.query_map([], |row| row.get::<_, String>(0)).expect("rows");
        rows.map(|row| row.expect("a row")).collect::<Vec<_>>()
    };
    add("over", now_us() - 60 * SECOND_US);
    add("running", now_us() + 3_600 * SECOND_US);

    let mut host = site.serve();
    host.leads();
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    site.configure(&(shares_every("@every 1h") + SWEEP));
    host.says(" reloaded");
    wait_for("the session to be swept", || (left() == ["running"]).then_some(()));
    host.stop();

    add("over-again", now_us() - 60 * SECOND_US);
    let mut host = site.serve();
    host.leads();
    wait_for("the next one to be swept", || (left() == ["running"]).then_some(()));

    // A partial file, as during a copy: the loaded plugin stays in use.
    let whole = std::fs::read(site.path("plugins.d/sweep.wasm")).expect("the plugin");
    std::fs::write(site.path("plugins.d/sweep.wasm"), &whole[..whole.len() / 2]).expect("written");
    host.says("refused");
    host.says("sweep.wasm");
    add("over-meanwhile", now_us() - 60 * SECOND_US);
    wait_for("the old plugin to go on", || (left() == ["running"]).then_some(()));
    std::fs::write(site.path("plugins.d/sweep.wasm"), &whole).expect("written");

    // A missing table holds its task until the table exists again.
    db.execute_batch("ALTER TABLE sessions RENAME TO elsewhere").expect("renamed");
    host.says("sweep is held");
    db.execute_batch("ALTER TABLE elsewhere RENAME TO sessions").expect("renamed");
    add("over-at-last", now_us() - 60 * SECOND_US);
    wait_for("the task to recover", || (left() == ["running"]).then_some(()));

    // The task is removed again: its history is kept, and nothing is waiting.
    site.configure(&shares_every("@every 1h"));
    wait_for("its end", || {
        (!host.lines(&[" reloaded", "removed=\"sweep\""]).is_empty()).then_some(())
    });
    host.stop();
    let audit = site.balanced();
    let sweep = audit["tasks"].as_array().expect("tasks").iter().find(|t| t["task"] == "sweep");
    assert_eq!(sweep.expect("the books of the task")["committed"], 4, "{audit}");
}

/// As people write it: with comments everywhere, and in their own order.
const COMMENTED: &str = "\
# The shares of the product.
[tasks.share-expiry] # see the handbook
plugin    = \"share-expiry\"
# Twice an hour is plenty.
schedule  = '@every 30m'   # INC-300: was every minute
overlap   = \"skip\"
# The end of it.
";

#[test]
fn an_edited_schedule_takes_effect_within_a_second_and_loses_no_comment_and_no_work() {
    let site = Site::new(COMMENTED);
    site.create_tables();
    let db = site.database();
    let mut host = site.serve();
    host.leads();
    wait_for("the first run", || (runs(&db, "share-expiry") > 0).then_some(()));
    // The shares end while the file is edited repeatedly.
    for number in 0..50 {
        add_share(&db, &format!("share-{number}"), now_us() + number * SECOND_US / 20);
    }
    let edit = |schedule: &str, reason: &str| {
        let args = ["task", "edit", "share-expiry", "--schedule", schedule, "--reason", reason];
        let (code, edited) = site.json(&args);
        assert_eq!((code, &edited["saved"]), (0, &true.into()), "{edited:#}");
        let saved = std::fs::metadata(site.path("besom.toml")).and_then(|data| data.modified());
        saved.expect("the time of the change")
    };
    let mut taken_up = Vec::new();
    for attempt in 1..=ATTEMPTS {
        // The file is renamed into its place after that instant.
        let written = edit(&format!("@every {}m", 30 + attempt), "an experiment");
        says_again(&host, " reloaded", attempt);
        let took = written.elapsed().expect("a clock that goes forward");
        taken_up.push(took);
        if took <= TAKEN_UP_MAX {
            break;
        }
    }
    eprintln!("an edited file was taken up after {taken_up:?}");
    assert!(taken_up.last().is_some_and(|took| *took <= TAKEN_UP_MAX), "{taken_up:?}");

    // The task runs by the new schedule.
    let before = runs(&db, "share-expiry");
    edit("@every 1s", "now");
    wait_for("runs by the new schedule", || (runs(&db, "share-expiry") > before + 1).then_some(()));
    let text = std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    assert!(text.starts_with(&COMMENTED.replace("@every 30m", "@every 1s")), "{text}");

    let open = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
    wait_for("every share to end", || {
        db.query_row(open, [], |row| row.get::<_, u64>(0)).ok().filter(|n| *n == 0)
    });
    // Author, change and reason are recorded, and the leader applies nothing.
    let asked = wait_for("the edits to be noted", || {
        let (_, asked) = site.json(&["commands", "ls"]);
        (asked[0]["result"] == "noted").then_some(asked)
    });
    // Each edit is followed by the host's record of the reload.
    let edited = |row: &&Value| row["command"]["command"] == "edited";
    let asked: Vec<&Value> = asked.as_array().expect("a list").iter().filter(edited).collect();
    let last =
        format!("edit share-expiry: schedule \"@every {}m\" -> \"@every 1s\"", 30 + taken_up.len());
    assert_eq!(
        (&asked[0]["what"], &asked[0]["reason"]),
        (&last.into(), &"now".into()),
        "{asked:#?}"
    );
    host.stop();
    let audit = site.balanced();
    let books = row_of(&audit["tasks"], "share-expiry");
    assert_eq!((&books["committed"], &books["dead"]), (&50.into(), &0.into()), "{audit}");
}

#[test]
fn a_schedule_counts_as_missed_only_since_it_took_effect() {
    let site = Site::new(&shares_every("@every 366d"));
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    let trigger = ["task", "trigger", "share-expiry", "--wait", "60s"];
    assert_eq!(site.json(&trigger).0, 0);
    wait_for("its run", || (site.task("share-expiry")["last_result"] == "ok").then_some(()));
    // Three days ago.
    let earlier = "UPDATE besom_run SET slot = slot - ?1, started_at = started_at - ?1";
    site.database().execute(earlier, [3 * 86_400 * SECOND_US]).expect("moved");
    let minute = now_us() / SECOND_US / 60 % 60;
    site.configure(&shares_every(&format!("{} * * * *", (minute + 30) % 60)));
    host.says(" reloaded");
    wait_for("the leader to take up the schedule", || {
        let sql = "SELECT schedule LIKE '% * * * *%' FROM besom_task WHERE name = 'share-expiry'";
        site.database().query_row(sql, [], |row| row.get(0)).ok().filter(|is: &bool| *is)
    });
    assert_eq!(site.task("share-expiry")["overdue_seconds"], 0.0);
    host.stop();
}

/// A request for erasure: what is kept for a possible undo is removed with the retention.
#[test]
fn a_shorter_retention_of_images_takes_effect_with_the_reload() {
    let site = Site::new(&shares_every("@every 1s"));
    site.create_tables();
    let db = site.database();
    add_share(&db, "ended", now_us() - SECOND_US);
    let mut host = site.serve();
    host.leads();
    let images = || -> u64 {
        let sql = "SELECT count(*) FROM besom_history WHERE undo IS NOT NULL";
        db.query_row(sql, [], |row| row.get(0)).expect("read")
    };
    wait_for("an image", || (images() == 1).then_some(()));
    site.configure(&(shares_every("@every 1s") + "keep_removed = \"0s\"\n"));
    wait_for("the image to be removed", || (images() == 0).then_some(()));
    host.stop();
    site.balanced();
}
