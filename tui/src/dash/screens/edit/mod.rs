//! The schedule of a task, edited in place.

mod view;

use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::key::Key;

/// The schedule of a task, edited in place.
#[derive(Debug, Default)]
pub struct EditScreen {}

impl Screen for EditScreen {
    fn key(&mut self, _key: Key, _cx: &Context<'_>, _out: &mut Outbox) -> bool {
        false
    }

    fn hints(&self, _cx: &Context<'_>) -> Vec<Hint> {
        Vec::new()
    }
}
