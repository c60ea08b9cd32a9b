//! Embeds the built-in plugins that `cargo plugins` has built. Builds nothing itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// As in `built_in::NAMES`, with the underscores of file names.
const FILES: [&str; 5] = [
    "besom_compaction.wasm",
    "besom_client_deactivation.wasm",
    "besom_share_expiry.wasm",
    "besom_ttl_transitions.wasm",
    "besom_reconciler.wasm",
];

fn main() {
    println!("cargo::rerun-if-env-changed=BESOM_BUILT_IN_DIR");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    // OUT_DIR is TARGET/PROFILE/build/NAME/out, with TRIPLE before PROFILE when cross-compiling.
    let found = std::env::var_os("BESOM_BUILT_IN_DIR").map(PathBuf::from).or_else(|| {
        out.ancestors().map(|dir| dir.join("wasm32-wasip2/plugin")).find(|dir| dir.is_dir())
    });
    let dir = found.unwrap_or_else(|| {
        // An empty directory to watch: watching what is not there would build every time.
        let target = out.ancestors().nth(4).unwrap_or(Path::new("target"));
        let dir = target.join("wasm32-wasip2/plugin");
        let _ = std::fs::create_dir_all(&dir);
        dir
    });
    let mut code = format!("const COMPONENTS: [Option<&[u8]>; {}] = [\n", FILES.len());
    let mut missing = Vec::new();
    for file in FILES {
        let path = dir.join(file);
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
            let _ = writeln!(code, "    Some(include_bytes!({:?})),", path.display().to_string());
        } else {
            missing.push(file);
            code.push_str("    None,\n");
        }
    }
    code.push_str("];\n");
    if !missing.is_empty() {
        println!("cargo::rerun-if-changed={}", dir.display());
        println!(
            "cargo::warning=the built-in plugins are not built: run `rustup target add wasm32-wasip2` once, then `cargo plugins`, and build again"
        );
    }
    std::fs::write(out.join("built_in.rs"), code).expect("OUT_DIR can be written");
}
