//! Events: what has happened, in one line each.

use serde::{Deserialize, Serialize};

use besom_core::time::Time;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A leadership began or ended.
    Leader,
    /// A node joined, left, or changed its state.
    Node,
    /// A configuration was loaded or rejected.
    Config,
    /// An operator's command was applied.
    Command,
    /// A run failed.
    Run,
    /// Items were set aside.
    Dead,
    /// Of a later version of this model.
    #[default]
    #[serde(other)]
    Other,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// When it happened.
    pub at: Time,
    /// What it is about.
    pub kind: EventKind,
    /// The node, task or run it is about.
    pub subject: String,
    /// What happened, as text.
    pub text: String,
    /// The operator who requested it, if any.
    pub by: Option<String>,
}
