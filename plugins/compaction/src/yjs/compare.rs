//! Checks that two models are the same document.
//!
//! Decides exactly what compaction may change. A deleted unit may lose its content and, inside a
//! deleted unit, its place as well. Units may be deleted that Yjs itself deletes when it
//! integrates them: units inside a deleted one, and entries of a key that a concurrent entry has
//! replaced. Everything else must be the same: state vector, deletions, and kind, place and raw
//! content of every unit.
//!
//! A content that differs only in its bytes is reported separately ([`Same::drift`]), because the
//! former bytes can be restored.

use std::fmt;

use super::content::Kind;
use super::home::{Home, Homes};
use super::model::{Model, Piece, Walk};
use super::names::{Id, Names};

/// The kind of difference between two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A client has more or fewer units.
    StateVector,
    /// A deleted unit is alive in the new model.
    Revived,
    /// A unit is deleted although neither an update nor Yjs deletes it.
    Deleted,
    /// The kind of content differs.
    Kind,
    /// Origins, parent or key differ.
    Place,
    /// A surrogate pair is split, and half of it is alive.
    SplitPair,
    /// Deleted content is missing from a document that keeps it.
    Dropped,
    /// A living unit has lost its place, because a unit that it depends on was collected.
    Unplaced,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::StateVector => "the state vector differs",
            Change::Revived => "a deleted unit is alive again",
            Change::Deleted => "a unit is deleted although no update deletes it",
            Change::Kind => "the kind of content differs",
            Change::Place => "the place in the document differs",
            Change::SplitPair => "half of a surrogate pair is deleted or moved",
            Change::Dropped => "deleted content is missing although the document keeps it",
            Change::Unplaced => "a living unit depends on a collected one",
        })
    }
}

/// The first difference found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The client of the unit.
    pub client: u64,
    /// The clock of the unit.
    pub clock: u32,
    /// The kind of difference.
    pub change: Change,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (client {}, clock {})", self.change, self.client, self.clock)
    }
}

/// The models are the same document, except for the differences given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Same {
    /// The first unit whose content has other bytes, if any: client and clock.
    pub drift: Option<(u64, u32)>,
}

/// Compares the former model with the compacted one. With `keep_deleted`, deleted content must
/// stay.
pub fn compare(
    names: &Names,
    old: &Model,
    new: &Model,
    keep_deleted: bool,
) -> Result<Same, Difference> {
    let mut comparison = Comparison { names, keep_deleted, drift: None, implied: Vec::new() };
    for number in 0..names.clients() as u32 {
        comparison.client(number, old, new)?;
    }
    comparison.check_implied(old, new)?;
    comparison.check_placed(new)?;
    Ok(Same { drift: comparison.drift })
}

struct Comparison<'n> {
    names: &'n Names,
    keep_deleted: bool,
    drift: Option<(u64, u32)>,
    /// Units deleted in the new model but in no update: the first, and their number.
    implied: Vec<(Id, u32)>,
}

impl Comparison<'_> {
    fn difference(&self, id: Id, change: Change) -> Difference {
        Difference { client: self.names.client_id(id.client), clock: id.clock, change }
    }

    fn client(&mut self, number: u32, old: &Model, new: &Model) -> Result<(), Difference> {
        let (old, new) = (Side::new(old, number), Side::new(new, number));
        for (a, b) in (Pairs { old, new }) {
            self.piece(Id { client: number, clock: a.piece.clock }, a, b)?;
        }
        Ok(())
    }

    fn piece(&mut self, id: Id, old: Part<'_>, new: Part<'_>) -> Result<(), Difference> {
        match self.judge(id, old, new) {
            Some(change) => Err(self.difference(id, change)),
            None => Ok(()),
        }
    }

    fn judge(&mut self, id: Id, old: Part<'_>, new: Part<'_>) -> Option<Change> {
        if old.piece.len != new.piece.len {
            return Some(Change::StateVector);
        }
        match (old.deleted, new.deleted) {
            (true, false) => return Some(Change::Revived),
            (false, true) => self.implied.push((id, old.piece.len)),
            (true, true) | (false, false) => {}
        }
        let (a, b) = (&old.piece, &new.piece);
        if new.deleted && !b.kind.has_content() {
            if self.keep_deleted && a.kind.has_content() {
                return Some(Change::Dropped);
            }
            let place_said = b.kind == Kind::Deleted && a.place != b.place;
            let place_invented = b.kind == Kind::Deleted && a.kind == Kind::Gc;
            return (place_said || place_invented).then_some(Change::Place);
        }
        if a.kind != b.kind {
            return Some(Change::Kind);
        }
        if a.place != b.place {
            return Some(Change::Place);
        }
        if a.bytes == b.bytes {
            return None;
        }
        if !(a.bytes.is_whole() && b.bytes.is_whole()) {
            return Some(Change::SplitPair);
        }
        self.drift.get_or_insert((self.names.client_id(id.client), id.clock));
        None
    }

    /// Checks that Yjs itself deletes these units while it integrates.
    fn check_implied(&self, old: &Model, new: &Model) -> Result<(), Difference> {
        if self.implied.is_empty() {
            return Ok(());
        }
        let homes = Homes::of(old);
        let holders = homes.holders(self.names, old);
        for &(id, len) in &self.implied {
            let home = homes.home(old, id);
            let inside_deleted = match home {
                Home::Lost => true,
                Home::Item(holder, _) => new.client(holder.client).deleted.at(holder.clock).0,
                Home::Root(..) => false,
            };
            let holds = |holder: Id| {
                holder.client == id.client && (id.clock..id.clock + len).contains(&holder.clock)
            };
            let replaced = || {
                let holder = holders.get(&home).copied().flatten();
                home.key().is_some() && holder.is_some_and(|holder| !holds(holder))
            };
            if !inside_deleted && !replaced() {
                return Err(self.difference(id, Change::Deleted));
            }
        }
        Ok(())
    }

    /// Checks that no living unit depends on a collected one.
    fn check_placed(&self, new: &Model) -> Result<(), Difference> {
        let homes = Homes::of(new);
        for (number, client) in new.clients.iter().enumerate() {
            for (index, run) in client.runs.iter().enumerate() {
                let alive = !client.deleted.covers(run.clock, run.end());
                if alive && homes.of_run(number as u32, index) == Home::Lost {
                    let id = Id { client: number as u32, clock: run.clock };
                    return Err(self.difference(id, Change::Unplaced));
                }
            }
        }
        Ok(())
    }
}

/// A piece that is entirely alive or entirely deleted.
#[derive(Clone, Copy)]
pub(super) struct Part<'m> {
    pub piece: Piece<'m>,
    pub deleted: bool,
}

/// One of two models that are walked side by side.
pub(super) struct Side<'m> {
    model: &'m Model,
    number: u32,
    walk: Walk<'m>,
}

impl<'m> Side<'m> {
    pub fn new(model: &'m Model, number: u32) -> Self {
        Self { model, number, walk: model.walk(number) }
    }

    /// The next clock, whether it is deleted, and how many units follow of the same run
    /// that are as well.
    fn next_units(&self) -> Option<(u32, bool, u32)> {
        let (clock, left) = self.walk.next_units()?;
        let (deleted, until) = self.model.client(self.number).deleted.at(clock);
        Some((clock, deleted, left.min(until - clock)))
    }
}

/// Two models in pieces of the same units. Where one has ended before the other, a piece
/// of length 0 stands against what is left.
pub(super) struct Pairs<'m> {
    pub old: Side<'m>,
    pub new: Side<'m>,
}

impl<'m> Iterator for Pairs<'m> {
    type Item = (Part<'m>, Part<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        let (a, b) = (self.old.next_units(), self.new.next_units());
        let part =
            |side: &mut Side<'m>, deleted, units| Part { piece: side.walk.take(units), deleted };
        match (a, b) {
            (None, None) => None,
            (Some((_, old_deleted, old_left)), Some((_, new_deleted, new_left))) => {
                let units = old_left.min(new_left);
                let old = part(&mut self.old, old_deleted, units);
                Some((old, part(&mut self.new, new_deleted, units)))
            }
            (Some((_, deleted, left)), None) => {
                let old = part(&mut self.old, deleted, left);
                Some((old, Part { piece: Piece { len: 0, ..old.piece }, deleted }))
            }
            (None, Some((_, deleted, left))) => {
                let new = part(&mut self.new, deleted, left);
                Some((Part { piece: Piece { len: 0, ..new.piece }, deleted }, new))
            }
        }
    }
}
