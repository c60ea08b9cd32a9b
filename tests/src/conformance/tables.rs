//! The user's tables of the suites: every kind of column, with and without a tenant, and one
//! table under an anchor.

use std::sync::Arc;

use besom_core::collection::{Anchor, Collection, Collections, Column, Encoding};
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::{Field, Kind, Value};

/// The name of every tenant column.
pub const TENANT_COLUMN: &str = "tenant_id";

/// A table to be created, with what its mapping does not say.
#[derive(Debug, Clone)]
pub struct Table {
    /// The mapping.
    pub collection: Collection,
    /// Columns, beside those of the key, that may not be null.
    pub not_null: Vec<&'static str>,
}

impl Table {
    /// Statements that create the table and its indexes, with its anchors as foreign keys.
    /// `type_of` is how the database calls the type of a kind.
    pub fn definition(&self, type_of: impl Fn(Kind) -> &'static str) -> String {
        let Collection { table: name, tenant, key, columns, indexes, anchors, .. } =
            &self.collection;
        let all = collections();
        let within = |columns: &[String]| {
            let names: Vec<&str> = tenant.iter().chain(columns).map(String::as_str).collect();
            names.join(", ")
        };
        let text = type_of(Kind::Text);
        let mut parts: Vec<String> =
            tenant.iter().map(|name| format!("{name} {text} NOT NULL")).collect();
        for (column, definition) in columns {
            let kind = type_of(definition.kind);
            let not_null = key.contains(column) || self.not_null.contains(&column.as_str());
            parts.push(format!("{column} {kind}{}", if not_null { " NOT NULL" } else { "" }));
        }
        parts.push(format!("PRIMARY KEY ({})", within(key)));
        for anchor in anchors {
            let target = &all[&anchor.collection];
            let (own, other) = (within(&anchor.columns), within(&target.key));
            parts.push(format!("FOREIGN KEY ({own}) REFERENCES {} ({other})", target.table));
        }
        let mut sql = format!("CREATE TABLE {name} ({});", parts.join(", "));
        for (index, columns) in indexes {
            // The key at its end gives equal values their order.
            let rest = key.iter().filter(|column| !columns.contains(column));
            let columns: Vec<String> = columns.iter().chain(rest).cloned().collect();
            let present = self.collection.not_null(Some(index)).iter();
            let present: Vec<String> =
                present.map(|column| format!("{column} IS NOT NULL")).collect();
            let some = if present.is_empty() { "" } else { " WHERE " };
            let some = format!("{some}{}", present.join(" AND "));
            let columns = within(&columns);
            sql.push_str(&format!("CREATE INDEX {name}_{index} ON {name} ({columns}){some};"));
        }
        sql
    }
}

/// Every table of the suites. A table comes after those of its anchors.
pub fn all() -> Vec<Table> {
    vec![things(), settings(), counters(), parents(), children(), leaves(), archived()]
}

/// The mapping of all tables.
pub fn collections() -> Arc<Collections> {
    Arc::new(all().into_iter().map(|t| (t.collection.name.clone(), t.collection)).collect())
}

/// One column of every kind, under a tenant.
fn things() -> Table {
    let mut collection = collection(
        "things",
        &["id"],
        &[
            ("id", Kind::Text),
            ("title", Kind::Text),
            ("n", Kind::Integer),
            ("ratio", Kind::Float),
            ("data", Kind::Bytes),
            ("at", Kind::Timestamp),
            ("flag", Kind::Bool),
            ("doc", Kind::Json),
            ("reference", Kind::Uuid),
            ("price", Kind::Decimal),
            ("born", Kind::Date),
            ("most", Kind::Integer),
        ],
    );
    for (name, columns) in [("by_n", &["n"][..]), ("by_flag", &["flag", "n"]), ("by_at", &["at"])] {
        collection.indexes.insert(name.into(), columns.iter().map(|&c| c.into()).collect());
    }
    // Only of the things that have both.
    collection.indexes.insert("by_most".into(), vec!["most".into()]);
    collection.not_null.insert("by_most".into(), vec!["most".into(), "n".into()]);
    Table { collection, not_null: vec!["title"] }
}

/// Where things are moved.
fn archived() -> Table {
    let Table { mut collection, not_null } = things();
    (collection.name, collection.table) = ("archived".into(), "archived".into());
    collection.indexes.clear();
    collection.not_null.clear();
    Table { collection, not_null }
}

/// No tenant.
fn settings() -> Table {
    let mut collection =
        collection("settings", &["name"], &[("name", Kind::Text), ("value", Kind::Integer)]);
    collection.tenant = None;
    Table { collection, not_null: vec![] }
}

/// No tenant, and a key that every database puts in the same order.
fn counters() -> Table {
    let mut collection =
        collection("counters", &["id"], &[("id", Kind::Integer), ("n", Kind::Integer)]);
    collection.tenant = None;
    Table { collection, not_null: vec![] }
}

fn parents() -> Table {
    let columns = [("id", Kind::Text), ("title", Kind::Text), ("total", Kind::Integer)];
    Table { collection: collection("parents", &["id"], &columns), not_null: vec![] }
}

/// Rows under an anchor, with a key of two columns.
fn children() -> Table {
    let columns = [("parent", Kind::Text), ("seq", Kind::Integer), ("state", Kind::Text)];
    let mut collection = collection("children", &["parent", "seq"], &columns);
    collection.indexes.insert("by_state".into(), vec!["state".into(), "seq".into()]);
    let (parents, parent) = ("parents".to_owned(), "parent".to_owned());
    collection.anchors = vec![Anchor { collection: parents, columns: vec![parent] }];
    Table { collection, not_null: vec![] }
}

/// Rows under a row under an anchor.
fn leaves() -> Table {
    let columns = [("leaf", Kind::Text), ("parent", Kind::Text), ("seq", Kind::Integer)];
    let mut collection = collection("leaves", &["leaf"], &columns);
    let columns = vec!["parent".to_owned(), "seq".to_owned()];
    collection.indexes.insert("by_child".into(), columns.clone());
    collection.anchors = vec![Anchor { collection: "children".into(), columns }];
    Table { collection, not_null: vec![] }
}

/// The mapping of all tables, with children that go with their parents, and leaves with the children.
pub fn dependent() -> Arc<Collections> {
    let mut all = (*collections()).clone();
    for (name, dependant) in [("parents", "children"), ("children", "leaves")] {
        let collection = all.get_mut(name).expect("it is mapped");
        collection.dependants = vec![dependant.to_owned()];
    }
    Arc::new(all)
}

fn collection(name: &str, key: &[&str], columns: &[(&str, Kind)]) -> Collection {
    let column = |kind| Column { kind, encoding: Encoding::Native };
    Collection {
        name: name.to_owned(),
        table: name.to_owned(),
        tenant: Some(TENANT_COLUMN.to_owned()),
        key: key.iter().map(|&k| k.to_owned()).collect(),
        columns: columns.iter().map(|&(n, kind)| (n.to_owned(), column(kind))).collect(),
        indexes: Default::default(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    }
}

/// A text.
pub fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// Fields from names and values.
pub fn fields<const N: usize>(fields: [(&str, Value); N]) -> Vec<Field> {
    fields.into_iter().map(|(name, value)| Field::new(name, value)).collect()
}

/// A thing with a value of every kind.
pub fn full_thing(id: &str, n: i64) -> Vec<Field> {
    fields([
        ("id", text(id)),
        ("title", text("Thing\u{e9} \u{1f9f9}")),
        ("n", Value::Integer(n)),
        ("ratio", Value::Float(0.1)),
        ("data", Value::Bytes(vec![0, 255, 10, 0])),
        ("at", Value::Timestamp(Time(1_700_000_000_123_456))),
        ("flag", Value::Bool(n % 2 == 0)),
        ("doc", Value::Json("{\"a\":[1, 2]}".into())),
        ("reference", Value::Uuid([7; 16])),
        ("price", Value::Decimal("12.50".into())),
        ("born", Value::Date(-1)),
        ("most", Value::Integer(7)),
    ])
}

/// A thing with only what may not be null, and `n`.
pub fn thing(id: &str, n: i64) -> Change {
    let fields = fields([("id", text(id)), ("title", text(id)), ("n", Value::Integer(n))]);
    Change::Insert { collection: "things".into(), fields }
}

/// A counter.
pub fn counter(id: i64, n: i64) -> Change {
    let fields = fields([("id", Value::Integer(id)), ("n", Value::Integer(n))]);
    Change::Insert { collection: "counters".into(), fields }
}

/// A parent without children.
pub fn parent(id: &str) -> Change {
    let fields = fields([("id", text(id)), ("total", Value::Integer(0))]);
    Change::Insert { collection: "parents".into(), fields }
}

/// A leaf of a child.
pub fn leaf(leaf: &str, parent: &str, seq: i64) -> Change {
    let fields =
        fields([("leaf", text(leaf)), ("parent", text(parent)), ("seq", Value::Integer(seq))]);
    Change::Insert { collection: "leaves".into(), fields }
}

/// A child of a parent.
pub fn child(parent: &str, seq: i64, state: &str) -> Change {
    let fields =
        fields([("parent", text(parent)), ("seq", Value::Integer(seq)), ("state", text(state))]);
    Change::Insert { collection: "children".into(), fields }
}
