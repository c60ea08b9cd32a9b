//! Validates the schedule and time zone of a task. `besom_core::cron` decides what a schedule means.

use std::time::Duration;

use besom_core::cron::{Place, Schedule};
use besom_core::time::Time;
use besom_core::window::Windows;

use super::quantity::show_duration;
use super::tree::Span;
use super::walk::Walker;

/// A schedule as written, with the places of its parts.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The expression; `None` for a task that runs only when triggered.
    pub expression: Option<&'a str>,
    /// Place of the expression.
    pub expression_span: &'a Span,
    /// IANA time zone.
    pub timezone: &'a str,
    /// Place of the time zone.
    pub timezone_span: &'a Span,
    /// How far ahead due items are planned, if set.
    pub horizon: Option<Duration>,
    /// Place of the horizon.
    pub horizon_span: &'a Span,
}

/// Start of the year whose slots represent every year (2025), so that the same text always results in the
/// same task.
const REFERENCE: Time = Time::from_secs(1_735_689_600);

/// Reports what is wrong with a schedule. Returns the widest gap between its slots, or `None` without a
/// valid schedule.
pub fn judge(walker: &mut Walker<'_>, written: &Written<'_>) -> Option<Duration> {
    // Without an expression, the time zone is still validated.
    let schedule = match Schedule::parse(written.expression.unwrap_or("@daily"), written.timezone) {
        Ok(schedule) => schedule,
        Err(error) => {
            let span = match error.place {
                Place::Expression => {
                    walker.source.inside(written.expression_span, written.expression, &error.range)
                }
                Place::Zone => walker.source.inside(
                    written.timezone_span,
                    Some(written.timezone),
                    &error.range,
                ),
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
            "use a longer horizon, or a schedule that runs more often",
        );
    }
    Some(gap)
}

/// How many weeks of the reference year are searched for a slot in a window: a slot may lie in one of
/// them only.
const WEEKS: u32 = 53;

/// Whether any slot of a year lies in a window.
pub fn meets(schedule: &Schedule, windows: &Windows) -> bool {
    let week = Duration::from_secs(7 * 86_400);
    (0..WEEKS).any(|weeks| {
        let from = REFERENCE + week * weeks;
        let openings = windows.openings(from).take_while(|(opens, _)| *opens < from + week);
        openings.into_iter().any(|(opens, closes)| {
            let before = Time(opens.micros() - 1);
            schedule.next_after(before).is_some_and(|slot| slot < closes)
        })
    })
}

/// Returns the widest gap between two slots of a schedule, or `None` for an invalid schedule.
pub fn longest_gap(expression: &str, timezone: &str) -> Option<Duration> {
    Some(Schedule::parse(expression, timezone).ok()?.longest_gap(REFERENCE))
}

/// Returns a warning and its fix if a valid schedule has a day without a run in the four years after
/// `now`, because of a clock change.
pub fn remark(expression: &str, timezone: &str, now: Time) -> Option<(String, &'static str)> {
    let day = Schedule::parse(expression, timezone).ok()?.day_without_run(now)?;
    let fix = "choose a time outside the clock change, or timezone = \"UTC\"";
    Some((day.warning, fix))
}
