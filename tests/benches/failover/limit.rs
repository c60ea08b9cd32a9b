//! The time that etcd itself needs: a key under a bare lease of the same length, and a watcher of
//! that key in this program. No host can learn earlier that another is gone.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use etcd_client::{Client, EventType, PutOptions, WatchStream};
use tokio::task::JoinHandle;

/// A lease that nobody works under.
pub struct Bare {
    client: Client,
    lease: i64,
    watch: WatchStream,
}

impl Bare {
    /// Grants it, and watches its key.
    pub async fn grant(client: &Client, ttl: Duration) -> Result<Bare> {
        let mut client = client.clone();
        let lease = client.lease_grant(ttl.as_secs().cast_signed(), None).await?.id();
        let key = format!("/bare/{lease}");
        let watch = client.watch(key.as_str(), None).await?;
        client.put(key, "", Some(PutOptions::new().with_lease(lease))).await?;
        Ok(Bare { client, lease, watch })
    }

    /// Renews it for the last time now: from then until the watcher is told that it has ended.
    pub async fn expire(mut self) -> Result<JoinHandle<Result<Duration>>> {
        let (mut keeper, mut answers) = self.client.lease_keep_alive(self.lease).await?;
        let asked = Instant::now();
        keeper.keep_alive().await?;
        answers.message().await?.context("the lease is not renewed")?;
        Ok(tokio::spawn(async move {
            self.deleted().await?;
            Ok(asked.elapsed())
        }))
    }

    /// Gives it up: from then until the watcher is told.
    pub async fn revoke(mut self) -> Result<Duration> {
        let asked = Instant::now();
        self.client.lease_revoke(self.lease).await?;
        self.deleted().await?;
        Ok(asked.elapsed())
    }

    async fn deleted(&mut self) -> Result<()> {
        loop {
            let said = self.watch.message().await?.context("the watch has ended")?;
            if said.events().iter().any(|event| event.event_type() == EventType::Delete) {
                return Ok(());
            }
        }
    }
}
