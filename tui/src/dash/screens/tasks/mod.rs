//! Tasks, their schedules, and why a slot did not run.

mod view;

use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::key::Key;

/// Tasks, their schedules, and why a slot did not run.
#[derive(Debug, Default)]
pub struct TasksScreen {}

impl Screen for TasksScreen {
    fn key(&mut self, _key: Key, _cx: &Context<'_>, _out: &mut Outbox) -> bool {
        false
    }

    fn hints(&self, _cx: &Context<'_>) -> Vec<Hint> {
        Vec::new()
    }
}
