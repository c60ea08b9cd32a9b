//! Who leads.
//!
//! A coordination adapter answers four questions about one lease. What follows from the
//! answers (when to campaign, when to stop) is decided in `besom_core::election`.

use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{Fence, NodeName, Term};
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

/// The coordination service failed; the answer is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It cannot be reached, or did not answer in time. A write may have happened.
    #[error("the coordination service is unavailable: {0}")]
    Unavailable(String),
    /// It refuses for good: credentials, another cluster's store, two nodes of one name.
    #[error("{0}")]
    Refused(String),
}

/// The result of a coordination call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The leader's record. The token itself is known to the leader only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// The incarnation that leads.
    pub node: NodeName,
    /// Its machine's name.
    pub hostname: String,
    /// Its term.
    pub term: Term,
    /// SHA-256 of its token.
    pub token_hash: [u8; 32],
    /// When it was elected (wall clock).
    pub elected_at: Time,
    /// When it last renewed (wall clock).
    pub renewed_at: Time,
}

/// The answer to a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Campaign {
    /// This node leads, under that term and token.
    Won(Fence),
    /// Somebody else leads. `retry_in`: when the lease may be free.
    Held {
        /// Who.
        leader: LeaderRecord,
        /// How long its lease lasts at most, if nobody renews it.
        retry_in: Duration,
    },
}

/// A lease on the leadership.
#[async_trait]
pub trait Coordination: Send + Sync {
    /// Tries to take the lease, with a term above every earlier one and above `at_least`.
    /// After an unknown result a call finds its own success.
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign>;

    /// Prolongs the lease. `false`: it is lost.
    async fn renew(&self, fence: &Fence) -> Result<bool>;

    /// Gives the lease up, so that the next campaign wins at once. Losing it before is no error.
    async fn resign(&self, fence: &Fence) -> Result<()>;

    /// The leader as far as it is known; none: nobody holds the lease.
    async fn leader(&self) -> Result<Option<LeaderRecord>>;

    /// Returns when the leadership may have changed, at the latest after `timeout`. A hint:
    /// the caller asks again.
    async fn changed(&self, timeout: Duration);
}
