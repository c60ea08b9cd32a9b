//! Reads a Yjs V1 update into structs and deletions, independently of yrs.
//!
//! Decides strictly which bytes are a well-formed update (no trailing bytes, nothing unknown). Does
//! not combine structs, which the model does.
//!
//! ```text
//! update   = count { section } deletions
//! section  = count client clock { struct }
//! struct   = info:0 len | info:10 len | info [origin] [right origin] [parent [sub]] content
//! deletions = count { client count { clock len } }
//! ```

use std::collections::HashSet;

use super::content::{self, Kind};
use super::wire::{Cursor, Error, Malformed};

/// The largest clock: yrs computes with signed 32-bit differences.
pub const CLOCK_MAX: u32 = i32::MAX as u32;

const HAS_ORIGIN: u8 = 0x80;
const HAS_RIGHT_ORIGIN: u8 = 0x40;
const HAS_PARENT_SUB: u8 = 0x20;
const KIND: u8 = 0x1f;
const GC: u8 = 0;
const SKIP: u8 = 10;

/// The identity of one unit: the client that made it and its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId {
    /// The id of the client.
    pub client: u64,
    /// The clock of the unit.
    pub clock: u32,
}

/// The parent of an item, if it is encoded (an item with an origin inherits it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireParent<'a> {
    /// A shared type of the document, by name.
    Root(&'a str),
    /// The nested type that this item contains.
    Item(WireId),
}

/// A run of units with consecutive clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struct<'a> {
    /// The first unit.
    pub id: WireId,
    /// The number of units.
    pub len: u32,
    /// The unit to the left when the first was inserted; each further unit follows the previous
    /// one.
    pub origin: Option<WireId>,
    /// The unit to the right when they were inserted.
    pub right_origin: Option<WireId>,
    /// The parent, present only without any origin.
    pub parent: Option<WireParent<'a>>,
    /// The key in a map or the name of an attribute; only with `parent`.
    pub parent_sub: Option<&'a str>,
    /// The kind of content.
    pub kind: Kind,
    /// The raw content, see [`content::Content`].
    pub bytes: &'a [u8],
}

/// A run of deleted units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The first unit.
    pub id: WireId,
    /// The number of units.
    pub len: u32,
}

/// Receives the content of an update, in its order. Skips (announced gaps) are not reported,
/// because units that no update contains are missing in any case.
pub trait Sink<'a> {
    /// Receives a struct.
    fn structure(&mut self, structure: &Struct<'a>);
    /// Receives a deletion.
    fn deletion(&mut self, deletion: Deletion);
}

/// Reads one update. After an error the sink may have received part of it.
pub fn read<'a>(bytes: &'a [u8], sink: &mut impl Sink<'a>) -> Result<(), Error> {
    let cursor = &mut Cursor::new(bytes);
    let mut clients = DistinctClients::default();
    for _ in 0..cursor.count()? {
        let structs = cursor.count()?;
        let offset = cursor.offset();
        let client = cursor.var_uint()?;
        if !clients.insert(client) {
            return Err(Error { offset, malformed: Malformed::RepeatedClient });
        }
        let mut clock = read_clock(cursor)?;
        for _ in 0..structs {
            let offset = cursor.offset();
            let (len, structure) = read_struct(cursor, WireId { client, clock })?;
            if let Some(structure) = structure {
                sink.structure(&structure);
            }
            clock = advance(clock, len).map_err(|malformed| Error { offset, malformed })?;
        }
    }
    for _ in 0..cursor.count()? {
        let client = cursor.var_uint()?;
        for _ in 0..cursor.count()? {
            let offset = cursor.offset();
            let clock = read_clock(cursor)?;
            let len = cursor.var_uint()?;
            if len > 0 {
                let malformed = |malformed| Error { offset, malformed };
                advance(clock, len).map_err(malformed)?;
                sink.deletion(Deletion { id: WireId { client, clock }, len: len as u32 });
            }
        }
    }
    if cursor.remaining() > 0 {
        return cursor.error(Malformed::Trailing);
    }
    Ok(())
}

/// The length, and the struct unless it is a skip.
fn read_struct<'a>(
    cursor: &mut Cursor<'a>,
    id: WireId,
) -> Result<(u64, Option<Struct<'a>>), Error> {
    let offset = cursor.offset();
    let info = cursor.byte()?;
    let mut structure = Struct {
        id,
        len: 0,
        origin: None,
        right_origin: None,
        parent: None,
        parent_sub: None,
        kind: Kind::Gc,
        bytes: &[],
    };
    if info == SKIP {
        return Ok((cursor.var_uint()?, None));
    }
    if info != GC {
        let Some(kind) = Kind::of_item(info & KIND) else {
            return Err(Error { offset, malformed: Malformed::ContentKind(info & KIND) });
        };
        structure.kind = kind;
        read_place(cursor, info, &mut structure)?;
    }
    let content = content::read(structure.kind, cursor)?;
    let malformed = |malformed| Error { offset, malformed };
    advance(id.clock, content.len).map_err(malformed)?;
    structure.len = content.len as u32;
    structure.bytes = content.bytes;
    Ok((content.len, Some(structure)))
}

fn read_place<'a>(cursor: &mut Cursor<'a>, info: u8, to: &mut Struct<'a>) -> Result<(), Error> {
    if info & HAS_ORIGIN != 0 {
        to.origin = Some(read_id(cursor)?);
    }
    if info & HAS_RIGHT_ORIGIN != 0 {
        to.right_origin = Some(read_id(cursor)?);
    }
    if info & (HAS_ORIGIN | HAS_RIGHT_ORIGIN) == 0 {
        to.parent = Some(if cursor.var_uint()? == 1 {
            WireParent::Root(cursor.string()?)
        } else {
            WireParent::Item(read_id(cursor)?)
        });
        if info & HAS_PARENT_SUB != 0 {
            to.parent_sub = Some(cursor.string()?);
        }
    }
    Ok(())
}

fn read_id(cursor: &mut Cursor<'_>) -> Result<WireId, Error> {
    Ok(WireId { client: cursor.var_uint()?, clock: read_clock(cursor)? })
}

fn read_clock(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let offset = cursor.offset();
    match u32::try_from(cursor.var_uint()?) {
        Ok(clock) if clock <= CLOCK_MAX => Ok(clock),
        _ => Err(Error { offset, malformed: Malformed::Clock }),
    }
}

/// The clock after a struct of that length.
fn advance(clock: u32, len: u64) -> Result<u32, Malformed> {
    match len {
        0 => Err(Malformed::Empty),
        _ if len > u64::from(CLOCK_MAX - clock) => Err(Malformed::Clock),
        _ => Ok(clock + len as u32),
    }
}

/// Checks that clients are unique. Writers order the sections by descending client; only another
/// order needs a set.
#[derive(Default)]
struct DistinctClients {
    last: Option<u64>,
    seen: Vec<u64>,
    unordered: Option<HashSet<u64>>,
}

impl DistinctClients {
    /// Returns false if the client occurred before.
    fn insert(&mut self, client: u64) -> bool {
        if self.unordered.is_none() && self.last.is_some_and(|last| client >= last) {
            self.unordered = Some(self.seen.drain(..).collect());
        }
        self.last = Some(client);
        match &mut self.unordered {
            Some(set) => set.insert(client),
            None => {
                self.seen.push(client);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Collected<'a>(Vec<Struct<'a>>, Vec<Deletion>);

    impl<'a> Sink<'a> for Collected<'a> {
        fn structure(&mut self, structure: &Struct<'a>) {
            self.0.push(*structure);
        }
        fn deletion(&mut self, deletion: Deletion) {
            self.1.push(deletion);
        }
    }

    /// One client (7) at clock 0: "ab" in root "t", then a deleted unit behind it, and the
    /// deletion of clock 2.
    const UPDATE: &[u8] =
        &[1, 2, 7, 0, 0x04, 1, 1, b't', 2, b'a', b'b', 0x81, 7, 1, 1, 1, 7, 1, 2, 1];

    #[test]
    fn an_update_is_read_into_structs_and_deletions() {
        let mut sink = Collected::default();
        read(UPDATE, &mut sink).unwrap();
        let [text, deleted] = &sink.0[..] else { panic!("two structs: {:?}", sink.0) };
        assert_eq!(text.parent, Some(WireParent::Root("t")));
        assert_eq!((text.kind, text.len, text.bytes), (Kind::String, 2, &b"ab"[..]));
        assert_eq!(deleted.id, WireId { client: 7, clock: 2 });
        assert_eq!(deleted.origin, Some(WireId { client: 7, clock: 1 }));
        assert_eq!((deleted.kind, deleted.len), (Kind::Deleted, 1));
        assert_eq!(sink.1, [Deletion { id: WireId { client: 7, clock: 2 }, len: 1 }]);
    }

    #[test]
    fn every_truncation_and_every_trailing_byte_is_an_error() {
        for end in 0..UPDATE.len() {
            assert!(read(&UPDATE[..end], &mut Collected::default()).is_err(), "cut at {end}");
        }
        let longer = [UPDATE, &[0]].concat();
        let error = Error { offset: UPDATE.len(), malformed: Malformed::Trailing };
        assert_eq!(read(&longer, &mut Collected::default()), Err(error));
    }

    #[test]
    fn what_yjs_would_not_write_is_refused_with_its_place() {
        let cases: &[(&[u8], usize, Malformed)] = &[
            (&[1, 1, 7, 0, 0x0b, 1, 1, b't', 1, 0], 4, Malformed::ContentKind(11)),
            (&[1, 1, 7, 0, 0x07, 1, 1, b't', 9, 0], 8, Malformed::TypeKind(9)),
            (&[1, 1, 7, 0, 0x08, 1, 1, b't', 1, 99, 0], 9, Malformed::ValueTag(99)),
            (&[1, 1, 7, 0, 0x04, 1, 1, b't', 0, 0], 4, Malformed::Empty),
            (&[2, 1, 7, 0, 0, 1, 1, 7, 1, 0, 1, 0], 7, Malformed::RepeatedClient),
            (&[1, 1, 7, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1, 0], 3, Malformed::Clock),
        ];
        for (bytes, offset, malformed) in cases {
            let error = Error { offset: *offset, malformed: *malformed };
            assert_eq!(read(bytes, &mut Collected::default()), Err(error), "{bytes:?}");
        }
    }
}
