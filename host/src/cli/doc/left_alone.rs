//! `besom doc left-alone`: lists the documents that compaction left alone or set aside, and why.

use super::super::output::{self, Table};
use super::super::{Exit, Failure, Global};
use besom_product::doc::{State, Words};

/// Prints the counts of the reasons, then the documents.
pub(super) fn print(global: &Global, words: &Words) -> Result<Exit, Failure> {
    output::show(global.output, words, || {
        let mut reasons = Table::new(&[">DOCUMENTS", "REASON"], "");
        for (reason, count) in &words.reasons {
            reasons.row([count.to_string(), reason.clone()]);
        }
        let mut table =
            Table::new(&["SINCE", "DOCUMENT", "STATE", "WHY"], "No document is left alone.");
        for left in &words.documents {
            let tenant = left.tenant.as_ref().map_or(String::new(), |tenant| format!("{tenant}/"));
            let state = if left.state == State::Dead { "set aside" } else { "left alone" };
            table.row([
                left.at.clone(),
                format!("{tenant}{}", left.document),
                state.to_owned(),
                left.reason.clone(),
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
