//! What has happened in many worlds.

use std::collections::BTreeMap;
use std::fmt;

use super::{Deaths, Hits, Report};

/// The sum of the reports of many worlds.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    /// Worlds.
    pub worlds: u64,
    /// Worlds in which an invariant was violated.
    pub failed: u64,
    /// Violations, by the name of the invariant.
    pub violations: BTreeMap<&'static str, u64>,
    /// Events handled.
    pub events: u64,
    /// Things that the product has created and no restored backup has lost.
    pub things: u64,
    /// Leaderships.
    pub terms: u64,
    /// Faults, by their kind.
    pub troubles: BTreeMap<&'static str, u64>,
    /// Faults of writes, by the operation of the store.
    pub writes: BTreeMap<&'static str, Hits>,
    /// Deaths of hosts at a write, by the kind of write.
    pub deaths: BTreeMap<&'static str, Deaths>,
    /// Batches that met a partition that their node did not own any more.
    pub disowned: u64,
    /// What operators asked for and a leader did, by verb.
    pub commands: BTreeMap<&'static str, u64>,
}

impl Sum {
    /// Adds a world.
    pub fn add(&mut self, report: &Report) {
        self.worlds += 1;
        self.failed += u64::from(!report.violations.is_empty());
        for violation in &report.violations {
            *self.violations.entry(violation.invariant).or_default() += 1;
        }
        self.events += report.events;
        self.things += report.things as u64;
        self.terms += report.terms;
        add(&mut self.troubles, &report.troubles);
        add(&mut self.commands, &report.commands);
        self.disowned += report.disowned;
        for (write, deaths) in &report.deaths {
            let sum = self.deaths.entry(write).or_default();
            sum.before += deaths.before;
            sum.after += deaths.after;
        }
        for (write, hits) in &report.writes {
            let sum = self.writes.entry(write).or_default();
            sum.applied += hits.applied;
            sum.not_applied += hits.not_applied;
            sum.refused += hits.refused;
        }
    }
}

fn add(sum: &mut BTreeMap<&'static str, u64>, more: &BTreeMap<&'static str, u64>) {
    for (kind, count) in more {
        *sum.entry(kind).or_default() += count;
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sum { worlds, failed, events, things, terms, .. } = self;
        writeln!(f, "{worlds} worlds, {failed} of them with violations")?;
        writeln!(f, "{events} events, {things} things, {terms} leaderships")?;
        list(f, "violations", &self.violations)?;
        list(f, "faults", &self.troubles)?;
        writeln!(f, "batches whose node had lost a partition: {}", self.disowned)?;
        writeln!(f, "hosts killed just before and just after a write")?;
        for (write, Deaths { before, after }) in &self.deaths {
            writeln!(f, "  {write:<34}{before:>10}{after:>10}")?;
        }
        writeln!(f, "failed writes: unknown and applied, unknown and not applied, refused")?;
        for (write, Hits { applied, not_applied, refused }) in &self.writes {
            writeln!(f, "  {write:<34}{applied:>10}{not_applied:>10}{refused:>10}")?;
        }
        list(f, "commands of operators", &self.commands)
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    counts: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    writeln!(f, "{title}: {}", counts.values().sum::<u64>())?;
    for (kind, count) in counts {
        writeln!(f, "  {kind:<34}{count:>10}")?;
    }
    Ok(())
}
