//! `besom ring show` and `besom ring owner`: print the ring of the current members of the cluster.
//!
//! The ring says which node *should* own a partition. The store says which node does; it follows the
//! ring within seconds.

use std::num::NonZeroU32;

use besom_core::command::counted;
use besom_core::ids::Incarnation;
use besom_core::ring::Assignment;
use serde_json::json;

use super::super::node::{configuration, handle};
use super::super::open::{Opening, absent, is_there};
use super::super::output::{self, Table, bar};
use super::super::{Exit, Failure, Global};
use besom_ports::members::{MemberState, Members as _, Membership};
use besom_ports::store::PartitionRow;

/// `besom ring show`.
#[derive(Debug, clap::Args)]
pub struct Show {}

/// `besom ring owner`.
#[derive(Debug, clap::Args)]
pub struct Owner {
    /// Key that the item is routed by.
    #[arg(value_name = "KEY")]
    key: String,
    /// Tenant of the item.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

/// Reads the members, computes their ring, and reads the actual owners from the store.
async fn rings(global: &Global) -> Result<(Membership, Assignment, Vec<PartitionRow>), Failure> {
    let config = configuration(global)?;
    let membership = handle(&config)?.members().await?;
    if !is_there(&config) {
        return Err(absent(&config));
    }
    let store = Opening::reading().open(&config).await?;
    let partitions = NonZeroU32::new(store.partitions())
        .ok_or_else(|| Failure::Failed("the store has no partitions".into()))?;
    let table = Assignment::of(&membership.ring(), partitions);
    Ok((membership, table, store.partition_table().await?))
}

/// Returns the name of the node of an owner, which the store identifies by its incarnation.
fn lasting<'a>(membership: &'a Membership, owner: &Incarnation) -> Option<&'a str> {
    let of = membership.members.iter().find(|member| member.incarnation == *owner);
    of.map(|member| member.name.as_str())
}

impl Show {
    /// Reads the ring and prints it.
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
            let mut rows = Table::new("No nodes are active.");
            let longest = loads.iter().map(|(_, load, _)| *load).max().unwrap_or(0);
            for (member, load, most) in &loads {
                rows.row([
                    ("NODE", &member.name),
                    (">WEIGHT", &member.weight),
                    (">PARTITIONS", &load),
                    (">AT MOST", &most),
                    (">OWNED", &owned_by(member.name.as_str())),
                    ("", &bar(*load, longest)),
                ]);
            }
            let idle = |state| membership.members.iter().filter(move |m| m.state == state);
            let leaving: String = idle(MemberState::Draining)
                .map(|member| {
                    let name = member.name.as_str();
                    let owned = counted(owned_by(name) as u64, "partition");
                    format!("{name} is draining: it still owns {owned}\n")
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
    /// Reads the ring and prints it.
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
            let should = owner.map_or("no node (none is active)", |owner| owner.as_str());
            let does = match row {
                None => "no node has claimed it yet".to_owned(),
                Some((owner, epoch)) if lasting(&membership, owner) == Some(should) => {
                    format!("{should} owns it, in epoch {}", epoch.0)
                }
                Some((owner, epoch)) => format!("{owner} still owns it, in epoch {}", epoch.0),
            };
            format!("partition {partition} should be owned by {should}: {does}\n")
        })?;
        Ok(Exit::Fine)
    }
}
