//! Executes the writes of the books ([`besom_core::books`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use besom_core::books::{Blocks, LetterContext, Past, Tally, Write};
use besom_core::ids::{CommitId, Incarnation, RunId};
use besom_core::item::{Identity, Item};
use besom_core::time::Time;
use besom_core::value::Field;
use rusqlite::types::ToSqlOutput;
use rusqlite::{CachedStatement, params};

use super::error::Job;
use super::items::{Progress, key_place, route};
use super::outbox::{self, Emitted};
use super::statements::Statements;
use super::values::{DueCell, tenant_cell};
use super::writer::Tx;
use besom_ports::store::Error;
use besom_record::Changed;

/// The engine's tables while the writes of one transaction are executed.
pub(super) struct Ledger<'c> {
    /// The number of the commit's row.
    commit: i64,
    /// The number of the last history row.
    history: i64,
    /// How many dead letters were moved to the retries.
    pub(super) revived: u64,
    /// The statements that every item needs, prepared once.
    no_longer_waits: CachedStatement<'c>,
    into_history: CachedStatement<'c>,
}

/// An identity as the tables store it.
pub(super) struct Named<'a> {
    pub(super) task: i64,
    pub(super) tenant: ToSqlOutput<'a>,
    pub(super) key: &'a str,
    pub(super) due: DueCell,
}

impl<'a> Named<'a> {
    pub(super) fn of(tx: &mut Tx<'_>, identity: &'a Identity) -> Job<Named<'a>> {
        Ok(Named {
            task: tx.task(&identity.task)?,
            tenant: tenant_cell(identity.tenant.as_ref()),
            key: &identity.key,
            due: DueCell(identity.due),
        })
    }
}

impl<'c> Ledger<'c> {
    /// Opens the ledger. [`Ledger::close`] writes the commit's row.
    pub(super) fn open(tx: &mut Tx<'c>) -> Job<Ledger<'c>> {
        Ok(Ledger {
            commit: tx.number()?,
            history: 0,
            revived: 0,
            no_longer_waits: tx.conn.prepare_cached(
                "DELETE FROM besom_waiting
                 WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
            )?,
            into_history: tx.conn.prepare_cached(
                "INSERT INTO besom_history VALUES
                   (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )?,
        })
    }

    /// Writes the commit's row; a discard by a command has no mark.
    pub(super) fn close(
        self,
        tx: &Tx<'_>,
        id: Option<CommitId>,
        node: &Incarnation,
        result: &[u8],
    ) -> Job<()> {
        let id = id.map(|id| id.0.to_be_bytes());
        tx.conn.run(
            "INSERT INTO besom_commit VALUES (?1, ?2, ?3, ?4, ?5)",
            params![self.commit, id, node.as_str(), tx.now.0, result],
        )?;
        Ok(())
    }

    /// Executes the writes in order, and adds to the tally what only they can tell. Timers and
    /// retries were removed when they were found ([`super::commit`]). `deaths` has, by entry, the
    /// items whose hosts have died more often since they were read.
    pub(super) fn write<'a>(
        &mut self,
        tx: &mut Tx<'_>,
        writes: Vec<Write<'a>>,
        tally: &mut Tally<'a>,
        mut applied: Vec<Changed>,
        deaths: &BTreeMap<usize, u32>,
    ) -> Job<()> {
        let counted = |at, item: &Item| deaths.get(&at).copied().unwrap_or(item.deaths);
        for write in writes {
            match write {
                Write::Remove { item, .. } => self.leaves(&Named::of(tx, &item.identity)?)?,
                Write::Retry { at, item, run_at, attempts, guard_retries, error, .. } => {
                    let progress = Progress {
                        attempts,
                        guard_retries,
                        deaths: counted(at, item),
                        ..with_error(item, error.into_owned())
                    };
                    let named = Named::of(tx, &item.identity)?;
                    put_retry(tx, &named, item, run_at, &progress)?;
                }
                Write::SetAside { at, item, attempts, error, context, .. } => {
                    let named = Named::of(tx, &item.identity)?;
                    self.leaves(&named)?;
                    let progress = Progress {
                        attempts,
                        deaths: counted(at, item),
                        ..with_error(item, error.clone().into_owned())
                    };
                    put_dead(tx, &named, item, &progress, (&error, &context))?;
                }
                Write::Acknowledge { task, partition, after, upto } => {
                    let task = tx.task(task)?;
                    acknowledge(tx, task, partition.0, after.0, upto.0)?;
                }
                Write::History { at, item, end, settled, reason, notes } => {
                    let applied = applied.get_mut(at).map(std::mem::take).unwrap_or_default();
                    let notes = applied.noted(notes);
                    let Changed { undo, rows, said, .. } = applied;
                    let undo_bytes = undo.as_ref().map_or(0, Vec::len) as i64;
                    let delta = tally.of(&item.identity);
                    delta.undo_bytes += undo_bytes;
                    delta.rows += rows as i64;
                    let reason = reason.or(said.map(Cow::Owned));
                    let named = Named::of(tx, &item.identity)?;
                    self.history = tx.number()?;
                    self.into_history.execute(params![
                        self.history,
                        self.commit,
                        named.task,
                        named.tenant,
                        named.key,
                        named.due,
                        key_place(self.history, named.key),
                        item.run.0,
                        end as i64,
                        settled,
                        reason,
                        packed(&notes)?,
                        rows,
                        undo_bytes,
                        undo
                    ])?;
                }
                Write::Emit { item, topic, key, payload, .. } => {
                    let tenant = item.identity.tenant.as_ref();
                    let (history, task) = (self.history, Some(tx.task(&item.identity.task)?));
                    let entered = None;
                    let message = Emitted { history, task, tenant, topic, key, payload, entered };
                    outbox::emit(tx, &message)?;
                }
                Write::Lift { item } => {
                    let named = Named::of(tx, &item.identity)?;
                    lift(tx, &named)?;
                }
                Write::Resolve { item } => {
                    let named = Named::of(tx, &item.identity)?;
                    for run in resolve(tx, &named)? {
                        tally.resolved(&item.identity, run);
                    }
                }
                Write::Revive { letter, item, run_at, past, .. } => {
                    let named = Named::of(tx, &item.identity)?;
                    if waits_from_now(tx, &named)? {
                        let Past { attempts, guard_retries, deaths } = past;
                        let errors = item.errors.clone();
                        let progress = Progress { attempts, guard_retries, deaths, errors };
                        put_retry(tx, &named, item, run_at, &progress)?;
                        remove_letter(tx, letter)?;
                        tally.revived(&item.identity);
                        self.revived += 1;
                    }
                }
                Write::Discard { letter } => remove_letter(tx, letter)?,
                Write::Block { item, given_up } => {
                    let named = Named::of(tx, &item.identity)?;
                    block(tx, &named, &item.version, given_up)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the item from the waiting ones.
    fn leaves(&mut self, named: &Named<'_>) -> Job<()> {
        self.no_longer_waits.execute(params![named.task, named.tenant, named.key, named.due])?;
        Ok(())
    }
}

/// What may currently block items of a task.
pub(super) fn blocks(tx: &Tx<'_>, task: i64) -> Job<Blocks> {
    let any = |sql| -> Job<bool> { Ok(tx.conn.exists(sql, [task])?) };
    Ok(Blocks {
        settled: any("SELECT 1 FROM besom_settled WHERE task = ?1 LIMIT 1")?,
        dead: any("SELECT 1 FROM besom_dead WHERE task = ?1 AND resolved_at IS NULL LIMIT 1")?,
    })
}

fn with_error(item: &Item, error: String) -> Progress {
    let mut progress = Progress::of(item);
    progress.errors.push(error);
    progress
}

fn packed(notes: &[Field]) -> Job<Option<Vec<u8>>> {
    Ok(match notes {
        [] => None,
        notes => Some(postcard::to_stdvec(notes)?),
    })
}

/// Moves the cursor past executed items, and removes these from the log.
fn acknowledge(tx: &Tx<'_>, task: i64, partition: u32, after: u64, upto: u64) -> Job<()> {
    let removed = tx.conn.run(
        "DELETE FROM besom_log WHERE task = ?1 AND part = ?2 AND seq > ?3 AND seq <= ?4",
        params![task, partition, after, upto],
    )?;
    if removed as u64 != upto - after {
        return Err(Error::Invalid(format!(
            "the stream of partition {partition} has a gap between {after} and {upto}"
        ))
        .into());
    }
    tx.conn.run(
        "UPDATE besom_stream SET acked = ?3 WHERE task = ?1 AND part = ?2",
        params![task, partition, upto],
    )?;
    Ok(())
}

/// Resolves open dead letters; they stay in the books. Returns the runs that planned them.
fn resolve(tx: &Tx<'_>, named: &Named<'_>) -> Job<Vec<RunId>> {
    let identity = params![named.task, named.tenant, named.key, named.due, tx.now.0];
    tx.conn.all(
        "UPDATE besom_dead SET resolved_at = ?5
         WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4 AND resolved_at IS NULL
         RETURNING run",
        identity,
        |r| Ok(RunId(r.get(0)?)),
    )
}

/// Removes all settled and discarded versions of the identity.
fn lift(tx: &Tx<'_>, named: &Named<'_>) -> Job<()> {
    tx.conn.run(
        "DELETE FROM besom_settled WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
        params![named.task, named.tenant, named.key, named.due],
    )?;
    Ok(())
}

fn block(tx: &Tx<'_>, named: &Named<'_>, version: &str, given_up: bool) -> Job<()> {
    tx.conn.run(
        "INSERT INTO besom_settled VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (task, tenant, key, due, version) DO UPDATE SET at = excluded.at,
           given_up = max(given_up, excluded.given_up)",
        params![named.task, named.tenant, named.key, named.due, version, tx.now.0, given_up],
    )?;
    Ok(())
}

/// Registers the identity as waiting; false if it is already waiting.
fn waits_from_now(tx: &Tx<'_>, named: &Named<'_>) -> Job<bool> {
    let inserted = tx.conn.run(
        "INSERT INTO besom_waiting VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        params![named.task, named.tenant, named.key, named.due],
    )?;
    Ok(inserted == 1)
}

fn remove_letter(tx: &Tx<'_>, id: u64) -> Job<()> {
    tx.conn.run("DELETE FROM besom_dead WHERE id = ?1", [id])?;
    Ok(())
}

/// Adds an item to the retries, under an unused number.
fn put_retry(
    tx: &mut Tx<'_>,
    named: &Named<'_>,
    item: &Item,
    run_at: Time,
    progress: &Progress,
) -> Job<()> {
    let id = tx.number()?;
    tx.conn.run(
        "INSERT INTO besom_retry VALUES
               (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            id,
            named.task,
            run_at.0,
            item.partition.0,
            named.tenant,
            named.key,
            named.due,
            route(item),
            item.version,
            item.payload,
            item.run.0,
            item.planned_at.0,
            progress.pack()?
        ],
    )?;
    Ok(())
}

fn put_dead(
    tx: &mut Tx<'_>,
    named: &Named<'_>,
    item: &Item,
    progress: &Progress,
    (error, context): (&str, &LetterContext),
) -> Job<()> {
    let id = tx.number()?;
    tx.conn.run(
        "INSERT INTO besom_dead (id, task, at, part, tenant, key, due, route, version,
               payload, run, planned_at, progress, error, context) VALUES
               (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            id,
            named.task,
            tx.now.0,
            item.partition.0,
            named.tenant,
            named.key,
            named.due,
            route(item),
            item.version,
            item.payload,
            item.run.0,
            item.planned_at.0,
            progress.pack()?,
            error,
            context.pack()
        ],
    )?;
    Ok(())
}
