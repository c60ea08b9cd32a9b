//! Embeds the built-in plugins that `cargo plugins` has built, and the code that they compile to,
//! packed. Builds no plugin itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;

#[path = "src/code.rs"]
mod code;
#[path = "src/built_in/table.rs"]
#[allow(dead_code, reason = "the host reads the other columns of the table")]
mod table;

/// Set to 1 or 0: whether plugins are compiled ahead. By default all of them are in an optimised build;
/// elsewhere, where the compiler is slow as well, only those are whose entry in the table says so.
const AHEAD: &str = "BESOM_COMPILE_AHEAD";

/// The processors that code is compiled for: x86-64-v3, which is all since 2013. On another one the
/// host compiles at its first start.
const X86_64_FEATURES: [&str; 12] = [
    "has_cmpxchg16b",
    "has_sse3",
    "has_ssse3",
    "has_sse41",
    "has_sse42",
    "has_popcnt",
    "has_avx",
    "has_avx2",
    "has_fma",
    "has_bmi1",
    "has_bmi2",
    "has_lzcnt",
];

fn main() {
    for variable in ["BESOM_BUILT_IN_DIR", AHEAD] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for file in ["build.rs", "src/code.rs", "src/built_in/table.rs"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
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
    let (mut code, mut built) = (String::new(), 0);
    let mut is_missing = false;
    for entry in table::TABLE {
        let (name, counts) = (entry.name, entry.counts);
        // With the underscores of file names.
        let path = dir.join(format!("besom_{}.wasm", name.replace('-', "_")));
        if !path.is_file() {
            is_missing = true;
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        let component = std::fs::read(&path).expect("a component can be read");
        let digest = hex::encode(Sha256::digest(&component));
        let ahead = if is_ahead(entry) { compiled(name, &component, counts) } else { None };
        // Both carry the same line tables: packed together they take a fifth less.
        let mut both = ahead.unwrap_or_default();
        let (code_bytes, component_bytes) = (both.len(), component.len());
        both.extend(component);
        let path = packed(&out.join(name), &both);
        let _ = writeln!(
            code,
            "    BuiltIn {{ name: {name:?}, digest: {digest:?}, counts: {counts}, \
             packed: include_bytes!({path:?}), code_bytes: {code_bytes}, \
             component_bytes: {component_bytes}, unpacked: OnceLock::new() }},"
        );
        built += 1;
    }
    let code = format!("static PLUGINS: [BuiltIn; {built}] = [\n{code}];\n");
    if is_missing {
        println!("cargo::rerun-if-changed={}", dir.display());
        println!(
            "cargo::warning=the built-in plugins are not built: run `rustup target add wasm32-wasip2` once, then `cargo plugins`, and build again"
        );
    }
    std::fs::write(out.join("built_in.rs"), code).expect("OUT_DIR can be written");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Whether a plugin is compiled ahead.
fn is_ahead(entry: &table::Entry) -> bool {
    match std::env::var(AHEAD).as_deref() {
        Ok("0") => false,
        Ok(_) => true,
        Err(_) => entry.ahead || variable("OPT_LEVEL") != "0",
    }
}

/// The code of a component for the processors of the target. Where there is none, the host compiles
/// when it first starts, as it does for plugins of a user's.
fn compiled(name: &str, component: &[u8], counts: bool) -> Option<Vec<u8>> {
    let target = variable("TARGET");
    let mut config = code::config(counts);
    let compiled = config.target(&target).map(|_| ()).and_then(|()| {
        if target.starts_with("x86_64") {
            for feature in X86_64_FEATURES {
                // SAFETY: nothing is run here, and the host that loads the code looks for each of
                // them in its processor first.
                unsafe { config.cranelift_flag_enable(feature) };
            }
        }
        Engine::new(&config)?.precompile_component(component)
    });
    compiled
        .inspect_err(|error| println!("cargo::warning={name} is not compiled ahead: {error:#}"))
        .ok()
}

/// How far back packed bytes refer to others: as far as any plugin is long, as a power of two.
const WINDOW_LOG: u32 = 26;

/// Writes bytes packed, and says where. The highest level takes half a minute for all of them.
fn packed(path: &Path, bytes: &[u8]) -> String {
    let level = if variable("OPT_LEVEL") == "0" { 1 } else { 19 };
    let pack = || -> std::io::Result<Vec<u8>> {
        let mut packer = zstd::bulk::Compressor::new(level)?;
        packer.long_distance_matching(true)?;
        packer.window_log(WINDOW_LOG)?;
        packer.compress(bytes)
    };
    std::fs::write(path, pack().expect("memory takes it")).expect("OUT_DIR can be written");
    path.display().to_string()
}
