//! `besom runs replay`: lets the plugin of a run decide about its items again, and compares.

use std::sync::Arc;

use besom_core::ids::RunId;
use besom_core::undo::{self, Target};
use serde::Serialize;

use crate::cli::open::{self, Loader, Opening};
use crate::cli::output::{self};
use crate::cli::undo::no_such_item;
use crate::cli::{Exit, Failure, Global};
use besom_config::{Parsed, printable};
use besom_engine::host::replay::{Comparison, Replay, Replayed};
use besom_ports::history::Rows;
use besom_ports::store::Run;
use besom_ports::task::TaskDefinition;
use besom_product::model::collections_for;

/// Maximum number of history rows of one item that are replayed.
const OF_ITEM: u32 = 100;

/// `besom runs replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of the run.
    run: u64,
    /// Only this item: its key, or #NUMBER.
    item: Option<String>,
    /// Maximum number of items, the newest first.
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// The replayed items of a run.
#[derive(Debug, Serialize)]
struct Report {
    run: u64,
    task: String,
    plugin: String,
    digest: String,
    /// Whether the plugin reads activity, which is read as it is now.
    activity: bool,
    same: usize,
    different: usize,
    not_replayed: usize,
    items: Vec<Replayed>,
}

impl Args {
    /// Replays items, and prints how each compares with what was committed. Nothing is committed.
    ///
    /// # Errors
    /// A run or an item that does not exist, a plugin that is not the one of the run any more, or a store that
    /// cannot be read.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let parsed = global.parsed()?;
        let model = collections_for(&parsed.plugins());
        let resolved = parsed.clone().outline(&model);
        let config = resolved.partial();
        if !open::is_there(config) {
            return Err(open::absent(config));
        }
        let store = Opening::reading().open(config).await?;
        let id = RunId(self.run);
        let run = store.run(id).await?.ok_or_else(|| {
            Failure::Usage(format!("there is no run {id}; list runs with `besom runs ls`"))
        })?;
        let (target, limit) = match self.item {
            Some(item) => (Target::Item(id, item), OF_ITEM.min(self.limit)),
            None => (Target::Run(id), self.limit),
        };
        let mut read = Rows::of_target(&*store, &target).paged(None, limit);
        let rows = read.page().await?;
        if rows.is_empty() {
            return Err(match target {
                Target::Item(..) => no_such_item(id),
                _ => Failure::Failed(format!("run {id} has no items in the history")),
            });
        }
        let loader = Loader::start(&parsed)?;
        let definition = definition(&run, &parsed, &loader).await?;
        let report = {
            let health = Arc::default();
            let replay = Replay {
                activity: open::activity(config, &store, false, &health).await?,
                store: Arc::clone(&store) as _,
                guests: Arc::new(loader.runtime().clone()),
                collections: Arc::clone(&config.collections),
                snapshot_max: config.host.act_snapshot_max,
                definition,
            };
            let mut items = Vec::with_capacity(rows.len());
            for row in &rows {
                items.push(replay.item(row).await?);
            }
            let count = |result| items.iter().filter(|item| item.result == result).count();
            Report {
                run: self.run,
                task: run.task.to_string(),
                plugin: replay.definition.plugin.clone(),
                digest: run.digest.clone(),
                activity: replay.definition.activity,
                same: count(Comparison::Same),
                different: count(Comparison::Different),
                not_replayed: count(Comparison::NotReplayed),
                items,
            }
        };
        output::show(global.output, &report, || report.text(read.more().is_some()))?;
        Ok(if report.different == 0 && report.same > 0 { Exit::Fine } else { Exit::Failed })
    }
}

/// The definition of a run, whose plugin is loaded if it still is the one that the run was executed with.
async fn definition(
    run: &Run,
    parsed: &Parsed,
    loader: &Loader,
) -> Result<TaskDefinition, Failure> {
    let id = run.id;
    if run.task.as_str() == undo::TASK {
        let words = format!("run {id} put rows back: no plugin has decided about its items");
        return Err(Failure::Failed(words));
    }
    let definition = TaskDefinition::of_run(run).ok_or_else(|| {
        Failure::Failed(format!(
            "run {id} was started by a version of Besom whose record this one cannot read: replay it \
             with that version"
        ))
    })?;
    let (name, recorded) = (definition.plugin.clone(), run.digest.to_ascii_lowercase());
    let another = |digest: &str, fix: &str| {
        Failure::Failed(format!(
            "run {id} was executed with another `{name}`: its SHA-256 was {recorded}, and now it is \
             {digest}; {fix}"
        ))
    };
    if let Some(Ok(built_in)) = besom_runtime::built_in::find(&name)
        && built_in.digest != recorded
    {
        return Err(another(
            built_in.digest,
            "replay it with the version of Besom that has run it",
        ));
    }
    let wanted = recorded.clone();
    let loaded = loader.load_if(&name, parsed, move |digest| digest == wanted).await;
    match loaded {
        Ok(_) => Ok(definition),
        Err(fault) => Err(match &fault.refused {
            Some(digest) => {
                let dir = parsed.plugins_dir().display();
                another(digest, &format!("put that file into {dir} to replay the run"))
            }
            None => Failure::Failed(printable(&format!("{}; {}", fault.message, fault.fix))),
        }),
    }
}

impl Report {
    fn text(&self, more: bool) -> String {
        let mut text: String = self.items.iter().map(ToString::to_string).collect();
        let Report { same, different, not_replayed, .. } = self;
        text.push_str(&format!(
            "{same} same, {different} different, {not_replayed} not replayed; nothing was committed.\n"
        ));
        if self.activity {
            text.push_str("The plugin reads activity, which was read as it is now.\n");
        }
        if more {
            text.push_str("There are more items (--limit).\n");
        }
        text
    }
}
