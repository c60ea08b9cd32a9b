//! The next slots of the edited task together with those of all other tasks: which coincide, and
//! how they are distributed over the next days.
//!
//! It is computed only while it is visible and something has changed, not for every snapshot: with
//! many tasks it takes milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::time::Time;
use besom_core::window::Windows;
use besom_snapshot::Snapshot;

use super::check::Valid;

/// Slots of the edited task that are compared with the other tasks' slots.
pub const SLOTS: usize = 20;
/// Tasks that are compared; the number of the others is displayed.
pub const TASKS_MAX: usize = 100;
/// Tasks drawn beside the edited one.
pub const LANES_MAX: usize = 8;
/// Cells of a lane: the hours of a week.
pub const CELLS: usize = 7 * 24;

/// A task's slots per hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The task's name in the configuration.
    pub task: String,
    /// Slots in each hour, saturating at `u16::MAX`.
    pub hours: Vec<u16>,
}

/// The upcoming slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agenda {
    /// The hour that the lanes begin with.
    pub from: Time,
    /// For each slot of the edited task: the other tasks with the same slot.
    pub collisions: BTreeMap<Time, Vec<String>>,
    /// The edited task first, then the tasks that collide with it, then others.
    pub lanes: Vec<Lane>,
    /// The number of tasks that were not compared.
    pub left_out: usize,
    /// The inputs of the last computation.
    seen: (String, String, usize, i64),
}

const HOUR_US: i64 = 3_600_000_000;
const MINUTE_US: i64 = 60_000_000;

impl Agenda {
    /// Computes it again if the edited schedule, the number of tasks or the minute has changed.
    pub fn look(&mut self, snapshot: &Snapshot, task: &str, valid: Option<&Valid>, now: Time) {
        let minute = now.0.div_euclid(MINUTE_US);
        let (expression, zone) =
            valid.map_or(("", ""), |valid| (valid.expression.as_str(), valid.zone.as_str()));
        let (seen, tasks) = (&self.seen, snapshot.tasks.len());
        if (seen.0.as_str(), seen.1.as_str(), seen.2, seen.3) == (expression, zone, tasks, minute) {
            return;
        }
        let seen = (expression.to_owned(), zone.to_owned(), tasks, minute);
        *self = Agenda { seen, ..Agenda::of(snapshot, task, valid, now) };
    }

    fn of(snapshot: &Snapshot, task: &str, valid: Option<&Valid>, now: Time) -> Agenda {
        let from = Time(now.0.div_euclid(HOUR_US) * HOUR_US);
        let windows = snapshot.task(task).map(|task| task.windows.clone()).unwrap_or_default();
        let slots: Vec<Time> = valid.map_or_else(Vec::new, |valid| {
            let next = |at: &Time| windows.next_slot(&valid.schedule, *at);
            let all = std::iter::successors(next(&now), next);
            // The result is valid for the current minute: its slots, and as many as are shown after
            // it.
            let over = Time((now.0.div_euclid(MINUTE_US) + 1) * MINUTE_US);
            let mut after = 0;
            let wanted = |slot: &Time| {
                after += usize::from(*slot > over);
                after <= SLOTS
            };
            all.take_while(wanted).collect()
        });
        let others: Vec<_> = snapshot
            .tasks
            .iter()
            .filter(|other| other.name != task && other.paused.is_none())
            .filter_map(|other| Some((other, other.schedule.as_deref()?)))
            .collect();
        let mut agenda =
            Agenda { from, left_out: others.len().saturating_sub(TASKS_MAX), ..Agenda::default() };
        let mut lanes = Vec::new();
        for (other, expression) in others.into_iter().take(TASKS_MAX) {
            let Ok(schedule) = Schedule::parse(expression, &other.timezone) else { continue };
            let mut together = 0;
            let runs = |slot: &&Time| schedule.is_slot(**slot) && other.windows.is_open(**slot);
            for slot in slots.iter().filter(runs) {
                agenda.collisions.entry(*slot).or_default().push(other.name.clone());
                together += 1;
            }
            lanes.push((std::cmp::Reverse(together), lanes.len(), other, schedule));
        }
        lanes.sort_by_key(|(together, at, ..)| (*together, *at));
        let lane = |task: &str, windows: &Windows, schedule: &Schedule| {
            let counts = windows
                .counts(schedule, from, Duration::from_micros(HOUR_US as u64), CELLS)
                .into_iter();
            let hours = counts.map(|count| u16::try_from(count).unwrap_or(u16::MAX)).collect();
            Lane { task: task.to_owned(), hours }
        };
        agenda.lanes.extend(valid.map(|valid| lane(task, &windows, &valid.schedule)));
        let drawn = lanes.iter().take(LANES_MAX);
        let drawn = drawn.map(|(.., other, schedule)| lane(&other.name, &other.windows, schedule));
        agenda.lanes.extend(drawn);
        agenda
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_core::window::Window;
    use besom_snapshot::{Pause, Task};

    use super::super::check::Check;
    use super::super::values::{Name, Values};
    use super::*;

    fn task(name: &str, schedule: &str) -> Task {
        Task {
            name: name.into(),
            schedule: Some(schedule.into()),
            timezone: "UTC".into(),
            ..Task::default()
        }
    }

    fn check(schedule: &str) -> Check {
        let mut values = Values::default();
        values.set(Name::Schedule, schedule);
        values.set(Name::Timezone, "UTC");
        Check::of(&values)
    }

    #[test]
    fn slots_that_come_together_are_named() {
        let paused = Task { paused: Some(Pause::default()), ..task("paused", "* * * * *") };
        let tasks = [
            task("rare", "0 0 1 1 *"),
            task("mine", "* * * * *"),
            task("hourly", "@hourly"),
            task("wrong", "not a schedule"),
            paused,
        ];
        let snapshot =
            Snapshot { tasks: tasks.into_iter().map(Arc::new).collect(), ..Snapshot::default() };
        let check = check("*/30 * * * *");
        let mut agenda = Agenda::default();
        // 1970-01-02T00:10.
        agenda.look(&snapshot, "mine", check.valid.as_ref(), Time::from_secs(87_000));
        assert_eq!(agenda.collisions.len(), SLOTS / 2, "every other slot is a full hour");
        assert!(agenda.collisions.values().all(|tasks| tasks == &["hourly"]));
        let lanes: Vec<_> = agenda.lanes.iter().map(|lane| lane.task.as_str()).collect();
        assert_eq!(lanes, ["mine", "hourly", "rare"]);
        assert_eq!(agenda.from, Time::from_secs(86_400));
        assert!(agenda.lanes[0].hours.iter().all(|hour| *hour == 2));
        assert!(agenda.lanes[1].hours.iter().all(|hour| *hour == 1));
        assert!(agenda.lanes[2].hours.iter().all(|hour| *hour == 0));
        // Outside its windows, a task does not run.
        let night = Windows::new(vec![Window::read("01:00-02:00", "UTC").expect("a window")]);
        let night = Task { windows: night, ..task("mine", "* * * * *") };
        let snapshot = Snapshot { tasks: vec![Arc::new(night)], ..Snapshot::default() };
        let agenda = Agenda::of(&snapshot, "mine", check.valid.as_ref(), Time::from_secs(87_000));
        assert_eq!(agenda.lanes[0].hours[..3], [0, 2, 0]);
    }

    #[test]
    fn every_slot_that_is_shown_is_compared_until_the_minute_is_over() {
        let snapshot =
            Snapshot { tasks: vec![Arc::new(task("each", "@every 1s"))], ..Snapshot::default() };
        let check = check("@every 3s");
        let valid = check.valid.as_ref().expect("it is valid");
        let mut agenda = Agenda::default();
        for second in 87_000..87_060 {
            let now = Time::from_secs(second);
            agenda.look(&snapshot, "mine", Some(valid), now);
            let mut at = now;
            for shown in 0..SLOTS {
                at = valid.schedule.next_after(at).expect("a slot");
                assert!(agenda.collisions.contains_key(&at), "slot {shown} at second {second}");
            }
        }
    }

    #[test]
    fn too_many_tasks_are_left_out_aloud() {
        let tasks = (0..TASKS_MAX + 7).map(|n| Arc::new(task(&format!("t{n}"), "@daily")));
        let snapshot = Snapshot { tasks: tasks.collect(), ..Snapshot::default() };
        let mut agenda = Agenda::default();
        agenda.look(&snapshot, "mine", check("@daily").valid.as_ref(), Time::EPOCH);
        assert_eq!((agenda.left_out, agenda.lanes.len()), (7, 1 + LANES_MAX));
        agenda.look(&snapshot, "mine", None, Time::EPOCH);
        assert!(agenda.collisions.is_empty(), "nothing valid is typed yet");
    }
}
