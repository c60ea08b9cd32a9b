//! Changes of the rows of a range: each is judged by the bounds and the conditions when it is changed. There is
//! one writer, so nobody else holds a row.
//!
//! All rows are changed by one statement. If the database refuses it, those that no foreign key keeps are changed; if
//! that is refused as well, they are changed in halves, until those that it refuses are alone.

use std::collections::BTreeMap;

use besom_core::collection::Collection;
use besom_core::proposal::{Fate, RowRange};
use besom_core::value::{Field, RowKey, Value};
use besom_snapshot::Cause;
use rusqlite::types::{ToSqlOutput, Value as Cell};
use rusqlite::{Connection, params_from_iter};

use super::commit::deferred_violation;
use super::effects::{Effects, Kept, Stop};
use super::fits;
use super::hint;
use super::mapping::{DIALECT, Params, Table, push_quoted, quote};
use super::range::raw_value;
use super::restore::is_triggered;
use super::statements::Statements;
use super::values::{RawCell, decode, names_of};
use besom_ports::store::{Error, Left, Range};
use besom_record::{closed, increased, kept, no_sum};
use besom_tables::conditions::{columns_of_range, of_range};
use besom_tables::moves::{self, Column};
use besom_tables::range::{Page, Test, ends};
use besom_tables::room::Room;

/// Maximum number of parameters of a statement.
const PARAMS_MAX: usize = 30_000;

/// A change of a range's rows.
struct Sweep<'a> {
    table: &'a Table,
    /// The columns that name a row within a statement: the row id, or the key of a table that has none.
    place: Vec<String>,
    /// ` FROM ... LIMIT ?`: the rows.
    rows: String,
    params: Params<'a>,
    /// The bounds and conditions, if a place may name more than one row: keys may be compared otherwise here than by
    /// the index that keeps them apart, or no longer be kept apart.
    judged: Option<(String, Params<'a>)>,
    fate: Fate<'a>,
}

/// The columns of [`Sweep::place`] in a row.
type Place = Vec<Cell>;
/// The place of a row, and its key.
type Named = (Place, Vec<Value>);

/// The foreign keys that refer to a table, by their tables and numbers: the columns that refer, and what is equal.
type References = BTreeMap<(String, i64), (Vec<String>, Vec<String>)>;

/// A foreign key that keeps rows, as a condition on them, and in words.
struct Keeper {
    condition: String,
    said: String,
}

impl Sweep<'_> {
    /// `place IN (the rows)`, or among those of them at these places.
    fn among<'p>(&'p self, places: Option<&'p [Named]>) -> (String, Params<'p>) {
        let place = self.place.join(", ");
        let mut sql = format!("({place}) IN (SELECT {place}{})", self.rows);
        let mut params = self.params.clone();
        if let Some(places) = places {
            let each = format!("({})", vec!["?"; self.place.len()].join(", "));
            let all = vec![each; places.len()].join(", ");
            sql.push_str(&format!(" AND ({place}) IN (VALUES {all})"));
            let cells = places.iter().flat_map(|(place, _)| place);
            params.extend(cells.map(|cell| ToSqlOutput::Borrowed(cell.into())));
        }
        self.judge(&mut sql, &mut params);
        (sql, params)
    }

    /// Adds what a row has to meet besides its place.
    fn judge<'p>(&'p self, sql: &mut String, params: &mut Params<'p>) {
        if let Some((judged, of)) = &self.judged {
            sql.push_str(" AND ");
            sql.push_str(judged);
            params.extend(of.iter().cloned());
        }
    }
}

impl Effects<'_> {
    /// Changes the rows of a range, and keeps their images.
    pub(super) fn change_range(&mut self, range: &RowRange, fate: Fate<'_>) -> Result<(), Stop> {
        let mapping = self.mapping;
        let table = mapping.table(&range.collection)?;
        let (place, is_row_id) = self.place_of(table)?;
        let (after, until) = ends::<RawCell>(range)?;
        let read = Range::from(range);
        let page = Page::new(table, &read, Room::new(u64::MAX), &DIALECT, |_| true)?;
        let tests = page.between(after.as_deref(), until.as_deref())?;
        let hint = match &range.index {
            Some(_) => hint::of_range(self.conn, table, page.index)?,
            None => String::new(),
        };
        let mut rows = String::new();
        let mut params: Params<'_> = Vec::new();
        table.push_tenant(self.tenant, &mut rows, &mut params)?;
        table.push_terms(of_range(&read, page.index), &mut rows, &mut params)?;
        for column in columns_of_range(&read, page.index) {
            rows.push_str(" AND ");
            rows.push_str(&fits::condition(*table.form(column)?, &quote(column)));
        }
        for test in &tests {
            rows.push_str(" AND ");
            rows.push_str(&written(test, &page.order, &mut params));
        }
        let judged = (!is_row_id).then(|| (rows.clone(), params.clone()));
        let rows = format!(" FROM {}{hint} WHERE {rows} LIMIT ?", table.name);
        params.push(ToSqlOutput::from(i64::from(range.rows)));
        if let Some(kept) = &mut self.images {
            kept.forget(&table.collection.name);
        }
        let sweep = Sweep { table, place, rows, params, judged, fate };
        match self.tried(&sweep, None) {
            Err(Stop::Violation(_)) if self.rows_may_stay && !self.conn.is_autocommit() => {
                self.bisected(&sweep)
            }
            done => done,
        }
    }

    /// Changes the rows that no foreign key keeps; if they are refused, in halves. Leaves those that are refused alone.
    fn bisected(&mut self, sweep: &Sweep<'_>) -> Result<(), Stop> {
        let mut open = vec![self.unkept(sweep)?];
        while let Some(mut places) = open.pop() {
            if places.is_empty() || !self.refused.goes_on() {
                continue;
            }
            match self.tried(sweep, Some(&places)) {
                Err(Stop::Violation(said)) if !self.conn.is_autocommit() => match &places[..] {
                    [_] => {
                        for (_, key) in self.unkept_by_own(sweep, places)? {
                            self.refused.push(&key, said.clone());
                        }
                    }
                    _ => {
                        let second = places.split_off(places.len() / 2);
                        open.push(second);
                        open.push(places);
                    }
                },
                done => done?,
            }
        }
        Ok(())
    }

    /// The rows that no foreign key keeps; the others are refused.
    fn unkept(&mut self, sweep: &Sweep<'_>) -> Result<Vec<Named>, Stop> {
        let keepers = match sweep.fate {
            Fate::Deleted | Fate::Moved(_) => self.keepers(sweep.table)?,
            Fate::Set(..) => Vec::new(),
        };
        let mut open = Vec::new();
        for (named, by) in self.sorted(sweep, &keepers)? {
            match by.and_then(|at| keepers.get(at)) {
                Some(keeper) => self.refused.push_kept(&named.1, keeper.said.clone()),
                None => open.push(named),
            }
        }
        self.unkept_by_own(sweep, open)
    }

    /// Those of the rows to which no other row of their table refers that stays; the others are refused. Rows that
    /// refer to each other may be deleted together.
    fn unkept_by_own(&mut self, sweep: &Sweep<'_>, open: Vec<Named>) -> Result<Vec<Named>, Stop> {
        let Sweep { table, fate, ref place, .. } = *sweep;
        // Each row is named once in a statement.
        if matches!(fate, Fate::Set(..)) || open.len() * place.len() > PARAMS_MAX {
            return Ok(open);
        }
        let own = self.referring(table, true)?;
        if own.is_empty() || open.is_empty() {
            return Ok(open);
        }
        let name = &table.name;
        let equal: Vec<String> = own.values().map(|(_, equals)| equals.join(" AND ")).collect();
        let equal = format!("({})", equal.join(" OR "));
        let names: Vec<String> = (0..place.len()).map(|at| format!("p{at}")).collect();
        let of = |alias: &str, names: &[String]| -> String {
            let all: Vec<String> = names.iter().map(|name| format!("{alias}.{name}")).collect();
            format!("({})", all.join(", "))
        };
        let other = of("besom_o", place);
        let (p, marks) = (names.join(", "), ", ?".repeat(place.len()));
        let values: Vec<String> = (0..open.len()).map(|no| format!("({no}{marks})")).collect();
        let of_rows = |below: &str| {
            format!(
                "WITH besom_rows(no, {p}) AS (VALUES {}) SELECT besom_w.no, {below}
                 FROM besom_rows besom_w JOIN {name} ON {} = {}",
                values.join(", "),
                of(name, place),
                of("besom_w", &names)
            )
        };
        let stays = format!(
            "{} WHERE EXISTS (SELECT 1 FROM {name} besom_o
                              WHERE {equal} AND {other} NOT IN (SELECT {p} FROM besom_rows))",
            of_rows("NULL")
        );
        let together = format!(
            "{} JOIN {name} besom_o ON {equal} JOIN besom_rows besom_v ON {other} = {}",
            of_rows("besom_v.no"),
            of("besom_v", &names)
        );
        let (mut kept, mut above) = (Vec::new(), vec![Vec::new(); open.len()]);
        for sql in [stays, together] {
            let cells = open.iter().flat_map(|(place, _)| place);
            let params: Params<'_> = cells.map(|cell| ToSqlOutput::Borrowed(cell.into())).collect();
            self.conn.each(
                &sql,
                params_from_iter(params.iter()),
                |row| -> rusqlite::Result<()> {
                    match row.get::<_, Option<usize>>(1)? {
                        None => kept.push(row.get(0)?),
                        Some(below) => above[below].push(row.get(0)?),
                    }
                    Ok(())
                },
            )?;
        }
        let stay = closed(kept, &above);
        let said =
            format!("FOREIGN KEY constraint failed: {:?} refers to it", table.collection.table);
        let mut unkept = Vec::with_capacity(open.len());
        for (no, named) in open.into_iter().enumerate() {
            match stay[no] {
                true => self.refused.push_kept(&named.1, said.clone()),
                false => unkept.push(named),
            }
        }
        Ok(unkept)
    }

    /// The foreign keys of other tables that keep rows of a table which are to be deleted.
    fn keepers(&self, table: &Table) -> Result<Vec<Keeper>, Stop> {
        let of = &table.collection;
        let mut found = self.referring(table, false)?;
        let goes = |name: &str, columns: &[String]| {
            let mut all = of.dependants.iter().filter_map(|name| self.mapping.table(name).ok());
            all.any(|table| {
                table.collection.table.eq_ignore_ascii_case(name)
                    && table.collection.anchors_by(&of.name, columns, str::eq_ignore_ascii_case)
            })
        };
        found.retain(|(name, _), (columns, _)| !goes(name, columns));
        let keeper = |((name, _), (_, equal)): ((String, i64), (_, Vec<String>))| Keeper {
            condition: format!(
                "EXISTS (SELECT 1 FROM {} besom_o WHERE {})",
                quote(&name),
                equal.join(" AND ")
            ),
            said: format!("FOREIGN KEY constraint failed: {name:?} refers to it"),
        };
        Ok(found.into_iter().map(keeper).collect())
    }

    /// The foreign keys by which rows of other tables, or of the same one, keep rows of a table: their columns, and the
    /// condition that a row `besom_o` refers to one of the table.
    fn referring(&self, table: &Table, by_own: bool) -> Result<References, Stop> {
        let of = &table.collection;
        // Without columns, the key refers to the primary key.
        let sql = "SELECT m.name, f.id, f.\"from\", coalesce(f.\"to\", k.name)
                   FROM pragma_table_list m JOIN pragma_foreign_key_list(m.name) f
                   LEFT JOIN pragma_table_xinfo(?1) k ON k.pk = f.seq + 1
                   WHERE m.schema = 'main' AND m.type = 'table' AND lower(f.\"table\") = lower(?1)
                     AND (lower(m.name) = lower(?1)) = ?2 AND f.on_delete IN ('NO ACTION', 'RESTRICT')
                   ORDER BY m.name, f.id, f.seq";
        let mut found = References::new();
        self.conn.each(sql, (&of.table, by_own), |row| -> rusqlite::Result<()> {
            let own: String = row.get(2)?;
            // A key that refers to nothing fails for itself.
            let their = row.get::<_, Option<String>>(3)?.unwrap_or_default();
            // The collation is that of the row that is referred to.
            let equal = format!("{}.{} = besom_o.{}", table.name, quote(&their), quote(&own));
            let (columns, equals) = found.entry((row.get(0)?, row.get(1)?)).or_default();
            columns.push(own);
            equals.push(equal);
            Ok(())
        })?;
        Ok(found)
    }

    /// The places of the rows, with their keys.
    fn places(&self, sweep: &Sweep<'_>) -> Result<Vec<Named>, Stop> {
        Ok(self.sorted(sweep, &[])?.into_iter().map(|(named, _)| named).collect())
    }

    /// The rows, each with the first foreign key that keeps it.
    fn sorted(
        &self,
        sweep: &Sweep<'_>,
        keepers: &[Keeper],
    ) -> Result<Vec<(Named, Option<usize>)>, Stop> {
        let key = &sweep.table.collection.key;
        let cases = keepers.iter().enumerate();
        let cases: String =
            cases.map(|(at, keeper)| format!(" WHEN {} THEN {at}", keeper.condition)).collect();
        let by = format!("CASE{cases} WHEN 0 THEN -1 END");
        let columns = sweep.place.iter().cloned().chain(key.iter().map(|name| quote(name)));
        let columns: Vec<String> = columns.chain([by]).collect();
        let last = columns.len() - 1;
        let sql = format!("SELECT {}{}", columns.join(", "), sweep.rows);
        self.conn.all(&sql, params_from_iter(sweep.params.iter()), |row| {
            let place: rusqlite::Result<Place> =
                (0..sweep.place.len()).map(|at| row.get(at)).collect();
            let key: rusqlite::Result<Vec<Value>> =
                (sweep.place.len()..last).map(|at| Ok(raw_value(row.get_ref(at)?))).collect();
            Ok(((place?, key?), row.get(last)?))
        })
    }

    /// Changes the rows, or those of them at these places; all, or none.
    fn tried(&mut self, sweep: &Sweep<'_>, places: Option<&[Named]>) -> Result<(), Stop> {
        let savepoint = |effects: &Effects<'_>, sql: &str| -> Result<(), Stop> {
            effects.conn.run(sql, [])?;
            Ok(())
        };
        let (end, rows) =
            (self.images.as_ref().map(Kept::end), (self.rows, self.dependants.clone()));
        let was_violated = deferred_violation(self.conn);
        savepoint(self, "SAVEPOINT part")?;
        let mut done = self.change(sweep, places);
        if done.is_ok() && !was_violated && deferred_violation(self.conn) {
            done = Err(Stop::Violation("FOREIGN KEY constraint failed".to_owned()));
        }
        // The user's schema may roll back the whole transaction.
        if self.conn.is_autocommit() {
            return done;
        }
        if done.is_err() {
            savepoint(self, "ROLLBACK TO part")?;
            (self.rows, self.dependants) = rows;
            if let (Some(kept), Some(end)) = (&mut self.images, end) {
                kept.rewind(end);
            }
        }
        savepoint(self, "RELEASE part")?;
        done
    }

    fn change(&mut self, sweep: &Sweep<'_>, places: Option<&[Named]>) -> Result<(), Stop> {
        let Sweep { table, fate, .. } = *sweep;
        self.dirty = true;
        let is_together = match fate {
            Fate::Moved(_) => true,
            // A trigger may keep rows, which are then found one by one.
            Fate::Deleted => {
                let of = &table.collection;
                !of.dependants.is_empty()
                    || of.accept_cascades
                    || is_triggered(self.conn, &of.table)?
            }
            Fate::Set(..) => false,
        };
        if is_together {
            return match places {
                Some(places) => self.delete_together(sweep, places),
                None => self.delete_together(sweep, &self.places(sweep)?),
            };
        }
        let (among, mut params) = sweep.among(places);
        let Fate::Set(fields, increments) = fate else {
            return self.delete_among(table, &among, &params, &Left::Gone);
        };
        if !increments.is_empty() {
            // SQLite would leave NULL unchanged and convert an overflow to a float.
            let sums: Vec<String> = increments.iter().map(|field| is_sum(&field.name)).collect();
            let sql = format!(
                "SELECT 1 FROM {} WHERE {among} AND NOT ({})",
                table.name,
                sums.join(" AND ")
            );
            let mut all = params.clone();
            for field in increments {
                all.push(table.written(field)?);
            }
            if self.conn.exists(&sql, params_from_iter(all.iter()))? {
                return Err(Stop::Violation(no_sum(&table.collection.name)));
            }
        }
        let mut left = Left::Set(fields.to_vec());
        if let Some(kept) = &mut self.images {
            let whole = table.whole(self.conn)?;
            let sql = format!("SELECT {whole} FROM {} WHERE {among}", table.name);
            self.conn.each(&sql, params_from_iter(params.iter()), |row| {
                if let (Left::Set(set), false) = (&mut left, increments.is_empty()) {
                    set.truncate(fields.len());
                    set.extend(sums_of(increments, row)?);
                }
                kept.push(table, self.tenant, &left, row)
            })?;
        }
        let mut set = String::new();
        let mut values: Params<'_> = Vec::with_capacity(fields.len() + params.len());
        let added = increments.iter().map(|field| (field, true));
        for (field, is_added) in fields.iter().map(|field| (field, false)).chain(added) {
            set.push_str(if set.is_empty() { "" } else { ", " });
            push_quoted(&field.name, &mut set);
            set.push_str(" = ");
            if is_added {
                push_quoted(&field.name, &mut set);
                set.push_str(" + ");
            }
            set.push('?');
            values.push(table.written(field)?);
        }
        values.append(&mut params);
        let sql = format!("UPDATE {} SET {set} WHERE {among}", table.name);
        let changed = self.conn.run(&sql, params_from_iter(values.iter()))?;
        self.rows += changed as u64;
        Ok(())
    }

    /// Deletes rows that were found and judged a moment ago, after the rows that go with them, or after they were
    /// inserted elsewhere. They are named by their places: chosen again, they could be others.
    fn delete_together(&mut self, sweep: &Sweep<'_>, places: &[Named]) -> Result<(), Stop> {
        let (table, place) = (sweep.table, sweep.place.join(", "));
        let into = match sweep.fate {
            Fate::Moved(into) => Some(self.mapping.table(into)?),
            Fate::Deleted | Fate::Set(..) => None,
        };
        for places in places.chunks(PARAMS_MAX / sweep.place.len()) {
            let each = format!("({})", vec!["?"; sweep.place.len()].join(", "));
            let all = vec![each; places.len()].join(", ");
            let mut condition = format!("({place}) IN (VALUES {all})");
            let cells = places.iter().flat_map(|(place, _)| place);
            let mut params: Params<'_> =
                cells.map(|cell| ToSqlOutput::Borrowed(cell.into())).collect();
            sweep.judge(&mut condition, &mut params);
            let before = self.rows;
            let mut moved = Vec::new();
            match into {
                Some(into) => moved = self.insert_among(table, into, &condition, &params)?,
                None => self.delete_dependants(table, &condition, &params)?,
            }
            let others = self.rows - before;
            let left = match sweep.fate {
                Fate::Moved(into) => Left::Moved(into.to_owned()),
                Fate::Deleted | Fate::Set(..) => Left::Gone,
            };
            match table.collection.accept_cascades {
                true => _ = self.delete_rows(table, &condition, &params, &left)?,
                false => self.delete_among(table, &condition, &params, &left)?,
            }
            if let (Some(kept), Some(into)) = (&mut self.images, into) {
                let mut moved = moved.into_iter();
                moved.try_for_each(|key| kept.push_absent(into, self.tenant, &Left::Copy, key))?;
            }
            // A trigger may keep a row, whose dependants are gone.
            if self.rows - before - others < places.len() as u64 {
                return Err(Stop::Violation(kept(&table.collection.name)));
            }
        }
        Ok(())
    }

    /// Inserts rows into another table, with all columns that it does not compute itself; returns their keys there.
    fn insert_among(
        &mut self,
        table: &Table,
        into: &Table,
        condition: &str,
        params: &Params<'_>,
    ) -> Result<Vec<RowKey>, Stop> {
        let names = match common(self.conn, &table.collection, &into.collection)? {
            Ok(names) => names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", "),
            // No item's fault.
            Err(why) => return Err(Stop::Failure(Error::Refused(Cause::Schema, why).into())),
        };
        let key = into.collection.key.iter().map(|name| quote(name)).collect::<Vec<_>>();
        let sql = format!("SELECT {} FROM {} WHERE {condition}", key.join(", "), table.name);
        let keys = self.conn.all(&sql, params_from_iter(params.iter()), |row| {
            let forms = into.collection.key.iter().map(|name| into.form(name));
            let mut key = RowKey::with_capacity(into.collection.key.len());
            for (at, form) in forms.enumerate() {
                key.push(decode(form?, row.get_ref(at)?));
            }
            Ok::<_, Stop>(key)
        })?;
        let sql = format!(
            "INSERT OR ABORT INTO {} ({names}) SELECT {names} FROM {} WHERE {condition}",
            into.name, table.name
        );
        let inserted = self.conn.run(&sql, params_from_iter(params.iter()))?;
        if inserted < keys.len() {
            let name = &into.collection.name;
            let said = format!("a row was not inserted into {name:?}: a trigger prevents it");
            return Err(Stop::Violation(said));
        }
        Ok(keys)
    }

    /// Deletes rows, and keeps the image of each that was deleted.
    fn delete_among(
        &mut self,
        table: &Table,
        among: &str,
        params: &Params<'_>,
        left: &Left,
    ) -> Result<(), Stop> {
        let returned = if self.images.is_some() { table.whole(self.conn)? } else { "1" };
        let sql = format!("DELETE FROM {} WHERE {among} RETURNING {returned}", table.name);
        self.conn.each(&sql, params_from_iter(params.iter()), |row| {
            self.rows += 1;
            match &mut self.images {
                Some(kept) => kept.push(table, self.tenant, left, row),
                None => Ok(()),
            }
        })
    }

    /// The columns that name a row of a table, and whether they are its row id.
    fn place_of(&self, table: &Table) -> Result<(Vec<String>, bool), Stop> {
        let sql = "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main' AND type = 'table'";
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query([&table.collection.table])?;
        let Some(row) = rows.next()? else {
            let name = &table.collection.name;
            return Err(Stop::Violation(format!(
                "{name:?} is no table: its rows can only be changed one by one, with `chunk = 0` of retention"
            )));
        };
        // A column may have each of these names.
        let sql = "SELECT n.value FROM json_each('[\"rowid\", \"_rowid_\", \"oid\"]') n
                   WHERE NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1) c WHERE lower(c.name) = n.value)";
        if !row.get::<_, bool>(0)?
            && let Some(name) = self.conn.first(sql, [&table.collection.table], |row| row.get(0))?
        {
            return Ok((vec![name], true));
        }
        let tenant = table.collection.tenant.iter();
        Ok((tenant.chain(&table.collection.key).map(|name| quote(name)).collect(), false))
    }
}

/// Whether an integer, a parameter, can be added to a column.
pub(super) fn is_sum(column: &str) -> String {
    format!("typeof({} + ?) = 'integer'", quote(column))
}

/// The columns of an increment as they are afterwards, from a row with all its columns.
fn sums_of(increments: &[Field], row: &rusqlite::Row<'_>) -> rusqlite::Result<Vec<Field>> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (at, (name, _)) in names_of(row).enumerate() {
        if increments.iter().any(|field| field.name == name) {
            names.push(name);
            values.push(raw_value(row.get_ref(at)?));
        }
    }
    Ok(increased(increments, &names, &values))
}

/// A column's name, its declared type, and whether it is computed.
type Found = (String, String, bool);

fn column((name, declared, computed): &Found) -> Column<'_> {
    Column { name, declared, computed: *computed }
}

/// The columns of one table that another one does not compute itself; the inner error: rows cannot be moved there.
pub(super) fn common(
    conn: &Connection,
    from: &Collection,
    into: &Collection,
) -> rusqlite::Result<Result<Vec<String>, String>> {
    let columns = |table: &str| -> rusqlite::Result<Vec<Found>> {
        let sql =
            "SELECT name, type, hidden IN (2, 3) FROM pragma_table_xinfo(?1) WHERE hidden <> 1";
        conn.all(sql, [table], |row| row.try_into())
    };
    let refused = |why: &str| Ok(Err(moves::refused(&from.name, &into.name, why)));
    if from.table.eq_ignore_ascii_case(&into.table) {
        return refused("which is the same table");
    }
    let is_table = "SELECT EXISTS (SELECT 1 FROM pragma_table_list(?1)
                    WHERE schema = 'main' AND type = 'table')";
    if !conn.one(is_table, [&into.table], |row| row.get(0))? {
        return refused("which is no table");
    }
    let (own, theirs) = (columns(&from.table)?, columns(&into.table)?);
    let mut names = Vec::with_capacity(own.len());
    for found in own {
        let same = theirs.iter().find(|(other, ..)| other.eq_ignore_ascii_case(&found.0));
        // Another affinity would convert the values.
        let other = same.map(|other| (column(other), keeps(&found.1, &other.1)));
        if let Some(why) = moves::misfit(column(&found), other, &quote(&into.table)) {
            return refused(&why);
        }
        if other.is_some_and(|(other, _)| !other.computed) {
            names.push(found.0);
        }
    }
    Ok(Ok(names))
}

/// Whether a column of one declared type keeps every value of another one as it is.
fn keeps(from: &str, into: &str) -> bool {
    let into = affinity(into);
    into == "BLOB" || affinity(from) == into
}

/// The affinity of a declared type, by the rules of SQLite.
pub(super) fn affinity(declared: &str) -> &'static str {
    let declared = declared.to_uppercase();
    let has = |word: &str| declared.contains(word);
    match () {
        () if has("INT") => "INTEGER",
        () if has("CHAR") || has("CLOB") || has("TEXT") => "TEXT",
        () if has("BLOB") || declared.is_empty() || declared == "ANY" => "BLOB",
        () if has("REAL") || has("FLOA") || has("DOUB") => "REAL",
        () => "NUMERIC",
    }
}

fn written<'v>(test: &'v Test<RawCell>, order: &[String], params: &mut Params<'v>) -> String {
    test.sql(&mut |one| {
        let (at, operator, cell) = match one {
            Test::Equal(at, cell) => (at, "IS", cell),
            Test::Above(at, cell) => (at, ">", cell),
            Test::AtLeast(at, cell) => (at, ">=", cell),
            Test::Below(at, cell) => (at, "<", cell),
            Test::AtMost(at, cell) => (at, "<=", cell),
            Test::Null(at) => return format!("{} IS NULL", quote(&order[*at])),
            Test::NotNull(at) => return format!("{} IS NOT NULL", quote(&order[*at])),
            Test::All(_) | Test::Any(_) => return String::new(),
        };
        params.push(cell.param());
        let column = quote(&order[*at]);
        match one {
            Test::Below(..) | Test::AtMost(..) => {
                format!("({column} {operator} ? OR {column} IS NULL)")
            }
            _ => format!("{column} {operator} ?"),
        }
    })
}
