//! What the host tells with every call: the present, the settings, the items.

use crate::bindings::besom::task::types as wire;
use crate::value::kind;
use crate::{Error, Field, FromValue, Result, Time, Value, key};

/// The circumstances of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The task's name in `besom.toml`.
    pub task: String,
    /// The instant to be taken as the present; no other clock may be read.
    pub now: Time,
    /// For whatever randomness the task needs: the same seed in a replay.
    pub seed: u64,
    /// In a scan: the tenant that is scanned.
    pub tenant: Option<String>,
    /// How far ahead, in milliseconds, until the host calls `scan` again.
    pub horizon_ms: u64,
    /// One value for each setting of the manifest.
    pub settings: Vec<Field>,
    /// Optional columns ([`crate::Access::optional`]) that are not mapped, as
    /// `collection.column`.
    pub unmapped: Vec<String>,
}

/// In the context's `extra`: a column of [`Context::unmapped`].
const UNMAPPED_COLUMN: &str = "unmapped-column";

impl Context {
    /// The value of a setting as `T`.
    pub fn setting<T: FromValue>(&self, name: &str) -> Result<T> {
        let value = self.settings.iter().find(|field| field.name == name).map(|field| &field.value);
        let value = value.ok_or_else(|| {
            Error::permanent("no-such-setting", format!("the manifest declares no setting {name}"))
        })?;
        T::from_value(value).ok_or_else(|| {
            let (wanted, found) = (T::WANTED, kind(value));
            Error::permanent(
                "unexpected-value",
                format!("the setting {name} is {found}, where {wanted} is expected"),
            )
        })
    }

    /// Whether a column that the manifest asks for as optional is there to be read.
    pub fn has_column(&self, collection: &str, column: &str) -> bool {
        !self.unmapped.iter().any(|name| name.split_once('.') == Some((collection, column)))
    }

    /// A duration setting, in milliseconds.
    pub fn duration_ms(&self, name: &str) -> Result<u64> {
        u64::try_from(self.setting::<i64>(name)?).map_err(|_| {
            Error::permanent("unexpected-value", format!("the setting {name} is a negative span"))
        })
    }
}

impl From<wire::Context> for Context {
    fn from(c: wire::Context) -> Context {
        let unmapped = c.extra.into_iter().filter(|field| field.name == UNMAPPED_COLUMN);
        Context {
            unmapped: unmapped.filter_map(|field| String::from_value(&field.value)).collect(),
            task: c.task,
            now: Time(c.now),
            seed: c.seed,
            tenant: c.tenant,
            horizon_ms: c.horizon,
            settings: c.settings,
        }
    }
}

/// In an item's `extra`: how often a guard of it failed and asked for a retry; absent where none
/// did.
const GUARD_RETRIES: &str = "guard-retries";

fn guard_retries(extra: &[Field]) -> u32 {
    let told = extra.iter().find(|field| field.name == GUARD_RETRIES);
    let told = told.and_then(|field| i64::from_value(&field.value));
    told.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// One unit of work, as [`crate::Task::act`] gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its place in the batch: this is how a read names the item it is for.
    pub index: u32,
    /// The tenant; the host adds it to every read and change of this item.
    pub tenant: Option<String>,
    /// The candidate's key.
    pub key: String,
    /// The candidate's route.
    pub route: String,
    /// When it was due.
    pub due: Option<Time>,
    /// The version that the scan saw.
    pub version: String,
    /// What the scan wanted `act` to know.
    pub payload: Vec<u8>,
    /// The run that planned it.
    pub run: u64,
    /// Counts from 1.
    pub attempt: u32,
    /// How often a guard of it failed and asked for a retry ([`crate::Proposal::or_retry`]): no
    /// attempt is consumed by that. 0 from a host that does not tell.
    pub guard_retries: u32,
    /// The slot that planned it.
    pub planned_at: Time,
}

impl Item {
    /// The values that [`crate::Candidate::of`] made the key from.
    pub fn key_values(&self) -> Result<Vec<Value>> {
        key::decode(&self.key)
    }

    pub(crate) fn from_wire(index: usize, item: wire::Item) -> Item {
        Item {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            tenant: item.tenant,
            key: item.key,
            route: item.route,
            due: item.due.map(Time),
            version: item.version,
            payload: item.payload,
            run: item.run,
            attempt: item.attempt,
            guard_retries: guard_retries(&item.extra),
            planned_at: Time(item.planned_at),
        }
    }
}
