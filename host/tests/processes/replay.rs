//! Whether two lists of updates are the same document: judged by the reader of structs, which
//! does not know how the document was compacted, and by a replica that is built from nothing.

use besom_compaction::yjs::compare::compare;
use besom_compaction::yjs::digest::digest;
use besom_compaction::yjs::names::Names;
use besom_compaction::yjs::union;
use yrs::types::ToJson as _;
use yrs::updates::decoder::Decode as _;
use yrs::{Any, Doc, OffsetKind, Options, ReadTxn as _, Transact as _, Update};

/// Fails unless the export has everything that was ever written.
#[track_caller]
pub fn same_document(name: &str, written: &[Vec<u8>], exported: &[Vec<u8>]) {
    let names = &mut Names::default();
    let old = union::read(names, written.iter().map(Vec::as_slice)).expect("what was written");
    let new = union::read(names, exported.iter().map(Vec::as_slice))
        .unwrap_or_else(|fault| panic!("{name}: the export cannot be read: {fault:?}"));
    if let Err(difference) = compare(names, &old, &new, false) {
        panic!("{name}: {difference}");
    }
    assert_eq!(digest(names, &old, &new), digest(names, &new, &new), "{name}");
    assert_eq!(content(written), content(exported), "{name}");
}

/// What a reader of the document sees.
fn content(updates: &[Vec<u8>]) -> Any {
    let doc = Doc::with_options(Options { offset_kind: OffsetKind::Utf16, ..Options::default() });
    let (_, _) = (doc.get_or_insert_text("text"), doc.get_or_insert_map("map"));
    for update in updates {
        let update = Update::decode_v1(update).expect("an update");
        doc.transact_mut().apply_update(update).expect("it fits");
    }
    let txn = doc.transact();
    assert!(txn.store().pending_update().is_none(), "something is missing");
    doc.to_json(&txn)
}

/// The updates of an update log, as `besom doc export` writes it.
pub fn updates(log: &[u8]) -> Vec<Vec<u8>> {
    let number =
        |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().expect("four bytes")) as usize;
    let (mut updates, mut at) = (Vec::new(), 4);
    for _ in 0..number(0) {
        let length = number(at);
        updates.push(log[at + 4..at + 4 + length].to_vec());
        at += 4 + length;
    }
    assert_eq!(at, log.len(), "nothing follows the last update");
    updates
}
