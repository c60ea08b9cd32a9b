//! How fast a task that yields may go, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use besom_core::pace::Sign;
use besom_core::time::Time;

/// The pace of a task at a node, and what was measured in the last interval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Paced {
    /// The name of the task.
    pub task: String,
    /// The rows per second that it may change now.
    pub rows_per_second: u32,
    /// The rows per second that are always allowed.
    pub floor: u32,
    /// The most rows per second; none: what it reaches by itself.
    pub ceiling: Option<u32>,
    /// Why it is lower than it was, or does not rise from the floor; none: it is neither.
    pub reason: Option<Sign>,
    /// How late the database answered, in microseconds; none: not measured.
    pub latency_us: Option<u64>,
    /// How long others waited for locks of Besom, in microseconds; none: not measured.
    pub lock_wait_us: Option<u64>,
    /// How far replicas are behind, in microseconds; none: there are none, or they are not visible.
    pub lag_us: Option<u64>,
    /// How late the database may answer, and how long others may wait, in microseconds.
    pub latency_max_us: u64,
    /// How far replicas may be behind, in microseconds; 0: they are not looked at.
    pub lag_max_us: u64,
    /// When it was measured; none: not yet.
    pub measured_at: Option<Time>,
}

impl fmt::Display for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |us: u64| us as f64 / 1_000.0;
        write!(f, "{} rows/s", self.rows_per_second)?;
        if let Some(sign) = self.reason {
            write!(f, ", less because of {sign}")?;
        }
        let felt = [("latency", self.latency_us), ("lock waits", self.lock_wait_us)];
        for (what, us) in felt {
            if let Some(us) = us {
                write!(f, "; {what} {:.1} ms", millis(us))?;
            }
        }
        write!(f, " (at most {:.1} ms)", millis(self.latency_max_us))?;
        if let Some(us) = self.lag_us {
            write!(f, "; replication lag {:.1} ms", millis(us))?;
        }
        Ok(())
    }
}
