//! Records in the store which plugin files a host has loaded, with which grants, and what each reload has
//! changed. The records are commands; they serve as an audit trail and configure nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use besom_core::command::{counted, with_reason};
use besom_core::ids::TaskName;

use besom_config::Config;
use besom_config::diff::Changes;
use besom_ports::store::{Command, Store};
use besom_ports::task::TaskDefinition;
use serde_json::Value;

/// Records what a reload has changed. A failure is logged and does not stop the reload.
pub async fn note_reload(
    store: &dyn Store,
    (before, new): (&Config, &Config),
    changes: &Changes,
    by: &str,
    reason: &str,
) {
    let command = Command::Reloaded {
        before: before.digest(),
        after: new.digest(),
        change: words(before, new, changes),
    };
    if let Err(error) = store.submit(&command, by, reason).await {
        tracing::warn!(%error, "cannot record in the store that the configuration was reloaded");
    }
}

/// Describes the changes: tasks with their grants before and after, and keys that need a restart.
fn words(before: &Config, new: &Config, changes: &Changes) -> String {
    let mut words = Vec::new();
    let task = |of: &Config, name: &TaskName| of.tasks.get(name).cloned();
    for (what, names, of) in [("added", &changes.added, new), ("removed", &changes.removed, before)]
    {
        let all = names.iter().filter_map(|name| task(of, name));
        words.extend(all.map(|task| format!("{what} {} ({})", granted(&task), file(&task))));
    }
    for name in &changes.changed {
        if let (Some(old), Some(new)) = (task(before, name), task(new, name)) {
            words.push(with_reason(&format!("changed {name}"), &differences(&old, &new)));
        }
    }
    if changes.collections {
        words.extend(mapping(before, new));
    }
    if let Some(required) = changes.require_pin {
        words.push(format!("plugins.require_pin is {required} now"));
    }
    if let Some((required, keys)) = changes.signing {
        let keys = counted(keys as u64, "trusted key");
        words.push(format!("plugins.require_signature is {required} now, with {keys}"));
    }
    if !changes.needs_restart.is_empty() {
        words.push(format!("at the next start: {}", changes.needs_restart.join(", ")));
    }
    words.join("; ")
}

/// Describes the changes of the mapping: collections with their tables before and after.
fn mapping(before: &Config, new: &Config) -> Vec<String> {
    let names: BTreeSet<&String> =
        before.collections.keys().chain(new.collections.keys()).collect();
    let change = |name: &String| match (before.collections.get(name), new.collections.get(name)) {
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) if old.table == new.table => {
            Some(format!("changed the mapping of {name} ({})", new.table))
        }
        (Some(old), Some(new)) => {
            Some(format!("changed the mapping of {name}: table {} -> {}", old.table, new.table))
        }
        (None, Some(new)) => Some(format!("mapped {name} to the table {}", new.table)),
        (Some(old), None) => Some(format!("removed the mapping of {name} ({})", old.table)),
        (None, None) => None,
    };
    names.into_iter().filter_map(change).collect()
}

/// Returns the plugin of a task with the start of its digest.
fn file(task: &TaskDefinition) -> String {
    format!("{} {}", task.plugin, short(&task.digest))
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Describes how two definitions of a task differ: the plugin file and the grants with both values,
/// everything else by key.
fn differences(old: &TaskDefinition, new: &TaskDefinition) -> String {
    // Described above with both values.
    const TOLD: [&str; 7] =
        ["plugin", "digest", "grants", "columns", "topics", "activity", "all_tenants"];
    let mut words = Vec::new();
    for (what, old, new) in [("plugin", file(old), file(new)), ("grants", rights(old), rights(new))]
    {
        if old != new {
            words.push(format!("{what} {old} -> {new}"));
        }
    }
    // Plain data with string keys can always be encoded as JSON.
    let json = |task: &TaskDefinition| serde_json::to_value(task).unwrap_or_default();
    let (old, new) = (json(old), json(new));
    // A key with its default may be left out.
    let keys: BTreeSet<&str> = [&old, &new]
        .into_iter()
        .flat_map(Value::as_object)
        .flatten()
        .map(|(key, _)| &**key)
        .collect();
    let differs = |key: &&str| !TOLD.contains(key) && old.get(*key) != new.get(*key);
    words.extend(keys.into_iter().filter(differs).map(str::to_owned));
    words.join(", ")
}

/// Records which plugin files a host has loaded, and with which grants. Built-in plugins are part of the
/// program and are not recorded.
pub async fn note_loads(
    store: &dyn Store,
    config: &Config,
    by: &str,
    reason: &str,
    is_new: impl Fn(&TaskDefinition) -> bool,
) {
    let mut by_file: BTreeMap<(&str, &str), Vec<&TaskDefinition>> = BTreeMap::new();
    let strangers = config.tasks.values().filter(|task| task.plugin.ends_with(".wasm"));
    for task in strangers.filter(|task| is_new(task)) {
        by_file.entry((&task.plugin, &task.digest)).or_default().push(task);
    }
    for ((plugin, digest), tasks) in by_file {
        let Some(manifest) = config.manifests.get(digest) else { continue };
        let grants: Vec<String> = tasks.iter().map(|task| granted(task)).collect();
        let command = Command::Loaded {
            plugin: plugin.to_owned(),
            digest: digest.to_owned(),
            version: format!("{} {}", manifest.name, manifest.version),
            grants: grants.join("; "),
            manifest: serde_json::to_string(&**manifest).unwrap_or_default(),
        };
        let file = config.plugins.dir.join(plugin);
        let reason = format!("{reason}; {}", owner(&file));
        if let Err(error) = store.submit(&command, by, &reason).await {
            tracing::warn!(%error, plugin, digest, "cannot record in the store that the plugin was loaded");
        }
    }
}

/// Describes the owner of a file and its modification time.
fn owner(file: &Path) -> String {
    match std::fs::metadata(file) {
        Ok(found) => {
            let at = jiff::Timestamp::from_second(found.mtime()).unwrap_or_default();
            format!("file of {}, written {at}", besom_engine::api::admin::user(found.uid()))
        }
        Err(error) => format!("file: {error}"),
    }
}

/// Describes a task and its grants in one line.
fn granted(task: &TaskDefinition) -> String {
    format!("{}: {}", task.name, rights(task))
}

/// Describes the grants of a task.
fn rights(task: &TaskDefinition) -> String {
    let mut words: Vec<String> = task
        .grants
        .iter()
        .map(|(collection, operations)| {
            let columns = task.columns.get(collection);
            let columns = columns.map(|columns| format!(" ({})", columns.join(", ")));
            let operations = besom_config::task::words(*operations);
            format!("{collection} = {operations}{}", columns.unwrap_or_default())
        })
        .collect();
    if !task.topics.is_empty() {
        words.push(format!("topics = {:?}", task.topics));
    }
    for (word, has) in [("activity", task.activity), ("all_tenants", task.all_tenants)] {
        if has {
            words.push(word.to_owned());
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use besom_core::collection::Operations;
    use besom_core::time::Time;

    use besom_config::{Overrides, Plugin, PluginFault, RawConfig};
    use besom_doubles::store::MemoryStore;
    use besom_ports::guests::{CollectionRequest, Lane, Manifest};

    fn store() -> MemoryStore {
        MemoryStore::new(1, Default::default(), Arc::new(|| Time::EPOCH))
    }

    /// A plugin of the directory that asks for sessions.
    fn plugin(digest: &str) -> Plugin {
        let asked = Operations { read: true, delete: true, ..Operations::default() };
        let manifest = Manifest {
            name: "sweep".into(),
            version: "1".into(),
            doc: String::new(),
            settings: vec![],
            collections: vec![CollectionRequest {
                collection: "sessions".into(),
                operations: asked,
                columns: vec!["expires_at".into()],
                ..CollectionRequest::default()
            }],
            topics: vec![],
            activity: false,
            per_tenant: false,
            lane: Lane::Normal,
            extra: vec![],
        };
        Plugin { manifest: Arc::new(manifest), digest: digest.into(), built_in: false }
    }

    const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    fn config(text: &str, digest: &str) -> Config {
        let text = format!(
            "{text}\n[collections.sessions]\nkey = [\"id\"]\n\
             columns = {{ id = \"text\", expires_at = \"timestamp\" }}\n"
        );
        let parsed = RawConfig::parse(&text, Path::new("besom.toml"), &Overrides::default());
        let found = |name: &str| -> Result<Plugin, PluginFault> {
            match name.ends_with(".wasm") {
                true => Ok(plugin(digest)),
                false => Err(format!("no plugin {name}").into()),
            }
        };
        let resolved = parsed.resolve(&found, &besom_product::model::collections_for(&[]));
        resolved.finish().unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn task(name: &str, more: &str, grants: &str) -> String {
        format!(
            "[tasks.{name}]\nplugin = \"sweep.wasm\"\n{more}\n\
             [tasks.{name}.grants]\nsessions = {grants}\n"
        )
    }

    const BOTH: &str = "[\"read\", \"delete\"]";

    async fn kept(store: &MemoryStore) -> Vec<(Command, String, String)> {
        let rows = store.commands(None, 10).await.unwrap();
        rows.into_iter().rev().map(|row| (row.command, row.by, row.reason)).collect()
    }

    #[tokio::test]
    async fn a_file_that_is_taken_up_is_kept_once_with_its_tasks_and_their_rights() {
        let store = store();
        let config = config(&(task("a", "", BOTH) + &task("b", "", BOTH)), ONE);
        note_loads(&store, &config, "n1 (host)", "the host has started", |_| true).await;
        let kept = kept(&store).await;
        let [(command, by, reason)] = kept.as_slice() else { panic!("{kept:?}") };
        let Command::Loaded { plugin, digest, version, grants, manifest } = command else {
            panic!("{command:?}");
        };
        assert_eq!((plugin.as_str(), digest.as_str()), ("sweep.wasm", ONE));
        assert_eq!((version.as_str(), by.as_str()), ("sweep 1", "n1 (host)"));
        for task in ["a: sessions = ", "b: sessions = "] {
            assert!(grants.contains(task) && grants.contains("delete"), "{grants}");
        }
        assert!(manifest.contains("expires_at"), "{manifest}");
        // Whose file it is; here there is none.
        assert!(reason.starts_with("the host has started; file: "), "{reason}");
    }

    #[tokio::test]
    async fn of_tasks_that_stay_as_they_were_no_load_is_kept() {
        let store = store();
        let config = config(&(task("a", "", BOTH) + &task("b", "", BOTH)), ONE);
        let is_new = |task: &TaskDefinition| task.name.as_str() == "b";
        note_loads(&store, &config, "n1", "r", is_new).await;
        let kept = kept(&store).await;
        assert!(
            matches!(kept.as_slice(), [(Command::Loaded { grants, .. }, ..)]
                if grants.starts_with("b: ") && !grants.contains("a: ")),
            "{kept:?}"
        );
        note_loads(&store, &config, "n1", "r", |_| false).await;
        assert_eq!(self::kept(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn whatever_a_reload_changes_is_kept_with_both_digests() {
        let old = (task("a", "", BOTH), ONE);
        let rights = "sessions = [\"read\", \"delete\"]";
        for (text, digest, expected) in [
            (
                task("a", "", BOTH),
                TWO,
                "changed a: plugin sweep.wasm 111111111111 -> sweep.wasm 222222222222".to_owned(),
            ),
            (task("a", "overlap = \"queue\"", BOTH), ONE, "changed a: overlap".to_owned()),
            (task("a", "max_delete = 5", BOTH), ONE, "changed a: brakes".to_owned()),
            (
                task("b", "", BOTH),
                ONE,
                format!(
                    "added b: {rights} (sweep.wasm 111111111111); \
                     removed a: {rights} (sweep.wasm 111111111111)"
                ),
            ),
            (
                task("a", "", BOTH) + "[api]\nreadonly = true\n",
                ONE,
                "at the next start: api.readonly".to_owned(),
            ),
        ] {
            let store = store();
            let (before, new) = (config(&old.0, old.1), config(&text, digest));
            let changes = before.diff(&new);
            note_reload(&store, (&before, &new), &changes, "n1 (host)", "reloaded").await;
            let kept = kept(&store).await;
            let [(Command::Reloaded { before: was, after, change }, by, _)] = kept.as_slice()
            else {
                panic!("{kept:?}");
            };
            assert_eq!((change, by.as_str()), (&expected, "n1 (host)"));
            assert_eq!((was, after), (&before.digest(), &new.digest()));
        }
    }

    #[test]
    fn rights_that_are_taken_away_are_told_as_those_that_are_given() {
        let config = config(&task("a", "", BOTH), ONE);
        let task = config.tasks.values().next().expect("a task");
        let mut fewer = TaskDefinition::clone(task);
        fewer.grants.get_mut("sessions").expect("granted").delete = false;
        fewer.activity = true;
        let both = "sessions = [\"read\", \"delete\"]";
        let one = "sessions = [\"read\"], activity";
        assert_eq!(differences(task, &fewer), format!("grants {both} -> {one}"));
        assert_eq!(differences(&fewer, task), format!("grants {one} -> {both}"));
        // What has its default is left out of the JSON.
        let mut braked = TaskDefinition::clone(task);
        braked.brakes.failures = std::num::NonZeroU32::new(3);
        assert_eq!(differences(&braked, task), "brakes");
    }
}
