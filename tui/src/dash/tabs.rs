//! The line of tabs: the position of each screen's name, for drawing and for the mouse.

use super::screens::Place;

/// The terminal row of the tabs.
pub const ROW: u16 = 1;

/// Each screen with its label and its first column.
pub fn places() -> impl Iterator<Item = (Place, String, u16)> {
    let mut x = 0;
    Place::ALL.into_iter().map(move |place| {
        let label = format!(" {} {} ", place.number(), place.name());
        let at = x;
        x += label.len() as u16;
        (place, label, at)
    })
}

/// The screen whose label covers a column.
pub fn hit(x: u16) -> Option<Place> {
    let mut all = places();
    all.find(|(_, label, at)| (*at..at + label.len() as u16).contains(&x)).map(|(place, ..)| place)
}
