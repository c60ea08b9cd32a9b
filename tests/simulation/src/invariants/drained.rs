//! A world at rest has nothing left to do: no item waits.

use besom_ports::store::Store as _;

use super::{Invariant, Rest, now};

pub(super) struct Drained;

impl Invariant for Drained {
    fn name(&self) -> &'static str {
        "drained"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let audit = now(rest.store.audit()).expect("an audit");
        let waiting = audit.rows.iter().filter(|row| row.counted.pending != 0);
        waiting
            .map(|row| format!("{} {:?}: {} items wait", row.task, row.tenant, row.counted.pending))
            .collect()
    }
}
