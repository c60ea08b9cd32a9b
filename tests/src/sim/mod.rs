//! The simulation: several nodes over adapters in memory, with injected faults.
//!
//! The nodes are the real ones: only the shell is replaced. Time is a number, a message is an entry
//! in a queue, and one seed determines which nodes crash or are paused for longer than the lease,
//! which answers are lost or repeated, and which commits have an unknown result. After a while the
//! faults stop, the world comes to rest, and its final state is checked.

mod judge;
pub mod script;
mod world;

pub use judge::Violation;
pub use world::{Plan, Report, simulate};
