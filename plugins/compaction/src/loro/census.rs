//! Counts the operations of a document's history, before its state is computed.
//!
//! Decides nothing: the counts only estimate the memory that the document needs
//! ([`super::memory`]). The headers of the rows contain the number of operations but not their
//! kinds, and a tree node takes ten times the memory of a letter.

use std::collections::BTreeSet;

use loro::{
    ID, JsonChange, JsonListOp, JsonMapOp, JsonMovableListOp, JsonOpContent, JsonTextOp,
    JsonTreeOp, LoroDoc, LoroValue,
};

use super::history;

/// Counts over a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The number of changes.
    pub changes: usize,
    /// Changes that depend on another change than their author's last one.
    pub turns: usize,
    /// Operations; consecutively typed letters are one.
    pub ops: usize,
    /// Letters inserted into texts.
    pub letters: usize,
    /// The number of marks.
    pub marks: usize,
    /// Distinct names of marks.
    pub mark_names: usize,
    /// Segments between the ends of marks, once for every mark that may cover them, because each
    /// segment stores all of its marks. For each mark at most the letters, and the ends of other
    /// marks, that it was applied to.
    pub marked: usize,
    /// Items inserted into movable lists.
    pub movable: usize,
    /// Tree nodes.
    pub nodes: usize,
    /// Maps.
    pub maps: usize,
    /// Other containers.
    pub containers: usize,
    /// Values, including nested ones.
    pub values: usize,
    /// Bytes of texts and of binary values, and of the keys of maps.
    pub value_bytes: usize,
}

/// The marks of a history.
#[derive(Default)]
struct Marks {
    names: BTreeSet<String>,
    /// The number of letters and ends of marks that each mark was applied to.
    lengths: Vec<usize>,
}

impl Census {
    /// Counts the whole history of a document.
    pub fn of(doc: &LoroDoc) -> Census {
        let start = doc.shallow_since_vv().to_vv();
        let mut census = Census::default();
        let mut marks = Marks::default();
        for (peer, end) in doc.oplog_vv().iter() {
            let from = start.get(peer).copied().unwrap_or(0);
            for change in history::changes(doc, *peer, from, *end) {
                census.change(change, &mut marks);
            }
        }
        let stretches = 2 * census.marks + 1;
        census.marked = marks.lengths.iter().map(|length| stretches.min(*length)).sum();
        census.mark_names = marks.names.len();
        census
    }

    fn change(&mut self, change: JsonChange, marks: &mut Marks) {
        self.changes += 1;
        let previous = ID::new(change.id.peer, change.id.counter - 1);
        self.turns += usize::from(change.deps != [previous]);
        self.value_bytes += change.msg.map_or(0, |message| message.len());
        for op in change.ops {
            self.ops += 1;
            match op.content {
                JsonOpContent::Text(JsonTextOp::Insert { text, .. }) => self.letters += text.len(),
                JsonOpContent::Text(JsonTextOp::Mark {
                    start,
                    end,
                    style_key,
                    style_value,
                    ..
                }) => {
                    self.marks += 1;
                    self.value_bytes += style_key.len();
                    self.value(&style_value);
                    marks.names.insert(style_key);
                    marks.lengths.push(end.saturating_sub(start) as usize);
                }
                JsonOpContent::List(JsonListOp::Insert { value, .. }) => {
                    value.iter().for_each(|value| self.value(value));
                }
                JsonOpContent::MovableList(JsonMovableListOp::Insert { value, .. }) => {
                    self.movable += value.len();
                    value.iter().for_each(|value| self.value(value));
                }
                JsonOpContent::MovableList(JsonMovableListOp::Set { value, .. }) => {
                    self.value(&value);
                }
                JsonOpContent::Map(JsonMapOp::Insert { key, value }) => {
                    self.value_bytes += key.len();
                    self.value(&value);
                }
                JsonOpContent::Tree(JsonTreeOp::Create { fractional_index, .. }) => {
                    self.nodes += 1;
                    self.value_bytes += fractional_index.as_bytes().len();
                }
                JsonOpContent::Tree(JsonTreeOp::Move { fractional_index, .. }) => {
                    self.value_bytes += fractional_index.as_bytes().len();
                }
                JsonOpContent::Map(JsonMapOp::Delete { key }) => self.value_bytes += key.len(),
                JsonOpContent::Text(JsonTextOp::Delete { .. } | JsonTextOp::MarkEnd)
                | JsonOpContent::List(JsonListOp::Delete { .. })
                | JsonOpContent::MovableList(
                    JsonMovableListOp::Delete { .. } | JsonMovableListOp::Move { .. },
                )
                | JsonOpContent::Tree(JsonTreeOp::Delete { .. })
                | JsonOpContent::Future(_) => {}
            }
        }
    }

    fn value(&mut self, value: &LoroValue) {
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            self.values += 1;
            match value {
                LoroValue::Null | LoroValue::Bool(_) | LoroValue::Double(_) | LoroValue::I64(_) => {
                }
                LoroValue::Binary(bytes) => self.value_bytes += bytes.len(),
                LoroValue::String(text) => self.value_bytes += text.len(),
                LoroValue::List(list) => open.extend(list.iter()),
                LoroValue::Map(map) => {
                    for (key, value) in map.iter() {
                        self.value_bytes += key.len();
                        open.push(value);
                    }
                }
                LoroValue::Container(id) => match id.container_type() {
                    loro::ContainerType::Map => self.maps += 1,
                    _ => self.containers += 1,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use loro::{LoroMap, LoroText};

    use super::*;

    #[test]
    fn everything_is_counted_by_its_kind() {
        let doc = LoroDoc::new();
        doc.set_peer_id(1).unwrap();
        let text = doc.get_text("text");
        text.insert(0, "letters").unwrap();
        text.mark(0..3, "bold", true).unwrap();
        text.mark(1..4, "bold", false).unwrap();
        text.mark(1..4, "link", "x").unwrap();
        let list = doc.get_list("list");
        list.insert_container(0, LoroMap::new()).unwrap();
        list.insert_container(0, LoroText::new()).unwrap();
        doc.get_movable_list("movable").insert(0, vec![1, 2, 3]).unwrap();
        doc.get_tree("tree").create(None).unwrap();
        doc.commit();
        doc.set_peer_id(2).unwrap();
        doc.get_map("map").insert("key", "value").unwrap();
        doc.commit();
        let census = Census::of(&doc);
        assert_eq!((census.changes, census.turns), (2, 2));
        assert_eq!((census.letters, census.marks, census.mark_names), (7, 3, 2));
        assert_eq!((census.maps, census.containers, census.nodes), (1, 1, 1));
        // The second mark begins within the first, the third within both.
        assert_eq!((census.movable, census.marked), (1, 3 + 4 + 5));
        // Three marks, two containers, a list of three and an entry.
        assert_eq!(census.values, 3 + 2 + 4 + 1);
        assert!(census.ops >= 11, "{census:?}");
    }
}
