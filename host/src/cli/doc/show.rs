//! `besom doc show`: prints the state of one document.

use super::super::output::{self, Facts};
use super::super::{Exit, Failure, Global};
use besom_core::command::counted;
use besom_engine::gather::rows::plain;
use besom_product::doc::{self, Attached, Name};

/// Maximum number of attached clients in the text output.
const CLIENTS_SHOWN: usize = 10;

/// Prints the document as text or JSON.
pub(super) fn print(global: &Global, name: &Name, shown: &doc::Shown) -> Result<Exit, Failure> {
    let d = &shown.document;
    let rows = shown.edits + shown.presences + shown.snapshots;
    let last = shown.last_compaction.as_ref().map(|row| {
        let notes: serde_json::Map<String, serde_json::Value> =
            row.notes.iter().map(|field| (field.name.to_string(), plain(&field.value))).collect();
        serde_json::json!({ "at": row.at.to_string(), "run": row.run, "node": row.node, "notes": notes })
    });
    let json = serde_json::json!({
        "tenant": name.tenant,
        "document": name.key,
        "format": d.format,
        "server_seq": d.server_seq,
        "compacted_seq": d.compacted_seq,
        "epoch": d.epoch,
        "rows": rows,
        "edits": shown.edits,
        "presences": shown.presences,
        "snapshots": shown.snapshots,
        "bytes": shown.bytes,
        "state": shown.state,
        "compacted_at": d.compacted_at.map(|t| t.to_string()),
        "last_compaction": last,
        "left_alone": shown.left_alone,
        "attached": shown.attached,
    });
    output::show(global.output, &json, || {
        let mut facts = Facts::default();
        facts.add("document", name).add("format", &d.format);
        facts.add("state", in_words(shown));
        facts.add("server_seq", d.server_seq).add("compacted_seq", d.compacted_seq);
        facts.add("epoch", d.epoch);
        facts.add(
            "rows",
            format!(
                "{rows} ({}, {}, {})",
                counted(shown.edits, "edit"),
                counted(shown.presences, "presence"),
                counted(shown.snapshots, "snapshot")
            ),
        );
        facts.add("bytes", shown.bytes);
        match (&shown.last_compaction, d.compacted_at) {
            (Some(row), _) => facts.add("last compaction", row.at),
            (None, Some(at)) => facts.add("last compaction", at),
            (None, None) => facts.add("last compaction", "never"),
        };
        for field in shown.last_compaction.iter().flat_map(|row| &row.notes) {
            let value = plain(&field.value);
            facts.add(
                format!("  {}", field.name),
                value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            );
        }
        add_attached(&mut facts, &d.format, shown.attached.as_deref());
        facts.render()
    })?;
    Ok(Exit::Fine)
}

fn in_words(shown: &doc::Shown) -> String {
    let reason = shown.left_alone.as_deref().unwrap_or("no reason recorded");
    match shown.state {
        doc::State::Untouched => "untouched: no compaction has examined it yet".into(),
        doc::State::Compacted => "compacted".into(),
        doc::State::LeftAlone => format!("left alone: {reason}"),
        doc::State::Dead => format!("set aside (see `besom dead ls`): {reason}"),
    }
}

/// Adds the attached clients: any of them prevents a reset (Yjs, Automerge), and the one with the
/// oldest version vector limits a trim (Loro).
fn add_attached(facts: &mut Facts, format: &str, attached: Option<&[Attached]>) {
    let Some(attached) = attached else { return };
    let Some(least) = attached.first() else {
        facts.add("attached", "no clients");
        return;
    };
    facts.add("attached", attached.len());
    match (format, least.vector_seq) {
        ("loro", None) => facts.add(
            "  blocks a trim",
            format!("{}, which has not reported a version vector", least.client),
        ),
        ("loro", Some(seq)) => facts
            .add("  blocks a trim", format!("{}, whose version vector is at {seq}", least.client)),
        _ => facts.add("  blocks a reset", "every attached client"),
    };
    for client in attached.iter().take(CLIENTS_SHOWN) {
        let seen = client.last_seen.as_deref().unwrap_or("unknown");
        let vector = client.vector_seq.map_or("none".to_owned(), |seq| seq.to_string());
        facts.add(
            format!("  {}", client.client),
            format!(
                "{}, last seen {seen}, has pulled up to {}, vector {vector}",
                client.state, client.server_seq
            ),
        );
    }
    if attached.len() > CLIENTS_SHOWN {
        facts.add("  ...", format!("{} more", attached.len() - CLIENTS_SHOWN));
    }
}
