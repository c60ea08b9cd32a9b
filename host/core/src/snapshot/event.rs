//! What has happened, in one line each.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A leadership began or ended.
    Leader,
    /// A node came, went, or changed what it takes part in.
    Node,
    /// A configuration was taken over, or refused.
    Config,
    /// Somebody asked for something.
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

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What it is about.
    pub kind: EventKind,
    /// The node, task or run it is about.
    pub subject: String,
    /// What happened, in words.
    pub text: String,
    /// Who asked for it, where somebody did.
    pub by: Option<String>,
}
