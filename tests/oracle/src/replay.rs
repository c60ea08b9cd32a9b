//! Editing traces as the rows that clients send: a row for each transaction, written by replicas
//! with the author's knowledge at that time.

use automerge::transaction::Transactable;
use automerge::{ActorId, Automerge, Change, ObjType, ROOT, TextEncoding};
use loro::{ExportMode, ID, IdSpan, LoroDoc};

use crate::trace::Trace;

/// Loro updates, one for each transaction.
pub fn loro(trace: &Trace) -> Vec<Vec<u8>> {
    let mut log = Vec::with_capacity(trace.transactions.len());
    // One replica for each agent; each transaction is made at the version of its parents.
    let replicas: Vec<LoroDoc> = (0..trace.agents).map(|agent| author(agent as u64 + 1)).collect();
    let mut heads: Vec<ID> = Vec::with_capacity(trace.transactions.len());
    for transaction in &trace.transactions {
        let doc = &replicas[transaction.agent];
        let parents: Vec<ID> = transaction.parents.iter().map(|it| heads[*it]).collect();
        let known = doc.oplog_vv();
        for parent in parents.iter().filter(|parent| !known.includes_id(**parent)) {
            let from = &replicas[(parent.peer - 1) as usize];
            let at = from.frontiers_to_vv(&(*parent).into()).unwrap();
            let spans = at
                .sub_vec(&doc.oplog_vv())
                .into_iter()
                .map(|(peer, span)| IdSpan::new(peer, span.start, span.end));
            let news = from.export(ExportMode::updates_in_range(spans.collect::<Vec<_>>()));
            doc.import(&news.unwrap()).unwrap();
        }
        let before = doc.oplog_vv();
        let text = doc.get_text("text");
        for patch in &transaction.patches {
            text.delete(patch.position, patch.deleted).unwrap();
            text.insert(patch.position, &patch.inserted).unwrap();
        }
        doc.commit();
        let end = doc.oplog_vv().get(&doc.peer_id()).copied().unwrap_or(0);
        heads.push(ID::new(doc.peer_id(), end - 1));
        log.push(doc.export(ExportMode::updates(&before)).unwrap());
    }
    log
}

fn author(peer: u64) -> LoroDoc {
    let doc = LoroDoc::new();
    doc.set_peer_id(peer).unwrap();
    doc
}

/// Automerge changes, one for each transaction and one for the start.
pub fn automerge(trace: &Trace) -> Vec<Vec<u8>> {
    let actor = |agent: usize| ActorId::from([agent as u8 + 1; 16]);
    let new = |agent| {
        Automerge::new_with_encoding(TextEncoding::UnicodeCodePoint).with_actor(actor(agent))
    };
    let mut first = new(255 - 1);
    let mut transaction = first.transaction();
    let text = transaction.put_object(ROOT, "text", ObjType::Text).expect("a text");
    transaction.splice_text(&text, 0, 0, &trace.start).expect("a start");
    transaction.commit();
    let start = first.get_last_local_change().expect("a change");
    let mut replicas: Vec<(Automerge, Vec<bool>)> = (0..trace.agents)
        .map(|agent| {
            let mut doc = new(agent);
            doc.apply_changes([start.clone()]).expect("the start");
            (doc, vec![false; trace.transactions.len()])
        })
        .collect();
    if let [(doc, _)] = &mut replicas[..] {
        // Extracting a change walks over the whole document, so those of one author are extracted
        // at once.
        for transaction in &trace.transactions {
            let mut editing = doc.transaction();
            for patch in &transaction.patches {
                editing
                    .splice_text(&text, patch.position, patch.deleted as isize, &patch.inserted)
                    .expect("a place in the text");
            }
            editing.commit();
        }
        return doc.get_changes(&[]).iter().map(|it| it.raw_bytes().to_vec()).collect();
    }
    let mut changes: Vec<Option<Change>> = Vec::new();
    for (index, transaction) in trace.transactions.iter().enumerate() {
        let (doc, knows) = &mut replicas[transaction.agent];
        let mut unknown = Vec::new();
        let mut waiting = transaction.parents.clone();
        while let Some(parent) = waiting.pop() {
            if !std::mem::replace(&mut knows[parent], true) {
                unknown.push(parent);
                waiting.extend(&trace.transactions[parent].parents);
            }
        }
        unknown.sort_unstable();
        if !unknown.is_empty() {
            let news: Vec<Change> =
                unknown.into_iter().filter_map(|parent| changes[parent].clone()).collect();
            doc.apply_changes(news).expect("what was written");
        }
        let mut editing = doc.transaction();
        for patch in &transaction.patches {
            editing
                .splice_text(&text, patch.position, patch.deleted as isize, &patch.inserted)
                .expect("a place in the text");
        }
        let (hash, _) = editing.commit();
        knows[index] = true;
        changes.push(hash.and_then(|_| doc.get_last_local_change()));
    }
    let written = changes.into_iter().flatten();
    std::iter::once(start).chain(written).map(|change| change.raw_bytes().to_vec()).collect()
}
