//! Who leads, and who did.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// The leadership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Leadership {
    /// Who holds the lease; none: nobody, or it is not known ([`Leadership::fault`]).
    pub leader: Option<Leader>,
    /// Why it is not known who leads.
    pub fault: Option<String>,
    /// The highest term that the store knows.
    pub fence: Option<u64>,
    /// How long a lease lasts without a renewal, in milliseconds.
    pub lease_ms: u64,
    /// Leaderships, newest first.
    pub terms: Vec<TermRow>,
}

/// Who holds the lease.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Leader {
    /// The node's lasting name.
    pub node: String,
    /// This start of it.
    pub incarnation: String,
    /// Its machine's name.
    pub hostname: String,
    /// Its term.
    pub term: u64,
    /// When it was elected, by its own clock.
    pub elected_at: Time,
    /// When it last renewed, by its own clock.
    pub renewed_at: Time,
}

/// One leadership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TermRow {
    /// Its term.
    pub term: u64,
    /// The node's lasting name.
    pub node: String,
    /// When it raised the fence, by the store's clock.
    pub since: Time,
}
