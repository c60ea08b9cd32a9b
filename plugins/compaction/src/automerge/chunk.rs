//! Reads the container: a row is one or more chunks, without any other bytes.
//!
//! Decides whether a row is well formed, which hash each change has, and how much the chunks
//! contain (counts). The library parses the same bytes again but accepts more than it should: it
//! has read a document whose last chunk was truncated as empty, and a single change
//! without checking its checksum.
//!
//! ```text
//! 85 6f 4a 83 | checksum (4) | type (1) | length (LEB128) | data
//!               = the first bytes of SHA-256(type, length, data); of a deflated change, as if
//!                 it were not deflated
//! ```

use sha2::{Digest as _, Sha256};

use super::columns::{self, Counts, Of};
use super::wire::{Fault, Reader};

const MAGIC: [u8; 4] = [0x85, 0x6f, 0x4a, 0x83];

/// The SHA-256 of a change, which identifies it.
pub type Hash = [u8; 32];

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A change, deflated or not.
    Change(Change),
    /// A whole document.
    Document(Document),
    /// A bundle of changes, an experimental kind of the library.
    Bundle,
}

/// The header of a change, without its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The hash that identifies the change.
    pub hash: Hash,
    /// The changes that it depends on.
    pub deps: Vec<Hash>,
    /// The id of the actor that made the change.
    pub actor: Vec<u8>,
    /// The sequence number among the actor's changes, from 1.
    pub seq: u64,
    /// The counter of the first operation.
    pub start_op: u64,
    /// The counts over the operations.
    pub operations: Counts,
}

/// The header of a document, without its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The changes that no other depends on.
    pub heads: Vec<Hash>,
    /// The counts over the changes.
    pub changes: Counts,
    /// The counts over the operations.
    pub operations: Counts,
}

/// The chunks of a row, with their bytes.
pub fn chunks(row: &[u8]) -> Result<Vec<(&[u8], Chunk)>, Fault> {
    let mut reader = Reader::new(row);
    if reader.is_done() {
        return Err(reader.fault("it is empty"));
    }
    let mut chunks = Vec::with_capacity(1);
    while !reader.is_done() {
        let start = reader.at();
        let chunk = chunk(&mut reader)?;
        chunks.push((&row[start..reader.at()], chunk));
    }
    Ok(chunks)
}

fn chunk(reader: &mut Reader<'_>) -> Result<Chunk, Fault> {
    let start = reader.at();
    if reader.array("the mark of a chunk")? != MAGIC {
        return Err(Fault { at: start, what: "no chunk begins here".into() });
    }
    let checksum: [u8; 4] = reader.array("a checksum")?;
    let [kind] = reader.array("a chunk's type")?;
    let len = reader.number("a chunk's length")?;
    let data_at = reader.at();
    let data = reader.take(len, "a chunk")?;
    let within = |fault: Fault| Fault { at: data_at + fault.at, what: fault.what };
    let verified = |kind: u8, data: &[u8]| {
        let hash = hash(kind, data);
        if hash[..4] == checksum {
            Ok(hash)
        } else {
            Err(Fault { at: start + 4, what: "the chunk's checksum does not match".into() })
        }
    };
    match kind {
        0 => verified(0, data).and_then(|_| document(data).map_err(within)).map(Chunk::Document),
        1 => {
            verified(1, data).and_then(|hash| change(hash, data).map_err(within)).map(Chunk::Change)
        }
        2 => {
            let inflated = columns::inflate(data).map_err(|what| Fault { at: data_at, what })?;
            let hash = verified(1, &inflated)?;
            let change = change(hash, &inflated).map_err(|fault| Fault {
                at: data_at,
                what: format!("in the inflated change, {fault}"),
            })?;
            Ok(Chunk::Change(change))
        }
        3 => verified(3, data).map(|_| Chunk::Bundle),
        kind => Err(Fault { at: start + 8, what: format!("chunks of type {kind} are unknown") }),
    }
}

fn hash(kind: u8, data: &[u8]) -> Hash {
    let mut hash = Sha256::new();
    hash.update([kind]);
    let mut len = data.len();
    while len > 0x7f {
        hash.update([len as u8 | 0x80]);
        len >>= 7;
    }
    hash.update([len as u8]);
    hash.update(data);
    hash.finalize().into()
}

fn change(hash: Hash, data: &[u8]) -> Result<Change, Fault> {
    let reader = &mut Reader::new(data);
    let deps = hashes(reader, "the dependencies")?;
    let actor = reader.prefixed("the actor")?.to_vec();
    let seq = reader.number("the sequence number")?;
    let start_op = reader.number("the first operation's counter")?;
    if seq == 0 || start_op == 0 {
        return Err(reader.fault("the sequence number or the first counter is 0"));
    }
    reader.signed("the time")?;
    let message = reader.prefixed("the message")?;
    if std::str::from_utf8(message).is_err() {
        return Err(reader.fault("the message is not UTF-8"));
    }
    actors(reader)?;
    let layout = columns::layout(reader)?;
    let operations = columns::count(reader, &layout, Of::Change)?;
    // The library's counters have 32 bits.
    if start_op.saturating_add(operations.rows) > u64::from(u32::MAX) {
        return Err(reader.fault("an operation's counter has more than 32 bits"));
    }
    // Extra bytes follow, such as the author.
    Ok(Change { hash, deps, actor, seq, start_op, operations })
}

fn document(data: &[u8]) -> Result<Document, Fault> {
    let reader = &mut Reader::new(data);
    actors(reader)?;
    let heads = hashes(reader, "the heads")?;
    let change_columns = columns::layout(reader)?;
    let operation_columns = columns::layout(reader)?;
    let changes = columns::count(reader, &change_columns, Of::Changes)?;
    let operations = columns::count(reader, &operation_columns, Of::Operations)?;
    // Early writers omitted the positions of the heads.
    if !reader.is_done() {
        for _ in &heads {
            reader.number("the place of a head")?;
        }
    }
    match reader.left() {
        0 => Ok(Document { heads, changes, operations }),
        left => Err(reader.fault(format!("{left} bytes follow the document"))),
    }
}

fn hashes(reader: &mut Reader<'_>, of: &str) -> Result<Vec<Hash>, Fault> {
    let count = reader.number(of)?;
    if count > reader.left() as u64 / 32 {
        return Err(reader.fault(format!("{of}: {count} is more than the bytes left can hold")));
    }
    (0..count).map(|_| reader.array(of)).collect()
}

fn actors(reader: &mut Reader<'_>) -> Result<(), Fault> {
    for _ in 0..reader.number("the number of actors")? {
        reader.prefixed("an actor")?;
    }
    Ok(())
}
