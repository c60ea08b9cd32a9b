//! The data of the demo's tenants: documents, clients, shares and workspaces. Many are ready to be
//! cleaned up, some must not be changed, and some cannot be.
//!
//! This module decides what exists. All data is relative to an injected `now` and follows from one
//! seed. It does not run or know tasks.

mod clients;
mod documents;
mod formats;
mod hostile;
mod shares;
mod workspaces;

pub use shares::LIMIT_MIN_S as SHARE_LIMIT_MIN_S;

use std::sync::Arc;

use besom_core::command::counted;
use besom_core::ids::Tenant;
use besom_core::time::Time;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Serialize;

use super::document::Document;
use super::rows::Writer;
use besom_ports::activity::{self, Activity};
use besom_ports::embedded::Scripts;
use besom_product::model::default_collections;
use besom_product::model::product::{self, Product};

/// The tenants of the demo.
pub const TENANTS: [&str; 5] = ["acme", "globex", "hooli", "initech", "umbrella"];

/// The seed of all random choices.
pub const SEED: u64 = 0xBE50;

/// The contents of the seeded store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Seeded {
    /// The tenants, in order.
    pub tenants: Vec<String>,
    /// Number of documents.
    pub documents: u64,
    /// Number of rows of `changes`.
    pub changes: u64,
    /// Number of clients.
    pub clients: u64,
    /// Number of shares.
    pub shares: u64,
    /// Number of workspaces.
    pub workspaces: u64,
    /// The documents that are difficult to compact, and the expected results.
    pub hostile: Vec<Hostile>,
    /// The use of workspaces, to be reported to the activity service once it runs.
    pub activity: Vec<WorkspaceUse>,
}

/// A document that is difficult to compact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hostile {
    /// The tenant of the document.
    pub tenant: String,
    /// The key of the document.
    pub document: String,
    /// The expected result.
    pub fate: Fate,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The expected result for a difficult document. Unless it is carried over, its log remains
/// unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Compacted, with every bit preserved.
    CarriedOver,
    /// A settled skip: nothing is missing, but its meaning is ambiguous.
    LeftAlone,
    /// A dead letter, because its log is damaged.
    Dead,
}

/// How a workspace is used while the demo runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspaceUse {
    /// The activity key of the workspace.
    pub workspace: String,
    /// Whether its connection stays open. Without heartbeats it expires.
    pub open: bool,
}

/// Fills an empty store, creating missing tables.
pub async fn fill(
    scripts: Arc<dyn Scripts>,
    now: Time,
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Seeded> {
    product::create_tables(&*scripts).await?;
    let mut writer = Writer::new(Product::new(scripts, Arc::new(default_collections())));
    let mut seeded = Seeded::default();
    for (number, name) in TENANTS.into_iter().enumerate() {
        let tenant = Tenant::from(name);
        let mut rng = StdRng::seed_from_u64(SEED + number as u64);
        writer.project(&tenant).await?;
        let clients = clients::of(&tenant, now, &mut rng);
        // Attachments refer to the clients.
        seeded.clients += clients::write(&tenant, &clients, &mut writer).await?;
        let documents = documents::of(&clients, number, now, &mut rng)?;
        let hostile = hostile::of(number, now)?;
        let others = formats::of(now);
        let hostile_ones = hostile.iter().map(|(document, ..)| document);
        for document in documents.iter().chain(&others).chain(hostile_ones) {
            document.write(&tenant, &mut writer).await?;
            seeded.documents += 1;
            seeded.changes += document.changes.len() as u64;
        }
        seeded.hostile.extend(hostile.into_iter().map(|(document, fate, why)| Hostile {
            tenant: name.to_owned(),
            document: document.id,
            fate,
            why,
        }));
        seeded.shares += shares::write(&tenant, now, &mut writer).await?;
        let (workspaces, used) = workspaces::write(&tenant, now, &mut writer).await?;
        seeded.workspaces += workspaces;
        seeded.activity.extend(used);
        seeded.tenants.push(name.to_owned());
        progress(&format!("{name}: {} written", counted(seeded.documents, "document")));
    }
    writer.flush().await?;
    Ok(seeded)
}

/// A document that compaction has to set aside. `number` cycles through the kinds of damage.
pub(super) fn damaged(number: usize, id: String, now: Time) -> anyhow::Result<Document> {
    let kinds = (0..TENANTS.len()).map(|tenant| hostile::of(tenant, now));
    let kinds = kinds.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten();
    let dead: Vec<Document> =
        kinds.filter(|(_, fate, _)| *fate == Fate::Dead).map(|(document, ..)| document).collect();
    let kind = dead.into_iter().cycle().nth(number);
    let document = kind.ok_or_else(|| anyhow::anyhow!("no hostile document is set aside"))?;
    Ok(Document { id, ..document })
}

/// Reports the use of the workspaces to the activity service: some have an open connection, some
/// had one that is now closed, and the rest are unknown.
pub async fn use_workspaces(
    activity: &dyn Activity,
    used: &[WorkspaceUse],
) -> Result<(), activity::Error> {
    /// The name of the single connection.
    const CONNECTION: &str = "demo";
    for workspace in used {
        activity.connect(&workspace.workspace, CONNECTION).await?;
        if !workspace.open {
            activity.disconnect(&workspace.workspace, CONNECTION).await?;
        }
    }
    Ok(())
}
