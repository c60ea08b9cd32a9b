//! What a task may touch: what its manifest asks for and the operator grants, both.
//!
//! A grant that the manifest does not ask for gives nothing: what a plugin is able to do is
//! what it says of itself, and so an upgrade that wants more is seen as a difference of two
//! manifests.

use std::sync::Arc;

use besom_core::collection::Grants;

use crate::ports::guests::{CollectionRequest, Manifest};
use crate::task::{Aliases, Columns};

/// The access of one call.
pub(super) struct Access {
    /// What the operator grants.
    pub(super) grants: Arc<Grants>,
    /// What the plugin calls by another name. No two names stand for one collection.
    pub(super) aliases: Arc<Aliases>,
    /// The columns that the operator grants, of collections where not all of them are.
    pub(super) columns: Arc<Columns>,
    /// Whether the operator grants activity.
    pub(super) activity: bool,
    /// What the plugin asks for.
    pub(super) manifest: Arc<Manifest>,
    /// The topics it may emit to.
    pub(super) topics: Vec<String>,
}

/// An operation, as in a grant.
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

/// What a guest asked for is not to be had. The code is part of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// A stable word.
    pub(super) code: &'static str,
    /// For a person.
    pub(super) message: String,
}

impl Refusal {
    /// A refusal.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

impl Access {
    /// The collection of the configuration that the plugin's name stands for.
    pub(super) fn collection(&self, name: String) -> String {
        match self.aliases.get(&name) {
            Some(collection) => collection.clone(),
            None => name,
        }
    }

    /// What the plugin calls the collection.
    pub(super) fn name_of<'a>(&'a self, collection: &'a str) -> &'a str {
        let alias = self.aliases.iter().find(|(_, real)| *real == collection);
        alias.map_or(collection, |(name, _)| name)
    }

    /// Whether the operation is granted, by the plugin's name of the collection; what the plugin
    /// asked of it.
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
                format!("the manifest does not ask for the collection `{collection}`"),
            ));
        };
        if !operation.of(request.operations) {
            return Err(Refusal::new(
                "not-granted",
                format!("the manifest does not ask for `{word}` on `{collection}`"),
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

    /// Whether the operation is granted, and all these columns are among those asked for.
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
                    format!("the manifest does not ask for the column `{collection}.{column}`"),
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

    /// Whether it may emit to the topic.
    pub(super) fn to_topic(&self, topic: &str) -> Result<(), Refusal> {
        let declared = self.manifest.topics.iter().any(|t| t == topic);
        if declared && self.topics.iter().any(|t| t == topic) {
            return Ok(());
        }
        let who = if declared { "is not granted to the task" } else { "is not in the manifest" };
        Err(Refusal::new("not-granted", format!("the topic `{topic}` {who}")))
    }

    /// Whether it may read activity and guard on it.
    pub(super) fn to_activity(&self) -> Result<(), Refusal> {
        match (self.manifest.activity, self.activity) {
            (true, true) => Ok(()),
            (true, false) => {
                Err(Refusal::new("not-granted", "activity is not granted to the task"))
            }
            (false, _) => {
                Err(Refusal::new("not-granted", "the manifest does not ask for activity"))
            }
        }
    }
}
