//! Shares that end while one watches.

use std::ops::RangeInclusive;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use rand::Rng;
use rand::rngs::StdRng;

use super::World;
use super::rows::upsert;
use crate::demo::rows::{at, integer, text};
use crate::demo::seed::{SHARE_LIMIT_MIN_S, TENANTS};

/// The most shares. When all names are used up the first is used again: by then its share has
/// ended long ago.
pub(super) const LINKS_MAX: u64 = 300;

/// How long a share lasts, in seconds.
pub(super) const LIMITS_S: RangeInclusive<u64> = SHARE_LIMIT_MIN_S..=90;

/// Whose turn it is.
#[derive(Default)]
pub(super) struct Links {
    shared: u64,
}

impl Links {
    /// Somebody shares a file.
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
        Ok(world.store.write(&[upsert(&tenant, "shares", row)]).await?)
    }
}
