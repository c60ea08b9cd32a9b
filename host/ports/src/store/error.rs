//! What a store operation fails with.

use besom_snapshot::Cause;

/// Why a database without the engine's tables is refused where it is only read.
pub const NO_TABLES: &str =
    "the database has no tables of Besom; `besom serve` and `besom run` create them";

/// The infrastructure failed, or the store rejected the writer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The writer's term is below the fence, or its token belongs to another leadership.
    #[error("fenced: the store knows a later term")]
    Fenced,
    /// The store is busy, locked, deadlocked or timed out. Nothing was changed; the call can be
    /// retried.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// The store is unreachable, full or read-only. Nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A trigger or a function in the database has raised an error that names the infrastructure as
    /// its cause, but the connection works. Nothing was changed. If it repeats for the same item
    /// alone, that item is to blame.
    #[error("the database raised: {0}")]
    Raised(String),
    /// A statement took longer than its limit without waiting for a lock. Nothing was changed. If it
    /// repeats for the same item alone while other batches are committed, that item is to blame.
    #[error("the database needs too long: {0}")]
    TimedOut(String),
    /// The guards of a commit used up the time that they have together. Nothing was changed. The
    /// same items would take as long again; fewer of them may be committed.
    #[error("{0}")]
    GuardsTimedOut(String),
    /// The database is malformed. Nothing was changed; nothing more is written until somebody restores
    /// it, and [`super::Store::lost`] says so from now on.
    #[error("{0}")]
    Damaged(String),
    /// The database refuses the connection, for example because the password is wrong. Only opening a
    /// store fails with it, and it fails again until somebody corrects the cause.
    #[error("{0}")]
    Denied(String),
    /// The transaction may or may not have committed. [`super::Store::find_commit`] determines which.
    #[error("the result of the commit is unknown: {0}")]
    Unknown(String),
    /// The database rejects the statement regardless of the item: a privilege is missing, or a
    /// table, a column or a type differs from its mapping. Nothing was changed; the same call
    /// succeeds after the database or the mapping is corrected.
    #[error("the database refuses: {1}")]
    Refused(Cause, String),
    /// The request is invalid and would fail on every attempt: a bug, a wrong mapping or a wrong
    /// configuration.
    #[error("{0}")]
    Invalid(String),
    /// A read would return more than the reader's limit ([`super::ReadView::read_at_most`]).
    #[error("{0}")]
    TooLarge(String),
}

/// What a privilege that is missing takes, in [`Error::Refused`].
pub const GRANTS: &str = "`besom grants` prints what the role needs";
/// What a privilege that is missing takes when rows are put back: a task needs it not.
pub const UNDO_GRANTS: &str =
    "uncomment the statements for `besom undo` in what `besom grants` prints, and run them";
/// Promises in [`Error::Refused`] that hold for a host, which tries again, and not for a verb.
pub const UNTIL_GRANTED: &str = "; work continues once it is granted";
/// See [`UNTIL_GRANTED`].
pub const UNTIL_MATCHED: &str = "; work continues once they match";

impl Error {
    /// The error for a caller that does not try again: without the promise that work continues.
    #[must_use]
    pub fn once(self) -> Error {
        match self {
            Error::Refused(cause, said) => {
                let cut = [UNTIL_GRANTED, UNTIL_MATCHED]
                    .into_iter()
                    .find_map(|promise| said.strip_suffix(promise).map(str::to_owned));
                Error::Refused(cause, cut.unwrap_or(said))
            }
            other => other,
        }
    }
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
