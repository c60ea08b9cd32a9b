//! Wakes a workspace when a connection is opened: `last_access_at` is set to now, and a workspace
//! that should be in standby or archived is set to run.
//!
//! This module decides which rows a key refers to and what is proposed for them. If `desired_state`
//! is neither RUNNING, STANDBY nor PENDING, the workspace is in another process (for example, it is
//! being deleted), and only its last access is recorded. As with any other choice of a user,
//! `version` and `last_manual_change_at` change with the state, if they are mapped. RUNNING is
//! written even over RUNNING: a user's choice is an UPDATE of the row, whatever it contained.
//!
//! A connection never waits for this: workspaces to wake are queued, each one once, and a
//! background task proposes their changes, retrying while the database is unavailable.
//!
//! The proposals go through the same commit as those of plugins, as items that were never queued
//! ([`Source::Unqueued`](besom_core::item::Source::Unqueued)): guarded by the state that was read,
//! kept with their before-images, and recorded in the history of the task [`TASK`]. If the state
//! has changed in the meantime, the item is skipped and the row is read again. The fence is the
//! term that the host follows. A host that has missed a change of leader, because it was suspended
//! or cut off, changes nothing until the coordination service has named the new leader to it.
//!
//! Rejected:
//!
//! - A command for the leader, or an item planned by the leader and executed by the owner of its
//!   partition: the user would wait for the leader's next look at the commands, and after the loss
//!   of a leader until another one is elected. Nothing about a connection is the leader's decision.
//! - A plugin: it would need a schedule or a trigger, and could only read the one row that is known
//!   here already.
//! - No fence: a host that resumes after hours would wake what its users have long left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use besom_core::backoff::Backoff;
use besom_core::collection::{Collection, Operations};
use besom_core::ids::{CommitId, Incarnation, Tenant, Term};
use besom_core::item::Identity;
use besom_core::proposal::{Change, Condition, Guard, OnGuardFailed, Proposal};
use besom_core::time::Time;
use besom_core::value::{Field, Kind, RowKey, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use besom_config::Config;
use besom_config::activity::Wake as Chosen;
use besom_ports::coordination::Coordination;
use besom_ports::guests::Lane;
use besom_ports::store::{Batch, Entry, Error, Outcome, Range, Store};
use besom_product::model::collections_for;

/// The name under which wakes are recorded in the history. The colon keeps it apart from the names
/// of configured tasks.
pub const TASK: &str = "activity:wake";
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
/// The pauses after failures in a row.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// Maximum number of consecutive guard failures of one workspace. Each one means that another
/// writer has changed the state since it was read.
const GUARD_FAILURES_MAX: u32 = 20;
/// The recorded reason of a guard failure.
const CHANGED: &str = "desired_state has changed since it was read; it is read again";
/// The recorded reason of a change that the database refuses, followed by its message.
const VIOLATION: &str = "the row cannot be changed";

/// The workspaces to wake, each with its number of consecutive guard failures.
#[derive(Default)]
struct Waiting {
    keys: Mutex<BTreeMap<String, u32>>,
    more: Notify,
}

impl Waiting {
    fn keys(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<(String, u32)> {
        let mut keys = self.keys();
        std::iter::from_fn(|| keys.pop_first()).take(BATCH_MAX).collect()
    }

    /// A key that was added in the meantime starts anew.
    fn put_back(&self, batch: Vec<(String, u32)>) {
        let mut keys = self.keys();
        for (key, failed) in batch {
            keys.entry(key).or_insert(failed);
        }
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
    /// `coordination` is asked which term to follow.
    pub fn of(
        config: &Config,
        store: Arc<dyn Store>,
        coordination: Arc<dyn Coordination>,
        node: &Incarnation,
    ) -> Option<Wake> {
        if config.activity.wake == Chosen::Never {
            return None;
        }
        let collection = config.collections.get(WORKSPACES)?;
        let update = Operations { update: true, ..Operations::default() };
        let mut grants = config.tasks.values().filter_map(|task| task.grants.get(WORKSPACES));
        let default =
            |plugins: &[&str]| collections_for(plugins).get(WORKSPACES) == Some(collection);
        let built_in: Vec<&str> = besom_runtime::built_in::names().collect();
        let mapped = !default(&[]) && !default(&built_in);
        if !mapped && !grants.any(|granted| granted.covers(update)) {
            return None;
        }
        match Table::new(collection) {
            Ok(table) => Some(Wake::start(Waker {
                table: Arc::new(table),
                store,
                coordination,
                node: node.clone(),
                followed: None,
                unknown: None,
            })),
            Err(words) => {
                tracing::warn!("wake-on-connect is disabled: {words}");
                None
            }
        }
    }

    fn start(waker: Waker) -> Wake {
        let waiting = Arc::new(Waiting::default());
        let task = tokio::spawn(waker.run(Arc::clone(&waiting)));
        Wake { waiting, task }
    }

    /// A connection to the key was opened. Returns immediately.
    pub fn connected(&self, key: &str) {
        let mut keys = self.waiting.keys();
        if keys.len() >= WAITING_MAX && !keys.contains_key(key) {
            tracing::warn!(
                key,
                "not woken: {WAITING_MAX} workspaces are already waiting for the database"
            );
            return;
        }
        keys.insert(key.to_owned(), 0);
        drop(keys);
        self.waiting.more.notify_one();
    }
}

/// Proposes the changes and commits them.
struct Waker {
    table: Arc<Table>,
    store: Arc<dyn Store>,
    coordination: Arc<dyn Coordination>,
    node: Incarnation,
    /// The highest term known to this host; `None`: not read yet.
    followed: Option<Term>,
    /// A commit whose result is unknown.
    unknown: Option<CommitId>,
}

/// The changes proposed for one row of a workspace.
struct Proposed {
    /// The activity key.
    key: String,
    tenant: Option<Tenant>,
    proposal: Proposal,
}

impl Waker {
    async fn run(mut self, waiting: Arc<Waiting>) {
        let mut failures = 0;
        loop {
            // Removed first: a connection that is opened in the meantime is written again.
            let batch = waiting.take();
            if batch.is_empty() {
                waiting.more.notified().await;
                continue;
            }
            match self.wake(batch.iter().map(|(key, _)| key.clone()).collect()).await {
                Ok(again) => {
                    if failures > 0 {
                        tracing::info!("workspaces are woken again");
                    }
                    failures = 0;
                    let again = batch.into_iter().filter(|(key, _)| again.contains(key));
                    let again = again.map(|(key, failed)| (key, failed + 1));
                    let (again, lost): (Vec<_>, Vec<_>) =
                        again.partition(|(_, failed)| *failed < GUARD_FAILURES_MAX);
                    waiting.put_back(again);
                    for (key, _) in lost {
                        tracing::warn!(key, "a workspace was not woken: its state kept changing");
                    }
                }
                Err(error) => {
                    // The host ends and says why if the database is malformed.
                    if failures == 0 && !matches!(error, Error::Damaged(_)) {
                        tracing::warn!(%error, "workspaces cannot be woken; retrying");
                    }
                    waiting.put_back(batch);
                    tokio::time::sleep(PAUSES.pause(failures, 0)).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// Wakes all workspaces in one transaction, which judges each on its own. Returns the keys of
    /// those whose state had changed since it was read.
    async fn wake(&mut self, keys: Vec<String>) -> Result<Vec<String>, Error> {
        if let Some(id) = self.unknown {
            // Once looked up, it is known or never happens; the rows are read afterwards.
            self.store.find_commit(id).await?;
            self.unknown = None;
        }
        let followed = match self.followed {
            Some(followed) => followed,
            // This process has just started, so that what the store knows is not news to it.
            None => self.store.fence().await?.map_or(Term(0), |fence| fence.term),
        };
        self.followed = Some(followed);
        let now = self.store.now().await?;
        let proposed = proposed(&self.table, &self.store, keys, now).await?;
        if proposed.is_empty() {
            return Ok(Vec::new());
        }
        let batch = self.batch(followed, now, &proposed);
        let committed = match self.store.commit(&batch).await {
            Ok(committed) => committed,
            Err(Error::Invalid(words) | Error::GuardsTimedOut(words)) => {
                tracing::warn!("{} workspaces were not woken: {words}", proposed.len());
                return Ok(Vec::new());
            }
            Err(error) => {
                match &error {
                    Error::Unknown(_) => self.unknown = Some(batch.id),
                    Error::Fenced => self.follow().await,
                    _ => {}
                }
                return Err(error);
            }
        };
        let mut again = Vec::new();
        for (Proposed { key, .. }, outcome) in proposed.into_iter().zip(committed.outcomes) {
            match outcome {
                Outcome::Committed | Outcome::Kept => {}
                // The row may violate a constraint of the product.
                Outcome::Skipped(words) if words != CHANGED => {
                    tracing::warn!(key, "a workspace was not woken: {words}");
                }
                Outcome::Skipped(_) | Outcome::Left(_) | Outcome::Retried(_) | Outcome::Dead(_) => {
                    again.push(key);
                }
            }
        }
        Ok(again)
    }

    /// Another leader has raised the fence. Its term counts once the coordination service, which
    /// only a host that is part of the cluster reaches, confirms it.
    async fn follow(&mut self) {
        match self.coordination.leader().await {
            Ok(leader) => self.followed = self.followed.max(leader.map(|leader| leader.term)),
            Err(error) => tracing::debug!(%error, "the leader is unknown"),
        }
    }

    fn batch(&self, followed: Term, now: Time, proposed: &[Proposed]) -> Batch {
        let entry = |Proposed { key, tenant, proposal }: &Proposed| {
            let identity =
                Identity { task: TASK.into(), tenant: tenant.clone(), key: key.clone(), due: None };
            Entry::unqueued(followed, identity, now, proposal.clone(), VIOLATION, true)
        };
        Batch {
            id: CommitId(rand::random()),
            node: self.node.clone(),
            entries: proposed.iter().map(entry).collect(),
            as_of: now,
            idle: Vec::new(),
            activity_in_store: false,
            // A user waits for it.
            lane: Lane::Due,
            braked: false,
        }
    }
}

/// Reads the rows that the keys refer to, and proposes their changes.
async fn proposed(
    table: &Arc<Table>,
    store: &Arc<dyn Store>,
    keys: Vec<String>,
    now: Time,
) -> Result<Vec<Proposed>, Error> {
    let view = store.snapshot(OPEN_MAX).await?;
    let table = Arc::clone(table);
    // An embedded store reads on the calling thread.
    let runtime = tokio::runtime::Handle::current();
    let read = tokio::task::spawn_blocking(move || {
        runtime.block_on(async move {
            let mut all = Vec::new();
            for key in keys {
                let Some(row) = table.key(&key) else { continue };
                let tenants = match table.tenants {
                    false => vec![None],
                    true => {
                        let range = Range {
                            collection: WORKSPACES.into(),
                            prefix: row.clone(),
                            ..Range::default()
                        };
                        let tenants = view.tenants(&range, None, TENANTS_MAX).await?;
                        tenants.into_iter().map(Some).collect()
                    }
                };
                for tenant in tenants {
                    let columns = ["desired_state".to_owned()];
                    let rows = std::slice::from_ref(&row);
                    let found = view.get_many(tenant.as_ref(), WORKSPACES, rows, &columns).await?;
                    let desired = found.into_iter().next().flatten().and_then(|mut row| row.pop());
                    if let Some(desired) = desired {
                        let proposal = table.proposal(&row, desired, now);
                        all.push(Proposed { key: key.clone(), tenant, proposal });
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

    /// The changes of a row that was read with this `desired_state`.
    fn proposal(&self, key: &RowKey, desired: Value, now: Time) -> Proposal {
        let state = match &desired {
            Value::Text(state) => state.as_str(),
            _ => "",
        };
        let collection = WORKSPACES.to_owned();
        let mut fields = vec![Field::new("last_access_at", Value::Timestamp(now))];
        let (mut changes, mut notes) = (Vec::new(), Vec::new());
        if WOKEN_FROM.contains(&state) {
            fields.push(Field::new("desired_state", Value::Text(RUNNING.into())));
        }
        if WOKEN_FROM.contains(&state) && state != RUNNING {
            notes.push(Field::new("from", desired.clone()));
            notes.push(Field::new("to", Value::Text(RUNNING.into())));
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
        changes.push(Change::Update { collection: collection.clone(), key: key.clone(), fields });
        let conditions = vec![Condition::equal("desired_state", desired)];
        Proposal {
            guards: vec![Guard::Columns { collection, key: key.clone(), conditions }],
            changes,
            on_guard_failed: OnGuardFailed::Skip(CHANGED.into()),
            notes,
        }
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
            let key = vec![Value::Text("w".into())];
            let Proposal { guards, changes, .. } = table.proposal(&key, desired.clone(), Time(7));
            let [Guard::Columns { conditions, .. }] = &*guards else { panic!("{guards:?}") };
            assert_eq!(conditions, &[Condition::equal("desired_state", desired.clone())]);
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
