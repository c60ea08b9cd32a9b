//! The tasks' plugins as the host calls them.
//!
//! The runtime implements this port with sandboxed WebAssembly components; the simulation
//! implements it with scripted tasks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::collection::{Grants, Operations};
use besom_core::ids::{TaskName, Tenant};
use besom_core::item::{Candidate, Item};
use besom_core::proposal::Verdict;
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_snapshot::{Cause, LeftOut};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::activity::Activity;
use super::lines::RunLog;
use super::store::ReadView;
use crate::task::{Aliases, Columns};

pub use besom_core::lane::Lane;

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// True or false.
    Bool,
    /// A signed 64-bit integer.
    Integer,
    /// A 64-bit floating-point number.
    Float,
    /// Text.
    Text,
    /// A duration such as `7d`; passed to the plugin in milliseconds.
    Duration,
    /// A list of texts; passed to the plugin as a JSON array of strings.
    Texts,
}

/// The texts of a value of [`SettingKind::Texts`]; none: it is of another kind.
pub fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Json(json) => serde_json::from_str(json).ok(),
        _ => None,
    }
}

/// A setting that a plugin declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The name, as in `settings.NAME`.
    pub name: String,
    /// The type of its values.
    pub kind: SettingKind,
    /// The value if the configuration sets none; `None`: the configuration must set it.
    pub default: Option<Value>,
    /// The minimum value.
    pub minimum: Option<Value>,
    /// The maximum value.
    pub maximum: Option<Value>,
    /// The only values of a text; empty: any.
    #[serde(default)]
    pub choices: Vec<String>,
    /// A description for the person who sets it.
    pub doc: String,
}

/// The access to a collection that a plugin requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CollectionRequest {
    /// The collection, by the plugin's name for it.
    pub collection: String,
    /// The operations that the plugin performs on it.
    pub operations: Operations,
    /// The columns that the plugin names; empty: all.
    pub columns: Vec<String>,
    /// Those of them that need not be mapped.
    #[serde(default)]
    pub optional_columns: Vec<String>,
    /// Whether a task need not have the collection: it is requested only for tasks that name it in
    /// `collections`.
    #[serde(default)]
    pub optional: bool,
    /// Whether the plugin wants it described in each call.
    #[serde(default)]
    pub described: bool,
}

/// A collection as the operator has mapped it, without its tenant column.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The plugin's name for it.
    pub collection: String,
    /// The columns of its key, in their order.
    pub key: Vec<String>,
    /// Its columns, with the names of their types in the configuration.
    pub columns: Vec<(String, String)>,
    /// Its indexes of all rows with their columns.
    pub indexes: Vec<(String, Vec<String>)>,
    /// Its indexes of some of the rows: the name, the columns, and those that are not NULL in its rows.
    #[serde(default)]
    pub partial: Vec<(String, Vec<String>, Vec<String>)>,
}

/// A plugin's description of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The plugin's name.
    pub name: String,
    /// The plugin's semantic version.
    pub version: String,
    /// A description for people.
    pub doc: String,
    /// The settings that the plugin accepts.
    pub settings: Vec<Setting>,
    /// The access to collections that it requests.
    pub collections: Vec<CollectionRequest>,
    /// The topics to which it may emit messages.
    pub topics: Vec<String>,
    /// Whether it reads activity.
    pub activity: bool,
    /// Whether it is scanned separately for each tenant.
    pub per_tenant: bool,
    /// The lane of its work.
    pub lane: Lane,
    /// Defaults of settings that the host uses itself, and extensions of later versions.
    pub extra: Vec<Field>,
}

impl Manifest {
    fn request(&self, collection: &str) -> Option<&CollectionRequest> {
        self.collections.iter().find(|request| request.collection == collection)
    }

    /// The collections that the plugin wants described.
    pub fn described(&self) -> impl Iterator<Item = &str> {
        self.collections.iter().filter(|one| one.described).map(|one| one.collection.as_str())
    }

    /// Whether a task need not have that collection.
    pub fn needs_no(&self, collection: &str) -> bool {
        self.request(collection).is_some_and(|request| request.optional)
    }

    /// Whether the plugin can work without that column.
    pub fn is_optional(&self, collection: &str, column: &str) -> bool {
        let request = self.request(collection);
        request.is_some_and(|request| request.optional_columns.iter().any(|one| one == column))
    }
}

/// The limits of a task. Every limit has a default in the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Linear memory of one instance, all its memories together, in bytes.
    pub memory_bytes: u64,
    /// Fuel of one call into the guest; 0: fuel is not counted, and only `wall_ms` ends the call.
    pub fuel: u64,
    /// Fuel for the data that one host call may copy out of the guest.
    pub hostcall_fuel: u64,
    /// Wall-clock time of one call, in milliseconds, including time spent waiting for the host.
    pub wall_ms: u64,
    /// Maximum number of items in a batch.
    pub batch_items: u32,
    /// Maximum size of a batch's payloads, in bytes.
    pub batch_bytes: u64,
    /// Maximum number of rows that one call may read.
    pub rows_read: u64,
    /// Maximum size of the result of one read, in bytes.
    pub read_bytes: u64,
    /// Maximum number of changes of one item, not counting the rows of read sets.
    pub changes: u32,
    /// Maximum number of rows that one item may delete, counting the rows of read sets.
    pub deletes: u64,
    /// Maximum size of the log that is kept of one call, in bytes.
    pub log_bytes: u64,
}

/// Everything that one call needs to know about its task.
#[derive(Debug, Clone)]
pub struct Call {
    /// The task on whose behalf the plugin is called.
    pub task: TaskName,
    /// The digest of the plugin, which selects the version to call.
    pub digest: String,
    /// The present, as the guest sees it.
    pub now: Time,
    /// The guest's seed for random numbers.
    pub seed: u64,
    /// All settings of the task, with their defaults.
    pub settings: Vec<Field>,
    /// How far ahead a scan has to plan.
    pub horizon: Duration,
    /// The operations that the task may perform.
    pub grants: Arc<Grants>,
    /// The collections that the plugin knows by another name.
    pub aliases: Arc<Aliases>,
    /// The columns that it may name per collection, in addition to the key; for a collection
    /// without an entry, all columns that the manifest requests.
    pub columns: Arc<Columns>,
    /// Whether one call may contain items of several tenants.
    pub all_tenants: bool,
    /// Whether it may read activity.
    pub activity: bool,
    /// The limits of the call.
    pub limits: Limits,
    /// The topics it may emit to.
    pub topics: Vec<String>,
    /// The optional columns that are not mapped, each with its collection.
    pub unmapped: Vec<(String, String)>,
    /// The collections that the plugin wants described.
    pub described: Vec<Described>,
    /// Raised by the host when the result is no longer needed.
    pub stop: StopFlag,
    /// Receives its log lines, in addition to the host's own log.
    pub log: RunLog,
}

/// Ends the calls that carry it, through no fault of the guest: the lease or the partition was
/// lost, or the node is stopping. It is raised at most once and never lowered. Clones share the
/// same flag. Dropping the future of a call also ends the call.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<Stop>);

#[derive(Debug, Default)]
struct Stop {
    reason: OnceLock<String>,
    raised: Notify,
}

impl StopFlag {
    /// Ends the calls that carry the flag. Only the first reason is kept.
    pub fn raise(&self, reason: impl Into<String>) {
        let _ = self.0.reason.set(reason.into());
        self.0.raised.notify_waiters();
    }

    /// The reason for raising it; `None`: it is not raised.
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Waits until the flag is raised and returns the reason.
    pub async fn raised(&self) -> &str {
        loop {
            // Registered before the check, so that a raise in between is not missed.
            let mut notified = std::pin::pin!(self.0.raised.notified());
            notified.as_mut().enable();
            if let Some(reason) = self.reason() {
                return reason;
            }
            notified.await;
        }
    }
}

/// A failure of a call, or of one of its items, that is the guest's fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// `fuel`, `deadline`, `memory`, `stack`, `unreachable`, `trap`, `error`, `limit`, `contract`,
    /// `host-panic`, `not-reached` or `no-room`.
    pub cause: String,
    /// A message for people: the cause, the source location if known, and the end of stderr.
    pub message: String,
    /// Set if the host refused what the guest asked for, such as a collection that is not granted:
    /// the reason alone, which other items with the same fault share.
    #[serde(default)]
    pub refused: Option<String>,
}

impl Fault {
    const NOT_REACHED: &str = "not-reached";
    const NO_ROOM: &str = "no-room";

    /// A fault of the guest.
    pub fn new(cause: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { cause: cause.into(), message: message.into(), refused: None }
    }

    /// The item was not executed: other items used up the time of the batch, or the call of another
    /// tenant's items could not take place. The item is not at fault.
    pub fn not_reached() -> Fault {
        let message = "not executed: other items used up the time for bisecting the batch";
        Fault::new(Fault::NOT_REACHED, message)
    }

    /// Whether the item was not executed, for lack of time.
    pub fn is_not_reached(&self) -> bool {
        self.cause == Fault::NOT_REACHED
    }

    /// The item was not executed: the verdicts on other items of the batch fill a commit.
    pub fn no_room() -> Fault {
        let message = "not executed: the verdicts on other items of the batch fill a commit";
        Fault::new(Fault::NO_ROOM, message)
    }

    /// Whether the item was not executed, for lack of memory.
    pub fn is_no_room(&self) -> bool {
        self.cause == Fault::NO_ROOM
    }
}

/// The call failed, did not take place or was stopped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The call failed, and the guest is at fault.
    #[error("{}", .0.message)]
    Guest(Fault),
    /// The host stopped the call: the leadership or partition was lost, or the node is stopping.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The store or the activity failed during the call.
    #[error("{0}")]
    Infrastructure(String),
    /// The database rejects the reads of the call. The guest is not at fault; the cause has to be
    /// corrected in the database.
    #[error("{1}")]
    Refused(Cause, String),
    /// No plugin with this digest is loaded.
    #[error("the plugin {0} is not loaded")]
    NotLoaded(String),
}

/// The resources that a call has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Fuel consumed; 0: it was not counted.
    pub fuel: u64,
    /// Peak linear memory, in bytes.
    pub memory_bytes: u64,
    /// Number of rows read.
    pub rows_read: u64,
    /// Number of calls to imports.
    pub host_calls: u64,
    /// Number of instances; more than one if a batch was bisected.
    pub instances: u32,
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The candidates found.
    pub candidates: Vec<Candidate>,
    /// The cursor for the next page; `None`: the scan has reached its end.
    pub next: Option<Vec<u8>>,
    /// Number of rows examined.
    pub scanned: u64,
    /// Candidates that were left out, because no item can have their key. Names no task.
    pub left_out: LeftOut,
    /// The resources used.
    pub usage: Usage,
}

/// The verdicts on a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Acted {
    /// One result per item: its verdict, a fault that this item alone caused (found by bisection;
    /// the other items have their verdicts), [`Fault::not_reached`] or [`Fault::no_room`].
    pub verdicts: Vec<Result<Verdict, Fault>>,
    /// The resources used.
    pub usage: Usage,
}

/// The loaded plugins, identified by digest.
#[async_trait]
pub trait Guests: Send + Sync {
    /// The plugin's manifest; `None`: no plugin with this digest is loaded.
    fn manifest(&self, digest: &str) -> Option<Arc<Manifest>>;

    /// Tenants after `after` that may have candidates.
    async fn tenants(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>, Error>;

    /// One page of candidates of a tenant (`None`: of all tenants), starting at the cursor.
    async fn scan(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        tenant: Option<&Tenant>,
        cursor: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page, Error>;

    /// A verdict on each item. A batch that traps is bisected: [`Acted::verdicts`] has a fault only
    /// for an item that fails alone.
    async fn act(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        items: &[Item],
    ) -> Result<Acted, Error>;
}
