//! The update log of one Yjs document: what its authors' replicas sent to the server, in
//! the order in which the server received it.

/// One V1 update, the result of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Who made it: an index into [`UpdateLog::authors`].
    pub author: u32,
    /// The update's bytes.
    pub payload: Vec<u8>,
}

/// A document as the sequence of its updates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateLog {
    /// The Yjs client id of each author.
    pub authors: Vec<u64>,
    /// The updates; every one comes after those it depends on.
    pub edits: Vec<Edit>,
}

impl UpdateLog {
    /// The bytes of all updates together.
    pub fn bytes(&self) -> u64 {
        self.edits.iter().map(|edit| edit.payload.len() as u64).sum()
    }

    /// Appends an update; one without content is left out, as Yjs sends none.
    pub(super) fn push(&mut self, author: u32, payload: Vec<u8>) {
        /// No structs, no deletions.
        const EMPTY: [u8; 2] = [0, 0];
        if payload != EMPTY {
            self.edits.push(Edit { author, payload });
        }
    }
}
