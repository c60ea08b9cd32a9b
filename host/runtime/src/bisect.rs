//! Finds the items that make a batch fail by halving it until each failing item is alone. Pure.
//!
//! ```text
//! [0..8) fails -> [0..4) passes, [4..8) fails -> [4..6) fails, [6..8) passes -> 4 fails, 5 passes
//! ```
//! A batch that fails only as a whole (too much fuel for 64 items, enough for 32) ends with
//! verdicts for all of them.

use std::ops::Range;

use besom_core::proposal::Verdict;

use besom_ports::guests::Fault;

/// The state of one batch.
pub(super) struct Bisection {
    items: usize,
    pending: Vec<Range<usize>>,
    /// The results, if all items passed in one call, as they usually do.
    whole: Option<Vec<Result<Verdict, Fault>>>,
    /// The results by item otherwise; empty until there is one.
    parts: Vec<Option<Result<Verdict, Fault>>>,
}

impl Bisection {
    /// Creates a bisection of a number of items, none of them tried.
    pub(super) fn new(items: usize) -> Bisection {
        let all = 0..items;
        let pending = if items == 0 { Vec::new() } else { vec![all] };
        Bisection { items, pending, whole: None, parts: Vec::new() }
    }

    /// The items to try next, together; `None`: all have a result.
    pub(super) fn next(&mut self) -> Option<Range<usize>> {
        self.pending.pop()
    }

    /// The items passed, with one result each.
    pub(super) fn passed(&mut self, range: Range<usize>, results: Vec<Result<Verdict, Fault>>) {
        debug_assert_eq!(range.len(), results.len());
        if range.len() == self.items {
            self.whole = Some(results);
            return;
        }
        self.parts.resize(self.items, None);
        for (verdict, result) in self.parts[range].iter_mut().zip(results) {
            *verdict = Some(result);
        }
    }

    /// The items failed together. A single item is to blame; several are split into halves.
    pub(super) fn failed(&mut self, range: Range<usize>, fault: Fault) {
        if range.len() == 1 {
            self.parts.resize(self.items, None);
            self.parts[range.start] = Some(Err(fault));
            return;
        }
        let middle = range.start + range.len() / 2;
        self.pending.push(middle..range.end);
        self.pending.push(range.start..middle);
    }

    /// The results; items that were not tried have the fault `left`.
    pub(super) fn end(mut self, left: &Fault) -> Vec<Result<Verdict, Fault>> {
        if let Some(results) = self.whole {
            return results;
        }
        self.parts.resize(self.items, None);
        self.parts.into_iter().map(|v| v.unwrap_or_else(|| Err(left.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn skip(reason: &str) -> Verdict {
        Verdict::Skip { reason: reason.into(), settled: false }
    }

    fn fault() -> Fault {
        Fault::new("trap", "")
    }

    /// Runs a batch whose calls fail if `fails` returns true for their items; returns the number of
    /// calls.
    fn run(
        items: usize,
        fails: impl Fn(Range<usize>) -> bool,
    ) -> (u32, Vec<Result<Verdict, Fault>>) {
        let mut bisection = Bisection::new(items);
        let mut calls = 0;
        while let Some(range) = bisection.next() {
            calls += 1;
            if fails(range.clone()) {
                bisection.failed(range, fault());
            } else {
                let results = range.clone().map(|i| Ok(skip(&i.to_string()))).collect();
                bisection.passed(range, results);
            }
        }
        (calls, bisection.end(&Fault::not_reached()))
    }

    proptest! {
        #[test]
        fn exactly_the_poison_fails(poison in prop::collection::vec(any::<bool>(), 0..200)) {
            let (calls, verdicts) = run(poison.len(), |range| poison[range].contains(&true));
            for (index, verdict) in verdicts.iter().enumerate() {
                let expected = if poison[index] { Err(fault()) } else { Ok(skip(&index.to_string())) };
                prop_assert_eq!(verdict, &expected);
            }
            prop_assert!(calls as usize <= (2 * poison.len()).saturating_sub(1));
        }
    }

    #[test]
    fn one_poison_among_64_costs_13_calls() {
        for poison in [0, 17, 63] {
            let (calls, verdicts) = run(64, |range| range.contains(&poison));
            assert_eq!(calls, 13);
            assert_eq!(verdicts.iter().filter(|v| v.is_err()).count(), 1);
        }
    }

    #[test]
    fn a_batch_that_is_only_too_large_loses_nothing() {
        let (calls, verdicts) = run(64, |range| range.len() > 16);
        assert_eq!(calls, 7);
        assert!(verdicts.iter().all(Result::is_ok));
    }

    #[test]
    fn what_was_not_reached_is_told_apart() {
        let mut bisection = Bisection::new(4);
        let range = bisection.next().unwrap();
        bisection.failed(range, fault());
        let left = bisection.next().unwrap();
        bisection.passed(left, vec![Ok(skip("0")), Ok(skip("1"))]);
        let verdicts = bisection.end(&Fault::not_reached());
        let (fine, missed) =
            (["0", "1"].map(|r| Ok(skip(r))), [(); 2].map(|()| Err(Fault::not_reached())));
        assert_eq!(verdicts, [fine, missed].concat());
    }
}
