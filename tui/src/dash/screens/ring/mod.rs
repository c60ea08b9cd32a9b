//! The Ring screen: ownership and load, which it keeps separate.
//!
//! ```text
//!   owner strip     the owner of each range of partitions
//!   load strip      where items are waiting
//!   table           ownership relative to its ideal, load relative to ownership
//!   verdict         whether the ring or the keys are uneven
//!   what-if         one node added or removed, by the hosts' own function
//! ```

mod load;
mod place;
mod strip;
#[cfg(test)]
mod tests;
mod verdict;
mod view;
mod what_if;

use besom_core::snapshot::{Ring, Subject};

use self::load::Loads;
use self::place::{Place, Sought};
use self::strip::Zoom;
use self::what_if::WhatIf;
use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{Column, SortKey, TableState, Width};

/// Up to this many members, a what-if is recomputed when they change; with more, on request.
const MEMBERS_FOR_FOLLOWING: usize = 64;
/// The number of steps in which the cursor crosses the window.
const STEPS: u32 = 64;

/// The columns of the table.
const COLUMNS: [Column; 7] = [
    Column::left("NODE", Width::Fill(10), 0),
    Column::right("OWN%", Width::Fixed(6), 0),
    Column::left("AGAINST ITS SHARE", Width::Fixed(17), 3),
    Column::right("LOAD%", Width::Fixed(6), 0),
    Column::left("SHARE OF QUEUE", Width::Fixed(20), 4),
    Column::right("LOAD/OWN", Width::Fixed(9), 1),
    Column::left("", Width::Fixed(8), 2),
];

/// The Ring screen.
#[derive(Debug, Default)]
pub struct RingScreen {
    table: TableState<String>,
    search: String,
    place: Option<Place>,
    /// Whether the search was entered while no partition was known, or under another ring.
    stale: bool,
    what_if: Option<WhatIf>,
    zoom: Zoom,
    /// The partition under the cursor.
    cursor: Option<u32>,
}

impl RingScreen {
    /// The shares in the order of the table.
    fn rows<'a>(&self, loads: &Loads<'a>) -> Vec<usize> {
        self.table.order((0..loads.shares.len()).collect(), |row, column| {
            let Some(share) = loads.shares.get(row) else { return SortKey::Unknown };
            let known = |figure: Option<f64>| figure.map_or(SortKey::Unknown, SortKey::Number);
            match column {
                0 => SortKey::Text(share.name),
                1 => SortKey::Number(share.own),
                2 => known(share.own_over_ideal()),
                3 | 4 => known(share.load),
                5 => known(share.load_over_own()),
                _ => SortKey::Number(f64::from(u8::from(share.hot))),
            }
        })
    }

    /// The names in the order of the table.
    fn names(&self, cx: &Context<'_>) -> Vec<String> {
        let loads = Loads::of(cx.snap);
        self.rows(&loads).into_iter().map(|row| loads.shares[row].name.to_owned()).collect()
    }

    /// The selected node.
    fn selected(&self, cx: &Context<'_>) -> Option<String> {
        let names = self.names(cx);
        self.table.id(&names).cloned()
    }

    /// The partition at the centre of the window.
    fn centre(&self, ring: &Ring, selected: Option<&str>) -> u32 {
        let sought = || self.place.as_ref().map(|place| place.partition);
        let first = || {
            let place =
                ring.owners.iter().position(|owner| Some(owner.name.as_str()) == selected)?;
            let mut owners = (0_u32..).zip(&ring.owner);
            let its = owners.find(|(_, owner)| owner.map(usize::from) == Some(place));
            its.map(|(partition, _)| partition)
        };
        let centre = self.cursor.or_else(sought).or_else(first).unwrap_or(0);
        centre.min(ring.partitions.saturating_sub(1))
    }

    fn look_for(&mut self, ring: &Ring) {
        self.place = Sought::parse(&self.search).and_then(|sought| Place::of(ring, sought));
        self.stale = self.place.is_none() && !self.search.trim().is_empty();
    }

    fn ask_what_if(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let selected = self.selected(cx);
        let same = |what: &WhatIf| what.node == selected && what.revision == cx.snap.ring.revision;
        if self.what_if.as_ref().is_some_and(same) {
            self.what_if = None;
            return;
        }
        self.what_if = WhatIf::of(&cx.snap.ring, selected.as_deref());
        if self.what_if.is_none() {
            out.say(Tone::Info, "no ring: adding or removing a node moves nothing");
        }
    }

    fn step(&mut self, cx: &Context<'_>, forward: bool) {
        let ring = &cx.snap.ring;
        let centre = self.centre(ring, self.selected(cx).as_deref());
        let window = self.zoom.window(ring.partitions, centre);
        let by = (window.len() as u32 / STEPS).max(1);
        let last = ring.partitions.saturating_sub(1);
        let to = if forward { centre.saturating_add(by) } else { centre.saturating_sub(by) };
        self.cursor = Some(to.min(last));
    }

    /// Closes what was opened last; false: nothing is open.
    fn back(&mut self) -> bool {
        if self.what_if.take().is_some() || self.cursor.take().is_some() {
            return true;
        }
        if self.zoom != Zoom::default() {
            self.zoom = Zoom::default();
            return true;
        }
        let searched = !self.search.is_empty();
        (self.place, self.stale) = (None, false);
        self.search.clear();
        searched
    }
}

impl Screen for RingScreen {
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        if key.ctrl || key.alt {
            return false;
        }
        match key.code {
            Code::Char('w') => self.ask_what_if(cx, out),
            Code::Char('z') => {
                let centre = self.centre(&cx.snap.ring, self.selected(cx).as_deref());
                self.zoom = self.zoom.deeper(cx.snap.ring.partitions);
                self.cursor = (self.zoom != Zoom::default()).then_some(centre);
            }
            Code::Left | Code::Char('h') => self.step(cx, false),
            Code::Right | Code::Char('l') => self.step(cx, true),
            Code::Char('s') => self.table.sort_next(COLUMNS.len()),
            Code::Char('S') => self.table.descending = !self.table.descending,
            Code::Char('y') => match self.selected(cx) {
                Some(node) => out.copy(node),
                None => out.say(Tone::Info, "there is no node to copy"),
            },
            Code::Enter => match self.selected(cx) {
                Some(node) => out.go(Subject::Node(node)),
                None => return false,
            },
            Code::Esc => return self.back(),
            _ => return self.table.key(key, &self.names(cx)),
        }
        true
    }

    fn refresh(&mut self, cx: &Context<'_>, _out: &mut Outbox) {
        let ring = &cx.snap.ring;
        let names = self.names(cx);
        self.table.settle(&names);
        let old = self.place.as_ref().is_some_and(|place| place.revision != ring.revision);
        if self.stale || old {
            self.look_for(ring);
        }
        if let Some(place) = &mut self.place {
            place.complete(ring);
        }
        let members = ring.owners.iter().filter(|owner| owner.weight > 0).count();
        if let Some(what) = self.what_if.take_if(|what| what.revision != ring.revision) {
            self.what_if = if members <= MEMBERS_FOR_FOLLOWING {
                WhatIf::of(ring, what.node.as_deref())
            } else {
                Some(what)
            };
        }
    }

    fn open(&mut self, subject: &Subject, _cx: &Context<'_>, _out: &mut Outbox) {
        if let Subject::Node(node) = subject {
            self.table.select(node.clone());
        }
    }

    fn filter(&self) -> &str {
        &self.search
    }

    fn set_filter(&mut self, filter: &str, cx: &Context<'_>) {
        filter.clone_into(&mut self.search);
        self.look_for(&cx.snap.ring);
        if let Some(place) = &self.place {
            self.cursor = (self.zoom != Zoom::default()).then_some(place.partition);
        }
    }

    fn commands(&self) -> Vec<(&'static str, Key)> {
        vec![
            ("what-if: add or remove one node", Key::char('w')),
            ("zoom into the ring", Key::char('z')),
        ]
    }

    fn columns(&self) -> Vec<&'static str> {
        COLUMNS.iter().map(|column| column.name).filter(|name| !name.is_empty()).collect()
    }

    fn sort(&mut self, column: usize) {
        // Numbers start with the greatest; names are ascending.
        self.table.sort_by(column, column > 0);
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        self.table.click(x, y, &self.names(cx));
    }

    fn words(&self) -> &'static [Hint] {
        &[
            ("OWN%", "percentage of the partitions that the node owns"),
            ("LOAD%", "percentage of the waiting items in its partitions"),
            ("LOAD/OWN", "load relative to share; 1 is even"),
            ("peak/mean", "the fullest node relative to the average"),
            ("hot key", "a key that causes much of a node's work"),
        ]
    }

    fn hints(&self, _cx: &Context<'_>) -> Vec<Hint> {
        vec![
            ("j k", "node"),
            ("/", "find key"),
            ("w", "what-if"),
            ("z", "zoom"),
            ("← →", "along the ring"),
            ("s S", "sort"),
            ("⏎", "the node"),
            ("y", "copy"),
        ]
    }
}
