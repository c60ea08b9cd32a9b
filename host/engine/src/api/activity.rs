//! `POST /activity/{id}/connect|disconnect|heartbeat`, `GET /activity/{id}` and the WebSocket `GET
//! /activity/{id}/ws`.
//!
//! A report names its connection (`?connection=tab-1`, or `{"connection": "tab-1"}` as the body).
//! Repeated reports of one connection count once, and a connection without heartbeats expires.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::answers::{self, later, refuse};
use super::tokens::{Standing, Ticket};
use super::websocket::Reporter;
use super::{CLOSE_MAX, websocket};
use besom_ports::activity::Activity;

/// Maximum length of an id and of a connection's name, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// Maximum size of a body, in bytes.
const BODY_BYTES_MAX: usize = 4 * 1024;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Report {
    connection: Option<String>,
}

/// Called for every opened connection, in addition to recording the activity. It must return
/// immediately.
pub type Connected = Box<dyn Fn(&str) + Send + Sync>;

/// The state of the endpoint.
pub struct Endpoint {
    pub(super) activity: Arc<dyn Activity>,
    /// How long a WebSocket may be silent.
    pub(super) heartbeat: Duration,
    /// Becomes true when the host stops.
    pub(super) stopping: watch::Receiver<bool>,
    connected: Option<Connected>,
    sockets: Arc<Semaphore>,
    bounds: Sockets,
    /// The number of open WebSockets by the ticket that opened them.
    by_ticket: Mutex<HashMap<Ticket, u32>>,
}

/// The maximum number of WebSockets open at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sockets {
    /// In total.
    pub all: u32,
    /// With the same ticket.
    pub per_ticket: u32,
}

/// A reserved place for a WebSocket, released when it is dropped.
pub(super) struct Place {
    endpoint: Arc<Endpoint>,
    ticket: Option<Ticket>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        let mut open = self.endpoint.by_ticket();
        match open.get_mut(ticket) {
            Some(count @ 2..) => *count -= 1,
            _ => drop(open.remove(ticket)),
        }
    }
}

impl Endpoint {
    /// Creates an endpoint over an activity service. The number of WebSockets is bounded by
    /// `sockets`, and each must respond within `heartbeat`. `connected` is called for every
    /// connection.
    pub fn new(
        activity: Arc<dyn Activity>,
        heartbeat: Duration,
        bounds: Sockets,
        connected: Option<Connected>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Endpoint> {
        let sockets = Arc::new(Semaphore::new(bounds.all as usize));
        let by_ticket = Mutex::default();
        Arc::new(Endpoint { activity, heartbeat, stopping, connected, sockets, bounds, by_ticket })
    }

    /// Waits until every WebSocket is closed, at most [`CLOSE_MAX`].
    pub async fn closed(&self) {
        let all = self.sockets.acquire_many(self.bounds.all);
        if tokio::time::timeout(CLOSE_MAX, all).await.is_err() {
            tracing::warn!("some WebSockets did not receive their close frame");
        }
    }

    fn by_ticket(&self) -> MutexGuard<'_, HashMap<Ticket, u32>> {
        self.by_ticket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a place for one more WebSocket.
    ///
    /// # Errors
    /// The limit that is reached.
    fn place(self: &Arc<Self>, ticket: Option<Ticket>) -> Result<Place, String> {
        let Sockets { all, per_ticket } = self.bounds;
        let permit = Arc::clone(&self.sockets).try_acquire_owned();
        let permit =
            permit.map_err(|_| format!("the limit of {all} open WebSockets is reached"))?;
        if let Some(ticket) = &ticket {
            let mut open = self.by_ticket();
            let count = open.entry(ticket.clone()).or_default();
            if *count >= per_ticket {
                return Err(format!(
                    "the limit of {per_ticket} open WebSockets per ticket is reached"
                ));
            }
            *count += 1;
        }
        Ok(Place { endpoint: Arc::clone(self), ticket, _permit: permit })
    }

    pub(super) fn connected(&self, id: &str) {
        if let Some(connected) = &self.connected {
            connected(id);
        }
    }
}

/// The routes of the endpoint.
pub fn router(endpoint: Arc<Endpoint>) -> Router {
    Router::new()
        .route("/activity/{id}/ws", get(socket))
        .route("/activity/{id}/{what}", post(report))
        .route("/activity/{id}", get(state))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(endpoint)
}

async fn socket(
    State(endpoint): State<Arc<Endpoint>>,
    Path(id): Path<String>,
    query: Result<Query<Report>, QueryRejection>,
    ticket: Option<Extension<Ticket>>,
    standing: Option<Extension<Standing>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Response> {
    let Query(Report { connection: name }) = query.map_err(invalid_query)?;
    check(&id).and_then(|()| name.as_deref().map_or(Ok(()), check)).map_err(refuse)?;
    let upgrade =
        upgrade.map_err(|error| refuse(format!("this path only accepts WebSockets: {error}")))?;
    let place = endpoint.place(ticket.map(|Extension(ticket)| ticket));
    let place = place.map_err(|words| later(&words))?;
    let standing = standing.map(|Extension(standing)| standing);
    Ok(websocket::accept(upgrade, Reporter::new(endpoint, id, standing), name, place))
}

async fn report(
    State(endpoint): State<Arc<Endpoint>>,
    Path((id, what)): Path<(String, String)>,
    query: Result<Query<Report>, QueryRejection>,
    body: Bytes,
) -> Result<StatusCode, Response> {
    let Query(query) = query.map_err(invalid_query)?;
    let body: Report = match body.is_empty() {
        true => Report::default(),
        false => serde_json::from_slice(&body).map_err(|error| {
            refuse(format!("invalid body: {error}; send {{\"connection\": \"...\"}}"))
        })?,
    };
    let connection = query.connection.or(body.connection).filter(|name| !name.is_empty());
    let connection = connection.ok_or_else(|| {
        refuse("no connection given: send ?connection=... or {\"connection\": \"...\"}")
    })?;
    check(&id).and_then(|()| check(&connection)).map_err(refuse)?;
    let activity = &endpoint.activity;
    let done = match what.as_str() {
        "connect" => {
            endpoint.connected(&id);
            activity.connect(&id, &connection).await
        }
        "disconnect" => activity.disconnect(&id, &connection).await,
        "heartbeat" => activity.heartbeat(&id, &connection).await,
        _ => {
            let words = "unknown report: use connect, disconnect or heartbeat";
            return Err(answers::with(StatusCode::NOT_FOUND, words));
        }
    };
    done.map_err(away)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn state(
    State(endpoint): State<Arc<Endpoint>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Response> {
    let states = endpoint.activity.states(std::slice::from_ref(&id)).await.map_err(away)?;
    Ok(Json(json!({ "id": id, "state": states.first() })))
}

/// Refuses an id, or the name of a connection that cannot be recorded in every store.
fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("an id or connection is empty".into());
    }
    if name.contains('\0') {
        return Err("an id or connection contains a NUL".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("an id or connection has at most {NAME_BYTES_MAX} bytes"));
    }
    Ok(())
}

fn invalid_query(error: QueryRejection) -> Response {
    refuse(format!("invalid query: {error}"))
}

fn away(error: besom_ports::activity::Error) -> Response {
    tracing::warn!(%error, "an activity report could not be recorded");
    later(&error.to_string())
}
