//! Writes a document into the store: its update log as rows of `changes`, with presence rows in
//! between, its snapshot, and its attached clients.
//!
//! This module decides how a log becomes rows. Which documents exist, and which of them are
//! damaged, is decided in [`super::seed`].

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use yrs::updates::decoder::Decode;
use yrs::updates::encoder::Encode;
use yrs::{ReadTxn, StateVector, Transact, Update};

use super::authors::{apply, replica};
use super::log::UpdateLog;
use super::rows::{Writer, at, checksum, integer, text};

/// One row of `changes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangeRow {
    /// The sequence number within the document.
    pub(super) server_seq: u64,
    /// The client that sent it.
    pub(super) actor: String,
    /// Its sequence number among the client's changes of this document.
    pub(super) client_seq: u64,
    /// The kind of change.
    pub(super) kind: ChangeKind,
    /// The content.
    pub(super) payload: Vec<u8>,
    /// The content for which the checksum was computed; `None`: `payload`.
    pub(super) damaged_from: Option<Vec<u8>>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// An update of the document.
    Edit,
    /// The position of a user's caret, which is not part of the document.
    Presence,
}

/// A client attached to a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attached {
    /// The id of the client.
    pub(super) client: String,
    /// `attaching`, `attached` or `detached`.
    pub(super) state: &'static str,
    /// The sequence number up to which the client has received changes.
    pub(super) server_seq: u64,
    /// When the client was last active.
    pub(super) updated_at: Time,
}

/// A document with everything that belongs to it.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// The key of the document.
    pub(super) id: String,
    /// Whose changes they are: `yjs`, `loro` or `automerge`.
    pub(super) format: &'static str,
    /// When it was created.
    pub(super) created_at: Time,
    /// When it was last changed.
    pub(super) updated_at: Time,
    /// Its log, by sequence number.
    pub(super) changes: Vec<ChangeRow>,
    /// A snapshot of the state at a sequence number.
    pub(super) snapshot: Option<(u64, Vec<u8>)>,
    /// The attached clients.
    pub(super) attached: Vec<Attached>,
}

/// A presence row follows this number of edits.
const PRESENCE_EVERY: usize = 5;

impl Document {
    /// Creates a document from its log. `actors` names the author of each index; an author without
    /// a name is named after the client id. `presence`: whether to add presence rows between the
    /// edits.
    pub(super) fn from_log(
        id: impl Into<String>,
        log: &UpdateLog,
        actors: &[String],
        presence: bool,
        updated_at: Time,
    ) -> Document {
        let actor = |author: u32| match actors.get(author as usize) {
            Some(name) => name.clone(),
            None => format!("yjs-{}", log.authors[author as usize]),
        };
        let mut client_seqs = vec![0; log.authors.len()];
        let mut changes = Vec::with_capacity(log.edits.len() * 6 / 5 + 1);
        let mut push = |author: u32, kind, payload| {
            client_seqs[author as usize] += 1;
            changes.push(ChangeRow {
                server_seq: changes.len() as u64 + 1,
                actor: actor(author),
                client_seq: client_seqs[author as usize],
                kind,
                payload,
                damaged_from: None,
            });
        };
        for (number, edit) in log.edits.iter().enumerate() {
            push(edit.author, ChangeKind::Edit, edit.payload.clone());
            if presence && number % PRESENCE_EVERY == PRESENCE_EVERY - 1 {
                let caret = format!("{{\"caret\":{number}}}").into_bytes();
                push(edit.author, ChangeKind::Presence, caret);
            }
        }
        Document {
            id: id.into(),
            format: "yjs",
            // As if a user had typed a change about every two seconds.
            created_at: updated_at - Duration::from_secs(2 * changes.len() as u64),
            updated_at,
            changes,
            snapshot: None,
            attached: Vec::new(),
        }
    }

    /// The last sequence number.
    pub(super) fn server_seq(&self) -> u64 {
        self.changes.last().map_or(0, |change| change.server_seq)
    }

    /// Takes a snapshot of the state at a sequence number.
    pub(super) fn take_snapshot(&mut self, server_seq: u64) -> Result<(), String> {
        let doc = replica(SNAPSHOT_CLIENT);
        for edit in self.edits(server_seq) {
            apply(&doc, &edit.payload)?;
        }
        let state = doc.transact().encode_state_as_update_v1(&StateVector::default());
        self.snapshot = Some((server_seq, state));
        Ok(())
    }

    /// Writes everything. The document's row is written first, because the others depend on it, and
    /// again at the end with its numbers: until then no task finds anything to do.
    pub(super) async fn write(&self, tenant: &Tenant, writer: &mut Writer) -> anyhow::Result<()> {
        self.write_head(tenant, writer, 0).await?;
        for change in &self.changes {
            self.write_change(tenant, writer, change).await?;
        }
        if let Some((server_seq, payload)) = &self.snapshot {
            let row = [
                ("doc_id", text(&self.id)),
                ("server_seq", integer(*server_seq)),
                ("payload", Value::Bytes(payload.clone())),
                ("checksum", checksum(payload)),
            ];
            writer.row(tenant, "snapshots", row).await?;
        }
        for attached in &self.attached {
            self.write_attached(tenant, writer, attached).await?;
        }
        self.write_head(tenant, writer, self.server_seq()).await?;
        Ok(())
    }

    async fn write_head(
        &self,
        tenant: &Tenant,
        writer: &mut Writer,
        server_seq: u64,
    ) -> anyhow::Result<()> {
        let row = [
            ("doc_id", text(&self.id)),
            ("format", text(self.format)),
            ("server_seq", integer(server_seq)),
            ("compacted_seq", integer(0)),
            ("epoch", integer(0)),
            ("created_at", at(self.created_at)),
            ("updated_at", at(self.updated_at)),
            ("compacted_at", Value::Null),
        ];
        Ok(writer.row(tenant, "documents", row).await?)
    }

    async fn write_change(
        &self,
        tenant: &Tenant,
        writer: &mut Writer,
        change: &ChangeRow,
    ) -> anyhow::Result<()> {
        let kind = match change.kind {
            ChangeKind::Edit => "edit",
            ChangeKind::Presence => "presence",
        };
        let row = [
            ("doc_id", text(&self.id)),
            ("server_seq", integer(change.server_seq)),
            ("actor_id", text(&change.actor)),
            ("client_seq", integer(change.client_seq)),
            // The order of the server is a valid order for a Lamport clock.
            ("lamport", integer(change.server_seq)),
            ("kind", text(kind)),
            ("payload", Value::Bytes(change.payload.clone())),
            ("checksum", checksum(change.damaged_from.as_ref().unwrap_or(&change.payload))),
        ];
        Ok(writer.row(tenant, "changes", row).await?)
    }

    async fn write_attached(
        &self,
        tenant: &Tenant,
        writer: &mut Writer,
        attached: &Attached,
    ) -> anyhow::Result<()> {
        let key = || [("doc_id", text(&self.id)), ("client_id", text(&attached.client))];
        let [doc, client] = key();
        let own = self.changes.iter().filter(|change| change.actor == attached.client);
        let sent = own.map(|change| change.client_seq).max().unwrap_or(0);
        let row = [
            doc,
            client,
            ("state", text(attached.state)),
            ("server_seq", integer(attached.server_seq)),
            ("client_seq", integer(sent)),
        ];
        writer.row(tenant, "attachments", row).await?;
        if attached.state != "attached" {
            return Ok(());
        }
        let [doc, client] = key();
        let row = [
            doc,
            client,
            ("vector", Value::Bytes(self.vector(attached.server_seq)?.encode_v1())),
            ("server_seq", integer(attached.server_seq)),
        ];
        writer.row(tenant, "version_vectors", row).await?;
        let [doc, client] = key();
        let value = format!("{{\"caret\":{}}}", attached.server_seq);
        let row =
            [doc, client, ("value", Value::Json(value)), ("updated_at", at(attached.updated_at))];
        writer.row(tenant, "presences", row).await?;
        Ok(())
    }

    /// The state vector of a client that has received the changes up to a sequence number.
    fn vector(&self, server_seq: u64) -> anyhow::Result<StateVector> {
        let mut vector = StateVector::default();
        for edit in self.edits(server_seq) {
            // A damaged change contributes nothing.
            let Ok(update) = Update::decode_v1(&edit.payload) else { continue };
            for (client, ranges) in update.insertions(true).iter() {
                let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
                vector.set_max(*client, end);
            }
        }
        Ok(vector)
    }

    fn edits(&self, up_to: u64) -> impl Iterator<Item = &ChangeRow> {
        let edits = self.changes.iter().filter(|change| change.kind == ChangeKind::Edit);
        edits.take_while(move |change| change.server_seq <= up_to)
    }
}

/// The client id of the replica that takes snapshots; it writes nothing.
const SNAPSHOT_CLIENT: u64 = 1;
