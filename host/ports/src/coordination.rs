//! Leader election.
//!
//! A coordination adapter manages one lease. What follows from its answers (when to campaign, when
//! to stop) is decided in `besom_core::election`.

use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Incarnation, Term};
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

/// The coordination service failed; the result of the call is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The service is unreachable or did not answer in time. A write may have happened.
    #[error("the coordination service is unavailable: {0}")]
    Unavailable(String),
    /// The service rejects this node permanently: wrong credentials, a cluster that belongs to
    /// another store, or two nodes with the same name.
    #[error("{0}")]
    Refused(String),
}

/// The result of a coordination call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The leader's record. It contains a hash of the token; only the leader knows the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// The incarnation that leads.
    pub node: Incarnation,
    /// The name of its machine.
    pub hostname: String,
    /// The term of its leadership.
    pub term: Term,
    /// SHA-256 of the leader's token.
    pub token_hash: [u8; 32],
    /// When it was elected (wall clock).
    pub elected_at: Time,
    /// When it last renewed the lease (wall clock).
    pub renewed_at: Time,
}

/// The answer to a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Campaign {
    /// This node now leads, under this term and token.
    Won(FencingToken),
    /// Another node leads.
    Held {
        /// The current leader.
        leader: LeaderRecord,
        /// After this time the lease is free, unless the leader renews it.
        retry_in: Duration,
    },
}

/// A lease on the leadership.
#[async_trait]
pub trait Coordination: Send + Sync {
    /// Tries to take the lease, with a term above every earlier one and above `at_least`. If an
    /// earlier call won but its answer was lost, this call reports that success.
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign>;

    /// Renews the lease. `false`: the lease is lost.
    async fn renew(&self, fence: &FencingToken) -> Result<bool>;

    /// Releases the lease, so that the next campaign wins immediately. Releasing a lost lease is
    /// not an error.
    async fn resign(&self, fence: &FencingToken) -> Result<()>;

    /// The current leader as far as it is known; `None`: the lease is free.
    async fn leader(&self) -> Result<Option<LeaderRecord>>;

    /// Returns when the leadership may have changed, at the latest after `timeout`. This is a hint:
    /// the caller has to check.
    async fn changed(&self, timeout: Duration);
}
