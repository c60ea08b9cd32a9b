//! Nodes, the leader, and what deserves attention.

mod view;

use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::key::Key;

/// Nodes, the leader, and what deserves attention.
#[derive(Debug, Default)]
pub struct OverviewScreen {}

impl Screen for OverviewScreen {
    fn key(&mut self, _key: Key, _cx: &Context<'_>, _out: &mut Outbox) -> bool {
        false
    }

    fn hints(&self, _cx: &Context<'_>) -> Vec<Hint> {
        Vec::new()
    }
}
