//! What is said to the orchestrator, and what its answers mean.
//!
//! A call is a JSON object: `operation`, `operation_id`, `workspace_id`, `tenant`, `archive_key`
//! (what to restore from), and what the reconciler wants to find again: `begun_at_us` and
//! `failures`. The orchestrator does an `operation_id` once, however often it is told, and
//! answers 2xx when it is done; 202 says that it is still going on. The answer to an archiving
//! is an object with `archive_key`; other answers need no content.

use besom_sdk::deliveries::{Delivery, State};
use serde_json::{Value as Json, json};

use crate::decide::{Call, Operation, Sent, Workspace};

/// Accepted, and still going on.
const GOING_ON: u16 = 202;
/// How much of a refusal is kept, in characters.
const REASON_CHARS_MAX: usize = 200;

/// The content of a call.
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

/// What has become of the latest call.
pub fn sent(delivery: Option<&Delivery>) -> Sent {
    let Some(delivery) = delivery else { return Sent::Nothing };
    // A message that is not ours says nothing of our operation.
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
            let error = delivery.error.as_deref().unwrap_or("there was no answer");
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

/// The archive that an answer names.
fn named(body: &[u8]) -> Option<String> {
    let said: Json = serde_json::from_slice(body).ok()?;
    said["archive_key"].as_str().filter(|key| !key.is_empty()).map(str::to_owned)
}
