//! Values of the engine's tables that are kept as JSON text.

use besom_ports::store::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value as JSON text.
///
/// # Errors
/// It has no such form.
pub fn json<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::Invalid(format!("invalid JSON: {e}")))
}

/// Parses JSON text that a store wrote.
///
/// # Errors
/// It is no such value.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let unreadable = |e| Error::Invalid(format!("a value of the store cannot be read: {e}"));
    serde_json::from_str(text).map_err(unreadable)
}
