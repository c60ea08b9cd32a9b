//! The JSON Schema of `besom.toml`, for editors; generated from the lists that read the file.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::collection::{self, CollectionTable, ENCODINGS, KINDS};
use super::delivery::Route;
use super::keys::{Key, Setter};
use super::limits::LimitsTable;
use super::quantity::{show_bytes, show_duration};
use super::sections::SECTIONS;
use super::settings::HostSettings;
use super::task::{self, RetryTable, TaskTable, YieldTable};

const SPAN: &str = r"^(0|([0-9]+(ms|s|m|h|d|w))+)$";
const SIZE: &str = r"^[0-9]+ ?(B|KiB|MiB|GiB)?$";

/// Returns the schema, in draft 2020-12.
pub fn schema() -> Value {
    let mut root = Map::new();
    for section in SECTIONS {
        root.insert(section.name.into(), object(section.doc, section.keys, Map::new()));
    }
    let mut topic = object(Route::DOC, Route::KEYS, Map::new());
    topic["required"] = json!(["url"]);
    root.insert(
        "topics".into(),
        json!({
            "type": "object",
            "description": "Routes: where the messages of each topic are sent.",
            "additionalProperties": topic,
        }),
    );
    root.insert(
        "tasks".into(),
        json!({
            "type": "object",
            "description": "The tasks, by name.",
            "additionalProperties": task_schema(),
        }),
    );
    root.insert(
        "collections".into(),
        json!({
            "type": "object",
            "description": "How tables map to collections, by name.",
            "additionalProperties": collection_schema(),
        }),
    );
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "besom.toml",
        "type": "object",
        "properties": root,
        "additionalProperties": false,
    })
}

fn task_schema() -> Value {
    let doc =
        |name: &str| task::TABLES.iter().find(|(n, _)| *n == name).map_or("", |(_, doc)| *doc);
    let names = json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true });
    let operations = json!({
        "type": "array",
        "items": { "enum": ["read", "insert", "update", "delete"] },
        "uniqueItems": true,
    });
    let mut more = Map::new();
    let mut own = object(doc("settings"), HostSettings::KEYS, Map::new());
    own["additionalProperties"] = json!(true);
    more.insert("settings".into(), own);
    more.insert("limits".into(), object(LimitsTable::DOC, LimitsTable::KEYS, Map::new()));
    more.insert("retry".into(), object(RetryTable::DOC, RetryTable::KEYS, Map::new()));
    more.insert("yield".into(), object(YieldTable::DOC, YieldTable::KEYS, Map::new()));
    more.insert(
        "collections".into(),
        json!({
            "type": "object",
            "description": doc("collections"),
            "additionalProperties": { "type": "string" },
        }),
    );
    more.insert(
        "grants".into(),
        json!({
            "type": "object",
            "description": doc("grants"),
            "properties": {
                task::TOPICS: names,
                task::ACTIVITY: { "type": "boolean" },
                task::ALL_TENANTS: { "type": "boolean" },
            },
            "additionalProperties": { "anyOf": [operations, {
                "type": "object",
                "properties": { "ops": operations, "columns": names },
                "required": ["ops"],
                "additionalProperties": false,
            }] },
        }),
    );
    let mut schema = object(TaskTable::DOC, TaskTable::KEYS, more);
    schema["required"] = json!(["plugin"]);
    schema
}

fn collection_schema() -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true });
    let kinds = KINDS.map(|(name, _)| name);
    let encodings = ENCODINGS.map(|(name, ..)| name);
    let mut more = Map::new();
    for (name, doc) in collection::SHAPED {
        let mut shape = match name {
            "key" | "dependants" => names.clone(),
            "indexes" => json!({ "type": "object", "additionalProperties": { "anyOf": [names, {
                "type": "object",
                "properties": { "columns": names, "not_null": names },
                "required": ["columns"],
                "additionalProperties": false,
            }] } }),
            "anchor" => {
                let one = json!({
                    "type": "object",
                    "properties": { "collection": { "type": "string" }, "columns": names },
                    "required": ["collection", "columns"],
                    "additionalProperties": false,
                });
                json!({ "anyOf": [one, { "type": "array", "items": one }] })
            }
            _ => json!({ "type": "object", "additionalProperties": { "anyOf": [
                { "enum": kinds },
                {
                    "type": "object",
                    "properties": { "type": { "enum": kinds }, "encoding": { "enum": encodings } },
                    "required": ["type"],
                    "additionalProperties": false,
                },
            ] } }),
        };
        shape["description"] = json!(doc);
        more.insert(name.into(), shape);
    }
    let mut schema = object(CollectionTable::DOC, CollectionTable::KEYS, more);
    schema["required"] = json!(["key", "columns"]);
    schema
}

fn integer(range: &RangeInclusive<impl Serialize>) -> Value {
    json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
}

fn object<T>(doc: &str, keys: &[Key<T>], more: Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut property = match &key.setter {
            Setter::Duration(_, range) => json!({
                "anyOf": [{ "type": "string", "pattern": SPAN }, { "const": 0 }],
                "$comment": format!("from {} to {}", show_duration(*range.start()), show_duration(*range.end())),
            }),
            Setter::U32(_, range) | Setter::Limit(_, range) => integer(range),
            Setter::U64(_, range) => integer(range),
            Setter::U64OrNone(_, range) => json!({ "anyOf": [integer(range), { "const": 0 }] }),
            Setter::Bytes(_, range) => json!({
                "anyOf": [integer(range), { "type": "string", "pattern": SIZE }],
                "$comment": format!("from {} to {}", show_bytes(*range.start()), show_bytes(*range.end())),
            }),
            Setter::Bool(_) => json!({ "type": "boolean" }),
            Setter::Choice(choices, _) => json!({ "enum": choices }),
            Setter::RowsOrShare(_) => json!({ "anyOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,4})?%$" },
            ] }),
            Setter::Texts(_) => json!({
                "type": "array",
                "items": { "type": "string", "minLength": 1 },
                "uniqueItems": true,
            }),
            Setter::Text(_)
            | Setter::OptionalText(_)
            | Setter::Path(_)
            | Setter::OptionalPath(_)
            | Setter::OptionalAddress(_) => json!({ "type": "string", "minLength": 1 }),
        };
        property["description"] = json!(key.doc);
        if !key.default.is_empty() {
            // Every default is a plain value that is valid in JSON too: a string, a number or a boolean.
            property["default"] = serde_json::from_str(key.default).unwrap_or(Value::Null);
        }
        properties.insert(key.name.into(), property);
    }
    properties.extend(more);
    json!({
        "type": "object",
        "description": doc,
        "properties": properties,
        "additionalProperties": false,
    })
}
