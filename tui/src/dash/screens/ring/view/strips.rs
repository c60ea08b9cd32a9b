//! Draws the strips of the ring: the owners, the selected node's partitions, and the waiting items.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::RingScreen;
use super::super::strip::{Cell, Strip, letter};
use super::{LABEL, Sight};
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::{columns, put, put_right, rule, spark, strip};

impl RingScreen {
    /// Draws the strips in at most seven rows; returns the number of rows used.
    pub(super) fn strips(&self, sight: &Sight<'_>, area: Rect, buf: &mut Buffer) -> u16 {
        let (ring, theme) = (&sight.cx.snap.ring, sight.theme);
        if area.height < 3 || area.width <= LABEL + 8 || ring.partitions == 0 {
            return 0;
        }
        let share = sight.share();
        let centre = self.centre(ring, share.map(|share| share.name));
        let window = self.zoom.window(ring.partitions, centre);
        let selected = share.and_then(|share| u16::try_from(share.place).ok());
        let body = columns(area, LABEL, area.width - LABEL - 1);
        let cells = Strip::of(ring, window.clone(), body.width, selected);
        // Without room for all rows, the most important ones are drawn.
        let pointed = self.pointed(sight, window.clone());
        let lettered = letter(0, ring.owners.len()).is_some();
        let mut wanted: Vec<(u8, u8)> = vec![(1, 3), (2, 4)];
        if lettered {
            wanted.push((3, 2));
        }
        if pointed.is_some() {
            wanted.push((4, 5));
        }
        wanted.push((5, 7));
        wanted.push((6, 1));
        wanted.push((7, 6));
        wanted.sort_unstable();
        wanted.truncate(usize::from(area.height));
        wanted.sort_unstable_by_key(|(_, place)| *place);
        let style = |cell: &Cell| owner_style(theme, cell, selected);
        for (y, (_, row)) in (0..).zip(&wanted) {
            match row {
                1 => axis(buf, area, body, y, &window, theme),
                2 => {
                    put(buf, area, 1, y, "owner", theme.dim);
                    let sign = |cell: &Cell| owner_sign(cell, ring.owners.len());
                    strip::strip(buf, body, y, cells.cells.iter().map(|c| (sign(c), style(c))));
                }
                3 => {
                    let name = share.map_or("", |share| share.name);
                    let label = text::cut(name, usize::from(LABEL) - 2);
                    put(buf, area, 1, y, &label, theme.accent);
                    let sign = |cell: &Cell| (selected_sign(cell), selected_style(theme, cell));
                    strip::strip(buf, body, y, cells.cells.iter().map(sign));
                }
                4 => {
                    put(buf, area, 1, y, "load", theme.dim);
                    let sign = |cell: &Cell| match cell.queued {
                        0 => ('·', theme.dim),
                        n => (spark::step(n, cells.queued_most), theme.spark),
                    };
                    strip::strip(buf, body, y, cells.cells.iter().map(sign));
                }
                5 => {
                    if let Some((partition, words)) = &pointed {
                        pointer(buf, area, body, y, (&cells, *partition, words), theme);
                    }
                }
                6 => {
                    put(buf, area, 1, y, &legend(sight, lettered), theme.dim);
                }
                _ => rule(buf, area, y, theme.line),
            }
        }
        wanted.len() as u16
    }

    /// The partition under the cursor, and its description.
    fn pointed(&self, sight: &Sight<'_>, window: std::ops::Range<u32>) -> Option<(u32, String)> {
        let ring = &sight.cx.snap.ring;
        let name = |partition| {
            let owner = ring.owner_of(besom_core::ids::Partition(partition));
            owner.map_or("no owner yet".to_owned(), |owner| owner.name.clone())
        };
        if let Some(place) = &self.place {
            let key = match &place.sought.tenant {
                Some(tenant) => format!("{} of {tenant}", place.sought.key),
                None => place.sought.key.clone(),
            };
            let then = match place.next.as_deref().unwrap_or_default() {
                [] => String::new(),
                next => format!(" (then {})", next.join(", ")),
            };
            let p = place.partition;
            let owner = place.owner(ring).unwrap_or("no owner yet");
            return Some((p, format!("{key} → {p} → {owner}{then}")));
        }
        if self.stale {
            return Some((0, "the key cannot be placed: no partition is known yet".to_owned()));
        }
        let at = self.cursor.filter(|at| window.contains(at))?;
        let waits = ring.queued.get(at as usize).copied().unwrap_or(0);
        let waits = text::grouped(waits);
        Some((at, format!("partition {at} → {}, {waits} waiting", name(at))))
    }
}

fn owner_sign(cell: &Cell, owners: usize) -> char {
    match cell.owner {
        None => '?',
        Some(place) => letter(place, owners).unwrap_or('▪'),
    }
}

/// How much of a cell belongs to the selected node, in eighths.
pub(in super::super) fn selected_sign(cell: &Cell) -> char {
    match (cell.selected, cell.partitions.len() as u32) {
        (0, _) => '·',
        (its, all) if its == all => '█',
        // A part is never drawn as the whole.
        (its, all) => spark::step(u64::from((its * 8 / all).clamp(1, 7)), 8),
    }
}

/// Its style.
pub(in super::super) fn selected_style(theme: &Theme, cell: &Cell) -> Style {
    if cell.selected == 0 { theme.dim } else { theme.accent }
}

/// Adjacent owners differ in weight as well as in letter.
fn owner_style(theme: &Theme, cell: &Cell, selected: Option<u16>) -> Style {
    match cell.owner {
        None => theme.warn,
        owner if owner == selected => theme.accent,
        Some(place) => [theme.text, theme.dim, theme.good, theme.spark][usize::from(place) % 4],
    }
}

fn axis(
    buf: &mut Buffer,
    area: Rect,
    body: Rect,
    y: u16,
    window: &std::ops::Range<u32>,
    theme: &Theme,
) {
    put(buf, area, 1, y, "from", theme.dim);
    let marks = if body.width >= 60 { 8 } else { 4 };
    for mark in 0..marks {
        let x = u32::from(body.width) * mark / marks;
        let at = u64::from(window.start) + window.len() as u64 * u64::from(mark) / u64::from(marks);
        put(buf, body, x as u16, y, &at.to_string(), theme.dim);
    }
}

fn pointer(
    buf: &mut Buffer,
    area: Rect,
    body: Rect,
    y: u16,
    (cells, partition, words): (&Strip, u32, &str),
    theme: &Theme,
) {
    put(buf, area, 1, y, "here", theme.dim);
    let Some(at) = cells.cell_of(partition) else {
        put(buf, body, 0, y, words, theme.accent);
        return;
    };
    let at = at as u16;
    let wide = text::width(&text::clean(words)) as u16;
    // The text goes to the side that has room for it.
    if at + 2 + wide > body.width && at > wide {
        put_right(buf, body, at.saturating_sub(1), y, words, theme.accent);
    } else {
        put(buf, body, at + 2, y, words, theme.accent);
    }
    put(buf, body, at, y, "▲", theme.warn);
}

fn legend(sight: &Sight<'_>, lettered: bool) -> String {
    let shares = &sight.loads.shares;
    if !lettered {
        return format!(
            "too many owners for one letter each ({}): the strip shows the selected node",
            text::grouped(shares.len() as u64)
        );
    }
    let named = shares.iter().filter_map(|share| {
        let sign = letter(u16::try_from(share.place).ok()?, shares.len())?;
        Some(format!("{sign} {}", share.name))
    });
    named.collect::<Vec<_>>().join("  ")
}
