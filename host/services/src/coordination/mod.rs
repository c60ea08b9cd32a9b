//! Adapters for leader election and membership. The ports are [`besom_ports::coordination`] and
//! [`besom_ports::members`]; decisions are made in `besom_core::election` and
//! `besom_core::membership`.

pub mod etcd;
mod lease_file;
pub mod store_lease;
