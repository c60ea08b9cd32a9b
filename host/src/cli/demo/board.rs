//! The state of a demo's cluster at one moment: leader, members, ownership and queues.

use std::collections::BTreeMap;

use besom_core::ids::Incarnation;
use besom_core::time::Time;

use super::super::output::{self, Table, bar};
use besom_demo::cluster::Host;
use besom_ports::coordination::{Coordination as _, LeaderRecord};
use besom_ports::members::{MemberState, Members as _};
use besom_ports::store::{Depth, Store};
use besom_services::coordination::etcd::Etcd;

/// A host, as seen by its process, etcd and the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Lasting name of the node.
    pub name: String,
    /// Process ID; `None` if the process has ended.
    pub pid: Option<i32>,
    /// State of the membership; `None` if the node is not a member.
    pub state: Option<MemberState>,
    /// Number of partitions that the node owns according to the store.
    pub owns: usize,
}

/// The state of the whole cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Board {
    /// The current leadership; `None` if there is none or it could not be read.
    pub leader: Option<LeaderRecord>,
    /// Lasting name of the leader.
    pub leads: Option<String>,
    /// The hosts, ordered by name.
    pub nodes: Vec<Node>,
    /// Waiting items, by task.
    pub depths: Vec<Depth>,
    /// Errors of the reads that failed.
    pub missing: Vec<String>,
}

impl Board {
    /// Reads etcd and the store. Failed reads are noted in `missing`; the rest is still shown.
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
        let mut owned: BTreeMap<Incarnation, usize> = BTreeMap::new();
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
            // An owner is named by its incarnation: a killed node remains the owner until another
            // node has claimed the partition.
            let of_host = |owner: &Incarnation| owner.node_name() == host.name();
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

    /// The host that leads.
    pub fn leading(&self) -> Option<&Node> {
        let leads = self.leads.as_deref()?;
        self.nodes.iter().find(|node| node.name == leads)
    }

    /// Whether every running host owns partitions, and no other host does.
    pub fn is_shared_out(&self) -> bool {
        let running = |node: &Node| node.pid.is_some() && node.state == Some(MemberState::Active);
        self.nodes.iter().any(running)
            && self.nodes.iter().all(|node| running(node) == (node.owns > 0))
    }

    /// Number of items in the log and in the retries; timers are not counted.
    pub fn queued(&self) -> u64 {
        self.depths.iter().map(|depth| depth.log + depth.retries).sum()
    }

    /// A value that changes whenever the board should be printed again.
    pub fn key(&self) -> impl PartialEq + use<> {
        let term = self.leader.as_ref().map(|leader| leader.term);
        (self.leads.clone(), term, self.nodes.clone(), self.missing.clone())
    }

    /// Renders the board as text.
    pub fn text(&self, now: Time) -> String {
        let mut out = match (&self.leads, &self.leader) {
            (Some(name), Some(leader)) => {
                let since = now.since(leader.elected_at).as_secs();
                format!("{name} leads: term {}, elected {since} s ago\n", leader.term)
            }
            (None, Some(leader)) => format!(
                "there is no leader: {} is gone, its lease of term {} has not expired yet\n",
                leader.node, leader.term
            ),
            (_, None) => "there is no leader\n".to_owned(),
        };
        let mut nodes = Table::new("no hosts");
        let most = self.nodes.iter().map(|node| node.owns).max().unwrap_or(0);
        for node in &self.nodes {
            let state = match (node.pid, node.state) {
                (None, Some(_)) => "ended; lease not expired",
                (None, None) => "ended",
                (Some(_), None) => "starting",
                (Some(_), Some(MemberState::Joining)) => "joining",
                (Some(_), Some(MemberState::Active)) => "active",
                (Some(_), Some(MemberState::Draining)) => "draining",
            };
            nodes.row([
                ("NODE", &node.name),
                (">PID", &output::text(node.pid)),
                ("STATE", &state),
                (">PARTITIONS", &node.owns),
                ("RING", &bar(node.owns as u64, most as u64)),
            ]);
        }
        out.push_str(&nodes.render());
        let mut queues = Table::new("nothing has been planned yet");
        for depth in &self.depths {
            let Some(task) = &depth.task else { continue };
            queues.row([
                ("TASK", &task),
                (">QUEUED", &depth.log),
                (">RETRIES", &depth.retries),
                (">TIMERS", &depth.timers),
                (">DEAD", &depth.dead),
            ]);
        }
        out.push_str(&queues.render());
        for missing in &self.missing {
            out.push_str(&format!("unavailable: {missing}\n"));
        }
        out
    }
}
