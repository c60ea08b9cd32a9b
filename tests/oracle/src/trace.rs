//! Public editing traces as plain values: the author, the edits and the parents of each
//! transaction.
//!
//! Decides nothing, and knows no CRDT: each format replays a trace in its own types. A trace
//! is gzipped JSON of one of two kinds; in a sequential one every transaction follows the one
//! before, in a concurrent one it names its parents.

use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::shared_data;

/// The traces of the collection, by name.
pub const NAMES: [&str; 3] = ["automerge-paper", "sveltecomponent", "friendsforever"];

/// The history of one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The text before the first transaction.
    pub start: String,
    /// The final text of every replica.
    pub end: String,
    /// One more than the highest agent.
    pub agents: usize,
    /// In an order in which parents come first.
    pub transactions: Vec<Transaction>,
}

/// The edits that one agent made at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The transactions whose merge is the state before this one, by index; none: the start.
    pub parents: Vec<usize>,
    /// The number of the agent, from 0.
    pub agent: usize,
    /// The edits, one after the other.
    pub patches: Vec<Patch>,
}

/// One replacement. Positions and lengths count Unicode characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The position.
    pub position: usize,
    /// The number of removed characters.
    pub deleted: usize,
    /// The inserted text.
    pub inserted: String,
}

impl Trace {
    /// The trace with this name; none if the collection is not present (see [`shared_data`]).
    ///
    /// # Panics
    /// If the file is no trace.
    pub fn named(name: &str) -> Option<Trace> {
        shared_data(&format!("editing-traces/{name}.json.gz")).map(|path| Trace::read(&path))
    }

    /// The trace in that file.
    ///
    /// # Panics
    /// If it cannot be read or is no trace.
    pub fn read(path: &Path) -> Trace {
        let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let json: Value = serde_json::from_reader(std::io::BufReader::new(GzDecoder::new(file)))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Trace::of(&json).unwrap_or_else(|| panic!("{}: not an editing trace", path.display()))
    }

    fn of(json: &Value) -> Option<Trace> {
        let is_concurrent = json.get("kind").is_some_and(|kind| kind == "concurrent");
        let transactions = json.get("txns")?.as_array()?;
        let transactions: Vec<Transaction> = transactions
            .iter()
            .enumerate()
            .map(|(index, json)| Transaction::of(json, index, is_concurrent))
            .collect::<Option<_>>()?;
        Some(Trace {
            start: json.get("startContent").map_or(Some(""), Value::as_str)?.to_owned(),
            end: json.get("endContent")?.as_str()?.to_owned(),
            agents: transactions.iter().map(|it| it.agent + 1).max().unwrap_or(0),
            transactions,
        })
    }

    /// Whether every transaction follows the one before.
    pub fn is_sequential(&self) -> bool {
        self.transactions.iter().enumerate().all(|(index, transaction)| {
            transaction.agent == 0 && transaction.parents == after(index)
        })
    }
}

impl Transaction {
    fn of(json: &Value, index: usize, is_concurrent: bool) -> Option<Transaction> {
        let (parents, agent) = if is_concurrent {
            let parents = json.get("parents")?.as_array()?.iter().map(number);
            (parents.collect::<Option<Vec<usize>>>()?, number(json.get("agent")?)?)
        } else {
            (after(index), 0)
        };
        if parents.iter().any(|parent| *parent >= index) {
            return None;
        }
        let patches = json.get("patches")?.as_array()?.iter().map(Patch::of);
        Some(Transaction { parents, agent, patches: patches.collect::<Option<_>>()? })
    }
}

impl Patch {
    fn of(json: &Value) -> Option<Patch> {
        let [position, deleted, inserted] = json.as_array()?.as_slice() else { return None };
        Some(Patch {
            position: number(position)?,
            deleted: number(deleted)?,
            inserted: inserted.as_str()?.to_owned(),
        })
    }
}

/// The parents of a transaction that follows the one before.
fn after(index: usize) -> Vec<usize> {
    index.checked_sub(1).into_iter().collect()
}

fn number(json: &Value) -> Option<usize> {
    json.as_u64()?.try_into().ok()
}
