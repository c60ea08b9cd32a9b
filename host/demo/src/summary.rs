//! The results of the demo: the last line of `besom demo --exit --output json`.
//!
//! The numbers come from the rows in the store where possible, from the history where only it has
//! the information (whether a round trip was verified, why a document was left alone), and from the
//! audit for the books.

use std::collections::HashSet;

use besom_core::ids::{TaskName, Tenant};
use besom_core::item::Identity;
use besom_core::value::Value;
use serde::Serialize;

use super::table::Measured;
use besom_ports::history::Rows;
use besom_ports::store::{DeadSelector, End, HistoryQuery, HistoryRow, Letters, Store};

/// The name of the compaction task in the demo's configuration.
pub(super) const COMPACTION: &str = "compaction";

/// The note that compaction adds when the round trip was verified.
const VERIFIED: &str = "verified";

/// Maximum number of dead letters that are read.
const DEAD_MAX: u32 = 100_000;

/// The summary. Its JSON is a contract with scripts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Whether the audit balances.
    pub balanced: bool,
    /// The results for the documents.
    pub documents: Documents,
    /// Size of the payloads in changes and snapshots, in bytes.
    pub bytes: Bytes,
    /// Number of clients that were deactivated.
    pub clients_deactivated: u64,
    /// Number of shares that ended.
    pub shares_expired: u64,
    /// Number of workspaces whose desired state differs from their status.
    pub transitions: u64,
}

/// The results for the documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Documents {
    /// Number of documents.
    pub total: u64,
    /// Number of documents that were compacted.
    pub compacted: u64,
    /// Number of compacted documents whose round trip was verified.
    pub verified: u64,
    /// Number of documents that cannot be compacted: a settled skip or a dead letter.
    pub left_alone: u64,
}

/// Size of payloads, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Before the first task ran.
    pub before: u64,
    /// After the last task ran.
    pub after: u64,
}

/// Computes the summary from the measurements before and after, and from the current store.
pub async fn summary(
    store: &dyn Store,
    before: &Measured,
    after: &Measured,
) -> anyhow::Result<Summary> {
    let fates = fates(store).await?;
    Ok(Summary {
        balanced: store.audit().await?.balanced(),
        documents: Documents {
            total: after.documents,
            compacted: after.compacted,
            verified: fates.verified.len() as u64,
            left_alone: fates.left_alone.difference(&fates.compacted).count() as u64,
        },
        bytes: Bytes { before: before.bytes(), after: after.bytes() },
        clients_deactivated: after.deactivated().saturating_sub(before.deactivated()),
        shares_expired: after.shares_ended.saturating_sub(before.shares_ended),
        transitions: after.transitions.saturating_sub(before.transitions),
    })
}

/// The tenant and the key of a document.
type Document = (Option<Tenant>, String);

/// Documents by result. A document that was compacted and is now settled is in both `compacted` and
/// `left_alone`.
#[derive(Default)]
struct Fates {
    compacted: HashSet<Document>,
    left_alone: HashSet<Document>,
    verified: HashSet<Document>,
}

async fn fates(store: &dyn Store) -> anyhow::Result<Fates> {
    let mut fates = Fates::default();
    let task = Some(TaskName::from(COMPACTION));
    let query = HistoryQuery { task: task.clone(), ..HistoryQuery::default() };
    let mut rows = Rows::of(store, query);
    while let Some(row) = rows.next().await? {
        fates.note(&row);
    }
    let dead = DeadSelector { task, ..DeadSelector::default() };
    for letter in store.dead_letters(&dead, Letters::Open, None, DEAD_MAX).await? {
        // A document that was compacted before but can no longer be is left alone now.
        let document = document(&letter.item.identity);
        fates.compacted.remove(&document);
        fates.left_alone.insert(document);
    }
    Ok(fates)
}

impl Fates {
    fn note(&mut self, row: &HistoryRow) {
        let document = document(&row.identity);
        match row.outcome {
            End::Committed => {
                let verified = |note: &besom_core::value::Field| {
                    note.name == VERIFIED && note.value == Value::Bool(true)
                };
                if row.notes.iter().any(verified) {
                    self.verified.insert(document.clone());
                }
                self.compacted.insert(document);
            }
            End::Skipped if row.settled => {
                self.left_alone.insert(document);
            }
            End::Skipped | End::Dead | End::Discarded | End::Unknown => {}
        }
    }
}

fn document(identity: &Identity) -> Document {
    (identity.tenant.clone(), identity.key.clone())
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{CommitId, RunId};
    use besom_core::time::Time;
    use besom_core::value::Field;

    use super::*;

    #[test]
    fn the_json_has_the_keys_that_scripts_read() {
        let json = serde_json::to_string(&Summary::default()).unwrap();
        assert_eq!(
            json,
            r#"{"balanced":false,"documents":{"total":0,"compacted":0,"verified":0,"left_alone":0},"bytes":{"before":0,"after":0},"clients_deactivated":0,"shares_expired":0,"transitions":0}"#
        );
    }

    #[test]
    fn a_document_is_left_alone_only_if_it_was_never_compacted() {
        let row = |key: &str, outcome, settled, verified| HistoryRow {
            id: 1,
            identity: Identity {
                task: COMPACTION.into(),
                tenant: None,
                key: key.into(),
                due: None,
            },
            run: RunId(1),
            at: Time::EPOCH,
            outcome,
            settled,
            reason: None,
            notes: vec![Field::new(VERIFIED, Value::Bool(verified))],
            node: "node".into(),
            commit: CommitId(1),
            rows: 0,
            undo_bytes: 0,
        };
        let mut fates = Fates::default();
        for row in [
            row("settled after its compaction", End::Skipped, true, false),
            row("settled after its compaction", End::Committed, false, true),
            row("refused", End::Skipped, true, false),
            row("contended", End::Skipped, false, false),
            row("pruned", End::Committed, false, false),
        ] {
            fates.note(&row);
        }
        let left: Vec<_> = fates.left_alone.difference(&fates.compacted).collect();
        assert_eq!(left, [&(None, "refused".to_owned())]);
        assert_eq!((fates.compacted.len(), fates.verified.len()), (2, 1));
    }
}
