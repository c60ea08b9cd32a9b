//! `besom ring show` and `besom ring owner`: the ring of the cluster's members as they are now.
//!
//! It says who *should* own what, and beside it who does: that is noted in the store, and follows
//! within seconds.

use std::num::NonZeroU32;

use besom_core::ids::NodeName;
use besom_core::ring::Assignment;
use serde_json::json;

use super::super::node::{configuration, handle};
use super::super::open::open_store;
use super::super::output::{self, Table, bar};
use super::super::{Exit, Failure, Global};
use crate::ports::members::{MemberState, Members as _, Membership};
use crate::ports::store::PartitionRow;

/// `besom ring show`.
#[derive(Debug, clap::Args)]
pub struct Show {}

/// `besom ring owner`.
#[derive(Debug, clap::Args)]
pub struct Owner {
    /// The key: what an item is routed by.
    #[arg(value_name = "KEY")]
    key: String,
    /// The tenant of the item.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

/// The members, the ring that they make, and who owns what by the store.
async fn rings(global: &Global) -> Result<(Membership, Assignment, Vec<PartitionRow>), Failure> {
    let config = configuration(global)?;
    let membership = handle(&config)?.members().await?;
    let store = open_store(&config).await?;
    let partitions = NonZeroU32::new(store.partitions())
        .ok_or_else(|| Failure::Failed("the store has no partition".into()))?;
    let table = Assignment::of(&membership.ring(), partitions);
    Ok((membership, table, store.partition_table().await?))
}

/// The lasting name of an owner, who signs with the name of a start of it.
fn lasting<'a>(membership: &'a Membership, owner: &NodeName) -> Option<&'a str> {
    let of = membership.members.iter().find(|member| member.incarnation == *owner);
    of.map(|member| member.name.as_str())
}

impl Show {
    /// Computes and prints.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (membership, table, rows) = rings(global).await?;
        let owned_by = |name: &str| {
            let owners = rows.iter().filter_map(|row| row.owner.as_ref());
            owners.filter(|owner| lasting(&membership, owner) == Some(name)).count()
        };
        let loads = table.loads();
        let json: Vec<_> = loads
            .iter()
            .map(|(member, load, most)| {
                json!({
                    "name": member.name,
                    "weight": member.weight,
                    "partitions": load,
                    "partitions_max": most,
                    "owned": owned_by(member.name.as_str()),
                })
            })
            .collect();
        output::show(global.output, &json, || {
            let headings = ["NODE", ">WEIGHT", ">PARTITIONS", ">AT MOST", ">OWNED", ""];
            let mut rows = Table::new(&headings, "No node is active.");
            let longest = loads.iter().map(|(_, load, _)| *load).max().unwrap_or(0);
            for (member, load, most) in &loads {
                rows.row([
                    member.name.to_string(),
                    member.weight.to_string(),
                    load.to_string(),
                    most.to_string(),
                    owned_by(member.name.as_str()).to_string(),
                    bar(*load, longest),
                ]);
            }
            let idle = |state| membership.members.iter().filter(move |m| m.state == state);
            let leaving: String = idle(MemberState::Draining)
                .map(|member| {
                    let name = member.name.as_str();
                    format!(
                        "{name} is draining: {} of its partitions are still its own\n",
                        owned_by(name)
                    )
                })
                .collect();
            format!(
                "{}\n{leaving}revision {}, {} joining, {} draining\n",
                rows.render(),
                membership.revision,
                idle(MemberState::Joining).count(),
                idle(MemberState::Draining).count(),
            )
        })?;
        Ok(Exit::Fine)
    }
}

impl Owner {
    /// Computes and prints.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (membership, table, rows) = rings(global).await?;
        let (partition, owner) = table.owner_of(self.tenant.as_deref(), &self.key);
        let row = rows.iter().find(|row| row.partition == partition);
        let row = row.and_then(|row| Some((row.owner.as_ref()?, row.epoch)));
        let value = json!({
            "key": self.key,
            "partition": partition,
            "node": owner,
            "owner": row.map(|(owner, _)| owner),
            "epoch": row.map(|(_, epoch)| epoch),
        });
        output::show(global.output, &value, || {
            let should = owner.map_or("nobody: no node is active", |owner| owner.as_str());
            let does = match row {
                None => "nobody has claimed it yet".to_owned(),
                Some((owner, epoch)) if lasting(&membership, owner) == Some(should) => {
                    format!("which does, under epoch {}", epoch.0)
                }
                Some((owner, epoch)) => format!("still {owner}'s, under epoch {}", epoch.0),
            };
            format!("partition {partition} should be of {should}: {does}\n")
        })?;
        Ok(Exit::Fine)
    }
}
