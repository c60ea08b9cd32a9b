//! What the engine costs, each figure beside its limit measured in the same run: a bare
//! SQLite or PostgreSQL of the same settings, the same decision called natively, an empty commit.
//!
//! `cargo bench -p besom-tests --bench engine [-- NAME...]`; without a name all of them run,
//! which takes several minutes. Run `cargo plugins` first, and `cargo build --release -p besom`
//! for `idle`, `beside`, `delivery`, `sweep` and `undo`. Every figure is one line for a person and one line of JSON on stdout.

mod bare;
mod beside;
mod compaction;
mod delivery;
mod idle;
mod lateness;
mod pgqueue;
mod place;
mod plain;
mod queue;
mod report;
mod scan;
mod server_cpu;
mod steps;
mod sweep;
mod tasks;
mod undo;

use anyhow::{Result, bail};

const NAMES: [&str; 12] = [
    "steps",
    "queue",
    "pgqueue",
    "tasks",
    "compaction",
    "scan",
    "lateness",
    "idle",
    "beside",
    "delivery",
    "sweep",
    "undo",
];

fn main() -> Result<()> {
    // `cargo bench` adds `--bench`, `cargo test --benches` nothing: then only the build counts.
    let named: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(unknown) = named.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("there is no benchmark `{unknown}`; there are {}", NAMES.join(", "));
    }
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let returned = lateness::listen();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        for name in NAMES {
            if !named.is_empty() && !named.iter().any(|wanted| wanted == name) {
                continue;
            }
            match name {
                "steps" => steps::run().await?,
                "queue" => queue::run().await?,
                "pgqueue" => pgqueue::run().await?,
                "tasks" => tasks::run().await?,
                "compaction" => compaction::run().await?,
                "scan" => scan::run().await?,
                "lateness" => lateness::run(&returned).await?,
                "idle" => idle::run().await?,
                "beside" => beside::run().await?,
                "delivery" => delivery::run().await?,
                "sweep" => sweep::run().await?,
                _ => undo::run().await?,
            }
        }
        Ok(())
    })
}
