//! Before-images: rows packed into one compressed record per item.
//!
//! The record is a sequence: the name and columns of a table once, then its rows as they arrive, so
//! that 260,000 rows neither repeat their column names nor are in memory as values. A row has every
//! column of its table, in the form in which the database gives it: an image that went through the
//! kinds of a mapping would lack what is not mapped, and lose what the kinds cannot say.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use besom_core::collection::Column;
use besom_core::ids::Tenant;
use besom_core::value::{Field, RowKey, Value};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use serde::{Deserialize, Serialize};

use besom_ports::store::{BeforeImage, Error, Given, KeptItem, Left};

pub use self::purge::{Less, purge};

mod purge;

/// A packed value of the store is corrupt.
#[derive(Debug, thiserror::Error)]
#[error("before-images cannot be read or written: {0}")]
pub struct Broken(String);

impl From<postcard::Error> for Broken {
    fn from(e: postcard::Error) -> Broken {
        Broken(e.to_string())
    }
}

impl From<Broken> for Error {
    fn from(e: Broken) -> Error {
        Error::Invalid(e.to_string())
    }
}

/// The table of an image.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// The collection's name in the mapping.
    pub collection: &'a str,
    /// The tenant, where the collection has any.
    pub tenant: Option<&'a Tenant>,
    /// The columns of its key.
    pub key: &'a [String],
    /// The columns of the mapping.
    pub columns: &'a BTreeMap<String, Column>,
    /// A digest of the names and types of all columns as the database declares them; none: it does not matter.
    pub declared: Option<u64>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// How the mapping reads it; none: it is not mapped.
    pub read: Option<Column>,
    /// Whether its texts end with blanks up to a length, which are not part of the value (`char(n)`).
    pub padded: bool,
}

/// A value borrowed from the database: it is packed like a [`Value`], without being converted to
/// one.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum Lent<'a> {
    Null,
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// A text that is not UTF-8: kept as [`Value::Json`] in hexadecimal, a form that no other raw value has.
    Garbled(Cow<'a, [u8]>),
}

/// The bytes of a text in hexadecimal; `None`: it is something else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).ok()
}

impl Serialize for Lent<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        /// The variants of [`Value`], in the same order.
        #[derive(Serialize)]
        #[expect(dead_code, reason = "the variants are counted")]
        enum Packed<'v> {
            Null,
            Bool(bool),
            Integer(i64),
            Float(f64),
            Decimal(&'v str),
            Text(&'v str),
            Bytes(#[serde(with = "serde_bytes")] &'v [u8]),
            Timestamp(i64),
            Uuid([u8; 16]),
            Json(&'v str),
        }
        match self {
            Lent::Null => Packed::Null,
            Lent::Integer(integer) => Packed::Integer(*integer),
            Lent::Float(float) => Packed::Float(*float),
            Lent::Text(text) => Packed::Text(text),
            Lent::Bytes(bytes) => Packed::Bytes(bytes),
            Lent::Garbled(bytes) => return Packed::Json(&hex::encode(bytes)).serialize(to),
        }
        .serialize(to)
    }
}

impl From<Lent<'_>> for Value {
    fn from(lent: Lent<'_>) -> Value {
        match lent {
            Lent::Null => Value::Null,
            Lent::Integer(integer) => Value::Integer(integer),
            Lent::Float(float) => Value::Float(float),
            Lent::Text(text) => Value::Text(text.into_owned()),
            Lent::Bytes(bytes) => Value::Bytes(bytes.into_owned()),
            Lent::Garbled(bytes) => Value::Json(hex::encode(bytes)),
        }
    }
}

/// `R` is a row's values, in the order of the columns.
#[derive(Serialize, Deserialize)]
enum Record<'a, R> {
    Table {
        collection: Cow<'a, str>,
        tenant: Option<Cow<'a, Tenant>>,
        key: Cow<'a, [String]>,
        /// Empty until the first row.
        columns: Vec<Kept>,
    },
    Row(R),
    /// No row with this key existed.
    Absent(RowKey),
    /// How the following rows of the table were left.
    Left(Cow<'a, Left>),
    /// The version of the item.
    Version(Cow<'a, str>),
    /// What the item was given. Records of earlier versions of Besom do not have it.
    Given(Cow<'a, Given>),
    /// No row existed, and one with these values of the table's columns was inserted.
    Inserted(R),
    /// So many rows were purged.
    Purged(u64),
    /// [`Origin::declared`] of the table before it. Records of earlier versions do not have it.
    Declared(u64),
    /// Rows of this collection were purged.
    PurgedOf(Cow<'a, str>),
}

/// A row of which only the number counts: nothing of it is copied.
struct Passed;

impl<'de> Deserialize<'de> for Passed {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Passed, D::Error> {
        /// The variants of [`Value`], in the same order.
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "the values are passed over")]
        enum Packed<'v> {
            Null,
            Bool(bool),
            Integer(i64),
            Float(f64),
            Decimal(&'v str),
            Text(&'v str),
            Bytes(&'v [u8]),
            Timestamp(i64),
            Uuid([u8; 16]),
            Json(&'v str),
            Date(i32),
        }
        struct Row;
        impl<'de> serde::de::Visitor<'de> for Row {
            type Value = Passed;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the values of a row")
            }

            fn visit_seq<S: serde::de::SeqAccess<'de>>(
                self,
                mut row: S,
            ) -> Result<Passed, S::Error> {
                while let Some(value) = row.next_element::<Packed<'de>>()? {
                    let _: Packed<'de> = value;
                }
                Ok(Passed)
            }
        }
        from.deserialize_seq(Row)
    }
}

/// The typical size of an item with one small row, packed or not.
const BYTES: usize = 128;

/// Reusable memory for packing small records: the compressor's table is larger than they are.
struct Scratch {
    table: CompressTable,
    out: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { table: CompressTable::small(), out: Vec::new() });
}

/// The before-images of one item, while they are collected.
#[derive(Default)]
pub struct Images {
    bytes: Vec<u8>,
    head: Option<Head>,
}

/// What the following rows are of.
#[derive(Clone)]
struct Head {
    collection: String,
    has_columns: bool,
    left: Left,
}

/// A place in [`Images`].
pub struct End {
    bytes: usize,
    head: Option<Head>,
}

impl Images {
    /// Adds a row as it was before its change, with the values of these columns in their order, and how the
    /// change has left it.
    ///
    /// # Errors
    /// If it cannot be packed.
    pub fn push<'a>(
        &mut self,
        origin: Origin<'_>,
        left: &Left,
        columns: impl Iterator<Item = (&'a str, bool)>,
        row: &[impl Serialize],
    ) -> Result<(), Broken> {
        self.table(origin, Some(columns))?;
        self.left(left)?;
        self.record(&Record::Row(row))
    }

    /// Adds the key of a row that did not exist, and how it was inserted.
    ///
    /// # Errors
    /// If it cannot be packed.
    pub fn push_absent(
        &mut self,
        origin: Origin<'_>,
        left: &Left,
        key: RowKey,
    ) -> Result<(), Broken> {
        self.table(origin, None::<std::iter::Empty<_>>)?;
        self.left(left)?;
        self.record(&Record::<()>::Absent(key))
    }

    /// Adds a row that did not exist, and was inserted with these values of all columns of its table.
    ///
    /// # Errors
    /// If it cannot be packed.
    pub fn push_inserted<'a>(
        &mut self,
        origin: Origin<'_>,
        columns: impl Iterator<Item = (&'a str, bool)>,
        row: &[impl Serialize],
    ) -> Result<(), Broken> {
        self.table(origin, Some(columns))?;
        self.record(&Record::Inserted(row))
    }

    /// Says how the following rows were left, unless it is the same as before.
    fn left(&mut self, left: &Left) -> Result<(), Broken> {
        match &mut self.head {
            Some(head) if head.left != *left => head.left.clone_from(left),
            _ => return Ok(()),
        }
        self.record(&Record::<()>::Left(Cow::Borrowed(left)))
    }

    /// Adds the images of another collection of rows.
    pub fn append(&mut self, mut others: Images) {
        if others.head.is_some() {
            self.bytes.append(&mut others.bytes);
            self.head = others.head;
        }
    }

    /// The present end, for [`Images::rewind`].
    pub fn end(&self) -> End {
        End { bytes: self.bytes.len(), head: self.head.clone() }
    }

    /// Removes what was added since.
    pub fn rewind(&mut self, end: &End) {
        self.bytes.truncate(end.bytes);
        self.head.clone_from(&end.head);
    }

    /// Names the table of the following rows, unless it is the same as before.
    fn table<'a>(
        &mut self,
        origin: Origin<'_>,
        columns: Option<impl Iterator<Item = (&'a str, bool)>>,
    ) -> Result<(), Broken> {
        let is_known = |head: &Head| {
            head.collection == origin.collection && (head.has_columns || columns.is_none())
        };
        if self.head.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let has_columns = columns.is_some();
        let (collection, left) = (origin.collection.to_owned(), Left::Unknown);
        self.head = Some(Head { collection, has_columns, left });
        // Most items have one small row.
        self.bytes.reserve(BYTES);
        let kept = |(name, padded): (&str, bool)| {
            let read = origin.columns.get(name).copied();
            Kept { name: name.to_owned(), read, padded }
        };
        let table: Record<'_, ()> = Record::Table {
            collection: origin.collection.into(),
            tenant: origin.tenant.map(Cow::Borrowed),
            key: origin.key.into(),
            columns: columns.into_iter().flatten().map(kept).collect(),
        };
        self.record(&table)?;
        match origin.declared.filter(|_| has_columns) {
            Some(digest) => self.record(&Record::<()>::Declared(digest)),
            None => Ok(()),
        }
    }

    fn record(&mut self, record: &Record<'_, impl Serialize>) -> Result<(), Broken> {
        self.bytes = postcard::to_extend(record, std::mem::take(&mut self.bytes))?;
        Ok(())
    }

    /// The packed record; `version` is that of the item, and `given` what it was given.
    pub fn pack(mut self, version: &str, given: Option<&Given>) -> Vec<u8> {
        let version = self.head.is_some().then(|| Record::<()>::Version(version.into()));
        let given = given.map(|given| Record::Given(Cow::Borrowed(given)));
        // A text and plain numbers can always be packed.
        if version.into_iter().chain(given).any(|record| self.record(&record).is_err()) {
            return Vec::new();
        }
        compressed(&self.bytes)
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let Ok(size) = u16::try_from(bytes.len()) else {
        return lz4_flex::compress_prepend_size(bytes);
    };
    SCRATCH.with_borrow_mut(|Scratch { table, out }| {
        out.clear();
        out.extend(u32::from(size).to_le_bytes());
        out.resize(4 + get_maximum_output_size(bytes.len()), 0);
        match compress_into_with_table(bytes, &mut out[4..], table) {
            Ok(packed) => out[..4 + packed].to_vec(),
            // The buffer is large enough for any input.
            Err(_) => lz4_flex::compress_prepend_size(bytes),
        }
    })
}

/// The images of a packed record, oldest first. `read` is the value of a mapped column; the flag is
/// [`Kept::padded`].
///
/// # Errors
/// If the record is corrupt.
pub fn unpack(
    packed: &[u8],
    read: impl Fn(Column, bool, &Value) -> Value,
) -> Result<Vec<BeforeImage>, Broken> {
    Ok(unpack_declared(packed, read)?.0)
}

/// Like [`unpack`], and [`Origin::declared`] of each collection, if it was recorded.
///
/// # Errors
/// If the record is corrupt.
pub fn unpack_declared(
    packed: &[u8],
    read: impl Fn(Column, bool, &Value) -> Value,
) -> Result<(Vec<BeforeImage>, BTreeMap<String, u64>), Broken> {
    let bytes = lz4_flex::decompress_size_prepended(packed).map_err(|e| Broken(e.to_string()))?;
    let mut rest = bytes.as_slice();
    let (mut images, mut declared) = (Vec::new(), BTreeMap::new());
    let mut head = (String::new(), None, Vec::new(), Vec::new());
    let mut left = Left::Unknown;
    while !rest.is_empty() {
        let (record, after) = postcard::take_from_bytes::<Record<'_, Vec<Value>>>(rest)?;
        rest = after;
        let mut inserted = None;
        let (key, row, stored) = match record {
            Record::Table { collection, tenant, key, columns } => {
                let tenant = tenant.map(Cow::into_owned);
                head = (collection.into_owned(), tenant, key.into_owned(), columns);
                left = Left::Unknown;
                continue;
            }
            Record::Left(of) => {
                left = of.into_owned();
                continue;
            }
            Record::Declared(digest) => {
                declared.insert(head.0.clone(), digest);
                continue;
            }
            Record::Version(_) | Record::Given(_) | Record::Purged(_) | Record::PurgedOf(_) => {
                continue;
            }
            Record::Absent(key) => (key, None, Vec::new()),
            Record::Inserted(values) => {
                let all = head.3.iter().zip(values);
                let all: Vec<Field> =
                    all.map(|(kept, value)| Field::new(&kept.name, value)).collect();
                let key = key_of(&head.2, &head.3, &all, &read);
                inserted = Some(Left::As(all));
                (key, None, Vec::new())
            }
            Record::Row(values) => {
                let mut fields = Vec::new();
                let mut stored = Vec::with_capacity(values.len());
                for (kept, value) in head.3.iter().zip(values) {
                    if let Some(column) = kept.read {
                        fields.push(Field::new(&kept.name, read(column, kept.padded, &value)));
                    }
                    stored.push(Field::new(&kept.name, value));
                }
                let of = |name: &String| fields.iter().find(|f| f.name == *name);
                let key = head.2.iter().filter_map(of).map(|f| f.value.clone()).collect();
                (key, Some(fields), stored)
            }
        };
        let (collection, tenant) = (head.0.clone(), head.1.clone());
        let left = inserted.unwrap_or_else(|| left.clone());
        images.push(BeforeImage { collection, tenant, key, row, stored, left });
    }
    Ok((images, declared))
}

/// The key of a row, from its columns as they are stored.
fn key_of(
    key: &[String],
    columns: &[Kept],
    row: &[Field],
    read: &impl Fn(Column, bool, &Value) -> Value,
) -> RowKey {
    let value = |name: &String| {
        let at = columns.iter().position(|kept| kept.name == *name)?;
        let (kept, field) = (&columns[at], row.get(at)?);
        Some(read(kept.read?, kept.padded, &field.value))
    };
    key.iter().filter_map(value).collect()
}

/// What a packed record is of.
///
/// # Errors
/// If the record is corrupt.
pub fn outline(packed: &[u8]) -> Result<KeptItem, Broken> {
    let bytes = lz4_flex::decompress_size_prepended(packed).map_err(|e| Broken(e.to_string()))?;
    let mut rest = bytes.as_slice();
    let mut kept = KeptItem::default();
    while !rest.is_empty() {
        let (record, after) = postcard::take_from_bytes::<Record<'_, Passed>>(rest)?;
        rest = after;
        match record {
            Record::Table { collection, .. } => {
                if !kept.collections.iter().any(|known| *known == collection) {
                    kept.collections.push(collection.into_owned());
                }
            }
            Record::Row(_) | Record::Absent(_) | Record::Inserted(_) => kept.rows += 1,
            Record::Left(_) | Record::Declared(_) => {}
            Record::Version(version) => kept.version = Some(version.into_owned()),
            Record::Given(given) => kept.given = Some(given.into_owned()),
            Record::Purged(rows) => kept.purged += rows,
            Record::PurgedOf(name) => kept.purged_of.push(name.into_owned()),
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use besom_core::collection::Encoding;
    use besom_core::time::Time;
    use besom_core::value::Kind;

    use super::*;

    fn as_it_is(_: Column, _: bool, value: &Value) -> Value {
        value.clone()
    }

    fn mapped(names: &[&str]) -> BTreeMap<String, Column> {
        let column = Column { kind: Kind::Integer, encoding: Encoding::Native };
        names.iter().map(|name| ((*name).to_owned(), column)).collect()
    }

    fn origin<'a>(key: &'a [String], columns: &'a BTreeMap<String, Column>) -> Origin<'a> {
        Origin { collection: "c", tenant: None, key, columns, declared: None }
    }

    /// A table is known by its first row with columns.
    #[test]
    fn how_the_columns_were_declared_is_kept_with_the_rows() {
        let (columns, key) = (mapped(&["id"]), ["id".to_owned()]);
        let origin = Origin { declared: Some(u64::MAX), ..origin(&key, &columns) };
        let mut images = Images::default();
        images.push_absent(origin, &Left::Copy, vec![Value::Integer(1)]).unwrap();
        images
            .push(origin, &Left::Gone, [("id", false)].into_iter(), &[Value::Integer(2)])
            .unwrap();
        let packed = images.pack("v", None);
        let (rows, declared) = unpack_declared(&packed, as_it_is).unwrap();
        assert_eq!((rows.len(), outline(&packed).unwrap().rows), (2, 2));
        assert_eq!(declared, BTreeMap::from([("c".to_owned(), u64::MAX)]));
    }

    #[test]
    fn what_is_lent_is_packed_like_what_is_owned() {
        let lent = [
            Lent::Null,
            Lent::Integer(-7),
            Lent::Float(-0.5),
            Lent::Text("é".into()),
            Lent::Bytes(vec![0, 255].into()),
            Lent::Garbled(vec![0xc3, 0x28].into()),
        ];
        let values: Vec<Value> = lent.iter().cloned().map(Value::from).collect();
        let names: Vec<String> = (0..values.len()).map(|at| format!("c{at}")).collect();
        let columns = mapped(&["c1", "c3"]);
        let origin = origin(&names[1..2], &columns);
        let (mut of_lent, mut of_values) = (Images::default(), Images::default());
        let each = || names.iter().map(|name| (name.as_str(), false));
        for _ in 0..2 {
            of_lent.push(origin, &Left::Gone, each(), &lent).unwrap();
            of_values.push(origin, &Left::Gone, each(), &values).unwrap();
        }
        let packed = of_lent.pack("v", None);
        assert_eq!(packed, of_values.pack("v", None));
        for image in unpack(&packed, as_it_is).unwrap() {
            let row: Vec<Value> = image.row.unwrap().into_iter().map(|f| f.value).collect();
            assert_eq!(
                (row, image.key),
                (vec![values[1].clone(), values[3].clone()], vec![Value::Integer(-7)])
            );
            let stored: Vec<Value> = image.stored.into_iter().map(|f| f.value).collect();
            assert_eq!(stored, values);
        }
    }

    /// The columns of a table are known with its first row, which may follow keys of rows that did not exist.
    #[test]
    fn a_row_behind_a_key_alone_has_its_columns() {
        let columns = mapped(&["id"]);
        let key = ["id".to_owned()];
        let origin = origin(&key, &columns);
        let each = || [("id", false), ("more", true)].into_iter();
        let set = Left::Set(vec![Field::new("id", Value::Integer(7))]);
        let mut images = Images::default();
        images.push_absent(origin, &set, vec![Value::Integer(1)]).unwrap();
        images.push(origin, &set, each(), &[Value::Integer(2), Value::Text("x".into())]).unwrap();
        images.push_absent(origin, &Left::Copy, vec![Value::Integer(3)]).unwrap();
        images.push(origin, &Left::Gone, each(), &[Value::Integer(4), Value::Null]).unwrap();
        let given = Given {
            now: Time(-7),
            route: Some("r".into()),
            payload: vec![0, 255],
            planned_at: Time(i64::MAX),
            attempts: 3,
            guard_retries: u32::MAX,
            proposal: u128::MAX,
        };
        let packed = images.pack("7", Some(&given));
        let kept = KeptItem {
            version: Some("7".into()),
            collections: vec!["c".into()],
            rows: 4,
            given: Some(given),
            purged: 0,
            purged_of: Vec::new(),
        };
        assert_eq!(outline(&packed).unwrap(), kept);
        let images = unpack(&packed, as_it_is).unwrap();
        let left: Vec<&Left> = images.iter().map(|image| &image.left).collect();
        assert_eq!(left, [&set, &set, &Left::Copy, &Left::Gone]);
        let keys: Vec<RowKey> = images.iter().map(|image| image.key.clone()).collect();
        assert_eq!(keys, [1, 2, 3, 4].map(|id| vec![Value::Integer(id)]));
        let lengths: Vec<usize> = images.iter().map(|image| image.stored.len()).collect();
        assert_eq!(lengths, [0, 2, 0, 2]);
        assert_eq!(images[1].row, Some(vec![Field::new("id", Value::Integer(2))]));
    }

    /// As a version of Besom has written it that did not record what items were given.
    #[test]
    fn a_record_without_what_the_item_was_given_is_read() {
        let columns = mapped(&["id"]);
        let key = ["id".to_owned()];
        let origin = origin(&key, &columns);
        let mut images = Images::default();
        images
            .push(origin, &Left::Gone, [("id", false)].into_iter(), &[Value::Integer(2)])
            .unwrap();
        let written = lz4_flex::decompress_size_prepended(&images.pack("v", None)).unwrap();
        assert_eq!(written, WITHOUT_GIVEN);
        let packed = lz4_flex::compress_prepend_size(WITHOUT_GIVEN);
        let kept = outline(&packed).unwrap();
        assert_eq!((kept.version.as_deref(), kept.rows, kept.given), (Some("v"), 1, None));
        let [image] = unpack(&packed, as_it_is).unwrap().try_into().unwrap();
        assert_eq!(image.row, Some(vec![Field::new("id", Value::Integer(2))]));
        // An item that changes no row, but sends a message.
        let given = Given { now: Time(1), ..kept_nothing() };
        let kept = outline(&Images::default().pack("v", Some(&given))).unwrap();
        assert_eq!(kept, KeptItem { given: Some(given), ..KeptItem::default() });
    }

    /// The record of the row above, as it was written before: its table, how it was left, itself, and the version.
    const WITHOUT_GIVEN: &[u8] =
        b"\x00\x01c\x00\x01\x02id\x01\x02id\x01\x01\x00\x00\x03\x01\x01\x01\x02\x04\x04\x01v";

    fn kept_nothing() -> Given {
        let (now, planned_at) = (Time(0), Time(0));
        let (route, payload, proposal) = (None, Vec::new(), 0);
        Given { now, route, payload, planned_at, attempts: 0, guard_retries: 0, proposal }
    }

    /// A row that was inserted with all columns is like an absent one that was left with them.
    #[test]
    fn an_inserted_row_has_its_columns_and_its_key() {
        let columns = mapped(&["id"]);
        let key = ["id".to_owned()];
        let origin = origin(&key, &columns);
        let each = || [("more", false), ("id", false)].into_iter();
        let values = [Value::Null, Value::Integer(7)];
        let mut images = Images::default();
        images.push_inserted(origin, each(), &values).unwrap();
        images.push(origin, &Left::Gone, each(), &values).unwrap();
        let packed = images.pack("1", None);
        assert_eq!(outline(&packed).unwrap().rows, 2);
        let [inserted, gone] = unpack(&packed, as_it_is).unwrap().try_into().unwrap();
        let all = vec![Field::new("more", Value::Null), Field::new("id", Value::Integer(7))];
        assert_eq!((inserted.key, inserted.row, inserted.stored), (gone.key, None, Vec::new()));
        assert_eq!((inserted.left, gone.left), (Left::As(all), Left::Gone));
    }

    /// Nothing of a row is copied to count it, whatever its values are.
    #[test]
    fn rows_with_values_of_every_kind_are_counted() {
        let all = [
            Value::Null,
            Value::Bool(true),
            Value::Integer(-1),
            Value::Float(0.5),
            Value::Decimal("1.5".into()),
            Value::Text("é".into()),
            Value::Bytes(vec![0, 255]),
            Value::Timestamp(besom_core::time::Time(7)),
            Value::Uuid([9; 16]),
            Value::Json("{}".into()),
            Value::Date(-3),
        ];
        let key = ["c0".to_owned()];
        let columns = mapped(&["c0"]);
        let origin = origin(&key, &columns);
        let names: Vec<String> = (0..all.len()).map(|at| format!("c{at}")).collect();
        let mut images = Images::default();
        for _ in 0..3 {
            let each = names.iter().map(|name| (name.as_str(), false));
            images.push(origin, &Left::Gone, each, &all).unwrap();
        }
        let kept = KeptItem {
            version: Some("v".into()),
            collections: vec!["c".into()],
            rows: 3,
            given: None,
            purged: 0,
            purged_of: Vec::new(),
        };
        assert_eq!(outline(&images.pack("v", None)).unwrap(), kept);
    }

    /// The compressor's table is kept from record to record, as long as they are small.
    #[test]
    fn records_of_every_size_come_back_whatever_was_packed_before_them() {
        let key = ["id".to_owned()];
        let columns = mapped(&["id", "bytes"]);
        let tenant = Tenant::from("t");
        let origin = Origin { tenant: Some(&tenant), ..origin(&key, &columns) };
        let whole = usize::from(u16::MAX);
        let sizes = [whole - 40, 0, whole + 1, 1, whole, 300, 3 * whole, 64, whole - 1];
        for (id, size) in sizes.into_iter().chain(whole - 60..whole - 20).enumerate() {
            let bytes = (0..size).map(|at| (at * at / 7) as u8).collect();
            let row = vec![Value::Integer(id as i64), Value::Bytes(bytes)];
            let mut images = Images::default();
            let each = [("id", false), ("bytes", false)].into_iter();
            images.push(origin, &Left::Gone, each, &row).unwrap();
            let [image] = unpack(&images.pack("", None), as_it_is).unwrap().try_into().unwrap();
            let values: Vec<Value> = image.stored.into_iter().map(|f| f.value).collect();
            assert_eq!(
                (values, image.tenant, image.collection),
                (row, Some("t".into()), "c".into())
            );
        }
    }

    /// Values as they were written before bytes were written as a whole.
    #[derive(Serialize)]
    #[expect(dead_code, reason = "the variants are counted")]
    enum Former {
        Null,
        Bool(bool),
        Integer(i64),
        Float(f64),
        Decimal(String),
        Text(String),
        Bytes(Vec<u8>),
    }

    #[test]
    fn bytes_are_read_however_they_were_written() {
        for bytes in [vec![], vec![0], vec![0x80; 200], (0..=255).collect::<Vec<u8>>()] {
            let value = Value::Bytes(bytes.clone());
            let written = postcard::to_stdvec(&Former::Bytes(bytes.clone())).unwrap();
            assert_eq!(postcard::to_stdvec(&value).unwrap(), written);
            assert_eq!(postcard::from_bytes::<Value>(&written).unwrap(), value);
            let written = serde_json::to_string(&Former::Bytes(bytes)).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), written);
            assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
        }
    }
}
