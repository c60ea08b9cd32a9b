//! Compares a mapping with the existing tables.

use besom_core::collection::{Anchor, Collection, Collections};

use super::tables::{Table, Tables};
use besom_ports::store::MappingFault;

/// All faults of the mapping: everything that the tables do not support.
pub(super) fn check(tables: &Tables, collections: &Collections) -> Vec<MappingFault> {
    let mut faults = Vec::new();
    for collection in collections.values() {
        let mut fault = |place: String, message: String| {
            let collection = collection.name.clone();
            faults.push(MappingFault { collection, place, message, warning: false });
        };
        match tables.get(&collection.table) {
            Some(table) => check_table(collection, table, &mut fault),
            None => {
                let table = &collection.table;
                fault(
                    "table".into(),
                    format!("there is no table {table}; create it or name another"),
                );
            }
        }
        for anchor in &collection.anchors {
            check_anchor(collection, anchor, collections, &mut fault);
        }
    }
    faults
}

fn check_table(collection: &Collection, table: &Table, fault: &mut impl FnMut(String, String)) {
    if collection.tenant.is_some() != table.has_tenant {
        let message = match &collection.tenant {
            Some(tenant) => {
                format!("{} has no column {tenant}; remove `tenant`", table_of(collection))
            }
            None => format!("the rows of {} have a tenant; name its column", table_of(collection)),
        };
        fault("tenant".into(), message);
    }
    if collection.key != table.key {
        let key = table.key.join(", ");
        fault("key".into(), format!("the key of {} is {key}", table_of(collection)));
    }
    for (name, column) in &collection.columns {
        let message = match table.columns.get(name) {
            None => format!("{} has no column {name}", table_of(collection)),
            Some(kind) if *kind != column.kind => {
                format!("{name} holds {kind:?} and is mapped as {:?}", column.kind)
            }
            Some(_) => continue,
        };
        fault(format!("columns.{name}"), message);
    }
    for (index, columns) in &collection.indexes {
        for column in columns.iter().filter(|column| !table.columns.contains_key(*column)) {
            fault(
                format!("indexes.{index}"),
                format!("{} has no column {column}", table_of(collection)),
            );
        }
    }
}

fn check_anchor(
    collection: &Collection,
    anchor: &Anchor,
    collections: &Collections,
    fault: &mut impl FnMut(String, String),
) {
    let Some(target) = collections.get(&anchor.collection) else {
        let target = &anchor.collection;
        return fault("anchor".into(), format!("the collection {target} is not mapped"));
    };
    if anchor.columns.len() != target.key.len() {
        let (given, asked) = (anchor.columns.len(), target.key.len());
        let name = &target.name;
        fault("anchor".into(), format!("the key of {name} has {asked} columns, not {given}"));
    }
    for column in anchor.columns.iter().filter(|c| !collection.columns.contains_key(*c)) {
        fault("anchor".into(), format!("the column {}.{column} is not mapped", collection.name));
    }
}

fn table_of(collection: &Collection) -> String {
    format!("the table {}", collection.table)
}
