//! Who leads, as different services tell it. The port is [`crate::ports::coordination`];
//! what follows from the answers is decided in `besom_core::election`.

mod lease_file;
pub mod memory;
pub mod store_lease;
