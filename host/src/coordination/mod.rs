//! Who leads and who is there, as different services tell it. The ports are
//! [`crate::ports::coordination`] and [`crate::ports::members`]; what follows from the answers
//! is decided in `besom_core::election` and `besom_core::membership`.

pub mod etcd;
mod lease_file;
pub mod memory;
pub mod store_lease;
