//! One suite for each port, which every adapter passes: the executable meaning of the ports.
//!
//! A case is an async function over a fresh [`World`] (or the fixture of its port); its name
//! is the fact that it shows. [`list`] names all cases once; an adapter's test file opens its
//! fixture and instantiates the list, with one `#[test]` for each case.

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

/// Runs a future to its end on its own runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for one test")
        .block_on(future)
}
