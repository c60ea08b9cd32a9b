//! An operator's changes: an import, the demo. Without guards and history; all or nothing.

use std::time::Duration;

use besom_core::collection::Collections;
use besom_core::ids::Tenant;
use besom_core::proposal::{Change, OnGuardFailed, Proposal};

use super::clock::Clock;
use super::effects::{self, Effect};
use super::error::{Job, invalid};
use super::mapping::Mapping;
use super::session::{Pipeline, Session, Tx, params};
use super::text::{escaped, tenant_text};
use super::work::{Work, waves};
use crate::ports::store::Result;

/// How long this process may take to send the next changes. They hold no fence, so the limit of a
/// leader's write, which a large import on a busy machine would exceed, does not apply.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// The maximum number of changes per round trip.
const CHUNK: usize = 4_096;

/// Applies changes in one transaction, each under its tenant.
pub(super) async fn write(
    session: Session,
    clock: &Clock,
    mapping: &Mapping,
    collections: &Collections,
    changes: &[(Option<Tenant>, Change)],
) -> Result<()> {
    let mut first = Pipeline::default();
    first.simple(format!(
        "SET LOCAL idle_in_transaction_session_timeout = {}",
        IDLE_MAX.as_millis()
    ));
    let (tx, _) = Tx::begin_with(session, clock, first).await?;
    let done = all(&tx, mapping, collections, changes).await;
    tx.finish(done).await
}

async fn all(
    tx: &Tx,
    mapping: &Mapping,
    collections: &Collections,
    changes: &[(Option<Tenant>, Change)],
) -> Job<()> {
    for (chunk, changes) in changes.chunks(CHUNK).enumerate() {
        // Each change is an item of its own, so that many of a shape form one statement.
        let proposals: Vec<Proposal> = changes
            .iter()
            .map(|(_, change)| Proposal {
                guards: Vec::new(),
                changes: vec![change.clone()],
                on_guard_failed: OnGuardFailed::Skip(String::new()),
                notes: Vec::new(),
            })
            .collect();
        let works = changes.iter().zip(&proposals).enumerate().map(|(at, ((tenant, _), p))| Work {
            entry: chunk * CHUNK + at,
            tenant: tenant.as_ref(),
            proposal: p,
            undo: false,
        });
        for wave in waves(works.collect(), collections) {
            apply(tx, mapping, &wave).await?;
        }
        emit(tx, changes).await?;
    }
    Ok(())
}

/// Applies a wave, one series of changes to a table after the other: later inserts may refer to
/// earlier ones.
async fn apply(tx: &Tx, mapping: &Mapping, wave: &[Work<'_>]) -> Job<()> {
    let mut rest = wave;
    while !rest.is_empty() {
        let first = table(&rest[0]);
        let end = rest.iter().position(|work| table(work) != first).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        rest = behind;
        let mut pipeline = Pipeline::default();
        let asked = effects::ask(&mut pipeline, mapping, run, Default::default());
        let answers = tx.session.run(pipeline).await?;
        for (work, effect) in run.iter().zip(asked.read(&answers, run)?) {
            if let Effect::Violated(said) = effect {
                return Err(invalid(format!("change {}: {said}", work.entry + 1)));
            }
        }
    }
    Ok(())
}

/// The collection of a work's only change.
fn table<'w>(work: &Work<'w>) -> Option<&'w str> {
    work.proposal.changes.first().and_then(collection)
}

fn collection(change: &Change) -> Option<&str> {
    match change {
        Change::Insert { collection, .. }
        | Change::Upsert { collection, .. }
        | Change::Update { collection, .. }
        | Change::Increment { collection, .. }
        | Change::Delete { collection, .. } => Some(collection),
        Change::DeleteReadSet(set) => Some(&set.collection),
        Change::Emit { .. } => None,
    }
}

/// Emits messages without a history row.
async fn emit(tx: &Tx, changes: &[(Option<Tenant>, Change)]) -> Job<()> {
    for (tenant, change) in changes {
        if let Change::Emit { topic, key, payload } = change {
            tx.execute(
                "INSERT INTO @.outbox (id, history, at, topic, key, payload, tenant)
                 VALUES (nextval('@.number'), 0, $1, $2, $3, $4, $5)",
                params![
                    tx.now.0,
                    escaped(topic).into_owned(),
                    escaped(key).into_owned(),
                    payload.clone(),
                    tenant_text(tenant.as_ref())
                ],
            )
            .await?;
        }
    }
    Ok(())
}
