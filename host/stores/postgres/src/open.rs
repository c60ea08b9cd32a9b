//! Opens the store: checks the server, migrates the engine's tables, and creates the pools.

use std::sync::{Arc, OnceLock, RwLock};
use std::time::Instant;

use besom_core::time::Time;

use super::PostgresStore;
use super::clock::{Clock, NOW};
use super::commit::Undo;
use super::connect::{Dial, Pools, Target};
use super::guards::Bounds;
use super::mapping::quote;
use super::nudge::Nudges;
use super::options::Options;
use super::pooler;
use super::schema::{Wanted, migrate};
use super::session::params;
use super::turns::Turns;
use besom_ports::store::{Error, Result};

impl PostgresStore {
    /// Opens the store of a URL and creates missing tables of the engine.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server cannot be reached; [`Error::Invalid`] if the URL is
    /// invalid, the login or the server's certificate is refused, the database does not exist, the
    /// server is too old, the schema is newer than this program, or the store belongs to another
    /// cluster.
    pub async fn open(url: &str, options: Options) -> Result<Arc<PostgresStore>> {
        let target = Target::parse(url, &options)?;
        let schema = quote(&options.schema);
        let dial = Dial::new(&target, &options)?;
        let pools = Pools::new(&dial, &options, &schema)?;
        let clock = Clock::new(options.time.clone());
        let mut session = pools.first().await?;
        pooler::refuse(&mut session, &pools, options.connect_timeout).await.map_err(|error| {
            match error {
                Error::Invalid(said) => Error::Invalid(format!("{}: {said}", target.shown)),
                other => other,
            }
        })?;
        let named = |error: Error| match error {
            Error::Invalid(said) => Error::Invalid(format!("{}: {said}", target.shown)),
            Error::Unavailable(said) => Error::Unavailable(format!("{}: {said}", target.shown)),
            other => other,
        };
        let wanted = Wanted {
            schema: &schema,
            creates: options.creates,
            looks: options.looks,
            partitions: options.partitions,
            cluster: &options.cluster,
        };
        let founded = migrate(&mut session, &wanted).await.map_err(|e| named(e.into()))?;
        let now = format!("SELECT {NOW}");
        let opened_at = Time(session.one(&now, params![clock.given()]).await?);
        drop(session);
        Ok(Arc::new(PostgresStore {
            pools,
            nudges: Nudges::new(dial, quote(&format!("besom {}", options.schema))),
            founded,
            clock,
            tasks: Default::default(),
            collections: RwLock::default(),
            mapping: RwLock::default(),
            good: RwLock::default(),
            timeouts: options.activity,
            opened_at,
            opened: Instant::now(),
            listening_since: OnceLock::new(),
            faults: options.faults,
            bounds: Bounds {
                guards: options.guard_timeout,
                lock: options.lock_timeout,
                statement: options.statement_timeout,
            },
            turns: Turns::new(options.write_share),
            undo: Undo::new(options.undo_bytes),
            unheard_max: options.tcp_user_timeout,
        }))
    }
}
