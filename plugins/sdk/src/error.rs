//! Making errors of the contract.

use crate::{Error, Field, Value};

impl Error {
    /// Trying again cannot help. `code` is a stable word, such as `no-such-setting`.
    pub fn permanent(code: &str, message: impl Into<String>) -> Error {
        Error { code: code.into(), message: message.into(), retryable: false, details: Vec::new() }
    }

    /// Trying again later may help.
    pub fn transient(code: &str, message: impl Into<String>) -> Error {
        Error { retryable: true, ..Error::permanent(code, message) }
    }

    /// Adds a detail for whoever looks into it.
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Error {
        self.details.push(Field { name: name.into(), value: value.into() });
        self
    }
}
