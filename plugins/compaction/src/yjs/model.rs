//! The canonical form of a set of updates: per client, the runs of units from clock 0, and their
//! deletions.
//!
//! Decides how runs are joined and cut, so that two models can be walked side by side, independent
//! of the runs in their updates. A run keeps its content as raw bytes in its client's arena;
//! nothing is allocated per unit.
//!
//! ```text
//! update rows ──reader──> union ──> Model ──┬── compare ──> the same / where not
//!                                            ├── digest
//!                                            └── writer ──> one update
//! ```

use super::content::{self, Kind};
use super::names::{Id, Text};
use super::ranges::Ranges;

/// The parent of a run, if its encoding contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parent {
    /// The run inherits the parent of its origin.
    Inherited,
    /// A shared type of the document.
    Root(Text),
    /// The nested type that this item contains.
    Item(Id),
}

/// The place of a unit in the document, exactly as encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The unit to the left at the insertion.
    pub origin: Id,
    /// The unit to the right at the insertion.
    pub right_origin: Id,
    /// The parent of the unit.
    pub parent: Parent,
    /// The key in a map or the name of an attribute.
    pub parent_sub: Text,
}

impl Place {
    /// The place of a collected struct, which has none.
    pub const LOST: Place = Place {
        origin: Id::NONE,
        right_origin: Id::NONE,
        parent: Parent::Inherited,
        parent_sub: Text::NONE,
    };

    /// The place of the unit at `clock`, inside the run whose first place this is.
    fn inside(&self, client: u32, clock: u32) -> Place {
        Place {
            origin: Id { client, clock: clock - 1 },
            right_origin: self.right_origin,
            parent: Parent::Inherited,
            parent_sub: Text::NONE,
        }
    }
}

/// Consecutive units of one client and kind.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The clock of the first unit.
    pub clock: u32,
    /// The number of units.
    pub len: u32,
    /// The place of the first; each further one has its predecessor as origin.
    pub place: Place,
    /// The kind of content.
    pub kind: Kind,
    /// The range of the content in the client's arena.
    pub bytes: (u32, u32),
}

impl Run {
    /// The clock after the last unit.
    #[inline]
    pub fn end(&self) -> u32 {
        self.clock + self.len
    }

    /// The place of the unit at `clock`.
    #[inline]
    pub fn place_at(&self, client: u32, clock: u32) -> Place {
        if clock == self.clock || self.kind == Kind::Gc {
            return self.place;
        }
        self.place.inside(client, clock)
    }

    /// Whether `next` only continues this run.
    #[inline]
    pub fn joins(&self, client: u32, next: &Run) -> bool {
        self.end() == next.clock
            && self.kind == next.kind
            && self.kind.is_run()
            && self.bytes.1 == next.bytes.0
            && next.place == self.place_at(client, next.clock)
    }
}

/// One client's part of a model.
#[derive(Debug, Default)]
pub struct Client {
    /// The runs, in order and disjoint.
    pub runs: Vec<Run>,
    /// The content of all runs.
    pub arena: Vec<u8>,
    /// The clocks that delete sets name.
    pub explicit: Ranges,
    /// The clocks deleted by delete sets or by the kind of a struct.
    pub deleted: Ranges,
}

impl Client {
    /// The clock after the last unit: the client's entry in the state vector.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, Run::end)
    }

    /// The index of the run that contains `clock`.
    pub fn run_at(&self, clock: u32) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.end() <= clock);
        self.runs.get(index).filter(|run| run.clock <= clock).map(|_| index)
    }

    /// Appends a run, and joins it to the last one if it only continues it.
    pub fn push(&mut self, client: u32, run: Run) {
        match self.runs.last_mut() {
            Some(last) if last.joins(client, &run) => {
                last.len += run.len;
                last.bytes.1 = run.bytes.1;
            }
            _ => self.runs.push(run),
        }
    }
}

/// The content of a complete set of updates, without holes and missing units.
#[derive(Debug, Default)]
pub struct Model {
    /// The clients, by their number in the [`super::names::Names`] of the model.
    pub clients: Vec<Client>,
    /// Whether an update carried content together with its deletion. Only a document that
    /// does not collect garbage (`gc: false`) or an undo manager writes such an update.
    pub keeps_deleted: bool,
    /// The order in which units arrived: a client's number, and the clock up to which its units
    /// had arrived. Consecutive rows of one client are one arrival.
    pub arrivals: Vec<(u32, u32)>,
}

impl Model {
    /// A client's part; empty for a client without units.
    pub fn client(&self, number: u32) -> &Client {
        static NOBODY: Client = Client {
            runs: Vec::new(),
            arena: Vec::new(),
            explicit: Ranges::EMPTY,
            deleted: Ranges::EMPTY,
        };
        self.clients.get(number as usize).unwrap_or(&NOBODY)
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.clients.iter().map(|client| client.runs.len()).sum()
    }

    /// A walk from the client's first unit.
    pub fn walk(&self, number: u32) -> Walk<'_> {
        Walk { number, client: self.client(number), run: 0, unit: 0, byte: 0, inside_pair: false }
    }
}

/// A part of a run.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'m> {
    /// The clock of the first unit.
    pub clock: u32,
    /// The number of units.
    pub len: u32,
    /// The place of the first.
    pub place: Place,
    /// The kind of content.
    pub kind: Kind,
    /// The content.
    pub bytes: Cut<'m>,
}

impl Piece<'_> {
    /// The place of the unit at `clock`.
    pub fn place_at(&self, client: u32, clock: u32) -> Place {
        if clock == self.clock || self.kind == Kind::Gc {
            return self.place;
        }
        self.place.inside(client, clock)
    }
}

/// The content of a piece. A surrogate pair that an end of the piece splits is separate, because an
/// update cannot contain half a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut<'m> {
    /// The pair whose second half is the first unit, or nothing.
    pub before: &'m [u8],
    /// The bytes that are entirely inside the piece.
    pub whole: &'m [u8],
    /// The pair whose first half is the last unit, or nothing.
    pub after: &'m [u8],
}

/// The character that Yjs writes for half a pair: U+FFFD.
const HALF: &[u8] = "\u{fffd}".as_bytes();

impl<'m> Cut<'m> {
    fn whole(bytes: &'m [u8]) -> Cut<'m> {
        Cut { whole: bytes, ..Cut::default() }
    }

    /// Whether neither end splits a pair.
    pub fn is_whole(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// The bytes as Yjs shows them.
    pub fn shown(&self) -> [&'m [u8]; 3] {
        let half = |pair: &[u8]| if pair.is_empty() { &[][..] } else { HALF };
        [half(self.before), self.whole, half(self.after)]
    }
}

/// Walks a client's runs in pieces of any length.
#[derive(Clone, Debug)]
pub struct Walk<'m> {
    number: u32,
    client: &'m Client,
    run: usize,
    /// The number of units of the run already taken.
    unit: u32,
    /// The number of bytes of the run's content already taken.
    byte: usize,
    /// The next unit is the second half of a surrogate pair, whose bytes begin at `byte`.
    inside_pair: bool,
}

impl<'m> Walk<'m> {
    /// The clock of the next unit, and the number of units left in its run.
    #[inline]
    pub fn next_units(&self) -> Option<(u32, u32)> {
        let run = self.client.runs.get(self.run)?;
        Some((run.clock + self.unit, run.len - self.unit))
    }

    /// Takes the next `units`, at most as many as the run has left.
    pub fn take(&mut self, units: u32) -> Piece<'m> {
        let run = &self.client.runs[self.run];
        let clock = run.clock + self.unit;
        let content = &self.client.arena[run.bytes.0 as usize..run.bytes.1 as usize];
        let bytes = self.take_bytes(run, content, units);
        self.unit += units;
        if self.unit == run.len {
            (self.run, self.unit, self.byte, self.inside_pair) = (self.run + 1, 0, 0, false);
        }
        let place = run.place_at(self.number, clock);
        Piece { clock, len: units, place, kind: run.kind, bytes }
    }

    fn take_bytes(&mut self, run: &Run, content: &'m [u8], units: u32) -> Cut<'m> {
        if units == run.len {
            return Cut::whole(content);
        }
        if run.kind == Kind::String && content.len() == run.len as usize {
            // ASCII: units are bytes.
            let start = self.byte;
            self.byte += units as usize;
            return Cut::whole(&content[start..self.byte]);
        }
        let (before, wanted) = if std::mem::take(&mut self.inside_pair) {
            self.byte += PAIR_BYTES;
            (&content[self.byte - PAIR_BYTES..self.byte], units as usize - 1)
        } else {
            (&content[..0], units as usize)
        };
        let start = self.byte;
        let rest = &content[start..];
        match content::bytes_of_units(run.kind, rest, wanted) {
            Some(len) => {
                self.byte += len;
                Cut { before, whole: &content[start..self.byte], after: &[] }
            }
            None => {
                // One unit less ends before the pair.
                let len = content::bytes_of_units(run.kind, rest, wanted - 1);
                self.byte += len.unwrap_or(rest.len());
                self.inside_pair = true;
                let pair = self.byte..content.len().min(self.byte + PAIR_BYTES);
                Cut { before, whole: &content[start..self.byte], after: &content[pair] }
            }
        }
    }
}

/// A pair of surrogates is one character of four bytes in UTF-8.
const PAIR_BYTES: usize = 4;
