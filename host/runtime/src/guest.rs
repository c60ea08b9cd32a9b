//! The host's side of one call: the data of a guest's store.
//!
//! It counts what the call uses and decides when the call has to end. The imports themselves are in
//! `imports`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::ids::{TaskName, Tenant};
use besom_snapshot::Cause;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::access::{Access, Refusal};
use super::capture::Capture;
use super::memory::MemoryLimiter;
use super::readset::ReadSets;
use besom_ports::activity::Activity;
use besom_ports::guests::StopFlag;
use besom_ports::lines::RunLog;
use besom_ports::store::ReadView;

/// Maximum number of open WASI handles, such as streams and pollables.
const HANDLES_MAX: usize = 256;

/// Why the host ends a call. Passed through the guest as a trap.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Halt {
    /// The result is no longer needed.
    #[error("stopped: {0}")]
    Stopped(String),
    /// The store or the activity failed during the call.
    #[error("{0}")]
    Infrastructure(String),
    /// The database rejects the call's request.
    #[error("{1}")]
    Refused(Cause, String),
    /// The deadline of the call has passed.
    #[error("the call has reached its deadline")]
    Deadline,
    /// The call has used too many calls to imports.
    #[error("the call has made more than {0} calls to imports")]
    HostCalls(u64),
}

/// The rows that a call may read.
pub(super) enum Scope {
    /// None: `describe` cannot read.
    Nothing,
    /// No rows: only the tenants that have rows. Contains the names that were returned, because the
    /// call may return no others.
    Tenants(HashSet<String>),
    /// The rows of this tenant (`None`: of all tenants), in a scan.
    Scan(Option<Tenant>),
    /// The rows of the tenant of the item that each read names.
    Items(Arc<[Option<Tenant>]>),
}

/// The data sources of a guest.
#[derive(Clone)]
pub(super) struct View {
    /// The snapshot for reading rows.
    pub(super) snapshot: Arc<dyn ReadView>,
    /// The activity service.
    pub(super) activity: Arc<dyn Activity>,
}

/// What the call has used, and its limits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    /// Number of rows read.
    pub(super) rows: u64,
    /// Maximum number of rows.
    pub(super) rows_max: u64,
    /// Number of calls to imports.
    pub(super) calls: u64,
    /// Maximum number of calls to imports.
    pub(super) calls_max: u64,
    /// Number of log lines passed to the host's log.
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
    /// The limit of the call.
    pub(super) fuel: u64,
}

/// Measures the time of a call, and how much of it the guest spent waiting.
pub(super) struct Clock {
    started: Instant,
    wall: Duration,
    waited: Duration,
    waiting_since: Option<Instant>,
}

impl Clock {
    /// Starts a clock for a call of this duration.
    pub(super) fn start(wall: Duration) -> Clock {
        Clock { started: Instant::now(), wall, waited: Duration::ZERO, waiting_since: None }
    }

    /// The deadline of the call.
    pub(super) fn deadline(&self) -> Instant {
        self.started + self.wall
    }

    /// The reason for ending a call at its deadline: the fault is with the side that used more of
    /// the time. A store that hangs must not create dead letters; reads that are slow because of
    /// what they request are recognized elsewhere, by comparison with other tasks.
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
    /// A bounded table of handles.
    pub(super) fn handles() -> ResourceTable {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        table
    }

    /// Called whenever the guest is interrupted: checks whether it may continue.
    pub(super) fn go_on(&self) -> Result<(), Halt> {
        if let Some(reason) = self.stop.reason() {
            return Err(Halt::Stopped(reason.to_owned()));
        }
        if self.clock.is_up() {
            return Err(self.clock.verdict());
        }
        Ok(())
    }

    /// Counts a call to an import.
    pub(super) fn count_call(&mut self) -> Result<(), Halt> {
        self.meter.calls += 1;
        if self.meter.calls > self.meter.calls_max {
            return Err(Halt::HostCalls(self.meter.calls_max));
        }
        self.go_on()
    }

    /// Waits for another component. That time does not count as the guest's.
    pub(super) async fn wait<T>(&mut self, other: impl Future<Output = T>) -> T {
        let since = Instant::now();
        self.clock.waiting_since = Some(since);
        let answer = other.await;
        self.clock.waiting_since = None;
        self.clock.waited += since.elapsed();
        answer
    }

    /// The data sources, if this call may read.
    pub(super) fn view(&self) -> Result<View, Refusal> {
        self.view.clone().ok_or_else(|| {
            Refusal::new("not-available", "`describe` cannot read: no data is available to it")
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
                Err(Refusal::new("no-such-item", "a read in `act` must name its item (`of`)"))
            }
            (Scope::Tenants(_), _) => Err(Refusal::new(
                "not-available",
                "`tenants` may only call `store.tenants`, unless `all_tenants` is granted",
            )),
            (Scope::Scan(tenant), None) => Ok(tenant.clone()),
            (Scope::Scan(_) | Scope::Nothing, Some(_)) => {
                Err(Refusal::new("no-such-item", "only `act` has items: omit `of`"))
            }
            (Scope::Nothing, None) => Ok(None),
        }
    }

    /// Counts rows that were read.
    pub(super) fn count_rows(&mut self, rows: u64) {
        self.meter.rows = self.meter.rows.saturating_add(rows);
    }

    /// The number of rows that may still be read. Rejects the read if there are none left.
    pub(super) fn rows_left(&self, wanted: u64) -> Result<u64, Refusal> {
        let left = self.meter.rows_max.saturating_sub(self.meter.rows);
        if left == 0 || left < wanted {
            return Err(Refusal::new(
                "limit-exceeded",
                format!(
                    "one call may read at most {} rows (`rows_read`); {} are already read",
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
