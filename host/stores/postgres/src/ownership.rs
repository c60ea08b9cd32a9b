//! What there is of the entries of a batch: the owners of their partitions, the cursors of their
//! streams, and which of their items are where they should be.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use besom_core::books::{Owner, Places, left_out};
use besom_core::ids::{OwnerEpoch, Partition, Seq, TaskName};
use besom_core::item::Source;
use besom_core::time::Time;
use tokio_postgres::Row;

use super::error::{Failure, Job};
use super::items::{Identities, place, waiting};
use super::session::{Pipeline, params};
use besom_ports::store::{Batch, Entry, LeftOut};

/// Locks the partitions until the commit ends: a takeover waits for it.
const OWNERS: &str = "SELECT id, owner, owner_epoch FROM @.partition WHERE id = ANY($1::int4[])
  ORDER BY id FOR SHARE";

/// Locks the cursors until the commit ends: another commit of the same stream waits for it, and then
/// finds the cursor moved.
const CURSORS: &str = "SELECT h.task, h.part, h.acked FROM @.stream_head h
  WHERE (h.task, h.part) IN (SELECT * FROM unnest($1::int4[], $2::int4[]))
  ORDER BY h.task, h.part FOR NO KEY UPDATE";

/// The entries whose items are at their places. After a restore, others may have these places.
const THERE: &str = concat!(
    "SELECT array_agg(u.entry) FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int4[],
      $6::int2[], $7::int8[], $8::int8[], $9::int4[])
      u(task, tenant, key, due, part, place, no, run, entry)
    ",
    waiting!()
);

/// The positions of the answers to the questions about a batch.
pub(super) struct Asked {
    owners: usize,
    cursors: Option<usize>,
    there: Option<usize>,
}

/// Asks about the entries of a batch; `tasks` contains the number of each entry's task. Unless the
/// items are to be looked up, all of them are taken to be at their places, and the cursors before
/// them.
pub(super) fn ask<'a>(
    pipeline: &mut Pipeline<'a>,
    batch: &'a Batch,
    tasks: &[i32],
    look_up: bool,
) -> Asked {
    let mut parts: BTreeSet<i32> = BTreeSet::new();
    let mut streams: BTreeSet<(i32, i32)> = BTreeSet::new();
    let mut identities = Identities::default();
    let (mut of, mut places, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut runs, mut at) = (Vec::new(), Vec::new());
    for (i, Entry { source, item, .. }) in batch.entries.iter().enumerate() {
        let (task, part) = (tasks[i], item.partition.0 as i32);
        match source {
            Source::Unqueued(_) => continue,
            Source::Log(_) if look_up => drop(streams.insert((task, part))),
            Source::Log(_) => {}
            Source::Timer(_) | Source::Retry(_) => {}
        }
        parts.insert(part);
        if !look_up {
            continue;
        }
        identities.push(task, &item.identity);
        let (place, no) = place(*source);
        of.push(part);
        places.push(place);
        numbers.push(no);
        runs.push(item.run.0 as i64);
        at.push(i as i32);
    }
    let owners = pipeline.push(OWNERS, params![parts.into_iter().collect::<Vec<_>>()]);
    // The items are looked up last: while a lock was awaited, another commit may have taken them.
    let cursors = (!streams.is_empty()).then(|| {
        let (tasks, parts): (Vec<i32>, Vec<i32>) = streams.into_iter().unzip();
        pipeline.push(CURSORS, params![tasks, parts])
    });
    let there = (!at.is_empty()).then(|| {
        let Identities { tasks, tenants, keys, dues } = identities;
        pipeline.push(THERE, params![tasks, tenants, keys, dues, of, places, numbers, runs, at])
    });
    Asked { owners, cursors, there }
}

impl Asked {
    /// Why entries are left out, according to the answers.
    pub(super) fn read(
        &self,
        answers: &[Vec<Row>],
        batch: &Batch,
        tasks: &HashMap<TaskName, i32>,
        now: Time,
    ) -> Job<Vec<Option<LeftOut>>> {
        let mut found = Found {
            tasks,
            owners: HashMap::new(),
            cursors: BTreeMap::new(),
            there: self.there.map(|_| HashSet::new()),
        };
        for row in &answers[self.owners] {
            if let Some(owner) = row.try_get(1)? {
                let epoch = OwnerEpoch(row.try_get::<_, i64>(2)? as u64);
                found.owners.insert(row.try_get(0)?, (owner, epoch));
            }
        }
        for row in self.cursors.into_iter().flat_map(|at| &answers[at]) {
            let acked = Seq(row.try_get::<_, i64>(2)? as u64);
            found.cursors.insert((row.try_get(0)?, row.try_get(1)?), acked);
        }
        for (row, there) in self.there.into_iter().flat_map(|at| &answers[at]).zip(&mut found.there)
        {
            there.extend(row.try_get::<_, Option<Vec<i32>>>(0)?.unwrap_or_default());
        }
        if found.there.is_none() {
            found.assume(&batch.entries);
        }
        left_out(&batch.entries, &batch.node, now, &mut found)
    }
}

/// The answers.
struct Found<'a> {
    /// The numbers of the tasks.
    tasks: &'a HashMap<TaskName, i32>,
    owners: HashMap<i32, (String, OwnerEpoch)>,
    cursors: BTreeMap<(i32, i32), Seq>,
    /// The indexes of entries; none: the items were not looked up.
    there: Option<HashSet<i32>>,
}

impl Found<'_> {
    /// Takes each cursor to be before the first entry of its stream.
    fn assume(&mut self, entries: &[Entry]) {
        for Entry { source, item, .. } in entries {
            if let Source::Log(seq) = source
                && let Some(task) = self.tasks.get(&item.identity.task)
            {
                let stream = (*task, item.partition.0 as i32);
                self.cursors.entry(stream).or_insert(Seq(seq.0.saturating_sub(1)));
            }
        }
    }
}

impl Places for Found<'_> {
    type Error = Failure;

    fn owner(&mut self, entry: &Entry) -> Job<Option<Owner<'_>>> {
        let owner = self.owners.get(&(entry.item.partition.0 as i32));
        Ok(owner.map(|(node, epoch)| Owner { node, epoch: *epoch }))
    }

    fn acked(&mut self, task: &TaskName, partition: Partition) -> Job<Option<Seq>> {
        let Some(task) = self.tasks.get(task) else { return Ok(None) };
        Ok(self.cursors.get(&(*task, partition.0 as i32)).copied())
    }

    fn is_there(&mut self, at: usize, _: &Entry) -> Job<bool> {
        Ok(self.there.as_ref().is_none_or(|there| there.contains(&(at as i32))))
    }
}
