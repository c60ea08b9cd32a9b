//! Compaction in reset mode: the history becomes one initial change of one new client.
//!
//! Decides which identities the living units get, and verifies every result. Works on a verified
//! merge, on units and their raw contents: a root does not record its type, so it cannot be
//! walked as JSON.
//!
//! ```text
//! former model ──layout──> outline ───────────────────────────────────┬─────────┐
//! merged model ──layout──> outline (the same?)                        │         │
//!                   ├──yrs, from nothing: every unit at its place?    │         │
//!                   └──> one client, clocks from 0 ──> update ──reader, layout──> outline
//!                                                        └──yrs, from nothing ──> places
//! ```
//!
//! The product has to reject clients with the former identities by the document's epoch: a former
//! copy merged with the new one would show everything twice.

use std::collections::HashMap;
use std::fmt;

use super::content::Kind;
use super::layout::{Holder, Layout, Step, Unfit};
use super::merge::{self, Merged};
use super::model::{Client, Model, Parent, Place, Run};
use super::names::{Id, Names, Text};
use super::outline::Outline;
use super::{library, memory, stand_in, tally, union, writer};
use crate::outcome::{Code, Compacted, Digests, LeftAlone, Mode};

/// The number of client ids that are tried. Each is in use with a probability of about one in 2^32
/// per client of the document.
const CLIENT_IDS_MAX: u8 = 16;

/// Why a document is merged although a reset was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// The document keeps deleted content.
    KeptDeleted,
    /// The document has too many fragments or units to be laid out.
    TooLarge,
    /// Memory does not suffice for this estimate in bytes.
    NoRoom(usize),
    /// The units cannot be ordered, or the two computed orders differ.
    Order(String),
    /// The reset document would differ.
    Changed(String),
    /// Every client id that was tried is in use.
    ClientId,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::KeptDeleted => f.write_str(
                "kept-deleted: the document keeps deleted content (gc: false), and a reset \
                 would remove it; deleted_content = \"collect\" permits that",
            ),
            Because::TooLarge => write!(
                f,
                "too-large: a reset lays out at most {} fragments and {} units",
                super::fragment::FRAGMENTS_MAX,
                stand_in::UNITS_MAX
            ),
            Because::NoRoom(bytes) => {
                write!(f, "too-large: a reset needs up to {bytes} bytes more than available")
            }
            Because::Order(words) => write!(f, "order: {words}"),
            Because::Changed(words) => write!(f, "changed: {words}"),
            Because::ClientId => f.write_str("client-id: every client id that was tried is in use"),
        }
    }
}

impl From<Unfit> for Because {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::TooLarge => Because::TooLarge,
            Unfit::Circle => Because::Order("changes depend on each other in a cycle".into()),
        }
    }
}

/// Turns a verified merge into a reset.
///
/// # Errors
/// The reason why it stays a merge.
pub fn reset(merged: &Merged) -> Result<Compacted, Because> {
    let Merged { names, old, new, .. } = merged;
    if merged.keep_deleted && has_deleted_content(new) {
        return Err(Because::KeptDeleted);
    }
    if stand_in::units(new) > stand_in::UNITS_MAX {
        return Err(Because::TooLarge);
    }
    if !memory::has_room_for_reset(&merged.facts) {
        return Err(Because::NoRoom(memory::needed_for_reset(&merged.facts)));
    }
    let layout = Layout::of(names, new)?;
    let outline = Outline::of(names, &layout);
    let before = Outline::of(names, &Layout::of(names, old)?);
    if outline != before || layout.units() != living_units(new) {
        return Err(Because::Order("the rows and the merged update differ in order".into()));
    }
    check_places(names, new, &layout)?;

    let (update, names, model) = initial_change(merged, &layout, &outline)?;
    let layout = Layout::of(&names, &model)?;
    let after = Outline::of(&names, &layout);
    if after != before {
        return Err(Because::Changed("the initial change differs".into()));
    }
    check_places(&names, &model, &layout)?;
    Ok(Compacted {
        update,
        mode: Mode::Reset,
        merged_because: None,
        digests: Digests { before: before.digest(), after: after.digest() },
        bytes_before: merged.facts.bytes,
        remarks: merged.remarks(),
    })
}

/// Checks that `after` is one initial change equivalent to the updates. See
/// [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    let unfit = |unfit| LeftAlone::new(Code::TooLarge, Because::from(unfit).to_string());
    let changed = |words: &str| LeftAlone::new(Code::Changed, words);
    memory::require(&tally::tally(updates)?)?;
    let mut names = Names::default();
    let old = union::read(&mut names, updates.iter().copied()).map_err(LeftAlone::from)?;
    let before = Outline::of(&names, &Layout::of(&names, &old).map_err(unfit)?);

    let mut fresh = Names::default();
    let new = merge::read_own(&mut fresh, after, "the initial change cannot be read")?;
    if fresh.clients() > 1 || new.clients.iter().any(|client| !client.deleted.is_empty()) {
        return Err(changed("the initial change has more than one client, or a deletion"));
    }
    let reused = (0..fresh.clients() as u32).any(|n| names.knows_client(fresh.client_id(n)));
    // A reset of a single initial change is that change.
    if reused && merge::verify(updates, after).is_err() {
        return Err(changed("the initial change uses a client id of the former document"));
    }
    let after = Outline::of(&fresh, &Layout::of(&fresh, &new).map_err(unfit)?);
    if before != after {
        return Err(changed("the initial change differs from the updates"));
    }
    Ok(Digests { before: before.digest(), after: after.digest() })
}

fn has_deleted_content(model: &Model) -> bool {
    model.clients.iter().any(|client| {
        let runs = client.runs.iter().filter(|run| run.kind.has_content());
        runs.into_iter().any(|run| {
            let (deleted, until) = client.deleted.at(run.clock);
            deleted || until < run.end()
        })
    })
}

fn living_units(model: &Model) -> u64 {
    let units = |client: &Client| {
        let deleted: u32 = client.deleted.iter().map(|(start, end)| end - start).sum();
        u64::from(client.end() - deleted)
    };
    model.clients.iter().map(units).sum()
}

/// Checks that yrs places every unit as the layout does.
fn check_places(names: &Names, model: &Model, layout: &Layout<'_>) -> Result<(), Because> {
    match library::misplaced(names, model, layout) {
        Ok(None) => Ok(()),
        Ok(Some(id)) => Err(Because::Order(format!(
            "yrs has placed client {}, clock {} differently",
            names.client_id(id.client),
            id.clock
        ))),
        Err(left) => Err(Because::Order(left.words)),
    }
}

/// The initial change, and the model that is read from it.
///
/// The client id is derived from the outline and not used in the document. So a reset of the
/// same content produces the same bytes everywhere, and a reset of a reset is itself.
fn initial_change(
    merged: &Merged,
    layout: &Layout<'_>,
    outline: &Outline,
) -> Result<(Vec<u8>, Names, Model), Because> {
    for attempt in 1..=CLIENT_IDS_MAX {
        let hash = outline.sha256(attempt);
        let id = hash.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
        let taken = merged.names.knows_client(id);
        if taken && merged.names.clients() > 1 {
            continue;
        }
        let mut names = Names::default();
        let written = rewrite(&mut names, id, &merged.names, layout);
        let update = writer::write(&names, &written);
        if taken && update != merged.update {
            continue;
        }
        let words = |left: LeftAlone| Because::Changed(left.words);
        let mut names = Names::default();
        let model = merge::read_own(&mut names, &update, "the initial change cannot be read")
            .map_err(words)?;
        merge::from_nothing(&mut names, &model, &update).map_err(words)?;
        return Ok((update, names, model));
    }
    Err(Because::ClientId)
}

/// All living units, as one client's units with clocks from 0.
fn rewrite(names: &mut Names, id: u64, old_names: &Names, layout: &Layout<'_>) -> Model {
    let number = names.client(id);
    let mut client = Client::default();
    // The new identities of the nested types.
    let mut moved: HashMap<Id, Id> = HashMap::new();
    let mut start = Place::LOST;
    let mut text = |text: Text| match text {
        Text::NONE => Text::NONE,
        text => names.text(old_names.text_of(text)),
    };
    let mut place = start;
    for step in layout.steps() {
        let index = match *step {
            Step::Parent(Holder::Root(name)) => {
                start.parent = Parent::Root(text(name));
                continue;
            }
            Step::Parent(Holder::Item(id)) => {
                // A type comes before its content.
                start.parent = moved.get(&id).map_or(Parent::Inherited, |&id| Parent::Item(id));
                continue;
            }
            Step::Slot(key) => {
                place = Place { parent_sub: text(key), ..start };
                continue;
            }
            Step::Content(index) => index,
        };
        let fragment = layout.fragment(index);
        let from = client.arena.len() as u32;
        fragment.bytes.shown().iter().for_each(|bytes| client.arena.extend_from_slice(bytes));
        let bytes = (from, client.arena.len() as u32);
        let clock = client.end();
        if fragment.kind == Kind::Type {
            moved.insert(fragment.id(), Id { client: number, clock });
        }
        client.push(number, Run { clock, len: fragment.len, place, kind: fragment.kind, bytes });
        place = Place { origin: Id { client: number, clock: client.end() - 1 }, ..Place::LOST };
    }
    Model { clients: vec![client], ..Model::default() }
}
