//! The layers, checked in the sources and manifests: which crate and module may import which.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

/// All files below a directory of the workspace with that extension.
fn files(under: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(under)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A source without its comments and its `#[cfg(test)]` tail: tests may import anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source is read");
    let end = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
    let lines = text[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a source names a path such as `std::fs`, not as a part of a longer word.
fn names(code: &str, path: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next();
        !before.is_some_and(word) && !after.is_some_and(word)
    })
}

/// The names under a manifest's `[dependencies]` (development ones are not shipped).
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(manifest)).expect("a manifest is read");
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if inside && !line.starts_with('#') {
            let end = line.find(['.', '=', ' ']).unwrap_or(line.len());
            found.insert(line[..end].to_owned());
        }
    }
    found.remove("");
    found
}

/// The name of the crate in this directory.
fn name_of(under: &str) -> String {
    let manifest = fs::read_to_string(root().join(under).join("Cargo.toml")).expect("a manifest");
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.expect("a name").to_owned()
}

/// Fails with every place where a source below `under` names one of the paths.
fn never(under: &str, paths: &[&str]) {
    let sources = files(under, "rs");
    assert!(!sources.is_empty(), "{under} has sources");
    let mut found = Vec::new();
    for source in sources {
        let code = code(&source);
        let here = paths.iter().filter(|path| names(&code, path));
        found.extend(here.map(|path| format!("{} names {path}", source.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

const OUTSIDE: [&str; 18] = [
    "tokio",
    "tracing",
    "rusqlite",
    "tokio_postgres",
    "deadpool_postgres",
    "rustls",
    "wasmtime",
    "wasmtime_wasi",
    "ratatui",
    "crossterm",
    "axum",
    "hyper",
    "rand",
    "rustix",
    "notify",
    "etcd_client",
    "redis",
    "futures",
];

/// The crates of the product, each with the crates of Besom that it may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("host/schedule", &[]),
    ("host/core", &["besom-schedule"]),
    ("host/snapshot", &["besom-core"]),
    ("host/system", &[]),
    ("host/ports", &["besom-core", "besom-snapshot"]),
    ("host/node", &["besom-core", "besom-ports", "besom-snapshot"]),
    ("host/stores/record", &["besom-core", "besom-ports", "besom-snapshot"]),
    ("host/stores/tables", &["besom-core", "besom-ports", "besom-record", "besom-snapshot"]),
    (
        "host/stores/sqlite",
        &["besom-core", "besom-ports", "besom-record", "besom-snapshot", "besom-tables"],
    ),
    (
        "host/stores/postgres",
        &["besom-core", "besom-ports", "besom-record", "besom-snapshot", "besom-tables"],
    ),
    ("host/runtime", &["besom-core", "besom-ports", "besom-snapshot", "besom-system"]),
    ("host/config", &["besom-core", "besom-ports", "besom-runtime", "besom-system"]),
    ("host/services", &["besom-config", "besom-core", "besom-ports", "besom-system"]),
    (
        "host/product",
        &[
            "besom-compaction",
            "besom-core",
            "besom-ports",
            "besom-retention",
            "besom-runtime",
            "besom-system",
        ],
    ),
    (
        "host/engine",
        &[
            "besom-config",
            "besom-core",
            "besom-node",
            "besom-ports",
            "besom-product",
            "besom-runtime",
            "besom-snapshot",
            "besom-system",
        ],
    ),
    ("host/demo", &["besom-config", "besom-core", "besom-engine", "besom-ports", "besom-product"]),
];

#[test]
fn crates_depend_inwards() {
    for (under, allowed) in CRATES {
        let shipped = dependencies(&format!("{under}/Cargo.toml"));
        for own in shipped.iter().filter(|name| name.starts_with("besom")) {
            assert!(allowed.contains(&own.as_str()), "{under} depends on {own}");
        }
    }
    let listed = CRATES.iter().map(|(under, _)| root().join(under).join("Cargo.toml"));
    let there = files("host", "toml").into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let all: BTreeSet<PathBuf> = listed.chain([root().join("host/Cargo.toml")]).collect();
    assert_eq!(there.collect::<BTreeSet<_>>(), all);
}

#[test]
fn decisions_and_ports_depend_on_no_driver_engine_or_screen() {
    for (under, besides) in [
        ("host/schedule", &[][..]),
        ("host/core", &[]),
        ("host/snapshot", &[]),
        ("host/node", &["tracing", "rand"]),
        ("host/ports", &["tokio", "tracing"]),
    ] {
        let shipped = dependencies(&format!("{under}/Cargo.toml"));
        for name in OUTSIDE.iter().filter(|name| !besides.contains(name)) {
            let crate_name = name.replace('_', "-");
            assert!(!shipped.contains(&crate_name), "{under} depends on {crate_name}");
        }
    }
}

#[test]
fn decisions_read_no_clock_and_do_no_io() {
    let outside = [
        "std::fs",
        "std::net",
        "std::io",
        "std::process",
        "std::env",
        "std::thread",
        "SystemTime",
        "Instant",
        "Timestamp::now",
        "Zoned::now",
    ];
    never("host/schedule/src", &outside);
    never("host/core/src", &outside);
    never("host/snapshot/src", &outside);
    never("host/node/src", &outside);
}

/// Adapters of different crates cannot import each other; these are in one crate.
#[test]
fn services_do_not_import_each_other() {
    let mut checked = 0;
    for port in ["coordination", "activity"] {
        let under = format!("host/services/src/{port}");
        let directory = fs::read_dir(root().join(&under)).expect("the adapters");
        let mut adapters: Vec<String> = directory
            .flatten()
            .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
            .filter(|name| name != "mod" && name != "tests")
            .collect();
        adapters.sort();
        adapters.dedup();
        for source in files(&under, "rs") {
            let code = code(&source);
            let own = source.strip_prefix(root().join(&under)).expect("below it");
            let own = own.components().next().expect("a name").as_os_str().to_string_lossy();
            for other in adapters.iter().filter(|other| *other != own.trim_end_matches(".rs")) {
                let named = names(&code, &format!("crate::{port}::{other}"))
                    || names(&code, &format!("super::super::{other}"));
                assert!(!named || own == "mod.rs", "{} imports {other}", source.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 5, "the adapters were found: {checked} pairs");
}

#[test]
fn doubles_and_samples_are_not_shipped() {
    for (under, _) in CRATES.iter().chain(&[("host", &[][..]), ("tui", &[])]) {
        let shipped = dependencies(&format!("{under}/Cargo.toml"));
        for name in ["besom-doubles", "besom-samples"] {
            assert!(!shipped.contains(name), "{under} depends on {name}");
        }
    }
}

/// The limit that CONTRIBUTING.md names.
#[test]
fn no_crate_is_longer_than_its_limit() {
    let own = [("host/src", &[][..]), ("tui", &[])];
    for (under, _) in CRATES.iter().chain(&own) {
        let lines: usize = files(under, "rs")
            .iter()
            .map(|source| fs::read_to_string(source).expect("a source is read").lines().count())
            .sum();
        assert!((1..20_000).contains(&lines), "{under} has {lines} lines");
    }
}

#[test]
fn the_screens_model_knows_no_screen() {
    let drawing = ["ratatui", "crossterm"];
    let model = ["state", "update", "model", "progress", "plain"];
    let mut checked = 0;
    for source in files("tui/src", "rs") {
        let relative = source.strip_prefix(root().join("tui/src")).expect("below tui/src");
        let first = relative.components().next().expect("a name").as_os_str().to_string_lossy();
        if model.contains(&first.trim_end_matches(".rs")) {
            checked += 1;
            let code = code(&source);
            if let Some(path) = drawing.iter().find(|path| names(&code, path)) {
                panic!("{} names {path}", source.display());
            }
        }
    }
    let modules = code(&root().join("tui/src/lib.rs"));
    let declared = model.iter().any(|name| names(&modules, &format!("mod {name}")));
    assert_eq!(checked > 0, declared, "a declared model was checked");
}

#[test]
fn only_views_and_widgets_of_the_dashboard_know_the_screen() {
    let under = root().join("tui/src/dash");
    let mut checked = 0;
    for source in files("tui/src/dash", "rs") {
        let relative = source.strip_prefix(&under).expect("below it").display().to_string();
        let draws = relative == "theme.rs"
            || relative.starts_with("widgets/")
            || relative.split('/').any(|part| part.trim_end_matches(".rs") == "view");
        if !draws {
            checked += 1;
            let code = code(&source);
            let drawing = ["ratatui", "crossterm"].into_iter().find(|path| names(&code, path));
            assert_eq!(drawing, None, "{}", source.display());
        }
    }
    assert!(checked > 20, "the model was found: {checked} files");
}

#[test]
fn plugins_do_not_import_the_host() {
    // `besom::` alone is the bindings of the contract's package, `besom:task`.
    let host = CRATES.iter().map(|(under, _)| name_of(under).replace('-', "_"));
    let host: Vec<String> =
        host.chain(["besom_tests".to_owned(), "besom_simulation".to_owned()]).collect();
    never("plugins", &host.iter().map(String::as_str).collect::<Vec<_>>());
    for manifest in files("plugins", "toml").iter().filter(|path| path.ends_with("Cargo.toml")) {
        let shown = manifest.display().to_string();
        let own = dependencies(&shown);
        let host = CRATES.iter().map(|(under, _)| name_of(under));
        let others = ["besom", "besom-tests", "besom-simulation"].map(str::to_owned);
        for host in host.chain(others) {
            assert!(!own.contains(&host), "{shown} depends on {host}");
        }
    }
}

#[test]
fn only_the_product_knows_plugins_as_libraries() {
    let plugins = [
        "besom_compaction",
        "besom_client_deactivation",
        "besom_share_expiry",
        "besom_ttl_transitions",
        "besom_reconciler",
        "besom_retention",
    ];
    let mut found = BTreeSet::new();
    for source in CRATES.iter().flat_map(|(under, _)| files(under, "rs")) {
        let code = code(&source);
        if plugins.iter().any(|plugin| names(&code, plugin)) {
            let relative = source.strip_prefix(root().join("host")).expect("below it");
            found.insert(relative.display().to_string());
        }
    }
    let known = ["product/src/doc/verify.rs", "product/src/retention.rs"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(known));
}

#[test]
fn nothing_imports_the_tests() {
    for under in ["host", "tui", "plugins"] {
        never(under, &["besom_tests", "besom_simulation"]);
        for manifest in files(under, "toml").iter().filter(|path| path.ends_with("Cargo.toml")) {
            let text = fs::read_to_string(manifest).expect("a manifest is read");
            let named =
                ["besom-tests", "besom-simulation"].into_iter().find(|it| text.contains(it));
            assert_eq!(named, None, "{}", manifest.display());
        }
    }
}

#[test]
fn every_conformance_case_is_on_the_list() {
    let list = fs::read_to_string(root().join("tests/src/conformance/list.rs")).expect("the list");
    let listed: BTreeSet<&str> =
        list.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    let mut cases = files("tests/src/conformance/store", "rs");
    for port in ["activity.rs", "coordination.rs", "members.rs"] {
        cases.push(root().join("tests/src/conformance").join(port));
    }
    let mut missing = Vec::new();
    let mut count = 0;
    for source in cases {
        for line in code(&source).lines() {
            let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
            let name = &rest[..rest.find('(').unwrap_or(rest.len())];
            count += 1;
            if !listed.contains(name) {
                missing.push(format!("{}: {name}", source.display()));
            }
        }
    }
    assert!(count > 100, "the suites were found: {count} cases");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The oldest compiler that Cargo accepts is the one that the script and the README name.
#[test]
fn the_oldest_compiler_is_named_alike_everywhere() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a file is read");
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("rust-version = \"").expect("a version");
    let (version, _) = rest.split_once('"').expect("its end");
    assert!(read("scripts/prepare").contains(&format!("RUST_MINIMUM=\"{version}\"")));
    assert!(read("README.md").contains(&format!("a stable toolchain of {version} or later")));
}
