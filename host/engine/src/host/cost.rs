//! Records the cost of deciding about an item in its history.
//!
//! Only metered lanes are recorded: a note on each of a hundred thousand shares would cost more than
//! it is worth.

use std::time::Duration;

use besom_core::proposal::Verdict;
use besom_core::value::{Field, Value};

use besom_ports::guests::{Acted, Lane};

/// Adds the notes to every proposal. Items are decided together, so the notes contain the cost of
/// the whole call and the number of its items.
pub fn note(acted: &mut Acted, lane: Lane, took: Duration) {
    if !lane.row().metered {
        return;
    }
    let integer = |n: u64| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX));
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let fuel = Some(acted.usage.fuel).filter(|fuel| *fuel > 0);
    let cost: Vec<(&str, u64)> = [("act_ms", took_ms)]
        .into_iter()
        .chain(fuel.map(|fuel| ("act_fuel", fuel)))
        .chain([
            ("act_memory_bytes", acted.usage.memory_bytes),
            ("act_items", acted.verdicts.len() as u64),
        ])
        .collect();
    for verdict in &mut acted.verdicts {
        if let Ok(Verdict::Propose(proposal)) = verdict {
            let notes = cost.iter().map(|(name, value)| Field::new(*name, integer(*value)));
            proposal.notes.extend(notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use besom_core::proposal::{OnGuardFailed, Proposal};

    use super::*;
    use besom_ports::guests::Usage;

    #[test]
    fn a_heavy_proposal_says_what_its_call_has_cost() {
        let proposal = Proposal {
            guards: vec![],
            changes: vec![],
            on_guard_failed: OnGuardFailed::Retry(0),
            notes: vec![Field::new("mode", Value::Text("merge".into()))],
        };
        for (lane, fuel, expected) in [
            (Lane::Normal, 7, vec![]),
            (Lane::Heavy, 7, vec![1_500, 7, 0, 2]),
            // Fuel was not counted.
            (Lane::Heavy, 0, vec![1_500, 0, 2]),
        ] {
            let skip = Verdict::Skip { reason: "r".into(), settled: false };
            let mut acted = Acted {
                verdicts: vec![Ok(Verdict::Propose(proposal.clone())), Ok(skip.clone())],
                usage: Usage { fuel, ..Usage::default() },
            };
            note(&mut acted, lane, Duration::from_micros(1_500_999));
            let [Ok(Verdict::Propose(noted)), Ok(other)] = &acted.verdicts[..] else {
                panic!("{acted:?}")
            };
            assert_eq!((noted.notes[0].name.as_str(), other), ("mode", &skip));
            let values: Vec<Value> = noted.notes[1..].iter().map(|n| n.value.clone()).collect();
            let expected: Vec<Value> = expected.into_iter().map(Value::Integer).collect();
            assert_eq!(values, expected, "{lane:?}");
        }
    }
}
