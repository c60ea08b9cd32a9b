//! `besom doc verify`: prints the result of verifying the compactions of one document.

use serde_json::json;

use super::super::output::{self, Table};
use super::super::{Exit, Failure, Global};
use besom_product::doc::{Compaction, Name, Verdict};

/// Number of digest characters in the text output.
const DIGEST_SHOWN: usize = 12;

/// Prints the verdict of each compaction.
pub(super) fn print(global: &Global, name: &Name, found: &[Compaction]) -> Result<Exit, Failure> {
    let count = |verdict| found.iter().filter(|c| c.verdict == verdict).count();
    let [verified, differs] = [Verdict::Verified, Verdict::Differs].map(count);
    let [gone, unverified] = [Verdict::Gone, Verdict::Unverified].map(count);
    let json = json!({
        "tenant": name.tenant,
        "document": name.key,
        "compactions": found,
        "verified": verified,
        "differs": differs,
        "gone": gone,
        "unverified": unverified,
    });
    output::show(global.output, &json, || {
        let mut table = Table::new("The history contains no compaction of this document.");
        for c in found {
            table.row([
                ("AT", &c.at),
                ("MODE", &c.mode),
                (">BEFORE", &c.bytes_before),
                (">AFTER", &c.bytes_after),
                ("RECORDED", &begin(&c.recorded.after)),
                ("REBUILT", &c.rebuilt.as_ref().map_or("-", |pair| begin(&pair.after))),
                ("VERDICT", &word(c.verdict)),
                ("WHY", &c.why.as_deref().unwrap_or_default()),
            ]);
        }
        let mut text = table.render();
        if gone > 0 {
            text.push_str(
                "\nRows are kept for keep_removed of the task. A compaction whose rows are gone was \
                 verified when it was made and cannot be verified again.\n",
            );
        }
        text
    })?;
    Ok(exit(found))
}

/// A difference takes precedence over a compaction that could not be compared.
fn exit(found: &[Compaction]) -> Exit {
    let any = |verdict| found.iter().any(|compaction| compaction.verdict == verdict);
    match (any(Verdict::Differs), any(Verdict::Unverified)) {
        (true, _) => Exit::Differs,
        (false, true) => Exit::Failed,
        (false, false) => Exit::Fine,
    }
}

fn begin(digest: &str) -> &str {
    digest.get(..DIGEST_SHOWN).unwrap_or(digest)
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Verified => "verified",
        Verdict::Differs => "DIFFERS",
        Verdict::Gone => "gone",
        Verdict::Unverified => "unverified",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use besom_product::doc::Pair;

    #[test]
    fn only_a_difference_ends_as_one() {
        use Verdict::{Differs, Gone, Unverified, Verified};
        let compaction = |verdict| Compaction {
            history: 1,
            at: String::new(),
            mode: String::new(),
            library: String::new(),
            bytes_before: 0,
            bytes_after: 0,
            recorded: Pair::default(),
            rebuilt: None,
            verdict,
            why: None,
        };
        for (verdicts, expected) in [
            (&[][..], Exit::Fine),
            (&[Verified, Gone], Exit::Fine),
            (&[Verified, Unverified], Exit::Failed),
            (&[Unverified, Differs, Verified], Exit::Differs),
        ] {
            let found: Vec<_> = verdicts.iter().copied().map(compaction).collect();
            assert_eq!(exit(&found), expected, "{verdicts:?}");
        }
    }
}
