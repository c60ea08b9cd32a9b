//! Reads of waiting items: streams, timers, retries, and their depths.

use std::collections::BTreeMap;

use besom_core::ids::{Partition, Seq, TaskName};
use besom_core::item::{Item, Source};
use besom_core::time::Time;

use super::state::State;
use besom_ports::store::{Depth, Result, Stream, Waiting, gap};

impl State {
    pub(super) fn backlog(&self, partitions: Option<&[Partition]>) -> Vec<Stream> {
        self.streams
            .iter()
            .filter(|((_, partition), _)| within(partitions, *partition))
            .filter(|(_, stream)| stream.acked < stream.tail)
            .map(|((task, partition), stream)| Stream {
                task: task.clone(),
                partition: *partition,
                acked: stream.acked,
                tail: stream.tail,
            })
            .collect()
    }

    pub(super) fn read_log(
        &self,
        task: &TaskName,
        partition: Partition,
        acked: Seq,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<Waiting>> {
        let Some(stream) = self.streams.get(&(task.clone(), partition)) else {
            return Ok(Vec::new());
        };
        let (mut read, mut bytes) = (Vec::new(), 0);
        for seq in (acked.0 + 1..=stream.tail.0).map(Seq).take(limit as usize) {
            let Some((_, item)) = stream.items.get(&seq) else {
                return Err(gap(task, partition, seq.0));
            };
            bytes += item.identity.key.len() + item.payload.len();
            if bytes > bytes_max && !read.is_empty() {
                break;
            }
            let source = Source::Log(seq);
            read.push(Waiting { source, item: item.clone(), run_at: Time::EPOCH });
        }
        Ok(read)
    }

    pub(super) fn read_timers(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Vec<Waiting> {
        let timers = self.timers.iter().map(|(&id, item)| {
            (item.identity.due.unwrap_or(Time::EPOCH), id, Source::Timer(id), item)
        });
        by_time(timers, tasks, partitions, after, limit)
    }

    pub(super) fn read_retries(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Vec<Waiting> {
        let retries =
            self.retries.iter().map(|(&id, (run_at, item))| (*run_at, id, Source::Retry(id), item));
        by_time(retries, tasks, partitions, after, limit)
    }

    pub(super) fn depths(&self, now: Time) -> Vec<Depth> {
        let mut depths: BTreeMap<TaskName, Depth> = BTreeMap::new();
        let mut of = |task: &TaskName, add: &dyn Fn(&mut Depth)| {
            let empty = || Depth { task: Some(task.clone()), ..Depth::default() };
            add(depths.entry(task.clone()).or_insert_with(empty));
        };
        for ((task, _), counts) in &self.counts {
            of(task, &|depth| {
                depth.planned += counts.planned;
                depth.rows += counts.rows;
            });
        }
        for ((task, _), stream) in &self.streams {
            for (since, _) in stream.items.values() {
                of(task, &|depth| {
                    depth.log += 1;
                    depth.oldest = earlier(depth.oldest, *since);
                });
            }
        }
        for Item { identity, .. } in self.timers.values() {
            let due = identity.due.unwrap_or(Time::EPOCH);
            of(&identity.task, &|depth| {
                depth.timers += 1;
                depth.next_due = earlier(depth.next_due, due);
                if due <= now {
                    depth.oldest = earlier(depth.oldest, due);
                }
            });
        }
        for (_, item) in self.retries.values() {
            of(&item.identity.task, &|depth| depth.retries += 1);
        }
        for letter in self.dead.values().filter(|letter| letter.is_open()) {
            of(&letter.item.identity.task, &|depth| depth.dead += 1);
        }
        for recorded in self.history.values().filter(|recorded| recorded.images.is_some()) {
            let row = &recorded.row;
            of(&row.identity.task, &|depth| depth.undo_bytes += row.undo_bytes);
        }
        depths.into_values().collect()
    }
}

fn earlier(known: Option<Time>, other: Time) -> Option<Time> {
    Some(known.map_or(other, |known| known.min(other)))
}

/// Whether a partition is selected; none selects all.
fn within(partitions: Option<&[Partition]>, partition: Partition) -> bool {
    partitions.is_none_or(|partitions| partitions.contains(&partition))
}

fn by_time<'a>(
    items: impl Iterator<Item = (Time, u64, Source, &'a Item)>,
    tasks: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Vec<Waiting> {
    let mut items: Vec<_> = items
        .filter(|(_, _, _, item)| within(partitions, item.partition))
        .filter(|(_, _, _, item)| tasks.is_none_or(|tasks| tasks.contains(&item.identity.task)))
        .filter(|(at, id, _, _)| after.is_none_or(|after| (*at, *id) > after))
        .collect();
    items.sort_by_key(|(at, id, _, _)| (*at, *id));
    let waiting = |(run_at, _, source, item): (Time, u64, Source, &Item)| Waiting {
        source,
        item: item.clone(),
        run_at,
    };
    items.into_iter().take(limit as usize).map(waiting).collect()
}
