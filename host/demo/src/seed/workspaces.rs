//! The workspaces of a tenant: used, idle, unknown, busy, and in standby before and after their
//! archive time.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;

use super::WorkspaceUse;
use crate::rows::{Writer, at, integer, text};

/// How long a workspace stays in standby before it is archived, in seconds.
const ARCHIVE_TTL_S: u64 = 30 * 86_400;

/// Not used for decisions, which depend on connections; the value that products ship.
const STANDBY_TTL_S: u64 = 300;

/// Workspaces of one kind.
struct Kind {
    name: &'static str,
    workspaces: u32,
    status: &'static str,
    operation: &'static str,
    /// When it was last used, in seconds before now.
    used_ago_s: u64,
    activity: Option<bool>,
}

const KINDS: [Kind; 7] = [
    // No connection: to be moved to standby.
    Kind {
        name: "idle",
        workspaces: 4,
        status: "RUNNING",
        operation: "NONE",
        used_ago_s: 3_600,
        activity: Some(false),
    },
    // A connection is open.
    Kind {
        name: "active",
        workspaces: 3,
        status: "RUNNING",
        operation: "NONE",
        used_ago_s: 10,
        activity: Some(true),
    },
    // Not observed by any host: unknown is not idle.
    Kind {
        name: "unseen",
        workspaces: 2,
        status: "RUNNING",
        operation: "NONE",
        used_ago_s: 7_200,
        activity: None,
    },
    // An operation is under way.
    Kind {
        name: "busy",
        workspaces: 2,
        status: "RUNNING",
        operation: "STARTING",
        used_ago_s: 3_600,
        activity: Some(false),
    },
    // To be archived.
    Kind {
        name: "old",
        workspaces: 4,
        status: "STANDBY",
        operation: "NONE",
        used_ago_s: ARCHIVE_TTL_S + 600,
        activity: None,
    },
    Kind {
        name: "recent",
        workspaces: 3,
        status: "STANDBY",
        operation: "NONE",
        used_ago_s: ARCHIVE_TTL_S - 86_400,
        activity: None,
    },
    Kind {
        name: "restoring",
        workspaces: 1,
        status: "STANDBY",
        operation: "RESTORING",
        used_ago_s: ARCHIVE_TTL_S + 600,
        activity: None,
    },
];

/// Writes the workspaces; returns their number and how they are used.
pub(super) async fn write(
    tenant: &Tenant,
    now: Time,
    writer: &mut Writer,
) -> anyhow::Result<(u64, Vec<WorkspaceUse>)> {
    let (mut written, mut used) = (0, Vec::new());
    for kind in &KINDS {
        for number in 1..=kind.workspaces {
            let workspace = format!("{tenant}-{}-{number}", kind.name);
            let last_access = now - Duration::from_secs(kind.used_ago_s);
            let row = [
                ("workspace_id", text(&workspace)),
                ("status", text(kind.status)),
                ("operation", text(kind.operation)),
                ("desired_state", text(kind.status)),
                ("version", integer(1)),
                ("standby_ttl_seconds", integer(STANDBY_TTL_S)),
                ("archive_ttl_seconds", integer(ARCHIVE_TTL_S)),
                ("last_access_at", at(last_access)),
                ("last_manual_change_at", at(last_access - Duration::from_secs(60))),
                ("archive_key", Value::Null),
            ];
            writer.row(tenant, "workspaces", row).await?;
            written += 1;
            if let Some(open) = kind.activity {
                used.push(WorkspaceUse { workspace, open });
            }
        }
    }
    Ok((written, used))
}
