//! Workspaces that users enter and leave.
//!
//! Entering wakes the workspace, as a connection to the activity endpoint does. A workspace without
//! users goes to standby after the idle timeout, and some are archived soon after.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use rand::Rng;
use rand::rngs::StdRng;

use super::World;
use super::rows::insert;
use crate::rows::{at, integer, text};
use crate::seed::TENANTS;

/// Workspaces of each tenant.
const ROOMS: usize = 3;

/// How long the first of them stays in standby before it is archived, in seconds.
const ARCHIVE_SOON_S: u64 = 20;

/// How long the others stay in standby before they are archived, in seconds.
const ARCHIVE_LATE_S: u64 = 30 * 86_400;

/// Not used for decisions, which depend on connections; the value that products ship.
const STANDBY_TTL_S: u64 = 300;

/// The interval of heartbeats: well below the shipped timeout.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The name of the connection.
const CONNECTION: &str = "life";

/// How long a snapshot may be open.
const OPEN_MAX: Duration = Duration::from_secs(10);

struct Room {
    id: String,
    /// When the connection was last reported; `None`: it is closed.
    reported: Option<Time>,
}

/// The workspaces, once they exist.
#[derive(Default)]
pub(super) struct Rooms {
    rooms: Vec<Room>,
}

impl Rooms {
    /// Creates missing workspaces and sends heartbeats for open connections.
    pub(super) async fn stay(&mut self, world: &World, now: Time) -> anyhow::Result<()> {
        if self.rooms.is_empty() {
            self.rooms = furnish(world, now).await?;
        }
        for room in &mut self.rooms {
            if room.reported.is_some_and(|at| now.since(at) >= HEARTBEAT) {
                world.activity.heartbeat(&room.id, CONNECTION).await?;
                room.reported = Some(now);
            }
        }
        Ok(())
    }

    /// A user enters a workspace, or the last user leaves it.
    pub(super) async fn visit(&mut self, world: &World, rng: &mut StdRng) -> anyhow::Result<()> {
        let number = rng.random_range(0..TENANTS.len() * ROOMS);
        let Some(room) = self.rooms.get_mut(number) else { return Ok(()) };
        if room.reported.is_some() {
            world.activity.disconnect(&room.id, CONNECTION).await?;
            room.reported = None;
        } else {
            world.activity.connect(&room.id, CONNECTION).await?;
            (world.connected)(&room.id);
            // The next beat reports it again, and from then on at the regular interval.
            room.reported = Some(Time::EPOCH);
        }
        Ok(())
    }
}

/// Creates the missing workspaces. Existing ones remain in the state to which the tasks have
/// brought them.
async fn furnish(world: &World, now: Time) -> anyhow::Result<Vec<Room>> {
    let (mut rooms, mut changes) = (Vec::new(), Vec::new());
    let view = world.store.snapshot(OPEN_MAX).await?;
    for tenant in TENANTS.map(Tenant::from) {
        for number in 1..=ROOMS {
            let id = format!("{tenant}-room-{number}");
            let key = [vec![text(&id)]];
            let column = ["workspace_id".to_owned()];
            let found = view.get_many(Some(&tenant), "workspaces", &key, &column).await?;
            let archive = if number == 1 { ARCHIVE_SOON_S } else { ARCHIVE_LATE_S };
            let row = [
                ("workspace_id", text(&id)),
                ("status", text("RUNNING")),
                ("operation", text("NONE")),
                ("desired_state", text("RUNNING")),
                ("version", integer(1)),
                ("standby_ttl_seconds", integer(STANDBY_TTL_S)),
                ("archive_ttl_seconds", integer(archive)),
                ("last_access_at", at(now)),
                ("last_manual_change_at", at(now)),
                ("archive_key", Value::Null),
            ];
            if found.iter().all(Option::is_none) {
                changes.push(insert(&tenant, "workspaces", row));
            }
            rooms.push(Room { id, reported: None });
        }
    }
    drop(view);
    if !changes.is_empty() {
        world.product.write(&changes).await?;
    }
    Ok(rooms)
}
