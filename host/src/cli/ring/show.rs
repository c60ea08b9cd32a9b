//! `besom ring show` and `besom ring owner`: the ring of the cluster's members as they are now.
//!
//! It says who *should* own what. Who does is noted in the store, and follows within seconds.

use std::num::NonZeroU32;

use besom_core::ring::Assignment;
use serde_json::json;

use super::super::node::{configuration, handle};
use super::super::output::{self, Table, bar};
use super::super::{Exit, Failure, Global};
use crate::ports::members::{MemberState, Members as _};

/// Partitions of a cluster's store, if nothing is said.
const PARTITIONS_DEFAULT: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

/// `besom ring show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// How many partitions the store was created with.
    #[arg(long, value_name = "N", default_value_t = PARTITIONS_DEFAULT)]
    partitions: NonZeroU32,
}

/// `besom ring owner`.
#[derive(Debug, clap::Args)]
pub struct Owner {
    /// The key: what an item is routed by.
    #[arg(value_name = "KEY")]
    key: String,
    /// The tenant of the item.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// How many partitions the store was created with.
    #[arg(long, value_name = "N", default_value_t = PARTITIONS_DEFAULT)]
    partitions: NonZeroU32,
}

impl Show {
    /// Computes and prints.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let membership = handle(&configuration(global)?)?.members().await?;
        let table = Assignment::of(&membership.ring(), self.partitions);
        let loads = table.loads();
        let json: Vec<_> = loads
            .iter()
            .map(|(member, load, most)| {
                json!({
                    "name": member.name,
                    "weight": member.weight,
                    "partitions": load,
                    "partitions_max": most,
                })
            })
            .collect();
        output::show(global.output, &json, || {
            let headings = ["NODE", ">WEIGHT", ">PARTITIONS", ">AT MOST", ""];
            let mut rows = Table::new(&headings, "No node is active.");
            let longest = loads.iter().map(|(_, load, _)| *load).max().unwrap_or(0);
            for (member, load, most) in &loads {
                rows.row([
                    member.name.to_string(),
                    member.weight.to_string(),
                    load.to_string(),
                    most.to_string(),
                    bar(*load, longest),
                ]);
            }
            let idle = |state| membership.members.iter().filter(|m| m.state == state).count();
            format!(
                "{}\nrevision {}, {} joining, {} draining\n",
                rows.render(),
                membership.revision,
                idle(MemberState::Joining),
                idle(MemberState::Draining),
            )
        })?;
        Ok(Exit::Fine)
    }
}

impl Owner {
    /// Computes and prints.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let membership = handle(&configuration(global)?)?.members().await?;
        let table = Assignment::of(&membership.ring(), self.partitions);
        let (partition, owner) = table.owner_of(self.tenant.as_deref(), &self.key);
        let value = json!({ "key": self.key, "partition": partition, "node": owner });
        output::show(global.output, &value, || {
            let owner = owner.map_or("nobody: no node is active", |owner| owner.as_str());
            format!("partition {partition}, {owner}\n")
        })?;
        Ok(Exit::Fine)
    }
}
