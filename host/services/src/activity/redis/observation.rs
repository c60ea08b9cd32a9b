//! How long Redis has been observed without interruption. A missing key is *idle* only if this is
//! longer than the idle timeout, and *unknown* before.
//!
//! On every primary, all hosts share a marker: since when the server has kept everything written to
//! it, and when a host last checked it. A restart, a failover, a flush, an eviction, or a period
//! without checks (in which connections may have expired without heartbeats) starts a new
//! observation. Durations are measured by the server's clock; a jump of that clock by more than
//! [`gap`] also starts a new observation. The shortest observation among the primaries applies to
//! all of them, because slots move between them.

use std::time::Duration;

use futures::future::join_all;
use redis::pipe;

use super::fleet::{Fleet, Primary, Table};
use super::scripts;
use super::server::Fault;
use besom_ports::activity::Timeouts;

/// Maximum time between checks: endpoints send three heartbeats per heartbeat timeout, so a
/// connection that was reported before cannot have expired by then.
pub(super) fn gap(timeouts: Timeouts) -> Duration {
    timeouts.heartbeat / 2
}

/// The interval of the checks by a listening host.
pub(super) fn look_every(timeouts: Timeouts) -> Duration {
    (gap(timeouts) / 3).max(Duration::from_millis(10))
}

/// The script's answer on a replica.
const REPLICA: &str = "replica";

/// Called after every check with whether Redis is available and observed.
pub type Told = Box<dyn Fn(Result<(), &str>) + Send + Sync>;

/// The observation by one host.
pub(super) struct Observation {
    timeouts: Timeouts,
    listening: bool,
    told: Told,
}

impl Observation {
    pub(super) fn new(timeouts: Timeouts, listening: bool, told: Told) -> Observation {
        Observation { timeouts, listening, told }
    }

    /// Whether missing keys were observed for long enough to be idle. Has to be called after
    /// reading the keys: it then shows that nothing was lost before.
    pub(super) async fn suffices(&self, fleet: &Fleet) -> bool {
        match self.look(fleet).await {
            Ok(observed) => observed.is_some_and(|observed| observed > self.timeouts.idle),
            Err(_) => false,
        }
    }

    /// Checks all primaries and returns for how long nothing was lost; `None`: not observed.
    pub(super) async fn look(&self, fleet: &Fleet) -> Result<Option<Duration>, Fault> {
        let looked = self.at_all(fleet).await;
        match &looked {
            Ok(_) => (self.told)(Ok(())),
            Err(fault) => (self.told)(Err(&fault.to_string())),
        }
        looked
    }

    async fn at_all(&self, fleet: &Fleet) -> Result<Option<Duration>, Fault> {
        let table = fleet.table().await?;
        match self.youngest(&table).await {
            // The primary may have failed over.
            Err(Fault::Elsewhere(_) | Fault::Away(_)) if !table.is_single() => {
                self.youngest(&*fleet.table_after(Some(&table)).await?).await
            }
            looked => looked,
        }
    }

    async fn youngest(&self, table: &Table) -> Result<Option<Duration>, Fault> {
        if table.primaries.is_empty() {
            return Err(Fault::Elsewhere("no slot of the Redis Cluster is served".into()));
        }
        let looks = join_all(table.primaries.iter().map(|primary| self.at(primary))).await;
        let mut youngest = Some(Duration::MAX);
        for observed in looks {
            // `None` is less than any duration.
            youngest = youngest.min(observed?);
        }
        Ok(youngest)
    }

    async fn at(&self, primary: &Primary) -> Result<Option<Duration>, Fault> {
        let gap_ms = gap(self.timeouts).as_millis() as u64;
        let mut pipeline = pipe();
        pipeline.add_command(scripts::observe(&primary.marker, gap_ms, self.listening));
        let mut answers = primary.server.run(&pipeline).await?;
        let answer = answers.pop().unwrap_or_else(|| Err(Fault::Away("no answer".into())))?;
        let (observed_ms, broken): (i64, String) =
            redis::from_redis_value(answer).map_err(|error| Fault::Said(error.to_string()))?;
        if broken == REPLICA {
            let address = primary.server.address();
            return Err(Fault::Elsewhere(format!(
                "{address} is a replica: configure the primary instead"
            )));
        }
        if self.listening && !broken.is_empty() {
            tracing::info!(
                redis = primary.server.address(), why = why(&broken), idle_timeout = ?self.timeouts.idle,
                "activity observation starts now: unused keys are unknown, not idle, until the \
                 idle timeout has passed"
            );
        }
        Ok(u64::try_from(observed_ms).ok().map(Duration::from_millis))
    }
}

fn why(broken: &str) -> &str {
    match broken {
        "new" => {
            "Redis holds no earlier observation: this is the first start, or Redis was flushed"
        }
        "restarted" => "Redis was restarted or failed over",
        "evicted" => {
            "Redis has evicted keys: give it more memory, or set maxmemory-policy to noeviction"
        }
        "unobserved" => {
            "no host has observed activity for a while, or the clock of Redis has jumped"
        }
        other => other,
    }
}
