//! Clients that attach to some documents and then stay silent.
//!
//! A demo is not watched for a day. Therefore a visitor is created with the state of a client that
//! has been silent for almost that long, and is deactivated within a minute.

use std::ops::RangeInclusive;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use yrs::StateVector;
use yrs::updates::encoder::Encode;

use super::World;
use super::documents::Documents;
use super::rows::upsert;
use crate::rows::{at, integer, text};
use crate::seed::TENANTS;

/// Maximum number of visitors. When all names are used, the first visitor returns.
pub(super) const VISITORS_MAX: u64 = 80;

/// The silence after which a client is deactivated, in seconds, as in the demo's configuration.
const SILENT_S: u64 = 86_400;

/// The part of that time which is left when a visitor is created, in seconds.
const LEFT_S: RangeInclusive<u64> = 10..=60;

/// Number of documents that a visitor has open.
const OPEN: RangeInclusive<usize> = 1..=3;

/// The next visitor to create.
#[derive(Default)]
pub(super) struct Visitors {
    come: u64,
}

impl Visitors {
    /// Creates a visitor with some documents of a tenant.
    pub(super) async fn come(
        &mut self,
        world: &World,
        documents: &Documents,
        now: Time,
        rng: &mut StdRng,
    ) -> anyhow::Result<()> {
        let number = self.come % VISITORS_MAX;
        self.come += 1;
        let tenant = Tenant::from(TENANTS[number as usize % TENANTS.len()]);
        let client = format!("{tenant}-visitor-{number:02}");
        let heard = now - Duration::from_secs(SILENT_S - rng.random_range(LEFT_S));
        let row = [
            ("client_id", text(&client)),
            ("status", text("activated")),
            ("updated_at", at(heard)),
        ];
        let mut changes = vec![upsert(&tenant, "clients", row)];
        let there: Vec<(&str, u64)> = documents.of(&tenant).collect();
        let open = rng.random_range(OPEN);
        for (document, server_seq) in there.choose_multiple(rng, open) {
            let key = || [("doc_id", text(*document)), ("client_id", text(&client))];
            let [doc, who] = key();
            let row = [
                doc,
                who,
                ("state", text("attached")),
                ("server_seq", integer(*server_seq)),
                ("client_seq", integer(0)),
            ];
            changes.push(upsert(&tenant, "attachments", row));
            let [doc, who] = key();
            // A reader: the document contains no changes of this client.
            let vector = Value::Bytes(StateVector::default().encode_v1());
            let row = [doc, who, ("vector", vector), ("server_seq", integer(*server_seq))];
            changes.push(upsert(&tenant, "version_vectors", row));
            let [doc, who] = key();
            let caret = Value::Json("{\"caret\":0}".to_owned());
            let row = [doc, who, ("value", caret), ("updated_at", at(heard))];
            changes.push(upsert(&tenant, "presences", row));
        }
        Ok(world.product.write(&changes).await?)
    }
}
