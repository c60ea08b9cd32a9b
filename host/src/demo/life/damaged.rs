//! Documents that a compaction has to set aside, a few of each kind.

use std::sync::Arc;

use besom_core::ids::Tenant;
use besom_core::time::Time;

use super::World;
use crate::demo::rows::Writer;
use crate::demo::seed::{TENANTS, damaged};

/// The most of them: each is a dead letter that somebody has to look at.
pub const DAMAGED_MAX: usize = 30;

/// How many there are. A demo that is taken up again writes over those that it has.
#[derive(Default)]
pub(super) struct Damaged {
    written: usize,
}

impl Damaged {
    /// One more, unless there are enough.
    pub(super) async fn add(&mut self, world: &World, now: Time) -> anyhow::Result<()> {
        if self.written == DAMAGED_MAX {
            return Ok(());
        }
        let tenant = Tenant::from(TENANTS[self.written % TENANTS.len()]);
        let id = format!("damaged-{:02}", self.written + 1);
        let mut writer = Writer::new(Arc::clone(&world.store));
        damaged(self.written, id, now)?.write(&tenant, &mut writer).await?;
        writer.flush().await?;
        self.written += 1;
        Ok(())
    }
}
