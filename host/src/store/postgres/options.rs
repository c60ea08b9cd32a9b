//! How the store is opened. Every bound has a name and a default.

use std::path::PathBuf;
use std::time::Duration;

use super::clock::TimeSource;
use super::fault::Faults;
use crate::ports::activity::Timeouts;

/// The schema of the engine's tables.
pub const SCHEMA_DEFAULT: &str = "besom";
/// Partitions of a new store.
pub const PARTITIONS_DEFAULT: u32 = 1_024;

/// How the store is opened.
#[derive(Clone)]
pub struct Options {
    /// The password, where it is not in the URL.
    pub password: Option<String>,
    /// The certificates (PEM) that the server's has to come from; needed for `verify-ca` and
    /// `verify-full`.
    pub root_certificate: Option<PathBuf>,
    /// The schema of the engine's tables.
    pub schema: String,
    /// The cluster that the store belongs to; written down when it is created.
    pub cluster: String,
    /// Partitions of a store that is created; one that exists keeps its own.
    pub partitions: u32,
    /// Connections that commit.
    pub writers_max: usize,
    /// Snapshots of acts and scans open at once.
    pub snapshots_max: usize,
    /// Connections for other reads.
    pub readers_max: usize,
    /// Connections of the leader's own: lease, fence, slots, pages.
    pub leader_max: usize,
    /// How long a caller waits for a connection, to be made or to become free.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long one statement with guards that ask for rows by conditions may take, beside the
    /// time that it waits for locks.
    pub guard_timeout: Duration,
    /// After how long the server ends a write transaction that its client has left alone: a
    /// frozen leader must not block the next one's fence for longer.
    pub idle_in_transaction_timeout: Duration,
    /// After how long without an acknowledgement a connection is given up, by this node and by
    /// the server: so long a frozen or vanished node may keep what it has locked.
    pub tcp_user_timeout: Duration,
    /// The time-outs of the activity that is kept in the store.
    pub activity: Timeouts,
    /// The clock; none: the server's.
    pub time: Option<TimeSource>,
    /// What tests make fail.
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            password: None,
            root_certificate: None,
            schema: SCHEMA_DEFAULT.to_owned(),
            cluster: String::new(),
            partitions: PARTITIONS_DEFAULT,
            writers_max: 16,
            snapshots_max: 16,
            readers_max: 4,
            leader_max: 2,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            guard_timeout: Duration::from_secs(1),
            idle_in_transaction_timeout: Duration::from_secs(2),
            tcp_user_timeout: Duration::from_secs(10),
            activity: Timeouts::default(),
            time: None,
            faults: Faults::default(),
        }
    }
}
