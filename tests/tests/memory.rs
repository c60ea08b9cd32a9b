//! The in-memory adapters under the conformance suites.

use std::sync::Arc;
use std::time::Duration;

use besom_doubles::activity::MemoryActivity;
use besom_doubles::coordination::MemoryLease;
use besom_ports::activity::Timeouts;
use besom_tests::adapters::Hand;
use besom_tests::adapters::memory::Memory;
use besom_tests::conformance::Fixture;
use besom_tests::conformance::activity::Observed;
use besom_tests::conformance::coordination::Contest;
use besom_tests::conformance::members::Company;

mod store {
    use super::*;

    async fn open() -> Box<dyn Fixture> {
        Box::new(Memory::open())
    }

    besom_tests::store_conformance!(crate::store::open);
}

mod activity {
    use super::*;

    async fn open() -> Observed {
        let hand = Hand::new();
        let activity = Arc::new(MemoryActivity::new(Timeouts::default(), hand.clock()));
        Observed { activity, set_now: Box::new(move |now| hand.set(now)), keep: Box::new(()) }
    }

    besom_tests::activity_conformance!(crate::activity::open);
}

mod activity_in_the_store {
    use super::*;

    async fn open() -> Observed {
        let memory = Memory::open();
        let activity = memory.activity();
        let set_now = Box::new(move |now| memory.set_now(now));
        Observed { activity, set_now, keep: Box::new(()) }
    }

    besom_tests::activity_conformance!(crate::activity_in_the_store::open);
}

mod coordination {
    use super::*;

    async fn open() -> Contest {
        let hand = Hand::new();
        let lease = MemoryLease::new(Duration::from_secs(15), hand.clock());
        Contest {
            one: Arc::new(lease.handle("n1".into(), "host-1")),
            two: Arc::new(lease.handle("n2".into(), "host-2")),
            advance: Box::new(move |span| hand.advance(span)),
            keep: Box::new(()),
        }
    }

    besom_tests::coordination_conformance!(crate::coordination::open);
}

mod members {
    use super::*;

    async fn open() -> Company {
        let hand = Hand::new();
        let lease = MemoryLease::new(Duration::from_secs(15), hand.clock());
        let handle = |name: &str, incarnation: &str| {
            Arc::new(lease.handle_named(name.into(), incarnation.into(), "host"))
        };
        let (one, two) = (handle("n1", "n1-a"), handle("n2", "n2-a"));
        let twin = handle("n1", "n1-b");
        Company {
            one: one.clone(),
            one_leads: one,
            two: two.clone(),
            two_leads: two,
            twin,
            advance: Box::new(move |span| hand.advance(span)),
            keep: Box::new(()),
        }
    }

    besom_tests::members_conformance!(crate::members::open);
}
