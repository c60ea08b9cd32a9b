//! Hashes the content of a document: every value with its type and bits, every conflicting
//! value, every mark.
//!
//! Decides what counts as the same. JSON is not used, because it has only one kind of number.
//! With identities, values and objects are named by the operations that made them, as
//! attached clients know them. Without identities, the digest covers what a reader of the current
//! document finds, and is equal for a document whose history was reset.

use std::collections::VecDeque;

use automerge::{
    ActorId, Automerge, ObjId, ObjType, Prop, ROOT, ReadDoc, ScalarValueRef, Value, ValueRef,
};

use super::chunk::Hash;
use crate::canon::Canon;
use crate::outcome::{Code, LeftAlone};

/// Whether identities count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identities {
    /// Identities are part of the digest.
    Kept,
    /// Identities are excluded.
    Left,
}

/// The result of a walk through a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The SHA-256 of the content.
    pub digest: Hash,
    /// The first place where a key or an element has more than one value.
    pub conflict: Option<String>,
    /// The first value or object that the library keeps without showing it.
    pub unknown: Option<String>,
    /// The number of places where a mark begins or ends.
    pub marks: u64,
}

/// Reads all of a document.
pub fn walk(doc: &Automerge, identities: Identities) -> Result<Content, LeftAlone> {
    let mut walk = Walk {
        doc,
        identities,
        canon: Canon::new("automerge content 2"),
        actor: None,
        objects: VecDeque::from([(ROOT, ObjType::Map)]),
        conflict: None,
        unknown: None,
        marks: 0,
    };
    while let Some((id, kind)) = walk.objects.pop_front() {
        walk.object(&id, kind)?;
    }
    Ok(Content {
        digest: walk.canon.finish(),
        conflict: walk.conflict,
        unknown: walk.unknown,
        marks: walk.marks,
    })
}

struct Walk<'a> {
    doc: &'a Automerge,
    identities: Identities,
    canon: Canon,
    /// The last actor, because consecutive operations usually have the same one.
    actor: Option<ActorId>,
    /// Objects that were found and not read yet, so that deep nesting needs no stack.
    objects: VecDeque<(ObjId, ObjType)>,
    conflict: Option<String>,
    unknown: Option<String>,
    marks: u64,
}

impl Walk<'_> {
    fn object(&mut self, id: &ObjId, kind: ObjType) -> Result<(), LeftAlone> {
        self.canon.tag(match kind {
            ObjType::Map => b'M',
            ObjType::Table => b'B',
            ObjType::List => b'L',
            ObjType::Text => b'T',
        });
        let doc = self.doc;
        if kind == ObjType::Table {
            // The library keeps tables of early versions, but does not show them.
            self.unknown.get_or_insert_with(|| "a table".to_owned());
        } else {
            doc.object_type(id).map_err(unreadable)?;
        }
        match kind {
            ObjType::Map | ObjType::Table => {
                for item in doc.map_range(id, ..) {
                    self.canon.tag(b'k');
                    self.canon.bytes(item.key.as_bytes());
                    if item.conflict {
                        self.all(id, Prop::Map(item.key.to_string()))?;
                    } else {
                        self.value(&item.value, item.id());
                    }
                }
            }
            ObjType::List | ObjType::Text => {
                let mut at = 0;
                for item in doc.list_range(id, ..) {
                    self.canon.tag(b'e');
                    let place = at;
                    at += if kind == ObjType::Text { width(&item.value) } else { 1 };
                    if item.conflict {
                        self.all(id, Prop::Seq(place))?;
                    } else {
                        self.value(&item.value, item.id());
                    }
                }
                if kind == ObjType::Text {
                    let text = doc.text(id).map_err(unreadable)?;
                    self.canon.bytes(text.as_bytes());
                }
                self.canon.unsigned(doc.length(id) as u64);
                for mark in doc.marks(id).map_err(unreadable)? {
                    self.marks += 1;
                    self.canon.tag(b'm');
                    self.canon.unsigned(mark.start as u64);
                    self.canon.unsigned(mark.end as u64);
                    self.canon.bytes(mark.name.as_bytes());
                    self.scalar(&ScalarValueRef::from(mark.value().clone()));
                }
            }
        }
        self.canon.tag(b'.');
        Ok(())
    }

    /// Every value of a key or an element, in the library's order: the last one is shown.
    fn all(&mut self, id: &ObjId, prop: Prop) -> Result<(), LeftAlone> {
        let values = self.doc.get_all(id, prop.clone()).map_err(unreadable)?;
        if values.len() > 1 && self.conflict.is_none() {
            self.conflict = Some(format!("{} values of {prop} in object {id}", values.len()));
        }
        self.canon.tag(b'c');
        self.canon.unsigned(values.len() as u64);
        for (value, id) in values {
            match value {
                Value::Object(kind) => self.value(&ValueRef::Object(kind), id),
                Value::Scalar(scalar) => {
                    self.value(&ValueRef::Scalar(ScalarValueRef::from(scalar.into_owned())), id);
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, value: &ValueRef<'_>, id: ObjId) {
        if self.identities == Identities::Kept
            && let ObjId::Id(counter, actor, _) = &id
        {
            self.canon.unsigned(*counter);
            if self.actor.as_ref() == Some(actor) {
                self.canon.tag(b'=');
            } else {
                self.canon.tag(b'a');
                self.canon.bytes(actor.to_bytes());
                self.actor = Some(actor.clone());
            }
        }
        match value {
            ValueRef::Object(kind) => {
                self.canon.tag(b'o');
                self.objects.push_back((id, *kind));
            }
            ValueRef::Scalar(scalar) => self.scalar(scalar),
        }
    }

    fn scalar(&mut self, scalar: &ScalarValueRef<'_>) {
        match scalar {
            ScalarValueRef::Bytes(bytes) => {
                self.canon.tag(b'b');
                self.canon.bytes(bytes);
            }
            ScalarValueRef::Str(text) => {
                self.canon.tag(b's');
                self.canon.bytes(text.as_bytes());
            }
            ScalarValueRef::Int(number) => {
                self.canon.tag(b'i');
                self.canon.number(*number);
            }
            ScalarValueRef::Uint(number) => {
                self.canon.tag(b'u');
                self.canon.unsigned(*number);
            }
            ScalarValueRef::F64(number) => {
                self.canon.tag(b'f');
                self.canon.float(*number);
            }
            ScalarValueRef::Counter(number) => {
                self.canon.tag(b'+');
                self.canon.number(*number);
            }
            ScalarValueRef::Timestamp(number) => {
                self.canon.tag(b't');
                self.canon.number(*number);
            }
            ScalarValueRef::Boolean(is) => self.canon.tag(if *is { b'1' } else { b'0' }),
            ScalarValueRef::Null => self.canon.tag(b'n'),
            ScalarValueRef::Unknown { type_code, bytes } => {
                let words = || format!("a value of type {type_code}");
                self.unknown.get_or_insert_with(words);
                self.canon.tag(b'?');
                self.canon.tag(*type_code);
                self.canon.bytes(bytes);
            }
        }
    }
}

/// The positions that an element of a text takes.
fn width(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Scalar(ScalarValueRef::Str(text)) => text.encode_utf16().count(),
        _ => 1,
    }
}

fn unreadable(error: automerge::AutomergeError) -> LeftAlone {
    LeftAlone::new(Code::Unsupported, format!("automerge cannot read its document: {error}"))
}
