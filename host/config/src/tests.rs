//! Errors are reported at their places, all at once; valid values have their documented meaning.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Encoding, Operations, all_dependants};
use besom_core::value::{Field, Kind, Value};

use super::*;
use besom_ports::guests::{CollectionRequest, Lane, Setting, SettingKind};
use besom_ports::store::MappingFault;
use besom_ports::task::{CatchUp, Overlap};
use besom_product::model::default_collections;

mod activity;
mod cluster;
mod collections;
mod defaults;
mod delivery;
mod faults;
mod grants;
mod reload;
mod sources;
mod tasks;

fn setting(name: &str, kind: SettingKind, default: Option<Value>) -> Setting {
    let (minimum, maximum, choices) = (None, None, vec![]);
    Setting { name: name.into(), kind, default, minimum, maximum, choices, doc: "a doc".into() }
}

fn manifest() -> Manifest {
    let request = |collection: &str, read, delete, columns: &[&str]| CollectionRequest {
        collection: collection.into(),
        operations: Operations { read, delete, ..Operations::default() },
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        ..CollectionRequest::default()
    };
    Manifest {
        name: "sweep".into(),
        version: "1.0.0".into(),
        doc: String::new(),
        settings: vec![
            Setting {
                minimum: Some(Value::Integer(1)),
                maximum: Some(Value::Integer(1000)),
                ..setting("min_changes", SettingKind::Integer, Some(Value::Integer(100)))
            },
            Setting {
                minimum: Some(Value::Integer(60_000)),
                ..setting("threshold", SettingKind::Duration, Some(Value::Integer(86_400_000)))
            },
        ],
        collections: vec![
            request("documents", true, false, &["doc_id"]),
            request("changes", true, true, &[]),
        ],
        topics: vec!["doc-changed".into()],
        activity: false,
        per_tenant: true,
        lane: Lane::Heavy,
        extra: vec![Field::new("projects_per_run", Value::Integer(7))],
    }
}

/// A third party's plugin that requests everything.
fn greedy() -> Manifest {
    Manifest { activity: true, per_tenant: false, ..manifest() }
}

fn plugin(name: &str) -> Result<Plugin, PluginFault> {
    let found = |manifest, built_in| {
        Ok(Plugin { manifest: Arc::new(manifest), digest: format!("digest of {name}"), built_in })
    };
    match name {
        "sweep" | "compaction" => found(manifest(), true),
        "mine.wasm" => found(manifest(), false),
        "greedy.wasm" => found(greedy(), false),
        "pinned.wasm" => {
            Ok(Plugin { manifest: Arc::new(manifest()), digest: "ab".repeat(32), built_in: false })
        }
        "choosy" => {
            let mut manifest = manifest();
            let merge = Some(Value::Text("merge".into()));
            manifest.settings.push(setting("mode", SettingKind::Text, merge));
            let mode = manifest.settings.last_mut().expect("it was added");
            mode.choices = vec!["merge".into(), "reset".into()];
            let none = Some(Value::Json("[]".into()));
            manifest.settings.push(setting("key", SettingKind::Texts, none.clone()));
            manifest.settings.push(Setting {
                choices: vec!["asc".into(), "desc".into()],
                ..setting("orders", SettingKind::Texts, none)
            });
            found(manifest, true)
        }
        "timely" => {
            let mut manifest = manifest();
            manifest.lane = Lane::Due;
            let limit = |name, ms| setting(name, SettingKind::Duration, Some(Value::Integer(ms)));
            manifest.settings.push(limit("limit", 604_800_000));
            manifest.settings.push(limit("limit_min", 0));
            found(manifest, true)
        }
        "needy" => {
            let mut manifest = manifest();
            manifest.settings.push(setting("bucket", SettingKind::Text, None));
            found(manifest, true)
        }
        "refused.wasm" => {
            Err(PluginFault { refused: Some("ab".repeat(32)), ..PluginFault::new("", "") })
        }
        "unsigned.wasm" => {
            Err(PluginFault { untrusted: true, ..PluginFault::new("it is not signed", "sign it") })
        }
        _ => Err(PluginFault::new(format!("there is no plugin `{name}`"), "did you mean `sweep`?")),
    }
}

fn load_with(text: &str, overrides: &Overrides) -> Result<Config, Problems> {
    RawConfig::parse(text, Path::new("besom.toml"), overrides)
        .resolve(&plugin, &default_collections())
        .finish()
}

fn load(text: &str) -> Result<Config, Problems> {
    load_with(text, &Overrides::default())
}

/// Every diagnostic, as it is printed.
#[track_caller]
fn check(text: &str, expected: &str) {
    let problems = match load(text) {
        Ok(config) => Problems(config.warnings),
        Err(problems) => problems,
    };
    same(&problems.to_string(), expected);
}

#[track_caller]
fn same(actual: &str, expected: &str) {
    assert_eq!(actual, expected.trim_matches('\n'));
}
