//! The processor time and memory of a process, as the system counts them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use besom_tests::measured::memory_kib;

/// Ticks in a second: USER_HZ is 100 on every Linux that Rust runs on.
const TICKS: u32 = 100;

/// A process that runs.
pub struct Process(pub u32);

impl Process {
    /// User and system time so far, all threads together.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        let after = stat.rsplit_once(')').context("/proc/PID/stat")?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let field = |place: usize| fields.get(place).context("/proc/PID/stat");
        let ticks: u32 = field(11)?.parse::<u32>()? + field(12)?.parse::<u32>()?;
        Ok(Duration::from_secs(1) * ticks / TICKS)
    }

    /// A figure of its memory, by its name in `/proc/PID/status`.
    pub fn memory_kib(&self, key: &str) -> Result<f64> {
        Ok(memory_kib(self.0, key).map_err(anyhow::Error::msg)? as f64)
    }
}
