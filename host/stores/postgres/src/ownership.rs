//! Decides which entries of a batch may be committed: partitions and their epochs, the cursors of
//! streams, and whether timers and retries still exist.

use std::collections::{BTreeMap, HashMap, HashSet};

use besom_core::ids::OwnerEpoch;
use besom_core::item::Source;
use besom_core::time::Time;
use tokio_postgres::Row;

use super::error::Job;
use super::items::{Identities, place};
use super::session::{Pipeline, params};
use besom_ports::store::{Batch, LeftOut};

/// Locks the partitions until the commit ends: a takeover waits for it.
const OWNERS: &str = "SELECT id, owner, owner_epoch FROM @.partition WHERE id = ANY($1::int4[])
  ORDER BY id FOR SHARE";

/// Moves the cursors that are where the batch expects them, under the expected owner and epoch, if
/// the items up to there are those of the batch: after a restore, others may have their positions.
const MOVE: &str = "WITH there AS (SELECT u.task, u.part, count(*) AS items
    FROM unnest($7::int4[], $8::int4[], $9::text[], $10::text[], $11::int8[], $12::int8[],
      $13::int8[]) u(task, part, tenant, key, due, no, run)
    JOIN @.item i ON i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
      AND i.part = u.part AND i.place = 0 AND i.no = u.no AND i.run = u.run
    GROUP BY u.task, u.part)
  UPDATE @.stream_head h SET acked = u.upto
  FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[], $5::int8[])
    u(task, part, behind, upto, epoch)
  JOIN @.partition p ON p.id = u.part AND p.owner = $6 AND p.owner_epoch = u.epoch
  JOIN there t ON t.task = u.task AND t.part = u.part AND t.items = u.upto - u.behind
  WHERE h.task = u.task AND h.part = u.part AND h.acked = u.behind
  RETURNING h.task, h.part";

const THERE: &str = "SELECT u.at FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[],
    $5::int2[], $6::int8[], $7::int8[], $8::int4[]) u(task, tenant, key, due, place, no, run, at)
  JOIN @.item i ON i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
    AND i.place = u.place AND i.no = u.no AND i.run = u.run";

/// A stream of the batch.
struct Stream {
    behind: u64,
    epoch: OwnerEpoch,
    entries: usize,
    /// Whether its positions are consecutive, under one epoch.
    sound: bool,
}

/// The entries of the log.
#[derive(Default)]
struct Logged<'a> {
    identities: Identities<'a>,
    parts: Vec<i32>,
    numbers: Vec<i64>,
    runs: Vec<i64>,
}

/// The questions about ownership, and the positions of their answers.
pub(super) struct Asked {
    owners: usize,
    moved: Option<usize>,
    there: Option<usize>,
}

/// Asks for the owners of what the batch touches, and moves the cursors; `tasks` contains the
/// number of each entry's task.
pub(super) fn ask<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch, tasks: &[i32]) -> Asked {
    let mut streams: BTreeMap<(i32, u32), Stream> = BTreeMap::new();
    let mut parts: Vec<i32> = Vec::new();
    let mut others = Identities::default();
    let (mut places, mut numbers, mut at) = (Vec::new(), Vec::new(), Vec::new());
    let mut runs = Vec::new();
    let mut logged = Logged::default();
    for (i, entry) in batch.entries.iter().enumerate() {
        let (item, task) = (&entry.item, tasks[i]);
        if let Source::Unqueued(_) = entry.source {
            continue;
        }
        parts.push(item.partition.0 as i32);
        match entry.source {
            Source::Log(seq) => {
                let stream = streams.entry((task, item.partition.0)).or_insert(Stream {
                    behind: seq.0.saturating_sub(1),
                    epoch: entry.epoch,
                    entries: 0,
                    sound: seq.0 > 0,
                });
                stream.entries += 1;
                stream.sound &=
                    seq.0 == stream.behind + stream.entries as u64 && entry.epoch == stream.epoch;
                logged.identities.push(task, &item.identity);
                logged.parts.push(item.partition.0 as i32);
                logged.numbers.push(seq.0 as i64);
                logged.runs.push(item.run.0 as i64);
            }
            source => {
                others.push(task, &item.identity);
                let (place, no) = place(source);
                places.push(place);
                numbers.push(no);
                runs.push(item.run.0 as i64);
                at.push(i as i32);
            }
        }
    }
    parts.sort_unstable();
    parts.dedup();
    let owners = pipeline.push(OWNERS, params![parts]);
    let moved = push_moves(pipeline, batch, &streams, logged);
    let Identities { tasks, tenants, keys, dues } = others;
    let there = (!tasks.is_empty()).then(|| {
        pipeline.push(THERE, params![tasks, tenants, keys, dues, places, numbers, runs, at])
    });
    Asked { owners, moved, there }
}

fn push_moves<'a>(
    pipeline: &mut Pipeline<'a>,
    batch: &'a Batch,
    streams: &BTreeMap<(i32, u32), Stream>,
    logged: Logged<'a>,
) -> Option<usize> {
    let (mut tasks, mut parts) = (Vec::new(), Vec::new());
    let (mut behind, mut upto, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    for ((task, part), stream) in streams.iter().filter(|(_, stream)| stream.sound) {
        tasks.push(*task);
        parts.push(*part as i32);
        behind.push(stream.behind as i64);
        upto.push((stream.behind + stream.entries as u64) as i64);
        epochs.push(stream.epoch.0 as i64);
    }
    let node = batch.node.as_str().to_owned();
    let Logged { identities: i, parts: of, numbers, runs } = logged;
    (!tasks.is_empty()).then(|| {
        pipeline.push(
            MOVE,
            params![
                tasks, parts, behind, upto, epochs, node, i.tasks, of, i.tenants, i.keys, i.dues,
                numbers, runs
            ],
        )
    })
}

impl Asked {
    /// Why entries are left out, according to the answers.
    pub(super) fn read(
        &self,
        answers: &[Vec<Row>],
        batch: &Batch,
        tasks: &[i32],
        now: Time,
    ) -> Job<Vec<Option<LeftOut>>> {
        let mut owned: HashMap<u32, OwnerEpoch> = HashMap::new();
        for row in &answers[self.owners] {
            let owner: Option<String> = row.try_get(1)?;
            if owner.as_deref() == Some(batch.node.as_str()) {
                let (id, epoch): (i32, i64) = (row.try_get(0)?, row.try_get(2)?);
                owned.insert(id as u32, OwnerEpoch(epoch as u64));
            }
        }
        let mut moved: HashSet<(i32, u32)> = HashSet::new();
        for row in self.moved.into_iter().flat_map(|place| &answers[place]) {
            moved.insert((row.try_get(0)?, row.try_get::<_, i32>(1)? as u32));
        }
        let mut there: HashSet<usize> = HashSet::new();
        for row in self.there.into_iter().flat_map(|place| &answers[place]) {
            there.insert(row.try_get::<_, i32>(0)? as usize);
        }
        let owns = |part: u32, epoch: OwnerEpoch| owned.get(&part) == Some(&epoch);
        let mut strangers: HashSet<(i32, u32)> = HashSet::new();
        for (task, entry) in tasks.iter().zip(&batch.entries) {
            if !owns(entry.item.partition.0, entry.epoch) {
                strangers.insert((*task, entry.item.partition.0));
            }
        }
        let mut seen: HashSet<Source> = HashSet::new();
        let left_out = batch
            .entries
            .iter()
            .enumerate()
            .map(|(i, entry)| {
                let partition = entry.item.partition.0;
                let task = tasks[i];
                match entry.source {
                    Source::Unqueued(_) => None,
                    // A stream is left out as a whole.
                    Source::Log(_) if moved.contains(&(task, partition)) => None,
                    Source::Log(_) if strangers.contains(&(task, partition)) => {
                        Some(LeftOut::NotOwner)
                    }
                    Source::Log(_) => Some(LeftOut::NotThere),
                    _ if !owns(partition, entry.epoch) => Some(LeftOut::NotOwner),
                    Source::Timer(_) if entry.item.identity.due.is_some_and(|due| due > now) => {
                        Some(LeftOut::NotDue)
                    }
                    source if !there.contains(&i) || !seen.insert(source) => {
                        Some(LeftOut::NotThere)
                    }
                    Source::Timer(_) | Source::Retry(_) => None,
                }
            })
            .collect();
        Ok(left_out)
    }
}
