//! Several nodes over adapters in memory, with everything going wrong that can.
//!
//! The nodes are the real ones, with core unchanged: only the shell is replaced. Here time
//! is a number, a message is an entry in a queue, and one seed decides who crashes, who is
//! paused for longer than the lease, which answers are lost or come twice, and which
//! commits nobody learns the result of. After a while the faults stop, the world comes to
//! rest, and what it looks like then is judged.

mod judge;
pub mod script;
mod world;

pub use judge::Violation;
pub use world::{Plan, Report, simulate};
