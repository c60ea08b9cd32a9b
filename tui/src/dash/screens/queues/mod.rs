//! What waits, and what was set aside.

mod view;

use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::key::Key;

/// What waits, and what was set aside.
#[derive(Debug, Default)]
pub struct QueuesScreen {}

impl Screen for QueuesScreen {
    fn key(&mut self, _key: Key, _cx: &Context<'_>, _out: &mut Outbox) -> bool {
        false
    }

    fn hints(&self, _cx: &Context<'_>) -> Vec<Hint> {
        Vec::new()
    }
}
