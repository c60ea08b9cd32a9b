//! Constructors for the errors of the contract.

use crate::{Error, Field, Value};

impl Error {
    /// An error that a retry cannot fix. `code` is a stable word such as `no-such-setting`.
    pub fn permanent(code: &str, message: impl Into<String>) -> Error {
        Error { code: code.into(), message: message.into(), retryable: false, details: Vec::new() }
    }

    /// An error that a later retry may fix.
    pub fn transient(code: &str, message: impl Into<String>) -> Error {
        Error { retryable: true, ..Error::permanent(code, message) }
    }

    /// Adds a named detail for diagnosis.
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Error {
        self.details.push(Field { name: name.into(), value: value.into() });
        self
    }
}
