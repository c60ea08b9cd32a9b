//! Life in the demo while it runs: a product that goes on working beside Besom.
//!
//! This module decides how often something happens; the files beside it decide what. It writes as
//! a product does, through the store and the activity, and knows no task. Every beat:
//!
//! ```text
//! documents   edits, most of them to one; now and then a wave over many
//! damaged     a document that nobody can compact
//! visitors    clients that will soon have been silent for too long
//! links       shares that end within a minute and a half
//! rooms       workspaces that people enter and leave
//! ```
//!
//! Bounded: names are drawn from fixed lists, so that rows are written over instead of added, and
//! a document that has grown enough begins anew. A write that is refused is logged and tried
//! again where it matters; life never fails what it lives in.

mod damaged;
mod documents;
mod links;
mod rooms;
mod rows;
mod visitors;

use std::sync::Arc;
use std::time::Duration;

use besom_core::time::Time;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

pub use damaged::DAMAGED_MAX;

use crate::host::clock;
use crate::ports::activity::Activity;
use crate::ports::store::Store;

/// The time between two beats.
const BEAT: Duration = Duration::from_secs(1);

/// Beats between two shares.
const LINK_EVERY: u64 = 2;

/// Beats between two visits to a workspace, or departures from one.
const ROOM_EVERY: u64 = 3;

/// Beats between two clients.
const VISITOR_EVERY: u64 = 7;

/// Beats between two damaged documents, and before the first.
const DAMAGE_EVERY: u64 = 40;
const DAMAGE_FIRST: u64 = 10;

/// Beats between two waves of edits, and before the first.
const WAVE_EVERY: u64 = 120;
const WAVE_FIRST: u64 = 25;

/// Where there is life.
pub struct World {
    /// What is written to.
    pub store: Arc<dyn Store>,
    /// Where connections are reported.
    pub activity: Arc<dyn Activity>,
    /// Is told of each connection, as the activity endpoint tells who wakes workspaces.
    pub connected: Box<dyn Fn(&str) + Send + Sync>,
}

/// Everybody who works on the demo.
pub struct Life {
    world: World,
    rng: StdRng,
    beat: u64,
    documents: documents::Documents,
    damaged: damaged::Damaged,
    visitors: visitors::Visitors,
    links: links::Links,
    rooms: rooms::Rooms,
}

impl Life {
    /// Nobody has done anything yet. What is drawn follows from the seed; a demo that is taken
    /// up again needs another one, as its authors are others.
    pub fn new(world: World, seed: u64) -> Life {
        Life {
            world,
            rng: StdRng::seed_from_u64(seed),
            beat: 0,
            documents: documents::Documents::default(),
            damaged: damaged::Damaged::default(),
            visitors: visitors::Visitors::default(),
            links: links::Links::default(),
            rooms: rooms::Rooms::default(),
        }
    }

    /// What happens in one beat. `now` is the product's clock.
    pub async fn beat(&mut self, now: Time) {
        let Life { world, rng, beat, documents, damaged, visitors, links, rooms } = self;
        let due = |every: u64, first: u64| *beat >= first && (*beat - first).is_multiple_of(every);
        if due(WAVE_EVERY, WAVE_FIRST) {
            documents.begin_wave();
        }
        refused("documents", documents.edit(world, now, rng).await);
        if due(DAMAGE_EVERY, DAMAGE_FIRST) {
            refused("a damaged document", damaged.add(world, now).await);
        }
        if due(VISITOR_EVERY, 0) {
            refused("a client", visitors.come(world, documents, now, rng).await);
        }
        if due(LINK_EVERY, 0) {
            refused("a share", links.add(world, now, rng).await);
        }
        refused("workspaces", rooms.stay(world, now).await);
        if due(ROOM_EVERY, 0) {
            refused("a connection", rooms.visit(world, rng).await);
        }
        *beat += 1;
    }

    /// Goes on until it is dropped.
    pub fn begin(mut self) -> Living {
        Living(tokio::spawn(async move {
            let mut beats = tokio::time::interval(BEAT);
            // A machine that slept has missed them.
            beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                beats.tick().await;
                self.beat(clock::wall()).await;
            }
        }))
    }
}

/// Life that goes on; it ends when this is dropped.
pub struct Living(JoinHandle<()>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says what was not written. The store may be away, or somebody was faster.
fn refused(what: &str, done: anyhow::Result<()>) {
    if let Err(error) = done {
        tracing::info!("the demo's product could not write {what} now: {error:#}");
    }
}
