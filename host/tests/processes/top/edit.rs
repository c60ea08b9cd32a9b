//! A schedule is edited on the screen and saved, and the rest of the file stays as people wrote it.

use super::terminal::Terminal;
use super::{asked, command, leader};
use crate::site::{Site, wait_for};

/// As people write it: with comments everywhere, and in their own order.
const COMMENTED: &str = "\
# The shares of the product.
[tasks.share-expiry] # see the handbook
plugin    = \"share-expiry\"
# Once a day is plenty.
schedule  = '0 4 * * *'   # INC-300: was every minute
overlap   = \"skip\"
# The end of it.
";

/// Opens the form and types another schedule, until the preview of the file is shown.
#[track_caller]
fn typed(terminal: &Terminal, schedule: &str) {
    command(terminal, "edit schedule of share-expiry");
    terminal.shows("Edit share-expiry");
    terminal.shows("besom.toml:5");
    terminal.keys(&["C-u"]);
    terminal.text(schedule);
    terminal.shows(&format!("NEXT RUNS of {schedule}"));
    terminal.until("the difference", |screen| {
        screen.lines().any(|line| line.starts_with(" +") && line.contains(schedule))
    });
    // Keys are commands again only outside the field. Until the program has read the key, one that
    // follows would be taken for the same sequence.
    terminal.keys(&["Escape"]);
    terminal.until("the field to be left", |screen| !screen.contains("esc leave the field"));
}

/// When the task runs next.
#[track_caller]
fn next(site: &Site) -> String {
    site.task("share-expiry")["next"].as_str().expect("a next run").to_owned()
}

#[test]
fn an_edit_on_the_screen_keeps_the_comments_and_moves_the_next_run() {
    let site = Site::new(COMMENTED);
    site.create_tables();
    let host = leader(&site);
    assert!(next(&site).contains("T04:00:00"), "{}", next(&site));
    let whole = || std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    let before = whole();
    let terminal = Terminal::open(&site, 100, 40);
    terminal.top("");

    // An error is shown under its character, and is not saved.
    command(&terminal, "edit schedule of share-expiry");
    terminal.shows("besom.toml:5");
    terminal.keys(&["C-u"]);
    terminal.text("0 4 * * 9");
    terminal.until("the fault under the 9", |screen| {
        let mut lines = screen.lines().skip_while(|line| !line.contains("0 4 * * 9"));
        let typed = lines.next().and_then(|line| line.find("0 4 * * 9")).map(|at| at + 8);
        let marked = lines.next().and_then(|line| line.find('^'));
        typed.is_some() && typed == marked
    });
    terminal.keys(&["Escape"]);
    terminal.shows("save (not yet)");
    terminal.keys(&["W", "u"]);
    terminal.shows("(as in the file)");
    assert_eq!(whole(), before);

    terminal.keys(&["Escape"]);
    terminal.shows("ATTENTION, most urgent first");
    typed(&terminal, "30 5 * * *");
    terminal.keys(&["W"]);
    terminal.shows("esc back, unsaved");
    terminal.text("after the backup");
    terminal.keys(&["Enter"]);
    terminal.shows("share-expiry: saved; it applies without a restart");
    assert_eq!(whole(), before.replace("0 4 * * *", "30 5 * * *"), "nothing else has changed");
    wait_for("the next run to move", || next(&site).contains("T05:30:00").then_some(()));
    assert_eq!(site.json(&["status"]).1["term"], 1, "without a restart");
    wait_for("the edit to be kept", || {
        let newest = asked(&site).into_iter().next()?;
        let what = "edit share-expiry: schedule \"0 4 * * *\" -> \"30 5 * * *\"";
        (newest["what"] == what && newest["reason"] == "after the backup").then_some(())
    });
    terminal.keys(&["Escape"]);
    terminal.shows("ATTENTION, most urgent first");
    terminal.keys(&["2"]);
    terminal.until("the new schedule in the table", |screen| {
        screen.lines().any(|line| line.starts_with(">share-expiry") && line.contains("30 5 * * *"))
    });
    drop(terminal);
    host.stop();
}

#[test]
fn a_file_that_somebody_else_has_changed_is_not_overwritten_and_what_was_typed_stays() {
    let site = Site::new(COMMENTED);
    site.create_tables();
    let host = leader(&site);
    let whole = || std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    let terminal = Terminal::open(&site, 100, 40);
    terminal.top("");
    typed(&terminal, "30 5 * * *");
    // The file changes between the reason and its confirmation: too late for the form to notice.
    terminal.keys(&["W"]);
    terminal.shows("esc back, unsaved");
    terminal.text("after the backup");
    site.configure(&COMMENTED.replace("# The end of it.", "# The end of it, says Ana."));
    let theirs = whole();
    terminal.keys(&["Enter"]);
    terminal.until("the refusal", |screen| {
        screen.lines().any(|line| line.starts_with(" !") && line.contains("changed"))
    });
    assert_eq!(whole(), theirs);
    terminal.shows("schedule 30 5 * * *");

    // The other version is loaded, the typed text is kept, and can be saved.
    terminal.keys(&["R"]);
    terminal.until("the difference to theirs", |screen| {
        screen.lines().any(|line| line.starts_with(" +") && line.contains("30 5 * * *"))
    });
    terminal.keys(&["W"]);
    terminal.shows("esc back, unsaved");
    terminal.text("once more");
    terminal.keys(&["Enter"]);
    terminal.shows("share-expiry: saved");
    assert_eq!(whole(), theirs.replace("0 4 * * *", "30 5 * * *"));
    drop(terminal);
    host.stop();
}
