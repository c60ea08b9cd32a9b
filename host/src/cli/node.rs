//! `besom node`: lists, drains and resumes the members of a cluster, and makes the leader resign.

use std::sync::Arc;

use besom_core::ids::Incarnation;
use besom_core::ring::NodeName;
use clap::Subcommand;
use serde_json::json;

use super::output::{self, Stamp, Table};
use super::submit::{Asking, caller, checked};
use super::{Exit, Failure, Global, cluster, open};
use besom_config::{Config, printable};
use besom_ports::coordination::Coordination as _;
use besom_ports::members::{MemberState, Members as _};
use besom_ports::store::Command;
use besom_product::model::collections_for;
use besom_services::coordination::etcd::Etcd;

/// `besom node`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the members of the cluster.
    Ls,
    /// Drain a node: it finishes its work and receives nothing new.
    Drain(Name),
    /// Resume a drained node: it receives its share of the work again.
    Resume(Name),
    /// Make the leader resign: another node is elected, or the same one under a higher term.
    Resign {
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
}

/// Selects a node by name.
#[derive(Debug, clap::Args)]
pub struct Name {
    /// Name of the node, as shown by `besom node ls`.
    #[arg(value_name = "NODE")]
    name: String,
    /// Reason, recorded with the command.
    #[arg(long, default_value = "")]
    reason: String,
}

impl Verb {
    /// Reads or changes the membership in etcd, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let etcd = || handle(&configuration(global)?);
        match self {
            Verb::Ls => list(global, &*etcd()?).await,
            Verb::Drain(name) => set(global, &*etcd()?, name, MemberState::Draining).await,
            Verb::Resume(name) => set(global, &*etcd()?, name, MemberState::Active).await,
            Verb::Resign { asking } => {
                let (store, outline) = open::reading(global).await?;
                if outline.leader.is_none() {
                    let why = outline.leader_fault.map(|fault| format!(": {fault}"));
                    let why = why.unwrap_or_default();
                    return Err(Failure::Failed(format!(
                        "there is no leader that could resign{why}"
                    )));
                }
                asking.run(global, &*store, &Command::Resign).await
            }
        }
    }
}

/// Reads the configuration without its tasks.
pub fn configuration(global: &Global) -> Result<Config, Failure> {
    let parsed = global.parsed()?;
    let model = collections_for(&parsed.plugins());
    Ok(parsed.outline(&model).finish()?)
}

/// Returns an etcd client for reading members and setting their states; it registers no member.
///
/// # Errors
/// The configuration names no etcd, or a file that the client needs cannot be used.
pub fn handle(config: &Config) -> Result<Arc<Etcd>, Failure> {
    let nobody = Incarnation::from("besom-cli");
    cluster::etcd(config, &nobody, &open::onlookers_clock())?.ok_or_else(|| {
        Failure::Usage("this host is not part of a cluster: set `etcd` in [coordination]".into())
    })
}

async fn list(global: &Global, etcd: &Etcd) -> Result<Exit, Failure> {
    let membership = etcd.members().await?;
    let leader = etcd.leader().await?;
    let leads = |incarnation: &Incarnation| leader.as_ref().is_some_and(|l| l.node == *incarnation);
    let json: Vec<_> = membership
        .members
        .iter()
        .map(|member| {
            json!({
                "name": member.name,
                "incarnation": member.incarnation,
                "addr": member.addr,
                "weight": member.weight,
                "state": member.state,
                "store_away": member.store_away,
                "leads": leads(&member.incarnation),
            })
        })
        .collect();
    output::show(global.output, &json, || {
        let mut table = Table::new("No nodes have joined.");
        for member in &membership.members {
            let state = match member.state {
                MemberState::Active if !member.is_on_ring() => "aside",
                MemberState::Joining => "joining",
                MemberState::Active => "active",
                MemberState::Draining => "draining",
            };
            table.row([
                ("NODE", &member.name),
                ("STATE", &state),
                (">WEIGHT", &member.weight),
                ("LEADS", &if leads(&member.incarnation) { "yes" } else { "" }),
                ("ADDRESS", &member.addr),
                ("INCARNATION", &member.incarnation),
            ]);
        }
        let mut text = table.render();
        for member in &membership.members {
            if let Some(away) = &member.store_away {
                let (since, why) = (Stamp(away.since), printable(&away.told()));
                text.push_str(&format!(
                    "{} cannot reach the store (since {since}): {why}\n",
                    member.name
                ));
            }
        }
        text
    })?;
    Ok(Exit::Fine)
}

/// Records in the store who changed the state and why. If that fails, the change still holds and only a
/// warning is logged.
async fn note(global: &Global, name: &NodeName, state: MemberState, reason: &str) {
    let command = state.noted(name.to_string());
    let noted = async {
        let (store, _) = open::reading(global).await?;
        Ok::<_, Failure>(store.submit(&command, &caller(), reason).await?)
    };
    if let Err(error) = noted.await {
        tracing::warn!(%error, "cannot record in the store who changed the state of the node");
    }
}

async fn set(
    global: &Global,
    etcd: &Etcd,
    Name { name, reason }: Name,
    state: MemberState,
) -> Result<Exit, Failure> {
    checked(&reason)?;
    let name = NodeName::from(name);
    if !etcd.set_state(&name, state).await? {
        let members = etcd.members().await?.members;
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        let near = match names.is_empty() {
            true => "no nodes have joined".to_owned(),
            false => besom_config::keys::suggestion(name.as_str(), names),
        };
        return Err(Failure::Usage(format!("there is no node `{name}`: {near}")));
    }
    note(global, &name, state, &reason).await;
    output::show(global.output, &json!({ "name": name, "state": state }), || match state {
        MemberState::Draining => format!("{name} is draining: it receives no new work.\n"),
        MemberState::Active | MemberState::Joining => {
            format!("{name} is active: it receives its share of the work again.\n")
        }
    })?;
    Ok(Exit::Fine)
}
