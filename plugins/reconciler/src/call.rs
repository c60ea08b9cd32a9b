//! Encodes calls to the orchestrator and interprets their answers.
//!
//! A call is a JSON object with `operation`, `operation_id`, `workspace_id`, `tenant`,
//! `archive_key` (the archive to restore), and state for the reconciler itself: `begun_at_us` and
//! `failures`. The orchestrator executes an `operation_id` once, however often it is called, and
//! answers with 2xx when it has finished, or 202 while it is in progress. The answer to an archive
//! call is an object with `archive_key`; other answers need no content.

use besom_sdk::deliveries::{Delivery, State};
use serde_json::{Value as Json, json};

use crate::decide::{Call, Operation, Sent, Workspace};

/// The HTTP status of an operation in progress.
const GOING_ON: u16 = 202;
/// The maximum length of an answer's content in a reason, in characters.
const REASON_CHARS_MAX: usize = 200;

/// The JSON of a call.
pub fn payload(
    operation: Operation,
    call: &Call,
    tenant: Option<&str>,
    name: &str,
    at: &Workspace,
) -> Vec<u8> {
    json!({
        "operation": operation.word(),
        "operation_id": call.operation_id,
        "workspace_id": name,
        "tenant": tenant,
        "archive_key": at.archive_key,
        "begun_at_us": call.begun_us,
        "failures": call.failures,
    })
    .to_string()
    .into_bytes()
}

/// Interprets the delivery of the latest call. A message that is not a call of the reconciler
/// counts as no call.
pub fn sent(delivery: Option<&Delivery>) -> Sent {
    let Some(delivery) = delivery else { return Sent::Nothing };
    let Some(call) = remembered(&delivery.payload) else { return Sent::Nothing };
    let at_us = delivery.ended_at.unwrap_or(delivery.emitted_at);
    match (delivery.state, &delivery.reply) {
        (State::Pending, _) => Sent::UnderWay(call),
        (State::Delivered, Some(reply)) => Sent::Answered {
            call,
            at_us,
            finished: reply.status != GOING_ON,
            archive_key: named(&reply.body),
        },
        (State::Delivered, None) | (State::GivenUp, _) => {
            let error = delivery.error.as_deref().unwrap_or("no answer");
            let said = delivery.reply.as_ref().map(|reply| String::from_utf8_lossy(&reply.body));
            let said: String =
                said.unwrap_or_default().trim().chars().take(REASON_CHARS_MAX).collect();
            let reason =
                if said.is_empty() { error.to_owned() } else { format!("{error}: {said}") };
            Sent::Failed { call, at_us, reason }
        }
    }
}

fn remembered(payload: &[u8]) -> Option<Call> {
    let said: Json = serde_json::from_slice(payload).ok()?;
    Some(Call {
        operation_id: said["operation_id"].as_str()?.to_owned(),
        begun_us: said["begun_at_us"].as_i64()?,
        failures: u32::try_from(said["failures"].as_u64()?).ok()?,
    })
}

/// The archive key in an answer; an empty one counts as missing.
fn named(body: &[u8]) -> Option<String> {
    let said: Json = serde_json::from_slice(body).ok()?;
    said["archive_key"].as_str().filter(|key| !key.is_empty()).map(str::to_owned)
}
