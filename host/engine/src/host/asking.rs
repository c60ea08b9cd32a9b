//! Submits a command for the leader and waits for its result for a bounded time.

use std::time::Duration;

use serde::Serialize;

use besom_ports::store::{self, Command, CommandRow, Store};

/// How often the command is checked while waiting.
const POLL: Duration = Duration::from_millis(50);

/// The state of a command after waiting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// The number of the command.
    pub command: u64,
    /// Whether a leader has applied it.
    pub applied: bool,
    /// The leader's result.
    pub result: Option<String>,
    /// Whether the leader has refused it.
    pub refused: bool,
    /// Whether the same request of the same requester was waiting already, so that none was added.
    pub repeated: bool,
}

/// Maximum number of waiting commands among which an equal one is looked for.
const PENDING_READ: u32 = 1_000;

/// Submits a command, unless the same requester has recorded the same command with the same reason and it
/// still waits: a verb that was interrupted and is repeated asks for one thing. Returns the number of the
/// command, and whether it was waiting already.
///
/// # Errors
/// Those of the store.
pub async fn submit_once(
    store: &dyn Store,
    command: &Command,
    by: &str,
    reason: &str,
) -> store::Result<(u64, bool)> {
    let pending = store.pending_commands(PENDING_READ).await?;
    let same = |row: &&CommandRow| row.command == *command && row.by == by && row.reason == reason;
    let mut newest = pending.iter().rev().take_while(|row| !command.is_separated_by(&row.command));
    match newest.find(same) {
        Some(row) => Ok((row.id, true)),
        None => Ok((store.submit(command, by, reason).await?, false)),
    }
}

/// Submits a command, once, and waits for its result, at most `wait`.
///
/// # Errors
/// Those of the store.
pub async fn ask(
    store: &dyn Store,
    command: &Command,
    by: &str,
    reason: &str,
    wait: Duration,
) -> store::Result<Asked> {
    let (id, repeated) = submit_once(store, command, by, reason).await?;
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let row = store.command(id).await?;
        if let Some(row) = row.filter(|row| row.applied_at.is_some()) {
            let CommandRow { result, refused, .. } = row;
            return Ok(Asked { command: id, applied: true, result, refused, repeated });
        }
        if tokio::time::Instant::now() >= deadline {
            let (applied, refused) = (false, false);
            return Ok(Asked { command: id, applied, result: None, refused, repeated });
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_core::time::Time;

    use super::*;
    use besom_doubles::store::MemoryStore;
    use besom_ports::activity::Timeouts;

    fn pause(task: &str) -> Command {
        Command::Pause { task: task.into() }
    }

    #[tokio::test]
    async fn what_one_requester_asks_for_again_is_recorded_once() {
        let store = MemoryStore::new(1, Timeouts::default(), Arc::new(|| Time::EPOCH));
        let submit = async |command: &Command, by: &str, reason: &str| {
            submit_once(&store, command, by, reason).await.expect("a number")
        };
        let resume = Command::Resume { task: "a".into(), release: false };
        assert_eq!(submit(&pause("a"), "ana", "INC-1").await, (1, false));
        assert_eq!(submit(&pause("a"), "ana", "INC-1").await, (1, true));
        assert_eq!(submit(&pause("a"), "ben", "INC-1").await, (2, false), "another requester");
        assert_eq!(submit(&pause("a"), "ana", "INC-2").await, (3, false), "another reason");
        assert_eq!(submit(&pause("b"), "ana", "INC-1").await, (4, false), "another task");
        assert_eq!(submit(&pause("a"), "ana", "INC-1").await, (1, true));
        assert_eq!(submit(&resume, "ana", "").await, (5, false));
        assert_eq!(submit(&pause("a"), "ana", "INC-1").await, (6, false), "after a resumption");
        assert_eq!(
            submit(&pause("b"), "ana", "INC-1").await,
            (4, true),
            "that was of another task"
        );
        let all = Command::Resume { task: "*".into(), release: false };
        assert!(matches!(&all, Command::Resume { task, .. } if task.is_all()));
        assert_eq!(submit(&all, "ana", "").await, (7, false));
        assert_eq!(submit(&pause("b"), "ana", "INC-1").await, (8, false), "it was of all tasks");
        assert_eq!(store.pending_commands(100).await.expect("commands").len(), 8);
    }
}
