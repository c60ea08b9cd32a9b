//! Rows are put back as they were kept ([`besom_record::restore`]), row by row: a statement that fails changes
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::ids::Tenant;
use besom_core::proposal::Restore;
use besom_core::value::{Field, RowKey, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, ffi, params_from_iter};

use super::commit::deferred_violation;
use super::effects::{Effects, Stop};
use super::error::{Job, is_violation};
use super::mapping::{Mapping, Params, Table, push_quoted, quote};
use super::values::{lent_cells, names_of, of_kept};
use super::writer::Tx;
use besom_ports::store::{BeforeImage, Error, KeptItem, Restored};
use besom_record::images::{outline, unhex, unpack};
use besom_record::restore::{
    Answer, Ask, Did, Found, REMOVED, Restoring, Undone, absent, compared, lost, nothing, unmapped,
};

/// The row id of a table in which no column is another name of it.
const ROWID: &str = "rowid";
/// Messages of an item have numbers that follow that of its history row.
const MESSAGES: &str = "SELECT topic, key FROM besom_outbox
    WHERE id > ?1 AND id <= ?1 + 2000 AND history = ?1 ORDER BY id LIMIT 1000";

/// What is kept of an item.
pub(super) fn kept(conn: &Connection, history: u64) -> Job<Option<KeptItem>> {
    Ok(packed(conn, history)?.as_deref().map(outline).transpose()?)
}

fn packed(conn: &Connection, history: u64) -> Job<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached("SELECT undo FROM besom_history WHERE id = ?1")?;
    Ok(statement.query_row([history], |r| r.get(0)).optional()?.flatten())
}

/// Puts rows back, and takes that back.
pub(super) fn rehearse(
    tx: &mut Tx<'_>,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    restore: &Restore,
) -> Job<Restored> {
    let conn = tx.conn;
    conn.execute_batch("SAVEPOINT rehearsal")?;
    let mut effects = Effects::new(tx, mapping, tenant, None);
    let done = effects.restore(restore);
    if conn.is_autocommit() {
        let why = "a trigger or a constraint of the database rolls back the whole transaction";
        return Err(Error::Raised(why.into()).into());
    }
    conn.execute_batch("ROLLBACK TO rehearsal; RELEASE rehearsal")?;
    let mut restored = match done {
        Ok(restored) => restored,
        Err(Stop::Violation(said)) => return Err(Error::Invalid(said).into()),
        Err(Stop::Failure(failure)) => return Err(failure),
    };
    for name in &restore.collections {
        let Ok(table) = mapping.table(name) else { continue };
        let mut statement = conn.prepare_cached(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?1) ORDER BY name",
        )?;
        let names = statement.query_map([&table.collection.table], |r| r.get::<_, String>(0))?;
        for trigger in names {
            restored.triggers.push(format!("{} on {name}", trigger?));
        }
    }
    let mut statement = conn.prepare_cached(MESSAGES)?;
    let messages = statement.query_map([restore.history], |r| Ok((r.get(0)?, r.get(1)?)))?;
    restored.messages = messages.collect::<rusqlite::Result<_>>()?;
    Ok(restored)
}

/// The columns of a table that can be written, in lower case.
type Writable = BTreeMap<String, Vec<String>>;

impl Effects<'_> {
    /// Puts back the rows of a history row, as far as nobody has changed them since.
    pub(super) fn restore(&mut self, restore: &Restore) -> Result<Restored, Stop> {
        let Some(images) = self.kept_rows(restore.history)? else {
            return Ok(nothing(REMOVED));
        };
        let mut writable = Writable::new();
        for name in &restore.collections {
            let Ok(table) = self.mapping.table(name) else {
                return Ok(nothing(&unmapped(name)));
            };
            let columns = writable_of(self.conn, &table.collection.table)?;
            if columns.is_empty() {
                return Ok(nothing(&absent(&table.collection.table)));
            }
            writable.insert(name.clone(), columns);
        }
        let mut earlier = Vec::new();
        for history in &restore.earlier {
            earlier.extend(self.kept_rows(*history)?.into_iter().flatten());
        }
        let mut notes = Vec::new();
        for (name, columns) in &writable {
            let of =
                images.iter().find(|image| image.collection == *name && !image.stored.is_empty());
            let gone = of.into_iter().flat_map(|image| &image.stored).map(|field| &field.name);
            let gone: Vec<&str> = gone
                .filter(|column| *column != ROWID && !self.has_column(name, column, columns))
                .map(String::as_str)
                .collect();
            notes.extend(lost(name, &gone));
        }
        let mut restoring = Restoring::new(images, Arc::clone(&restore.forced), &earlier);
        while let Some(ask) = restoring.ask() {
            let answer = self.asked(ask, &writable)?;
            restoring.answer(answer);
        }
        let (mut restored, undone) = restoring.end();
        restored.notes.extend(notes);
        self.rows += restored.rows;
        for one in undone {
            self.keep_undone(one)?;
        }
        Ok(restored)
    }

    fn has_column(&self, collection: &str, column: &str, writable: &[String]) -> bool {
        let computed = || {
            let table = self.mapping.table(collection).ok()?;
            let sql = "SELECT 1 FROM pragma_table_xinfo(?1) WHERE lower(name) = lower(?2)";
            let mut statement = self.conn.prepare_cached(sql).ok()?;
            statement.exists([&table.collection.table, column]).ok()
        };
        writable.contains(&column.to_lowercase()) || computed().unwrap_or_default()
    }

    fn kept_rows(&mut self, history: u64) -> Result<Option<Vec<BeforeImage>>, Stop> {
        let Some(packed) = packed(self.conn, history)? else { return Ok(None) };
        Ok(Some(unpack(&packed, of_kept)?))
    }

    /// Executes a statement for each row.
    fn asked(&mut self, ask: Ask<'_>, writable: &Writable) -> Result<Answer, Stop> {
        if let Ask::Look { collection, rows } = ask {
            let found = rows.into_iter().map(|image| self.look(collection, image));
            return Ok(Answer::Looked(found.collect::<Result<_, Stop>>()?));
        }
        self.dirty = true;
        let was_violated = deferred_violation(self.conn);
        self.conn.prepare_cached("SAVEPOINT back")?.execute([])?;
        let done = match ask {
            Ask::Look { .. } => Ok(Vec::new()),
            Ask::Put { rows, exact } => self.put_all(&rows, exact, writable),
            Ask::Set { rows } => {
                let set = |(image, fields): &(&BeforeImage, Vec<Field>)| {
                    self.set_back(image, fields, writable)
                };
                rows.iter().map(set).collect()
            }
            Ask::Remove { collection, rows } => {
                rows.iter().map(|image| self.remove(collection, image)).collect()
            }
        };
        // The user's schema may roll back the whole transaction.
        if self.conn.is_autocommit() {
            let said = "the database rolls back the whole transaction".to_owned();
            return Err(match done {
                Err(stop) => stop,
                Ok(_) => Stop::Violation(said),
            });
        }
        let is_violated = done.is_ok() && !was_violated && deferred_violation(self.conn);
        if is_violated || done.is_err() {
            self.conn.prepare_cached("ROLLBACK TO back")?.execute([])?;
        }
        self.conn.prepare_cached("RELEASE back")?.execute([])?;
        Ok(match is_violated {
            true => Answer::Refused("FOREIGN KEY constraint failed".to_owned()),
            false => Answer::Done(done?),
        })
    }

    fn look(&self, collection: &str, image: &BeforeImage) -> Result<Option<Found>, Stop> {
        let table = self.mapping.table(collection)?;
        let key = key_in(table, image);
        let terms = compared(image, &table.collection.name);
        let mut sql = format!("SELECT {}, (1", table.whole(self.conn)?);
        let mut params = Vec::new();
        // A column that is gone has no value that could have stayed.
        if terms.iter().any(|term| table.form(&term.column).is_err()) {
            sql.push_str(" AND 0");
        } else {
            table.push_terms(&terms, &mut sql, &mut params)?;
        }
        sql.push_str(&format!(") FROM {} WHERE ", table.name));
        table.push_key(self.tenant_of(image), key.iter(), &mut sql, &mut params)?;
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(params.iter()))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut fields = fields_of(row)?;
        let holds = fields.pop().is_some_and(|field| field.value == Value::Integer(1));
        Ok(Some(Found { row: fields, holds }))
    }

    fn put_all(
        &self,
        rows: &[&BeforeImage],
        exact: bool,
        writable: &Writable,
    ) -> Result<Vec<Did>, Stop> {
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let table = self.mapping.table(&first.collection)?;
        let whole = table.whole(self.conn)?;
        let is_written = |field: &Field| match field.name == ROWID {
            true => whole != "*",
            false => writable[&first.collection].contains(&field.name.to_lowercase()),
        };
        let insert = |without: Option<&str>| -> Result<(Vec<bool>, CachedStatement<'_>), Stop> {
            let each = first.stored.iter().map(|f| is_written(f) && Some(&*f.name) != without);
            let each: Vec<bool> = each.collect();
            let names = first.stored.iter().zip(&each).filter(|(_, written)| **written);
            let names: Vec<String> = names.map(|(field, _)| quote(&field.name)).collect();
            let marks = vec!["?"; names.len()].join(", ");
            let sql = format!(
                "INSERT OR ABORT INTO {} ({}) VALUES ({marks}) RETURNING {whole}",
                table.name,
                names.join(", ")
            );
            Ok((each, self.conn.prepare_cached(&sql)?))
        };
        let (each, mut statement) = insert(None)?;
        let mut did = Vec::with_capacity(rows.len());
        for image in rows {
            let mut done = put(&mut statement, &each, image);
            // The row has its key; that the row id is another is no reason to leave it out.
            if let Err(e) = &done
                && extended(e) == Some(ffi::SQLITE_CONSTRAINT_ROWID)
                && whole != "*"
            {
                let (each, mut statement) = insert(Some(ROWID))?;
                done = put(&mut statement, &each, image);
            }
            did.push(match done {
                Ok(Some(row)) => Did::Put(row),
                Ok(None) => Did::Refused("a trigger prevents it".to_owned()),
                Err(e) if is_taken(&e) && !exact => Did::Taken,
                Err(e) => self.refused(e)?,
            });
        }
        Ok(did)
    }

    fn set_back(
        &self,
        image: &BeforeImage,
        fields: &[Field],
        writable: &Writable,
    ) -> Result<Did, Stop> {
        let table = self.mapping.table(&image.collection)?;
        let (mut set, mut params): (String, Params<'_>) = (String::new(), Vec::new());
        let known = &writable[&image.collection];
        let is_known = |field: &&Field| known.contains(&field.name.to_lowercase());
        let garbled: Vec<Option<Vec<u8>>> =
            fields.iter().filter(is_known).map(|field| garbled(&field.value)).collect();
        for (field, bytes) in fields.iter().filter(is_known).zip(&garbled) {
            set.push_str(if set.is_empty() { "" } else { ", " });
            push_quoted(&field.name, &mut set);
            set.push_str(" = ?");
            params.push(cell(&field.value, bytes.as_deref()));
        }
        if set.is_empty() {
            return Ok(Did::Refused("none of its columns can be set any more".to_owned()));
        }
        let mut sql = format!("UPDATE OR ABORT {} SET {set} WHERE ", table.name);
        table.push_key(self.tenant_of(image), image.key.iter(), &mut sql, &mut params)?;
        let mut statement = self.conn.prepare_cached(&sql)?;
        match statement.execute(params_from_iter(params.iter())) {
            Ok(0) => Ok(Did::Missing),
            Ok(_) => Ok(Did::Set),
            Err(e) => self.refused(e),
        }
    }

    fn remove(&self, collection: &str, image: &BeforeImage) -> Result<Did, Stop> {
        let table = self.mapping.table(collection)?;
        let key = key_in(table, image);
        let mut sql = format!("DELETE FROM {} WHERE ", table.name);
        let mut params = Vec::new();
        table.push_key(self.tenant_of(image), key.iter(), &mut sql, &mut params)?;
        sql.push_str(&format!(" RETURNING {}", table.whole(self.conn)?));
        let mut statement = self.conn.prepare_cached(&sql)?;
        match returned(&mut statement, &params) {
            Ok(Some(row)) => Ok(Did::Removed(row)),
            Ok(None) => Ok(Did::Missing),
            Err(e) => self.refused(e),
        }
    }

    /// What a row is refused for; an error of the infrastructure, or one that has ended the transaction, is none.
    fn refused(&self, e: rusqlite::Error) -> Result<Did, Stop> {
        match is_violation(&e) && !self.conn.is_autocommit() {
            true => Ok(Did::Refused(e.to_string())),
            false => Err(e.into()),
        }
    }

    fn tenant_of<'t>(&'t self, image: &'t BeforeImage) -> Option<&'t Tenant> {
        image.tenant.as_ref().or(self.tenant)
    }

    /// Keeps what putting a row back has changed, so that it can be undone as well.
    fn keep_undone(&mut self, one: Undone) -> Result<(), Stop> {
        let Undone { collection, key, before, left } = one;
        let table = self.mapping.table(&collection)?;
        let tenant = self.tenant;
        let Some(kept) = &mut self.images else { return Ok(()) };
        kept.push_undone(table, tenant, (key, before), &left)
    }
}

/// The columns that can be written; none: there is no such table.
fn writable_of(conn: &Connection, table: &str) -> Job<Vec<String>> {
    let mut statement = conn.prepare_cached(
        "SELECT lower(name) FROM pragma_table_xinfo(?1) WHERE hidden = 0
           AND EXISTS (SELECT 1 FROM pragma_table_list(?1) WHERE schema = 'main' AND type IN ('table', 'virtual'))",
    )?;
    let names = statement.query_map([table], |r| r.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// The key of a row in a table: its own, or that of its copy.
fn key_in(table: &Table, image: &BeforeImage) -> RowKey {
    if table.collection.name == image.collection {
        return image.key.clone();
    }
    let value = |name: &String| {
        let stored = image.stored.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        match (stored, table.collection.columns.get(name)) {
            (Some(field), Some(column)) => of_kept(*column, false, &field.value),
            _ => Value::Null,
        }
    };
    table.collection.key.iter().map(value).collect()
}

/// The bytes of a text that is not UTF-8, which is kept in hexadecimal.
fn garbled(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Json(hex) => Some(unhex(hex).unwrap_or_default()),
        _ => None,
    }
}

/// A value as it was stored; of one that is [`garbled`], these bytes.
fn cell<'a>(value: &'a Value, garbled: Option<&'a [u8]>) -> ToSqlOutput<'a> {
    if let Some(bytes) = garbled {
        return ToSqlOutput::Borrowed(ValueRef::Text(bytes));
    }
    match value {
        Value::Integer(i) => ToSqlOutput::from(*i),
        Value::Float(f) => ToSqlOutput::from(*f),
        Value::Bytes(b) => ToSqlOutput::Borrowed(ValueRef::Blob(b)),
        Value::Text(t) => ToSqlOutput::Borrowed(ValueRef::Text(t.as_bytes())),
        _ => ToSqlOutput::Borrowed(ValueRef::Null),
    }
}

fn put(
    statement: &mut CachedStatement<'_>,
    each: &[bool],
    image: &BeforeImage,
) -> rusqlite::Result<Option<Vec<Field>>> {
    let fields = || image.stored.iter().zip(each).filter(|(_, written)| **written);
    let garbled: Vec<Option<Vec<u8>>> = fields().map(|(field, _)| garbled(&field.value)).collect();
    let mut params: Params<'_> = Vec::with_capacity(each.len());
    for ((field, _), bytes) in fields().zip(&garbled) {
        params.push(cell(&field.value, bytes.as_deref()));
    }
    returned(statement, &params)
}

/// The row that a statement returns, which has to be read to its end.
fn returned(
    statement: &mut CachedStatement<'_>,
    params: &Params<'_>,
) -> rusqlite::Result<Option<Vec<Field>>> {
    let mut rows = statement.query(params_from_iter(params.iter()))?;
    let first = rows.next()?.map(fields_of).transpose()?;
    while rows.next()?.is_some() {}
    Ok(first)
}

fn fields_of(row: &Row<'_>) -> rusqlite::Result<Vec<Field>> {
    let values = lent_cells(row)?.into_iter().map(Value::from);
    Ok(names_of(row).zip(values).map(|((name, _), value)| Field::new(name, value)).collect())
}

fn extended(e: &rusqlite::Error) -> Option<i32> {
    match e {
        rusqlite::Error::SqliteFailure(e, _) => Some(e.extended_code),
        _ => None,
    }
}

fn is_taken(e: &rusqlite::Error) -> bool {
    let taken = [
        ffi::SQLITE_CONSTRAINT_UNIQUE,
        ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
        ffi::SQLITE_CONSTRAINT_ROWID,
    ];
    extended(e).is_some_and(|code| taken.contains(&code))
}
