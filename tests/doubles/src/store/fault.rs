//! Faults of a store that tests and simulations can inject.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

use besom_core::ids::{RunId, Seq, TaskName};

use super::MemoryStore;
use super::state::State;
use besom_ports::store::{Error, Result};

/// The kind of operation that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// [`besom_ports::store::Store::commit`].
    Commit,
    /// Every other write.
    Write,
    /// Reads.
    Read,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// [`Error::Busy`].
    Busy,
    /// [`Error::Unavailable`].
    Unavailable,
    /// [`Error::Unknown`]; nothing has been applied, nor ever will be.
    UnknownNotApplied,
    /// [`Error::Unknown`]; the operation has been applied.
    UnknownApplied,
}

/// The name of every read for [`Chance`].
pub const READ: &str = "read";

/// Decides which operation fails. It is given the name of the write of the port, or [`READ`].
pub type Chance = Arc<dyn Fn(&'static str) -> Option<Fault> + Send + Sync>;

/// The faults of one handle.
#[derive(Default)]
pub(super) struct Faults {
    away: bool,
    chance: Option<Chance>,
    commit: VecDeque<Fault>,
    write: VecDeque<Fault>,
    read: VecDeque<Fault>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("away", &self.away).finish_non_exhaustive()
    }
}

/// A defect of the whole store. A simulation has to detect each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// Neither the fence nor the owner epochs are checked, so that stale leaders and owners can write.
    Fence,
    /// The owner epochs are not checked, so that a stale owner can commit.
    Epoch,
    /// A commit removes its items from the queues in a transaction of its own before their effects.
    PurgeFirst,
    /// Numbers of a stream are drawn before it is locked: from the state of some milliseconds ago.
    EarlyNumbers,
    /// The same of messages: one of two transactions that emit at a time has not seen the other's numbers.
    EarlyMessages,
    /// A slot decision whose answer was lost is carried out again when it is repeated.
    Slots,
    /// Rows are put back whatever has happened to them since.
    Undo,
    /// What a task has taken of its rows per second is forgotten.
    Budget,
}

impl Broken {
    /// All defects.
    pub const ALL: [Broken; 8] = [
        Broken::Fence,
        Broken::Epoch,
        Broken::PurgeFirst,
        Broken::EarlyNumbers,
        Broken::EarlyMessages,
        Broken::Slots,
        Broken::Undo,
        Broken::Budget,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Broken::Fence => "fence",
            Broken::Epoch => "epoch",
            Broken::PurgeFirst => "purge-first",
            Broken::EarlyNumbers => "early-numbers",
            Broken::EarlyMessages => "early-messages",
            Broken::Slots => "slots",
            Broken::Undo => "undo",
            Broken::Budget => "budget",
        }
    }
}

impl Faults {
    fn queue(&mut self, on: On) -> &mut VecDeque<Fault> {
        match on {
            On::Commit => &mut self.commit,
            On::Write => &mut self.write,
            On::Read => &mut self.read,
        }
    }
}

impl MemoryStore {
    /// Makes the next operation of this kind fail; further calls queue up.
    pub fn fail_next(&self, on: On, fault: Fault) {
        self.faults().queue(on).push_back(fault);
    }

    /// Lets each write and read of this handle fail as `chance` decides, beside [`MemoryStore::fail_next`].
    pub fn fail_by(&self, chance: Chance) {
        self.faults().chance = Some(chance);
    }

    /// Cuts this handle off from its store, or reconnects it.
    pub fn set_away(&self, away: bool) {
        self.faults().away = away;
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a write of the port, or injects the fault that is due.
    pub(super) fn write_as<T>(
        &self,
        name: &'static str,
        operation: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.inject(On::Write, Some(name), operation)
    }

    /// Performs a commit, or injects the fault that is due.
    pub(super) fn commit_as<T>(
        &self,
        name: &'static str,
        operation: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.inject(On::Commit, Some(name), operation)
    }

    /// Performs an operation, or injects the fault that is due.
    pub(super) fn perform<T>(
        &self,
        on: On,
        operation: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.inject(on, None, operation)
    }

    fn inject<T>(
        &self,
        on: On,
        name: Option<&'static str>,
        operation: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let (fault, chance) = {
            let mut faults = self.faults();
            if faults.away {
                return Err(Error::Unavailable("this node is cut off from its store".into()));
            }
            (faults.queue(on).pop_front(), faults.chance.clone())
        };
        let name = name.or((on == On::Read).then_some(READ));
        let fault = fault.or_else(|| chance?(name?));
        match fault {
            None => operation(&mut self.lock()),
            Some(Fault::Busy) => Err(Error::Busy("injected".into())),
            Some(Fault::Unavailable) => Err(Error::Unavailable("injected".into())),
            Some(Fault::UnknownNotApplied) => Err(Error::Unknown("injected, before".into())),
            Some(Fault::UnknownApplied) => {
                operation(&mut self.lock())?;
                Err(Error::Unknown("injected, after".into()))
            }
        }
    }
}

/// A corruption of the books, which an audit has to find.
#[derive(Debug, Clone, PartialEq)]
pub enum Corruption {
    /// A history row disappears.
    LoseHistory(u64),
    /// An item disappears from the log.
    LoseLog(TaskName, besom_core::ids::Partition, Seq),
    /// The positions of a task's streams disappear. Their items stay.
    LosePositions(TaskName),
    /// A timer disappears.
    LoseTimer(u64),
    /// A task's counter shows one more planned item (of its first tenant).
    MiscountPlanned(TaskName),
    /// A run counts one more item in the log, which is all that this store counts of it.
    MiscountRun(RunId),
    /// A task's counter shows one more changed row of the product (of its first tenant).
    MiscountRows(TaskName),
    /// A history row shows one more changed row of the product.
    MiscountRowsOfItem(u64),
}

impl MemoryStore {
    /// Corrupts the books behind the engine's back.
    pub fn corrupt(&self, corruption: &Corruption) {
        let mut state = self.lock();
        match corruption {
            Corruption::LoseHistory(id) => {
                state.history.remove(id);
            }
            Corruption::LoseLog(task, partition, seq) => {
                if let Some(stream) = state.streams.get_mut(&(task.clone(), *partition)) {
                    stream.items.remove(seq);
                }
            }
            Corruption::LosePositions(task) => {
                state.streams.retain(|(of, _), stream| of != task || !stream.items.is_empty());
                let streams = state.streams.iter_mut().filter(|((of, _), _)| of == task);
                for (_, stream) in streams {
                    (stream.acked, stream.tail) = (Seq(0), Seq(0));
                }
            }
            Corruption::LoseTimer(id) => {
                state.timers.remove(id);
            }
            Corruption::MiscountPlanned(task) => {
                let mut counts = state.counts.iter_mut();
                if let Some((_, counts)) = counts.find(|((owner, _), _)| owner == task) {
                    counts.planned += 1;
                }
            }
            Corruption::MiscountRun(run) => {
                if let Some(run) = state.runs.get_mut(run) {
                    run.open += 1;
                }
            }
            Corruption::MiscountRows(task) => {
                let mut counts = state.counts.iter_mut();
                if let Some((_, counts)) = counts.find(|((owner, _), _)| owner == task) {
                    counts.rows += 1;
                }
            }
            Corruption::MiscountRowsOfItem(id) => {
                if let Some(recorded) = state.history.get_mut(id) {
                    recorded.row.rows += 1;
                }
            }
        }
    }
}
