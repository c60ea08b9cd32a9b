//! Wakes a workspace when a connection is opened: `last_access_at` is set to now, and a workspace
//! that should be in standby or archived is set to run.
//!
//! This module decides which rows a key refers to and what is written to them. If `desired_state`
//! is neither RUNNING, STANDBY nor PENDING, the workspace is in another process (for example, it is
//! being deleted), and only its last access is recorded.
//!
//! A connection never waits for this: workspaces to wake are queued, each one once, and a
//! background task writes them, retrying while the database is unavailable. As with any other
//! choice of a user, `version` and `last_manual_change_at` change with the state, if they are
//! mapped. RUNNING is written even over RUNNING, so that a STANDBY that commits between the read
//! and the write is overwritten.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use besom_core::collection::{Collection, Operations};
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::{Field, Kind, RowKey, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::config::activity::Wake as Chosen;
use crate::model::collections_for;
use crate::ports::store::{Error, Range, Store};

/// The collection of workspaces.
const WORKSPACES: &str = "workspaces";
/// The state that a connection requests.
const RUNNING: &str = "RUNNING";
/// The states in which a connection requests it.
const WOKEN_FROM: [&str; 3] = [RUNNING, "STANDBY", "PENDING"];

/// Maximum number of workspaces waiting to be woken.
const WAITING_MAX: usize = 10_000;
/// Maximum number of workspaces per write.
const BATCH_MAX: usize = 100;
/// Maximum number of tenants looked up for one key.
const TENANTS_MAX: u32 = 16;
/// Maximum duration of the reads for a write.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// The first and the longest pause after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The workspaces to wake.
#[derive(Default)]
struct Waiting {
    keys: Mutex<BTreeSet<String>>,
    more: Notify,
}

impl Waiting {
    fn keys(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes workspaces in the background until it is dropped.
pub struct Wake {
    waiting: Arc<Waiting>,
    task: JoinHandle<()>,
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wake {
    /// Starts waking if the configuration enables it and workspaces are mapped.
    pub fn of(config: &Config, store: &Arc<dyn Store>) -> Option<Wake> {
        if config.activity.wake == Chosen::Never {
            return None;
        }
        let collection = config.collections.get(WORKSPACES)?;
        let update = Operations { update: true, ..Operations::default() };
        let mut grants = config.tasks.values().filter_map(|task| task.grants.get(WORKSPACES));
        let default =
            |plugins: &[&str]| collections_for(plugins).get(WORKSPACES) == Some(collection);
        let mapped = !default(&[]) && !default(&["reconciler"]);
        if !mapped && !grants.any(|granted| granted.covers(update)) {
            return None;
        }
        match Table::new(collection) {
            Ok(table) => Some(Wake::start(table, Arc::clone(store))),
            Err(words) => {
                tracing::warn!("wake-on-connect is disabled: {words}");
                None
            }
        }
    }

    fn start(table: Table, store: Arc<dyn Store>) -> Wake {
        let waiting = Arc::new(Waiting::default());
        let task = tokio::spawn(run(Arc::clone(&waiting), Arc::new(table), store));
        Wake { waiting, task }
    }

    /// A connection to the key was opened. Returns immediately.
    pub fn connected(&self, key: &str) {
        let mut keys = self.waiting.keys();
        if keys.len() >= WAITING_MAX && !keys.contains(key) {
            tracing::warn!(
                key,
                "not woken: {WAITING_MAX} workspaces are already waiting for the database"
            );
            return;
        }
        keys.insert(key.to_owned());
        drop(keys);
        self.waiting.more.notify_one();
    }
}

async fn run(waiting: Arc<Waiting>, table: Arc<Table>, store: Arc<dyn Store>) {
    let [first, longest] = PAUSES;
    let mut pause = first;
    loop {
        let batch: Vec<String> = waiting.keys().iter().take(BATCH_MAX).cloned().collect();
        if batch.is_empty() {
            waiting.more.notified().await;
            continue;
        }
        // Removed first: a connection that is opened in the meantime is written again.
        batch.iter().for_each(|key| {
            waiting.keys().remove(key);
        });
        match wake(&table, &store, &batch).await {
            Ok(()) => {
                if pause > first {
                    tracing::info!("workspaces are woken again");
                }
                pause = first;
            }
            Err(error) => {
                if pause == first {
                    tracing::warn!(%error, "workspaces cannot be woken; retrying");
                }
                waiting.keys().extend(batch);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}

/// Wakes all workspaces in one transaction, or each in its own if one of them fails.
async fn wake(table: &Arc<Table>, store: &Arc<dyn Store>, keys: &[String]) -> Result<(), Error> {
    let changes = changes(table, store, keys).await?;
    if changes.is_empty() {
        return Ok(());
    }
    match store.write(&changes.concat()).await {
        Err(Error::Invalid(_)) => {}
        done => return done,
    }
    for changes in changes {
        match store.write(&changes).await {
            // The row may be gone, or may violate a constraint of the product.
            Err(Error::Invalid(words)) => tracing::warn!("a workspace was not woken: {words}"),
            done => done?,
        }
    }
    Ok(())
}

type Changes = Vec<(Option<Tenant>, Change)>;

/// The changes to write, by row.
async fn changes(
    table: &Arc<Table>,
    store: &Arc<dyn Store>,
    keys: &[String],
) -> Result<Vec<Changes>, Error> {
    let now = store.now().await?;
    let view = store.snapshot(OPEN_MAX).await?;
    let (table, keys) = (Arc::clone(table), keys.to_vec());
    // An embedded store reads on the calling thread.
    let runtime = tokio::runtime::Handle::current();
    let read = tokio::task::spawn_blocking(move || {
        runtime.block_on(async move {
            let mut all = Vec::new();
            for key in keys {
                let Some(key) = table.key(&key) else { continue };
                let tenants = match table.tenants {
                    false => vec![None],
                    true => {
                        let range = Range {
                            collection: WORKSPACES.into(),
                            prefix: key.clone(),
                            ..Range::default()
                        };
                        let tenants = view.tenants(&range, None, TENANTS_MAX).await?;
                        tenants.into_iter().map(Some).collect()
                    }
                };
                for tenant in tenants {
                    let columns = ["desired_state".to_owned()];
                    let keys = std::slice::from_ref(&key);
                    let rows = view.get_many(tenant.as_ref(), WORKSPACES, keys, &columns).await?;
                    if let Some(Some(row)) = rows.into_iter().next() {
                        let changes = table.changes(&key, row.first(), now);
                        all.push(changes.into_iter().map(|c| (tenant.clone(), c)).collect());
                    }
                }
            }
            Ok(all)
        })
    });
    read.await.map_err(|error| Error::Unavailable(error.to_string()))?
}

/// The columns of the workspaces table that are written.
struct Table {
    tenants: bool,
    key: Vec<Kind>,
    version: bool,
    manual_change: bool,
}

impl Table {
    fn new(collection: &Collection) -> Result<Table, String> {
        let kind = |column: &str| collection.columns.get(column).map(|column| column.kind);
        for (column, wanted) in [("desired_state", Kind::Text), ("last_access_at", Kind::Timestamp)]
        {
            if kind(column) != Some(wanted) {
                return Err(format!("map `{column}` of `{WORKSPACES}` as {wanted:?}"));
            }
        }
        let key = collection.key.iter().map(|column| kind(column).ok_or(column));
        let key: Vec<Kind> = key
            .collect::<Result<_, _>>()
            .map_err(|column| format!("map the key column `{column}` of `{WORKSPACES}`"))?;
        Ok(Table {
            tenants: collection.tenant.is_some(),
            key,
            version: kind("version") == Some(Kind::Integer),
            manual_change: kind("last_manual_change_at") == Some(Kind::Timestamp),
        })
    }

    /// The key of the row, parsed from an activity key as plugins write it: the values separated by
    /// `/`.
    fn key(&self, text: &str) -> Option<RowKey> {
        let parts: Vec<&str> = match self.key.len() {
            1 => vec![text],
            n => text.splitn(n, '/').collect(),
        };
        let value = |(kind, text): (&Kind, &&str)| match kind {
            Kind::Text => Some(Value::Text((*text).to_owned())),
            Kind::Integer => text.parse().ok().map(Value::Integer),
            Kind::Uuid => uuid(text).map(Value::Uuid),
            _ => None,
        };
        let fits = parts.len() == self.key.len();
        fits.then(|| self.key.iter().zip(&parts).map(value).collect())?
    }

    fn changes(&self, key: &RowKey, desired: Option<&Value>, now: Time) -> Vec<Change> {
        let desired = match desired {
            Some(Value::Text(desired)) => desired.as_str(),
            _ => "",
        };
        let collection = WORKSPACES.to_owned();
        let mut fields = vec![Field::new("last_access_at", Value::Timestamp(now))];
        let mut changes = Vec::new();
        if WOKEN_FROM.contains(&desired) {
            fields.push(Field::new("desired_state", Value::Text(RUNNING.into())));
        }
        if WOKEN_FROM.contains(&desired) && desired != RUNNING {
            if self.manual_change {
                fields.push(Field::new("last_manual_change_at", Value::Timestamp(now)));
            }
            if self.version {
                changes.push(Change::Increment {
                    collection: collection.clone(),
                    key: key.clone(),
                    fields: vec![Field::new("version", Value::Integer(1))],
                });
            }
        }
        changes.push(Change::Update { collection, key: key.clone(), fields });
        changes
    }
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(key: &[Kind]) -> Table {
        Table { tenants: true, key: key.to_vec(), version: true, manual_change: true }
    }

    #[test]
    fn a_key_is_read_as_plugins_write_it() {
        let bytes = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes();
        let text = |text: &str| Value::Text(text.into());
        for (kinds, key, expected) in [
            (&[Kind::Text][..], "a/b", Some(vec![text("a/b")])),
            (&[Kind::Integer], "42", Some(vec![Value::Integer(42)])),
            (&[Kind::Integer], "ws-1", None),
            (&[Kind::Uuid], "01234567-89ab-cdef-0123-456789abcdef", Some(vec![Value::Uuid(bytes)])),
            (&[Kind::Uuid], "01234567", None),
            (&[Kind::Text, Kind::Integer], "a/7", Some(vec![text("a"), Value::Integer(7)])),
            (&[Kind::Text, Kind::Integer], "a", None),
        ] {
            assert_eq!(table(kinds).key(key), expected, "{key}");
        }
    }

    #[test]
    fn only_what_runs_stands_by_or_is_archived_is_woken() {
        let table = table(&[Kind::Text]);
        for (desired, woken, counted) in [
            ("RUNNING", true, false),
            ("STANDBY", true, true),
            ("PENDING", true, true),
            ("DELETED", false, false),
        ] {
            let desired = Value::Text(desired.into());
            let changes = table.changes(&vec![Value::Text("w".into())], Some(&desired), Time(7));
            let increments = changes.iter().any(|c| matches!(c, Change::Increment { .. }));
            assert_eq!(increments, counted, "{desired:?}");
            let Some(Change::Update { fields, .. }) = changes.last() else { panic!("{changes:?}") };
            let named = |name: &str| fields.iter().any(|field| field.name == name);
            assert!(named("last_access_at"));
            assert_eq!(named("desired_state"), woken, "{desired:?}");
            assert_eq!(named("last_manual_change_at"), counted, "{desired:?}");
        }
    }
}
