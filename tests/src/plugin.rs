//! Finds the plugins' components for the suites.

use std::path::PathBuf;

/// The component of a plugin of the workspace, such as `hostile` or `share-expiry`.
///
/// # Panics
/// If it is not built.
pub fn plugin(name: &str) -> Vec<u8> {
    let path = plugin_path(name);
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!("cannot read {}: {error}: run `cargo plugins` first", path.display())
    })
}

/// Where `cargo plugins` puts the component of a plugin.
pub fn plugin_path(name: &str) -> PathBuf {
    target().join("wasm32-wasip2/plugin").join(format!("besom_{}.wasm", name.replace('-', "_")))
}

/// The compiled components that all suites share, those of the binary's own included.
pub fn compiled() -> PathBuf {
    target().join("tmp/plugin-cache")
}

fn target() -> PathBuf {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), |target| workspace.join(target))
}
