//! The whole path of a rule in the dashboard alone: it is written, previewed, approved, live, wrong, stopped by a
//! brake, undone and corrected.

use rusqlite::Connection;

use super::terminal::Terminal;
use super::{answer, command, leader};
use crate::brakes::{ALL, OLD, old_sessions, refused, site};
use crate::site::Site;

/// An editor that a person has told what to write: it replaces the file by `next.toml`.
const EDITOR: &str = "#!/bin/sh\ncat next.toml > \"$2\" && rm next.toml\n";

struct Path {
    terminal: Terminal,
    db: Connection,
    site: Site,
}

impl Path {
    /// The rule by which rows go that are older than that, in a mode.
    fn rule(mode: &str, older_than: &str) -> String {
        let keys = format!("mode = \"{mode}\"\nmax_delete = 1100");
        let text = old_sessions(&keys).replace("schedule = \"@every 1s\"\n", "");
        text.replace("older_than = \"1d\"", &format!("older_than = \"{older_than}\""))
    }

    /// Writes the file in the editor, from the form of a task.
    fn write(&self, text: &str) {
        std::fs::write(self.site.path("next.toml"), text).expect("what to write");
        self.terminal.keys(&["6"]);
        self.terminal.shows("Edit  choose the task");
        self.terminal.keys(&["Enter"]);
        self.terminal.shows("besom.toml:");
        self.leave_field();
        self.terminal.keys(&["E"]);
        let next = self.site.path("next.toml");
        // Until the editor has given the terminal back, a key is lost.
        self.terminal.until("the file to be written", |screen| {
            let is_there = screen.contains("Edit  choose the task");
            if !is_there && !next.exists() {
                self.terminal.keys(&["Escape"]);
            }
            is_there
        });
    }

    /// A key that follows too early would be taken for the same sequence.
    fn back(&self, is_there: impl Fn(&str) -> bool) {
        self.terminal.keys(&["Escape"]);
        self.terminal.until("the screen before", is_there);
    }

    fn leave_field(&self) {
        self.terminal.shows("leave the field");
        self.back(|screen| !screen.contains("leave the field"));
    }

    /// Chooses the mode after the present one in the form, and saves it.
    fn next_mode(&self, next: &str, reason: &str) {
        command(&self.terminal, "edit schedule of old");
        self.terminal.shows("Edit old");
        self.terminal.shows("besom.toml:");
        self.terminal.keys(&["BTab"]);
        self.terminal.shows(">mode");
        self.terminal.keys(&["Right"]);
        self.terminal.shows(&format!("mode = \"{next}\""));
        self.terminal.keys(&["W"]);
        self.terminal.shows("esc back, unsaved");
        self.terminal.text(reason);
        self.terminal.keys(&["Enter"]);
        self.terminal.shows("old: saved; it applies without a restart");
        self.back(|screen| !screen.contains("Edit old"));
    }

    fn trigger(&self) {
        command(&self.terminal, "trigger old");
        answer(&self.terminal, "Start a run of old now?", "", "trigger old: started");
    }

    /// The newest run in the list, once it is in that state.
    fn newest(&self, state: &str) {
        self.terminal.keys(&["5"]);
        self.terminal.shows(" read  ");
        self.terminal.keys(&["g"]);
        let is_chosen =
            |line: &str| line.starts_with('>') && line.contains(" old ") && line.contains(state);
        let what = format!("the cursor on a run in the state {state}");
        self.terminal.until(&what, |screen| screen.lines().any(is_chosen));
    }

    fn rows(&self) -> u32 {
        let count = "SELECT count(*) FROM sessions";
        self.db.query_row(count, [], |row| row.get(0)).expect("a number")
    }
}

fn walk(columns: u16, rows: u16) {
    let other = "[tasks.share-expiry]\nplugin = \"share-expiry\"\n";
    let site = site("mode = \"preview\"");
    site.configure(other);
    site.create_tables();
    std::fs::write(site.path("editor"), EDITOR).expect("the editor");
    let sh = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(site.path("editor"), sh).expect("it can be executed");
    let host = leader(&site);
    let editor = site.path("editor").display().to_string();
    let terminal = Terminal::open_with(&site, columns, rows, &[("EDITOR", &editor)]);
    let db = site.database();
    let path = Path { terminal, db, site };
    path.terminal.top("");

    // A new rule shows what it would do.
    path.write(&(other.to_owned() + &Path::rule("preview", "1d")));
    path.terminal.shows("old ");
    path.trigger();
    path.newest("preview");
    path.terminal.keys(&["Enter"]);
    path.terminal.shows("1,000 rows of sessions");
    path.back(|screen| screen.contains(" read  "));
    assert_eq!(path.rows(), ALL);

    // Its plans wait for a person.
    path.next_mode("approve", "the preview is right");
    path.trigger();
    path.newest("WAITS");
    path.terminal.shows(" a approve");
    path.terminal.keys(&["a"]);
    answer(&path.terminal, "of old?", "all of them are old", "approved");
    path.newest("ok");
    assert_eq!(path.rows(), ALL - OLD);

    // It is live, and somebody writes a wrong rule, which the brake stops.
    path.next_mode("live", "it has worked");
    let more = "WITH RECURSIVE n(i) AS (SELECT 5001 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
                INSERT INTO sessions SELECT i, unixepoch() - 10 FROM n;
                UPDATE sessions SET at = at - 10";
    path.db.execute_batch(more).expect("the product goes on");
    path.write(&(other.to_owned() + &Path::rule("live", "1s")));
    path.trigger();
    path.terminal.keys(&["1"]);
    path.terminal.shows("wanted to delete at least");
    let gone = ALL - path.rows();
    assert!(gone <= 1_100, "{gone} rows are gone");

    // What is planned is discarded, and what is gone comes back.
    command(&path.terminal, "discard what is planned of old");
    answer(&path.terminal, "Discard what is planned of old?", "a wrong rule", "discarded");
    path.newest("ok");
    path.terminal.shows(" U undo");
    path.terminal.keys(&["U"]);
    answer(&path.terminal, "of old?", "a wrong rule", "undo");
    path.terminal.until("the rows to be back", |_| path.rows() == ALL);

    // The corrected rule shows that nothing is left to do.
    path.write(&(other.to_owned() + &Path::rule("preview", "1d")));
    command(&path.terminal, "resume old");
    answer(&path.terminal, "Resume old?", "the rule is right", "resumed");
    path.trigger();
    path.newest("preview");
    path.terminal.keys(&["Enter"]);
    path.terminal.shows("Nothing would be changed.");
    let Path { site, terminal, .. } = path;
    drop(terminal);
    host.stop();
    site.balanced();
}

#[test]
fn a_plan_beyond_the_brake_is_searched_and_wrapped_and_its_approval_warns() {
    let site = site("mode = \"approve\"\nmax_delete = 150");
    let host = leader(&site);
    let terminal = Terminal::open(&site, 80, 24);
    terminal.top("");
    terminal.keys(&["5"]);
    terminal.shows("WAITS");
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("needs a decision first: `besom review show 1`"), "{why}");
    terminal.keys(&["Enter"]);
    let screen = terminal.shows("1,000 rows of sessions");
    assert!(!screen.contains("allowed: 150"), "{screen}");
    assert!(screen.contains("rule  rows of sessions with at before 20"), "{screen}");
    terminal.keys(&["w"]);
    terminal.shows("allowed: 150");
    terminal.keys(&["/"]);
    terminal.text("max_delete");
    terminal.keys(&["Enter"]);
    let screen = terminal.shows("WHAT IT WOULD CHANGE   /max_delete  1 found");
    assert!(!screen.contains("1,000 rows of sessions"), "{screen}");
    terminal.keys(&["a"]);
    terminal.shows("warning: max_delete would stop it");
    answer(&terminal, "of old?", "all the same", "approved");

    // The brake stops it, and a person takes the pause over.
    terminal.keys(&["2"]);
    terminal.shows(" P take over");
    terminal.keys(&["P"]);
    answer(&terminal, "Pause old?", "INC-7", "paused, in place of the brake");
    assert_eq!(site.task("old")["paused"]["reason"], "INC-7");
    drop(terminal);
    host.stop();
}

#[test]
fn on_a_small_terminal() {
    walk(80, 24);
}

#[test]
fn on_a_usual_terminal() {
    walk(110, 34);
}

#[test]
fn on_a_large_terminal() {
    walk(180, 50);
}
