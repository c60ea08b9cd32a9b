//! Bars and gauges, in eighths of a column.

/// A bar of this many columns, filled by a ratio from 0 to 1; the remainder is blank.
pub fn bar(ratio: f64, columns: u16) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let ratio = if ratio.is_finite() { ratio.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (ratio * f64::from(columns) * 8.0).floor() as usize;
    let full = eighths / 8;
    let cell = |column: usize| match column {
        column if column < full => '█',
        column if column == full => EIGHTHS[eighths % 8],
        _ => ' ',
    };
    (0..usize::from(columns)).map(cell).collect()
}

/// A bar between two marks: `▕██▌  ▏`.
pub fn gauge(ratio: f64, columns: u16) -> String {
    format!("▕{}▏", bar(ratio, columns.saturating_sub(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_by_eighths_and_never_beyond_its_columns() {
        for (ratio, expected) in [
            (0.0, "    "),
            (0.05, "▏   "),
            (0.5, "██  "),
            (0.99, "███▉"),
            (1.0, "████"),
            (7.0, "████"),
            (-1.0, "    "),
            (f64::NAN, "    "),
        ] {
            assert_eq!(bar(ratio, 4), expected, "{ratio}");
        }
        assert_eq!(gauge(1.0, 1), "▕▏");
    }
}
