//! The layout of the terminal: the frame's lines and the screen's area.

/// Below this height the tabs are not shown.
pub const TABS_HEIGHT_MIN: u16 = 12;
/// Below this height the separating lines are not shown.
pub const RULES_HEIGHT_MIN: u16 = 16;
/// Below this height the keys are not shown.
pub const KEYS_HEIGHT_MIN: u16 = 6;

/// The rows of the frame's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// The tabs' row.
    pub tabs: Option<u16>,
    /// The first row and the number of rows of the screen.
    pub body: (u16, u16),
    /// The separating lines above and below the screen.
    pub rules: Option<(u16, u16)>,
    /// The row of the keys.
    pub keys: Option<u16>,
}

impl Frame {
    /// The layout of a terminal with this many rows. The first row is always the status.
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
