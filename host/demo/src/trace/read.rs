//! Parses a trace file. Rejects invalid files and names the place of the error.

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use super::{Error, Kind, Patch, TRACE_BYTES_MAX, Trace, Transaction};

/// The first two bytes of a gzip stream.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTrace {
    kind: Option<String>,
    start_content: Option<String>,
    end_content: Option<String>,
    num_agents: Option<u32>,
    #[serde(default, deserialize_with = "numbered")]
    txns: Option<Vec<RawTransaction>>,
}

#[derive(Deserialize)]
struct RawTransaction {
    parents: Option<Vec<u32>>,
    agent: Option<u32>,
    patches: Vec<(u32, u32, String)>,
}

pub(super) fn load(path: &Path) -> Result<Trace, Error> {
    let json = unpack(path)?;
    let raw: RawTrace = serde_json::from_slice(&json)
        .map_err(|e| Error::Format { path: path.to_owned(), message: e.to_string() })?;
    check(path, raw)
}

/// The content of the file, unpacked if it is gzipped.
fn unpack(path: &Path) -> Result<Vec<u8>, Error> {
    let file =
        std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if !file.starts_with(&GZIP_MAGIC) {
        return Ok(file);
    }
    let mut json = Vec::new();
    flate2::read::MultiGzDecoder::new(file.as_slice())
        .take(TRACE_BYTES_MAX + 1)
        .read_to_end(&mut json)
        .map_err(|source| Error::Gzip { path: path.to_owned(), source })?;
    if json.len() as u64 > TRACE_BYTES_MAX {
        return Err(Error::TooLarge { path: path.to_owned(), limit: TRACE_BYTES_MAX });
    }
    Ok(json)
}

fn check(path: &Path, raw: RawTrace) -> Result<Trace, Error> {
    let format = |message: String| Error::Format { path: path.to_owned(), message };
    let missing = |key: &str| format(format!("the key `{key}` is missing"));

    let end = raw.end_content.ok_or_else(|| missing("endContent"))?;
    let transactions = raw.txns.ok_or_else(|| missing("txns"))?;
    let kind = match raw.kind.as_deref() {
        None | Some("sequential") => Kind::Sequential,
        Some("concurrent") => {
            Kind::Concurrent { agents: raw.num_agents.ok_or_else(|| missing("numAgents"))? }
        }
        Some(other) => {
            return Err(format(format!(
                "the kind `{other}` is not supported; use `sequential` or `concurrent`"
            )));
        }
    };
    let mut trace = Trace {
        path: path.to_owned(),
        start: raw.start_content.unwrap_or_default(),
        end,
        kind,
        transactions: Vec::with_capacity(transactions.len()),
    };
    for (number, raw) in transactions.into_iter().enumerate() {
        let transaction = transaction(kind, number, raw).map_err(|message| Error::Transaction {
            path: path.to_owned(),
            number,
            message,
        })?;
        trace.transactions.push(transaction);
    }
    Ok(trace)
}

fn transaction(kind: Kind, number: usize, raw: RawTransaction) -> Result<Transaction, String> {
    let (parents, agent) = match kind {
        Kind::Sequential => (Vec::new(), 0),
        Kind::Concurrent { agents } => {
            let parents = raw.parents.ok_or("`parents` is missing in a concurrent trace")?;
            let agent = raw.agent.ok_or("`agent` is missing in a concurrent trace")?;
            if agent >= agents {
                return Err(format!(
                    "agent {agent} is out of range: there are {agents} agents, counted from 0"
                ));
            }
            if let Some(parent) = parents.iter().find(|&&parent| parent as usize >= number) {
                return Err(format!("its parent {parent} does not precede it"));
            }
            (parents, agent)
        }
    };
    let patches = raw
        .patches
        .into_iter()
        .map(|(position, deleted, inserted)| Patch { position, deleted, inserted })
        .collect();
    Ok(Transaction { parents, agent, patches })
}

/// Deserializes the transactions, so that an error names the index of the transaction.
fn numbered<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<RawTransaction>>, D::Error> {
    struct Numbered;

    impl<'de> Visitor<'de> for Numbered {
        type Value = Vec<RawTransaction>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of transactions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut transactions = Vec::new();
            loop {
                let next = seq.next_element().map_err(|e| {
                    de::Error::custom(format_args!("transaction {}: {e}", transactions.len()))
                })?;
                match next {
                    Some(transaction) => transactions.push(transaction),
                    None => return Ok(transactions),
                }
            }
        }
    }

    deserializer.deserialize_seq(Numbered).map(Some)
}
