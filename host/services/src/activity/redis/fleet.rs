//! The Redis servers that hold the keys: a single one, or the primaries of a Redis Cluster with
//! their slots.
//!
//! Commands are sent in batches, to all servers concurrently, with one round trip per server and
//! batch. A command that reached the wrong server is sent again after reading the cluster's slot
//! table, a limited number of times. Whether the deployment is a cluster is determined by asking
//! the server, not by the configuration.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use redis::{Cmd, IntoConnectionInfo as _, Value, cmd, pipe};
use tokio::sync::Mutex;

use super::keys::{self, SLOTS};
use super::options::Options;
use super::server::{Answer, Fault, Server, asking};
use besom_ports::activity::Error;

/// Maximum number of times that a command is sent.
const SENDS_MAX: usize = 4;
/// The pause between two reads of a slot table that is changing.
const TABLE_PAUSE: Duration = Duration::from_millis(50);

/// A command and the slot of its keys.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) slot: u16,
    pub(super) command: Cmd,
}

/// A server that accepts writes, and the name of its marker.
#[derive(Debug, Clone)]
pub(super) struct Primary {
    pub(super) server: Arc<Server>,
    pub(super) marker: String,
}

/// The slot table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) primaries: Vec<Primary>,
    /// The primary of each slot; `None`: there is a single server, which holds all keys.
    slots: Option<Vec<Option<u16>>>,
}

impl Table {
    /// Whether one script may use keys of different slots.
    pub(super) fn is_single(&self) -> bool {
        self.slots.is_none()
    }

    fn holder(&self, slot: u16) -> Option<usize> {
        match &self.slots {
            None => Some(0),
            Some(slots) => slots.get(usize::from(slot)).copied().flatten().map(usize::from),
        }
    }
}

/// All servers.
pub(super) struct Fleet {
    options: Options,
    named: Vec<Arc<Server>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    table: Option<Arc<Table>>,
    /// By `host:port`: a server that remains in the table keeps its connection.
    servers: HashMap<String, Arc<Server>>,
}

impl Fleet {
    /// Creates the fleet without connecting.
    pub(super) fn new(options: Options) -> Result<Fleet, Error> {
        let clients = options.clients()?;
        let named = clients.into_iter().map(|client| Arc::new(Server::new(client, &options)));
        Ok(Fleet { named: named.collect(), options, known: Mutex::default() })
    }

    /// The slot table, read if it is unknown.
    pub(super) async fn table(&self) -> Result<Arc<Table>, Fault> {
        self.table_after(None).await
    }

    /// A slot table that is newer than `seen`.
    pub(super) async fn table_after(&self, seen: Option<&Arc<Table>>) -> Result<Arc<Table>, Fault> {
        let mut known = self.known.lock().await;
        if let Some(table) = &known.table
            && seen.is_none_or(|seen| !Arc::ptr_eq(seen, table))
        {
            return Ok(Arc::clone(table));
        }
        let before: Vec<Arc<Server>> =
            known.table.iter().flat_map(|t| &t.primaries).map(|p| Arc::clone(&p.server)).collect();
        let mut first = None;
        for server in before.iter().chain(&self.named) {
            match self.read(server, &mut known).await {
                Ok(table) => {
                    let table = Arc::new(table);
                    known.table = Some(Arc::clone(&table));
                    return Ok(table);
                }
                // An authentication failure takes precedence over unavailable servers.
                Err(fault @ Fault::Refused(_)) => return Err(fault),
                Err(fault) => first = first.or(Some(fault)),
            }
        }
        Err(first.unwrap_or_else(|| Fault::Away("no Redis server is configured".into())))
    }

    async fn read(&self, server: &Arc<Server>, known: &mut Known) -> Result<Table, Fault> {
        let mut info = pipe();
        info.cmd("INFO").arg("cluster");
        let mut answers = server.run(&info).await?.into_iter();
        let info = answers.next().unwrap_or_else(|| Err(Fault::Away("no answer".into())))?;
        let info: String = redis::from_redis_value(info).unwrap_or_default();
        if !info.contains("cluster_enabled:1") {
            if self.named.len() > 1 {
                return Err(Fault::Refused(format!(
                    "{} is not a member of a Redis Cluster; name a single server instead",
                    server.address()
                )));
            }
            let only = Primary { server: Arc::clone(server), marker: keys::marker() };
            return Ok(Table { primaries: vec![only], slots: None });
        }
        let mut slots = pipe();
        slots.add_command(cmd("CLUSTER").arg("SLOTS").clone());
        let mut answers = server.run(&slots).await?.into_iter();
        let rows = answers.next().unwrap_or_else(|| Err(Fault::Away("no answer".into())))?;
        let ranges = ranges(rows, server.host().unwrap_or_default())
            .ok_or_else(|| Fault::Said("the server sent an invalid slot table".into()))?;
        self.table_of(&ranges, server, known)
    }

    fn table_of(
        &self,
        ranges: &[Range],
        asked: &Arc<Server>,
        known: &mut Known,
    ) -> Result<Table, Fault> {
        let mut slots = vec![None; usize::from(SLOTS)];
        let mut primaries: Vec<Primary> = Vec::new();
        let mut numbers: BTreeMap<String, u16> = BTreeMap::new();
        let mut servers = HashMap::new();
        for range in ranges {
            let name = format!("{}:{}", range.host, range.port);
            let number = match numbers.get(&name) {
                Some(number) => *number,
                None => {
                    let server = match known.servers.get(&name) {
                        Some(server) => Arc::clone(server),
                        None => self.server(asked, &range.host, range.port)?,
                    };
                    servers.insert(name.clone(), Arc::clone(&server));
                    let number = primaries.len() as u16;
                    primaries.push(Primary { server, marker: keys::marker_in(range.first) });
                    numbers.insert(name, number);
                    number
                }
            };
            for slot in range.first..=range.last.min(SLOTS - 1) {
                slots[usize::from(slot)] = Some(number);
            }
        }
        known.servers = servers;
        Ok(Table { primaries, slots: Some(slots) })
    }

    fn server(&self, asked: &Server, host: &str, port: u16) -> Result<Arc<Server>, Fault> {
        let info = asked.at(host, port).into_connection_info();
        let info = info.map_err(|error| Fault::Said(error.to_string()))?;
        let client = self.options.client_of(info).map_err(|Error(words)| Fault::Refused(words))?;
        Ok(Arc::new(Server::new(client, &self.options)))
    }

    /// Sends all commands and returns the answers in the same order.
    pub(super) async fn run(&self, asked: &[Asked]) -> Vec<Answer> {
        let away = || Err(Fault::Away("no server has the slot".into()));
        let mut answers: Vec<Answer> = asked.iter().map(|_| away()).collect();
        let mut open: Vec<usize> = (0..asked.len()).collect();
        let mut seen: Option<Arc<Table>> = None;
        for send in 0..SENDS_MAX {
            if open.is_empty() {
                break;
            }
            let table = match self.table_after(seen.as_ref()).await {
                Ok(table) => table,
                Err(fault) => {
                    open.iter().for_each(|at| answers[*at] = Err(fault.clone()));
                    break;
                }
            };
            self.send(&table, asked, &open, &mut answers).await;
            // The connection may have been dead for a while, or the primary may have failed over: a
            // second attempt shows it.
            let again = |at: &usize| match &answers[*at] {
                Err(Fault::Elsewhere(_)) => !table.is_single(),
                Err(Fault::Away(_)) => send == 0,
                _ => false,
            };
            open.retain(again);
            seen = Some(table);
            if !open.is_empty() && send > 0 {
                tokio::time::sleep(TABLE_PAUSE).await;
            }
        }
        answers
    }

    async fn send(&self, table: &Table, asked: &[Asked], open: &[usize], answers: &mut [Answer]) {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in open {
            if let Some(holder) = table.holder(asked[*at].slot) {
                groups.entry(holder).or_default().push(*at);
            }
        }
        let batch_max = self.options.batch_max.max(1);
        let sent = groups.into_iter().map(|(holder, group)| async move {
            let server = &table.primaries[holder].server;
            let mut got = Vec::with_capacity(group.len());
            for batch in group.chunks(batch_max) {
                let mut pipeline = pipe();
                for at in batch {
                    pipeline.add_command(asked[*at].command.clone());
                }
                match server.run(&pipeline).await {
                    Ok(answers) => got.extend(batch.iter().copied().zip(answers)),
                    Err(fault) => {
                        // The following batches would wait for the same server.
                        let rest = &group[got.len()..];
                        got.extend(rest.iter().map(|at| (*at, Err(fault.clone()))));
                        break;
                    }
                }
            }
            got
        });
        for (at, answer) in join_all(sent).await.into_iter().flatten() {
            answers[at] = match answer {
                Err(Fault::Asking(address)) => self.ask(&address, &asked[at].command).await,
                answer => answer,
            };
        }
    }

    /// Sends a command to the server to which its slot is migrating.
    async fn ask(&self, address: &str, command: &Cmd) -> Answer {
        let server = match self.known.lock().await.servers.get(address) {
            Some(server) => Arc::clone(server),
            None => return Err(Fault::Elsewhere(format!("the slot is migrating to {address}"))),
        };
        let mut answers = server.run(&asking(command)).await?;
        answers.pop().unwrap_or_else(|| Err(Fault::Away("no answer".into())))
    }
}

/// A range of slots and its primary.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    host: String,
    port: u16,
}

/// Parses the answer to `CLUSTER SLOTS`: first slot, last slot, primary, replicas. A server that
/// does not know its own host name is reached at the address that was queried.
fn ranges(rows: Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(rows) = rows else { return None };
    let range = |row: Value| {
        let Value::Array(row) = row else { return None };
        let (Value::Int(first), Value::Int(last), Value::Array(primary)) =
            (row.first()?, row.get(1)?, row.get(2)?)
        else {
            return None;
        };
        let host: Option<String> = redis::from_redis_value(primary.first()?.clone()).ok()?;
        let host = host.filter(|host| !host.is_empty() && host != "?");
        let Value::Int(port) = primary.get(1)? else { return None };
        Some(Range {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok()?,
            host: host.unwrap_or_else(|| asked.to_owned()),
            port: u16::try_from(*port).ok()?,
        })
    };
    let mut ranges: Vec<Range> = rows.into_iter().map(range).collect::<Option<_>>()?;
    // The marker is in the lowest slot of a primary, regardless of the order of the answer.
    ranges.sort_by_key(|range| range.first);
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_slots_is_read_and_a_nameless_server_is_where_it_was_asked() {
        let text = |text: &str| Value::BulkString(text.into());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let row = |first, last, primary, replica| {
            Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
        };
        let replica = || node(text("10.0.0.9"), 6379);
        let rows = Value::Array(vec![
            row(8_192, 16_383, node(text("10.0.0.2"), 6379), replica()),
            row(0, 8_191, node(Value::Nil, 7_000), replica()),
        ]);
        let range = |first, last, host: &str, port| Range { first, last, host: host.into(), port };
        let expected = [range(0, 8_191, "seed", 7_000), range(8_192, 16_383, "10.0.0.2", 6379)];
        assert_eq!(ranges(rows, "seed").as_deref(), Some(&expected[..]));
        assert_eq!(ranges(Value::Array(vec![Value::Int(1)]), "seed"), None);
    }
}
