//! Checks whether text inserted at the beginning or end of a mark gets the mark.
//!
//! This is not visible in any value of a document, only in later edits. So a character is inserted
//! at every place where a mark begins or ends, in a transaction that is rolled back.

use std::collections::VecDeque;

use automerge::transaction::Transactable;
use automerge::{Automerge, ObjId, ObjType, ROOT, ReadDoc, ScalarValue, ValueRef};
use sha2::{Digest as _, Sha256};

use super::chunk::Hash;
use super::live::{Item, Present};
use super::sequence::Element;
use crate::outcome::{Code, LeftAlone};

/// The places of marks: for each object, in the order in which a reader finds them, the positions,
/// ascending.
pub type Places = Vec<Vec<usize>>;

/// The places where marks begin and end.
pub fn places(present: &[(u32, Present)]) -> Places {
    present
        .iter()
        .map(|(_, now)| {
            let Present::Sequence(kind, elements) = now else { return Vec::new() };
            let (mut at, mut places) = (0, Vec::new());
            for element in elements {
                match element {
                    Element::Value(Item::Scalar(ScalarValue::Str(text)))
                        if *kind == ObjType::Text =>
                    {
                        at += text.encode_utf16().count();
                    }
                    Element::Value(_) => at += 1,
                    Element::Begin(..) | Element::End(..) => places.push(at),
                }
            }
            places.dedup();
            places
        })
        .collect()
}

/// The digest of the marks after the insertions. The document is unchanged afterwards.
pub fn probe(doc: &mut Automerge, places: &Places) -> Result<Hash, LeftAlone> {
    let mut hash = Sha256::new();
    hash.update(b"automerge expansion 1");
    if places.iter().all(Vec::is_empty) {
        return Ok(hash.finalize().into());
    }
    let objects = objects(doc);
    if objects.len() != places.len() {
        return Err(LeftAlone::new(Code::Changed, "the number of objects differs"));
    }
    let mut transaction = doc.transaction();
    for ((id, kind), places) in objects.iter().zip(places) {
        if places.is_empty() {
            continue;
        }
        for &at in places.iter().rev() {
            match kind {
                ObjType::Text => transaction.splice_text(id, at, 0, "x"),
                ObjType::Map | ObjType::Table | ObjType::List => transaction.insert(id, at, 0),
            }
            .map_err(unreadable)?;
        }
        for mark in transaction.marks(id).map_err(unreadable)? {
            hash.update((mark.start as u64).to_le_bytes());
            hash.update((mark.end as u64).to_le_bytes());
            hash.update((mark.name.len() as u64).to_le_bytes());
            hash.update(mark.name.as_bytes());
            // The content digest covers the value.
            hash.update(format!("{:?}", mark.value()).as_bytes());
        }
        hash.update([0xff]);
    }
    transaction.rollback();
    Ok(hash.finalize().into())
}

/// Every object, in the order in which a reader finds them.
fn objects(doc: &Automerge) -> Vec<(ObjId, ObjType)> {
    let mut met = Vec::new();
    let mut waiting = VecDeque::from([(ROOT, ObjType::Map)]);
    while let Some((id, kind)) = waiting.pop_front() {
        match kind {
            ObjType::Map | ObjType::Table => {
                for item in doc.map_range(&id, ..) {
                    if let ValueRef::Object(kind) = item.value {
                        waiting.push_back((item.id(), kind));
                    }
                }
            }
            ObjType::List | ObjType::Text => {
                for item in doc.list_range(&id, ..) {
                    if let ValueRef::Object(kind) = item.value {
                        waiting.push_back((item.id(), kind));
                    }
                }
            }
        }
        met.push((id, kind));
    }
    met
}

fn unreadable(error: automerge::AutomergeError) -> LeftAlone {
    LeftAlone::new(Code::Unsupported, format!("automerge cannot edit its document: {error}"))
}
