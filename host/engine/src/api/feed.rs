//! Messages of a product: `POST /feed/{topic}/{key}` with a payload as the body, `POST /feed/{topic}` with
//! several messages, and `GET /feed/{topic}/{key}` for the last number.
//!
//! `?number=N` is the product's own number among the messages of this topic, tenant and key. A number is
//! stored once, and only after the one before it, so that a producer can send again whatever it is not sure of.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use besom_core::delivery::feed::{Entered, Offered, check};
use besom_core::ids::Tenant;
use futures::StreamExt as _;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::answers::{self, later, refuse};
use crate::host::feed::{Feed, Refused};

/// Maximum number of messages in one request.
pub const BATCH_MAX: usize = 1_000;
/// Maximum size of a request body, in bytes.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Up to this size, what is too large is read before it is refused, in bytes.
const DROPPED_BYTES_MAX: usize = 64 << 20;
/// Maximum number of requests that are read and stored at the same time; further ones wait. It bounds
/// the memory that bodies and their messages take.
pub const REQUESTS_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    tenant: Option<String>,
    number: Option<u64>,
}

/// A message of a request with several.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One<'a> {
    key: String,
    tenant: Option<String>,
    number: Option<u64>,
    /// Any JSON value, stored as it is spelt.
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    data_base64: Option<String>,
}

/// A value that is there, also if it is `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// The routes of the endpoint.
pub fn router(feed: Arc<Feed>) -> Router {
    Router::new()
        .route("/feed/{topic}", post(several))
        .route("/feed/{topic}/{key}", post(single).get(last))
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::new(Semaphore::new(REQUESTS_MAX)), in_turn))
        .with_state(feed)
}

/// Reads a request when its turn has come. The listener limits how long that takes.
async fn in_turn(State(turns): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let _turn = turns.acquire().await;
    let (parts, body) = request.into_parts();
    match whole(body).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(refused) => refused,
    }
}

/// Reads a body. What is too large is read and dropped: a client that is still writing when the connection is closed
/// does not see the answer, and would send it again.
async fn whole(body: Body) -> Result<Bytes, Response> {
    let (mut stream, mut read, mut all) = (body.into_data_stream(), 0, Vec::new());
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| refuse(format!("the body cannot be read: {error}")))?;
        read += chunk.len();
        if read > DROPPED_BYTES_MAX {
            break;
        } else if read > BODY_BYTES_MAX {
            all = Vec::new();
        } else {
            all.extend_from_slice(&chunk);
        }
    }
    if read <= BODY_BYTES_MAX {
        return Ok(all.into());
    }
    let why = format!("length limit exceeded: at most {BODY_BYTES_MAX} bytes");
    Err(answers::with(StatusCode::PAYLOAD_TOO_LARGE, &why))
}

async fn single(
    State(feed): State<Arc<Feed>>,
    Path((topic, key)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    query: Result<Query<Asked>, QueryRejection>,
    body: Bytes,
) -> Result<Response, Response> {
    let Asked { tenant, number } = asked(raw.as_deref(), query).map_err(refuse)?;
    let tenant = tenant.map(Tenant::from);
    let offered = Offered { topic, tenant, key, number, payload: body.into() };
    check(&offered).map_err(refuse)?;
    let entered = feed.enter(&offered.topic, std::slice::from_ref(&offered)).await.map_err(away)?;
    let entered = entered.first().ok_or_else(|| refuse("the store gave no answer"))?;
    Ok((status(entered), Json(told(entered, &offered))).into_response())
}

async fn several(
    State(feed): State<Arc<Feed>>,
    Path(topic): Path<String>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Result<Response, Response> {
    if query.is_some_and(|query| !query.is_empty()) {
        return Err(refuse("this request takes no query: name tenant and number in each message"));
    }
    let all: Vec<One<'_>> = serde_json::from_slice(&body).map_err(|error| {
        refuse(format!(
            "invalid body: {error}; send [{{\"key\": \"...\", \"number\": 1, \"data\": ...}}, ...]"
        ))
    })?;
    if all.is_empty() || all.len() > BATCH_MAX {
        return Err(refuse(format!("send 1 to {BATCH_MAX} messages at once, not {}", all.len())));
    }
    let mut offered = Vec::with_capacity(all.len());
    for (at, one) in all.into_iter().enumerate() {
        let one = message(&topic, one).and_then(|one| check(&one).map(|()| one));
        let of = |why| refuse(format!("message {}: {why}; none is stored", at + 1));
        offered.push(one.map_err(of)?);
    }
    let entered = feed.enter(&topic, &offered).await.map_err(away)?;
    let worst = entered.iter().map(status).max_by_key(StatusCode::as_u16);
    let results: Vec<Told<'_>> =
        entered.iter().zip(&offered).map(|(one, offered)| told(one, offered)).collect();
    let status = worst.unwrap_or(StatusCode::OK);
    Ok((status, Json(json!({ "results": results }))).into_response())
}

fn message(topic: &str, one: One<'_>) -> Result<Offered, String> {
    let payload = match (one.data, one.data_base64) {
        (Some(data), None) => data.get().as_bytes().to_vec(),
        (None, Some(text)) => {
            BASE64_STANDARD.decode(text).map_err(|error| format!("data_base64: {error}"))?
        }
        _ => return Err("it needs either data or data_base64".into()),
    };
    let One { key, number, .. } = one;
    let tenant = one.tenant.map(Tenant::from);
    Ok(Offered { topic: topic.to_owned(), tenant, key, number, payload })
}

async fn last(
    State(feed): State<Arc<Feed>>,
    Path((topic, key)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Value>, Response> {
    let Asked { tenant, number } = asked(raw.as_deref(), query).map_err(refuse)?;
    if number.is_some() {
        return Err(refuse("this request takes no number"));
    }
    let tenant = tenant.map(Tenant::from);
    let asked = Offered { topic, tenant, key, number: None, payload: Vec::new() };
    check(&asked).map_err(refuse)?;
    let last = feed.last(&asked.topic, asked.tenant.as_ref(), &asked.key).await.map_err(away)?;
    Ok(Json(json!({ "last": last })))
}

/// What the query says. The extractor takes bytes that are no text for others.
fn asked(raw: Option<&str>, query: Result<Query<Asked>, QueryRejection>) -> Result<Asked, String> {
    let Query(asked) = query.map_err(|error| format!("invalid query: {error}"))?;
    match percent_decode_str(raw.unwrap_or_default()).decode_utf8() {
        Ok(_) => Ok(asked),
        Err(_) => Err("the query is not UTF-8".into()),
    }
}

fn status(entered: &Entered) -> StatusCode {
    match entered {
        Entered::Stored { .. } => StatusCode::CREATED,
        Entered::Repeated => StatusCode::OK,
        Entered::Differs | Entered::Gap { .. } => StatusCode::CONFLICT,
    }
}

/// What became of a message, and for one that is not stored: why.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    entered: &'a Entered,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn told<'a>(entered: &'a Entered, offered: &Offered) -> Told<'a> {
    let number = offered.number.unwrap_or_default();
    let error = match entered {
        Entered::Stored { .. } | Entered::Repeated => None,
        Entered::Differs => Some(format!("number {number} was stored with another payload")),
        Entered::Gap { missing } => {
            Some(format!("number {missing} is missing: send it before number {number}"))
        }
    };
    Told { entered, error }
}

fn away(refused: Refused) -> Response {
    match refused {
        Refused::Topic(words) => answers::with(StatusCode::NOT_FOUND, &words),
        Refused::Full(words) => later(&words),
        Refused::Store(error) => {
            tracing::warn!(%error, "messages of the product could not be stored");
            later(&error.to_string())
        }
    }
}
