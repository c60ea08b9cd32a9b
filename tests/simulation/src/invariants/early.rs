//! Nothing was ended before its due time at that moment, by the store's clock.

use std::collections::BTreeMap;

use besom_core::value::Value;
use besom_ports::store::End;

use super::{Invariant, Rest, history, is_of_undo, row, view};

pub(super) struct Early;

impl Invariant for Early {
    fn name(&self) -> &'static str {
        "early"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let view = view(rest.store);
        let ended: BTreeMap<String, _> = history(rest.store)
            .into_iter()
            .filter(|row| row.outcome == End::Committed && !is_of_undo(row))
            .map(|row| (row.identity.key, row.at))
            .collect();
        let mut wrong = Vec::new();
        for (tenant, key) in &rest.made.things {
            let found = row(view.as_ref(), tenant, "things", key, &["due"]);
            if let (Some([Value::Timestamp(due)]), Some(at)) = (found.as_deref(), ended.get(key))
                && at < due
            {
                wrong.push(format!("{key} was due at {due} and was ended at {at}"));
            }
        }
        wrong
    }
}
