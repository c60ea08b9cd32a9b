//! The settings that determine the code compiled from a component: the allowed WebAssembly
//! features, and how calls are limited. The build script includes this file as well, so that
//! components compiled ahead of time equal those compiled by the host.

use wasmtime::{Config, WasmBacktraceDetails};

/// The settings of an engine's compiler. `counts`: whether it counts the instructions of its
/// guests.
pub fn config(counts: bool) -> Config {
    let mut config = Config::new();
    config
        .memory_init_cow(true)
        .wasm_component_model(true)
        .consume_fuel(counts)
        .epoch_interruption(true)
        // Identical results on every machine, as replays require.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        // Source lines are resolved separately from the call.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}
