//! `[collections.NAME]`: how the user's tables map to collections.
//!
//! This module checks the mapping itself: types, and names that refer to each other. It does not read
//! the tables; the store compares them with the mapping (`besom check --store`).

use std::collections::BTreeMap;

use besom_core::collection::{Anchor, Collection, Collections, Column, Encoding, all_dependants};
use besom_core::value::Kind;

use super::keys::{keys, suggestion};
use super::tree::{Entry, Node, Span, Table};
use super::walk::{Spans, Walker};

/// The column types and their names in the file.
pub const KINDS: [(&str, Kind); 10] = [
    ("bool", Kind::Bool),
    ("integer", Kind::Integer),
    ("float", Kind::Float),
    ("decimal", Kind::Decimal),
    ("text", Kind::Text),
    ("bytes", Kind::Bytes),
    ("timestamp", Kind::Timestamp),
    ("date", Kind::Date),
    ("uuid", Kind::Uuid),
    ("json", Kind::Json),
];

/// The name of a column type in the file.
pub fn name_of(kind: Kind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// The column encodings and their names in the file; each applies to one type, or to all for `None`.
pub const ENCODINGS: [(&str, Encoding, Option<Kind>); 10] = {
    const fn of(encoding: Encoding, kind: Option<Kind>) -> (&'static str, Encoding, Option<Kind>) {
        (encoding.name(), encoding, kind)
    }
    [
        of(Encoding::Native, None),
        of(Encoding::Seconds, Some(Kind::Timestamp)),
        of(Encoding::Millis, Some(Kind::Timestamp)),
        of(Encoding::Rfc3339, Some(Kind::Timestamp)),
        of(Encoding::Rfc3339Millis, Some(Kind::Timestamp)),
        of(Encoding::Rfc3339Micros, Some(Kind::Timestamp)),
        of(Encoding::Datetime, Some(Kind::Timestamp)),
        of(Encoding::Datetime3, Some(Kind::Timestamp)),
        of(Encoding::Datetime6, Some(Kind::Timestamp)),
        of(Encoding::Raw, Some(Kind::Uuid)),
    ]
};

keys! {
    /// A collection.
    #[derive(Debug, Default)]
    pub struct CollectionTable {
        /// Name of the table in the database (default: the name of the collection).
        table: String;
        /// Column with the tenant, if the table has tenants.
        tenant: Option<String>;
        /// Delete rows although a foreign key then deletes rows that are no dependants, and are not kept.
        accept_cascades: bool = false;
    }
}

/// The keys of a collection with structured values, and their descriptions.
pub const SHAPED: [(&str, &str); 5] = [
    ("key", "Columns that, together with the tenant, identify a row."),
    ("columns", "Columns that a plugin may use: NAME = \"type\" or { type, encoding }."),
    (
        "indexes",
        "Indexes for range reads: NAME = [columns], without the tenant; or { columns, not_null }: only of the rows in \
         which the columns `not_null` are not null.",
    ),
    ("anchor", "The row that every INSERT locks: { collection, columns }, or an array of them."),
    ("dependants", "Collections whose rows are deleted with the row that their anchor names."),
];

const ANCHOR: &str = "anchor = { collection = \"NAME\", columns = [\"column\"] }";

/// The places of the parts of a collection in the file.
#[derive(Debug, Clone, Default)]
pub struct CollectionPlaces {
    /// The name in the table header.
    pub name: Span,
    /// Places by part: `table`, `key`, `tenant`, `anchor`, `dependants`, `dependants.NAME`, `columns.NAME`,
    /// `indexes.NAME`.
    pub parts: Spans,
}

/// Reads `[collections]`. A collection in the file replaces the default of the same name as a whole.
pub fn read(
    walker: &mut Walker<'_>,
    table: &Table,
    defaults: &Collections,
) -> (Collections, BTreeMap<String, CollectionPlaces>) {
    let (mut all, mut places) = (defaults.clone(), BTreeMap::new());
    for entry in &table.0 {
        if let Some(table) = walker.table(entry, "[collections.NAME]") {
            let (collection, place) = one(walker, entry, table);
            places.insert(entry.key.clone(), place);
            all.insert(entry.key.clone(), collection);
        }
    }
    for (name, place) in &places {
        anchored(walker, &all, &all[name], place);
        depending(walker, &all, &all[name], place);
    }
    (all, places)
}

fn one(walker: &mut Walker<'_>, entry: &Entry, table: &Table) -> (Collection, CollectionPlaces) {
    let name = &entry.key;
    let path = format!("collections.{name}");
    if super::task::RESERVED.contains(&name.as_str()) {
        let message = format!("`{name}` is a reserved name");
        let fix = format!(
            "choose another name for the collection: `{name}` has a special meaning in grants"
        );
        walker.error(&entry.key_span, message, fix);
    }
    let mut plain = CollectionTable { table: name.clone(), ..CollectionTable::default() };
    let shaped = SHAPED.map(|(name, _)| name);
    let mut parts = walker.read(&path, table, CollectionTable::KEYS, &shaped, &mut plain);

    let mut columns = BTreeMap::new();
    match table.get("columns") {
        Some(entry) => {
            if let Some(table) = walker.table(entry, "columns = { NAME = \"type\" }") {
                for entry in &table.0 {
                    parts.insert(format!("columns.{}", entry.key), entry.span.clone());
                    if let Some(column) = column(walker, &path, entry) {
                        columns.insert(entry.key.clone(), column);
                    }
                }
            }
        }
        None => walker.error(
            &entry.key_span,
            format!("the collection `{name}` has no columns"),
            "add columns = { NAME = \"type\" }",
        ),
    }
    // Names are compared only if some columns could be read; otherwise one mistake causes many errors.
    let known = |walker: &mut Walker<'_>, span: &Span, column: &str, what: &str| {
        if !columns.is_empty() && !columns.contains_key(column) {
            let fix = suggestion(column, columns.keys().map(String::as_str));
            walker.error(
                span,
                format!("{what} names the column `{column}`, which is not mapped"),
                fix,
            );
        }
    };
    let list = |walker: &mut Walker<'_>, what: &str, entry: &Entry| -> Vec<String> {
        let texts = walker.texts(what, &entry.span, &entry.node);
        for (span, column) in &texts {
            known(walker, span, column, what);
        }
        texts.into_iter().map(|(_, text)| text).collect()
    };
    let key = match table.get("key") {
        Some(entry) => {
            let key = list(walker, "the key", entry);
            if key.is_empty() && matches!(&entry.node, Node::Array(a) if a.is_empty()) {
                walker.error(
                    &entry.span,
                    "the key has no columns",
                    "name the columns that identify a row",
                );
            }
            key
        }
        None => {
            walker.error(
                &entry.key_span,
                format!("the collection `{name}` has no key"),
                "add key = [\"column\"]",
            );
            Vec::new()
        }
    };
    for name in &key {
        // The key of an item cannot hold the others, so no row would be planned.
        let column = columns.get(name).filter(|column: &&Column| !column.kind.identifies());
        let Some(kind) = column.map(|column| name_of(column.kind)) else { continue };
        let span = parts.get(&format!("columns.{name}")).unwrap_or(&entry.key_span).clone();
        walker.error(
            &span,
            format!("the column `{name}` of the key is mapped as {kind}, which a key cannot be"),
            "map a column of type integer, text, uuid, bytes, timestamp or date, for example in a view that \
             casts it",
        );
    }
    let (mut indexes, mut not_null) = (BTreeMap::new(), BTreeMap::new());
    if let Some(entry) = table.get("indexes")
        && let Some(table) = walker.table(entry, "indexes = { NAME = [\"column\"] }")
    {
        for entry in &table.0 {
            parts.insert(format!("indexes.{}", entry.key), entry.span.clone());
            let name = &entry.key;
            let Node::Table(table) = &entry.node else {
                indexes.insert(name.clone(), list(walker, "the index", entry));
                continue;
            };
            for part in &table.0 {
                match part.key.as_str() {
                    "columns" => {
                        indexes.insert(name.clone(), list(walker, "the index", part));
                    }
                    "not_null" => {
                        not_null.insert(name.clone(), list(walker, "the index", part));
                    }
                    _ => {
                        let path = format!("{path}.indexes.{name}");
                        walker.unknown(part, &path, ["columns", "not_null"]);
                    }
                }
            }
            if table.get("columns").is_none() {
                let message = format!("the index `{name}` names no columns");
                walker.error(&entry.span, message, "add columns = [\"column\"]");
            }
        }
        not_null.retain(|name, columns: &mut Vec<String>| {
            indexes.contains_key(name) && !columns.is_empty()
        });
    }
    let mut dependants = Vec::new();
    if let Some(entry) = table.get("dependants") {
        for (span, name) in walker.texts("the dependants", &entry.span, &entry.node) {
            parts.insert(format!("dependants.{name}"), span);
            dependants.push(name);
        }
    }
    let mut anchors = Vec::new();
    if let Some(entry) = table.get("anchor") {
        let one = std::slice::from_ref(entry);
        let several: Vec<Entry> = match &entry.node {
            Node::Array(items) => items
                .iter()
                .map(|(span, node)| Entry {
                    span: span.clone(),
                    node: node.clone(),
                    ..entry.clone()
                })
                .collect(),
            _ => one.to_vec(),
        };
        for entry in &several {
            let Some(table) = walker.table(entry, ANCHOR) else { continue };
            let mut target = None;
            let mut on = Vec::new();
            for entry in &table.0 {
                match entry.key.as_str() {
                    "collection" => {
                        target = walker
                            .text("the anchor's collection", &entry.span, &entry.node)
                            .map(str::to_owned);
                    }
                    "columns" => on = list(walker, "the anchor", entry),
                    _ => {
                        walker.unknown(entry, &format!("{path}.anchor"), ["collection", "columns"]);
                    }
                }
            }
            match target {
                Some(collection) => anchors.push(Anchor { collection, columns: on }),
                None if table.get("collection").is_none() => walker.error(
                    &entry.span,
                    "the anchor names no collection",
                    "add collection = \"NAME\"",
                ),
                None => {}
            }
        }
    }
    if let Some(tenant) = plain.tenant.as_ref().filter(|tenant| columns.contains_key(*tenant)) {
        let span = parts.get(&format!("columns.{tenant}")).unwrap_or(&entry.key_span);
        walker.error(
            span,
            format!(
                "`{tenant}` is the tenant column: a plugin could move rows to another tenant by writing it"
            ),
            "remove it from the columns: items and rows already carry their tenant",
        );
    }
    let collection = Collection {
        name: name.clone(),
        table: plain.table,
        tenant: plain.tenant,
        key,
        columns,
        indexes,
        not_null,
        anchors,
        dependants,
        accept_cascades: plain.accept_cascades,
    };
    (collection, CollectionPlaces { name: entry.key_span.clone(), parts })
}

fn column(walker: &mut Walker<'_>, path: &str, entry: &Entry) -> Option<Column> {
    let names = || KINDS.map(|(name, _)| name);
    let kind = |walker: &mut Walker<'_>, span: &Span, node: &Node| {
        let text = walker.text("a column's type", span, node)?;
        let found = KINDS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        if found.is_none() {
            walker.error(span, format!("`{text}` is not a column type"), suggestion(text, names()));
        }
        found
    };
    match &entry.node {
        Node::Table(table) => {
            let (mut found, mut encoding) = (None, None);
            for part in &table.0 {
                match part.key.as_str() {
                    "type" => found = kind(walker, &part.span, &part.node),
                    "encoding" => {
                        let text = walker.text("an encoding", &part.span, &part.node);
                        encoding = text.map(|text| (part.span.clone(), text.to_owned()));
                    }
                    _ => walker.unknown(
                        part,
                        &format!("{path}.columns.{}", entry.key),
                        ["type", "encoding"],
                    ),
                }
            }
            if table.get("type").is_none() {
                let message = format!("the column `{}` has no type", entry.key);
                walker.error(&entry.span, message, "add, for example, type = \"text\"");
            }
            let kind = found?;
            let mut chosen = Encoding::Native;
            if let Some((span, text)) = encoding {
                let fitting = ENCODINGS.iter().filter(|(_, _, k)| k.is_none_or(|k| k == kind));
                match fitting.clone().find(|(name, ..)| *name == text) {
                    Some((_, encoding, _)) => chosen = *encoding,
                    None => {
                        let fix = suggestion(&text, fitting.map(|(name, ..)| *name));
                        walker.error(
                            &span,
                            format!("`{text}` is not an encoding of this type"),
                            fix,
                        );
                    }
                }
            }
            Some(Column { kind, encoding: chosen })
        }
        node => {
            kind(walker, &entry.span, node).map(|kind| Column { kind, encoding: Encoding::Native })
        }
    }
}

/// Its dependants exist, refer to it, and can be found by that. None of them depends on itself.
fn depending(
    walker: &mut Walker<'_>,
    all: &Collections,
    collection: &Collection,
    place: &CollectionPlaces,
) {
    let own = &collection.name;
    for name in &collection.dependants {
        let span = place.parts.get(&format!("dependants.{name}")).unwrap_or(&place.name);
        let Some(dependant) = all.get(name) else {
            let fix = suggestion(name, all.keys().map(String::as_str));
            walker.error(span, format!("the dependant `{name}` is not mapped"), fix);
            continue;
        };
        if dependant.anchors_in(own).next().is_none() {
            walker.error(
                span,
                format!("`{name}` does not say how its rows refer to `{own}`"),
                format!(
                    "add anchor = {{ collection = \"{own}\", columns = [\"COLUMN\"] }} to [collections.{name}], \
                     with the columns of its foreign key"
                ),
            );
            continue;
        }
        if dependant.tenant.is_some() != collection.tenant.is_some() {
            walker.error(
                span,
                format!("only one of `{own}` and `{name}` has a tenant column"),
                "name the tenant column of both, or of neither",
            );
        }
        for Anchor { columns, .. } in dependant.anchors_in(own) {
            let begins = |name: Option<&str>| {
                let index = dependant.index_columns(name).unwrap_or_default();
                index.len() >= columns.len()
                    && index[..columns.len()].iter().all(|column| columns.contains(column))
                    && dependant.not_null(name).iter().all(|column| columns.contains(column))
            };
            let names = dependant.indexes.keys().map(|name| Some(name.as_str()));
            if std::iter::once(None).chain(names).any(begins) {
                continue;
            }
            let columns = columns.join(", ");
            walker.error(
                span,
                format!(
                    "no mapped index of `{name}` begins with {columns}: the whole table would be read for each row \
                     of `{own}`"
                ),
                format!("create an index on {columns}, and add it to [collections.{name}.indexes]"),
            );
        }
        let beneath = all_dependants(all, name);
        if name == own || beneath.iter().any(|beneath| beneath.name == *own) {
            walker.error(
                span,
                format!("`{own}` depends on itself through `{name}`"),
                "remove one of the dependants from the circle",
            );
        }
    }
}

fn anchored(
    walker: &mut Walker<'_>,
    all: &Collections,
    collection: &Collection,
    place: &CollectionPlaces,
) {
    let span = place.parts.get("anchor").unwrap_or(&place.name).clone();
    for anchor in &collection.anchors {
        match all.get(&anchor.collection) {
            None => {
                let fix = suggestion(&anchor.collection, all.keys().map(String::as_str));
                let message =
                    format!("the anchor's collection `{}` is not mapped", anchor.collection);
                walker.error(&span, message, fix);
            }
            Some(target) if target.key.len() != anchor.columns.len() => walker.error(
                &span,
                format!(
                    "the anchor has {} columns, but the key of `{}` has {}",
                    anchor.columns.len(),
                    target.name,
                    target.key.len()
                ),
                format!("name the columns that contain its {}", target.key.join(", ")),
            ),
            Some(_) => {}
        }
    }
}
