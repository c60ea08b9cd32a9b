//! Compares two configurations. A running host reloads tasks, plugins, settings and mappings; every
//! other key needs a restart.

use std::collections::BTreeSet;
use std::path::Path;

use besom_core::command::counted;
use besom_core::ids::TaskName;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::Config;
use super::diagnostic::{Diagnostic, Place, Problems};

/// The differences between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New tasks.
    pub added: Vec<TaskName>,
    /// Removed tasks; their waiting items become orphaned.
    pub removed: Vec<TaskName>,
    /// Tasks with any change, including a changed plugin file.
    pub changed: Vec<TaskName>,
    /// Whether the mapping of collections changed.
    pub collections: bool,
    /// The new value of `plugins.require_pin`, if it changed. It takes effect at once.
    pub require_pin: Option<bool>,
    /// `plugins.require_signature` and the number of `plugins.trusted_keys`, if one of the keys changed. They
    /// take effect at once.
    pub signing: Option<(bool, usize)>,
    /// Changed keys that take effect at the next start, as `section.key`.
    pub needs_restart: Vec<String>,
}

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

impl Config {
    /// Returns the changes from this configuration to `new`.
    pub fn diff(&self, new: &Config) -> Changes {
        let require_pin = new.plugins.require_pin;
        let signing = |config: &Config| {
            (config.plugins.require_signature, config.plugins.trusted_keys.clone())
        };
        let (required, keys) = signing(new);
        let mut changes = Changes {
            signing: (signing(self) != signing(new)).then_some((required, keys.len())),
            require_pin: (self.plugins.require_pin != require_pin).then_some(require_pin),
            collections: self.collections != new.collections,
            needs_restart: self.restart_keys(new),
            ..Changes::default()
        };
        for (name, task) in &new.tasks {
            match self.tasks.get(name) {
                None => changes.added.push(name.clone()),
                Some(old) if old != task => changes.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        changes.removed =
            self.tasks.keys().filter(|name| !new.tasks.contains_key(*name)).cloned().collect();
        changes
    }

    /// Refuses a file that a running host with this configuration must not take over, although it is
    /// valid: one that an editor or a full disk has truncated sets nothing, or names no task any more.
    /// `blank`: it sets nothing.
    ///
    /// # Errors
    /// The reason, with the fix.
    pub fn refuse_truncated(&self, new: &Config, file: &Path, blank: bool) -> Result<(), Problems> {
        let none_left = new.tasks.is_empty() && !self.tasks.is_empty();
        let tasks = || counted(self.tasks.len() as u64, "task");
        let message = match (blank, none_left) {
            (true, true) => {
                format!("the file is empty, which would remove {} of this host", tasks())
            }
            (true, false) if !self.diff(new).is_empty() => {
                "the file is empty, which would replace every setting of this host by its default"
                    .to_owned()
            }
            (false, true) => {
                format!("the file names no task, which would remove {} of this host", tasks())
            }
            (_, false) => return Ok(()),
        };
        let place = Place::File { file: file.display().to_string() };
        Err(Problems(vec![Diagnostic::error(place, message).fix(
            "restore the content of the file; to run without any task, pause them with `besom pause \
             --all --reason TEXT`, or restart the host with this file",
        )]))
    }

    fn restart_keys(&self, new: &Config) -> Vec<String> {
        // Plain data with string keys can always be encoded as JSON.
        let json = |config: &Config| serde_json::to_value(&config.sections).unwrap_or_default();
        let (old, new) = (json(self), json(new));
        let keys_of = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(Map::keys).cloned().collect()
        };
        let mut keys = Vec::new();
        for section in keys_of(&new) {
            let (old, new) = (&old[&section], &new[&section]);
            // Tables with names of their own, such as topics, may have gained or lost entries.
            let names: BTreeSet<_> = keys_of(old).into_iter().chain(keys_of(new)).collect();
            for key in names {
                let at_once = section == "plugins"
                    && ["require_pin", "require_signature", "trusted_keys"].contains(&key.as_str());
                if old.get(&key) != new.get(&key) && !at_once {
                    keys.push(format!("{section}.{key}"));
                }
            }
        }
        keys
    }

    /// Returns the SHA-256, in hexadecimal, of what all nodes of a store should agree on: tasks,
    /// collections and retention. Excludes paths and names, which may differ between nodes.
    pub fn digest(&self) -> String {
        let shared = serde_json::json!({
            "tasks": self.tasks.values().map(|t| serde_json::to_value(&**t).unwrap_or_default()).collect::<Vec<_>>(),
            "collections": *self.collections,
            "retention": self.retention,
        });
        hex::encode(Sha256::digest(shared.to_string()))
    }
}
