//! The Ring screen: ownership and load, which it keeps separate.
//!
//! ```text
//!   owner strip     the owner of each range of partitions
//!   load strip      where items are waiting
//!   table           ownership relative to its ideal, load relative to ownership
//!   verdict         whether the ring or the keys are uneven
//!   what-if         one node added or removed, by the hosts' own function
//! ```

mod columns;
mod load;
mod place;
mod strip;
#[cfg(test)]
mod tests;
mod verdict;
mod view;
mod what_if;

use besom_snapshot::{Ring, Subject};

use self::load::{Loads, Share};
use self::place::{Place, Sought};
use self::strip::Zoom;
use self::what_if::WhatIf;
use super::Screen;
use crate::dash::bindings::{Binding, Bound, Hint};
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{self, Heading, Order, TableState};

/// Up to this many members, a what-if is recomputed when they change; with more, on request.
const MEMBERS_FOR_FOLLOWING: usize = 64;
/// The number of steps in which the cursor crosses the window.
const STEPS: u32 = 64;

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
    fn rows<'b, 'a>(&self, loads: &'b Loads<'a>, cx: &Context<'_>) -> Vec<&'b Share<'a>> {
        self.table.order.arrange(&Share::COLUMNS, loads.shares.iter().collect(), cx)
    }

    /// The names in the order of the table.
    fn names(&self, cx: &Context<'_>) -> Vec<String> {
        let loads = Loads::of(cx.snap);
        self.rows(&loads, cx).into_iter().map(|share| share.name.to_owned()).collect()
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

    fn move_cursor(&mut self, cx: &Context<'_>, forward: bool) {
        let ring = &cx.snap.ring;
        let centre = self.centre(ring, self.selected(cx).as_deref());
        let window = self.zoom.window(ring.partitions, centre);
        let by = (window.len() as u32 / STEPS).max(1);
        let last = ring.partitions.saturating_sub(1);
        let to = if forward { centre.saturating_add(by) } else { centre.saturating_sub(by) };
        self.cursor = Some(to.min(last));
    }

    /// Whether [`RingScreen::back`] has something to close.
    fn is_open(&self) -> bool {
        let zoomed = self.zoom != Zoom::default();
        self.what_if.is_some() || self.cursor.is_some() || zoomed || !self.search.is_empty()
    }

    /// Closes what was opened last.
    fn back(&mut self) {
        if self.what_if.take().is_some() || self.cursor.take().is_some() {
            return;
        }
        if self.zoom != Zoom::default() {
            self.zoom = Zoom::default();
            return;
        }
        (self.place, self.stale) = (None, false);
        self.search.clear();
    }
}

type Bind = Binding<RingScreen>;

impl Bound for RingScreen {
    const BINDINGS: &'static [Bind] = &[
        Bind::shown("j k", "node"),
        Bind::shown("/", "find key"),
        Bind::new("w", "what-if", &[Code::Char('w')], |screen, _, cx, out| {
            screen.ask_what_if(cx, out);
        })
        .command("what-if: add or remove one node"),
        Bind::new("z", "zoom", &[Code::Char('z')], |screen, _, cx, _| {
            let centre = screen.centre(&cx.snap.ring, screen.selected(cx).as_deref());
            screen.zoom = screen.zoom.deeper(cx.snap.ring.partitions);
            screen.cursor = (screen.zoom != Zoom::default()).then_some(centre);
        })
        .command("zoom into the ring"),
        Bind::new(
            "← →",
            "along the ring",
            &[Code::Left, Code::Right, Code::Char('h'), Code::Char('l')],
            |screen, key, cx, _| {
                screen.move_cursor(cx, matches!(key.code, Code::Right | Code::Char('l')));
            },
        ),
        Bind::shown("s S", "sort"),
        Bind::new("⏎", "the node", &[Code::Enter], |screen, _, cx, out| {
            if let Some(node) = screen.selected(cx) {
                out.go(Subject::Node(node));
            }
        }),
        Bind::new("y", "copy", &[Code::Char('y')], |screen, _, cx, out| {
            match screen.selected(cx) {
                Some(node) => out.copy(node),
                None => out.say(Tone::Info, "there is no node to copy"),
            }
        }),
        Bind::hidden(&[Code::Esc], |screen, _, _, _| screen.back())
            .when(|screen, _| screen.is_open()),
    ];
}

impl Screen for RingScreen {
    fn step(&mut self, key: Key, cx: &Context<'_>, _out: &mut Outbox) -> bool {
        self.table.key(key, &self.names(cx))
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

    fn headings(&self) -> Vec<Heading> {
        table::headings(&Share::COLUMNS)
    }

    fn order(&mut self) -> Option<&mut Order> {
        Some(&mut self.table.order)
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
}
