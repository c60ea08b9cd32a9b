//! The dependencies: licences, bans and sources as `deny.toml` lists them, from Cargo's own graph.
//! Advisories need their own database and are checked by `cargo deny`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "wasm32-wasip2"];
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn policy() -> toml::Table {
    let path = root().join("deny.toml");
    toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn word(value: &toml::Value) -> &str {
    value.as_str().unwrap()
}

/// The graph of one target.
fn metadata(target: &str) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", target])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The packages of the graph; `cargo metadata` also names some that are not in it.
fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let used: BTreeSet<_> = nodes.iter().map(|node| node["id"].as_str().unwrap()).collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(move |package| used.contains(package["id"].as_str().unwrap()))
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

/// Whether the allowed licences satisfy an SPDX expression. Older manifests write OR as a slash; an
/// exception belongs to its licence.
fn allows(allowed: &BTreeSet<&str>, expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let met = any(allowed, &mut words);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(allowed: &BTreeSet<&str>, words: &mut Words<'_>) -> bool {
    let mut met = all(allowed, words);
    while words.next_if_eq(&"OR").is_some() {
        met |= all(allowed, words);
    }
    met
}

fn all(allowed: &BTreeSet<&str>, words: &mut Words<'_>) -> bool {
    let mut met = one(allowed, words);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(allowed, words);
    }
    met
}

fn one(allowed: &BTreeSet<&str>, words: &mut Words<'_>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = any(allowed, words);
        return words.next() == Some(")") && met;
    }
    let Some(licence) = words.next() else { return false };
    match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
        Some(exception) => allowed.contains(format!("{licence} WITH {exception}").as_str()),
        // `+`: this version or a later one.
        None => allowed.contains(licence.strip_suffix('+').unwrap_or(licence)),
    }
}

#[test]
fn an_expression_is_met_by_the_licences_it_offers() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0", false),
        ("MIT OR Apache-2.0 AND GPL-3.0", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0 WITH Classpath-exception-2.0", false),
        ("(MIT", false),
        ("MIT MIT", false),
        ("MIT+", true),
        ("GPL-3.0+", false),
        ("", false),
    ] {
        assert_eq!(allows(&allowed, expression), met, "{expression}");
    }
}

#[test]
fn every_licence_is_on_the_list() {
    let policy = policy();
    let allowed = policy["licenses"]["allow"].as_array().unwrap();
    let allowed: BTreeSet<_> = allowed.iter().map(word).collect();
    let exceptions = policy["licenses"]["exceptions"].as_array().unwrap();
    let of = |package: &Value| {
        let name = text(package, "name");
        let mut allowed = allowed.clone();
        let own = exceptions.iter().filter(|exception| exception["crate"].as_str() == Some(name));
        allowed.extend(own.flat_map(|own| own["allow"].as_array().unwrap()).map(word));
        allowed
    };
    for target in TARGETS {
        let metadata = metadata(target);
        let refused: Vec<_> = packages(&metadata)
            .filter(|package| !allows(&of(package), text(package, "license")))
            .map(|package| format!("{}: {}", text(package, "name"), package["license"]))
            .collect();
        assert!(refused.is_empty(), "not on the list of deny.toml:\n{}", refused.join("\n"));
    }
}

#[test]
fn everything_comes_from_this_repository_or_crates_io() {
    for target in TARGETS {
        let metadata = metadata(target);
        for package in packages(&metadata) {
            let source = package["source"].as_str();
            assert!(source.is_none_or(|s| s == CRATES_IO), "{} is from {source:?}", package["id"]);
        }
    }
}

#[test]
fn what_is_banned_is_not_there_and_what_is_single_is_single() {
    let policy = policy();
    for target in TARGETS {
        let metadata = metadata(target);
        let mut versions = BTreeMap::<&str, Vec<&str>>::new();
        let mut users = BTreeMap::<&str, BTreeSet<&str>>::new();
        for package in packages(&metadata) {
            versions.entry(text(package, "name")).or_default().push(text(package, "version"));
            for dependency in package["dependencies"].as_array().unwrap() {
                let name = text(dependency, "name");
                users.entry(name).or_default().insert(text(package, "name"));
            }
        }
        for ban in policy["bans"]["deny"].as_array().unwrap() {
            let name = ban["crate"].as_str().unwrap();
            let found = versions.get(name).map_or(&[][..], Vec::as_slice);
            if ban.get("deny-multiple-versions").is_some() {
                assert!(found.len() <= 1, "{name} is there as {found:?}");
            } else if let Some(wrappers) = ban.get("wrappers").filter(|_| !found.is_empty()) {
                let wrappers = wrappers.as_array().unwrap();
                let wrappers = wrappers.iter().map(|name| name.as_str().unwrap()).collect();
                let users = &users[name];
                assert!(users.is_subset(&wrappers), "{name} is used by {users:?}");
            } else {
                assert!(found.is_empty(), "{name} {found:?} is banned");
            }
        }
    }
}

#[test]
fn the_oracle_of_schedules_never_schedules() {
    let metadata = metadata(TARGETS[0]);
    let time = packages(&metadata).find(|one| text(one, "name") == "besom-schedule").unwrap();
    let kind = |name: &str| {
        let mut all = time["dependencies"].as_array().unwrap().iter();
        all.find(|dependency| text(dependency, "name") == name).map(|d| d["kind"].as_str())
    };
    assert_eq!(kind("croner"), Some(None), "croner decides");
    assert_eq!(kind("cron"), Some(Some("dev")), "cron is a test's oracle");
}
