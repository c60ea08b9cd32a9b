//! The entity model of the built-in tasks: documents and their changes, clients, shares and workspaces.
//!
//! This module decides the default mapping with its names and types, and has the tables ([`product`]).
//! A product with other tables maps them under the same collection names in `besom.toml`, which replaces
//! the mapping defined here.

pub mod product;

use std::collections::BTreeMap;

use besom_core::collection::{Anchor, Collection, Collections, Column, Encoding};
use besom_core::value::Kind;

use besom_runtime::built_in::TABLE;

/// The tenant column of every table of the model.
pub const TENANT: &str = "project_id";

/// The default mapping of the entity model, by collection name (which is the table's name).
///
/// Instants are whole microseconds. `checksum` columns contain the CRC-32 (IEEE) of `payload` if the
/// product writes one. `pending` and `unsettled` are generated columns that are never written; tasks find
/// their candidates through indexes on them.
pub fn default_collections() -> Collections {
    use Kind::{Bytes, Integer, Json, Text, Timestamp};
    let documents = ("documents", "doc_id");
    let clients = ("clients", "client_id");
    [
        Collection { tenant: None, ..collection("projects", &[TENANT], &[(TENANT, Text)], &[]) },
        collection(
            "documents",
            &["doc_id"],
            &[
                ("doc_id", Text),
                ("format", Text),
                ("server_seq", Integer),
                ("compacted_seq", Integer),
                ("pending", Integer),
                ("epoch", Integer),
                ("created_at", Timestamp),
                ("updated_at", Timestamp),
                ("compacted_at", Timestamp),
            ],
            &[("by_pending", &["pending"])],
        ),
        anchored(
            &[documents],
            collection(
                "changes",
                &["doc_id", "server_seq"],
                &[
                    ("doc_id", Text),
                    ("server_seq", Integer),
                    ("actor_id", Text),
                    ("client_seq", Integer),
                    ("lamport", Integer),
                    ("kind", Text),
                    ("payload", Bytes),
                    ("checksum", Integer),
                ],
                &[("by_lamport", &["doc_id", "lamport"])],
            ),
        ),
        anchored(
            &[documents],
            collection(
                "snapshots",
                &["doc_id", "server_seq"],
                &[
                    ("doc_id", Text),
                    ("server_seq", Integer),
                    ("payload", Bytes),
                    ("checksum", Integer),
                ],
                &[],
            ),
        ),
        anchored(
            &[documents],
            collection(
                "version_vectors",
                &["doc_id", "client_id"],
                &[
                    ("doc_id", Text),
                    ("client_id", Text),
                    ("vector", Bytes),
                    ("server_seq", Integer),
                ],
                &[],
            ),
        ),
        collection(
            "clients",
            &["client_id"],
            &[("client_id", Text), ("status", Text), ("updated_at", Timestamp)],
            &[("by_status_updated", &["status", "updated_at"])],
        ),
        anchored(
            &[documents, clients],
            collection(
                "attachments",
                &["doc_id", "client_id"],
                &[
                    ("doc_id", Text),
                    ("client_id", Text),
                    ("state", Text),
                    ("server_seq", Integer),
                    ("client_seq", Integer),
                ],
                &[
                    ("by_client", &["client_id", "doc_id"]),
                    ("by_document", &["doc_id", "client_id"]),
                ],
            ),
        ),
        anchored(
            &[documents],
            collection(
                "presences",
                &["doc_id", "client_id"],
                &[
                    ("doc_id", Text),
                    ("client_id", Text),
                    ("value", Json),
                    ("updated_at", Timestamp),
                ],
                &[],
            ),
        ),
        collection(
            "shares",
            &["share_id"],
            &[
                ("share_id", Text),
                ("file_id", Text),
                ("start_date", Timestamp),
                ("limit_seconds", Integer),
                ("unshared_at", Timestamp),
            ],
            &[
                ("by_unshared_start", &["unshared_at", "start_date"]),
                ("by_unshared_limit", &["unshared_at", "limit_seconds", "start_date"]),
            ],
        ),
        collection(
            "workspaces",
            &["workspace_id"],
            &[
                ("workspace_id", Text),
                ("status", Text),
                ("operation", Text),
                ("desired_state", Text),
                ("version", Integer),
                ("standby_ttl_seconds", Integer),
                ("archive_ttl_seconds", Integer),
                ("last_access_at", Timestamp),
                ("last_manual_change_at", Timestamp),
                ("archive_key", Text),
                ("unsettled", Integer),
            ],
            &[
                ("by_status_operation", &["status", "operation", "last_access_at"]),
                ("by_unsettled", &["unsettled", "workspace_id"]),
            ],
        ),
    ]
    .into_iter()
    .map(|c| (c.name.clone(), c))
    .collect()
}

/// Returns the default mapping for tasks with these plugins, without columns and indexes that none of them
/// reads.
pub fn collections_for(plugins: &[&str]) -> Collections {
    let mut all = default_collections();
    let others = TABLE.iter().filter(|entry| !plugins.contains(&entry.name));
    for (name, column, index) in others.flat_map(|entry| entry.alone) {
        if let Some(collection) = all.get_mut(*name) {
            collection.columns.remove(*column);
            collection.indexes.remove(*index);
        }
    }
    all
}

fn collection(
    name: &str,
    key: &[&str],
    columns: &[(&str, Kind)],
    indexes: &[(&str, &[&str])],
) -> Collection {
    let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    Collection {
        name: name.to_owned(),
        table: name.to_owned(),
        tenant: Some(TENANT.to_owned()),
        key: names(key),
        columns: columns
            .iter()
            .map(|(c, kind)| ((*c).to_owned(), Column { kind: *kind, encoding: Encoding::Native }))
            .collect(),
        indexes: indexes
            .iter()
            .map(|(n, c)| ((*n).to_owned(), names(c)))
            .collect::<BTreeMap<_, _>>(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    }
}

/// Adds anchors to a collection, as `(collection, column)`: every INSERT locks the rows that they name.
fn anchored(anchors: &[(&str, &str)], collection: Collection) -> Collection {
    let anchors = anchors.iter().map(|(name, column)| Anchor {
        collection: (*name).to_owned(),
        columns: vec![(*column).to_owned()],
    });
    Collection { anchors: anchors.collect(), ..collection }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_model_refers_to_something_in_the_model() {
        let model = default_collections();
        for c in model.values() {
            let named = c.key.iter().chain(c.indexes.values().flatten());
            for column in named.chain(c.anchors.iter().flat_map(|a| &a.columns)) {
                assert!(c.columns.contains_key(column), "{}.{column}", c.name);
            }
            for anchor in &c.anchors {
                assert_eq!(model[&anchor.collection].key.len(), anchor.columns.len());
            }
        }
    }

    /// Names in backquotes, each with the text that follows it.
    fn quoted(cell: &str) -> Vec<(&str, &str)> {
        let parts: Vec<&str> = cell.split('`').collect();
        parts[1..].chunks(2).filter_map(|pair| Some((pair[0], *pair.get(1)?))).collect()
    }

    #[test]
    fn the_page_about_tables_has_the_types_and_indexes_of_the_model() {
        let page = include_str!("../../../docs/tables.md");
        let model = default_collections();
        let mut tasks = std::collections::BTreeSet::new();
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, task, collection, key, columns, indexes, _] = cells[..] else {
                panic!("{line}")
            };
            tasks.insert(quoted(task)[0].0);
            let collection = &model[quoted(collection)[0].0];
            let names = |cell| quoted(cell).into_iter().map(|(name, _)| name.to_owned());
            assert_eq!(names(key).collect::<Vec<_>>(), collection.key, "{line}");
            for (name, kind) in quoted(columns) {
                let kind = kind.trim_matches(|c: char| c == ',' || c == ' ');
                let kind = kind.trim_end_matches(", optional:");
                let expected = format!("{:?}", collection.columns[name].kind).to_lowercase();
                assert_eq!(kind, expected, "{line}: {name}");
            }
            for index in indexes.split_inclusive(')') {
                let mut index = names(index);
                if let Some(name) = index.next() {
                    assert_eq!(collection.indexes[&name], index.collect::<Vec<_>>(), "{line}");
                }
            }
        }
        // Retention works on any table.
        let of_model = TABLE.iter().map(|entry| entry.name).filter(|name| *name != "retention");
        assert_eq!(tasks, of_model.collect());
    }

    #[test]
    fn what_only_one_plugin_reads_is_mapped_for_it_alone() {
        let all = default_collections();
        let names = || TABLE.iter().map(|entry| entry.name);
        assert_eq!(collections_for(&names().collect::<Vec<_>>()), all);
        for entry in TABLE {
            let without =
                collections_for(&names().filter(|n| *n != entry.name).collect::<Vec<_>>());
            let mut expected = all.clone();
            for (name, column, index) in entry.alone {
                let collection = expected.get_mut(*name).expect("a collection");
                assert!(collection.columns.remove(*column).is_some());
                assert!(collection.indexes.remove(*index).is_some());
            }
            assert_eq!(without, expected, "{}", entry.name);
        }
    }
}
