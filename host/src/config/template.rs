//! A configuration with comments, as `besom config init` and `besom demo` write it.
//!
//! Sections come from the same list that reads them, so that every key that exists is shown
//! with its default.

use std::fmt::Write as _;

use super::quantity::show_duration;
use super::sections::SECTIONS;

/// A task of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTemplate {
    /// Its name.
    pub name: String,
    /// Its plugin.
    pub plugin: String,
    /// What it does, in a sentence.
    pub doc: String,
    /// Its keys and their values as TOML.
    pub keys: Vec<(String, String)>,
    /// Its settings and their values as TOML.
    pub settings: Vec<(String, String)>,
}

/// What the template is filled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Values that differ from the defaults, as `section.key` and TOML.
    pub values: Vec<(String, String)>,
    /// Where topics lead.
    pub topics: Vec<TopicTemplate>,
    /// The tasks.
    pub tasks: Vec<TaskTemplate>,
}

/// A topic of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate {
    /// Its name.
    pub name: String,
    /// Its keys and their values as TOML.
    pub keys: Vec<(String, String)>,
}

impl Default for Template {
    /// The built-in tasks with the shipped schedules, but for the reconciler, which needs
    /// somebody to call.
    fn default() -> Template {
        Template {
            values: vec![
                ("store.path".into(), "\"besom.db\"".into()),
                ("plugins.require_pin".into(), "true".into()),
            ],
            topics: Vec::new(),
            tasks: built_in(),
        }
    }
}

impl Template {
    /// Sets a key of a section to a value as TOML.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Template {
        self.values.retain(|(k, _)| k != key);
        self.values.push((key.into(), value.into()));
        self
    }

    /// Leaves a key of a section at its default.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Template {
        self.values.retain(|(k, _)| k != key);
        self
    }

    /// Sets a key of a task to a value as TOML; a task that is not there is left alone.
    #[must_use]
    pub fn task(mut self, task: &str, key: &str, value: impl Into<String>) -> Template {
        if let Some(task) = self.tasks.iter_mut().find(|t| t.name == task) {
            task.keys.retain(|(k, _)| k != key);
            task.keys.push((key.into(), value.into()));
        }
        self
    }

    /// Sets a setting of a task to a value as TOML; a task that is not there is left alone.
    #[must_use]
    pub fn setting(mut self, task: &str, key: &str, value: impl Into<String>) -> Template {
        if let Some(task) = self.tasks.iter_mut().find(|t| t.name == task) {
            task.settings.retain(|(k, _)| k != key);
            task.settings.push((key.into(), value.into()));
        }
        self
    }
}

fn built_in() -> Vec<TaskTemplate> {
    let task = |name: &str, doc: &str, schedule: &str, settings: &[(&str, &str)]| TaskTemplate {
        name: name.into(),
        plugin: name.into(),
        doc: doc.into(),
        keys: vec![
            ("schedule".into(), format!("\"{schedule}\"")),
            ("overlap".into(), "\"skip\"".into()),
        ],
        settings: settings.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
    };
    vec![
        task(
            "compaction",
            "Replaces the change log of a document by one equivalent change. Its settings have a mode\n\
             # for each format: mode_yjs, mode_loro, mode_automerge = \"merge\". \"reset\" (Yjs, Automerge)\n\
             # begins anew where nobody is attached; clients have to check the epoch. \"trim\" (Loro)\n\
             # drops what every attached client has seen. What is deleted in Yjs documents stays unless\n\
             # deleted_content = \"collect\" says that no client has `gc: false`.",
            "@every 30s",
            &[
                ("min_changes", "1000"),
                ("projects_per_run", "100"),
                ("candidates_per_project", "500"),
            ],
        ),
        task(
            "client-deactivation",
            "Detaches and deactivates clients that have been idle for too long.",
            "@every 30s",
            &[("projects_per_run", "100"), ("candidates_per_project", "500")],
        ),
        task(
            "share-expiry",
            "Ends shares at the moment their time is over, by their limit_seconds or else by `limit`. A run\n\
             # plans what ends within the next day, or within a tenth of the shortest limit if that is less\n\
             # than a day: limit, or limit_min where shares have limits of their own. A share that is\n\
             # shorter than the time between two runs may end late: let it run more often then.",
            "@hourly",
            &[("limit", "\"7d\""), ("limit_min", "\"0s\"")],
        ),
        task(
            "ttl-transitions",
            "Moves idle workspaces to standby, and forgotten ones to the archive.",
            "@every 60s",
            &[],
        ),
    ]
}

/// The file with comments.
pub fn template(template: &Template) -> String {
    let mut out = String::from(
        "# Besom's configuration. Every key is shown; those that are commented out stand at their\n\
         # defaults. `besom check` says what is wrong with it, `besom config schema` describes it.\n\
         # Each key of a section can also be given as BESOM_SECTION_KEY or --set section.key=value.\n",
    );
    for section in SECTIONS {
        let _ = write!(out, "\n# {}\n[{}]\n", section.doc, section.name);
        for key in section.keys {
            let path = format!("{}.{}", section.name, key.name);
            let _ = writeln!(out, "# {}", key.doc);
            let _ = match template.values.iter().find(|(k, _)| *k == path) {
                Some((_, value)) => writeln!(out, "{} = {value}", key.name),
                None if key.default.is_empty() => writeln!(out, "# {} = …", key.name),
                None => writeln!(out, "# {} = {}", key.name, key.default),
            };
        }
    }
    out.push_str(TOPICS);
    for route in &template.topics {
        let _ = write!(out, "\n[topics.\"{}\"]\n", route.name);
        for (key, value) in &route.keys {
            let _ = writeln!(out, "{key} = {value}");
        }
    }
    out.push_str(TASKS);
    for task in &template.tasks {
        let _ =
            write!(out, "\n# {}\n[tasks.{}]\nplugin = \"{}\"\n", task.doc, task.name, task.plugin);
        for (key, value) in &task.keys {
            let _ = writeln!(out, "{key} = {value}");
        }
        if !task.settings.is_empty() {
            let _ = write!(out, "\n[tasks.{}.settings]\n", task.name);
            for (key, value) in &task.settings {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
    }
    let _ = write!(out, "{COLLECTIONS}");
    out
}

/// A value of the template: a span.
pub fn span(d: std::time::Duration) -> String {
    format!("\"{}\"", show_duration(d))
}

const TOPICS: &str = r#"
# Topics: where messages that tasks emit are sent. A topic without a route stays in the outbox.
# Each message is posted with an Idempotency-Key that is the same for all of its attempts.
# For instance, for the reconciler (workspace.start, .archive, .restore and .provision as well):
# [topics."workspace.stop"]
# url = "https://orchestrator.internal/workspaces/stop"   a host of delivery.hosts
# token_file = "orchestrator.token"     sent as `Authorization: Bearer`
# timeout = "10s"           how long one attempt may take
# attempts_max = 10         attempts before a message is given up
# backoff = "1s"            the wait after the first failure, doubled up to backoff_max = "10m"
# concurrency = 4           requests of this topic under way at once
# reply_bytes_max = "64KiB" how much of an answer is kept for the task
"#;

const TASKS: &str = r#"
# Tasks: only those that stand here run. A task may have, beside the keys below:
#   timezone = "UTC"          the IANA time zone of its schedule
#   overlap = "skip"          "skip", "queue" or "allow" while the run before is active
#   catch_up = "coalesce"     "skip", "coalesce" or "all" (catch_up_max = 10) after an absence
#   jitter = "0s"             start up to so much later
#   at_start = false          run also when a leader starts
#   undo_retention = "7d"     how long rows are kept as they were before
#   [tasks.NAME.limits]       memory_bytes, fuel, wall, batch_items, rows_read, deletes ...
#   [tasks.NAME.retry]        attempts_max, backoff, backoff_max, guard_retries_max
#   [tasks.NAME.collections]  NAME = "COLLECTION": the table that the plugin's NAME stands for
#   [tasks.NAME.grants]       COLLECTION = ["read", "update"], topics = ["name"], activity = true,
#                             all_tenants = true; COLLECTION = { ops = ["read"], columns = ["name"] }
# The reconciler brings workspaces to where they are to be, by your orchestrator; it needs routes
# for its topics:
# [tasks.reconciler]
# plugin = "reconciler"
# schedule = "@every 5s"
# A built-in plugin is granted what it asks for; your own (plugin = "name.wasm") only what
# [tasks.NAME.grants] says.
"#;

const COLLECTIONS: &str = r#"
# Collections: how your tables are seen. The built-in plugins come with a mapping of their
# own tables; a table here replaces the mapping of its name as a whole. For instance:
# [collections.shares]
# table = "share_links"
# tenant = "workspace_id"
# key = ["id"]
# columns = { id = "text", start_date = { type = "timestamp", encoding = "millis" } }
# indexes = { by_start = ["start_date"] }
"#;
