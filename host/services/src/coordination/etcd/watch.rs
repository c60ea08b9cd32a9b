//! Change notification: a watch that starts at the revision after the last read, and an additional
//! check every few seconds.
//!
//! A stream never reconnects: if it ends, a new one is opened on the next endpoint from the same
//! revision, so that nothing is missed.

use std::time::Duration;

use etcd_client::{Event, EventType, WatchOptions};
use rand::Rng as _;

use super::endpoints::Outcome;
use super::fault::Fault;
use super::{Etcd, random};

/// The pause before a new stream is opened after one has failed.
const REOPEN_AFTER: Duration = Duration::from_millis(200);

/// The leader as it was last read.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The revision of the read.
    pub(super) revision: i64,
    /// The nonce of the leader's attempt; `None`: there was no leader.
    pub(super) nonce: Option<String>,
}

/// The members as they were last read.
#[derive(Debug, Clone)]
pub(super) struct Roll {
    /// The revision of the read.
    pub(super) revision: u64,
    /// The keys and the revisions at which they were last changed.
    pub(super) keys: Vec<(Vec<u8>, i64)>,
}

impl Etcd {
    /// Returns when the leader may have changed since it was last read.
    pub(super) async fn leader_changed(&self) {
        let kept = self.lock().seen.clone();
        let mut seen = match kept {
            Some(seen) => seen,
            None => match self.look().await {
                Some(Seen { nonce: None, .. }) => return,
                Some(seen) => seen,
                // Nothing was read yet: the caller asks again and receives the error.
                None => return tokio::time::sleep(self.poll_after()).await,
            },
        };
        loop {
            // A renewal also changes the key: only another creation or a deletion counts.
            let other = |event: &Event| match event.event_type() {
                EventType::Delete => true,
                EventType::Put => {
                    event.kv().is_none_or(|kv| kv.create_revision() == kv.mod_revision())
                }
            };
            let watch = self.watch(self.keys.leader(), false, seen.revision + 1, other);
            tokio::select! {
                () = watch => {
                    // The next read is new in any case.
                    self.lock().seen = None;
                    return;
                }
                () = tokio::time::sleep(self.poll_after()) => {}
            }
            if let Some(now) = self.look().await {
                if now.nonce != seen.nonce {
                    return;
                }
                seen = now;
            }
        }
    }

    async fn look(&self) -> Option<Seen> {
        self.read_election().await.ok()?;
        self.lock().seen.clone()
    }

    /// Returns when the members may have changed after that revision.
    pub(super) async fn roll_changed(&self, since: u64) {
        let kept = self.lock().roll.clone();
        let known = kept.filter(|roll| roll.revision == since).map(|roll| roll.keys);
        let from = i64::try_from(since).unwrap_or(i64::MAX).saturating_add(1);
        loop {
            let watch = self.watch(self.keys.members(), true, from, |_| true);
            tokio::select! {
                () = watch => return,
                () = tokio::time::sleep(self.poll_after()) => {}
            }
            if self.read_members().await.is_ok() {
                let now = self.lock().roll.clone().map(|roll| roll.keys);
                if now != known {
                    return;
                }
            }
        }
    }

    /// Returns at the first event that counts, at or after that revision; or when those revisions
    /// are no longer available and an event may have been missed.
    async fn watch(&self, key: String, prefix: bool, from: i64, counts: impl Fn(&Event) -> bool) {
        loop {
            match self.watch_once(&key, prefix, from, &counts).await {
                Ok(()) => return,
                Err(fault) => tracing::debug!(?fault, "a watch has ended; reopening it"),
            }
            tokio::time::sleep(REOPEN_AFTER).await;
        }
    }

    async fn watch_once(
        &self,
        key: &str,
        prefix: bool,
        from: i64,
        counts: &impl Fn(&Event) -> bool,
    ) -> Outcome<()> {
        let mut options = WatchOptions::new().with_start_revision(from);
        if prefix {
            options = options.with_prefix();
        }
        let mut stream = self
            .endpoints
            .call(|client| {
                let options = options.clone();
                async move { client.watch_client().watch(key, Some(options)).await }
            })
            .await?;
        loop {
            // Not timed out here: the caller checks in parallel.
            let message = stream.message().await?;
            let Some(message) = message else {
                return Err(Fault::Away("the stream has ended".into()));
            };
            if message.compact_revision() > 0 || message.events().iter().any(counts) {
                return Ok(());
            }
            if message.canceled() {
                return Err(Fault::Away(message.cancel_reason().to_owned()));
            }
        }
    }

    /// Varied randomly, so that followers do not all check at the same time.
    fn poll_after(&self) -> Duration {
        self.options.poll.mul_f64(random().random_range(0.8..1.2))
    }
}
