//! Candidates, built up.

use std::fmt::Display;

use crate::{Candidate, Result, Time, Value, key};

impl Candidate {
    /// The candidate that these values identify within the tenant, usually the row's key.
    /// [`crate::Item::key_values`] gives them back.
    pub fn of(values: &[Value]) -> Result<Candidate> {
        Ok(Candidate::new(key::encode(values)?))
    }

    /// The candidate of that key.
    pub fn new(key: impl Into<String>) -> Candidate {
        Candidate {
            key: key.into(),
            tenant: None,
            route: None,
            due: None,
            version: String::new(),
            payload: Vec::new(),
        }
    }

    /// Candidates of the same route are executed by the same owner, never two at once.
    pub fn route(mut self, route: impl Into<String>) -> Candidate {
        self.route = Some(route.into());
        self
    }

    /// Not to be executed before.
    pub fn due(mut self, due: Time) -> Candidate {
        self.due = Some(due.0);
        self
    }

    /// Whatever changes when the item would be worth another look. Leave it empty only if
    /// no verdict is ever a settled skip.
    pub fn version(mut self, version: impl Display) -> Candidate {
        self.version = version.to_string();
        self
    }

    /// What `act` is to know, at most 4 KiB. Prefer to read again: a payload grows stale.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Candidate {
        self.payload = payload.into();
        self
    }
}
