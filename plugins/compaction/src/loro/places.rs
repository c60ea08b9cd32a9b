//! Checks where insertions go in a trimmed document.
//!
//! Decides whether an edit of the trimmed document produces the same operation as in the whole
//! one. When Loro writes a shallow snapshot, it removes the values of marks that have lost all of
//! their text, and treats a mark without a value as removed. If that mark would have expanded over
//! text inserted before it, an inserted letter is then placed before the mark instead of after it.
//! All clients see the letter at the same place, but two letters inserted there at the same time
//! may be ordered differently.

use loro::cursor::PosType;
use loro::{
    Container, ContainerID, JsonOpContent, JsonTextOp, LoroDoc, LoroResult, LoroText, PeerID,
    VersionVector,
};

use super::{history, state};
use crate::outcome::{Code, LeftAlone};

/// Inserts into both documents, which must be at the same version, wherever a mark begins or ends,
/// and compares the operations. Neither document can be used for anything else afterwards.
///
/// # Errors
/// An operation that differs, or the reason why text cannot be inserted.
pub fn same(before: &LoroDoc, after: &LoroDoc) -> Result<(), LeftAlone> {
    let unsupported = |error| {
        LeftAlone::new(Code::Unsupported, format!("no text can be inserted at the start: {error}"))
    };
    let peer = stranger(&before.oplog_vv());
    for doc in [before, after] {
        doc.set_detached_editing(true);
        doc.set_peer_id(peer).map_err(unsupported)?;
    }
    for (id, text) in texts(before) {
        let places = places(&text);
        if places.is_empty() {
            continue;
        }
        let Some(Container::Text(other)) = after.get_container(id.clone()) else {
            return Err(LeftAlone::new(
                Code::Changed,
                format!("text {id} is missing at the start"),
            ));
        };
        let here = insertions(before, &text, &places).map_err(unsupported)?;
        let there = insertions(after, &other, &places).map_err(unsupported)?;
        let differs = places.iter().zip(here.iter().zip(&there)).find(|(_, (a, b))| a != b);
        if differs.is_some() || here.len() != there.len() {
            let place = differs.map_or(0, |(place, _)| *place);
            let words = format!(
                "an insertion at {place} of text {id} would go to the other side of a mark that \
                 has lost its text"
            );
            return Err(LeftAlone::new(Code::Changed, words));
        }
    }
    Ok(())
}

/// A peer that has made no change.
fn stranger(vv: &VersionVector) -> PeerID {
    (0..).find(|peer| vv.get(peer).is_none_or(|end| *end == 0)).unwrap_or_default()
}

fn texts(doc: &LoroDoc) -> impl Iterator<Item = (ContainerID, LoroText)> {
    state::living(doc).into_iter().filter_map(|id| match doc.get_container(id.clone()) {
        Some(Container::Text(text)) => Some((id, text)),
        _ => None,
    })
}

/// Where in a text, in characters, marks begin or end; each place once, ascending.
///
/// Loro counts the ends of marks as elements of the text ("entities"), of which a slice shows
/// only the characters.
fn places(text: &LoroText) -> Vec<usize> {
    let mut places = Vec::new();
    let whole = 0..entities(text);
    search(text, whole, 0, &mut places);
    places.dedup();
    places
}

/// How many elements a text has, the ends of marks included.
fn entities(text: &LoroText) -> usize {
    let characters = text.len_unicode();
    let has =
        |count: usize| count == 0 || text.slice_delta(count - 1, count, PosType::Entity).is_ok();
    // Twice as many until there are fewer, then halves.
    let (mut known, mut beyond) = (characters, characters + 1);
    while has(beyond) {
        (known, beyond) = (beyond, 2 * beyond);
    }
    while beyond - known > 1 {
        let middle = known.midpoint(beyond);
        if has(middle) { known = middle } else { beyond = middle }
    }
    known
}

/// Looks for ends of marks among those elements, before which there are so many characters.
/// Returns the number of characters in it.
fn search(
    text: &LoroText,
    range: std::ops::Range<usize>,
    before: usize,
    places: &mut Vec<usize>,
) -> usize {
    let shown = characters(text, range.clone());
    if shown == range.len() {
        return shown;
    }
    if shown == 0 {
        places.push(before);
        return shown;
    }
    let middle = range.start.midpoint(range.end);
    let first = search(text, range.start..middle, before, places);
    first + search(text, middle..range.end, before + first, places)
}

fn characters(text: &LoroText, range: std::ops::Range<usize>) -> usize {
    let spans = text.slice_delta(range.start, range.end, PosType::Entity).unwrap_or_default();
    spans
        .iter()
        .map(|span| match span {
            loro::TextDelta::Insert { insert, .. } => insert.chars().count(),
            _ => 0,
        })
        .sum()
}

/// Where among the elements of the text an insertion at each of the places goes. From the last
/// to the first, so that none moves another.
fn insertions(doc: &LoroDoc, text: &LoroText, places: &[usize]) -> LoroResult<Vec<u32>> {
    let start = next(doc);
    for place in places.iter().rev() {
        text.insert(*place, "x")?;
    }
    doc.commit();
    let ops = history::changes(doc, doc.peer_id(), start, next(doc)).flat_map(|change| change.ops);
    let mut found: Vec<u32> = ops
        .filter_map(|op| match op.content {
            JsonOpContent::Text(JsonTextOp::Insert { pos, .. }) => Some(pos),
            _ => None,
        })
        .collect();
    found.reverse();
    Ok(found)
}

/// The counter of the next operation that the document's own peer makes.
fn next(doc: &LoroDoc) -> i32 {
    doc.oplog_vv().get(&doc.peer_id()).copied().unwrap_or(0)
}
