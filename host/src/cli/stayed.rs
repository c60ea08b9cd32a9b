//! Rows that were planned and stayed as they were: counted by the items that stand for many rows.

use std::collections::BTreeMap;

use besom_core::command::counted;
use besom_core::ids::RunId;
use besom_ports::history::{PAGE, Rows};
use besom_ports::store::{self, HistoryQuery, HistoryRow, Store};
use serde::Serialize;

/// The rows of a run's items that have ended, as far as their task says how many were planned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stayed {
    /// Number of the run that planned the items.
    pub run: u64,
    /// Rows that were found when the items were planned.
    pub planned_rows: u64,
    /// Those of them that stayed as they were.
    pub stayed: u64,
}

/// Why rows stay, but for the last reason.
const WHY: &str = "changed since, locked by others, outside the range by now";

/// Number of runs of a pass that are named in words.
const RUNS_NAMED: usize = 3;

impl Stayed {
    /// The sum over all items of a run that have ended, of which these are the newest, `limit` at most; none: its task
    /// does not say how many rows were planned.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub async fn of_run(
        store: &dyn Store,
        run: RunId,
        (newest, limit): (&[HistoryRow], u32),
    ) -> store::Result<Option<Stayed>> {
        let mut runs = BTreeMap::new();
        add(newest, &mut runs);
        let last = newest.last().filter(|_| newest.len() >= limit as usize).map(|row| row.id);
        // If the newest items do not say it, the others do neither.
        if !runs.is_empty() && last.is_some() {
            let query = HistoryQuery { run: Some(run), ..HistoryQuery::default() };
            let mut rows = Rows::of(store, query).paged(last, PAGE);
            while let Some(row) = rows.next().await? {
                add(std::slice::from_ref(&row), &mut runs);
            }
        }
        Ok(runs.remove(&run.0))
    }

    /// In words; `refused`: the database has refused to change rows of the items.
    pub fn words(&self, refused: bool) -> String {
        let Stayed { planned_rows, stayed, .. } = self;
        match stayed {
            0 => format!("0 of {planned_rows}"),
            _ => format!("{stayed} of {planned_rows}: {}", why(refused)),
        }
    }
}

/// Adds the items that say how many rows were planned, by run.
pub fn add(items: &[HistoryRow], runs: &mut BTreeMap<u64, Stayed>) {
    for item in items {
        let (Some(planned), Some(stayed)) = (item.planned_rows(), item.stayed()) else { continue };
        let run = item.run.0;
        let sum = runs.entry(run).or_insert(Stayed { run, ..Stayed::default() });
        sum.planned_rows += planned;
        sum.stayed += stayed;
    }
}

/// How many rows stayed in each of the newest of these runs, which are in order; none: in no run did any.
pub fn in_runs(runs: &[Stayed], refused: bool) -> Option<String> {
    let mut named: Vec<&Stayed> = runs.iter().filter(|run| run.stayed > 0).collect();
    let earlier = named.len().saturating_sub(RUNS_NAMED);
    named.drain(..earlier);
    let newest = named.last()?.run;
    let mut parts: Vec<String> = named
        .iter()
        .map(|Stayed { run, planned_rows, stayed }| {
            let rows = counted(*planned_rows, "planned row");
            format!("{stayed} of {rows} in run {run}")
        })
        .collect();
    if earlier > 0 {
        parts.push(format!("others in {}", counted(earlier as u64, "earlier run")));
    }
    Some(format!(
        "rows stayed, {}: {} (`besom runs show {newest}`)",
        why(refused),
        parts.join(", ")
    ))
}

fn why(refused: bool) -> String {
    match refused {
        true => format!("{WHY}, kept by a trigger or a policy, or refused by the database"),
        false => format!("{WHY}, or kept by a trigger or a policy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(run: u64, stayed: u64) -> Stayed {
        Stayed { run, planned_rows: 10, stayed }
    }

    #[test]
    fn the_newest_runs_are_named() {
        assert_eq!(in_runs(&[], false), None);
        assert_eq!(in_runs(&[run(1, 0)], false), None);
        assert_eq!(
            in_runs(&[run(1, 0), run(2, 3)], false).as_deref(),
            Some(
                "rows stayed, changed since, locked by others, outside the range by now, or kept by a trigger or a \
                 policy: 3 of 10 planned rows in run 2 (`besom runs show 2`)"
            )
        );
        let many: Vec<Stayed> = (1..=5).map(|number| run(number, number)).collect();
        assert_eq!(
            in_runs(&many, true).as_deref(),
            Some(
                "rows stayed, changed since, locked by others, outside the range by now, kept by a trigger or a policy, \
                 or refused by the database: 3 of 10 planned rows in run 3, 4 of 10 planned rows in run 4, 5 of 10 \
                 planned rows in run 5, others in 2 earlier runs (`besom runs show 5`)"
            )
        );
    }

    #[test]
    fn the_rows_of_a_run_are_told_with_the_reasons() {
        assert_eq!(run(1, 0).words(true), "0 of 10");
        assert_eq!(
            run(1, 4).words(false),
            "4 of 10: changed since, locked by others, outside the range by now, or kept by a trigger or a policy"
        );
    }
}
