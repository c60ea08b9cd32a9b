//! The sound documents of a tenant: many small ones, some with hundreds of changes, and one large
//! one.

use std::time::Duration;

use besom_core::time::Time;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::clients::{Client, State};
use crate::authors::{self, Session};
use crate::document::{Attached, Document};

/// The documents of one size of a tenant.
struct Shelf {
    name: &'static str,
    documents: u32,
    authors: std::ops::RangeInclusive<u32>,
    transactions: std::ops::Range<u32>,
}

/// The memos stay below the threshold of compaction.
const SHELVES: [Shelf; 4] = [
    Shelf { name: "memo", documents: 4, authors: 1..=1, transactions: 2..6 },
    Shelf { name: "note", documents: 28, authors: 1..=3, transactions: 20..80 },
    Shelf { name: "plan", documents: 4, authors: 2..=4, transactions: 150..400 },
    Shelf { name: "book", documents: 1, authors: 3..=5, transactions: 1_500..2_500 },
];

/// The documents of the tenant with that index.
pub(super) fn of(
    clients: &[Client],
    tenant: usize,
    now: Time,
    rng: &mut StdRng,
) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for shelf in &SHELVES {
        // One large document suffices to show that size is no problem, two show that they queue.
        let few = shelf.name == "book" && tenant >= 2;
        for number in 0..if few { 0 } else { shelf.documents } {
            let id = format!("{}-{:02}", shelf.name, number + 1);
            let updated_at = now - Duration::from_secs(rng.random_range(60..7 * 86_400));
            let session = Session {
                seed: rng.random(),
                authors: rng.random_range(shelf.authors.clone()),
                transactions: rng.random_range(shelf.transactions.clone()),
            };
            let log = authors::write(&session)?;
            let mut people: Vec<&Client> = clients.iter().collect();
            people.shuffle(rng);
            let actors: Vec<String> =
                people.iter().take(log.authors.len()).map(|client| client.id.clone()).collect();
            let mut document = Document::from_log(&id, &log, &actors, true, updated_at);
            if shelf.name == "plan" && number % 2 == 0 {
                let half = document.server_seq() / 2;
                document.take_snapshot(half).map_err(anyhow::Error::msg)?;
            }
            // The authors, and one reader.
            let readers = people.iter().take(log.authors.len() + 1);
            document.attached =
                readers.map(|client| attach(client, document.server_seq(), rng)).collect();
            documents.push(document);
        }
    }
    Ok(documents)
}

/// The attachment of a client that has opened the document once.
fn attach(client: &Client, server_seq: u64, rng: &mut StdRng) -> Attached {
    let states: &[&str] = match client.state {
        State::Fresh => &["attached", "attached", "attached", "attaching", "detached"],
        State::Stale => &["attached", "attached", "attached", "detached"],
        State::Deactivated => &["detached"],
    };
    let state = states.choose(rng).copied().unwrap_or("detached");
    // An attaching client has received nothing yet; a stale client has missed the last changes.
    let seen = match (state, client.state) {
        ("attaching", _) => 0,
        (_, State::Fresh) => server_seq,
        (_, State::Stale | State::Deactivated) => rng.random_range(0..=server_seq),
    };
    Attached { client: client.id.clone(), state, server_seq: seen, updated_at: client.updated_at }
}
