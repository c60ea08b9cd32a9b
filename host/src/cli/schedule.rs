//! `besom schedule next`: prints the next times of an expression. Needs no configuration.

use besom_core::cron::{Place, Schedule, Upcoming};
use besom_core::time::Time;
use clap::Subcommand;

use super::output::{self, Table};
use super::{Exit, Failure, Global};

/// Maximum number of printed times.
const TIMES_MAX: u32 = 10_000;

/// `besom schedule`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the next times of an expression, in UTC and in its time zone.
    Next(Next),
}

/// `besom schedule next`.
#[derive(Debug, clap::Args)]
pub struct Next {
    /// Five fields, six with seconds first, a macro such as `@hourly`, or `@every 30s`.
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    expression: String,
    /// IANA time zone of the expression.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Print times after this instant, exclusive (default: now).
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    from: Option<Time>,
    /// Number of times to print.
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(TIMES_MAX)))]
    n: u32,
}

/// Parses an instant in RFC 3339.
pub fn instant(text: &str) -> Result<Time, String> {
    text.parse::<jiff::Timestamp>().map(Time::from_jiff).map_err(|_| {
        // A date and a time with an offset are an instant, but one that cannot be represented.
        let pieces = jiff::fmt::temporal::Pieces::parse(text);
        match pieces.is_ok_and(|found| found.time().is_some() && found.offset().is_some()) {
            true => format!(
                "the instant must be between {} and {}",
                jiff::Timestamp::MIN,
                jiff::Timestamp::MAX
            ),
            false => "write an instant as RFC 3339, such as 2026-03-29T01:30:00Z".to_owned(),
        }
    })
}

impl Verb {
    /// Computes the times and prints them.
    pub fn run(self, global: &Global) -> Result<Exit, Failure> {
        let Verb::Next(next) = self;
        let schedule = Schedule::parse(&next.expression, &next.tz).map_err(|error| {
            let text = match error.place {
                Place::Expression => &next.expression,
                Place::Zone => &next.tz,
            };
            // Errors are escaped into one line, so the place is quoted instead of marked with a caret.
            let part = text.get(error.range.clone()).unwrap_or(text);
            let place = if part.is_empty() { String::new() } else { format!(" at `{part}`") };
            Failure::Usage(format!("`{text}`{place}: {error}"))
        })?;
        let from = next.from.unwrap_or_else(|| Time::from_jiff(jiff::Timestamp::now()));
        let times: Vec<Upcoming> = schedule.upcoming(from, next.n as usize);
        let json: Vec<_> = times
            .iter()
            .map(|t| {
                let utc = t.utc.to_string();
                serde_json::json!({ "utc": utc, "local": t.local, "note": t.note })
            })
            .collect();
        output::show(global.output, &json, || {
            let mut table = Table::new("No more times: the schedule never runs again.");
            for t in &times {
                table.row([
                    ("UTC", &t.utc),
                    ("LOCAL", &t.local),
                    ("NOTE", &t.note.as_deref().unwrap_or_default()),
                ]);
            }
            table.render()
        })?;
        Ok(Exit::Fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_is_too_late_is_not_called_malformed() {
        assert!(instant("2026-03-29T01:30:00Z").is_ok());
        for late in ["9999-12-31T23:59:59Z", "9999-12-31T23:00:00+00:00"] {
            let said = instant(late).unwrap_err();
            assert!(said.contains("9999-12-30T22:00:00"), "{late}: {said}");
        }
        for malformed in ["tomorrow", "2026-03-29", "2026-03-29T01:30:00", "99999-12-31T00:00:00Z"]
        {
            let said = instant(malformed).unwrap_err();
            assert!(said.contains("RFC 3339"), "{malformed}: {said}");
        }
    }
}
