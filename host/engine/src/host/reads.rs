//! Tries the reads of scans, so that `besom check --store` reports what the store would refuse.
//!
//! A manifest names collections and columns, but neither the indexes nor the ranges that a plugin
//! reads; they may depend on its settings. So each scan is called for its first pages of one item,
//! and the store judges the reads as it does in a run. The reads of `act` are not tried: a call may
//! take long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::perform::call_of;
use async_trait::async_trait;
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};
use besom_ports::activity::{self, Activity, State};
use besom_ports::guests::{Call, Guests, StopFlag};
use besom_ports::store::{Delivery, Error, Range, RangePage, ReadView, Result, Store};
use besom_ports::task::TaskDefinition;
use besom_snapshot::Cause;

/// Number of pages of a scan that are tried: the second begins among equal rows, which takes more
/// from an index than the first.
const PAGES: usize = 2;
/// Tenants without rows, for columns of texts, numbers and UUIDs.
const NOBODY: [&str; 3] = ["", "0", "00000000-0000-0000-0000-000000000000"];
/// How PostgreSQL refuses a value that is not one of the column's type.
const NOT_OF_THE_TYPE: &str = "(22P02)";
/// Maximum wall-clock time of one call.
const CALL_MAX: Duration = Duration::from_secs(5);

/// The reads of a task's scan that the store refuses, each with the reason. Other failures of the
/// plugin may be due to the data of this moment, and are not reported.
pub async fn refused(
    store: &dyn Store,
    guests: &dyn Guests,
    definition: &TaskDefinition,
) -> Result<Vec<String>> {
    let now = store.now().await?;
    let mut call = call_of(definition, now, 0, &StopFlag::default());
    call.limits.wall_ms = call.limits.wall_ms.min(CALL_MAX.as_millis() as u64);
    if !definition.per_tenant {
        return of_tenant(store, guests, &call, None).await;
    }
    let view = Watched::open(store, &Arc::default()).await?;
    let found = guests.tenants(&call, view, Arc::new(Unknown), None, 1).await;
    if let Some(tenant) = found.unwrap_or_default().pop() {
        return of_tenant(store, guests, &call, Some(&tenant)).await;
    }
    // A plan does not depend on whether the tenant has rows, but its column may have any type.
    for tenant in NOBODY {
        let refusals = of_tenant(store, guests, &call, Some(&Tenant::from(tenant))).await?;
        if !refusals.iter().any(|why| why.contains(NOT_OF_THE_TYPE)) {
            return Ok(refusals);
        }
    }
    Ok(Vec::new())
}

/// The refused reads of a scan for this tenant.
async fn of_tenant(
    store: &dyn Store,
    guests: &dyn Guests,
    call: &Call,
    tenant: Option<&Tenant>,
) -> Result<Vec<String>> {
    let refusals = Arc::new(Refusals::default());
    let mut cursor: Option<Vec<u8>> = None;
    for _ in 0..PAGES {
        let view = Watched::open(store, &refusals).await?;
        let page = guests.scan(call, view, Arc::new(Unknown), tenant, cursor.as_deref(), 1).await;
        match page.ok().and_then(|page| page.next) {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(refusals.take())
}

/// The refusals of the store, without repetition.
#[derive(Default)]
struct Refusals(Mutex<Vec<String>>);

impl Refusals {
    fn note<T>(&self, answer: Result<T>) -> Result<T> {
        let why = match &answer {
            // A slow read says nothing about its index.
            Err(Error::Refused(Cause::Slow, _)) => None,
            Err(Error::Invalid(why) | Error::Refused(_, why)) => Some(why),
            Ok(_) | Err(_) => None,
        };
        if let Some(why) = why {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !all.contains(why) {
                all.push(why.clone());
            }
        }
        answer
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A view that notes what the store refuses.
struct Watched {
    view: Arc<dyn ReadView>,
    refusals: Arc<Refusals>,
}

impl Watched {
    async fn open(store: &dyn Store, refusals: &Arc<Refusals>) -> Result<Arc<dyn ReadView>> {
        let view = store.snapshot(CALL_MAX * 2).await?;
        Ok(Arc::new(Watched { view, refusals: Arc::clone(refusals) }))
    }
}

#[async_trait]
impl ReadView for Watched {
    fn read_by(&self, deadline: Instant) {
        self.view.read_by(deadline);
    }

    fn read_at_most(&self, bytes: u64) {
        self.view.read_at_most(bytes);
    }

    fn looked_at(&self) -> u64 {
        self.view.looked_at()
    }

    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        self.refusals.note(self.view.get_many(tenant, collection, keys, columns).await)
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        self.refusals.note(self.view.read_range(tenant, range).await)
    }

    async fn count(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32> {
        self.refusals.note(self.view.count(tenant, collection, conditions, limit).await)
    }

    fn bounded(&self, range: &Range) -> Result<(String, bool)> {
        self.view.bounded(range)
    }

    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>> {
        self.refusals.note(self.view.tenants(range, after, limit).await)
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        self.view.deliveries(task, tenant, topic, keys).await
    }
}

/// An activity that has observed nothing: a check must not need the service.
struct Unknown;

#[async_trait]
impl Activity for Unknown {
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, activity::Error> {
        Ok(vec![State::Unknown; keys.len()])
    }

    async fn connect(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }

    async fn disconnect(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }

    async fn heartbeat(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }
}
