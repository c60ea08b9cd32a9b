//! The edits of one author in one transaction: types, deletes, marks, embeds, sets and removes
//! keys, inserts and edits nested types, and rewrites like an undo.
//!
//! Keys and marks are set one at a time, because yrs writes several in the order of a hash map and
//! the same seed has to produce the same bytes. The body of the text has no characters outside the
//! Basic Multilingual Plane, so that no index can fall between two surrogates (titles and list
//! entries do have them).

use std::collections::HashMap;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use yrs::types::Attrs;
use yrs::{
    Any, Array, ArrayPrelim, ArrayRef, Doc, Map, MapPrelim, MapRef, Out, Text, TextPrelim, TextRef,
    TransactionMut,
};

const WORDS: [&str; 16] = [
    "the ",
    "quick ",
    "broom ",
    "swept ",
    "a ",
    "café ",
    "naïve ",
    "문서 ",
    "漢字 ",
    "résumé, ",
    "twigs ",
    "under ",
    "Straße ",
    "and ",
    "over. ",
    "\n",
];

const TITLES: [&str; 6] = ["Plan", "Notes 🧹", "Übersicht", "회의록", "Draft 2 ✅", "𝄞 Score"];

const LINKS: [&str; 3] =
    ["https://example.com/a", "https://example.com/b?c=d", "mailto:author@example.com"];

/// The longest deletion, in UTF-16 code units.
const DELETE_MAX: u32 = 24;

/// The longest stretch of text that is marked at once, in UTF-16 code units.
const MARK_MAX: u32 = 40;

/// The roots of the document, and the position of the author's caret.
pub(super) struct Hand {
    body: TextRef,
    meta: MapRef,
    tasks: ArrayRef,
    caret: u32,
}

impl Hand {
    pub(super) fn new(doc: &Doc) -> Hand {
        Hand {
            body: doc.get_or_insert_text("body"),
            meta: doc.get_or_insert_map("meta"),
            tasks: doc.get_or_insert_array("tasks"),
            caret: 0,
        }
    }

    /// Performs the edits of one transaction.
    pub(super) fn edit(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        match rng.random_range(0..100) {
            0..50 => self.write(txn, rng),
            50..62 => self.delete(txn, rng),
            62..70 => self.mark(txn, rng),
            70..74 => self.embed(txn, rng),
            74..78 => self.rewrite(txn, rng),
            78..87 => self.describe(txn, rng),
            87..95 => self.list(txn, rng),
            _ => self.nest(txn, rng),
        }
    }

    /// Types a word at the caret, sometimes after moving the caret.
    fn write(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let length = self.body.len(txn);
        if rng.random_ratio(1, 8) {
            self.caret = rng.random_range(0..=length);
        }
        let word = pick(rng, &WORDS);
        let at = self.caret.min(length);
        self.body.insert(txn, at, word);
        if rng.random_ratio(1, 10) {
            let bold = Attrs::from([("bold".into(), Any::Bool(true))]);
            self.body.format(txn, at, units(word), bold);
        }
        self.caret = at + units(word);
    }

    fn delete(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        match stretch(rng, self.body.len(txn), DELETE_MAX) {
            Some((at, length)) => {
                self.body.remove_range(txn, at, length);
                self.caret = at;
            }
            None => self.write(txn, rng),
        }
    }

    /// Sets or removes a mark.
    fn mark(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let Some((at, length)) = stretch(rng, self.body.len(txn), MARK_MAX) else {
            return self.write(txn, rng);
        };
        let (name, value) = match rng.random_range(0..6) {
            0 | 1 => ("bold", Any::Bool(true)),
            2 => ("italic", Any::Bool(true)),
            3 => ("link", Any::from(pick(rng, &LINKS))),
            4 => ("bold", Any::Null),
            _ => ("link", Any::Null),
        };
        self.body.format(txn, at, length, Attrs::from([(name.into(), value)]));
    }

    /// Inserts an image into the text.
    fn embed(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let at = self.caret.min(self.body.len(txn));
        let url = format!("https://example.com/{}.png", rng.random_range(0..1_000));
        let image = Any::Map(Arc::new(HashMap::from([("image".to_owned(), Any::from(url))])));
        self.body.insert_embed(txn, at, image);
        self.caret = at + 1;
    }

    /// Deletes the text before the caret and types it again, like undo and redo.
    fn rewrite(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let at = self.caret.min(self.body.len(txn));
        let length = at.min(rng.random_range(1..=DELETE_MAX));
        if length == 0 {
            return self.write(txn, rng);
        }
        self.body.remove_range(txn, at - length, length);
        let word = pick(rng, &WORDS);
        self.body.insert(txn, at - length, word);
        self.caret = at - length + units(word);
    }

    /// Sets or removes a key of the document's description.
    fn describe(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let (key, value) = match rng.random_range(0..7) {
            0 => ("title", Any::from(pick(rng, &TITLES))),
            1 => ("revision", Any::from(rng.random_range(0..100_000_i32))),
            2 => ("progress", Any::from(f64::from(rng.random_range(1..1_000_i32)) / 1_024.0)),
            3 => ("archived", Any::Bool(rng.random())),
            4 => ("thumbnail", Any::from(rng.random::<[u8; 16]>().to_vec())),
            5 => ("labels", Any::from(vec![Any::from(pick(rng, &TITLES)), Any::Null])),
            _ => {
                self.meta.remove(txn, pick(rng, &["title", "progress", "labels"]));
                return;
            }
        };
        self.meta.insert(txn, key, value);
    }

    /// Inserts into the list of tasks or removes from it.
    fn list(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let length = self.tasks.len(txn);
        if length > 3 && rng.random_ratio(1, 3) {
            self.tasks.remove(txn, rng.random_range(0..length));
            return;
        }
        let at = rng.random_range(0..=length);
        match rng.random_range(0..3) {
            0 => {
                self.tasks.insert(txn, at, pick(rng, &TITLES));
            }
            1 => {
                let entry = MapPrelim::from([("title", pick(rng, &TITLES))]);
                self.tasks.insert(txn, at, entry);
            }
            _ => {
                let entry = ArrayPrelim::from([rng.random_range(0..100_i32)]);
                self.tasks.insert(txn, at, entry);
            }
        }
    }

    /// Edits a nested type, or inserts a new one into the description.
    fn nest(&mut self, txn: &mut TransactionMut<'_>, rng: &mut StdRng) {
        let length = self.tasks.len(txn);
        let task = (length > 0).then(|| rng.random_range(0..length));
        match task.and_then(|at| self.tasks.get(txn, at)) {
            Some(Out::YMap(entry)) => {
                entry.insert(txn, "done", rng.random::<bool>());
            }
            Some(Out::YArray(entry)) => {
                entry.push_back(txn, rng.random_range(0..100_i32));
            }
            _ => match self.meta.get(txn, "comment") {
                Some(Out::YText(comment)) if rng.random_ratio(7, 8) => {
                    comment.push(txn, pick(rng, &WORDS));
                }
                _ => {
                    self.meta.insert(txn, "comment", TextPrelim::new(pick(rng, &TITLES)));
                }
            },
        }
    }
}

/// One of several texts.
fn pick(rng: &mut StdRng, texts: &[&'static str]) -> &'static str {
    texts.choose(rng).copied().unwrap_or_default()
}

/// The length of a text in UTF-16 code units.
fn units(text: &str) -> u32 {
    text.encode_utf16().count() as u32
}

/// A range of a text, if the text is long enough.
fn stretch(rng: &mut StdRng, length: u32, max: u32) -> Option<(u32, u32)> {
    let at = (length > 0).then(|| rng.random_range(0..length))?;
    Some((at, rng.random_range(1..=max).min(length - at)))
}

#[cfg(test)]
impl Hand {
    /// Whether the document contains everything that an author can make.
    pub(super) fn has_marks_embeds_and_nested_types(&self, txn: &impl yrs::ReadTxn) -> bool {
        let chunks = self.body.diff(txn, yrs::types::text::YChange::identity);
        let embeds = chunks.iter().any(|chunk| matches!(chunk.insert, Out::Any(Any::Map(_))));
        let mut marks = chunks.iter().filter_map(|chunk| chunk.attributes.as_ref());
        let nested = |out| matches!(out, Out::YMap(_) | Out::YArray(_));
        embeds
            && marks.any(|marks| marks.contains_key("bold"))
            && self.tasks.iter(txn).any(nested)
            && self.meta.len(txn) >= 5
            && matches!(self.meta.get(txn, "comment"), Some(Out::YText(_)))
    }
}
