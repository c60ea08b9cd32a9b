//! Adapters for leader election and membership. The ports are [`crate::ports::coordination`] and
//! [`crate::ports::members`]; decisions are made in `besom_core::election` and
//! `besom_core::membership`.

pub mod etcd;
mod lease_file;
pub mod memory;
pub mod store_lease;
