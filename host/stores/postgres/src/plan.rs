//! Checks the database's own plan of a query: a full scan of the user's table is refused, and so is
//! a sort of a whole range. An accepted query is remembered by its text.
//!
//! The database rightly reads a small table entirely, whatever its indexes, and sorts a small
//! range. The plan is therefore requested with both made as expensive as possible: if it still
//! contains them, there is no suitable index.
//!
//! For a table of a few pages with known statistics, even that is not conclusive: walking an index
//! from end to end, or hashing the table, costs as little as a seek. Such a plan is accepted and
//! checked again with each read, because the table may grow.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::error::{Job, invalid};
use super::mapping::Table;
use super::session::{Param, Session, only, params};
use besom_tables::plan::{Good, refusal};

/// A table up to this size, in bytes, may be read entirely: that takes less than a millisecond.
const SMALL_BYTES_MAX: i64 = 256 << 10;

/// Refuses the query if its plan reads the whole table, or sorts more than necessary.
pub(super) async fn refuse_full_scan(
    session: &Session,
    good: &Good,
    table: &Table,
    sql: &str,
    params: &[Param<'_>],
) -> Job<()> {
    if good.knows(sql) {
        return Ok(());
    }
    session.batch("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off").await?;
    let asked = session.explain(sql, params).await?;
    session.batch("SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on").await?;
    let plan = read(&asked)?;
    let found = table.found.as_ref().filter(|found| ["r", "p"].contains(&found.kind.as_str()));
    if let Some(fault) = fault(&plan["Plan"]).filter(|_| found.is_some()) {
        if is_small(session, table).await? {
            return Ok(());
        }
        return Err(invalid(refusal(&table.collection.name, fault)));
    }
    good.learn(sql);
    Ok(())
}

/// The fault in the plan of a query, whatever the values of its parameters: a suitable index is
/// used if there is one. To be called in a transaction.
pub(super) async fn fault_of(
    session: &Session,
    sql: &str,
    params: usize,
) -> Job<Option<&'static str>> {
    session
        .batch(&format!(
            "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; \
             SET LOCAL enable_sort = off; PREPARE besom_tried AS {sql}"
        ))
        .await?;
    let nothing = match params {
        0 => String::new(),
        n => format!("({})", vec!["NULL"; n].join(", ")),
    };
    let asked = session.explain(&format!("EXECUTE besom_tried{nothing}"), &[]).await?;
    session.batch("DEALLOCATE besom_tried").await?;
    Ok(fault(&read(&asked)?["Plan"]))
}

/// The plan that EXPLAIN has answered with.
fn read(asked: &[Row]) -> Job<serde_json::Value> {
    let plan: Explained = only(asked)?;
    let plan: serde_json::Value = serde_json::from_str(&plan.0)
        .map_err(|e| invalid(format!("a plan cannot be read: {e}")))?;
    Ok(plan.get(0).cloned().unwrap_or_default())
}

/// Whether the planner knows that the table is nearly empty. It guesses the size of a table that
/// was never analysed, and then always uses an available index.
async fn is_small(session: &Session, table: &Table) -> Job<bool> {
    let small = "SELECT 1 FROM pg_class
                 WHERE oid = to_regclass($1) AND relkind = 'r' AND reltuples >= 0
                   AND pg_relation_size(oid) <= $2";
    Ok(session.row(small, params![table.name.clone(), SMALL_BYTES_MAX]).await?.is_some())
}

/// The answer to EXPLAIN (FORMAT JSON), as text.
struct Explained(String);

impl<'a> FromSql<'a> for Explained {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> std::result::Result<Explained, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Explained(String::from_utf8(raw.to_vec())?))
    }

    fn accepts(ty: &Type) -> bool {
        [Type::JSON, Type::TEXT].contains(ty)
    }
}

/// The fault in a node of a plan, or below it.
fn fault(node: &serde_json::Value) -> Option<&'static str> {
    match node["Node Type"].as_str() {
        Some("Seq Scan") => return Some("reads the whole table"),
        Some("Sort") => return Some("sorts the whole range"),
        _ => {}
    }
    // Walking an index without a condition reads the whole table as well.
    let index = ["Index Scan", "Index Only Scan", "Bitmap Index Scan"];
    if node["Node Type"].as_str().is_some_and(|kind| index.contains(&kind))
        && node["Index Cond"].is_null()
        && !node["Filter"].is_null()
    {
        return Some("walks a whole index");
    }
    node["Plans"].as_array().into_iter().flatten().find_map(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_judged_by_all_its_nodes() {
        for (plan, expected) in [
            (r#"{"Node Type": "Index Scan", "Index Cond": "(a = 1)"}"#, None),
            (r#"{"Node Type": "Index Only Scan"}"#, None),
            (r#"{"Node Type": "Index Scan", "Filter": "(b = 1)"}"#, Some("walks a whole index")),
            (r#"{"Node Type": "Seq Scan"}"#, Some("reads the whole table")),
            (
                r#"{"Node Type": "Limit", "Plans": [{"Node Type": "Sort"}]}"#,
                Some("sorts the whole range"),
            ),
            (
                r#"{"Node Type": "Limit", "Plans": [{"Node Type": "Incremental Sort", "Plans":
                   [{"Node Type": "Index Scan", "Index Cond": "x"}]}]}"#,
                None,
            ),
        ] {
            assert_eq!(fault(&serde_json::from_str(plan).unwrap()), expected, "{plan}");
        }
    }
}
