//! Store leases of several processes on one machine, with a boot clock that tests move on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use besom_core::ids::Incarnation;
use besom_ports::embedded::LeaseLedger;
use besom_services::coordination::store_lease::{LEASE_TTL_DEFAULT, LeaseClock, StoreLease};

use crate::conformance::world::START;

/// A machine: its time since boot, in microseconds.
#[derive(Clone)]
pub struct Machine(Arc<AtomicU64>, &'static str);

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Machine {
    /// One that has been up for an hour.
    pub fn new() -> Machine {
        Machine::booted("boot-1")
    }

    /// The same with a boot of that name.
    pub fn booted(boot_id: &'static str) -> Machine {
        Machine(Arc::new(AtomicU64::new(3_600_000_000)), boot_id)
    }

    /// Lets lease time pass.
    pub fn advance(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).expect("a span of a test");
        self.0.fetch_add(micros, Ordering::Relaxed);
    }

    /// The lease of a node of this machine.
    pub fn lease(&self, ledger: Arc<dyn LeaseLedger>, node: Incarnation) -> StoreLease {
        let micros = Arc::clone(&self.0);
        let clock = LeaseClock {
            boot_id: self.1.into(),
            since_boot: Arc::new(move || Duration::from_micros(micros.load(Ordering::Relaxed))),
            wall: Arc::new(|| START),
        };
        StoreLease::new(ledger, node, LEASE_TTL_DEFAULT, clock)
    }
}
