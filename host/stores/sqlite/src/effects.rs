//! The effects of one item: applies its changes in order, and keeps the before-images.

use besom_core::brake::Dependants;
use besom_core::collection::Anchor;
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::value::{Field, RowKey, Value};
use besom_snapshot::Cause;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, params_from_iter};

use super::error::{Failure, is_violation};
use super::lookup::weight;
use super::mapping::{Mapping, Params, Refusal, Table, push_quoted, quote};
use super::questions::Questions;
use super::range_change::{affinity, is_sum};
use super::restore::Ahead;
use super::statements::Statements;
use super::stored;
use super::values::{lent_cells, names_of};
use super::writer::Tx;
use besom_ports::store::{Error, Given, Left, Restored};
use besom_record::images::{Broken, End, Images};
use besom_record::{Refused, increased, kept};
use besom_tables::room::Room;

/// Why an item's effects stop.
#[derive(Debug)]
pub(super) enum Stop {
    /// The item's own fault: a constraint, a type, a missing row.
    Violation(String),
    /// The infrastructure's fault.
    Failure(Failure),
}

impl From<rusqlite::Error> for Stop {
    fn from(e: rusqlite::Error) -> Stop {
        if is_violation(&e) { Stop::Violation(e.to_string()) } else { Stop::Failure(e.into()) }
    }
}

impl From<Failure> for Stop {
    fn from(e: Failure) -> Stop {
        match e {
            Failure::Sql(e) => e.into(),
            other => Stop::Failure(other),
        }
    }
}

impl From<Broken> for Stop {
    fn from(e: Broken) -> Stop {
        Stop::Failure(e.into())
    }
}

impl From<String> for Stop {
    fn from(said: String) -> Stop {
        Stop::Violation(said)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        match refusal {
            Refusal::Said(said) => Stop::Violation(said),
            Refusal::Unlike(unlike) => Stop::Failure(Failure::Unlike(unlike)),
        }
    }
}

/// The state of one item's effects.
pub(super) struct Effects<'a> {
    pub(super) conn: &'a Connection,
    pub(super) questions: &'a Questions,
    pub(super) mapping: &'a Mapping,
    pub(super) tenant: Option<&'a Tenant>,
    /// What was kept of the rows that the commit puts back.
    pub(super) ahead: &'a Ahead,
    /// The before-images; none: they are not kept.
    pub(super) images: Option<Kept<'a>>,
    /// Whether a statement of this item may have changed anything. Even a statement that fails or
    /// changes no row may: `ON CONFLICT FAIL` and `RAISE(FAIL)` keep the rows before the one that
    /// failed, and a trigger may write elsewhere before it keeps a row.
    pub(super) dirty: bool,
    /// The number of rows that were changed.
    pub(super) rows: u64,
    /// Those of them that were deleted as dependants of others.
    pub(super) dependants: Dependants,
    /// The rows of ranges that could not be changed.
    pub(super) refused: Refused,
    /// What became of rows that were put back.
    pub(super) restored: Option<Restored>,
    /// Whether the item only deletes one row, which a guard has seen.
    pub(super) sole_delete: bool,
    /// Whether rows of ranges that cannot be changed are left as they are.
    pub(super) rows_may_stay: bool,
}

/// The before-images of one item, and the room for them in its commit.
pub(super) struct Kept<'a> {
    images: Images,
    room: Room,
    /// Rows that a guard has read and a change is about to replace.
    guarded: Vec<Guarded<'a>>,
}

struct Guarded<'a> {
    collection: &'a str,
    key: &'a [Value],
    row: Whole,
}

/// A row with all its columns as they are stored.
struct Whole {
    names: Vec<String>,
    values: Vec<Value>,
}

impl Whole {
    fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Whole> {
        let names = names_of(row).map(|(name, _)| name.to_owned()).collect();
        let values = lent_cells(row)?.into_iter().map(Value::from).collect();
        Ok(Whole { names, values })
    }
}

impl<'a> Effects<'a> {
    pub(super) fn new(
        tx: &Tx<'a>,
        mapping: &'a Mapping,
        (tenant, ahead): (Option<&'a Tenant>, &'a Ahead),
        images: Option<Kept<'a>>,
    ) -> Effects<'a> {
        Effects {
            conn: tx.conn,
            questions: tx.questions,
            mapping,
            tenant,
            ahead,
            images,
            rows: 0,
            dependants: Dependants::new(),
            refused: Refused::default(),
            restored: None,
            sole_delete: false,
            rows_may_stay: false,
            dirty: false,
        }
    }

    /// Decides whether a value of another kind is the fault of its item or of the mapping.
    pub(super) fn judged<T>(&self, done: Result<T, Stop>) -> Result<T, Stop> {
        let Err(Stop::Failure(Failure::Unlike(unlike))) = done else { return done };
        let table = self.mapping.table(&unlike.collection)?;
        Err(match stored::judged(self.conn, table, unlike)? {
            Error::Invalid(said) => Stop::Violation(said),
            error => Stop::Failure(error.into()),
        })
    }

    /// Applies one change.
    pub(super) fn apply(&mut self, change: &'a Change) -> Result<(), Stop> {
        let applied = self.try_to_apply(change);
        self.judged(applied)
    }

    fn try_to_apply(&mut self, change: &'a Change) -> Result<(), Stop> {
        let mapping = self.mapping;
        match change {
            Change::Insert { collection, fields } => {
                self.insert(mapping.table(collection)?, fields, false)
            }
            Change::Upsert { collection, fields } => {
                self.insert(mapping.table(collection)?, fields, true)
            }
            Change::Update { collection, key, fields } => {
                self.update(mapping.table(collection)?, key, fields, false)
            }
            Change::Increment { collection, key, fields } => {
                self.update(mapping.table(collection)?, key, fields, true)
            }
            Change::Delete { collection, key } => {
                let table = mapping.table(collection)?;
                let (mut condition, mut params) = (String::new(), Vec::new());
                table.push_key(self.tenant, key.iter(), &mut condition, &mut params)?;
                let deleted = self.delete_where(table, &condition, &params)?;
                let name = &table.collection.name;
                match deleted {
                    0 if self.sole_delete => Err(Stop::Violation(kept(name))),
                    0 | 1 => Ok(()),
                    _ => Err(Stop::Violation(table.collection.ambiguous())),
                }
            }
            Change::DeleteReadSet(set) => self.delete_read_set(set),
            Change::DeleteRange(_) | Change::UpdateRange { .. } | Change::MoveRange { .. } => {
                match change.of_range() {
                    Some((range, fate)) => self.change_range(range, fate),
                    None => Ok(()),
                }
            }
            Change::Restore(restore) => {
                self.restored = Some(self.restore(restore)?);
                Ok(())
            }
            // The books put it into the outbox.
            Change::Emit { .. } => Ok(()),
        }
    }

    fn insert(&mut self, table: &Table, fields: &[Field], upsert: bool) -> Result<(), Stop> {
        let key: Option<RowKey> = table
            .collection
            .key
            .iter()
            .map(|name| fields.iter().find(|f| f.name == *name).map(|f| f.value.clone()))
            .collect();
        if upsert && key.is_none() {
            let name = &table.collection.name;
            return Err(Stop::Violation(format!("an upsert into {name:?} needs the whole key")));
        }
        let before = match (&key, upsert) {
            (Some(key), true) => self.row_before(table, key)?,
            _ => None,
        };
        let mut sql = format!("INSERT INTO {} (", table.name);
        let mut params: Params<'_> = Vec::with_capacity(fields.len() + 1);
        if let Some(tenant) = table.tenant() {
            table.push_tenant(self.tenant, &mut String::new(), &mut params)?;
            sql.push_str(tenant);
        }
        for field in fields {
            sql.push_str(if params.is_empty() { "" } else { ", " });
            push_quoted(&field.name, &mut sql);
            params.push(table.written(field)?);
        }
        sql.push_str(") VALUES (?");
        sql.push_str(&", ?".repeat(params.len().saturating_sub(1)));
        sql.push(')');
        if upsert {
            sql.push_str(&on_conflict(table, fields));
        } else if key.is_none() {
            sql.push_str(" RETURNING ");
            let columns: Vec<_> = table.collection.key.iter().map(|k| quote(k)).collect();
            sql.push_str(&columns.join(", "));
        }
        let mut statement = self.conn.prepare_cached(&sql)?;
        self.dirty = true;
        self.rows += 1;
        let key = match key {
            Some(key) => {
                let changed = statement.execute(params_from_iter(params.iter()))?;
                if changed == 0 && !upsert {
                    return Err(Stop::Violation("the row was not inserted".into()));
                }
                key
            }
            None => {
                let columns = &table.collection.key;
                let mut rows = statement.query(params_from_iter(params.iter()))?;
                let Some(row) = rows.next()? else {
                    return Err(Stop::Violation("the row was not inserted".into()));
                };
                let mut key = RowKey::with_capacity(columns.len());
                for (i, name) in columns.iter().enumerate() {
                    key.push(super::values::decode(table.form(name)?, row.get_ref(i)?));
                }
                // The statement has to end here; otherwise its change would not be counted as done.
                while rows.next()?.is_some() {}
                key
            }
        };
        if let Some(kept) = &mut self.images {
            let left = Left::Set(fields.to_vec());
            match before {
                Some(before) => kept.add(table, self.tenant, &left, &before)?,
                None => kept.images.push_absent(table.origin(self.tenant), &left, key)?,
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        table: &Table,
        key: &[Value],
        fields: &[Field],
        increment: bool,
    ) -> Result<(), Stop> {
        if fields.is_empty() {
            return Err(Stop::Violation("an update without columns".into()));
        }
        let mut sql = format!("UPDATE {} SET ", table.name);
        let mut params: Params<'_> = Vec::with_capacity(fields.len() + key.len() + 1);
        for (i, field) in fields.iter().enumerate() {
            sql.push_str(if i == 0 { "" } else { ", " });
            push_quoted(&field.name, &mut sql);
            sql.push_str(" = ");
            if increment {
                let Value::Integer(by) = field.value else {
                    let name = &field.name;
                    return Err(Stop::Violation(format!(
                        "the increment of {name} is not an integer"
                    )));
                };
                table.written(field)?;
                params.push(ToSqlOutput::from(by));
                push_quoted(&field.name, &mut sql);
                sql.push_str(" + ?");
            } else {
                params.push(table.written(field)?);
                sql.push('?');
            }
        }
        sql.push_str(" WHERE ");
        table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
        if increment {
            // SQLite would leave NULL unchanged and convert an overflow to a float.
            for field in fields {
                sql.push_str(" AND ");
                sql.push_str(&is_sum(&field.name));
                params.push(table.written(field)?);
            }
        }
        if let Some(before) = self.row_before(table, key)?
            && let Some(kept) = &mut self.images
        {
            let left = Left::Set(match increment {
                true => increased(fields, &before.names, &before.values),
                false => fields.to_vec(),
            });
            kept.add(table, self.tenant, &left, &before)?;
        }
        self.dirty = true;
        let changed = self.conn.run(&sql, params_from_iter(params.iter()))?;
        self.rows += changed as u64;
        let name = &table.collection.name;
        if changed > 1 {
            return Err(Stop::Violation(table.collection.ambiguous()));
        }
        if changed == 0 {
            let or =
                if increment { ", or its column is null or would overflow 64 bits" } else { "" };
            return Err(Stop::Violation(format!("{name:?} has no such row to update{or}")));
        }
        Ok(())
    }

    /// Deletes the rows of a condition, after those that go with them and after keeping their images;
    /// returns their number.
    pub(super) fn delete_where(
        &mut self,
        table: &Table,
        condition: &str,
        params: &Params<'_>,
    ) -> Result<usize, Stop> {
        if table.collection.dependants.is_empty() {
            return self.delete_rows(table, condition, params, &Left::Gone);
        }
        let found = self.count(table, condition, params)?;
        self.delete_dependants(table, condition, params)?;
        match self.delete_rows(table, condition, params, &Left::Gone)? {
            // A trigger may keep a row, whose dependants are gone.
            deleted if deleted < found => Err(Stop::Violation(kept(&table.collection.name))),
            deleted => Ok(deleted),
        }
    }

    /// Deletes the rows that go with those of a condition, the last ones first.
    pub(super) fn delete_dependants(
        &mut self,
        table: &Table,
        condition: &str,
        params: &Params<'_>,
    ) -> Result<(), Stop> {
        let mapping = self.mapping;
        for name in &table.collection.dependants {
            let dependant = mapping.table(name)?;
            // A row that refers to it in two ways goes with the first.
            for anchor in dependant.collection.anchors_in(&table.collection.name) {
                self.compares_alike(table, dependant, anchor)?;
                let list = |tenant: Option<&str>, columns: &[String]| {
                    let columns = columns.iter().map(|name| quote(name));
                    let all = tenant.map(str::to_owned).into_iter().chain(columns);
                    all.collect::<Vec<_>>().join(", ")
                };
                let own = list(dependant.tenant(), &anchor.columns);
                let theirs = list(table.tenant(), &table.collection.key);
                let condition =
                    format!("({own}) IN (SELECT {theirs} FROM {} WHERE {condition})", table.name);
                self.delete_dependants(dependant, &condition, params)?;
                let before = self.rows;
                self.delete_rows(dependant, &condition, params, &Left::Gone)?;
                let went = self.rows - before;
                if went > 0 {
                    *self.dependants.entry(name.clone()).or_default() += went;
                }
            }
        }
        Ok(())
    }

    /// Refuses a dependant whose columns are compared otherwise here than by the foreign key, which uses the collation
    /// and the affinity of the columns that it refers to. No item's fault.
    fn compares_alike(
        &self,
        table: &Table,
        dependant: &Table,
        anchor: &Anchor,
    ) -> Result<(), Stop> {
        let found = |of: &Table, name: &str| {
            let (ty, collation, ..) =
                self.conn.column_metadata(Some("main"), of.collection.table.as_str(), name)?;
            let text = |text: Option<&std::ffi::CStr>| {
                text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
            };
            Ok::<_, rusqlite::Error>((text(ty), text(collation).to_uppercase()))
        };
        for (own, theirs) in anchor.columns.iter().zip(&table.collection.key) {
            let (of, to) = (found(dependant, own)?, found(table, theirs)?);
            if of.1 != to.1 || affinity(&of.0) != affinity(&to.0) {
                let said = format!(
                    "rows of {:?} cannot go with rows of {:?}: {own} ({} {}) is not compared as {theirs} ({} {}) is; \
                     declare both alike",
                    dependant.collection.name, table.collection.name, of.0, of.1, to.0, to.1
                );
                return Err(Stop::Failure(Error::Refused(Cause::Schema, said).into()));
            }
        }
        Ok(())
    }

    /// Deletes the rows of a condition after keeping their images; returns their number.
    pub(super) fn delete_rows(
        &mut self,
        table: &Table,
        condition: &str,
        params: &Params<'_>,
        left: &Left,
    ) -> Result<usize, Stop> {
        if let Some(kept) = &mut self.images {
            kept.forget(&table.collection.name);
            let whole = table.whole(self.conn)?;
            let sql = format!("SELECT {whole} FROM {} WHERE {condition}", table.name);
            self.conn.each(&sql, params_from_iter(params.iter()), |row| {
                kept.push(table, self.tenant, left, row)
            })?;
        }
        // A row that refers to another one of them may go with that one, which SQLite does not count.
        let accepts = table.collection.accept_cascades;
        let found = if accepts { self.count(table, condition, params)? } else { 0 };
        let sql = format!("DELETE FROM {} WHERE {condition}", table.name);
        self.dirty = true;
        let mut deleted = self.conn.run(&sql, params_from_iter(params.iter()))?;
        if accepts {
            deleted = found.saturating_sub(self.count(table, condition, params)?);
        }
        self.rows += deleted as u64;
        Ok(deleted)
    }

    fn count(&self, table: &Table, condition: &str, params: &Params<'_>) -> Result<usize, Stop> {
        let sql = format!("SELECT count(*) FROM {} WHERE {condition}", table.name);
        Ok(self.conn.one(&sql, params_from_iter(params.iter()), |row| row.get(0))?)
    }

    /// The current row, if before-images are kept. What a guard has kept of it is used up, because the
    /// row changes afterwards.
    fn row_before(&mut self, table: &Table, key: &[Value]) -> Result<Option<Whole>, Stop> {
        let Some(kept) = &mut self.images else { return Ok(None) };
        let name = table.collection.name.as_str();
        if let Some(at) = kept.place(name, key) {
            return Ok(Some(kept.guarded.swap_remove(at).row));
        }
        let mut sql = format!("SELECT {} FROM {} WHERE ", table.whole(self.conn)?, table.name);
        let mut params = Vec::new();
        table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
        self.conn.first(&sql, params_from_iter(params.iter()), |row| {
            kept.take(row)?;
            Ok(Whole::of(row)?)
        })
    }
}

impl<'a> Kept<'a> {
    /// None yet, with the room that the items before it have left.
    pub(super) fn new(room: Room) -> Kept<'a> {
        Kept { images: Images::default(), room, guarded: Vec::new() }
    }

    /// Uses the room of a row, before it is copied.
    fn take(&mut self, row: &rusqlite::Row<'_>) -> Result<(), Stop> {
        let bytes = weight(row, row.as_ref().column_count())?;
        self.room.take(bytes).map_err(|full| Stop::Failure(full.into()))
    }

    /// Adds a row with all its columns, before or while it is changed.
    pub(super) fn push(
        &mut self,
        table: &Table,
        tenant: Option<&Tenant>,
        left: &Left,
        row: &rusqlite::Row<'_>,
    ) -> Result<(), Stop> {
        self.take(row)?;
        Ok(self.images.push(table.origin(tenant), left, names_of(row), &lent_cells(row)?)?)
    }

    /// Adds a row that was read before.
    fn add(
        &mut self,
        table: &Table,
        tenant: Option<&Tenant>,
        left: &Left,
        row: &Whole,
    ) -> Result<(), Stop> {
        let names = row.names.iter().map(|name| (name.as_str(), false));
        Ok(self.images.push(table.origin(tenant), left, names, &row.values)?)
    }

    /// Adds a row that putting it back has changed, or its key if there was none.
    pub(super) fn push_undone(
        &mut self,
        table: &Table,
        tenant: Option<&Tenant>,
        (key, before): (RowKey, Option<Vec<Field>>),
        left: &Left,
    ) -> Result<(), Stop> {
        let fields = before.iter().flatten().chain(match left {
            Left::As(fields) => fields.iter(),
            _ => [].iter(),
        });
        let bytes = fields.map(|field| field.value.weight()).sum();
        self.room.take(bytes).map_err(|full| Stop::Failure(full.into()))?;
        let Some(row) = before else { return self.push_absent(table, tenant, left, key) };
        let names = row.iter().map(|field| (field.name.as_str(), false));
        let values: Vec<&Value> = row.iter().map(|field| &field.value).collect();
        Ok(self.images.push(table.origin(tenant), left, names, &values)?)
    }

    /// Adds a row that was inserted with these values of all columns of its table.
    pub(super) fn push_back(
        &mut self,
        table: &Table,
        tenant: Option<&Tenant>,
        row: &[Field],
    ) -> Result<(), Stop> {
        let bytes = row.iter().map(|field| field.value.weight()).sum();
        self.room.take(bytes).map_err(|full| Stop::Failure(full.into()))?;
        let names = row.iter().map(|field| (field.name.as_str(), false));
        let values: Vec<&Value> = row.iter().map(|field| &field.value).collect();
        Ok(self.images.push_inserted(table.origin(tenant), names, &values)?)
    }

    /// The present end of the images and the room that is left, for [`Kept::rewind`].
    pub(super) fn end(&self) -> (End, Room) {
        (self.images.end(), self.room.clone())
    }

    /// Removes the images that were added since.
    pub(super) fn rewind(&mut self, (end, room): (End, Room)) {
        self.images.rewind(&end);
        self.room = room;
    }

    /// Forgets the rows of a collection that guards have read.
    pub(super) fn forget(&mut self, collection: &str) {
        self.guarded.retain(|row| row.collection != collection);
    }

    fn place(&self, collection: &str, key: &[Value]) -> Option<usize> {
        self.guarded.iter().position(|row| row.collection == collection && row.key == key)
    }

    /// Whether a guard has kept this row already.
    pub(super) fn has(&self, collection: &str, key: &[Value]) -> bool {
        self.place(collection, key).is_some()
    }

    /// Keeps a row for [`Effects::row_before`], so that one read serves guard and before-image.
    pub(super) fn keep(
        &mut self,
        (collection, key): (&'a str, &'a [Value]),
        row: &rusqlite::Row<'_>,
    ) -> Result<(), Stop> {
        self.take(row)?;
        self.guarded.push(Guarded { collection, key, row: Whole::of(row)? });
        Ok(())
    }

    /// Adds the key of a row that did not exist.
    pub(super) fn push_absent(
        &mut self,
        table: &Table,
        tenant: Option<&Tenant>,
        left: &Left,
        key: RowKey,
    ) -> Result<(), Stop> {
        Ok(self.images.push_absent(table.origin(tenant), left, key)?)
    }

    /// The packed images of an item of this version, which was given this, and the room that is left.
    pub(super) fn pack(self, version: &str, given: Option<&Given>) -> (Vec<u8>, Room) {
        (self.images.pack(version, given), self.room)
    }
}

fn on_conflict(table: &Table, fields: &[Field]) -> String {
    let mut target: Vec<String> = table.tenant().map(str::to_owned).into_iter().collect();
    target.extend(table.collection.key.iter().map(|k| quote(k)));
    let set: Vec<String> = fields
        .iter()
        .filter(|f| !table.collection.key.iter().any(|name| f.name == *name))
        .map(|f| format!("{0} = excluded.{0}", quote(&f.name)))
        .collect();
    let action = if set.is_empty() {
        "NOTHING".to_owned()
    } else {
        format!("UPDATE SET {}", set.join(", "))
    };
    format!(" ON CONFLICT ({}) DO {action}", target.join(", "))
}
