//! Classifies SQLite errors: the item's, the infrastructure's or the program's.

use besom_core::brake::Used;
use besom_core::time::Time;
use besom_snapshot::Cause;
use rusqlite::ErrorCode;

use super::mapping::Unlike;
use besom_ports::store::{Error, UNTIL_MATCHED};
use besom_record::images::Broken;

/// Why a job on the database failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error of the database.
    Sql(rusqlite::Error),
    /// The store refuses, or a packed value cannot be read.
    Port(Error),
    /// A value and its column have different kinds. Who is to blame is found out by the rows.
    Unlike(Unlike),
    /// A change failed after others of its item had been applied: the transaction has to be
    /// repeated with a savepoint around each item, and `poison` counts as violated.
    Repeat {
        /// An item that rolled back the whole transaction, with the database's message.
        poison: Option<(usize, String)>,
    },
    /// A run would delete more than it may, by what it would have used; the transaction began at this time.
    Braked(Used, Time),
}

impl From<rusqlite::Error> for Failure {
    fn from(e: rusqlite::Error) -> Failure {
        Failure::Sql(e)
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Port(e)
    }
}

impl From<Broken> for Failure {
    fn from(e: Broken) -> Failure {
        Failure::Port(e.into())
    }
}

impl From<postcard::Error> for Failure {
    fn from(e: postcard::Error) -> Failure {
        Failure::Port(Error::Invalid(format!("a packed value of the store cannot be read: {e}")))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Port(e) => e,
            Failure::Sql(e) => classify(&e),
            Failure::Unlike(unlike) => Error::Invalid(unlike.said),
            Failure::Repeat { .. } | Failure::Braked(..) => {
                Error::Invalid("a batch was repeated too often".into())
            }
        }
    }
}

/// The result of a job on the database.
pub(super) type Job<T> = std::result::Result<T, Failure>;

/// The port's error for an error of SQLite.
pub(super) fn classify(e: &rusqlite::Error) -> Error {
    let text = told(e);
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) if is_of_the_file(e) => {
            Error::Damaged(text)
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SchemaChanged) => {
            Error::Busy(text)
        }
        // SQLite expects more than is there: the file or its log was made smaller, or exchanged, by
        // somebody else.
        Some(ErrorCode::SystemIoFailure) if is_short_read(e) => Error::Damaged(text),
        Some(
            ErrorCode::DiskFull
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::SystemIoFailure
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted,
        ) => Error::Unavailable(text),
        _ if names_schema(&text) => Error::Refused(
            Cause::Schema,
            format!(
                "{text}; the tables differ from their mapping (`besom check --store` shows the \
                 difference){UNTIL_MATCHED}"
            ),
        ),
        _ => Error::Invalid(text),
    }
}

fn is_short_read(e: &rusqlite::Error) -> bool {
    let code = rusqlite::ffi::SQLITE_IOERR_SHORT_READ;
    e.sqlite_error().is_some_and(|e| e.extended_code == code)
}

/// SQLite's message. That of an I/O error does not say which operation failed; its result code does.
fn told(e: &rusqlite::Error) -> String {
    match e.sqlite_error() {
        Some(failed) if failed.code == ErrorCode::SystemIoFailure => {
            format!("{e} (SQLite's result code {})", failed.extended_code)
        }
        _ => e.to_string(),
    }
}

/// Whether damage is in the file itself: a virtual table, such as a full-text index, can be corrupt in
/// an intact file.
fn is_of_the_file(e: &rusqlite::Error) -> bool {
    e.sqlite_error().is_none_or(|e| e.extended_code != rusqlite::ffi::SQLITE_CORRUPT_VTAB)
}

/// Whether a statement found a table, a column or an index missing. SQLite has one error code for
/// every invalid statement, and does not translate its messages.
fn names_schema(text: &str) -> bool {
    ["no such table", "no such column", "no such index", "has no column named"]
        .iter()
        .any(|said| text.contains(said))
}

/// The port's error for a failed COMMIT. Only after a failed sync or write is it unknown whether
/// the commit record reached the disk.
pub(super) fn classify_commit(e: &rusqlite::Error) -> Error {
    match e.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => Error::Unknown(told(e)),
        _ => classify(e),
    }
}

/// Whether the error is caused by the statement and its values (a constraint, a type, a missing
/// row), and neither by the infrastructure nor by the tables.
pub(super) fn is_violation(e: &rusqlite::Error) -> bool {
    matches!(classify(e), Error::Invalid(_))
}
