//! One call into one fresh instance of a guest, under all its limits.
//!
//! Instantiation also runs code of the guest, so it is part of the call. Nothing remains of a guest
//! after its call except the answer and what it has used.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::time::Time;
use futures::FutureExt as _;
use wasmtime::{Store, UpdateDeadline};

use super::access::Access;
use super::bindings::besom::task::types as wit;
use super::bindings::{Task, TaskPre};
use super::bounds;
use super::capture::Capture;
use super::engine::Metering;
use super::fault;
use super::guest::{Clock, Guest, Meter, Scope, View};
use super::items::Lent;
use super::lines::Symbols;
use super::memory::MemoryLimiter;
use super::plugin::Plugin;
use super::readset::ReadSets;
use super::wasi;
use besom_ports::guests::{Error, Limits, StopFlag, Usage};
use besom_ports::lines::RunLog;
use besom_system::child::Limits as ChildLimits;

/// How long after the deadline a guest is stopped without a backtrace. A guest that computes is
/// interrupted at every tick and shows where it is; one that sleeps does not.
const GRACE: Duration = Duration::from_millis(50);

/// The export to call, with its arguments.
pub(super) enum Question<'a> {
    /// `describe`.
    Describe,
    /// `tenants`.
    Tenants { context: &'a wit::Context, after: Option<&'a str>, limit: u32 },
    /// `scan`.
    Scan { context: &'a wit::Context, cursor: Option<&'a [u8]>, limit: u32 },
    /// `act`.
    Act { context: &'a wit::Context, items: &'a [Lent<'a>] },
}

impl Question<'_> {
    fn word(&self) -> &'static str {
        match self {
            Question::Describe => "describe",
            Question::Tenants { .. } => "tenants",
            Question::Scan { .. } => "scan",
            Question::Act { .. } => "act",
        }
    }
}

/// The result of an export, unchecked.
pub(super) enum Answer {
    /// Of `describe`.
    Manifest(wit::Manifest),
    /// Of `tenants`.
    Tenants(Vec<String>),
    /// Of `scan`.
    Page(wit::Page),
    /// Of `act`.
    Verdicts(Vec<wit::Verdict>),
    /// An error record, with its texts cut off.
    Error(wit::Error),
}

/// What all calls of one activation have in common.
pub(super) struct Caller {
    pub(super) plugin: Arc<Plugin>,
    pub(super) pre: TaskPre<Guest>,
    pub(super) metering: Metering,
    pub(super) task: TaskName,
    pub(super) access: Arc<Access>,
    pub(super) limits: Limits,
    pub(super) host_calls_max: u64,
    /// The program that resolves the source lines of a trap.
    pub(super) compiler: Option<ChildLimits>,
    pub(super) now: Time,
    pub(super) seed: u64,
    pub(super) view: Option<View>,
    pub(super) stop: StopFlag,
    pub(super) log: RunLog,
}

/// The result of a call.
pub(super) struct Outcome {
    pub(super) answer: Result<Answer, Error>,
    /// The host's side of the call, with the read sets and the guest's output.
    pub(super) guest: Guest,
    pub(super) usage: Usage,
}

impl Caller {
    /// Calls one export of a fresh instance. `scope` determines which rows it may read.
    pub(super) async fn ask(&self, scope: Scope, question: Question<'_>) -> Outcome {
        let wall = Duration::from_millis(self.limits.wall_ms);
        let mut store = self.store(scope, wall);
        if let Some(view) = &self.view {
            view.snapshot.read_by(store.data().clock.deadline());
            view.snapshot.read_at_most(self.limits.read_bytes);
        }
        let asked = tokio::select! {
            // The guest is polled first: if it has an answer, the answer counts.
            biased;
            answer = AssertUnwindSafe(enter(&self.pre, &mut store, &question)).catch_unwind() => {
                answer.map_or_else(Asked::Panicked, Asked::Ended)
            }
            reason = self.stop.raised() => Asked::Stopped(reason.to_owned()),
            () = tokio::time::sleep(wall.saturating_add(GRACE)) => Asked::TimedOut,
        };
        let fuel = match self.metering {
            Metering::Fuel => self.limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
            Metering::Time => 0,
        };
        let guest = store.into_data();
        let answer = match asked {
            Asked::Ended(Ok(answer)) => Ok(answer),
            Asked::Ended(Err(error)) => {
                let named = fault::classify(&error, &guest, question.word(), &Symbols::new());
                // The place is only reported for faults of the guest.
                if let Error::Guest(_) = named {
                    let symbols = self.symbols(&fault::places(&error)).await;
                    Err(fault::classify(&error, &guest, question.word(), &symbols))
                } else {
                    Err(named)
                }
            }
            Asked::Panicked(panic) => Err(Error::Guest(fault::panicked(question.word(), &*panic))),
            Asked::Stopped(reason) => Err(Error::Stopped(reason)),
            Asked::TimedOut => {
                let halt = wasmtime::Error::from(guest.clock.verdict());
                Err(fault::classify(&halt, &guest, question.word(), &Symbols::new()))
            }
        };
        let usage = Usage {
            fuel,
            memory_bytes: guest.memory.peak(),
            rows_read: guest.meter.rows,
            host_calls: guest.meter.calls,
            instances: 1,
        };
        Outcome { answer, guest, usage }
    }

    /// The symbols at the places of a fault, unless the call is stopped in the meantime.
    async fn symbols(&self, places: &[usize]) -> Symbols {
        let (lines, source) = (&self.plugin.lines, &self.plugin.source);
        tokio::select! {
            biased;
            _ = self.stop.raised() => Symbols::new(),
            symbols = lines.of(source, self.compiler.as_ref(), places) => symbols,
        }
    }

    fn store(&self, scope: Scope, wall: Duration) -> Store<Guest> {
        let capture = Capture::new(self.limits.log_bytes);
        let guest = Guest {
            wasi: wasi::context(self.now, self.seed, &capture),
            table: Guest::handles(),
            memory: MemoryLimiter::new(self.limits.memory_bytes),
            capture,
            task: self.task.clone(),
            access: Arc::clone(&self.access),
            scope,
            view: self.view.clone(),
            sets: ReadSets::default(),
            meter: Meter {
                rows_max: self.limits.rows_read,
                calls_max: self.host_calls_max,
                ..Meter::default()
            },
            clock: Clock::start(wall),
            stop: self.stop.clone(),
            log: self.log.clone(),
            fuel: self.limits.fuel,
        };
        let mut store = Store::new(self.pre.engine(), guest);
        store.limiter(|guest| &mut guest.memory);
        if self.metering == Metering::Fuel {
            store.set_fuel(self.limits.fuel).expect("the engine counts fuel");
        }
        store.set_hostcall_fuel(usize::try_from(self.limits.hostcall_fuel).unwrap_or(usize::MAX));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|context| {
            context.data().go_on()?;
            // Gives other guests on the same thread their turn, and allows the call to be dropped.
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }
}

/// The result of `act`.
type Acted = Result<Vec<wit::Verdict>, wit::Error>;

enum Asked {
    Ended(wasmtime::Result<Answer>),
    /// The host panicked in a function that the guest had called.
    Panicked(Box<dyn Any + Send>),
    Stopped(String),
    TimedOut,
}

async fn enter(
    pre: &TaskPre<Guest>,
    store: &mut Store<Guest>,
    question: &Question<'_>,
) -> wasmtime::Result<Answer> {
    let task: Task = pre.instantiate_async(&mut *store).await?;
    let housekeeping = task.besom_task_housekeeping();
    let answer = match question {
        Question::Describe => Ok(Answer::Manifest(housekeeping.call_describe(store).await?)),
        Question::Tenants { context, after, limit } => {
            housekeeping.call_tenants(store, context, *after, *limit).await?.map(Answer::Tenants)
        }
        Question::Scan { context, cursor, limit } => {
            housekeeping.call_scan(store, context, *cursor, *limit).await?.map(Answer::Page)
        }
        Question::Act { context, items } => {
            let act = housekeeping.func_act();
            let act = act.func().typed::<(&wit::Context, &[Lent<'_>]), (Acted,)>(&*store)?;
            act.call_async(store, (context, items)).await?.0.map(Answer::Verdicts)
        }
    };
    Ok(answer.unwrap_or_else(|error| Answer::Error(bounds::error(error))))
}

/// Adds the usage of another call.
pub(super) fn add(total: &mut Usage, call: &Usage) {
    total.fuel = total.fuel.saturating_add(call.fuel);
    total.memory_bytes = total.memory_bytes.max(call.memory_bytes);
    total.rows_read = total.rows_read.saturating_add(call.rows_read);
    total.host_calls = total.host_calls.saturating_add(call.host_calls);
    total.instances = total.instances.saturating_add(call.instances);
}
