//! The store's content, and what several operations share: the fence, what is waiting, and the end
//! of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use besom_core::books::RunFacts;
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, Partition, RunId, Seq, TaskName, Tenant, Term,
};
use besom_core::item::{Identity, Item, Source};
use besom_core::pace::Strain;
use besom_core::plan::{Run, SlotRecord, TaskState};
use besom_core::time::Time;

use super::fault::Broken;
use super::lines::Logged;
use super::outbox::Message;
use super::ownership::Owner;
use super::tables::Tables;
use crate::activity::Book;
use besom_ports::store::{
    Applied, Arrivals, BeforeImage, Brake, CommandRow, Committed, Counts, DeadLetter, Error, Fence,
    Given, HistoryRow, NodeRow, Offered, Raised, Result, Review,
};

/// The items of one task in one partition.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamState {
    /// The last acknowledged position.
    pub(super) acked: Seq,
    /// The last written position.
    pub(super) tail: Seq,
    /// The items that are not acknowledged, and since when each has been waiting.
    pub(super) items: BTreeMap<Seq, (Time, Item)>,
}

/// A history row with its before-images.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) row: HistoryRow,
    pub(super) images: Option<Vec<BeforeImage>>,
    /// The version of the item.
    pub(super) version: String,
    /// What the item was given.
    pub(super) given: Option<Given>,
    /// Number of rows that were purged.
    pub(super) purged: u64,
    /// The collections of these rows.
    pub(super) purged_of: BTreeSet<String>,
}

/// A batch that is about to be executed.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) node: Incarnation,
    pub(super) items: Vec<(Source, Partition, Identity)>,
}

/// A version of an item that is not planned again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// Since when.
    pub(super) at: Time,
    /// Whether an operator discarded it; otherwise the task settled it.
    pub(super) given_up: bool,
}

/// The kinds of objects that the store numbers, each from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Numbered {
    Run,
    Timer,
    Retry,
    Dead,
    History,
    Command,
    Message,
}

/// The account of the books: one task in one tenant.
pub(super) type Account = (TaskName, Option<Tenant>);

/// The store's whole content.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) partitions: u32,
    last_ids: BTreeMap<Numbered, u64>,
    pub(super) fence: Option<(Fence, [u8; 32])>,
    pub(super) terms: BTreeMap<Term, Fence>,
    pub(super) owners: BTreeMap<Partition, Owner>,
    /// Arrivals in the queues from leaders, in order.
    pub(super) arrivals: Vec<Arrivals>,
    /// Only for [`super::MemoryStore::broken`].
    pub(super) broken: Option<Broken>,
    /// The last number of each stream some milliseconds ago, for [`Broken::EarlyNumbers`].
    pub(super) early: BTreeMap<(TaskName, Partition), (Time, Seq)>,
    /// The same of messages, for [`Broken::EarlyMessages`].
    pub(super) early_messages: BTreeMap<(String, Option<Tenant>, String), (Time, u64)>,

    pub(super) tasks: BTreeMap<TaskName, TaskState>,
    pub(super) runs: BTreeMap<RunId, Run>,
    /// By run and what is counted.
    pub(super) brakes: BTreeMap<(RunId, String), Brake>,
    pub(super) reviews: BTreeMap<RunId, Review>,
    pub(super) slots: Vec<SlotRecord>,
    /// Each with the time of its last move.
    pub(super) cursors: BTreeMap<Account, (Time, Vec<u8>)>,
    pub(super) commands: BTreeMap<u64, CommandRow>,
    /// The result of each applied command.
    pub(super) done: BTreeMap<u64, Applied>,

    pub(super) streams: BTreeMap<(TaskName, Partition), StreamState>,
    /// When the next rows of a task's budget are free.
    pub(super) free_at: BTreeMap<TaskName, Time>,
    pub(super) strain: Strain,
    pub(super) timers: BTreeMap<u64, Item>,
    pub(super) retries: BTreeMap<u64, (Time, Item)>,
    /// The identities in `streams`, `timers` and `retries`.
    pub(super) waiting: BTreeSet<Identity>,
    /// Versions of identities that are not planned again.
    pub(super) settled: BTreeMap<Identity, BTreeMap<String, Mark>>,
    pub(super) dead: BTreeMap<u64, DeadLetter>,

    pub(super) counts: BTreeMap<Account, Counts>,
    pub(super) history: BTreeMap<u64, Recorded>,
    /// Counts of rows pruned from the history (`committed`, `skipped`, `discarded`) and of pruned
    /// resolved dead letters.
    pub(super) baseline: BTreeMap<Account, Counts>,
    /// The result of each commit; none: its mark was looked up without success and is abandoned.
    pub(super) commits: BTreeMap<CommitId, Option<Committed>>,
    pub(super) begun: BTreeMap<CommitId, Begun>,
    /// Shared with the snapshots taken of it.
    pub(super) outbox: Arc<Vec<Message>>,
    /// The number of the latest message of each topic, tenant and key.
    pub(super) sequences: BTreeMap<(String, Option<Tenant>, String), u64>,
    /// The highest number that the product gave to a message of each topic, tenant and key.
    pub(super) entered: BTreeMap<(String, Option<Tenant>, String), u64>,
    /// The table `feed`.
    pub(super) feed: Vec<Offered>,
    pub(super) nodes: BTreeMap<Incarnation, NodeRow>,
    pub(super) lines: BTreeMap<RunId, Logged>,

    pub(super) tables: Tables,
    pub(super) activity: Book,
}

impl State {
    pub(super) fn new(partitions: u32, activity: Book) -> State {
        State {
            partitions,
            last_ids: BTreeMap::new(),
            fence: None,
            terms: BTreeMap::new(),
            owners: BTreeMap::new(),
            arrivals: Vec::new(),
            broken: None,
            early: BTreeMap::new(),
            early_messages: BTreeMap::new(),
            tasks: BTreeMap::new(),
            runs: BTreeMap::new(),
            brakes: BTreeMap::new(),
            reviews: BTreeMap::new(),
            slots: Vec::new(),
            cursors: BTreeMap::new(),
            commands: BTreeMap::new(),
            done: BTreeMap::new(),
            streams: BTreeMap::new(),
            free_at: BTreeMap::new(),
            strain: Strain::default(),
            timers: BTreeMap::new(),
            retries: BTreeMap::new(),
            waiting: BTreeSet::new(),
            settled: BTreeMap::new(),
            dead: BTreeMap::new(),
            counts: BTreeMap::new(),
            history: BTreeMap::new(),
            baseline: BTreeMap::new(),
            commits: BTreeMap::new(),
            begun: BTreeMap::new(),
            outbox: Arc::default(),
            sequences: BTreeMap::new(),
            entered: BTreeMap::new(),
            feed: Vec::new(),
            nodes: BTreeMap::new(),
            lines: BTreeMap::new(),
            tables: Tables::default(),
            activity,
        }
    }

    pub(super) fn next_id(&mut self, of: Numbered) -> u64 {
        let last = self.last_ids.entry(of).or_default();
        *last += 1;
        *last
    }

    /// Whether the store has this defect.
    pub(super) fn is_broken(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    // ---- leadership

    pub(super) fn raise_fence(
        &mut self,
        fence: &FencingToken,
        node: &Incarnation,
        partitions: Option<&[Partition]>,
        now: Time,
    ) -> Result<Raised> {
        let known = self.fence.as_ref().map(|(known, _)| known.term);
        if !self.is_broken(Broken::Fence) && known.is_some_and(|known| known >= fence.term) {
            return Err(Error::Fenced);
        }
        let taken: BTreeSet<Partition> = match partitions {
            None => (0..self.partitions).map(Partition).collect(),
            Some(partitions) => partitions.iter().copied().collect(),
        };
        if let Some(beyond) = taken.iter().find(|p| p.0 >= self.partitions) {
            let count = self.partitions;
            return Err(Error::Invalid(format!("there is no partition {beyond} of {count}")));
        }
        let raised = Fence { term: fence.term, node: node.clone(), raised_at: now };
        self.terms.insert(fence.term, raised.clone());
        self.fence = Some((raised, fence.token_hash));
        let take = |partition| (partition, self.take(node, partition, None));
        Ok(Raised { owned: taken.into_iter().map(take).collect() })
    }

    /// Refuses a leader other than the one that raised the fence last.
    pub(super) fn check_fence(&self, fence: &FencingToken) -> Result<()> {
        let shown = |(known, token): &(Fence, [u8; 32])| {
            known.term == fence.term && *token == fence.token_hash
        };
        if self.is_broken(Broken::Fence) || self.fence.as_ref().is_some_and(shown) {
            return Ok(());
        }
        Err(Error::Fenced)
    }

    // ---- what waits

    /// The item that waits at a place.
    pub(super) fn waiting_at(
        &self,
        task: &TaskName,
        partition: Partition,
        source: Source,
    ) -> Option<&Item> {
        match source {
            Source::Log(seq) => {
                let stream = self.streams.get(&(task.clone(), partition))?;
                stream.items.get(&seq).map(|(_, item)| item)
            }
            Source::Timer(id) => self.timers.get(&id),
            Source::Retry(id) => self.retries.get(&id).map(|(_, item)| item),
            Source::Unqueued(_) => None,
        }
    }

    /// Like `waiting_at`, for a change in place.
    pub(super) fn waiting_at_mut(
        &mut self,
        task: &TaskName,
        partition: Partition,
        source: Source,
    ) -> Option<&mut Item> {
        match source {
            Source::Log(seq) => {
                let stream = self.streams.get_mut(&(task.clone(), partition))?;
                stream.items.get_mut(&seq).map(|(_, item)| item)
            }
            Source::Timer(id) => self.timers.get_mut(&id),
            Source::Retry(id) => self.retries.get_mut(&id).map(|(_, item)| item),
            Source::Unqueued(_) => None,
        }
    }

    /// Puts an item into the retries.
    pub(super) fn add_retry(&mut self, run_at: Time, item: Item) {
        self.waiting.insert(item.identity.clone());
        let id = self.next_id(Numbered::Retry);
        self.retries.insert(id, (run_at, item));
    }

    // ---- runs

    /// Ends a run if it is at its end; returns whether it ended now.
    pub(super) fn end_if_complete(&mut self, id: RunId, now: Time) -> bool {
        let Some(run) = self.runs.get_mut(&id) else { return false };
        let facts = RunFacts {
            run: id,
            scan_done: run.scan_done,
            open: run.open as i64,
            ended: run.ended_at.is_some(),
        };
        if facts.ends() {
            run.ended_at = Some(now);
        }
        facts.ends()
    }
}

/// The account that an item belongs to.
pub(super) fn account(identity: &Identity) -> Account {
    (identity.task.clone(), identity.tenant.clone())
}
