//! `besom ring simulate --mode ...`: simulates one distribution and at most one change of servers.

use std::num::NonZeroU32;

use besom_core::ring::VIRTUAL_NODES;
use besom_core::ring::simulate::{Event, Mode, Outcome, key_hashes, simulate};

use super::super::output::{self, Table, bar};
use super::super::{Exit, Failure, Global};
use super::experiments;

/// Default number of keys: "0" to "999999".
const KEYS_DEFAULT: u64 = 1_000_000;

/// Maximum number of keys, which takes minutes.
const KEYS_MAX: u64 = 1_000_000_000;

/// Default number of servers.
const SERVERS_DEFAULT: u32 = 4;

/// Maximum number of servers.
const SERVERS_MAX: u32 = 100_000;

/// Default number of virtual nodes of a server in mode md5.
const MD5_VIRTUAL_NODES_DEFAULT: u32 = 100;

/// `besom ring simulate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How keys are assigned to servers.
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    /// Number of servers, named server_0 and so on (default: 4).
    #[arg(long, value_name = "N", requires = "mode",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SERVERS_MAX)))]
    servers: Option<u32>,
    /// Points of each server on the circle (default: 1,024 in mode xxh3, 100 in mode md5; ignored in
    /// mode modulo).
    #[arg(long, value_name = "N", requires = "mode")]
    vnodes: Option<NonZeroU32>,
    /// Number of keys, named "0" and so on.
    #[arg(long, value_name = "N", default_value_t = KEYS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Remove the server with this number.
    #[arg(long, value_name = "I", requires = "mode", conflicts_with = "add")]
    remove: Option<u32>,
    /// Add a server with the next number.
    #[arg(long, requires = "mode")]
    add: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ModeName {
    /// As in a cluster: XXH3, 1,024 partitions, bounded load.
    Xxh3,
    /// The first four bytes of MD5, directly on the circle.
    Md5,
    /// The same hash, modulo the number of servers.
    Modulo,
}

impl Args {
    /// Runs the simulation and prints the result.
    pub fn run(self, global: &Global) -> Result<Exit, Failure> {
        let Some(mode) = self.mode else { return experiments::run(global, self.keys) };
        let (mode, virtual_nodes) = match mode {
            ModeName::Xxh3 => (Mode::Xxh3, VIRTUAL_NODES),
            ModeName::Md5 => (Mode::Md5, MD5_VIRTUAL_NODES_DEFAULT),
            ModeName::Modulo => (Mode::Modulo, 1),
        };
        let virtual_nodes =
            self.vnodes.or(NonZeroU32::new(virtual_nodes)).unwrap_or(NonZeroU32::MIN);
        let servers = self.servers.unwrap_or(SERVERS_DEFAULT);
        let event = match (self.remove, self.add) {
            (Some(number), _) if number >= servers => {
                return Err(Failure::Usage(format!(
                    "--remove {number}: the servers are numbered 0 to {}",
                    servers - 1
                )));
            }
            (Some(number), _) => Some(Event::Remove(number)),
            (None, true) => Some(Event::Add),
            (None, false) => None,
        };
        let outcome = simulate(mode, servers, virtual_nodes, key_hashes(mode, self.keys), event)
            .map_err(|error| Failure::Usage(format!("{error}: lower --servers or --vnodes")))?;
        output::show(global.output, &outcome, || render(&outcome))?;
        Ok(Exit::Fine)
    }
}

/// Renders the outcome as a table.
fn render(outcome: &Outcome) -> String {
    let most = outcome.owned.iter().chain(outcome.after.iter().flatten()).copied().max();
    let most = most.unwrap_or(0);
    let Some(after) = &outcome.after else {
        let mut table = Table::new("There are no servers.");
        for (server, owned) in outcome.owned.iter().enumerate() {
            table.row([("SERVER", &server), (">KEYS", &owned), ("SHARE", &bar(*owned, most))]);
        }
        return table.render();
    };
    let mut table = Table::new("There are no servers.");
    for (server, now) in after.iter().enumerate() {
        let before = outcome.owned.get(server).copied().unwrap_or(0);
        let kept = outcome.kept_by.get(server).copied().unwrap_or(0);
        table.row([
            ("SERVER", &server),
            (">BEFORE", &before),
            (">AFTER", &now),
            (">KEPT", &kept),
            ("SHARE", &bar(*now, most)),
        ]);
    }
    let (kept, moved) = (outcome.kept.unwrap_or(0), outcome.moved.unwrap_or(0));
    let all = (kept + moved).max(1);
    format!(
        "{}\n{kept} keys kept their server ({}), {moved} moved, {} were hashed again.\n",
        table.render(),
        percent(kept, all),
        outcome.rehashed,
    )
}

/// Formats `part` of `whole` as a percentage.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_read_has_exactly_its_names() {
        let count = |n| NonZeroU32::new(n).unwrap();
        let text = |event| {
            let hashes = key_hashes(Mode::Md5, 1_000);
            let outcome = simulate(Mode::Md5, 4, count(4), hashes, event).unwrap();
            (serde_json::to_value(&outcome).unwrap(), render(&outcome))
        };
        let names = |json: &serde_json::Value| -> Vec<String> {
            json.as_object().unwrap().keys().cloned().collect()
        };
        let (json, shown) = text(None);
        assert_eq!(names(&json), ["owned", "rehashed"]);
        assert!(shown.contains("SERVER") && shown.contains('█'), "{shown}");
        for event in [Event::Remove(0), Event::Add] {
            let (json, shown) = text(Some(event));
            assert_eq!(names(&json), ["owned", "after", "kept", "moved", "rehashed"]);
            assert!(shown.contains("kept their server"), "{shown}");
        }
    }
}
