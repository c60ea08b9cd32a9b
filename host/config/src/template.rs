//! The commented configuration that `besom config init` and `besom demo` write.
//!
//! Sections are generated from the list that reads them, so every key is shown with its default.

use std::fmt::Write as _;

use super::quantity::show_duration;
use super::sections::SECTIONS;
use besom_runtime::built_in::{Entry, TABLE};

/// A task of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTemplate {
    /// Name of the task.
    pub name: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Description, written as a comment.
    pub doc: String,
    /// Keys and their values as TOML.
    pub keys: Vec<(String, String)>,
    /// Settings and their values as TOML.
    pub settings: Vec<(String, String)>,
}

/// The variable parts of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Values that differ from the defaults, as `section.key` and TOML.
    pub values: Vec<(String, String)>,
    /// The routes of topics.
    pub topics: Vec<TopicTemplate>,
    /// The tasks that the configuration runs.
    pub tasks: Vec<TaskTemplate>,
}

/// A topic of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate {
    /// Name of the topic.
    pub name: String,
    /// Keys and their values as TOML.
    pub keys: Vec<(String, String)>,
}

impl Default for Template {
    /// A first configuration: it runs no task, and shows the built-in tasks as comments.
    fn default() -> Template {
        Template {
            values: vec![
                ("store.path".into(), "\"besom.db\"".into()),
                ("plugins.require_pin".into(), "true".into()),
            ],
            topics: Vec::new(),
            tasks: Vec::new(),
        }
    }
}

impl Template {
    /// Runs the built-in tasks with their shipped schedules, except the reconciler, which needs an
    /// orchestrator.
    #[must_use]
    pub fn with_built_in(mut self) -> Template {
        self.tasks.extend(built_in());
        self
    }

    /// Sets a key of a section to a value in TOML.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Template {
        self.values.retain(|(k, _)| k != key);
        self.values.push((key.into(), value.into()));
        self
    }

    /// Resets a key of a section to its default.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Template {
        self.values.retain(|(k, _)| k != key);
        self
    }

    /// Sets a key of a task to a value in TOML. An unknown task is ignored.
    #[must_use]
    pub fn task(mut self, task: &str, key: &str, value: impl Into<String>) -> Template {
        if let Some(task) = self.tasks.iter_mut().find(|t| t.name == task) {
            task.keys.retain(|(k, _)| k != key);
            task.keys.push((key.into(), value.into()));
        }
        self
    }

    /// Sets a setting of a task to a value in TOML. An unknown task is ignored.
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
    let task = |entry: &Entry| {
        let task = entry.task.as_ref()?;
        Some(TaskTemplate {
            name: entry.name.into(),
            plugin: entry.name.into(),
            doc: task.doc.into(),
            keys: vec![
                ("schedule".into(), format!("\"{}\"", task.schedule)),
                ("overlap".into(), "\"skip\"".into()),
            ],
            settings: task.settings.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        })
    };
    TABLE.iter().filter_map(task).collect()
}

/// Returns the commented configuration.
pub fn template(template: &Template) -> String {
    let mut out = String::from(
        "# Besom's configuration. Every key of the sections is listed; those that are commented out have\n\
         # their defaults. All keys of topics, tasks and collections are in the JSON Schema.\n\
         # `besom check` validates this file, `besom config schema` prints its JSON Schema.\n\
         # Each key of a section can also be set with BESOM_SECTION_KEY or --set section.key=value.\n",
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
    let runs = |plugin: &str| template.tasks.iter().any(|task| task.plugin == plugin);
    for task in built_in().iter().filter(|task| !runs(&task.plugin)) {
        out.push('\n');
        for line in section(task).lines().filter(|line| !line.is_empty()) {
            let _ = writeln!(out, "# {}", line.strip_prefix("# ").unwrap_or(line));
        }
    }
    for task in &template.tasks {
        let _ = write!(out, "\n{}", section(task));
    }
    let _ = write!(out, "{COLLECTIONS}");
    out
}

/// The sections of a task.
fn section(task: &TaskTemplate) -> String {
    let lines = |pairs: &[(String, String)]| -> String {
        pairs.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    };
    let mut out = format!(
        "# {}\n[tasks.{}]\nplugin = \"{}\"\n{}",
        task.doc,
        task.name,
        task.plugin,
        lines(&task.keys)
    );
    if !task.settings.is_empty() {
        let _ = write!(out, "\n[tasks.{}.settings]\n{}", task.name, lines(&task.settings));
    }
    out
}

/// Formats a duration as a TOML value.
pub fn span(d: std::time::Duration) -> String {
    format!("\"{}\"", show_duration(d))
}

const TOPICS: &str = r#"
# Topics: where messages that tasks emit are sent. Messages of a topic without a route stay in the outbox.
# Each message is posted with an Idempotency-Key that is the same for all of its attempts.
# For example, for the reconciler (also for workspace.start, .archive, .restore and .provision):
# [topics."workspace.stop"]
# url = "https://orchestrator.internal/workspaces/stop"   # needs delivery.hosts = ["orchestrator.internal:443"]
# token_file = "orchestrator.token"     # sent as `Authorization: Bearer`
# timeout = "10s"           # maximum time for one attempt
# attempts_max = 200        # maximum number of attempts, after which a message is given up
# backoff = "1s"            # pause after the first failure, doubled up to backoff_max = "5m"
# concurrency = 4           # maximum number of concurrent requests of this topic
# reply_bytes_max = "64KiB" # maximum size of an answer that is kept for the task
# feed = true               # your product may enter messages of this topic as well, to any of these receivers:
#                           # by INSERT into the table `besom_feed`, or POST /feed/TOPIC/KEY
# Or append the messages to a stream of Redis, in batches and in the order of each key:
# [topics."documents.compacted"]
# url = "rediss://redis.internal:6379"  # needs delivery.hosts = ["redis.internal:6379"]
# user = "besom"            # default: the server's default user
# password_file = "redis.password"
# stream = "documents"      # default: the topic's name
# length_max = 1000000      # approximate number of messages that the stream keeps; default: all
# replicas = 0              # replicas that must have a message before it counts as delivered
# Or to a topic of Kafka, which must exist:
# [topics."documents.expired"]
# url = "kafka+ssl://kafka.internal:9092"   # needs delivery.hosts = ["kafka.internal:9092"]
# user = "besom"            # default: no SASL
# password_file = "kafka.password"
# sasl = "scram-sha-512"    # or "scram-sha-256", "plain"
# topic = "documents"       # default: the topic's name
"#;

const TASKS: &str = r#"
# Tasks: only the tasks listed here run. The built-in tasks are commented out: enable those whose tables you
# have, and map your tables below.
# In addition to the keys below, a task may have:
#   timezone = "UTC"          # IANA time zone of the schedule
#   overlap = "skip"          # "skip", "queue" or "allow": a slot while the previous run is active
#   catch_up = "coalesce"     # "skip", "coalesce" or "all" (catch_up_max = 10): slots that no host led
#   mode = "live"             # "preview" shows what a run would change, "approve" waits for an approval of what
#                             # it has planned, "live" executes it (default: host.default_mode)
#   approve_within = "7d"     # a plan that nobody has approved by then is discarded
#   windows = ["Mon-Fri 22:00-05:00 Europe/Berlin"]   # when it may work (default: always)
#   max_delete = "5%"         # or a number of rows: a run that wants more of a collection is stopped (default:
#                             # no limit); max_dead_letters and max_failed_runs stop it as well
#   rows_per_second = 20000   # how fast it changes rows (default: no limit)
#   jitter = "0s"             # maximum delay of a run after its slot
#   at_start = false          # also run when a leader starts
#   keep_removed = "7d"       # how long rows are kept as they were, for `besom undo`
#   [tasks.NAME.limits]       memory_bytes, fuel, wall, batch_items, rows_read, deletes ...
#   [tasks.NAME.retry]        attempts_max, backoff, backoff_max, guard_retries_max
#   [tasks.NAME.yield]        latency, lag, floor: change fewer rows while the product is served late
#   [tasks.NAME.collections]  NAME = "COLLECTION": the collection used for the plugin's NAME
#   [tasks.NAME.grants]       COLLECTION = ["read", "update"], topics = ["name"], activity = true,
#                             all_tenants = true; COLLECTION = { ops = ["read"], columns = ["name"] }
# The reconciler brings workspaces to their desired state through your orchestrator; it needs routes
# for its topics:
# [tasks.reconciler]
# plugin = "reconciler"
# schedule = "@every 5s"
# Retention deletes, moves or changes old rows of any table (docs/retention.md; `besom config map TABLE`):
# [tasks.ended-shares]
# plugin = "retention"
# schedule = "@daily"
# collections.rows = "shares"
# settings = { by = "unshared_at", older_than = "90d" }
# A built-in plugin is granted what it requests; your own (plugin = "name.wasm") only what
# [tasks.NAME.grants] lists.
"#;

const COLLECTIONS: &str = r#"
# Collections: how your tables are mapped. The built-in plugins come with a mapping for their
# tables; a collection here replaces the mapping of the same name as a whole. Columns have the
# names that the plugin uses (docs/tables.md lists them); if yours differ, map a view. For example:
# [collections.shares]
# table = "share_links"
# tenant = "workspace_id"
# key = ["share_id"]
# indexes.by_unshared_start = ["unshared_at", "start_date"]
# indexes.by_unshared_limit = ["unshared_at", "limit_seconds", "start_date"]
# [collections.shares.columns]
# share_id = "text"
# start_date = { type = "timestamp", encoding = "millis" }
# limit_seconds = "integer"
# unshared_at = { type = "timestamp", encoding = "millis" }
"#;
