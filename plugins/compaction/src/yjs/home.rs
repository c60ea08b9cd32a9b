//! Resolves the home of each run: its shared type and key, found through its origins.
//!
//! Decides which parent Yjs uses for an item that inherits it, and which items Yjs cannot
//! place. An item beside or inside a collected one has lost its place: Yjs turns it into a
//! collected struct, whatever its content is.

use std::collections::HashMap;

use super::content::Kind;
use super::model::{Model, Parent, Run};
use super::names::{Id, Names, Text};

/// The home of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// The run has lost its place.
    Lost,
    /// A shared type of the document, under a key or in its list.
    Root(Text, Text),
    /// The nested type that this unit contains, under a key or in its list.
    Item(Id, Text),
}

impl Home {
    /// The key; none for the list of the type.
    pub fn key(self) -> Option<Text> {
        match self {
            Home::Root(_, key) | Home::Item(_, key) if key.is_some() => Some(key),
            _ => None,
        }
    }
}

/// The homes of all runs of a model.
pub struct Homes {
    /// By client number and index of the run.
    homes: Vec<Vec<Home>>,
}

/// A run: the client's number and the index.
type At = (u32, usize);

impl Homes {
    /// Resolves all homes. Linear in the runs, without recursion.
    pub fn of(model: &Model) -> Homes {
        let mut known: Vec<Vec<Option<Home>>> =
            model.clients.iter().map(|client| vec![None; client.runs.len()]).collect();
        let mut opened: Vec<Vec<bool>> =
            model.clients.iter().map(|client| vec![false; client.runs.len()]).collect();
        let mut open: Vec<At> = Vec::new();
        for number in 0..model.clients.len() {
            for index in 0..model.clients[number].runs.len() {
                if !std::mem::replace(&mut opened[number][index], true) {
                    open.push((number as u32, index));
                }
                while let Some(&at) = open.last() {
                    let slot = (at.0 as usize, at.1);
                    match resolve(model, &known, at) {
                        Ok(home) => known[slot.0][slot.1] = Some(home),
                        Err(first) => {
                            if !std::mem::replace(&mut opened[first.0 as usize][first.1], true) {
                                open.push(first);
                                continue;
                            }
                            // A cycle of references, for which Yjs waits forever.
                            known[slot.0][slot.1] = Some(Home::Lost);
                        }
                    }
                    open.pop();
                }
            }
        }
        let settled = |runs: Vec<Option<Home>>| {
            runs.into_iter().map(|home| home.unwrap_or(Home::Lost)).collect()
        };
        Homes { homes: known.into_iter().map(settled).collect() }
    }

    /// The home of a unit.
    pub fn home(&self, model: &Model, id: Id) -> Home {
        match model.client(id.client).run_at(id.clock) {
            Some(index) => self.homes[id.client as usize][index],
            None => Home::Lost,
        }
    }

    /// The home of a run.
    pub fn of_run(&self, number: u32, index: usize) -> Home {
        self.homes[number as usize][index]
    }

    /// The unit that Yjs shows for every key of every shared type; none if it cannot be
    /// determined without integrating.
    ///
    /// An entry of a key is inserted after the existing entry, with nothing to its right. Then
    /// the order is a walk over the tree of origins, siblings by ascending client, and the last
    /// entry is shown.
    pub fn holders(&self, names: &Names, model: &Model) -> HashMap<Home, Option<Id>> {
        let mut keys: HashMap<Home, Entries> = HashMap::new();
        for (number, client) in model.clients.iter().enumerate() {
            for (index, run) in client.runs.iter().enumerate() {
                let home = self.homes[number][index];
                if home.key().is_some() {
                    keys.entry(home).or_default().insert(number as u32, run);
                }
            }
        }
        keys.into_iter().map(|(home, entries)| (home, entries.holder(names))).collect()
    }
}

/// The entries of one key.
#[derive(Default)]
struct Entries {
    /// By the entry that existed at the insertion.
    behind: HashMap<Id, Vec<Id>>,
    undecided: bool,
}

impl Entries {
    /// Adds each unit separately, because others may follow a unit in the middle of the run.
    fn insert(&mut self, client: u32, run: &Run) {
        self.undecided |= run.place.right_origin.is_some();
        for clock in run.clock..run.end() {
            let origin = run.place_at(client, clock).origin;
            self.behind.entry(origin).or_default().push(Id { client, clock });
        }
    }

    fn holder(&self, names: &Names) -> Option<Id> {
        let mut last = Id::NONE;
        while let Some(siblings) = self.behind.get(&last) {
            let next = *siblings.iter().max_by_key(|id| names.client_id(id.client))?;
            // Two of one client behind the same entry: it did not know of its own first,
            // so its number is used twice.
            if siblings.iter().filter(|id| id.client == next.client).count() > 1 {
                return None;
            }
            last = next;
        }
        (last.is_some() && !self.undecided).then_some(last)
    }
}

/// The home of a run, or the run whose home must be resolved first.
fn resolve(model: &Model, known: &[Vec<Option<Home>>], at: At) -> Result<Home, At> {
    let run = &model.client(at.0).runs[at.1];
    if run.kind == Kind::Gc {
        return Ok(Home::Lost);
    }
    let home_of = |id: Id| -> Result<Home, At> {
        match model.client(id.client).run_at(id.clock) {
            None => Ok(Home::Lost),
            Some(index) => known[id.client as usize][index].ok_or((id.client, index)),
        }
    };
    let (origin, right) = (run.place.origin, run.place.right_origin);
    let left_home = origin.is_some().then(|| home_of(origin)).transpose()?;
    let right_home = right.is_some().then(|| home_of(right)).transpose()?;
    if left_home == Some(Home::Lost) || right_home == Some(Home::Lost) {
        return Ok(Home::Lost);
    }
    if let Some(home) = left_home.or(right_home) {
        return Ok(home);
    }
    Ok(match run.place.parent {
        Parent::Inherited => Home::Lost,
        Parent::Root(name) => Home::Root(name, run.place.parent_sub),
        Parent::Item(id) => {
            let holder = model.client(id.client).run_at(id.clock);
            let is_type =
                holder.is_some_and(|index| model.client(id.client).runs[index].kind == Kind::Type);
            if is_type && home_of(id)? != Home::Lost {
                Home::Item(id, run.place.parent_sub)
            } else {
                Home::Lost
            }
        }
    })
}
