//! The tasks as the host calls them. The runtime implements this with sandboxed
//! WebAssembly components; the simulation with scripted tasks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::collection::{Grants, Operations};
use besom_core::ids::{TaskName, Tenant};
use besom_core::item::{Candidate, Item};
use besom_core::proposal::Verdict;
use besom_core::snapshot::Cause;
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::activity::Activity;
use super::lines::RunLog;
use super::store::Snapshot;
use crate::task::{Aliases, Columns};

/// The priority class of a task's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Items with a due time.
    Due,
    /// Everything else.
    Normal,
    /// Work that may take long.
    Heavy,
}

/// The kind of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// True or false.
    Bool,
    /// A whole number.
    Integer,
    /// A number.
    Float,
    /// Text.
    Text,
    /// A span such as `7d`; handed over as milliseconds.
    Duration,
}

/// A setting that a plugin declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: SettingKind,
    /// None: it has to be given.
    pub default: Option<Value>,
    /// The least value.
    pub minimum: Option<Value>,
    /// The greatest.
    pub maximum: Option<Value>,
    /// For the person who sets it.
    pub doc: String,
}

/// What a plugin asks of a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionRequest {
    /// The collection.
    pub collection: String,
    /// What it does to it.
    pub operations: Operations,
    /// The columns it names; empty: all.
    pub columns: Vec<String>,
}

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// For a person.
    pub doc: String,
    /// Its settings.
    pub settings: Vec<Setting>,
    /// The collections it asks for.
    pub collections: Vec<CollectionRequest>,
    /// The topics it may emit to.
    pub topics: Vec<String>,
    /// Whether it reads activity.
    pub activity: bool,
    /// Whether it is scanned per tenant.
    pub per_tenant: bool,
    /// The lane of its work.
    pub lane: Lane,
    /// Settings the host reads for itself, and whatever later versions add.
    pub extra: Vec<Field>,
}

/// In [`Manifest::extra`]: a column, as `collection.column`, that need not be mapped.
pub const OPTIONAL_COLUMN: &str = "optional-column";
/// In [`Manifest::extra`]: a word, as `setting.word`, that a setting may be. A setting with any
/// is one of them and nothing else.
pub const CHOICE: &str = "choice";
/// In what a guest is told of an item: how often a guard of it failed and asked for a retry;
/// nothing is said where none did.
pub const GUARD_RETRIES: &str = "guard-retries";
/// In the context of a call: an optional column, as `collection.column`, that is not mapped.
pub const UNMAPPED_COLUMN: &str = "unmapped-column";

impl Manifest {
    /// The words that a setting may be; empty: it is no choice.
    pub fn choices(&self, setting: &str) -> Vec<&str> {
        let words = self.extra.iter().filter_map(|field| match &field.value {
            Value::Text(choice) if field.name == CHOICE => {
                choice.strip_prefix(setting)?.strip_prefix('.')
            }
            _ => None,
        });
        words.collect()
    }

    /// Whether the plugin goes without that column where it is not mapped.
    pub fn is_optional(&self, collection: &str, column: &str) -> bool {
        self.extra.iter().any(|field| {
            field.name == OPTIONAL_COLUMN
                && matches!(&field.value, Value::Text(name)
                    if name.split_once('.') == Some((collection, column)))
        })
    }
}

/// The bounds of a task. Every one has a default in the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Linear memory of one instance, all memories together, in bytes.
    pub memory_bytes: u64,
    /// Fuel of one call into the guest; 0: it is not counted, and time alone ends the call.
    pub fuel: u64,
    /// Fuel for what one host call may lift out of the guest.
    pub hostcall_fuel: u64,
    /// Wall-clock time of one call, in milliseconds, host waits included.
    pub wall_ms: u64,
    /// Items of one batch.
    pub batch_items: u32,
    /// Bytes of one batch's payloads.
    pub batch_bytes: u64,
    /// Rows that one call may read.
    pub rows_read: u64,
    /// Bytes that one read may return.
    pub read_bytes: u64,
    /// Changes of one item, rows of read sets not counted.
    pub changes: u32,
    /// Rows that one item may delete, rows of read sets counted.
    pub deletes: u64,
    /// Bytes of log that are kept of one call.
    pub log_bytes: u64,
}

/// Everything one call needs to know of its task.
#[derive(Debug, Clone)]
pub struct Call {
    /// The task.
    pub task: TaskName,
    /// The plugin's digest: which version to call.
    pub digest: String,
    /// The present, for the guest.
    pub now: Time,
    /// Its randomness.
    pub seed: u64,
    /// Its settings, complete.
    pub settings: Vec<Field>,
    /// How far ahead it has to plan.
    pub horizon: Duration,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// What its plugin calls by another name.
    pub aliases: Arc<Aliases>,
    /// The columns that it may name of a collection, beside its key; a collection that is not among
    /// them: all that the manifest asks for.
    pub columns: Arc<Columns>,
    /// Whether items of several tenants may be in one call.
    pub all_tenants: bool,
    /// Whether it may read activity.
    pub activity: bool,
    /// Its bounds.
    pub limits: Limits,
    /// The topics it may emit to.
    pub topics: Vec<String>,
    /// Optional columns, as `collection.column`, that are not mapped.
    pub unmapped: Vec<String>,
    /// Raised by the host when the result is no longer wanted.
    pub stop: StopFlag,
    /// Where its lines go, beside the host's own log.
    pub log: RunLog,
}

/// Ends the calls that carry it, by no fault of the guest: the lease or the partition is
/// lost, the node stops. Raised once, for good; its clones are the same flag. Dropping the
/// future of a call ends that call as well.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<Stop>);

#[derive(Debug, Default)]
struct Stop {
    reason: OnceLock<String>,
    raised: Notify,
}

impl StopFlag {
    /// Ends the calls that carry the flag. The first reason stays.
    pub fn raise(&self, reason: impl Into<String>) {
        let _ = self.0.reason.set(reason.into());
        self.0.raised.notify_waiters();
    }

    /// Why it was raised; none: it was not.
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Waits until it is raised, and returns why.
    pub async fn raised(&self) -> &str {
        loop {
            // Registered before the look, so that a raise in between is not missed.
            let mut notified = std::pin::pin!(self.0.raised.notified());
            notified.as_mut().enable();
            if let Some(reason) = self.reason() {
                return reason;
            }
            notified.await;
        }
    }
}

/// Why a call, or an item of it, failed by the guest's own fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// `fuel`, `deadline`, `memory`, `stack`, `unreachable`, `trap`, `error`, `limit`,
    /// `contract`, `host-panic`, `not-reached`.
    pub cause: String,
    /// For a person: the cause, the place in the source where it is known, the tail of
    /// stderr.
    pub message: String,
}

impl Fault {
    const NOT_REACHED: &str = "not-reached";

    /// An item was not tried: its neighbours took all the time of the batch, or the call of another
    /// tenant's could not take place. It is not to blame.
    pub fn not_reached() -> Fault {
        let message = "its neighbours took all the time in which the batch could be halved";
        Fault { cause: Fault::NOT_REACHED.into(), message: message.into() }
    }

    /// Whether the item was not tried.
    pub fn is_not_reached(&self) -> bool {
        self.cause == Fault::NOT_REACHED
    }
}

/// The call did not take place, or was stopped, by no fault of the guest.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The guest's fault.
    #[error("{}", .0.message)]
    Guest(Fault),
    /// The host stopped the call: leadership or partition lost, node stopping.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The store or the activity failed under the call.
    #[error("{0}")]
    Infrastructure(String),
    /// The database refuses what the call needs to read: no fault of the guest, and mended at the
    /// database.
    #[error("{1}")]
    Refused(Cause, String),
    /// No such plugin is loaded.
    #[error("the plugin {0} is not loaded")]
    NotLoaded(String),
}

/// What a call has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Fuel; 0: it was not counted.
    pub fuel: u64,
    /// The most linear memory, in bytes.
    pub memory_bytes: u64,
    /// Rows read.
    pub rows_read: u64,
    /// Calls of imports.
    pub host_calls: u64,
    /// Instances (more than one where a batch was bisected).
    pub instances: u32,
}

/// A page of a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What was found.
    pub candidates: Vec<Candidate>,
    /// Where the next page goes on.
    pub next: Option<Vec<u8>>,
    /// Rows looked at.
    pub scanned: u64,
    /// What it used.
    pub usage: Usage,
}

/// The verdicts of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Acted {
    /// One for each item: its verdict, the fault that it alone caused (found by bisection; its
    /// neighbours have their verdicts), or [`Fault::not_reached`].
    pub verdicts: Vec<Result<Verdict, Fault>>,
    /// What it used.
    pub usage: Usage,
}

/// Loaded plugins, callable by digest.
#[async_trait]
pub trait Guests: Send + Sync {
    /// What the plugin says of itself.
    fn manifest(&self, digest: &str) -> Option<Arc<Manifest>>;

    /// The tenants after `after` that may have candidates.
    async fn tenants(
        &self,
        call: &Call,
        view: Arc<dyn Snapshot>,
        activity: Arc<dyn Activity>,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>, Error>;

    /// One page of candidates.
    async fn scan(
        &self,
        call: &Call,
        view: Arc<dyn Snapshot>,
        activity: Arc<dyn Activity>,
        tenant: Option<&Tenant>,
        cursor: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page, Error>;

    /// A verdict for each item. A trap is bisected: [`Acted::verdicts`] has a fault only
    /// for an item that fails alone.
    async fn act(
        &self,
        call: &Call,
        view: Arc<dyn Snapshot>,
        activity: Arc<dyn Activity>,
        items: &[Item],
    ) -> Result<Acted, Error>;
}
