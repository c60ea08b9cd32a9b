//! How the rows of a read set are addressed: exactly the rows that were read, never a range that
//! could contain others.
//!
//! The keys of a change log differ in one integer, and most are consecutive; a run of consecutive
//! integers is one range that contains nothing else, so 260,000 rows need only a few conditions.
//! Other keys are addressed one by one.

use besom_core::collection::Collection;
use besom_core::proposal::ReadSet;
use besom_core::value::{Kind, Value};

/// How the rows of a read set are addressed.
#[derive(Debug, PartialEq, Eq)]
pub enum Shape {
    /// Ranges of the last key column, both ends included.
    Runs(Vec<(i64, i64)>),
    /// Individual keys.
    Keys,
}

/// The shape of a set of rows of a collection.
pub fn shape(collection: &Collection, set: &ReadSet) -> Shape {
    let last = collection.key.last().and_then(|name| collection.columns.get(name));
    let integers = || -> Option<Vec<i64>> {
        let alone = set.prefix.len() + 1 == collection.key.len();
        if !alone || last.is_none_or(|column| column.kind != Kind::Integer) {
            return None;
        }
        set.rest
            .iter()
            .map(|rest| match rest.as_slice() {
                [Value::Integer(i)] => Some(*i),
                _ => None,
            })
            .collect()
    };
    match integers() {
        None => Shape::Keys,
        Some(mut integers) => {
            integers.sort_unstable();
            let mut runs: Vec<(i64, i64)> = Vec::new();
            for i in integers {
                match runs.last_mut() {
                    Some((_, end)) if i <= end.saturating_add(1) => *end = i,
                    _ => runs.push((i, i)),
                }
            }
            Shape::Runs(runs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_sequence_numbers_are_one_run_and_a_gap_is_never_inside() {
        let collection = &besom_product::model::default_collections()["changes"];
        let set = |seqs: &[i64]| ReadSet {
            collection: "changes".into(),
            prefix: vec![Value::Text("d".into())],
            rest: seqs.iter().map(|s| vec![Value::Integer(*s)]).collect(),
        };
        for (seqs, expected) in [
            (&[][..], &[][..]),
            (&[1, 2, 3], &[(1, 3)]),
            (&[3, 1, 2, 2], &[(1, 3)]),
            (&[1, 2, 4, 5, 9], &[(1, 2), (4, 5), (9, 9)]),
            (&[i64::MAX, i64::MAX - 1], &[(i64::MAX - 1, i64::MAX)]),
        ] {
            assert_eq!(shape(collection, &set(seqs)), Shape::Runs(expected.to_vec()), "{seqs:?}");
        }
    }
}
