//! What an engine is: the features that a task may use, and the pool that its instances come from.

use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

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

/// The settings of an engine with the features that a task may use. `counts` says whether it
/// counts the instructions of its guests.
pub(super) fn config(instances_max: u32, memory_bytes_max: u64, counts: bool) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances_max)
        .total_stacks(instances_max)
        .total_core_instances(instances_max.saturating_mul(PARTS_MAX))
        .total_tables(instances_max.saturating_mul(16))
        .total_memories(instances_max.saturating_mul(2))
        .max_core_instances_per_component(PARTS_MAX)
        .max_tables_per_component(16)
        .max_memories_per_component(2)
        .max_memory_size(usize::try_from(memory_bytes_max).unwrap_or(usize::MAX))
        .table_elements(POOL_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_init_cow(true)
        .wasm_component_model(true)
        .consume_fuel(counts)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        // The same bits on every machine, so that a replay means something.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config
}
