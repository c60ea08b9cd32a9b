//! Nudges: whoever plans wakes whoever executes, and whoever asks for something wakes the leader.
//!
//! A nudge says nothing but "look": it may be lost, and then the next poll finds what there is.
//! NOTIFY holds a lock of the whole server while it commits, so no transaction that writes
//! carries one: a connection of its own sends it, once for everything that came within
//! [`INTERVAL`]. The same connection listens; where it breaks it is made anew, and whoever waits
//! is woken, for something may have been missed.

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

/// The least time between two nudges of one node: what comes in between shares the second.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long a broken connection is left alone.
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
    /// What this node's nudges carry: it does not listen to itself.
    name: String,
    /// Something may have come.
    heard: Notify,
    /// Somebody is to be told.
    said: Notify,
}

impl Nudges {
    /// Nudges among the nodes of one schema; `channel` is an identifier, quoted.
    pub(super) fn new(dial: Dial, channel: String) -> Nudges {
        let name = format!("{:016x}", StdRng::from_os_rng().random::<u64>());
        let (heard, said) = (Notify::new(), Notify::new());
        Nudges {
            shared: Arc::new(Shared { dial, channel, name, heard, said }),
            task: OnceLock::new(),
        }
    }

    /// Returns when another node has said something, at the latest after `timeout`.
    pub(super) async fn heard(&self, timeout: Duration) {
        self.begin();
        let _ = tokio::time::timeout(timeout, self.shared.heard.notified()).await;
    }

    /// Tells the other nodes, soon and not necessarily each time.
    pub(super) fn say(&self) {
        self.begin();
        self.shared.said.notify_one();
    }

    /// Tells all nodes at once: for a process that may end before it would come to it.
    pub(super) async fn say_now(&self, session: &Session) {
        if let Err(failure) = session.batch(&format!("NOTIFY {}", self.shared.channel)).await {
            tracing::debug!(?failure, "a nudge was not sent; the poll finds what it was about");
        }
    }

    /// The connection is made by the first who needs it.
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
                tracing::debug!(why, "the connection for nudges is gone; made anew");
            }
            Err(error) => tracing::debug!(%error, "no connection for nudges; tried again"),
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

/// Listens and speaks until the connection ends; returns why it did.
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
        // What was said before is not repeated.
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
