//! Built-in task `client-deactivation`: detaches clients that have been idle too long from
//! their documents, then deactivates them.
//!
//! There are two kinds of items. An *attachment* (key `document/client`, routed by the
//! document, so that the owner of the document executes it) detaches one document in one
//! transaction. A *client* (key `client`) is planned once none of its documents is attached.
//! So a document that fails is retried alone and delays no other item.
//!
//! This file scans and reads; [`decide`] decides; [`propose`] turns decisions into proposals.

pub mod decide;
mod propose;

use std::collections::BTreeMap;

use besom_sdk::Page;
use besom_sdk::prelude::*;
use decide::{ACTIVATED, Attachment, Client, DETACHED, Detach, Head};

/// The maximum number of clients in a page of the scan; each costs one read of its attachments.
const CLIENTS_PER_PAGE: u32 = 256;

/// The task, with the setting `threshold`.
#[derive(Debug)]
pub struct ClientDeactivation;

fn client(row: &Row) -> Result<Client> {
    Ok(Client { status: row.get("status")?, updated_us: row.get::<Time>("updated_at")?.micros() })
}

fn attachment(row: &Row) -> Result<Attachment> {
    Ok(Attachment { state: row.get("state")?, client_seq: row.get("client_seq")? })
}

/// The document and client of an attachment's item; no document for a client's item.
fn subject(item: &Item) -> Result<(Option<Value>, Value)> {
    let mut parts = item.key_values()?.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(document), Some(client), None) => Ok((Some(document), client)),
        (Some(client), None, None) => Ok((None, client)),
        _ => {
            Err(Error::permanent("malformed-key", format!("{:?} does not name a client", item.key)))
        }
    }
}

/// The items of attachments if `attachments` is true, otherwise those of clients.
fn kind(items: &[Item], attachments: bool) -> Vec<Item> {
    let is =
        |item: &&Item| subject(item).is_ok_and(|(document, _)| document.is_some() == attachments);
    items.iter().filter(is).cloned().collect()
}

impl Task for ClientDeactivation {
    fn describe() -> Manifest {
        Manifest::new("client-deactivation", env!("CARGO_PKG_VERSION"))
            .doc("Detaches clients idle beyond the threshold from their documents, then deactivates them.")
            .setting(
                Setting::duration("threshold", "24h")
                    .doc("How long a client is idle before it is detached."),
            )
            .collection(
                Access::to("clients").read().update().columns(["client_id", "status", "updated_at"]),
            )
            .collection(
                Access::to("attachments")
                    .read()
                    .update()
                    .columns(["doc_id", "client_id", "state", "server_seq", "client_seq"]),
            )
            .collection(
                Access::to("documents").read().update().columns(["doc_id", "server_seq", "updated_at"]),
            )
            .collection(Access::to("changes").read().insert().columns([
                "doc_id", "server_seq", "actor_id", "client_seq", "lamport", "kind", "payload",
            ]))
            .collection(Access::to("version_vectors").delete().columns(["doc_id", "client_id"]))
            .collection(Access::to("presences").delete().columns(["doc_id", "client_id"]))
            .topic(propose::TOPIC)
    }

    fn candidates(ctx: &Context) -> Result<Range> {
        let since = decide::stale_since_us(ctx.now.micros(), ctx.duration_ms("threshold")?);
        Ok(Range::of("clients")
            .index("by_status_updated")
            .prefix(ACTIVATED)
            .upper(Time(since))
            .columns(["client_id", "updated_at"]))
    }

    /// The item of a client that has no attachment.
    fn candidate(_: &Context, row: &Row) -> Result<Option<Candidate>> {
        let version: Time = row.get("updated_at")?;
        Ok(Some(Candidate::of(&[row.value("client_id")?])?.version(version)))
    }

    /// Returns the items of as many complete clients as fit into `limit`; never half a client.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let mut range = Self::candidates(ctx)?.limit(limit.min(CLIENTS_PER_PAGE));
        range.after = cursor;
        let clients = store::page(None, &range)?;
        let (mut candidates, mut done, mut scanned) = (Vec::new(), 0, 0);
        for client in &clients.rows {
            let found = items_of(ctx, client, limit)?;
            if done > 0 && candidates.len() + found.len() > limit as usize {
                break;
            }
            scanned += 1 + found.len() as u64;
            candidates.extend(found);
            done += 1;
        }
        let next = if done as usize == clients.rows.len() {
            clients.next
        } else {
            // The cursor after the included clients is that of a page of only these clients.
            store::page(None, &range.limit(done))?.next
        };
        Ok(Page { candidates, next, scanned, extra: Vec::new() })
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let threshold_ms = ctx.duration_ms("threshold")?;
        let stale = |row: Option<&Row>| -> Result<Result<(), decide::Leave>> {
            let client = row.map(client).transpose()?;
            Ok(decide::stale(client.as_ref(), ctx.now.micros(), threshold_ms))
        };
        let clients = store::get_each(items, "clients", &["status", "updated_at"], |item| {
            Ok(vec![subject(item)?.1])
        })?;
        let mut documents = Documents::read(&kind(items, true))?;
        let verdicts = each(items, clients, |item, row| {
            let (document, client) = subject(item)?;
            let row = match (stale(row.as_ref())?, row) {
                (Ok(()), Some(row)) => row,
                (Ok(()), None) => return Ok(Verdict::skip(decide::Leave::ClientGone.reason())),
                (Err(leave), _) => return Ok(Verdict::skip(leave.reason())),
            };
            let Some(document) = document else {
                return Ok(propose::deactivate(client, &row)?.into());
            };
            let (read, head) = documents.of(item, &document)?;
            Ok(match decide::detach(read.as_ref().map(attachment).transpose()?.as_ref(), head) {
                Detach::Leave(leave) => Verdict::skip(leave.reason()),
                Detach::NoDocument => {
                    Verdict::dead(format!("the document {} does not exist", item.route))
                }
                Detach::Exhausted => Verdict::dead(format!(
                    "a sequence number of {} has reached its maximum",
                    item.route
                )),
                Detach::Append(clear) => {
                    let attachment = read.ok_or_else(|| propose::vanished("attachment"))?;
                    propose::detach(ctx, (document, client), (&row, &attachment), clear)?.into()
                }
            })
        })?;
        log::batch(
            items,
            &verdicts,
            "attachments and clients",
            "to be detached or deactivated",
            "",
        );
        Ok(verdicts)
    }
}

/// The items of a stale client: at most `limit` of its attachments (the next scan finds the
/// rest), or the client itself if it has none.
fn items_of(ctx: &Context, client: &Row, limit: u32) -> Result<Vec<Candidate>> {
    let id = client.value("client_id")?;
    let attached = Range::of("attachments")
        .index("by_client")
        .prefix(&id)
        .not_equal("state", DETACHED)
        .columns(["doc_id"])
        .limit(limit);
    let attached = store::page(None, &attached)?.rows;
    if attached.is_empty() {
        return Ok(ClientDeactivation::candidate(ctx, client)?.into_iter().collect());
    }
    let version: Time = client.get("updated_at")?;
    attached
        .iter()
        .map(|attachment| {
            let document = attachment.value("doc_id")?;
            let route = key::encode(std::slice::from_ref(&document))?;
            Ok(Candidate::of(&[document, id.clone()])?.route(route).version(version))
        })
        .collect()
}

/// The attachments and documents of a batch: two reads per tenant, and one more per document
/// whose Lamport time is needed.
struct Documents {
    attachments: BTreeMap<u32, Result<Option<Row>>>,
    server_seqs: BTreeMap<u32, Result<Option<Row>>>,
    lamports: BTreeMap<(Option<String>, String), Option<i64>>,
}

impl Documents {
    fn read(items: &[Item]) -> Result<Documents> {
        let columns = ["state", "server_seq", "client_seq"];
        let attachments = store::get_each(items, "attachments", &columns, Item::key_values)?;
        let documents = store::get_each(items, "documents", &["server_seq"], |item| {
            Ok(item.key_values()?.into_iter().take(1).collect())
        })?;
        let by_item = |rows: Vec<Result<Option<Row>>>| {
            items.iter().map(|item| item.index).zip(rows).collect()
        };
        Ok(Documents {
            attachments: by_item(attachments),
            server_seqs: by_item(documents),
            lamports: BTreeMap::new(),
        })
    }

    /// The item's attachment and the head of its document; none for missing rows.
    fn of(&mut self, item: &Item, document: &Value) -> Result<(Option<Row>, Option<Head>)> {
        let take = |rows: &mut BTreeMap<u32, Result<Option<Row>>>, what| {
            rows.remove(&item.index).unwrap_or_else(|| Err(propose::vanished(what)))
        };
        let attachment = take(&mut self.attachments, "attachment")?;
        let Some(row) = take(&mut self.server_seqs, "document")? else {
            return Ok((attachment, None));
        };
        let lamport_max = self.lamport_max(item, document)?;
        Ok((attachment, Some(Head { server_seq: row.get("server_seq")?, lamport_max })))
    }

    /// The highest Lamport time, by an index of its own: it need not be that of the last change.
    fn lamport_max(&mut self, item: &Item, document: &Value) -> Result<Option<i64>> {
        let name = (item.tenant.clone(), item.route.clone());
        if let Some(known) = self.lamports.get(&name) {
            return Ok(*known);
        }
        let highest = Range::of("changes")
            .index("by_lamport")
            .prefix(document)
            .columns(["lamport"])
            .descending()
            .limit(1);
        let row = store::page(Some(item), &highest)?.rows.into_iter().next();
        let lamport = row.map(|row| row.get("lamport")).transpose()?;
        self.lamports.insert(name, lamport);
        Ok(lamport)
    }
}

besom_sdk::export!(ClientDeactivation);

#[cfg(test)]
mod tests;
