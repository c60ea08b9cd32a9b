//! The settings of an etcd connection, and the limits of every call.

use std::fmt;
use std::time::Duration;

/// Default for the maximum duration of one attempt at one endpoint.
pub const ATTEMPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Default for how long to wait for one endpoint before the next one is called as well.
pub const HEDGE_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Default for the maximum delay before a node takes a leadership that it found free, so that nodes
/// that were notified at the same time do not all write at once.
pub const JITTER_MAX_DEFAULT: Duration = Duration::from_millis(100);

/// Default for how often a follower checks by itself, regardless of the watch. Varied randomly by a
/// fifth.
pub const POLL_DEFAULT: Duration = Duration::from_secs(5);

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name of the user.
    pub user: String,
    /// The password of the user.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.user)
    }
}

/// TLS settings, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA certificates for the servers; `None`: those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client certificate and its key; `None`: no client certificate.
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
    /// The endpoints of etcd, as `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// The name of the cluster, which is a part of every key.
    pub cluster: String,
    /// The user; `None`: authentication is disabled in etcd.
    pub credentials: Option<Credentials>,
    /// TLS settings for endpoints with `https`.
    pub tls: Tls,
    /// How long a lease lasts without renewal. Rounded up to seconds, the unit of etcd.
    pub ttl: Duration,
    /// Maximum duration of one attempt at one endpoint.
    pub attempt_timeout: Duration,
    /// How long to wait for one endpoint before the next one is called as well.
    pub hedge_after: Duration,
    /// Maximum delay before a node takes a free leadership.
    pub jitter_max: Duration,
    /// How often a follower checks by itself.
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

    /// The duration of the lease in seconds.
    pub(super) fn ttl_s(&self) -> i64 {
        i64::try_from(self.ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX).max(1)
    }
}
