//! The engines shared by all plugins, and the limits that belong to the host rather than to a task.

use std::path::PathBuf;
use std::time::Duration;

use wasmtime::component::Linker;
use wasmtime::{Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::bindings::Task;
use super::code;
use super::guest::Guest;
use super::imports::Imports;
use super::shape::Shape;
use besom_ports::guests::Limits;
use besom_system::child::Limits as ChildLimits;

/// Maximum number of core instances, memories and tables of one component. Components of scripting
/// languages are linked from several dozen.
pub(super) const PARTS_MAX: u32 = 100;
/// Native stack of a guest. Deeper recursion traps.
const STACK_BYTES: usize = 1024 * 1024;
/// The stack on which a guest runs, with room for the host functions that it calls.
const FIBER_STACK_BYTES: usize = 2 * STACK_BYTES;
/// Number of elements that the pool reserves for one table. Pages are committed on use.
const POOL_TABLE_ELEMENTS: usize = 100_000;
/// Bytes of a linear memory that stay resident in the pool between two instances: clearing them is
/// cheaper than releasing them and faulting them in. A Rust component has 1 MiB of stack first, and a
/// batch of 512 small items takes another. The pool could ask the kernel which pages were written
/// (`pagemap_scan`), but does not clear those that are swapped out, which the next guest would see
/// (wasmtime#14357).
const KEEP_RESIDENT_BYTES: usize = 2 * 1024 * 1024;

/// The limits of the host. Each of them has a default.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Number of threads that run only guests.
    pub threads: usize,
    /// Maximum number of instances. A guest that waits for the store occupies no thread.
    pub instances_max: u32,
    /// Maximum linear memory that any task may use, in bytes. The pool reserves this much address
    /// space for each memory; pages are committed on use.
    pub memory_bytes_max: u64,
    /// Processor time of a call, after which it continues with low priority. It is measured at each
    /// `tick`.
    pub slice: Duration,
    /// The interval at which a running guest is interrupted: the precision of its deadline.
    pub tick: Duration,
    /// Maximum number of calls to imports in one call.
    pub host_calls_max: u64,
    /// Maximum time for bisecting a batch, as a multiple of `wall_ms`. Items that are not reached
    /// are tried alone later. Meanwhile the batch occupies its place in the lane.
    pub bisect_walls_max: u32,
    /// The weight of the verdicts of one batch after which no other call is made for it, in bytes: as
    /// much as one commit may have. The last call may exceed it by `limits.hostcall_fuel`.
    pub verdict_bytes_max: usize,
    /// Maximum size of a component file, in bytes.
    pub component_bytes_max: u64,
    /// The allowed shape of components that are not built in.
    pub shape: Shape,
    /// The child process that compiles components that are not built in; `None`: this process does,
    /// without limits on memory and time.
    pub compiler: Option<ChildLimits>,
    /// A directory of this user for compiled components, derived from the environment. It takes
    /// precedence over `cache`, provided that no other user can replace it.
    pub users_cache: Option<PathBuf>,
    /// The directory for compiled components; without it and `users_cache`, components are compiled
    /// at every start.
    pub cache: Option<PathBuf>,
    /// How long a process waits for another one that compiles the same component before it compiles
    /// it itself.
    pub compile_wait_max: Duration,
    /// The limits of `describe`, to which no task's limits apply yet.
    pub describe: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().max(2)),
            instances_max: 64,
            memory_bytes_max: 4 << 30,
            slice: Duration::from_millis(5),
            tick: Duration::from_millis(2),
            host_calls_max: 100_000,
            bisect_walls_max: 2,
            verdict_bytes_max: 16 << 20,
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

/// Whether the instructions of a guest are counted. Counting costs a computing guest a fifth to a
/// quarter of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metering {
    /// Calls end when their fuel is used up, at the same instruction each time.
    Fuel,
    /// Calls end at their deadline. All other limits apply as well.
    Time,
}

impl Metering {
    /// Both ways of metering.
    pub(super) const ALL: [Metering; 2] = [Metering::Fuel, Metering::Time];

    /// The metering of a task with these limits.
    pub(super) fn of(limits: &Limits) -> Metering {
        Metering::counting(limits.fuel != 0)
    }

    /// The metering that counts instructions, or the one that does not.
    pub fn counting(counts: bool) -> Metering {
        if counts { Metering::Fuel } else { Metering::Time }
    }

    /// Whether instructions are counted.
    pub(super) fn counts(self) -> bool {
        self == Metering::Fuel
    }
}

/// Creates an engine with the features that a task may use, and the pool of its instances.
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

/// The imports available to a task: the contract, and all of WASI 0.2, because toolchains import
/// more than they use. What WASI provides is decided in `wasi`.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    Task::add_to_linker::<_, Imports>(&mut linker, |guest| guest)?;
    Ok(linker)
}
