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
        let felt = [
            (Sign::Latency, self.latency_us, self.latency_max_us),
            (Sign::LockWaits, self.lock_wait_us, self.latency_max_us),
            (Sign::Lag, self.lag_us, self.lag_max_us),
        ];
        if let Some(sign) = self.reason {
            write!(f, ", less because of {sign}")?;
            let now = felt.iter().find(|(of, ..)| *of == sign);
            if now.is_none_or(|(_, us, most)| us.is_none_or(|us| us <= *most)) {
                f.write_str(" before the last measurement")?;
            }
        }
        for (what, us, most) in felt {
            if let Some(us) = us {
                write!(f, "; {what} {:.1} ms, at most {:.1} ms", millis(us), millis(most))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measure_is_shown_with_its_bound_and_a_reason_that_has_passed_as_such() {
        let pace = |reason, lock_wait_us| Paced {
            rows_per_second: 500,
            reason,
            lock_wait_us,
            lag_us: Some(2_000),
            latency_max_us: 20_000,
            lag_max_us: 10_000_000,
            ..Paced::default()
        };
        let lag = "replication lag 2.0 ms, at most 10000.0 ms";
        for (paced, said) in [
            (pace(None, None), "500 rows/s"),
            (
                pace(Some(Sign::LockWaits), Some(30_000)),
                "500 rows/s, less because of lock waits; lock waits 30.0 ms, at most 20.0 ms",
            ),
            (
                pace(Some(Sign::LockWaits), Some(0)),
                "500 rows/s, less because of lock waits before the last measurement; lock waits 0.0 ms, at \
                 most 20.0 ms",
            ),
        ] {
            assert_eq!(paced.to_string(), format!("{said}; {lag}"));
        }
    }
}
