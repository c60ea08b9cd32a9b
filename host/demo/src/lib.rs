//! The demo: a directory with a database that contains data to clean up.
//!
//! This module decides what `besom demo` writes into a directory and what it reports afterwards. It
//! does not run tasks and names no adapter: the caller opens the store and runs the pass of `besom
//! run`, or the host.
//!
//! ```text
//! import::replay(traces) ──> Place::claim(dir) ──> open place.database() ──> prepare(..)
//!   a bad trace leaves         empty or a demo       the caller                 rows, besom.toml
//!   nothing behind                                                                │
//!                summary(store, before, after) <── measure <── tasks <── measure <┘
//! ```
//!
//! An existing demo directory is reused unchanged; only missing traces are added. After
//! [`prepare`], [`seed::use_workspaces`] reports the use of the workspaces to the activity service;
//! the others are unknown and remain unchanged. A demo that keeps running has an [`orchestrator`]
//! to call, and [`life`].

pub mod authors;
pub mod cluster;
mod config;
mod document;
pub mod import;
pub mod life;
pub mod log;
pub mod orchestrator;
pub mod place;
mod rows;
pub mod seed;
pub mod summary;
pub mod table;
pub mod trace;

use std::sync::Arc;

use besom_core::time::Time;
use serde::Serialize;

pub use place::Place;
pub use summary::{Summary, summary};
pub use table::{Measured, measure, table};

use besom_ports::embedded::Scripts;
use besom_ports::store::Store;

/// What was written into the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// The seeded data; `None`: the demo already existed.
    pub seeded: Option<seed::Seeded>,
    /// The results for the traces, in order.
    pub imported: Vec<import::Imported>,
}

/// Fills the store of a claimed directory, which `scripts` reaches as well, and writes its
/// configuration last. All times in the demo are relative to `now`; `progress` receives progress messages.
pub async fn prepare(
    place: &Place,
    store: &dyn Store,
    scripts: Arc<dyn Scripts>,
    traces: &[import::Replayed],
    now: Time,
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Prepared> {
    let seeded = match place.is_unfinished() {
        true => Some(seed::fill(Arc::clone(&scripts), now, progress).await?),
        false => None,
    };
    let imported = import::write(store, scripts, traces, now, progress).await?;
    place.finish(&config::text())?;
    Ok(Prepared { seeded, imported })
}

#[cfg(test)]
mod tests;
