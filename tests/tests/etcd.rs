//! etcd under the conformance suites. Tests that need the model in memory, real time or failing
//! servers are in `etcd/`.

use besom_tests::adapters::etcd::{Cluster, Timeline};
use besom_tests::conformance::coordination::Contest;
use besom_tests::conformance::members::Company;

#[path = "etcd/differential.rs"]
mod differential;
#[path = "etcd/failover.rs"]
mod failover;
#[path = "etcd/refusals.rs"]
mod refusals;

mod coordination {
    use super::*;

    async fn open() -> Contest {
        Timeline::contest(Cluster::shared().urls())
    }

    besom_tests::coordination_conformance!(crate::coordination::open);
}

mod members {
    use super::*;

    async fn open() -> Company {
        Timeline::company(Cluster::shared().urls())
    }

    besom_tests::members_conformance!(crate::members::open);
}
