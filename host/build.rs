//! Embeds the built-in plugins that `cargo plugins` has built, packed. Builds
//! nothing itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// As in `built_in::NAMES`.
const NAMES: [&str; 5] =
    ["compaction", "client-deactivation", "share-expiry", "ttl-transitions", "reconciler"];

fn main() {
    println!("cargo::rerun-if-env-changed=BESOM_BUILT_IN_DIR");
    println!("cargo::rerun-if-changed=build.rs");
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
    let mut code = format!("static PLUGINS: [Option<BuiltIn>; {}] = [\n", NAMES.len());
    let mut is_missing = false;
    for name in NAMES {
        // With the underscores of file names.
        let path = dir.join(format!("besom_{}.wasm", name.replace('-', "_")));
        if !path.is_file() {
            is_missing = true;
            code.push_str("    None,\n");
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        let component = std::fs::read(&path).expect("a component can be read");
        let mut digest = String::new();
        for byte in Sha256::digest(&component) {
            let _ = write!(digest, "{byte:02x}");
        }
        let component = packed(&out.join(format!("{name}.component")), &component);
        let _ = writeln!(
            code,
            "    Some(BuiltIn {{ name: {name:?}, digest: {digest:?}, component: {component}, \
             unpacked: OnceLock::new() }}),"
        );
    }
    code.push_str("];\n");
    if is_missing {
        println!("cargo::rerun-if-changed={}", dir.display());
        println!(
            "cargo::warning=the built-in plugins are not built: run `rustup target add wasm32-wasip2` once, then `cargo plugins`, and build again"
        );
    }
    std::fs::write(out.join("built_in.rs"), code).expect("OUT_DIR can be written");
}

/// Writes bytes deflated, and says how the program finds them.
fn packed(path: &Path, bytes: &[u8]) -> String {
    let mut encoder =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    std::fs::write(path, packed.expect("memory takes it")).expect("OUT_DIR can be written");
    let path = path.display().to_string();
    format!("Packed {{ bytes: include_bytes!({path:?}), size: {} }}", bytes.len())
}
