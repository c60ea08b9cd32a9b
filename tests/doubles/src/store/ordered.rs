//! Values as parts of keys.

use std::cmp::Ordering;

use besom_core::value::Value;
use besom_ports::compare::order;

/// A value with a total order, to be part of a key.
#[derive(Clone, Debug)]
pub(super) struct Ordered(pub(super) Value);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}
