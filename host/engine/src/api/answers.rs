//! Answers that several endpoints give.

use axum::Json;
use axum::body::to_bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// 400: the request is invalid, and would be the next time.
pub(super) fn refuse(words: impl AsRef<str>) -> Response {
    with(StatusCode::BAD_REQUEST, words.as_ref())
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

/// Maximum size of a text that becomes an error in JSON, in bytes.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Every refusal as JSON, also those of the HTTP library: an unknown path, a wrong method, a body that is
/// too large.
pub(super) async fn in_json(answer: Response) -> Response {
    let status = answer.status();
    let kind = answer.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes() == b"application/json")
        || !(status.is_client_error() || status.is_server_error())
    {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let text = to_bytes(body, TEXT_BYTES_MAX).await.unwrap_or_default();
    let words = match String::from_utf8_lossy(&text).trim() {
        "" if status == StatusCode::NOT_FOUND => "there is nothing at this path".to_owned(),
        "" if status == StatusCode::METHOD_NOT_ALLOWED => {
            "this path does not take the method".to_owned()
        }
        "" => status.canonical_reason().unwrap_or("refused").to_owned(),
        words => words.to_owned(),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
    (parts.status, parts.headers, Json(json!({ "error": words }))).into_response()
}
