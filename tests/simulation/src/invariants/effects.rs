//! Every effect of the script happened exactly once, and none that it does not ask for.

use std::collections::BTreeSet;

use besom_core::value::Value;
use besom_ports::store::End;

use super::{Invariant, Rest, history, is_of_undo, row, undone, view};
use crate::script::{Fate, fate};

pub(super) struct Effects;

impl Invariant for Effects {
    fn name(&self) -> &'static str {
        "effects"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let (history, view) = (history(rest.store), view(rest.store));
        let undone = undone(&history);
        let committed =
            history.iter().filter(|row| row.outcome == End::Committed && !is_of_undo(row));
        let taken_back: BTreeSet<&str> = committed
            .filter(|row| undone.contains(&row.id))
            .map(|row| row.identity.key.as_str())
            .collect();
        let mut wrong = Vec::new();
        for (tenant, key) in &rest.made.things {
            let wanted = match fate(key) {
                _ if taken_back.contains(key.as_str()) => 0,
                Fate::Done | Fate::DoneLater => 1,
                Fate::Skipped | Fate::Hopeless | Fate::Poison => 0,
            };
            let found = row(view.as_ref(), tenant, "ledger", key, &["effects"]);
            if found.as_deref() != Some([Value::Integer(wanted)].as_slice()) {
                wrong.push(format!("{key}: {found:?} effects instead of {wanted}"));
            }
        }
        wrong
    }
}
