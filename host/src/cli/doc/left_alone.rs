//! `besom doc left-alone`: lists the documents that compaction left alone or set aside, and why.

use super::super::output::{self, Table};
use super::super::{Exit, Failure, Global};
use besom_product::doc::{State, Words};

/// Prints the counts of the reasons, then the documents.
pub(super) fn print(global: &Global, words: &Words) -> Result<Exit, Failure> {
    output::show(global.output, words, || {
        let mut reasons = Table::new("");
        for (reason, count) in &words.reasons {
            reasons.row([(">DOCUMENTS", &count), ("REASON", &reason)]);
        }
        let mut table = Table::new("No document is left alone.");
        for left in &words.documents {
            let tenant = left.tenant.as_ref().map_or(String::new(), |tenant| format!("{tenant}/"));
            let state = if left.state == State::Dead { "set aside" } else { "left alone" };
            table.row([
                ("SINCE", &left.at),
                ("DOCUMENT", &format!("{tenant}{}", left.document)),
                ("STATE", &state),
                ("WHY", &left.reason),
            ]);
        }
        let mut text = table.render();
        if !words.reasons.is_empty() {
            text = format!("{}\n{text}", reasons.render());
        }
        if words.cut {
            text.push_str("\nOlder history was not examined.\n");
        }
        text
    })?;
    Ok(Exit::Fine)
}
