//! How the terminal is divided between the frame and the screen in it.

/// Below this height there is no line of tabs.
pub const TABS_HEIGHT_MIN: u16 = 12;
/// Below this height there are no lines between the parts.
pub const RULES_HEIGHT_MIN: u16 = 16;
/// Below this height there is no line of keys.
pub const KEYS_HEIGHT_MIN: u16 = 6;

/// The rows of the frame's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// The tabs' row.
    pub tabs: Option<u16>,
    /// The first row of the screen, and how many it has.
    pub body: (u16, u16),
    /// The rows of the lines above and below the screen.
    pub rules: Option<(u16, u16)>,
    /// The row of the keys.
    pub keys: Option<u16>,
}

impl Frame {
    /// The division of a terminal with so many rows. The first row is always the status.
    pub fn of(height: u16) -> Frame {
        let tabs = (height >= TABS_HEIGHT_MIN).then_some(super::tabs::ROW);
        let keys = (height >= KEYS_HEIGHT_MIN).then(|| height - 1);
        let rules = (height >= RULES_HEIGHT_MIN).then(|| (2, height - 2));
        let top = 1 + u16::from(tabs.is_some()) + u16::from(rules.is_some());
        let bottom = u16::from(keys.is_some()) + u16::from(rules.is_some());
        let top = top.min(height);
        Frame { tabs, body: (top, (height - top).saturating_sub(bottom)), rules, keys }
    }
}
