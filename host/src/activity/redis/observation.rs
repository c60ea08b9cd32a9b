//! How long Redis has been observed without a break: what is not in it is *idle* only after
//! that was longer than the idle time-out, and *unknown* before.
//!
//! On every primary lies a marker that all hosts share: since when the server has kept what
//! was written to it, and when a host last saw it. A restart, a failover, a flush, an
//! eviction, and a time in which no host looked (so that connections to hosts may have ended
//! for want of a heartbeat) begin it anew. Spans are of the server's own clock; if that
//! jumps by more than [`gap`], it begins anew as well. The youngest primary speaks for all:
//! slots move between them.

use std::time::Duration;

use futures::future::join_all;
use redis::pipe;

use super::fleet::{Fleet, Primary, Table};
use super::scripts;
use super::server::Fault;
use crate::ports::activity::Timeouts;

/// How long may pass unobserved: a connection that was heard of before, as endpoints hear of
/// theirs three times in a heartbeat time-out, has not ended by then.
pub(super) fn gap(timeouts: Timeouts) -> Duration {
    timeouts.heartbeat / 2
}

/// How often a host that listens looks.
pub(super) fn look_every(timeouts: Timeouts) -> Duration {
    (gap(timeouts) / 3).max(Duration::from_millis(10))
}

/// What the script says of a server that follows another.
const REPLICA: &str = "replica";

/// Is told after every look whether Redis is there and observed.
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

    /// Whether what is not there was observed for long enough to be idle. Said after the keys
    /// were read: then nothing was lost before.
    pub(super) async fn suffices(&self, fleet: &Fleet) -> bool {
        match self.look(fleet).await {
            Ok(observed) => observed.is_some_and(|observed| observed > self.timeouts.idle),
            Err(_) => false,
        }
    }

    /// Looks at all primaries; for how long nothing was lost. None: not observed.
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
            // Another may have followed it.
            Err(Fault::Elsewhere(_) | Fault::Away(_)) if !table.is_single() => {
                self.youngest(&*fleet.table_after(Some(&table)).await?).await
            }
            looked => looked,
        }
    }

    async fn youngest(&self, table: &Table) -> Result<Option<Duration>, Fault> {
        if table.primaries.is_empty() {
            return Err(Fault::Elsewhere("no slot of the Redis Cluster has a server".into()));
        }
        let looks = join_all(table.primaries.iter().map(|primary| self.at(primary))).await;
        let mut youngest = Some(Duration::MAX);
        for observed in looks {
            // None is less than any.
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
            return Err(Fault::Elsewhere(format!("{address} is a replica: name the primary")));
        }
        if self.listening && !broken.is_empty() {
            tracing::info!(
                redis = primary.server.address(), why = why(&broken), idle_timeout = ?self.timeouts.idle,
                "activity is observed from now on: until the idle time-out has passed, what \
                 nobody uses is unknown and not idle"
            );
        }
        Ok(u64::try_from(observed_ms).ok().map(Duration::from_millis))
    }
}

fn why(broken: &str) -> &str {
    match broken {
        "new" => "nothing is known of the time before: a first start, or Redis was flushed",
        "restarted" => "Redis was restarted, or another server took over",
        "evicted" => "Redis has evicted keys: give it more memory, or maxmemory-policy noeviction",
        "unobserved" => "no host has looked for a while, or Redis's clock has jumped",
        other => other,
    }
}
