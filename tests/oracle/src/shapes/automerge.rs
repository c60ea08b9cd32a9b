//! Automerge documents that need much memory.

use automerge::marks::{ExpandMark, Mark};
use automerge::transaction::{Transactable, Transaction};
use automerge::{ActorId, Automerge, ObjType, ROOT};

use super::Shape;

/// Every shape.
pub const SHAPES: &[Shape] = &[
    Shape { name: "equal letters", count: 500_000, rows: letters },
    Shape { name: "keys", count: 200_000, rows: keys },
    Shape { name: "one key again and again", count: 50_000, rows: one_key },
    Shape { name: "maps in maps", count: 20_000, rows: nested },
    Shape { name: "marks", count: 8_000, rows: marks },
    Shape { name: "bytes", count: 40, rows: bytes },
];

/// A row for each of so many changes.
fn written(count: usize, mut write: impl FnMut(usize, &mut Transaction<'_>)) -> Vec<Vec<u8>> {
    let mut doc = Automerge::new().with_actor(ActorId::from([1u8; 16]));
    (0..count)
        .map(|index| {
            let mut transaction = doc.transaction();
            write(index, &mut transaction);
            transaction.commit();
            doc.get_last_local_change().expect("a change").raw_bytes().to_vec()
        })
        .collect()
}

fn letters(count: usize) -> Vec<Vec<u8>> {
    written(1, |_, tx| {
        let text = tx.put_object(ROOT, "text", ObjType::Text).unwrap();
        tx.splice_text(&text, 0, 0, &"a".repeat(count)).unwrap();
    })
}

/// A thousand in each change.
fn keys(count: usize) -> Vec<Vec<u8>> {
    written(count / 1_000, |index, tx| {
        for key in 0..1_000 {
            tx.put(ROOT, format!("{index}-{key}"), key as i64).unwrap();
        }
    })
}

fn one_key(count: usize) -> Vec<Vec<u8>> {
    written(count, |index, tx| tx.put(ROOT, "key", index as i64).unwrap())
}

fn nested(count: usize) -> Vec<Vec<u8>> {
    written(1, |_, tx| {
        let mut id = ROOT;
        for _ in 0..count {
            id = tx.put_object(&id, "in", ObjType::Map).unwrap();
        }
    })
}

fn marks(count: usize) -> Vec<Vec<u8>> {
    written(1, |_, tx| {
        let text = tx.put_object(ROOT, "text", ObjType::Text).unwrap();
        tx.splice_text(&text, 0, 0, &"x".repeat(count + 9)).unwrap();
        for at in 0..count {
            let mark = Mark::new(format!("m{}", at % 7), at as i64, at, at + 9);
            tx.mark(&text, mark, ExpandMark::Both).unwrap();
        }
    })
}

/// A hundred thousand that do not deflate in each change.
fn bytes(count: usize) -> Vec<Vec<u8>> {
    written(count, |index, tx| {
        let mut seed = index as u32 + 1;
        let bytes: Vec<u8> = (0..100_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        tx.put(ROOT, format!("blob {index}"), bytes).unwrap();
    })
}
