//! Cuts a model into fragments: units that stay adjacent and have the same state.
//!
//! Decides where runs are cut: wherever another unit refers to a unit inside a run, and where a
//! deletion begins or ends. Integration then only links fragments.

use super::content::Kind;
use super::home::{Home, Homes};
use super::layout::Unfit;
use super::model::{Cut, Model, Place};
use super::names::Id;

/// The maximum number of fragments of a layout; each takes about 150 bytes.
pub const FRAGMENTS_MAX: usize = 1024 * 1024;

/// Units of one run that are adjacent and all deleted or all alive.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'m> {
    /// The client's number.
    pub client: u32,
    /// The first unit.
    pub clock: u32,
    /// The number of units.
    pub len: u32,
    /// The kind of content.
    pub kind: Kind,
    /// The content.
    pub bytes: Cut<'m>,
    /// The place of the first unit.
    pub place: Place,
    /// The type and key that contain it.
    pub home: Home,
    /// Whether it is deleted.
    pub deleted: bool,
}

impl Fragment<'_> {
    /// The first unit.
    pub fn id(&self) -> Id {
        Id { client: self.client, clock: self.clock }
    }
}

/// The clocks at which each client's runs are cut.
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

/// Cuts a model into fragments, in the order of clients and clocks.
pub fn fragments(model: &Model) -> Result<Vec<Fragment<'_>>, Unfit> {
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
