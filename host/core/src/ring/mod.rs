//! Which node owns a key: consistent hashing as a library.
//!
//! Two rings use the same circle:
//!
//! - [`HashRing`] is the general one: servers and keys can be added and removed, the hash function
//!   ([`Hasher`]) and the placement ([`Placement`]) are chosen, stored keys can be moved when
//!   servers change, and the moves are counted.
//! - [`Assignment`] is the cluster's: it assigns a fixed number of partitions to its members, with
//!   a bound on every member's load. It is a pure function of the member set, so that nodes that
//!   see the same members agree without communicating.
//!
//! ```text
//!   key ── hash ──────────────> circle ──> server            (HashRing)
//!   key ── hash ──> partition ──> table ──> node             (Assignment)
//!                       └── hash ──> circle, bounded load ──┘  once per member set
//! ```
//!
//! This module decides neither who is a member nor who actually owns a partition: the store does,
//! and an assignment is the target. Nothing here measures time.

pub mod assignment;
pub mod circle;
pub mod hash;
pub mod hash_ring;
pub mod server;
pub mod simulate;

pub use assignment::{Assignment, LOAD_PERCENT_MAX, Moves, RingMember, VIRTUAL_NODES};
pub use circle::{Circle, POINTS_MAX};
pub use hash::{HashName, Hasher, Md5, Xxh3};
pub use hash_ring::{Change, Error, HashRing, Lookup, Placement};
pub use server::NodeName;

#[cfg(test)]
mod tests;
