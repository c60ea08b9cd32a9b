//! Exit codes, and the error messages on stderr.

use std::process::ExitCode;

use besom_config::{Problems, printable};
use besom_ports::{coordination, store};
use besom_snapshot::Cause;

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
    /// 69 (`EX_UNAVAILABLE`): the store cannot be reached, or refuses the login or a privilege.
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
    /// Exit code 69 as well, but waiting does not help: the server refuses the login or a privilege.
    #[error("{0}")]
    Denied(String),
    /// Exit code 78: the configuration is invalid.
    #[error("{0}")]
    Configuration(#[from] Problems),
    /// Exit code 78 as well: a file that a setting names, such as a secret, cannot be used.
    #[error("{0}")]
    Setting(String),
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        let error = error.once();
        match error {
            store::Error::Busy(_)
            | store::Error::Unavailable(_)
            | store::Error::Damaged(_)
            | store::Error::Unknown(_) => Failure::Unreachable(error.to_string()),
            store::Error::Denied(_) | store::Error::Refused(Cause::Privilege, _) => {
                Failure::Denied(error.to_string())
            }
            store::Error::Fenced
            | store::Error::Raised(_)
            | store::Error::TimedOut(_)
            | store::Error::GuardsTimedOut(_)
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
            Failure::Setting(text) => (Exit::Configuration, text),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_privilege_and_an_unusable_setting_have_codes_of_their_own() {
        let refused = |cause, promise: &str| {
            Failure::from(store::Error::Refused(cause, format!("denied; a fix{promise}")))
        };
        let privilege = refused(Cause::Privilege, store::UNTIL_GRANTED);
        // A verb does not try again.
        assert_eq!(privilege.to_string(), "the database refuses: denied; a fix");
        assert_eq!(Exit::from(privilege), Exit::Unreachable);
        let schema = refused(Cause::Schema, store::UNTIL_MATCHED);
        assert_eq!(schema.to_string(), "the database refuses: denied; a fix");
        assert_eq!(Exit::from(schema), Exit::Failed);
        assert_eq!(Exit::from(Failure::Setting("a file".into())), Exit::Configuration);
    }
}
