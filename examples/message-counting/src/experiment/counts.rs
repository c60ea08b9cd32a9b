//! What the aggregators have counted, where they keep it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use besom_feed::order::Key;
use redis::cluster::{ClusterConnection, cluster_pipe};

use crate::aggregator::{self, COUNT};

/// How many counts are asked for at once.
const COUNTS_MAX: usize = 1_000;

/// Where the counts are.
pub(super) enum Counts {
    Sqlite(PathBuf),
    Redis(Vec<String>),
}

impl Counts {
    /// The name of a text's count.
    pub(super) fn name(&self, text: &str) -> String {
        match self {
            Counts::Sqlite(_) => text.to_owned(),
            Counts::Redis(_) => {
                let key = Key { tenant: String::new(), key: text.to_owned() };
                besom_feed::redis::name(COUNT, &key)
            }
        }
    }

    /// The sum of these counts.
    pub(super) fn sum<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<u64> {
        match self {
            Counts::Sqlite(path) => {
                let sql = "SELECT coalesce(sum(count), 0) FROM message_count";
                Ok(aggregator::open(path)?.query_row(sql, [], |row| row.get(0))?)
            }
            Counts::Redis(urls) => {
                let names: Vec<String> = names.cloned().collect();
                Ok(read(&mut aggregator::connect(urls)?, &names)?.iter().sum())
            }
        }
    }

    /// All counts by their names.
    pub(super) fn all(&self) -> Result<BTreeMap<String, u64>> {
        match self {
            Counts::Sqlite(path) => {
                let database = aggregator::open(path)?;
                let mut statement = database.prepare("SELECT text, count FROM message_count")?;
                let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                Ok(found.collect::<Result<_, _>>()?)
            }
            Counts::Redis(urls) => {
                let mut connection = aggregator::connect(urls)?;
                let mut keys = redis::cmd("KEYS");
                let names: Vec<String> = keys.arg(format!("{COUNT}:*")).query(&mut connection)?;
                let counts = read(&mut connection, &names)?;
                Ok(names.into_iter().zip(counts).collect())
            }
        }
    }
}

fn read(connection: &mut ClusterConnection, names: &[String]) -> Result<Vec<u64>> {
    let mut counts = Vec::new();
    for names in names.chunks(COUNTS_MAX) {
        let mut all = cluster_pipe();
        names.iter().for_each(|name| _ = all.cmd("GET").arg(name));
        let found: Vec<Option<u64>> = all.query(connection)?;
        counts.extend(found.into_iter().map(Option::unwrap_or_default));
    }
    Ok(counts)
}
