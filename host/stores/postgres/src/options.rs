//! The options of the store. Every limit has a name and a default.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::clock::TimeSource;
use super::fault::Faults;
use besom_ports::activity::Timeouts;
use besom_record::courtesy::WRITE_SHARE_DEFAULT;
use besom_tables::room::UNDO_BYTES_DEFAULT;

/// The schema of the engine's tables.
pub const SCHEMA_DEFAULT: &str = "besom";
/// Partitions of a new store.
pub const PARTITIONS_DEFAULT: u32 = 1_024;

/// Reads the password again for a new connection, or says why it cannot.
pub type ReadPassword = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The password of the store's user.
#[derive(Clone)]
pub struct Password {
    /// The password when the options were made.
    pub text: String,
    /// Reads it again for each connection, so that it can be rotated; `None`: it stays as it is.
    pub again: Option<ReadPassword>,
}

/// The options of the store.
#[derive(Clone)]
pub struct Options {
    /// The password, unless the URL contains it.
    pub password: Option<Password>,
    /// The root certificates (PEM) that must have signed the server's; required for `verify-ca` and
    /// `verify-full`.
    pub root_certificate: Option<PathBuf>,
    /// The schema of the engine's tables.
    pub schema: String,
    /// The cluster that the store belongs to; recorded when the store is created.
    pub cluster: String,
    /// Whether missing tables of the engine are created; otherwise a database without them is
    /// refused.
    pub creates: bool,
    /// Whether only the product's tables are looked at: neither the schema nor a table of the engine is created or
    /// migrated, and they may be missing.
    pub looks: bool,
    /// The number of partitions of a new store; an existing one keeps its own.
    pub partitions: u32,
    /// Connections for commits.
    pub writers_max: usize,
    /// Concurrent snapshots of acts and scans.
    pub snapshots_max: usize,
    /// Connections for other reads.
    pub readers_max: usize,
    /// Connections for the leader's own writes: lease, fence, slots, pages.
    pub leader_max: usize,
    /// How long a caller waits for a connection to be opened or to become free.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// The time limit of one statement with guards that search rows by conditions, not counting the
    /// time it waits for locks.
    pub guard_timeout: Duration,
    /// The maximum size of the before-images of a commit, in bytes before they are packed.
    pub undo_bytes: u64,
    /// In percent of the time: for how long ranges of rows are changed at most while others write to the database.
    pub write_share: u32,
    /// After this time the server ends a write transaction whose client is idle: a frozen leader
    /// must not block the next leader's raise for longer.
    pub idle_in_transaction_timeout: Duration,
    /// After this time without an acknowledgement, this node and the server close a connection: the
    /// maximum time for which a frozen or vanished node keeps its locks.
    pub tcp_user_timeout: Duration,
    /// The timeouts of the activity kept in the store.
    pub activity: Timeouts,
    /// The clock; none: the server's.
    pub time: Option<TimeSource>,
    /// Faults injected by tests.
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            password: None,
            root_certificate: None,
            schema: SCHEMA_DEFAULT.to_owned(),
            cluster: String::new(),
            creates: true,
            looks: false,
            partitions: PARTITIONS_DEFAULT,
            writers_max: 16,
            snapshots_max: 16,
            readers_max: 4,
            leader_max: 2,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            guard_timeout: Duration::from_secs(1),
            undo_bytes: UNDO_BYTES_DEFAULT,
            write_share: WRITE_SHARE_DEFAULT,
            idle_in_transaction_timeout: Duration::from_secs(2),
            tcp_user_timeout: Duration::from_secs(10),
            activity: Timeouts::default(),
            time: None,
            faults: Faults::default(),
        }
    }
}
