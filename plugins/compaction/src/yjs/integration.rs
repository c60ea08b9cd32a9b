//! Links fragments into lists, as Yjs integrates structs.
//!
//! Decides the order of units inserted at the same place, by the conflict resolution of YATA in the
//! variant of Yjs 13. Fragments are integrated client by client; a client waits for those that it
//! refers to.

use std::collections::HashMap;

use super::fragment::Fragment;
use super::home::Home;
use super::layout::Unfit;
use super::model::Parent;
use super::names::{Id, Names};

/// No fragment.
pub const NONE: u32 = u32::MAX;

/// Finds fragments by client and the clock of any unit.
struct Pool<'m> {
    fragments: Vec<Fragment<'m>>,
    /// The first fragment of each client, and the end.
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

/// The fragments, linked into lists.
pub struct Integration<'n, 'm> {
    names: &'n Names,
    pool: Pool<'m>,
    /// The next fragment to be integrated of each client.
    waiting: Vec<u32>,
    /// The fragment to the right of each, or [`NONE`].
    pub next: Vec<u32>,
    /// The first fragment of each list.
    pub first: HashMap<Home, u32>,
    /// For each fragment, the last integration that has passed it and the last range of
    /// conflicting fragments that contained it. A new number empties such a set.
    passed: Vec<u32>,
    conflicting: Vec<u32>,
    stretch: u32,
}

impl<'n, 'm> Integration<'n, 'm> {
    /// Fragments without links.
    pub fn new(names: &'n Names, fragments: Vec<Fragment<'m>>) -> Self {
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

    /// The fragments, in their original order.
    pub fn into_fragments(self) -> Vec<Fragment<'m>> {
        self.pool.fragments
    }

    /// Integrates everything, the highest client first, as Yjs does.
    pub fn run(&mut self) -> Result<(), Unfit> {
        for number in self.names.descending() {
            let end = self.pool.starts[number as usize + 1];
            self.advance(number, end, |_, _| true)?;
        }
        Ok(())
    }

    /// Integrates units in the order of their arrival; a unit with a missing dependency as soon as
    /// that is integrated.
    pub fn run_as_come(&mut self, arrivals: &[(u32, u32)]) -> Result<(), Unfit> {
        let mut here = self.pool.starts[..self.pool.starts.len() - 1].to_vec();
        let mut stalled: Vec<u32> = Vec::new();
        for &(number, clock) in arrivals {
            // The fragment of the last unit; its later units only continue it.
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

    /// Integrates a client's fragments before `end`, after their dependencies. Returns false if a
    /// dependency has not arrived.
    fn advance(
        &mut self,
        number: u32,
        end: u32,
        is_here: impl Fn(u32, u32) -> bool,
    ) -> Result<bool, Unfit> {
        // Clients, with the fragment up to which each is needed.
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

    /// A dependency of the fragment that is not integrated yet.
    fn missing(&self, index: u32) -> Option<u32> {
        let fragment = &self.pool.fragments[index as usize];
        let parent = match fragment.place.parent {
            Parent::Item(id) => id,
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
