//! Authors, and what becomes of their rows.

use besom_compaction::loro as format;
use besom_compaction::outcome::{Compacted, Job, LeftAlone, Mode, Settings, Wish};
use loro::{ExportMode, LoroDoc, VersionVector};

/// An author of that peer.
pub fn author(peer: u64) -> LoroDoc {
    let doc = LoroDoc::new();
    doc.set_peer_id(peer).unwrap();
    doc
}

/// What an edit adds, as the row that its author sends.
pub fn row(doc: &LoroDoc, edit: impl FnOnce(&LoroDoc)) -> Vec<u8> {
    let before = doc.oplog_vv();
    edit(doc);
    doc.commit();
    doc.export(ExportMode::updates(&before)).unwrap()
}

/// The document of those rows, by Loro alone.
pub fn built(rows: &[Vec<u8>]) -> LoroDoc {
    let doc = author(9_999);
    let status = doc.import_batch(rows).unwrap();
    assert_eq!(status.pending, None);
    doc
}

/// A replica of a document, to go on as that peer.
pub fn replica(doc: &LoroDoc, peer: u64) -> LoroDoc {
    let copy = author(peer);
    copy.import(&doc.export(ExportMode::Snapshot).unwrap()).unwrap();
    copy
}

/// Both hear of each other.
pub fn sync(a: &LoroDoc, b: &LoroDoc) {
    for (from, to) in [(a, b), (b, a)] {
        let news = from.export(ExportMode::updates(&to.oplog_vv())).unwrap();
        let status = to.import(&news).unwrap();
        assert_eq!(status.pending, None);
    }
}

fn compact(rows: &[Vec<u8>], wish: Wish<'_>) -> Result<Compacted, LeftAlone> {
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    format::compact(&Job { updates: &updates, wish, settings: &Settings::default() })
}

/// Compacted in merge mode.
pub fn merge(rows: &[Vec<u8>]) -> Result<Compacted, LeftAlone> {
    compact(rows, Wish::Merge)
}

/// Compacted in trim mode, clients with those vectors being attached.
pub fn trim(rows: &[Vec<u8>], clients: &[VersionVector]) -> Result<Compacted, LeftAlone> {
    let encoded: Vec<Vec<u8>> = clients.iter().map(VersionVector::encode).collect();
    let vectors: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
    compact(rows, Wish::Trim(&vectors))
}

/// In both modes, nobody being attached; each verified once more from the rows.
pub fn both(rows: &[Vec<u8>]) -> Vec<(Compacted, LoroDoc)> {
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    [merge(rows).unwrap(), trim(rows, &[]).unwrap()]
        .into_iter()
        .map(|compacted| {
            let mode = compacted.mode;
            let verified = format::verify(&updates, &compacted.update, mode).unwrap();
            assert_eq!(verified, compacted.digests, "{mode}");
            let doc = built(std::slice::from_ref(&compacted.update));
            assert_eq!(doc.is_shallow(), mode == Mode::Trim);
            (compacted, doc)
        })
        .collect()
}

/// The same versions, value and marks, by Loro's own comparison.
#[track_caller]
pub fn assert_alike(a: &LoroDoc, b: &LoroDoc) {
    assert_eq!(a.oplog_vv(), b.oplog_vv());
    assert_eq!(a.oplog_frontiers(), b.oplog_frontiers());
    assert_eq!(a.get_deep_value_with_id(), b.get_deep_value_with_id());
    for id in a.analyze().containers.keys() {
        if let (Some(loro::Container::Text(in_a)), Some(loro::Container::Text(in_b))) =
            (a.get_container(id.clone()), b.get_container(id.clone()))
        {
            assert_eq!(in_a.get_richtext_value(), in_b.get_richtext_value(), "{id}");
        }
    }
}
