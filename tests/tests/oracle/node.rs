//! Node with the packages, and the directories of these tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use besom_oracle::Oracle;

fn oracle() -> &'static Oracle {
    static ORACLE: OnceLock<Oracle> = OnceLock::new();
    ORACLE.get_or_init(|| Oracle::under(env!("CARGO_TARGET_TMPDIR")))
}

/// `node SCRIPT`.
pub fn script(name: &str) -> Command {
    oracle().script(name)
}

/// An empty directory.
pub fn scratch(name: &str) -> PathBuf {
    oracle().scratch(name)
}
