//! `besom plugin`: lists plugins, pins their files, and compares a plugin with the version before.
//!
//! A pin is the SHA-256 of a plugin's file, stored in the task that names it. A host refuses another file
//! under the same name, so write access to the file does not include the grants of the task.

use std::collections::BTreeSet;
use std::sync::Arc;

use besom_core::collection::Collections;
use besom_core::ids::TaskName;
use clap::Subcommand;
use serde::Serialize;

use super::open::{self, Loader};
use super::output::{self, Facts, Table};
use super::{Exit, Failure, Global, submit};
use besom_config::edit::{self, Refusal};
use besom_config::file;
use besom_config::resolve::{Parsed, Plugin};
use besom_ports::guests::Manifest;
use besom_ports::store::{Command, Store};
use besom_product::model::collections_for;

/// Maximum number of commands searched for the last load of a plugin.
const COMMANDS_SEEN_MAX: u32 = 10_000;

/// `besom plugin`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the configured plugins with version, digest, tasks and pin.
    Ls,
    /// Write the SHA-256 of the current plugin files into the tasks that name them.
    Pin {
        /// Tasks whose plugins are pinned.
        #[arg(required_unless_present = "all")]
        tasks: Vec<String>,
        /// Pin the plugins of all tasks that use a plugin file.
        #[arg(long, conflicts_with = "tasks")]
        all: bool,
        /// Reason, recorded with the edit.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Compare what the plugin of a task requests now with the version before: the pinned file, or the
    /// last different file that a host has loaded.
    Diff {
        /// Name of the task.
        task: String,
    },
}

/// A plugin as it is printed.
#[derive(Debug, Serialize)]
struct Row {
    plugin: String,
    version: Option<String>,
    digest: Option<String>,
    tasks: Vec<String>,
    /// `built-in`, `pinned`, `not pinned`, `differs` or `not compared`.
    pin: &'static str,
    /// The grants that the plugin requests.
    asks: BTreeSet<String>,
    /// Why the plugin cannot be used; `None` if it can.
    fault: Option<String>,
}

impl Verb {
    /// Runs the verb and prints its result.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let parsed = global.parsed()?;
        let loader = Loader::start(&parsed)?;
        match self {
            Verb::Ls => ls(global, &parsed, &loader).await,
            Verb::Pin { tasks, all, reason } => {
                submit::checked(&reason)?;
                pin(global, &parsed, &loader, tasks, all, &reason).await
            }
            Verb::Diff { task } => diff(global, &parsed, &loader, &task).await,
        }
    }
}

async fn ls(global: &Global, parsed: &Parsed, loader: &Loader) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let collections = mapped(parsed);
    for name in parsed.plugins() {
        let loaded = loader.load_admitted(name, parsed).await;
        let pins = parsed.pins();
        let of_plugin = || pins.iter().filter(|(_, plugin, _)| *plugin == name);
        let digest = match &loaded {
            Ok(plugin) => Some(plugin.digest.clone()),
            Err(fault) => fault.refused.clone(),
        };
        let is_pinned = |pin: Option<&str>| match (pin, &digest) {
            (Some(pin), Some(digest)) => Some(pin.eq_ignore_ascii_case(digest)),
            (Some(_), None) | (None, _) => None,
        };
        let pins: Vec<Option<bool>> = of_plugin().map(|(.., pin)| is_pinned(*pin)).collect();
        rows.push(Row {
            plugin: name.to_owned(),
            version: loaded.as_ref().ok().map(|plugin| plugin.manifest.version.clone()),
            tasks: of_plugin().map(|(task, ..)| (*task).to_owned()).collect(),
            pin: match &loaded {
                Ok(plugin) if plugin.built_in => "built-in",
                // The digest is unknown, so pins cannot be compared.
                Err(fault)
                    if fault.refused.is_none() && of_plugin().all(|(.., pin)| pin.is_some()) =>
                {
                    "not compared"
                }
                _ if pins.contains(&Some(false)) => "differs",
                _ if pins.contains(&None) => "not pinned",
                _ => "pinned",
            },
            asks: loaded
                .as_ref()
                .map(|plugin| {
                    let spanning = parsed.spanning_tenants(&plugin.manifest, &collections);
                    let spans = of_plugin().any(|(task, ..)| spanning.contains(task));
                    asks(&plugin.manifest, spans)
                })
                .unwrap_or_default(),
            fault: loaded.err().map(|fault| fault.message),
            digest,
        });
    }
    output::show(global.output, &rows, || {
        let mut table = Table::new("The configuration names no plugins.");
        for row in &rows {
            table.row([
                ("PLUGIN", &row.plugin),
                ("VERSION", &output::text(row.version.as_ref())),
                ("SHA-256", &output::text(row.digest.as_deref().map(short))),
                ("PIN", &row.pin),
                ("TASKS", &row.tasks.join(", ")),
                ("FAULT", &row.fault.as_deref().unwrap_or_default()),
            ]);
        }
        table.render()
    })?;
    Ok(Exit::Fine)
}

fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

/// Returns the collections of a configuration.
fn mapped(parsed: &Parsed) -> Arc<Collections> {
    let model = collections_for(&parsed.plugins());
    Arc::clone(&parsed.clone().outline(&model).partial().collections)
}

/// Returns what a plugin requests, as one line per request. `spans_tenants`: it reads rows of several
/// tenants at once.
fn asks(manifest: &Manifest, spans_tenants: bool) -> BTreeSet<String> {
    let mut asks = BTreeSet::new();
    for request in &manifest.collections {
        let name = &request.collection;
        let operations = request.operations;
        for (word, asked) in [
            ("read", operations.read),
            ("insert", operations.insert),
            ("update", operations.update),
            ("delete", operations.delete),
        ] {
            if asked {
                asks.insert(format!("{word} {name}"));
            }
        }
        if request.columns.is_empty() {
            asks.insert(format!("all columns of {name}"));
        }
        asks.extend(request.columns.iter().map(|column| format!("column {name}.{column}")));
    }
    asks.extend(manifest.topics.iter().map(|topic| format!("emit to {topic}")));
    if manifest.activity {
        asks.insert("read activity".to_owned());
    }
    if spans_tenants {
        asks.insert("scan all tenants at once".to_owned());
    }
    if manifest.lane.row().granted {
        asks.insert(format!("lane {}", manifest.lane.name()));
    }
    asks
}

/// Loads the plugin of a task.
async fn plugin_of(
    parsed: &Parsed,
    loader: &Loader,
    task: &str,
) -> Result<(String, Plugin), Failure> {
    let pins = parsed.pins();
    let found = pins.iter().find(|(name, ..)| *name == task).ok_or_else(|| {
        let names = pins.iter().map(|(name, ..)| *name);
        let fix = besom_config::keys::suggestion(task, names);
        Failure::Usage(format!("there is no task `{task}` in the file; {fix}"))
    })?;
    let plugin = loader.load(found.1, parsed).await;
    let plugin =
        plugin.map_err(|fault| Failure::Failed(format!("{}; {}", fault.message, fault.fix)))?;
    Ok((found.1.to_owned(), plugin))
}

/// A pinned plugin as it is printed.
#[derive(Debug, Serialize)]
struct Pinned {
    task: String,
    plugin: String,
    digest: String,
    /// Whether the configuration was changed; false if the pin was already there.
    written: bool,
    asks: BTreeSet<String>,
    /// What the file requests beside the file that was pinned or loaded before; only of a single task.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Difference>,
}

/// `besom task pin`.
#[derive(Debug, clap::Args)]
pub struct PinArgs {
    /// Name of the task.
    task: String,
    /// Reason, recorded with the edit.
    #[arg(long, default_value = "")]
    reason: String,
    /// Only print what the file requests; write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl PinArgs {
    /// Writes the SHA-256 of the plugin's file into the task, and prints what the file requests beside the
    /// one that was pinned or loaded before.
    ///
    /// # Errors
    /// An unknown task, a plugin that is built in or cannot be used, or a file that cannot be changed.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        submit::checked(&self.reason)?;
        let parsed = global.parsed()?;
        let loader = Loader::start(&parsed)?;
        let difference = compare(global, &parsed, &loader, &self.task).await?;
        let mut pinned = pins(global, &parsed, &loader, vec![self.task], self.dry_run).await?;
        note(global, &pinned, &self.reason).await;
        if let [pin] = pinned.as_mut_slice() {
            let text = difference.text();
            pin.difference = Some(difference);
            let pin = &*pin;
            output::show(global.output, pin, || {
                let mut facts = Facts::default();
                facts.add("task", &pin.task).add("sha256", &pin.digest);
                facts.add(
                    "written",
                    match (pin.written, self.dry_run) {
                        (_, true) => "no: a dry run",
                        (true, false) => "yes",
                        (false, false) => "unchanged",
                    },
                );
                format!("{}{text}", facts.render())
            })?;
        }
        Ok(Exit::Fine)
    }
}

async fn pin(
    global: &Global,
    parsed: &Parsed,
    loader: &Loader,
    tasks: Vec<String>,
    all: bool,
    reason: &str,
) -> Result<Exit, Failure> {
    let of_files = parsed.pins().into_iter().filter(|(_, plugin, _)| {
        besom_runtime::built_in::names().all(|built_in| built_in != *plugin)
    });
    let tasks = match all {
        true => of_files.map(|(task, ..)| task.to_owned()).collect(),
        false => tasks,
    };
    let pinned = pins(global, parsed, loader, tasks, false).await?;
    note(global, &pinned, reason).await;
    output::show(global.output, &pinned, || {
        let mut out = String::new();
        for pin in &pinned {
            let mut facts = Facts::default();
            facts.add("task", &pin.task).add("plugin", &pin.plugin).add("sha256", &pin.digest);
            if !pin.written {
                facts.add("pin", "unchanged");
            }
            for asked in &pin.asks {
                facts.add("asks", asked);
            }
            out.push_str(&facts.render());
        }
        out
    })?;
    Ok(Exit::Fine)
}

/// Pins the plugins of tasks in the configuration file, or in a dry run only says what would be pinned.
async fn pins(
    global: &Global,
    parsed: &Parsed,
    loader: &Loader,
    tasks: Vec<String>,
    dry_run: bool,
) -> Result<Vec<Pinned>, Failure> {
    let failed = |error: file::Error| Failure::Failed(error.to_string());
    let version = file::read(&global.config).map_err(failed)?;
    let (mut text, mut pinned) = (version.text.clone(), Vec::new());
    let collections = mapped(parsed);
    for task in tasks {
        let (plugin, loaded) = plugin_of(parsed, loader, &task).await?;
        if loaded.built_in {
            let message = format!("`{plugin}` is built in and needs no pin");
            return Err(Failure::Usage(message));
        }
        let name = TaskName::from(task.as_str());
        let new = edit::pin(&text, &name, &loaded.digest).map_err(|refusal| match refusal {
            Refusal::Syntax(problems) => Failure::Configuration(problems),
            other => Failure::Failed(other.to_string()),
        })?;
        let written = new != text && !dry_run;
        text = new;
        let spanning = parsed.spanning_tenants(&loaded.manifest, &collections);
        let asks = asks(&loaded.manifest, spanning.contains(&task.as_str()));
        let digest = loaded.digest;
        pinned.push(Pinned { task, plugin, digest, written, asks, difference: None });
    }
    if text != version.text && !dry_run {
        file::replace(&global.config, &version.digest, &text).map_err(failed)?;
    }
    Ok(pinned)
}

/// Records who has pinned what. If that fails, the pin still holds and only a warning is logged.
async fn note(global: &Global, pinned: &[Pinned], reason: &str) {
    if pinned.iter().all(|pin| !pin.written) {
        return;
    }
    let Some(store) = open::beside(global).await else { return };
    for pin in pinned.iter().filter(|pin| pin.written) {
        let task = TaskName::from(pin.task.as_str());
        let change = format!("sha256 -> \"{}\" ({})", pin.digest, pin.plugin);
        let command = Command::Edited { task, change };
        if let Err(error) = store.submit(&command, &submit::caller(), reason).await {
            tracing::warn!(%error, "cannot record in the store who pinned the plugin");
        }
    }
}

/// The comparison of two versions of a plugin.
#[derive(Debug, Serialize)]
struct Difference {
    plugin: String,
    before: Option<String>,
    now: String,
    pinned: Option<String>,
    version_before: Option<String>,
    version: String,
    /// Requested now, but not before.
    added: Vec<String>,
    /// Requested before, but not now.
    removed: Vec<String>,
    /// Whether the imports of both are compared; those of the former are known while this node has it compiled.
    imports: bool,
}

async fn diff(
    global: &Global,
    parsed: &Parsed,
    loader: &Loader,
    task: &str,
) -> Result<Exit, Failure> {
    let difference = compare(global, parsed, loader, task).await?;
    output::show(global.output, &difference, || difference.text())?;
    Ok(Exit::Fine)
}

/// Compares what the plugin of a task requests with the version before, as far as the store or the compiled
/// components of this node know that one.
async fn compare(
    global: &Global,
    parsed: &Parsed,
    loader: &Loader,
    task: &str,
) -> Result<Difference, Failure> {
    let (name, loaded) = plugin_of(parsed, loader, task).await?;
    let pins = parsed.pins();
    let pinned = pins.iter().find(|(known, ..)| *known == task).and_then(|(.., pin)| *pin);
    let recorded = match open::beside(global).await {
        Some(store) => last_load(&*store, &name, pinned, &loaded.digest).await?,
        None => None,
    };
    // The store may have forgotten the pinned file, or not exist yet.
    let other_pin = pinned.filter(|pin| !pin.eq_ignore_ascii_case(&loaded.digest));
    let digest = recorded.as_ref().map(|load| load.digest.clone());
    let digest = digest.or_else(|| other_pin.map(str::to_ascii_lowercase));
    let recalled = match &digest {
        Some(digest) => loader.runtime().recall(digest).await,
        None => None,
    };
    let collections = mapped(parsed);
    let asks_for = |manifest: &Manifest| {
        let spans = parsed.spanning_tenants(manifest, &collections).contains(&task);
        let mut asks = asks(manifest, spans);
        asks.extend(settings(manifest));
        asks
    };
    let mut now = asks_for(&loaded.manifest);
    let manifest = match &recalled {
        Some((manifest, _)) => Some(Arc::clone(manifest)),
        None => recorded.map(|load| Arc::new(load.manifest)),
    };
    let before = digest.zip(manifest);
    let mut was = before.as_ref().map(|(_, manifest)| asks_for(manifest)).unwrap_or_default();
    // Without the former component, its imports are not known, and all would seem to be new.
    if let (Some((_, imports)), true) = (&recalled, before.is_some()) {
        let line = |import: &String| format!("import {import}");
        was.extend(imports.iter().map(line));
        now.extend(loader.runtime().imports(&loaded.digest).iter().map(line));
    }
    let minus = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
    Ok(Difference {
        plugin: name,
        now: loaded.digest.clone(),
        pinned: pinned.map(str::to_owned),
        version: loaded.manifest.version.clone(),
        added: minus(&now, &was),
        removed: minus(&was, &now),
        version_before: before.as_ref().map(|(_, manifest)| manifest.version.clone()),
        before: before.map(|(digest, _)| digest),
        imports: recalled.is_some(),
    })
}

/// The settings of a plugin, as one line each.
fn settings(manifest: &Manifest) -> impl Iterator<Item = String> + '_ {
    manifest.settings.iter().map(|setting| {
        let kind = format!("{:?}", setting.kind).to_ascii_lowercase();
        let default = match &setting.default {
            Some(value) => format!(" = {}", value.shown()),
            None => ", required".to_owned(),
        };
        format!("setting {}: {kind}{default}", setting.name)
    })
}

impl Difference {
    fn text(&self) -> String {
        let mut facts = Facts::default();
        facts.add("plugin", &self.plugin);
        match (&self.before, &self.version_before) {
            (Some(digest), Some(version)) => {
                facts.add("before", format!("{version}  {digest}"));
            }
            _ => {
                let words = match &self.pinned {
                    Some(pin) if !pin.eq_ignore_ascii_case(&self.now) => {
                        format!("{pin}: neither the store nor the compiled plugins know it")
                    }
                    _ => "the store has no record of another loaded file".to_owned(),
                };
                facts.add("before", words);
            }
        }
        facts.add("now", format!("{}  {}", self.version, self.now));
        match &self.pinned {
            Some(pin) if pin.eq_ignore_ascii_case(&self.now) => facts.add("pin", "this file"),
            Some(pin) => facts.add("pin", format!("another file: {pin}")),
            None => facts.add("pin", "none"),
        };
        let mut out = facts.render();
        out.extend(self.added.iter().map(|line| format!("+ {line}\n")));
        out.extend(self.removed.iter().map(|line| format!("- {line}\n")));
        if self.added.is_empty() && self.removed.is_empty() {
            out.push_str("The requests are unchanged.\n");
        }
        if self.before.is_some() && !self.imports {
            out.push_str(
                "The imports are not compared: this node has not compiled the former file.\n",
            );
        }
        out
    }
}

/// A plugin file that a host has loaded.
struct Load {
    digest: String,
    manifest: Manifest,
}

/// Finds the last load of a plugin that differs from the current file: the pinned file if there is a
/// different pin, otherwise any other file.
async fn last_load(
    store: &dyn Store,
    name: &str,
    pinned: Option<&str>,
    now: &str,
) -> Result<Option<Load>, Failure> {
    let pinned = pinned.filter(|pin| !pin.eq_ignore_ascii_case(now));
    let rows = store.commands(None, COMMANDS_SEEN_MAX).await?;
    let loads = rows.into_iter().filter_map(|row| match row.command {
        Command::Loaded { plugin, digest, manifest, .. } if plugin == name => {
            Some(Load { manifest: serde_json::from_str(&manifest).ok()?, digest })
        }
        _ => None,
    });
    let mut others = loads.filter(|load| load.digest != now);
    Ok(match pinned {
        Some(pin) => others.find(|load| load.digest.eq_ignore_ascii_case(pin)),
        None => others.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use besom_core::collection::Operations;

    use besom_ports::guests::{CollectionRequest, Lane};

    #[test]
    fn what_a_plugin_asks_for_is_told_one_by_one() {
        let manifest = Manifest {
            name: "m".into(),
            version: "1".into(),
            doc: String::new(),
            settings: vec![],
            collections: vec![CollectionRequest {
                collection: "sessions".into(),
                operations: Operations { read: true, delete: true, ..Operations::default() },
                columns: vec!["expires_at".into()],
                ..CollectionRequest::default()
            }],
            topics: vec!["gone".into()],
            activity: true,
            per_tenant: false,
            lane: Lane::Due,
            extra: vec![],
        };
        let asked: Vec<String> = asks(&manifest, true).into_iter().collect();
        let expected = [
            "column sessions.expires_at",
            "delete sessions",
            "emit to gone",
            "lane due",
            "read activity",
            "read sessions",
            "scan all tenants at once",
        ];
        assert_eq!(asked, expected);
        assert!(!asks(&manifest, false).contains("scan all tenants at once"));
    }
}
