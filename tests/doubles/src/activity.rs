//! Activity in the memory of one process: the reference implementation of the port, for tests and
//! simulations. All decisions are made by [`Book`].

mod book;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use besom_core::time::Time;

use besom_ports::activity::{Activity, Error, State, Timeouts};

pub use book::Book;

/// An injected clock.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Activity that is shared by all holders. Its methods never suspend.
pub struct MemoryActivity {
    clock: Clock,
    inner: Mutex<Inner>,
}

struct Inner {
    book: Book,
    away: bool,
}

impl MemoryActivity {
    /// Creates an activity that observes from now on.
    pub fn new(timeouts: Timeouts, clock: Clock) -> MemoryActivity {
        let book = Book::new(timeouts, clock());
        MemoryActivity { clock, inner: Mutex::new(Inner { book, away: false }) }
    }

    /// Forgets everything, like a server that was flushed or restarted.
    pub fn flush(&self) {
        let now = (self.clock)();
        self.lock().book.flush(now);
    }

    /// Makes every call fail until it is called with `false`.
    pub fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another holder cannot leave the book in an inconsistent state.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Book, Time) -> T) -> Result<T, Error> {
        let now = (self.clock)();
        let mut inner = self.lock();
        if inner.away {
            return Err(Error("the activity server is away".into()));
        }
        Ok(f(&mut inner.book, now))
    }
}

#[async_trait]
impl Activity for MemoryActivity {
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, Error> {
        self.with(|book, now| keys.iter().map(|key| book.state(key, now)).collect())
    }

    async fn connect(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.with(|book, now| book.connect(key, connection, now))
    }

    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.with(|book, now| book.disconnect(key, connection, now))
    }

    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), Error> {
        self.with(|book, now| book.connect(key, connection, now))
    }
}
