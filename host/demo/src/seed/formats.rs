//! The Loro and Automerge documents of a tenant: one log each, the same for all tenants, because
//! this program contains neither library. No client is attached to them, so that the history of one
//! is trimmed and the other one is reset.

use std::time::Duration;

use besom_core::time::Time;

use crate::document::Document;
use crate::log::{Edit, UpdateLog};

/// The format, the key of the document, and its log in the format of `besom doc import`. The tests
/// regenerate the logs if `BESOM_BLESS` is set.
const LOGS: [(&str, &str, &[u8]); 2] = [
    ("loro", "board-01", include_bytes!("loro.log")),
    ("automerge", "sheet-01", include_bytes!("automerge.log")),
];

/// The documents, last changed a while ago.
pub(super) fn of(now: Time) -> Vec<Document> {
    LOGS.into_iter()
        .map(|(format, id, log)| {
            let edits = updates(log).enumerate().map(|(number, payload)| Edit {
                author: number as u32 % 2,
                payload: payload.to_vec(),
            });
            let log = UpdateLog { authors: vec![1, 2], edits: edits.collect() };
            let updated_at = now - Duration::from_secs(3_600);
            Document { format, ..Document::from_log(id, &log, &actors(format), false, updated_at) }
        })
        .collect()
}

fn actors(format: &str) -> [String; 2] {
    [format!("{format}-1"), format!("{format}-2")]
}

/// The updates of a log: their count, then each with its length.
fn updates(log: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    let mut rest = &log[4..];
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let (update, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(update)
    })
}

#[cfg(test)]
mod tests {
    use automerge::transaction::{CommitOptions, Transactable as _};
    use automerge::{ActorId, AutoCommit, ObjType, ROOT, ReadDoc as _};
    use loro::{ExportMode, LoroDoc};

    use super::*;

    /// Edits of both authors, one after the other.
    const EDITS: usize = 60;

    fn sentence(edit: usize) -> String {
        format!("{edit}: what was said. ")
    }

    /// Two replicas that take turns, each with the updates of the other.
    fn loro() -> Vec<Vec<u8>> {
        let replicas = [1, 2].map(|peer| {
            let doc = LoroDoc::new();
            doc.set_peer_id(peer).unwrap();
            doc
        });
        let mut log = Vec::new();
        for edit in 0..EDITS {
            let (doc, other) = (&replicas[edit % 2], &replicas[(edit + 1) % 2]);
            let before = doc.oplog_vv();
            let text = doc.get_text("text");
            text.insert(text.len_unicode() / 2, &sentence(edit)).unwrap();
            if edit % 4 == 3 {
                text.delete(0, 12).unwrap();
            }
            doc.get_map("cards").insert(&format!("card {}", edit % 7), edit as i64).unwrap();
            doc.get_movable_list("order").push(edit as i64).unwrap();
            doc.commit();
            let update = doc.export(ExportMode::updates(&before)).unwrap();
            other.import(&update).unwrap();
            log.push(update);
        }
        log
    }

    fn automerge() -> Vec<Vec<u8>> {
        let mut first = AutoCommit::new().with_actor(ActorId::from([1; 16]));
        let text = first.put_object(ROOT, "text", ObjType::Text).unwrap();
        let cells = first.put_object(ROOT, "cells", ObjType::Map).unwrap();
        let commit = || CommitOptions::default().with_time(0);
        first.commit_with(commit());
        let mut log = vec![first.save_incremental()];
        let mut second = AutoCommit::new().with_actor(ActorId::from([2; 16]));
        second.load_incremental(&log[0]).unwrap();
        second.save_incremental();
        let mut replicas = [first, second];
        for edit in 1..EDITS {
            let doc = &mut replicas[edit % 2];
            let at = doc.length(&text) / 2;
            doc.splice_text(&text, at, 0, &sentence(edit)).unwrap();
            if edit % 4 == 3 {
                doc.splice_text(&text, 0, 12, "").unwrap();
            }
            doc.put(&cells, format!("cell {}", edit % 7), edit as i64).unwrap();
            doc.commit_with(commit());
            let update = doc.save_incremental();
            let other = &mut replicas[(edit + 1) % 2];
            other.load_incremental(&update).unwrap();
            other.save_incremental();
            log.push(update);
        }
        log
    }

    #[test]
    fn the_logs_are_those_that_the_libraries_write() {
        for ((format, _, committed), log) in LOGS.into_iter().zip([loro(), automerge()]) {
            let mut bytes = (log.len() as u32).to_le_bytes().to_vec();
            for update in &log {
                bytes.extend((update.len() as u32).to_le_bytes());
                bytes.extend(update);
            }
            if std::env::var_os("BESOM_BLESS").is_some() {
                let path = format!("{}/src/seed/{format}.log", env!("CARGO_MANIFEST_DIR"));
                std::fs::write(path, &bytes).unwrap();
            } else {
                assert!(bytes == committed, "{format}: write it anew with BESOM_BLESS=1");
                assert!(updates(committed).eq(log));
            }
        }
    }
}
