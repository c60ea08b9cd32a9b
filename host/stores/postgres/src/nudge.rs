//! Nudges: the planner wakes the executors, and a command wakes the leader.
//!
//! A nudge contains nothing but "look". It may be lost; then the next poll finds the work. NOTIFY
//! holds a lock of the whole server while it commits, so no writing transaction sends one: a
//! separate connection sends one nudge for everything within [`INTERVAL`]. The same connection
//! listens. When it breaks it is reopened, and all waiters are woken, because a nudge may have been
//! missed.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use super::connect::{Dial, Line};
use super::error::words;
use super::session::Session;

/// The minimum interval between two nudges of a node: later events share the second nudge.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait before reconnecting.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// The nudges of one store.
pub(super) struct Nudges {
    shared: Arc<Shared>,
    task: OnceLock<AbortHandle>,
}

struct Shared {
    dial: Dial,
    /// The channel, quoted.
    channel: String,
    /// The payload of this node's nudges: it ignores its own.
    name: String,
    /// A nudge may have arrived.
    heard: Notify,
    /// The other nodes have to be nudged.
    said: Notify,
}

impl Nudges {
    /// Nudges among the nodes of one schema; `channel` is a quoted identifier.
    pub(super) fn new(dial: Dial, channel: String) -> Nudges {
        let name = format!("{:016x}", StdRng::from_os_rng().random::<u64>());
        let (heard, said) = (Notify::new(), Notify::new());
        Nudges {
            shared: Arc::new(Shared { dial, channel, name, heard, said }),
            task: OnceLock::new(),
        }
    }

    /// Returns when another node has sent a nudge, at the latest after `timeout`.
    pub(super) async fn heard(&self, timeout: Duration) {
        self.begin();
        let _ = tokio::time::timeout(timeout, self.shared.heard.notified()).await;
    }

    /// Nudges the other nodes soon; several calls may share one nudge.
    pub(super) fn say(&self) {
        self.begin();
        self.shared.said.notify_one();
    }

    /// Nudges all nodes immediately: for a process that may end before the next nudge.
    pub(super) async fn say_now(&self, session: &Session) {
        if let Err(failure) = session.batch(&format!("NOTIFY {}", self.shared.channel)).await {
            tracing::debug!(?failure, "a nudge was not sent; the poll finds the items");
        }
    }

    /// The connection is opened on first use.
    fn begin(&self) {
        self.task.get_or_init(|| tokio::spawn(run(Arc::clone(&self.shared))).abort_handle());
    }
}

impl Drop for Nudges {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

async fn run(shared: Arc<Shared>) {
    loop {
        match shared.dial.line().await {
            Ok(line) => {
                let why = talk(&shared, line).await;
                tracing::debug!(why, "the connection for nudges was lost; reconnecting");
            }
            Err(error) => {
                tracing::debug!(%error, "cannot open the connection for nudges; retrying");
            }
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

/// Listens and sends until the connection ends; returns the reason.
async fn talk(shared: &Shared, line: Line) -> String {
    let Line { client, mut messages } = line;
    let hear = async {
        loop {
            match std::future::poll_fn(|context| messages.poll(context)).await {
                Some(Ok(AsyncMessage::Notification(said))) if said.payload() != shared.name => {
                    shared.heard.notify_one();
                }
                Some(Ok(_)) => {}
                Some(Err(e)) => return words(&e),
                None => return "closed".to_owned(),
            }
        }
    };
    let speak = async {
        client.batch_execute(&format!("LISTEN {}", shared.channel)).await?;
        // Events from before are not sent again.
        shared.heard.notify_one();
        loop {
            shared.said.notified().await;
            let nudge = format!("NOTIFY {}, '{}'", shared.channel, shared.name);
            client.batch_execute(&nudge).await?;
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::select! {
        why = hear => why,
        Err::<(), tokio_postgres::Error>(e) = speak => words(&e),
    }
}
