//! The cost of an idle host: a million shares end in the future, and the shipped schedules run. The
//! real process, `besom serve`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use besom_tests::measured::memory_kib;

use super::report::Figures;
use super::{lateness, place};

/// How long it is watched.
const WATCHED: Duration = Duration::from_secs(60);
/// How long it may take until it leads and has worked off its first runs.
const SETTLE: Duration = Duration::from_secs(90);

/// CPU and memory, with the four tasks and with share-expiry alone.
pub async fn run() -> Result<()> {
    let shares = lateness::PENDING;
    let place = place::Place::new(&place::shipped()).await?;
    lateness::prepare(&place, None).await?;
    let mut serving = Serving::start(&place.config())?;
    serving.settle().await?;
    let (cpu, began) = (serving.cpu()?, std::time::Instant::now());
    tokio::time::sleep(WATCHED).await;
    let used = serving.cpu()? - cpu;
    Figures::of("idle", format!("{shares} future shares, shipped schedules"))
        .with("cpu_ms_per_min", used * 60_000.0 / began.elapsed().as_secs_f64())
        .with("cpu_percent", used / began.elapsed().as_secs_f64() * 100.0)
        .with("rss_mib", serving.memory_kib("VmRSS")? / 1_024.0)
        .with("peak_rss_mib", serving.memory_kib("VmHWM")? / 1_024.0)
        .show();
    Ok(())
}

/// The real binary, beside this one.
pub fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let built = here.parent().and_then(|deps| deps.parent()).context("no target directory")?;
    let binary = built.join("besom");
    if !binary.exists() {
        bail!("{}: build it with `cargo build --release -p besom`", binary.display());
    }
    Ok(binary)
}

/// A host as a process.
pub struct Serving(Child);

impl Serving {
    /// Starts it and waits until it leads.
    pub fn start(config: &Path) -> Result<Serving> {
        let child = Command::new(binary()?)
            .arg("--config")
            .arg(config)
            .args(["--log", "info", "serve"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut serving = Serving(child);
        let log = BufReader::new(serving.0.stderr.take().context("no stderr")?);
        let mut said = String::new();
        let mut lines = log.lines();
        loop {
            let Some(line) = lines.next().transpose()? else { bail!("the host ended:\n{said}") };
            said.push_str(&line);
            said.push('\n');
            if line.contains("Leading") {
                break;
            }
        }
        // Somebody has to go on reading, or the host blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(serving)
    }

    /// Waits until a whole second has passed with hardly any work.
    async fn settle(&mut self) -> Result<()> {
        let began = std::time::Instant::now();
        loop {
            let before = self.cpu()?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.cpu()? - before <= 0.02 {
                return Ok(());
            }
            if began.elapsed() > SETTLE {
                bail!("the host does not come to rest");
            }
        }
    }

    /// Seconds of user and system time so far.
    pub fn cpu(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let after = stat.rsplit_once(')').context("/proc/PID/stat")?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        // USER_HZ is 100 on every Linux that Rust runs on.
        Ok(ticks as f64 / 100.0)
    }

    fn memory_kib(&self, key: &str) -> Result<f64> {
        Ok(memory_kib(self.0.id(), key).map_err(anyhow::Error::msg)? as f64)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
