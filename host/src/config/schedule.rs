//! A task's schedule and time zone, as the configuration judges them. What a schedule
//! means is decided in `besom_core::cron`.

use std::time::Duration;

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

/// Notes what is wrong with a schedule. Returns the widest gap between its slots.
pub fn judge(walker: &mut Walker<'_>, written: &Written<'_>) -> Option<Duration> {
    if jiff::tz::TimeZone::get(written.timezone).is_err() {
        let fix = match super::keys::nearest(
            written.timezone,
            jiff::tz::db()
                .available()
                .map(|n| n.as_str().to_owned())
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str),
        ) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "write an IANA name such as \"Europe/Berlin\"".to_owned(),
        };
        walker.error(
            written.timezone_span,
            format!("`{}` is no time zone known here", written.timezone),
            fix,
        );
    }
    None
}
