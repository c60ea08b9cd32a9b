//! What an operator decides about etcd, and the bounds of every call.

use std::fmt;
use std::time::Duration;

/// How long one attempt at one endpoint may take.
pub const ATTEMPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// How long one endpoint is waited for before the next is asked as well.
pub const HEDGE_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// The most that a node waits before it takes a leadership that it found free: nodes that
/// heard of it at once do not all write at once.
pub const JITTER_MAX_DEFAULT: Duration = Duration::from_millis(100);

/// How often a follower looks for itself, whatever the watch says. Jittered by a fifth.
pub const POLL_DEFAULT: Duration = Duration::from_secs(5);

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.user)
    }
}

/// Transport security, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that servers' certificates are held against; none: the system's.
    pub ca: Option<Vec<u8>>,
    /// This client's certificate and its key; none: it shows no certificate.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ca, identity) = (self.ca.is_some(), self.identity.is_some());
        write!(f, "Tls {{ ca: {ca}, identity: {identity} }}")
    }
}

/// How to reach a cluster's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The members of etcd, as `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// The cluster's name: a part of every key.
    pub cluster: String,
    /// The user; none: etcd's authentication is off.
    pub credentials: Option<Credentials>,
    /// Used for endpoints with `https`.
    pub tls: Tls,
    /// How long a lease lasts without renewal. etcd counts in seconds: it is rounded up.
    pub ttl: Duration,
    /// How long one attempt at one endpoint may take.
    pub attempt_timeout: Duration,
    /// How long one endpoint is waited for before the next is asked as well.
    pub hedge_after: Duration,
    /// The most that a node waits before it takes a free leadership.
    pub jitter_max: Duration,
    /// How often a follower looks for itself.
    pub poll: Duration,
}

impl Options {
    /// The defaults for these endpoints, this cluster and this lease.
    pub fn new(endpoints: Vec<String>, cluster: &str, ttl: Duration) -> Options {
        Options {
            endpoints,
            cluster: cluster.to_owned(),
            credentials: None,
            tls: Tls::default(),
            ttl,
            attempt_timeout: ATTEMPT_TIMEOUT_DEFAULT,
            hedge_after: HEDGE_AFTER_DEFAULT,
            jitter_max: JITTER_MAX_DEFAULT,
            poll: POLL_DEFAULT,
        }
    }

    /// The lease in etcd's unit.
    pub(super) fn ttl_s(&self) -> i64 {
        i64::try_from(self.ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX).max(1)
    }
}
