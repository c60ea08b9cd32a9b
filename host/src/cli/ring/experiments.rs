//! Runs all experiments of `besom ring simulate`: the distribution of keys, the cache hits after a lost
//! server, the keys moved by an added server, and the cost of a lookup. Compares MD5 and modulo on 4
//! servers with the partitions of a cluster.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use besom_core::ids::Partition;
use besom_core::ring::simulate::{
    Event, Mode, Outcome, PARTITIONS, key_hashes, server_name, simulate,
};
use besom_core::ring::{
    Assignment, Error, HashRing, Md5, NodeName, Placement, RingMember, VIRTUAL_NODES,
};
use serde::Serialize;

use super::super::output::{self, Table, bar};
use super::super::{Exit, Failure, Global};
use super::positions::Positions;
use super::simulate::percent;

/// Number of servers before a change.
const SERVERS: u32 = 4;

/// The compared modes, with the virtual nodes of each server.
const CASES: [(Mode, u32); 6] = [
    (Mode::Modulo, 1),
    (Mode::Md5, 1),
    (Mode::Md5, 4),
    (Mode::Md5, 10),
    (Mode::Md5, 100),
    (Mode::Xxh3, VIRTUAL_NODES),
];

/// Numbers of virtual nodes for which lookups are measured.
const LOOKUPS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];

/// The results. Their JSON is printed with `--output json`.
#[derive(Debug, Serialize)]
struct Findings {
    keys: u64,
    /// The points of the servers, for each case that places servers on a circle.
    positions: Vec<Positions>,
    distribution: Vec<Case>,
    loss: Vec<Loss>,
    growth: Vec<Growth>,
    lookup: Vec<LookupCost>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Setting {
    mode: Mode,
    vnodes: u32,
}

#[derive(Debug, Serialize)]
struct Case {
    #[serde(flatten)]
    setting: Setting,
    owned: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Loss {
    #[serde(flatten)]
    setting: Setting,
    lost: u32,
    /// Keys found on each server after the loss.
    hits: Vec<u64>,
    /// Fraction of all keys that were found, from 0 to 1.
    hit_rate: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// The effect of adding a server to a ring that stores its keys, and of removing it again.
#[derive(Debug, Serialize)]
struct Growth {
    #[serde(flatten)]
    setting: Setting,
    added: Step,
    removed: Step,
    /// Keys by server before the addition.
    before: Vec<u64>,
    /// Keys by server after the addition.
    after: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Step {
    rehashed: u64,
    moved: u64,
    /// Time including the moves in memory.
    milliseconds: f64,
}

#[derive(Debug, Serialize)]
struct LookupCost {
    #[serde(flatten)]
    setting: Setting,
    points: usize,
    /// Mean time of a lookup, without hashing.
    nanoseconds: f64,
    /// Mean time of a binary search over all points, without the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    search_nanoseconds: Option<f64>,
}

/// Runs all experiments and prints the results.
pub fn run(global: &Global, keys: u64) -> Result<Exit, Failure> {
    let hashes = Hashes {
        md5: key_hashes(Mode::Md5, keys).collect(),
        xxh3: key_hashes(Mode::Xxh3, keys).collect(),
    };
    let found = findings(keys, &hashes).map_err(|error| Failure::Failed(error.to_string()))?;
    output::show(global.output, &found, || found.render())?;
    Ok(Exit::Fine)
}

/// Hashes of the keys, computed once.
struct Hashes {
    md5: Vec<u64>,
    xxh3: Vec<u64>,
}

impl Hashes {
    fn of(&self, mode: Mode) -> impl Iterator<Item = u64> + '_ {
        let hashes = if mode == Mode::Xxh3 { &self.xxh3 } else { &self.md5 };
        hashes.iter().copied()
    }
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN)
}

fn findings(keys: u64, hashes: &Hashes) -> Result<Findings, Error> {
    let mut found = Findings {
        keys,
        positions: Vec::new(),
        distribution: Vec::new(),
        loss: Vec::new(),
        growth: Vec::new(),
        lookup: Vec::new(),
    };
    for (mode, vnodes) in CASES {
        let setting = Setting { mode, vnodes };
        let run = |event| simulate(mode, SERVERS, count(vnodes), hashes.of(mode), event);
        found.distribution.push(Case { setting, owned: run(None)?.owned });
        // With one virtual node, server 0 owns almost no keys, so losing it would show nothing.
        let lost = if (mode, vnodes) == (Mode::Md5, 1) { 3 } else { 0 };
        let outcome = run(Some(Event::Remove(lost)))?;
        let hits = outcome.kept_by.clone();
        let hit_rate = hits.iter().sum::<u64>() as f64 / keys.max(1) as f64;
        found.loss.push(Loss { setting, lost, hits, hit_rate, outcome });
        if mode == Mode::Md5 {
            found.positions.push(Positions::of(SERVERS, vnodes)?);
        }
        let grown = run(Some(Event::Add))?;
        found.growth.push(Growth {
            before: grown.owned,
            after: grown.after.unwrap_or_default(),
            ..growth(setting, keys, hashes)?
        });
    }
    found.lookup = lookups(hashes)?;
    Ok(found)
}

fn growth(setting: Setting, keys: u64, hashes: &Hashes) -> Result<Growth, Error> {
    let placement = match setting.mode {
        Mode::Modulo => Placement::Modulo,
        Mode::Md5 => Placement::Consistent,
        Mode::Xxh3 => return partitions_growth(setting, hashes),
    };
    let mut ring = HashRing::new(Md5, placement, count(setting.vnodes));
    for number in 0..SERVERS {
        ring.add_server(server_name(number), NonZeroU32::MIN, false)?;
    }
    for key in 0..keys {
        ring.add_key(&key.to_string());
    }
    let new = server_name(SERVERS);
    let (started, added) = (Instant::now(), ring.add_server(new.clone(), NonZeroU32::MIN, true)?);
    let added = Step::new(added.rehashed, added.moved, started.elapsed());
    let (started, removed) = (Instant::now(), ring.remove_server(new, true)?);
    let removed = Step::new(removed.rehashed, removed.moved, started.elapsed());
    Ok(Growth { setting, added, removed, before: Vec::new(), after: Vec::new() })
}

/// Partitions move as a whole, so only the time for computing the table is measured.
fn partitions_growth(setting: Setting, hashes: &Hashes) -> Result<Growth, Error> {
    let step = |servers, event| {
        let started = Instant::now();
        black_box(Assignment::of(&members(servers), PARTITIONS));
        let took = started.elapsed();
        let vnodes = count(setting.vnodes);
        let outcome =
            simulate(setting.mode, servers, vnodes, hashes.of(setting.mode), Some(event))?;
        Ok(Step::new(outcome.rehashed, outcome.moved.unwrap_or(0), took))
    };
    let added = step(SERVERS, Event::Add)?;
    let removed = step(SERVERS + 1, Event::Remove(SERVERS))?;
    Ok(Growth { setting, added, removed, before: Vec::new(), after: Vec::new() })
}

fn members(servers: u32) -> Vec<RingMember> {
    let member = |n| RingMember { name: server_name(n), weight: NonZeroU32::MIN };
    (0..servers).map(member).collect()
}

impl Step {
    fn new(rehashed: u64, moved: u64, took: Duration) -> Step {
        Step { rehashed, moved, milliseconds: took.as_secs_f64() * 1_000.0 }
    }
}

/// Returns the mean time of a lookup over all hashes, in nanoseconds.
fn time<'a>(
    hashes: impl ExactSizeIterator<Item = &'a u64>,
    lookup: impl Fn(u64) -> Option<u32>,
) -> f64 {
    let (many, started) = (hashes.len().max(1), Instant::now());
    for hash in hashes {
        black_box(lookup(*hash));
    }
    started.elapsed().as_nanos() as f64 / many as f64
}

fn lookups(hashes: &Hashes) -> Result<Vec<LookupCost>, Error> {
    let mut costs = Vec::new();
    let servers = u64::from(SERVERS);
    costs.push(LookupCost {
        setting: Setting { mode: Mode::Modulo, vnodes: 1 },
        points: 0,
        nanoseconds: time(hashes.md5.iter(), |hash| u32::try_from(hash % servers).ok()),
        search_nanoseconds: None,
    });
    for vnodes in LOOKUPS {
        let mut ring = HashRing::new(Md5, Placement::Consistent, count(vnodes));
        for number in 0..SERVERS {
            ring.add_server(server_name(number), NonZeroU32::MIN, false)?;
        }
        let circle = ring.circle();
        costs.push(LookupCost {
            setting: Setting { mode: Mode::Md5, vnodes },
            points: circle.len(),
            nanoseconds: time(hashes.md5.iter(), |hash| circle.owner(hash)),
            search_nanoseconds: Some(time(hashes.md5.iter(), |hash| circle.owner_by_search(hash))),
        });
    }
    let table = Assignment::of(&members(SERVERS), PARTITIONS);
    let partitions = u64::from(PARTITIONS.get());
    costs.push(LookupCost {
        setting: Setting { mode: Mode::Xxh3, vnodes: VIRTUAL_NODES },
        points: PARTITIONS.get() as usize,
        nanoseconds: time(hashes.xxh3.iter(), |hash| {
            let rank = table.rank(Partition(u32::try_from(hash % partitions).ok()?))?;
            u32::try_from(rank).ok()
        }),
        search_nanoseconds: None,
    });
    Ok(costs)
}

impl Setting {
    fn cells(self) -> [String; 2] {
        match self.mode {
            Mode::Modulo => ["modulo".into(), "-".into()],
            Mode::Md5 => ["md5".into(), self.vnodes.to_string()],
            Mode::Xxh3 => ["xxh3".into(), self.vnodes.to_string()],
        }
    }
}

impl Findings {
    fn render(&self) -> String {
        let servers: Vec<NodeName> = (0..SERVERS).map(server_name).collect();
        let mut out = format!(
            "{} keys on {SERVERS} servers, named {} and so on.\n\nPositions of the servers on the \
             circle, from 0 to 4294967295\n\n",
            self.keys, servers[0]
        );
        out += &Positions::table(&self.positions);
        for positions in &self.positions {
            let vnodes = positions.vnodes();
            out += &format!("\nmd5, {vnodes} virtual nodes each; 0 is at the top, clockwise\n\n");
            out += &positions.picture();
        }
        out += "\nHow the keys are distributed\n\n";
        let mut table = Table::new("");
        for case in &self.distribution {
            let most = case.owned.iter().copied().max().unwrap_or(0);
            for (owned, server) in case.owned.iter().zip(&servers) {
                let [mode, vnodes] = case.setting.cells();
                table.row([
                    ("MODE", &mode),
                    (">VNODES", &vnodes),
                    ("SERVER", &server),
                    (">KEYS", &owned),
                    (">SHARE", &percent(*owned, self.keys)),
                    ("", &bar(*owned, most)),
                ]);
            }
        }
        out += &table.render();
        out += "\nA server is lost: keys found on the others\n\n";
        let mut table = Table::new("");
        for loss in &self.loss {
            let after = loss.outcome.after.as_deref().unwrap_or_default();
            let [mode, vnodes] = loss.setting.cells();
            let each = servers.iter().enumerate().map(|(number, server)| {
                (server.as_str(), loss.outcome.owned[number], after[number], loss.hits[number])
            });
            let all = ("all", self.keys, self.keys, loss.hits.iter().sum());
            for (server, before, after, hits) in each.chain([all]) {
                table.row([
                    ("MODE", &mode),
                    (">VNODES", &vnodes),
                    ("LOST", &servers[loss.lost as usize]),
                    ("SERVER", &server),
                    (">BEFORE", &before),
                    (">AFTER", &after),
                    (">HITS", &hits),
                    (">OF ALL", &percent(hits, self.keys)),
                    ("", &bar(hits, after)),
                ]);
            }
        }
        out += &table.render();
        out += "\nA fifth server is added, then removed, while keys are stored\n\n";
        let mut table = Table::new("");
        for growth in &self.growth {
            let [mode, vnodes] = growth.setting.cells();
            let (added, removed) = (&growth.added, &growth.removed);
            table.row([
                ("MODE", &mode),
                (">VNODES", &vnodes),
                (">ADD: HASHED", &added.rehashed),
                (">MOVED", &added.moved),
                (">MS", &format!("{:.1}", added.milliseconds)),
                (">REMOVE: HASHED", &removed.rehashed),
                (">MOVED", &removed.moved),
                (">MS", &format!("{:.1}", removed.milliseconds)),
            ]);
        }
        out += &table.render();
        out += "\nKeys by server before and after a fifth server is added\n\n";
        let mut table = Table::new("");
        for growth in &self.growth {
            let most = growth.before.iter().chain(&growth.after).copied().max().unwrap_or(0);
            for (number, after) in (0..).zip(&growth.after) {
                let [mode, vnodes] = growth.setting.cells();
                let before = growth.before.get(number as usize).copied().unwrap_or(0);
                table.row([
                    ("MODE", &mode),
                    (">VNODES", &vnodes),
                    ("SERVER", &server_name(number)),
                    (">BEFORE", &before),
                    (">AFTER", &after),
                    ("", &bar(*after, most)),
                ]);
            }
        }
        out += &table.render();
        out += "\nWhat a lookup costs, without hashing\n\n";
        let mut table = Table::new("");
        let most = self.lookup.iter().map(|cost| cost.nanoseconds).fold(0.0, f64::max);
        for cost in &self.lookup {
            let [mode, vnodes] = cost.setting.cells();
            let search = cost.search_nanoseconds.map(|ns| format!("{ns:.1}"));
            table.row([
                ("MODE", &mode),
                (">VNODES", &vnodes),
                (">POINTS", &cost.points),
                (">NS", &format!("{:.1}", cost.nanoseconds)),
                (">NS BY SEARCH", &output::text(search)),
                ("", &bar((cost.nanoseconds * 1_000.0) as u64, (most * 1_000.0) as u64)),
            ]);
        }
        out + &table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_in_the_tables_and_adds_up() {
        const KEYS: u64 = 2_000;
        let hashes = Hashes {
            md5: key_hashes(Mode::Md5, KEYS).collect(),
            xxh3: key_hashes(Mode::Xxh3, KEYS).collect(),
        };
        let found = findings(KEYS, &hashes).expect("it is possible");
        for case in &found.distribution {
            assert_eq!(case.owned.iter().sum::<u64>(), KEYS, "{case:?}");
        }
        for loss in &found.loss {
            assert_eq!(Some(loss.hits.iter().sum()), loss.outcome.kept, "{loss:?}");
            assert_eq!(loss.hits[loss.lost as usize], 0);
            let hits = loss.hits.iter().sum::<u64>() as f64;
            assert!((loss.hit_rate - hits / KEYS as f64).abs() < 1e-9, "{loss:?}");
        }
        for growth in &found.growth {
            assert_eq!(growth.added.moved, growth.removed.moved, "there and back: {growth:?}");
            assert_eq!((growth.before.len(), growth.after.len()), (4, 5));
            assert_eq!(growth.before.iter().sum::<u64>(), KEYS);
            assert_eq!(growth.after.iter().sum::<u64>(), KEYS);
        }
        assert_eq!(found.lookup.len(), LOOKUPS.len() + 2);
        assert_eq!(found.positions.len(), 4);
        let shown = found.render();
        for words in ["distributed", "is lost", "is added", "lookup costs", "modulo", "server_3"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
}
