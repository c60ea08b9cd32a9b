//! A task as the host runs it: the validated table `[tasks.NAME]`, with its plugin resolved.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::brake::Brakes;
use besom_core::collection::Grants;
use besom_core::ids::TaskName;
use besom_core::lane::LANES;
use besom_core::mode::Mode;
use besom_core::pace::Yielding;
use besom_core::plan::Run;
pub use besom_core::plan::{CatchUp, Overlap};
pub use besom_core::queue::RetryPolicy;
use besom_core::value::Field;
use besom_core::window::Windows;
use serde::{Deserialize, Serialize};

use crate::guests::{Described, Lane, Limits};

/// Maps a plugin's names of collections to collections of the configuration. A name that is not in the map
/// refers to the collection of the same name.
pub type Aliases = BTreeMap<String, String>;

/// Columns that a task may use, by collection.
pub type Columns = BTreeMap<String, Vec<String>>;

/// A validated task with its plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDefinition {
    /// Name of the task.
    pub name: TaskName,
    /// The plugin as configured: a built-in name, or a file in the plugin directory.
    pub plugin: String,
    /// SHA-256 of the plugin's component, in hexadecimal.
    pub digest: String,
    /// The schedule; `None` for a task that runs only when triggered.
    pub schedule: Option<String>,
    /// IANA time zone of the schedule.
    pub timezone: String,
    /// What to do with a slot while the previous run is active.
    pub overlap: Overlap,
    /// What to do with slots that passed while no host led.
    pub catch_up: CatchUp,
    /// Maximum delay of a run after its slot; delays are distributed evenly.
    pub jitter: Duration,
    /// Whether the task also runs when a leader starts or its settings change.
    pub at_start: bool,
    /// How far ahead due items are planned; at least the widest gap of the schedule.
    pub horizon: Duration,
    /// All settings of the plugin, as passed to the guest.
    pub settings: Vec<Field>,
    /// Limits of one call.
    pub limits: Limits,
    /// Operations that the task may perform, by collection.
    pub grants: Grants,
    /// The collections whose rows go with those that the task may delete.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dependants: Vec<String>,
    /// Columns that the task may use in addition to the key, by collection. For a collection that is not
    /// listed, it may use all columns that its plugin requests.
    #[serde(default)]
    pub columns: Columns,
    /// Whether one scan may cover all tenants, and one call the items of several tenants.
    #[serde(default)]
    pub all_tenants: bool,
    /// Collections that the plugin uses under other names.
    #[serde(default)]
    pub aliases: Aliases,
    /// Topics that the task may emit to.
    pub topics: Vec<String>,
    /// Optional columns of the plugin that are not mapped, each with its collection.
    #[serde(default)]
    pub unmapped: Vec<(String, String)>,
    /// The collections that the plugin wants described.
    #[serde(default)]
    pub described: Vec<Described>,
    /// Whether each tenant is scanned separately: the plugin requests it, and a collection has tenants.
    pub per_tenant: bool,
    /// Whether the task may read activity.
    pub activity: bool,
    /// Lane in which the task is executed.
    pub lane: Lane,
    /// Maximum number of tenants that one run visits (`projects_per_run`).
    pub tenants_per_run: u32,
    /// Maximum number of items that one run plans per tenant (`candidates_per_project`). A task with due
    /// items continues until its window is complete.
    pub candidates_per_tenant: u32,
    /// How failures are retried.
    pub retry: RetryPolicy,
    /// How long before-images are kept; zero keeps none.
    pub keep_removed: Duration,
    /// Maximum number of items waiting in the log. Above it, the leader plans nothing more until the owners
    /// have caught up.
    #[serde(default = "queue_max_default")]
    pub queue_max: u32,
    /// Maximum number of timers and retries. At the limit, the leader plans nothing more.
    #[serde(default = "timers_max_default")]
    pub timers_max: u32,
    /// Maximum number of open dead letters. At the limit, the leader plans nothing more.
    #[serde(default = "dead_max_default")]
    pub dead_max: u32,
    /// Maximum number of rows that all nodes together change per second for the task; `None` means no limit.
    #[serde(default)]
    pub rows_per_second: Option<NonZeroU32>,
    /// When the task changes fewer rows per second; none: it does not yield.
    #[serde(default, skip_serializing_if = "is_default")]
    pub yields: Option<Yielding>,
    /// What one run may delete and set aside, and how many runs in a row may fail.
    #[serde(default, skip_serializing_if = "is_default")]
    pub brakes: Brakes,
    /// When the task may scan and execute; none: always.
    #[serde(default, skip_serializing_if = "is_default")]
    pub windows: Windows,
    /// How far a run goes by itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// How long what a run has planned may wait for an approval.
    #[serde(default = "approve_within_default")]
    pub approve_within: Duration,
    /// A digest of the mapping of the collections that the task may use; empty: a version of the host has
    /// written the definition that did not record it.
    #[serde(default)]
    pub mapping: String,
}

/// Default of `approve_within`.
pub const APPROVE_WITHIN_DEFAULT: Duration = Duration::from_secs(7 * 86_400);

fn approve_within_default() -> Duration {
    APPROVE_WITHIN_DEFAULT
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TaskDefinition {
    /// The definition that a run was started with; `None`: a version of the host wrote it that this one
    /// cannot read.
    pub fn of_run(run: &Run) -> Option<TaskDefinition> {
        serde_json::from_str(&run.definition).ok()
    }

    /// Removes all grants that `current` does not have, so that a revoked grant also applies to runs that
    /// started before the change.
    #[must_use]
    pub fn restricted_to(mut self, current: &TaskDefinition) -> TaskDefinition {
        for (collection, operations) in &mut self.grants {
            *operations =
                operations.and(current.grants.get(collection).copied().unwrap_or_default());
        }
        for (collection, allowed) in &current.columns {
            let own = self.columns.entry(collection.clone()).or_insert_with(|| allowed.clone());
            own.retain(|column| allowed.contains(column));
        }
        self.topics.retain(|topic| current.topics.contains(topic));
        self.activity &= current.activity;
        self.all_tenants &= current.all_tenants;
        self
    }

    /// What has changed since a plan was made by this definition, so that an approval of the plan would
    /// be one of something else; none: nothing that matters has.
    pub fn outdated_by(&self, current: &TaskDefinition) -> Option<String> {
        let mut changed = Vec::new();
        if self.digest != current.digest {
            changed.push("the plugin");
        }
        if self.settings != current.settings || self.aliases != current.aliases {
            changed.push("the settings");
        }
        let rights = |d: &TaskDefinition| {
            (d.grants.clone(), d.columns.clone(), d.all_tenants, d.activity, d.unmapped.clone())
        };
        if rights(self) != rights(current) {
            changed.push("the grants");
        }
        if self.topics != current.topics {
            changed.push("the topics");
        }
        if self.mapping != current.mapping {
            changed.push("the mapping");
        }
        if self.mode != current.mode {
            changed.push("the mode");
        }
        // What was approved could be undone for longer.
        if current.keep_removed < self.keep_removed {
            changed.push("keep_removed");
        }
        let last = changed.pop()?;
        Some(match changed.is_empty() {
            true => format!("{last} of the task changed"),
            false => format!("{} and {last} of the task changed", changed.join(", ")),
        })
    }

    /// Whether `current` has all grants of this definition.
    pub fn is_within(&self, current: &TaskDefinition) -> bool {
        self.clone().restricted_to(current) == *self
    }
}

/// Default of `queue_max`.
pub const QUEUE_MAX_DEFAULT: u32 = 100_000;

/// Default of `dead_max`.
pub const DEAD_MAX_DEFAULT: u32 = 100_000;

/// The bound of a definition that was recorded without one.
fn timers_max_default() -> u32 {
    LANES.iter().map(|row| row.timers_max).max().unwrap_or_default()
}

fn queue_max_default() -> u32 {
    QUEUE_MAX_DEFAULT
}

fn dead_max_default() -> u32 {
    DEAD_MAX_DEFAULT
}
