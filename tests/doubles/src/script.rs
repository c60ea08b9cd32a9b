//! Programs in place of child processes.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes an executable shell script into the directory. A separate process writes it, because a
/// file that one thread of this process has open for writing cannot be executed by another thread.
///
/// # Panics
///
/// If there is no shell, or the directory cannot be written.
pub fn script(directory: &Path, text: &str) -> PathBuf {
    let program = directory.join("program");
    let line = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 700 "$1""#;
    let written = Command::new("sh").args(["-c", line, "sh"]).arg(&program).arg(text).status();
    assert!(written.expect("a shell").success(), "{} is written", program.display());
    program
}
