//! Sparklines, one character per sample.

const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The newest samples in this many columns, scaled to the largest; unknown samples are blank.
pub fn spark(samples: &[Option<u64>], columns: usize) -> String {
    let shown = &samples[samples.len().saturating_sub(columns)..];
    let most = shown.iter().flatten().copied().max().unwrap_or(0);
    shown.iter().map(|sample| sample.map_or(' ', |value| step(value, most))).collect()
}

/// The character of a value relative to the largest.
pub fn step(value: u64, most: u64) -> char {
    if most == 0 || value == 0 {
        return STEPS[0];
    }
    let eighth = (u128::from(value) * 8).div_ceil(u128::from(most)).clamp(1, 8);
    STEPS[eighth as usize - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_scaled_to_its_largest_and_unknown_is_not_nothing() {
        let some = |values: &[u64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        for (samples, columns, expected) in [
            (some(&[]), 4, ""),
            (some(&[0, 0]), 4, "▁▁"),
            (some(&[1, 2, 4, 8]), 4, "▁▂▄█"),
            (some(&[800, 1, 2]), 2, "▄█"),
            (vec![Some(4), None, Some(8)], 9, "▄ █"),
            (some(&[u64::MAX, 1]), 2, "█▁"),
        ] {
            assert_eq!(spark(&samples, columns), expected, "{samples:?}");
        }
    }
}
