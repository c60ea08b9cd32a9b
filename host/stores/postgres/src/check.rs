//! Compares the mapping with PostgreSQL's catalog (see [`besom_tables::check`]).

use std::collections::{BTreeMap, BTreeSet};

use besom_core::collection::{Anchor, Collection, Collections, Encoding, Operations};
use besom_core::value::Kind;
use tokio_postgres::Row;

use super::catalog::{ColumnFound, TableFound};
use super::error::{Job, invalid};
use super::locks;
use super::mapping::{DIALECT, Mapping, PARTITIONED, Table, quote};
use super::range::fault_of_next_page;
use super::session::{Pipeline, Session, cell, params};
use super::snapshot::View;
use super::spelling;
use super::together::misfit;
use super::units;
use besom_ports::store::MappingFault;
use besom_tables::check::{Check, Keeper, Reaction};
use besom_tables::plan::Good;
use besom_tables::{named, qualified};

/// The savepoint before the rows of a table are read.
const UNREAD: &str = "unread";
/// How long a table is waited for once another one was found locked.
const SHORT_WAIT: &str = "SET LOCAL lock_timeout = '200ms'";

/// All faults of all collections, in the order of their names.
pub(super) async fn check(
    session: &mut Session,
    collections: &Collections,
) -> Job<Vec<MappingFault>> {
    session.begin(Pipeline::default()).await?;
    let checked = checked(session, collections).await;
    session.rollback().await;
    checked
}

/// The privileges that tasks' grants require and the role lacks, and what the database does by itself
/// beside the granted operations.
pub(super) async fn check_granted(
    session: &Session,
    collections: &Collections,
    granted: &BTreeMap<String, Operations>,
) -> Job<Vec<MappingFault>> {
    let mapping = Mapping::complete(session, collections).await?;
    let (mut faults, mut open) = (Vec::new(), BTreeSet::new());
    let (reactions, keepers) = (reactions(session).await?, keepers(session).await?);
    for (name, operations) in granted {
        let Some(collection) = collections.get(name) else { continue };
        let mapped = mapping.table(name).map_err(invalid)?;
        let Some(table) = &mapped.found else { continue };
        let row = session
            .row(
                "SELECT current_user::text, has_any_column_privilege($1::oid, 'INSERT'),
                        has_any_column_privilege($1::oid, 'UPDATE'),
                        has_table_privilege($1::oid, 'DELETE'),
                        (SELECT coalesce(array_agg(DISTINCT quote_ident(n.nspname)), '{}')
                         FROM pg_namespace n
                         WHERE has_schema_privilege('public', n.oid, 'CREATE')
                           AND (n.oid = (SELECT relnamespace FROM pg_class WHERE oid = $1::oid)
                             OR n.nspname = ANY (current_schemas(false)))),
                        row_security_active($1::oid), $1::oid::regclass::text,
                        has_table_privilege($1::oid, 'INSERT') OR NOT EXISTS (SELECT 1 FROM pg_attribute a
                          WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                            AND NOT has_column_privilege($1::oid, a.attnum, 'INSERT'))",
                params![table.oid],
            )
            .await?
            .ok_or_else(|| invalid("the database returned no answer about privileges"))?;
        let role = quote(&row.try_get::<_, String>(0)?);
        let wanted = [
            ("INSERT", operations.insert, row.try_get(1)?),
            ("UPDATE", operations.update, row.try_get(2)?),
            ("DELETE", operations.delete, row.try_get::<_, bool>(3)?),
        ];
        let mut found = Check { dialect: &DIALECT, collection, faults: &mut faults };
        // Of the search path as well: a table there can come before the product's.
        for schema in row.try_get::<_, Vec<String>>(4)? {
            if !open.insert(schema.clone()) {
                continue;
            }
            let message = format!(
                "every role that can connect can create tables, functions and operators in the schema \
                 {schema}, and statements on this table may use them: \
                 REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC"
            );
            found.warning("table", message);
        }
        if row.try_get(5)? {
            let message = format!(
                "row-level security hides rows of {:?} from the role, and Besom never sweeps hidden \
                 rows: ALTER ROLE {role} BYPASSRLS, or add a policy for all rows: CREATE POLICY besom \
                 ON {} TO {role} USING (true)",
                collection.table,
                qualified(&collection.table)
            );
            found.warning(MappingFault::HIDDEN, message);
        }
        if operations.delete {
            let name: &str = row.try_get(6)?;
            found.cascades(name, &reactions, collections);
            found.keepers(name, &keepers, collections);
        }
        let hidden = table.columns.iter().filter(|column| !column.readable);
        let hidden: Vec<&str> = hidden.map(|column| column.name.as_str()).collect();
        if (operations.update || operations.delete) && !hidden.is_empty() {
            let (table, named) = (&collection.table, qualified(&collection.table));
            let message = format!(
                "the role may not read columns of {table:?}, so a row is kept without them before it is \
                 changed: {}; GRANT SELECT ON {named} TO {role}",
                hidden.join(", ")
            );
            found.warning("table", message);
        }
        let (replacing, beside): (Vec<_>, Vec<_>) = ran(session, table.oid, *operations)
            .await?
            .into_iter()
            .partition(|ran| ran.replaces.is_some());
        let beside: Vec<String> = beside.into_iter().map(|ran| ran.name).collect();
        found.triggers(&beside);
        for Ran { name, replaces } in replacing {
            let (what, rule) = (replaces.unwrap_or_default(), quote(&name));
            let (table, named) = (&collection.table, qualified(&collection.table));
            let message = format!(
                "the rule {rule} of {table:?} does something else in place of {what}, so no row can be changed and \
                 returned: DROP RULE {rule} ON {named}; for a soft deletion, take action = \"set\""
            );
            found.fault("table", message);
        }
        let back = [
            ("put back what is deleted", "INSERT", operations.delete, row.try_get::<_, bool>(7)?),
            ("remove what is inserted", "DELETE", operations.insert, row.try_get(3)?),
        ];
        for (what, right, _, _) in back.into_iter().filter(|(.., granted, may)| *granted && !may) {
            let (table, named) = (&collection.table, qualified(&collection.table));
            let message = format!(
                "`besom undo` could not {what} of {table:?}, because the role may not {right}: GRANT {right} ON {named} \
                 TO {role}, now or before an undo"
            );
            found.warning(MappingFault::UNDO, message);
        }
        for (what, granted, may) in wanted {
            if granted && !may {
                let (table, named) = (&collection.table, qualified(&collection.table));
                let message = format!(
                    "a task's grants include it, but the role may not {what} in {table:?}: \
                     GRANT {what} ON {named} TO {role}"
                );
                found.fault("table", message);
            }
        }
    }
    Ok(faults)
}

/// The tables into which rows are moved have the columns of these.
pub(super) async fn check_moves(
    session: &Session,
    collections: &Collections,
    moves: &[(String, String)],
) -> Job<Vec<MappingFault>> {
    let mapping = Mapping::complete(session, collections).await?;
    let fault = |(from, into): &(String, String)| {
        let (Ok(table), Ok(other)) = (mapping.table(from), mapping.table(into)) else {
            return None;
        };
        let message = misfit(table, other)?;
        let (collection, place) = (into.clone(), "table".to_owned());
        Some(MappingFault { collection, place, message, warning: false })
    };
    Ok(moves.iter().filter_map(fault).collect())
}

/// All foreign keys that change rows by themselves; those of partitions are their tables'.
async fn reactions(session: &Session) -> Job<Vec<Reaction>> {
    let sql = "SELECT f.conrelid::regclass::text, f.confrelid::regclass::text, f.confdeltype = 'c',
                 ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, at)
                   JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.at)
               FROM pg_constraint f
               WHERE f.contype = 'f' AND f.confdeltype IN ('c', 'n', 'd') AND f.conparentid = 0
               ORDER BY 1, f.conname";
    let reaction = |row: &Row| {
        let columns = row.try_get(3)?;
        Ok(Reaction { of: row.try_get(0)?, to: row.try_get(1)?, columns, deletes: row.try_get(2)? })
    };
    session.all(sql, params![], reaction).await
}

/// All foreign keys that keep the rows that they refer to, as pairs of tables; those of partitions are their
/// tables', and a row may refer to its own table.
async fn keepers(session: &Session) -> Job<Vec<Keeper>> {
    let sql = "SELECT f.conrelid::regclass::text, f.confrelid::regclass::text,
                 ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, at)
                   JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.at)
               FROM pg_constraint f
               WHERE f.contype = 'f' AND f.confdeltype IN ('a', 'r') AND f.conparentid = 0
                 AND f.conrelid <> f.confrelid";
    let keeper = |row: &Row| {
        Ok(Keeper { of: row.try_get(0)?, to: row.try_get(1)?, columns: row.try_get(2)? })
    };
    session.all(sql, params![], keeper).await
}

/// The triggers and rules that run when one of these operations is performed on a table.
pub(super) async fn triggers(session: &Session, table: u32, may: Operations) -> Job<Vec<String>> {
    Ok(ran(session, table, may).await?.into_iter().map(|ran| ran.name).collect())
}

/// A trigger or a rule that runs with an operation.
struct Ran {
    name: String,
    /// The operation in whose place a rule does something else: a statement with RETURNING is refused because of it,
    /// or returns rows that have not gone.
    replaces: Option<String>,
}

async fn ran(session: &Session, table: u32, may: Operations) -> Job<Vec<Ran>> {
    // The bits of a trigger's type, and the commands of a rule, are documented in the catalog.
    let sql = "SELECT t.tgname::text, NULL::text FROM pg_trigger t
               WHERE t.tgrelid = $1::oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
                 AND (t.tgtype & 4 <> 0 AND $2 OR t.tgtype & 16 <> 0 AND $3 OR t.tgtype & 8 <> 0 AND $4)
               UNION ALL
               SELECT r.rulename::text, CASE WHEN r.is_instead THEN
                 CASE r.ev_type WHEN '3' THEN 'INSERT' WHEN '2' THEN 'UPDATE' ELSE 'DELETE' END END
               FROM pg_rewrite r
               WHERE r.ev_class = $1::oid AND r.ev_enabled IN ('O', 'A')
                 AND (r.ev_type = '3' AND $2 OR r.ev_type = '2' AND $3 OR r.ev_type = '4' AND $4)
               ORDER BY 1";
    let ran = |row: &Row| Ok(Ran { name: row.try_get(0)?, replaces: row.try_get(1)? });
    session.all(sql, params![table, may.insert, may.update, may.delete], ran).await
}

async fn checked(session: &Session, collections: &Collections) -> Job<Vec<MappingFault>> {
    let mapping = Mapping::complete(session, collections).await?;
    let good = Good::default();
    let looked = Default::default();
    let view =
        View { session, mapping: &mapping, good: &good, bytes_max: u64::MAX, looked: &looked };
    let mut faults = Vec::new();
    let zone = other_zone(session).await?;
    for collection in collections.values() {
        let mut found = Check { dialect: &DIALECT, collection, faults: &mut faults };
        let mapped = mapping.table(&collection.name).map_err(invalid)?;
        let Some(table) = &mapped.found else {
            let known = known_tables(session).await?;
            found.no_table(known.iter().map(String::as_str));
            continue;
        };
        if table.kind == "p" {
            found.dialect = &PARTITIONED;
        }
        if is_of_others(session, table.oid).await? {
            let name = &collection.table;
            let said = "is a table of Besom or of the database itself: no task may name it; name \
                        another table";
            found.fault("table", format!("{name:?} {said}"));
            continue;
        }
        compare_columns(&mut found, &table.columns, zone.as_deref());
        match table.kind.as_str() {
            "f" => {
                let name = &collection.table;
                let said = "is a foreign table: the other server commits separately, so guards and \
                            the fence do not hold there; name a table of this database";
                found.fault("table", format!("{name:?} {said}"));
            }
            "r" if table.inherited => {
                let name = &collection.table;
                let said = "has tables that inherit from it: no index keeps their keys apart from its own; \
                            map each of them, or make them partitions";
                found.fault("table", format!("{name:?} {said}"));
            }
            "r" | "p" => {
                let is_unique = found.key(&table.indexes);
                let nullable = |name: &&String| table.column(name).is_some_and(|c| c.nullable);
                for column in collection.key.iter().filter(|name| is_unique && nullable(name)) {
                    let (of, name) = (qualified(&collection.table), quote(column));
                    let fix = format!("ALTER TABLE {of} ALTER COLUMN {name} SET NOT NULL");
                    found.null_key(column, false, &fix);
                }
                for (name, columns) in &collection.indexes {
                    found.index(&table.indexes, name, columns);
                }
                // That of a partitioned table lacks one of a partition.
                let invalid = match table.kind.as_str() {
                    "r" => session.all::<String>(INVALID, params![table.oid], cell).await?,
                    _ => Vec::new(),
                };
                for index in invalid {
                    let table = &collection.table;
                    let said = format!(
                        "the index {index} of {table:?} is invalid, as a CREATE INDEX CONCURRENTLY that failed leaves \
                         it, and no read uses it: REINDEX INDEX CONCURRENTLY {index}"
                    );
                    found.warning("indexes", said);
                }
                let may = Privileges::of(session, table.oid).await?;
                compare_privileges(&mut found, &may, is_anchor(collection, collections));
                if may.select && found.is_whole() {
                    session.batch(&format!("SAVEPOINT {UNREAD}")).await?;
                    match compare_rows(&mut found, &view, mapped, table).await {
                        Err(failure) if locks::has_waited(&failure) => {
                            // The other tables that the same session has locked are not waited for as long.
                            session.batch(&format!("ROLLBACK TO {UNREAD}; {SHORT_WAIT}")).await?;
                            let of = (collection.table.as_str(), table.oid);
                            let told = locks::told(session, of, locks::Use::Read).await?;
                            let free = || format!("{:?} was locked until now", collection.table);
                            found.fault(MappingFault::LOCKED, told.unwrap_or_else(free));
                        }
                        compared => compared?,
                    }
                }
            }
            _ => {}
        }
        for anchor in &collection.anchors {
            let target = collections.get(&anchor.collection);
            let target = target.and_then(|target| mapping.table(&target.name).ok()?.found.as_ref());
            compare_anchor(&mut found, table, target, anchor, collections);
        }
    }
    Ok(faults)
}

/// What only the rows of a table, or the plans of statements that read them, can tell.
async fn compare_rows(
    found: &mut Check<'_>,
    view: &View<'_>,
    mapped: &Table,
    table: &TableFound,
) -> Job<()> {
    compare_units(found, view.session, mapped).await?;
    compare_spelling(found, view.session, mapped, table).await?;
    compare_pages(found, view, mapped, table).await
}

/// The indexes of a table that are not complete.
const INVALID: &str = "SELECT i.indexrelid::regclass::text FROM pg_index i
  WHERE i.indrelid = $1::oid AND NOT i.indisvalid ORDER BY 1";

/// Whether a table does not belong to the product: it is Besom's own, or the catalog's.
async fn is_of_others(session: &Session, table: u32) -> Job<bool> {
    // The schema may be missing, or closed to this role.
    let sql = "SELECT n.nspname IN ('pg_catalog', 'information_schema')
                 OR '\"' || replace(n.nspname, '\"', '\"\"') || '\".' = '@.'
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid";
    Ok(session.maybe(sql, params![table], cell).await?.unwrap_or(false))
}

/// Whether a guard on absence locks the rows of this collection.
fn is_anchor(collection: &Collection, all: &Collections) -> bool {
    all.values().flat_map(|other| &other.anchors).any(|a| a.collection == collection.name)
}

/// The privileges of Besom's role on a table.
struct Privileges {
    role: String,
    select: bool,
    /// On at least one column: that is sufficient to lock a row.
    update: bool,
}

impl Privileges {
    async fn of(session: &Session, table: u32) -> Job<Privileges> {
        let sql = "SELECT current_user::text, has_any_column_privilege($1::oid, 'SELECT'),
                     has_any_column_privilege($1::oid, 'UPDATE')";
        let found = session.maybe(sql, params![table], |row| {
            let (role, select) = (row.try_get(0)?, row.try_get(1)?);
            Ok(Privileges { role, select, update: row.try_get(2)? })
        });
        found.await?.ok_or_else(|| invalid("the database returned no answer about privileges"))
    }
}

/// The tables that can be named, for suggestions.
pub(super) async fn known_tables(session: &Session) -> Job<Vec<String>> {
    let sql = "SELECT c.relname::text FROM pg_class c
               WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
                 AND c.relnamespace NOT IN ('pg_catalog'::regnamespace,
                                            'information_schema'::regnamespace)";
    session.all(sql, params![], cell).await
}

/// The tenant column and every mapped column exist and fit their kinds.
/// `zone`: the default time zone of the database's sessions, if it is not UTC.
fn compare_columns(found: &mut Check<'_>, columns: &[ColumnFound], zone: Option<&str>) {
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let table = quote(&found.collection.table);
    let found_table = qualified(&found.collection.table);
    found.columns(&names, |at, column| {
        let is = &columns[at];
        let message = match column {
            Some((_, column)) => match (unlike(is, column.kind, column.encoding), zone) {
                (Some(_), _) if column.kind == Kind::Timestamp && FLOATS.contains(&&*is.ty) => {
                    of_floats(&found_table, is)
                }
                (Some(unlike), _) => unlike,
                (None, Some(zone)) if column.kind == Kind::Timestamp && is.ty == "timestamp" => {
                    return Some((without_zone(&table, &is.name, zone), true));
                }
                (None, _) => return None,
            },
            // The tenant is a text, or a type with exactly one textual form.
            None if INTEGERS.contains(&is.ty.as_str()) => return None,
            None => unlike(is, Kind::Text, Encoding::Native)?,
        };
        Some((message, false))
    });
}

/// The default time zone of this role's sessions, if it is not UTC throughout the year.
async fn other_zone(session: &Session) -> Job<Option<String>> {
    // Besom's own sessions set it.
    let sql = "SELECT s.reset_val FROM pg_settings s WHERE s.name = 'TimeZone'
                 AND EXISTS (SELECT FROM unnest(ARRAY[timestamp '2026-01-01', '2026-07-01']) t
                             WHERE t AT TIME ZONE s.reset_val <> t AT TIME ZONE 'UTC')";
    session.maybe(sql, params![], cell).await
}

fn without_zone(table: &str, column: &str, zone: &str) -> String {
    let (name, literal) = (quote(column), zone.replace('\'', "''"));
    format!(
        "the column {column:?} has no time zone, and Besom reads it as UTC; sessions of this database have \
         the time zone {zone}, so now() writes that zone's local time into it, and rows are then swept \
         hours too early or too late. Unless your product writes UTC: ALTER TABLE {table} ALTER COLUMN \
         {name} TYPE timestamptz USING {name} AT TIME ZONE '{literal}'"
    )
}

/// Rows can be read and locked. A guard locks the row that it looks at, which requires the
/// privilege to update it, even if nothing is updated.
fn compare_privileges(found: &mut Check<'_>, may: &Privileges, is_anchor: bool) {
    let (table, role) = (&found.collection.table, quote(&may.role));
    let named = qualified(table);
    if !may.select {
        let message = format!("the role may not read {table:?}: GRANT SELECT ON {named} TO {role}");
        return found.fault("table", message);
    }
    if may.update {
        return;
    }
    let column = found.collection.key.first().map(|name| quote(name)).unwrap_or_default();
    let message = format!(
        "the role may not lock rows of {table:?}, which guards do: \
         GRANT UPDATE ({column}) ON {named} TO {role}, which is sufficient for locking"
    );
    // A collection that is only read may have no guards.
    found.push("table", message, !is_anchor);
}

/// Instants as numbers are plausible in their units.
async fn compare_units(found: &mut Check<'_>, session: &Session, table: &Table) -> Job<()> {
    for name in found.collection.columns.keys() {
        if table.form(name).is_ok_and(units::is_number)
            && let Some(message) = units::fault(session, table, name).await?
        {
            found.fault(format!("columns.{name}"), message);
        }
    }
    Ok(())
}

/// Texts are spelt as their kinds are.
async fn compare_spelling(
    found: &mut Check<'_>,
    session: &Session,
    mapped: &Table,
    table: &TableFound,
) -> Job<()> {
    for column in table.columns.iter().filter(|column| column.readable) {
        let first = |columns: &[String]| columns.first() == Some(&column.name);
        let is_indexed =
            table.indexes.iter().any(|index| index.is_whole() && first(&index.columns));
        let of = (column.name.as_str(), column.declared.as_str());
        if let Some(fault) = spelling::fault(session, mapped, of, is_indexed).await? {
            found.push(format!("columns.{}", column.name), fault.message, fault.warning);
        }
    }
    Ok(())
}

/// Pages over an index need no sort. The plan for a small table with known statistics does not
/// show that; for such a table the columns of its indexes are compared instead.
async fn compare_pages(
    found: &mut Check<'_>,
    view: &View<'_>,
    mapped: &Table,
    table: &TableFound,
) -> Job<()> {
    let collection = found.collection;
    for (name, columns) in &collection.indexes {
        let order = collection.order_of(columns);
        if found.is_begun(&table.indexes, name, &order) || found.is_unique(&table.indexes, columns)
        {
            continue;
        }
        let done = match fault_of_next_page(view, mapped, name).await? {
            Some(fault) => format!("is refused at its second page, which {fault},"),
            None => "sorts the equal rows at the end of a page,".to_owned(),
        };
        found.next_page(name, columns, &done);
    }
    Ok(())
}

/// The anchor exists, and an insert here waits for its lock: a foreign key ensures that.
/// Without one, a guard on absence is not reliable.
fn compare_anchor<'a>(
    found: &mut Check<'a>,
    table: &TableFound,
    target: Option<&TableFound>,
    anchor: &'a Anchor,
    all: &'a Collections,
) {
    // A missing table is reported for its own collection.
    let (Some(reference), Some(target)) = (found.anchor(anchor, all), target) else { return };
    let wanted: BTreeSet<(&str, &str)> =
        reference.own.iter().copied().zip(reference.theirs.iter().copied()).collect();
    let holds = table.foreign_keys.iter().any(|key| {
        let pairs: BTreeSet<(&str, &str)> =
            key.own.iter().map(String::as_str).zip(key.theirs.iter().map(String::as_str)).collect();
        key.target == target.oid && pairs == wanted
    });
    if !holds {
        let (name, other) = (&found.collection.table, &reference.target.table);
        let (own, theirs) = (reference.own.join(", "), reference.theirs.join(", "));
        let message = format!(
            "{name:?} has no foreign key on its anchor, so an insert does not wait for the \
             anchor's lock: ALTER TABLE {name} ADD FOREIGN KEY ({own}) REFERENCES {other} \
             ({theirs})"
        );
        found.fault("anchor", message);
    }
}

pub(super) const INTEGERS: [&str; 3] = ["int2", "int4", "int8"];
/// Types of numbers that may have a fraction.
const FLOATS: [&str; 3] = ["float4", "float8", "numeric"];

/// What to do about instants as numbers with a fraction.
fn of_floats(table: &str, column: &ColumnFound) -> String {
    let (own, new) = (named(&column.name), named(&format!("{}_at", column.name)));
    format!(
        "the column has the type {}, whose numbers may have a fraction, and cannot be mapped as timestamp: map a column that \
         the database computes of it, with an index; of seconds since 1970: ALTER TABLE {table} ADD COLUMN {new} \
         timestamptz GENERATED ALWAYS AS (to_timestamp({own}::float8)) STORED, which writes the whole table",
        column.declared
    )
}

/// Why a column of this type cannot store that kind in that encoding.
pub(super) fn unlike(column: &ColumnFound, kind: Kind, encoding: Encoding) -> Option<String> {
    const TEXTS: [&str; 5] = ["text", "varchar", "bpchar", "citext", "name"];
    const KNOWN: [&str; 12] = [
        "bool",
        "float4",
        "float8",
        "numeric",
        "bytea",
        "timestamptz",
        "timestamp",
        "date",
        "uuid",
        "json",
        "jsonb",
        "xml",
    ];
    let ty = column.ty.as_str();
    let among = |all: &[&str]| all.contains(&ty);
    let fits = match kind {
        Kind::Bool => ty == "bool" || among(&INTEGERS),
        Kind::Integer => among(&INTEGERS) || column.whole,
        Kind::Float => among(&["float4", "float8"]),
        Kind::Decimal => ty == "numeric" || among(&INTEGERS) || among(&TEXTS),
        // Enums and other types that are written and read as text.
        Kind::Text => among(&TEXTS) || ty == "uuid" || !(among(&INTEGERS) || among(&KNOWN)),
        Kind::Json => among(&["json", "jsonb"]) || among(&TEXTS),
        Kind::Bytes => ty == "bytea",
        Kind::Uuid if encoding == Encoding::Raw => ty == "bytea",
        Kind::Uuid => ty == "uuid" || among(&TEXTS),
        Kind::Date => ty == "date" || among(&TEXTS),
        Kind::Timestamp => match encoding {
            encoding if encoding.is_text() => among(&TEXTS),
            Encoding::Seconds | Encoding::Millis => among(&INTEGERS) || column.whole,
            _ => among(&["timestamptz", "timestamp", "date", "int8"]),
        },
    };
    let kind = format!("{kind:?}").to_lowercase();
    let encoding = format!("{encoding:?}").to_lowercase();
    if !fits && ty == "numeric" {
        return Some(format!(
            "the column has the type numeric and is mapped as {kind} ({encoding}), which would \
             round its values or not hold them: map it as decimal, or change its type to numeric(18, 0)"
        ));
    }
    (!fits).then(|| {
        format!(
            "the column has the type {} and is mapped as {kind} ({encoding}): correct the type or \
             the encoding",
            column.full
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_refused_on_a_type_that_cannot_hold_it() {
        let column = |ty: &str| ColumnFound {
            name: "c".into(),
            ty: ty.into(),
            full: ty.into(),
            nullable: true,
            whole: ty == "numeric(18,0)",
            declared: ty.into(),
            readable: true,
            generated: false,
            exact: false,
            fixed: false,
            loose: String::new(),
        };
        for (ty, kind, encoding, fits) in [
            ("int4", Kind::Integer, Encoding::Native, true),
            ("text", Kind::Integer, Encoding::Native, false),
            ("mood", Kind::Text, Encoding::Native, true),
            ("int8", Kind::Text, Encoding::Native, false),
            ("timestamptz", Kind::Timestamp, Encoding::Native, true),
            ("timestamptz", Kind::Timestamp, Encoding::Seconds, false),
            ("int8", Kind::Timestamp, Encoding::Millis, true),
            ("uuid", Kind::Uuid, Encoding::Native, true),
            ("uuid", Kind::Uuid, Encoding::Raw, false),
            ("jsonb", Kind::Json, Encoding::Native, true),
            ("bytea", Kind::Bytes, Encoding::Native, true),
            ("bit", Kind::Text, Encoding::Native, true),
            ("bpchar", Kind::Uuid, Encoding::Native, true),
            ("date", Kind::Timestamp, Encoding::Native, true),
            ("date", Kind::Date, Encoding::Native, true),
            ("timestamptz", Kind::Date, Encoding::Native, false),
            ("numeric", Kind::Decimal, Encoding::Native, true),
            ("numeric", Kind::Integer, Encoding::Native, false),
            ("numeric", Kind::Float, Encoding::Native, false),
            ("numeric", Kind::Timestamp, Encoding::Seconds, false),
            ("numeric(18,0)", Kind::Integer, Encoding::Native, true),
        ] {
            let said = unlike(&column(ty), kind, encoding);
            assert_eq!(said.is_none(), fits, "{kind:?} ({encoding:?}) on {ty}: {said:?}");
        }
    }
}
