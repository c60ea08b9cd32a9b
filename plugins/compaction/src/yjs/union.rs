//! Combines the structs and deletions of many updates into one model.
//!
//! Decides which units are repeated, which contradict each other, and which are missing. A unit may
//! occur any number of times, in runs that are cut differently, before or after its content was
//! collected. It may not occur with two contents (a client id used twice).
//!
//! Rows are usually consecutive, so each struct is appended to its client's last run while it is
//! read. Only structs of a client that arrive out of order or overlap are sorted and swept once at
//! the end.

use super::content::Kind;
use super::model::{Client, Model, Parent, Place, Run};
use super::names::{Id, Names, Text};
use super::reader::{self, Deletion, Sink, Struct, WireId, WireParent};
use super::{content, wire};

/// Why updates are not a complete document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A row is not a well-formed update.
    Malformed {
        /// The index of the row.
        row: usize,
        /// The place and the reason.
        error: wire::Error,
    },
    /// A client's clocks have a hole.
    Hole {
        /// The id of the client.
        client: u64,
        /// The first clock that is missing.
        clock: u32,
    },
    /// A unit refers to a missing unit.
    Missing {
        /// The client whose unit is missing.
        client: u64,
        /// The clock of the missing unit.
        clock: u32,
    },
    /// A unit occurs with two contents, or at two places.
    Conflict {
        /// The id of the client.
        client: u64,
        /// The clock of the unit.
        clock: u32,
    },
}

/// Reads all updates into one model.
pub fn read<'a>(
    names: &mut Names,
    updates: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Model, Fault> {
    let mut union = Union {
        names,
        clients: Vec::new(),
        row: Row::default(),
        kept: false,
        arrivals: Vec::new(),
    };
    for (row, update) in updates.into_iter().enumerate() {
        union.row.clear();
        reader::read(update, &mut union).map_err(|error| Fault::Malformed { row, error })?;
    }
    let Union { clients, kept, arrivals, .. } = union;
    let mut model =
        Model { clients: Vec::with_capacity(clients.len()), keeps_deleted: kept, arrivals };
    for (number, part) in clients.into_iter().enumerate() {
        let client = settle(number as u32, part).map_err(|conflict| Fault::Conflict {
            client: names.client_id(number as u32),
            clock: conflict.0,
        })?;
        model.clients.push(client);
    }
    check_complete(names, &model)?;
    Ok(model)
}

struct Union<'n> {
    names: &'n mut Names,
    clients: Vec<Part>,
    row: Row,
    kept: bool,
    arrivals: Vec<(u32, u32)>,
}

/// A client's structs in the order of their arrival.
#[derive(Default)]
struct Part {
    client: Client,
    disordered: bool,
}

/// The content of the current row, to be compared with its deletions.
#[derive(Default)]
struct Row {
    /// Client, and where its structs begin in `structs`.
    sections: Vec<(u32, usize)>,
    /// Clock and end, ascending within a section.
    structs: Vec<(u32, u32)>,
}

impl Row {
    fn clear(&mut self) {
        self.sections.clear();
        self.structs.clear();
    }

    fn carries(&self, client: u32, start: u32, end: u32) -> bool {
        self.sections.iter().enumerate().filter(|(_, section)| section.0 == client).any(
            |(index, section)| {
                let until = self.sections.get(index + 1).map_or(self.structs.len(), |s| s.1);
                let structs = &self.structs[section.1..until];
                let first = structs.partition_point(|s| s.1 <= start);
                structs.get(first).is_some_and(|s| s.0 < end)
            },
        )
    }
}

impl Union<'_> {
    fn id(&mut self, id: Option<WireId>) -> Id {
        match id {
            Some(id) => Id { client: self.names.client(id.client), clock: id.clock },
            None => Id::NONE,
        }
    }

    fn part(&mut self, client: u32) -> &mut Part {
        if self.clients.len() <= client as usize {
            self.clients.resize_with(client as usize + 1, Part::default);
        }
        &mut self.clients[client as usize]
    }
}

impl<'a> Sink<'a> for Union<'_> {
    fn structure(&mut self, s: &Struct<'a>) {
        let parent = match s.parent {
            None => Parent::Inherited,
            Some(WireParent::Root(name)) => Parent::Root(self.names.text(name)),
            Some(WireParent::Item(id)) => Parent::Item(self.id(Some(id))),
        };
        let parent_sub = s.parent_sub.map_or(Text::NONE, |sub| self.names.text(sub));
        let (origin, right_origin) = (self.id(s.origin), self.id(s.right_origin));
        let place = Place { origin, right_origin, parent, parent_sub };
        let number = self.names.client(s.id.client);
        if s.kind.has_content() {
            if self.row.sections.last().is_none_or(|section| section.0 != number) {
                self.row.sections.push((number, self.row.structs.len()));
            }
            self.row.structs.push((s.id.clock, s.id.clock + s.len));
        }
        let end = s.id.clock + s.len;
        match self.arrivals.last_mut() {
            Some(last) if last.0 == number => last.1 = last.1.max(end),
            _ => self.arrivals.push((number, end)),
        }
        let part = self.part(number);
        part.disordered |= s.id.clock < part.client.end();
        let start = part.client.arena.len() as u32;
        part.client.arena.extend_from_slice(s.bytes);
        let bytes = (start, part.client.arena.len() as u32);
        let run = Run { clock: s.id.clock, len: s.len, place, kind: s.kind, bytes };
        part.client.push(number, run);
    }

    fn deletion(&mut self, deletion: Deletion) {
        let number = self.names.client(deletion.id.client);
        let (start, end) = (deletion.id.clock, deletion.id.clock + deletion.len);
        self.kept = self.kept || self.row.carries(number, start, end);
        self.part(number).client.explicit.insert(start, end);
    }
}

/// The clock of a unit with two contents.
struct Conflict(u32);

fn settle(number: u32, part: Part) -> Result<Client, Conflict> {
    let mut client = part.client;
    client.explicit.settle();
    if part.disordered {
        let mut came = std::mem::take(&mut client.runs);
        came.sort_by_key(|run| run.clock);
        let mut sweep = Sweep { number, client: &mut client };
        for run in came {
            sweep.lay(run)?;
        }
    }
    client.deleted = client.explicit.clone();
    for run in client.runs.iter().filter(|run| !run.kind.has_content()) {
        client.deleted.insert(run.clock, run.end());
    }
    client.deleted.settle();
    Ok(client)
}

/// Overlays runs in ascending order of their clocks.
struct Sweep<'c> {
    number: u32,
    client: &'c mut Client,
}

impl Sweep<'_> {
    fn lay(&mut self, run: Run) -> Result<(), Conflict> {
        let end = self.client.end();
        if run.clock >= end {
            self.client.push(self.number, run);
            return Ok(());
        }
        let first = self.client.runs.partition_point(|laid| laid.end() <= run.clock);
        let mut better = false;
        for laid in &self.client.runs[first..] {
            let (start, end) = (laid.clock.max(run.clock), laid.end().min(run.end()));
            if start >= end {
                break;
            }
            better |= self.says_more(laid, &run, start, end)?;
        }
        if better {
            self.replace(first, &run)?;
        }
        if run.end() > end {
            let rest = self.cut(&run, end, run.end())?;
            self.client.push(self.number, rest);
        }
        Ok(())
    }

    /// Whether `run` has more information about `[start, end)` than the existing run: content has
    /// more than a deleted item, which has more than a collected struct.
    fn says_more(&self, laid: &Run, run: &Run, start: u32, end: u32) -> Result<bool, Conflict> {
        let weight = |kind: Kind| match kind {
            Kind::Gc => 0,
            Kind::Deleted => 1,
            _ => 2,
        };
        let (old, new) = (weight(laid.kind), weight(run.kind));
        // Content collected elsewhere has to be deleted by a delete set: alone, a collected
        // struct that comes second deletes nothing.
        let one_has_content = old.max(new) == 2;
        if one_has_content && old != new && !self.client.explicit.covers(start, end) {
            return Err(Conflict(start));
        }
        let place_known = old.min(new) > 0;
        if place_known && laid.place_at(self.number, start) != run.place_at(self.number, start)
            || one_has_content && old == new && !self.same_content(laid, run, start, end)?
        {
            return Err(Conflict(start));
        }
        // What follows inside of both runs has its predecessor as origin in both; only the
        // right origin could still differ, and it was compared with the first unit's.
        Ok(new > old)
    }

    fn same_content(&self, a: &Run, b: &Run, start: u32, end: u32) -> Result<bool, Conflict> {
        let (a, b) = (self.cut(a, start, end)?, self.cut(b, start, end)?);
        let bytes = |run: &Run| &self.client.arena[run.bytes.0 as usize..run.bytes.1 as usize];
        Ok(a.kind == b.kind && bytes(&a) == bytes(&b))
    }

    /// Overlays `run` wherever it has more information.
    fn replace(&mut self, first: usize, run: &Run) -> Result<(), Conflict> {
        for laid in self.client.runs.split_off(first) {
            let (start, end) = (laid.clock.max(run.clock), laid.end().min(run.end()));
            if start >= end || !self.says_more(&laid, run, start, end)? {
                self.client.push(self.number, laid);
                continue;
            }
            for (part, from, to) in
                [(&laid, laid.clock, start), (run, start, end), (&laid, end, laid.end())]
            {
                if from < to {
                    let part = self.cut(part, from, to)?;
                    self.client.push(self.number, part);
                }
            }
        }
        Ok(())
    }

    /// The part `[start, end)` of a run. Splitting a surrogate pair is a conflict, because an
    /// update cannot contain half a pair.
    fn cut(&self, run: &Run, start: u32, end: u32) -> Result<Run, Conflict> {
        let content = &self.client.arena[run.bytes.0 as usize..run.bytes.1 as usize];
        let at = |bytes: &[u8], units: u32| {
            if run.kind == Kind::String && content.len() == run.len as usize {
                return Ok(units as usize);
            }
            content::bytes_of_units(run.kind, bytes, units as usize).ok_or(Conflict(start))
        };
        let from = if start == run.clock { 0 } else { at(content, start - run.clock)? };
        let to = if end == run.end() {
            content.len()
        } else {
            from + at(&content[from..], end - start)?
        };
        Ok(Run {
            clock: start,
            len: end - start,
            place: run.place_at(self.number, start),
            kind: run.kind,
            bytes: (run.bytes.0 + from as u32, run.bytes.0 + to as u32),
        })
    }
}

/// Checks that there are no holes and that every referenced unit exists.
fn check_complete(names: &Names, model: &Model) -> Result<(), Fault> {
    let missing = |id: Id| Fault::Missing { client: names.client_id(id.client), clock: id.clock };
    for (number, client) in model.clients.iter().enumerate() {
        let id = names.client_id(number as u32);
        let mut next = 0;
        for run in &client.runs {
            if run.clock != next {
                return Err(Fault::Hole { client: id, clock: next });
            }
            next = run.end();
            let parent = if let Parent::Item(id) = run.place.parent { id } else { Id::NONE };
            for to in [run.place.origin, run.place.right_origin, parent] {
                let own = to.client as usize == number;
                let end = if own { run.clock } else { model.client(to.client).end() };
                if to.is_some() && to.clock >= end {
                    return Err(missing(to));
                }
            }
        }
        if client.explicit.end() > next {
            return Err(Fault::Missing { client: id, clock: next });
        }
    }
    Ok(())
}
