//! Statements that delete rows together with others: with those that go with them, or into another table.
//!
//! A row under which others may insert is locked by a statement of its own, before the one that deletes: the foreign
//! key makes inserts wait for the lock, so the next statement sees every row that goes with it. The places of the
//! rows pass from one statement to the next in a setting of the transaction.

use std::sync::Arc;

use super::catalog::ColumnFound;
use super::mapping::{Mapping, Refusal, Table, quote};
use besom_core::collection::Anchor;
use besom_tables::moves::{self, Column};

/// What goes with a statement that deletes rows together with others. Each row of its answer begins with the place of its
/// table, and a number; what is kept of the row follows.
pub(super) struct Together {
    /// Those that come before the last one, in their order; the parameters are the first one's. None: they are the
    /// last one's.
    pub(super) before: Vec<String>,
    /// The tables whose rows it deletes: its own, then those of the dependants.
    pub(super) tables: Vec<Arc<Table>>,
    /// The table into which the rows of the first one are moved.
    pub(super) into: Option<Arc<Table>>,
}

/// In place of a table: the number of rows that the statement has to delete.
pub(super) const LOCKED: i32 = -1;
/// In place of a table: the number of rows that were inserted into another one.
pub(super) const INSERTED: i32 = -2;
/// In place of a table: the number of rows of the first table that were found.
pub(super) const FOUND: i32 = -3;

impl Together {
    /// The expression that lists what is selected of a locked row of the alias `t`.
    pub(super) fn held(table: &Table) -> String {
        let columns = named(table);
        format!("t.tableoid AS part, t.ctid AS place{columns}")
    }

    /// Deletes rows with those that go with them; `held` selects [`Together::held`] of the rows, and locks them.
    /// `skips`: a row stays with all that goes with it if another transaction holds any of these; otherwise the
    /// statement waits.
    pub(super) fn cascade(
        mapping: &Mapping,
        table: &Arc<Table>,
        held: &str,
        (skips, undo): (bool, bool),
    ) -> Result<(String, Together), Refusal> {
        let found = format!(
            "SELECT {} FROM {} t JOIN (
               SELECT split_part(x, ':', 1)::oid AS part, split_part(x, ':', 2)::tid AS place
               FROM unnest(string_to_array(current_setting('besom.held'), ' ')) x) s
             ON t.ctid = s.place AND t.tableoid = s.part",
            Together::held(table),
            table.name
        );
        let first = format!(
            "SELECT length(set_config('besom.held', coalesce((
               SELECT string_agg(h.part || ':' || h.place, ' ') FROM ({held}) h), ''), true))"
        );
        let mut steps =
            Steps { mapping, skips, before: vec![first], sql: String::new(), tables: Vec::new() };
        steps.add(table)?;
        steps.beneath(table, "numbered", &found)?;
        let Steps { before, sql: locks, tables, .. } = steps;
        let bytes = |table: &Arc<Table>| if undo { table.whole.sql().len() - 1 } else { 0 };
        let width = tables.iter().map(bytes).max().unwrap_or_default();
        // There may be no dependants.
        let busy = (1..tables.len()).map(|at| format!("SELECT no FROM b{at}"));
        let busy: Vec<String> =
            std::iter::once("SELECT 0::bigint AS no WHERE false".to_owned()).chain(busy).collect();
        // A row may go with several.
        let of = if skips { "free" } else { "numbered" };
        // Not `IN free`: without hash joins, which the connection has switched off, that compares all with all.
        let is_free = |no: &str| format!("{no} NOT IN (SELECT no FROM busy)");
        let of_free = if skips { format!(" WHERE {}", is_free("no")) } else { String::new() };
        let each = (1..tables.len()).map(|at| format!("SELECT part, place FROM l{at}{of_free}"));
        let none = "SELECT NULL::oid, NULL::tid WHERE false".to_owned();
        let each: Vec<String> = std::iter::once(none).chain(each).collect();
        let mut deletes = String::new();
        let nulls = ", NULL::bytea".repeat(width);
        let mut selects = vec![
            format!("SELECT {FOUND}, (SELECT count(*) FROM held)::int4, NULL::text{nulls}"),
            format!(
                "SELECT {LOCKED}, ((SELECT count(*) FROM {of})
                   + (SELECT count(*) FROM ({}) x))::int4, NULL{nulls}",
                each.join(" UNION ")
            ),
        ];
        for (at, table) in tables.iter().enumerate() {
            let (from, and_free) = match at {
                0 => ("free".to_owned(), String::new()),
                at => (format!("l{at}"), format!(" AND {}", is_free("h.no"))),
            };
            deletes.push_str(&format!(
                ",\ng{at} AS (DELETE FROM {} t USING {from} h
                   WHERE t.tableoid = h.part AND t.ctid = h.place{and_free} RETURNING {})",
                table.name,
                images(table, undo)
            ));
            let own = (0..bytes(table)).map(|at| format!(", r{}", at + 1));
            let rest = ", NULL".repeat(width - bytes(table));
            selects.push(format!("SELECT {at}, 0, r0{}{rest} FROM g{at}", own.collect::<String>()));
        }
        let sql = format!(
            "WITH held AS MATERIALIZED ({found}),
             numbered AS MATERIALIZED (SELECT *, row_number() OVER () AS no FROM held){locks},
             busy AS MATERIALIZED ({}),
             free AS MATERIALIZED (SELECT * FROM numbered WHERE {}){deletes}
             {}",
            busy.join(" UNION ALL "),
            is_free("no"),
            selects.join(" UNION ALL ")
        );
        Ok((sql, Together { before, tables, into: None }))
    }

    /// Moves rows into another table, with all columns that it does not compute itself.
    pub(super) fn moved(
        table: &Arc<Table>,
        into: &Arc<Table>,
        held: &str,
        undo: bool,
    ) -> (String, Together) {
        let computed = |name: &str| {
            let column = into.found.as_ref().and_then(|found| found.column(name));
            column.is_some_and(|column| column.generated)
        };
        let all = table.found.iter().flat_map(|found| &found.columns);
        let names: Vec<String> =
            all.filter(|column| !computed(&column.name)).map(|c| quote(&c.name)).collect();
        let list = |each: &dyn Fn((usize, &String)) -> String| {
            names.iter().enumerate().map(each).collect::<Vec<_>>().join(", ")
        };
        let bytes = if undo { table.whole.sql().len() - 1 } else { 0 };
        let sql = format!(
            "WITH held AS MATERIALIZED ({held}),
             g0 AS (DELETE FROM {} t USING held h WHERE t.tableoid = h.part AND t.ctid = h.place
               RETURNING {}, {}),
             put AS (INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM g0 RETURNING 1)
             SELECT {LOCKED}, (SELECT count(*) FROM held)::int4, NULL::text{nulls}
             UNION ALL SELECT {INSERTED}, (SELECT count(*) FROM put)::int4, NULL{nulls}
             UNION ALL SELECT 0, 0, r0{kept} FROM g0",
            table.name,
            list(&|(at, name)| format!("t.{name} AS c{at}")),
            images(table, undo),
            into.name,
            names.join(", "),
            list(&|(at, _)| format!("c{at}")),
            nulls = ", NULL::bytea".repeat(bytes),
            kept = (1..=bytes).map(|at| format!(", r{at}")).collect::<String>(),
        );
        let (tables, into) = (vec![Arc::clone(table)], Some(Arc::clone(into)));
        (sql, Together { before: Vec::new(), tables, into })
    }
}

/// Why rows of a table cannot be moved into another one, whatever is in them.
pub(super) fn misfit(table: &Table, into: &Table) -> Option<String> {
    let (from, to) = (table.found.as_ref()?, into.found.as_ref()?);
    let refused =
        |why: &str| Some(moves::refused(&table.collection.name, &into.collection.name, why));
    if from.oid == to.oid {
        return refused("which is the same table");
    }
    if from.within.contains(&to.oid) || to.within.contains(&from.oid) {
        return refused("because one of the tables is a partition of the other");
    }
    if !matches!(to.kind.as_str(), "r" | "p") {
        return refused("which is no table");
    }
    let why = from.columns.iter().find_map(|own| {
        let other = to.column(&own.name).map(|other| (column(other), keeps(own, other)));
        moves::misfit(column(own), other, &into.name)
    })?;
    refused(&why)
}

fn column(found: &ColumnFound) -> Column<'_> {
    Column { name: &found.name, declared: &found.declared, computed: found.generated }
}

/// Whether a column keeps every value of another one as it is.
fn keeps(from: &ColumnFound, into: &ColumnFound) -> bool {
    let wider = match into.declared.as_str() {
        "bigint" => &["integer", "smallint"][..],
        "integer" => &["smallint"],
        "numeric" => &["bigint", "integer", "smallint"],
        "double precision" => &["real"],
        _ => &[],
    };
    from.declared == into.declared
        || wider.contains(&from.declared.as_str())
        || (into.declared == "numeric" && from.ty == "numeric")
        || (matches!(into.declared.as_str(), "text" | "character varying")
            && matches!(from.ty.as_str(), "text" | "varchar"))
}

/// Why rows of a dependant cannot go with rows of a table: the foreign key compares their columns otherwise.
pub(super) fn unlike(table: &Table, dependant: &Table) -> Option<String> {
    let (to, of) = (table.found.as_ref()?, dependant.found.as_ref()?);
    let anchors = dependant.collection.anchors_in(&table.collection.name);
    let pairs = anchors.flat_map(|anchor| anchor.columns.iter().zip(&table.collection.key));
    for (own, theirs) in pairs {
        let (Some(own), Some(theirs)) = (of.column(own), to.column(theirs)) else { continue };
        let special = |column: &ColumnFound| match column.ty.as_str() {
            ty @ ("bpchar" | "citext") => ty.to_owned(),
            _ => column.loose.clone(),
        };
        if special(own) != special(theirs) {
            return Some(format!(
                "rows of {:?} cannot go with rows of {:?}: {} ({}) is not compared as {} ({}) is; declare both alike",
                dependant.collection.name,
                table.collection.name,
                own.name,
                own.declared,
                theirs.name,
                theirs.declared
            ));
        }
    }
    None
}

struct Steps<'a> {
    mapping: &'a Mapping,
    skips: bool,
    before: Vec<String>,
    sql: String,
    tables: Vec<Arc<Table>>,
}

impl Steps<'_> {
    fn add(&mut self, table: &Arc<Table>) -> Result<usize, Refusal> {
        if table.found.as_ref().is_some_and(|found| !matches!(found.kind.as_str(), "r" | "p")) {
            let name = &table.collection.name;
            return Err(format!("{name:?} is no table, so its rows cannot go with others"));
        }
        self.tables.push(Arc::clone(table));
        Ok(self.tables.len() - 1)
    }

    /// Locks the rows that refer to those of `above`, and then what refers to them. `no` is the number of the row
    /// that all of them go with: `b1` are those of which not all could be locked.
    /// `rows` selects the same rows as `above`, in a statement before.
    fn beneath(&mut self, table: &Table, above: &str, rows: &str) -> Result<(), Refusal> {
        for name in &table.collection.dependants {
            let dependant = Arc::clone(self.mapping.table(name)?);
            let refers = |anchor: &Anchor| {
                let columns = anchor.columns.iter().enumerate();
                let equal = columns.map(|(at, column)| format!("t.{} = h.k{at}", quote(column)));
                let tenant = dependant.tenant.iter();
                let tenant = tenant.map(|(tenant, _)| format!("t.{tenant} = h.tenant"));
                tenant.chain(equal).collect::<Vec<_>>().join(" AND ")
            };
            // A row may refer to it in several ways.
            let on: Vec<String> =
                dependant.collection.anchors_in(&table.collection.name).map(refers).collect();
            if on.is_empty() {
                continue;
            }
            let on = on.join(" OR ");
            let at = self.add(&dependant)?;
            let from = format!("{} t JOIN {above} h ON {on}", dependant.name);
            let skip = if self.skips { " SKIP LOCKED" } else { "" };
            self.sql.push_str(&format!(
                ",
                 l{at} AS MATERIALIZED (
                   SELECT h.no, {} FROM {from} FOR UPDATE OF t{skip}),
                 b{at} AS (
                   SELECT no FROM (SELECT h.no, 1 AS n FROM {from}
                     UNION ALL SELECT no, -1 FROM l{at}) x
                   GROUP BY no HAVING sum(n) <> 0)",
                Together::held(&dependant),
            ));
            if dependant.collection.dependants.is_empty() {
                continue;
            }
            let rows = format!(
                "SELECT {} FROM {} t JOIN ({rows}) h ON {on}",
                Together::held(&dependant),
                dependant.name,
            );
            self.before.push(format!("SELECT count(*) FROM ({rows} FOR UPDATE OF t{skip}) x"));
            self.beneath(&dependant, &format!("l{at}"), &rows)?;
        }
        Ok(())
    }
}

/// `, t.tenant AS tenant, t.first AS k0, t.second AS k1`
fn named(table: &Table) -> String {
    let tenant = table.tenant.iter().map(|(name, _)| format!(", t.{name} AS tenant"));
    let column = |(at, name): (usize, &String)| format!(", t.{} AS k{at}", quote(name));
    tenant.chain(table.collection.key.iter().enumerate().map(column)).collect()
}

/// What is kept of a row of the alias `t`.
fn images(table: &Table, undo: bool) -> String {
    let kept = if undo { table.whole.sql() } else { vec!["NULL::text".to_owned()] };
    let one = |(at, sql): (usize, String)| format!("{sql} AS r{at}");
    kept.into_iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}
