//! The Ring screen, a run with its log, and the editing of a schedule: their requests and their
//! pictures.
//! `BESOM_BLESS=1` rewrites the golden files.

mod common;
mod host;

use std::sync::Arc;

use besom_samples::{NOW, large, small};
use besom_snapshot::{Pause, Problem, Query};
use besom_tui::dash::{Code, Effect, Input, Key, Place};
use common::{Dashboard, key};
use host::{FILE, Host};

/// The usual sizes.
const SIZES: [(u16, u16); 3] = [(80, 24), (160, 48), (40, 10)];

/// Compares pictures with their files, or writes the files.
fn check(name: &str, dashboard: &mut Dashboard, host: &mut Host) {
    for (columns, rows) in SIZES {
        dashboard.input(Input::Resize(columns, rows));
        host.pass(dashboard, 1_000);
        let picture = dashboard.picture(columns, rows);
        common::check(&format!("{name}-{columns}x{rows}"), &picture);
    }
}

fn at(place: Place) -> (Dashboard, Host) {
    let mut dashboard = Dashboard::of(small());
    dashboard.go(place);
    let mut host = Host::new();
    host.answer(&mut dashboard);
    (dashboard, host)
}

/// Opens the active run.
fn run() -> (Dashboard, Host) {
    let (mut dashboard, mut host) = at(Place::Runs);
    dashboard.input(key(Code::Enter));
    host.answer(&mut dashboard);
    (dashboard, host)
}

/// The form of a task, with the answers to its requests.
fn form(task: &str) -> (Dashboard, Host) {
    let (mut dashboard, mut host) = at(Place::Edit);
    dashboard.input(key(Code::Char('/'))).type_in(task).input(key(Code::Enter));
    dashboard.input(key(Code::Enter));
    host.answer(&mut dashboard);
    (dashboard, host)
}

/// Empties the focused field, and types a text.
fn retype(dashboard: &mut Dashboard, text: &str) {
    dashboard.input(Input::Key(Key::ctrl('u'))).type_in(text);
}

/// The characters that could control a terminal.
fn steering(picture: &str) -> Option<char> {
    picture.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'))
}

#[test]
fn the_ring_tells_ownership_from_load() {
    let (mut dashboard, mut host) = at(Place::Ring);
    dashboard.input(key(Code::Down)).input(key(Code::Down));
    check("ring", &mut dashboard, &mut host);
    let picture = dashboard.picture(160, 48);
    assert!(picture.contains("the ring is even, the keys are not: node-c"), "{picture}");
    assert!(picture.contains("share:9f31 61.0%"), "{picture}");
    dashboard.input(key(Code::Char('/'))).type_in("doc:77fe --tenant acme").input(key(Code::Enter));
    dashboard.input(key(Code::Char('w')));
    check("ring-what-if", &mut dashboard, &mut host);
}

#[test]
fn without_a_ring_everything_is_the_leaders_and_it_says_so() {
    let mut alone = small();
    let mut ring = (*alone.ring).clone();
    ring.virtual_nodes = 0;
    ring.owners.truncate(1);
    ring.owners[0].weight = 1;
    ring.owners[0].owned = ring.partitions;
    ring.owner = vec![Some(0); ring.partitions as usize];
    alone.ring = ring.into();
    let mut dashboard = Dashboard::of(alone);
    dashboard.go(Place::Ring).input(key(Code::Char('w')));
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("no ring: the leader owns everything"), "{picture}");
    assert!(picture.contains("no ring:"), "{picture}");
    assert!(!picture.contains("what-if  +1"), "{picture}");
}

#[test]
fn a_thousand_owners_leave_the_strip_of_the_chosen_one() {
    let mut dashboard = Dashboard::of(large());
    dashboard.go(Place::Ring).input(key(Code::Char('G')));
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("too many owners for one letter each"), "{picture}");
    assert!(picture.contains("node-0999"), "{picture}");
    // Zooming in, walking along it, and out again.
    for code in [Code::Char('z'), Code::Right, Code::Right, Code::Left, Code::Char('z'), Code::Esc]
    {
        dashboard.input(key(code));
        dashboard.picture(80, 24);
    }
    dashboard.input(key(Code::Char('/'))).type_in("doc:1").input(key(Code::Enter));
    let picture = dashboard.picture(160, 48);
    assert!(picture.contains("doc:1 → "), "{picture}");
}

#[test]
fn a_run_is_told_with_its_log_and_its_dropped_lines() {
    let (mut dashboard, mut host) = at(Place::Runs);
    check("runs", &mut dashboard, &mut host);
    let (mut dashboard, mut host) = run();
    for query in [Query::Run { run: 8_812 }, Query::Log { run: 8_812, after: 0 }] {
        assert!(host.asked.contains(&query), "{query:?}: {:?}", host.asked);
    }
    check("run", &mut dashboard, &mut host);
    let picture = dashboard.picture(80, 24);
    for words in ["38 lines dropped", "FOLLOWING", "66%", "fuel", "here"] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
}

#[test]
fn a_run_whose_task_is_stopped_says_why_and_has_no_eta() {
    let mut snap = small();
    let task = snap.tasks.iter_mut().find(|task| task.name == "share-expiry").expect("a task");
    let reason = "run 8812 wanted 9 rows".to_owned();
    Arc::make_mut(task).paused = Some(Pause { by: "brake".into(), reason, since: NOW });
    let mut dashboard = Dashboard::of(snap);
    let list = dashboard.go(Place::Runs).picture(160, 48);
    assert!(list.contains("BRAKED") && !list.contains("RUNNING"), "{list}");
    let run = dashboard.input(key(Code::Enter)).picture(160, 48);
    assert!(run.contains("items  stopped by a brake: run 8812 wanted 9 rows"), "{run}");
    assert!(!run.contains("eta") && run.contains("items stands"), "{run}");
}

#[test]
fn the_log_is_asked_for_once_a_second_after_its_last_line() {
    let (mut dashboard, mut host) = run();
    for second in 1..=3 {
        host.asked.clear();
        host.pass(&mut dashboard, 1_000);
        let logs: Vec<_> =
            host.asked.iter().filter(|query| matches!(query, Query::Log { .. })).collect();
        assert_eq!(logs, [&Query::Log { run: 8_812, after: host::LAST_LINE }], "{second}");
    }
    dashboard.input(key(Code::Esc));
    host.asked.clear();
    host.pass(&mut dashboard, 5_000);
    assert!(host.asked.is_empty(), "nobody looks at it any more: {:?}", host.asked);
}

#[test]
fn a_log_is_searched_filtered_copied_exported_and_paged() {
    let (mut dashboard, mut host) = run();
    dashboard.input(key(Code::Char('/'))).type_in("9f31").input(key(Code::Enter));
    dashboard.input(key(Code::Char('n')));
    check("run-search", &mut dashboard, &mut host);
    assert!(dashboard.picture(80, 24).contains("1 of 3 found"));
    dashboard.effects.clear();
    dashboard.type_in("yoE");
    let [Effect::Copy(line), Effect::Pager(paged), Effect::Export { name, text }] =
        dashboard.effects.as_slice()
    else {
        panic!("{:?}", dashboard.effects)
    };
    assert!(line.contains("9f31"), "{line}");
    assert!(paged.contains("⋮ 38 lines dropped") && !paged.contains('\x1b'), "{paged}");
    assert_eq!(name, "run-8812.json");
    let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(json["run"]["id"], 8_812);
    assert!(json["log"].as_array().is_some_and(|log| !log.is_empty()));
    dashboard.type_in("LL");
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("level>=warn") && !picture.contains("INFO"), "{picture}");
    dashboard.type_in("i");
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("guard did not hold"), "{picture}");
    dashboard.type_in("i");
    assert!(dashboard.picture(160, 48).contains("COMMITTED"), "what each node does");
}

#[test]
fn a_run_is_cancelled_after_a_question_and_never_when_read_only() {
    let mut scanning = small();
    for run in scanning.runs.iter_mut().filter(|run| run.id == 8_812) {
        std::sync::Arc::make_mut(run).state = besom_snapshot::RunState::Scanning;
    }
    let mut dashboard = Dashboard::of(scanning.clone());
    dashboard.go(Place::Runs).type_in("K");
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("besom runs cancel 8812"), "{picture}");
    dashboard.type_in("too slow").input(key(Code::Enter));
    let reason = |effect: &Effect| match effect {
        Effect::Act { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let acts: Vec<String> = dashboard.effects.iter().filter_map(reason).collect();
    assert_eq!(acts, ["too slow"]);
    let mut readonly = scanning;
    readonly.readonly = true;
    let mut dashboard = Dashboard::of(readonly);
    dashboard.go(Place::Runs).input(key(Code::Char('K')));
    assert!(dashboard.picture(80, 24).contains("read-only"));
}

#[test]
fn an_error_stands_under_its_characters_while_the_last_valid_value_is_previewed() {
    let (mut dashboard, mut host) = form("share-expiry");
    check("edit", &mut dashboard, &mut host);
    retype(&mut dashboard, "*/2 0-24 * * *");
    check("edit-error", &mut dashboard, &mut host);
    let picture = dashboard.picture(80, 24);
    let lines: Vec<&str> = picture.lines().collect();
    let at = lines.iter().position(|line| line.contains("^^ error")).expect("carets");
    let column = |line: &str, part: &str| line.find(part).map(|byte| line[..byte].chars().count());
    assert_eq!(column(lines[at - 1], "24 *"), column(lines[at], "^^"), "{picture}");
    assert!(picture.contains("last valid value"), "{picture}");
}

#[test]
fn what_an_edit_comes_to_is_asked_after_a_pause_and_saved_with_a_reason() {
    let (mut dashboard, mut host) = form("share-expiry");
    host.pass(&mut dashboard, 1_000);
    host.asked.clear();
    retype(&mut dashboard, "*/2 * * * *");
    host.pass(&mut dashboard, 299);
    assert!(host.edits().is_empty(), "typing has not paused");
    host.pass(&mut dashboard, 1);
    let edits = host.edits();
    assert_eq!(edits.len(), 1, "{edits:?}");
    assert_eq!(edits[0].set["schedule"].as_deref(), Some("*/2 * * * *"));
    assert!(!edits[0].save);
    check("edit-diff", &mut dashboard, &mut host);
    // The field is left, W asks for the reason, and enter saves.
    dashboard.input(key(Code::Esc)).type_in("W").type_in("fewer runs").input(key(Code::Enter));
    host.answer(&mut dashboard);
    let saved = host.edits().pop().expect("an edit");
    assert_eq!((saved.save, saved.reason.as_str()), (true, "fewer runs"));
    assert_eq!(saved.base, host::DIGEST);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("share-expiry: saved"), "{picture}");
    host.pass(&mut dashboard, 1_000);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("(as in the file)"), "{picture}");
}

#[test]
fn a_schedule_is_saved_by_a_colon_and_w_as_in_an_editor() {
    let (mut dashboard, mut host) = form("share-expiry");
    retype(&mut dashboard, "*/2 * * * *");
    dashboard.input(key(Code::Esc)).type_in(":w").input(key(Code::Enter));
    assert!(dashboard.picture(80, 24).contains("reason (optional)"));
    dashboard.input(key(Code::Enter));
    host.answer(&mut dashboard);
    assert!(dashboard.picture(80, 24).contains("share-expiry: saved"), "a reason may be left out");
}

#[test]
fn the_hour_that_comes_twice_is_shown_in_both_times() {
    let (mut dashboard, mut host) = form("share-expiry");
    retype(&mut dashboard, "*/30 2 * * *");
    dashboard.input(key(Code::Tab));
    retype(&mut dashboard, "Europe/Berlin");
    check("edit-clocks", &mut dashboard, &mut host);
    let picture = dashboard.picture(80, 24);
    let rows = ["2026-10-25 00:30:00  02:30:00 CEST", "2026-10-25 01:30:00  02:30:00 CET"];
    for row in rows {
        assert!(picture.contains(row), "{row}: {picture}");
    }
    assert!(picture.contains("occurs twice"), "{picture}");
}

#[test]
fn a_file_that_changed_meanwhile_is_shown_and_what_was_typed_stays() {
    let (mut dashboard, mut host) = form("share-expiry");
    retype(&mut dashboard, "*/3 * * * *");
    dashboard.input(key(Code::Esc));
    let theirs = FILE.replace("timezone = \"UTC\"", "timezone = \"Europe/Berlin\"");
    host.replace(&theirs, "changed");
    host.pass(&mut dashboard, 6_000);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("changed on disk"), "{picture}");
    dashboard.type_in("W");
    assert!(dashboard.picture(80, 24).contains("R reloads it"), "it is not saved");
    dashboard.type_in("R");
    host.pass(&mut dashboard, 1_000);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("*/3 * * * *"), "{picture}");
    assert!(!picture.contains("changed on disk"), "{picture}");
    assert!(picture.contains("Europe/Berlin"), "what was not touched follows: {picture}");
    // A refusal by the host is shown, and the typed text is kept.
    host.refuse = Some("the file was changed".into());
    dashboard.type_in("Wx").input(key(Code::Enter));
    host.answer(&mut dashboard);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("not saved: the file was changed"), "{picture}");
    assert!(picture.contains("*/3 * * * *"), "{picture}");
}

#[test]
fn what_is_wrong_elsewhere_in_the_file_is_told_and_not_in_the_way() {
    for (wrong_key, saved) in [(None, true), (Some("jitter"), false)] {
        let (mut dashboard, mut host) = form("share-expiry");
        host.problem = Some(Problem {
            key: wrong_key.map(Into::into),
            line: 7,
            message: "it is no plugin".into(),
            fix: "name one".into(),
            ..Problem::default()
        });
        retype(&mut dashboard, "*/2 * * * *");
        host.pass(&mut dashboard, 1_000);
        let picture = dashboard.picture(80, 24);
        assert!(picture.contains("it is no plugin; name one"), "{picture}");
        dashboard.input(key(Code::Esc)).type_in("W").input(key(Code::Enter));
        host.answer(&mut dashboard);
        let picture = dashboard.picture(80, 24);
        assert_eq!(picture.contains("share-expiry: saved"), saved, "{wrong_key:?}: {picture}");
        assert_eq!(picture.contains("! it is no plugin"), !saved, "{wrong_key:?}: {picture}");
    }
}

#[test]
fn a_form_without_changes_follows_the_file() {
    let (mut dashboard, mut host) = form("share-expiry");
    host.replace(&FILE.replace("\"* * * * *\"", "\"*/7 * * * *\""), "by an editor");
    host.pass(&mut dashboard, 6_000);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("schedule */7 * * * *"), "{picture}");
    assert!(picture.contains("(as in the file)"), "{picture}");
    assert!(!picture.contains("changed on disk"), "{picture}");
}

#[test]
fn what_keeps_a_schedule_from_being_saved_is_told_beforehand() {
    let (mut dashboard, mut host) = form("share-expiry");
    host.lock = Some("the directory is read-only".into());
    host.pass(&mut dashboard, 6_000);
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("cannot be replaced: the directory is read-only"), "{picture}");
    // The answering host is node-a, and node-b leads.
    assert!(picture.contains("the leader's (node-b) applies"), "{picture}");
    dashboard.input(key(Code::Esc)).type_in("W");
    assert!(dashboard.picture(80, 24).contains("! the file cannot be replaced"));
    dashboard.effects.clear();
    dashboard.type_in("E");
    let lines = FILE.lines().position(|line| line.contains("# every minute"));
    let line = lines.expect("the schedule's line") as u32 + 1;
    let editor = Effect::Editor { path: host::PATH.into(), line };
    assert_eq!(dashboard.effects, [editor]);
}

#[test]
fn what_was_typed_is_left_only_on_purpose() {
    let (mut dashboard, _) = form("share-expiry");
    dashboard.type_in("q1?:");
    assert!(dashboard.picture(80, 24).contains("q1?:"), "keys are text in a field");
    dashboard.input(key(Code::Esc)).type_in("q");
    assert!(!dashboard.effects.contains(&Effect::Quit), "it asks first");
    dashboard.type_in("n").input(key(Code::Esc));
    assert!(dashboard.picture(80, 24).contains("esc again discards"));
    dashboard.type_in("u").input(key(Code::Esc));
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("choose the task"), "undone, there is nothing to lose: {picture}");
}

#[test]
fn hostile_text_never_reaches_the_terminal() {
    let (mut dashboard, mut host) = run();
    host.hostile = true;
    for keys in ["", "w", "i", "i", "i"] {
        dashboard.type_in(keys);
        host.pass(&mut dashboard, 6_000);
        for (columns, rows) in SIZES {
            let picture = dashboard.picture(columns, rows);
            assert_eq!(steering(&picture), None, "{picture:?}");
        }
    }
    let (mut dashboard, mut host) = form("share-expiry");
    host.hostile = true;
    dashboard.input(Input::Paste("\x1b[2J\u{202e}*/2".into()));
    for ms in [1_000, 6_000] {
        host.pass(&mut dashboard, ms);
        for (columns, rows) in SIZES {
            let picture = dashboard.picture(columns, rows);
            assert_eq!(steering(&picture), None, "{picture:?}");
        }
    }
}

#[test]
fn no_size_is_too_small_for_what_is_open() {
    let sizes = [0, 1, 2, 3, 5, 8, 9, 13, 20, 40, 59, 79, 80, 119, 120, 139, 140, 160, 200];
    for (mut dashboard, mut host) in [at(Place::Ring), run(), form("share-expiry")] {
        dashboard.type_in("w");
        host.pass(&mut dashboard, 1_000);
        for columns in sizes {
            for rows in sizes.into_iter().filter(|rows| *rows <= 60) {
                dashboard.picture(columns, rows);
            }
        }
    }
}
