//! Turns decisions into proposals with guards.

use besom_sdk::ColumnGuard;
use besom_sdk::prelude::*;

use crate::decide::{ACTIVATED, Clear, DEACTIVATED, DETACHED};

/// The topic of the messages about changes that were appended to a document.
pub const TOPIC: &str = "DocChanged";

/// The time until a document that changed before the commit is decided again.
const RETRY_MS: u64 = 200;

/// The JSON of a cleared presence.
const NO_PRESENCE: &[u8] = b"null";

/// A guard that the client is still activated and has not been active since it was read.
fn still_idle(key: Vec<Value>, client: &Row) -> Result<ColumnGuard> {
    Ok(Guard::row("clients", key)
        .equal("status", ACTIVATED)
        .equal("updated_at", client.value("updated_at")?))
}

/// Detaches a document. A change in the client's name clears its presence, so that the other
/// clients of the document see the client leave.
pub fn detach(
    ctx: &Context,
    (document, client): (Value, Value),
    (client_row, attachment): (&Row, &Row),
    clear: Clear,
) -> Result<Proposal> {
    let both = vec![document.clone(), client.clone()];
    let as_attached = Guard::row("attachments", both.clone())
        .equal("state", attachment.value("state")?)
        .equal("server_seq", attachment.value("server_seq")?)
        .equal("client_seq", attachment.value("client_seq")?);
    let at_head =
        Guard::row("documents", vec![document.clone()]).equal("server_seq", clear.server_seq - 1);
    let change = [
        ("doc_id", document.clone()),
        ("server_seq", clear.server_seq.into()),
        ("actor_id", client.clone()),
        ("client_seq", clear.client_seq.into()),
        ("lamport", clear.lamport.into()),
        ("kind", "presence".into()),
        ("payload", NO_PRESENCE.to_vec().into()),
    ];
    let head = [("server_seq", clear.server_seq.into()), ("updated_at", ctx.now.into())];
    let checkpoint = [
        ("state", DETACHED.into()),
        ("server_seq", clear.server_seq.into()),
        ("client_seq", clear.client_seq.into()),
    ];
    let message = format!(r#"{{"kind":"presence","server_seq":{}}}"#, clear.server_seq);
    Ok(Proposal::new()
        .guard(still_idle(vec![client], client_row)?)
        .guard(as_attached)
        .guard(at_head)
        .insert("changes", change)
        .update("documents", vec![document.clone()], head)
        .update("attachments", both.clone(), checkpoint)
        .delete("version_vectors", both.clone())
        .delete("presences", both)
        .emit(TOPIC, key::plain(&document)?, message)
        .or_retry(RETRY_MS)
        .note("server_seq", clear.server_seq))
}

/// Deactivates a client without attachments. A transaction that attaches a document locks the
/// client's row, by the foreign key or, if it updates an existing attachment, explicitly
/// (`docs/compaction.md`), so the absence holds until the commit.
pub fn deactivate(client: Value, client_row: &Row) -> Result<Proposal> {
    let attached =
        Filter::of("attachments").equal("client_id", &client).not_equal("state", DETACHED);
    Ok(Proposal::new()
        .guard(still_idle(vec![client.clone()], client_row)?)
        .guard(attached.absent())
        .update("clients", vec![client], [("status", DEACTIVATED.into())])
        .or_skip("the client was active or attached again"))
}

/// The error of an item for which the host returned no answer.
pub fn vanished(what: &str) -> Error {
    Error::transient("no-answer", format!("the host returned no {what} for the item"))
}
