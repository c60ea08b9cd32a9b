//! Collections: how a plugin may see a user's table.
//!
//! This module holds the definition. It comes from `besom.toml` or from the built-in entity model;
//! the store adapters translate it into SQL and check it against the database.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::command::counted;
use crate::proposal::{Comparison, Condition, Filter};
use crate::value::{Kind, Value};

/// How a column stores its kind where the database leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// The database's own type for the kind (on SQLite: integer microseconds for an
    /// instant, text for a UUID).
    Native,
    /// An instant as whole seconds since the epoch.
    Seconds,
    /// An instant as whole milliseconds since the epoch.
    Millis,
    /// An instant as RFC 3339 text in UTC, with as many decimals as are needed.
    Rfc3339,
    /// An instant in UTC as text such as `2026-01-31 08:00:00`, with six decimals unless all of them are 0.
    Datetime,
    /// An instant in UTC as text such as `2026-01-31 08:00:00.000000`, always with six decimals.
    Datetime6,
    /// A UUID as 16 bytes.
    Raw,
    // New ones come last: rows that are kept hold the position of theirs.
    /// An instant in UTC as text such as `2026-01-31 08:00:00.000`, always with three decimals.
    Datetime3,
    /// An instant as RFC 3339 text in UTC, always with three decimals, as JavaScript's `toISOString()` writes it.
    Rfc3339Millis,
    /// An instant as RFC 3339 text in UTC, always with six decimals.
    Rfc3339Micros,
}

impl Encoding {
    /// Whether an instant is stored as text.
    pub fn is_text(self) -> bool {
        use Encoding::{Datetime, Datetime3, Datetime6, Rfc3339, Rfc3339Micros, Rfc3339Millis};
        matches!(self, Rfc3339 | Rfc3339Millis | Rfc3339Micros | Datetime | Datetime3 | Datetime6)
    }

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Native => "native",
            Encoding::Seconds => "seconds",
            Encoding::Millis => "millis",
            Encoding::Rfc3339 => "rfc3339",
            Encoding::Rfc3339Millis => "rfc3339_millis",
            Encoding::Rfc3339Micros => "rfc3339_micros",
            Encoding::Datetime => "datetime",
            Encoding::Datetime3 => "datetime3",
            Encoding::Datetime6 => "datetime6",
            Encoding::Raw => "raw",
        }
    }
}

/// A column of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The kind of its values.
    pub kind: Kind,
    /// How the values are stored.
    pub encoding: Encoding,
}

impl Column {
    /// Refuses to compare it with a column that is stored differently; both are named in the refusal.
    ///
    /// # Errors
    /// A refusal, in words.
    pub fn comparable(self, name: &str, with: Column, other: &str) -> Result<(), String> {
        if self == with {
            return Ok(());
        }
        let kind = |column: Column| format!("{:?}", column.kind).to_lowercase();
        let (own, of_other) = (kind(self), kind(with));
        Err(match self.kind == with.kind {
            true => {
                format!("{name:?} and {other:?} are stored differently: they cannot be compared")
            }
            false => format!("{name:?} ({own}) cannot be compared with {other:?} ({of_other})"),
        })
    }

    /// Refuses a comparison by order if its kind has none: databases order JSON in different ways, or not at all.
    ///
    /// # Errors
    /// A refusal, in words.
    pub fn has_order(self, name: &str, comparison: Comparison) -> Result<(), String> {
        match self.kind == Kind::Json && comparison.is_of_order() {
            true => Err(format!("{name:?} (json) has no order: compare it for equality")),
            false => Ok(()),
        }
    }

    /// Refuses to ask what it begins with if it is no text.
    ///
    /// # Errors
    /// A refusal, in words.
    pub fn has_prefixes(self, name: &str) -> Result<(), String> {
        match self.kind {
            Kind::Text => Ok(()),
            kind => Err(format!("{name:?} ({}) is no text", format!("{kind:?}").to_lowercase())),
        }
    }
}

/// The row whose lock makes a guard on this collection hold: every insert into the collection locks
/// it as well (a foreign key does that).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The collection of the anchoring row.
    pub collection: String,
    /// Columns of this collection that hold the anchor's key, in the order of its key.
    pub columns: Vec<String>,
}

/// A user's table or view as a plugin may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// Its name in `besom.toml` and in plugins.
    pub name: String,
    /// The table's name in the database.
    pub table: String,
    /// The column that names the tenant; none: the table has no tenants.
    pub tenant: Option<String>,
    /// The columns that, with the tenant, identify a row.
    pub key: Vec<String>,
    /// Every column that plugins may name, key columns included, tenant excluded.
    pub columns: BTreeMap<String, Column>,
    /// Indexes usable for range reads, by name. The database's index begins with the tenant column
    /// (if there is one), followed by these columns. The key is always an index; its name is "".
    pub indexes: BTreeMap<String, Vec<String>>,
    /// Indexes that contain only the rows in which these columns are not NULL, by name; the others contain all rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_null: BTreeMap<String, Vec<String>>,
    /// The rows that keep others from inserting while a guard on absence is evaluated: see
    /// [`Collection::anchors_of`].
    pub anchors: Vec<Anchor>,
    /// Collections whose rows go with the row that they refer to: they are deleted before it, in the same
    /// commit. Each has an anchor in this collection.
    pub dependants: Vec<String>,
    /// Whether rows may be deleted with which a foreign key deletes others that are no dependants: those are not
    /// kept, not counted and not guarded.
    pub accept_cascades: bool,
}

/// The collection of that name.
///
/// # Errors
/// A refusal, in words, if it is not mapped.
pub fn named<'a, C>(collections: &'a BTreeMap<String, C>, name: &str) -> Result<&'a C, String> {
    collections.get(name).ok_or_else(|| format!("there is no collection {name:?}"))
}

impl Collection {
    /// The tenant column, which can be read as text.
    pub const TENANT: Column = Column { kind: Kind::Text, encoding: Encoding::Native };

    /// A column by name, or the tenant column.
    ///
    /// # Errors
    /// A refusal, in words, if the column is not mapped.
    pub fn column(&self, name: &str) -> Result<Column, String> {
        match self.columns.get(name) {
            Some(column) => Ok(*column),
            None if self.tenant.as_deref() == Some(name) => Ok(Collection::TENANT),
            None => Err(self.lacks(name)),
        }
    }

    /// A column that a change may set: a mapped column, never the tenant's.
    ///
    /// # Errors
    /// A refusal, in words, if the column is not mapped.
    pub fn column_to_write(&self, name: &str) -> Result<Column, String> {
        self.columns.get(name).copied().ok_or_else(|| self.lacks(name))
    }

    /// The refusal of a column that is not mapped.
    pub fn lacks(&self, column: &str) -> String {
        format!("the collection {:?} has no column {column:?}", self.name)
    }

    /// Checks that an item names a tenant if the table has tenants.
    ///
    /// # Errors
    /// A refusal, in words.
    pub fn require_tenant(&self, given: bool) -> Result<(), String> {
        if self.tenant.is_some() && !given {
            let name = &self.name;
            return Err(format!("the collection {name:?} has tenants, but no tenant was given"));
        }
        Ok(())
    }

    /// Checks that a key has one value for each column of the key.
    ///
    /// # Errors
    /// A refusal, in words.
    pub fn require_key(&self, values: usize) -> Result<(), String> {
        if values == self.key.len() {
            return Ok(());
        }
        let (columns, values) = (counted(self.key.len() as u64, "column"), values as u64);
        Err(format!(
            "the key of {:?} has {columns} ({}), but {} given",
            self.name,
            self.key.join(", "),
            match values {
                1 => "1 value was".to_owned(),
                values => format!("{values} values were"),
            }
        ))
    }

    /// The refusal of a key that more than one row has.
    pub fn ambiguous(&self) -> String {
        format!(
            "a key of {:?} ({}) has several rows: name the tenant column, or columns that are \
             unique, in [collections.{}]",
            self.name,
            self.key.join(", "),
            self.name
        )
    }

    /// The columns of an index; `None` means the key.
    pub fn index_columns(&self, index: Option<&str>) -> Option<&[String]> {
        match index {
            None | Some("") => Some(&self.key),
            Some(name) => self.indexes.get(name).map(Vec::as_slice),
        }
    }

    /// The columns that are not NULL in the rows of an index; it contains all rows in which that is so.
    pub fn not_null(&self, index: Option<&str>) -> &[String] {
        index.and_then(|name| self.not_null.get(name)).map_or(&[], Vec::as_slice)
    }

    /// The anchors whose keys a filter fixes, with those keys: it compares each of an anchor's columns
    /// for equality with one value. The absence of rows that match the filter holds only if the row of
    /// at least one of them exists: without one, nothing keeps others from inserting.
    ///
    /// # Errors
    /// A refusal, in words, if the filter fixes none.
    pub fn anchors_of(&self, filter: &Filter) -> Result<Vec<(&Anchor, Vec<Value>)>, String> {
        let fixed = |column: &String| {
            let of_it = |c: &&Condition| c.column == *column;
            filter.conditions.iter().filter(of_it).find_map(Condition::fixed).cloned()
        };
        let fixed = |anchor: &Anchor| anchor.columns.iter().map(fixed).collect::<Option<Vec<_>>>();
        let anchors: Vec<_> = self
            .anchors
            .iter()
            .filter_map(|anchor| fixed(anchor).map(|key| (anchor, key)))
            .collect();
        if anchors.is_empty() {
            let name = &self.name;
            return Err(format!(
                "a guard on the absence of {name} does not fix the key of any of its anchors"
            ));
        }
        Ok(anchors)
    }

    /// The column of an index after this many columns, which bounds of a range are for; and whether the
    /// collection has tenants.
    ///
    /// # Errors
    /// A refusal, in words, if there is no such index, or no such column.
    pub fn bounded(&self, index: Option<&str>, prefix: usize) -> Result<(String, bool), String> {
        let (name, index_name) = (&self.name, index.unwrap_or_default());
        let Some(columns) = self.index_columns(index) else {
            return Err(format!("the collection {name:?} has no index {index_name:?}"));
        };
        match columns.get(prefix) {
            Some(column) => Ok((column.clone(), self.tenant.is_some())),
            None => Err(format!("{columns:?} has no column left for bounds")),
        }
    }

    /// The anchors by which rows of this collection refer to rows of another one.
    pub fn anchors_in<'a>(&'a self, collection: &'a str) -> impl Iterator<Item = &'a Anchor> {
        self.anchors.iter().filter(move |anchor| anchor.collection == collection)
    }

    /// Whether a foreign key of these columns is one of its anchors in a collection; it may have the tenant besides.
    pub fn anchors_by(
        &self,
        collection: &str,
        columns: &[impl AsRef<str>],
        same: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let tenant = usize::from(self.tenant.is_some());
        self.anchors_in(collection).any(|anchor| {
            let has = |name: &String| columns.iter().any(|column| same(column.as_ref(), name));
            anchor.columns.iter().all(has) && columns.len() <= anchor.columns.len() + tenant
        })
    }

    /// The columns of an index followed by the key: the order of a range over it, which is total.
    pub fn order_of(&self, columns: &[String]) -> Vec<String> {
        let rest = self.key.iter().filter(|name| !columns.contains(name));
        columns.iter().chain(rest).cloned().collect()
    }
}

/// All collections of a configuration, by name.
pub type Collections = BTreeMap<String, Collection>;

/// Every collection whose rows may go with rows of this one, without repetition: its dependants, theirs, and so on.
pub fn all_dependants<'a>(collections: &'a Collections, name: &str) -> Vec<&'a Collection> {
    let mut found = Vec::new();
    add_dependants(collections, name, &mut found);
    found
}

fn add_dependants<'a>(collections: &'a Collections, name: &str, found: &mut Vec<&'a Collection>) {
    for name in collections.get(name).iter().flat_map(|collection| &collection.dependants) {
        let is_new = found.iter().all(|known| known.name != *name);
        if let Some(dependant) = collections.get(name).filter(|_| is_new) {
            found.push(dependant);
            add_dependants(collections, name, found);
        }
    }
}

/// The operations that a task may perform on a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Read rows.
    pub read: bool,
    /// Insert rows.
    pub insert: bool,
    /// Update rows (an upsert needs both insert and update).
    pub update: bool,
    /// Delete rows.
    pub delete: bool,
}

impl Operations {
    /// The operations that both allow.
    #[must_use]
    pub fn and(self, other: Operations) -> Operations {
        Operations {
            read: self.read && other.read,
            insert: self.insert && other.insert,
            update: self.update && other.update,
            delete: self.delete && other.delete,
        }
    }

    /// Whether `self` allows every operation in `asked`.
    pub fn covers(self, asked: Operations) -> bool {
        (self.read || !asked.read)
            && (self.insert || !asked.insert)
            && (self.update || !asked.update)
            && (self.delete || !asked.delete)
    }
}

/// The operations that a task may perform, by collection.
pub type Grants = BTreeMap<String, Operations>;
