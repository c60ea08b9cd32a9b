//! Runs that no slot asks for: a person's, a takeover's, those of `besom run`.

use super::{ActiveRun, Overlap, Policy, SlotOutcome, SlotRecord, Start, TaskState, Trigger};
use crate::ids::Term;
use crate::time::Time;

/// What becomes of a run that no slot asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// It is started. The row explains it.
    Start {
        /// The run; its slot is now.
        start: Start,
        /// Its row of the slot history.
        record: SlotRecord,
    },
    /// Not yet, for this reason: ask again when a run of the task has ended.
    Wait(String),
    /// Not at all, for this reason.
    Refuse(String),
}

/// Decides about a run that a person, a takeover or `besom run` asks for. A pause stops what
/// happens by itself, not what a person asks for; `overlap` holds for all.
pub fn admit(
    now: Time,
    term: Term,
    trigger: Trigger,
    policy: &Policy,
    state: &TaskState,
    active: &[ActiveRun],
) -> Admission {
    let reason = match &trigger {
        Trigger::Manual { by, reason } => format!("triggered by {by}: {reason}"),
        Trigger::Takeover => "run at the start of the leader".to_owned(),
        Trigger::Pass => "run by `besom run`".to_owned(),
        Trigger::Schedule => "run for its schedule".to_owned(),
    };
    if let (Trigger::Takeover | Trigger::Schedule, Some(pause)) = (&trigger, &state.paused) {
        return Admission::Refuse(format!(
            "paused by {} since {}: {}",
            pause.by, pause.since, pause.reason
        ));
    }
    if let Some(run) = active.first().filter(|_| policy.overlap != Overlap::Allow) {
        let way = format!("run {} has been active since {}", run.run, run.started_at);
        return match (&trigger, policy.overlap) {
            // Nobody is there to ask again after a takeover.
            (Trigger::Takeover, _) | (_, Overlap::Queue) => {
                Admission::Wait(format!("it waits: {way}"))
            }
            _ => Admission::Refuse(format!(
                "{way}; with overlap = \"skip\" a task has one run at a time"
            )),
        };
    }
    let record = SlotRecord {
        task: state.task.clone(),
        from: now,
        to: now,
        count: 1,
        outcome: SlotOutcome::Ran,
        reason,
        run: None,
        term,
    };
    Admission::Start { start: Start { slot: now, trigger }, record }
}
