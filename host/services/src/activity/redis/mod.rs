//! Activity in Redis, under the keys that the proxies of a product write: the count `ws_conn:ID`
//! (INCR, DECR, DEL) and the timer `idle_timer:ID` (SETEX, DEL).
//!
//! ```text
//!  connect     count + 1, our connection noted with its end
//!  disconnect  the timer is set;  then count - 1, our connection removed
//!  read        the count;  then the timer;  then the count again;  then the observation
//! ```
//!
//! On a single server, and with templates that put both keys into one slot, each of these is one
//! script, and a connect deletes the timer. On a Redis Cluster they are separate steps in this
//! order, and a timer expires by itself: a reader that finds the count at zero finds the timer that
//! was set before. (A proxy that deletes the timer has increased the count first, which the second
//! read of the count detects.)
//!
//! This module decides the meaning of the keys, and that a missing key is *idle* only if it was
//! [observed] for long enough. A key that cannot be read is unknown. A connection that was reported
//! through this port expires without heartbeats, together with its share of the count. A connection
//! that another proxy has counted and never subtracts remains counted, because its end cannot be
//! detected.
//!
//! [observed]: observation

mod fleet;
pub mod keys;
mod observation;
pub mod options;
mod scripts;
mod server;

use std::sync::Arc;

use async_trait::async_trait;
use redis::{Cmd, Value, cmd};

use self::fleet::{Asked, Fleet};
use self::keys::{Names, Template, slot};
pub use self::observation::Told;
use self::observation::{Observation, look_every};
pub use self::options::Options;
use self::server::{Answer, Fault};
use besom_ports::activity::{Activity, Error, State, Timeouts};

/// The script's answer for a key without count and timer.
const NOTHING: i64 = 0;
const CONNECTED: i64 = 1;
const TIMED: i64 = 2;
/// The timer has to be set before the last connection is closed.
const LAST: i64 = 2;

/// The activity adapter for Redis.
pub struct RedisActivity {
    inner: Arc<Inner>,
    /// Observes periodically, if this host listens.
    observer: Option<tokio::task::JoinHandle<()>>,
}

struct Inner {
    fleet: Fleet,
    connections: Template,
    timer: Template,
    timeouts: Timeouts,
    observation: Observation,
}

impl RedisActivity {
    /// Opens the adapter. `listening`: this process serves the endpoint and observes from now on;
    /// otherwise, keys that no other host observes remain unknown. An unavailable Redis is retried
    /// in the background; until then everything is unknown. `told` is called after every
    /// observation.
    ///
    /// # Errors
    /// An address, a key template or a file cannot be used, or the user or password is rejected.
    pub async fn open(
        options: Options,
        listening: bool,
        told: Told,
    ) -> Result<RedisActivity, Error> {
        let (connections, timer) = options.templates()?;
        let timeouts = options.timeouts;
        let fleet = Fleet::new(options)?;
        let observation = Observation::new(timeouts, listening, told);
        let inner = Arc::new(Inner { fleet, connections, timer, timeouts, observation });
        if let Err(Fault::Refused(words)) = inner.observation.look(&inner.fleet).await {
            return Err(Error(format!("Redis refuses this host: {words}")));
        }
        let observer = listening.then(|| tokio::spawn(observe(Arc::clone(&inner))));
        Ok(RedisActivity { inner, observer })
    }
}

impl Drop for RedisActivity {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.abort();
        }
    }
}

async fn observe(inner: Arc<Inner>) {
    let mut every = tokio::time::interval(look_every(inner.timeouts));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // The result has been passed to `told`.
        let _ = inner.observation.look(&inner.fleet).await;
    }
}

impl Inner {
    fn idle_ms(&self) -> u64 {
        millis(self.timeouts.idle)
    }

    /// The keys of an id, and whether one script may also use its timer.
    async fn names(&self, id: &str) -> Result<(Names, bool), Fault> {
        let single = self.fleet.table().await?.is_single();
        let names = Names::of(&self.connections, &self.timer, id);
        if !single && !names.fit() {
            return Err(Fault::Said(format!(
                "`{id}` cannot be counted on a Redis Cluster: remove `}}` from it"
            )));
        }
        let together = single || names.together();
        Ok((names, together))
    }

    async fn one(&self, key: &str, command: Cmd) -> Answer {
        let asked = Asked { slot: slot(key), command };
        let mut answers = self.fleet.run(&[asked]).await;
        answers.pop().unwrap_or_else(|| Err(Fault::Away("no answer".into())))
    }

    async fn opened(&self, id: &str, connection: &str) -> Result<(), Fault> {
        let (names, together) = self.names(id).await?;
        let keys = keys_of(&names, together);
        let heartbeat_ms = millis(self.timeouts.heartbeat);
        let command = scripts::open(&keys, connection, heartbeat_ms, self.idle_ms());
        // A timer in another slot is left to expire and ignored while the count is positive: a
        // reader that has just found the count at zero could miss a deleted timer.
        self.one(&names.count, command).await?;
        Ok(())
    }

    async fn closed(&self, id: &str, connection: &str) -> Result<(), Fault> {
        let (names, together) = self.names(id).await?;
        let keys = keys_of(&names, together);
        let close = |timed| scripts::close(&keys, connection, self.idle_ms(), timed);
        if number(self.one(&names.count, close(false)).await?)? != LAST {
            return Ok(());
        }
        let mut set = cmd("SET");
        set.arg(&names.timer).arg("1").arg("PX").arg(self.idle_ms());
        self.one(&names.timer, set).await?;
        self.one(&names.count, close(true)).await?;
        Ok(())
    }

    async fn states(&self, ids: &[String]) -> Vec<State> {
        let mut found: Vec<Result<i64, Fault>> = self.counts(ids).await;
        let nothing = |found: &[Result<i64, Fault>]| -> Vec<usize> {
            (0..found.len()).filter(|at| found[*at] == Ok(NOTHING)).collect()
        };
        let mut open = nothing(&found);
        if open.is_empty() {
            return found.into_iter().map(|found| state(found, false)).collect();
        }
        let single = self.fleet.table().await.is_ok_and(|table| table.is_single());
        open.retain(|at| {
            let names = Names::of(&self.connections, &self.timer, &ids[*at]);
            !single && !names.together()
        });
        if !open.is_empty() {
            // The timers are in other slots, and a connection may have been opened and its timer
            // stopped between the first read and this one.
            let timers = open.iter().map(|at| {
                let timer = Names::of(&self.connections, &self.timer, &ids[*at]).timer;
                let mut exists = cmd("EXISTS");
                exists.arg(&timer);
                Asked { slot: slot(&timer), command: exists }
            });
            let timers = self.fleet.run(&timers.collect::<Vec<_>>()).await;
            for (at, timer) in open.iter().zip(timers) {
                found[*at] = timer.and_then(number).map(|is| if is == 1 { TIMED } else { NOTHING });
            }
            open.retain(|at| found[*at] == Ok(NOTHING));
            let asked: Vec<String> = open.iter().map(|at| ids[*at].clone()).collect();
            for (at, again) in open.into_iter().zip(self.counts(&asked).await) {
                found[at] = again;
            }
        }
        let idle = !nothing(&found).is_empty() && self.observation.suffices(&self.fleet).await;
        found.into_iter().map(|found| state(found, idle)).collect()
    }

    /// The counts; with the timers only if one script can use both.
    async fn counts(&self, ids: &[String]) -> Vec<Result<i64, Fault>> {
        let single = match self.fleet.table().await {
            Ok(table) => table.is_single(),
            Err(fault) => return ids.iter().map(|_| Err(fault.clone())).collect(),
        };
        let mut answers = Vec::with_capacity(ids.len());
        let mut asked = Vec::with_capacity(ids.len());
        for id in ids {
            let names = Names::of(&self.connections, &self.timer, id);
            if single || names.fit() {
                let keys = keys_of(&names, single || names.together());
                let command = scripts::read(&keys, self.idle_ms());
                asked.push(Asked { slot: slot(&names.count), command });
                answers.push(None);
            } else {
                answers.push(Some(Err(Fault::Said("not countable on a cluster".into()))));
            }
        }
        let mut read = self.fleet.run(&asked).await.into_iter();
        let missing = || Err(Fault::Away("no answer".into()));
        let fill = |answer: Option<Result<i64, Fault>>| {
            answer.unwrap_or_else(|| read.next().unwrap_or_else(missing).and_then(number))
        };
        answers.into_iter().map(fill).collect()
    }
}

fn keys_of(names: &Names, together: bool) -> Vec<&str> {
    let timer = together.then_some(names.timer.as_str());
    [names.count.as_str(), names.members.as_str()].into_iter().chain(timer).collect()
}

fn state(found: Result<i64, Fault>, observed: bool) -> State {
    match found {
        Ok(CONNECTED) => State::Active,
        Ok(TIMED) => State::Waiting,
        Ok(NOTHING) if observed => State::Idle,
        // Not observed for long enough, an invalid count, or no answer.
        Ok(_) | Err(_) => State::Unknown,
    }
}

fn number(value: Value) -> Result<i64, Fault> {
    redis::from_redis_value(value).map_err(|error| Fault::Said(error.to_string()))
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn unavailable(fault: Fault) -> Error {
    Error(format!("Redis: {fault}"))
}

#[async_trait]
impl Activity for RedisActivity {
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, Error> {
        Ok(self.inner.states(keys).await)
    }

    async fn connect(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.inner.opened(key, connection).await.map_err(unavailable)
    }

    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.inner.closed(key, connection).await.map_err(unavailable)
    }

    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.inner.opened(key, connection).await.map_err(unavailable)
    }
}
