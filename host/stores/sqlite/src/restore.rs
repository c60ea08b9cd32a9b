//! Rows are put back as they were kept ([`besom_record::restore`]): many with one statement if that leaves each
//! exactly as it was, and row by row otherwise. A statement that fails changes nothing.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::thread::{Builder, JoinHandle};

use besom_core::ids::Tenant;
use besom_core::proposal::{Again, Change, Proposal, Restore};
use besom_core::purge::note;
use besom_core::value::{Field, RowKey, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Row, Rows, ffi, params_from_iter};

use super::commit::deferred_violation;
use super::effects::{Effects, Stop};
use super::error::{Job, is_violation};
use super::mapping::{DIALECT, Mapping, Params, Table, push_quoted, quote};
use super::range::raw_cell;
use super::statements::Statements;
use super::values::{lent_cells, names_of, of_kept};
use super::writer::Tx;
use besom_ports::store::{BeforeImage, Error, KeptItem, Restored};
use besom_record::images::{Broken, outline, unhex, unpack};
use besom_record::restore::{
    self, ASTRAY, Answer, Ask, Did, Earlier, Ended, Found, Kin, REMOVED, Restoring, Undone, absent,
    compared, lost, nothing, unmapped,
};

/// Maximum number of rows that one statement inserts. SQLite copies each page that a statement changes, to be able to
/// take the statement back alone, so a statement for each row costs three times as much.
const TOGETHER_MAX: usize = 128;
/// Maximum number of parameters of a statement (`SQLITE_MAX_VARIABLE_NUMBER`).
const PARAMS_MAX: usize = 32_766;
/// The row id of a table in which no column is another name of it.
const ROWID: &str = "rowid";
/// What is kept of an item.
pub(super) fn kept(conn: &Connection, history: u64) -> Job<Option<KeptItem>> {
    Ok(packed(conn, history)?.as_deref().map(outline).transpose()?)
}

fn packed(conn: &Connection, history: u64) -> Job<Option<Vec<u8>>> {
    let sql = "SELECT undo FROM besom_history WHERE id = ?1";
    Ok(conn.first(sql, [history], |r| r.get(0))?.flatten())
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
    let ahead = Ahead::default();
    let mut effects = Effects::new(tx, mapping, (tenant, &ahead), None);
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
        let sql =
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)
                   ORDER BY name";
        restored.triggers.extend(conn.all(sql, [&table.collection.table], |r| {
            r.get(0).map(|trigger: String| format!("{trigger} on {name}"))
        })?);
    }
    Ok(restored)
}

/// Unpacks what was kept of an item while the rows of the one before it are put back.
#[derive(Default)]
pub(super) struct Ahead(RefCell<Queue>);

type Unpacking = JoinHandle<Result<Vec<BeforeImage>, Broken>>;

#[derive(Default)]
struct Queue {
    /// The history rows of the items that follow.
    next: VecDeque<u64>,
    unpacking: Option<(u64, Unpacking)>,
}

impl Ahead {
    /// For the items of a commit, in their order.
    pub(super) fn of<'p>(proposals: impl Iterator<Item = &'p Proposal>) -> Ahead {
        let restores = proposals.flat_map(|proposal| &proposal.changes).filter_map(Change::restore);
        let next = restores.map(|restore| restore.history).collect();
        Ahead(RefCell::new(Queue { next, unpacking: None }))
    }

    /// What was kept of a history row; none: it was not unpacked. Begins with the next one.
    fn take(&self, conn: &Connection, history: u64) -> Job<Option<Vec<BeforeImage>>> {
        let mut queue = self.0.borrow_mut();
        let ready = queue.unpacking.take_if(|(of, _)| *of == history);
        let images = ready.and_then(|(_, unpacking)| unpacking.join().ok()).transpose()?;
        if queue.next.front() == Some(&history) {
            queue.next.pop_front();
        }
        if let (None, Some(next)) = (&queue.unpacking, queue.next.front().copied())
            && let Some(packed) = packed(conn, next)?
        {
            let unpacking = Builder::new().spawn(move || unpack(&packed, of_kept));
            queue.unpacking = unpacking.ok().map(|unpacking| (next, unpacking));
        }
        Ok(images)
    }
}

/// The tables of the rows that are put back, by collection.
type Scene = BTreeMap<String, Place>;

/// What is known of a table.
struct Place {
    /// The columns that can be written.
    writable: Vec<String>,
    /// Whether a trigger may change a row as soon as the statement that has written it has ended.
    triggered: bool,
    /// The events of triggers that may roll back the whole transaction.
    rolling_back: Vec<Event>,
    /// What refers to its rows, and would be deleted or changed with them; read when it is needed.
    references: OnceCell<Vec<Reference>>,
}

/// What fires a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Insert,
    Update,
    Delete,
}

impl Place {
    /// Whether a column of this name can be written. Like SQLite, it folds the letters of ASCII alone.
    fn writes(&self, column: &str) -> bool {
        self.writable.iter().any(|name| name.eq_ignore_ascii_case(column))
    }
}

/// Rows of a table refer to rows of another one.
struct Reference {
    /// The table that refers.
    of: String,
    is_own: bool,
    /// Its columns, quoted, and those of the other table.
    own: Vec<String>,
    theirs: Vec<String>,
}

impl Effects<'_> {
    /// Puts back the rows of a history row, as far as nobody has changed them since.
    pub(super) fn restore(&mut self, restore: &Restore) -> Result<Restored, Stop> {
        if restore.again == Again::Only {
            return Ok(Restored::default());
        }
        let images = match self.ahead.take(self.conn, restore.history)? {
            Some(images) => Some(images),
            None => self.kept_rows(restore.history)?,
        };
        let Some(images) = images else { return Ok(nothing(REMOVED)) };
        let (mut scene, mapping) = (Scene::new(), self.mapping);
        for name in &restore.collections {
            let Ok(table) = self.mapping.table(name) else {
                return Ok(nothing(&unmapped(name)));
            };
            let writable = writable_of(self.conn, &table.collection.table)?;
            if writable.is_empty() {
                return Ok(nothing(&absent(&table.collection.table)));
            }
            let triggers = triggers(self.conn, &table.collection.table)?;
            let (triggered, rolling_back) = (!triggers.is_empty(), rolling_back(&triggers));
            let references = OnceCell::new();
            let place = Place { writable, triggered, rolling_back, references };
            scene.insert(name.clone(), place);
        }
        let mut earlier = Earlier::default();
        for (history, count) in restore.attempts() {
            earlier.add(&self.kept_rows(history)?.unwrap_or_default(), count);
        }
        let mut notes = Vec::new();
        for (name, place) in &scene {
            let of =
                images.iter().find(|image| image.collection == *name && !image.stored.is_empty());
            let gone = of.into_iter().flat_map(|image| &image.stored).map(|field| &*field.name);
            let gone: Vec<&str> = gone
                .filter(|column| *column != ROWID && !self.has_column(name, column, place))
                .collect();
            notes.extend(lost(name, &gone));
        }
        let tables = restore.collections.iter().filter_map(|name| mapping.table(name).ok());
        let kin = Kin::of(tables.map(|table| &table.collection));
        let mut restoring = Restoring::new(images, restore, earlier, kin);
        while let Some(ask) = restoring.ask() {
            let answer = self.asked(ask, &scene)?;
            restoring.answer(answer);
        }
        let Ended { mut restored, undone, images } = restoring.end();
        restored.notes.extend(notes);
        restored.notes.extend(note(restore.purged));
        self.rows += restored.rows;
        for one in undone {
            self.keep_undone(one, &images)?;
        }
        Ok(restored)
    }

    fn has_column(&self, collection: &str, column: &str, place: &Place) -> bool {
        let computed = || {
            let table = self.mapping.table(collection).ok()?;
            let sql = "SELECT 1 FROM pragma_table_xinfo(?1) WHERE lower(name) = lower(?2)";
            self.conn.exists(sql, [&table.collection.table, column]).ok()
        };
        place.writes(column) || computed().unwrap_or_default()
    }

    fn kept_rows(&mut self, history: u64) -> Result<Option<Vec<BeforeImage>>, Stop> {
        let Some(packed) = packed(self.conn, history)? else { return Ok(None) };
        Ok(Some(unpack(&packed, of_kept)?))
    }

    /// Executes a statement for each row.
    fn asked(&mut self, ask: Ask<'_>, scene: &Scene) -> Result<Answer, Stop> {
        let turn = match &ask {
            Ask::Look { collection, rows } => {
                let found = rows.iter().map(|image| self.look(collection, image));
                return Ok(Answer::Looked(found.collect::<Result<_, Stop>>()?));
            }
            Ask::Mark => Some("SAVEPOINT whole"),
            Ask::Back => Some("ROLLBACK TO whole"),
            Ask::Keep => Some("RELEASE whole"),
            Ask::Put { .. } | Ask::Set { .. } | Ask::Remove { .. } => None,
        };
        if let Some(sql) = turn {
            self.conn.run(sql, [])?;
            return Ok(Answer::Done(Vec::new()));
        }
        let written = match &ask {
            Ask::Put { rows, .. } => rows.first().map(|row| (&*row.collection, Event::Insert)),
            Ask::Set { rows } => rows.first().map(|(row, _)| (&*row.collection, Event::Update)),
            Ask::Remove { collection, .. } => Some((*collection, Event::Delete)),
            Ask::Look { .. } | Ask::Mark | Ask::Back | Ask::Keep => None,
        };
        if let Some((name, event)) = written
            && scene.get(name).is_some_and(|place| place.rolling_back.contains(&event))
        {
            return Ok(Answer::Refused(ROLLS_BACK.to_owned()));
        }
        self.dirty = true;
        let was_violated = deferred_violation(self.conn);
        self.conn.run("SAVEPOINT back", [])?;
        let done = match ask {
            Ask::Look { .. } | Ask::Mark | Ask::Back | Ask::Keep => Ok(Answer::Done(Vec::new())),
            Ask::Put { rows, exact } => self
                .put_all(&rows, exact, scene)
                .and_then(|did| self.again(rows.iter().copied(), did, scene)),
            Ask::Set { rows } => {
                let set = |(image, fields): &(&BeforeImage, Vec<Field>)| {
                    self.set_back(image, fields, scene)
                };
                let did = rows.iter().map(set).collect::<Result<Vec<_>, Stop>>();
                did.and_then(|did| self.again(rows.iter().map(|(image, _)| *image), did, scene))
            }
            Ask::Remove { collection, rows } => {
                let did = rows.iter().map(|image| self.remove(collection, image, scene));
                did.collect::<Result<Vec<_>, Stop>>().map(Answer::Done)
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
        if is_violated || !matches!(done, Ok(Answer::Done(_))) {
            self.conn.run("ROLLBACK TO back", [])?;
        }
        self.conn.run("RELEASE back", [])?;
        match is_violated {
            true => Ok(Answer::Refused("FOREIGN KEY constraint failed".to_owned())),
            false => done,
        }
    }

    fn look(&self, collection: &str, image: &BeforeImage) -> Result<Option<Found>, Stop> {
        let table = self.mapping.table(collection)?;
        let key = key_in(table, image);
        let terms = compared(image, &table.collection.name);
        // A copy has a row id of its own.
        let is_copy = table.collection.name != image.collection;
        let whole = if is_copy { "*" } else { table.whole(self.conn)? };
        let mut sql = format!("SELECT {whole}, (1");
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

    /// The rows as they are after their statements, if a trigger may have changed them since; refused if one is not
    /// there.
    fn again<'r>(
        &self,
        rows: impl Iterator<Item = &'r BeforeImage>,
        mut did: Vec<Did>,
        scene: &Scene,
    ) -> Result<Answer, Stop> {
        for (did, image) in did.iter_mut().zip(rows) {
            if let Did::Put(after) | Did::Set(after) = did
                && scene[&image.collection].triggered
            {
                match self.look(&image.collection, image)? {
                    Some(found) => *after = Some(found.row),
                    None => return Ok(Answer::Refused(ASTRAY.to_owned())),
                }
            }
        }
        Ok(Answer::Done(did))
    }

    fn put_all(&self, rows: &[&BeforeImage], exact: bool, scene: &Scene) -> Result<Vec<Did>, Stop> {
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let table = self.mapping.table(&first.collection)?;
        let whole = table.whole(self.conn)?;
        // Where the whole row has no row id of its own, this is a column of that name.
        let is_written = |field: &Field| {
            field.name == ROWID && whole != "*" || scene[&first.collection].writes(&field.name)
        };
        let insert = |without: Option<&str>, count: usize| -> Result<Insert<'_>, Stop> {
            let each = first.stored.iter().map(|f| is_written(f) && Some(&*f.name) != without);
            let each: Vec<bool> = each.collect();
            let names = first.stored.iter().zip(&each).filter(|(_, written)| **written);
            let names: Vec<String> = names.map(|(field, _)| quote(&field.name)).collect();
            let marks = format!("({})", vec!["?"; names.len()].join(", "));
            let sql = format!(
                "INSERT OR ABORT INTO {} ({}) VALUES {} RETURNING {whole}",
                table.name,
                names.join(", "),
                vec![marks; count].join(", ")
            );
            Ok((each, self.conn.prepare_cached(&sql)?))
        };
        if rows.len() > 1 && self.put_together(rows, |count| insert(None, count))? {
            return Ok(rows.iter().map(|_| Did::Put(None)).collect());
        }
        let (each, mut statement) = insert(None, 1)?;
        let mut did = Vec::with_capacity(rows.len());
        for image in rows {
            let mut done = put(&mut statement, &each, image);
            // The row has its key; that the row id is another is no reason to leave it out.
            if let Err(e) = &done
                && extended(e) == Some(ffi::SQLITE_CONSTRAINT_ROWID)
                && whole != "*"
            {
                let (each, mut statement) = insert(Some(ROWID), 1)?;
                done = put(&mut statement, &each, image);
            }
            did.push(match done {
                Ok(Some(after)) => Did::Put(after),
                Ok(None) => Did::Refused("a trigger prevents it".to_owned()),
                Err(e) if is_taken(&e) && !exact => Did::Taken,
                Err(e) => self.refused(e)?,
            });
        }
        Ok(did)
    }

    /// Inserts rows of the same columns with few statements. False: one of them cannot be inserted, or would not be
    /// stored exactly as it was kept; then nothing is changed.
    fn put_together<'c>(
        &self,
        rows: &[&BeforeImage],
        insert: impl Fn(usize) -> Result<Insert<'c>, Stop>,
    ) -> Result<bool, Stop> {
        let columns = rows.first().map_or(1, |first| first.stored.len().max(1));
        // The row that was changed last comes first; the index grows at its end the other way round.
        let oldest_first: Vec<&BeforeImage> = rows.iter().rev().copied().collect();
        for some in oldest_first.chunks((PARAMS_MAX / columns).clamp(1, TOGETHER_MAX)) {
            let (each, mut statement) = insert(some.len())?;
            let is_done = are_put(&mut statement, &each, some);
            drop(statement);
            match is_done {
                Ok(true) => {}
                Err(e) if !is_violation(&e) || self.conn.is_autocommit() => return Err(e.into()),
                Ok(false) | Err(_) => {
                    self.conn.run("ROLLBACK TO back", [])?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn set_back(&self, image: &BeforeImage, fields: &[Field], scene: &Scene) -> Result<Did, Stop> {
        let table = self.mapping.table(&image.collection)?;
        let (mut set, mut params): (String, Params<'_>) = (String::new(), Vec::new());
        let is_known = |field: &&Field| scene[&image.collection].writes(&field.name);
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
        // A value that cannot be set, such as a row id, stays another one.
        if !fields.iter().all(|field| is_known(&field)) {
            sql.push_str(&format!(" RETURNING {}", table.whole(self.conn)?));
            let mut statement = self.conn.prepare_cached(&sql)?;
            return match returned(&mut statement, &params) {
                Ok(Some(row)) => Ok(Did::Set(Some(row))),
                Ok(None) => Ok(Did::Missing),
                Err(e) => self.refused(e),
            };
        }
        match self.conn.run(&sql, params_from_iter(params.iter())) {
            Ok(0) => Ok(Did::Missing),
            Ok(_) => Ok(Did::Set(None)),
            Err(e) => self.refused(e),
        }
    }

    fn remove(&self, collection: &str, image: &BeforeImage, scene: &Scene) -> Result<Did, Stop> {
        let table = self.mapping.table(collection)?;
        let key = key_in(table, image);
        if let Some(of) = self.refers(table, scene.get(collection), image, &key)? {
            let why = format!("rows of {of:?} refer to it, which are not part of this undo");
            return Ok(Did::Refused(why));
        }
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

    /// The table of which rows would be deleted or changed with a row; none: no row refers to it.
    fn refers<'s>(
        &self,
        table: &Table,
        place: Option<&'s Place>,
        image: &BeforeImage,
        key: &RowKey,
    ) -> Result<Option<&'s str>, Stop> {
        // What was moved goes back to where it was: nothing refers to its copy for its sake.
        let Some(place) = place else { return Ok(None) };
        let references = match place.references.get() {
            Some(known) => known,
            None => {
                let found = self.references(table)?;
                place.references.get_or_init(|| found)
            }
        };
        for Reference { of, is_own, own, theirs } in references {
            let mut params: Params<'_> = Vec::new();
            let mut sql = format!(
                "SELECT 1 FROM {} WHERE ({}) = (SELECT {} FROM {} WHERE ",
                quote(of),
                own.join(", "),
                theirs.join(", "),
                table.name
            );
            table.push_key(self.tenant_of(image), key.iter(), &mut sql, &mut params)?;
            sql.push(')');
            if *is_own {
                sql.push_str(" AND NOT (");
                table.push_key(self.tenant_of(image), key.iter(), &mut sql, &mut params)?;
                sql.push(')');
            }
            sql.push_str(" LIMIT 1");
            if self.conn.exists(&sql, params_from_iter(params.iter()))? {
                return Ok(Some(of));
            }
        }
        Ok(None)
    }

    fn references(&self, table: &Table) -> Result<Vec<Reference>, Stop> {
        let mut statement = self.conn.prepare_cached(REFERRING)?;
        let mut rows = statement.query([&table.collection.table])?;
        let (mut found, mut last): (Vec<Reference>, _) = (Vec::new(), None);
        while let Some(row) = rows.next()? {
            let id: (String, i64) = (row.get(0)?, row.get(1)?);
            let (own, theirs) = (row.get::<_, String>(2)?, row.get::<_, Option<String>>(3)?);
            if last.as_ref() != Some(&id) {
                let is_own = id.0.eq_ignore_ascii_case(&table.collection.table);
                let of = id.0.clone();
                found.push(Reference { of, is_own, own: Vec::new(), theirs: Vec::new() });
            }
            // A table without a primary key cannot be referred to without naming columns.
            if let (Some(of), Some(theirs)) = (found.last_mut(), theirs) {
                of.own.push(quote(&own));
                of.theirs.push(quote(&theirs));
            }
            last = Some(id);
        }
        // Where there is no foreign key, the mapping may say what goes with a row.
        for name in &table.collection.dependants {
            let Ok(other) = self.mapping.table(name) else { continue };
            let quoted = |tenant: Option<&str>, names: &[String]| {
                let names = names.iter().map(|name| quote(name));
                tenant.map(str::to_owned).into_iter().chain(names).collect::<Vec<_>>()
            };
            let tenants = other.tenant().zip(table.tenant());
            for anchor in other.collection.anchors_in(&table.collection.name) {
                let (of, is_own) = (other.collection.table.clone(), other.name == table.name);
                let own = quoted(tenants.map(|(own, _)| own), &anchor.columns);
                let theirs = quoted(tenants.map(|(_, theirs)| theirs), &table.collection.key);
                found.push(Reference { of, is_own, own, theirs });
            }
        }
        found.retain(|reference| !reference.own.is_empty());
        Ok(found)
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
    fn keep_undone(&mut self, one: Undone, images: &[BeforeImage]) -> Result<(), Stop> {
        let tenant = self.tenant;
        let Some(kept) = &mut self.images else { return Ok(()) };
        match one {
            Undone::Back(at) => {
                let image = &images[at];
                kept.push_back(self.mapping.table(&image.collection)?, tenant, &image.stored)
            }
            Undone::Changed { collection, key, before, left } => {
                let table = self.mapping.table(&collection)?;
                kept.push_undone(table, tenant, (key, before), &left)
            }
        }
    }
}

/// Foreign keys that delete or change rows by themselves when a row of a table is deleted. Without named columns,
/// they refer to the primary key.
const REFERRING: &str = "SELECT s.name, f.id, f.\"from\",
    coalesce(f.\"to\", (SELECT k.name FROM pragma_table_info(?1) k WHERE k.pk = f.seq + 1))
  FROM sqlite_schema s JOIN pragma_foreign_key_list(s.name) f
  WHERE s.type = 'table' AND lower(f.\"table\") = lower(?1)
    AND upper(f.on_delete) IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
  ORDER BY s.name, f.id, f.seq";

/// Whether a table has triggers: what they change after a statement is not in its answer, and they may keep rows.
pub(super) fn is_triggered(conn: &Connection, table: &str) -> Job<bool> {
    Ok(conn.exists(
        "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)",
        [table],
    )?)
}

/// Why a row is not written where a trigger may roll back what others have written.
const ROLLS_BACK: &str = "a trigger of its table may roll back the whole transaction (RAISE(ROLLBACK)), and all other \
                          rows with it: drop the trigger, or let it RAISE(ABORT), then undo it again";

/// The triggers of a table, as they were created.
fn triggers(conn: &Connection, table: &str) -> Job<Vec<String>> {
    Ok(conn.all(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)",
        [table],
        |r| r.get(0),
    )?)
}

/// The events whose triggers contain `RAISE(ROLLBACK)`.
fn rolling_back(triggers: &[String]) -> Vec<Event> {
    let mut events = Vec::new();
    for sql in triggers {
        let letters: String = sql.chars().filter(|c| !c.is_whitespace()).collect();
        let letters = letters.to_ascii_uppercase();
        if !letters.contains("RAISE(ROLLBACK") {
            continue;
        }
        // The names before the event may contain its word: then the trigger counts for it as well.
        let head = letters.split("BEGIN").next().unwrap_or_default();
        for (event, words) in [
            (Event::Insert, &["INSERTON"][..]),
            (Event::Update, &["UPDATEON", "UPDATEOF"]),
            (Event::Delete, &["DELETEON"]),
        ] {
            if words.iter().any(|word| head.contains(word)) {
                events.push(event);
            }
        }
    }
    events
}

/// The columns that can be written; none: there is no such table.
fn writable_of(conn: &Connection, table: &str) -> Job<Vec<String>> {
    Ok(conn.all(
        "SELECT name FROM pragma_table_xinfo(?1)
         WHERE hidden = 0 AND EXISTS (SELECT 1 FROM pragma_table_list(?1)
           WHERE schema = 'main' AND type IN ('table', 'virtual'))",
        [table],
        |r| r.get(0),
    )?)
}

/// The key of a row in a table: its own, or that of its copy.
fn key_in(table: &Table, image: &BeforeImage) -> RowKey {
    restore::key_in(image, &table.collection, |name, column| {
        let stored = image.stored.iter().find(|field| DIALECT.same(&field.name, name))?;
        Some(of_kept(column, false, &stored.value))
    })
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
    match garbled {
        Some(bytes) => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
        None => raw_cell(value),
    }
}

/// Whether each column is written, and the statement that inserts rows with those that are.
type Insert<'c> = (Vec<bool>, CachedStatement<'c>);

/// Executes an insert of these rows.
fn inserted<'s>(
    statement: &'s mut CachedStatement<'_>,
    each: &[bool],
    images: &[&BeforeImage],
) -> rusqlite::Result<Rows<'s>> {
    let fields = || {
        let all = images.iter().flat_map(|image| image.stored.iter().zip(each));
        all.filter(|(_, written)| **written)
    };
    let garbled: Vec<Option<Vec<u8>>> = fields().map(|(field, _)| garbled(&field.value)).collect();
    let params: Params<'_> =
        fields().zip(&garbled).map(|((f, _), bytes)| cell(&f.value, bytes.as_deref())).collect();
    statement.query(params_from_iter(params.iter()))
}

/// Inserts a row. `None`: it was not inserted; the inner none: it is stored exactly as it was kept.
fn put(
    statement: &mut CachedStatement<'_>,
    each: &[bool],
    image: &BeforeImage,
) -> rusqlite::Result<Option<Option<Vec<Field>>>> {
    let mut rows = inserted(statement, each, &[image])?;
    let after = match rows.next()? {
        None => None,
        Some(row) if is_as_kept(row, &image.stored)? => Some(None),
        Some(row) => Some(Some(fields_of(row)?)),
    };
    while rows.next()?.is_some() {}
    Ok(after)
}

/// Inserts rows; whether each is stored exactly as it was kept.
fn are_put(
    statement: &mut CachedStatement<'_>,
    each: &[bool],
    images: &[&BeforeImage],
) -> rusqlite::Result<bool> {
    let mut rows = inserted(statement, each, images)?;
    let mut all = images.iter();
    while let Some(row) = rows.next()? {
        match all.next() {
            Some(image) if is_as_kept(row, &image.stored)? => {}
            _ => return Ok(false),
        }
    }
    Ok(all.next().is_none())
}

/// Whether a row has exactly these columns with these values. Nothing of it is copied. (A text that is not UTF-8 is
/// compared elsewhere.)
fn is_as_kept(row: &Row<'_>, stored: &[Field]) -> rusqlite::Result<bool> {
    let statement = row.as_ref();
    if statement.column_count() != stored.len() {
        return Ok(false);
    }
    for (at, field) in stored.iter().enumerate() {
        let is_same = match (row.get_ref(at)?, &field.value) {
            (ValueRef::Null, Value::Null) => true,
            (ValueRef::Integer(now), Value::Integer(kept)) => now == *kept,
            (ValueRef::Real(now), Value::Float(kept)) => now == *kept,
            (ValueRef::Text(now), Value::Text(kept)) => now == kept.as_bytes(),
            (ValueRef::Blob(now), Value::Bytes(kept)) => now == kept.as_slice(),
            _ => false,
        };
        if !is_same || statement.column_name(at)? != field.name {
            return Ok(false);
        }
    }
    Ok(true)
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
