//! A term has at most one leader. A restored database may forget terms, which are then given again.

use std::collections::BTreeMap;

use besom_core::ids::{Incarnation, Term};

use super::{Invariant, Step};

#[derive(Default)]
pub(super) struct LeaderPerTerm {
    leaders: BTreeMap<Term, Incarnation>,
}

impl Invariant for LeaderPerTerm {
    fn name(&self) -> &'static str {
        "leader-per-term"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        match step {
            Step::Restored => self.leaders.clear(),
            Step::Leads { node, term } => {
                let other = self.leaders.insert(*term, (*node).clone());
                if let Some(other) = other.filter(|other| other != *node) {
                    return vec![format!("{other} and {node} lead under term {term}")];
                }
            }
            _ => {}
        }
        Vec::new()
    }
}
