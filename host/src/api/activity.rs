//! `POST /activity/{id}/connect|disconnect|heartbeat` and `GET /activity/{id}`.
//!
//! A report names its connection (`?connection=tab-1`, or `{"connection": "tab-1"}` as the
//! body): the same connection twice counts once, and one that is not heard of again expires.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;

use crate::ports::activity::Activity;

/// The longest id, and the longest name of a connection, in bytes.
pub const NAME_BYTES_MAX: usize = 512;
/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 4 * 1024;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Report {
    connection: Option<String>,
}

/// The endpoint over an activity.
pub fn router(activity: Arc<dyn Activity>) -> Router {
    Router::new()
        .route("/activity/{id}/{what}", post(report))
        .route("/activity/{id}", get(state))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(activity)
}

async fn report(
    State(activity): State<Arc<dyn Activity>>,
    Path((id, what)): Path<(String, String)>,
    query: Result<Query<Report>, axum::extract::rejection::QueryRejection>,
    body: Bytes,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return refuse(&format!("the query is not understood: {error}")),
    };
    let body: Report = if body.is_empty() {
        Report::default()
    } else {
        match serde_json::from_slice(&body) {
            Ok(body) => body,
            Err(error) => {
                return refuse(&format!(
                    "the body is not understood: {error}; send {{\"connection\": \"...\"}}"
                ));
            }
        }
    };
    let Some(connection) = query.connection.or(body.connection).filter(|name| !name.is_empty())
    else {
        return refuse("name the connection: ?connection=... or {\"connection\": \"...\"}");
    };
    if id.len() > NAME_BYTES_MAX || connection.len() > NAME_BYTES_MAX {
        return refuse(&format!("an id or connection has at most {NAME_BYTES_MAX} bytes"));
    }
    let done = match what.as_str() {
        "connect" => activity.connect(&id, &connection).await,
        "disconnect" => activity.disconnect(&id, &connection).await,
        "heartbeat" => activity.heartbeat(&id, &connection).await,
        _ => {
            let words = "report connect, disconnect or heartbeat";
            return (StatusCode::NOT_FOUND, Json(json!({ "error": words }))).into_response();
        }
    };
    match done {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => away(&error),
    }
}

async fn state(State(activity): State<Arc<dyn Activity>>, Path(id): Path<String>) -> Response {
    match activity.states(std::slice::from_ref(&id)).await {
        Ok(states) => Json(json!({ "id": id, "state": states.first() })).into_response(),
        Err(error) => away(&error),
    }
}

fn refuse(words: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": words }))).into_response()
}

fn away(error: &crate::ports::activity::Error) -> Response {
    tracing::warn!(%error, "a report of activity could not be taken");
    let body = Json(json!({ "error": error.to_string() }));
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], body).into_response()
}
