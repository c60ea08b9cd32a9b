//! The tables of a batch.

use std::collections::BTreeSet;

use besom_core::collection::all_dependants;
use besom_core::proposal::{Change, Proposal};
use besom_snapshot::Cause;
use tokio_postgres::Row;

use super::{Attempt, proposals};
use crate::error::Job;
use crate::mapping::Table;
use crate::session::{Pipeline, params};
use crate::together;
use besom_ports::store::{Decision, Error};

/// Foreign keys that delete rows with those of the tables `$1`; those of partitions are their tables'.
const CASCADES: &str = "SELECT f.confrelid, f.conrelid,
    ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY k(no, at)
      JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.no ORDER BY k.at),
    f.conname::text, f.conrelid::regclass::text
  FROM pg_constraint f
  WHERE f.contype = 'f' AND f.confdeltype = 'c' AND f.conparentid = 0 AND f.confrelid = ANY($1::oid[])";

/// Tables that inherit from the tables `$1`, other than partitions: statements change their rows as well.
const INHERITORS: &str = "SELECT h.inhparent::regclass::text, h.inhrelid::regclass::text
  FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhparent
  WHERE c.relkind = 'r' AND h.inhparent = ANY($1::oid[]) LIMIT 1";

/// What the catalog is asked after the changes of a batch, in the same transaction.
pub(super) struct Reach {
    cascades: Option<usize>,
    inheritors: Option<usize>,
}

/// The identifiers of tables, each once.
fn oids<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<u32> {
    let oids: BTreeSet<u32> = tables.filter_map(|table| Some(table.found.as_ref()?.oid)).collect();
    oids.into_iter().collect()
}

impl<'a> Attempt<'a> {
    /// Whether each table exists, each into which rows are moved can hold them, and rows that go with others are
    /// found as the foreign key finds them. That they are not is no item's fault.
    pub(super) fn tables_fit(&self) -> Job<()> {
        let mapping = self.setting.mapping;
        for change in proposals(self.batch).flat_map(|proposal| &proposal.changes) {
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

    /// Asks which other rows the changes of this batch have reached: by foreign keys, which nobody can add until the
    /// transaction ends, and by inheritance, as the statements before saw it.
    pub(super) fn ask_reach(&self, pipeline: &mut Pipeline<'a>) -> Reach {
        let mut ask = |sql, tables: Vec<u32>| {
            (!tables.is_empty()).then(|| pipeline.push(sql, params![tables]))
        };
        let cascading = self.deleted().filter(|table| !table.collection.accept_cascades);
        let changes = |change: &Change| !matches!(change, Change::Insert { .. });
        Reach {
            cascades: ask(CASCADES, oids(cascading)),
            inheritors: ask(INHERITORS, oids(self.touched(changes))),
        }
    }

    /// Refuses the batch if it has changed rows that it may not reach. That is no item's fault.
    pub(super) fn reaches_no_other(&self, reach: &Reach, answers: &[Vec<Row>]) -> Job<()> {
        if let Some(row) = reach.inheritors.and_then(|place| answers[place].first()) {
            let (above, other): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            let why = format!(
                "{other} inherits from {above}: its rows would be changed as if they were rows of {above}; make it a \
                 partition, or end the inheritance (ALTER TABLE {other} NO INHERIT {above}) and map it by itself; work \
                 continues then"
            );
            return Err(Error::Refused(Cause::Schema, why).into());
        }
        reach.cascades.map_or(Ok(()), |place| self.no_cascade(&answers[place]))
    }

    /// Refuses the batch if the database deletes rows that are neither kept nor counted. That is no item's fault.
    fn no_cascade(&self, rows: &[Row]) -> Job<()> {
        for row in rows {
            let (to, of): (u32, u32) = (row.try_get(0)?, row.try_get(1)?);
            let columns: Vec<&str> = row.try_get(2)?;
            let above = |table: &&Table| {
                let is_it = table.found.as_ref().is_some_and(|found| found.oid == to);
                is_it && !table.collection.accept_cascades
            };
            let lost = |table: &&Table| !self.setting.mapping.go_first(table, of, &columns);
            if let Some(table) = self.deleted().filter(above).find(lost) {
                let own = &table.collection;
                let (name, relation): (&str, &str) = (row.try_get(3)?, row.try_get(4)?);
                let why = format!(
                    "with a row of {:?}, the foreign key {name:?} also deletes rows of {relation}, which are neither kept \
                     nor counted: name their collection in `dependants` of [collections.{}], or accept that they are \
                     lost with accept_cascades = true; work continues then (`besom check --store` shows the difference)",
                    own.table, own.name
                );
                return Err(Error::Refused(Cause::Schema, why).into());
            }
        }
        Ok(())
    }

    /// The tables of which rows are deleted, with those of dependants; one may be there several times.
    fn deleted(&self) -> impl Iterator<Item = &'a Table> {
        self.touched(|change| change.deletes() || change.into().is_some())
    }

    /// The tables that some of the changes name, with those of dependants; one may be there several times.
    fn touched(&self, changes: impl Fn(&Change) -> bool) -> impl Iterator<Item = &'a Table> {
        let (all, mapping) = (self.setting.collections, self.setting.mapping);
        let changed = proposals(self.batch).flat_map(|of| &of.changes).filter(move |c| changes(c));
        let beneath = |name| all_dependants(all, name).into_iter().map(|other| &*other.name);
        changed
            .filter_map(Change::collection)
            .flat_map(move |name| std::iter::once(name).chain(beneath(name)))
            .filter_map(|name| Some(&**mapping.table(name).ok()?))
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
