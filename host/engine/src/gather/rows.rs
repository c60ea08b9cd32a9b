//! From the store's rows to the outward model, for the API, the dashboard and the command line.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::delivery::State;
use besom_core::time::date_text;
use besom_core::value::Value;
use besom_snapshot::{ItemRow, Missing, Topic};

use crate::host::health::Part;
use besom_ports::members::Member;
use besom_ports::store::{Depth, HistoryRow, Message, NodeRow, OutboxTopic};

/// The topics with a route, and those of which messages wait or were given up, in the order of their names.
pub fn topics(routes: &BTreeSet<String>, stored: Vec<OutboxTopic>) -> Vec<Topic> {
    let of_route =
        |name: &String| Topic { name: name.clone(), has_route: true, ..Topic::default() };
    let mut topics: BTreeMap<String, Topic> =
        routes.iter().map(|name| (name.clone(), of_route(name))).collect();
    for stored in stored {
        let OutboxTopic {
            topic,
            waiting,
            oldest,
            waiting_error,
            inserted,
            given_up,
            last_given_up,
        } = stored;
        let found =
            topics.entry(topic.clone()).or_insert(Topic { name: topic, ..Topic::default() });
        (found.waiting, found.oldest, found.given_up) = (waiting, oldest, given_up);
        (found.given_up_at, found.given_up_error) = last_given_up.unzip();
        (found.waiting_error, found.inserted) = (waiting_error, inserted);
    }
    topics.into_values().collect()
}

/// The end of an item.
pub fn item(row: &HistoryRow) -> ItemRow {
    ItemRow {
        tenant: row.identity.tenant.as_ref().map(ToString::to_string),
        key: row.identity.key.clone(),
        due: row.identity.due,
        at: row.at,
        outcome: row.outcome,
        settled: row.settled,
        rows: row.rows,
        stayed: row.stayed(),
        reason: row.reason.clone(),
        notes: row.notes.iter().map(|note| (note.name.to_string(), plain(&note.value))).collect(),
        node: row.node.to_string(),
        commit: row.commit.to_string(),
        undo_bytes: row.undo_bytes,
    }
}

/// A message of the outbox.
pub fn message(message: &Message) -> besom_snapshot::Message {
    let of = &message.delivery;
    let waits = of.state == State::Pending && of.attempts > 0;
    besom_snapshot::Message {
        id: of.id,
        topic: message.topic.clone(),
        key: message.key.clone(),
        sequence: of.sequence,
        task: message.task.as_ref().map(ToString::to_string),
        tenant: message.tenant.as_ref().map(ToString::to_string),
        state: of.state,
        superseded: message.superseded,
        emitted_at: of.emitted_at,
        attempts: of.attempts,
        // Those to a broker have none of their own.
        next_at: waits.then_some(message.next_at).filter(|at| *at > of.emitted_at),
        ended_at: of.ended_at,
        error: of.error.clone(),
        reply_status: of.reply.as_ref().map(|reply| reply.status),
        reply: of.reply.as_ref().map(|r| String::from_utf8_lossy(&r.body).into_owned()),
    }
}

/// The numbers of a task's waiting items.
pub fn depth(depth: &Depth) -> besom_snapshot::Depth {
    besom_snapshot::Depth {
        log: depth.log,
        timers: depth.timers,
        retries: depth.retries,
        dead: depth.dead,
        next_due: depth.next_due,
        oldest: depth.oldest,
        undo_bytes: depth.undo_bytes,
        rows: depth.rows,
    }
}

/// The services that a node cannot reach: from its row in the store, and from its membership if it
/// cannot reach the store.
pub fn missed(row: Option<&NodeRow>, member: Option<&Member>) -> Vec<Missing> {
    let mut missed = row.map(|row| row.missing.clone()).unwrap_or_default();
    if let Some(away) = member.and_then(|member| member.store_away.as_ref()) {
        let store = Part::Store.to_string();
        missed.retain(|missing| missing.what != store);
        missed.push(Missing { what: store, since: away.since, why: away.told() });
    }
    missed
}

/// A value as JSON for people and scripts: bytes and UUIDs in hexadecimal, instants as RFC 3339.
pub fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Integer(n) => (*n).into(),
        Value::Float(n) => (*n).into(),
        Value::Decimal(s) | Value::Text(s) => s.as_str().into(),
        Value::Bytes(b) => hex::encode(b).into(),
        Value::Timestamp(t) => t.to_string().into(),
        Value::Date(days) => date_text(*days).into(),
        Value::Uuid(b) => hex::encode(b).into(),
        Value::Json(s) => serde_json::from_str(s).unwrap_or_else(|_| s.as_str().into()),
    }
}
