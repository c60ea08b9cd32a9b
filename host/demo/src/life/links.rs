//! Shares that end while the demo is being watched.

use std::ops::RangeInclusive;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use rand::Rng;
use rand::rngs::StdRng;

use super::World;
use super::rows::upsert;
use crate::rows::{at, integer, text};
use crate::seed::{SHARE_LIMIT_MIN_S, TENANTS};

/// Maximum number of shares. When all names are used, the first is reused; its share has ended long
/// before.
pub(super) const LINKS_MAX: u64 = 300;

/// The limits of shares, in seconds.
pub(super) const LIMITS_S: RangeInclusive<u64> = SHARE_LIMIT_MIN_S..=90;

/// The next share to create.
#[derive(Default)]
pub(super) struct Links {
    shared: u64,
}

impl Links {
    /// Creates a share of a file.
    pub(super) async fn add(
        &mut self,
        world: &World,
        now: Time,
        rng: &mut StdRng,
    ) -> anyhow::Result<()> {
        let number = self.shared % LINKS_MAX;
        self.shared += 1;
        let tenant = Tenant::from(TENANTS[number as usize % TENANTS.len()]);
        let row = [
            ("share_id", text(format!("{tenant}-link-{number:03}"))),
            ("file_id", text(format!("file-{number:03}"))),
            ("start_date", at(now)),
            ("limit_seconds", integer(rng.random_range(LIMITS_S))),
            ("unshared_at", Value::Null),
        ];
        Ok(world.product.write(&[upsert(&tenant, "shares", row)]).await?)
    }
}
