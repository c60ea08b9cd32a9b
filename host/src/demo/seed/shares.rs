//! The shares of a tenant, around the instant at which they end.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;

use crate::demo::rows::{Writer, at, integer, text};

/// The limit of a share without one of its own, in seconds: seven days. The demo's
/// configuration says the same.
pub const LIMIT_S: u64 = 7 * 86_400;

/// The shortest limit that a share has of its own, in seconds.
pub const LIMIT_MIN_S: u64 = 20;

/// Shares of one kind.
struct Kind {
    name: &'static str,
    shares: u64,
    /// None: the task's limit.
    limit_s: Option<u64>,
    /// How long the first has still to run, in seconds; negative: it has ended.
    remaining_s: i64,
    /// How much longer each next one has, in seconds.
    apart_s: i64,
    /// Somebody has ended it already.
    unshared: bool,
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "expired",
        shares: 12,
        limit_s: None,
        remaining_s: -86_400,
        apart_s: -3_600,
        unshared: false,
    },
    Kind {
        name: "expired-own",
        shares: 6,
        limit_s: Some(3_600),
        remaining_s: -60,
        apart_s: -600,
        unshared: false,
    },
    Kind {
        name: "expiring",
        shares: 10,
        limit_s: None,
        remaining_s: 3,
        apart_s: 2,
        unshared: false,
    },
    Kind {
        name: "expiring-own",
        shares: 6,
        limit_s: Some(LIMIT_MIN_S),
        remaining_s: 4,
        apart_s: 2,
        unshared: false,
    },
    Kind {
        name: "running",
        shares: 20,
        limit_s: None,
        remaining_s: 2 * 86_400,
        apart_s: 7_200,
        unshared: false,
    },
    Kind {
        name: "running-own",
        shares: 4,
        limit_s: Some(30 * 86_400),
        remaining_s: 20 * 86_400,
        apart_s: 60,
        unshared: false,
    },
    Kind {
        name: "unshared",
        shares: 8,
        limit_s: None,
        remaining_s: -40 * 86_400,
        apart_s: 86_400,
        unshared: true,
    },
];

/// Writes them; returns how many.
pub(super) async fn write(tenant: &Tenant, now: Time, writer: &mut Writer) -> anyhow::Result<u64> {
    let mut written = 0;
    for kind in &KINDS {
        for number in 0..kind.shares {
            let remaining = kind.remaining_s + kind.apart_s * number as i64;
            let limit = kind.limit_s.unwrap_or(LIMIT_S);
            let ends = Time(now.micros() + remaining * 1_000_000);
            let start = ends - Duration::from_secs(limit);
            let unshared = match kind.unshared {
                true => at(start + Duration::from_secs(limit / 2)),
                false => Value::Null,
            };
            let row = [
                ("share_id", text(format!("{tenant}-{}-{number:02}", kind.name))),
                ("file_id", text(format!("file-{written:03}"))),
                ("start_date", at(start)),
                ("limit_seconds", kind.limit_s.map_or(Value::Null, integer)),
                ("unshared_at", unshared),
            ];
            writer.row(tenant, "shares", row).await?;
            written += 1;
        }
    }
    Ok(written)
}
