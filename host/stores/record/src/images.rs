//! Before-images: rows packed into one compressed record per item.
//!
//! The record is a sequence: the name and columns of a table once, then its rows as they arrive, so
//! that 260,000 rows neither repeat their column names nor are in memory as values.

use std::borrow::Cow;
use std::cell::RefCell;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::{Field, RowKey, Value};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use serde::{Deserialize, Serialize};

use besom_ports::store::{BeforeImage, Error};

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
pub struct Origin<'a> {
    /// The collection's name in the mapping.
    pub collection: &'a str,
    /// The tenant, where the collection has any.
    pub tenant: Option<&'a Tenant>,
    /// The columns of its key.
    pub key: &'a [String],
}

/// A value borrowed from the database: it is packed like a [`Value`], without being converted to
/// one. Its variants are those of [`Value`], in the same order.
#[allow(missing_docs)]
#[derive(Serialize)]
pub enum Lent<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Decimal(Cow<'a, str>),
    Text(&'a str),
    Bytes(#[serde(with = "serde_bytes")] &'a [u8]),
    Timestamp(Time),
    Uuid([u8; 16]),
    Json(&'a str),
}

impl Lent<'_> {
    /// The value, with a copy of what is borrowed.
    pub fn into_value(self) -> Value {
        match self {
            Lent::Null => Value::Null,
            Lent::Bool(bool) => Value::Bool(bool),
            Lent::Integer(integer) => Value::Integer(integer),
            Lent::Float(float) => Value::Float(float),
            Lent::Decimal(decimal) => Value::Decimal(decimal.into_owned()),
            Lent::Text(text) => Value::Text(text.to_owned()),
            Lent::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Lent::Timestamp(time) => Value::Timestamp(time),
            Lent::Uuid(uuid) => Value::Uuid(uuid),
            Lent::Json(json) => Value::Json(json.to_owned()),
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
        columns: Vec<Cow<'a, str>>,
    },
    Row(R),
    /// No row with this key existed.
    Absent(RowKey),
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
    collection: Option<String>,
}

/// A place in [`Images`].
pub struct End {
    bytes: usize,
    collection: Option<String>,
}

impl Images {
    /// Adds a row as it was before its change, or the key of a row that did not exist.
    pub fn push<'a>(
        &mut self,
        origin: &Origin<'_>,
        columns: impl Iterator<Item = &'a String>,
        row: Result<Vec<Value>, RowKey>,
    ) -> Result<(), Broken> {
        self.table(origin, columns)?;
        self.record(&match row {
            Ok(values) => Record::Row(values),
            Err(key) => Record::Absent(key),
        })
    }

    /// Adds a row directly from the database.
    pub fn push_lent<'a>(
        &mut self,
        origin: &Origin<'_>,
        columns: impl Iterator<Item = &'a String>,
        row: &[Lent<'_>],
    ) -> Result<(), Broken> {
        self.table(origin, columns)?;
        self.record(&Record::Row(row))
    }

    /// Adds the images of another collection of rows.
    pub fn append(&mut self, mut others: Images) {
        if others.collection.is_some() {
            self.bytes.append(&mut others.bytes);
            self.collection = others.collection;
        }
    }

    /// The present end, for [`Images::rewind`].
    pub fn end(&self) -> End {
        End { bytes: self.bytes.len(), collection: self.collection.clone() }
    }

    /// Removes what was added since.
    pub fn rewind(&mut self, end: &End) {
        self.bytes.truncate(end.bytes);
        self.collection.clone_from(&end.collection);
    }

    /// Names the table of the following rows, unless it is the same as before.
    fn table<'a>(
        &mut self,
        origin: &Origin<'_>,
        columns: impl Iterator<Item = &'a String>,
    ) -> Result<(), Broken> {
        if self.collection.as_deref() != Some(origin.collection) {
            self.collection = Some(origin.collection.to_owned());
            // Most items have one small row.
            self.bytes.reserve(BYTES);
            let table: Record<'_, ()> = Record::Table {
                collection: origin.collection.into(),
                tenant: origin.tenant.map(Cow::Borrowed),
                key: origin.key.into(),
                columns: columns.map(Cow::from).collect(),
            };
            self.record(&table)?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_, impl Serialize>) -> Result<(), Broken> {
        self.bytes = postcard::to_extend(record, std::mem::take(&mut self.bytes))?;
        Ok(())
    }

    /// The packed record.
    pub fn pack(self) -> Vec<u8> {
        let Ok(size) = u16::try_from(self.bytes.len()) else {
            return lz4_flex::compress_prepend_size(&self.bytes);
        };
        SCRATCH.with_borrow_mut(|Scratch { table, out }| {
            out.clear();
            out.extend(u32::from(size).to_le_bytes());
            out.resize(4 + get_maximum_output_size(self.bytes.len()), 0);
            match compress_into_with_table(&self.bytes, &mut out[4..], table) {
                Ok(packed) => out[..4 + packed].to_vec(),
                // The buffer is large enough for any input.
                Err(_) => lz4_flex::compress_prepend_size(&self.bytes),
            }
        })
    }
}

/// The images of a packed record, oldest first.
pub fn unpack(packed: &[u8]) -> Result<Vec<BeforeImage>, Broken> {
    let bytes = lz4_flex::decompress_size_prepended(packed).map_err(|e| Broken(e.to_string()))?;
    let mut rest = bytes.as_slice();
    let mut images = Vec::new();
    let mut head = (String::new(), None, Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (record, after) = postcard::take_from_bytes::<Record<'_, Vec<Value>>>(rest)?;
        rest = after;
        let (key, row) = match record {
            Record::Table { collection, tenant, key, columns } => {
                let tenant = tenant.map(Cow::into_owned);
                head = (collection.into_owned(), tenant, key.into_owned(), columns);
                continue;
            }
            Record::Absent(key) => (key, None),
            Record::Row(values) => {
                let fields: Vec<Field> = head
                    .3
                    .iter()
                    .zip(values)
                    .map(|(name, value)| Field::new(&**name, value))
                    .collect();
                let of = |name: &String| fields.iter().find(|f| f.name == *name);
                let key = head.2.iter().filter_map(of).map(|f| f.value.clone()).collect();
                (key, Some(fields))
            }
        };
        images.push(BeforeImage { collection: head.0.clone(), tenant: head.1.clone(), key, row });
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_packed_like_what_is_owned() {
        let lent = || {
            [
                Lent::Null,
                Lent::Bool(true),
                Lent::Integer(-7),
                Lent::Float(-0.5),
                Lent::Decimal("12.50".into()),
                Lent::Text("é"),
                Lent::Bytes(&[0, 255]),
                Lent::Timestamp(Time(-1)),
                Lent::Uuid([7; 16]),
                Lent::Json("{}"),
            ]
        };
        let values: Vec<Value> = lent().into_iter().map(Lent::into_value).collect();
        let names: Vec<String> = (0..values.len()).map(|at| format!("c{at}")).collect();
        let origin = Origin { collection: "c", tenant: None, key: &names[2..3] };
        let (mut of_lent, mut of_values) = (Images::default(), Images::default());
        for _ in 0..2 {
            of_lent.push_lent(&origin, names.iter(), &lent()).unwrap();
            of_values.push(&origin, names.iter(), Ok(values.clone())).unwrap();
        }
        let packed = of_lent.pack();
        assert_eq!(packed, of_values.pack());
        for image in unpack(&packed).unwrap() {
            let row: Vec<Value> = image.row.unwrap().into_iter().map(|f| f.value).collect();
            assert_eq!((row, image.key), (values.clone(), vec![Value::Integer(-7)]));
        }
    }

    /// The compressor's table is kept from record to record, as long as they are small.
    #[test]
    fn records_of_every_size_come_back_whatever_was_packed_before_them() {
        let names = ["id".to_owned(), "bytes".to_owned()];
        let origin = Origin { collection: "c", tenant: Some(&Tenant::from("t")), key: &names[..1] };
        let whole = usize::from(u16::MAX);
        let sizes = [whole - 40, 0, whole + 1, 1, whole, 300, 3 * whole, 64, whole - 1];
        for (id, size) in sizes.into_iter().chain(whole - 60..whole - 20).enumerate() {
            let bytes = (0..size).map(|at| (at * at / 7) as u8).collect();
            let row = vec![Value::Integer(id as i64), Value::Bytes(bytes)];
            let mut images = Images::default();
            images.push(&origin, names.iter(), Ok(row.clone())).unwrap();
            let [image] = unpack(&images.pack()).unwrap().try_into().unwrap();
            let values: Vec<Value> = image.row.unwrap().into_iter().map(|f| f.value).collect();
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
