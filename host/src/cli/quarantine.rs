//! `besom quarantine`: what is kept of rows that were removed or changed, so that they can be put back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use besom_core::command::counted;
use besom_core::ids::TaskName;
use besom_core::time::Time;
use besom_core::undo::{self, Target, row_name};
use besom_core::value::Value as Kept;
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Map, Value};

use super::output::{self, Facts, Stamp, Table};
use super::undo::no_such_item;
use super::{Exit, Failure, Global, open, spelling, task};
use besom_config::printable;
use besom_engine::gather::rows;
use besom_engine::host::undo::is_candidate;
use besom_ports::history;
use besom_ports::store::{BeforeImage, Command, HistoryQuery, HistoryRow, Left, Run, Store};
use besom_ports::task::TaskDefinition;
use besom_ports::undone::{Recorded, Undone, key_of};

/// Maximum number of runs searched by `ls`.
const RUNS: u32 = 10_000;
/// Maximum number of history rows searched by `find`.
const SEARCHED: usize = 1_000_000;
/// Maximum number of undos of undos that are followed to the item that was undone.
const UNDOS: u32 = 8;

/// `besom quarantine`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List runs of which rows are kept, newest first: how many rows, by which task and plugin, until when, how large.
    Ls {
        /// Only runs of this task.
        #[arg(long)]
        task: Option<String>,
        /// Maximum number of runs.
        #[arg(short, long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show the kept items of a run, or with RUN/ITEM the kept rows of an item, named by its key or #NUMBER.
    Show {
        /// RUN or RUN/ITEM.
        #[arg(value_name = "RUN[/ITEM]")]
        what: String,
        /// Maximum number of items or rows.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Find the kept rows with this value in their key, or with this text as their item's key. Other columns are not
    /// searched.
    Find {
        /// The value, in a spelling that the database accepts for the type of the column, or that Besom prints; or a
        /// row, as `users (38)`.
        #[arg(allow_hyphen_values = true)]
        key: String,
        /// Only rows of this task.
        #[arg(long)]
        task: Option<String>,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Remove the rows with this value in their key, and of items with this key, from what is kept.
    Purge(super::purge::Args),
}

/// What is said if no kept row has a key.
pub(super) const NOT_FOUND: &str = "No such rows are kept. Only keys are searched: of kept rows, and of items; not \
                                    other columns, such as an e-mail address that is no key.\n";
/// Number of commands read at a time.
const COMMANDS: u32 = 1_000;

/// The items of which rows were purged, by their numbers in the history.
pub(super) struct Purges(BTreeSet<u64>);

impl Purges {
    /// Reads them from the commands, which are kept as long as the history.
    pub(super) async fn read(store: &dyn Store) -> Result<Purges, Failure> {
        let (mut found, mut before) = (BTreeSet::new(), None);
        loop {
            let rows = store.commands(before, COMMANDS).await?;
            let purges = rows.iter().filter_map(|row| match &row.command {
                Command::Purge(purge) if !row.refused => Some(&purge.places),
                _ => None,
            });
            found.extend(purges.flatten().map(|place| place.history));
            before = rows.last().map(|row| row.id);
            if rows.len() < COMMANDS as usize {
                return Ok(Purges(found));
            }
        }
    }

    /// The number of rows of an item that were purged, while others of it are kept.
    pub(super) async fn of(&self, store: &dyn Store, history: u64) -> Result<u64, Failure> {
        match self.0.contains(&history) {
            true => Ok(store.kept(history).await?.map_or(0, |kept| kept.purged)),
            false => Ok(0),
        }
    }
}

/// A run of which rows are kept.
#[derive(Debug, Serialize)]
struct KeptRun {
    run: u64,
    task: String,
    /// The plugin that proposed the changes.
    plugin: String,
    /// The digest of its component.
    digest: String,
    /// When the first and the last of its kept items ended.
    from: Stamp,
    to: Stamp,
    items: u64,
    /// Rows that its kept items have changed, without those that were purged.
    rows: u64,
    /// Rows of these items that were purged.
    purged: u64,
    /// Size of what is kept, in bytes.
    bytes: u64,
    /// Until when it is kept; `None`: the task is not in the configuration, and it is kept with its history.
    until: Option<Stamp>,
    /// `no`, `partly` or `yes`: whether its kept items are undone.
    undone: &'static str,
    /// Number of items that are undone, as a whole.
    undone_items: u64,
    #[serde(skip)]
    partly: bool,
}

/// An item whose rows are kept.
#[derive(Debug, Serialize)]
struct KeptItem {
    /// RUN/#NUMBER, for `besom undo`.
    item: String,
    task: String,
    tenant: Option<String>,
    key: String,
    at: Stamp,
    /// Rows that it has changed, without those that were purged.
    rows: u64,
    /// Rows of it that were purged.
    purged: u64,
    bytes: u64,
    until: Option<Stamp>,
    /// `no`, `partly` or `yes`: whether it is undone.
    undone: &'static str,
}

/// A row that is kept.
#[derive(Debug, Serialize)]
struct KeptRow {
    item: String,
    task: String,
    /// The collection and the key.
    row: String,
    at: Stamp,
    /// `deleted`, `changed`, `inserted`, `moved`, or `unknown`.
    change: &'static str,
    until: Option<Stamp>,
    /// The row as it was; `None`: it did not exist.
    was: Option<Map<String, Value>>,
}

/// The task that says how long what a history row has kept is kept: its own, or of an undo that of the items that it has
/// undone.
async fn keeping(store: &dyn Store, row: &HistoryRow) -> Result<TaskName, Failure> {
    let of = origin(store, row).await?;
    Ok(of.map_or_else(|| row.identity.task.clone(), |of| of.identity.task))
}

/// What the configuration says about keeping.
struct Retentions(BTreeMap<TaskName, Duration>);

impl Retentions {
    fn until(&self, task: &TaskName, at: Time) -> Option<Stamp> {
        let known = self.0.get(task).copied();
        let own = || {
            let longest = self.0.values().copied().max();
            (task.as_str() == undo::TASK).then_some(longest).flatten()
        };
        known.or_else(own).map(|kept| Stamp(at + kept))
    }
}

impl Verb {
    /// Prints what is kept.
    ///
    /// # Errors
    /// A run or an item that does not exist, or a store that cannot be read.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, outline) = open::reading(global).await?;
        let kept = outline.tasks.iter().map(|(name, task)| (name.clone(), task.keep_removed));
        let kept = Retentions(kept.collect());
        match self {
            Verb::Ls { task: name, limit } => {
                let of = name.as_deref().map(TaskName::from);
                let runs = runs(&*store, &kept, of, limit as usize).await?;
                task::known_if_none(&*store, &outline, runs.len(), name.as_deref()).await?;
                output::show_list(global.output, &runs, (runs.len(), limit), || table(&runs))?;
            }
            Verb::Show { what, limit } => {
                let target = Target::parse(&what).map_err(Failure::Usage)?;
                let (Target::Run(run) | Target::Item(run, _)) = &target else {
                    return Err(Failure::Usage(format!("`{what}`: write RUN or RUN/ITEM")));
                };
                if store.run(*run).await?.is_none() {
                    return Err(Failure::Usage(format!(
                        "there is no run {run}; list runs with `besom quarantine ls`"
                    )));
                }
                if let Target::Run(_) = target {
                    let items = items(&*store, &kept, &target, limit as usize).await?;
                    output::show_list(global.output, &items, (items.len(), limit), || {
                        of_items(&items)
                    })?;
                    return Ok(Exit::Fine);
                }
                let found = history::Rows::of_target(&*store, &target).page().await?;
                if found.is_empty() {
                    return Err(no_such_item(*run));
                }
                let mut rows = Vec::new();
                for row in &found {
                    rows.extend(
                        rows_of(&*store, &kept, row, limit as usize - rows.len(), |_| true).await?,
                    );
                }
                output::show_list(global.output, &rows, (rows.len(), limit), || of_rows(&rows))?;
            }
            Verb::Find { key, task: name, limit } => {
                let of = name.as_deref().map(TaskName::from);
                let rows = found(&*store, &kept, &key, of, limit as usize).await?;
                task::known_if_none(&*store, &outline, rows.len(), name.as_deref()).await?;
                output::show_list(global.output, &rows, (rows.len(), limit), || {
                    if rows.is_empty() { NOT_FOUND.to_owned() } else { of_rows(&rows) }
                })?;
                return Ok(if rows.is_empty() { Exit::Failed } else { Exit::Fine });
            }
            Verb::Purge(args) => return args.run(global).await,
        }
        Ok(Exit::Fine)
    }
}

async fn runs(
    store: &dyn Store,
    kept: &Retentions,
    task: Option<TaskName>,
    limit: usize,
) -> Result<Vec<KeptRun>, Failure> {
    let mut found: Vec<KeptRun> = Vec::new();
    let undos = Recorded::read(store, SEARCHED).await?;
    let purges = Purges::read(store).await?;
    for run in store.runs(task.as_ref(), RUNS).await? {
        if found.len() >= limit {
            break;
        }
        let mut all: Option<KeptRun> = None;
        let target = Target::Run(run.id);
        let mut rows = history::Rows::of_target(store, &target);
        while let Some(row) = rows.next().await? {
            if row.undo_bytes > 0 {
                let (plugin, digest) = (plugin_of(&run), run.digest.clone());
                let until = kept.until(&keeping(store, &row).await?, row.at);
                let all = all.get_or_insert_with(|| KeptRun {
                    run: run.id.0,
                    task: run.task.to_string(),
                    plugin,
                    digest,
                    from: Stamp(row.at),
                    to: Stamp(row.at),
                    items: 0,
                    rows: 0,
                    purged: 0,
                    bytes: 0,
                    until,
                    undone: "no",
                    undone_items: 0,
                    partly: false,
                });
                let undone = undos.of(run.id, row.id);
                all.undone_items += u64::from(undone == Undone::Whole);
                all.partly |= undone == Undone::Partly;
                // Newest first.
                all.from = Stamp(row.at);
                let purged = purges.of(store, row.id).await?;
                all.items += 1;
                all.rows += row.rows.saturating_sub(purged);
                all.purged += purged;
                all.bytes += row.undo_bytes;
            }
        }
        found.extend(all.map(|run| KeptRun {
            undone: match run.undone_items {
                items if items == run.items => "yes",
                0 if !run.partly => "no",
                _ => "partly",
            },
            ..run
        }));
    }
    Ok(found)
}

fn plugin_of(run: &Run) -> String {
    TaskDefinition::of_run(run).map(|definition| definition.plugin).unwrap_or_default()
}

async fn items(
    store: &dyn Store,
    kept: &Retentions,
    target: &Target,
    limit: usize,
) -> Result<Vec<KeptItem>, Failure> {
    let mut found = Vec::new();
    let undos = Recorded::read(store, SEARCHED).await?;
    let purges = Purges::read(store).await?;
    let mut rows = history::Rows::of_target(store, target);
    while found.len() < limit
        && let Some(row) = rows.next().await?
    {
        if is_candidate(&row) && row.undo_bytes > 0 {
            let purged = purges.of(store, row.id).await?;
            found.push(KeptItem {
                item: key_of(row.run, row.id),
                task: row.identity.task.to_string(),
                tenant: row.identity.tenant.as_ref().map(ToString::to_string),
                key: row.identity.key.clone(),
                at: Stamp(row.at),
                rows: row.rows.saturating_sub(purged),
                purged,
                bytes: row.undo_bytes,
                until: kept.until(&keeping(store, &row).await?, row.at),
                undone: match undos.of(row.run, row.id) {
                    Undone::No => "no",
                    Undone::Partly => "partly",
                    Undone::Whole => "yes",
                },
            });
        }
    }
    Ok(found)
}

async fn rows_of(
    store: &dyn Store,
    kept: &Retentions,
    row: &HistoryRow,
    limit: usize,
    wanted: impl Fn(&BeforeImage) -> bool,
) -> Result<Vec<KeptRow>, Failure> {
    let images = store.before_images(row.id).await?.unwrap_or_default();
    let of = keeping(store, row).await?;
    Ok(shown_rows((kept, &of), row, images, limit, wanted))
}

fn shown_rows(
    (kept, of): (&Retentions, &TaskName),
    row: &HistoryRow,
    images: Vec<BeforeImage>,
    limit: usize,
    wanted: impl Fn(&BeforeImage) -> bool,
) -> Vec<KeptRow> {
    let images = images.into_iter().filter(|image| image.left != Left::Copy);
    let images = images.filter(wanted).take(limit).map(|image| KeptRow {
        item: key_of(row.run, row.id),
        task: row.identity.task.to_string(),
        row: row_name(&image.collection, &image.key),
        at: Stamp(row.at),
        change: match (&image.left, image.stored.is_empty()) {
            (Left::Gone, _) => "deleted",
            (Left::Moved(_), _) => "moved",
            (Left::Set(_) | Left::As(_), false) => "changed",
            (_, true) => "inserted",
            (Left::Unknown | Left::Copy, false) => "unknown",
        },
        until: kept.until(of, row.at),
        was: (!image.stored.is_empty()).then(|| {
            let fields = image.stored.iter();
            fields.map(|field| (field.name.to_string(), rows::plain(&field.value))).collect()
        }),
    });
    images.collect()
}

/// The kept rows with a value in their key, newest first.
async fn found(
    store: &dyn Store,
    kept: &Retentions,
    key: &str,
    task: Option<TaskName>,
    limit: usize,
) -> Result<Vec<KeptRow>, Failure> {
    let mut found = Vec::new();
    search(store, key, task.as_ref(), |row, images, wanted| {
        let room = limit - found.len();
        found.extend(shown_rows((kept, wanted.of), row, images, room, |image| wanted.row(image)));
        found.len() < limit
    })
    .await?;
    Ok(found)
}

/// Which rows of an item are looked for.
pub(super) struct Wanted<'a> {
    key: &'a str,
    is_item: bool,
    /// The task that says how long the rows are kept.
    of: &'a TaskName,
}

impl Wanted<'_> {
    /// Whether the item itself has the key, or undoes one that has it: all of its rows are looked for.
    pub(super) fn is_item(&self) -> bool {
        self.is_item
    }

    /// Whether a row of the item is looked for.
    pub(super) fn row(&self, image: &BeforeImage) -> bool {
        let (key, text) = (&image.key, self.key);
        // An instant may be stored as a number, or a value in a spelling of the database's own.
        let stored = |value: &Kept| {
            let mut columns = image.row.iter().flatten().filter(|field| field.value == *value);
            columns.any(|column| {
                let mut stored = image.stored.iter().filter(|field| field.name == column.name);
                stored.any(|field| spelling::is(&field.value, text))
            })
        };
        let is_named = |value| {
            spelling::is(value, text) || shown(&rows::plain(value)) == text || stored(value)
        };
        self.is_item || key.iter().any(is_named) || row_name(&image.collection, key) == text
    }
}

/// Looks for kept rows with a value in their key, or of items with this key, newest first: of one task, then of
/// what undoing it has kept; or of all tasks. Ends when `each` returns `false`.
pub(super) async fn search(
    store: &dyn Store,
    key: &str,
    task: Option<&TaskName>,
    mut each: impl FnMut(&HistoryRow, Vec<BeforeImage>, &Wanted<'_>) -> bool,
) -> Result<(), Failure> {
    let own = TaskName::from(undo::TASK);
    let mut tasks = vec![task.cloned()];
    tasks.extend(task.filter(|task| **task != own).map(|_| Some(own.clone())));
    for of in tasks {
        let mut rows =
            history::Rows::of(store, HistoryQuery { task: of, ..HistoryQuery::default() });
        let mut searched = 0;
        while searched < SEARCHED
            && let Some(row) = rows.next().await?
        {
            searched += 1;
            if row.undo_bytes == 0 {
                continue;
            }
            let origin = origin(store, &row).await?;
            let identity = origin.as_ref().map_or(&row.identity, |row| &row.identity);
            if task.is_some_and(|task| *task != row.identity.task && *task != identity.task) {
                continue;
            }
            let Some(images) = store.before_images(row.id).await? else { continue };
            let wanted = Wanted { key, is_item: identity.key == key, of: &identity.task };
            if !each(&row, images, &wanted) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The names of the kept rows of a target that these keys name, by their items as `RUN/#NUMBER`; at most `max`.
pub(super) async fn chosen(
    store: &dyn Store,
    target: &Target,
    keys: &[String],
    max: usize,
) -> Result<BTreeMap<String, BTreeSet<String>>, Failure> {
    let (mut chosen, mut count) = (BTreeMap::new(), 0);
    let mut unknown: BTreeSet<&String> = keys.iter().collect();
    let mut items = history::Rows::of_target(store, target);
    while let Some(row) = items.next().await? {
        if !is_candidate(&row) || row.undo_bytes == 0 {
            continue;
        }
        let Some(images) = store.before_images(row.id).await? else { continue };
        let origin = origin(store, &row).await?;
        let identity = origin.as_ref().map_or(&row.identity, |row| &row.identity);
        let mut names = BTreeSet::new();
        for key in keys {
            let wanted = Wanted { key, is_item: identity.key == *key, of: &identity.task };
            for image in images.iter().filter(|image| image.left != Left::Copy) {
                if wanted.row(image) {
                    names.insert(row_name(&image.collection, &image.key));
                    unknown.remove(key);
                }
            }
        }
        count += names.len();
        if count > max {
            let why = format!("--key: more than {max} rows of {target} are named: undo its items");
            return Err(Failure::Failed(why));
        }
        if !names.is_empty() {
            chosen.insert(key_of(row.run, row.id), names);
        }
    }
    match unknown.pop_first() {
        Some(key) => Err(Failure::Failed(printable(&format!(
            "--key: `{key}` names no row that is kept of {target}: look for it with `besom quarantine find {key}`; nothing \
             was undone"
        )))),
        None => Ok(chosen),
    }
}

/// The item that was undone in the first place by an item of the task `undo`; `None`: the item is of another task,
/// or what it has undone is no longer in the history.
async fn origin(store: &dyn Store, row: &HistoryRow) -> Result<Option<HistoryRow>, Failure> {
    let mut found: Option<HistoryRow> = None;
    for _ in 0..UNDOS {
        let last = found.as_ref().unwrap_or(row);
        if last.identity.task.as_str() != undo::TASK {
            break;
        }
        let Ok(target) = Target::parse(&last.identity.key) else { break };
        match history::Rows::of_target(store, &target).next().await? {
            Some(undone) => found = Some(undone),
            None => break,
        }
    }
    Ok(found)
}

/// A value as people write it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn until(until: &Option<Stamp>) -> String {
    until.as_ref().map_or_else(|| "with its history".to_owned(), ToString::to_string)
}

fn table(runs: &[KeptRun]) -> String {
    let mut table = Table::new("No rows are kept.");
    for run in runs {
        table.row([
            (">RUN", &run.run),
            ("TASK", &run.task),
            ("PLUGIN", &run.plugin),
            ("LAST", &run.to),
            (">ITEMS", &run.items),
            (">ROWS", &run.rows),
            (">BYTES", &run.bytes),
            ("KEPT UNTIL", &until(&run.until)),
            ("UNDONE", &run.undone),
        ]);
    }
    let (rows, bytes): (u64, u64) =
        runs.iter().fold((0, 0), |(rows, bytes), run| (rows + run.rows, bytes + run.bytes));
    match runs.len() {
        0 => table.render(),
        _ => format!(
            "{}{}, {} in all\n",
            table.render(),
            counted(rows, "row"),
            counted(bytes, "byte")
        ),
    }
}

fn of_items(items: &[KeptItem]) -> String {
    let mut table = Table::new("No rows of this run are kept.");
    for item in items {
        table.row([
            ("ITEM", &item.item),
            ("TASK", &item.task),
            ("TENANT", &output::text(item.tenant.as_ref())),
            ("KEY", &item.key),
            ("AT", &item.at),
            (">ROWS", &item.rows),
            (">BYTES", &item.bytes),
            ("KEPT UNTIL", &until(&item.until)),
            ("UNDONE", &item.undone),
        ]);
    }
    table.render()
}

fn of_rows(rows: &[KeptRow]) -> String {
    if rows.is_empty() {
        return "No such rows are kept.\n".to_owned();
    }
    let mut text = String::new();
    for row in rows {
        let mut facts = Facts::default();
        facts.add("row", &row.row).add("item", &row.item).add("task", &row.task);
        facts.add(row.change, row.at).add("kept until", until(&row.until));
        for (name, value) in row.was.iter().flatten() {
            facts.add(format!("  {name}"), shown(value));
        }
        text.push_str(&facts.render());
        text.push('\n');
    }
    text
}
