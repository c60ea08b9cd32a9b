//! `besom.toml`: from text to validated types.
//!
//! This module decides what may be written, what it means, the defaults, and every message about it. It
//! does not read the tables of the database (`Store::check`) and does not load plugins (the runtime); the
//! caller that loads a configuration asks both.
//!
//! ```text
//! text ── RawConfig::parse ──> Parsed ── resolve(plugins, default collections) ──> Resolved
//!  + environment + flags          │                                                  │
//!                                 └ outline: for reading verbs, no plugin needed     ├ mapping_faults(store)
//!                                                                                    └ finish ──> Config
//! ```
//!
//! No step stops at the first error, so that all problems are reported at once, with their places.

pub mod activity;
pub mod api;
pub mod cluster;
pub mod collection;
pub mod delivery;
pub mod diagnostic;
pub mod diff;
pub mod edit;
pub mod file;
pub mod hunk;
mod judge;
pub mod keys;
pub mod limits;
pub mod load;
pub mod map;
pub mod quantity;
pub mod resolve;
pub mod schedule;
pub mod schema;
pub mod sections;
pub mod settings;
pub mod task;
pub mod template;
pub mod tree;
pub mod walk;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use besom_core::collection::{Collection, Collections};
use besom_core::ids::TaskName;

pub use diagnostic::{Diagnostic, Problems, Severity, is_unprintable, printable};
pub use diff::Changes;
pub use load::{FILE_BYTES_MAX, read};
pub use resolve::{Overrides, Parsed, Plugin, PluginFault, RawConfig, Resolved, TaskOutline};
pub use schema::schema;
pub use template::template;

use besom_ports::guests::Manifest;
use besom_ports::store::MappingFault;
use besom_ports::task::TaskDefinition;
use sections::Sections;

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The path of the file, as given.
    pub origin: PathBuf,
    /// The values of the sections and the routes of topics.
    pub sections: Sections,
    /// The tasks, by name.
    pub tasks: BTreeMap<TaskName, Arc<TaskDefinition>>,
    /// The tasks that are left out because their plugin files are refused, and why.
    pub refused: BTreeMap<TaskName, Diagnostic>,
    /// The tasks that are left out because tables differ from their mappings, and where.
    pub unmatched: BTreeMap<TaskName, Vec<(MappingFault, Diagnostic)>>,
    /// The manifests of the plugins, by digest.
    pub manifests: BTreeMap<String, Arc<Manifest>>,
    /// The collections of the entity model, each replaced by the collection of the same name in the file.
    pub collections: Arc<Collections>,
    /// Warnings, which do not prevent a start.
    pub warnings: Vec<Diagnostic>,
}

impl Config {
    /// The collections of these names, with their anchors and dependants, the anchors and dependants of these, and so
    /// on.
    pub fn related<'a>(
        &'a self,
        names: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<&'a String, &'a Collection> {
        let (mut names, mut found): (Vec<&String>, _) = (names.collect(), BTreeMap::new());
        while let Some(name) = names.pop() {
            if let Some(collection) = self.collections.get(name)
                && found.insert(name, collection).is_none()
            {
                names.extend(collection.anchors.iter().map(|anchor| &anchor.collection));
                names.extend(&collection.dependants);
            }
        }
        found
    }
}

/// `config.store` is `config.sections.store`.
impl Deref for Config {
    type Target = Sections;

    fn deref(&self) -> &Sections {
        &self.sections
    }
}

#[cfg(test)]
mod tests;
