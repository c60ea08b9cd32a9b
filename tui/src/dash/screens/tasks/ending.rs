//! The durations of a task's latest runs as a curve.

use besom_snapshot::{LastRun, RunState};

use crate::dash::widgets::spark::step;

/// The newest `n` runs, oldest first: each duration relative to the longest, `✕` for a failed run,
/// `–` for one whose plan was discarded, `▶` for an active one.
pub(in crate::dash) fn curve(runs: &[LastRun], n: usize) -> String {
    let shown = &runs[runs.len().saturating_sub(n)..];
    let length = |run: &LastRun| run.took().map(|took| took.as_millis() as u64);
    let most = shown.iter().filter_map(length).max().unwrap_or(0);
    let sign = |run: &LastRun| match run.state {
        RunState::Failed => '✕',
        RunState::Scanning | RunState::Executing => '▶',
        RunState::Unknown => '?',
        RunState::Rejected | RunState::Lapsed => '–',
        RunState::Ok => step(length(run).unwrap_or(0), most),
    };
    shown.iter().map(sign).collect()
}

#[cfg(test)]
mod tests {
    use besom_core::time::Time;

    use super::*;

    #[test]
    fn a_curve_tells_failures_and_what_goes_on_from_what_has_ended() {
        let run = |s: i64, state| LastRun {
            started_at: Time::from_secs(100),
            ended_at: (state != RunState::Executing).then(|| Time::from_secs(100 + s)),
            state,
            ..LastRun::default()
        };
        let runs = [
            run(1_000, RunState::Ok),
            run(10, RunState::Ok),
            run(80, RunState::Ok),
            run(5, RunState::Failed),
            run(0, RunState::Executing),
        ];
        assert_eq!(curve(&runs, 4), "▁█✕▶");
        assert_eq!(curve(&[], 4), "");
    }
}
