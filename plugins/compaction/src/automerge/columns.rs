//! Counts the rows in the columns of a chunk without expanding them.
//!
//! With run-length encoding a few bytes can represent millions of rows, and deflated columns
//! inflate up to a thousand times. These counts give the memory that a chunk needs, before the
//! library reads it.

use std::io::Read;
use std::ops::AddAssign;

use super::wire::{Fault, Reader};

/// The maximum number of bytes that one chunk may inflate to.
pub const INFLATED_BYTES_MAX: usize = 128 * 1024 * 1024;

const DEFLATED: u64 = 0b1000;
/// The column with the action of each operation, which every operation has.
const ACTION: u64 = 4 << 4 | 2;
/// The column with the actor of each change.
const ACTOR: u64 = 1;

/// The counts over a list of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of rows: operations or changes.
    pub rows: u64,
    /// The rows of all columns together.
    pub cells: u64,
    /// The inflated bytes.
    pub bytes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.rows = self.rows.saturating_add(other.rows);
        self.cells = self.cells.saturating_add(other.cells);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The columns: specification and length in bytes.
pub type Layout = Vec<(u64, u64)>;

/// Reads the list of columns.
pub fn layout(reader: &mut Reader<'_>) -> Result<Layout, Fault> {
    let count = reader.number("the number of columns")?;
    if count > reader.left() as u64 / 2 {
        return Err(reader.fault(format!("{count} columns are more than the bytes left can hold")));
    }
    (0..count)
        .map(|_| {
            let spec = reader.number("a column's specification")?;
            if spec > u64::from(u32::MAX) {
                return Err(reader.fault("a column's specification has more than 32 bits"));
            }
            Ok((spec, reader.number("a column's length")?))
        })
        .collect()
}

/// The kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Operations of a change, whose columns are never deflated.
    Change,
    /// Operations of a document.
    Operations,
    /// The changes of a document.
    Changes,
}

/// Reads the columns' data.
pub fn count(reader: &mut Reader<'_>, layout: &Layout, of: Of) -> Result<Counts, Fault> {
    let mut counts = Counts::default();
    for &(spec, len) in layout {
        let start = reader.at();
        let data = reader.take(len, "a column")?;
        let inflated;
        let data = if spec & DEFLATED == 0 {
            data
        } else if of == Of::Change {
            return Err(Fault { at: start, what: "a column of a change is deflated".into() });
        } else {
            inflated = inflate(data).map_err(|what| Fault { at: start, what })?;
            &inflated
        };
        counts.bytes = counts.bytes.saturating_add(data.len() as u64);
        let rows = rows(spec, data)
            .map_err(|fault| Fault { at: start, what: format!("in a column, {fault}") })?;
        counts.cells = counts.cells.saturating_add(rows);
        let counted = match of {
            Of::Change | Of::Operations => ACTION,
            Of::Changes => ACTOR,
        };
        if spec & !DEFLATED == counted {
            counts.rows = rows;
        }
    }
    Ok(counts)
}

/// Inflates all of `data`, without trailing bytes.
pub fn inflate(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut inflated = Vec::new();
    let mut decoder = flate2::bufread::DeflateDecoder::new(data);
    decoder
        .by_ref()
        .take(INFLATED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut inflated)
        .map_err(|error| format!("invalid deflated data: {error}"))?;
    if inflated.len() > INFLATED_BYTES_MAX {
        return Err(format!("deflated data has more than {INFLATED_BYTES_MAX} bytes"));
    }
    match data.len() as u64 - decoder.total_in() {
        0 => Ok(inflated),
        left => Err(format!("{left} bytes follow deflated data")),
    }
}

/// The rows of a column.
fn rows(spec: u64, data: &[u8]) -> Result<u64, Fault> {
    let reader = &mut Reader::new(data);
    match spec & 0b111 {
        // Group, actor, integer, value metadata.
        0 | 1 | 2 | 6 => runs(reader, |reader| reader.number("a value").map(drop)),
        3 => runs(reader, |reader| reader.signed("a difference").map(drop)),
        4 => {
            let mut rows = 0u64;
            while !reader.is_done() {
                rows = rows.saturating_add(reader.number("a run")?);
            }
            Ok(rows)
        }
        5 => runs(reader, |reader| {
            let text = reader.prefixed("a text")?;
            std::str::from_utf8(text).map(drop).map_err(|_| reader.fault("a text is not UTF-8"))
        }),
        // Raw values, described by the metadata column.
        _ => Ok(0),
    }
}

fn runs<'a>(
    reader: &mut Reader<'a>,
    mut value: impl FnMut(&mut Reader<'a>) -> Result<(), Fault>,
) -> Result<u64, Fault> {
    let mut rows = 0u64;
    while !reader.is_done() {
        rows = rows.saturating_add(match reader.signed("a run")? {
            0 => reader.number("a run of nothing")?,
            run if run > 0 => {
                value(reader)?;
                run.unsigned_abs()
            }
            literal => {
                let literal = literal.unsigned_abs();
                if literal > reader.left() as u64 {
                    return Err(reader.fault(format!("{literal} values do not fit")));
                }
                for _ in 0..literal {
                    value(reader)?;
                }
                literal
            }
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_without_expanding_them() {
        let cases: [(u64, &[u8], Option<u64>); 11] = [
            (2, &[], Some(0)),
            (2, &[5, 7], Some(5)),
            (2, &[0x7e, 7, 8], Some(2)),
            (2, &[0, 9], Some(9)),
            (2, &[0, 9, 0x7e, 7, 8, 3, 1], Some(14)),
            (2, &[0xc0, 0x84, 0x3d, 1], Some(1_000_000)),
            (2, &[0x7e, 7], None),
            (3, &[3, 0x7f], Some(3)),
            (4, &[0, 3, 4], Some(7)),
            (5, &[2, 1, b'a'], Some(2)),
            (5, &[2, 1, 0xff], None),
        ];
        for (spec, data, expected) in cases {
            assert_eq!(rows(spec, data).ok(), expected, "{spec} {data:x?}");
        }
    }

    #[test]
    fn what_follows_deflated_data_is_noticed() {
        // One stored block, "ab".
        let mut deflated = vec![1, 2, 0, 0xfd, 0xff, b'a', b'b'];
        assert_eq!(inflate(&deflated).unwrap(), b"ab");
        deflated.push(0);
        assert_eq!(inflate(&deflated).unwrap_err(), "1 bytes follow deflated data");
        assert!(inflate(&deflated[..5]).is_err());
    }
}
