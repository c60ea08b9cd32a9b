//! A task as the host runs it: the validated table `[tasks.NAME]`, with its plugin resolved.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::collection::Grants;
use besom_core::ids::TaskName;
pub use besom_core::plan::{CatchUp, Overlap};
pub use besom_core::queue::RetryPolicy;
use besom_core::value::Field;
use serde::{Deserialize, Serialize};

use crate::ports::guests::{Lane, Limits};

/// A plugin's names of collections, and the collections of the configuration that they stand
/// for. A name that is not among them stands for itself.
pub type Aliases = BTreeMap<String, String>;

/// Columns that a task may name, by collection.
pub type Columns = BTreeMap<String, Vec<String>>;

/// A task, ready to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDefinition {
    /// Its name.
    pub name: TaskName,
    /// The plugin as configured: a built-in name, or a file of `plugins.d`.
    pub plugin: String,
    /// SHA-256 of the plugin's component, in hexadecimal.
    pub digest: String,
    /// The schedule's expression; none: only by trigger.
    pub schedule: Option<String>,
    /// The IANA time zone the schedule is read in.
    pub timezone: String,
    /// What happens to a slot while the run before is active.
    pub overlap: Overlap,
    /// What happens to slots that passed while nobody led.
    pub catch_up: CatchUp,
    /// A run starts up to so much after its slot, evenly spread.
    pub jitter: Duration,
    /// Run at once when a leader starts or the settings change (share planning).
    pub at_start: bool,
    /// How far ahead due items are planned. A schedule that is sparser is refused.
    pub horizon: Duration,
    /// The plugin's settings, complete, as the guest gets them.
    pub settings: Vec<Field>,
    /// The bounds of a call.
    pub limits: Limits,
    /// What it may do.
    pub grants: Grants,
    /// Of a collection, the columns that it may name beside those of the key; a collection that is
    /// not among them: all that its plugin asks for.
    #[serde(default)]
    pub columns: Columns,
    /// Whether it may see all tenants at once: a scan over them, items of several in one call.
    #[serde(default)]
    pub all_tenants: bool,
    /// What its plugin calls by another name: the plugin's name of a collection, and the
    /// collection of the configuration that it stands for.
    #[serde(default)]
    pub aliases: Aliases,
    /// The topics it may emit to.
    pub topics: Vec<String>,
    /// Optional columns of its plugin, as `collection.column`, that are not mapped.
    #[serde(default)]
    pub unmapped: Vec<String>,
    /// Whether it is scanned per tenant: its plugin wants to be, and a collection has one.
    pub per_tenant: bool,
    /// Whether it guards on activity.
    pub activity: bool,
    /// The lane of its work.
    pub lane: Lane,
    /// Tenants that one run visits (`projects_per_run`).
    pub tenants_per_run: u32,
    /// Items that one run plans per tenant (`candidates_per_project`); a task with due
    /// items goes on until its window is complete.
    pub candidates_per_tenant: u32,
    /// How failures are tried again.
    pub retry: RetryPolicy,
    /// How long before-images are kept; zero: not at all.
    pub undo_retention: Duration,
    /// Items that may wait in its log: above it the leader plans nothing more until the owners
    /// have caught up.
    #[serde(default = "queue_max_default")]
    pub queue_max: u32,
    /// Timers and retries that may wait: at so many the leader plans nothing more.
    #[serde(default = "timers_max_default")]
    pub timers_max: u32,
    /// Rows that all nodes together change in a second on its behalf; none: as many as there
    /// are.
    #[serde(default)]
    pub rows_per_second: Option<NonZeroU32>,
}

impl TaskDefinition {
    /// The same with no more rights than `current` has: what was taken away counts for runs that
    /// began before as well.
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

    /// Whether it has no right that `current` has not.
    pub fn is_within(&self, current: &TaskDefinition) -> bool {
        self.clone().restricted_to(current) == *self
    }
}

/// Items that may wait in the log of a task that says nothing of it.
pub const QUEUE_MAX_DEFAULT: u32 = 100_000;

/// Timers and retries that may wait of a task that says nothing of it: in the lane of due items,
/// which is the operator's to give, and in any other.
pub const TIMERS_MAX_DUE: u32 = 10_000_000;
/// See [`TIMERS_MAX_DUE`].
pub const TIMERS_MAX_DEFAULT: u32 = 1_000_000;

fn timers_max_default() -> u32 {
    TIMERS_MAX_DUE
}

fn queue_max_default() -> u32 {
    QUEUE_MAX_DEFAULT
}
