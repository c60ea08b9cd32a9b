//! Documents that are being edited: one by all users, some occasionally, and many by a wave.
//!
//! The authors' replicas are kept here; sequence numbers are read from the store for each write,
//! because other writers append to the log as well. If another writer was faster, the whole write
//! is rejected and its edits are part of the next one, so that no edit is lost.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use rand::Rng;
use rand::rngs::StdRng;

use super::World;
use super::rows::{Written, delete, insert, update};
use crate::authors::Circle;
use crate::log::Edit;
use crate::rows::{at, checksum, integer, text};
use crate::seed::TENANTS;
use besom_ports::store::{Range, ReadView};

/// Number of documents that are edited occasionally, including the one edited by all.
pub(super) const DRAFTS: usize = 30;

/// Number of documents that a wave edits.
pub(super) const WAVE: usize = 200;

/// The document that all users edit.
const HOT: usize = 0;

/// Transactions per beat in the document that all users edit.
const HOT_TRANSACTIONS: u32 = 6;

/// Transactions per beat in all other documents together.
const OTHER_TRANSACTIONS: u32 = 3;

/// Transactions of a wave in each document: enough to make it a candidate for compaction.
const WAVE_TRANSACTIONS: u32 = 14;

/// Number of documents that a wave edits per beat.
const WAVE_PER_BEAT: usize = 50;

/// Number of authors per document.
const AUTHORS: u32 = 2;

/// A document with this number of edits is restarted with other authors, which bounds its size.
pub(super) const EDITS_MAX: usize = 3_000;

/// While this number of edits waits for the store, no more are made.
const UNWRITTEN_MAX: usize = 500;

/// How long a snapshot may be open.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// The documents, and the progress of a wave.
pub(super) struct Documents {
    documents: Vec<Document>,
    /// The next document of the wave; `None`: there is no wave.
    wave: Option<usize>,
}

struct Document {
    tenant: Tenant,
    id: String,
    /// `None`: the document is not open yet, or is being restarted.
    circle: Option<Circle>,
    /// Number of the circle's edits that are in the store.
    written: usize,
    /// Number of those edits by author.
    client_seqs: Vec<u64>,
    /// The last known sequence number; `None`: the document is not in the store as far as is known.
    server_seq: Option<u64>,
}

impl Default for Documents {
    fn default() -> Documents {
        let document = |number: usize, kind: &str| Document {
            tenant: Tenant::from(TENANTS[number % TENANTS.len()]),
            id: format!("{kind}-{:03}", number + 1),
            circle: None,
            written: 0,
            client_seqs: Vec::new(),
            server_seq: None,
        };
        let drafts = (0..DRAFTS).map(|number| document(number, "draft"));
        let wave = (0..WAVE).map(|number| document(number, "wave"));
        Documents { documents: drafts.chain(wave).collect(), wave: None }
    }
}

impl Documents {
    /// Starts a wave over many documents with the next beat.
    pub(super) fn begin_wave(&mut self) {
        self.wave = Some(DRAFTS);
    }

    /// The occasionally edited documents of a tenant that exist, with their last sequence numbers.
    pub(super) fn of(&self, tenant: &Tenant) -> impl Iterator<Item = (&str, u64)> {
        let own =
            self.documents[..DRAFTS].iter().filter(move |document| document.tenant == *tenant);
        own.filter_map(|document| Some((document.id.as_str(), document.server_seq?)))
    }

    /// Makes the edits of one beat.
    pub(super) async fn edit(
        &mut self,
        world: &World,
        now: Time,
        rng: &mut StdRng,
    ) -> anyhow::Result<()> {
        self.documents[HOT].transact(HOT_TRANSACTIONS, rng)?;
        for _ in 0..OTHER_TRANSACTIONS {
            self.documents[rng.random_range(HOT + 1..DRAFTS)].transact(1, rng)?;
        }
        if let Some(from) = self.wave {
            let until = (from + WAVE_PER_BEAT).min(self.documents.len());
            for document in &mut self.documents[from..until] {
                document.transact(WAVE_TRANSACTIONS, rng)?;
            }
            self.wave = (until < self.documents.len()).then_some(until);
        }
        self.write(world, now).await?;
        for document in &mut self.documents {
            if document.written >= EDITS_MAX {
                document.begin_anew(world, now).await?;
            }
        }
        Ok(())
    }

    /// Writes all edits that are not in the store yet, in one transaction.
    async fn write(&mut self, world: &World, now: Time) -> anyhow::Result<()> {
        let mut changed: Vec<&mut Document> =
            self.documents.iter_mut().filter(|document| document.unwritten() > 0).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let view = world.store.snapshot(OPEN_MAX).await?;
        let mut heads = Vec::with_capacity(changed.len());
        for document in &changed {
            heads.push(document.head(view.as_ref()).await?.map(|head| head.server_seq));
        }
        drop(view);
        let mut changes = Vec::new();
        let mut after = Vec::with_capacity(changed.len());
        for (document, head) in changed.iter().zip(heads) {
            after.push(document.append(head, now, &mut changes));
        }
        world.product.write(&changes).await?;
        for (document, (server_seq, client_seqs)) in changed.iter_mut().zip(after) {
            document.written += document.unwritten();
            document.server_seq = Some(server_seq);
            document.client_seqs = client_seqs;
        }
        Ok(())
    }
}

/// The relevant columns of a row of `documents`.
struct Head {
    server_seq: u64,
    epoch: i64,
}

impl Document {
    /// Lets its authors make a number of transactions.
    fn transact(&mut self, transactions: u32, rng: &mut StdRng) -> anyhow::Result<()> {
        if self.unwritten() >= UNWRITTEN_MAX {
            return Ok(());
        }
        let circle = self.circle.get_or_insert_with(|| Circle::new(AUTHORS, 0, rng));
        self.client_seqs.resize(AUTHORS as usize, 0);
        for _ in 0..transactions {
            circle.transact(rng).map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    fn unwritten(&self) -> usize {
        self.circle.as_ref().map_or(0, |circle| circle.log().edits.len() - self.written)
    }

    fn key(&self) -> Vec<Value> {
        vec![text(&self.id)]
    }

    async fn head(&self, view: &dyn ReadView) -> anyhow::Result<Option<Head>> {
        let columns = ["server_seq", "epoch"].map(str::to_owned);
        let key = [self.key()];
        let rows = view.get_many(Some(&self.tenant), "documents", &key, &columns).await?;
        Ok(match rows.into_iter().flatten().next().as_deref() {
            Some([Value::Integer(server_seq), Value::Integer(epoch)]) => {
                Some(Head { server_seq: u64::try_from(*server_seq)?, epoch: *epoch })
            }
            _ => None,
        })
    }

    /// Adds the rows of the edits that are not written yet. Returns the numbers that apply once
    /// they are written.
    fn append(&self, head: Option<u64>, now: Time, changes: &mut Vec<Written>) -> (u64, Vec<u64>) {
        let Document { tenant, id, .. } = self;
        let mut server_seq = head.unwrap_or(0);
        let mut client_seqs = self.client_seqs.clone();
        let Some(circle) = &self.circle else { return (server_seq, client_seqs) };
        let log = circle.log();
        let unwritten = &log.edits[self.written..];
        let last = integer(server_seq + unwritten.len() as u64);
        // The document comes first: the engine locks its rows in the same order.
        changes.push(match head {
            Some(_) => {
                let columns = [("server_seq", last), ("updated_at", at(now))];
                update(tenant, "documents", self.key(), columns)
            }
            None => {
                let row = [
                    ("doc_id", text(id)),
                    ("format", text("yjs")),
                    ("server_seq", last),
                    ("compacted_seq", integer(0)),
                    ("epoch", integer(0)),
                    ("created_at", at(now)),
                    ("updated_at", at(now)),
                    ("compacted_at", Value::Null),
                ];
                insert(tenant, "documents", row)
            }
        });
        for Edit { author, payload } in unwritten {
            server_seq += 1;
            let client_seq = &mut client_seqs[*author as usize];
            *client_seq += 1;
            let row = [
                ("doc_id", text(id)),
                ("server_seq", integer(server_seq)),
                ("actor_id", text(format!("yjs-{}", log.authors[*author as usize]))),
                ("client_seq", integer(*client_seq)),
                ("lamport", integer(server_seq)),
                ("kind", text("edit")),
                ("payload", Value::Bytes(payload.clone())),
                ("checksum", checksum(payload)),
            ];
            changes.push(insert(tenant, "changes", row));
        }
        (server_seq, client_seqs)
    }

    /// Replaces the document by an empty one of the same name: its log is deleted and its sequence
    /// numbers continue. A compaction that has read the old document cannot commit, because the
    /// epoch has changed.
    async fn begin_anew(&mut self, world: &World, now: Time) -> anyhow::Result<()> {
        let view = world.store.snapshot(OPEN_MAX).await?;
        let head = self.head(view.as_ref()).await?;
        let mut gone = Range {
            collection: "changes".to_owned(),
            prefix: self.key(),
            columns: vec!["server_seq".to_owned()],
            keys: true,
            limit: EDITS_MAX as u32,
            bytes_max: usize::MAX,
            ..Range::default()
        };
        let mut changes = Vec::new();
        if let Some(Head { server_seq, epoch }) = head {
            let columns = [
                ("epoch", Value::Integer(epoch + 1)),
                ("compacted_seq", integer(server_seq)),
                ("updated_at", at(now)),
            ];
            changes.push(update(&self.tenant, "documents", self.key(), columns));
            loop {
                let page = view.read_range(Some(&self.tenant), &gone).await?;
                changes
                    .extend(page.keys.into_iter().map(|key| delete(&self.tenant, "changes", key)));
                match page.next {
                    Some(next) => gone.after = Some(next),
                    None => break,
                }
            }
        }
        drop(view);
        world.product.write(&changes).await?;
        (self.circle, self.written, self.client_seqs) = (None, 0, Vec::new());
        Ok(())
    }
}
