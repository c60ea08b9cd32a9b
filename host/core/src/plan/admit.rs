//! Runs without a slot: an operator's, a takeover's, and those of `besom run`.

use super::{ActiveRun, Overlap, Policy, SlotOutcome, SlotRecord, Start, TaskState, Trigger};
use crate::command::with_reason;
use crate::ids::Term;
use crate::time::Time;

/// The decision about a run without a slot.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// The run is started. The row explains it.
    Start {
        /// The run; its slot is now.
        start: Start,
        /// Its row of the slot history.
        record: SlotRecord,
    },
    /// The run has to wait, for this reason: ask again when a run of the task has ended.
    Wait(String),
    /// The run is refused, for this reason.
    Refuse(String),
}

/// Decides about a run that an operator, a takeover or `besom run` requests. A pause stops all but a
/// pass, which includes paused tasks only if it is asked to; `overlap` applies to all.
pub fn admit(
    now: Time,
    term: Term,
    trigger: Trigger,
    policy: &Policy,
    state: &TaskState,
    active: &[ActiveRun],
) -> Admission {
    let reason = match &trigger {
        Trigger::Manual { by, reason } => with_reason(&format!("triggered by {by}"), reason),
        Trigger::Takeover => "run at the leader's start".to_owned(),
        Trigger::Pass => "run by `besom run`".to_owned(),
        Trigger::Schedule => "scheduled run".to_owned(),
    };
    if let Some(pause) = state.paused.as_ref().filter(|_| trigger != Trigger::Pass) {
        return Admission::Refuse(pause.words());
    }
    if let Some(run) = active.first().filter(|_| policy.overlap != Overlap::Allow) {
        let id = run.run;
        let way = format!("run {id} has been active since {}", run.started_at);
        return match (&trigger, policy.overlap) {
            // After a takeover no caller would ask again.
            (Trigger::Takeover, _) | (_, Overlap::Queue) => {
                Admission::Wait(format!("waiting: {way}"))
            }
            _ if run.held => Admission::Refuse(format!(
                "{way}, and its plan needs a decision first: `besom review show {id}`, then `besom review approve \
                 {id}` or `besom review reject {id} --reason TEXT`"
            )),
            _ => Admission::Refuse(format!("{way}; overlap = \"skip\" allows one run at a time")),
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
