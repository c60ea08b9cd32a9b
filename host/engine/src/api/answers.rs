//! Answers that several endpoints give.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// 400: the request is invalid, and would be the next time.
pub(super) fn refuse(words: &str) -> Response {
    with(StatusCode::BAD_REQUEST, words)
}

/// 503: the request can be repeated in a second.
pub(super) fn later(words: &str) -> Response {
    let mut answer = with(StatusCode::SERVICE_UNAVAILABLE, words);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// An error in JSON.
pub(super) fn with(status: StatusCode, words: &str) -> Response {
    (status, Json(json!({ "error": words }))).into_response()
}
