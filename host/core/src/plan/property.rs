//! Under any policy and any history, every slot is explained exactly once.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::tests::{TERM, secs, state};
use super::*;
use crate::cron::Schedule;

fn policies() -> impl Strategy<Value = Policy> {
    let overlap = prop_oneof![Just(Overlap::Skip), Just(Overlap::Queue), Just(Overlap::Allow)];
    let catch_up =
        prop_oneof![Just(CatchUp::Skip), Just(CatchUp::Coalesce), (0u32..6).prop_map(CatchUp::All)];
    (overlap, catch_up, 0u64..90, 0u64..120).prop_map(|(overlap, catch_up, jitter, grace)| Policy {
        overlap,
        catch_up,
        jitter: Duration::from_secs(jitter),
        grace: Duration::from_secs(grace),
    })
}

/// An event between two decisions.
#[derive(Debug, Clone)]
enum Step {
    /// The clock moves by this many seconds, possibly backwards.
    Clock(i64),
    /// The oldest run ends.
    End,
    /// A new leader takes over; the decision of the old one was lost or stored.
    Takeover {
        stored: bool,
    },
    Pause,
    Resume,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1i64..100).prop_map(Step::Clock),
        1 => (200i64..2_000).prop_map(Step::Clock),
        1 => (-100i64..0).prop_map(Step::Clock),
        3 => Just(Step::End),
        1 => any::<bool>().prop_map(|stored| Step::Takeover { stored }),
        1 => Just(Step::Pause),
        1 => Just(Step::Resume),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_slot_is_explained_once_and_runs_at_most_once(policy in policies(), steps in steps()) {
        let schedule = Schedule::parse("*/30 * * * * *", "UTC").unwrap();
        let (begin, mut now) = (secs(0), secs(0));
        let mut state = TaskState { schedule: schedule.canonical().into(), last_slot: Some(begin), ..state(0) };
        let mut leadership = TERM;
        let mut active: Vec<ActiveRun> = Vec::new();
        let mut history: Vec<SlotRecord> = Vec::new();
        let mut explained: BTreeMap<Time, SlotOutcome> = BTreeMap::new();
        let (mut runs, mut seen) = (0, now);
        for step in steps {
            let mut stored = true;
            match step {
                // A larger step back means that the clock was set; then the watermark is set back.
                Step::Clock(by) => {
                    let least = state.last_slot.unwrap() - CLOCK_BACK_MAX;
                    now = Time((now.micros() + by * 1_000_000).max(0)).max(least);
                }
                Step::End => { active.drain(..active.len().min(1)); }
                Step::Takeover { stored: kept } => {
                    leadership = Leadership { term: Term(leadership.term.0 + 1), since: now };
                    stored = kept;
                }
                Step::Pause => state.paused = Some(Pause { by: "a".into(), reason: "b".into(), since: now }),
                Step::Resume => state.paused = None,
            }
            let decision = decide(now, leadership, Some(&schedule), &policy, &state, &active);
            seen = seen.max(now);
            // Deciding is pure: a second call decides the same.
            prop_assert_eq!(&decision, &decide(now, leadership, Some(&schedule), &policy, &state, &active));
            prop_assert!(decision.next.is_none_or(|next| next > now));
            if !stored {
                continue;
            }
            for row in &decision.slots {
                if !history.last_mut().is_some_and(|last| last.absorb(row)) {
                    history.push(row.clone());
                }
                let slots = schedule.latest(Time(row.from.micros() - 1), row.to, u32::MAX);
                prop_assert_eq!(slots.len() as u64, row.count, "{:?}", row);
                prop_assert!(!row.reason.is_empty());
                for slot in slots {
                    let before = explained.insert(slot, row.outcome.clone());
                    prop_assert!(matches!(before, None | Some(SlotOutcome::Queued)), "{} twice: {:?}, {:?}", slot, before, row);
                }
            }
            for start in &decision.starts {
                prop_assert_eq!(&explained[&start.slot], &SlotOutcome::Ran);
                prop_assert!(start_of(&state.task, &schedule, &policy, start.slot) <= seen);
                runs += 1;
                active.push(ActiveRun { run: RunId(runs), slot: start.slot, started_at: now, trigger: Trigger::Schedule, held: false });
            }
            if policy.overlap != Overlap::Allow {
                prop_assert!(active.len() <= 1);
            }
            state = decision.state;
            // The decision is final: a second call finds nothing to do.
            let again = decide(now, leadership, Some(&schedule), &policy, &state, &active);
            prop_assert!(!again.changed, "{:?}", again);
            let known = schedule.latest(begin, state.last_slot.unwrap(), u32::MAX);
            prop_assert_eq!(explained.keys().copied().collect::<Vec<_>>(), known);
            let waiting: Vec<Time> = explained.iter().filter(|(_, o)| **o == SlotOutcome::Queued).map(|(t, _)| *t).collect();
            prop_assert_eq!(&state.queued_slots, &waiting);
        }
        for row in history {
            let spanned = schedule.count(Time(row.from.micros() - 1), row.to);
            prop_assert_eq!(row.count, spanned, "rows that do not follow one another were merged: {:?}", row);
        }
        prop_assert_eq!(explained.values().filter(|outcome| **outcome == SlotOutcome::Ran).count() as u64, runs);
    }
}
