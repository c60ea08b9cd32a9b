//! `besom audit`: recounts the items from the rows and compares the result with the counters.

use std::collections::BTreeMap;

use serde::Serialize;

use super::output::{self, Table};
use super::{Exit, Failure, Global, open};
use besom_ports::store::{Audit, AuditRow, Counts};

/// `besom audit`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// The result of an audit. Its JSON is a stable interface for scripts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether there are no violations.
    pub balanced: bool,
    /// The counters of each task, summed over its tenants.
    pub tasks: Vec<TaskRow>,
    /// Each violation with the task and tenant it was found in.
    pub violations: Vec<String>,
}

/// The counters of a task, summed over its tenants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskRow {
    /// Name of the task.
    pub task: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Checks for each task and tenant that the counters equal the recount, and that planned =
/// committed + skipped + dead + discarded + pending.
pub fn report(audit: &Audit) -> Report {
    let mut tasks: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut violations = audit.violations.clone();
    for row in &audit.rows {
        *tasks.entry(row.task.as_str()).or_default() += &row.counted;
        violations.extend(judge(row));
    }
    let tasks =
        tasks.into_iter().map(|(task, counts)| TaskRow { task: task.to_owned(), counts }).collect();
    Report { balanced: violations.is_empty(), tasks, violations }
}

fn judge(row: &AuditRow) -> Vec<String> {
    let place = match &row.tenant {
        Some(tenant) => format!("task {}, tenant {tenant}", row.task),
        None => format!("task {}", row.task),
    };
    let (c, r) = (&row.counted, &row.recounted);
    let mut violations: Vec<String> = [
        ("planned", c.planned, r.planned),
        ("committed", c.committed, r.committed),
        ("skipped", c.skipped, r.skipped),
        ("dead", c.dead, r.dead),
        ("discarded", c.discarded, r.discarded),
        ("pending", c.pending, r.pending),
        ("rows changed", c.rows, r.rows),
    ]
    .into_iter()
    .filter(|(_, counted, recounted)| counted != recounted)
    .map(|(what, counted, recounted)| {
        format!("{place}: the counter of {what} is {counted}, the recount is {recounted}")
    })
    .collect();
    let accounted = c.committed + c.skipped + c.dead + c.discarded + c.pending;
    if c.planned != accounted {
        violations.push(format!("{place}: {} planned, {accounted} accounted for", c.planned));
    }
    violations
}

impl Args {
    /// Recounts and prints the report. Exits with 1 if the books do not balance.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        let report = report(&store.audit().await?);
        output::show(global.output, &report, || text(&report))?;
        Ok(if report.balanced { Exit::Fine } else { Exit::Failed })
    }
}

fn text(report: &Report) -> String {
    let mut table = Table::new("Nothing has been planned yet.");
    for row in &report.tasks {
        let c = &row.counts;
        table.row([
            ("TASK", &row.task),
            (">PLANNED", &c.planned),
            (">COMMITTED", &c.committed),
            (">SKIPPED", &c.skipped),
            (">DEAD", &c.dead),
            (">DISCARDED", &c.discarded),
            (">PENDING", &c.pending),
            (">ROWS", &c.rows),
        ]);
    }
    let mut out = table.render();
    for violation in &report.violations {
        out.push_str(&format!("violation: {}\n", besom_config::printable(violation)));
    }
    out.push_str(if report.balanced {
        "The books balance.\n"
    } else {
        "The books do not balance.\n"
    });
    out
}

#[cfg(test)]
mod tests {
    use besom_core::ids::Tenant;

    use super::*;

    fn row(tenant: &str, counted: [u64; 6], recounted: [u64; 6]) -> AuditRow {
        let counts = |[planned, committed, skipped, dead, discarded, pending]: [u64; 6]| Counts {
            planned,
            committed,
            skipped,
            dead,
            discarded,
            pending,
            rows: 3,
            resolved: 0,
        };
        AuditRow {
            task: "compaction".into(),
            tenant: Some(Tenant::from(tenant)),
            counted: counts(counted),
            recounted: counts(recounted),
        }
    }

    #[test]
    fn tenants_are_added_up_and_the_shape_is_the_contracts() {
        let even = [10, 5, 1, 2, 1, 1];
        let audit =
            Audit { rows: vec![row("a", even, even), row("b", even, even)], violations: vec![] };
        assert_eq!(
            serde_json::to_string(&report(&audit)).expect("plain data"),
            r#"{"balanced":true,"tasks":[{"task":"compaction","planned":20,"committed":10,"skipped":2,"dead":4,"discarded":2,"pending":2,"rows":6}],"violations":[]}"#
        );
    }

    #[test]
    fn a_difference_is_named_with_its_place() {
        let audit = Audit {
            rows: vec![row("a", [10, 5, 1, 2, 1, 0], [10, 5, 1, 2, 1, 1])],
            violations: vec!["a gap".into()],
        };
        let report = report(&audit);
        assert!(!report.balanced);
        assert_eq!(
            report.violations,
            [
                "a gap",
                "task compaction, tenant a: the counter of pending is 0, the recount is 1",
                "task compaction, tenant a: 10 planned, 9 accounted for",
            ]
        );
    }
}
