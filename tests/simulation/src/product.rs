//! The simulated product: it creates things, postpones them, changes what is done, and deploys plugins.

use std::sync::atomic::Ordering;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use besom_node::Event;
use besom_ports::store::{HistoryQuery, Store as _};
use rand::Rng as _;

use super::invariants::{now, row, view};
use super::script::{self, DONE, OPEN};
use super::world::{Coming, World};

const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];

impl World<'_> {
    pub(super) fn product(&mut self) {
        if !self.troubled() {
            return;
        }
        // Now and then a burst for one tenant, so that a run wants to delete more than it may, or to change
        // more rows per second.
        let burst = self.chance(25);
        let most = if burst { 25 } else { 6 };
        let tenant = self.random.random_range(0..TENANTS.len());
        let burst_of = if self.chance(3) { "grind" } else { "purge" };
        for _ in 0..self.random.random_range(1..most) {
            let of = if burst { tenant } else { self.random.random_range(0..TENANTS.len()) };
            let tenant = Tenant::from(TENANTS[of]);
            let task = match burst {
                true => burst_of,
                false => script::TASKS[self.random.random_range(0..script::TASKS.len())],
            };
            self.create(tenant, task);
        }
        if self.chance(3) {
            self.keep();
        }
        let wait = self.random_millis(200, 2_000);
        self.schedule(wait, Coming::Product);
    }

    fn create(&mut self, tenant: Tenant, task: &str) {
        let key = format!("{task}-{}", self.named);
        self.named += 1;
        let due = (task == "expire").then(|| {
            let wait = self.random_millis(0, 20_000);
            self.now() + wait
        });
        let changes: Vec<_> = script::thing(task, &key, due)
            .into_iter()
            .map(|change| (Some(tenant.clone()), change))
            .collect();
        self.root.write(&changes).expect("the product writes");
        if let Some(due) = due
            && self.chance(3)
        {
            // Usually at the last moment.
            let wait = due.since(self.now() + self.random_millis(0, 400));
            let due = due + self.random_millis(1_000, 15_000);
            let (tenant, key) = (tenant.clone(), key.clone());
            self.schedule(wait, Coming::PutOff { tenant, key, due });
        }
        self.made.things.push((tenant, key));
    }

    fn state_of(&self, tenant: &Tenant, key: &str) -> Option<String> {
        let row = row(view(&self.root).as_ref(), tenant, "things", key, &["state"])?;
        match row.as_slice() {
            [Value::Text(state)] => Some(state.to_string()),
            _ => None,
        }
    }

    /// Changes a thing that is done: an undo has to leave it alone from now on.
    fn keep(&mut self) {
        if self.made.things.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.made.things.len());
        let (tenant, key) = self.made.things[at].clone();
        if self.state_of(&tenant, &key).as_deref() == Some(DONE) {
            let change = (Some(tenant), script::keep(&key));
            self.root.write(&[change]).expect("the product writes");
            self.made.kept.insert(key);
        }
    }

    /// A thing that was done and undone keeps its due time: with another it would be another item.
    pub(super) fn put_off(&mut self, tenant: &Tenant, key: &str, due: Time) {
        let query = HistoryQuery { key: Some(key.to_owned()), limit: 1, ..Default::default() };
        let ended = now(self.root.history(&query)).expect("no read fails");
        if ended.is_empty() && self.state_of(tenant, key).as_deref() == Some(OPEN) {
            let change = (Some(tenant.clone()), script::put_off(key, due));
            self.root.write(&[change]).expect("the product writes");
        }
    }

    /// A new version of the plugins reaches the hosts one after the other.
    pub(super) fn deploy(&mut self) {
        self.version += 1;
        for node in 0..self.plan.nodes {
            let (life, version) = (self.lives[node], self.version);
            let wait = self.random_millis(0, 10_000);
            let event = Event::Reconfigured(super::host::work(version));
            self.schedule(wait, Coming::Deliver { node, life, event });
        }
    }

    /// Whether the scans of one task fail.
    pub(super) fn set_bad(&mut self, is_bad: bool) {
        self.stage.is_bad.store(is_bad, Ordering::Relaxed);
    }
}
