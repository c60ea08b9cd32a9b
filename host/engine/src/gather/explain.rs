//! Explains a slot from the stored history, or from the schedule if the history has no record of it.

use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::ids::TaskName;
use besom_core::plan;
use besom_core::time::Time;
use besom_core::window::Windows;
use besom_snapshot::Explained;

use super::refused::standing;
use besom_ports::store::{Result, Store};

/// Maximum number of records read about one slot.
const RECORDS_MAX: u32 = 64;

/// Explains why a slot ran or did not run. `schedule` is the task's current one; `None`: it runs only
/// when triggered. Outside the task's windows, a slot does not run.
///
/// # Errors
/// Those of the store.
pub async fn explain(
    store: &dyn Store,
    schedule: Option<&Schedule>,
    windows: &Windows,
    task: &TaskName,
    at: Time,
) -> Result<Explained> {
    let now = store.now().await?;
    let mut records = store.slots(task, at, at, RECORDS_MAX).await?;
    if records.is_empty() {
        // A triggered run or a pass may start at any microsecond, but times are given to the second.
        let second = at + Duration::from_micros(999_999);
        records = store.slots(task, at, second, RECORDS_MAX).await?;
        records.retain(|record| record.from == record.to);
    }
    let on_schedule = schedule.map(|schedule| schedule.is_slot(at));
    // A record may cover many slots, and the time may lie between two of them.
    let decided = records.first().filter(|record| {
        record.from == record.to
            || record.from == at
            || record.to == at
            || on_schedule != Some(false)
    });
    let closed = windows.opens_at(at).filter(|_| decided.is_none() && on_schedule == Some(true));
    let closed = closed.map(|opens| {
        format!(", but outside the windows of the task, which opens at {opens}: it will not run")
    });
    let (outcome, reason) = match (decided, on_schedule) {
        (Some(record), _) => (record.outcome.as_str(), record.reason.clone()),
        (None, Some(true)) if at > now => {
            let closed = closed.as_deref().unwrap_or_default();
            ("to_come", format!("the schedule has a slot at that time{closed}"))
        }
        (None, Some(true)) => (
            "undecided",
            "the schedule has a slot at that time, but no leader has decided it: there was no leader yet, the history was pruned, or the schedule was different".to_owned(),
        ),
        (None, Some(false)) => {
            let near = schedule.and_then(|schedule| schedule.next_after(at));
            let near = near.map_or_else(String::new, |t| format!("; the next slot is {t}"));
            ("no_slot", format!("the schedule has no slot at that time{near}"))
        }
        (None, None) => {
            ("no_slot", "the task has no schedule and runs only when triggered".to_owned())
        }
    };
    let run = match decided.and_then(|record| record.run) {
        Some(id) => match store.run(id).await? {
            Some(run) => Some(standing(store, &run).await?),
            None => None,
        },
        None => None,
    };
    let mut text = plan::explain(at, now, schedule, &records);
    text.push_str(closed.as_deref().filter(|_| at > now).unwrap_or_default());
    Ok(Explained {
        task: task.to_string(),
        at,
        text,
        outcome: outcome.to_owned(),
        reason,
        records,
        run,
    })
}
