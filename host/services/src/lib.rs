//! Adapters for election, membership, activity and delivery: etcd, Redis, HTTP, and the ledgers that
//! a store keeps for deployments without etcd and Redis.
//!
//! The adapters do not depend on each other; the command line chooses among them. When to campaign,
//! who owns what, and which message is delivered next is decided in `besom_core`.

pub mod activity;
pub mod coordination;
pub mod courier;
