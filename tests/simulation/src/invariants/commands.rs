//! Every command that was submitted is answered in the end.

use besom_ports::store::Store as _;

use super::{Invariant, Rest, now};

pub(super) struct Commands;

impl Invariant for Commands {
    fn name(&self) -> &'static str {
        "commands"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let commands = now(rest.store.commands(None, u32::MAX)).expect("the commands");
        let pending = commands.iter().filter(|row| row.applied_at.is_none());
        pending.map(|row| format!("command {} waits: {:?}", row.id, row.command)).collect()
    }
}
