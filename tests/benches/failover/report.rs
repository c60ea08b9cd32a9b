//! Prints figures: one line of text and one line of JSON.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

/// One quantity, measured in each round; seconds.
#[derive(Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds a round's.
    pub fn add(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    fn summary(&self) -> Value {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1) as f64;
            let value = sorted.get((last * share).round() as usize).copied();
            value.map(|seconds| (seconds * 1_000.0).round() / 1_000.0)
        };
        json!({
            "n": sorted.len(), "min_s": at(0.0), "p50_s": at(0.5), "max_s": at(1.0),
            "rounds_s": self.0,
        })
    }
}

/// Shows the quantities of a case, the limit among them.
pub fn show(case: &str, all: &[(&str, &Series)]) {
    let mut line = Map::new();
    line.insert("bench".into(), "failover".into());
    line.insert("case".into(), case.into());
    for (name, series) in all {
        let summary = series.summary();
        say(&format!(
            "{case:<28} {name:<46} n {:>3}  p50 {:>7} s  max {:>7} s",
            summary["n"], summary["p50_s"], summary["max_s"]
        ));
        line.insert((*name).into(), summary);
    }
    say(&Value::Object(line).to_string());
}

/// Shows what runs, and how.
pub fn run(binary: &Path) -> Result<()> {
    let version = Command::new(binary).arg("--version").output().context("the binary")?;
    ensure!(version.status.success(), "{}: --version fails", binary.display());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    say(&format!(
        "hosts: {}, {} ({} bytes); {processors} processors, load {}",
        binary.display(),
        String::from_utf8_lossy(&version.stdout).trim(),
        std::fs::metadata(binary)?.len(),
        load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    ));
    Ok(())
}

/// Shows what a lookup in the ring costs, as the binary itself measures it.
pub fn ring(binary: &Path) -> Result<()> {
    let out = Command::new(binary).args(["ring", "simulate", "--output", "json"]).output()?;
    ensure!(out.status.success(), "ring simulate: {}", String::from_utf8_lossy(&out.stderr));
    let found: Value = serde_json::from_slice(&out.stdout).context("ring simulate")?;
    for cost in found["lookup"].as_array().context("no lookups")? {
        let case = format!("{} with {} virtual nodes", cost["mode"], cost["vnodes"]);
        say(&format!("ring lookup                  {case:<44} {} ns", cost["nanoseconds"]));
    }
    say(&json!({"bench": "failover", "case": "ring", "lookup": found["lookup"]}).to_string());
    Ok(())
}

/// A line of the result.
#[expect(clippy::print_stdout, reason = "the one place where a benchmark prints")]
pub fn say(line: &str) {
    println!("{line}");
}
