//! The content of an item, as raw bytes.
//!
//! Decides where a content ends, how many units (clock ticks) it has and how it is split
//! at a unit. Does not interpret values: the bytes are copied, never decoded, because decoding
//! and encoding again can change a value.

use super::json;
use super::wire::{Cursor, Error, Malformed};

/// The maximum nesting of values, which JavaScript's recursion still survives.
pub const DEPTH_MAX: usize = 1000;

/// The maximum nesting of values that yrs reads, because it recurses on the guest's stack.
pub const DEPTH_READ_MAX: usize = 64;

/// The kinds of content; the discriminants are those of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A collected struct without a place (GC).
    Gc = 0,
    /// A deleted item whose content was collected.
    Deleted = 1,
    /// JSON texts (before Yjs 13).
    Json = 2,
    /// Bytes.
    Binary = 3,
    /// Text, counted in UTF-16 units.
    String = 4,
    /// An embedded object in a text.
    Embed = 5,
    /// The start or end of a mark in a text.
    Format = 6,
    /// A nested shared type.
    Type = 7,
    /// Values.
    Any = 8,
    /// A sub-document.
    Doc = 9,
}

impl Kind {
    /// The kind of an item with this number; none for GC and skips, which are not items.
    pub fn of_item(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Deleted,
            2 => Kind::Json,
            3 => Kind::Binary,
            4 => Kind::String,
            5 => Kind::Embed,
            6 => Kind::Format,
            7 => Kind::Type,
            8 => Kind::Any,
            9 => Kind::Doc,
            _ => return None,
        })
    }

    /// Whether a run of this kind may have more than one unit.
    pub fn is_run(self) -> bool {
        matches!(self, Kind::Gc | Kind::Deleted | Kind::Json | Kind::String | Kind::Any)
    }

    /// Whether the kind has a value, that is, does not itself mean deleted.
    pub fn has_content(self) -> bool {
        !matches!(self, Kind::Gc | Kind::Deleted)
    }
}

/// A content as read: its length in units, and its bytes without the leading count or
/// length that its kind of run carries.
pub struct Content<'a> {
    /// The length in units.
    pub len: u64,
    /// The raw bytes.
    pub bytes: &'a [u8],
}

/// Reads the content of an item.
pub fn read<'a>(kind: Kind, cursor: &mut Cursor<'a>) -> Result<Content<'a>, Error> {
    let start = cursor.offset();
    match kind {
        Kind::Gc | Kind::Deleted => Ok(Content { len: cursor.var_uint()?, bytes: &[] }),
        Kind::String => {
            let text = cursor.string()?;
            Ok(Content { len: utf16_len(text.as_bytes()) as u64, bytes: text.as_bytes() })
        }
        Kind::Json | Kind::Any => {
            let len = cursor.count()?;
            let start = cursor.offset();
            for _ in 0..len {
                skip_element(kind, cursor)?;
            }
            Ok(Content { len, bytes: cursor.since(start) })
        }
        Kind::Binary => {
            let len = cursor.var_uint()?;
            cursor.take(len)?;
            Ok(Content { len: 1, bytes: cursor.since(start) })
        }
        Kind::Embed => {
            skip_json(cursor)?;
            Ok(Content { len: 1, bytes: cursor.since(start) })
        }
        Kind::Format => {
            cursor.string()?;
            skip_json(cursor)?;
            Ok(Content { len: 1, bytes: cursor.since(start) })
        }
        Kind::Type => {
            skip_type(cursor)?;
            Ok(Content { len: 1, bytes: cursor.since(start) })
        }
        Kind::Doc => {
            cursor.string()?;
            let offset = cursor.offset();
            skip_value(cursor)?;
            if cursor.since(offset).first() != Some(&OBJECT) {
                return Err(Error { offset, malformed: Malformed::DocOptions });
            }
            Ok(Content { len: 1, bytes: cursor.since(start) })
        }
    }
}

/// Array, map, text, XML element, fragment, hook and text; element and hook have a name.
fn skip_type(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    let offset = cursor.offset();
    match cursor.var_uint()? {
        0 | 1 | 2 | 4 | 6 => Ok(()),
        3 | 5 => cursor.string().map(drop),
        other => Err(Error { offset, malformed: Malformed::TypeKind(other) }),
    }
}

fn skip_element(kind: Kind, cursor: &mut Cursor<'_>) -> Result<(), Error> {
    match kind {
        Kind::Json => skip_json_or_undefined(cursor),
        _ => skip_value(cursor).map(drop),
    }
}

/// Skips a text that must be JSON.
fn skip_json(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    let offset = cursor.offset();
    json::check(cursor.string()?).map_err(|malformed| Error { offset, malformed })
}

fn skip_json_or_undefined(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    let mut ahead = *cursor;
    if ahead.string()? == "undefined" {
        *cursor = ahead;
        return Ok(());
    }
    skip_json(cursor)
}

/// The tag of an object in lib0.
const OBJECT: u8 = 118;

/// Skips one lib0 value without recursion, and returns its nesting.
fn skip_value(cursor: &mut Cursor<'_>) -> Result<usize, Error> {
    let mut open = Open::default();
    let mut deepest = 0;
    loop {
        let offset = cursor.offset();
        match cursor.byte()? {
            // undefined, null, false, true
            127 | 126 | 121 | 120 => {}
            125 => cursor.skip_var_int()?,
            124 => drop(cursor.take(4)?),
            123 | 122 => drop(cursor.take(8)?),
            119 => drop(cursor.string()?),
            tag @ (OBJECT | 117) => {
                let count = cursor.count()?;
                if open.depth == DEPTH_MAX {
                    return Err(Error { offset, malformed: Malformed::Depth });
                }
                open.push((count, tag == OBJECT));
                deepest = deepest.max(open.depth);
            }
            116 => {
                let len = cursor.var_uint()?;
                cursor.take(len)?;
            }
            tag => return Err(Error { offset, malformed: Malformed::ValueTag(tag) }),
        }
        while open.last().is_some_and(|(left, _)| *left == 0) {
            open.pop();
        }
        let Some((left, keyed)) = open.last() else { return Ok(deepest) };
        *left -= 1;
        if *keyed {
            cursor.string()?;
        }
    }
}

/// The number of elements left in each open array or object, and whether a key precedes each.
/// Usual depths need no allocation.
struct Open {
    near: [(u64, bool); DEPTH_READ_MAX],
    far: Vec<(u64, bool)>,
    depth: usize,
}

impl Default for Open {
    fn default() -> Open {
        Open { near: [(0, false); DEPTH_READ_MAX], far: Vec::new(), depth: 0 }
    }
}

impl Open {
    fn push(&mut self, one: (u64, bool)) {
        match self.near.get_mut(self.depth) {
            Some(place) => *place = one,
            None => self.far.push(one),
        }
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.far.pop();
        self.depth -= 1;
    }

    fn last(&mut self) -> Option<&mut (u64, bool)> {
        match self.far.last_mut() {
            Some(last) => Some(last),
            None => self.near.get_mut(self.depth.checked_sub(1)?),
        }
    }
}

/// Whether the values of a content are nested deeper than yrs may read.
pub fn is_deep(kind: Kind, bytes: &[u8]) -> bool {
    // An array of one element takes two bytes.
    if !matches!(kind, Kind::Any | Kind::Doc) || bytes.len() <= 2 * DEPTH_READ_MAX {
        return false;
    }
    let mut cursor = Cursor::new(bytes);
    if kind == Kind::Doc && cursor.string().is_err() {
        return false;
    }
    while cursor.remaining() > 0 {
        match skip_value(&mut cursor) {
            Ok(depth) if depth <= DEPTH_READ_MAX => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// The length of UTF-8 text in UTF-16 units, as Yjs counts.
pub fn utf16_len(text: &[u8]) -> usize {
    // A unit per character, and one more where the character has four bytes.
    text.iter().map(|&b| usize::from(b & 0xc0 != 0x80) + usize::from(b >= 0xf0)).sum()
}

/// The number of bytes that the next `units` of a run's content take. `bytes` begins at a unit and
/// must be well formed. None: the cut falls inside a surrogate pair.
pub fn bytes_of_units(kind: Kind, bytes: &[u8], units: usize) -> Option<usize> {
    match kind {
        Kind::Gc | Kind::Deleted => Some(0),
        Kind::String => {
            let mut at = 0;
            let mut left = units;
            while left > 0 {
                let (width, counted) = match *bytes.get(at)? {
                    0x00..=0x7f => (1, 1),
                    0x80..=0xdf => (2, 1),
                    0xe0..=0xef => (3, 1),
                    0xf0..=0xff => (4, 2),
                };
                left = left.checked_sub(counted)?;
                at += width;
            }
            Some(at)
        }
        Kind::Json | Kind::Any => {
            let mut cursor = Cursor::new(bytes);
            for _ in 0..units {
                skip_element(kind, &mut cursor).ok()?;
            }
            Some(cursor.offset())
        }
        Kind::Binary | Kind::Embed | Kind::Format | Kind::Type | Kind::Doc => {
            Some(if units == 0 { 0 } else { bytes.len() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_utf16_units_and_never_inside_a_pair() {
        let text = "aé€😀b".as_bytes();
        assert_eq!(utf16_len(text), 6);
        let cut = |units| bytes_of_units(Kind::String, text, units);
        let cuts: Vec<_> = (0..=6).map(cut).collect();
        assert_eq!(cuts, [Some(0), Some(1), Some(3), Some(6), None, Some(10), Some(11)]);
    }

    #[test]
    fn values_are_skipped_to_their_end() {
        // {"a": [1, null], "": "x"} as lib0 writes it, then a byte that is not part of it.
        let bytes = [118, 2, 1, b'a', 117, 2, 125, 1, 126, 0, 119, 1, b'x', 99];
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(skip_value(&mut cursor), Ok(2));
        assert_eq!(cursor.remaining(), 1);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| {
            let mut bytes = [117, 1].repeat(depth);
            bytes.push(126);
            skip_value(&mut Cursor::new(&bytes))
        };
        assert_eq!(nested(DEPTH_READ_MAX), Ok(DEPTH_READ_MAX));
        assert_eq!(nested(DEPTH_MAX), Ok(DEPTH_MAX));
        let offset = 2 * DEPTH_MAX;
        assert_eq!(nested(DEPTH_MAX + 1), Err(Error { offset, malformed: Malformed::Depth }));
    }

    #[test]
    fn a_value_nested_deeper_than_yrs_may_read_is_known() {
        let nested = |depth: usize| [[117, 1].repeat(depth), vec![126]].concat();
        for (depth, deep) in [(1, false), (DEPTH_READ_MAX, false), (DEPTH_READ_MAX + 1, true)] {
            let beside = [vec![126], nested(depth), vec![126]].concat();
            assert_eq!(is_deep(Kind::Any, &beside), deep, "{depth}");
            assert_eq!(is_deep(Kind::Doc, &[vec![1, b'd'], nested(depth)].concat()), deep);
        }
        // Objects beside each other are not inside each other.
        let flat = [118, 1, 1, b'a', 126].repeat(4 * DEPTH_READ_MAX);
        assert!(!is_deep(Kind::Any, &flat));
    }
}
