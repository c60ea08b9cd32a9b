//! Rows are removed from a packed record; the bytes of the others stay as they were written.

use std::collections::BTreeSet;
use std::ops::Range;

use besom_ports::store::{Left, Place};

use super::{Broken, Passed, Record, compressed};

/// What is left of a packed record.
#[derive(Debug, PartialEq, Eq)]
pub struct Less {
    /// The packed record; `None`: nothing of it.
    pub packed: Option<Vec<u8>>,
    /// Number of rows that were removed; a row that was moved is one.
    pub rows: u64,
}

/// Removes the rows of a place, what was said only about them, and what the item was given. `None`: the record is
/// not the one in which the place was determined.
///
/// # Errors
/// If the record is corrupt.
pub fn purge(packed: &[u8], place: &Place) -> Result<Option<Less>, Broken> {
    if packed.len() as u64 != place.bytes {
        return Ok(None);
    }
    let bytes = lz4_flex::decompress_size_prepended(packed).map_err(|e| Broken(e.to_string()))?;
    let mut kept = Vec::with_capacity(bytes.len());
    let (mut at, mut removed, mut rows, mut before) = (0, 0, 0, 0);
    let mut is_copy = false;
    let (mut collection, mut without) = (String::new(), BTreeSet::new());
    // Written only if a row of theirs stays.
    let (mut table, mut left) = (None::<Range<usize>>, None::<Range<usize>>);
    let mut tail = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let (record, rest) = postcard::take_from_bytes::<Record<'_, Passed>>(&bytes[start..])?;
        let range = start..bytes.len() - rest.len();
        start = range.end;
        match record {
            Record::Table { collection: name, .. } => {
                collection = name.into_owned();
                (table, left, is_copy) = (Some(range), None, false);
            }
            Record::Declared(_) => table = table.map(|table| table.start..range.end),
            Record::Left(of) => {
                is_copy = *of == Left::Copy;
                left = Some(range);
            }
            Record::Version(_) => tail.extend_from_slice(&bytes[range]),
            Record::Given(_) => {}
            Record::Purged(rows) => before += rows,
            Record::PurgedOf(name) => {
                without.insert(name.into_owned());
            }
            Record::Row(_) | Record::Absent(_) | Record::Inserted(_) => {
                at += 1;
                if place.has(at - 1) {
                    removed += 1;
                    rows += u64::from(!is_copy);
                    without.insert(collection.clone());
                    continue;
                }
                for range in [table.take(), left.take(), Some(range)].into_iter().flatten() {
                    kept.extend_from_slice(&bytes[range]);
                }
            }
        }
    }
    let is_within = place.rows.last().is_none_or(|(_, last)| *last < at);
    if at != place.of || !is_within {
        return Ok(None);
    }
    if removed == at {
        return Ok(Some(Less { packed: None, rows }));
    }
    kept.append(&mut tail);
    let mut kept = postcard::to_extend(&Record::<()>::Purged(before + rows), kept)?;
    for name in without {
        kept = postcard::to_extend(&Record::<()>::PurgedOf(name.into()), kept)?;
    }
    Ok(Some(Less { packed: Some(compressed(&kept)), rows }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use besom_core::collection::{Column, Encoding};
    use besom_core::time::Time;
    use besom_core::value::{Field, Kind, Value};
    use besom_ports::store::{BeforeImage, Given};

    use super::super::{Images, Origin, outline, unpack};
    use super::*;

    fn read(packed: &[u8]) -> Vec<BeforeImage> {
        unpack(packed, |_, _, value| value.clone()).unwrap()
    }

    /// Rows of two tables, left in several ways; the last one is alone in its table.
    fn packed(given: bool) -> Vec<u8> {
        let column = Column { kind: Kind::Integer, encoding: Encoding::Native };
        let columns: BTreeMap<String, Column> = [("id".to_owned(), column)].into();
        let key = ["id".to_owned()];
        let origin = |collection| Origin {
            collection,
            tenant: None,
            key: &key,
            columns: &columns,
            declared: Some(7),
        };
        let each = || [("id", false), ("name", false)].into_iter();
        let row = |id: i64, name: &str| [Value::Integer(id), Value::Text(name.into())];
        let set = |name: &str| Left::Set(vec![Field::new("name", Value::Text(name.into()))]);
        let mut images = Images::default();
        images.push_absent(origin("a"), &set("new"), vec![Value::Integer(0)]).unwrap();
        images.push(origin("a"), &Left::Gone, each(), &row(1, "ann")).unwrap();
        images.push(origin("a"), &Left::Gone, each(), &row(2, "ben")).unwrap();
        images.push(origin("a"), &set("secret"), each(), &row(3, "carla")).unwrap();
        images.push(origin("a"), &set("x"), each(), &row(4, "dora")).unwrap();
        images.push_inserted(origin("b"), each(), &row(5, "emil")).unwrap();
        let given = given.then(|| Given {
            now: Time(1),
            route: None,
            payload: b"carla".to_vec(),
            planned_at: Time(0),
            attempts: 0,
            guard_retries: 0,
            proposal: 1,
        });
        images.pack("v7", given.as_ref())
    }

    fn place(packed: &[u8], rows: &[u64]) -> Place {
        let of = outline(packed).unwrap().rows;
        let mut place = Place { history: 1, bytes: packed.len() as u64, of, rows: Vec::new() };
        rows.iter().for_each(|at| place.add(*at));
        place
    }

    /// Whichever rows are removed, the others are read as before.
    #[test]
    fn the_other_rows_are_as_they_were() {
        for given in [false, true] {
            let whole = packed(given);
            let all = read(&whole);
            for removed in 1_u32..(1 << all.len()) - 1 {
                let is_removed = |at: &u64| removed >> at & 1 == 1;
                let rows: Vec<u64> = (0..all.len() as u64).filter(is_removed).collect();
                let less = purge(&whole, &place(&whole, &rows)).unwrap().unwrap();
                assert_eq!(less.rows, rows.len() as u64);
                let less = less.packed.expect("some rows stay");
                let mut stay = all.clone();
                let mut at = 0;
                stay.retain(|_| {
                    at += 1;
                    !is_removed(&(at - 1))
                });
                assert_eq!(read(&less), stay, "{rows:?}");
                let kept = outline(&less).unwrap();
                assert_eq!((kept.version.as_deref(), kept.given), (Some("v7"), None));
                assert_eq!((kept.rows, kept.purged), (stay.len() as u64, rows.len() as u64));
            }
        }
    }

    #[test]
    fn nothing_of_a_removed_row_is_left_in_the_record() {
        let whole = packed(true);
        let less = purge(&whole, &place(&whole, &[3])).unwrap().unwrap().packed.unwrap();
        let bytes = lz4_flex::decompress_size_prepended(&less).unwrap();
        let has = |word: &str| bytes.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        assert!(!has("carla") && !has("secret"), "the row, how it was left, and the payload");
        assert!(has("ben") && has("dora") && has("new"));
    }

    #[test]
    fn if_all_rows_go_nothing_is_left() {
        for given in [false, true] {
            let whole = packed(given);
            let none = Some(Less { packed: None, rows: 6 });
            assert_eq!(purge(&whole, &place(&whole, &[])).unwrap(), none);
            assert_eq!(purge(&whole, &place(&whole, &[0, 1, 2, 3, 4, 5])).unwrap(), none);
            let one = purge(&whole, &place(&whole, &[0, 1, 2, 3, 4])).unwrap().unwrap();
            let one = one.packed.expect("one row stays");
            let last = purge(&one, &place(&one, &[0])).unwrap();
            assert_eq!(last, Some(Less { packed: None, rows: 1 }));
        }
    }

    #[test]
    fn a_place_of_another_record_is_not_followed() {
        let whole = packed(true);
        let here = place(&whole, &[1]);
        for other in [
            Place { bytes: here.bytes + 1, ..here.clone() },
            Place { of: here.of + 1, ..here.clone() },
            Place { rows: vec![(1, here.of)], ..here.clone() },
        ] {
            assert_eq!(purge(&whole, &other).unwrap(), None, "{other:?}");
        }
        let less = purge(&whole, &here).unwrap().unwrap().packed.unwrap();
        assert_eq!(purge(&less, &here).unwrap(), None);
        // Of the same size by chance: the number of rows tells them apart.
        let same = Place { bytes: less.len() as u64, ..here };
        assert_eq!(purge(&less, &same).unwrap(), None);
        assert!(purge(&less[..less.len() - 1], &place(&less, &[0])).unwrap().is_none());
        let broken = Place { bytes: 3, ..Place::default() };
        assert!(purge(b"\xff\xff\xff", &broken).is_err());
    }
}
