//! Redis as a fixture: real servers in which tests let time pass.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use besom_core::time::Time;
use besom_services::activity::redis::{Options, RedisActivity};

use crate::conformance::activity::Observed;
use crate::conformance::world::START;
use crate::servers::redis::{Cluster, Redis};

/// Servers for one test at a time, empty at its beginning.
pub struct Servers<T: 'static> {
    held: MutexGuard<'static, T>,
}

impl<T> std::ops::Deref for Servers<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

/// The test binary's only server.
pub fn single() -> Servers<Redis> {
    static SINGLE: OnceLock<Mutex<Redis>> = OnceLock::new();
    let single = SINGLE.get_or_init(|| Mutex::new(Redis::start(&[])));
    let held = single.lock().unwrap_or_else(PoisonError::into_inner);
    let _: String = held.command("FLUSHALL");
    Servers { held }
}

/// The test binary's only cluster.
pub fn cluster() -> Servers<Cluster> {
    static CLUSTER: OnceLock<Mutex<Cluster>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| Mutex::new(Cluster::start()));
    let held = cluster.lock().unwrap_or_else(PoisonError::into_inner);
    for node in &held.nodes {
        let _: String = node.command("FLUSHALL");
    }
    Servers { held }
}

/// Opens an activity on these servers as a host that listens does.
pub async fn listening(servers: Vec<String>) -> Arc<RedisActivity> {
    open(Options { servers, ..Options::default() }, true).await
}

/// Opens an activity.
pub async fn open(options: Options, listening: bool) -> Arc<RedisActivity> {
    let opened = RedisActivity::open(options, listening, Box::new(|_| {})).await;
    Arc::new(opened.expect("the activity opens"))
}

/// The clock of servers: setting it advances the time in them.
struct Clock {
    shown: Time,
    at: Instant,
}

impl Clock {
    fn set<'a>(&mut self, now: Time, servers: impl IntoIterator<Item = &'a Redis>) {
        let wanted_ms = (now.0 - self.shown.0) / 1_000;
        let passed = self.at.elapsed();
        *self = Clock { shown: now, at: self.at + passed };
        let span_ms = wanted_ms - i64::try_from(passed.as_millis()).expect("a short test");
        servers.into_iter().for_each(|server| server.pass(span_ms));
    }
}

/// One server under the suite.
pub async fn observed_single() -> Observed {
    let server = Rc::new(single());
    let activity = listening(vec![server.url()]).await;
    let clock = Mutex::new(Clock { shown: START, at: Instant::now() });
    let held = Rc::clone(&server);
    let set_now = move |now| {
        clock.lock().unwrap_or_else(PoisonError::into_inner).set(now, [&**held]);
    };
    Observed { activity, set_now: Box::new(set_now), keep: Box::new(server) }
}

/// A cluster under the suite.
pub async fn observed_cluster() -> Observed {
    let cluster = Rc::new(self::cluster());
    let activity = listening(cluster.urls()).await;
    let clock = Mutex::new(Clock { shown: START, at: Instant::now() });
    let held = Rc::clone(&cluster);
    let set_now = move |now| {
        clock.lock().unwrap_or_else(PoisonError::into_inner).set(now, &held.nodes);
    };
    Observed { activity, set_now: Box::new(set_now), keep: Box::new(cluster) }
}
