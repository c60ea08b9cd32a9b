//! Messages into the host's log, where they carry the task and the run.

use crate::bindings::besom::task::log::Level;
use crate::{Item, Verdict, host};

/// Items of a batch that are named when they are set aside; of the others only their number is
/// said.
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
    debug Debug "For whoever debugs the task.";
    info Info "What an operator may want to know.";
    warn Warn "What an operator should look at.";
    error Error "What has gone wrong.";
}

/// Says what an act makes of its batch: one line, and a warning for each of the first items that
/// are set aside. `what` are the items, and `proposed` is what is to become of those with a
/// proposal: the host has yet to commit it. `more` follows where it is not empty.
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
    let mut line = format!("batch of {} {what}: {proposals} {proposed}", verdicts.len());
    for (count, word) in [(skips, "skipped"), (retries, "to be tried again"), (dead, "set aside")] {
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
