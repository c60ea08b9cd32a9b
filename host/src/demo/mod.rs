//! The demo: a directory with a database that has something to sweep.
//!
//! This module decides what `besom demo` puts into a directory and what it says about it
//! afterwards. It does not run tasks and names no adapter: whoever wires it opens the store and
//! runs the pass of `besom run`, or the host.
//!
//! ```text
//! import::replay(traces) ──> Place::claim(dir) ──> open place.database() ──> prepare(..)
//!   a bad trace leaves         empty or a demo       the caller                 rows, besom.toml
//!   nothing behind                                                                │
//!                summary(store, before, after) <── measure <── tasks <── measure <┘
//! ```
//!
//! A directory that is a demo already is taken up as it is; traces that it lacks are added.
//! After [`prepare`], [`seed::use_workspaces`] tells the activity what goes on in the
//! workspaces; those it is told nothing about are unknown, and stay as they are. A demo that goes
//! on has an [`orchestrator`] to call, and [`life`].

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

use crate::ports::store::Store;

/// What has been put into the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// What was seeded; none: the demo was there already.
    pub seeded: Option<seed::Seeded>,
    /// What became of the traces, in their order.
    pub imported: Vec<import::Imported>,
}

/// Fills the store of a claimed directory and writes its configuration last. `now` is the
/// instant that everything in the demo is relative to; `progress` is told what is done.
pub async fn prepare(
    place: &Place,
    store: Arc<dyn Store>,
    traces: &[import::Replayed],
    now: Time,
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Prepared> {
    let seeded = match place.is_unfinished() {
        true => Some(seed::fill(Arc::clone(&store), now, progress).await?),
        false => None,
    };
    let imported = import::write(&store, traces, now, progress).await?;
    place.finish(&config::text())?;
    Ok(Prepared { seeded, imported })
}

#[cfg(test)]
mod tests;
