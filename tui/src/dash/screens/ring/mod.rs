//! Who owns what, and where the load is.

mod view;

use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::key::Key;

/// Who owns what, and where the load is.
#[derive(Debug, Default)]
pub struct RingScreen {}

impl Screen for RingScreen {
    fn key(&mut self, _key: Key, _cx: &Context<'_>, _out: &mut Outbox) -> bool {
        false
    }

    fn hints(&self, _cx: &Context<'_>) -> Vec<Hint> {
        Vec::new()
    }
}
