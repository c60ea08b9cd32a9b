//! `GET /status`: what this host does and what it cannot reach. It answers when nothing else
//! does, because it asks nobody.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use besom_core::ids::NodeName;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::host::Live;
use crate::host::health::Health;
use crate::ports::store::Missing;

/// A host as it sees itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// This incarnation.
    pub node: NodeName,
    /// `following`, `leading`, `draining`, `stopped`.
    pub state: String,
    /// The term it leads under.
    pub term: Option<u64>,
    /// What it cannot reach.
    pub missing: Vec<Missing>,
}

/// What it is made of.
#[derive(Clone)]
pub struct Host {
    /// This incarnation.
    pub node: NodeName,
    /// What it does.
    pub live: watch::Receiver<Live>,
    /// What it cannot reach.
    pub health: Arc<Health>,
}

/// The endpoint over a host.
pub fn router(host: Host) -> Router {
    Router::new().route("/status", get(status)).with_state(host)
}

async fn status(State(host): State<Host>) -> Json<HostStatus> {
    let live = host.live.borrow().clone();
    Json(HostStatus {
        node: host.node.clone(),
        state: live.role.as_str().to_owned(),
        term: live.term.map(|term| term.0),
        missing: host.health.missing(),
    })
}
