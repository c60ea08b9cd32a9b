//! A batch that is only tried.

use std::collections::BTreeMap;

use besom_core::books::{Blocks, close};

use super::carefully::ranges_of;
use super::{Attempt, Decided, NotApplied, Step};
use crate::error::Job;
use crate::range_change;
use crate::session::Session;
use crate::whole;
use crate::work::Work;
use besom_ports::store::{LockedRows, Tried, TriedChanges};
use besom_record::images::unpack;

/// How long a trial waits for a row that another session has locked.
const TRIAL_WAIT: &str = "SET LOCAL lock_timeout = '200ms'";

impl<'a> Attempt<'a> {
    /// What the entries of a batch that is only tried would have done.
    pub(super) fn taken_back(
        &self,
        mut decided: Decided,
        mut locked: BTreeMap<usize, LockedRows>,
        blocks: Blocks,
    ) -> Job<Tried> {
        let entries = &self.batch.entries;
        let judged = (0..entries.len()).map(|at| Ok(self.judged(at, &[], &decided)));
        let outcomes = close(entries, judged, |_| blocks, &self.batch.node).outcomes;
        let changes = entries.iter().enumerate().map(|(at, entry)| {
            let done = decided.remove(&at);
            let waits = matches!(done, Some(Err(NotApplied::Locked)));
            let alone = waits.then_some(LockedRows { rows: 1, first: None });
            let done = done.and_then(Result::ok).unwrap_or_default();
            let packed = done.images.map(|images| images.pack(&entry.item.version, None));
            let images =
                packed.as_deref().map(|packed| unpack(packed, whole::of_kept)).transpose()?;
            Ok(TriedChanges {
                rows: done.rows,
                images: images.unwrap_or_default(),
                bytes: packed.map_or(0, |packed| packed.len()) as u64,
                said: done.said.or_else(|| self.fewer(at)),
                locked: locked.remove(&at).or(alone),
            })
        });
        Ok(Tried { outcomes, changes: changes.collect::<Job<_>>()? })
    }

    /// In a trial: the rows of ranges that other sessions have locked, by entry. What is locked otherwise is found
    /// after a short wait.
    pub(super) async fn locked(
        &self,
        session: &Session,
        waves: &[Vec<Work<'a>>],
    ) -> Step<BTreeMap<usize, LockedRows>> {
        let mut found = BTreeMap::new();
        if !self.setting.trial {
            return Ok(found);
        }
        let statement = self.setting.bounds.statement.as_millis();
        session.batch(&format!("{TRIAL_WAIT}; SET LOCAL statement_timeout = {statement}")).await?;
        for work in waves.iter().flatten() {
            for (range, _) in ranges_of(work) {
                // What cannot be asked for is refused by the change itself.
                session.batch("SAVEPOINT item").await?;
                let asked = range_change::locked(session, self.setting.mapping, work, range).await;
                let end =
                    if asked.is_ok() { "RELEASE item" } else { "ROLLBACK TO item; RELEASE item" };
                session.batch(end).await?;
                if let Ok(Some(rows)) = asked {
                    found.entry(work.entry).or_insert(rows);
                }
            }
        }
        Ok(found)
    }
}
