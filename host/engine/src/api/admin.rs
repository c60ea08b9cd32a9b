//! The admin API, used by `besom top` to observe and control the deployment.
//!
//! | method | path | body | |
//! | --- | --- | --- | --- |
//! | GET | /v1/snapshot | | the state of the deployment |
//! | GET | /v1/watch | | the same, then the changes: one line of JSON each, until one side closes |
//! | GET | /metrics | | metrics in Prometheus' text format |
//! | POST | /v1/ask | a question | its answer |
//! | POST | /v1/act | `{"action": .., "reason": ..}` | the result |
//!
//! The JSON types are those of [`besom_snapshot`] and [`besom_core::command`]. A caller on
//! the Unix socket is identified by the operating system, a caller over TCP by the token. A request
//! with the header `Besom-Readonly: 1` cannot change anything; `besom top --readonly` sends it with
//! every request.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use besom_core::command::Action;
use besom_snapshot::{Answer, Frame, Query, Snapshot, diff};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use super::tokens::Standing;
use super::{Peer, Rights};
use crate::gather::Gatherer;
use crate::gather::answer::Caller;

/// Maximum size of a request body, which contains an edited value and a reason.
const BODY_BYTES_MAX: usize = 1 << 20;
/// How often a watcher receives a line even if nothing has changed, so that it knows the age of
/// what it shows.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long the first snapshot may take.
const FIRST_MAX: Duration = Duration::from_secs(15);
/// The header with which a caller waives its right to make changes.
pub const READONLY: &str = "besom-readonly";

/// The body of a request to act.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The requested action.
    pub action: Action,
    /// The reason, which is recorded with the action.
    #[serde(default)]
    pub reason: String,
}

/// Observes and controls the deployment.
#[async_trait]
pub trait Source: Send + Sync {
    /// Starts observing until the receiver is dropped. A value that is already present may be
    /// outdated and counts as seen; `None`: there is none yet.
    fn look(&self) -> watch::Receiver<Option<Arc<Snapshot>>>;

    /// Answers a question.
    async fn answer(&self, caller: &Caller, query: Query) -> Answer;

    /// Performs an action on behalf of the caller.
    async fn act(&self, caller: &Caller, action: Action, reason: &str) -> Answer;
}

#[async_trait]
impl Source for Gatherer {
    fn look(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        Gatherer::look(self)
    }

    async fn answer(&self, caller: &Caller, query: Query) -> Answer {
        Gatherer::answer(self, caller, query).await
    }

    async fn act(&self, caller: &Caller, action: Action, reason: &str) -> Answer {
        Gatherer::act(self, caller, action, reason).await
    }
}

/// The parts of the API.
#[derive(Clone)]
pub struct Admin {
    /// The source of snapshots and answers.
    pub source: Arc<dyn Source>,
    /// Whether all callers are read-only.
    pub readonly: bool,
    /// Becomes true when the host stops.
    pub stopping: watch::Receiver<bool>,
}

/// The routes of the API.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/v1/snapshot", get(snapshot))
        .route("/v1/watch", get(look))
        .route("/metrics", get(metrics))
        .route("/v1/ask", post(ask))
        .route("/v1/act", post(act))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(admin))
}

impl FromRequestParts<Arc<Admin>> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Caller, Response> {
        let gives_up = parts.headers.get(READONLY).is_some_and(|value| value != "0");
        let bearer = parts.extensions.get::<Standing>().map(|standing| standing.bearer().clone());
        let rights = bearer.as_ref().map_or(Rights::All, |bearer| bearer.rights);
        let ConnectInfo(peer) = ConnectInfo::<Peer>::from_request_parts(parts, admin)
            .await
            .map_err(IntoResponse::into_response)?;
        let by = match peer {
            Peer::Local(Some(uid)) => user(uid),
            Peer::Local(None) => "an unknown local user".to_owned(),
            Peer::Remote(address) => match bearer.and_then(|bearer| bearer.name) {
                Some(name) => format!("{name} (by token, {})", address.ip()),
                None => format!("{} (by token)", address.ip()),
            },
        };
        let readonly = admin.readonly || gives_up || rights == Rights::Look;
        Ok(Caller { by, readonly })
    }
}

/// A user of this machine: the name if known, and the number.
pub fn user(uid: u32) -> String {
    match uzers::get_user_by_uid(uid) {
        Some(user) => format!("{} (uid {uid})", user.name().to_string_lossy()),
        None => format!("uid {uid}"),
    }
}

async fn snapshot(State(admin): State<Arc<Admin>>, caller: Caller) -> Response {
    match latest(&admin).await {
        Some(latest) => Json(seen(&latest, &caller)).into_response(),
        None => away(),
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    match latest(&admin).await {
        Some(latest) => {
            let kind = besom_snapshot::metrics::CONTENT_TYPE;
            let text = besom_snapshot::metrics::metrics(&latest);
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        None => away(),
    }
}

/// A new snapshot; `None`: none has come in time.
async fn latest(admin: &Admin) -> Option<Arc<Snapshot>> {
    // A value that is already present may be outdated: it counts as seen.
    let mut pictures = admin.source.look();
    match tokio::time::timeout(FIRST_MAX, pictures.changed()).await {
        Ok(Ok(())) => pictures.borrow_and_update().clone(),
        Ok(Err(_)) | Err(_) => None,
    }
}

fn away() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "no snapshot is available yet: try again").into_response()
}

/// The snapshot as the caller may see it.
fn seen(latest: &Snapshot, caller: &Caller) -> Snapshot {
    Snapshot { readonly: caller.readonly, ..latest.clone() }
}

async fn look(
    State(admin): State<Arc<Admin>>,
    caller: Caller,
    standing: Option<Extension<Standing>>,
) -> Response {
    let pictures = admin.source.look();
    let stopping = admin.stopping.clone();
    let standing = standing.map(|Extension(standing)| standing);
    let told = Told { pictures, last: None, spoke: Instant::now(), caller, standing, stopping };
    let lines = futures::stream::unfold(told, |mut told| async move {
        let frame = told.next().await?;
        told.spoke = Instant::now();
        // A snapshot contains only what JSON can represent.
        let mut line = serde_json::to_vec(&frame).ok()?;
        line.push(b'\n');
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line)), told))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// The state that a watcher has received.
struct Told {
    pictures: watch::Receiver<Option<Arc<Snapshot>>>,
    last: Option<Snapshot>,
    spoke: Instant,
    caller: Caller,
    /// The token of a watcher over TCP.
    standing: Option<Standing>,
    stopping: watch::Receiver<bool>,
}

impl Told {
    /// The next line; `None`: the host is stopping, or the token was revoked. A slow reader receives
    /// fewer lines.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let quiet = tokio::select! {
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                changed = self.pictures.changed() => {
                    changed.ok()?;
                    false
                }
                () = tokio::time::sleep_until(self.spoke + HEARTBEAT), if self.last.is_some() => true,
            };
            if self.standing.as_ref().is_some_and(|standing| !standing.holds()) {
                return None;
            }
            if quiet {
                return self.last.as_ref().map(|last| Frame::At(last.at));
            }
            let Some(latest) = self.pictures.borrow_and_update().clone() else { continue };
            let now = seen(&latest, &self.caller);
            let Some(last) = &mut self.last else {
                self.last = Some(now.clone());
                return Some(Frame::Whole(Box::new(now)));
            };
            let patch = diff(last, &now);
            *last = now;
            if let Some(patch) = patch {
                return Some(Frame::Patch(Box::new(patch)));
            }
        }
    }
}

async fn ask(
    State(admin): State<Arc<Admin>>,
    caller: Caller,
    Json(query): Json<Query>,
) -> Json<Answer> {
    Json(admin.source.answer(&caller, query).await)
}

async fn act(
    State(admin): State<Arc<Admin>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Response {
    let status = if caller.readonly { StatusCode::FORBIDDEN } else { StatusCode::OK };
    let answer = admin.source.act(&caller, request.action, &request.reason).await;
    (status, Json(answer)).into_response()
}
