//! The content of a document without identities.
//!
//! Decides what a reset keeps. In order: every shared type, every content of its list and
//! of its keys, by kind and raw bytes. Identities, deleted units and the division into runs are
//! excluded. Two documents with the same outline show the same content.

use sha2::{Digest as _, Sha256};

use super::content::Kind;
use super::layout::{Holder, Layout, Step};
use super::names::Names;
use super::wire::{write_string, write_var_uint};

/// The outline of a document, as bytes that are equal only for equal content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline(Vec<u8>);

const ROOT: u8 = 1;
const NESTED: u8 = 2;
const LIST: u8 = 3;
const KEY: u8 = 4;
/// Before the number of a kind.
const CONTENT: u8 = 5;

impl Outline {
    /// The outline of a model with its layout.
    pub fn of(names: &Names, layout: &Layout<'_>) -> Outline {
        let mut out = Vec::new();
        let mut run: Option<OpenRun> = None;
        for step in layout.steps() {
            let fragment = match *step {
                Step::Content(index) => layout.fragment(index),
                Step::Parent(_) | Step::Slot(_) => {
                    close(&mut run, &mut out);
                    mark(names, step, &mut out);
                    continue;
                }
            };
            if run.as_ref().is_none_or(|run| run.kind != fragment.kind || !run.kind.is_run()) {
                close(&mut run, &mut out);
            }
            let run =
                run.get_or_insert_with(|| OpenRun { kind: fragment.kind, units: 0, bytes: vec![] });
            run.units += u64::from(fragment.len);
            fragment.bytes.shown().iter().for_each(|bytes| run.bytes.extend_from_slice(bytes));
        }
        close(&mut run, &mut out);
        Outline(out)
    }

    /// The SHA-256 with a salt; the digest of a document has the salt 0.
    pub fn sha256(&self, salt: u8) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update([salt]);
        hash.update(&self.0);
        hash.finalize().into()
    }

    /// The digest of the document, in hexadecimal.
    pub fn digest(&self) -> String {
        self.sha256(0).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Contents that Yjs keeps in one run.
struct OpenRun {
    kind: Kind,
    units: u64,
    bytes: Vec<u8>,
}

fn close(run: &mut Option<OpenRun>, out: &mut Vec<u8>) {
    let Some(run) = run.take() else { return };
    out.extend([CONTENT, run.kind as u8]);
    write_var_uint(out, run.units);
    write_var_uint(out, run.bytes.len() as u64);
    out.extend(run.bytes);
}

fn mark(names: &Names, step: &Step, out: &mut Vec<u8>) {
    match *step {
        Step::Parent(Holder::Root(name)) => {
            out.push(ROOT);
            write_string(out, names.text_of(name));
        }
        // Nested types follow in the order in which the walk finds them.
        Step::Parent(Holder::Item(_)) => out.push(NESTED),
        Step::Slot(key) if key.is_some() => {
            out.push(KEY);
            write_string(out, names.text_of(key));
        }
        Step::Slot(_) => out.push(LIST),
        Step::Content(_) => {}
    }
}
