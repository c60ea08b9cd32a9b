//! Collections as SQL: keys and conditions as text and parameters.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use besom_core::collection::{Collection, Collections, Column, named};
use besom_core::ids::Tenant;
use besom_core::proposal::Comparison;
use besom_core::value::Kind;
use besom_core::value::{Field, Value};
use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::error::Job;
use super::hint::{self, Created};
use super::statements::Statements;
use super::stored::{self, INDEX_OF_KEY};
use super::values::encode;
use besom_ports::store::Error;
use besom_tables::Dialect;
use besom_tables::conditions::{Term, Tested, round};
use besom_tables::encoding::Round;
use besom_tables::mapping::Mapped;
pub(super) use besom_tables::mapping::{push_quoted, quote};
use besom_tables::units;

/// How SQLite differs from other databases.
pub(super) const DIALECT: Dialect = Dialect {
    folds_names: true,
    names_indexes: true,
    builds_concurrently: false,
    nulls_first: true,
};

/// Parameters in the order of the statement's question marks.
pub(super) type Params<'a> = Vec<ToSqlOutput<'a>>;

/// Why something cannot be read or changed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A name that is not mapped, a missing value.
    Said(String),
    /// A value of another kind than its column's: the caller's fault, or that of the mapping.
    Unlike(Unlike),
}

/// A value and a column of different kinds.
#[derive(Debug)]
pub(super) struct Unlike {
    pub(super) collection: String,
    pub(super) column: String,
    /// Both kinds, in words.
    pub(super) said: String,
}

impl From<String> for Refusal {
    fn from(said: String) -> Refusal {
        Refusal::Said(said)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refusal::Said(said) | Refusal::Unlike(Unlike { said, .. })) = self;
        f.write_str(said)
    }
}

/// Whether the rows of a table have an id that no column is another name of, and that no column hides.
fn unnamed_row_id() -> String {
    format!(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_list(?1) WHERE schema = 'main' AND type = 'table' AND NOT wr)
           AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1) WHERE lower(name) = 'rowid')
           AND (NOT EXISTS (SELECT 1 FROM pragma_table_info(?1) WHERE pk > 0) OR EXISTS {INDEX_OF_KEY})"
    )
}

/// How long a column that was found to be mapped correctly is not looked at again.
const SOUND_FOR: Duration = Duration::from_secs(10);

/// A collection with the SQL that is the same for every use, and what is known of its table.
pub(super) struct Table {
    mapped: Mapped<Column>,
    /// The version of the schema that was seen last before.
    pub(super) schema: i64,
    /// Every column of the table in SQL, read on first use.
    whole: OnceLock<String>,
    /// The database's indexes, read on first use.
    created: OnceLock<Vec<Created>>,
    /// The columns found to be mapped correctly, and when.
    sound: Mutex<BTreeMap<String, Instant>>,
}

impl Deref for Table {
    type Target = Mapped<Column>;

    fn deref(&self) -> &Mapped<Column> {
        &self.mapped
    }
}

/// All collections.
pub(super) struct Mapping {
    tables: BTreeMap<String, Table>,
    pub(super) collections: Arc<Collections>,
    /// The version of the schema that was seen last before.
    pub(super) schema: i64,
}

impl Mapping {
    pub(super) fn new(collections: &Arc<Collections>, schema: i64) -> Mapping {
        let table = |of| Table { schema, ..Table::new(of) };
        let tables = collections.iter().map(|(name, of)| (name.clone(), table(of))).collect();
        Mapping { tables, collections: Arc::clone(collections), schema }
    }

    pub(super) fn table(&self, collection: &str) -> Result<&Table, Refusal> {
        Ok(named(&self.tables, collection)?)
    }
}

impl Table {
    pub(super) fn new(collection: &Collection) -> Table {
        let mapped = Mapped::new(collection, quote(&collection.table), |_, column| column);
        let (whole, created, sound) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Table { mapped, schema: 0, whole, created, sound }
    }

    /// The table's indexes as of the first call: the mapping is created again at every start and reload, and when
    /// the schema has changed.
    pub(super) fn created(&self, conn: &Connection) -> Job<&[Created]> {
        if let Some(known) = self.created.get() {
            return Ok(known);
        }
        let found = hint::created(conn, &self.collection.table)?;
        Ok(self.created.get_or_init(|| found))
    }

    /// Every column of the table in SQL, for an image of its rows; with the row id, where no column is
    /// another name of it.
    pub(super) fn whole(&self, conn: &Connection) -> Job<&str> {
        if let Some(known) = self.whole.get() {
            return Ok(known);
        }
        let unnamed: bool =
            conn.one(&unnamed_row_id(), [&self.collection.table], |row| row.get(0))?;
        let whole = if unnamed { "rowid, *" } else { "*" };
        Ok(self.whole.get_or_init(|| whole.to_owned()))
    }

    /// The quoted tenant column.
    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.as_ref().map(|(name, _)| name.as_str())
    }

    /// Whether the column was found to be mapped correctly a moment ago.
    pub(super) fn knows_as_sound(&self, column: &str) -> bool {
        let sound = self.sound.lock().unwrap_or_else(PoisonError::into_inner);
        sound.get(column).is_some_and(|at| at.elapsed() < SOUND_FOR)
    }

    /// See [`Table::knows_as_sound`].
    pub(super) fn note_as_sound(&self, column: &str) {
        let mut sound = self.sound.lock().unwrap_or_else(PoisonError::into_inner);
        sound.insert(column.to_owned(), Instant::now());
    }

    /// A value as the column stores it.
    pub(super) fn cell<'v>(
        &self,
        name: &str,
        value: &'v Value,
        round: Round,
    ) -> Result<ToSqlOutput<'v>, Refusal> {
        let column = self.form(name)?;
        encode(column, value, round).map_err(|e| {
            let said = format!("{}.{name}: {e}", self.collection.name);
            match value.kind() == Some(column.kind) {
                true => Refusal::Said(said),
                false => Refusal::Unlike(Unlike {
                    collection: self.collection.name.clone(),
                    column: name.to_owned(),
                    said,
                }),
            }
        })
    }

    /// Refuses values that were read as another kind than that of their column, or in another unit, if
    /// that is the fault of the mapping. One such row is the caller's problem.
    pub(super) fn refuse_unlike(
        &self,
        conn: &Connection,
        names: &[String],
        columns: &[Column],
        values: &[Value],
    ) -> Job<()> {
        for ((name, column), value) in names.iter().zip(columns).zip(values) {
            let said = if value.kind().is_some_and(|kind| kind != column.kind) {
                column.kind.unlike(value)
            } else if units::is_in_another_unit(*column, value) {
                units::READ.to_owned()
            } else {
                continue;
            };
            if self.knows_as_sound(name) {
                continue;
            }
            let said = format!("{}.{name}: {said}", self.collection.name);
            let collection = self.collection.name.clone();
            let unlike = Unlike { collection, column: name.clone(), said };
            if let refused @ Error::Refused(..) = stored::judged(conn, self, unlike)? {
                return Err(refused.into());
            }
        }
        Ok(())
    }

    /// A value to write: of a mapped column, never the tenant's.
    pub(super) fn written<'v>(&self, field: &'v Field) -> Result<ToSqlOutput<'v>, Refusal> {
        self.written_form(&field.name)?;
        self.cell(&field.name, &field.value, Round::Down)
    }

    /// Appends `tenant = ?` if the table has tenants; then a tenant is required.
    pub(super) fn push_tenant<'v>(
        &self,
        tenant: Option<&'v Tenant>,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Result<(), Refusal> {
        match (self.tenant(), self.given_tenant(tenant)?) {
            (Some(column), Some(tenant)) => {
                sql.push_str(column);
                sql.push_str(" = ?");
                params.push(text(tenant.as_str()));
            }
            _ => sql.push('1'),
        }
        Ok(())
    }

    /// Appends `tenant = ? AND key = ? ...`: exactly one row.
    pub(super) fn push_key<'v>(
        &self,
        tenant: Option<&'v Tenant>,
        key: impl ExactSizeIterator<Item = &'v Value>,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Result<(), Refusal> {
        self.collection.require_key(key.len())?;
        self.push_tenant(tenant, sql, params)?;
        self.push_equal(key, sql, params)
    }

    /// Appends ` AND key = ?` for the first columns of the key.
    pub(super) fn push_equal<'v>(
        &self,
        values: impl Iterator<Item = &'v Value>,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Result<(), Refusal> {
        for (name, value) in self.collection.key.iter().zip(values) {
            sql.push_str(" AND ");
            push_quoted(name, sql);
            sql.push_str(" = ?");
            params.push(self.cell(name, value, Round::Down)?);
        }
        Ok(())
    }

    /// Appends ` AND condition` for each comparison.
    pub(super) fn push_terms<'v>(
        &self,
        terms: impl IntoIterator<Item = impl Into<Term<'v>>>,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Result<(), Refusal> {
        for term in terms {
            sql.push_str(" AND ");
            self.push_term(term.into(), sql, params)?;
        }
        Ok(())
    }

    fn push_term<'v>(
        &self,
        Term { column, tested }: Term<'v>,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Result<(), Refusal> {
        match tested {
            Tested::Value(comparison, value) => {
                self.form(column)?.has_order(column, comparison)?;
                self.push_compared(column, comparison, value, sql, params)?;
            }
            Tested::Column(comparison, other) => {
                let (own, of_other) = (*self.form(column)?, *self.form(other)?);
                own.comparable(column, of_other, other)?;
                own.has_order(column, comparison)?;
                // The collation of the first column would decide for both.
                let bytes = if own.kind == Kind::Text { " COLLATE BINARY" } else { "" };
                push_quoted(column, sql);
                sql.push_str(bytes);
                sql.push_str(operator(comparison));
                push_quoted(other, sql);
            }
            Tested::Listed { values, inside } => {
                let (comparison, between) = match inside {
                    true => (Comparison::Equal, ") OR ("),
                    false => (Comparison::NotEqual, ") AND ("),
                };
                self.form(column)?;
                if values.is_empty() {
                    // A constant that is false makes the planner choose any index, or none.
                    let column = quote(column);
                    sql.push_str(&match inside {
                        true => format!("{column} IS NULL AND {column} IS NOT NULL"),
                        false => "1".to_owned(),
                    });
                    return Ok(());
                }
                sql.push_str("((");
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        sql.push_str(between);
                    }
                    self.push_compared(column, comparison, value, sql, params)?;
                }
                sql.push_str("))");
            }
            Tested::StartsWith(beginning) => {
                self.form(column)?.has_prefixes(column)?;
                sql.push_str("instr(");
                push_quoted(column, sql);
                sql.push_str(", ?) = 1");
                params.push(text(beginning));
            }
        }
        Ok(())
    }

    fn push_compared<'v>(
        &self,
        column: &str,
        comparison: Comparison,
        value: &'v Value,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Result<(), Refusal> {
        push_quoted(column, sql);
        // An index without NULL is used only if the statement itself says so.
        if let (Value::Null, Comparison::Equal | Comparison::NotEqual) = (value, comparison) {
            self.form(column)?;
            sql.push_str(if comparison == Comparison::Equal { " IS NULL" } else { " IS NOT NULL" });
            return Ok(());
        }
        sql.push_str(operator(comparison));
        sql.push('?');
        params.push(self.cell(column, value, round(comparison))?);
        // Texts that the column's collation calls equal may differ.
        if matches!(value, Value::Text(_)) && comparison == Comparison::Equal {
            sql.push_str(" AND ");
            push_quoted(column, sql);
            sql.push_str(" COLLATE BINARY IS ?");
            params.push(self.cell(column, value, Round::Down)?);
        }
        Ok(())
    }
}

/// Between a column and what it is compared with.
fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => " IS ",
        Comparison::NotEqual => " IS NOT ",
        Comparison::Below => " < ",
        Comparison::AtMost => " <= ",
        Comparison::AtLeast => " >= ",
        Comparison::Above => " > ",
    }
}

/// Borrowed text as a parameter.
pub(super) fn text(s: &str) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(s.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_table_with_tenants_needs_a_tenant() {
        let model = besom_product::model::default_collections();
        let table = Table::new(&model["documents"]);
        let key = [Value::Text("d".into())];
        let (mut sql, mut params) = (String::new(), Vec::new());
        assert!(table.push_key(None, key.iter(), &mut sql, &mut params).is_err());
        let tenant = Tenant::from("t");
        sql.clear();
        table.push_key(Some(&tenant), key.iter(), &mut sql, &mut params).unwrap();
        assert_eq!(sql, r#""project_id" = ? AND "doc_id" = ?"#);
        assert_eq!(params.len(), 2);
    }
}
