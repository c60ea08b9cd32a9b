//! The end of an item's execution: history, retries, dead letters.

use std::collections::BTreeMap;

use besom_core::ids::{CommitId, Incarnation, RunId};
use besom_core::item::{Item, Source};
use besom_core::proposal::{Change, Settle};
use besom_core::time::Time;
use rusqlite::{CachedStatement, params};

use super::error::Job;
use super::items::{Progress, key_hash, route};
use super::outbox::{self, Emitted};
use super::tally::Tally;
use super::values::{DueCell, tenant_cell};
use super::writer::Tx;
use crate::ports::store::Outcome;
pub(super) use crate::store::record::ends::{End, Remarks};

/// The books of one commit while its entries are settled.
pub(super) struct Books<'c> {
    /// The number of the commit's row.
    pub(super) commit: i64,
    pub(super) tally: Tally,
    /// The statement that every item needs, prepared once.
    no_longer_waits: CachedStatement<'c>,
    into_history: CachedStatement<'c>,
    /// What may block items, by task.
    blocks: BTreeMap<i64, Blocks>,
}

impl<'c> Books<'c> {
    /// Opens the books. [`Books::close`] writes the commit's row.
    pub(super) fn open(tx: &mut Tx<'c>) -> Job<Books<'c>> {
        Ok(Books {
            commit: tx.number()?,
            tally: Tally::default(),
            no_longer_waits: tx.conn.prepare_cached(
                "DELETE FROM besom_waiting
                 WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
            )?,
            into_history: tx.conn.prepare_cached(
                "INSERT INTO besom_history VALUES
                   (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            )?,
            blocks: BTreeMap::new(),
        })
    }

    /// Writes the commit's row; a discard by a command has no mark.
    pub(super) fn close(
        &self,
        tx: &Tx<'_>,
        id: Option<CommitId>,
        node: &Incarnation,
        result: &[u8],
    ) -> Job<()> {
        let id = id.map(|id| id.0.to_be_bytes());
        tx.conn
            .prepare_cached("INSERT INTO besom_commit VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![self.commit, id, node.as_str(), tx.now.0, result])?;
        Ok(())
    }

    /// Records that the item has left the place where it was waiting.
    pub(super) fn took(&mut self, task: i64, item: &Item, source: Source) {
        let delta = self.tally.of(task, item.identity.tenant.as_ref());
        match source {
            Source::Log(_) => {
                delta.log -= 1;
                self.tally.left_log(item.run);
            }
            Source::Timer(_) => delta.timers -= 1,
            Source::Retry(_) => delta.retries -= 1,
            Source::Unqueued(_) => delta.planned += 1,
        }
    }

    /// Records that the item's changes were applied.
    pub(super) fn committed(
        &mut self,
        tx: &mut Tx<'_>,
        task: i64,
        item: &Item,
        remarks: Remarks<'_>,
        emitted: &[&Change],
    ) -> Job<Outcome> {
        self.tally.of(task, item.identity.tenant.as_ref()).committed += 1;
        self.leaves(task, item)?;
        let blocks = self.blocks(tx, task)?;
        if blocks.settled {
            // A committed item is no longer settled or discarded.
            unblock(tx, task, item)?;
        }
        if blocks.dead {
            self.resolve(tx, task, item)?;
        }
        let history = self.history(tx, task, item, End::Committed, remarks)?;
        for change in emitted {
            if let Change::Emit { topic, key, payload } = change {
                let tenant = item.identity.tenant.as_ref();
                outbox::emit(tx, &Emitted { history, task, tenant, topic, key, payload })?;
            }
        }
        Ok(Outcome::Committed)
    }

    fn blocks(&mut self, tx: &Tx<'_>, task: i64) -> Job<Blocks> {
        if let Some(known) = self.blocks.get(&task) {
            return Ok(*known);
        }
        let blocks = Blocks::of(tx, task)?;
        self.blocks.insert(task, blocks);
        Ok(blocks)
    }

    /// Resolves open dead letters of items that have been committed. They stay in the books.
    fn resolve(&mut self, tx: &Tx<'_>, task: i64, item: &Item) -> Job<()> {
        let tenant = tenant_cell(item.identity.tenant.as_ref());
        let mut statement = tx.conn.prepare_cached(
            "UPDATE besom_dead SET resolved_at = ?5
             WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4 AND resolved_at IS NULL
             RETURNING run",
        )?;
        let due = DueCell(item.identity.due);
        let mut rows = statement.query(params![task, tenant, item.identity.key, due, tx.now.0])?;
        while let Some(row) = rows.next()? {
            self.tally.of(task, item.identity.tenant.as_ref()).resolved += 1;
            self.tally.ended(RunId(row.get(0)?));
        }
        Ok(())
    }

    /// Ends or moves the item without effects. `said` is appended to the reason.
    pub(super) fn settle(
        &mut self,
        tx: &mut Tx<'_>,
        task: i64,
        item: &Item,
        settle: &Settle,
        said: Option<&str>,
    ) -> Job<Outcome> {
        let with = |reason: &str| match said {
            Some(said) => format!("{reason}: {said}"),
            None => reason.to_owned(),
        };
        match settle {
            Settle::Skip { reason, settled } => {
                let reason = with(reason);
                self.tally.of(task, item.identity.tenant.as_ref()).skipped += 1;
                self.leaves(task, item)?;
                if *settled {
                    unblock(tx, task, item)?;
                    block(tx, task, item, false)?;
                    // Read again from here on, because there is a dead letter now.
                    self.blocks.remove(&task);
                }
                let remarks =
                    Remarks { settled: *settled, reason: Some(&reason), ..Remarks::default() };
                self.history(tx, task, item, End::Skipped, remarks)?;
                Ok(Outcome::Skipped(reason))
            }
            Settle::Retry { run_at, attempts, guard_retries, reason } => {
                self.tally.of(task, item.identity.tenant.as_ref()).retries += 1;
                let mut progress = Progress::of(item);
                progress.attempts = *attempts;
                progress.guard_retries = *guard_retries;
                progress.errors.push(with(reason));
                put_retry(tx, task, item, *run_at, &progress)?;
                Ok(Outcome::Retried(*run_at))
            }
            Settle::Dead { attempts, reason } => {
                let reason = with(reason);
                self.tally.of(task, item.identity.tenant.as_ref()).dead += 1;
                self.leaves(task, item)?;
                put_dead(tx, task, item, *attempts, &reason)?;
                self.blocks.remove(&task);
                let remarks = Remarks { reason: Some(&reason), ..Remarks::default() };
                self.history(tx, task, item, End::Dead, remarks)?;
                Ok(Outcome::Dead(reason))
            }
        }
    }

    /// Writes the history row, and returns its number.
    pub(super) fn history(
        &mut self,
        tx: &mut Tx<'_>,
        task: i64,
        item: &Item,
        end: End,
        remarks: Remarks<'_>,
    ) -> Job<i64> {
        if end != End::Dead {
            self.tally.ended(item.run);
        }
        let id = tx.number()?;
        let notes = match remarks.notes {
            [] => None,
            notes => Some(postcard::to_stdvec(notes)?),
        };
        let undo_bytes = remarks.undo.as_ref().map_or(0, Vec::len) as i64;
        if undo_bytes > 0 {
            self.tally.undo(task, undo_bytes);
        }
        self.into_history.execute(params![
            id,
            self.commit,
            task,
            tenant_cell(item.identity.tenant.as_ref()),
            item.identity.key,
            DueCell(item.identity.due),
            key_hash(&item.identity.key),
            item.run.0,
            end as i64,
            remarks.settled,
            remarks.reason,
            notes,
            undo_bytes,
            remarks.undo
        ])?;
        Ok(id)
    }

    /// Removes the item from the waiting ones, if it was queued.
    fn leaves(&mut self, task: i64, item: &Item) -> Job<()> {
        if item.run == RunId::NONE {
            return Ok(());
        }
        self.no_longer_waits.execute(params![
            task,
            tenant_cell(item.identity.tenant.as_ref()),
            item.identity.key,
            DueCell(item.identity.due)
        ])?;
        Ok(())
    }
}

/// Whether anything of a task may block an identity, for any of its items. For most tasks nothing
/// does, and then no item is looked up.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// A version was settled or discarded.
    pub(super) settled: bool,
    /// There is a dead letter, possibly a resolved one.
    pub(super) dead: bool,
}

impl Blocks {
    /// The current state.
    pub(super) fn of(tx: &Tx<'_>, task: i64) -> Job<Blocks> {
        let any = |sql| -> Job<bool> { Ok(tx.conn.prepare_cached(sql)?.exists([task])?) };
        Ok(Blocks {
            settled: any("SELECT 1 FROM besom_settled WHERE task = ?1 LIMIT 1")?,
            dead: any("SELECT 1 FROM besom_dead WHERE task = ?1 LIMIT 1")?,
        })
    }
}

/// Removes all blocks of the identity.
fn unblock(tx: &Tx<'_>, task: i64, item: &Item) -> Job<()> {
    let tenant = tenant_cell(item.identity.tenant.as_ref());
    tx.conn
        .prepare_cached(
            "DELETE FROM besom_settled WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
        )?
        .execute(params![task, tenant, item.identity.key, DueCell(item.identity.due)])?;
    Ok(())
}

/// Blocks the item's version: the task has settled it, or an operator has discarded it
/// (`given_up`).
pub(super) fn block(tx: &Tx<'_>, task: i64, item: &Item, given_up: bool) -> Job<()> {
    let tenant = tenant_cell(item.identity.tenant.as_ref());
    let due = DueCell(item.identity.due);
    tx.conn
        .prepare_cached(
            "INSERT INTO besom_settled VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (task, tenant, key, due, version) DO UPDATE SET at = excluded.at,
               given_up = max(given_up, excluded.given_up)",
        )?
        .execute(params![task, tenant, item.identity.key, due, item.version, tx.now.0, given_up])?;
    Ok(())
}

/// Moves an item to the retries, under an unused number.
pub(super) fn put_retry(
    tx: &mut Tx<'_>,
    task: i64,
    item: &Item,
    run_at: Time,
    progress: &Progress,
) -> Job<()> {
    let id = tx.number()?;
    tx.conn
        .prepare_cached(
            "INSERT INTO besom_retry VALUES
               (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            id,
            task,
            run_at.0,
            item.partition.0,
            tenant_cell(item.identity.tenant.as_ref()),
            item.identity.key,
            DueCell(item.identity.due),
            route(item),
            item.version,
            item.payload,
            item.run.0,
            item.planned_at.0,
            progress.pack()?
        ])?;
    Ok(())
}

fn put_dead(tx: &mut Tx<'_>, task: i64, item: &Item, attempts: u32, reason: &str) -> Job<()> {
    let mut progress = Progress::of(item);
    progress.attempts = attempts;
    progress.errors.push(reason.to_owned());
    let id = tx.number()?;
    tx.conn
        .prepare_cached(
            "INSERT INTO besom_dead (id, task, at, part, tenant, key, due, route, version,
               payload, run, planned_at, progress, error) VALUES
               (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
            id,
            task,
            tx.now.0,
            item.partition.0,
            tenant_cell(item.identity.tenant.as_ref()),
            item.identity.key,
            DueCell(item.identity.due),
            route(item),
            item.version,
            item.payload,
            item.run.0,
            item.planned_at.0,
            progress.pack()?,
            reason
        ])?;
    Ok(())
}
