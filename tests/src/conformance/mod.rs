//! One suite per port, every adapter: the meaning of the ports, executable.
//!
//! A case is an async function over a fresh [`World`] (or the fixture of its port); its name
//! is the fact it shows. [`list`] names all cases once; an adapter's test file opens its
//! fixture and instantiates the list, each case as a `#[test]` of its own.

pub mod activity;
pub mod coordination;
pub mod fixture;
pub mod list;
pub mod members;
pub mod store;
pub mod tables;
pub mod world;

pub use fixture::{Corruption, Fault, Fixture};
pub use world::World;

/// Runs one case of the store's suite on a fresh fixture.
pub fn run_store(open: impl AsyncFnOnce() -> Box<dyn Fixture>, case: impl AsyncFnOnce(&mut World)) {
    block_on(async {
        let mut world = World::new(open().await).await;
        case(&mut world).await;
    });
}

/// Runs one case of another port's suite on a fresh fixture.
pub fn run_with<T>(open: impl AsyncFnOnce() -> T, case: impl AsyncFnOnce(&mut T)) {
    block_on(async {
        let mut fixture = open().await;
        case(&mut fixture).await;
    });
}

/// Drives a future to its end on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for one test")
        .block_on(future)
}
