//! Messages to the host's log, which adds the task and the run.

use crate::bindings::besom::task::log::Level;
use crate::{Item, Verdict, host};

/// How many items of a batch are named when they are set aside; the rest is only counted.
const NAMED_MAX: usize = 5;

macro_rules! levels {
    ($($name:ident $level:ident $doc:literal;)*) => {
        $(#[doc = $doc]
        pub fn $name(message: impl AsRef<str>) {
            host::log(Level::$level, message.as_ref());
        })*
    };
}

levels! {
    debug Debug "Logs a detail for debugging the task.";
    info Info "Logs information for operators.";
    warn Warn "Logs a problem that an operator should examine.";
    error Error "Logs a failure.";
}

/// Logs one line that summarises the verdicts of a batch, and a warning for each of the first items
/// that are set aside. `what` names the items and `proposed` the intended effect of the proposals,
/// which the host has yet to commit. `more` is appended unless it is empty.
pub fn batch(items: &[Item], verdicts: &[Verdict], what: &str, proposed: &str, more: &str) {
    let (mut proposals, mut skips, mut retries, mut dead) = (0, 0, 0, 0);
    for (item, verdict) in items.iter().zip(verdicts) {
        match verdict {
            Verdict::Propose(_) => proposals += 1,
            Verdict::Skip(_) => skips += 1,
            Verdict::Retry(_) => retries += 1,
            Verdict::Dead(reason) => {
                dead += 1;
                if dead <= NAMED_MAX {
                    let tenant = item.tenant.as_deref().unwrap_or("-");
                    warn(format!("set aside: {tenant} {}: {reason}", item.key));
                }
            }
        }
    }
    if dead > NAMED_MAX {
        warn(format!("set aside: {} more", dead - NAMED_MAX));
    }
    let what = match verdicts.len() {
        1 => what.strip_suffix('s').unwrap_or(what),
        _ => what,
    };
    let mut line = format!("batch of {} {what}: {proposals} {proposed}", verdicts.len());
    for (count, word) in [(skips, "skipped"), (retries, "to be retried"), (dead, "set aside")] {
        if count > 0 {
            line.push_str(&format!(", {count} {word}"));
        }
    }
    if !more.is_empty() {
        line.push_str(", ");
        line.push_str(more);
    }
    info(line);
}
