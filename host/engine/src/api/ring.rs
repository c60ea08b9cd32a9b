//! A ring of servers and keys over HTTP.
//!
//! | method | path | body | |
//! | --- | --- | --- | --- |
//! | GET | /ring | | the servers, and how keys are assigned to them |
//! | POST | /ring/server | `{"name", "weight"?, "rehash"?}` | adds a server |
//! | DELETE | /ring/server | `{"name", "rehash"?}` | removes it |
//! | GET | /ring/key/{key} | | its owner, and whether it is stored there |
//! | POST | /ring/key | `{"key"}` | stores it on its owner |
//! | DELETE | /ring/key | `{"key"}` | removes it |
//!
//! The fields of a body may also be given as query parameters. `rehash` moves the stored keys to
//! their owners after the change, and the response counts them. The same routes exist under
//! `/consistenthash`. The ring is in memory: it models servers and does not run them.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use besom_core::ring::{Change, Error, HashName, HashRing, Hasher, NodeName, Placement};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Maximum length of a server's name and of a key, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// Maximum size of a body, in bytes.
const BODY_BYTES_MAX: usize = 4 * 1024;
/// Maximum number of stored keys.
pub const KEYS_MAX: usize = 10_000_000;

type AnyHasher = Box<dyn Hasher + Send + Sync>;

/// A ring and its stored keys, as served.
pub struct ServedRing {
    hash: HashName,
    virtual_nodes: NonZeroU32,
    ring: Mutex<HashRing<AnyHasher>>,
}

impl ServedRing {
    /// Creates an empty ring.
    pub fn new(hash: HashName, placement: Placement, virtual_nodes: NonZeroU32) -> Arc<ServedRing> {
        let ring = Mutex::new(HashRing::new(hash.hasher(), placement, virtual_nodes));
        Arc::new(ServedRing { hash, virtual_nodes, ring })
    }

    fn with<T>(&self, use_ring: impl FnOnce(&mut HashRing<AnyHasher>) -> T) -> T {
        // A panic during a change is a bug; the ring remains usable.
        use_ring(&mut self.ring.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerRequest {
    name: Option<String>,
    weight: Option<NonZeroU32>,
    rehash: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRequest {
    key: Option<String>,
}

/// The routes of the ring.
pub fn router(ring: Arc<ServedRing>) -> Router {
    let paths = Router::new()
        .route("/", get(show))
        .route("/server", post(add_server).delete(remove_server))
        .route("/key", post(add_key).delete(remove_key))
        .route("/key/{key}", get(get_key))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(ring);
    Router::new().nest("/ring", paths.clone()).nest("/consistenthash", paths)
}

async fn show(State(served): State<Arc<ServedRing>>) -> Json<Value> {
    let (placement, servers) = served.with(|ring| {
        let of = |(name, weight, keys): (&NodeName, NonZeroU32, usize)| {
            json!({ "name": name, "weight": weight, "keys": keys })
        };
        (ring.placement(), ring.servers().map(of).collect::<Vec<_>>())
    });
    let (hash, virtual_nodes) = (served.hash, served.virtual_nodes);
    Json(json!({
        "hash": hash, "placement": placement, "virtual_nodes": virtual_nodes, "servers": servers,
    }))
}

async fn add_server(
    State(served): State<Arc<ServedRing>>,
    query: Result<Query<ServerRequest>, QueryRejection>,
    body: Bytes,
) -> Answer {
    change_server(served, query, body, |ring, name, weight, rehash| {
        ring.add_server(name, weight.unwrap_or(NonZeroU32::MIN), rehash)
    })
    .await
}

async fn remove_server(
    State(served): State<Arc<ServedRing>>,
    query: Result<Query<ServerRequest>, QueryRejection>,
    body: Bytes,
) -> Answer {
    change_server(served, query, body, |ring, name, _, rehash| ring.remove_server(name, rehash))
        .await
}

async fn change_server(
    served: Arc<ServedRing>,
    query: Result<Query<ServerRequest>, QueryRejection>,
    body: Bytes,
    change: impl FnOnce(
        &mut HashRing<AnyHasher>,
        NodeName,
        Option<NonZeroU32>,
        bool,
    ) -> Result<Change, Error>
    + Send
    + 'static,
) -> Answer {
    let (query, body) = both(query, &body, r#"{"name": "server_0"}"#)?;
    let name = NodeName::from(name(query.name.or(body.name), "name")?);
    let weight = query.weight.or(body.weight);
    let rehash = query.rehash.or(body.rehash).unwrap_or(false);
    let asked = name.clone();
    // Moving the keys may take seconds.
    let changed = tokio::task::spawn_blocking(move || {
        served.with(|ring| change(ring, asked, weight, rehash).map(|c| (c, ring.servers().count())))
    });
    let changed = changed.await.map_err(|_| {
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the change has failed".to_owned())
    })?;
    let (change, servers) = changed.map_err(|error| {
        let status = match error {
            Error::Exists(_) => StatusCode::CONFLICT,
            Error::Unknown(_) => StatusCode::NOT_FOUND,
            Error::TooMany { .. } => StatusCode::BAD_REQUEST,
        };
        Refusal(status, error.to_string())
    })?;
    Ok(Json(json!({
        "name": name,
        "servers": servers,
        "rehashed": change.rehashed,
        "moved": change.moved,
        "lost": change.lost,
    })))
}

async fn get_key(State(served): State<Arc<ServedRing>>, Path(key): Path<String>) -> Answer {
    let key = name(Some(key), "key")?;
    served.with(|ring| {
        let hash = ring.hasher().hash(key.as_bytes());
        let found = ring.get_key(&key);
        Ok(Json(json!({
            "key": key,
            "hash": hash,
            "server": found.map(|found| found.owner),
            "stored": found.is_some_and(|found| found.stored),
        })))
    })
}

async fn add_key(
    State(served): State<Arc<ServedRing>>,
    query: Result<Query<KeyRequest>, QueryRejection>,
    body: Bytes,
) -> Answer {
    let key = key(query, &body)?;
    served.with(|ring| {
        if ring.servers().map(|(.., keys)| keys).sum::<usize>() >= KEYS_MAX {
            let words = format!("the ring is full: it stores at most {KEYS_MAX} keys");
            return Err(Refusal(StatusCode::INSUFFICIENT_STORAGE, words));
        }
        let server = ring.add_key(&key);
        Ok(Json(json!({ "key": key, "server": server, "stored": server.is_some() })))
    })
}

async fn remove_key(
    State(served): State<Arc<ServedRing>>,
    query: Result<Query<KeyRequest>, QueryRejection>,
    body: Bytes,
) -> Answer {
    let key = key(query, &body)?;
    let removed = served.with(|ring| ring.remove_key(&key));
    Ok(Json(json!({ "key": key, "removed": removed })))
}

fn key(query: Result<Query<KeyRequest>, QueryRejection>, body: &[u8]) -> Result<String, Refusal> {
    let (query, body) = both(query, body, r#"{"key": "..."}"#)?;
    name(query.key.or(body.key), "key")
}

/// Merges the query parameters and the body; either may be empty.
fn both<T: DeserializeOwned + Default>(
    query: Result<Query<T>, QueryRejection>,
    body: &[u8],
    example: &str,
) -> Result<(T, T), Refusal> {
    let bad = |words: String| Refusal(StatusCode::BAD_REQUEST, words);
    let Query(query) = query.map_err(|e| bad(format!("invalid query: {e}")))?;
    if body.is_empty() {
        return Ok((query, T::default()));
    }
    let body = serde_json::from_slice(body)
        .map_err(|e| bad(format!("invalid body: {e}; send {example}")))?;
    Ok((query, body))
}

fn name(said: Option<String>, what: &str) -> Result<String, Refusal> {
    match said.filter(|name| !name.is_empty()) {
        None => {
            let words = format!("no {what} given: send ?{what}=... or {{\"{what}\": \"...\"}}");
            Err(Refusal(StatusCode::BAD_REQUEST, words))
        }
        Some(name) if name.len() > NAME_BYTES_MAX => {
            let words = format!("a {what} has at most {NAME_BYTES_MAX} bytes");
            Err(Refusal(StatusCode::BAD_REQUEST, words))
        }
        Some(name) => Ok(name),
    }
}

type Answer = Result<Json<Value>, Refusal>;

/// The status and the message of a rejected request.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}
