//! Documents that compaction has to set aside, a few of each kind.

use besom_core::ids::Tenant;
use besom_core::time::Time;

use super::World;
use crate::rows::Writer;
use crate::seed::{TENANTS, damaged};

/// Maximum number of damaged documents: each one becomes a dead letter that needs attention.
pub const DAMAGED_MAX: usize = 30;

/// The number of damaged documents. A demo that is continued overwrites existing ones.
#[derive(Default)]
pub(super) struct Damaged {
    written: usize,
}

impl Damaged {
    /// Adds a document, unless the maximum is reached.
    pub(super) async fn add(&mut self, world: &World, now: Time) -> anyhow::Result<()> {
        if self.written == DAMAGED_MAX {
            return Ok(());
        }
        let tenant = Tenant::from(TENANTS[self.written % TENANTS.len()]);
        let id = format!("damaged-{:02}", self.written + 1);
        let mut writer = Writer::new(world.product.clone());
        damaged(self.written, id, now)?.write(&tenant, &mut writer).await?;
        writer.flush().await?;
        self.written += 1;
        Ok(())
    }
}
