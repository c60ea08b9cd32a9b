//! The order in which a document shows what it holds: a model integrated as Yjs does it.
//!
//! Decides: of every shared type the order of its list, and who holds each of its keys.
//! Does not decide what a unit says, and trusts nobody: yrs is asked for its own order
//! beside this one ([`super::library::misplaced`]).
//!
//! Runs are first cut wherever anything refers to a unit inside of them or a deletion ends,
//! so that integration only links fragments. Fragments are integrated client by client, a
//! client waiting for those it refers to; who stands where two were inserted at the same
//! place is the conflict resolution of YATA in the variant of Yjs 13.
//!
//! ```text
//! Model ──cut──> fragments ──integrate──> a list per type and key ──walk──> steps:
//!   parent "t" · list · content · content · key "k" · content · parent (nested) · …
//! ```

use std::collections::HashMap;

use super::content::Kind;
use super::home::{Home, Homes};
use super::model::{Cut, Model, Place};
use super::names::{Id, Names, Text};

/// The most fragments of a document that is laid out; each takes some 150 bytes.
pub const FRAGMENTS_MAX: usize = 1024 * 1024;

/// Why a model cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// More than [`FRAGMENTS_MAX`].
    TooLarge,
    /// Changes wait for each other.
    Circle,
}

/// Units of one run that have the same fate.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'m> {
    /// The client's number.
    pub client: u32,
    /// The first unit.
    pub clock: u32,
    /// How many.
    pub len: u32,
    /// The kind of content.
    pub kind: Kind,
    /// The content.
    pub bytes: Cut<'m>,
    place: Place,
    home: Home,
    deleted: bool,
}

impl Fragment<'_> {
    /// The first unit.
    pub fn id(&self) -> Id {
        Id { client: self.client, clock: self.clock }
    }
}

/// A shared type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Of the document, by name.
    Root(Text),
    /// Nested, by the unit that holds it.
    Item(Id),
}

/// What is met on the way through a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A shared type. Nested ones come in the order in which they were met.
    Parent(Holder),
    /// The list of the type, or one of its keys.
    Slot(Text),
    /// The next content of the list or of the key, by its index.
    Content(u32),
}

const NONE: u32 = u32::MAX;

/// A model laid out.
pub struct Layout<'m> {
    fragments: Vec<Fragment<'m>>,
    steps: Vec<Step>,
}

impl<'m> Layout<'m> {
    /// Lays a model out.
    pub fn of(names: &Names, model: &'m Model) -> Result<Layout<'m>, Unfit> {
        let fragments = fragments(model)?;
        let mut integration = Integration::new(names, fragments);
        integration.run()?;
        let Integration { pool, next, first, .. } = integration;
        let steps = walk(names, &pool.fragments, &next, &first);
        Ok(Layout { fragments: pool.fragments, steps })
    }

    /// Whether it is laid out the same in the order in which its units came: what is bound to
    /// happen as long as nothing has changed them since they were inserted. Where it is not,
    /// every replica shows what it was sent first.
    pub fn is_settled(names: &Names, model: &'m Model) -> Result<bool, Unfit> {
        if let [] | [_] = model.arrivals[..] {
            // Of one client there is one order.
            return Ok(true);
        }
        let mut fresh = Integration::new(names, fragments(model)?);
        fresh.run()?;
        let Integration { pool, next, first, .. } = fresh;
        let mut come = Integration::new(names, pool.fragments);
        come.run_as_come(&model.arrivals)?;
        Ok(come.next == next && come.first == first)
    }

    /// All that lives, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The fragment of a [`Step::Content`].
    pub fn fragment(&self, index: u32) -> &Fragment<'m> {
        &self.fragments[index as usize]
    }

    /// How many units live.
    pub fn units(&self) -> u64 {
        let len = |step: &Step| match *step {
            Step::Content(index) => u64::from(self.fragment(index).len),
            Step::Parent(_) | Step::Slot(_) => 0,
        };
        self.steps.iter().map(len).sum()
    }
}

/// The clocks at which each client's runs have to be cut.
fn cuts(model: &Model) -> Vec<Vec<u32>> {
    let mut cuts: Vec<Vec<u32>> = model.clients.iter().map(|_| Vec::new()).collect();
    for (number, client) in model.clients.iter().enumerate() {
        for run in &client.runs {
            let (origin, right) = (run.place.origin, run.place.right_origin);
            if origin.is_some() {
                cuts[origin.client as usize].push(origin.clock + 1);
            }
            if right.is_some() {
                cuts[right.client as usize].push(right.clock);
            }
        }
        cuts[number].extend(client.deleted.iter().flat_map(|(start, end)| [start, end]));
    }
    for clocks in &mut cuts {
        clocks.sort_unstable();
        clocks.dedup();
    }
    cuts
}

fn fragments(model: &Model) -> Result<Vec<Fragment<'_>>, Unfit> {
    let homes = Homes::of(model);
    let cuts = cuts(model);
    if cuts.iter().map(Vec::len).sum::<usize>() + model.runs() > FRAGMENTS_MAX {
        return Err(Unfit::TooLarge);
    }
    let mut fragments = Vec::new();
    for (number, cuts) in cuts.iter().enumerate() {
        let (number, client) = (number as u32, &model.clients[number]);
        let mut cuts = cuts.iter().copied().peekable();
        let mut run = 0;
        let mut walk = model.walk(number);
        while let Some((clock, left)) = walk.next_units() {
            while cuts.next_if(|&cut| cut <= clock).is_some() {}
            let until = cuts.peek().map_or(u32::MAX, |&cut| cut);
            let piece = walk.take(left.min(until - clock));
            while client.runs[run].end() <= clock {
                run += 1;
            }
            fragments.push(Fragment {
                client: number,
                clock,
                len: piece.len,
                kind: piece.kind,
                bytes: piece.bytes,
                place: piece.place,
                home: homes.of_run(number, run),
                deleted: client.deleted.at(clock).0,
            });
        }
    }
    Ok(fragments)
}

/// Fragments by client and clock, found by any unit.
struct Pool<'m> {
    fragments: Vec<Fragment<'m>>,
    /// Where each client's begin; one more for the end.
    starts: Vec<u32>,
}

impl Pool<'_> {
    fn at(&self, id: Id) -> u32 {
        let start = self.starts[id.client as usize] as usize;
        let end = self.starts[id.client as usize + 1] as usize;
        let within = self.fragments[start..end].partition_point(|f| f.clock + f.len <= id.clock);
        (start + within) as u32
    }

    fn get(&self, id: Id) -> Option<u32> {
        id.is_some().then(|| self.at(id))
    }
}

struct Integration<'n, 'm> {
    names: &'n Names,
    pool: Pool<'m>,
    /// Of each client the next fragment to be integrated.
    waiting: Vec<u32>,
    /// The fragment to the right of each.
    next: Vec<u32>,
    /// The first of each list.
    first: HashMap<Home, u32>,
    /// Of each fragment the last integration that has passed it, and the last stretch of
    /// conflicting fragments that it was in: sets that are emptied by a new number.
    passed: Vec<u32>,
    conflicting: Vec<u32>,
    stretch: u32,
}

impl<'n, 'm> Integration<'n, 'm> {
    fn new(names: &'n Names, fragments: Vec<Fragment<'m>>) -> Self {
        let clients = names.clients() as u32;
        let starts: Vec<u32> = (0..=clients)
            .map(|number| fragments.partition_point(|f| f.client < number) as u32)
            .collect();
        let count = fragments.len();
        Integration {
            names,
            waiting: starts.clone(),
            pool: Pool { fragments, starts },
            next: vec![NONE; count],
            first: HashMap::new(),
            passed: vec![NONE; count],
            conflicting: vec![NONE; count],
            stretch: 0,
        }
    }

    /// Integrates everything, the highest client first, as Yjs does.
    fn run(&mut self) -> Result<(), Unfit> {
        for number in self.names.descending() {
            let end = self.pool.starts[number as usize + 1];
            self.advance(number, end, |_, _| true)?;
        }
        Ok(())
    }

    /// Integrates units as they have come, those that something was missing for as soon as
    /// it is there.
    fn run_as_come(&mut self, arrivals: &[(u32, u32)]) -> Result<(), Unfit> {
        let mut here = self.pool.starts[..self.pool.starts.len() - 1].to_vec();
        let mut stalled: Vec<u32> = Vec::new();
        for &(number, clock) in arrivals {
            // The fragment that holds the last unit: whatever else it holds only goes on.
            let behind = self.pool.at(Id { client: number, clock: clock - 1 }) + 1;
            let end = &mut here[number as usize];
            *end = behind.max(*end);
            if !stalled.contains(&number) {
                stalled.push(number);
            }
            let is_here =
                |client: u32, index: u32| here.get(client as usize).is_some_and(|&end| index < end);
            for number in std::mem::take(&mut stalled) {
                if !self.advance(number, here[number as usize], is_here)? {
                    stalled.push(number);
                }
            }
        }
        self.run()
    }

    /// Integrates a client's fragments before `end`, and what they need before. False: some of
    /// that is not here.
    fn advance(
        &mut self,
        number: u32,
        end: u32,
        is_here: impl Fn(u32, u32) -> bool,
    ) -> Result<bool, Unfit> {
        // Clients, and up to which fragment each is wanted.
        let mut wanted = vec![(number, end)];
        while let Some(&(number, until)) = wanted.last() {
            let index = self.waiting[number as usize];
            if index >= until {
                wanted.pop();
                continue;
            }
            match self.missing(index) {
                None => {
                    self.integrate(index);
                    self.waiting[number as usize] += 1;
                }
                Some(missing) => {
                    let client = self.pool.fragments[missing as usize].client;
                    if !is_here(client, missing) {
                        return Ok(false);
                    }
                    if wanted.iter().any(|&(number, _)| number == client) {
                        return Err(Unfit::Circle);
                    }
                    wanted.push((client, missing + 1));
                }
            }
        }
        Ok(true)
    }

    /// A fragment that has to be there before this one and is not.
    fn missing(&self, index: u32) -> Option<u32> {
        let fragment = &self.pool.fragments[index as usize];
        let parent = match fragment.place.parent {
            super::model::Parent::Item(id) => id,
            _ => Id::NONE,
        };
        [fragment.place.origin, fragment.place.right_origin, parent]
            .into_iter()
            .filter_map(|id| self.pool.get(id))
            .find(|&needed| {
                needed >= self.waiting[self.pool.fragments[needed as usize].client as usize]
            })
    }

    fn integrate(&mut self, index: u32) {
        let fragment = self.pool.fragments[index as usize];
        if fragment.home == Home::Lost {
            return;
        }
        let client_of = |client: u32| self.names.client_id(client);
        let right = self.pool.get(fragment.place.right_origin).unwrap_or(NONE);
        let mut left = self.pool.get(fragment.place.origin).unwrap_or(NONE);
        let mut other = match left {
            NONE => self.first.get(&fragment.home).copied().unwrap_or(NONE),
            left => self.next[left as usize],
        };
        self.stretch += 1;
        while other != NONE && other != right {
            let o = &self.pool.fragments[other as usize];
            self.passed[other as usize] = index;
            self.conflicting[other as usize] = self.stretch;
            if fragment.place.origin == o.place.origin {
                if client_of(o.client) < client_of(fragment.client) {
                    left = other;
                    self.stretch += 1;
                } else if fragment.place.right_origin == o.place.right_origin {
                    break;
                }
            } else if let Some(behind) = self.pool.get(o.place.origin)
                && self.passed[behind as usize] == index
            {
                if self.conflicting[behind as usize] != self.stretch {
                    left = other;
                    self.stretch += 1;
                }
            } else {
                break;
            }
            other = self.next[other as usize];
        }
        let slot = match left {
            NONE => self.first.entry(fragment.home).or_insert(NONE),
            left => &mut self.next[left as usize],
        };
        self.next[index as usize] = std::mem::replace(slot, index);
    }
}

/// From the roots, by name, through everything that lives; of each type first its list,
/// then its keys, by name.
fn walk(
    names: &Names,
    fragments: &[Fragment<'_>],
    next: &[u32],
    first: &HashMap<Home, u32>,
) -> Vec<Step> {
    let mut slots: HashMap<Holder, Vec<(Text, u32)>> = HashMap::new();
    for (&home, &first) in first {
        let (holder, key) = match home {
            Home::Root(name, key) => (Holder::Root(name), key),
            Home::Item(id, key) => (Holder::Item(id), key),
            Home::Lost => continue,
        };
        slots.entry(holder).or_default().push((key, first));
    }
    let name = |text: Text| text.is_some().then(|| names.text_of(text));
    for slots in slots.values_mut() {
        slots.sort_unstable_by_key(|&(key, _)| name(key));
    }
    let mut holders: Vec<Holder> =
        slots.keys().copied().filter(|holder| matches!(holder, Holder::Root(_))).collect();
    holders.sort_unstable_by_key(|&holder| match holder {
        Holder::Root(text) => name(text),
        Holder::Item(_) => None,
    });

    let mut steps = Vec::new();
    let mut at = 0;
    while let Some(&holder) = holders.get(at) {
        at += 1;
        let before = steps.len();
        steps.push(Step::Parent(holder));
        for &(key, first) in slots.get(&holder).map_or(&[][..], Vec::as_slice) {
            let start = steps.len();
            steps.push(Step::Slot(key));
            let list = std::iter::successors(Some(first), |&index| {
                Some(next[index as usize]).filter(|&next| next != NONE)
            });
            let shown: Vec<u32> =
                if key.is_some() { list.last().into_iter().collect() } else { list.collect() };
            for index in shown {
                let fragment = &fragments[index as usize];
                if fragment.deleted {
                    continue;
                }
                steps.push(Step::Content(index));
                if fragment.kind == Kind::Type {
                    holders.push(Holder::Item(fragment.id()));
                }
            }
            if steps.len() == start + 1 {
                steps.pop();
            }
        }
        // A root is only what is in it; a nested type is there, whatever it holds.
        if steps.len() == before + 1 && matches!(holder, Holder::Root(_)) {
            steps.pop();
        }
    }
    steps
}
