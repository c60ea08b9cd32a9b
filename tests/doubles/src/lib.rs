//! Doubles of the store, the coordination service and the activity store.

pub mod activity;
pub mod coordination;
mod script;
pub mod store;

pub use script::script;
