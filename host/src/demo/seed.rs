//! What the demo's tenants own: documents, clients, shares and workspaces, many of them ready
//! to be swept, some that must not be touched, some that cannot be.
//!
//! This module decides what there is. Everything is relative to an injected `now` and follows
//! from one seed. Nothing here runs a task or knows one.

mod clients;
mod documents;
mod formats;
mod hostile;
mod shares;
mod workspaces;

pub use shares::LIMIT_MIN_S as SHARE_LIMIT_MIN_S;

use std::sync::Arc;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Serialize;

use super::document::Document;
use super::rows::Writer;
use crate::ports::activity::{self, Activity};
use crate::ports::store::Store;

/// Who lives in the demo.
pub const TENANTS: [&str; 5] = ["acme", "globex", "hooli", "initech", "umbrella"];

/// The seed of everything that is drawn.
pub const SEED: u64 = 0xBE50;

/// What the seeded store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Seeded {
    /// The tenants, in order.
    pub tenants: Vec<String>,
    /// How many documents.
    pub documents: u64,
    /// How many rows of `changes`.
    pub changes: u64,
    /// How many clients.
    pub clients: u64,
    /// How many shares.
    pub shares: u64,
    /// How many workspaces.
    pub workspaces: u64,
    /// The documents that make a compaction difficult, and what should become of them.
    pub hostile: Vec<Hostile>,
    /// What has to be told to the activity once it runs.
    pub activity: Vec<WorkspaceUse>,
}

/// A document that makes a compaction difficult.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hostile {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub document: String,
    /// What should become of it.
    pub fate: Fate,
    /// What is wrong with it.
    pub why: &'static str,
}

/// What should become of such a document. Unless it is carried over, its log stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Compacted, and every bit of it is kept.
    CarriedOver,
    /// A settled skip: nothing is missing, but nobody can say what it means.
    LeftAlone,
    /// A dead letter.
    Dead,
}

/// How a workspace is used while the demo runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspaceUse {
    /// The workspace: its activity key.
    pub workspace: String,
    /// Whether its connection stays open. It expires without a heartbeat.
    pub open: bool,
}

/// Fills an empty store. The tables are created where they are missing.
pub async fn fill(
    store: Arc<dyn Store>,
    now: Time,
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Seeded> {
    store.create_entity_model().await?;
    let mut writer = Writer::new(store);
    let mut seeded = Seeded::default();
    for (number, name) in TENANTS.into_iter().enumerate() {
        let tenant = Tenant::from(name);
        let mut rng = StdRng::seed_from_u64(SEED + number as u64);
        writer.project(&tenant).await?;
        let clients = clients::of(&tenant, now, &mut rng);
        // Attachments refer to them.
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
        progress(&format!("{name}: {} documents so far", seeded.documents));
    }
    writer.flush().await?;
    Ok(seeded)
}

/// A document that a compaction has to set aside, of one kind after the other by the number.
pub(super) fn damaged(number: usize, id: String, now: Time) -> anyhow::Result<Document> {
    let kinds = (0..TENANTS.len()).map(|tenant| hostile::of(tenant, now));
    let kinds = kinds.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten();
    let dead: Vec<Document> =
        kinds.filter(|(_, fate, _)| *fate == Fate::Dead).map(|(document, ..)| document).collect();
    let kind = dead.into_iter().cycle().nth(number);
    let document = kind.ok_or_else(|| anyhow::anyhow!("no hostile document is set aside"))?;
    Ok(Document { id, ..document })
}

/// Tells the activity what goes on in the workspaces: some have an open connection, some had
/// one that is closed now, and of the rest nothing is known.
pub async fn use_workspaces(
    activity: &dyn Activity,
    used: &[WorkspaceUse],
) -> Result<(), activity::Error> {
    /// One connection suffices.
    const CONNECTION: &str = "demo";
    for workspace in used {
        activity.connect(&workspace.workspace, CONNECTION).await?;
        if !workspace.open {
            activity.disconnect(&workspace.workspace, CONNECTION).await?;
        }
    }
    Ok(())
}
