//! What determines the code that a component is compiled to: the features that a task may use, and
//! how its calls are ended. The build script reads this file as well, so that what it compiles ahead is
//! what the host would compile.

use wasmtime::{Config, WasmBacktraceDetails};

/// The settings of an engine's compiler. `counts` says whether it counts the instructions of its
/// guests.
pub fn config(counts: bool) -> Config {
    let mut config = Config::new();
    config
        .memory_init_cow(true)
        .wasm_component_model(true)
        .consume_fuel(counts)
        .epoch_interruption(true)
        // The same bits on every machine, so that a replay means something.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        // Lines are looked up apart from the call.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}
