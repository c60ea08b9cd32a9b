//! The simulated product that keeps working beside Besom while the demo runs.
//!
//! This module decides how often something happens; its submodules decide what. It writes as a
//! product does, with SQL of its own and through the activity, and does not know the tasks. The activities:
//!
//! ```text
//! documents   edits, most of them to one document; occasionally a wave over many
//! damaged     documents that cannot be compacted
//! visitors    clients that will soon have been silent for too long
//! links       shares that end within a minute and a half
//! rooms       workspaces that users enter and leave
//! ```
//!
//! The amount of data is bounded: names are drawn from fixed lists, so that rows are overwritten
//! instead of added, and a document that has reached its maximum size is restarted. A failed write
//! is logged and retried if necessary; it never ends the host.

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

use besom_engine::host::clock;
use besom_ports::activity::Activity;
use besom_ports::store::Store;
use besom_product::model::product::Product;

/// The time between two beats.
const BEAT: Duration = Duration::from_secs(1);

/// Number of beats between two shares.
const LINK_EVERY: u64 = 2;

/// Number of beats between two visits to a workspace, or departures from one.
const ROOM_EVERY: u64 = 3;

/// Number of beats between two clients.
const VISITOR_EVERY: u64 = 7;

/// Number of beats between two damaged documents, and before the first.
const DAMAGE_EVERY: u64 = 40;
const DAMAGE_FIRST: u64 = 10;

/// Number of beats between two waves of edits, and before the first.
const WAVE_EVERY: u64 = 120;
const WAVE_FIRST: u64 = 25;

/// What the simulated product works with.
pub struct World {
    /// The database, for reading.
    pub store: Arc<dyn Store>,
    /// The product's own writes.
    pub product: Product,
    /// The activity service, to which connections are reported.
    pub activity: Arc<dyn Activity>,
    /// Called for each connection, as the activity endpoint does to wake workspaces.
    pub connected: Box<dyn Fn(&str) + Send + Sync>,
}

/// The simulated users and clients.
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
    /// Creates the simulation. All random choices follow from the seed; a demo that is continued
    /// needs another seed, because its authors are different.
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

    /// Performs one beat. `now` is the product's clock.
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

    /// Runs until the result is dropped.
    pub fn begin(mut self) -> Living {
        Living(tokio::spawn(async move {
            let mut beats = tokio::time::interval(BEAT);
            // Beats that passed while the machine was suspended are skipped.
            beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                beats.tick().await;
                self.beat(clock::wall()).await;
            }
        }))
    }
}

/// A running simulation, which ends when this is dropped.
pub struct Living(JoinHandle<()>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Logs a failed write. The store may be unavailable, or another writer was faster.
fn refused(what: &str, done: anyhow::Result<()>) {
    if let Err(error) = done {
        tracing::info!("the demo's simulated product could not write {what}: {error:#}");
    }
}
