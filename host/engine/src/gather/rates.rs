//! The rates of planned and ended items, derived from the store's counters.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::time::Time;

use besom_ports::store::Depth;

/// The period over which rates are computed.
const OVER: Duration = Duration::from_secs(60);
/// The minimum period before a rate is reported.
const SPAN_MIN: Duration = Duration::from_secs(3);

/// By task: the number of items ever planned, and how many of them have ended.
type Counted = BTreeMap<TaskName, (u64, u64)>;

/// The counts of the last minute, oldest first.
#[derive(Debug, Default)]
pub struct Rates(VecDeque<(Time, Counted)>);

impl Rates {
    /// Adds the current counts, by the store's clock.
    pub fn count(&mut self, now: Time, depths: &[Depth]) {
        let counted = depths.iter().filter_map(|depth| {
            let waits = depth.log + depth.timers + depth.retries;
            Some((depth.task.clone()?, (depth.planned, depth.planned.saturating_sub(waits))))
        });
        self.0.push_back((now, counted.collect()));
        while self.0.len() > 2 && self.0.get(1).is_some_and(|(at, _)| now.since(*at) >= OVER) {
            self.0.pop_front();
        }
    }

    /// Items planned and items ended per second; `None`: not known yet.
    pub fn of(&self, task: &TaskName) -> (Option<f64>, Option<f64>) {
        let (Some((from, then)), Some((to, now))) = (self.0.front(), self.0.back()) else {
            return (None, None);
        };
        let span = to.since(*from);
        if span < SPAN_MIN {
            return (None, None);
        }
        let Some(now) = now.get(task) else { return (None, None) };
        let before = then.get(task).copied().unwrap_or_default();
        let rate = |now: u64, then: u64| {
            Some((now.saturating_sub(then) as f64 / span.as_secs_f64() * 10.0).round() / 10.0)
        };
        (rate(now.0, before.0), rate(now.1, before.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds, items ever planned, waiting items.
    type Look = (i64, u64, u64);

    #[track_caller]
    fn check(why: &str, looks: &[Look], expected: (Option<f64>, Option<f64>)) {
        let task = TaskName::from("sweep");
        let mut rates = Rates::default();
        for (at, planned, waits) in looks {
            // Regardless of where it is waiting.
            let third = waits / 3;
            let depth = Depth {
                task: Some(task.clone()),
                planned: *planned,
                log: waits - 2 * third,
                timers: third,
                retries: third,
                ..Depth::default()
            };
            rates.count(Time::from_secs(*at), &[depth]);
        }
        assert_eq!(rates.of(&task), expected, "{why}: {looks:?}");
        assert_eq!(rates.of(&"another".into()), (None, None));
    }

    #[test]
    fn what_comes_and_what_goes_is_told_per_second_over_the_last_minute() {
        let both = |came, went| (Some(came), Some(went));
        check("nothing was counted", &[], (None, None));
        check("one look tells no rate", &[(0, 9, 3)], (None, None));
        check("nor does a moment", &[(0, 0, 0), (2, 90, 0)], (None, None));
        check("what came and went", &[(0, 0, 0), (10, 100, 40)], both(10.0, 6.0));
        check("what only waits has not gone", &[(0, 50, 50), (10, 50, 50)], both(0.0, 0.0));
        check("a queue that drains", &[(0, 500, 500), (20, 500, 100)], both(0.0, 20.0));
        check("to a tenth", &[(0, 0, 0), (30, 100, 0)], both(3.3, 3.3));
        let quiet = [(0, 0, 0), (30, 300, 0), (60, 300, 0), (95, 300, 0)];
        check("what was longer ago counts no more", &quiet, both(0.0, 0.0));
        // There are only two counts, which are far apart.
        check("a gap", &[(0, 0, 0), (200, 100, 0)], both(0.5, 0.5));
        check("a database that was restored", &[(0, 900, 0), (10, 100, 0)], both(0.0, 0.0));
    }

    #[test]
    fn a_task_that_is_new_has_come_from_nothing() {
        let mut rates = Rates::default();
        rates.count(Time::from_secs(0), &[]);
        let depth = Depth { task: Some("new".into()), planned: 20, ..Depth::default() };
        rates.count(Time::from_secs(10), &[depth]);
        assert_eq!(rates.of(&"new".into()), (Some(2.0), Some(2.0)));
    }
}
