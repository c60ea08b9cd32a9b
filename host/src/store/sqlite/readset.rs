//! Read sets as SQL: exactly the rows that were read, never a range that could hold others.
//!
//! The keys of a log differ in one integer, and most of them follow each other; a run of
//! successive integers is one range that holds nothing else, so 260,000 rows are a few
//! statements. Other keys are taken one by one.

use besom_core::ids::Tenant;
use besom_core::proposal::ReadSet;
use besom_core::value::{Kind, Value};
use rusqlite::params_from_iter;
use rusqlite::types::ToSqlOutput;

use super::effects::{Effects, Stop};
use super::mapping::{Params, Table, push_quoted};

/// How the rows of a read set are addressed.
enum Shape {
    /// Runs of the last key column, both ends included.
    Runs(Vec<(i64, i64)>),
    /// One by one.
    Keys,
}

fn shape(table: &Table, set: &ReadSet) -> Shape {
    let last = table.collection.key.last().and_then(|name| table.collection.columns.get(name));
    let integers = || -> Option<Vec<i64>> {
        let alone = set.prefix.len() + 1 == table.collection.key.len();
        if !alone || last.is_none_or(|column| column.kind != Kind::Integer) {
            return None;
        }
        set.rest
            .iter()
            .map(|rest| match rest.as_slice() {
                [Value::Integer(i)] => Some(*i),
                _ => None,
            })
            .collect()
    };
    match integers() {
        None => Shape::Keys,
        Some(mut integers) => {
            integers.sort_unstable();
            let mut runs: Vec<(i64, i64)> = Vec::new();
            for i in integers {
                match runs.last_mut() {
                    Some((_, end)) if i <= end.saturating_add(1) => *end = i,
                    _ => runs.push((i, i)),
                }
            }
            Shape::Runs(runs)
        }
    }
}

/// ` tenant = ? AND prefix = ? AND last BETWEEN ? AND ?`
fn push_run<'v>(
    table: &Table,
    tenant: Option<&'v Tenant>,
    set: &'v ReadSet,
    (from, to): (i64, i64),
    sql: &mut String,
    params: &mut Params<'v>,
) -> Result<(), Stop> {
    table.push_tenant(tenant, sql, params)?;
    table.push_equal(set.prefix.iter(), sql, params)?;
    sql.push_str(" AND ");
    push_quoted(table.collection.key.last().map_or("", String::as_str), sql);
    sql.push_str(" BETWEEN ? AND ?");
    params.push(ToSqlOutput::from(from));
    params.push(ToSqlOutput::from(to));
    Ok(())
}

impl Effects<'_> {
    /// Whether every row of the set is still there.
    pub(super) fn complete(&self, set: &ReadSet) -> Result<bool, Stop> {
        let table = self.mapping.table(&set.collection)?;
        match shape(table, set) {
            Shape::Runs(runs) => {
                for (from, to) in runs {
                    let mut sql = format!("SELECT count(*) FROM {} WHERE ", table.name);
                    let mut params = Vec::new();
                    push_run(table, self.tenant, set, (from, to), &mut sql, &mut params)?;
                    let found: i64 = self
                        .conn
                        .prepare_cached(&sql)?
                        .query_row(params_from_iter(params.iter()), |r| r.get(0))?;
                    if found != to - from + 1 {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Shape::Keys => {
                for key in set.keys() {
                    let mut sql = format!("SELECT 1 FROM {} WHERE ", table.name);
                    let mut params = Vec::new();
                    table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
                    if !self.conn.prepare_cached(&sql)?.exists(params_from_iter(params.iter()))? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Deletes exactly the rows of the set, and keeps their images.
    pub(super) fn delete_read_set(&mut self, set: &ReadSet) -> Result<(), Stop> {
        let mapping = self.mapping;
        let table = mapping.table(&set.collection)?;
        match shape(table, set) {
            Shape::Runs(runs) => {
                for run in runs {
                    let (mut condition, mut params) = (String::new(), Vec::new());
                    push_run(table, self.tenant, set, run, &mut condition, &mut params)?;
                    self.delete_where(table, &condition, &params)?;
                }
            }
            Shape::Keys => {
                for key in set.keys() {
                    let (mut condition, mut params) = (String::new(), Vec::new());
                    table.push_key(self.tenant, key.iter(), &mut condition, &mut params)?;
                    self.delete_where(table, &condition, &params)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_sequence_numbers_are_one_run_and_a_gap_is_never_inside() {
        let table = Table::new(&crate::model::default_collections()["changes"]);
        let set = |seqs: &[i64]| ReadSet {
            collection: "changes".into(),
            prefix: vec![Value::Text("d".into())],
            rest: seqs.iter().map(|s| vec![Value::Integer(*s)]).collect(),
        };
        for (seqs, expected) in [
            (&[][..], &[][..]),
            (&[1, 2, 3], &[(1, 3)]),
            (&[3, 1, 2, 2], &[(1, 3)]),
            (&[1, 2, 4, 5, 9], &[(1, 2), (4, 5), (9, 9)]),
            (&[i64::MAX, i64::MAX - 1], &[(i64::MAX - 1, i64::MAX)]),
        ] {
            let Shape::Runs(runs) = shape(&table, &set(seqs)) else { panic!("integers are runs") };
            assert_eq!(runs, expected, "{seqs:?}");
        }
    }
}
