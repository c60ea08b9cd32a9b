//! The engines that all plugins share, and the bounds that belong to the host and not to
//! a task.

use std::path::PathBuf;
use std::time::Duration;

use wasmtime::component::Linker;
use wasmtime::{Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::bindings::Task;
use super::code;
use super::guest::Guest;
use super::imports::Imports;
use super::shape::Shape;
use crate::child::Limits as ChildLimits;
use crate::ports::guests::Limits;

/// Core instances, memories and tables of one component. A component of a scripting
/// language is linked from some dozens.
pub(super) const PARTS_MAX: u32 = 100;
/// Native stack of a guest. Deep recursion ends here with a trap.
const STACK_BYTES: usize = 1024 * 1024;
/// The stack it runs on: room for what the host does under its calls besides.
const FIBER_STACK_BYTES: usize = 2 * STACK_BYTES;
/// Elements that the pool reserves for one table. Pages are committed when they are used.
const POOL_TABLE_ELEMENTS: usize = 100_000;
/// Bytes of a linear memory that stay resident in the pool between two instances: setting
/// them to zero is cheaper than giving them back and faulting them in.
const KEEP_RESIDENT_BYTES: usize = 256 * 1024;

/// The bounds of the host. Each of them has a default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Threads that run guests and nothing else.
    pub threads: usize,
    /// Instances at once. A guest that waits for the store needs no thread.
    pub instances_max: u32,
    /// The largest linear memory that any task may be allowed, in bytes. The pool reserves so
    /// much address space for each memory anyway; pages cost nothing until they are used.
    pub memory_bytes_max: u64,
    /// A task whose calls take longer runs on the threads of heavy tasks, at low priority.
    pub patient_after: Duration,
    /// How often a guest looks up from its work: the precision of its deadline.
    pub tick: Duration,
    /// Calls of imports in one call.
    pub host_calls_max: u64,
    /// A batch is halved for at most so many times `wall_ms`; what is not reached is tried again by
    /// itself. Meanwhile the batch has its place in the lane.
    pub bisect_walls_max: u32,
    /// The largest component file, in bytes.
    pub component_bytes_max: u64,
    /// What a component may be like that is not part of this program.
    pub shape: Shape,
    /// By whom components are compiled that are not part of this program; none: by this process,
    /// without a bound of memory and time.
    pub compiler: Option<ChildLimits>,
    /// A directory of this user's for compiled components, derived from the environment. It is
    /// taken before `cache`, if nobody else can put another one in its place.
    pub users_cache: Option<PathBuf>,
    /// Where compiled components are kept; none, and no `users_cache`: they are compiled at every
    /// start.
    pub cache: Option<PathBuf>,
    /// How long one process waits for another that compiles the same component, before it
    /// compiles it itself.
    pub compile_wait_max: Duration,
    /// The bounds of `describe`, which no task's limits cover yet.
    pub describe: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().max(2)),
            instances_max: 64,
            memory_bytes_max: 4 << 30,
            patient_after: Duration::from_millis(250),
            tick: Duration::from_millis(5),
            host_calls_max: 100_000,
            bisect_walls_max: 2,
            component_bytes_max: 64 << 20,
            shape: Shape::default(),
            compiler: None,
            users_cache: None,
            cache: None,
            compile_wait_max: Duration::from_secs(120),
            describe: Limits {
                memory_bytes: 256 << 20,
                fuel: 1_000_000_000,
                hostcall_fuel: 1 << 20,
                wall_ms: 10_000,
                batch_items: 0,
                batch_bytes: 0,
                rows_read: 0,
                read_bytes: 16 << 20,
                changes: 0,
                deletes: 0,
                log_bytes: 16 << 10,
            },
        }
    }
}

/// Whether the instructions of a guest are counted. To count them costs a guest that computes
/// a fifth to a quarter of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metering {
    /// Its calls end with their fuel, at the same instruction each time.
    Fuel,
    /// Its calls end with their time. All other limits are as they are.
    Time,
}

impl Metering {
    /// Both.
    pub(super) const ALL: [Metering; 2] = [Metering::Fuel, Metering::Time];

    /// How a task of these limits is metered.
    pub(super) fn of(limits: &Limits) -> Metering {
        Metering::counting(limits.fuel != 0)
    }

    /// The one that counts instructions, or the other one.
    pub(crate) fn counting(counts: bool) -> Metering {
        if counts { Metering::Fuel } else { Metering::Time }
    }

    /// Whether it counts instructions.
    pub(super) fn counts(self) -> bool {
        self == Metering::Fuel
    }
}

/// An engine with the features that a task may use, and the pool that its instances come from.
pub(super) fn engine(settings: &Settings, metering: Metering) -> wasmtime::Result<Engine> {
    let instances_max = settings.instances_max;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances_max)
        .total_stacks(instances_max)
        .total_core_instances(instances_max.saturating_mul(PARTS_MAX))
        .total_tables(instances_max.saturating_mul(16))
        .total_memories(instances_max.saturating_mul(2))
        .max_core_instances_per_component(PARTS_MAX)
        .max_tables_per_component(16)
        .max_memories_per_component(2)
        .max_memory_size(usize::try_from(settings.memory_bytes_max).unwrap_or(usize::MAX))
        .table_elements(POOL_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES);
    let mut config = code::config(metering.counts());
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES);
    Engine::new(&config)
}

/// What a task may import: the contract, and all of WASI 0.2, because toolchains import
/// more than they use. What is behind WASI is decided in `wasi`.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    Task::add_to_linker::<_, Imports>(&mut linker, |guest| guest)?;
    Ok(linker)
}
