//! The node's report about itself: its meter, updated as commands start and end, and the state of
//! its configuration.
//!
//! The locks are held only while something is counted, never across an await.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use besom_core::ids::{CommitId, RunId, TaskName, Tenant};
use besom_core::item::{Item, Source};
use besom_core::time::Time;
use besom_snapshot::meter::{End, Meter, Used};
use besom_snapshot::{Cut, LeftOut, Report};

use super::clock;
use besom_ports::guests::Usage;
use besom_ports::store::{Batch, Committed, Outcome};

/// Maximum number of runs whose last page is remembered.
const SCANNING_MAX: usize = 1_024;
/// The number of candidates of a page whose size is not known yet, and the aim for the size of a larger one, in bytes.
pub(super) const PAGE_FIRST: u32 = 1_000;
const PAGE_BYTES: usize = 4 << 20;

/// The last page of a run.
#[derive(Debug)]
struct LastPage {
    tenant: Option<Tenant>,
    /// Pages of the tenant in a row, up to this one, for which no row was read.
    idle: u32,
    /// The mean size of its candidates, in bytes.
    bytes_each: usize,
}

/// Counts what a node does, for its report.
#[derive(Debug)]
pub struct Recorder {
    started_at: Time,
    meter: Mutex<Meter>,
    /// Batches whose commit has an unknown result.
    doubtful: Mutex<BTreeMap<CommitId, Batch>>,
    /// By task: what its last scan has left.
    cut: Mutex<BTreeMap<String, Cut>>,
    /// By task: what its last run could not plan.
    left_out: Mutex<BTreeMap<String, (RunId, LeftOut)>>,
    /// The page that a run has planned last.
    scanning: Mutex<BTreeMap<RunId, LastPage>>,
    config: Mutex<Taken>,
}

/// The state of the configuration file.
#[derive(Debug, Clone, Default)]
struct Taken {
    path: String,
    at: Time,
    fault: Option<String>,
    needs_restart: Vec<String>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            started_at: clock::wall(),
            meter: Mutex::new(Meter::new(clock::mono())),
            doubtful: Mutex::default(),
            cut: Mutex::default(),
            left_out: Mutex::default(),
            scanning: Mutex::default(),
            config: Mutex::default(),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// A batch is passed to its guest.
    pub fn begin(&self, batch: CommitId, items: &[(Source, Item)]) {
        locked(&self.meter).begin(clock::mono(), batch, items.iter().map(|(_, item)| item));
    }

    /// Calls of a guest for a run have ended.
    pub fn used(&self, run: RunId, usage: &Usage) {
        let used = Used {
            fuel: usage.fuel,
            memory_bytes: usage.memory_bytes,
            host_calls: usage.host_calls,
            rows_read: usage.rows_read,
            instances: usage.instances.into(),
        };
        locked(&self.meter).used(clock::mono(), run, &used);
    }

    /// A batch will not be committed.
    pub fn abandon(&self, batch: CommitId) {
        locked(&self.doubtful).remove(&batch);
        locked(&self.meter).abandon(batch);
    }

    /// No batch under way will be reported any more.
    pub fn abandon_all(&self) {
        locked(&self.doubtful).clear();
        locked(&self.meter).abandon_all();
    }

    /// The result of a batch's commit is unknown and will be looked up.
    pub fn doubt(&self, batch: &Batch) {
        locked(&self.doubtful).insert(batch.id, batch.clone());
    }

    /// A batch with an unknown result was committed.
    pub fn found(&self, batch: CommitId, committed: &Committed) {
        let batch = locked(&self.doubtful).remove(&batch);
        if let Some(batch) = batch {
            self.land(&batch, committed);
        }
    }

    /// A batch was committed.
    pub fn land(&self, batch: &Batch, committed: &Committed) {
        let ends = batch.entries.iter().zip(&committed.outcomes).filter_map(|(entry, outcome)| {
            let end = match outcome {
                Outcome::Committed | Outcome::Kept => End::Committed,
                Outcome::Skipped(_) => End::Skipped,
                Outcome::Retried(_) => End::Retried,
                Outcome::Dead(_) => End::Dead,
                Outcome::Left(_) => return None,
            };
            Some((&entry.item, end))
        });
        let mut meter = locked(&self.meter);
        meter.land(clock::mono(), batch.id, ends);
        meter.ended(&committed.runs_ended);
    }

    /// A run has ended.
    pub fn ended(&self, run: RunId) {
        locked(&self.meter).ended(&[run]);
    }

    /// A page of a tenant was planned; `is_idle`: without candidates, and no row was read for it; `bytes_each`: the
    /// mean size of its candidates.
    pub fn planned_page(
        &self,
        run: RunId,
        tenant: Option<&Tenant>,
        is_idle: bool,
        bytes_each: usize,
    ) {
        let mut scanning = locked(&self.scanning);
        let before = scanning.get(&run).filter(|last| last.tenant.as_ref() == tenant);
        let idle = if is_idle { before.map_or(0, |last| last.idle) + 1 } else { 0 };
        if before.is_none() && scanning.len() >= SCANNING_MAX {
            scanning.pop_first();
        }
        scanning.insert(run, LastPage { tenant: tenant.cloned(), idle, bytes_each });
    }

    /// How many of the last pages that were planned for a run were idle ones of this tenant; `None`: the
    /// last one was of another tenant, or there is none.
    pub fn idle_pages(&self, run: RunId, tenant: Option<&Tenant>) -> Option<u32> {
        let scanning = locked(&self.scanning);
        let last = scanning.get(&run).filter(|last| last.tenant.as_ref() == tenant)?;
        Some(last.idle)
    }

    /// How many candidates the next page of a run may have, at most `limit`: few until the size of its candidates is
    /// known, which pass through the memory of the plugin and of the host as a whole.
    pub fn page_limit(&self, run: RunId, limit: u32) -> u32 {
        let scanning = locked(&self.scanning);
        let fitting = scanning.get(&run).map_or(0, |last| PAGE_BYTES / last.bytes_each.max(1));
        limit.min(u32::try_from(fitting).unwrap_or(u32::MAX).max(PAGE_FIRST))
    }

    /// A run scans no more.
    pub fn scan_ended(&self, run: RunId) {
        locked(&self.scanning).remove(&run);
    }

    /// The scan of a run has ended.
    pub fn scanned(&self, scan: Cut) {
        let mut cut = locked(&self.cut);
        match scan.tenants {
            0 => cut.remove(&scan.task),
            _ => cut.insert(scan.task.clone(), scan),
        };
    }

    /// A page of a run was found, without these rows.
    pub fn left_out(&self, run: RunId, task: &TaskName, page: &LeftOut) {
        let mut left_out = locked(&self.left_out);
        let (of, all) = left_out.entry(task.to_string()).or_default();
        if *of != run {
            (*of, *all) = (run, LeftOut { task: task.to_string(), ..LeftOut::default() });
        }
        all.add(page);
    }

    /// A configuration file was loaded.
    pub fn config_taken(&self, path: &str) {
        let (path, at) = (path.to_owned(), clock::wall());
        *locked(&self.config) = Taken { path, at, ..Taken::default() };
    }

    /// The keys of the loaded file that take effect at the next start.
    pub fn config_waits(&self, needs_restart: Vec<String>) {
        locked(&self.config).needs_restart = needs_restart;
    }

    /// The configuration file again equals the active configuration.
    pub fn config_stands(&self) {
        locked(&self.config).fault = None;
    }

    /// The changed configuration file was rejected; the node keeps its configuration.
    pub fn config_refused(&self, fault: String) {
        locked(&self.config).fault = Some(fault);
    }

    /// The current report of the node.
    pub fn report(&self) -> Report {
        let Taken { path, at, fault, needs_restart } = locked(&self.config).clone();
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            config_path: path,
            config_at: at,
            config_fault: fault,
            needs_restart,
            cut: locked(&self.cut).values().cloned().collect(),
            left_out: {
                let all = locked(&self.left_out);
                all.values().map(|(_, left)| left).filter(|left| left.rows > 0).cloned().collect()
            },
            ..Report::default()
        };
        locked(&self.meter).fill(clock::mono(), &mut report);
        report
    }
}

/// The run to which a call with these items is attributed: the newest run that planned one of them.
/// A guest receives items of several runs in one call and does not say for which it works.
pub fn run_of<'a>(items: impl IntoIterator<Item = &'a Item>) -> RunId {
    items.into_iter().map(|item| item.run).max().unwrap_or_default()
}
