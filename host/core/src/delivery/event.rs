//! A message as an event in the format of CloudEvents 1.0.
//!
//! The attributes are the same for every kind of receiver, so that one consumer reads messages from
//! any of them. A receiver gets them as headers or fields beside the payload (binary content mode), or
//! with the payload in one JSON object (structured content mode).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde::de::IgnoredAny;

use super::message::Claimed;
use crate::time::Time;

/// The version of CloudEvents.
pub const VERSION: &str = "1.0";
/// The content type of a message in structured content mode.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// How the attributes of a message are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Envelope {
    /// As headers or fields, beside the payload.
    #[default]
    Binary,
    /// As a JSON object that contains the payload.
    Structured,
}

/// What is the same for all messages of a topic.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The identity of the store.
    pub store: &'a str,
    /// The media type of payloads.
    pub content_type: &'a str,
    /// A URI that identifies the schema of payloads.
    pub schema: Option<&'a str>,
}

/// The value of an attribute; as it is displayed, it is sent.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// Sent as it is.
    Text(&'a str),
    /// The source: the store with this identity.
    Source(&'a str),
    /// In UTC, as RFC 3339 has it.
    Time(Time),
    /// With twenty digits, so that the texts are sorted as the numbers are.
    Sequence(u64),
    /// In decimal digits.
    Number(u64),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Source(store) => write!(f, "urn:besom:{store}"),
            Value::Time(time) => time.fmt(f),
            Value::Sequence(number) => write!(f, "{number:020}"),
            Value::Number(number) => number.fmt(f),
        }
    }
}

/// The attributes of a message, each with a name of lower-case letters. `id` is the idempotency key.
pub fn attributes<'a>(
    origin: Origin<'a>,
    message: &'a Claimed,
    id: &'a str,
) -> impl Iterator<Item = (&'static str, Value<'a>)> {
    use Value::*;
    let always = [
        ("specversion", Text(VERSION)),
        ("id", Text(id)),
        ("source", Source(origin.store)),
        ("type", Text(&message.topic)),
        ("subject", Text(&message.key)),
        ("time", Time(message.at)),
        ("datacontenttype", Text(origin.content_type)),
        ("partitionkey", Text(&message.key)),
        ("sequence", Sequence(message.sequence)),
    ];
    let sometimes = [
        origin.schema.map(|schema| ("dataschema", Text(schema))),
        message.tenant.as_ref().map(|tenant| ("besomtenant", Text(tenant.as_str()))),
        message.task.as_ref().map(|task| ("besomtask", Text(task.as_str()))),
        message.run.as_ref().map(|run| ("besomrun", Number(run.0))),
    ];
    always.into_iter().chain(sometimes.into_iter().flatten())
}

/// The message in structured content mode: a JSON payload as it is spelt, any other as Base64.
pub fn structured(origin: Origin<'_>, message: &Claimed, id: &str) -> Vec<u8> {
    let attributes: BTreeMap<_, _> =
        attributes(origin, message, id).map(|(name, value)| (name, value.to_string())).collect();
    let mut event = serde_json::to_vec(&attributes).unwrap_or_default();
    // Another member follows.
    event.pop();
    let is_json = origin.content_type.split(';').next().is_some_and(|kind| {
        let kind = kind.trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    if is_json && serde_json::from_slice::<IgnoredAny>(&message.payload).is_ok() {
        event.extend_from_slice(b",\"data\":");
        event.extend_from_slice(&message.payload);
        event.push(b'}');
    } else {
        let data = BASE64_STANDARD.encode(&message.payload);
        event.extend_from_slice(format!(",\"data_base64\":\"{data}\"}}").as_bytes());
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RunId;

    fn message(payload: &[u8]) -> Claimed {
        Claimed {
            id: 7,
            at: Time(1_700_000_000_000_001),
            task: Some("sweep".into()),
            run: Some(RunId(9)),
            tenant: Some("p".into()),
            topic: "t".into(),
            key: "ü".into(),
            sequence: 42,
            payload: payload.to_vec(),
            attempt: 1,
        }
    }

    const ORIGIN: Origin<'_> =
        Origin { store: "s", content_type: "application/json", schema: Some("urn:x") };

    #[test]
    fn a_structured_event_holds_the_attributes_and_the_payload() {
        let event = structured(ORIGIN, &message(br#"{"b":1, "a":1}"#), "i");
        let text = String::from_utf8(event.clone()).unwrap();
        assert!(text.ends_with(r#","data":{"b":1, "a":1}}"#), "{text}");
        let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(
            event,
            serde_json::json!({
                "specversion": "1.0", "id": "i", "source": "urn:besom:s", "type": "t",
                "subject": "ü", "partitionkey": "ü", "time": "2023-11-14T22:13:20.000001Z",
                "datacontenttype": "application/json", "dataschema": "urn:x",
                "sequence": "00000000000000000042", "besomtenant": "p", "besomtask": "sweep",
                "besomrun": "9", "data": {"a": 1, "b": 1},
            })
        );
    }

    #[test]
    fn a_payload_that_is_not_json_is_encoded() {
        for (content_type, payload) in
            [("application/json", &b"\xff"[..]), ("text/plain", b"{}"), ("image/png", b"\x89")]
        {
            let origin = Origin { content_type, ..ORIGIN };
            let event: serde_json::Value =
                serde_json::from_slice(&structured(origin, &message(payload), "i")).unwrap();
            let data = event["data_base64"].as_str().expect("Base64");
            assert_eq!(BASE64_STANDARD.decode(data).unwrap(), payload, "{content_type}");
            assert_eq!(event.get("data"), None);
        }
    }
}
