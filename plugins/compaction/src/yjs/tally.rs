//! Counts the content of a document's rows, before anything is built from them.
//!
//! Decides nothing about the document: the counts only estimate the memory that it needs
//! ([`super::memory`]). One pass, which keeps state per client only.

use std::collections::HashMap;

use super::content::Kind;
use super::reader::{self, Deletion, Sink, Struct, WireId, WireParent};
use super::union::Fault;

/// Counts over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The number of rows.
    pub rows: usize,
    /// The bytes of the rows.
    pub bytes: usize,
    /// The bytes of values other than text: numbers, objects, marks.
    pub value_bytes: usize,
    /// Structs, with repetitions.
    pub structs: usize,
    /// Structs that yrs holds before it can place the first of them: those of one row, or all
    /// structs if a row precedes one that it depends on.
    pub at_once: usize,
    /// Runs: structs that do not just continue the previous one of their client.
    pub runs: usize,
    /// Runs of shared types and sub-documents.
    pub types: usize,
    /// Places where runs may have to be cut, because another run was inserted or a deletion begins
    /// or ends there.
    pub cuts: usize,
    /// Units with a content, with repetitions.
    pub units: usize,
    /// The number of clients.
    pub clients: usize,
}

/// Counts the content of all rows.
///
/// # Errors
/// The first row that is not a well-formed update.
pub fn tally(updates: &[&[u8]]) -> Result<Facts, Fault> {
    let mut tally = Tally::default();
    for (row, update) in updates.iter().enumerate() {
        tally.facts.bytes += update.len();
        reader::read(update, &mut tally).map_err(|error| Fault::Malformed { row, error })?;
        tally.end_row();
    }
    let Tally { mut facts, clients, is_late, .. } = tally;
    facts.rows = updates.len();
    facts.clients = clients.len();
    if is_late {
        facts.at_once = facts.structs;
    }
    Ok(facts)
}

#[derive(Default)]
struct Tally {
    facts: Facts,
    clients: HashMap<u64, Latest>,
    /// Structs of the row that is being read.
    row_structs: usize,
    /// Referenced units that have not arrived yet.
    missing: Vec<WireId>,
    /// Whether a row arrived before one that it depends on.
    is_late: bool,
}

/// The last units of a client.
#[derive(Default)]
struct Latest {
    /// The clock after the last unit.
    end: u32,
    kind: Option<Kind>,
    right_origin: Option<WireId>,
    /// The clocks of the last deletion.
    deleted: (u32, u32),
}

impl Tally {
    fn end_row(&mut self) {
        self.facts.at_once = self.facts.at_once.max(std::mem::take(&mut self.row_structs));
        let missing = std::mem::take(&mut self.missing);
        self.is_late |= missing.iter().any(|id| !self.has(*id));
    }

    fn has(&self, id: WireId) -> bool {
        self.clients.get(&id.client).is_some_and(|latest| id.clock < latest.end)
    }
}

impl<'a> Sink<'a> for Tally {
    fn structure(&mut self, s: &Struct<'a>) {
        let latest = self.clients.entry(s.id.client).or_default();
        let follows = s.id.clock == latest.end && latest.kind == Some(s.kind);
        let before = s.id.clock.checked_sub(1).map(|clock| WireId { clock, ..s.id });
        let goes_on = follows
            && s.kind.is_run()
            && (s.kind == Kind::Gc || s.origin == before && s.right_origin == latest.right_origin);
        self.is_late |= s.id.clock > latest.end;
        latest.end = latest.end.max(s.id.clock + s.len);
        (latest.kind, latest.right_origin) = (Some(s.kind), s.right_origin);

        let facts = &mut self.facts;
        self.row_structs += 1;
        facts.structs += 1;
        if s.kind.has_content() {
            facts.units += s.len as usize;
        }
        match s.kind {
            Kind::Gc | Kind::Deleted | Kind::String | Kind::Binary => {}
            Kind::Json | Kind::Embed | Kind::Format | Kind::Type | Kind::Any | Kind::Doc => {
                facts.value_bytes += s.bytes.len();
            }
        }
        if goes_on {
            return;
        }
        facts.runs += 1;
        facts.types += usize::from(matches!(s.kind, Kind::Type | Kind::Doc));
        let parent = match s.parent {
            Some(WireParent::Item(id)) => Some(id),
            Some(WireParent::Root(_)) | None => None,
        };
        let behind = s.origin.map(|id| WireId { clock: id.clock + 1, ..id });
        let is_one_place = behind.is_some() && behind == s.right_origin;
        let cuts = usize::from(s.origin.is_some()) + usize::from(s.right_origin.is_some());
        facts.cuts += cuts - usize::from(is_one_place);
        for id in [s.origin, s.right_origin, parent].into_iter().flatten() {
            if !self.has(id) {
                self.missing.push(id);
            }
        }
    }

    fn deletion(&mut self, deletion: Deletion) {
        let latest = self.clients.entry(deletion.id.client).or_default();
        let (start, end) = (deletion.id.clock, deletion.id.clock + deletion.len);
        // A key that is held down deletes adjacent letters, in either direction.
        let (first, last) = latest.deleted;
        if start == last && last > 0 || end == first {
            latest.deleted = (start.min(first), end.max(last));
        } else {
            latest.deleted = (start, end);
            self.facts.cuts += 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u64 = 7;

    /// An update of one client's structs, or deletions of it.
    fn row(clock: u8, items: &[&[u8]], deleted: &[[u8; 2]]) -> Vec<u8> {
        let mut out = vec![0];
        if !items.is_empty() {
            out = vec![1, items.len() as u8, ANN as u8, clock];
            out.extend(items.concat());
        }
        match deleted {
            [] => out.push(0),
            _ => out.extend([1, ANN as u8, deleted.len() as u8]),
        }
        out.extend(deleted.concat());
        out
    }

    fn of(rows: &[Vec<u8>]) -> Facts {
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        tally(&rows).unwrap()
    }

    const FIRST: &[u8] = &[4, 1, 1, b't', 2, b'a', b'b'];
    /// Behind clock 1.
    const TYPED: &[u8] = &[0x84, ANN as u8, 1, 1, b'c'];
    /// Before clock 1.
    const BETWEEN: &[u8] = &[0xc4, ANN as u8, 0, ANN as u8, 1, 1, b'd'];
    /// A nested list.
    const TYPE: &[u8] = &[7, 1, 1, b't', 0];

    #[test]
    fn what_goes_on_is_one_run_in_however_many_rows() {
        let typed = of(&[row(0, &[FIRST], &[]), row(2, &[TYPED], &[])]);
        assert_eq!((typed.rows, typed.structs, typed.runs, typed.cuts), (2, 2, 1, 0));
        assert_eq!((typed.units, typed.at_once, typed.clients), (3, 1, 1));
        let at_once = of(&[row(0, &[FIRST, TYPED, BETWEEN, TYPE], &[])]);
        assert_eq!((at_once.structs, at_once.runs, at_once.cuts), (4, 3, 1));
        assert_eq!((at_once.at_once, at_once.types, at_once.value_bytes), (4, 1, 1));
    }

    #[test]
    fn what_comes_before_what_it_builds_upon_waits_with_all_others() {
        for (rows, at_once) in [
            ([row(0, &[FIRST], &[]), row(2, &[BETWEEN], &[])], 1),
            ([row(2, &[BETWEEN], &[]), row(0, &[FIRST], &[])], 2),
            ([row(2, &[TYPED], &[]), row(0, &[FIRST], &[])], 2),
            ([row(0, &[FIRST], &[]), row(2, &[&[0x84, 9, 0, 1, b'e']], &[])], 2),
        ] {
            assert_eq!(of(&rows).at_once, at_once, "{rows:?}");
        }
    }

    #[test]
    fn deletions_beside_each_other_cut_twice_together() {
        for (deleted, cuts) in [
            (&[[0, 1]][..], 2),
            (&[[0, 1], [1, 1], [2, 3]], 2),
            (&[[5, 1], [4, 1], [2, 2]], 2),
            (&[[0, 1], [2, 1], [4, 1]], 6),
        ] {
            assert_eq!(of(&[row(0, &[], deleted)]).cuts, cuts, "{deleted:?}");
        }
    }
}
