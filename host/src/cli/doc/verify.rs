//! `besom doc verify`: the compactions of one document, looked at once more.

use serde_json::json;

use super::super::output::{self, Table};
use super::super::{Exit, Failure, Global};
use crate::doc::{Compaction, Name, Verdict};

/// Characters of a digest that a person is shown.
const DIGEST_SHOWN: usize = 12;

/// Prints what was found.
pub(super) fn print(global: &Global, name: &Name, found: &[Compaction]) -> Result<Exit, Failure> {
    let count = |verdict| found.iter().filter(|c| c.verdict == verdict).count();
    let [verified, differs, gone] = [Verdict::Verified, Verdict::Differs, Verdict::Gone].map(count);
    let json = json!({
        "tenant": name.tenant,
        "document": name.key,
        "compactions": found,
        "verified": verified,
        "differs": differs,
        "gone": gone,
    });
    output::show(global.output, &json, || {
        let headings = ["AT", "MODE", ">BEFORE", ">AFTER", "RECORDED", "REBUILT", "VERDICT", "WHY"];
        let mut table = Table::new(&headings, "No compaction of it is in the history.");
        for c in found {
            table.row([
                c.at.clone(),
                c.mode.clone(),
                c.bytes_before.to_string(),
                c.bytes_after.to_string(),
                begin(&c.recorded.after).to_owned(),
                c.rebuilt.as_ref().map_or("-", |pair| begin(&pair.after)).to_owned(),
                word(c.verdict).to_owned(),
                c.why.clone().unwrap_or_default(),
            ]);
        }
        let mut text = table.render();
        if gone > 0 {
            text.push_str(
                "\nRows are kept for undo_retention of the task; what is gone was verified when it \
                 was compacted, and cannot be again.\n",
            );
        }
        text
    })?;
    Ok(if differs > 0 { Exit::Differs } else { Exit::Fine })
}

fn begin(digest: &str) -> &str {
    digest.get(..DIGEST_SHOWN).unwrap_or(digest)
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Verified => "verified",
        Verdict::Differs => "DIFFERS",
        Verdict::Gone => "gone",
    }
}
