//! Checks that no operation identity was used for two different operations.
//!
//! Loro compares operations that a row repeats only if the row also contains a new one, and
//! otherwise drops the repeated ones: which of the two a client has then depends on which it
//! received first. So each row is imported again, with a new change added.

use std::collections::HashSet;

use loro::{EncodedBlobMode, ExportMode, LoroDoc, LoroError};

use super::rows::{self, Facts};
use super::{history, rebuild};
use crate::canon::Canon;
use crate::outcome::{Code, LeftAlone};

/// Checks every row, if rows share operations.
///
/// # Errors
/// The first row that contradicts the document.
pub fn check(doc: &LoroDoc, updates: &[&[u8]], facts: &Facts) -> Result<(), LeftAlone> {
    let start = doc.shallow_since_vv().to_vv();
    let kept = |peer| start.get(peer).copied().unwrap_or(0);
    let once: i64 = doc.oplog_vv().iter().map(|(peer, end)| i64::from(*end - kept(peer))).sum();
    if i64::try_from(facts.ops) == Ok(once) {
        // No more operations than distinct ones: rows share none.
        return Ok(());
    }
    let checker = Checker::of(doc)?;
    let mut seen = HashSet::new();
    for (row, update) in updates.iter().enumerate().filter(|(_, update)| seen.insert(**update)) {
        checker.check(update).map_err(|left| left.at(row))?;
    }
    Ok(())
}

/// A copy of the document that imports the rows, and an author of new changes.
struct Checker<'a> {
    doc: &'a LoroDoc,
    copy: LoroDoc,
    news: LoroDoc,
}

impl<'a> Checker<'a> {
    fn of(doc: &'a LoroDoc) -> Result<Self, LeftAlone> {
        let snapshot = super::merge::export(doc, ExportMode::Snapshot)?;
        let copy = rebuild::loaded(&snapshot)?;
        // Imported changes need not be applied.
        copy.detach();
        let news = LoroDoc::new();
        let peers = doc.oplog_vv();
        let free = (1u64..).find(|peer| !peers.contains_key(peer)).unwrap_or(1);
        news.set_peer_id(free).map_err(|error| rows::refused(&error))?;
        Ok(Self { doc, copy, news })
    }

    fn check(&self, update: &[u8]) -> Result<(), LeftAlone> {
        let meta = rows::meta(update)?;
        if meta.mode != EncodedBlobMode::Updates {
            return self.check_snapshot(update);
        }
        let before = self.news.oplog_vv();
        let counted = self.news.get_counter("news").increment(1.0);
        counted.map_err(|error| rows::refused(&error))?;
        self.news.commit();
        let news = super::merge::export(&self.news, ExportMode::updates(&before))?;
        match self.copy.import(&rows::joined(update, &news)) {
            Ok(_) => Ok(()),
            // History that a trimmed document no longer has cannot be compared.
            Err(LoroError::ImportUpdatesThatDependsOnOutdatedVersion) => Ok(()),
            Err(LoroError::UsedOpID { id }) => Err(used(&id.to_string())),
            Err(error) => Err(rows::refused(&error)),
        }
    }

    /// Checks a snapshot by comparing its history with that of the document.
    fn check_snapshot(&self, update: &[u8]) -> Result<(), LeftAlone> {
        let other = rebuild::loaded(update)?;
        let mut from = self.doc.shallow_since_vv().to_vv();
        from.merge(&other.shallow_since_vv().to_vv());
        let until = other.oplog_vv();
        let of = |doc: &LoroDoc| {
            let mut canon = Canon::new("loro history");
            history::write(&mut canon, doc, &from, &until)?;
            Ok::<_, LeftAlone>(canon.finish())
        };
        if of(self.doc)? == of(&other)? { Ok(()) } else { Err(used("in this snapshot")) }
    }
}

fn used(what: &str) -> LeftAlone {
    let words = format!("an operation's identity ({what}) was used for two different changes");
    LeftAlone::new(Code::Conflict, words)
}
