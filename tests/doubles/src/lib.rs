//! Doubles of the store, the coordination service and the activity store, in the memory of one
//! process and with faults that tests inject. They pass the same conformance suites as the real
//! adapters, and no crate of the product depends on them except for its tests.

pub mod activity;
pub mod coordination;
mod script;
pub mod signer;
pub mod store;

pub use script::script;
