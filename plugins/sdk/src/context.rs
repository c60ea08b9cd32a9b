//! The inputs of a call: the present, the settings and the items.

use crate::bindings::besom::task::types as wire;
use crate::value::kind;
use crate::{Error, Field, FromValue, Result, Time, Value, key};

/// The inputs that all functions of a task share.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The task's name in `besom.toml`.
    pub task: String,
    /// The present. A task has no other clock.
    pub now: Time,
    /// The only source of randomness; a replay passes the same seed.
    pub seed: u64,
    /// The scanned tenant; none in `act`, where each item has its own, and in a scan over all
    /// tenants.
    pub tenant: Option<String>,
    /// The time in milliseconds until the host calls `scan` again: plan what falls due before
    /// `now` plus this time.
    pub horizon_ms: u64,
    /// One value for each setting of the manifest.
    pub settings: Vec<Field>,
    /// The collections that the manifest asks to be described ([`crate::Access::described`]).
    pub described: Vec<Described>,
    /// Optional columns ([`crate::Access::optional`]) that the mapping lacks, each after its
    /// collection.
    pub unmapped: Vec<(String, String)>,
    /// What a newer host says besides; ignore names that you do not know.
    pub extra: Vec<Field>,
}

/// A collection as the operator has mapped it. It excludes the tenant column.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Described {
    /// Its name in the manifest.
    pub collection: String,
    /// The columns of its key, in their order.
    pub key: Vec<String>,
    /// Its columns, with the names of their types in the configuration, such as `timestamp`.
    pub columns: Vec<(String, String)>,
    /// Its indexes of all rows with their columns.
    pub indexes: Vec<(String, Vec<String>)>,
    /// Its indexes of some of the rows.
    pub partial: Vec<PartialIndex>,
}

/// An index that contains only the rows that have values in certain columns. A read by it returns no others.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PartialIndex {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// The columns that are not NULL in its rows.
    pub not_null: Vec<String>,
}

impl Context {
    /// The value of a setting as `T`.
    ///
    /// # Errors
    /// `no-such-setting` if the manifest does not declare it, `unexpected-value` if its value is
    /// not a `T`.
    pub fn setting<T: FromValue>(&self, name: &str) -> Result<T> {
        let value = self.settings.iter().find(|field| field.name == name).map(|field| &field.value);
        let value = value.ok_or_else(|| {
            Error::permanent("no-such-setting", format!("the manifest has no setting {name}"))
        })?;
        T::from_value(value).ok_or_else(|| {
            let (wanted, found) = (T::WANTED, kind(value));
            Error::permanent(
                "unexpected-value",
                format!("the setting {name} is {found}, but {wanted} is expected"),
            )
        })
    }

    /// Whether an optional column of the manifest is mapped and can be read.
    pub fn has_column(&self, collection: &str, column: &str) -> bool {
        !self.unmapped.iter().any(|(of, name)| of == collection && name == column)
    }

    /// A collection as the operator has mapped it.
    ///
    /// # Errors
    /// `not-described` if the manifest does not ask for it, or the task does not have it.
    pub fn described(&self, collection: &str) -> Result<&Described> {
        self.described.iter().find(|one| one.collection == collection).ok_or_else(|| {
            let message = format!("the host does not describe the collection {collection}");
            Error::permanent("not-described", message)
        })
    }

    /// The value of a duration setting in milliseconds.
    ///
    /// # Errors
    /// As [`Context::setting`], and `unexpected-value` for a negative duration.
    pub fn duration_ms(&self, name: &str) -> Result<u64> {
        u64::try_from(self.setting::<i64>(name)?).map_err(|_| {
            Error::permanent(
                "unexpected-value",
                format!("the setting {name} is a negative duration"),
            )
        })
    }
}

impl From<wire::Context> for Context {
    fn from(c: wire::Context) -> Context {
        let partial_index = |index: wire::DescribedIndex| PartialIndex {
            name: index.name,
            columns: index.columns,
            not_null: index.not_null,
        };
        let described = |d: wire::Described| {
            let (whole, partial): (Vec<_>, Vec<_>) =
                d.indexes.into_iter().partition(|index| index.not_null.is_empty());
            Described {
                collection: d.collection,
                key: d.key,
                columns: d.columns.into_iter().map(|column| (column.name, column.type_)).collect(),
                indexes: whole.into_iter().map(|index| (index.name, index.columns)).collect(),
                partial: partial.into_iter().map(partial_index).collect(),
            }
        };
        let unmapped = c.unmapped.into_iter();
        Context {
            described: c.described.into_iter().map(described).collect(),
            unmapped: unmapped.map(|name| (name.collection, name.column)).collect(),
            task: c.task,
            now: Time(c.now),
            seed: c.seed,
            tenant: c.tenant,
            horizon_ms: c.horizon,
            settings: c.settings,
            extra: c.extra,
        }
    }
}

/// One unit of work, as passed to [`crate::Task::act`].
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The position in the batch, by which a read names the item it is for.
    pub index: u32,
    /// The tenant, which the host adds to every read and change of this item.
    pub tenant: Option<String>,
    /// The candidate's key; [`Item::key_values`] decodes it.
    pub key: String,
    /// The candidate's route, or its key if it set none.
    pub route: String,
    /// The candidate's due time, if it set one. It is not after [`Context::now`].
    pub due: Option<Time>,
    /// The candidate's version, as of the scan.
    pub version: String,
    /// The candidate's payload, as of the scan; it may be stale.
    pub payload: Vec<u8>,
    /// The id of the run that planned the item.
    pub run: u64,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many times a guard of the item failed and requested a retry
    /// ([`crate::Proposal::or_retry`]). Such a retry consumes no attempt.
    pub guard_retries: u32,
    /// The time of the slot that planned the item.
    pub planned_at: Time,
    /// What a newer host says besides; ignore names that you do not know.
    pub extra: Vec<Field>,
}

impl Item {
    /// The values that [`crate::Candidate::of`] encoded into the key.
    ///
    /// # Errors
    /// `malformed-key` if the key was not encoded by [`crate::key`].
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
            guard_retries: item.guard_retries,
            planned_at: Time(item.planned_at),
            extra: item.extra,
        }
    }
}
