//! What people ask for, with who and why beside it in the store's books.

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, TaskName};

/// What somebody asks of the leader from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Start a run now.
    Trigger {
        /// The task.
        task: TaskName,
    },
    /// Plan no more runs.
    Pause {
        /// The task.
        task: TaskName,
    },
    /// Plan again.
    Resume {
        /// The task.
        task: TaskName,
    },
    /// End a run: its scan stops; what it planned stays.
    Cancel {
        /// The run.
        run: RunId,
    },
    /// Put dead letters into the retries, to be tried at once with fresh attempts.
    RetryDead(DeadSelector),
    /// Discard dead letters.
    DiscardDead(DeadSelector),
    /// Deliver messages again that were given up, with fresh attempts.
    RetryMessages(MessageSelector),
    /// Number the streams of a task anew that have lost items or hold rows that cannot be read.
    RepairStreams {
        /// The task.
        task: TaskName,
    },
    /// Give the leadership up; another node leads then, or the same one again.
    Resign,
    /// A task was edited in a configuration file: kept for who, when and why. The hosts
    /// take the file up by themselves.
    Edited {
        /// The task.
        task: TaskName,
        /// Which keys, and their values before and after.
        change: String,
    },
    /// A host has taken up a plugin of its directory: kept for which file ran from when on, and with
    /// which rights.
    Loaded {
        /// The plugin, as its tasks name it.
        plugin: String,
        /// SHA-256 of its file, in hexadecimal.
        digest: String,
        /// Its name and version, as it says.
        version: String,
        /// The tasks that it serves, and what each is granted.
        grants: String,
        /// What the plugin asks for, as JSON.
        manifest: String,
    },
    /// A host has taken up a changed configuration: kept for what counted from when on.
    Reloaded {
        /// The digest of the configuration before, as far as hosts share it.
        before: String,
        /// That of the new one.
        after: String,
        /// Tasks that came, went or changed, with their rights before and after, and what else.
        change: String,
    },
    /// Documents were imported from files: kept for who, when and why.
    Imported {
        /// The tenant that they belong to.
        tenant: String,
        /// How many, and their names.
        documents: String,
    },
    /// A node was told to drain: kept for who, when and why. The members have it already.
    Drained {
        /// Its lasting name.
        node: String,
    },
    /// A drained node was given its share again: kept likewise.
    Rejoined {
        /// Its lasting name.
        node: String,
    },
    /// What this version does not know, of a later one or written by hand.
    #[serde(skip_deserializing)]
    Unknown,
}

impl Command {
    /// Whether it takes something away for good, so that a reason is kept with it.
    pub fn discards(&self) -> bool {
        matches!(self, Command::DiscardDead(_) | Command::RepairStreams { .. })
    }

    /// Whether it is kept of what has happened already: nobody waits for a leader to do it.
    pub fn is_record(&self) -> bool {
        matches!(
            self,
            Command::Edited { .. }
                | Command::Loaded { .. }
                | Command::Reloaded { .. }
                | Command::Imported { .. }
                | Command::Drained { .. }
                | Command::Rejoined { .. }
        )
    }

    /// What it does, in one word.
    pub fn verb(&self) -> &'static str {
        match self {
            Command::Trigger { .. } => "trigger",
            Command::Pause { .. } => "pause",
            Command::Resume { .. } => "resume",
            Command::Cancel { .. } => "cancel",
            Command::RetryDead(_) => "retry",
            Command::DiscardDead(_) => "discard",
            Command::RetryMessages(_) => "retry",
            Command::RepairStreams { .. } => "repair",
            Command::Resign => "resign",
            Command::Edited { .. } => "edit",
            Command::Loaded { .. } => "load",
            Command::Reloaded { .. } => "reload",
            Command::Imported { .. } => "import",
            Command::Drained { .. } => "drain",
            Command::Rejoined { .. } => "rejoin",
            Command::Unknown => "unknown",
        }
    }

    /// What it is about: a task, a run, dead letters.
    pub fn subject(&self) -> String {
        match self {
            Command::Trigger { task }
            | Command::Pause { task }
            | Command::Resume { task }
            | Command::Edited { task, .. } => task.to_string(),
            Command::RepairStreams { task } => format!("streams of {task}"),
            Command::Resign => "the leadership".to_owned(),
            Command::Unknown => "command".to_owned(),
            Command::Drained { node } | Command::Rejoined { node } => node.clone(),
            Command::Loaded { plugin, .. } => plugin.clone(),
            Command::Reloaded { .. } => "the configuration".to_owned(),
            Command::Imported { tenant, .. } => format!("documents of {tenant}"),
            Command::Cancel { run } => format!("run {run}"),
            Command::RetryDead(which) | Command::DiscardDead(which) => which.to_string(),
            Command::RetryMessages(which) => which.to_string(),
        }
    }
}

/// Which messages of the outbox.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MessageSelector {
    /// By number, and then by nothing else; empty: by the other field.
    pub ids: Vec<u64>,
    /// Of this topic; none: of all.
    pub topic: Option<String>,
}

impl std::fmt::Display for MessageSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ids.as_slice(), &self.topic) {
            ([id], _) => write!(f, "message {id}"),
            ([], Some(topic)) => write!(f, "messages of {topic}"),
            ([], None) => f.write_str("messages"),
            (ids, _) => write!(f, "{} messages", ids.len()),
        }
    }
}

/// Which dead letters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeadSelector {
    /// By number, and then by nothing else; empty: by the other fields.
    pub ids: Vec<u64>,
    /// Of this task.
    pub task: Option<TaskName>,
    /// With exactly this last error.
    pub error: Option<String>,
    /// How many whoever asks has seen: where another number matches, nothing is changed. None:
    /// however many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

impl DeadSelector {
    /// Whether it names any: by number, task or error.
    pub fn is_narrow(&self) -> bool {
        !self.ids.is_empty() || self.task.is_some() || self.error.is_some()
    }

    /// Why nothing is changed where `found` letters match; none: that many were expected.
    pub fn mismatch(&self, found: u64) -> Option<String> {
        if found == 0 && self.is_narrow() && self.expect.is_none() {
            return Some(format!("{self}: none is open"));
        }
        let expected = self.expect.filter(|expected| *expected != found)?;
        Some(format!(
            "{} expected, {found} found: nothing was changed; look again, and give the number \
             that is there now",
            counted(expected, "dead letter")
        ))
    }
}

impl std::fmt::Display for DeadSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ids.as_slice(), &self.task) {
            ([id], _) => write!(f, "dead letter {id}"),
            ([], Some(task)) => write!(f, "dead letters of {task}"),
            ([], None) => f.write_str("dead letters"),
            (ids, _) => write!(f, "{} dead letters", ids.len()),
        }
    }
}

/// So many of something, whose plural ends in `s`.
pub fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// What an operator asks for, in the dashboard or on the command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Something for the leader.
    Ask {
        /// What.
        command: Command,
    },
    /// Let a node finish what it has and give it nothing new.
    Drain {
        /// Its lasting name.
        node: String,
    },
    /// Give a drained node its share again.
    Rejoin {
        /// Its lasting name.
        node: String,
    },
}
