//! Activity kept in the store's own file: it survives the host and is read in the same
//! transaction as the change that it guards.
//!
//! This adapter decides nothing: [`besom_core::activity::state_of`] judges what the ledger
//! holds.

use std::sync::Arc;

use async_trait::async_trait;

use crate::ports::activity::{Activity, Error, State};
use crate::ports::embedded::ActivityLedger;

/// The activity of one store's file.
pub struct StoreActivity {
    ledger: Arc<dyn ActivityLedger>,
}

impl StoreActivity {
    /// Reads what others have noted, and listens to nobody itself: what nobody has observed
    /// stays unknown.
    pub fn reading(ledger: Arc<dyn ActivityLedger>) -> StoreActivity {
        StoreActivity { ledger }
    }

    /// For the host that serves the activity endpoint: from now on every sign of life reaches
    /// the ledger, and what shows none for the idle timeout is idle.
    pub fn listening(ledger: Arc<dyn ActivityLedger>) -> StoreActivity {
        ledger.listen();
        StoreActivity { ledger }
    }
}

fn unavailable(e: crate::ports::store::Error) -> Error {
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
