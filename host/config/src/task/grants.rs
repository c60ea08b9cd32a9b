//! `[tasks.NAME.grants]` and `[tasks.NAME.collections]`: what a task may do, and the collections that it uses
//! under the names of its plugin.

use std::collections::BTreeMap;

use besom_core::collection::{Collection, Collections, Grants, Operations};
use besom_ports::guests::Manifest;
use besom_ports::task::{Aliases, Columns};

use super::RawTask;
use crate::Plugin;
use crate::keys::{suggestion, written};
use crate::tree::{Entry, Node, Span};
use crate::walk::Walker;

/// The key of grants that lists topics.
pub const TOPICS: &str = "topics";
/// The key of grants that allows reading activity.
pub const ACTIVITY: &str = "activity";
/// The key of grants that allows scanning all tenants at once.
pub const ALL_TENANTS: &str = "all_tenants";
/// Reserved names that no collection can have.
pub const RESERVED: [&str; 3] = [TOPICS, ACTIVITY, ALL_TENANTS];

/// An entry of `[tasks.NAME.collections]`.
#[derive(Debug, Clone)]
pub(super) struct Alias {
    /// The plugin's name for the collection.
    pub name: String,
    pub name_span: Span,
    /// The collection of the configuration.
    pub collection: String,
    pub collection_span: Span,
}

/// The grants of a task.
#[derive(Default)]
pub(super) struct Granted {
    pub grants: Grants,
    pub columns: Columns,
    pub topics: Vec<String>,
    pub activity: bool,
    pub all_tenants: bool,
}

impl RawTask {
    /// The plugin with the collections that it requests for this task: optional ones only if the task names them.
    pub(super) fn requesting(&self, plugin: &Plugin) -> Plugin {
        let is_named = |name: &str| self.aliases.iter().any(|alias| alias.name == name);
        let mut requesting = Manifest::clone(&plugin.manifest);
        let is_asked = |name: &str| is_named(name) || !plugin.manifest.needs_no(name);
        requesting.collections.retain(|request| is_asked(&request.collection));
        Plugin { manifest: requesting.into(), ..plugin.clone() }
    }

    /// The fix for a collection that the plugin knows by another name.
    fn alias(&self, name: &str, collection: &str) -> String {
        format!(
            "if the plugin's `{name}` is your collection `{collection}`, write collections = {{ {} = {:?} }} \
             in [tasks.{}]",
            written(name),
            collection,
            written(&self.name)
        )
    }

    /// Resolves the plugin's names of collections. Each must be a name that the plugin requests and a mapped
    /// collection, and no two names may share a collection.
    pub(super) fn aliases(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
    ) -> Aliases {
        let asked: Vec<&str> =
            plugin.manifest.collections.iter().map(|r| r.collection.as_str()).collect();
        let mut aliases = Aliases::new();
        for alias in &self.aliases {
            if !asked.contains(&alias.name.as_str()) {
                walker.error(
                    &alias.name_span,
                    format!(
                        "the plugin `{}` does not request a collection `{}`",
                        self.plain.plugin, alias.name
                    ),
                    suggestion(&alias.name, asked.iter().copied()),
                );
                continue;
            }
            if !collections.contains_key(&alias.collection) {
                walker.error(
                    &alias.collection_span,
                    format!("the collection `{}` is not mapped", alias.collection),
                    format!("add [collections.{}]", written(&alias.collection)),
                );
            }
            aliases.insert(alias.name.clone(), alias.collection.clone());
        }
        let mut taken = BTreeMap::new();
        for name in asked {
            let collection = aliases.get(name).map_or(name, String::as_str).to_owned();
            if let Some(first) = taken.insert(collection.clone(), name) {
                let span = self.aliases.iter().find(|a| a.name == name || a.name == first);
                let span = span.map_or(&self.name_span, |alias| &alias.collection_span);
                walker.error(
                    span,
                    format!("`{first}` and `{name}` both refer to the collection `{collection}`"),
                    "use a different collection for each name",
                );
            }
        }
        aliases
    }

    pub(super) fn grants(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
        aliases: &Aliases,
    ) -> Granted {
        let real = |name: &'_ str| aliases.get(name).map_or(name, String::as_str).to_owned();
        let manifest = &plugin.manifest;
        let plugin_span = self.span("plugin").clone();
        for request in &manifest.collections {
            let name = &real(&request.collection);
            let said = match *name == request.collection {
                true => String::new(),
                false => format!(" (its `{}`)", request.collection),
            };
            let Some(mapped) = collections.get(name) else {
                if aliases.contains_key(&request.collection) {
                    continue; // Already reported at the alias.
                }
                walker.error(
                    &plugin_span,
                    format!(
                        "the plugin `{}` requests the collection `{name}`, which is not mapped",
                        self.plain.plugin
                    ),
                    format!(
                        "add [collections.{of}], or name the one to use: collections = {{ {of} = \"...\" }}",
                        of = written(name)
                    ),
                );
                continue;
            };
            for column in &request.columns {
                if !is_mapped(mapped, column) && !manifest.is_optional(&request.collection, column)
                {
                    walker.error(
                        &plugin_span,
                        format!("the plugin `{}` requests the column `{name}.{column}`{said}, which is not mapped", self.plain.plugin),
                        format!("add it to [collections.{}.columns]", written(name)),
                    );
                }
            }
        }
        let asked: BTreeMap<String, Operations> = manifest
            .collections
            .iter()
            .map(|request| (real(&request.collection), request.operations))
            .collect();
        let Some(table) = &self.grants else {
            if plugin.built_in {
                return Granted {
                    grants: asked,
                    columns: Columns::new(),
                    topics: manifest.topics.clone(),
                    activity: manifest.activity,
                    all_tenants: true,
                };
            }
            if !asked.is_empty() || !manifest.topics.is_empty() || manifest.activity {
                let mut needs: Vec<_> = asked
                    .iter()
                    .map(|(name, ops)| format!("{} = {}", written(name), words(*ops)))
                    .collect();
                if !manifest.topics.is_empty() {
                    needs.push(format!("{TOPICS} = {:?}", manifest.topics));
                }
                if manifest.activity {
                    needs.push(format!("{ACTIVITY} = true"));
                }
                let has_tenants = |name: &String| {
                    collections.get(name).is_some_and(|collection| collection.tenant.is_some())
                };
                if !manifest.per_tenant && asked.keys().any(has_tenants) {
                    needs.push(format!("{ALL_TENANTS} = true"));
                }
                walker.error(
                    &plugin_span,
                    format!(
                        "the plugin `{}` requests grants, but the task has none",
                        self.plain.plugin
                    ),
                    format!("add [tasks.{}.grants] with {}", written(&self.name), needs.join(", ")),
                );
            }
            return Granted::default();
        };
        let mut rights = Granted { all_tenants: plugin.built_in, ..Granted::default() };
        let mut broken = Vec::new();
        for entry in &table.0 {
            if entry.key == TOPICS {
                let texts = walker.texts("the topics", &entry.span, &entry.node);
                rights.topics = texts.into_iter().map(|(_, text)| text).collect();
                continue;
            }
            if [ACTIVITY, ALL_TENANTS].contains(&entry.key.as_str()) {
                let Some(word) = walker.flag(&entry.key, &entry.span, &entry.node) else {
                    continue;
                };
                match entry.key == ACTIVITY {
                    true => rights.activity = word,
                    false => rights.all_tenants = word,
                }
                continue;
            }
            let Some((operations, columns)) = granted(walker, entry, collections) else {
                broken.push(entry.key.as_str());
                continue;
            };
            if let Some(columns) = columns {
                rights.columns.insert(entry.key.clone(), columns);
            }
            if collections.contains_key(&entry.key) && !asked.contains_key(&entry.key) {
                let message = format!("the plugin does not request `{}`", entry.key);
                let fix = match asked.keys().find(|name| table.get(name).is_none()) {
                    Some(name) => {
                        format!("{}; otherwise remove the grant", self.alias(name, &entry.key))
                    }
                    None => "remove the grant".to_owned(),
                };
                walker.warn(&entry.key_span, message, fix);
            }
            rights.grants.insert(entry.key.clone(), operations);
        }
        for (name, wanted) in &asked {
            let has = rights.grants.get(name).copied().unwrap_or_default();
            if !has.covers(*wanted) && !broken.contains(&name.as_str()) {
                let granted = table.get(name);
                let span = granted.map_or(&plugin_span, |e| &e.span).clone();
                let grant = format!(
                    "write {} = {} in [tasks.{}.grants]",
                    written(name),
                    words(*wanted),
                    written(&self.name)
                );
                // A forgotten alias: the grant alone would let the task work on another table.
                let other = rights.grants.keys().find(|other| {
                    granted.is_none()
                        && !asked.contains_key(*other)
                        && collections.contains_key(*other)
                });
                walker.error(
                    &span,
                    format!(
                        "the plugin `{}` requests to {} `{name}`, which is not granted",
                        self.plain.plugin,
                        missing(has, *wanted)
                    ),
                    match other {
                        Some(other) => format!("{}; otherwise {grant}", self.alias(name, other)),
                        None => grant,
                    },
                );
            }
        }
        for topic in &manifest.topics {
            if !rights.topics.contains(topic) {
                let span = table.get(TOPICS).map_or(&plugin_span, |e| &e.span).clone();
                walker.error(
                    &span,
                    format!(
                        "the plugin `{}` emits to `{topic}`, which is not granted",
                        self.plain.plugin
                    ),
                    format!("add it to {TOPICS} in [tasks.{}.grants]", written(&self.name)),
                );
            }
        }
        for request in &manifest.collections {
            let name = real(&request.collection);
            let Some(granted) = rights.columns.get(&name) else { continue };
            let key = collections.get(&name).map(|collection| collection.key.as_slice());
            let lacks = |column: &&String| {
                !granted.contains(column)
                    && !key.is_some_and(|key| key.contains(column))
                    && !manifest.is_optional(&request.collection, column)
            };
            if let Some(column) = request.columns.iter().find(lacks) {
                let span = table.get(&name).map_or(&plugin_span, |e| &e.span).clone();
                walker.error(
                    &span,
                    format!(
                        "the plugin `{}` requests the column `{name}.{column}`, which is not granted",
                        self.plain.plugin
                    ),
                    format!(
                        "add it to the columns of `{name}` in [tasks.{}.grants]",
                        written(&self.name)
                    ),
                );
            }
        }
        if manifest.activity && !rights.activity {
            if plugin.built_in {
                rights.activity = true;
            } else {
                walker.error(
                    &plugin_span,
                    format!(
                        "the plugin `{}` reads activity, which is not granted",
                        self.plain.plugin
                    ),
                    format!("write {ACTIVITY} = true in [tasks.{}.grants]", written(&self.name)),
                );
            }
        }
        // A plugin that may name a row always knows its key.
        for (name, columns) in &mut rights.columns {
            columns.extend(collections.get(name).into_iter().flat_map(|c| c.key.iter().cloned()));
            columns.sort_unstable();
            columns.dedup();
        }
        rights
    }
}

/// Reads the grant for a collection, which has to be mapped.
pub(super) fn granted(
    walker: &mut Walker<'_>,
    entry: &Entry,
    collections: &Collections,
) -> Option<(Operations, Option<Vec<String>>)> {
    if !collections.contains_key(&entry.key) {
        let fix = suggestion(&entry.key, collections.keys().map(String::as_str));
        let message =
            format!("the grant is for the collection `{}`, which is not mapped", entry.key);
        walker.error(&entry.key_span, message, fix);
    }
    grant(walker, entry, collections.get(&entry.key))
}

const OPERATIONS: [&str; 4] = ["read", "insert", "update", "delete"];

/// Reads a grant, `["read"]` or `{ ops = ["read"], columns = ["state"] }`: its operations, and its columns
/// if it names them. Returns `None` if any of it is invalid.
fn grant(
    walker: &mut Walker<'_>,
    entry: &Entry,
    collection: Option<&Collection>,
) -> Option<(Operations, Option<Vec<String>>)> {
    let Node::Table(table) = &entry.node else {
        return operations(walker, entry).map(|operations| (operations, None));
    };
    let before = walker.problems.len();
    let (mut granted, mut columns) = (Operations::default(), None);
    for part in &table.0 {
        match part.key.as_str() {
            "ops" => granted = operations(walker, part)?,
            "columns" => {
                let named = walker.texts("the columns", &part.span, &part.node);
                for (span, name) in &named {
                    if collection.is_some_and(|c| !c.columns.contains_key(name)) {
                        let known = collection.into_iter().flat_map(|c| c.columns.keys());
                        let fix = suggestion(name, known.map(String::as_str));
                        let message = format!("`{name}` is not a column of `{}`", entry.key);
                        walker.error(span, message, fix);
                    }
                }
                columns = Some(named.into_iter().map(|(_, name)| name).collect());
            }
            _ => walker.unknown(part, &entry.key, ["ops", "columns"]),
        }
    }
    if table.get("ops").is_none() {
        let message = format!("the grant of `{}` names no operations", entry.key);
        walker.error(&entry.key_span, message, "add, for example, ops = [\"read\"]");
    }
    (walker.problems.len() == before).then_some((granted, columns))
}

/// Reads the operations of a grant. Returns `None` if any of them is invalid.
fn operations(walker: &mut Walker<'_>, entry: &Entry) -> Option<Operations> {
    let before = walker.problems.len();
    let mut operations = Operations::default();
    for (span, word) in walker.texts("a grant", &entry.span, &entry.node) {
        match word.as_str() {
            "read" => operations.read = true,
            "insert" => operations.insert = true,
            "update" => operations.update = true,
            "delete" => operations.delete = true,
            _ => {
                let fix = suggestion(&word, OPERATIONS);
                walker.error(&span, format!("`{word}` is not an operation"), fix);
            }
        }
    }
    (walker.problems.len() == before).then_some(operations)
}

fn list(ops: Operations) -> Vec<&'static str> {
    let flags = [ops.read, ops.insert, ops.update, ops.delete];
    OPERATIONS.iter().zip(flags).filter(|(_, set)| *set).map(|(word, _)| *word).collect()
}

/// Formats operations as in a grant.
pub fn words(ops: Operations) -> String {
    format!("{:?}", list(ops))
}

fn missing(has: Operations, wanted: Operations) -> String {
    let has = list(has);
    let rest: Vec<_> = list(wanted).into_iter().filter(|word| !has.contains(word)).collect();
    rest.join(", ")
}

/// Whether a task can use this column.
pub(super) fn is_mapped(collection: &Collection, column: &str) -> bool {
    collection.columns.contains_key(column) || collection.tenant.as_deref() == Some(column)
}
