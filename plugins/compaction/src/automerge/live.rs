//! Selects the operations that make up the current document from its history.
//!
//! Decides which operations are live (only increments followed them), what a key or an element
//! contains, and whether one operation each can express it. It reads operations as they are
//! written in the changes and orders sequences itself, independently of the library's view of the
//! document, so that both can be compared.

use std::collections::{BTreeMap, HashMap};

use automerge::legacy::{ElementId, Key, ObjectId, OpId, OpType};
use automerge::{Change, ExpandedChange, ObjType, ScalarValue};

use super::sequence::{self, Element};

/// The operations of a document.
#[derive(Debug, Default)]
pub struct Live {
    /// The objects: the root first, then in the order of the operations that make them.
    objects: Vec<Object>,
    operations: Vec<Operation>,
    places: HashMap<(u64, u32), u32>,
    actors: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u32>,
}

#[derive(Debug)]
struct Object {
    kind: ObjType,
    /// The operations at each key, including dead ones.
    keys: BTreeMap<String, Vec<u32>>,
    /// Elements in the order in which they were read.
    elements: Vec<u32>,
}

#[derive(Debug)]
struct Operation {
    counter: u64,
    actor: u32,
    /// The value or object that the operation sets; none if the operation is dead.
    action: Option<OpType>,
    /// The object that the operation makes.
    object: Option<u32>,
    /// The sum of the increments of its counter.
    increments: i64,
    /// For an element: the element after which it was inserted; none: the head.
    origin: Option<u32>,
    /// For an element: the operations that set it later.
    updates: Vec<u32>,
}

/// Why a document cannot be rewritten: a stable word, and the place.
pub type Reason = String;

/// The current state of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Present {
    /// Keys in order, with values.
    Map(ObjType, Vec<(String, Item)>),
    /// Elements in order, with values, and marks where they begin and end.
    Sequence(ObjType, Vec<Element<Item>>),
}

/// A value, or an object by its index.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A scalar.
    Scalar(ScalarValue),
    /// An object, by its index, and what it is.
    Object(u32, ObjType),
}

impl Live {
    /// Adds a change, after its dependencies.
    pub fn take(&mut self, change: &Change) -> Result<(), Reason> {
        if self.objects.is_empty() {
            self.objects.push(Object::new(ObjType::Map));
        }
        let expanded = ExpandedChange::from(change);
        let actor = self.actor(expanded.actor_id.to_bytes());
        for (counter, operation) in (expanded.start_op.get()..).zip(expanded.operations) {
            let object = self.object(&operation.obj)?;
            for pred in operation.pred.iter() {
                let pred = self.place(pred)?;
                self.follow(pred, &operation.action);
            }
            if !matches!(operation.action, OpType::Delete | OpType::Increment(_)) {
                self.add(
                    counter,
                    actor,
                    object,
                    operation.key,
                    operation.insert,
                    operation.action,
                )?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, pred: u32, action: &OpType) {
        let pred = &mut self.operations[pred as usize];
        match (action, &pred.action) {
            (OpType::Increment(by), Some(OpType::Put(ScalarValue::Counter(_)))) => {
                pred.increments = pred.increments.wrapping_add(*by);
            }
            (OpType::Increment(_), _) => {}
            _ => pred.action = None,
        }
    }

    fn add(
        &mut self,
        counter: u64,
        actor: u32,
        object: u32,
        key: Key,
        insert: bool,
        action: OpType,
    ) -> Result<(), Reason> {
        let index = self.operations.len() as u32;
        let mut operation = Operation {
            counter,
            actor,
            object: None,
            increments: 0,
            origin: None,
            updates: Vec::new(),
            action: None,
        };
        if let OpType::Make(kind) = action {
            operation.object = Some(self.objects.len() as u32);
            self.objects.push(Object::new(kind));
        }
        operation.action = Some(action);
        match key {
            Key::Map(key) => {
                self.objects[object as usize].keys.entry(key.into()).or_default().push(index);
            }
            Key::Seq(element) => {
                let origin = match &element {
                    ElementId::Head => None,
                    ElementId::Id(id) => Some(self.place(id)?),
                };
                if insert {
                    operation.origin = origin;
                    self.objects[object as usize].elements.push(index);
                } else {
                    let element = origin.ok_or("operations: the head of a list is set")?;
                    self.operations[element as usize].updates.push(index);
                }
            }
        }
        if self.places.insert((counter, actor), index).is_some() {
            return Err(format!("operations: {counter} was used twice"));
        }
        self.operations.push(operation);
        Ok(())
    }

    /// The current state of every reachable object, from the root.
    pub fn present(&mut self) -> Result<Vec<(u32, Present)>, Reason> {
        if self.objects.is_empty() {
            self.objects.push(Object::new(ObjType::Map));
        }
        let mut present = Vec::new();
        let mut reached = std::collections::VecDeque::from([0u32]);
        while let Some(index) = reached.pop_front() {
            let object =
                std::mem::replace(&mut self.objects[index as usize], Object::new(ObjType::Map));
            let mut reach = |item: &Item| {
                if let Item::Object(child, _) = item {
                    reached.push_back(*child);
                }
            };
            let now = match object.kind {
                ObjType::Map | ObjType::Table => {
                    let mut keys = Vec::new();
                    for (key, operations) in object.keys {
                        if let Some(item) = self.item(&operations, || format!("key {key:?}"))? {
                            reach(&item);
                            keys.push((key, item));
                        }
                    }
                    Present::Map(object.kind, keys)
                }
                ObjType::List | ObjType::Text => {
                    let elements = self.sequence(&object.elements)?;
                    for element in &elements {
                        if let Element::Value(item) = element {
                            reach(item);
                        }
                    }
                    Present::Sequence(object.kind, elements)
                }
            };
            present.push((index, now));
        }
        Ok(present)
    }

    fn sequence(&mut self, elements: &[u32]) -> Result<Vec<Element<Item>>, Reason> {
        let nodes: Vec<sequence::Node<'_>> = elements
            .iter()
            .map(|&index| {
                let operation = &self.operations[index as usize];
                sequence::Node {
                    index,
                    origin: operation.origin,
                    counter: operation.counter,
                    actor: &self.actors[operation.actor as usize],
                }
            })
            .collect();
        let order = sequence::order(&nodes);
        if order.len() != elements.len() {
            return Err("operations: an element follows an element of another list".into());
        }
        let ranks = self.ranks();
        let mut now = Vec::new();
        for index in order {
            let operation = &self.operations[index as usize];
            let id = (operation.counter, ranks[operation.actor as usize]);
            match &operation.action {
                Some(OpType::MarkBegin(data)) => {
                    if matches!(data.value, ScalarValue::Unknown { .. }) {
                        return Err("unknown: a mark has a value of an unknown type".into());
                    }
                    now.push(Element::Begin(id, data.clone()));
                }
                Some(OpType::MarkEnd(expand)) => now.push(Element::End(id, *expand)),
                _ => {
                    let updates = std::mem::take(&mut self.operations[index as usize].updates);
                    let all: Vec<u32> = std::iter::once(index).chain(updates).collect();
                    if let Some(item) = self.item(&all, || "an element".to_owned())? {
                        now.push(Element::Value(item));
                    }
                }
            }
        }
        Ok(now)
    }

    /// The content of a key or an element.
    fn item(&self, operations: &[u32], what: impl Fn() -> String) -> Result<Option<Item>, Reason> {
        let mut living = operations
            .iter()
            .map(|&index| &self.operations[index as usize])
            .filter(|operation| operation.action.is_some());
        let Some(operation) = living.next() else { return Ok(None) };
        let others = living.count();
        if others > 0 {
            return Err(format!("conflicts: {} has {} values", what(), others + 1));
        }
        match &operation.action {
            Some(OpType::Make(kind)) => {
                Ok(operation.object.map(|index| Item::Object(index, *kind)))
            }
            Some(OpType::Put(ScalarValue::Counter(counter))) => {
                let value = i64::from(counter).wrapping_add(operation.increments);
                Ok(Some(Item::Scalar(ScalarValue::counter(value))))
            }
            Some(OpType::Put(ScalarValue::Unknown { type_code, .. })) => {
                Err(format!("unknown: {} has a value of type {type_code}", what()))
            }
            Some(OpType::Put(scalar)) => Ok(Some(Item::Scalar(scalar.clone()))),
            Some(OpType::MarkBegin(_) | OpType::MarkEnd(_)) => {
                Err(format!("operations: {} is set to a mark", what()))
            }
            Some(OpType::Delete | OpType::Increment(_)) | None => Ok(None),
        }
    }

    /// The order of actors, by their bytes.
    fn ranks(&self) -> Vec<u32> {
        let mut sorted: Vec<usize> = (0..self.actors.len()).collect();
        sorted.sort_by(|&a, &b| self.actors[a].cmp(&self.actors[b]));
        let mut ranks = vec![0; sorted.len()];
        for (rank, actor) in sorted.into_iter().enumerate() {
            ranks[actor] = rank as u32;
        }
        ranks
    }

    fn object(&self, id: &ObjectId) -> Result<u32, Reason> {
        match id {
            ObjectId::Root => Ok(0),
            ObjectId::Id(id) => self.operations[self.place(id)? as usize]
                .object
                .ok_or_else(|| format!("operations: {} makes no object", id.counter())),
        }
    }

    fn place(&self, id: &OpId) -> Result<u32, Reason> {
        let actor = self.numbers.get(id.actor().to_bytes());
        let found = actor.and_then(|actor| self.places.get(&(id.counter(), *actor)));
        found.copied().ok_or_else(|| format!("operations: {} is missing", id.counter()))
    }

    fn actor(&mut self, id: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(id) {
            return number;
        }
        let number = self.actors.len() as u32;
        self.actors.push(id.to_vec());
        self.numbers.insert(id.to_vec(), number);
        number
    }

    /// Whether the actor has made a change.
    pub fn has_actor(&self, id: &[u8]) -> bool {
        self.numbers.contains_key(id)
    }
}

impl Object {
    fn new(kind: ObjType) -> Object {
        Object { kind, keys: BTreeMap::new(), elements: Vec::new() }
    }
}
