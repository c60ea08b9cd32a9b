//! The builder of candidates.

use std::fmt::Display;

use crate::{Candidate, Field, Result, Time, Value, key};

impl Candidate {
    /// A candidate that these values, usually the row's key, identify within its tenant.
    /// [`crate::Item::key_values`] decodes them.
    ///
    /// # Errors
    /// `unfit-key` for a null, bool, float, decimal or JSON value.
    pub fn of(values: &[Value]) -> Result<Candidate> {
        Ok(Candidate::new(key::encode(values)?))
    }

    /// A candidate with this key, which together with the due time identifies it within its
    /// tenant.
    pub fn new(key: impl Into<String>) -> Candidate {
        Candidate {
            key: key.into(),
            tenant: None,
            route: None,
            due: None,
            version: String::new(),
            payload: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Candidates with the same route are executed by the same owner, one at a time. The default
    /// is the key.
    pub fn route(mut self, route: impl Into<String>) -> Candidate {
        self.route = Some(route.into());
        self
    }

    /// Makes the item a timer that is never committed before this time.
    pub fn due(mut self, due: Time) -> Candidate {
        self.due = Some(due.0);
        self
    }

    /// Any value that changes when the item should be considered again. While it is unchanged, a
    /// settled skip or a dead letter keeps the item from being planned again.
    pub fn version(mut self, version: impl Display) -> Candidate {
        self.version = version.to_string();
        self
    }

    /// Data for `act`, at most 4 KiB. It may be stale by then; prefer to read again.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Candidate {
        self.payload = payload.into();
        self
    }

    /// Adds what a host may know by this name; another ignores it.
    pub fn extra(mut self, name: &str, value: impl Into<Value>) -> Candidate {
        self.extra.push(Field { name: name.into(), value: value.into() });
        self
    }
}
