//! The host's side of one call: what the store of a guest holds.
//!
//! It counts what the call uses and knows when the call has to end. What the imports
//! answer is in `imports`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::ids::{TaskName, Tenant};
use besom_core::snapshot::Cause;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::access::{Access, Refusal};
use super::capture::Capture;
use super::memory::MemoryLimiter;
use super::readset::ReadSets;
use crate::ports::activity::Activity;
use crate::ports::guests::StopFlag;
use crate::ports::lines::RunLog;
use crate::ports::store::Snapshot;

/// Streams, pollables and whatever else WASI hands out, open at once.
const HANDLES_MAX: usize = 256;

/// Why a call is cut short by the host. Travels through the guest as a trap.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Halt {
    /// The result is no longer wanted.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The store or the activity failed under the call.
    #[error("{0}")]
    Infrastructure(String),
    /// The database refuses what was asked of it.
    #[error("{1}")]
    Refused(Cause, String),
    /// Time is up.
    #[error("the time of the call is up")]
    Deadline,
    /// It calls its imports without end.
    #[error("the call has made more than {0} calls of imports")]
    HostCalls(u64),
}

/// Whose rows a call may read.
pub(super) enum Scope {
    /// None: `describe` sees nothing.
    Nothing,
    /// Of no tenant: which tenants have rows is all that it may ask. With the names it was given,
    /// for it may return no other.
    Tenants(HashSet<String>),
    /// A scan; the tenant is added to every query. None: all tenants.
    Scan(Option<Tenant>),
    /// Each read names its item, whose tenant is added.
    Items(Arc<[Option<Tenant>]>),
}

/// What the guest sees of the outside.
#[derive(Clone)]
pub(super) struct View {
    /// The rows.
    pub(super) snapshot: Arc<dyn Snapshot>,
    /// Who uses what.
    pub(super) activity: Arc<dyn Activity>,
}

/// What has been used, and the bounds of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    /// Rows read.
    pub(super) rows: u64,
    /// At most so many.
    pub(super) rows_max: u64,
    /// Calls of imports.
    pub(super) calls: u64,
    /// At most so many.
    pub(super) calls_max: u64,
    /// Log lines passed on to the host's log.
    pub(super) lines: u32,
}

/// The data of a guest's store.
pub(super) struct Guest {
    pub(super) wasi: WasiCtx,
    pub(super) table: ResourceTable,
    pub(super) memory: MemoryLimiter,
    pub(super) capture: Capture,
    pub(super) task: TaskName,
    pub(super) access: Arc<Access>,
    pub(super) scope: Scope,
    pub(super) view: Option<View>,
    pub(super) sets: ReadSets,
    pub(super) meter: Meter,
    pub(super) clock: Clock,
    pub(super) stop: StopFlag,
    pub(super) log: RunLog,
}

/// Whose time it is: the guest's, or that of whom it waits for.
pub(super) struct Clock {
    started: Instant,
    wall: Duration,
    waited: Duration,
    waiting_since: Option<Instant>,
}

impl Clock {
    /// Starts now; the call may take so long.
    pub(super) fn start(wall: Duration) -> Clock {
        Clock { started: Instant::now(), wall, waited: Duration::ZERO, waiting_since: None }
    }

    /// When the time of the call is up.
    pub(super) fn deadline(&self) -> Instant {
        self.started + self.wall
    }

    /// What to say of a call whose time is up: the fault is with whom used more of it. A
    /// store that hangs must make no dead letters; reads that are slow by what they ask for
    /// are told apart by those who see other tasks as well.
    pub(super) fn verdict(&self) -> Halt {
        let waiting = self.waiting_since.map_or(Duration::ZERO, |since| since.elapsed());
        let waited = self.waited + waiting;
        let elapsed = self.started.elapsed();
        if waited * 2 > elapsed {
            let words = format!(
                "the store answered too slowly: {} ms of the {} ms that a call may take were \
                 spent waiting for it",
                waited.as_millis(),
                self.wall.as_millis()
            );
            return Halt::Refused(Cause::Slow, words);
        }
        Halt::Deadline
    }

    fn is_up(&self) -> bool {
        self.started.elapsed() >= self.wall
    }
}

impl Guest {
    /// A table of handles with its bound.
    pub(super) fn handles() -> ResourceTable {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        table
    }

    /// Asked whenever the guest looks up: may it go on?
    pub(super) fn go_on(&self) -> Result<(), Halt> {
        if let Some(reason) = self.stop.reason() {
            return Err(Halt::Stopped(reason.to_owned()));
        }
        if self.clock.is_up() {
            return Err(self.clock.verdict());
        }
        Ok(())
    }

    /// Counts a call of an import.
    pub(super) fn count_call(&mut self) -> Result<(), Halt> {
        self.meter.calls += 1;
        if self.meter.calls > self.meter.calls_max {
            return Err(Halt::HostCalls(self.meter.calls_max));
        }
        self.go_on()
    }

    /// Waits for somebody else: that time is not the guest's.
    pub(super) async fn wait<T>(&mut self, other: impl Future<Output = T>) -> T {
        let since = Instant::now();
        self.clock.waiting_since = Some(since);
        let answer = other.await;
        self.clock.waiting_since = None;
        self.clock.waited += since.elapsed();
        answer
    }

    /// The view, if this call has one.
    pub(super) fn view(&self) -> Result<View, Refusal> {
        self.view.clone().ok_or_else(|| {
            Refusal::new("not-available", "`describe` cannot read: there is nothing to see yet")
        })
    }

    /// The tenant that a read is for.
    pub(super) fn tenant(&self, of: Option<u32>) -> Result<Option<Tenant>, Refusal> {
        match (&self.scope, of) {
            (Scope::Items(tenants), Some(index)) => {
                tenants.get(index as usize).cloned().ok_or_else(|| {
                    let count = tenants.len();
                    Refusal::new(
                        "no-such-item",
                        format!("item {index} of a batch of {count} does not exist"),
                    )
                })
            }
            (Scope::Items(_), None) => {
                Err(Refusal::new("no-such-item", "a read in `act` names its item (`of`)"))
            }
            (Scope::Tenants(_), _) => Err(Refusal::new(
                "not-available",
                "`tenants` may only ask for tenants, unless `all_tenants` is granted",
            )),
            (Scope::Scan(tenant), None) => Ok(tenant.clone()),
            (Scope::Scan(_) | Scope::Nothing, Some(_)) => {
                Err(Refusal::new("no-such-item", "only `act` has items: leave `of` out"))
            }
            (Scope::Nothing, None) => Ok(None),
        }
    }

    /// Counts rows that were read.
    pub(super) fn count_rows(&mut self, rows: u64) {
        self.meter.rows = self.meter.rows.saturating_add(rows);
    }

    /// How many rows may still be read; refused if none.
    pub(super) fn rows_left(&self, wanted: u64) -> Result<u64, Refusal> {
        let left = self.meter.rows_max.saturating_sub(self.meter.rows);
        if left == 0 || left < wanted {
            return Err(Refusal::new(
                "limit-exceeded",
                format!(
                    "one call may read {} rows (`rows_read`), {} are read already",
                    self.meter.rows_max, self.meter.rows
                ),
            ));
        }
        Ok(left)
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
