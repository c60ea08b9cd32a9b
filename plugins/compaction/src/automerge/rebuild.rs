//! Writes the current document as one change with a new identity.
//!
//! Decides the order of the operations. Objects are written as a reader meets them. Marks follow
//! the elements of their sequence, oldest first, so that the same one prevails among overlapping
//! marks. Each mark is between the same elements as before, so that inserted text gets the mark or
//! not as before.

use std::num::NonZeroU64;

use automerge::legacy::{ElementId, Key, ObjectId, Op, OpId, OpType, SortedVec};
use automerge::{ActorId, Change, ExpandedChange};

use super::live::{Item, Present, Reason};
use super::sequence::Element;

/// The change with the whole content.
pub fn change(present: &[(u32, Present)], actor: &ActorId) -> Result<Change, Reason> {
    let mut writer = Writer { actor, operations: Vec::new(), made: Default::default() };
    for (index, now) in present {
        let object = match writer.made.get(index) {
            _ if *index == 0 => ObjectId::Root,
            Some(&counter) => ObjectId::Id(OpId::new(counter, actor)),
            None => return Err("operations: no live operation makes an object".into()),
        };
        match now {
            Present::Map(_, keys) => {
                for (key, item) in keys {
                    writer.write(&object, Key::Map(key.as_str().into()), false, item);
                }
            }
            Present::Sequence(_, elements) => writer.sequence(&object, elements)?,
        }
    }
    Ok(Change::from(ExpandedChange {
        operations: writer.operations,
        actor_id: actor.clone(),
        hash: None,
        seq: 1,
        start_op: NonZeroU64::MIN,
        time: 0,
        message: None,
        deps: Vec::new(),
        extra_bytes: Vec::new(),
        author: None,
    }))
}

struct Writer<'a> {
    actor: &'a ActorId,
    operations: Vec<Op>,
    /// The operation that made each object.
    made: std::collections::HashMap<u32, u64>,
}

impl Writer<'_> {
    fn sequence(&mut self, object: &ObjectId, elements: &[Element<Item>]) -> Result<(), Reason> {
        let mut written = vec![None; elements.len()];
        let mut before = ElementId::Head;
        for (at, element) in elements.iter().enumerate() {
            if let Element::Value(item) = element {
                let counter = self.write(object, Key::Seq(before), true, item);
                written[at] = Some(counter);
                before = ElementId::Id(OpId::new(counter, self.actor));
            }
        }
        for (begin, end) in marks(elements)? {
            for at in [begin, end] {
                let action = match &elements[at] {
                    Element::Begin(_, data) => OpType::MarkBegin(data.clone()),
                    Element::End(_, expand) => OpType::MarkEnd(*expand),
                    Element::Value(_) => continue,
                };
                let left = written[..at].iter().rev().find_map(|counter| *counter);
                let left = left.map_or(ElementId::Head, |counter| {
                    ElementId::Id(OpId::new(counter, self.actor))
                });
                written[at] = Some(self.push(object, Key::Seq(left), true, action));
            }
        }
        Ok(())
    }

    fn write(&mut self, object: &ObjectId, key: Key, insert: bool, item: &Item) -> u64 {
        match item {
            Item::Scalar(scalar) => self.push(object, key, insert, OpType::Put(scalar.clone())),
            Item::Object(index, kind) => {
                let counter = self.push(object, key, insert, OpType::Make(*kind));
                self.made.insert(*index, counter);
                counter
            }
        }
    }

    fn push(&mut self, object: &ObjectId, key: Key, insert: bool, action: OpType) -> u64 {
        let pred = SortedVec::new();
        self.operations.push(Op { action, obj: object.clone(), key, pred, insert });
        self.operations.len() as u64
    }
}

/// The beginning and end of each mark, oldest first.
fn marks(elements: &[Element<Item>]) -> Result<Vec<(usize, usize)>, Reason> {
    let mut begins = std::collections::BTreeMap::new();
    let mut ends = std::collections::BTreeMap::new();
    for (at, element) in elements.iter().enumerate() {
        match element {
            Element::Begin(id, _) => drop(begins.insert(*id, at)),
            Element::End((counter, actor), _) => drop(ends.insert((counter - 1, *actor), at)),
            Element::Value(_) => {}
        }
    }
    if !begins.keys().eq(ends.keys()) {
        return Err("marks: a mark has only a beginning or an end".into());
    }
    Ok(begins.into_values().zip(ends.into_values()).collect())
}
