//! Processor time of a PostgreSQL server, all its processes together: on a busy machine it is more
//! reliable than a rate.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long a tick of `/proc` is: USER_HZ is 100 on every platform of Linux in use.
const MS_PER_TICK: u64 = 10;

/// What the server whose socket lies in the directory of this URL has used so far.
pub fn used(url: &str) -> Result<Duration> {
    let directory = url.split(['?', '&']).find_map(|part| part.strip_prefix("host="));
    let directory = directory.context("the URL names no directory")?;
    let file = fs::read_to_string(format!("{directory}/data/postmaster.pid"))?;
    let postmaster: i32 = file.lines().next().context("an empty file")?.parse()?;
    let (_, own, reaped) = times(postmaster).context("the server has ended")?;
    let mut ticks = own + reaped;
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // One that ends meanwhile is counted by its parent the next time.
        if let Some((parent, own, _)) = pid.and_then(times)
            && parent == postmaster
        {
            ticks += own;
        }
    }
    Ok(Duration::from_millis(ticks * MS_PER_TICK))
}

/// The parent of a process, its own time and that of its children that have ended, in ticks.
fn times(pid: i32) -> Option<(i32, u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: the state, the parent, ...
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.get(1)?.parse().ok()?, ticks(11)? + ticks(12)?, ticks(13)? + ticks(14)?))
}
