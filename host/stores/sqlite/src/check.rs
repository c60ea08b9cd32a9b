//! Compares the mapping with the database, so that faults are found when the store is configured
//! and not when a task runs.

use std::collections::BTreeSet;

use besom_core::collection::{Anchor, Collection, Collections};
use rusqlite::Connection;

use super::error::Job;
use super::mapping::Table;
use super::range::fault_of_next_page;
use super::stored::{self, Declared, Sample};
use besom_ports::store::MappingFault;

/// The minimum similarity of a suggested name (0 to 1).
const SIMILAR_MIN: f64 = 0.7;

/// All faults of all collections, in the order of their names.
pub(super) fn check(conn: &Connection, collections: &Collections) -> Job<Vec<MappingFault>> {
    let mut faults = Vec::new();
    let tables = tables(conn)?;
    for collection in collections.values() {
        let mut found = Found { collection, faults: &mut faults };
        let Some((_, kind)) = tables.iter().find(|(name, _)| same(name, &collection.table)) else {
            let table = &collection.table;
            let nearest = nearest(table, tables.iter().map(|(name, _)| name.as_str()));
            found.fault("table", format!("there is no table {table:?} in the database{nearest}"));
            continue;
        };
        let columns = stored::declared(conn, &collection.table)?;
        found.columns(conn, &columns)?;
        if kind == "table" {
            let indexes = indexes(conn, &collection.table, &columns)?;
            found.key(&indexes);
            found.indexes(conn, &indexes)?;
        }
        for anchor in &collection.anchors {
            found.anchor(conn, anchor, collections)?;
        }
    }
    Ok(faults)
}

struct Found<'a> {
    collection: &'a Collection,
    faults: &'a mut Vec<MappingFault>,
}

impl Found<'_> {
    fn fault(&mut self, place: impl Into<String>, message: String) {
        self.push(place.into(), message, false);
    }

    fn push(&mut self, place: String, message: String, warning: bool) {
        let collection = self.collection.name.clone();
        self.faults.push(MappingFault { collection, place, message, warning });
    }

    /// The tenant column and every mapped column exist and fit their kinds.
    fn columns(&mut self, conn: &Connection, columns: &[Declared]) -> Job<()> {
        let collection = self.collection;
        let table = &collection.table;
        let missing = |name: &str| {
            let nearest = nearest(name, columns.iter().map(|c| c.name.as_str()));
            format!("the table {table:?} has no column {name:?}{nearest}")
        };
        let find = |name: &str| columns.iter().find(|c| same(&c.name, name));
        if let Some(tenant) = collection.tenant.as_deref().filter(|t| find(t).is_none()) {
            self.fault("tenant", missing(tenant));
        }
        let present = collection.columns.iter().filter(|(name, _)| find(name).is_some());
        let present: Vec<_> = present.map(|(name, column)| (name, *column)).collect();
        let mut samples = Sample::of(conn, table, &present)?.into_iter();
        for (name, column) in &collection.columns {
            let Some(found) = find(name) else {
                self.fault(format!("columns.{name}"), missing(name));
                continue;
            };
            let sample = samples.next().unwrap_or_default();
            if let Some(fault) = stored::fault(found, *column, &sample) {
                self.push(format!("columns.{name}"), fault.message, fault.warning);
            }
        }
        for name in &collection.key {
            if !collection.columns.contains_key(name) {
                self.fault("key", format!("the key column {name:?} is not among the columns"));
            }
        }
        Ok(())
    }

    /// The key, with the tenant, identifies at most one row.
    fn key(&mut self, indexes: &[Index]) {
        let wanted: BTreeSet<String> = self.with_tenant(&self.collection.key);
        let unique = |index: &Index| {
            index.unique && index.columns.iter().all(|c| wanted.contains(&c.to_lowercase()))
        };
        if !indexes.iter().any(unique) {
            let list = self.listed(&self.collection.key);
            let table = &self.collection.table;
            self.fault(
                "key",
                format!(
                    "nothing keeps two rows of {table:?} from having the same key: \
                     CREATE UNIQUE INDEX ... ON {table} ({list}), or name the columns that are unique"
                ),
            );
        }
    }

    /// Each declared index is covered by an index of the database that begins with it, and pages
    /// over it need no sort.
    fn indexes(&mut self, conn: &Connection, indexes: &[Index]) -> Job<()> {
        let collection = self.collection;
        // A missing column has been reported already.
        let is_whole = !self.faults.iter().any(|f| f.collection == collection.name && !f.warning);
        let table = Table::new(collection);
        for (name, columns) in &collection.indexes {
            let wanted: Vec<&String> = collection.tenant.iter().chain(columns).collect();
            let begins = |index: &Index| {
                index.columns.len() >= wanted.len()
                    && index.columns.iter().zip(&wanted).all(|(a, b)| same(a, b))
            };
            let (place, of) = (format!("indexes.{name}"), &collection.table);
            if !indexes.iter().any(begins) {
                // Followed by the key, which pages need.
                let (list, whole) =
                    (self.listed(columns), self.listed(&collection.order_of(columns)));
                let message = format!(
                    "no index of {of:?} begins with ({list}): CREATE INDEX {of}_{name} ON {of} ({whole})"
                );
                self.fault(place, message);
            } else if is_whole && let Some(fault) = fault_of_next_page(conn, &table, name)? {
                let list = self.listed(&collection.order_of(columns));
                let message = format!(
                    "a read is refused at its second page, which {fault}, because no index continues \
                     with the key: CREATE INDEX {of}_{name}_key ON {of} ({list})"
                );
                // A plugin that reads only one page never needs it.
                self.push(place, message, true);
            }
        }
        Ok(())
    }

    /// The anchor exists, and an insert here waits for its lock. On SQLite the single writer makes
    /// every guard hold anyway, so a missing foreign key is only a warning.
    fn anchor(&mut self, conn: &Connection, anchor: &Anchor, all: &Collections) -> Job<()> {
        let Some(target) = all.get(&anchor.collection) else {
            let nearest = nearest(&anchor.collection, all.keys().map(String::as_str));
            let name = &anchor.collection;
            self.fault("anchor", format!("there is no collection {name:?}{nearest}"));
            return Ok(());
        };
        if anchor.columns.len() != target.key.len() {
            let (name, key) = (&target.name, target.key.join(", "));
            self.fault("anchor", format!("name one column for each of {name:?}'s key ({key})"));
            return Ok(());
        }
        for column in &anchor.columns {
            if !self.collection.columns.contains_key(column) {
                let nearest = nearest(column, self.collection.columns.keys().map(String::as_str));
                self.fault("anchor", format!("there is no column {column:?}{nearest}"));
                return Ok(());
            }
        }
        let own: Vec<String> =
            self.collection.tenant.iter().chain(&anchor.columns).cloned().collect();
        let theirs: Vec<String> = target.tenant.iter().chain(&target.key).cloned().collect();
        if !foreign_key(conn, &self.collection.table, &target.table, &own, &theirs)? {
            let (table, list) = (&self.collection.table, own.join(", "));
            let (other, key) = (&target.table, theirs.join(", "));
            self.push(
                "anchor".into(),
                format!(
                    "{table:?} has no foreign key on its anchor, so rows can be inserted without \
                     their {other:?}: add FOREIGN KEY ({list}) REFERENCES {other} ({key})"
                ),
                true,
            );
        }
        Ok(())
    }

    fn with_tenant(&self, columns: &[String]) -> BTreeSet<String> {
        self.collection.tenant.iter().chain(columns).map(|c| c.to_lowercase()).collect()
    }

    fn listed(&self, columns: &[String]) -> String {
        let all: Vec<_> = self.collection.tenant.iter().chain(columns).cloned().collect();
        all.join(", ")
    }
}

/// SQLite compares names case-insensitively for ASCII.
fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let score = |k: &str| strsim::jaro_winkler(&name.to_lowercase(), &k.to_lowercase());
    let best = known.map(|k| (score(k), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((alike, k)) if alike >= SIMILAR_MIN => format!("; did you mean {k:?}?"),
        _ => String::new(),
    }
}

/// Tables and views of the user, with their kind.
fn tables(conn: &Connection) -> Job<Vec<(String, String)>> {
    let mut statement = conn.prepare(
        "SELECT name, type FROM sqlite_schema
         WHERE type IN ('table', 'view') AND name NOT LIKE 'besom\\_%' ESCAPE '\\'
           AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )?;
    let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// An index of the database over all rows.
struct Index {
    unique: bool,
    columns: Vec<String>,
}

fn indexes(conn: &Connection, table: &str, columns: &[Declared]) -> Job<Vec<Index>> {
    let mut statement =
        conn.prepare("SELECT name, \"unique\" FROM pragma_index_list(?1) WHERE partial = 0")?;
    let named = statement
        .query_map([table], |r| Ok((r.get(0)?, r.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(String, bool)>>>()?;
    let mut indexes = Vec::new();
    for (name, unique) in named {
        let mut statement = conn.prepare(
            "SELECT coalesce(name, '') FROM pragma_index_xinfo(?1) WHERE key = 1 ORDER BY seqno",
        )?;
        let columns = statement.query_map([name], |r| r.get(0))?;
        indexes.push(Index { unique, columns: columns.collect::<rusqlite::Result<_>>()? });
    }
    // An INTEGER PRIMARY KEY is the table itself and is in no list of indexes.
    let mut key: Vec<&Declared> = columns.iter().filter(|c| c.key_position > 0).collect();
    key.sort_by_key(|c| c.key_position);
    if !key.is_empty() {
        indexes.push(Index { unique: true, columns: key.iter().map(|c| c.name.clone()).collect() });
    }
    Ok(indexes)
}

fn foreign_key(
    conn: &Connection,
    table: &str,
    target: &str,
    own: &[String],
    theirs: &[String],
) -> Job<bool> {
    let mut statement = conn.prepare(
        "SELECT id, lower(\"table\"), lower(\"from\"), lower(coalesce(\"to\", ''))
         FROM pragma_foreign_key_list(?1) ORDER BY id, seq",
    )?;
    let mut rows = statement.query([table])?;
    let mut pairs: std::collections::BTreeMap<i64, BTreeSet<(String, String)>> =
        std::collections::BTreeMap::new();
    while let Some(r) = rows.next()? {
        if r.get::<_, String>(1)? == target.to_lowercase() {
            pairs.entry(r.get(0)?).or_default().insert((r.get(2)?, r.get(3)?));
        }
    }
    let wanted: BTreeSet<(String, String)> =
        own.iter().zip(theirs).map(|(a, b)| (a.to_lowercase(), b.to_lowercase())).collect();
    // Without named columns, a foreign key refers to the primary key, in its order.
    let implied: BTreeSet<(String, String)> =
        own.iter().map(|a| (a.to_lowercase(), String::new())).collect();
    Ok(pairs.values().any(|pairs| *pairs == wanted || *pairs == implied))
}
