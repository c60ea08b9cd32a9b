//! A task's schedule and time zone, as the configuration judges them. What a schedule
//! means is decided in `besom_core::cron`.

use std::time::Duration;

use besom_core::cron::{Place, Schedule, ScheduleError};
use besom_core::time::Time;

use super::quantity::show_duration;
use super::tree::Span;
use super::walk::Walker;

/// A schedule as it is written, and where.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The expression; none: only by trigger.
    pub expression: Option<&'a str>,
    /// Where it stands.
    pub expression_span: &'a Span,
    /// The time zone.
    pub timezone: &'a str,
    /// Where it stands.
    pub timezone_span: &'a Span,
    /// How far ahead due items are planned, where that is given.
    pub horizon: Option<Duration>,
    /// Where it stands.
    pub horizon_span: &'a Span,
}

/// The year whose slots stand for every year, so that the same text always gives the same
/// task.
const REFERENCE: Time = Time::from_secs(1_735_689_600);

/// Notes what is wrong with a schedule. Returns the widest gap between its slots.
pub fn judge(walker: &mut Walker<'_>, written: &Written<'_>) -> Option<Duration> {
    // Without an expression the time zone is judged all the same.
    let schedule = match Schedule::parse(written.expression.unwrap_or("@daily"), written.timezone) {
        Ok(schedule) => schedule,
        Err(error) => {
            let span = match error.place {
                Place::Expression => {
                    inside(walker, written.expression_span, written.expression, &error)
                }
                Place::Zone => {
                    inside(walker, written.timezone_span, Some(written.timezone), &error)
                }
            };
            walker.error(&span, error.message, error.fix);
            return None;
        }
    };
    written.expression?;
    let gap = schedule.longest_gap(REFERENCE);
    if let Some(horizon) = written.horizon.filter(|horizon| *horizon < gap) {
        walker.error(
            written.horizon_span,
            format!(
                "due items are planned {} ahead, but {} may pass between two slots",
                show_duration(horizon),
                show_duration(gap)
            ),
            "lengthen the horizon or let the schedule run more often",
        );
    }
    Some(gap)
}

/// The widest gap between two slots of a schedule; none: it is not one.
pub fn longest_gap(expression: &str, timezone: &str) -> Option<Duration> {
    Some(Schedule::parse(expression, timezone).ok()?.longest_gap(REFERENCE))
}

/// What deserves a look about a schedule that is right (a day without a run, in the four years
/// after `now`), and what to do about it.
pub fn remark(expression: &str, timezone: &str, now: Time) -> Option<(String, &'static str)> {
    let day = Schedule::parse(expression, timezone).ok()?.day_without_run(now)?;
    let fix = "choose a time outside the change of the clocks, or timezone = \"UTC\"";
    Some((day.warning, fix))
}

/// The bytes of the file that a part of a text stands for; the whole value where the text is
/// written with escapes.
fn inside(walker: &Walker<'_>, value: &Span, text: Option<&str>, error: &ScheduleError) -> Span {
    let written = walker.source.text().get(value.clone()).unwrap_or_default();
    let same = written.len() > 1 && text == written.get(1..written.len() - 1);
    if !same {
        return value.clone();
    }
    let start = value.start + 1;
    start + error.range.start..start + error.range.end
}
