//! The meaning of the activity port.

use std::sync::Arc;
use std::time::Duration;

use besom_core::time::Time;
use besom_ports::activity::{Activity, State};

use super::world::START;

/// An activity under test: an idle timeout of 300 s and a heartbeat of 90 s, observing
/// since [`START`].
pub struct Observed {
    /// The adapter.
    pub activity: Arc<dyn Activity>,
    /// Sets its clock.
    pub set_now: Box<dyn Fn(Time)>,
    /// Keeps the adapter's server or file until the test ends.
    pub keep: Box<dyn std::any::Any>,
}

impl Observed {
    async fn at(&self, seconds: u64) -> &dyn Activity {
        (self.set_now)(START + Duration::from_secs(seconds));
        self.activity.as_ref()
    }

    async fn state(&self, seconds: u64, key: &str) -> State {
        self.at(seconds).await.states(&[key.to_owned()]).await.unwrap()[0]
    }
}

/// A key that was not observed for the idle timeout is unknown.
pub async fn an_unobserved_key_is_unknown_until_the_timeout_has_passed(observed: &mut Observed) {
    assert_eq!(observed.state(1, "ws-1").await, State::Unknown);
    assert_eq!(observed.state(299, "ws-1").await, State::Unknown);
    assert_eq!(observed.state(301, "ws-1").await, State::Idle);
}

/// From the first connection to idle.
pub async fn the_last_disconnect_starts_the_idle_timer(observed: &mut Observed) {
    observed.at(400).await.connect("ws-1", "a").await.unwrap();
    observed.at(400).await.connect("ws-1", "b").await.unwrap();
    assert_eq!(observed.state(400, "ws-1").await, State::Active);
    observed.at(410).await.disconnect("ws-1", "a").await.unwrap();
    assert_eq!(observed.state(410, "ws-1").await, State::Active);
    observed.at(420).await.disconnect("ws-1", "b").await.unwrap();
    assert_eq!(observed.state(420, "ws-1").await, State::Waiting);
    assert_eq!(observed.state(719, "ws-1").await, State::Waiting);
    assert_eq!(observed.state(721, "ws-1").await, State::Idle);
}

/// A new connection stops the timer.
pub async fn a_connection_stops_the_idle_timer(observed: &mut Observed) {
    observed.at(400).await.connect("ws-1", "a").await.unwrap();
    observed.at(410).await.disconnect("ws-1", "a").await.unwrap();
    observed.at(500).await.connect("ws-1", "b").await.unwrap();
    assert_eq!(observed.state(500, "ws-1").await, State::Active);
    observed.at(510).await.disconnect("ws-1", "b").await.unwrap();
    assert_eq!(observed.state(715, "ws-1").await, State::Waiting);
    assert_eq!(observed.state(811, "ws-1").await, State::Idle);
}

/// The same connection twice counts once.
pub async fn the_same_connection_counts_once(observed: &mut Observed) {
    observed.at(400).await.connect("ws-1", "a").await.unwrap();
    observed.at(401).await.connect("ws-1", "a").await.unwrap();
    observed.at(402).await.disconnect("ws-1", "a").await.unwrap();
    assert_eq!(observed.state(402, "ws-1").await, State::Waiting);
}

/// A repeated disconnect, or one of an unknown connection, does not restart the timer.
pub async fn an_unknown_disconnect_changes_nothing(observed: &mut Observed) {
    observed.at(400).await.connect("ws-1", "a").await.unwrap();
    observed.at(400).await.disconnect("ws-1", "a").await.unwrap();
    observed.at(650).await.disconnect("ws-1", "a").await.unwrap();
    observed.at(650).await.disconnect("ws-1", "z").await.unwrap();
    observed.at(650).await.disconnect("ws-2", "z").await.unwrap();
    assert_eq!(observed.state(701, "ws-1").await, State::Idle);
    assert_eq!(observed.state(701, "ws-2").await, State::Idle);
}

/// A connection stays open while it has heartbeats.
pub async fn a_connection_without_heartbeat_expires(observed: &mut Observed) {
    observed.at(400).await.connect("ws-1", "a").await.unwrap();
    observed.at(450).await.heartbeat("ws-1", "a").await.unwrap();
    assert_eq!(observed.state(509, "ws-1").await, State::Active);
    assert_eq!(observed.state(511, "ws-1").await, State::Waiting);
    assert_eq!(observed.state(809, "ws-1").await, State::Waiting);
    assert_eq!(observed.state(811, "ws-1").await, State::Idle);
}

/// After a restart of the host, heartbeats bring the connections back.
pub async fn a_heartbeat_opens_what_is_not_known(observed: &mut Observed) {
    observed.at(10).await.heartbeat("ws-1", "a").await.unwrap();
    assert_eq!(observed.state(11, "ws-1").await, State::Active);
}

/// The states are in the order of the keys.
pub async fn states_come_in_the_order_of_their_keys(observed: &mut Observed) {
    observed.at(400).await.connect("a", "1").await.unwrap();
    observed.at(400).await.connect("b", "1").await.unwrap();
    observed.at(400).await.disconnect("b", "1").await.unwrap();
    let keys = ["b", "c", "a", "b"].map(str::to_owned);
    let states = observed.at(401).await.states(&keys).await.unwrap();
    assert_eq!(states, [State::Waiting, State::Idle, State::Active, State::Waiting]);
    assert!(observed.activity.states(&[]).await.unwrap().is_empty());
}
