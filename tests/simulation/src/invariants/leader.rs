//! Exactly one node leads a world at rest.

use super::{Invariant, Rest};

pub(super) struct Leader;

impl Invariant for Leader {
    fn name(&self) -> &'static str {
        "leader"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        match rest.nodes.iter().filter(|node| node.leads).count() {
            1 => Vec::new(),
            count => vec![format!("{count} nodes lead")],
        }
    }
}
