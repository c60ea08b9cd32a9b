//! Determines why a call failed: a named fault of the guest, or another cause.

use std::any::Any;
use std::fmt::Write as _;

use wasmtime::{FrameInfo, PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::bounds::{MESSAGE_BYTES_MAX, cut};
use super::guest::{Guest, Halt};
use super::lines::{Symbol, Symbols};
use besom_ports::guests::{Error, Fault};

/// Maximum number of frames shown of a backtrace.
const FRAMES_MAX: usize = 8;
/// Maximum size of the guest's output that is included in a fault, in bytes.
const TAIL_BYTES_MAX: usize = 2 * 1024;

/// The code offsets in the component at which a call ended and from which it was called.
pub(super) fn places(error: &wasmtime::Error) -> Vec<usize> {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let frames = backtrace.map_or(&[][..], |backtrace| backtrace.frames());
    frames.iter().filter_map(FrameInfo::module_offset).collect()
}

/// Determines what ended a call. `entry` is the export that was called, `symbols` are the symbols
/// at the [`places`] of the error.
pub(super) fn classify(
    error: &wasmtime::Error,
    guest: &Guest,
    entry: &str,
    symbols: &Symbols,
) -> Error {
    let (cause, what) = match error.downcast_ref::<Halt>() {
        Some(Halt::Stopped(reason)) => return Error::Stopped(reason.clone()),
        // A database may quote what the guest has sent.
        Some(Halt::Infrastructure(message)) => {
            return Error::Infrastructure(cut(message.clone(), MESSAGE_BYTES_MAX));
        }
        Some(Halt::Refused(cause, message)) => {
            return Error::Refused(*cause, cut(message.clone(), MESSAGE_BYTES_MAX));
        }
        Some(halt @ Halt::Deadline) => ("deadline", halt.to_string()),
        Some(halt @ Halt::HostCalls(_)) => ("limit", halt.to_string()),
        None if error.is::<PoolConcurrencyLimitError>() => {
            return Error::Infrastructure(format!("no capacity for another guest: {error:#}"));
        }
        None => trapped(error, guest),
    };
    let mut message = format!("{entry}: {what}");
    if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
        message.push_str(&frames(backtrace, symbols));
    }
    Error::Guest(Fault::new(cause, with_tail(message, guest)))
}

/// A fault that was found in the guest's result.
pub(super) fn returned(cause: &str, message: String, guest: &Guest) -> Fault {
    Fault::new(cause, with_tail(message, guest))
}

/// The host panicked during a call. Whatever the guest did to cause it would cause it again, so it
/// is attributed to the guest and bisected like its other faults.
pub(super) fn panicked(entry: &str, panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let message = format!("{entry}: the host panicked in a call from the plugin: {text}");
    Fault::new("host-panic", cut(message, MESSAGE_BYTES_MAX))
}

fn trapped(error: &wasmtime::Error, guest: &Guest) -> (&'static str, String) {
    let out_of_memory = || {
        guest.memory.refused().map(|wanted| {
            let limit = guest.memory.limit();
            format!("requested {wanted} bytes of memory; the limit is {limit}")
        })
    };
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return ("trap", format!("called exit({})", exit.0));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => {
            ("fuel", format!("used up its fuel of {} (`limits.fuel`)", guest.fuel))
        }
        Some(Trap::StackOverflow) => ("stack", "call stack exhausted".to_owned()),
        Some(Trap::AllocationTooLarge) => ("memory", "allocation too large".to_owned()),
        // An allocator that cannot allocate ends in this way.
        Some(Trap::UnreachableCodeReached) => match out_of_memory() {
            Some(message) => ("memory", message),
            None => ("unreachable", "panicked, or reached code marked as unreachable".into()),
        },
        Some(trap) => ("trap", trap.to_string()),
        None => {
            let root = error.root_cause().to_string();
            // The error has no public type. It is recognized by its text, which a test checks.
            if root.contains("fuel allocated for hostcalls") {
                return (
                    "limit",
                    "passes more data to the host than `hostcall_fuel` allows".into(),
                );
            }
            match out_of_memory() {
                Some(message) => ("memory", message),
                None => ("trap", root),
            }
        }
    }
}

fn with_tail(message: String, guest: &Guest) -> String {
    let mut message = cut(message, MESSAGE_BYTES_MAX);
    let tail = guest.capture.tail(TAIL_BYTES_MAX);
    if !tail.is_empty() {
        let _ = write!(message, "\nit wrote: {tail}");
    }
    message
}

/// A function on the guest's stack, or one that was inlined there.
struct Place {
    name: String,
    /// The source file and the line, if the guest has line tables.
    source: Option<(String, Option<u32>)>,
}

/// The frames of the plugin, innermost first, with their source locations if it has line tables.
fn frames(backtrace: &WasmBacktrace, symbols: &Symbols) -> String {
    let functions = |frame| functions(frame, symbols);
    let all: Vec<Place> = backtrace.frames().iter().flat_map(functions).collect();
    let own: Vec<&Place> = all.iter().filter(|place| !is_machinery(place)).collect();
    let shown = if own.is_empty() { all.iter().collect() } else { own };
    let mut text = String::new();
    for place in shown.iter().take(FRAMES_MAX) {
        let _ = write!(text, "\n  at {}", place.name);
        if let Some((file, line)) = &place.source {
            let _ = write!(text, " ({file}");
            if let Some(line) = line {
                let _ = write!(text, ":{line}");
            }
            text.push(')');
        }
    }
    if shown.len() > FRAMES_MAX {
        let _ = write!(text, "\n  and {} more", shown.len() - FRAMES_MAX);
    }
    text
}

/// The functions of a frame: those inlined into it, then its own. Only the latter is in the name
/// table, with its path; line tables contain only short names such as `spin`.
fn functions(frame: &FrameInfo, symbols: &Symbols) -> Vec<Place> {
    let demangled = |name: &str| format!("{:#}", rustc_demangle::demangle(name));
    let own = match frame.func_name() {
        Some(name) => demangled(name),
        None => format!("function {}", frame.func_index()),
    };
    let symbols = frame.module_offset().and_then(|place| symbols.get(&place));
    let Some((last, inlined)) = symbols.and_then(|symbols| symbols.split_last()) else {
        return vec![Place { name: own, source: None }];
    };
    let source = |symbol: &Symbol| symbol.file.clone().map(|file| (file, symbol.line));
    let mut places: Vec<Place> = inlined
        .iter()
        .map(|symbol| Place {
            name: symbol.name.as_deref().map_or_else(|| own.clone(), demangled),
            source: source(symbol),
        })
        .collect();
    places.push(Place { source: source(last), name: own });
    places
}

/// Whether a frame belongs to the path from a Rust guest's own code to the trap, or from the host
/// to that code.
fn is_machinery(place: &Place) -> bool {
    /// The source directory of the standard library at its build.
    const STANDARD_LIBRARY: &str = "/rustc/";
    const MACHINERY: [&str; 19] = [
        "std::",
        "core::",
        "alloc::",
        "<std::",
        "<core::",
        "<alloc::",
        "__rust",
        "rust_",
        "__rdl",
        "__rg_",
        "abort",
        "cabi_",
        "_export_",
        "wit_bindgen",
        "_start",
        "exit",
        "_Exit",
        "besom_sdk::bindings",
        "besom:task/",
    ];
    MACHINERY.iter().any(|prefix| place.name.starts_with(prefix))
        || place.source.as_ref().is_some_and(|(file, _)| file.starts_with(STANDARD_LIBRARY))
}
