//! `besom top` as an operator meets it: the real binary in a terminal, beside a host.
//!
//! Each test waits until the screen shows what it should, and then checks the store. One file per
//! subject; `terminal` is the terminal.

mod actions;
mod connection;
mod edit;
mod hostile;
mod modes;
mod path;
mod plain;
mod screens;

use rusqlite::Connection;
use serde_json::Value;

use crate::host::Host;
use crate::load::append;
use crate::site::{Site, hostile};
use crate::terminal::{self, Terminal};

/// No task has a schedule, and items are set aside at the first attempt.
const STAGE: &str = r#"
[host]
drain_max = "500ms"
[tasks.compaction]
plugin = "compaction"
[tasks.compaction.settings]
min_changes = 3
[tasks.compaction.retry]
attempts_max = 1
[tasks.share-expiry]
plugin = "share-expiry"
"#;

/// The change that is missing in each of [`add_with_a_gap`]'s documents.
const GAP: u8 = 2;

/// One map entry of client `client`, as Yjs encodes it.
fn entry(client: u8) -> [u8; 14] {
    [1, 1, client, 0, 40, 1, 1, b'm', 1, b'k', 1, 125, 5, 0]
}

/// A site with the tasks above, and one with a scan that never ends.
fn stage() -> Site {
    let endless = hostile("endless", "sleep", "limits.wall = \"1h\"");
    let site = Site::new(&format!("{STAGE}{endless}"));
    site.add_hostile();
    site
}

/// A document that compaction sets aside, because a change of it is missing.
fn add_with_a_gap(db: &mut Connection, doc: &str) {
    let sql = "INSERT INTO documents (project_id, doc_id, created_at, updated_at)
               VALUES ('first', ?1, 0, 0)";
    db.execute(sql, [doc]).expect("a document");
    for client in 1..=4 {
        append(db, &("first".into(), doc.into()), "author", "edit", &entry(client));
    }
    let sql = "DELETE FROM changes WHERE doc_id = ?1 AND server_seq = ?2";
    db.execute(sql, rusqlite::params![doc, GAP]).expect("a gap");
}

/// A host that leads.
fn leader(site: &Site) -> Host {
    let mut host = site.serve();
    host.leads();
    host
}

/// Confirms the open dialog with a reason, and waits for the result.
#[track_caller]
fn answer(terminal: &Terminal, title: &str, reason: &str, told: &str) {
    terminal.shows(title);
    terminal.text(reason);
    terminal.keys(&["Enter"]);
    terminal.shows(told);
}

/// Chooses a command from the palette.
#[track_caller]
fn command(terminal: &Terminal, words: &str) {
    terminal.keys(&[":"]);
    terminal.shows("Commands");
    terminal.text(words);
    terminal.shows(&format!("> {words}"));
    terminal.keys(&["Enter"]);
}

/// The commands, newest first, including records such as loads of plugins and imports.
#[track_caller]
fn asked(site: &Site) -> Vec<Value> {
    let (code, asked) = site.json(&["commands", "ls"]);
    assert_eq!(code, 0, "{asked:#}");
    let asked = asked.as_array().expect("a list").iter();
    let records = ["loaded", "imported", "reloaded"];
    let by_people = |row: &&Value| records.iter().all(|kind| row["command"]["command"] != *kind);
    asked.filter(by_people).cloned().collect()
}
