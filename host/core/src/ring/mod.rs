//! Which node owns a key: consistent hashing as a library.
//!
//! Two rings, one circle under both:
//!
//! - [`HashRing`] is the general one: servers and keys come and go, the hash function
//!   ([`Hasher`]) and the placement ([`Placement`]) are chosen, stored keys can be moved
//!   with the change of servers, and the moves are counted.
//! - [`Assignment`] is the cluster's: a fixed number of partitions over its members, with a
//!   bound on every member's load. A pure function of the member set, so that nodes which
//!   see the same members agree without talking.
//!
//! ```text
//!   key ── hash ──────────────> circle ──> server            (HashRing)
//!   key ── hash ──> partition ──> table ──> node             (Assignment)
//!                       └── hash ──> circle, bounded load ──┘  once per member set
//! ```
//!
//! Not decided here: who is a member, and who really owns a partition (the store does; an
//! assignment is what its owners should become). Nothing here measures time.

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
pub use server::ServerName;

#[cfg(test)]
mod tests;
