//! Classifies failed calls: permanently rejected, temporarily unavailable, or an answer for the
//! caller to interpret.

use std::error::Error as _;

use tonic::{Code, Status};

use besom_ports::coordination::Error;

/// Why a call has no result.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The call is rejected permanently; retrying does not help.
    Refused(String),
    /// etcd is unreachable, or did not answer in time. A write may have happened.
    Away(String),
    /// etcd answered with an error that the caller may interpret.
    Answer(Status),
}

impl Fault {
    /// Whether etcd answered with this code.
    pub(super) fn is(&self, code: Code) -> bool {
        matches!(self, Fault::Answer(status) if status.code() == code)
    }

    /// Whether another endpoint might succeed.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Fault::Away(_))
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Refused(said) => Error::Refused(said),
            Fault::Away(said) => Error::Unavailable(format!("etcd: {said}")),
            Fault::Answer(status) => Error::Unavailable(format!("etcd: {}", status.message())),
        }
    }
}

impl From<etcd_client::Error> for Fault {
    fn from(error: etcd_client::Error) -> Fault {
        match error {
            etcd_client::Error::GRpcStatus(status) => of_status(status),
            etcd_client::Error::TransportError(error) => of_transport(&error),
            etcd_client::Error::InvalidArgs(said) => Fault::Refused(said),
            other => Fault::Away(other.to_string()),
        }
    }
}

/// Errors about credentials are permanent; errors of the transport are not.
fn of_status(status: Status) -> Fault {
    let said = status.message();
    match status.code() {
        Code::PermissionDenied => Fault::Refused(format!(
            "etcd denies this user access ({said}): grant it readwrite on the prefix /besom/"
        )),
        Code::InvalidArgument if said.contains("authentication failed") => Fault::Refused(
            "etcd rejects this user or password: check [coordination] user and password_file"
                .into(),
        ),
        Code::InvalidArgument if said.contains("user name is empty") => Fault::Refused(
            "etcd requires authentication: set [coordination] user and password_file".into(),
        ),
        Code::FailedPrecondition if said.contains("authentication is not enabled") => {
            Fault::Refused(
                "authentication is disabled in etcd: remove [coordination] user, or enable \
                 authentication"
                    .into(),
            )
        }
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::Internal
        | Code::Unknown => match status.source() {
            Some(source) => Fault::Away(chain(source)),
            None => Fault::Away(said.to_owned()),
        },
        _ => Fault::Answer(status),
    }
}

/// A connection failed.
pub(super) fn of_transport(error: &tonic::transport::Error) -> Fault {
    let said = chain(error);
    let lower = said.to_ascii_lowercase();
    // Reported by the TLS library: a certificate that is expired, from an unknown CA or for another
    // name, or a client certificate that the server rejects.
    if lower.contains("certificate") || lower.contains("unknownissuer") {
        return Fault::Refused(format!(
            "{said}: check [coordination] ca, cert and key, and the names in the server's \
             certificate"
        ));
    }
    Fault::Away(said)
}

/// An error with its causes; the outermost error is only "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if said.last().is_none_or(|last| !last.contains(&text)) {
            said.push(text);
        }
        next = error.source();
    }
    said.join(": ")
}
