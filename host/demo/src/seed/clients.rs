//! The clients of a tenant: active, stale, and deactivated long ago.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use rand::Rng;
use rand::rngs::StdRng;

use crate::rows::{Writer, at, text};

/// Number of clients per tenant.
const CLIENTS: u32 = 24;

/// One day, in seconds: a client that was active within it is not stale.
const DAY_S: u64 = 86_400;

/// A client of a tenant.
pub(super) struct Client {
    pub(super) id: String,
    pub(super) state: State,
    /// When it was last active.
    pub(super) updated_at: Time,
}

/// The state of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Activated, and active within a day.
    Fresh,
    /// Activated, and silent for longer.
    Stale,
    /// Deactivated long ago.
    Deactivated,
}

/// The clients of a tenant: of eight, four are active, three are stale, and one is deactivated.
pub(super) fn of(tenant: &Tenant, now: Time, rng: &mut StdRng) -> Vec<Client> {
    (0..CLIENTS)
        .map(|number| {
            let (state, silent_s) = match number % 8 {
                0..4 => (State::Fresh, rng.random_range(0..DAY_S * 23 / 24)),
                4..7 => (State::Stale, rng.random_range(DAY_S * 25 / 24..20 * DAY_S)),
                _ => (State::Deactivated, rng.random_range(30 * DAY_S..60 * DAY_S)),
            };
            let updated_at = now - Duration::from_secs(silent_s);
            Client { id: format!("{tenant}-client-{number:02}"), state, updated_at }
        })
        .collect()
}

/// Writes the clients and returns their number.
pub(super) async fn write(
    tenant: &Tenant,
    clients: &[Client],
    writer: &mut Writer,
) -> anyhow::Result<u64> {
    for client in clients {
        let status = match client.state {
            State::Fresh | State::Stale => "activated",
            State::Deactivated => "deactivated",
        };
        let row = [
            ("client_id", text(&client.id)),
            ("status", text(status)),
            ("updated_at", at(client.updated_at)),
        ];
        writer.row(tenant, "clients", row).await?;
    }
    Ok(clients.len() as u64)
}
