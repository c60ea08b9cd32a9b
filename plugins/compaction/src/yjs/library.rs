//! Calls yrs: what it collects from updates, and in which order it places the rest.
//!
//! Decides nothing about the document, and contains panics. yrs receives only updates that the
//! reader has accepted, but it has panicked on such updates. In a guest a panic ends the batch;
//! natively it becomes a reason here.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use yrs::block::ClientID;
use yrs::branch::BranchPtr;
use yrs::updates::decoder::Decode;
use yrs::{
    Any, Array, ArrayRef, BranchID, Doc, Map, MapRef, Number, OffsetKind, Options, Out, ReadTxn,
    StateVector, Transact, Update,
};

use super::content::Kind;
use super::fragment::Fragment;
use super::layout::{Holder, Layout, Step};
use super::model::Model;
use super::names::{Id, Names, Text};
use super::stand_in::{self, Numbers};
use super::writer;
use crate::outcome::{Code, LeftAlone};

/// Applies the updates, each in its own transaction, and encodes the document.
pub fn rebuild(updates: &[&[u8]], skip_gc: bool) -> Result<Vec<u8>, LeftAlone> {
    guarded(|| {
        let doc = integrated(updates, skip_gc)?;
        let txn = doc.transact();
        Ok(txn.encode_state_as_update_v1(&StateVector::default()))
    })
}

/// The first living unit that yrs places differently from the layout of the model, if
/// there is one.
///
/// yrs receives the model with the units' numbers as contents, so that it can report the place of
/// each unit, whatever its content is.
pub fn misplaced(
    names: &Names,
    model: &Model,
    layout: &Layout<'_>,
) -> Result<Option<Id>, LeftAlone> {
    guarded(|| {
        let numbers = Numbers::new(model);
        let update = writer::write(names, &stand_in::numbers(model, &numbers));
        let doc = integrated(&[&update], false)?;
        let txn = doc.transact();
        let order = Order { names, numbers, layout, txn: &txn, types: HashMap::new() };
        Ok(order.first_difference())
    })
}

fn guarded<T>(build: impl FnOnce() -> Result<T, String>) -> Result<T, LeftAlone> {
    catch_unwind(AssertUnwindSafe(build))
        .unwrap_or_else(|_| Err("yrs panicked".into()))
        .map_err(|words| LeftAlone::new(Code::Unsupported, words))
}

fn integrated(updates: &[&[u8]], skip_gc: bool) -> Result<Doc, String> {
    // Any fixed identity works, because the document makes no change of its own.
    let identity = Options::with_guid_and_client_id(Arc::from("besom"), ClientID::new(0));
    let doc = Doc::with_options(Options {
        offset_kind: OffsetKind::Utf16,
        skip_gc,
        // A clean-up would delete marks that the document still has.
        cleanup_formatting: false,
        ..identity
    });
    for (row, bytes) in updates.iter().enumerate() {
        let update = Update::decode_v1(bytes)
            .map_err(|error| format!("yrs cannot read update {row}: {error}"))?;
        doc.transact_mut()
            .apply_update(update)
            .map_err(|error| format!("yrs cannot apply update {row}: {error}"))?;
    }
    let txn = doc.transact();
    if txn.store().pending_update().is_some() || txn.store().pending_ds().is_some() {
        return Err("yrs waits for a change that the updates do not contain".into());
    }
    drop(txn);
    Ok(doc)
}

/// Compares the order of a document of numbers with a layout.
struct Order<'a, 'm, T> {
    names: &'a Names,
    numbers: Numbers,
    layout: &'a Layout<'m>,
    txn: &'a T,
    /// The nested types met so far, by the unit that holds each.
    types: HashMap<Id, ArrayRef>,
}

impl<T: ReadTxn> Order<'_, '_, T> {
    fn first_difference(mut self) -> Option<Id> {
        let mut parent: Option<ArrayRef> = None;
        let mut slot: Option<(Text, Vec<&Fragment<'_>>)> = None;
        for step in self.layout.steps() {
            if let Step::Content(index) = *step {
                if let Some((_, fragments)) = &mut slot {
                    fragments.push(self.layout.fragment(index));
                }
                continue;
            }
            if let Some(id) = self.close(parent.as_ref(), slot.take()) {
                return Some(id);
            }
            match *step {
                Step::Parent(Holder::Root(name)) => {
                    parent = self.txn.get_array(self.names.text_of(name));
                }
                Step::Parent(Holder::Item(id)) => parent = self.types.remove(&id),
                Step::Slot(key) => slot = Some((key, Vec::new())),
                Step::Content(_) => {}
            }
        }
        self.close(parent.as_ref(), slot)
    }

    /// Compares a list or the entry of a key with that of yrs.
    fn close(
        &mut self,
        parent: Option<&ArrayRef>,
        slot: Option<(Text, Vec<&Fragment<'_>>)>,
    ) -> Option<Id> {
        let (key, fragments) = slot?;
        let Some(parent) = parent else { return fragments.first().map(|f| f.id()) };
        if key.is_some() {
            // yrs shows the last value of an entry.
            let last = fragments.last()?;
            let map = MapRef::from(BranchPtr::from(parent.as_ref()));
            let found = map.get(self.txn, self.names.text_of(key));
            let id = Id { clock: last.clock + last.len - 1, ..last.id() };
            return (!self.is(found, last, id)).then_some(id);
        }
        let txn = self.txn;
        let mut found = parent.iter(txn);
        for fragment in &fragments {
            for clock in fragment.clock..fragment.clock + fragment.len {
                let id = Id { clock, ..fragment.id() };
                if !self.is(found.next(), fragment, id) {
                    return Some(id);
                }
            }
        }
        // yrs has more units than the layout.
        found.next().and(fragments.last()).map(|last| last.id())
    }

    /// Whether yrs has this unit at this place.
    fn is(&mut self, found: Option<Out>, fragment: &Fragment<'_>, id: Id) -> bool {
        match found {
            Some(Out::Any(Any::Number(Number::Int(number)))) => {
                fragment.kind != Kind::Type && u64::try_from(number) == Ok(self.numbers.of(id))
            }
            Some(Out::YArray(array)) if fragment.kind == Kind::Type => {
                let BranchID::Nested(holder) = AsRef::<yrs::branch::Branch>::as_ref(&array).id()
                else {
                    return false;
                };
                self.types.insert(id, array);
                (holder.client.get(), holder.clock) == (self.names.client_id(id.client), id.clock)
            }
            _ => false,
        }
    }
}
