//! The updates of Yjs clients, and their text.

use yrs::updates::decoder::Decode;
use yrs::{Doc, GetString, ReadTxn, StateVector, Text, Transact, Update};

/// Updates of a typing client, one word each.
pub fn typed(client: u64, words: &[&str]) -> Vec<Vec<u8>> {
    let doc = Doc::with_client_id(client);
    let text = doc.get_or_insert_text("text");
    let type_word = |word: &&str| {
        let mut txn = doc.transact_mut();
        let end = text.len(&txn);
        text.insert(&mut txn, end, word);
        txn.encode_update_v1()
    };
    words.iter().map(type_word).collect()
}

/// The text of the updates.
pub fn text(updates: &[Vec<u8>]) -> String {
    let doc = Doc::new();
    let text = doc.get_or_insert_text("text");
    for update in updates {
        doc.transact_mut().apply_update(Update::decode_v1(update).unwrap()).unwrap();
    }
    let txn = doc.transact();
    assert!(!txn.has_missing_updates());
    assert!(!txn.encode_diff_v1(&StateVector::default()).is_empty());
    text.get_string(&txn)
}
