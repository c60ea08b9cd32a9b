//! Compares two versions of a text line by line.
//!
//! Finds the shortest list of removed and added lines (Myers' greedy algorithm), grouped into hunks with
//! some context. Line endings are compared but not shown.

use serde::Serialize;

/// Number of unchanged lines shown before and after a difference.
pub const CONTEXT_LINES: usize = 2;

/// Maximum number of removed and added lines for which the shortest list is computed. Beyond it,
/// everything between the first and the last difference is shown as replaced.
const DIFFERENCES_MAX: usize = 512;

/// Whether a line was kept, removed or added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// In both texts.
    Kept,
    /// Only in the old text.
    Removed,
    /// Only in the new text.
    Added,
}

/// A line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whether the line was kept, removed or added.
    pub fate: Fate,
    /// Line number in the old text, from 1; `None` for an added line.
    pub old: Option<usize>,
    /// Line number in the new text, from 1; `None` for a removed line.
    pub new: Option<usize>,
    /// The line without its line ending.
    pub text: String,
}

/// Adjacent differences with their context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// The lines in order.
    pub lines: Vec<Line>,
}

/// Returns the hunks in which two texts differ; empty if they are equal.
pub fn hunks(old: &str, new: &str) -> Vec<Hunk> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let lines = lines(&old, &new);
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut shown_to = 0;
    for at in (0..lines.len()).filter(|at| lines[*at].fate != Fate::Kept) {
        let (from, to) = (at.saturating_sub(CONTEXT_LINES), at + CONTEXT_LINES + 1);
        let to = to.min(lines.len());
        match hunks.last_mut() {
            Some(hunk) if from <= shown_to => {
                hunk.lines.extend_from_slice(&lines[shown_to.min(to)..to]);
            }
            _ => hunks.push(Hunk { lines: lines[from..to].to_vec() }),
        }
        shown_to = to.max(shown_to);
    }
    hunks
}

/// Returns all lines of both texts in order.
fn lines(old: &[&str], new: &[&str]) -> Vec<Line> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let steps = shortest(a, b)
        .unwrap_or_else(|| [vec![Fate::Removed; a.len()], vec![Fate::Added; b.len()]].concat());
    let kept = |n| std::iter::repeat_n(Fate::Kept, n);
    let (mut at_old, mut at_new) = (0, 0);
    let numbered = kept(head).chain(steps).chain(kept(tail)).map(|fate| {
        let (in_old, in_new) = (fate != Fate::Added, fate != Fate::Removed);
        let text = if in_old { old[at_old] } else { new[at_new] };
        at_old += usize::from(in_old);
        at_new += usize::from(in_new);
        Line {
            fate,
            old: in_old.then_some(at_old),
            new: in_new.then_some(at_new),
            text: text.trim_end_matches(['\n', '\r']).to_owned(),
        }
    });
    numbered.collect()
}

/// Returns the shortest edit from `old` to `new`, or `None` if it has more than [`DIFFERENCES_MAX`]
/// differences.
fn shortest(old: &[&str], new: &[&str]) -> Option<Vec<Fate>> {
    let (n, m) = (old.len().cast_signed(), new.len().cast_signed());
    let bound = (n + m).min(DIFFERENCES_MAX.cast_signed());
    // `reach[d][k]`: how far into the old text an edit of d differences gets on diagonal k (old minus
    // new); each d has d + 1 diagonals, two apart.
    let mut reach: Vec<Vec<isize>> = Vec::new();
    for d in 0..=bound {
        let mut row = Vec::with_capacity(d.unsigned_abs() + 1);
        for k in (-d..=d).step_by(2) {
            let mut x = match reach.last() {
                None => 0,
                Some(last) => step(last, d, k).0,
            };
            while x < n && x - k < m && old[x.unsigned_abs()] == new[(x - k).unsigned_abs()] {
                x += 1;
            }
            row.push(x);
            if x >= n && x - k >= m {
                reach.push(row);
                return Some(walk_back(&reach, k));
            }
        }
        reach.push(row);
    }
    None
}

/// Returns where an edit of `d` differences enters diagonal `k`, and whether by an added line. A position
/// outside of the texts is never better than one inside, so it needs no check.
fn step(last: &[isize], d: isize, k: isize) -> (isize, bool) {
    let of = |k: isize| last[((k + d - 1) / 2).unsigned_abs()];
    if k == -d || (k != d && of(k - 1) < of(k + 1)) {
        (of(k + 1), true)
    } else {
        (of(k - 1) + 1, false)
    }
}

/// Reconstructs the edit that has reached the end on diagonal `k`.
fn walk_back(reach: &[Vec<isize>], mut k: isize) -> Vec<Fate> {
    let mut fates = Vec::new();
    for d in (0..reach.len()).rev() {
        let d = d.cast_signed();
        let end = reach[d.unsigned_abs()][((k + d) / 2).unsigned_abs()];
        let (begin, added) = match d {
            0 => (0, false),
            _ => step(&reach[(d - 1).unsigned_abs()], d, k),
        };
        fates.extend(std::iter::repeat_n(Fate::Kept, (end - begin).unsigned_abs()));
        if d > 0 {
            fates.push(if added { Fate::Added } else { Fate::Removed });
            k += if added { 1 } else { -1 };
        }
    }
    fates.reverse();
    fates
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A hunk as `diff -u` shows it.
    fn shown(hunks: &[Hunk]) -> Vec<String> {
        let sign = |line: &Line| match line.fate {
            Fate::Kept => ' ',
            Fate::Removed => '-',
            Fate::Added => '+',
        };
        let lines = |hunk: &Hunk| -> Vec<String> {
            hunk.lines.iter().map(|line| format!("{}{}", sign(line), line.text)).collect()
        };
        hunks.iter().map(|hunk| lines(hunk).join("|")).collect()
    }

    #[track_caller]
    fn check(old: &str, new: &str, expected: &[&str]) {
        assert_eq!(shown(&hunks(old, new)), expected, "{old:?} {new:?}");
    }

    #[test]
    fn only_what_differs_is_shown_with_a_little_around_it() {
        check("", "", &[]);
        check("a\nb\n", "a\nb\n", &[]);
        check("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nX\ne\nf\n", &[" b| c|-d|+X| e| f"]);
        check("a\n", "", &["-a"]);
        check("", "a", &["+a"]);
        check("a\nb\nc\n", "a\nc\n", &[" a|-b| c"]);
        // Close differences share a hunk, and the lines between them are not repeated.
        check("1\n2\n3\n4\n5\n", "X\n2\n3\n4\nY\n", &["-1|+X| 2| 3| 4|-5|+Y"]);
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n",
            "X\n2\n3\n4\n5\n6\n7\nY\n",
            &["-1|+X| 2| 3", " 6| 7|-8|+Y"],
        );
        // A different end of a line is a difference.
        check("a\r\n", "a\n", &["-a|+a"]);
        check("a", "a\n", &["-a|+a"]);
    }

    #[test]
    fn lines_have_their_numbers_in_both_texts() {
        let hunks = hunks("a\nb\nc\n", "a\nx\ny\nc\n");
        let numbers: Vec<_> = hunks[0].lines.iter().map(|line| (line.old, line.new)).collect();
        let expected = [(1, 1), (2, 0), (0, 2), (0, 3), (3, 4)];
        let some = |n: usize| (n > 0).then_some(n);
        assert_eq!(numbers, expected.map(|(old, new)| (some(old), some(new))));
    }

    #[test]
    fn texts_that_have_nothing_in_common_are_replaced_whole() {
        let old: String = (0..2_000).map(|n| format!("old {n}\n")).collect();
        let new: String = (0..2_000).map(|n| format!("new {n}\n")).collect();
        let hunks = hunks(&old, &new);
        assert_eq!((hunks.len(), hunks[0].lines.len()), (1, 4_000));
    }

    proptest! {
        #[test]
        fn kept_and_removed_are_the_old_text_and_kept_and_added_the_new_one(
            old in prop::collection::vec("[abc]", 0..12),
            new in prop::collection::vec("[abc]", 0..12),
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let lines = lines(&old, &new);
            let without = |fate: Fate| -> Vec<&str> {
                lines.iter().filter(|l| l.fate != fate).map(|l| l.text.as_str()).collect()
            };
            prop_assert_eq!(without(Fate::Added), old);
            prop_assert_eq!(without(Fate::Removed), new);
        }

        #[test]
        fn what_is_removed_stands_before_what_takes_its_place(
            old in prop::collection::vec("[abc]", 0..12),
            new in prop::collection::vec("[abc]", 0..12),
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let lines = lines(&old, &new);
            for pair in lines.windows(2) {
                let fates = [pair[0].fate, pair[1].fate];
                prop_assert_ne!(fates, [Fate::Added, Fate::Removed], "{:?}", &lines);
            }
        }
    }
}
