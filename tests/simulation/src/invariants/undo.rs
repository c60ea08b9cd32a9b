//! An undo takes back everything that it was asked for and nothing else, and leaves alone what the product
//! has changed since.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::command::Command;
use besom_core::undo::Target;
use besom_core::value::Value;
use besom_ports::store::{DeadSelector, End, HistoryRow, Letters, Store as _};
use besom_record::restore::REMOVED;

use super::{
    CLOCK_SLACK, Invariant, Rest, history, is_of_undo, now, row, taken_back, undone, view,
};
use crate::script::KEPT;

pub(super) struct Undo;

impl Invariant for Undo {
    fn name(&self) -> &'static str {
        "undo"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut wrong = kept(rest);
        wrong.extend(asked(rest));
        wrong.extend(in_vain(rest));
        wrong
    }
}

/// What the product has changed after it was done stays.
fn kept(rest: &Rest<'_>) -> Vec<String> {
    let view = view(rest.store);
    let kept = rest.made.things.iter().filter(|(_, key)| rest.made.kept.contains(key));
    let mut wrong = Vec::new();
    for (tenant, key) in kept {
        let found = row(view.as_ref(), tenant, "things", key, &["state"]);
        if found.as_deref() != Some([Value::Text(KEPT.into())].as_slice()) {
            wrong.push(format!("{key}: the product has kept it, and it is {found:?}"));
        }
    }
    wrong
}

/// Something of every item can be put back in these worlds, unless another undo has done it, or what was kept
/// of it was pruned between the verdict and the commit.
fn in_vain(rest: &Rest<'_>) -> Vec<String> {
    let mut rows = history(rest.store);
    let undone = undone(&rows);
    rows.retain(|row| taken_back(row).is_none_or(|(_, of)| !undone.contains(&of)));
    rows.retain(|row| is_of_undo(row) && row.outcome == End::Committed && row.rows == 0);
    rows.retain(|row| !row.reason.as_deref().is_some_and(|reason| reason.contains(REMOVED)));
    let said = rows.into_iter().map(|row| {
        format!("the undo of {} has put nothing back: {:?}", row.identity.key, row.reason)
    });
    said.collect()
}

fn asked(rest: &Rest<'_>) -> Vec<String> {
    let history = history(rest.store);
    let by_id: BTreeMap<u64, &HistoryRow> = history.iter().map(|row| (row.id, row)).collect();
    let mut ended: BTreeSet<u64> = history
        .iter()
        .filter(|row| is_of_undo(row))
        .filter_map(taken_back)
        .map(|of| of.1)
        .collect();
    let letters =
        now(rest.store.dead_letters(&DeadSelector::default(), Letters::All, None, u32::MAX));
    for letter in letters.expect("the dead letters") {
        let number = Target::parse(&letter.item.identity.key).ok().and_then(|t| t.number());
        ended.extend(number);
    }
    let (mut wanted, mut wrong) = (BTreeSet::new(), Vec::new());
    for command in now(rest.store.commands(None, u32::MAX)).expect("the commands") {
        let (Command::Undo(undo), Some(applied_at), false) =
            (&command.command, command.applied_at, command.refused)
        else {
            continue;
        };
        let target = Target::parse(&undo.target).expect("the operator's target");
        for row in by_id.values().filter(|row| row.outcome == End::Committed && row.rows > 0) {
            let is_asked = match &target {
                Target::Run(run) => row.run == *run,
                Target::Item(run, key) => row.run == *run && row.identity.key == *key,
                Target::Span { .. } => false,
            };
            if !is_asked {
                continue;
            }
            wanted.insert(row.id);
            if row.at + CLOCK_SLACK < applied_at && !ended.contains(&row.id) {
                let (id, key) = (command.id, &row.identity.key);
                wrong.push(format!("command {id} has not undone {key} of run {}", row.run));
            }
        }
    }
    let unasked = ended.difference(&wanted);
    wrong.extend(unasked.map(|id| format!("nobody has asked to undo row {id} of the history")));
    wrong
}
