//! Replicas of one text, each with its own version.
//!
//! A version contains the number of transactions that a replica has applied, by author. The
//! transactions of an author form a chain, so the number identifies them.

use yrs::updates::decoder::Decode;
use yrs::{
    ClientID, Doc, GetString, OffsetKind, Options, ReadTxn, StateVector, Text, TextRef, Transact,
    Update,
};

use super::Patch;
use super::position::WideCharacters;
use super::units::Units;

/// The root type that contains the text.
pub(super) const ROOT: &str = "text";

/// Number of applied transactions by author; 0 for authors beyond the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Version(Vec<u32>);

impl Version {
    /// The number of transactions of an author.
    pub(super) fn of(&self, author: u32) -> u32 {
        self.0.get(author as usize).copied().unwrap_or(0)
    }

    /// Adds one transaction of an author.
    pub(super) fn advance(&mut self, author: u32) {
        let author = author as usize;
        if self.0.len() <= author {
            self.0.resize(author + 1, 0);
        }
        self.0[author] += 1;
    }

    /// Merges with another version.
    pub(super) fn join(&mut self, other: &Version) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Whether it contains nothing that `other` lacks.
    fn within(&self, other: &Version) -> bool {
        (0..self.0.len() as u32).all(|author| self.of(author) <= other.of(author))
    }

    /// The total number of transactions.
    fn len(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }
}

/// A replica of the text.
pub(super) struct Replica {
    doc: Doc,
    text: TextRef,
    version: Version,
    wide: WideCharacters,
    /// The index of positions; `None`: there are other writers.
    units: Option<Units>,
}

impl Replica {
    /// An empty replica of a client that is the only writer.
    pub(super) fn alone(client: u64) -> Replica {
        Replica { units: Some(Units::new(client)), ..Replica::new(client) }
    }

    /// An empty replica of that client.
    pub(super) fn new(client: u64) -> Replica {
        let mut options = Options::with_client_id(ClientID::new(client));
        options.offset_kind = OffsetKind::Utf16;
        // The default deletes marks on which another author's updates may still depend.
        options.cleanup_formatting = false;
        let doc = Doc::with_options(options);
        let text = doc.get_or_insert_text(ROOT);
        let (version, wide) = (Version::default(), WideCharacters::default());
        Replica { doc, text, version, wide, units: None }
    }

    /// Whether it contains nothing that `version` lacks.
    pub(super) fn within(&self, version: &Version) -> bool {
        self.version.within(version)
    }

    /// The total number of transactions.
    pub(super) fn len(&self) -> u64 {
        self.version.len()
    }

    /// The current text.
    pub(super) fn text(&self) -> String {
        self.text.get_string(&self.doc.transact())
    }

    /// Applies patches as one transaction of `author`, whose client this replica is, and returns
    /// the update.
    pub(super) fn edit(&mut self, author: u32, patches: &[Patch]) -> Result<Vec<u8>, String> {
        // yrs merges the results of several patches before sending.
        let update = match patches {
            [patch] => self.edit_once(patch)?,
            _ => self.edit_all(patches)?,
        };
        self.version.advance(author);
        Ok(update)
    }

    /// Lets yrs find the position of every patch.
    fn edit_all(&mut self, patches: &[Patch]) -> Result<Vec<u8>, String> {
        let mut txn = self.doc.transact_mut();
        for patch in patches {
            let (from, to) = self.wide.range(patch, self.text.len(&txn))?;
            if to > from {
                self.text.remove_range(&mut txn, from, to - from);
            }
            if !patch.inserted.is_empty() {
                self.text.insert(&mut txn, from, &patch.inserted);
            }
            if let Some(units) = &mut self.units {
                units.replace(ROOT, from, to, &patch.inserted);
            }
            self.wide.replace(patch.position, patch.deleted, &patch.inserted);
        }
        txn.commit();
        Ok(txn.encode_update_v1())
    }

    /// Finds the position in the index, if there is one, and lets yrs integrate the update.
    fn edit_once(&mut self, patch: &Patch) -> Result<Vec<u8>, String> {
        let length = self.text.len(&self.doc.transact());
        let (from, to) = self.wide.range(patch, length)?;
        let Some(units) = &mut self.units else {
            return self.edit_all(std::slice::from_ref(patch));
        };
        let update = units.replace(ROOT, from, to, &patch.inserted);
        self.wide.replace(patch.position, patch.deleted, &patch.inserted);
        let decoded = Update::decode_v1(&update).map_err(|e| e.to_string())?;
        self.doc.transact_mut().apply_update(decoded).map_err(|e| e.to_string())?;
        Ok(update)
    }

    /// Applies updates of others, given in causal order with their authors.
    pub(super) fn receive<'a>(
        &mut self,
        edits: impl Iterator<Item = (u32, &'a [u8])>,
        wide_characters: bool,
    ) -> Result<(), String> {
        for (author, payload) in edits {
            let update = Update::decode_v1(payload).map_err(|e| e.to_string())?;
            self.doc.transact_mut().apply_update(update).map_err(|e| e.to_string())?;
            self.version.advance(author);
        }
        if wide_characters {
            self.wide = WideCharacters::of(&self.text());
        }
        if self.doc.transact().has_missing_updates() {
            return Err("an update arrived before its dependencies".to_owned());
        }
        Ok(())
    }

    /// The version of the replica.
    pub(super) fn version(&self) -> &Version {
        &self.version
    }

    /// Another replica at the same version, for that client.
    pub(super) fn fork(&self, client: u64) -> Result<Replica, String> {
        let mut fork = Replica::new(client);
        let state = self.doc.transact().encode_state_as_update_v1(&StateVector::default());
        let state = Update::decode_v1(&state).map_err(|e| e.to_string())?;
        fork.doc.transact_mut().apply_update(state).map_err(|e| e.to_string())?;
        fork.version = self.version.clone();
        fork.wide = self.wide.clone();
        Ok(fork)
    }
}
