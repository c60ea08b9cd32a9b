//! Rows are put back as they were kept ([`besom_record::restore`]): many rows by one statement, under a savepoint.
//!
//! A value is passed in the spelling in which the database gave it, with a cast to the type of its column. Rows whose
//! keys or unique values are taken are left out by the statement itself; another error refuses the statement.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use besom_core::collection::Operations;
use besom_core::ids::Tenant;
use besom_core::proposal::{Again, Restore};
use besom_core::purge::note;
use besom_core::value::{Field, RowKey, Value};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::catalog::{self, ColumnFound};
use super::check::triggers;
use super::conditions::Conditions;
use super::error::{Failure, Fault, Job, fault, invalid, words};
use super::guards::matched;
use super::mapping::{Mapping, Table, quote};
use super::scene::{Reference, Scene, Sight};
use super::session::{Param, Pipeline, Session, cell, params};
use super::set::Set;
use super::values::{Cell, Wire};
use super::whole::of_kept;
use besom_ports::store::{BeforeImage, KeptItem, Restored, UNDO_GRANTS};
use besom_record::images::{Images, outline, unpack_declared};
use besom_record::restore::{
    self, ASTRAY, Answer, Ask, Did, Earlier, Ended, Found, Kin, REMOVED, Restoring, Undone, absent,
    compared, lost, nothing, unmapped,
};

/// The condition of the rows that a partition of a table takes; NULL: it has none.
const PARTITIONS: &str =
    "SELECT string_agg('(' || pg_get_partition_constraintdef(p.relid) || ')', ' OR ')
  FROM pg_partition_tree($1::oid::regclass) p WHERE p.isleaf";

/// What is kept of an item.
pub(super) async fn kept(session: &Session, history: u64) -> Job<Option<KeptItem>> {
    Ok(packed(session, history).await?.as_deref().map(outline).transpose()?)
}

async fn packed(session: &Session, history: u64) -> Job<Option<Vec<u8>>> {
    let id = i64::try_from(history).unwrap_or(i64::MAX);
    let sql = "SELECT undo FROM @.history WHERE id = $1";
    Ok(session.maybe(sql, params![id], cell).await?.flatten())
}

/// Puts rows back in a transaction that is rolled back.
pub(super) async fn rehearse(
    session: &mut Session,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    restore: &Restore,
) -> Job<Restored> {
    session.begin(Pipeline::default()).await?;
    let done = rehearsed(session, mapping, tenant, restore).await;
    session.rollback().await;
    done
}

async fn rehearsed(
    session: &Session,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    restore: &Restore,
) -> Job<Restored> {
    let scene = Scene::of(session, mapping, &[restore]).await?;
    let mut restored = apply(session, (mapping, &scene), tenant, (restore, None)).await?.restored;
    let may = Operations { read: true, insert: true, update: true, delete: true };
    for name in &restore.collections {
        let Some(found) = mapping.table(name).ok().and_then(|table| table.found.as_ref()) else {
            continue;
        };
        let all = triggers(session, found.oid, may).await?;
        restored.triggers.extend(all.into_iter().map(|trigger| format!("{trigger} on {name}")));
    }
    Ok(restored)
}

/// What was kept of an item; none: it is kept no longer.
pub(super) type Kept = Option<(Vec<BeforeImage>, BTreeMap<String, u64>)>;

/// The rows of a packed record, and how the columns of their tables were declared.
pub(super) fn unpacked(packed: Option<Vec<u8>>) -> Job<Kept> {
    Ok(packed.as_deref().map(|packed| unpack_declared(packed, of_kept)).transpose()?)
}

/// Puts back the rows of a history row, as far as nobody has changed them since; `kept` is what was kept of it, if
/// that was read already.
pub(super) async fn apply(
    session: &Session,
    (mapping, scene): (&Mapping, &Scene),
    tenant: Option<&Tenant>,
    (restore, kept): (&Restore, Option<Kept>),
) -> Job<Ended> {
    let nothing =
        |why: &str| Ok(Ended { restored: nothing(why), undone: Vec::new(), images: Vec::new() });
    if restore.again == Again::Only {
        let restored = Restored::default();
        return Ok(Ended { restored, undone: Vec::new(), images: Vec::new() });
    }
    let kept = match kept {
        Some(kept) => kept,
        None => unpacked(packed(session, restore.history).await?)?,
    };
    let Some((images, declared)) = kept else { return nothing(REMOVED) };
    let (mut notes, mut tables) = (Vec::new(), Vec::new());
    for name in &restore.collections {
        let Ok(table) = mapping.table(name) else {
            return nothing(&unmapped(name));
        };
        let Some(found) = &table.found else {
            return nothing(&absent(&table.collection.table));
        };
        tables.push(&table.collection);
        let of = images.iter().find(|image| image.collection == *name && !image.stored.is_empty());
        let columns = of.into_iter().flat_map(|image| &image.stored).map(|field| &*field.name);
        let gone: Vec<&str> = columns.filter(|column| found.column(column).is_none()).collect();
        notes.extend(lost(name, &gone));
    }
    let mut earlier = Earlier::default();
    for (history, count) in restore.attempts() {
        let changed = unpacked(packed(session, history).await?)?;
        earlier.add(&changed.unwrap_or_default().0, count);
    }
    let kin = Kin::of(tables.into_iter());
    let mut restoring = Restoring::new(images, restore, earlier, kin);
    let is_refusing = AtomicBool::new(false);
    let of = &restore.collections;
    let tables = of.iter().filter_map(|name| mapping.table(name).ok());
    let is_careful = !tables.into_iter().all(|table| scene.is_plain(table));
    let back = Back { session, mapping, scene, tenant, of, is_careful, declared, is_refusing };
    while let Some(ask) = restoring.ask() {
        let answer = back.asked(ask).await?;
        restoring.answer(answer);
    }
    let mut ended = restoring.end();
    ended.restored.notes.extend(notes);
    ended.restored.notes.extend(note(restore.purged));
    Ok(ended)
}

/// What was changed by putting rows back, so that it can be undone as well.
pub(super) fn images_of(mapping: &Mapping, tenant: Option<&Tenant>, ended: Ended) -> Job<Images> {
    let mut images = Images::default();
    for undone in ended.undone {
        let (collection, key, before, left) = match undone {
            Undone::Back(at) => {
                let image = &ended.images[at];
                let table = mapping.table(&image.collection).map_err(invalid)?;
                let values: Vec<&Value> = image.stored.iter().map(|field| &field.value).collect();
                images.push_inserted(table.origin(tenant), table.whole.names(), &values)?;
                continue;
            }
            Undone::Changed { collection, key, before, left } => (collection, key, before, left),
        };
        let table = mapping.table(&collection).map_err(invalid)?;
        let origin = table.origin(tenant);
        let Some(row) = before else {
            images.push_absent(origin, &left, key)?;
            continue;
        };
        let padded: BTreeMap<&str, bool> = table.whole.names().collect();
        let names = row.iter().map(|field| {
            let name = field.name.as_str();
            (name, padded.get(name).copied().unwrap_or_default())
        });
        let values: Vec<&Value> = row.iter().map(|field| &field.value).collect();
        images.push(origin, &left, names, &values)?;
    }
    Ok(images)
}

/// Whether this role lacks a privilege. That keeps the rows away, and nothing else: others wait in the same stream.
fn is_denied(e: &tokio_postgres::Error) -> bool {
    e.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

/// Whether this role lacks a privilege on a table or column of the statement itself: the server has looked at no row. A
/// policy or a function of a trigger may deny some rows alone.
fn is_denied_for_all(e: &tokio_postgres::Error) -> bool {
    let by_check = |said: &tokio_postgres::error::DbError| {
        said.routine() == Some("aclcheck_error") && said.where_().is_none()
    };
    is_denied(e) && e.as_db_error().is_some_and(by_check)
}

/// Whether the database has refused a statement for its rows, or for what it is.
fn is_refusal(e: &tokio_postgres::Error) -> bool {
    let is_said = e.as_db_error().is_some();
    fault(e) == Fault::Item || is_denied(e) || is_said && fault(e) == Fault::Program
}

/// Whether this may be the error of a row that no partition of its table takes. A check that a row violates has a name.
fn has_no_partition(e: &tokio_postgres::Error) -> bool {
    let has_name = e.as_db_error().is_some_and(|e| e.constraint().is_some());
    e.code() == Some(&SqlState::CHECK_VIOLATION) && !has_name
}

/// Why the database refuses a statement.
struct Denial {
    said: String,
    /// See [`has_no_partition`].
    has_no_partition: bool,
    /// Whether it is refused whatever its rows are.
    for_all: bool,
}

impl Denial {
    fn answer(self) -> Answer {
        match self.for_all {
            true => Answer::Denied(self.said),
            false => Answer::Refused(self.said),
        }
    }
}

/// Minimum number of rows that are inserted without looking for rows that have their keys.
const OPTIMISTIC_MIN: usize = 64;

struct Back<'a> {
    session: &'a Session,
    mapping: &'a Mapping,
    scene: &'a Scene,
    tenant: Option<&'a Tenant>,
    /// The collections whose rows are put back.
    of: &'a [String],
    /// Whether a statement may be refused before it is executed, because of a rule or a view: then the savepoint has to
    /// be there before the statement is prepared.
    is_careful: bool,
    /// How the columns of each collection were declared when its rows were kept.
    declared: BTreeMap<String, u64>,
    /// Whether a statement was refused.
    is_refusing: AtomicBool,
}

impl Back<'_> {
    async fn asked(&self, ask: Ask<'_>) -> Job<Answer> {
        match ask {
            Ask::Look { collection, rows } => {
                Ok(match self.look(self.table(collection)?, &rows).await? {
                    Ok(found) => Answer::Looked(found),
                    Err(said) => Answer::Refused(said),
                })
            }
            Ask::Put { rows, exact } => {
                let Some(first) = rows.first() else { return Ok(Answer::Done(Vec::new())) };
                let table = self.table(&first.collection)?;
                self.settled(table, self.put(table, &rows, exact)).await
            }
            Ask::Set { rows } => {
                let Some((first, _)) = rows.first() else { return Ok(Answer::Done(Vec::new())) };
                let table = self.table(&first.collection)?;
                self.settled(table, self.set(table, &rows)).await
            }
            Ask::Remove { collection, rows } => self.remove(self.table(collection)?, &rows).await,
            Ask::Mark => self.turn("SAVEPOINT whole").await,
            Ask::Back => self.turn("ROLLBACK TO whole").await,
            Ask::Keep => self.turn("RELEASE whole").await,
        }
    }

    /// What writes rows; if it is refused, also after its statement because of what triggers have done, it has changed
    /// nothing.
    async fn settled(
        &self,
        table: &Table,
        writes: impl Future<Output = Job<Answer>>,
    ) -> Job<Answer> {
        if self.keeps_keys(table) {
            return writes.await;
        }
        self.session.batch("SAVEPOINT written").await?;
        let answer = writes.await?;
        self.session
            .batch(match answer {
                Answer::Refused(_) | Answer::Denied(_) => "ROLLBACK TO written; RELEASE written",
                _ => "RELEASE written",
            })
            .await?;
        Ok(answer)
    }

    async fn turn(&self, sql: &str) -> Job<Answer> {
        self.session.batch(sql).await?;
        Ok(Answer::Done(Vec::new()))
    }

    fn table(&self, collection: &str) -> Job<&Table> {
        Ok(self.mapping.table(collection).map_err(invalid)?)
    }

    /// Runs a statement, or says in which words the database refuses it; then it has changed nothing.
    async fn tried(&self, sql: String, params: Vec<Param<'_>>) -> Job<Result<Vec<Row>, String>> {
        Ok(self.ran(sql, params).await?.map_err(|denial| denial.said))
    }

    async fn ran(&self, sql: String, params: Vec<Param<'_>>) -> Job<Result<Vec<Row>, Denial>> {
        let mut pipeline = Pipeline::default();
        if self.is_careful {
            self.session.batch("SAVEPOINT back").await?;
        } else {
            pipeline.simple("SAVEPOINT back");
        }
        let place = pipeline.push(sql, params);
        // Deferred constraints are checked here, while they can be attributed. After a refusal more of them are likely:
        // then the end follows in a round trip of its own, because the server's log has a line for each statement
        // after an error.
        let end = self.scene.deferred.checked("back");
        let apart = self.is_refusing.load(Ordering::Relaxed).then_some(&end);
        if apart.is_none() {
            pipeline.simple(end.clone());
        }
        let done = async {
            let mut answers = self.session.run(pipeline).await?;
            if let Some(end) = apart {
                self.session.batch(end).await?;
            }
            Ok(std::mem::take(&mut answers[place]))
        };
        match done.await {
            Ok(rows) => Ok(Ok(rows)),
            Err(Failure::Sql(e)) if is_refusal(&e) => {
                self.is_refusing.store(true, Ordering::Relaxed);
                let back = self.session.batch("ROLLBACK TO back; RELEASE back").await;
                // Without the savepoint, the statement was refused before it was executed.
                if fault(&e) == Fault::Program
                    && !is_denied(&e)
                    && (back.is_err() || !self.are_as_known().await?)
                {
                    return Err(Failure::Sql(e));
                }
                back?;
                let said = match is_denied(&e) {
                    true => format!("{}; {UNDO_GRANTS}", words(&e)),
                    false => words(&e),
                };
                Ok(Err(Denial {
                    said,
                    has_no_partition: has_no_partition(&e),
                    for_all: is_denied_for_all(&e),
                }))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether the tables are as the catalog was last read. If so, a statement that the database does not accept will
    /// not be accepted later either: there is a rule, or a view that has taken the place of the table.
    async fn are_as_known(&self) -> Job<bool> {
        let known = self.of.iter().map(|name| self.table(name)).collect::<Job<Vec<_>>>()?;
        let names: Vec<String> = known.iter().map(|table| table.name.clone()).collect();
        let found = catalog::tables(self.session, &names).await?;
        Ok(known.iter().all(|table| found.get(&table.name) == table.found.as_ref()))
    }

    /// The rows as they are; the inner error: this role may not look at them.
    async fn look(
        &self,
        table: &Table,
        rows: &[&BeforeImage],
    ) -> Job<Result<Vec<Option<Found>>, String>> {
        let key = table.key_columns().map_err(invalid)?;
        let set = self.keys(table, &key, rows)?;
        let first = rows.first().map(|image| compared(image, &table.collection.name));
        let terms = first.unwrap_or_default();
        let from = set.sql(1);
        let mut params = set.params();
        // A column that is gone has no value that could have stayed.
        let holds = match Conditions::of(table, &terms) {
            Ok(conditions) => format!("coalesce(true{}, false)", conditions.numbered(&mut params)),
            Err(_) => "false".to_owned(),
        };
        let sql = format!(
            "SELECT u.i, {holds}, {} FROM {from} JOIN {} t ON {} ORDER BY u.i FOR UPDATE OF t",
            table.whole.sql().join(", "),
            table.name,
            matched(&key)
        );
        let mut found: Vec<Option<Found>> = vec![None; rows.len()];
        let rows = match self.tried(sql, params).await? {
            Ok(rows) => rows,
            Err(said) => return Ok(Err(said)),
        };
        for row in rows {
            let at = row.try_get::<_, i32>(0)? as usize;
            found[at] = Some(Found { row: fields_of(table, &row, 2)?, holds: row.try_get(1)? });
        }
        Ok(Ok(found))
    }

    /// The rows as they are after their statement, if a trigger may have changed them since.
    async fn again(&self, table: &Table, rows: &[&BeforeImage], mut did: Vec<Did>) -> Job<Answer> {
        if !self.scene.is_triggered(table) {
            return Ok(Answer::Done(did));
        }
        // Whoever may write rows and not look at them does not learn what triggers have set.
        let Ok(found) = self.look(table, rows).await? else { return Ok(Answer::Done(did)) };
        for (did, found) in did.iter_mut().zip(found) {
            match (did, found) {
                (Did::Put(after) | Did::Set(after), Some(found)) => *after = Some(found.row),
                (Did::Put(_) | Did::Set(_), None) => {
                    return Ok(Answer::Refused(self.astray(table)));
                }
                _ => {}
            }
        }
        Ok(Answer::Done(did))
    }

    async fn put(&self, table: &Table, rows: &[&BeforeImage], exact: bool) -> Job<Answer> {
        if self.scene.is_deferrable(table) {
            return self.insert(table, rows, true).await;
        }
        // Most groups meet no row, and looking for one costs a third of the statement. Rows that were inserted with other
        // keys would be met by the next statement.
        if !exact && rows.len() >= OPTIMISTIC_MIN && self.keeps_keys(table) {
            let certain = match self.is_certain(table) {
                true => self.insert_certain(table, rows).await?,
                false => None,
            };
            let done = match certain {
                Some(done) => done,
                None => self.insert(table, rows, true).await?,
            };
            if matches!(done, Answer::Done(_)) {
                return Ok(done);
            }
        }
        self.insert(table, rows, exact).await
    }

    /// Whether an inserted row is stored as it was kept, except for columns of which that is not certain: the columns
    /// are declared as they were then, and nothing but the statement writes them.
    fn is_certain(&self, table: &Table) -> bool {
        self.is_declared_as_kept(table) && self.scene.is_plain(table)
    }

    /// Whether an inserted row has the key that it had: no trigger writes it, and its columns are declared as they were.
    fn keeps_keys(&self, table: &Table) -> bool {
        !self.scene.has_triggers(table) && self.is_declared_as_kept(table)
    }

    fn is_declared_as_kept(&self, table: &Table) -> bool {
        let declared = self.declared.get(&table.collection.name);
        declared.is_some_and(|declared| table.declared == Some(*declared))
    }

    /// Why a row that was inserted is not found by its key.
    fn astray(&self, table: &Table) -> String {
        match self.is_declared_as_kept(table) {
            true => ASTRAY.to_owned(),
            false => format!(
                "it gets another key in {:?}: a column of the key is new, renamed or declared otherwise since it was kept",
                table.collection.table
            ),
        }
    }

    /// Inserts rows of which little has to be read afterwards, which costs as much as to write them; none: some are
    /// stored otherwise, and nothing was changed.
    async fn insert_certain(&self, table: &Table, rows: &[&BeforeImage]) -> Job<Option<Answer>> {
        let Some((sql, arrays)) = inserting(table, rows, "", &table.whole.doubted_sql()) else {
            return Ok(Some(Answer::Done(Vec::new())));
        };
        self.turn("SAVEPOINT certain").await?;
        let put = match self.ran(sql, arrays.params()).await? {
            Ok(put) => put,
            Err(denial) => {
                self.turn("RELEASE certain").await?;
                return Ok(Some(denial.answer()));
            }
        };
        let mut is_same = put.len() == rows.len();
        for (row, image) in put.iter().zip(rows) {
            is_same &= table.whole.has_doubted(row.try_get(0)?, &image.stored);
        }
        self.turn(match is_same {
            true => "RELEASE certain",
            false => "ROLLBACK TO certain; RELEASE certain",
        })
        .await?;
        Ok(is_same.then(|| Answer::Done(vec![Did::Put(None); rows.len()])))
    }

    /// Inserts rows; unless `exact`, those stay out whose key or unique value is taken. Rows that no partition of the
    /// table takes are found by one statement.
    async fn insert(&self, table: &Table, rows: &[&BeforeImage], exact: bool) -> Job<Answer> {
        let denial = match self.inserted(table, rows, exact).await? {
            Ok(answer) => return Ok(answer),
            Err(denial) => denial,
        };
        let outside = match denial.has_no_partition {
            true => self.outside(table, rows).await?,
            false => BTreeSet::new(),
        };
        if outside.is_empty() {
            return Ok(denial.answer());
        }
        let inside = rows.iter().enumerate().filter(|(at, _)| !outside.contains(at));
        let inside: Vec<&BeforeImage> = inside.map(|(_, row)| *row).collect();
        let mut did = match self.inserted(table, &inside, exact).await? {
            Ok(Answer::Done(did)) => did.into_iter(),
            Ok(other) => return Ok(other),
            Err(denial) => return Ok(denial.answer()),
        };
        let why = format!(
            "no partition of {:?} takes it: create one that does, then undo it again",
            table.collection.table
        );
        let each = (0..rows.len()).map(|at| match outside.contains(&at) {
            true => Did::Stays(why.clone()),
            false => did.next().unwrap_or(Did::Missing),
        });
        Ok(Answer::Done(each.collect()))
    }

    /// The rows that no partition of their table takes, by their places; empty also if that cannot be told.
    async fn outside(&self, table: &Table, rows: &[&BeforeImage]) -> Job<BTreeSet<usize>> {
        let (Some(first), Some(found)) = (rows.first(), &table.found) else {
            return Ok(BTreeSet::new());
        };
        let taken: Option<String> =
            self.session.maybe(PARTITIONS, params![found.oid], cell).await?.flatten();
        let columns = written(table, first.stored.iter());
        let arrays = Arrays::of(&columns, &first.stored, rows);
        let typed = columns.iter().zip(&arrays.0).enumerate();
        let typed = typed.map(|(at, ((_, column), array))| {
            format!(", {} AS {}", value(column, array.wire(), at), quote(&column.name))
        });
        // The names in the conditions are those of the columns.
        let sql = format!(
            "SELECT (s.besom_place - 1)::int4 FROM (SELECT u.i AS besom_place{} FROM {}) s
             WHERE NOT coalesce({}, false)",
            typed.collect::<String>(),
            arrays.sql(),
            taken.as_deref().unwrap_or("false")
        );
        let Ok(rows) = self.tried(sql, arrays.params()).await? else { return Ok(BTreeSet::new()) };
        rows.iter().map(|row| Ok(row.try_get::<_, i32>(0)? as usize)).collect()
    }

    async fn inserted(
        &self,
        table: &Table,
        rows: &[&BeforeImage],
        exact: bool,
    ) -> Job<Result<Answer, Denial>> {
        let conflict = if exact { "" } else { "ON CONFLICT DO NOTHING" };
        let all = table.whole.sql().join(", ");
        let Some((sql, arrays)) = inserting(table, rows, conflict, &all) else {
            return Ok(Ok(Answer::Done(Vec::new())));
        };
        let put = match self.ran(sql, arrays.params()).await? {
            Ok(put) => put,
            Err(denial) => return Ok(Err(denial)),
        };
        let did = match in_order(table, rows, &put)? {
            Some(did) => Some(did),
            None => assigned(table, rows, exact, &put)?,
        };
        Ok(Ok(match did {
            Some(did) => self.again(table, rows, did).await?,
            None => Answer::Refused(self.astray(table)),
        }))
    }

    async fn set(&self, table: &Table, rows: &[(&BeforeImage, Vec<Field>)]) -> Job<Answer> {
        let Some((_, fields)) = rows.first() else { return Ok(Answer::Done(Vec::new())) };
        let mut columns = written(table, fields.iter());
        columns.retain(|(_, column)| !column.fixed);
        if columns.is_empty() {
            return Ok(Answer::Refused("none of its columns can be set any more".to_owned()));
        }
        let key = table.key_columns().map_err(invalid)?;
        let mut cells = Vec::with_capacity(rows.len());
        for (image, fields) in rows {
            let of = table.key_cells(self.tenant_of(image), &image.key).map_err(invalid)?;
            cells.push((of, fields));
        }
        let mut wires: Vec<Wire> = key.iter().map(|(_, form)| form.wire).collect();
        let first = wires.len();
        wires.extend(wires_of(&columns, cells.iter().map(|(_, fields)| *fields)));
        let mut set = Set::new(wires.clone());
        for (at, (mut key, fields)) in cells.into_iter().enumerate() {
            key.extend(cells_of(&columns, fields));
            set.push(at, key);
        }
        let values = columns.iter().enumerate().map(|(at, (_, column))| {
            format!("{} = {}", quote(&column.name), value(column, wires[first + at], first + at))
        });
        let sql = format!(
            "UPDATE {} t SET {} FROM {} WHERE {} RETURNING u.i, {}",
            table.name,
            values.collect::<Vec<_>>().join(", "),
            set.sql(1),
            matched(&key),
            table.whole.sql().join(", ")
        );
        let done = match self.tried(sql, set.params()).await? {
            Ok(done) => done,
            Err(said) => return Ok(Answer::Refused(said)),
        };
        let mut did = vec![Did::Missing; rows.len()];
        for row in done {
            let after = Some(fields_of(table, &row, 1)?);
            did[row.try_get::<_, i32>(0)? as usize] = Did::Set(after);
        }
        let images: Vec<&BeforeImage> = rows.iter().map(|(image, _)| *image).collect();
        self.again(table, &images, did).await
    }

    async fn remove(&self, table: &Table, rows: &[&BeforeImage]) -> Job<Answer> {
        let key = table.key_columns().map_err(invalid)?;
        let held = self.held(table, &key, rows).await?;
        let free = rows.iter().enumerate().filter(|(at, _)| !held.contains_key(at));
        let set = self.numbered(table, &key, free.map(|(at, image)| (at, *image)))?;
        let sql = format!(
            "DELETE FROM {} t USING {} WHERE {} RETURNING u.i, {}",
            table.name,
            set.sql(1),
            matched(&key),
            table.whole.sql().join(", ")
        );
        let gone = match self.tried(sql, set.params()).await? {
            Ok(gone) => gone,
            Err(said) => return Ok(Answer::Refused(said)),
        };
        let mut did = vec![Did::Missing; rows.len()];
        for row in gone {
            did[row.try_get::<_, i32>(0)? as usize] = Did::Removed(fields_of(table, &row, 1)?);
        }
        for (at, why) in held {
            did[at] = Did::Refused(why);
        }
        Ok(Answer::Done(did))
    }

    /// The rows with which rows of others would be deleted or changed, by their places, and why they stay. The rows are
    /// locked: nobody can refer to them any more.
    async fn held(
        &self,
        table: &Table,
        key: &[(String, super::values::Form)],
        rows: &[&BeforeImage],
    ) -> Job<BTreeMap<usize, String>> {
        let mut held = BTreeMap::new();
        for Reference { of, is_own, columns, sight } in self.scene.references(table) {
            if *sight != Sight::All {
                let (hidden, fix) = match sight {
                    Sight::None => {
                        ("this role may not read them", format!("GRANT SELECT ON {of} to it"))
                    }
                    _ => (
                        "row-level security may hide them from this role",
                        "ALTER ROLE ... BYPASSRLS, or a policy for all rows".to_owned(),
                    ),
                };
                let why = format!(
                    "rows of {of} may refer to it, which would go with it; {hidden}: {fix}"
                );
                held.extend((0..rows.len()).map(|at| (at, why.clone())));
                continue;
            }
            let set = self.keys(table, key, rows)?;
            let from = set.sql(1);
            let pair = |(own, theirs): &(String, String)| format!("c.{own} = t.{theirs}");
            let refers: Vec<String> = columns.iter().map(pair).collect();
            let others = match is_own {
                true => {
                    let each = |(at, (name, form)): (usize, &(String, super::values::Form))| {
                        form.equals(&format!("c.{name}"), &format!("u.v{at}"))
                    };
                    let each: Vec<String> = key.iter().enumerate().map(each).collect();
                    format!(" AND NOT EXISTS (SELECT 1 FROM {from} WHERE {})", each.join(" AND "))
                }
                false => String::new(),
            };
            let sql = format!(
                "SELECT u.i FROM {from} JOIN {} t ON {}
                 WHERE EXISTS (SELECT 1 FROM {of} c WHERE {}{others})",
                table.name,
                matched(key),
                refers.join(" AND ")
            );
            for row in self.session.query(&sql, set.params()).await? {
                let why = format!("rows of {of} refer to it, which are not part of this undo");
                held.insert(row.try_get::<_, i32>(0)? as usize, why);
            }
        }
        Ok(held)
    }

    fn keys(
        &self,
        table: &Table,
        key: &[(String, super::values::Form)],
        rows: &[&BeforeImage],
    ) -> Job<Set> {
        self.numbered(table, key, rows.iter().copied().enumerate())
    }

    fn numbered<'r>(
        &self,
        table: &Table,
        key: &[(String, super::values::Form)],
        rows: impl Iterator<Item = (usize, &'r BeforeImage)>,
    ) -> Job<Set> {
        let mut set = Set::new(key.iter().map(|(_, form)| form.wire).collect());
        for (at, image) in rows {
            let own = key_in(table, image);
            set.push(at, table.key_cells(self.tenant_of(image), &own).map_err(invalid)?);
        }
        Ok(set)
    }

    fn tenant_of<'t>(&'t self, image: &'t BeforeImage) -> Option<&'t Tenant> {
        image.tenant.as_ref().or(self.tenant)
    }
}

/// The key of a row in a table: its own, or that of its copy.
fn key_in(table: &Table, image: &BeforeImage) -> RowKey {
    restore::key_in(image, &table.collection, |name, column| {
        let stored = image.stored.iter().find(|field| field.name == name)?;
        let padded = table.whole.names().any(|(known, padded)| known == name && padded);
        Some(of_kept(column, padded, &stored.value))
    })
}

/// The statement that inserts rows, all with the columns of the first, and their values; none: there are no rows.
fn inserting<'r>(
    table: &Table,
    rows: &[&'r BeforeImage],
    conflict: &str,
    returning: &str,
) -> Option<(String, Arrays<'r>)> {
    let first = rows.first()?;
    let columns = written(table, first.stored.iter());
    let arrays = Arrays::of(&columns, &first.stored, rows);
    let names: Vec<String> = columns.iter().map(|(_, column)| quote(&column.name)).collect();
    let typed = columns.iter().zip(&arrays.0).enumerate();
    let values: Vec<String> =
        typed.map(|(at, ((_, column), array))| value(column, array.wire(), at)).collect();
    let sql = format!(
        "INSERT INTO {} AS t ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} ORDER BY u.i {conflict} RETURNING {returning}",
        table.name,
        names.join(", "),
        values.join(", "),
        arrays.sql(),
    );
    Some((sql, arrays))
}

/// What became of rows that were inserted in their order; `None`: some were left out, or a key has changed.
fn in_order(table: &Table, rows: &[&BeforeImage], put: &[Row]) -> Job<Option<Vec<Did>>> {
    if put.len() != rows.len() {
        return Ok(None);
    }
    let mut did = Vec::with_capacity(rows.len());
    for (row, image) in put.iter().zip(rows) {
        if table.whole.is(row, 0, &image.stored)? {
            did.push(Did::Put(None));
            continue;
        }
        let fields = fields_of(table, row, 0)?;
        if place(table, &fields) != place(table, &image.stored) {
            return Ok(None);
        }
        did.push(Did::Put(Some(fields)));
    }
    Ok(Some(did))
}

/// Like [`in_order`], for rows of which some are missing: each is found by its key. `None`: a key has changed.
fn assigned(
    table: &Table,
    rows: &[&BeforeImage],
    exact: bool,
    put: &[Row],
) -> Job<Option<Vec<Did>>> {
    let mut back: HashMap<String, Vec<Field>> = HashMap::with_capacity(put.len());
    let known: HashSet<String> = rows.iter().map(|image| place(table, &image.stored)).collect();
    for row in put {
        let fields = fields_of(table, row, 0)?;
        let place = place(table, &fields);
        if !known.contains(&place) {
            return Ok(None);
        }
        back.insert(place, fields);
    }
    let did = rows.iter().map(|image| match back.remove(&place(table, &image.stored)) {
        Some(fields) if fields == image.stored => Did::Put(None),
        Some(fields) => Did::Put(Some(fields)),
        None if exact => Did::Refused("a trigger or a rule prevents it".to_owned()),
        None => Did::Taken,
    });
    Ok(Some(did.collect()))
}

/// The values of rows, column by column, as they were kept.
struct Arrays<'r>(Vec<Array<'r>>);

/// Bytes travel as bytes, everything else in its spelling.
enum Array<'r> {
    Texts(Vec<Option<&'r str>>),
    Bytes(Vec<Option<&'r [u8]>>),
}

impl Array<'_> {
    fn wire(&self) -> Wire {
        match self {
            Array::Texts(_) => Wire::Text,
            Array::Bytes(_) => Wire::Bytes,
        }
    }
}

impl<'r> Arrays<'r> {
    /// The values of these columns. Most rows have the columns of the first one, in its order.
    fn of(
        columns: &[(&str, &ColumnFound)],
        first: &[Field],
        rows: &[&'r BeforeImage],
    ) -> Arrays<'r> {
        let array = |(name, _): &(&str, &ColumnFound)| {
            let at = first.iter().position(|field| field.name == *name).unwrap_or_default();
            let field = |image: &&'r BeforeImage| {
                let here = image.stored.get(at).filter(|field| field.name == *name);
                here.or_else(|| image.stored.iter().find(|field| field.name == *name))
            };
            let values = || rows.iter().map(field).map(|field| field.map(|field| &field.value));
            match values().any(|value| matches!(value, Some(Value::Bytes(_)))) {
                true => Array::Bytes(
                    values()
                        .map(|value| match value {
                            Some(Value::Bytes(bytes)) => Some(bytes.as_slice()),
                            _ => None,
                        })
                        .collect(),
                ),
                false => Array::Texts(
                    values()
                        .map(|value| match value {
                            Some(Value::Text(text)) => Some(text.as_str()),
                            _ => None,
                        })
                        .collect(),
                ),
            }
        };
        Arrays(columns.iter().map(array).collect())
    }

    fn sql(&self) -> String {
        let each = self.0.iter().enumerate();
        let arrays: Vec<String> =
            each.map(|(at, array)| format!("${}::{}[]", at + 1, array.wire().sql())).collect();
        let names: Vec<String> = (0..self.0.len()).map(|at| format!("v{at}")).collect();
        format!("unnest({}) WITH ORDINALITY AS u({}, i)", arrays.join(", "), names.join(", "))
    }

    fn params(self) -> Vec<Param<'r>> {
        let param = |array: Array<'r>| match array {
            Array::Texts(texts) => Box::new(texts) as Param<'r>,
            Array::Bytes(bytes) => Box::new(bytes) as Param<'r>,
        };
        self.0.into_iter().map(param).collect()
    }
}

fn fields_of(table: &Table, row: &Row, from: usize) -> Job<Vec<Field>> {
    let values = table.whole.values(row, from)?;
    Ok(table.whole.names().zip(values).map(|((name, _), value)| Field::new(name, value)).collect())
}

/// The key of a row as it is stored, as one text.
fn place(table: &Table, fields: &[Field]) -> String {
    let collection = &table.collection;
    let mut place = String::new();
    for name in collection.tenant.iter().chain(&collection.key) {
        match fields.iter().find(|field| field.name == *name).map(|field| &field.value) {
            Some(Value::Text(text)) => place.push_str(text),
            other => place.push_str(&format!("{other:?}")),
        }
        place.push('\0');
    }
    place
}

/// The columns that can be written, each with its name in the image.
fn written<'t, 'f>(
    table: &'t Table,
    fields: impl Iterator<Item = &'f Field>,
) -> Vec<(&'f str, &'t ColumnFound)> {
    let column = |field: &'f Field| {
        let column = table.found.as_ref()?.column(&field.name)?;
        (!column.generated).then_some((field.name.as_str(), column))
    };
    fields.filter_map(column).collect()
}

/// Bytes travel as bytes, everything else in its spelling.
fn wires_of<'f>(
    columns: &[(&str, &ColumnFound)],
    rows: impl Iterator<Item = &'f Vec<Field>> + Clone,
) -> Vec<Wire> {
    let is_bytes = |name: &str| {
        let mut of = rows.clone().flatten().filter(|field| field.name == name);
        of.any(|field| matches!(field.value, Value::Bytes(_)))
    };
    columns.iter().map(|(name, _)| if is_bytes(name) { Wire::Bytes } else { Wire::Text }).collect()
}

/// The values of these columns in a row. Most rows have exactly these, in this order.
fn cells_of(columns: &[(&str, &ColumnFound)], fields: &[Field]) -> impl Iterator<Item = Cell> {
    let mut rest = fields.iter();
    columns.iter().map(move |(name, _)| {
        let next = rest.find(|field| field.name == *name);
        let field = next.or_else(|| fields.iter().find(|field| field.name == *name));
        match field.map(|field| &field.value) {
            Some(Value::Text(text)) => Cell::Text(text.clone()),
            Some(Value::Bytes(bytes)) => Cell::Bytes(bytes.clone()),
            _ => Cell::Null,
        }
    })
}

/// The value at a place of a set, as its column takes it. The type has no length: a value that is too long for the
/// column is refused, and not cut.
fn value(column: &ColumnFound, wire: Wire, at: usize) -> String {
    match wire {
        Wire::Bytes if column.ty == "bytea" => format!("u.v{at}"),
        // The cast of a text to `regclass` takes names alone, and not the number of a table that is gone.
        Wire::Text if column.ty == "regclass" => format!(
            "CASE WHEN u.v{at} = '-' THEN 0::regclass WHEN u.v{at} ~ '^[0-9]+$' THEN u.v{at}::oid::regclass \
             ELSE u.v{at}::regclass END"
        ),
        _ => format!("u.v{at}::{}", column.full),
    }
}
