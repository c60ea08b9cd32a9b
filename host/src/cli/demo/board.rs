//! What a demo's cluster looks like at one moment: who leads, who is there, who owns how much,
//! what waits.

use std::collections::BTreeMap;

use besom_core::ids::NodeName;
use besom_core::time::Time;

use super::super::output::{Table, bar};
use crate::coordination::etcd::Etcd;
use crate::demo::cluster::Host;
use crate::ports::coordination::{Coordination as _, LeaderRecord};
use crate::ports::members::{MemberState, Members as _};
use crate::ports::store::{Depth, Store};

/// A host as its process, etcd and the store tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its lasting name.
    pub name: String,
    /// The number of its process; none: it has ended.
    pub pid: Option<i32>,
    /// Its place among the members; none: it is no member.
    pub state: Option<MemberState>,
    /// Partitions that the store says it owns.
    pub owns: usize,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Board {
    /// Who leads; none: nobody does, or it is not known.
    pub leader: Option<LeaderRecord>,
    /// The leader's lasting name.
    pub leads: Option<String>,
    /// The hosts, in the order of their names.
    pub nodes: Vec<Node>,
    /// What waits, by task.
    pub depths: Vec<Depth>,
    /// What could not be read.
    pub missing: Vec<String>,
}

impl Board {
    /// Asks etcd and the store. What cannot be read is said, and the rest is shown.
    pub async fn look(etcd: &Etcd, store: &dyn Store, hosts: &[Host]) -> Board {
        let mut board = Board::default();
        let mut missing = Vec::new();
        board.leader = etcd.leader().await.unwrap_or_else(|error| {
            missing.push(error.to_string());
            None
        });
        let members = match etcd.members().await {
            Ok(membership) => membership.members,
            Err(_) => Vec::new(),
        };
        let mut owned: BTreeMap<NodeName, usize> = BTreeMap::new();
        match store.partition_table().await {
            Ok(rows) => {
                for owner in rows.into_iter().filter_map(|row| row.owner) {
                    *owned.entry(owner).or_default() += 1;
                }
                board.depths = store.depths().await.unwrap_or_default();
            }
            Err(error) => missing.push(error.to_string()),
        }
        for host in hosts {
            let member = members.iter().find(|member| member.name.as_str() == host.name());
            let alive = host.process().filter(|process| process.is_alive());
            let leader = board.leader.as_ref().map(|leader| &leader.node);
            if member.is_some_and(|member| Some(&member.incarnation) == leader) {
                board.leads = Some(host.name().to_owned());
            }
            // An owner's name is that of a start of it: whoever was killed owns until another
            // has claimed it.
            let of_host = |owner: &NodeName| owner.lasting() == host.name();
            board.nodes.push(Node {
                name: host.name().to_owned(),
                pid: alive.map(|process| process.id()),
                state: member.map(|member| member.state),
                owns: owned.iter().filter(|(owner, _)| of_host(owner)).map(|(_, n)| n).sum(),
            });
        }
        board.missing = missing;
        board
    }

    /// The host that leads, with its process.
    pub fn leading(&self) -> Option<&Node> {
        let leads = self.leads.as_deref()?;
        self.nodes.iter().find(|node| node.name == leads)
    }

    /// Whether each running host owns a part, and nobody else does.
    pub fn is_shared_out(&self) -> bool {
        let running = |node: &Node| node.pid.is_some() && node.state == Some(MemberState::Active);
        self.nodes.iter().any(running)
            && self.nodes.iter().all(|node| running(node) == (node.owns > 0))
    }

    /// Items that wait for nothing but their turn.
    pub fn queued(&self) -> u64 {
        self.depths.iter().map(|depth| depth.log + depth.retries).sum()
    }

    /// What differs when something worth a line has happened.
    pub fn key(&self) -> impl PartialEq + use<> {
        let term = self.leader.as_ref().map(|leader| leader.term);
        (self.leads.clone(), term, self.nodes.clone(), self.missing.clone())
    }

    /// For a person.
    pub fn text(&self, now: Time) -> String {
        let mut out = match (&self.leads, &self.leader) {
            (Some(name), Some(leader)) => {
                let since = now.since(leader.elected_at).as_secs();
                format!("{name} leads: term {}, elected {since} s ago\n", leader.term)
            }
            (None, Some(leader)) => format!(
                "nobody leads: {} is gone, and its lease of term {} has yet to end\n",
                leader.node, leader.term
            ),
            (_, None) => "nobody leads\n".to_owned(),
        };
        let headings = ["NODE", ">PID", "STATE", ">PARTITIONS", "RING"];
        let mut nodes = Table::new(&headings, "no host");
        let most = self.nodes.iter().map(|node| node.owns).max().unwrap_or(0);
        for node in &self.nodes {
            let state = match (node.pid, node.state) {
                (None, Some(_)) => "ended; its lease has yet to",
                (None, None) => "ended",
                (Some(_), None) => "starting",
                (Some(_), Some(MemberState::Joining)) => "joining",
                (Some(_), Some(MemberState::Active)) => "active",
                (Some(_), Some(MemberState::Draining)) => "draining",
            };
            nodes.row([
                node.name.clone(),
                node.pid.map_or("-".to_owned(), |pid| pid.to_string()),
                state.to_owned(),
                node.owns.to_string(),
                bar(node.owns as u64, most as u64),
            ]);
        }
        out.push_str(&nodes.render());
        let headings = ["TASK", ">QUEUED", ">RETRIES", ">TIMERS", ">DEAD"];
        let mut queues = Table::new(&headings, "nothing was planned yet");
        for depth in &self.depths {
            let Some(task) = &depth.task else { continue };
            let [log, retries, timers, dead] =
                [depth.log, depth.retries, depth.timers, depth.dead].map(|n| n.to_string());
            queues.row([task.to_string(), log, retries, timers, dead]);
        }
        out.push_str(&queues.render());
        for missing in &self.missing {
            out.push_str(&format!("missing: {missing}\n"));
        }
        out
    }
}
