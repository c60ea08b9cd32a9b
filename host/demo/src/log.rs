//! The update log of one Yjs document: the updates of its authors' replicas in the order in which
//! the server received them.

/// One V1 update, the result of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The author: an index into [`UpdateLog::authors`].
    pub author: u32,
    /// The bytes of the update.
    pub payload: Vec<u8>,
}

/// A document as a sequence of updates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateLog {
    /// The Yjs client id of each author.
    pub authors: Vec<u64>,
    /// The updates; each one follows those on which it depends.
    pub edits: Vec<Edit>,
}

impl UpdateLog {
    /// The size of all updates, in bytes.
    pub fn bytes(&self) -> u64 {
        self.edits.iter().map(|edit| edit.payload.len() as u64).sum()
    }

    /// Appends an update. An update without content is omitted, because Yjs sends none.
    pub(super) fn push(&mut self, author: u32, payload: Vec<u8>) {
        /// No structs, no deletions.
        const EMPTY: [u8; 2] = [0, 0];
        if payload != EMPTY {
            self.edits.push(Edit { author, payload });
        }
    }
}
