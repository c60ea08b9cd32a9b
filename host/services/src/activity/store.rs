//! Activity kept in the store: it survives the host and is read in the same transaction as the
//! change that it guards.
//!
//! This adapter decides nothing: [`besom_core::activity::state_of`] interprets the contents of the
//! ledger.

use std::sync::Arc;

use async_trait::async_trait;

use besom_ports::activity::{Activity, Error, State};
use besom_ports::embedded::ActivityLedger;

/// The activity of one store.
pub struct StoreActivity {
    ledger: Arc<dyn ActivityLedger>,
}

impl StoreActivity {
    /// Reads what other hosts have recorded, without recording anything itself. Keys that no host
    /// has observed remain unknown.
    pub fn reading(ledger: Arc<dyn ActivityLedger>) -> StoreActivity {
        StoreActivity { ledger }
    }

    /// For the host that serves the activity endpoint: from now on, every sign of activity is
    /// recorded in the ledger, and a key without any during the idle timeout is idle.
    pub fn listening(ledger: Arc<dyn ActivityLedger>) -> StoreActivity {
        ledger.listen();
        StoreActivity { ledger }
    }
}

fn unavailable(e: besom_ports::store::Error) -> Error {
    Error(e.to_string())
}

#[async_trait]
impl Activity for StoreActivity {
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, Error> {
        self.ledger.activity_states(keys).await.map_err(unavailable)
    }

    async fn connect(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.ledger.activity_seen(key, connection).await.map_err(unavailable)
    }

    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.ledger.activity_closed(key, connection).await.map_err(unavailable)
    }

    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.ledger.activity_seen(key, connection).await.map_err(unavailable)
    }
}
