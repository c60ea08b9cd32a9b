//! How a verb ends: the exit codes, and what is said on stderr.

use std::process::ExitCode;

use crate::config::{Problems, printable};
use crate::ports::{coordination, store};

/// How a verb ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: fine.
    Fine,
    /// 1: it was done, and the answer is no; or it failed.
    Failed,
    /// 2: it was asked for in a way that cannot be.
    Usage,
    /// 65 (`EX_DATAERR`): a compaction does not say what it was made of.
    Differs,
    /// 69 (`EX_UNAVAILABLE`): the store cannot be reached.
    Unreachable,
    /// 78 (`EX_CONFIG`): the configuration is wrong.
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

/// Why a verb did not do what it was asked to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// It failed.
    #[error("{0}")]
    Failed(String),
    /// What was asked cannot be.
    #[error("{0}")]
    Usage(String),
    /// The store cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The configuration is wrong.
    #[error("{0}")]
    Configuration(#[from] Problems),
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        match error {
            store::Error::Busy(_) | store::Error::Unavailable(_) | store::Error::Unknown(_) => {
                Failure::Unreachable(error.to_string())
            }
            store::Error::Fenced
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
    /// Says on stderr what went wrong.
    fn from(failure: Failure) -> Exit {
        let (exit, text) = match &failure {
            Failure::Failed(text) => (Exit::Failed, text),
            Failure::Usage(text) => (Exit::Usage, text),
            Failure::Unreachable(text) => (Exit::Unreachable, text),
            Failure::Configuration(problems) => {
                // Escaped already, line by line.
                eprintln!("{problems}");
                return Exit::Configuration;
            }
        };
        eprintln!("besom: {}", printable(text));
        exit
    }
}
