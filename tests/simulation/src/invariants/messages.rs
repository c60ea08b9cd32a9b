//! Every message of the script was emitted exactly once. An undo does not take a message back.

use std::collections::BTreeMap;

use super::{Invariant, Rest};
use crate::script::{Fate, fate};

pub(super) struct Messages;

impl Invariant for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut emitted: BTreeMap<String, u64> = BTreeMap::new();
        for message in rest.store.outbox() {
            let key = String::from_utf8(message.payload).expect("the key of an item");
            *emitted.entry(key).or_default() += 1;
        }
        let mut wrong = Vec::new();
        for (_, key) in &rest.made.things {
            let wanted = match fate(key) {
                Fate::Done | Fate::DoneLater => 1,
                Fate::Skipped | Fate::Hopeless | Fate::Poison => 0,
            };
            let found = emitted.get(key).copied().unwrap_or(0);
            if found != wanted {
                wrong.push(format!("{key}: {found} messages instead of {wanted}"));
            }
        }
        wrong
    }
}
