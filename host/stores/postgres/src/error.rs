//! Classifies PostgreSQL errors by SQLSTATE: the item's, the infrastructure's or the program's.

use besom_snapshot::Cause;
use tokio_postgres::error::{DbError, Severity, SqlState};

use besom_ports::store::{Error, GRANTS, UNTIL_GRANTED, UNTIL_MATCHED};
use besom_record::images::Broken;

/// Why a job on the database failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error of the database or of the connection to it.
    Sql(tokio_postgres::Error),
    /// The store refuses, or a packed value cannot be read.
    Port(Error),
}

/// The result of a job on the database.
pub(super) type Job<T> = std::result::Result<T, Failure>;

impl From<tokio_postgres::Error> for Failure {
    fn from(e: tokio_postgres::Error) -> Failure {
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
        }
    }
}

/// A refusal that no other attempt will change.
pub(super) fn invalid(refusal: impl Into<String>) -> Failure {
    Failure::Port(Error::Invalid(refusal.into()))
}

/// Who caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another attempt may succeed: deadlock, lock or statement timeout, serialization.
    Busy,
    /// The server or the connection to it: connection, shutdown, resources, a standby.
    Away,
    /// The statement's values: a constraint, a type.
    Item,
    /// The statement itself: a missing table or column, a privilege.
    Program,
}

/// The cause by SQLSTATE; without one, the connection broke.
pub(super) fn fault_of(state: Option<&SqlState>) -> Fault {
    let Some(state) = state else { return Fault::Away };
    match state.code() {
        // serialization_failure, deadlock_detected, lock_not_available, query_canceled,
        // idle_in_transaction_session_timeout
        "40001" | "40P01" | "55P03" | "57014" | "25P03" => Fault::Busy,
        code => match &code[..2] {
            // Connection exceptions; resources; operator intervention; system; no standby;
            // the server is starting up or refuses logins.
            "08" | "53" | "57" | "58" | "28" | "3D" | "XX" | "F0" => Fault::Away,
            "25" => Fault::Away,
            // A BEFORE trigger that has changed the row itself (27) is the row's fault as well.
            "22" | "23" | "27" | "44" | "P0" => Fault::Item,
            _ => Fault::Program,
        },
    }
}

/// The cause of an error.
pub(super) fn fault(e: &tokio_postgres::Error) -> Fault {
    // A value that the driver refuses to encode or decode is not a connection failure.
    if e.code().is_none() && !e.is_closed() && driver(e) {
        return Fault::Program;
    }
    // The next attempt prepares its statements again (`doubts_catalog`).
    if is_stale(e) {
        return Fault::Busy;
    }
    match fault_of(e.code()) {
        Fault::Program if e.as_db_error().is_some_and(is_of_a_function) => Fault::Item,
        // A conflict that the server finds itself is not raised by a statement of a function.
        Fault::Busy if e.as_db_error().is_some_and(is_a_raise) => Fault::Item,
        fault => fault,
    }
}

/// Whether a function of the product raised an error that would otherwise be the program's, for
/// example a trigger that rejects a row with a SQLSTATE of its choice: then it is the row's. What
/// fails within a function without being raised is the row's as well, because the function fails for
/// the product, too. Two errors are not: a privilege may be missing for this role only, and a kept
/// plan ([`is_of_the_session`]) is the connection's.
fn is_of_a_function(said: &DbError) -> bool {
    is_a_raise(said)
        || is_within_a_function(said)
            && ![SqlState::INSUFFICIENT_PRIVILEGE, SqlState::DATATYPE_MISMATCH]
                .contains(said.code())
}

/// Whether a RAISE of PL/pgSQL has chosen the error.
fn is_a_raise(said: &DbError) -> bool {
    said.routine() == Some("exec_stmt_raise")
}

/// Whether the context of the error names a call. A server that logs the parameters of failed
/// statements (`log_parameter_max_length_on_error`) adds them as the outermost line of the context.
fn is_within_a_function(said: &DbError) -> bool {
    let first = said.where_().and_then(|context| context.lines().next());
    first.is_some_and(|line| !line.contains("$1 = "))
}

/// Whether a statement was prepared for tables that have changed since, or is no longer known to
/// the server.
fn is_stale(e: &tokio_postgres::Error) -> bool {
    let revalidated = |said: &tokio_postgres::error::DbError| {
        // The server translates the message, but not the name of its function.
        *said.code() == SqlState::FEATURE_NOT_SUPPORTED
            && said.routine() == Some("RevalidateCachedQuery")
    };
    e.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
        || e.as_db_error().is_some_and(revalidated)
}

/// Whether this error suggests that the cached catalog is outdated.
pub(super) fn doubts_catalog(e: &tokio_postgres::Error) -> bool {
    is_stale(e) || fault(e) == Fault::Program
}

/// Whether another connection might not have the error: a trigger's function keeps a plan for a column's
/// earlier type for the life of its connection, and what it sets there (a search path, a role) hides
/// tables and functions from all that follow.
pub(super) fn is_of_the_session(e: &tokio_postgres::Error) -> bool {
    let Some(said) = e.as_db_error() else { return false };
    matches!(&said.code().code()[..2], "42" | "3F") && said.routine() != Some("exec_stmt_raise")
}

/// Whether the connection has ended with this error or before it.
pub(super) fn ends_connection(e: &tokio_postgres::Error) -> bool {
    match e.as_db_error() {
        // A server that refuses writes has become a standby: another server is tried.
        Some(said) if said.code() == &SqlState::READ_ONLY_SQL_TRANSACTION => true,
        Some(said) => matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic)),
        None => fault(e) == Fault::Away,
    }
}

/// Whether the product's own code may have raised an error that names the server or a connection
/// as its cause. The server reports its own shutdown, and what is wrong with this connection, by
/// ending the connection; here it has only ended the statement. An error about resources or the
/// system may be the server's own all the same, so there only a RAISE of PL/pgSQL counts.
pub(super) fn may_be_raised(e: &tokio_postgres::Error) -> bool {
    let Some(said) = e.as_db_error() else { return false };
    fault(e) == Fault::Away
        && !ends_connection(e)
        && (is_a_raise(said) || matches!(&said.code().code()[..2], "08" | "57" | "XX"))
}

/// Like [`may_be_raised`], with the call of the function that raised it: a connection pooler has
/// none to show.
pub(super) fn is_raised_in_a_function(e: &tokio_postgres::Error) -> bool {
    may_be_raised(e) && e.as_db_error().is_some_and(|said| said.where_().is_some())
}

fn driver(e: &tokio_postgres::Error) -> bool {
    let text = e.to_string();
    text.starts_with("error serializing parameter")
        || text.starts_with("error deserializing column")
        || text.starts_with("expected ")
}

/// The port's error for an error of PostgreSQL.
pub(super) fn classify(e: &tokio_postgres::Error) -> Error {
    let said = words(e);
    match fault(e) {
        Fault::Busy => Error::Busy(said),
        Fault::Away => Error::Unavailable(said),
        Fault::Item => Error::Invalid(said),
        Fault::Program => {
            let (cause, fix) = remedy(e);
            Error::Refused(cause, format!("{said}; {fix}"))
        }
    }
}

/// The kind of trouble of a statement that the database refuses, and the fix.
fn remedy(e: &tokio_postgres::Error) -> (Cause, String) {
    match e.code().map(SqlState::code) {
        Some("42501") if e.as_db_error().is_some_and(is_within_a_function) => (
            Cause::Privilege,
            format!(
                "a trigger or a function needs it: grant it to the role, or declare the function \
                 SECURITY DEFINER{UNTIL_GRANTED}"
            ),
        ),
        Some("42501") => (Cause::Privilege, format!("{GRANTS}{UNTIL_GRANTED}")),
        _ => (
            Cause::Schema,
            format!(
                "the tables differ from their mapping (`besom check --store` shows the \
                 difference){UNTIL_MATCHED}"
            ),
        ),
    }
}

/// The port's error for a failed COMMIT. An answer with an ordinary SQLSTATE means that it was
/// rolled back; without an answer, or if the server ended, the result is unknown.
pub(super) fn classify_commit(e: &tokio_postgres::Error) -> Error {
    match fault(e) {
        Fault::Away => Error::Unknown(words(e)),
        Fault::Busy | Fault::Item | Fault::Program => classify(e),
    }
}

/// The database's message, with its detail and hint.
pub(super) fn words(e: &tokio_postgres::Error) -> String {
    let Some(said) = e.as_db_error() else {
        let mut text = e.to_string();
        let mut source = std::error::Error::source(e);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        return text;
    };
    let mut text = said.message().to_owned();
    for more in [said.detail(), said.hint()].into_iter().flatten() {
        text.push_str("; ");
        text.push_str(more);
    }
    format!("{text} ({})", said.code().code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_errors_is_somebodys_fault() {
        for (code, expected) in [
            ("40001", Fault::Busy),
            ("40P01", Fault::Busy),
            ("55P03", Fault::Busy),
            ("57014", Fault::Busy),
            ("25P03", Fault::Busy),
            ("57P01", Fault::Away),
            ("53300", Fault::Away),
            ("53100", Fault::Away),
            ("08006", Fault::Away),
            ("25006", Fault::Away),
            ("28P01", Fault::Away),
            ("23505", Fault::Item),
            ("23503", Fault::Item),
            ("22P02", Fault::Item),
            ("22003", Fault::Item),
            ("P0001", Fault::Item),
            ("27000", Fault::Item),
            ("42P01", Fault::Program),
            ("42501", Fault::Program),
        ] {
            assert_eq!(fault_of(Some(&SqlState::from_code(code))), expected, "{code}");
        }
        assert_eq!(fault_of(None), Fault::Away);
    }
}
