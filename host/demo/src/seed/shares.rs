//! The shares of a tenant, around the time at which they end.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;

use crate::rows::{Writer, at, integer, text};

/// The limit of a share without its own limit, in seconds: seven days, as in the demo's
/// configuration.
pub const LIMIT_S: u64 = 7 * 86_400;

/// The shortest limit of any share, in seconds.
pub const LIMIT_MIN_S: u64 = 20;

/// Shares of one kind.
struct Kind {
    name: &'static str,
    shares: u64,
    /// The limit in seconds; `None`: the task's limit.
    limit_s: Option<u64>,
    /// The remaining time of the first share, in seconds; negative: it has ended.
    remaining_s: i64,
    /// How much longer each following share has, in seconds.
    apart_s: i64,
    /// Whether a user has already ended the share.
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

/// Writes the shares and returns their number.
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
