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
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), |target| workspace.join(target));
    target.join("wasm32-wasip2/plugin").join(format!("besom_{}.wasm", name.replace('-', "_")))
}
