//! Asking the leader for something: a command row, and a bounded wait for its result.

use std::time::Duration;

use serde::Serialize;

use crate::ports::store::{self, Command, CommandRow, Store};

/// How often the row is looked at while waiting.
const POLL: Duration = Duration::from_millis(50);

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// The command's number.
    pub command: u64,
    /// Whether a leader has applied it.
    pub applied: bool,
    /// What the leader said.
    pub result: Option<String>,
    /// Whether the leader has refused it.
    pub refused: bool,
}

/// Puts a command down and waits for its result, at most `wait`.
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
