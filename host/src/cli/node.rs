//! `besom node`: the members of a cluster, what they take part in, and who leads them.

use std::sync::Arc;

use besom_core::ids::NodeName;
use besom_core::ring::ServerName;
use clap::Subcommand;
use serde_json::json;

use super::output::{self, Stamp, Table};
use super::submit::{Asking, caller};
use super::{Exit, Failure, Global, cluster, open};
use crate::config::{Config, Overrides, printable, read};
use crate::coordination::etcd::Etcd;
use crate::model::collections_for;
use crate::ports::coordination::Coordination as _;
use crate::ports::members::{MemberState, Members as _};
use crate::ports::store::Command;

/// `besom node`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the members of the cluster.
    Ls,
    /// Let a node finish what it has and give it nothing new.
    Drain(Name),
    /// Give a drained node its share again.
    Resume(Name),
    /// Let the leader give its leadership up: another node leads then, or the same one again
    /// under a higher term.
    Resign {
        /// How it is asked for.
        #[command(flatten)]
        asking: Asking,
    },
}

/// A node's name.
#[derive(Debug, clap::Args)]
pub struct Name {
    /// As `besom node ls` shows it.
    #[arg(value_name = "NODE")]
    name: String,
    /// Why; kept with who and when.
    #[arg(long, default_value = "")]
    reason: String,
}

impl Verb {
    /// Asks etcd or the leader, and prints.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let etcd = || handle(&configuration(global)?);
        match self {
            Verb::Ls => list(global, &*etcd()?).await,
            Verb::Drain(name) => set(global, &*etcd()?, name, MemberState::Draining).await,
            Verb::Resume(name) => set(global, &*etcd()?, name, MemberState::Active).await,
            Verb::Resign { asking } => {
                let (store, outline) = open::reading(global).await?;
                if outline.leader.is_none() {
                    let why = outline.leader_fault.unwrap_or_else(|| "nobody leads".into());
                    return Err(Failure::Failed(format!("there is nobody to resign: {why}")));
                }
                asking.run(global, &*store, &Command::Resign).await
            }
        }
    }
}

/// The configuration, its tasks left aside.
pub fn configuration(global: &Global) -> Result<Config, Failure> {
    let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
    let model = collections_for(&parsed.plugins());
    Ok(parsed.outline(&model).finish()?)
}

/// The cluster's etcd, for somebody who only looks and sets states: no member is registered.
pub fn handle(config: &Config) -> Result<Arc<Etcd>, Failure> {
    let nobody = NodeName::from("besom-cli");
    cluster::etcd(config, &nobody, &open::onlookers_clock())?.ok_or_else(|| {
        Failure::Usage(
            "this host is in no cluster: [coordination] etcd names the members of etcd".into(),
        )
    })
}

async fn list(global: &Global, etcd: &Etcd) -> Result<Exit, Failure> {
    let membership = etcd.members().await?;
    let leader = etcd.leader().await?;
    let leads = |incarnation: &NodeName| leader.as_ref().is_some_and(|l| l.node == *incarnation);
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
        let headings = ["NODE", "STATE", ">WEIGHT", "LEADS", "ADDRESS", "INCARNATION"];
        let mut table = Table::new(&headings, "No node has joined.");
        for member in &membership.members {
            let state = match member.state {
                MemberState::Active if !member.is_on_ring() => "aside",
                MemberState::Joining => "joining",
                MemberState::Active => "active",
                MemberState::Draining => "draining",
            };
            table.row([
                member.name.to_string(),
                state.to_owned(),
                member.weight.to_string(),
                if leads(&member.incarnation) { "yes".into() } else { String::new() },
                member.addr.clone(),
                member.incarnation.to_string(),
            ]);
        }
        let mut text = table.render();
        for member in &membership.members {
            if let Some(away) = &member.store_away {
                let (since, why) = (Stamp(away.since), printable(&away.told()));
                text.push_str(&format!("{} misses the store since {since}: {why}\n", member.name));
            }
        }
        text
    })?;
    Ok(Exit::Fine)
}

/// Keeps in the store who did it and why. The members have it already: that it could not be kept
/// is said, and no more.
async fn note(global: &Global, name: &ServerName, state: MemberState, reason: &str) {
    let command = state.noted(name.to_string());
    let noted = async {
        let (store, _) = open::reading(global).await?;
        Ok::<_, Failure>(store.submit(&command, &caller(), reason).await?)
    };
    if let Err(error) = noted.await {
        tracing::warn!(%error, "the store does not keep who has done this");
    }
}

async fn set(
    global: &Global,
    etcd: &Etcd,
    Name { name, reason }: Name,
    state: MemberState,
) -> Result<Exit, Failure> {
    let name = ServerName::from(name);
    if !etcd.set_state(&name, state).await? {
        let members = etcd.members().await?.members;
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        let near = match names.is_empty() {
            true => "no node has joined".to_owned(),
            false => crate::config::keys::suggestion(name.as_str(), names),
        };
        return Err(Failure::Usage(format!("there is no node `{name}`: {near}")));
    }
    note(global, &name, state, &reason).await;
    output::show(global.output, &json!({ "name": name, "state": state }), || match state {
        MemberState::Draining => format!("{name} is draining: it gets nothing new.\n"),
        MemberState::Active | MemberState::Joining => format!("{name} gets its share again.\n"),
    })?;
    Ok(Exit::Fine)
}
