//! Rows that are deleted with those that go with them, in one statement: it locks the rows, then deletes what
//! refers to them, from the rows down, and the rows themselves. What another transaction has inserted meanwhile
//! is not seen by the statement; the foreign key refuses it then, and the careful repetition sees it.

use std::sync::Arc;

use super::mapping::{Mapping, Refusal, Table, quote};

/// A statement that deletes rows and those that go with them.
pub(super) struct Cascade {
    pub(super) sql: String,
    /// The tables whose rows it deletes: its own, then those of the dependants. The answer's first column
    /// counts them from 0; in one row it is -1, and the second column is the number of locked rows.
    pub(super) tables: Vec<Arc<Table>>,
}

impl Cascade {
    /// The expression that lists what is selected of a locked row of the alias `t`.
    pub(super) fn held(table: &Table) -> String {
        let columns = named(table);
        format!("t.tableoid AS part, t.ctid AS place{columns}")
    }

    /// The statement; `held` selects [`Cascade::held`] of the rows, and locks them.
    pub(super) fn new(
        mapping: &Mapping,
        table: &Arc<Table>,
        held: &str,
        undo: bool,
    ) -> Result<Cascade, Refusal> {
        if table.found.as_ref().is_some_and(|found| !matches!(found.kind.as_str(), "r" | "p")) {
            let name = &table.collection.name;
            return Err(format!("{name:?} is no table, so no rows can go with its rows"));
        }
        let mut steps =
            Steps { mapping, undo, sql: String::new(), tables: vec![Arc::clone(table)] };
        steps.beneath(table, "held")?;
        let Steps { sql, tables, .. } = steps;
        let bytes = |table: &Arc<Table>| if undo { table.whole.sql().len() - 1 } else { 0 };
        let width = tables.iter().map(bytes).max().unwrap_or_default();
        let mut selects = vec![format!(
            "SELECT -1, (SELECT count(*) FROM held)::int4, NULL::text{}",
            ", NULL::bytea".repeat(width)
        )];
        for (at, table) in tables.iter().enumerate() {
            let own = (0..bytes(table)).map(|at| format!(", r{}", at + 1));
            let rest = ", NULL".repeat(width - bytes(table));
            selects.push(format!("SELECT {at}, 0, r0{}{rest} FROM g{at}", own.collect::<String>()));
        }
        let sql = format!(
            "WITH held AS MATERIALIZED ({held}){sql},
             g0 AS (DELETE FROM {} t USING held h WHERE t.tableoid = h.part AND t.ctid = h.place
               RETURNING {})
             {}",
            table.name,
            images(table, undo),
            selects.join(" UNION ALL ")
        );
        Ok(Cascade { sql, tables })
    }
}

struct Steps<'a> {
    mapping: &'a Mapping,
    undo: bool,
    sql: String,
    tables: Vec<Arc<Table>>,
}

impl Steps<'_> {
    /// Deletes the rows that refer to those of `above`, and then what refers to them.
    fn beneath(&mut self, table: &Table, above: &str) -> Result<(), Refusal> {
        for name in &table.collection.dependants {
            let dependant = Arc::clone(self.mapping.table(name)?);
            let Some(anchor) = dependant.collection.anchor_in(&table.collection.name) else {
                continue;
            };
            let mut on = Vec::new();
            if let Some((tenant, _)) = &dependant.tenant {
                on.push(format!("t.{tenant} = h.tenant"));
            }
            for (at, column) in anchor.columns.iter().enumerate() {
                on.push(format!("t.{} = h.k{at}", quote(column)));
            }
            let step = format!("g{}", self.tables.len());
            self.sql.push_str(&format!(
                ",\n{step} AS (DELETE FROM {} t USING {above} h WHERE {} RETURNING {}{})",
                dependant.name,
                on.join(" AND "),
                images(&dependant, self.undo),
                named(&dependant),
            ));
            self.tables.push(Arc::clone(&dependant));
            self.beneath(&dependant, &step)?;
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
