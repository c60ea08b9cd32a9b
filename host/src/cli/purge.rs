//! `besom quarantine purge`: removes the rows of a person from what is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::command::counted;
use besom_core::ids::TaskName;
use besom_core::purge::{Place, Purge};
use serde::Serialize;

use super::assembly::Assembly;
use super::open::Purpose;
use super::output::{self, Facts, Table};
use super::quarantine::{NOT_FOUND, search};
use super::submit::{self, Asking};
use super::{Exit, Failure, Global, open, run, task};
use besom_engine::host::asking::{ask, submit_once};
use besom_ports::store::{Command, CommandRow, Left, Store};
use besom_ports::undone::key_of;

/// How often the rows are looked for: once more than they can change on the way.
const ROUNDS: u32 = 3;
/// Maximum number of items that are printed for people.
const SHOWN: usize = 50;
/// Number of recorded commands among which those of a pass are looked for.
const RECORDED: u32 = 1_000;

/// `besom quarantine purge`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The value in the key of the rows, or the key of their item, as for `besom quarantine find`; or one row, with its
    /// collection, as `users (38)`.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    key: String,
    /// Only rows of this task, and what undoing them has kept.
    #[arg(long)]
    task: Option<String>,
    /// Show what would be removed, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Reason and waiting time.
    #[command(flatten)]
    asking: Asking,
}

/// What was removed, or would be.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Whether nothing was changed.
    dry_run: bool,
    /// The items whose rows were found.
    items: Vec<Item>,
    /// Number of rows that were found.
    rows: u64,
    /// The same, by collection.
    collections: BTreeMap<String, u64>,
    /// The commands that were recorded.
    commands: Vec<u64>,
    /// What was said of those that were refused.
    refused: Vec<String>,
    /// Whether a command still waits for a leader.
    waits: bool,
    /// Number of rows that are still kept.
    left: u64,
}

/// An item of which something is removed.
#[derive(Debug, Clone, Serialize)]
struct Item {
    /// RUN/#NUMBER.
    item: String,
    task: String,
    /// Number of its rows that are removed.
    rows: u64,
    /// Number of its rows that were kept before.
    of: u64,
    /// Number of its rows that are removed, by collection.
    collections: BTreeMap<String, u64>,
    #[serde(skip)]
    place: Place,
}

impl Args {
    /// Removes kept rows, or shows which.
    ///
    /// # Errors
    /// No reason, a reason with the key in it, or a store that cannot be written.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let reason = self.asking.reason.trim();
        submit::checked(reason)?;
        if self.key.is_empty() {
            return Err(Failure::Usage("--key must not be empty".into()));
        }
        let (store, outline) = open::reading(global).await?;
        let task = match &self.task {
            Some(name) => Some(task::known(&*store, &outline, name).await?),
            None => None,
        };
        if self.dry_run {
            let items = found(&*store, &self.key, task.as_ref()).await?;
            let report = Report { dry_run: true, left: rows(&items), ..Report::of(items) };
            output::show(global.output, &report, || report.text())?;
            return Ok(if report.items.is_empty() { Exit::Failed } else { Exit::Fine });
        }
        drop(store);
        if reason.is_empty() {
            return Err(Failure::Usage("purge requires a reason: add --reason TEXT".into()));
        }
        if names(reason, &self.key) {
            return Err(Failure::Usage(
                "--reason has the key in it, and is kept with the command: write the number of a \
                 ticket instead"
                    .into(),
            ));
        }
        open::refuse_absent(global)?;
        let mut assembly = Assembly::new(global, Purpose::Restore).await?;
        assembly.leave_out(|_| true);
        let store = Arc::clone(&assembly.ports.store);
        let mut report: Option<Report> = None;
        for _ in 0..ROUNDS {
            let items = found(&*store, &self.key, task.as_ref()).await?;
            let known = report.get_or_insert_with(|| Report::of(items.clone()));
            known.left = rows(&items);
            if items.is_empty() || known.waits {
                break;
            }
            known.purge(&assembly, items, &self.asking).await?;
        }
        let mut report = report.unwrap_or_default();
        let items = found(&*store, &self.key, task.as_ref()).await?;
        report.left = rows(&items);
        output::show(global.output, &report, || report.text())?;
        let is_done = !report.items.is_empty() && items.is_empty() && !report.waits;
        Ok(if is_done { Exit::Fine } else { Exit::Failed })
    }
}

/// Whether a text has the key in it, as a whole word. Of a key with its collection, `posts ("a", 7)`, each value.
fn names(text: &str, key: &str) -> bool {
    let is_end = |of: Option<char>| of.is_none_or(|c| !c.is_alphanumeric());
    let is_in = |key: &str| {
        text.match_indices(key).any(|(at, _)| {
            is_end(text[..at].chars().next_back()) && is_end(text[at + key.len()..].chars().next())
        })
    };
    let values = key.strip_suffix(')').and_then(|key| Some(key.split_once('(')?.1));
    let values = values.unwrap_or(key).split(", ");
    let values = values.map(|value| value.trim_matches(['"', '\'', ' ']));
    is_in(key) || values.filter(|value| !value.is_empty()).any(is_in)
}

fn rows(items: &[Item]) -> u64 {
    items.iter().map(|item| item.rows).sum()
}

/// The items of which something is kept for this key.
async fn found(
    store: &dyn Store,
    key: &str,
    task: Option<&TaskName>,
) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    search(store, key, task, |row, images, wanted| {
        let of = images.len() as u64;
        let mut place = Place { history: row.id, bytes: row.undo_bytes, of, ..Place::default() };
        let positions = (0..).zip(&*images).filter(|(_, image)| wanted.row(image));
        let (mut rows, mut collections) = (0, BTreeMap::new());
        for (at, image) in positions {
            place.add(at);
            // A row that was moved is one row.
            if image.left != Left::Copy {
                rows += 1;
                *collections.entry(image.collection.clone()).or_default() += 1;
            }
        }
        // What the item itself was given is of that key as well.
        if wanted.is_item() {
            place.rows.clear();
        }
        if !place.rows.is_empty() || wanted.is_item() {
            let (item, task) = (key_of(row.run, row.id), row.identity.task.to_string());
            let of = images.iter().filter(|image| image.left != Left::Copy).count() as u64;
            items.push(Item { item, task, rows, of, collections, place });
        }
        true
    })
    .await?;
    Ok(items)
}

impl Report {
    fn of(items: Vec<Item>) -> Report {
        let mut collections: BTreeMap<String, u64> = BTreeMap::new();
        for (name, rows) in items.iter().flat_map(|item| &item.collections) {
            *collections.entry(name.clone()).or_default() += rows;
        }
        Report { rows: rows(&items), collections, items, ..Report::default() }
    }

    /// Records commands for these items, and has them carried out: by the leader, or by a pass of this process if
    /// nobody leads.
    async fn purge(
        &mut self,
        assembly: &Assembly,
        items: Vec<Item>,
        asking: &Asking,
    ) -> Result<(), Failure> {
        let store = &*assembly.ports.store;
        let by = submit::caller();
        let places = items.into_iter().map(|item| item.place).collect();
        let leads = assembly.ports.coordination.leader().await?.is_some();
        let commands: Vec<Command> = Purge::of(places).into_iter().map(Command::Purge).collect();
        if !leads {
            for command in &commands {
                submit_once(store, command, &by, &asking.reason).await?;
            }
            run::pass(assembly).await?;
        }
        for command in &commands {
            if !leads {
                if let Some(row) = newest(store, command).await? {
                    self.commands.push(row.id);
                    self.waits |= row.applied_at.is_none();
                    self.refused.extend(row.result.filter(|_| row.refused));
                }
                continue;
            }
            let asked = ask(store, command, &by, &asking.reason, asking.wait).await?;
            self.commands.push(asked.command);
            self.waits |= !asked.applied;
            self.refused.extend(asked.result.filter(|_| asked.refused));
        }
        Ok(())
    }

    fn text(&self) -> String {
        if self.items.is_empty() {
            return NOT_FOUND.to_owned();
        }
        let mut table = Table::new("");
        for item in self.items.iter().take(SHOWN) {
            table.row([
                ("ITEM", &item.item),
                ("TASK", &item.task),
                (">ROWS", &item.rows),
                (">OF", &item.of),
            ]);
        }
        let mut text = table.render();
        if self.items.len() > SHOWN {
            let more = self.items.len() - SHOWN;
            text.push_str(&format!("... and {more} more (--output json lists them)\n"));
        }
        let mut found = format!(
            "{} of {}",
            counted(self.rows, "row"),
            counted(self.items.len() as u64, "item")
        );
        if self.collections.len() > 1 {
            let each = self.collections.iter().map(|(name, rows)| format!("{name} {rows}"));
            let each: Vec<String> = each.collect();
            found.push_str(&format!(" ({})", each.join(", ")));
        }
        if self.dry_run {
            text.push_str(&format!("{found} would be purged.\n"));
            if let (true, Some(name)) = (self.collections.len() > 1, self.collections.keys().next())
            {
                text.push_str(&format!(
                    "One value can be the key of rows of several tables. To purge only a row of one of them, name \
                     it: --key '{name} (...)', as `besom quarantine find` prints it.\n"
                ));
            }
            text.push_str("Nothing was changed.\n");
            return text;
        }
        let mut facts = Facts::default();
        let numbers: Vec<String> = self.commands.iter().map(u64::to_string).collect();
        let purged = self.rows.saturating_sub(self.left);
        facts.add("found", found).add("rows purged", purged).add("rows still kept", self.left);
        facts.add("commands", numbers.join(", "));
        for why in &self.refused {
            facts.add("refused", why);
        }
        if self.waits {
            facts.add("waits", "not applied yet; the next `besom serve` or `besom run` applies it");
        }
        text.push('\n');
        text.push_str(&facts.render());
        text
    }
}

/// The newest equal command.
async fn newest(store: &dyn Store, command: &Command) -> Result<Option<CommandRow>, Failure> {
    let newest = store.commands(None, RECORDED).await?;
    Ok(newest.into_iter().find(|row| row.command == *command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_a_key_only_as_a_whole_word() {
        assert!(names("erase ann@example.org, please", "ann@example.org"));
        assert!(names("7", "7") && names("person 7: asked", "7"));
        assert!(!names("ticket 4711", "47") && !names("ticket 4711", "ann"));
        assert!(names("ann@example.org has asked", "users (\"ann@example.org\")"));
        assert!(names("user 165", "users (165)") && names("it was 7", "likes (\"a\", 7)"));
        assert!(!names("users have asked", "users (165)"));
    }
}
