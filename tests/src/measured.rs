//! What benchmarks and tests measure of whole processes: the binary, and memory.

use std::path::PathBuf;

/// The binary that is named, otherwise that of `BESOM_BIN`, otherwise the one that `cargo build
/// --release -p besom` leaves beside the benchmark.
///
/// # Errors
/// The file does not exist.
pub fn binary(named: Option<PathBuf>) -> Result<PathBuf, String> {
    let fails = |e: std::io::Error| e.to_string();
    let binary = match named.or_else(|| std::env::var_os("BESOM_BIN").map(PathBuf::from)) {
        Some(named) => std::path::absolute(named).map_err(fails)?,
        None => {
            let benchmark = std::env::current_exe().map_err(fails)?;
            // PROFILE/deps/BENCHMARK
            let profile = benchmark.ancestors().nth(2).ok_or("there is no target directory")?;
            profile.join("besom")
        }
    };
    if !binary.is_file() {
        return Err(format!(
            "{}: build it with `cargo build --release -p besom`, or name another with --binary",
            binary.display()
        ));
    }
    Ok(binary)
}

/// A figure of a process's memory in KiB, by its name in `/proc/PID/status`, such as `VmHWM`.
///
/// # Errors
/// The process has ended, or the system has no such figure.
pub fn memory_kib(pid: u32, name: &str) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let figure = lines.find(|(known, _)| *known == name).map(|(_, figure)| figure.trim());
    let kib = figure.and_then(|figure| figure.strip_suffix(" kB")?.parse().ok());
    kib.ok_or_else(|| format!("{path} has no {name}"))
}
