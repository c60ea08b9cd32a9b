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
}

/// Submits a command and waits for its result, at most `wait`.
pub async fn ask(
    store: &dyn Store,
    command: &Command,
    by: &str,
    reason: &str,
    wait: Duration,
) -> store::Result<Asked> {
    let id = store.submit(command, by, reason).await?;
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let row = store.command(id).await?;
        if let Some(row) = row.filter(|row| row.applied_at.is_some()) {
            let CommandRow { result, refused, .. } = row;
            return Ok(Asked { command: id, applied: true, result, refused });
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(Asked { command: id, applied: false, result: None, refused: false });
        }
        tokio::time::sleep(POLL).await;
    }
}
