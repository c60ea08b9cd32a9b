//! The adapters as the suites see them: each with a clock that tests set.

pub mod etcd;
pub mod lease;
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod sqlite;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use besom_core::time::Time;

use crate::conformance::world::START;

/// A clock that tests set.
#[derive(Clone)]
pub struct Hand(Arc<Mutex<Time>>);

impl Default for Hand {
    fn default() -> Hand {
        Hand::new()
    }
}

impl Hand {
    /// A clock that shows [`START`].
    pub fn new() -> Hand {
        Hand(Arc::new(Mutex::new(START)))
    }

    /// Sets it.
    pub fn set(&self, now: Time) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Moves it on.
    pub fn advance(&self, span: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = *now + span;
    }

    /// The clock, to be injected.
    pub fn clock(&self) -> Arc<dyn Fn() -> Time + Send + Sync> {
        let hand = Arc::clone(&self.0);
        Arc::new(move || *hand.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
