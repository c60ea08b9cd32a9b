//! The ring as a strip: its partitions condensed to the available number of cells.
//!
//! A cell covers a range of partitions and shows the owner of most of them. With fewer partitions
//! than cells, a partition covers several cells.

use std::ops::Range;

use besom_snapshot::Ring;

/// The deepest zoom levels show an eighth, a 64th and a 512th of the ring.
pub const ZOOM_MAX: u8 = 3;

/// The zoom level of the strip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zoom {
    /// How many times the ring was divided by eight; at most [`ZOOM_MAX`].
    pub level: u8,
}

impl Zoom {
    /// The partitions in the window around `centre`.
    pub fn window(self, partitions: u32, centre: u32) -> Range<u32> {
        let len = partitions >> (3 * u32::from(self.level.min(ZOOM_MAX)));
        let len = len.max(1).min(partitions);
        let from = centre.saturating_sub(len / 2).min(partitions - len);
        from..from + len
    }

    /// The next deeper level, or the whole ring after the deepest. A level that would not show
    /// fewer partitions than the previous one is skipped.
    pub fn deeper(self, partitions: u32) -> Zoom {
        let next = self.level + 1;
        let visible = partitions >> (3 * u32::from(next)) >= 2;
        if next > ZOOM_MAX || !visible { Zoom::default() } else { Zoom { level: next } }
    }
}

/// A cell of the strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The partitions it covers.
    pub partitions: Range<u32>,
    /// The index of the owner of most of them; none: none has ever had an owner.
    pub owner: Option<u16>,
    /// Whether other owners own some of them.
    pub mixed: bool,
    /// How many of them belong to the selected node.
    pub selected: u32,
    /// Items waiting in them.
    pub queued: u64,
}

/// The cells of a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strip {
    /// From left to right.
    pub cells: Vec<Cell>,
    /// The maximum number of waiting items in a cell.
    pub queued_most: u64,
}

impl Strip {
    /// A window of a ring in `width` cells; `selected` is an owner's index.
    pub fn of(ring: &Ring, window: Range<u32>, width: u16, selected: Option<u16>) -> Strip {
        let len = u64::from(window.end.saturating_sub(window.start));
        if len == 0 || width == 0 {
            return Strip::default();
        }
        let bound = |cell: u16| (len * u64::from(cell) / u64::from(width)) as u32 + window.start;
        let mut counts = Counts::new(ring.owners.len());
        let cell = |cell: u16| {
            let from = bound(cell);
            let partitions = from..bound(cell + 1).max(from + 1);
            let (owner, mixed) = counts.most(partitions.clone().map(|p| owner(ring, p)));
            let its = |p: &u32| selected.is_some() && owner_of(ring, *p) == selected;
            let of_selected = partitions.clone().filter(its).count();
            let queued = partitions.clone().map(|p| queued(ring, p));
            Cell {
                owner,
                mixed,
                selected: of_selected as u32,
                queued: queued.fold(0, u64::saturating_add),
                partitions,
            }
        };
        let cells: Vec<Cell> = (0..width).map(cell).collect();
        let queued_most = cells.iter().map(|cell| cell.queued).max().unwrap_or(0);
        Strip { cells, queued_most }
    }

    /// The first cell that covers a partition.
    pub fn cell_of(&self, partition: u32) -> Option<usize> {
        self.cells.iter().position(|cell| cell.partitions.contains(&partition))
    }
}

fn owner_of(ring: &Ring, partition: u32) -> Option<u16> {
    ring.owner.get(partition as usize).copied().flatten()
}

/// The owner's index, if it is valid: a snapshot from another program is not trusted.
fn owner(ring: &Ring, partition: u32) -> Option<u16> {
    owner_of(ring, partition).filter(|place| usize::from(*place) < ring.owners.len())
}

fn queued(ring: &Ring, partition: u32) -> u64 {
    ring.queued.get(partition as usize).copied().unwrap_or(0)
}

/// Votes by owner; only touched entries are reset, because there are many cells and up to a
/// thousand owners.
struct Counts {
    votes: Vec<u32>,
    touched: Vec<u16>,
}

impl Counts {
    fn new(owners: usize) -> Counts {
        Counts { votes: vec![0; owners], touched: Vec::new() }
    }

    /// The owner with the most votes (the first of equals), and whether there was another.
    fn most(&mut self, owners: impl Iterator<Item = Option<u16>>) -> (Option<u16>, bool) {
        let mut nobody = false;
        for owner in owners {
            let Some(place) = owner else {
                nobody = true;
                continue;
            };
            let votes = &mut self.votes[usize::from(place)];
            if *votes == 0 {
                self.touched.push(place);
            }
            *votes += 1;
        }
        let mut best: Option<(u16, u32)> = None;
        for place in &self.touched {
            let votes = self.votes[usize::from(*place)];
            if best.is_none_or(|(_, most)| votes > most) {
                best = Some((*place, votes));
            }
        }
        let mixed = self.touched.len() > 1 || (nobody && best.is_some());
        for place in self.touched.drain(..) {
            self.votes[usize::from(place)] = 0;
        }
        (best.map(|(place, _)| place), mixed)
    }
}

/// The letter of an owner; none: there are more owners than letters.
pub fn letter(place: u16, owners: usize) -> Option<char> {
    const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (owners <= LETTERS.len()).then(|| LETTERS.get(usize::from(place)).map(|l| char::from(*l)))?
}

#[cfg(test)]
mod tests {
    use besom_snapshot::Owner;

    use super::*;

    fn ring(owner: &[Option<u16>], queued: &[u64], owners: usize) -> Ring {
        Ring {
            partitions: owner.len() as u32,
            owner: owner.to_vec(),
            queued: queued.to_vec(),
            owners: vec![Owner::default(); owners],
            ..Ring::default()
        }
    }

    #[test]
    fn a_cell_is_the_owners_that_has_the_most_of_it() {
        let (a, b) = (Some(0), Some(1));
        let ring = ring(&[a, a, b, b, b, a, None, None], &[1, 0, 0, 0, 5, 5, 0, 0], 2);
        let strip = Strip::of(&ring, 0..8, 2, Some(0));
        let row: Vec<_> =
            strip.cells.iter().map(|c| (c.owner, c.mixed, c.selected, c.queued)).collect();
        assert_eq!(row, [(a, true, 2, 1), (b, true, 1, 10)]);
        assert_eq!(strip.queued_most, 10);
        let wide = Strip::of(&ring, 0..8, 16, None);
        assert_eq!(wide.cells[1].partitions, 0..1, "a partition takes two cells");
        assert_eq!((wide.cells[15].owner, wide.cells[15].mixed), (None, false));
        assert_eq!(wide.cell_of(4), Some(8));
    }

    #[test]
    fn what_does_not_fit_together_is_shown_as_unowned() {
        let ring = ring(&[Some(7), None], &[], 1);
        let strip = Strip::of(&ring, 0..9, 9, Some(7));
        assert_eq!(strip.cells.len(), 9);
        assert!(strip.cells.iter().all(|cell| cell.owner.is_none() && cell.queued == 0));
        assert_eq!(Strip::of(&ring, 0..0, 9, None), Strip::default());
        assert_eq!(Strip::of(&ring, 0..2, 0, None), Strip::default());
    }

    #[test]
    fn a_window_stays_on_the_ring() {
        for (partitions, level, centre, window) in [
            (256, 0, 200, 0..256),
            (256, 1, 0, 0..32),
            (256, 1, 100, 84..116),
            (256, 1, 255, 224..256),
            (256, 2, 10, 8..12),
            (4, 3, 3, 3..4),
            (0, 0, 0, 0..0),
            (0, 3, 9, 0..0),
        ] {
            let zoom = Zoom { level };
            assert_eq!(zoom.window(partitions, centre), window, "{partitions} {level} {centre}");
        }
        let mut zoom = Zoom::default();
        let mut levels = Vec::new();
        for _ in 0..4 {
            zoom = zoom.deeper(256);
            levels.push(zoom.level);
        }
        assert_eq!(levels, [1, 2, 0, 1], "a third level would show half a partition");
        assert_eq!(Zoom::default().deeper(4), Zoom::default());
    }

    #[test]
    fn letters_run_out() {
        assert_eq!(letter(0, 3), Some('A'));
        assert_eq!(letter(51, 52), Some('z'));
        assert_eq!(letter(0, 53), None);
        assert_eq!(letter(60, 3), None);
    }
}
