//! The engine that all plugins share, and the bounds that belong to the host and not to
//! a task.

use std::path::PathBuf;
use std::time::Duration;

use wasmtime::component::Linker;
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails,
};

use super::bindings::Task;
use super::guest::Guest;
use super::imports::Imports;
use super::memory::PARTS_MAX;
use crate::ports::guests::Limits;

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
    /// How often a guest looks up from its work: the precision of its deadline.
    pub tick: Duration,
    /// Calls of imports in one call.
    pub host_calls_max: u64,
    /// A batch is halved for at most so many times `wall_ms`; what is not reached is retried.
    pub bisect_walls_max: u32,
    /// The largest component file, in bytes.
    pub component_bytes_max: u64,
    /// Where compiled components are kept; none: they are compiled at every start.
    pub cache: Option<PathBuf>,
    /// The bounds of `describe`, which no task's limits cover yet.
    pub describe: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().max(2)),
            instances_max: 64,
            memory_bytes_max: 4 << 30,
            tick: Duration::from_millis(5),
            host_calls_max: 100_000,
            bisect_walls_max: 16,
            component_bytes_max: 256 << 20,
            cache: None,
            describe: Limits {
                memory_bytes: 256 << 20,
                fuel: 1_000_000_000,
                hostcall_fuel: 1 << 20,
                wall_ms: 10_000,
                batch_items: 0,
                batch_bytes: 0,
                rows_read: 0,
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
        if limits.fuel == 0 { Metering::Time } else { Metering::Fuel }
    }
}

/// An engine with the features that a task may use.
pub(super) fn engine(settings: &Settings, metering: Metering) -> wasmtime::Result<Engine> {
    let memory = usize::try_from(settings.memory_bytes_max).unwrap_or(usize::MAX);
    let parts = settings.instances_max.saturating_mul(PARTS_MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(settings.instances_max)
        .total_stacks(settings.instances_max)
        .total_core_instances(parts)
        .total_tables(settings.instances_max.saturating_mul(16))
        .total_memories(settings.instances_max.saturating_mul(2))
        .max_core_instances_per_component(PARTS_MAX)
        .max_tables_per_component(16)
        .max_memories_per_component(2)
        .max_memory_size(memory)
        .table_elements(POOL_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_init_cow(true)
        .wasm_component_model(true)
        .consume_fuel(metering == Metering::Fuel)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        // The same bits on every machine, so that a replay means something.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_backtrace_details(WasmBacktraceDetails::Enable);
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
