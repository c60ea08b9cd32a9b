//! The binary that a benchmark of whole processes measures.

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
