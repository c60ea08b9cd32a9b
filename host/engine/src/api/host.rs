//! `GET /status`: what this host is doing and what it cannot reach. It uses no other service, so it
//! answers even if none of them do.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use besom_core::ids::Incarnation;
use besom_snapshot::Role;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::host::Live;
use crate::host::health::Health;
use besom_ports::store::Missing;

/// The host's own view of its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// This incarnation of the node.
    pub node: Incarnation,
    /// What it does.
    pub state: Role,
    /// The term under which it leads; `None`: it does not lead.
    pub term: Option<u64>,
    /// The services that it cannot reach.
    pub missing: Vec<Missing>,
}

/// The sources of the status.
#[derive(Clone)]
pub struct Host {
    /// This incarnation of the node.
    pub node: Incarnation,
    /// What the node is doing.
    pub live: watch::Receiver<Live>,
    /// The services that cannot be reached.
    pub health: Arc<Health>,
}

/// The routes of the status endpoint.
pub fn router(host: Host) -> Router {
    Router::new().route("/status", get(status)).with_state(host)
}

async fn status(State(host): State<Host>) -> Json<HostStatus> {
    let live = host.live.borrow().clone();
    Json(HostStatus {
        node: host.node.clone(),
        state: live.role,
        term: live.term.map(|term| term.0),
        missing: host.health.missing(),
    })
}
