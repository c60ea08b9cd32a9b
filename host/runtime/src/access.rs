//! What a task may access: the intersection of what its manifest requests and what the operator
//! grants.
//!
//! A grant that the manifest does not request has no effect. So the manifest states everything that
//! a plugin can do, and an upgrade that needs more shows as a difference between two manifests.

use std::sync::Arc;

use besom_core::collection::Grants;

use besom_ports::guests::{CollectionRequest, Manifest};
use besom_ports::task::{Aliases, Columns};

/// The access rights of one call.
pub(super) struct Access {
    /// The operator's grants.
    pub(super) grants: Arc<Grants>,
    /// The collections that the plugin knows by another name. No two names refer to the same
    /// collection.
    pub(super) aliases: Arc<Aliases>,
    /// The columns that the operator grants, for collections of which not all columns are granted.
    pub(super) columns: Arc<Columns>,
    /// Whether the operator grants activity.
    pub(super) activity: bool,
    /// The plugin's requests.
    pub(super) manifest: Arc<Manifest>,
    /// The topics to which it may emit.
    pub(super) topics: Vec<String>,
}

/// An operation on a collection, as in a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Read rows.
    Read,
    /// Insert rows.
    Insert,
    /// Change rows.
    Update,
    /// Delete rows.
    Delete,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Insert => "insert",
            Operation::Update => "update",
            Operation::Delete => "delete",
        }
    }

    fn of(self, operations: besom_core::collection::Operations) -> bool {
        match self {
            Operation::Read => operations.read,
            Operation::Insert => operations.insert,
            Operation::Update => operations.update,
            Operation::Delete => operations.delete,
        }
    }
}

/// Why a guest's request is denied. The code is part of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// A stable identifier.
    pub(super) code: &'static str,
    /// A message for people.
    pub(super) message: String,
}

/// Whether a code says that the host refuses a request because of the grants or the mapping, which
/// all items of a task have in common.
pub(super) fn is_refusal(code: &str) -> bool {
    matches!(code, "not-granted" | "invalid-request")
}

impl Refusal {
    /// Creates a refusal.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

impl Access {
    /// The configured collection for the plugin's name of it.
    pub(super) fn collection(&self, name: String) -> String {
        match self.aliases.get(&name) {
            Some(collection) => collection.clone(),
            None => name,
        }
    }

    /// The plugin's name for a configured collection.
    pub(super) fn name_of<'a>(&'a self, collection: &'a str) -> &'a str {
        let alias = self.aliases.iter().find(|(_, real)| *real == collection);
        alias.map_or(collection, |(name, _)| name)
    }

    /// Checks that the operation is granted, given the plugin's name for the collection. Returns
    /// what the plugin requested for it.
    pub(super) fn to(
        &self,
        collection: &str,
        operation: Operation,
    ) -> Result<&CollectionRequest, Refusal> {
        let word = operation.word();
        let Some(request) = self.manifest.collections.iter().find(|r| r.collection == collection)
        else {
            return Err(Refusal::new(
                "not-granted",
                format!("the manifest does not request the collection `{collection}`"),
            ));
        };
        if !operation.of(request.operations) {
            return Err(Refusal::new(
                "not-granted",
                format!("the manifest does not request `{word}` on `{collection}`"),
            ));
        }
        let granted = self.aliases.get(collection).map_or(collection, String::as_str);
        if !self.grants.get(granted).is_some_and(|operations| operation.of(*operations)) {
            return Err(Refusal::new(
                "not-granted",
                format!("`{word}` on `{granted}` is not granted to the task"),
            ));
        }
        Ok(request)
    }

    /// Checks that the operation is granted and that all these columns were requested.
    pub(super) fn to_columns<'a>(
        &self,
        collection: &str,
        operation: Operation,
        columns: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Refusal> {
        let request = self.to(collection, operation)?;
        let real = self.aliases.get(collection).map_or(collection, String::as_str);
        let granted = self.columns.get(real);
        for column in columns {
            if !request.columns.is_empty() && !request.columns.iter().any(|r| r == column) {
                return Err(Refusal::new(
                    "not-granted",
                    format!("the manifest does not request the column `{collection}.{column}`"),
                ));
            }
            if granted.is_some_and(|granted| !granted.iter().any(|g| g == column)) {
                return Err(Refusal::new(
                    "not-granted",
                    format!("the column `{real}.{column}` is not granted to the task"),
                ));
            }
        }
        Ok(())
    }

    /// Checks that the operation is granted on all columns of the collection.
    pub(super) fn to_whole(&self, collection: &str, operation: Operation) -> Result<(), Refusal> {
        let request = self.to(collection, operation)?;
        let real = self.aliases.get(collection).map_or(collection, String::as_str);
        if !request.columns.is_empty() || self.columns.contains_key(real) {
            return Err(Refusal::new(
                "not-granted",
                format!(
                    "only some columns of `{real}` are requested or granted, and rows have all of them"
                ),
            ));
        }
        Ok(())
    }

    /// Checks that the task may emit to the topic.
    pub(super) fn to_topic(&self, topic: &str) -> Result<(), Refusal> {
        let declared = self.manifest.topics.iter().any(|t| t == topic);
        if declared && self.topics.iter().any(|t| t == topic) {
            return Ok(());
        }
        let who = if declared { "is not granted to the task" } else { "is not in the manifest" };
        Err(Refusal::new("not-granted", format!("the topic `{topic}` {who}")))
    }

    /// Checks that the task may read activity and guard on it.
    pub(super) fn to_activity(&self) -> Result<(), Refusal> {
        match (self.manifest.activity, self.activity) {
            (true, true) => Ok(()),
            (true, false) => {
                Err(Refusal::new("not-granted", "activity is not granted to the task"))
            }
            (false, _) => {
                Err(Refusal::new("not-granted", "the manifest does not request activity"))
            }
        }
    }
}
