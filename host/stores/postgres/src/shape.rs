//! Describes a table of the product for a mapping. Reads only, and needs no tables of the engine.

use besom_core::collection::{Column, Encoding};
use besom_core::value::Kind;
use besom_ports::shape::{
    BY_NUMBERS, BY_TEXTS, Described, FOR_INSTANTS, Found, ROWS_LOOKED_AT, Reference, Shape,
    is_named_as_instant, unit_of,
};

use super::catalog::{ColumnFound, TableFound, tables};
use super::check::{INTEGERS, known_tables, unlike};
use super::connect::{Dial, Pools, Target};
use super::error::Job;
use super::mapping::{qualified, quote};
use super::options::Options;
use super::session::{Session, cell, params};
use besom_ports::store::Result;
use besom_tables::check::{identifying, of_some_rows, present, whole};
use besom_tables::sample::column_of;
use tokio_postgres::Row;

/// Number of values looked at for the unit of instants.
const VALUES: u32 = 200;

/// Describes a table or view of the database of a URL.
///
/// # Errors
/// As [`super::PostgresStore::open`].
pub async fn describe(url: &str, options: &Options, table: &str) -> Result<Described> {
    let target = Target::parse(url, options)?;
    let dial = Dial::new(&target, options)?;
    let pools = Pools::new(&dial, options, &quote(&options.schema))?;
    let session = pools.first().await?;
    Ok(shape(&session, table).await?)
}

/// What a host would miss of the engine's own tables, and how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is missing.
    pub message: String,
    /// What to do.
    pub fix: String,
    /// Whether the tables are there and cannot be used, rather than being still to be created.
    pub is_error: bool,
}

/// Looks for the engine's schema and tables, as the role of the URL sees them. Reads only the catalog.
///
/// # Errors
/// The server cannot be reached.
pub async fn lack(url: &str, options: &Options) -> Result<Option<Lack>> {
    let target = Target::parse(url, options)?;
    let dial = Dial::new(&target, options)?;
    let pools = Pools::new(&dial, options, &quote(&options.schema))?;
    let session = pools.first().await?;
    Ok(lacking(&session, &options.schema).await?)
}

async fn lacking(session: &Session, schema: &str) -> Job<Option<Lack>> {
    let sql = "SELECT current_user::text, pg_get_userbyid(n.nspowner)::text,
                 coalesce(has_schema_privilege(n.oid, 'CREATE'), false), c.oid IS NOT NULL,
                 coalesce(pg_get_userbyid(c.relowner)::text, ''),
                 coalesce(has_schema_privilege(n.oid, 'USAGE')
                   AND has_table_privilege(c.oid, 'SELECT'), false)
               FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = $1
                 LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'meta'";
    let rows = session.query(sql, params![schema]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let role: String = row.try_get(0)?;
    let (creates, exists, owner, reads): (bool, bool, String, bool) =
        (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
    let name = quote(schema);
    Ok(match row.try_get::<_, Option<String>>(1)? {
        None => Some(Lack {
            message: format!(
                "there is no schema {name} for Besom's own tables, and nothing was created"
            ),
            fix: format!(
                "an administrator runs the statements that `besom grants` prints; otherwise the first host \
                 creates it as its own role, with this configuration {}, if that may",
                quote(&role)
            ),
            is_error: false,
        }),
        Some(of) if !exists && !creates => Some(Lack {
            message: format!(
                "the role {} may not create Besom's own tables in the schema {name}, which belongs to {}: a host \
                 with this role does not start",
                quote(&role),
                quote(&of)
            ),
            fix: format!("for the role of the host: ALTER SCHEMA {name} OWNER TO {}", quote(&role)),
            is_error: false,
        }),
        Some(_) if exists && !reads => Some(Lack {
            message: format!(
                "Besom's own tables in the schema {name} belong to {}, and the role {} may not use them",
                quote(&owner),
                quote(&role)
            ),
            fix: format!(
                "use the role that owns them; or if nothing is recorded there yet, an administrator runs DROP \
                 SCHEMA {name} CASCADE, and then the statements that `besom grants` prints"
            ),
            is_error: true,
        }),
        Some(_) => None,
    })
}

/// The foreign keys of a table.
const REFERENCES: &str =
    "SELECT ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, at)
         JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.at),
       (SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text ELSE n.nspname || '.' || c.relname END
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = f.confrelid),
       ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY k(no, at)
         JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.no ORDER BY k.at),
       f.confdeltype IN ('n', 'd')
     FROM pg_constraint f
     WHERE f.contype = 'f' AND f.conrelid = $1::oid AND f.conparentid = 0 ORDER BY f.conname";

async fn shape(session: &Session, table: &str) -> Job<Described> {
    let found = tables(session, &[qualified(table)]).await?.into_values().next();
    let Some(found) = found else {
        return Ok(Described::Unknown(known_tables(session).await?));
    };
    let is_set = |name: &str| found.column(name).is_some_and(|column| !column.nullable);
    let key = identifying(&found.indexes, is_set);
    let reference = |r: &Row| {
        let (columns, table, theirs) = (r.try_get(0)?, r.try_get(1)?, r.try_get(2)?);
        Ok(Reference { columns, table, theirs, clears: r.try_get(3)? })
    };
    let references = session.all(REFERENCES, params![found.oid], reference).await?;
    let mut columns = Vec::new();
    for column in &found.columns {
        columns.push(of_column(session, &found, column).await?);
    }
    let sql = "SELECT c.relname::text, pg_get_expr(i.indpred, i.indrelid)
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE i.indrelid = $1::oid AND i.indpred IS NOT NULL ORDER BY 1";
    let named = |r: &Row| Ok((r.try_get(0)?, r.try_get(1)?));
    let mut some: Vec<(String, String)> = session.all(sql, params![found.oid], named).await?;
    some.retain(|(_, predicate)| present(predicate).is_none());
    let is_view = matches!(found.kind.as_str(), "v" | "m");
    let table = table.to_owned();
    Ok(Described::Table(Shape {
        table,
        columns,
        key,
        indexes: whole(&found.indexes),
        not_null: of_some_rows(&found.indexes),
        partial: some.into_iter().map(|(name, _)| name).collect(),
        references,
        is_view,
    }))
}

/// The kind of a column by its type; instants as numbers by their name and the rows looked at.
async fn of_column(session: &Session, table: &TableFound, of: &ColumnFound) -> Job<Found> {
    let native = |kind| Some(Column { kind, encoding: Encoding::Native });
    let (mut column, mut remark) = match of.ty.as_str() {
        "bool" => (native(Kind::Bool), None),
        ty if INTEGERS.contains(&ty) => (native(Kind::Integer), None),
        "float4" | "float8" => (native(Kind::Float), None),
        "numeric" if of.whole => (native(Kind::Integer), None),
        "numeric" => (native(Kind::Decimal), None),
        "bytea" => (native(Kind::Bytes), None),
        "uuid" => (native(Kind::Uuid), None),
        "json" | "jsonb" => (native(Kind::Json), None),
        "timestamptz" => (native(Kind::Timestamp), None),
        "timestamp" => (native(Kind::Timestamp), Some("read as UTC")),
        "date" => (native(Kind::Date), None),
        _ => (native(Kind::Text), None),
    };
    if column.is_some_and(|column| column.kind == Kind::Integer) && is_named_as_instant(&of.name) {
        let numbers = numbers(session, table, &of.name).await.unwrap_or_default();
        match unit_of(&numbers) {
            Some(encoding) => {
                column = Some(Column { kind: Kind::Timestamp, encoding });
                remark = Some(BY_NUMBERS);
            }
            None if numbers.is_empty() => {
                remark = Some(FOR_INSTANTS);
            }
            None => {}
        }
    }
    if ["text", "varchar"].contains(&of.ty.as_str()) && is_named_as_instant(&of.name) {
        let texts = texts(session, table, &of.name).await.unwrap_or_default();
        if let Some(found) = column_of(&texts) {
            (column, remark) = (Some(found), Some(BY_TEXTS));
        }
    }
    let fits = |column: &Column| unlike(of, column.kind, column.encoding).is_none();
    let labels =
        "SELECT e.enumlabel::text FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid
                  WHERE a.attrelid = $1::oid AND a.attname = $2 ORDER BY e.enumsortorder";
    let labels = session.all(labels, params![table.oid, of.name.clone()], cell).await?;
    Ok(Found {
        name: of.name.clone(),
        declared: of.full.clone(),
        column: column.filter(fits),
        remark: remark.map(str::to_owned),
        not_null: !of.nullable,
        computed: of.generated || of.fixed,
        labels,
    })
}

/// Texts of a column, which may be NULL in most rows, without the end of those that are longer than an instant.
async fn texts(session: &Session, table: &TableFound, column: &str) -> Job<Vec<String>> {
    let (name, column) = (&table.name, quote(column));
    let sql = format!(
        "SELECT left(value, 65) FROM (SELECT {column}::text AS value FROM {name} LIMIT {ROWS_LOOKED_AT}) looked
         WHERE value IS NOT NULL LIMIT {VALUES}"
    );
    session.all(&sql, params![], cell).await
}

/// Whole numbers of a column, which may be NULL in most rows.
async fn numbers(session: &Session, table: &TableFound, column: &str) -> Job<Vec<i64>> {
    let begins = |columns: &[String]| columns.first().is_some_and(|first| first == column);
    let (name, column) = (&table.name, quote(column));
    let all = format!("SELECT {column} AS value FROM {name}");
    let first = format!("{all} LIMIT {ROWS_LOOKED_AT}");
    // In the order of an index NULL is at the end, and the first values are the least, such as 0 for never.
    let by_index = table.indexes.iter().any(|index| begins(&index.columns));
    let by_index = by_index.then(|| format!("{all} ORDER BY {column}"));
    for rows in std::iter::once(first).chain(by_index) {
        let sql = format!(
            "SELECT value::int8 FROM ({rows}) looked WHERE value IS NOT NULL LIMIT {VALUES}"
        );
        let found: Vec<i64> = session.all(&sql, params![], cell).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}
