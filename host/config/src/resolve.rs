//! The two steps from a text to a configuration: parsing, then resolving with plugins and collections.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use besom_core::brake::Brakes;
use besom_core::collection::{Collection, Collections, Operations, all_dependants};
use besom_core::ids::TaskName;
use besom_core::mode::Mode;
use besom_core::plan::Policy;
use besom_core::value::Value;
use besom_core::window::Windows;
use sha2::{Digest as _, Sha256};

use super::Config;
use super::activity;
use super::api;
use super::cluster;
use super::collection::{self, CollectionPlaces};
use super::delivery::{self, RawTopic};
use super::diagnostic::{Diagnostic, Place, Problems, Source};
use super::judge::{Judge, Places};
use super::keys::{Fault, Key, suggestion};
use super::quantity::show_duration;
use super::sections::{SECTIONS, Section, Sections};
use super::task::RawTask;
use super::tree::{self, Entry, Node, Span, Table};
use super::walk::Walker;
use besom_ports::guests::Manifest;
use besom_ports::store::MappingFault;
use besom_ports::task::TaskDefinition;
use besom_runtime::TrustedKey;

/// A loaded plugin.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// The manifest of the plugin.
    pub manifest: Arc<Manifest>,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Whether it is built in. A built-in plugin is granted what it requests, unless the task has grants.
    pub built_in: bool,
}

/// Why a plugin cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginFault {
    /// What is wrong, such as a missing file or another version of the contract.
    pub message: String,
    /// How to fix it.
    pub fix: String,
    /// SHA-256 of a file that was not loaded because no pin admits it.
    pub refused: Option<String>,
    /// Whether the file was not loaded because no trusted key vouches for it: its tasks are refused, and no
    /// others.
    pub untrusted: bool,
}

impl PluginFault {
    /// A fault of a plugin that is not about pins.
    pub fn new(message: impl Into<String>, fix: impl Into<String>) -> PluginFault {
        let (message, fix) = (message.into(), fix.into());
        PluginFault { message, fix, refused: None, untrusted: false }
    }
}

impl From<String> for PluginFault {
    fn from(message: String) -> PluginFault {
        PluginFault::new(message, "name a built-in plugin or a file in the plugin directory")
    }
}

/// Values that override the file: environment variables, and flags, which override both.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Variables such as `BESOM_STORE_PATH`; a variable that names no section is ignored.
    pub variables: Vec<(String, String)>,
    /// Flags as `SECTION.KEY=VALUE`.
    pub flags: Vec<String>,
}

impl Overrides {
    /// Combines the environment of this process with flags.
    pub fn from_env(flags: Vec<String>) -> Overrides {
        let variables = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.to_string_lossy().into_owned())))
            .filter(|(k, _)| k.starts_with("BESOM_"))
            .collect();
        Overrides { variables, flags }
    }
}

/// What the text of a configuration says about a task, without its plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOutline {
    /// Name of the plugin.
    pub plugin: String,
    /// The schedule; `None` for a task that runs only when triggered.
    pub schedule: Option<String>,
    /// IANA time zone of the schedule.
    pub timezone: String,
    /// How the slots of the schedule are handled.
    pub policy: Policy,
    /// When the task may work; none: always.
    pub windows: Windows,
    /// How long before-images are kept.
    pub keep_removed: Duration,
    /// How far a run goes by itself.
    pub mode: Mode,
    /// What stops a run of the task.
    pub brakes: Brakes,
    /// How many rows per second it changes at most, in words; none: as many as it can.
    pub rate: Option<String>,
}

/// The first step: parses a text into [`Parsed`].
pub struct RawConfig;

/// A parsed configuration, before plugins and collections are known.
#[derive(Debug, Clone)]
pub struct Parsed {
    origin: PathBuf,
    source: Source,
    sections: Sections,
    tasks: Vec<RawTask>,
    collections: Table,
    /// Places of the keys `token_file`, `password_file` and `key`, by topic.
    tokens: BTreeMap<String, Span>,
    /// Where the address of the store is set.
    store_place: Option<Place>,
    /// The lines with syntax errors.
    broken: Vec<usize>,
    problems: Vec<Diagnostic>,
}

impl RawConfig {
    /// Parses a text. Problems are kept in the result, so that the second step can add to them.
    pub fn parse(text: &str, origin: &Path, overrides: &Overrides) -> Parsed {
        let source = Source::new(origin.display().to_string(), text);
        let (root, syntax) = tree::parse(&source);
        let broken: Vec<usize> = syntax.iter().map(|d| d.order().1).collect();
        let mut problems = Vec::new();
        let mut walker = Walker { source: &source, problems: &mut problems };

        let mut sections = Sections::defaults();
        let (mut tasks, mut collections) = (Vec::new(), Table::default());
        let mut topics = Vec::new();
        let mut places = Places::default();
        for entry in &root.0 {
            if let Some(section) = SECTIONS.iter().find(|s| s.name == entry.key) {
                if let Some(table) = walker.table(entry, &format!("[{}]", entry.key)) {
                    let spans = walker.read(section.name, table, section.keys, &[], &mut sections);
                    places.file.insert(section.name, spans);
                }
            } else if entry.key == "tasks" && has_no_name(entry) {
                let message = "a task has a name, as in [tasks.old-sessions]";
                walker.error(&entry.key_span, message, "write [tasks.NAME]");
            } else if entry.key == "tasks" {
                for (entry, table) in walker.tables(entry, "[tasks.NAME]") {
                    tasks.push(RawTask::read(&mut walker, entry, table));
                }
            } else if entry.key == "collections" {
                if let Some(table) = walker.table(entry, "[collections.NAME]") {
                    collections = table.clone();
                }
            } else if entry.key == "topics" {
                for (entry, table) in walker.tables(entry, "[topics.NAME]") {
                    topics.push(RawTopic::read(&mut walker, entry, table));
                }
            } else {
                let names =
                    SECTIONS.iter().map(|s| s.name).chain(["topics", "tasks", "collections"]);
                walker.unknown(entry, "", names);
            }
        }
        // Other problems of a line with a syntax error are consequences of it.
        problems.retain(|problem| !is_in(problem, &broken));
        problems.extend(syntax);
        places.overriding = override_sections(&mut sections, overrides, &mut problems);
        let mut judging = Judge { places: &places, source: &source, problems: &mut problems };
        judge(&sections, &mut judging);
        let tokens = topics.iter().filter_map(RawTopic::token).collect();
        sections.topics = delivery::routes(topics, &sections, &source, &mut problems);
        let dir = origin.parent().unwrap_or(Path::new(""));
        sections.settle_paths(dir);
        let address = if sections.store.url.is_some() { "store.url" } else { "store.path" };
        let store_place = places.of(address, &source);
        Parsed {
            origin: origin.to_owned(),
            source,
            sections,
            tasks,
            collections,
            tokens,
            store_place,
            broken,
            problems,
        }
    }
}

/// Whether the table of all tasks is written as that of one.
fn has_no_name(tasks: &Entry) -> bool {
    let Node::Table(table) = &tasks.node else { return false };
    table.get("plugin").is_some_and(|entry| matches!(entry.node, Node::Text(_)))
}

/// Whether a problem is in one of these lines.
fn is_in(problem: &Diagnostic, lines: &[usize]) -> bool {
    matches!(problem.place, Place::Line { line, .. } if lines.contains(&line))
}

/// Returns the places of the values that are set, by `section.key`.
fn override_sections(
    sections: &mut Sections,
    overrides: &Overrides,
    problems: &mut Vec<Diagnostic>,
) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    let mut add = |own: &mut BTreeMap<String, Place>,
                   place: Place,
                   found: Result<Option<String>, Fault>| match found {
        Ok(path) => own.extend(path.map(|path| (path, place))),
        Err(fault) => problems.push(fault.at(place)),
    };
    let mut own = BTreeMap::new();
    for (variable, value) in &overrides.variables {
        let place = Place::Variable { name: variable.clone(), value: value.clone() };
        add(&mut own, place, override_by_variable(sections, variable, value));
    }
    replace_store(sections, &mut places, own);
    let mut own = BTreeMap::new();
    for text in &overrides.flags {
        let place = Place::Flag { text: text.clone() };
        add(&mut own, place, override_by_flag(sections, text));
    }
    replace_store(sections, &mut places, own);
    places
}

/// Adds the places of what one source sets above the others. A store that it names is in place of the one that those
/// name, whichever of the two keys they use.
fn replace_store(
    sections: &mut Sections,
    places: &mut BTreeMap<String, Place>,
    own: BTreeMap<String, Place>,
) {
    match (own.contains_key("store.url"), own.contains_key("store.path")) {
        (true, false) => {
            sections.store.path = PathBuf::new();
            places.remove("store.path");
        }
        (false, true) => {
            sections.store.url = None;
            places.remove("store.url");
        }
        // Of one source, both are refused.
        (true, true) | (false, false) => {}
    }
    places.extend(own);
}

/// Returns `section.key`; none: the variable is of another program.
fn override_by_variable(
    sections: &mut Sections,
    variable: &str,
    value: &str,
) -> Result<Option<String>, Fault> {
    let Some(name) = variable.strip_prefix("BESOM_") else { return Ok(None) };
    let name = name.to_ascii_lowercase();
    let key_of = |section: &Section| name.strip_prefix(section.name)?.strip_prefix('_');
    let found = SECTIONS.iter().find_map(|section| Some((section, key_of(section)?)));
    // A variable that names no section may belong to another program.
    let Some((section, key)) = found else { return Ok(None) };
    let Some(key) = section.key(key) else {
        let variable_of = |key: &Key<Sections>| {
            format!("BESOM_{}_{}", section.name, key.name).to_ascii_uppercase()
        };
        let names: Vec<_> = section.keys.iter().map(variable_of).collect();
        return Err(Fault::new(format!("unknown variable `{variable}`"))
            .fix(suggestion(variable, names.iter().map(String::as_str))));
    };
    key.read_text(sections, value)?;
    Ok(Some(format!("{}.{}", section.name, key.name)))
}

/// Returns `section.key`.
fn override_by_flag(sections: &mut Sections, text: &str) -> Result<Option<String>, Fault> {
    let Some((path, value)) = text.split_once('=') else {
        return Err(Fault::new("the value is missing").fix("write SECTION.KEY=VALUE"));
    };
    let (name, key) = path.trim().split_once('.').unwrap_or((path.trim(), ""));
    let Some(section) = SECTIONS.iter().find(|section| section.name == name) else {
        let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        return Err(Fault::new(format!("`{path}` is not a key of a section")).fix(format!(
            "set a key of the sections {}; all others, such as tasks, are set in the file",
            names.join(", ")
        )));
    };
    let Some(key) = section.key(key) else {
        let path_of = |key: &Key<Sections>| format!("{}.{}", section.name, key.name);
        let names: Vec<_> = section.keys.iter().map(path_of).collect();
        return Err(Fault::new(format!("unknown key `{path}`"))
            .fix(suggestion(path.trim(), names.iter().map(String::as_str))));
    };
    key.read_text(sections, value.trim())?;
    Ok(Some(format!("{}.{}", section.name, key.name)))
}

/// Maximum length of the path of a Unix socket, in bytes (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Maximum length of a name in PostgreSQL, in bytes.
const SCHEMA_BYTES_MAX: usize = 63;

/// Reports keys that are valid alone but not in combination.
fn judge(sections: &Sections, judge: &mut Judge<'_>) {
    let Sections { store, lease, clock, plugins, .. } = sections;
    let limit = lease.ttl / 3;
    if lease.renew > limit {
        let message = format!(
            "lease.renew is {}, which is more than a third of lease.ttl ({})",
            show_duration(lease.renew),
            show_duration(lease.ttl),
        );
        let fix = format!("set lease.renew to at most {}", show_duration(limit));
        let key = if judge.is_set("lease.renew") { "lease.renew" } else { "lease.ttl" };
        judge.error(key, message, fix);
    }
    if store.url.is_some() && !store.path.as_os_str().is_empty() {
        let message = "store.path and store.url are both set, but a store is one database";
        match ["store.url", "store.path"].into_iter().find(|key| judge.is_overridden(key)) {
            Some(key) => {
                let other = if key == "store.url" { "store.path" } else { "store.url" };
                judge.error(key, message, format!("remove {other}, or this"));
            }
            None => judge.error("store.path", message, "remove one of the two"),
        }
    }
    if store.path.to_string_lossy().contains("://") {
        let message = "store.path is a URL, not a file";
        judge.error("store.path", message, "set store.url to it instead");
    }
    if store.url.as_deref().is_some_and(holds_password) {
        let fix = "put the password into a file (mode 0600) and set store.password_file to it; \
                   write an `@` after the host as %40";
        judge.error("store.url", "store.url contains a password", fix);
    }
    if clock.skew_max < clock.skew_warn {
        let message = "clock.skew_max is shorter than clock.skew_warn";
        let fix = "set clock.skew_max to at least clock.skew_warn, so that the warning comes first";
        judge.error("clock.skew_max", message, fix);
    }
    let length = store.schema.len();
    if length > SCHEMA_BYTES_MAX {
        let message = format!(
            "store.schema has {length} bytes, and PostgreSQL cuts names at {SCHEMA_BYTES_MAX}"
        );
        let fix = format!("choose a name of at most {SCHEMA_BYTES_MAX} bytes");
        judge.error("store.schema", message, fix);
    }
    for key in &plugins.trusted_keys {
        if let Err(why) = TrustedKey::parse(key) {
            let fix = "write the second line of the file minisign.pub, which begins with RW";
            judge.error("plugins.trusted_keys", format!("`{key}` {why}"), fix);
        }
    }
    if plugins.require_signature && plugins.trusted_keys.is_empty() {
        let message = "plugins.require_signature is set, but plugins.trusted_keys names no key";
        let fix =
            "write trusted_keys = [\"RW...\"] in [plugins], with the public keys that you trust";
        judge.error("plugins.require_signature", message, fix);
    }
    cluster::judge(sections, judge);
    activity::judge(&sections.activity, judge);
    api::judge(&sections.api, judge);
    for (name, path) in
        [("activity.socket", &sections.activity.socket), ("api.socket", &sections.api.socket)]
    {
        if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let fix = format!("choose a path of at most {SOCKET_PATH_BYTES_MAX} bytes");
            judge.error(name, format!("{name} is too long for a Unix socket"), fix);
        }
    }
}

/// Whether a database URL contains a password, as parsed by the driver. A URL that the driver cannot parse
/// is searched for a password as well, because diagnostics show it.
fn holds_password(url: &str) -> bool {
    match url.parse::<tokio_postgres::Config>() {
        Ok(read) => read.get_password().is_some_and(|password| !password.is_empty()),
        Err(_) => matches!(besom_system::secret::redact(url), Cow::Owned(_)),
    }
}

/// Looks up a plugin by its name in the configuration.
pub type FindPlugin<'a> = dyn Fn(&str) -> Result<Plugin, PluginFault> + 'a;

impl Parsed {
    /// Whether the text sets nothing: it is empty, or has only blank lines and comments.
    pub fn is_blank(&self) -> bool {
        let text = self.source.text().trim_start_matches('\u{feff}');
        text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
    }

    /// Returns the task, plugin and pin of each task.
    pub fn pins(&self) -> Vec<(&str, &str, Option<&str>)> {
        self.tasks.iter().map(|task| (task.name(), task.plugin(), task.pin())).collect()
    }

    /// The tasks in which a plugin reads rows of several tenants at once.
    pub fn spanning_tenants(&self, manifest: &Manifest, collections: &Collections) -> Vec<&str> {
        let spans = |task: &&RawTask| task.spans_tenants(manifest, collections);
        self.tasks.iter().filter(spans).map(RawTask::name).collect()
    }

    /// The files of a plugin that may be loaded for its tasks, by digest; `None`: any file.
    pub fn admitted(&self, plugin: &str) -> Option<Vec<String>> {
        let mut admitted = Vec::new();
        for task in self.tasks.iter().filter(|task| task.plugin() == plugin) {
            match task.pin() {
                Some(pin) => admitted.push(pin.to_ascii_lowercase()),
                None if self.sections.plugins.require_pin => {}
                None => return None,
            }
        }
        Some(admitted)
    }

    /// Returns the plugins that tasks name, without duplicates, so that they can be loaded before
    /// [`Parsed::resolve`] looks them up.
    pub fn plugins(&self) -> Vec<&str> {
        let mut names: Vec<_> =
            self.tasks.iter().map(RawTask::plugin).filter(|p| !p.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The directory of plugin files.
    pub fn plugins_dir(&self) -> &Path {
        &self.sections.plugins.dir
    }

    /// The directory for compiled plugins, and whether it is configured.
    pub fn cache_dir(&self) -> (&Path, bool) {
        (&self.sections.runtime.cache, self.sections.runtime.cache_named)
    }

    /// The sections; keys with errors have their defaults.
    pub fn sections(&self) -> &Sections {
        &self.sections
    }

    /// The problems found so far.
    pub fn problems(&self) -> &[Diagnostic] {
        &self.problems
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.origin
    }

    /// Returns what the text says about each task, without its plugin.
    pub fn outlines(&self) -> BTreeMap<TaskName, TaskOutline> {
        self.tasks
            .iter()
            .map(|task| {
                let written = task.schedule_of();
                let outline = TaskOutline {
                    plugin: task.plugin().to_owned(),
                    schedule: written.expression.map(str::to_owned),
                    timezone: written.timezone.to_owned(),
                    policy: task.policy(),
                    windows: task.windows().clone(),
                    keep_removed: task.keep_removed(),
                    mode: task.mode(self.sections.host.default_mode),
                    brakes: task.brakes(),
                    rate: task.rate(),
                };
                (TaskName::from(task.name()), outline)
            })
            .collect()
    }

    /// Resolves the configuration without its tasks and plugins, for callers that only read the store.
    pub fn outline(self, defaults: &Collections) -> Resolved {
        self.build(None, defaults)
    }

    /// Resolves the whole configuration. `plugin` looks up a plugin by its name.
    pub fn resolve(self, plugin: &FindPlugin<'_>, defaults: &Collections) -> Resolved {
        self.build(Some(plugin), defaults)
    }

    fn build(mut self, plugin: Option<&FindPlugin<'_>>, defaults: &Collections) -> Resolved {
        let before = self.problems.len();
        let mut walker = Walker { source: &self.source, problems: &mut self.problems };
        let (collections, places) = collection::read(&mut walker, &self.collections, defaults);
        let (mut tasks, mut manifests) = (BTreeMap::new(), BTreeMap::new());
        let mut refused = BTreeMap::new();
        let mut found: BTreeMap<&str, Result<Plugin, PluginFault>> = BTreeMap::new();
        if let Some(plugin) = plugin {
            for task in self.tasks.iter().filter(|task| task.plugin().is_empty()) {
                task.judge_limits(&mut walker);
            }
            for task in self.tasks.iter().filter(|t| !t.plugin().is_empty()) {
                let said = walker.problems.len();
                let found = found.entry(task.plugin()).or_insert_with(|| plugin(task.plugin()));
                let is_refused = task.is_refused(found);
                match found {
                    Ok(plugin) => {
                        let require_pin = self.sections.plugins.require_pin;
                        let mut definition =
                            task.resolve(&mut walker, plugin, &collections, require_pin);
                        definition.mode = task.mode(self.sections.host.default_mode);
                        definition.mapping = mapping_digest(&definition, &collections);
                        let wall = Duration::from_millis(definition.limits.wall_ms);
                        task.judge_wall(&mut walker, wall, self.sections.host.act_snapshot_max);
                        manifests.insert(plugin.digest.clone(), plugin.manifest.clone());
                        tasks.insert(definition.name.clone(), Arc::new(definition));
                    }
                    Err(fault) => {
                        let require_pin = self.sections.plugins.require_pin;
                        task.without_plugin(&mut walker, fault, &collections, require_pin);
                    }
                }
                // A refused file is the first problem of its task.
                if is_refused && let Some(why) = walker.problems.get(said) {
                    refused.insert(TaskName::from(task.name()), why.clone());
                }
            }
        } else {
            for task in &self.tasks {
                task.judge_limits(&mut walker);
            }
        }
        drop(found);
        // As in the first step, other problems of a line with a syntax error are left out.
        let mut found = self.problems.split_off(before);
        found.retain(|problem| !is_in(problem, &self.broken));
        self.problems.extend(found);
        let schedules = self
            .tasks
            .iter()
            .map(|task| (TaskName::from(task.name()), task.schedule_of().expression_span.clone()))
            .collect();
        let names = self.tasks.iter();
        let names = names.map(|task| (TaskName::from(task.name()), task.name_span().clone()));
        let names = names.collect();
        let settings = self.tasks.iter().flat_map(|task| {
            let name = TaskName::from(task.name());
            let of =
                move |(key, span): (&str, &Span)| ((name.clone(), key.to_owned()), span.clone());
            task.settings_written().map(of)
        });
        let settings = settings.collect();
        let config = Config {
            origin: self.origin,
            sections: self.sections,
            tasks,
            refused,
            unmatched: BTreeMap::new(),
            manifests,
            collections: Arc::new(collections),
            warnings: Vec::new(),
        };
        let (source, tokens, problems) = (self.source, self.tokens, self.problems);
        let store_place = self.store_place;
        Resolved {
            config,
            source,
            places,
            schedules,
            names,
            settings,
            tokens,
            store_place,
            problems,
        }
    }
}

/// A digest of the mapping of the collections that a task may use, and of those whose rows go with theirs.
fn mapping_digest(definition: &TaskDefinition, collections: &Collections) -> String {
    let names = definition.grants.keys();
    let used = names.flat_map(|name| {
        let own = collections.get(name).into_iter();
        own.chain(all_dependants(collections, name))
    });
    let mut digest = Sha256::new();
    for collection in used {
        digest.update(serde_json::to_vec(collection).unwrap_or_default());
    }
    hex::encode(digest.finalize())
}

/// A resolved configuration with all problems found so far.
#[derive(Debug, Clone)]
pub struct Resolved {
    config: Config,
    source: Source,
    places: BTreeMap<String, CollectionPlaces>,
    schedules: BTreeMap<TaskName, Span>,
    /// Places of the names of tasks.
    names: BTreeMap<TaskName, Span>,
    /// Places of the settings that the file has, by task and name.
    settings: BTreeMap<(TaskName, String), Span>,
    tokens: BTreeMap<String, Span>,
    store_place: Option<Place>,
    problems: Vec<Diagnostic>,
}

impl Resolved {
    /// Whether the file has this setting of a task, so that it is no default.
    pub fn has_setting(&self, task: &TaskName, setting: &str) -> bool {
        self.settings.contains_key(&(task.clone(), setting.to_owned()))
    }

    /// The place of a setting's value, or of the name of the task if the setting is not in the file.
    fn setting_span(&self, task: &TaskName, setting: &str) -> Option<&Span> {
        let written = self.settings.get(&(task.clone(), setting.to_owned()));
        written.or_else(|| self.names.get(task))
    }

    /// Adds a problem of the whole file.
    pub fn refuse(&mut self, message: String, fix: &str) {
        self.problems.push(Diagnostic::error(self.source.whole(), message).fix(fix));
    }

    /// Leaves out those tasks that `may` be left out and whose plugin files are refused, because they are not
    /// the pinned ones or no trusted key vouches for them. They are [`Config::refused`], and are no longer
    /// problems of the configuration.
    pub fn leave_out_refused(&mut self, may: impl Fn(&TaskName) -> bool) {
        let Resolved { config, problems, .. } = self;
        config.refused.retain(|task, _| may(task));
        config.tasks.retain(|task, _| !config.refused.contains_key(task));
        problems.retain(|problem| !config.refused.values().any(|why| why == problem));
    }

    /// Leaves out tasks because of faults of the mapping, each with the tasks that it concerns. They are
    /// [`Config::unmatched`].
    pub fn leave_out_unmatched(&mut self, faults: &[(MappingFault, Vec<TaskName>)]) {
        for (fault, tasks) in faults {
            for placed in self.placed(std::slice::from_ref(fault)) {
                for task in tasks {
                    let of_task = self.config.unmatched.entry(task.clone()).or_default();
                    of_task.push((fault.clone(), placed.clone()));
                }
            }
        }
        let Config { tasks, unmatched, .. } = &mut self.config;
        tasks.retain(|task, _| !unmatched.contains_key(task));
    }

    /// The configuration despite its problems, for example to open its store.
    pub fn partial(&self) -> &Config {
        &self.config
    }

    /// The problems found so far.
    pub fn problems(&self) -> &[Diagnostic] {
        &self.problems
    }

    /// Returns the collections that must exist in the database: those of the file, those granted to tasks,
    /// and their anchors and dependants. The rest of the entity model need not exist.
    pub fn used_collections(&self) -> Collections {
        let granted = self.config.tasks.values().flat_map(|task| task.grants.keys());
        let used = self.config.related(self.places.keys().chain(granted));
        used.into_iter().map(|(name, collection)| (name.clone(), collection.clone())).collect()
    }

    /// Adds an error about the token file of a topic.
    pub fn token_fault(&mut self, topic: &str, message: impl Into<String>) {
        let place = self.source.place(self.tokens.get(topic));
        let fix = "correct the file or its path, which is relative to the configuration file";
        self.problems.push(Diagnostic::error(place, message).fix(fix));
    }

    /// Adds an error or a warning about the address of the store.
    pub fn store_fault(&mut self, is_error: bool, message: impl Into<String>, fix: &str) {
        let place = self.store_place.clone().unwrap_or_else(|| self.source.whole());
        let diagnostic = match is_error {
            true => Diagnostic::error(place, message),
            false => Diagnostic::warning(place, message),
        };
        self.problems.push(diagnostic.fix(fix));
    }

    /// Adds a warning about a task's schedule.
    pub fn warn_schedule(&mut self, task: &TaskName, message: impl Into<String>, fix: &str) {
        let place = self.source.place(self.schedules.get(task));
        self.problems.push(Diagnostic::warning(place, message).fix(fix));
    }

    /// Adds an error about a task that its database shows.
    pub fn task_fault(&mut self, task: &TaskName, message: impl Into<String>, fix: &str) {
        let place = self.source.place(self.schedules.get(task));
        self.problems.push(Diagnostic::error(place, message).fix(fix));
    }

    /// Takes operations on a collection away that a task does not need.
    pub fn narrow(&mut self, task: &TaskName, collection: &str, needed: Operations) {
        if let Some(task) = self.config.tasks.get_mut(task)
            && let Some(granted) = Arc::make_mut(task).grants.get_mut(collection)
        {
            *granted = granted.and(needed);
        }
    }

    /// Adds an error about a task's setting, or about some bytes of its text.
    pub fn setting_fault(
        &mut self,
        task: &TaskName,
        setting: &str,
        range: Option<Range<usize>>,
        message: impl Into<String>,
    ) {
        let value = self.config.tasks.get(task).and_then(|task| {
            let field = task.settings.iter().find(|field| field.name == setting)?;
            match &field.value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            }
        });
        let span = self.setting_span(task, setting);
        let part = span.zip(range).map(|(span, range)| self.source.inside(span, value, &range));
        let place = self.source.place(part.as_ref().or(span));
        self.problems.push(Diagnostic::error(place, message));
    }

    /// Adds a warning about a task's setting.
    pub fn warn_setting(
        &mut self,
        task: &TaskName,
        setting: &str,
        message: impl Into<String>,
        fix: &str,
    ) {
        let place = self.source.place(self.setting_span(task, setting));
        self.problems.push(Diagnostic::warning(place, message).fix(fix));
    }

    /// Adds a warning about the configuration as a whole.
    pub fn warn(&mut self, message: impl Into<String>, fix: impl Into<String>) {
        self.problems.push(Diagnostic::warning(self.source.whole(), message).fix(fix));
    }

    /// Adds an error about the configuration as a whole.
    pub fn fault(&mut self, message: impl Into<String>, fix: impl Into<String>) {
        self.problems.push(Diagnostic::error(self.source.whole(), message).fix(fix));
    }

    /// Adds a warning about a collection's mapping.
    pub fn warn_collection(&mut self, name: &str, message: impl Into<String>, fix: &str) {
        let place = self.source.place(self.places.get(name).map(|places| &places.name));
        self.problems.push(Diagnostic::warning(place, message).fix(fix));
    }

    /// Adds faults of the mapping that the store has found, at their places in the file.
    pub fn mapping_faults(&mut self, faults: &[MappingFault]) {
        let found = self.placed(faults);
        self.problems.extend(found);
    }

    /// Returns faults of the mapping that the store has found as diagnostics, at their places in the
    /// file.
    pub fn placed(&self, faults: &[MappingFault]) -> Vec<Diagnostic> {
        let placed = faults.iter().map(|fault| {
            let place = match self.places.get(&fault.collection) {
                Some(places) => {
                    let parent = fault.place.split('.').next().unwrap_or_default();
                    let span = places.parts.get(&fault.place).or_else(|| places.parts.get(parent));
                    self.source.at(span.unwrap_or(&places.name))
                }
                None => self.source.whole(),
            };
            let message =
                format!("collection `{}`, {}: {}", fault.collection, fault.place, fault.message);
            let mut diagnostic = if fault.warning {
                Diagnostic::warning(place, message)
            } else {
                Diagnostic::error(place, message)
            };
            if !self.places.contains_key(&fault.collection) {
                let own = format!("map your own table in [collections.{}]", fault.collection);
                diagnostic = diagnostic.fix(match self.tasks_with(&fault.collection).as_slice() {
                    [] => match self.anchored_in(&fault.collection).as_slice() {
                        [] => format!("this is the built-in mapping: {own}"),
                        others => {
                            let others = others.join(", ");
                            format!(
                                "this is the built-in mapping, and the anchor of {others}: {own}"
                            )
                        }
                    },
                    [task] => format!("{own}, or remove the task {task}, which uses it"),
                    tasks => {
                        format!("{own}, or remove the tasks that use it: {}", tasks.join(", "))
                    }
                });
            }
            diagnostic
        });
        placed.collect()
    }

    /// The collections that tasks use and that have this one as their anchor, each in backticks.
    fn anchored_in(&self, collection: &str) -> Vec<String> {
        let granted = self.config.tasks.values().flat_map(|task| task.grants.keys());
        let used = self.config.related(granted);
        let is_anchored = |of: &&Collection| of.anchors_in(collection).next().is_some();
        let with = used.into_values().filter(is_anchored);
        with.map(|of| format!("`{}`", of.name)).collect()
    }

    /// The tasks that are granted a collection, each in backticks.
    fn tasks_with(&self, collection: &str) -> Vec<String> {
        let tasks = self.config.tasks.iter();
        let with = tasks.filter(|(_, task)| task.grants.contains_key(collection));
        with.map(|(name, _)| format!("`{name}`")).collect()
    }

    /// Returns the configuration with its warnings.
    ///
    /// # Errors
    /// All problems, including warnings, if one of them is an error.
    pub fn finish(mut self) -> Result<Config, Problems> {
        self.problems.sort_by_key(Diagnostic::order);
        self.problems.dedup();
        if self.problems.iter().any(Diagnostic::is_error) {
            return Err(Problems(self.problems));
        }
        self.config.warnings = self.problems;
        Ok(self.config)
    }
}
