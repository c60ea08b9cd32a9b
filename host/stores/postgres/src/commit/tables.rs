//! The tables of a batch.

use besom_core::collection::all_dependants;
use besom_core::proposal::{Change, Proposal};
use besom_snapshot::Cause;

use super::Attempt;
use crate::error::Job;
use crate::mapping::Table;
use crate::together;
use besom_ports::store::{Decision, Error};

impl<'a> Attempt<'a> {
    /// Whether each table exists, each into which rows are moved can hold them, and rows that go with others are
    /// found as the foreign key finds them. That they are not is no item's fault.
    pub(super) fn tables_fit(&self) -> Job<()> {
        let mapping = self.setting.mapping;
        let proposals = self.batch.entries.iter().filter_map(|entry| match &entry.decision {
            Decision::Apply { proposal, .. } => Some(proposal),
            Decision::Settle(_) => None,
        });
        for change in proposals.flat_map(|proposal| &proposal.changes) {
            let Some(Ok(table)) = change.collection().map(|name| mapping.table(name)) else {
                continue;
            };
            let into = change.into().and_then(|name| mapping.table(name).ok());
            // A row is kept with the columns that the catalog has.
            let absent = [Some(table), into].into_iter().flatten().find(|t| t.found.is_none());
            let mut why = absent.map(|table| {
                format!(
                    "there is no table {:?}; the tables differ from their mapping (`besom check --store` shows the \
                     difference); work continues once they match",
                    table.collection.table
                )
            });
            why = why.or_else(|| into.and_then(|into| together::misfit(table, into)));
            if change.deletes() {
                why = why.or_else(|| self.goes_unlike(table));
            }
            if let Some(why) = why {
                return Err(Error::Refused(Cause::Schema, why).into());
            }
        }
        Ok(())
    }

    /// Why rows cannot go with rows of a table.
    pub(super) fn goes_unlike(&self, table: &Table) -> Option<String> {
        let dependants = table.collection.dependants.iter();
        let mut dependants = dependants.filter_map(|name| self.setting.mapping.table(name).ok());
        dependants
            .find_map(|other| together::unlike(table, other).or_else(|| self.goes_unlike(other)))
    }

    /// The tables whose rows are kept before they change, and those from which rows are moved.
    pub(super) fn kept_tables(&self) -> impl Iterator<Item = &Table> {
        // A row is moved with the columns that the catalog has.
        let moves = |proposal: &Proposal| proposal.changes.iter().any(|c| c.into().is_some());
        let works = self.batch.entries.iter().filter_map(move |entry| match &entry.decision {
            Decision::Apply { proposal, undo, .. } => {
                (*undo || moves(proposal)).then_some(proposal)
            }
            Decision::Settle(_) => None,
        });
        let all = self.setting.collections;
        let changed =
            works.flat_map(|proposal| proposal.changes.iter().flat_map(Change::collections));
        let beneath = |name| all_dependants(all, name).into_iter().map(|other| &*other.name);
        let touched = changed.flat_map(move |name| std::iter::once(name).chain(beneath(name)));
        touched.filter_map(|name| Some(&**self.setting.mapping.table(name).ok()?))
    }
}
