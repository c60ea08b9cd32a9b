//! Hashes the visible state of a document: every reachable container, down to the bits of each
//! value and the identity of each element.
//!
//! Decides when two states are the same. Containers are written in the order of their identities,
//! each without the containers inside it.

use loro::cursor::Side;
use loro::{
    Container, ContainerID, ContainerTrait, LoroDoc, LoroList, LoroMap, LoroMovableList, LoroText,
    LoroTree, LoroValue, ValueOrContainer,
};

use crate::canon::Canon;
use crate::outcome::{Code, LeftAlone};

/// Writes every reachable container.
///
/// # Errors
/// A container of a type that this Loro does not know.
pub fn write(canon: &mut Canon, doc: &LoroDoc) -> Result<(), LeftAlone> {
    for id in living(doc) {
        let Some(container) = doc.get_container(id.clone()) else {
            let words = format!("container {id} is listed but cannot be read");
            return Err(LeftAlone::new(Code::Unsupported, words));
        };
        if id.is_root() && is_empty(&container) {
            // A root exists as soon as it has been requested.
            continue;
        }
        canon.tag(0xfd);
        canon.container(&id);
        match container {
            Container::Text(text) => write_text(canon, &text),
            Container::Map(map) => write_map(canon, &map),
            Container::List(list) => write_list(canon, &list),
            Container::MovableList(list) => write_movable_list(canon, &list),
            Container::Tree(tree) => write_tree(canon, &tree),
            Container::Counter(counter) => canon.float(counter.get()),
            Container::Unknown(_) => {
                let words = format!("container {id} has a type that this Loro does not know");
                return Err(LeftAlone::new(Code::Unsupported, words));
            }
        }
    }
    Ok(())
}

/// All containers that can be reached, in the order of their identities. Not by walking down from the
/// value of the document: roots of one name but several types hide each other there.
pub fn living(doc: &LoroDoc) -> Vec<ContainerID> {
    let containers = doc.analyze().containers.into_iter();
    let mut living: Vec<ContainerID> =
        containers.filter(|(_, container)| !container.dropped).map(|(id, _)| id).collect();
    living.sort_by_cached_key(ContainerID::to_bytes);
    living
}

fn is_empty(container: &Container) -> bool {
    match container {
        // Not `is_empty`: that counts the ends of marks which have lost their text.
        Container::Text(text) => text.len_utf16() == 0,
        Container::Map(map) => map.is_empty(),
        Container::List(list) => list.is_empty(),
        Container::MovableList(list) => list.is_empty(),
        Container::Tree(tree) => tree.is_empty(),
        Container::Counter(counter) => counter.get().to_bits() == 0,
        Container::Unknown(_) => false,
    }
}

/// Text with its marks, wherever they change, and the identity of every character.
fn write_text(canon: &mut Canon, text: &LoroText) {
    let mut before: Option<LoroValue> = None;
    let delta = text.get_richtext_value();
    for span in delta.as_list().map(|list| list.as_slice()).unwrap_or_default() {
        let Some(span) = span.as_map() else { continue };
        let marks = span.get("attributes").cloned().unwrap_or_default();
        if !before.as_ref().is_some_and(|before| is_same(before, &marks)) {
            canon.tag(1);
            canon.value(&marks);
            before = Some(marks);
        }
        for unit in
            span.get("insert").and_then(|text| text.as_string()).iter().flat_map(|it| it.chars())
        {
            canon.tag(2);
            canon.unsigned(u64::from(u32::from(unit)));
        }
    }
    canon.tag(3);
    // Most characters were typed behind the one before them.
    let mut expected = None;
    for at in 0..text.len_utf16() {
        let id = text.get_cursor(at, Side::Middle).and_then(|cursor| cursor.id);
        if id.is_some() && id == expected {
            canon.tag(2);
        } else {
            canon.id_or_none(id);
        }
        expected = id.map(|id| id.inc(1));
    }
}

/// Equal bit by bit, which `==` of Loro's values is not.
fn is_same(a: &LoroValue, b: &LoroValue) -> bool {
    let of = |value| {
        let mut canon = Canon::new("");
        canon.value(value);
        canon.finish()
    };
    of(a) == of(b)
}

fn write_map(canon: &mut Canon, map: &LoroMap) {
    let mut keys: Vec<String> = map.keys().map(|key| key.to_string()).collect();
    keys.sort_unstable();
    for key in keys {
        canon.tag(4);
        canon.text(&key);
        canon.peer_or_none(map.get_last_editor(&key));
        write_entry(canon, map.get(&key));
    }
}

fn write_list(canon: &mut Canon, list: &LoroList) {
    for at in 0..list.len() {
        canon.tag(5);
        canon.id_or_none(list.get_id_at(at));
        write_entry(canon, list.get(at));
    }
}

fn write_movable_list(canon: &mut Canon, list: &LoroMovableList) {
    for at in 0..list.len() {
        canon.tag(6);
        canon.id_or_none(list.get_cursor(at, Side::Middle).and_then(|cursor| cursor.id));
        canon.peer_or_none(list.get_creator_at(at));
        canon.peer_or_none(list.get_last_mover_at(at));
        canon.peer_or_none(list.get_last_editor_at(at));
        write_entry(canon, list.get(at));
    }
}

fn write_tree(canon: &mut Canon, tree: &LoroTree) {
    let mut nodes = tree.get_nodes(false);
    nodes.sort_unstable_by_key(|node| (node.id.peer, node.id.counter));
    for node in nodes {
        canon.tag(7);
        canon.node(node.id);
        canon.parent(node.parent);
        canon.unsigned(node.index as u64);
        canon.bytes(node.fractional_index.as_bytes());
        canon.id_or_none(tree.get_last_move_id(&node.id));
    }
}

fn write_entry(canon: &mut Canon, entry: Option<ValueOrContainer>) {
    match entry {
        None => canon.tag(0),
        Some(ValueOrContainer::Value(value)) => {
            canon.tag(1);
            canon.value(&value);
        }
        Some(ValueOrContainer::Container(container)) => {
            canon.tag(2);
            canon.container(&container.id());
        }
    }
}
