//! Changes of the rows of a range, in one statement: it locks the rows that nobody else holds, judges each of
//! them by the bounds and the conditions, and changes it.

use std::sync::Arc;

use besom_core::proposal::{Change, Fate, OnGuardFailed, Proposal, ReadSet, RowRange};
use besom_core::value::Value;

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::lookup::selected;
use super::mapping::{DIALECT, Mapping, Refusal, Table, quote};
use super::session::{Param, Session, params};
use super::together::Together;
use super::values::Cell;
use super::work::Work;
use besom_ports::store::{LockedRows, Range};
use besom_record::closed;
use besom_tables::conditions::{columns_of_range, of_range};
use besom_tables::range::{Page, Test, ends};
use besom_tables::room::Room;

/// A statement, and the table whose rows it returns.
pub(super) struct Statement {
    pub(super) table: Arc<Table>,
    pub(super) sql: String,
    pub(super) params: Vec<Param<'static>>,
    /// What else it changes.
    pub(super) together: Option<Together>,
}

/// Whether rows of it can be changed by ranges: a row of a view has no place that could be named.
pub(super) fn has_ranges(table: &Table) -> bool {
    table.found.as_ref().is_none_or(|found| matches!(found.kind.as_str(), "r" | "p"))
}

/// The statement that changes the rows; it returns the rows as they were, or one column for each if before-images
/// are not kept.
pub(super) fn statement(
    mapping: &Mapping,
    work: &Work<'_>,
    range: &RowRange,
    fate: Fate<'_>,
) -> Result<Statement, Refusal> {
    let table = mapping.table(&range.collection)?;
    if !has_ranges(table) {
        return Err(format!(
            "{:?} is no table: its rows can only be changed one by one, with `chunk = 0` of retention",
            range.collection
        ));
    }
    let mut params = Vec::new();
    let wheres = judged(table, work, range, &mut params)?;
    params.push(Box::new(i64::from(range.rows.min(work.rows_max))));
    let limit = format!("LIMIT ${} FOR UPDATE SKIP LOCKED", params.len());
    let name = &table.name;
    let held = || format!("SELECT {} FROM {name} t WHERE {wheres} {limit}", Together::held(table));
    let kept = if work.undo { table.whole.sql() } else { vec!["1".to_owned()] };
    let images = kept.join(", ");
    let mut together = None;
    let sql = match fate {
        Fate::Moved(into) => {
            let (sql, all) = Together::moved(table, mapping.table(into)?, &held(), work.undo);
            together = Some(all);
            sql
        }
        Fate::Deleted if !table.is_plain() => {
            let (sql, all) = Together::cascade(mapping, table, &held(), (true, work.undo))?;
            together = Some(all);
            sql
        }
        // In several tables rows may have the same place.
        Fate::Deleted if table.is_several() => format!(
            "WITH held (part, place) AS
               (SELECT t.tableoid, t.ctid FROM {name} t WHERE {wheres} {limit})
             DELETE FROM {name} t USING held
             WHERE t.tableoid = held.part AND t.ctid = held.place AND {wheres} RETURNING {images}"
        ),
        Fate::Deleted => format!(
            "DELETE FROM {name} t
             WHERE t.ctid = ANY(ARRAY(SELECT t.ctid FROM {name} t WHERE {wheres} {limit}))
               AND {wheres} RETURNING {images}"
        ),
        Fate::Set(fields, increments) => {
            let mut set = Vec::with_capacity(fields.len() + increments.len());
            let mut nulls = Vec::with_capacity(increments.len());
            for (at, field) in fields.iter().chain(increments).enumerate() {
                params.push(Box::new(table.written(&field.name, &field.value)?));
                let form = table.form(&field.name)?;
                let (column, value) =
                    (quote(&field.name), format!("${}::{}", params.len(), form.wire.sql()));
                let value = form.meets(&value);
                set.push(match at < fields.len() {
                    true => format!("{column} = {value}"),
                    false => {
                        nulls.push(format!("t.{column} IS NULL"));
                        format!("{column} = t.{column} + {value}")
                    }
                });
            }
            let set = set.join(", ");
            let columns = kept.len();
            let names: Vec<String> = (0..columns).map(|at| format!("v{at}")).collect();
            let names = names.join(", ");
            let mut returned: Vec<String> = (0..columns).map(|at| format!("held.v{at}")).collect();
            // Nothing is added to NULL, which stays NULL.
            returned.extend((!nulls.is_empty()).then(|| nulls.join(" OR ")));
            format!(
                "WITH held (part, place, {names}) AS
                   (SELECT t.tableoid, t.ctid, {images} FROM {name} t WHERE {wheres} {limit})
                 UPDATE {name} t SET {set} FROM held
                 WHERE t.tableoid = held.part AND t.ctid = held.place AND {wheres}
                 RETURNING {}",
                returned.join(", ")
            )
        }
    };
    Ok(Statement { table: Arc::clone(table), sql, params, together })
}

/// Foreign keys that keep the rows that they refer to; those of partitions are their tables'.
const KEEPERS: &str = "SELECT f.conrelid, f.conname::text, c.relname::text, f.conrelid::regclass::text,
    ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, at)
      JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.at),
    ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY k(no, at)
      JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.no ORDER BY k.at),
    f.conrelid = f.confrelid
  FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid
  WHERE f.contype = 'f' AND f.confdeltype IN ('a', 'r') AND f.conparentid = 0 AND f.confrelid = $1::oid
    AND NOT EXISTS (SELECT 1 FROM unnest(f.conkey) k (no)
      WHERE NOT has_column_privilege(f.conrelid, k.no, 'SELECT'))
  ORDER BY f.conname";

/// A foreign key that keeps rows.
struct Keeper {
    /// The table whose rows refer.
    of: String,
    /// The condition that a row of it with the alias `o` refers to one with the alias `t`.
    equal: String,
    /// In the words of the database.
    said: String,
    /// Whether the rows of the table itself refer, which may be deleted together.
    by_own: bool,
}

/// Whether foreign keys may keep rows of a range.
pub(super) async fn is_kept(
    session: &Session,
    mapping: &Mapping,
    (range, fate): (&RowRange, Fate<'_>),
) -> Job<bool> {
    if matches!(fate, Fate::Set(..)) {
        return Ok(false);
    }
    let table = mapping.table(&range.collection).map_err(invalid)?;
    Ok(!keepers(session, mapping, table).await?.is_empty())
}

/// The foreign keys that keep rows which are to be deleted.
async fn keepers(session: &Session, mapping: &Mapping, table: &Table) -> Job<Vec<Keeper>> {
    let Some(found) = &table.found else { return Ok(Vec::new()) };
    let mut keepers = Vec::new();
    for row in session.query(KEEPERS, params![found.oid]).await? {
        if mapping.go_first(table, row.try_get(0)?, &row.try_get::<_, Vec<&str>>(4)?) {
            continue;
        }
        let (name, relation): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
        let of: &str = row.try_get(3)?;
        let (own, theirs): (Vec<&str>, Vec<&str>) = (row.try_get(4)?, row.try_get(5)?);
        let pairs = own.iter().zip(&theirs);
        let equal: Vec<String> =
            pairs.map(|(own, their)| format!("o.{} = t.{}", quote(own), quote(their))).collect();
        let equal = equal.join(" AND ");
        keepers.push(Keeper {
            of: of.to_owned(),
            equal,
            by_own: row.try_get(6)?,
            said: format!(
                "update or delete on table {:?} violates foreign key constraint {name:?} on table {relation:?}",
                table.collection.table
            ),
        });
    }
    Ok(keepers)
}

/// The rows of a range, by their keys.
#[derive(Default)]
pub(super) struct Sorted {
    /// Those that may be changed.
    pub(super) open: Vec<Vec<Value>>,
    /// Those that a foreign key keeps, and in which words.
    pub(super) kept: Vec<(Vec<Value>, String)>,
}

/// The keys of the rows, which are locked until the transaction ends.
pub(super) async fn sorted(
    session: &Session,
    mapping: &Mapping,
    work: &Work<'_>,
    (range, fate): (&RowRange, Fate<'_>),
) -> Job<Sorted> {
    let table = mapping.table(&range.collection).map_err(invalid)?;
    let all = match fate {
        Fate::Deleted | Fate::Moved(_) => keepers(session, mapping, table).await?,
        Fate::Set(..) => Vec::new(),
    };
    let (own, keepers): (Vec<Keeper>, Vec<Keeper>) = all.into_iter().partition(|one| one.by_own);
    let mut params = Vec::new();
    let wheres = judged(table, work, range, &mut params).map_err(invalid)?;
    let (mut select, forms) = selected(table, &table.collection.key).map_err(invalid)?;
    let cases = keepers.iter().enumerate();
    let case = |(at, Keeper { of, equal, .. }): (usize, &Keeper)| {
        format!(" WHEN EXISTS (SELECT 1 FROM {of} o WHERE {equal}) THEN {at}")
    };
    let cases: String = cases.map(case).collect();
    select.push(format!("(CASE{cases} WHEN false THEN -1 END)::int4"));
    select.push("t.tableoid, t.ctid::text".to_owned());
    params.push(Box::new(i64::from(range.rows.min(work.rows_max))));
    let sql = format!(
        "SELECT {} FROM {} t WHERE {wheres} LIMIT ${} FOR UPDATE SKIP LOCKED",
        select.join(", "),
        table.name,
        params.len()
    );
    let (mut sorted, mut places) = (Sorted::default(), (Vec::new(), Vec::new()));
    for row in session.query(&sql, params).await? {
        let cells = forms.iter().enumerate();
        let key: Vec<Value> =
            cells.map(|(at, form)| Ok(form.value_in(&row, at)?)).collect::<Job<_>>()?;
        let by: Option<i32> = row.try_get(forms.len())?;
        match by.and_then(|at| keepers.get(usize::try_from(at).ok()?)) {
            Some(keeper) => sorted.kept.push((key, keeper.said.clone())),
            None => {
                sorted.open.push(key);
                places.0.push(row.try_get::<_, u32>(forms.len() + 1)?);
                places.1.push(row.try_get::<_, String>(forms.len() + 2)?);
            }
        }
    }
    if !own.is_empty() && !sorted.open.is_empty() {
        sorted.sort_by_own(session, table, &own, places).await?;
    }
    Ok(sorted)
}

impl Sorted {
    /// Sorts out the open rows to which a row of their table refers that stays. Rows that refer to each other may be
    /// deleted together.
    async fn sort_by_own(
        &mut self,
        session: &Session,
        table: &Table,
        own: &[Keeper],
        (parts, places): (Vec<u32>, Vec<String>),
    ) -> Job<()> {
        let (name, said) = (&table.name, own.first().map_or("", |keeper| &keeper.said));
        let equal: Vec<String> = own.iter().map(|keeper| format!("({})", keeper.equal)).collect();
        let equal = format!("({})", equal.join(" OR "));
        let of_held =
            format!("FROM held h JOIN {name} t ON t.tableoid = h.part AND t.ctid = h.place");
        let is = "g.part = o.tableoid AND g.place = o.ctid";
        let sql = format!(
            "WITH held (no, part, place) AS MATERIALIZED (SELECT no - 1, part, place::tid
               FROM unnest($1::oid[], $2::text[]) WITH ORDINALITY u (part, place, no))
             SELECT h.no, NULL {of_held} WHERE EXISTS (SELECT 1 FROM {name} o
               WHERE {equal} AND NOT EXISTS (SELECT 1 FROM held g WHERE {is}))
             UNION ALL SELECT h.no, g.no {of_held} JOIN {name} o ON {equal} JOIN held g ON {is}"
        );
        let (mut kept, mut above) = (Vec::new(), vec![Vec::new(); self.open.len()]);
        for row in session.query(&sql, params![parts, places]).await? {
            let at = |column| -> Job<Option<usize>> {
                let no: Option<i64> = row.try_get(column)?;
                Ok(no.and_then(|no| usize::try_from(no).ok()))
            };
            let Some(no) = at(0)? else { continue };
            match at(1)? {
                None => kept.push(no),
                Some(below) => above[below].push(no),
            }
        }
        let stay = closed(kept, &above);
        for (key, stays) in std::mem::take(&mut self.open).into_iter().zip(stay) {
            match stays {
                true => self.kept.push((key, said.to_owned())),
                false => self.open.push(key),
            }
        }
        Ok(())
    }
}

/// The rows that another transaction has locked: their number, and the key of the first. Those that it has not are
/// locked until this transaction ends.
pub(super) async fn locked(
    session: &Session,
    mapping: &Mapping,
    work: &Work<'_>,
    range: &RowRange,
) -> Job<Option<LockedRows>> {
    let table = mapping.table(&range.collection).map_err(invalid)?;
    let mut params = Vec::new();
    let wheres = judged(table, work, range, &mut params).map_err(invalid)?;
    let (select, forms) = selected(table, &table.collection.key).map_err(invalid)?;
    params.push(Box::new(i64::from(range.rows)));
    let (name, limit) = (&table.name, params.len());
    // If so many rows are free, the item changes no others.
    let sql = format!(
        "WITH free AS MATERIALIZED (SELECT t.tableoid AS part, t.ctid AS place FROM {name} t
           WHERE {wheres} LIMIT ${limit} FOR UPDATE SKIP LOCKED)
         SELECT {} FROM {name} t WHERE {wheres}
           AND NOT EXISTS (SELECT 1 FROM free f WHERE f.part = t.tableoid AND f.place = t.ctid)
         LIMIT greatest(0, ${limit} - (SELECT count(*) FROM free))",
        select.join(", ")
    );
    let rows = session.query(&sql, params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let key = forms.iter().enumerate().map(|(at, form)| Ok(form.value_in(row, at)?.shown()));
    let first = key.collect::<Job<Vec<String>>>()?.join(", ");
    Ok(Some(LockedRows { rows: rows.len() as u64, first: Some(first) }))
}

/// The change of the rows with these keys, which were found by the range and are locked.
pub(super) fn of_keys(range: &RowRange, fate: Fate<'_>, keys: &[Vec<Value>]) -> Proposal {
    let collection = &range.collection;
    let alone = |key: &Vec<Value>| {
        let (collection, prefix) = (collection.clone(), key.clone());
        Arc::new(RowRange { collection, prefix, rows: 1, ..RowRange::default() })
    };
    let changes = match fate {
        Fate::Deleted => {
            let (collection, rest) = (collection.clone(), keys.to_vec());
            let set = ReadSet { collection, prefix: Vec::new(), rest };
            vec![Change::DeleteReadSet(Arc::new(set))]
        }
        Fate::Moved(into) => {
            let one =
                |key: &Vec<Value>| Change::MoveRange { range: alone(key), into: into.to_owned() };
            keys.iter().map(one).collect()
        }
        Fate::Set(fields, []) => {
            let update = |key: &Vec<Value>| Change::Update {
                collection: collection.clone(),
                key: key.clone(),
                fields: fields.to_vec(),
            };
            keys.iter().map(update).collect()
        }
        Fate::Set(fields, increments) => {
            let one = |key: &Vec<Value>| Change::UpdateRange {
                range: alone(key),
                fields: fields.to_vec(),
                increments: increments.to_vec(),
            };
            keys.iter().map(one).collect()
        }
    };
    let on_guard_failed = OnGuardFailed::Skip(String::new());
    Proposal { guards: Vec::new(), changes, on_guard_failed, notes: Vec::new() }
}

/// The conditions on the alias `t`.
fn judged(
    table: &Table,
    work: &Work<'_>,
    range: &RowRange,
    params: &mut Vec<Param<'static>>,
) -> Result<String, Refusal> {
    let mut wheres = "true".to_owned();
    if let (Some(cell), Some((name, form))) = (table.tenant_cell(work.tenant)?, &table.tenant) {
        params.push(Box::new(cell));
        wheres = form.equals(&format!("t.{name}"), &format!("${}::text", params.len()));
    }
    let read = Range::from(range);
    let page: Page<'_, Cell> =
        Page::new(table, &read, Room::new(u64::MAX), &DIALECT, |name| table.nullable(name))?;
    let terms = Conditions::of(table, of_range(&read, page.index))?;
    wheres.push_str(&terms.numbered(params));
    for name in columns_of_range(&read, page.index) {
        if let Some(fits) = table.form(name)?.fits(&format!("t.{}", quote(name))) {
            wheres.push_str(" AND ");
            wheres.push_str(&fits);
        }
    }
    let (after, until) = ends::<Cell>(range)?;
    let mut refused = None;
    for test in page.between(after.as_deref(), until.as_deref())? {
        let sql = test.sql(&mut |one| {
            let (Test::Equal(at, _)
            | Test::Above(at, _)
            | Test::AtLeast(at, _)
            | Test::Below(at, _)
            | Test::AtMost(at, _)
            | Test::Null(at)
            | Test::NotNull(at)) = one
            else {
                return "false".to_owned();
            };
            let name = &page.order[*at];
            let column = format!("t.{}", quote(name));
            let form = match table.form(name) {
                Ok(form) => form,
                Err(refusal) => {
                    refused = Some(refusal);
                    return "false".to_owned();
                }
            };
            let mut given = |cell: &Cell| {
                params.push(Box::new(cell.clone()));
                format!("${}::{}", params.len(), form.wire.sql())
            };
            let or_null = |sql: String| match page.nullable[*at] {
                true => format!("({sql} OR {column} IS NULL)"),
                false => sql,
            };
            match one {
                Test::Equal(_, Cell::Null) | Test::Null(_) => format!("{column} IS NULL"),
                Test::Equal(_, cell) => form.equals(&column, &given(cell)),
                Test::Above(_, cell) => format!("{column} > {}", form.meets(&given(cell))),
                Test::AtLeast(_, cell) => format!("{column} >= {}", form.meets(&given(cell))),
                Test::Below(_, cell) => or_null(format!("{column} < {}", form.meets(&given(cell)))),
                Test::AtMost(_, cell) => {
                    or_null(format!("{column} <= {}", form.meets(&given(cell))))
                }
                Test::NotNull(_) => format!("{column} IS NOT NULL"),
                Test::All(_) | Test::Any(_) => "false".to_owned(),
            }
        });
        wheres.push_str(" AND ");
        wheres.push_str(&sql);
    }
    refused.map_or(Ok(wheres), Err)
}
