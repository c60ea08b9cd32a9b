//! The columns of the table of shares.

use besom_snapshot::NodeState;

use super::load::Share;
use super::strip::letter;
use crate::dash::context::Context;
use crate::dash::screens::figure::{UNKNOWN, per_cent};
use crate::dash::table::{Cell, Column, Emphasis, SortKey, Width, plain};
use crate::dash::widgets::bar;

/// The width of the ownership bar; half of it is half of the ideal.
const CENTRED: u16 = 17;
/// The width of the load's bar.
const LOAD: u16 = 20;

type Col<'a> = Column<Share<'a>>;

impl<'a> Share<'a> {
    /// The columns. Numbers start with the greatest; names are ascending.
    pub(super) const COLUMNS: [Column<Share<'a>>; 7] = [
        Col::left("NODE", Width::Fill(10), 0, Share::named)
            .by(|share, _| SortKey::Text(share.name)),
        Col::right("OWN%", Width::Fixed(6), 0, |share, _| plain(per_cent(share.own)))
            .by(|share, _| SortKey::Number(share.own))
            .descending(),
        Col::left("AGAINST ITS SHARE", Width::Fixed(CENTRED), 3, |share, _| {
            match share.own_over_ideal() {
                Some(ratio) => (centred(ratio), Emphasis::Bar),
                None => ("no share".to_owned(), Emphasis::Dim),
            }
        })
        .by(|share, _| SortKey::number(share.own_over_ideal()))
        .descending(),
        Col::right("LOAD%", Width::Fixed(6), 0, |share, _| {
            (share.load.map_or(UNKNOWN.to_owned(), per_cent), share.heat(Emphasis::Text))
        })
        .by(|share, _| SortKey::number(share.load))
        .descending(),
        Col::left("SHARE OF QUEUE", Width::Fixed(LOAD), 4, |share, _| {
            (bar::bar(share.load.unwrap_or(0.0), LOAD), share.heat(Emphasis::Bar))
        })
        .by(|share, _| SortKey::number(share.load))
        .descending(),
        Col::right("LOAD/OWN", Width::Fixed(9), 1, |share, _| match share.load_over_own() {
            Some(ratio) => (format!("{ratio:.2}"), share.heat(Emphasis::Text)),
            None if share.load.is_some() => ("-".to_owned(), Emphasis::Dim),
            None => (UNKNOWN.to_owned(), Emphasis::Dim),
        })
        .by(|share, _| SortKey::number(share.load_over_own()))
        .descending(),
        Col::left("", Width::Fixed(8), 2, |share, _| share.state())
            .by(|share, _| SortKey::Number(f64::from(u8::from(share.hot))))
            .descending(),
    ];

    /// Its letter on the strips, if all owners have one, its name, and a star if it leads.
    fn named(&self, _: &Context<'_>) -> Cell {
        let star = if self.leads { " ★" } else { "" };
        let sign = u16::try_from(self.place).ok().and_then(|place| letter(place, self.owners));
        let sign = sign.map(|sign| format!("{sign} ")).unwrap_or_default();
        plain(format!("{sign}{}{star}", self.name))
    }

    /// A warning if the node is hot.
    fn heat(&self, otherwise: Emphasis) -> Emphasis {
        if self.hot { Emphasis::Warn } else { otherwise }
    }

    fn state(&self) -> Cell {
        match (self.hot, self.is_there(), self.state) {
            (true, ..) => ("HOT".to_owned(), Emphasis::Warn),
            (_, false, None) => ("gone".to_owned(), Emphasis::Bad),
            (_, false, Some(_)) => ("LOST".to_owned(), Emphasis::Bad),
            (_, true, Some(NodeState::Draining)) => ("draining".to_owned(), Emphasis::Accent),
            _ => plain(""),
        }
    }
}

/// A bar from the middle: to the right if the node owns more than its share, to the left if less.
/// It ends at 0.5 and at 1.5 times the share.
fn centred(ratio: f64) -> String {
    let half = (CENTRED - 1) / 2;
    let part = ((ratio - 1.0) * 2.0).clamp(-1.0, 1.0);
    let filled = (part.abs() * f64::from(half)).round() as usize;
    let half = usize::from(half);
    let more = if part > 0.0 { filled } else { 0 };
    let less = filled - more;
    let blank = |n: usize| " ".repeat(n);
    format!("{}{}┼{}{}", blank(half - less), "█".repeat(less), "█".repeat(more), blank(half - more))
}
