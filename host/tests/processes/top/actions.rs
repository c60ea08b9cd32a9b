//! Actions of the dashboard take effect, and are recorded with author and reason.

use rusqlite::params;
use serde_json::{Value, json};

use super::terminal::Terminal;
use super::{GAP, add_with_a_gap, answer, asked, command, entry, leader, stage};
use crate::site::{Site, wait_for};
use crate::undo;

/// The newest command: what, why, its result, and its author.
#[track_caller]
fn is_kept(site: &Site, what: &str, reason: &str, result: &str) {
    let newest = &asked(site)[0];
    let kept = json!([newest["what"], newest["reason"], newest["result"]]);
    assert_eq!(kept, json!([what, reason, result]), "{newest:#}");
    let who = format!("uid {}", rustix::process::getuid().as_raw());
    assert!(newest["by"].as_str().is_some_and(|by| by.contains(&who)), "{newest:#}");
}

/// The open dead letters, newest first, once there are this many.
#[track_caller]
fn letters(site: &Site, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} dead letters"), || {
        let (_, dead) = site.json(&["dead", "ls"]);
        dead.as_array().filter(|dead| dead.len() == count).cloned()
    })
}

/// The letter that is chosen in the list: its place, and its key.
fn chosen(screen: &str) -> Option<(usize, String)> {
    let list = screen.lines().skip_while(|line| !line.contains("LETTER KEY")).skip(1);
    let place = list.clone().position(|line| line.starts_with('>'))?;
    let key = list.skip(place).find_map(|line| line.split_whitespace().nth(2))?;
    Some((place, key.to_owned()))
}

#[test]
fn a_task_is_triggered_paused_and_resumed_and_a_run_is_cancelled() {
    let site = stage();
    let host = leader(&site);
    let terminal = Terminal::open(&site, 100, 30);
    terminal.top("");

    terminal.keys(&["2", "/"]);
    terminal.text("share");
    terminal.keys(&["Enter"]);
    terminal.shows(">share-expiry");
    terminal.keys(&["t"]);
    answer(&terminal, "Start a run of share-expiry now?", "by hand", "share-expiry: started");
    is_kept(&site, "trigger share-expiry", "by hand", "started");

    // Nothing happens without a reason, or if the dialog is left.
    terminal.keys(&["p"]);
    terminal.shows("Pause share-expiry?");
    terminal.keys(&["Enter"]);
    terminal.shows("enter a reason");
    terminal.keys(&["Escape"]);
    terminal.shows("nothing was changed");
    assert_eq!(asked(&site).len(), 1);
    terminal.keys(&["p"]);
    answer(&terminal, "Pause share-expiry?", "INC 7, it's late", "task pause share-expiry: paused");
    is_kept(&site, "pause share-expiry", "INC 7, it's late", "paused");
    terminal.shows("1 paused");
    assert_eq!(site.task("share-expiry")["paused"]["reason"], "INC 7, it's late");
    terminal.keys(&["p"]);
    answer(&terminal, "Resume share-expiry?", "over", "task resume share-expiry: resumed");
    is_kept(&site, "resume share-expiry", "over", "resumed");
    terminal.shows("0 paused");
    assert_eq!(site.task("share-expiry")["paused"], Value::Null);

    command(&terminal, "trigger endless");
    answer(&terminal, "Start a run of endless now?", "", "trigger endless: started");
    terminal.keys(&["5"]);
    terminal.shows("SCANNING");
    // The cursor stays with its row if the new run was read after the screen was opened.
    terminal.keys(&["g"]);
    let newest = |line: &str| line.starts_with('>') && line.contains("endless");
    terminal.until("the cursor on the new run", |screen| screen.lines().any(newest));
    terminal.keys(&["K"]);
    answer(&terminal, "of endless?", "too long", ": cancelled");
    let (_, runs) = site.json(&["runs", "ls", "--task", "endless"]);
    is_kept(&site, &format!("cancel run {}", runs[0]["run"]), "too long", "cancelled");
    terminal.shows("0 active");
    assert!(runs[0]["ended_at"].is_string(), "{runs:#}");
    let error = runs[0]["error"].as_str().expect("why it has ended");
    assert!(error.starts_with("cancelled by") && error.ends_with(": too long"), "{error}");
    drop(terminal);
    host.stop();
}

#[test]
fn dead_letters_are_retried_and_discarded_singly_and_by_group_and_the_leader_resigns() {
    let site = stage();
    let mut db = site.database();
    for doc in ["lost", "given-up", "repaired"] {
        add_with_a_gap(&mut db, doc);
    }
    let host = leader(&site);
    let terminal = Terminal::open(&site, 100, 40);
    terminal.top("");
    command(&terminal, "trigger compaction");
    answer(&terminal, "Start a run of compaction now?", "", "trigger compaction: started");
    let id = |key: &str| {
        let letters = letters(&site, 3);
        let letter = letters.iter().find(|letter| letter["key"] == key).expect("the letter");
        letter["id"].to_string()
    };
    let (repaired, given_up) = (id("repaired"), id("given-up"));
    for letter in letters(&site, 3) {
        assert_eq!(letter["attempts"], 1, "it was tried before it was set aside: {letter:#}");
    }

    terminal.keys(&["3"]);
    terminal.shows("Dead letters (3)");
    terminal.keys(&["d", "Enter"]);
    let choose = |key: &str| {
        terminal.keys(&["g"]);
        let at = |screen: &str| chosen(screen).is_some_and(|(place, _)| place == 0);
        let mut screen = terminal.until("the first letter", at);
        let mut place = 0;
        while chosen(&screen).is_none_or(|(_, chosen)| chosen != key) {
            place += 1;
            terminal.keys(&["j"]);
            let next = |screen: &str| chosen(screen).is_some_and(|(at, _)| at == place);
            screen = terminal.until("the next letter", next);
        }
    };
    choose("repaired");
    let sql = "INSERT INTO changes VALUES ('first', 'repaired', ?1, 'author', ?1, ?1, 'edit', ?2,
               NULL)";
    db.execute(sql, params![GAP, entry(GAP)]).expect("repaired");
    terminal.keys(&["r"]);
    answer(&terminal, "Retry 1 dead letter?", "repaired", ": will be retried");
    is_kept(
        &site,
        &format!("retry dead letters {repaired}"),
        "repaired",
        "will be retried: 1 dead letter",
    );
    wait_for("the repaired document", || {
        let (_, shown) = site.json(&["doc", "show", "first/repaired"]);
        (shown["rows"] == 1).then_some(())
    });
    letters(&site, 2);

    choose("given-up");
    terminal.keys(&["x"]);
    terminal.shows("Key given-up of compaction.");
    terminal.text("beyond repair");
    terminal.keys(&["Tab"]);
    terminal.text("2");
    terminal.keys(&["Enter"]);
    terminal.shows("type the count  ");
    assert_eq!(letters(&site, 2).len(), 2, "another count is no consent");
    terminal.keys(&["BSpace"]);
    answer(&terminal, "Discard 1 dead letter?", "1", ": discarded");
    is_kept(
        &site,
        &format!("discard dead letters {given_up}"),
        "beyond repair",
        "discarded: 1 dead letter",
    );
    let left = letters(&site, 1);
    assert_eq!(left[0]["key"], "lost");

    // The whole rest of the group.
    terminal.keys(&["X"]);
    terminal.shows("All dead letters of compaction with the error");
    terminal.text("nobody wants it");
    terminal.keys(&["Tab"]);
    answer(&terminal, "Discard 1 dead letter?", "1", "✓ dead discard --task compaction");
    assert_eq!(asked(&site)[0]["reason"], "nobody wants it");
    letters(&site, 0);
    terminal.shows("Dead letters (0)");

    terminal.keys(&["1"]);
    terminal.shows("term 1 ");
    terminal.keys(&["L"]);
    answer(&terminal, "resign from term 1?", "a new broom", "resigned term 1");
    assert_eq!(asked(&site)[0]["reason"], "a new broom");
    terminal.shows("term 2 ");
    let (_, status) = site.json(&["status"]);
    assert_eq!(status["term"], 2, "{status:#}");
    drop(terminal);
    host.stop();
    site.balanced();
}

#[test]
fn who_only_looks_changes_nothing_and_is_told_so() {
    let site = stage();
    add_with_a_gap(&mut site.database(), "lost");
    let host = leader(&site);
    let (code, triggered) = site.json(&["task", "trigger", "compaction"]);
    assert_eq!(code, 0, "{triggered}");
    letters(&site, 1);
    let (code, triggered) = site.json(&["task", "trigger", "endless"]);
    assert_eq!(code, 0, "{triggered}");
    let before = asked(&site);
    let text = std::fs::read_to_string(site.path("besom.toml")).expect("the file");

    let terminal = Terminal::open(&site, 100, 30);
    terminal.top("--readonly");
    terminal.shows("[readonly]");
    const REFUSED: &str = "read-only: this dashboard cannot change anything";
    let screens: [(&str, &str, &[&str]); 4] = [
        ("1", "ATTENTION", &["d", "L"]),
        ("2", "3 tasks", &["t", "p"]),
        ("3", "Dead letters (1)", &["R", "X"]),
        ("5", "SCANNING", &["K"]),
    ];
    for (key, title, changes) in screens {
        terminal.keys(&[key]);
        terminal.shows(title);
        if key == "3" {
            terminal.keys(&["d", "Enter"]);
            terminal.shows(" key lost");
        }
        for change in changes {
            // Another message takes the place of the one before.
            terminal.keys(&["m"]);
            terminal.shows("i mouse o");
            terminal.keys(&[change]);
            terminal.shows(REFUSED);
        }
    }
    terminal.keys(&[":"]);
    terminal.text("pause");
    terminal.shows("no such command");
    terminal.keys(&["Escape"]);
    drop(terminal);
    assert_eq!(asked(&site), before, "nothing was asked of the leader");
    assert_eq!(std::fs::read_to_string(site.path("besom.toml")).expect("the file"), text);
    host.stop();
}

#[test]
fn the_run_of_an_undo_says_how_many_rows_stay_and_how_to_list_them() {
    let (site, db) = undo::site();
    let run = undo::removed(&site, &db);
    let theirs = "INSERT INTO sessions VALUES (90001, 9e9, 't4999', 0), (90002, 9e9, 't5000', 0)";
    db.execute(theirs, []).expect("the product's rows");
    let host = leader(&site);
    let terminal = Terminal::open(&site, 80, 24);
    terminal.top("");
    terminal.keys(&["5"]);
    terminal.shows("1 old-sessions");
    terminal.keys(&["G"]);
    terminal.shows(" U undo");
    terminal.keys(&["U"]);
    answer(&terminal, "of old-sessions?", "a wrong rule", "undo");
    let is_undone =
        |screen: &str| screen.lines().any(|l| l.contains(" undo ") && l.contains(" ok "));
    terminal.until("the run of the undo", is_undone);
    terminal.keys(&["g", "Enter"]);
    terminal.shows(&format!("2 rows stay as they are: `besom undo {run}` lists what stays"));
    drop(terminal);
    host.stop();
    site.balanced();
}

#[test]
fn a_task_says_what_an_undo_holds_back_and_how_it_is_planned_again() {
    let (site, db) = undo::site();
    let run = undo::removed(&site, &db);
    assert_eq!(site.json(&["undo", &run]).0, 0);
    assert_eq!(site.json(&["task", "resume", "old-sessions"]).0, 0);
    let host = leader(&site);
    let terminal = Terminal::open(&site, 80, 24);
    terminal.top("");
    command(&terminal, "trigger old-sessions");
    answer(&terminal, "Start a run of old-sessions now?", "", "started");
    let words = format!(
        "5 candidates are held back, because they were undone: `besom undo {run} --plan-again`"
    );
    terminal.keys(&["2"]);
    terminal.until(&words, |screen| {
        screen.split_whitespace().collect::<Vec<_>>().join(" ").contains(&words)
    });
    drop(terminal);
    host.stop();
    site.balanced();
}
