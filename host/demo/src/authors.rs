//! Simulated authors: several replicas edit one document concurrently through yrs.
//!
//! This module decides who edits when, who is offline and what is exchanged between the replicas;
//! [`hand`] decides what an author does to the document. The server is modelled by the log: authors
//! append their updates to it, and receive those of others from it, in its order. An author who is
//! offline continues editing and sends everything on return, which causes real conflicts. The same
//! seed produces the same bytes.

mod hand;

use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use yrs::updates::decoder::Decode;
use yrs::{ClientID, Doc, OffsetKind, Options, ReadTxn, Transact, Update};

use self::hand::Hand;
use super::log::UpdateLog;

/// How a document is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The seed of all random choices.
    pub seed: u64,
    /// Number of authors; at least one takes part.
    pub authors: u32,
    /// Total number of transactions.
    pub transactions: u32,
}

/// One transaction in this many takes an author offline.
const OFFLINE_ONE_IN: u32 = 20;

/// How many transactions an author makes while offline.
const OFFLINE_TRANSACTIONS: RangeInclusive<u32> = 2..=12;

/// yrs rejected an update of another replica.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}: a simulated author cannot read what another has written: {message}")]
pub struct Error {
    /// The seed of the session.
    pub seed: u64,
    /// The error of yrs.
    pub message: String,
}

/// Lets the authors write a document.
pub fn write(session: &Session) -> Result<UpdateLog, Error> {
    let refuse = |message| Error { seed: session.seed, message };
    let mut rng = StdRng::seed_from_u64(session.seed);
    let mut circle = Circle::new(session.authors, session.transactions as usize, &mut rng);
    for _ in 0..session.transactions {
        circle.transact(&mut rng).map_err(refuse)?;
    }
    circle.reconnect();
    Ok(circle.log)
}

/// The authors of one document, who can continue for as long as needed.
pub(super) struct Circle {
    authors: Vec<Author>,
    log: UpdateLog,
}

impl Circle {
    /// Creates authors for an empty document, with room for a number of edits.
    pub(super) fn new(authors: u32, edits: usize, rng: &mut StdRng) -> Circle {
        let mut met: Vec<Author> = Vec::new();
        while met.len() < authors.max(1) as usize {
            // Yjs also uses 32 random bits. Two authors with the same id would corrupt the
            // document.
            let client = u64::from(rng.random::<u32>());
            if met.iter().all(|author| author.client != client) {
                met.push(Author::new(client));
            }
        }
        let log = UpdateLog {
            authors: met.iter().map(|author| author.client).collect(),
            edits: Vec::with_capacity(edits),
        };
        Circle { authors: met, log }
    }

    /// The updates that have reached the server.
    pub(super) fn log(&self) -> &UpdateLog {
        &self.log
    }

    /// One of the authors makes one transaction.
    pub(super) fn transact(&mut self, rng: &mut StdRng) -> Result<(), String> {
        let Circle { authors, log } = self;
        let number = rng.random_range(0..authors.len());
        let author = &mut authors[number];
        if author.offline == 0 {
            author.send(number as u32, log);
            author.receive(number as u32, log)?;
            if rng.random_ratio(1, OFFLINE_ONE_IN) {
                author.offline = rng.random_range(OFFLINE_TRANSACTIONS);
            }
        } else {
            author.offline -= 1;
        }
        author.edit(rng);
        if author.offline == 0 {
            author.send(number as u32, log);
        }
        Ok(())
    }

    /// Authors who are offline send their updates.
    pub(super) fn reconnect(&mut self) {
        for (number, author) in self.authors.iter_mut().enumerate() {
            author.send(number as u32, &mut self.log);
        }
    }
}

/// The replica of an author.
struct Author {
    client: u64,
    doc: Doc,
    hand: Hand,
    /// Updates made while offline.
    unsent: Vec<Vec<u8>>,
    /// Number of updates received from the log.
    received: usize,
    /// Number of transactions still to be made offline.
    offline: u32,
}

impl Author {
    fn new(client: u64) -> Author {
        let doc = replica(client);
        let hand = Hand::new(&doc);
        Author { client, doc, hand, unsent: Vec::new(), received: 0, offline: 0 }
    }

    fn edit(&mut self, rng: &mut StdRng) {
        let mut txn = self.doc.transact_mut();
        self.hand.edit(&mut txn, rng);
        txn.commit();
        self.unsent.push(txn.encode_update_v1());
    }

    fn send(&mut self, number: u32, log: &mut UpdateLog) {
        for payload in self.unsent.drain(..) {
            log.push(number, payload);
        }
    }

    fn receive(&mut self, number: u32, log: &UpdateLog) -> Result<(), String> {
        for edit in &log.edits[self.received..] {
            if edit.author != number {
                apply(&self.doc, &edit.payload)?;
            }
        }
        self.received = log.edits.len();
        Ok(())
    }
}

/// An empty replica with the settings of editors in a browser.
pub(super) fn replica(client: u64) -> Doc {
    let mut options = Options::with_client_id(ClientID::new(client));
    options.offset_kind = OffsetKind::Utf16;
    // The default deletes marks on which another author's updates may still depend.
    options.cleanup_formatting = false;
    Doc::with_options(options)
}

/// Applies one update, all of whose dependencies must be present.
pub(super) fn apply(doc: &Doc, payload: &[u8]) -> Result<(), String> {
    let update = Update::decode_v1(payload).map_err(|e| e.to_string())?;
    doc.transact_mut().apply_update(update).map_err(|e| e.to_string())?;
    match doc.transact().has_missing_updates() {
        true => Err("it depends on a change that has not arrived".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use yrs::types::ToJson;

    use super::*;

    const SESSION: Session = Session { seed: 7, authors: 3, transactions: 400 };

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        // Logs are long: a failure should not print them.
        let written = write(&SESSION).unwrap();
        assert!(written == write(&SESSION).unwrap());
        assert!(written != write(&Session { seed: 8, ..SESSION }).unwrap());
    }

    #[test]
    fn the_log_replays_without_gaps_to_a_document_with_every_kind_of_content() {
        let log = write(&SESSION).unwrap();
        let doc = replica(1);
        let roots = hand::Hand::new(&doc);
        for edit in &log.edits {
            apply(&doc, &edit.payload).unwrap();
        }
        let txn = doc.transact();
        assert!(roots.has_marks_embeds_and_nested_types(&txn));
        assert_eq!(txn.state_vector().len(), log.authors.len());
        let content = doc.to_json(&txn);

        // Any order that keeps each author's own order produces the same document.
        let mut edits: Vec<_> = log.edits.iter().collect();
        edits.sort_by_key(|edit| edit.author);
        let other = replica(2);
        Hand::new(&other);
        for edit in edits {
            let update = Update::decode_v1(&edit.payload).unwrap();
            other.transact_mut().apply_update(update).unwrap();
        }
        let other_txn = other.transact();
        assert!(!other_txn.has_missing_updates());
        assert_eq!(other.to_json(&other_txn), content);
        assert_eq!(other_txn.state_vector(), txn.state_vector());
    }

    #[test]
    fn authors_conflict_because_some_are_offline() {
        let log = write(&SESSION).unwrap();
        let changes = log.edits.windows(2).filter(|w| w[0].author == w[1].author).count();
        // A third would be chance; whole offline phases arrive in one piece.
        assert!(changes > log.edits.len() * 2 / 5, "{changes} of {}", log.edits.len());
    }
}
