//! etcd as a fixture: real servers, started on free ports, and handles whose leases run on a clock
//! that tests advance.

mod server;
mod timed;

pub use server::{Cluster, program};
pub use timed::{TTL, Timeline, clocks};
