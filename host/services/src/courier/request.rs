//! Builds the request of one attempt.

use std::fmt::Write as _;
use std::path::Path;

use besom_core::delivery::Claimed;
use besom_core::delivery::event::{self, Envelope, Origin};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request};

use super::Way;

/// The POST request for a message.
pub(super) fn build(
    way: &Way,
    store: &str,
    message: &Claimed,
    key: &str,
) -> Result<Request<Full<Bytes>>, String> {
    let (content_type, schema) = (way.content_type.as_str(), way.schema.as_deref());
    let origin = Origin { store, content_type, schema };
    let (content_type, body) = match way.envelope {
        Envelope::Binary => (content_type, message.payload.clone()),
        Envelope::Structured => (event::STRUCTURED, event::structured(origin, message, key)),
    };
    let (target, default) = (&way.target, if way.target.secure { 443 } else { 80 });
    let scheme = if target.secure { "https" } else { "http" };
    let host = match target.port == default {
        true => target.host.clone(),
        false => format!("{}:{}", target.host, target.port),
    };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("{scheme}://{host}{}", target.path))
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("besom/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, content_type)
        // Also of a body without content, which hyper leaves out.
        .header(header::CONTENT_LENGTH, body.len())
        .header("idempotency-key", key)
        .header("besom-topic", plain(&message.topic))
        .header("besom-key", plain(&message.key))
        .header("besom-message", message.id)
        .header("besom-sequence", message.sequence)
        .header("besom-attempt", message.attempt);
    if way.envelope == Envelope::Binary {
        for (name, value) in event::attributes(origin, message, key) {
            // In this mode, Content-Type takes its place.
            if name != "datacontenttype" {
                let value = plain(&value.to_string()).replace('"', "%22");
                request = request.header(format!("ce-{name}"), value);
            }
        }
    }
    if let Some(tenant) = &message.tenant {
        request = request.header("besom-tenant", plain(tenant.as_str()));
    }
    if let Some(task) = &message.task {
        request = request.header("besom-task", plain(task.as_str()));
    }
    if let Some(file) = &way.token_file {
        // Read for each attempt, so that a replaced token takes effect immediately.
        request = request.header(header::AUTHORIZATION, token(file)?);
    }
    request.body(Full::from(body)).map_err(|error| error.to_string())
}

/// The header with the token from a file that only its owner can read.
pub(super) fn token(file: &Path) -> Result<HeaderValue, String> {
    let fail = |what: &dyn std::fmt::Display| format!("token_file {}: {what}", file.display());
    let text = besom_system::secret::line(file).map_err(|words| fail(&words))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", text.trim())).map_err(|_| {
        fail(&"it contains characters that are not allowed in a header: put the token on one line")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Encodes any text for a header: characters that are not plain are percent-encoded.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=32 | 127.. => {
                let _ = write!(out, "%{byte:02X}");
            }
            byte => out.push(char::from(byte)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn any_text_fits_into_a_header_and_can_be_read_again() {
        for (text, expected) in
            [("ws-1", "ws-1"), ("a b", "a%20b"), ("ü\r\n", "%C3%BC%0D%0A"), ("100%", "100%25")]
        {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn a_token_has_to_be_secret_and_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let set = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (text, mode, says) in [
            ("secret", 0o644, "chmod 600"),
            (" \n", 0o600, "it is empty"),
            ("one\ntwo", 0o600, "on one line"),
        ] {
            set(text, mode);
            let said = token(&file).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
        set("secret\n", 0o600);
        assert_eq!(token(&file).unwrap(), "Bearer secret");
        assert!(token(&dir.path().join("none")).is_err());
    }
}
