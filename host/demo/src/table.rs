//! Counts the rows of the store, and compares the numbers before and after.
//!
//! It reads through snapshots of the store, page by page, and does not use counters that tasks
//! maintain.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::value::{Row, Value};
use serde::Serialize;

use besom_ports::store::{Range, ReadView, Store};
use besom_product::model::TENANT;

/// How long the snapshot may be open.
const OPEN_MAX: Duration = Duration::from_secs(120);

/// Number of rows per page.
const PAGE_ROWS: u32 = 10_000;

/// Approximate size of a page, in bytes.
const PAGE_BYTES: usize = 8 << 20;

/// The contents of the store, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Number of documents.
    pub documents: u64,
    /// Number of documents that have been compacted at least once.
    pub compacted: u64,
    /// The rows of `changes` and their size.
    pub changes: Stored,
    /// The rows of `snapshots` and their size.
    pub snapshots: Stored,
    /// Number of attachments that are attached or attaching.
    pub attached: u64,
    /// Number of presences.
    pub presences: u64,
    /// Number of version vectors.
    pub version_vectors: u64,
    /// Number of clients by status.
    pub clients: BTreeMap<String, u64>,
    /// Number of shares that have not ended.
    pub shares_open: u64,
    /// Number of shares that have ended.
    pub shares_ended: u64,
    /// Number of workspaces by desired state.
    pub workspaces: BTreeMap<String, u64>,
    /// Number of workspaces whose desired state differs from their status.
    pub transitions: u64,
}

/// The number and size of rows with a payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Number of rows.
    pub rows: u64,
    /// Size of their payloads, in bytes.
    pub bytes: u64,
}

impl Measured {
    /// The size of all payloads in changes and snapshots, in bytes.
    pub fn bytes(&self) -> u64 {
        self.changes.bytes + self.snapshots.bytes
    }

    /// Number of deactivated clients.
    pub fn deactivated(&self) -> u64 {
        self.clients.get("deactivated").copied().unwrap_or(0)
    }
}

/// Counts everything in one snapshot.
pub async fn measure(store: &dyn Store) -> anyhow::Result<Measured> {
    let view = store.snapshot(OPEN_MAX).await?;
    let mut measured = Measured::default();
    let mut tenants = Vec::new();
    each(&view, None, "projects", [TENANT], |[tenant]| {
        if let Value::Text(tenant) = tenant {
            tenants.push(Tenant::from(tenant));
        }
    })
    .await?;
    for tenant in &tenants {
        count_documents(&view, tenant, &mut measured).await?;
        count_clients(&view, tenant, &mut measured).await?;
        count_rest(&view, tenant, &mut measured).await?;
    }
    Ok(measured)
}

async fn count_documents(
    view: &Arc<dyn ReadView>,
    tenant: &Tenant,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    each(view, Some(tenant), "documents", ["compacted_seq"], |[compacted]| {
        measured.documents += 1;
        measured.compacted += u64::from(compacted != Value::Integer(0));
    })
    .await?;
    for (collection, stored) in
        [("changes", &mut measured.changes), ("snapshots", &mut measured.snapshots)]
    {
        each(view, Some(tenant), collection, ["payload"], |[payload]| {
            stored.rows += 1;
            if let Value::Bytes(payload) = payload {
                stored.bytes += payload.len() as u64;
            }
        })
        .await?;
    }
    Ok(())
}

async fn count_clients(
    view: &Arc<dyn ReadView>,
    tenant: &Tenant,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    each(view, Some(tenant), "clients", ["status"], |[status]| {
        *measured.clients.entry(word(status)).or_default() += 1;
    })
    .await?;
    each(view, Some(tenant), "attachments", ["state"], |[state]| {
        measured.attached += u64::from(word(state) != "detached");
    })
    .await?;
    let counted = [
        ("presences", &mut measured.presences),
        ("version_vectors", &mut measured.version_vectors),
    ];
    for (collection, rows) in counted {
        each(view, Some(tenant), collection, ["client_id"], |_| *rows += 1).await?;
    }
    Ok(())
}

async fn count_rest(
    view: &Arc<dyn ReadView>,
    tenant: &Tenant,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    each(view, Some(tenant), "shares", ["unshared_at"], |[unshared]| match unshared {
        Value::Null => measured.shares_open += 1,
        _ => measured.shares_ended += 1,
    })
    .await?;
    each(view, Some(tenant), "workspaces", ["status", "desired_state"], |[status, desired]| {
        measured.transitions += u64::from(status != desired);
        *measured.workspaces.entry(word(desired)).or_default() += 1;
    })
    .await
}

/// Calls `f` with the columns of every row of a tenant.
async fn each<const N: usize>(
    view: &Arc<dyn ReadView>,
    tenant: Option<&Tenant>,
    collection: &str,
    columns: [&str; N],
    mut f: impl FnMut([Value; N]),
) -> anyhow::Result<()> {
    let mut range = Range {
        collection: collection.to_owned(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        limit: PAGE_ROWS,
        bytes_max: PAGE_BYTES,
        ..Range::default()
    };
    loop {
        let page = view.read_range(tenant, &range).await?;
        for row in page.rows {
            let row: [Value; N] = row.try_into().map_err(|row: Row| {
                anyhow::anyhow!("{collection}: {} of {N} columns were read", row.len())
            })?;
            f(row);
        }
        match page.next {
            Some(next) => range.after = Some(next),
            None => return Ok(()),
        }
    }
}

fn word(value: Value) -> String {
    match value {
        Value::Text(word) => word,
        other => format!("{other:?}"),
    }
}

/// The comparison as a text table.
pub fn table(before: &Measured, after: &Measured) -> String {
    let mut lines: Vec<(String, u64, u64)> = Vec::new();
    let mut line = |name: &str, of: fn(&Measured) -> u64| {
        lines.push((name.to_owned(), of(before), of(after)));
    };
    line("documents", |m| m.documents);
    line("documents compacted", |m| m.compacted);
    line("changes", |m| m.changes.rows);
    line("changes, bytes", |m| m.changes.bytes);
    line("snapshots", |m| m.snapshots.rows);
    line("snapshots, bytes", |m| m.snapshots.bytes);
    line("attachments", |m| m.attached);
    line("presences", |m| m.presences);
    line("version vectors", |m| m.version_vectors);
    let mut words = |name: &str, of: fn(&Measured) -> &BTreeMap<String, u64>| {
        let mut words: Vec<&String> = of(before).keys().chain(of(after).keys()).collect();
        words.sort_unstable();
        words.dedup();
        for word in words {
            let count = |m| of(m).get(word).copied().unwrap_or(0);
            lines.push((format!("{name} {word}"), count(before), count(after)));
        }
    };
    words("clients", |m| &m.clients);
    words("workspaces, desired", |m| &m.workspaces);
    lines.push(("shares open".into(), before.shares_open, after.shares_open));
    lines.push(("shares ended".into(), before.shares_ended, after.shares_ended));

    let mut out = format!("{:<28}{:>14}{:>14}\n", "", "before", "after");
    for (name, before, after) in lines {
        let _ = writeln!(out, "{name:<28}{before:>14}{after:>14}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_only_one_side_has_stands_in_both_columns() {
        let before = Measured {
            changes: Stored { rows: 1_000, bytes: 65_536 },
            clients: BTreeMap::from([("activated".into(), 7)]),
            ..Measured::default()
        };
        let after = Measured {
            changes: Stored { rows: 12, bytes: 4_096 },
            clients: BTreeMap::from([("activated".into(), 5), ("deactivated".into(), 2)]),
            ..Measured::default()
        };
        let table = table(&before, &after);
        let cells = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(name)).expect("a line");
            line[28..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells(" "), ["before", "after"]);
        assert_eq!(cells("changes, bytes"), ["65536", "4096"]);
        assert_eq!(cells("clients activated"), ["7", "5"]);
        assert_eq!(cells("clients deactivated"), ["0", "2"]);
        assert!(table.lines().all(|line| line.len() == 56), "{table}");
    }
}
