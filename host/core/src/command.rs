//! Operators' requests, which the store records with their author and reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::brake::Trip;
use crate::ids::{RunId, TaskName};
use crate::purge::Purge;

/// Maximum size of the reason that is recorded with a command, in bytes. It is stored, logged, and
/// shown with the command.
pub const REASON_BYTES_MAX: usize = 4 * 1024;

/// Checks the reason of a command.
///
/// # Errors
/// It is too long; with its size and the maximum.
pub fn check_reason(reason: &str) -> Result<(), String> {
    match reason.len() {
        ..=REASON_BYTES_MAX => Ok(()),
        bytes => Err(format!(
            "the reason has {bytes} bytes: at most {REASON_BYTES_MAX}; shorten it, or name a \
             ticket that says more"
        )),
    }
}

/// A request to the leader from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Start a run of the task now.
    Trigger {
        /// The task's name in the configuration.
        task: TaskName,
    },
    /// Stop a task: it plans nothing more, and what is planned waits.
    Pause {
        /// The task's name in the configuration, or [`TaskName::ALL`].
        task: TaskName,
    },
    /// Plan runs of the task again, and execute what is planned.
    Resume {
        /// The task's name in the configuration, or [`TaskName::ALL`].
        task: TaskName,
        /// Whether the brakes of the runs that are planned are released.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        release: bool,
    },
    /// Stop a task, as [`Command::Pause`] does: one of its brakes has tripped. A node requests it.
    Brake {
        /// The task's name in the configuration.
        task: TaskName,
        /// What the task wanted, and what it may do.
        trip: Trip,
    },
    /// Discard what is planned of a paused task, and end the scans of its runs.
    DiscardPlanned {
        /// The task's name in the configuration.
        task: TaskName,
    },
    /// Cancel a run: its scan stops; the items it has planned are still executed.
    Cancel {
        /// The run's number in the store.
        run: RunId,
    },
    /// Approve what a run has planned: it is executed.
    Approve {
        /// The run's number in the store.
        run: RunId,
    },
    /// Reject what a run has planned: it is discarded.
    Reject {
        /// The run's number in the store.
        run: RunId,
    },
    /// Discard what a run has planned, because its review has lapsed. The leader requests it.
    Lapse {
        /// The run's number in the store.
        run: RunId,
    },
    /// Move dead letters to the retries, to be executed immediately with a fresh attempt count.
    RetryDead(DeadSelector),
    /// Discard dead letters: the items are not planned again until their version changes.
    DiscardDead(DeadSelector),
    /// Deliver messages again that were given up, with a fresh attempt count, and make those due that wait for their
    /// next attempt.
    RetryMessages(MessageSelector),
    /// Give up messages that wait for delivery, so that those behind them are delivered.
    DiscardMessages(MessageSelector),
    /// Renumber a task's streams that have lost items or hold unreadable rows.
    RepairStreams {
        /// The task's name in the configuration.
        task: TaskName,
    },
    /// Take back what runs have done to the product's rows.
    Undo(Undo),
    /// Remove chosen rows from what is kept for undo.
    Purge(Purge),
    /// Resign the leadership; then another node, or the same one, leads.
    Resign,
    /// A task was edited in a configuration file. This records who, when and why; each host reloads
    /// the file by itself.
    Edited {
        /// The task's name in the configuration.
        task: TaskName,
        /// The changed keys, with their values before and after.
        change: String,
    },
    /// A host has loaded a plugin from its directory. This records which file ran since when and
    /// with which grants.
    Loaded {
        /// The plugin's name in its tasks' definitions.
        plugin: String,
        /// SHA-256 of the plugin's file, in hexadecimal.
        digest: String,
        /// The name and version in the plugin's manifest.
        version: String,
        /// The tasks that use it, with the grants of each.
        grants: String,
        /// The plugin's manifest as JSON.
        manifest: String,
    },
    /// A host has loaded a changed configuration. This records which one applied since when.
    Reloaded {
        /// The digest of the previous configuration, over the parts that hosts share.
        before: String,
        /// The digest of the new configuration.
        after: String,
        /// Tasks that were added, removed or changed, with their grants before and after, and other
        /// changes.
        change: String,
    },
    /// Documents were imported from files. This records who, when and why.
    Imported {
        /// The tenant that the documents belong to.
        tenant: String,
        /// The number of documents, and their names.
        documents: String,
    },
    /// A node was drained. This records who, when and why; the membership already reflects it.
    Drained {
        /// The node's name, the same after a restart.
        node: String,
    },
    /// A drained node rejoined; recorded like [`Command::Drained`].
    Rejoined {
        /// The node's name, the same after a restart.
        node: String,
    },
    /// A command that this version does not know: of a later version, or written by hand.
    #[serde(skip_deserializing)]
    Unknown,
}

impl Command {
    /// Whether it removes something permanently and therefore requires a reason.
    pub fn discards(&self) -> bool {
        matches!(
            self,
            Command::DiscardDead(_)
                | Command::DiscardMessages(_)
                | Command::DiscardPlanned { .. }
                | Command::Reject { .. }
                | Command::RepairStreams { .. }
                | Command::Purge(_)
        )
    }

    /// The task whose work it starts, stops or discards; none: it is about something else.
    pub fn task(&self) -> Option<&TaskName> {
        match self {
            Command::Trigger { task }
            | Command::Pause { task }
            | Command::Resume { task, .. }
            | Command::Brake { task, .. }
            | Command::DiscardPlanned { task } => Some(task),
            _ => None,
        }
    }

    /// Whether `later`, recorded between two equal commands, gives the second of them an effect of its own: a
    /// pause after a resumption is another one.
    pub fn is_separated_by(&self, later: &Command) -> bool {
        let about_one = match (self.task(), later.task()) {
            (Some(own), Some(other)) => own == other || own.is_all() || other.is_all(),
            (None, None) => true,
            _ => false,
        };
        self != later && about_one && !later.is_record()
    }

    /// Whether it only records what has already happened, so that no leader has to apply it.
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

    /// Its verb, as in the command line.
    pub fn verb(&self) -> &'static str {
        match self {
            Command::Trigger { .. } => "trigger",
            Command::Pause { .. } => "pause",
            Command::Resume { .. } => "resume",
            Command::Brake { .. } => "brake",
            Command::DiscardPlanned { .. } => "discard",
            Command::Cancel { .. } => "cancel",
            Command::Approve { .. } => "approve",
            Command::Reject { .. } => "reject",
            Command::Lapse { .. } => "lapse",
            Command::RetryDead(_) => "retry",
            Command::DiscardDead(_) => "discard",
            Command::RetryMessages(_) => "retry",
            Command::DiscardMessages(_) => "discard",
            Command::RepairStreams { .. } => "repair",
            Command::Undo(_) => "undo",
            Command::Purge(_) => "purge",
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

    /// What it is about, for people: a task, a run, dead letters.
    pub fn subject(&self) -> String {
        match self {
            Command::Pause { task } | Command::Resume { task, .. } if task.is_all() => {
                "all tasks".to_owned()
            }
            Command::Trigger { task }
            | Command::Pause { task }
            | Command::Resume { task, .. }
            | Command::Brake { task, .. }
            | Command::Edited { task, .. } => task.to_string(),
            Command::DiscardPlanned { task } => format!("planned items of {task}"),
            Command::RepairStreams { task } => format!("streams of {task}"),
            Command::Undo(undo) => undo.to_string(),
            Command::Purge(purge) => purge.to_string(),
            Command::Resign => "the leadership".to_owned(),
            Command::Unknown => "command".to_owned(),
            Command::Drained { node } | Command::Rejoined { node } => node.clone(),
            Command::Loaded { plugin, .. } => plugin.clone(),
            Command::Reloaded { .. } => "the configuration".to_owned(),
            Command::Imported { tenant, .. } => format!("documents of {tenant}"),
            Command::Cancel { run }
            | Command::Approve { run }
            | Command::Reject { run }
            | Command::Lapse { run } => format!("run {run}"),
            Command::RetryDead(which) | Command::DiscardDead(which) => which.to_string(),
            Command::RetryMessages(which) | Command::DiscardMessages(which) => which.to_string(),
        }
    }

    /// What it records beside its subject: changed keys, a component with its grants, documents. `None`: it
    /// is carried out.
    pub fn details(&self) -> Option<String> {
        Some(match self {
            Command::Edited { change, .. } => change.clone(),
            Command::Reloaded { before, after, change } => format!("{before} -> {after}: {change}"),
            Command::Loaded { digest, version, grants, .. } => {
                format!("{version}, sha256 {digest}: {grants}")
            }
            Command::Imported { documents, .. } => documents.clone(),
            Command::Brake { trip, .. } => trip.to_string(),
            Command::Resume { release: true, .. } => "the brakes are released".to_owned(),
            _ => return None,
        })
    }
}

/// What is to be undone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Undo {
    /// A [`crate::undo::Target`] in words.
    pub target: String,
    /// The names of rows that are put back although somebody has changed them since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
    /// Whether the undone items may be planned again, also those that were undone before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_again: bool,
    /// The names of the only rows that are put back, by their items as `RUN/#NUMBER`; empty: all rows of all items.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, BTreeSet<String>>,
}

impl Undo {
    /// Whether something of an item, named as `RUN/#NUMBER`, is put back.
    pub fn has(&self, item: &str) -> bool {
        self.rows.is_empty() || self.rows.contains_key(item)
    }

    /// The names of the only rows of an item that are put back; `None`: all of them are.
    pub fn only(&self, item: &str) -> Option<BTreeSet<String>> {
        let chosen = || self.rows.get(item).cloned().unwrap_or_default();
        (!self.rows.is_empty()).then(chosen)
    }
}

impl fmt::Display for Undo {
    /// As `besom undo` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.rows.is_empty() { "" } else { " --key KEY" };
        write!(f, "{}{of}", self.target)
    }
}

/// Selects messages of the outbox.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MessageSelector {
    /// Their numbers; if not empty, `topic` is ignored.
    pub ids: Vec<u64>,
    /// The topic of the messages; none: all topics.
    pub topic: Option<String>,
    /// Whether messages are retried that a later one has superseded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// What a [`MessageSelector`] asks of a message; nothing is asked where there is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageCriteria<'a> {
    /// Its number is among these.
    pub ids: Option<&'a [u64]>,
    /// It has this topic.
    pub topic: Option<&'a str>,
}

impl MessageSelector {
    /// What a message has to meet.
    pub fn criteria(&self) -> MessageCriteria<'_> {
        match self.ids.as_slice() {
            [] => MessageCriteria { ids: None, topic: self.topic.as_deref() },
            ids => MessageCriteria { ids: Some(ids), topic: None },
        }
    }

    /// Why a retry is refused if no message matches.
    pub fn mismatch(&self) -> String {
        let (of, fix) = match self.force {
            true => ("", ""),
            false => (
                " and that no later message with the same key has superseded",
                "; `--force` also retries those",
            ),
        };
        format!(
            "{self}: no message matches among those that wait for their next attempt, and those that were \
             given up{of}; list them with `besom outbox ls --state given-up`{fix}"
        )
    }

    /// Why messages are not discarded if none matches.
    pub fn none_pending(&self) -> String {
        format!(
            "{self}: no message matches among those that wait for delivery; list them with \
             `besom outbox ls --state pending`"
        )
    }
}

impl std::fmt::Display for MessageSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ids.as_slice(), &self.topic) {
            ([id], _) => write!(f, "message {id}"),
            ([], Some(topic)) => write!(f, "messages of {topic}"),
            ([], None) => f.write_str("messages"),
            (ids, _) => f.write_str(&counted(ids.len() as u64, "message")),
        }
    }
}

/// Selects dead letters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeadSelector {
    /// Their numbers; if not empty, the other fields are ignored.
    pub ids: Vec<u64>,
    /// The task of the dead letters; none: all tasks.
    pub task: Option<TaskName>,
    /// The last error, exactly; none: any error.
    pub error: Option<String>,
    /// The number of matching letters that the operator has seen: if another number matches,
    /// nothing is changed. None: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

/// What a [`DeadSelector`] asks of a letter; nothing is asked where there is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadCriteria<'a> {
    /// Its number is among these.
    pub ids: Option<&'a [u64]>,
    /// Its item is of this task.
    pub task: Option<&'a TaskName>,
    /// Its last error is this one, exactly.
    pub error: Option<&'a str>,
}

impl DeadSelector {
    /// What a letter has to meet.
    pub fn criteria(&self) -> DeadCriteria<'_> {
        match self.ids.as_slice() {
            [] => {
                DeadCriteria { ids: None, task: self.task.as_ref(), error: self.error.as_deref() }
            }
            ids => DeadCriteria { ids: Some(ids), task: None, error: None },
        }
    }

    /// Whether it selects by number, task or error.
    pub fn is_narrow(&self) -> bool {
        let DeadCriteria { ids, task, error } = self.criteria();
        ids.is_some() || task.is_some() || error.is_some()
    }

    /// Why nothing is changed if `found` letters match; none: `found` is as expected.
    pub fn mismatch(&self, found: u64) -> Option<String> {
        if found == 0 && self.is_narrow() && self.expect.is_none() {
            let exact = match (&self.error, self.ids.is_empty()) {
                (Some(_), true) => {
                    "; the error has to match as a whole, as `besom dead ls --output json` prints it"
                }
                _ => "",
            };
            return Some(format!("{self}: no match among the open dead letters{exact}"));
        }
        let expected = self.expect.filter(|expected| *expected != found)?;
        Some(format!(
            "expected {}, found {found}: nothing was changed; list them again and pass the \
             current number",
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
            (ids, _) => f.write_str(&counted(ids.len() as u64, "dead letter")),
        }
    }
}

/// Words, with the reason if one was given.
pub fn with_reason(words: &str, reason: &str) -> String {
    match reason.trim() {
        "" => words.to_owned(),
        reason => format!("{words}: {reason}"),
    }
}

/// A count with its noun, whose plural ends in `s`.
pub fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// An operator's request, from the dashboard or the command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// A command for the leader.
    Ask {
        /// The command.
        command: Command,
    },
    /// Drain a node: it finishes its work and receives nothing new.
    Drain {
        /// The node's name, the same after a restart.
        node: String,
    },
    /// Give a drained node its share of the partitions again.
    Rejoin {
        /// The node's name, the same after a restart.
        node: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_a_bounded_size() {
        assert_eq!(check_reason(""), Ok(()));
        assert_eq!(check_reason(&"é".repeat(REASON_BYTES_MAX / 2)), Ok(()));
        let refused = check_reason(&"x".repeat(REASON_BYTES_MAX + 1)).unwrap_err();
        assert!(refused.starts_with("the reason has 4097 bytes: at most 4096"), "{refused}");
    }

    #[test]
    fn numbers_override_every_other_criterion() {
        let (task, error, topic) = (TaskName::from("t"), "refused", "done");
        let dead = |ids: &[u64]| DeadSelector {
            ids: ids.to_vec(),
            task: Some(task.clone()),
            error: Some(error.into()),
            expect: None,
        };
        let by_numbers = DeadCriteria { ids: Some(&[1, 2]), task: None, error: None };
        assert_eq!(dead(&[1, 2]).criteria(), by_numbers);
        let by_others = DeadCriteria { ids: None, task: Some(&task), error: Some(error) };
        assert_eq!(dead(&[]).criteria(), by_others);
        let all = DeadCriteria { ids: None, task: None, error: None };
        assert_eq!(DeadSelector::default().criteria(), all);
        let messages = |ids: &[u64]| MessageSelector {
            ids: ids.to_vec(),
            topic: Some(topic.into()),
            force: false,
        };
        let by_numbers = MessageCriteria { ids: Some(&[3]), topic: None };
        assert_eq!(messages(&[3]).criteria(), by_numbers);
        let by_topic = MessageCriteria { ids: None, topic: Some(topic) };
        assert_eq!(messages(&[]).criteria(), by_topic);
    }

    #[test]
    fn a_selection_that_matches_nothing_says_how_an_error_is_written() {
        let by_error = DeadSelector { error: Some("corrupt".into()), ..DeadSelector::default() };
        let said = by_error.mismatch(0).expect("nothing matches");
        assert!(said.contains("match as a whole, as `besom dead ls --output json`"), "{said}");
        assert_eq!(by_error.mismatch(1), None);
        let by_task = DeadSelector { task: Some("sweep".into()), ..DeadSelector::default() };
        let said = by_task.mismatch(0).expect("nothing matches");
        assert_eq!(said, "dead letters of sweep: no match among the open dead letters");
    }

    #[test]
    fn a_selection_of_messages_that_matches_nothing_is_named() {
        let one = MessageSelector { ids: vec![987_654], ..MessageSelector::default() };
        let said = one.mismatch();
        assert!(said.starts_with("message 987654: no message matches"), "{said}");
        let of = MessageSelector { topic: Some("nope".into()), ..MessageSelector::default() };
        assert!(of.mismatch().starts_with("messages of nope: no message matches"));
        let said = one.none_pending();
        assert!(
            said.starts_with("message 987654: no message matches among those that wait"),
            "{said}"
        );
    }

    #[test]
    fn one_is_counted_without_a_plural() {
        assert_eq!((counted(1, "slot"), counted(0, "slot")), ("1 slot".into(), "0 slots".into()));
    }
}
