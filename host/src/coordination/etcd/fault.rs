//! What a failed call means: refused for good, away for now, or an answer to be understood.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::ports::coordination::Error;

/// Why a call has no value.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// No retry will help.
    Refused(String),
    /// Not reached, or no answer in time. A write may have happened.
    Away(String),
    /// etcd answered with an error that the caller may understand.
    Answer(Status),
}

impl Fault {
    /// Whether etcd answered with this code.
    pub(super) fn is(&self, code: Code) -> bool {
        matches!(self, Fault::Answer(status) if status.code() == code)
    }

    /// Whether another endpoint might do better.
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

/// What etcd says of credentials is final; what the transport says is not.
fn of_status(status: Status) -> Fault {
    let said = status.message();
    match status.code() {
        Code::PermissionDenied => Fault::Refused(format!(
            "etcd refuses this user ({said}): grant it readwrite on the prefix /besom/"
        )),
        Code::InvalidArgument if said.contains("authentication failed") => Fault::Refused(
            "etcd does not know this user or password: check [coordination] user and password_file"
                .into(),
        ),
        Code::InvalidArgument if said.contains("user name is empty") => {
            Fault::Refused("etcd wants a user: set [coordination] user and password_file".into())
        }
        Code::FailedPrecondition if said.contains("authentication is not enabled") => {
            Fault::Refused(
                "etcd's authentication is off: remove [coordination] user, or turn it on".into(),
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

/// A connection that could not be made.
pub(super) fn of_transport(error: &tonic::transport::Error) -> Fault {
    let said = chain(error);
    let lower = said.to_ascii_lowercase();
    // Named by the TLS library: a certificate that is expired, of an unknown authority, of
    // another name, or one of ours that the server does not take.
    if lower.contains("certificate") || lower.contains("unknownissuer") {
        return Fault::Refused(format!(
            "{said}: check [coordination] ca, cert and key, and what the server's certificate is for"
        ));
    }
    Fault::Away(said)
}

/// An error with its causes; the outermost alone says only "transport error".
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
