//! Exit codes, and the error messages on stderr.

use std::process::ExitCode;

use besom_config::{Problems, printable};
use besom_ports::{coordination, store};

/// The exit code of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: success.
    Fine,
    /// 1: the verb failed, or the answer is no.
    Failed,
    /// 2: invalid usage.
    Usage,
    /// 65 (`EX_DATAERR`): a compacted document differs from its source.
    Differs,
    /// 69 (`EX_UNAVAILABLE`): the store cannot be reached.
    Unreachable,
    /// 78 (`EX_CONFIG`): the configuration is invalid.
    Configuration,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Differs => 65,
            Exit::Unreachable => 69,
            Exit::Configuration => 78,
        })
    }
}

/// Why a verb failed; each variant maps to an exit code.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Exit code 2: invalid usage.
    #[error("{0}")]
    Usage(String),
    /// Exit code 69: the store or etcd cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// Exit code 69 as well, but waiting does not help: the server refuses the login.
    #[error("{0}")]
    Denied(String),
    /// Exit code 78: the configuration is invalid.
    #[error("{0}")]
    Configuration(#[from] Problems),
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        match error {
            store::Error::Busy(_)
            | store::Error::Unavailable(_)
            | store::Error::Damaged(_)
            | store::Error::Unknown(_) => Failure::Unreachable(error.to_string()),
            store::Error::Denied(_) => Failure::Denied(error.to_string()),
            store::Error::Fenced
            | store::Error::Raised(_)
            | store::Error::Refused(..)
            | store::Error::Invalid(_)
            | store::Error::TooLarge(_) => Failure::Failed(error.to_string()),
        }
    }
}

impl From<coordination::Error> for Failure {
    fn from(error: coordination::Error) -> Failure {
        match error {
            coordination::Error::Unavailable(_) => Failure::Unreachable(error.to_string()),
            coordination::Error::Refused(_) => Failure::Failed(error.to_string()),
        }
    }
}

impl From<Failure> for Exit {
    /// Prints the error to stderr.
    fn from(failure: Failure) -> Exit {
        let (exit, text) = match &failure {
            Failure::Failed(text) => (Exit::Failed, text),
            Failure::Usage(text) => (Exit::Usage, text),
            Failure::Unreachable(text) | Failure::Denied(text) => (Exit::Unreachable, text),
            Failure::Configuration(problems) => {
                // Diagnostics are already escaped, line by line.
                to_stderr!("{problems}");
                return Exit::Configuration;
            }
        };
        to_stderr!("besom: {}", printable(text));
        exit
    }
}
