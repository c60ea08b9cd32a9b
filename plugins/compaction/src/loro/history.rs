//! Hashes a document's history, operation by operation.
//!
//! Decides when two histories are the same. Loro splits changes and runs of operations at the end
//! of its blocks, so single operations are written: the effect and the container of each, and,
//! unless implied by the previous operation, the data of its change: Lamport time, timestamp,
//! message and dependencies.

use loro::{
    ContainerID, ID, IdSpan, JsonChange, JsonFutureOp, JsonListOp, JsonMapOp, JsonMovableListOp,
    JsonOp, JsonOpContent, JsonTextOp, JsonTreeOp, LoroDoc, PeerID, VersionVector,
};

use crate::canon::Canon;
use crate::outcome::{Code, LeftAlone};

/// The number of operations held in memory at once.
const SPAN_OPS: i32 = 4_096;

/// The changes of a peer in the counters `from..end`, cut at the number of operations held in
/// memory at once.
pub fn changes(
    doc: &LoroDoc,
    peer: PeerID,
    from: i32,
    end: i32,
) -> impl Iterator<Item = JsonChange> {
    (from..end).step_by(SPAN_OPS as usize).flat_map(move |from| {
        let until = end.min(from.saturating_add(SPAN_OPS));
        doc.export_json_in_id_span(IdSpan::new(peer, from, until))
    })
}

/// Hashes the operations in `until` that are not in `from`, peer by peer.
///
/// The structures have JSON in their names because Loro's JSON export consists of them; here they
/// are typed values, never written as JSON.
///
/// # Errors
/// The reason why the history cannot be read.
pub fn write(
    canon: &mut Canon,
    doc: &LoroDoc,
    from: &VersionVector,
    until: &VersionVector,
) -> Result<(), LeftAlone> {
    let mut peers: Vec<(PeerID, i32)> = until.iter().map(|(peer, end)| (*peer, *end)).collect();
    peers.sort_unstable();
    for (peer, end) in peers {
        let start = from.get(&peer).copied().unwrap_or(0);
        if start >= end {
            continue;
        }
        canon.wide(peer);
        canon.number(i64::from(start));
        canon.number(i64::from(end));
        let mut walk = Walk { next: start, before: None, container: None };
        while walk.next < end {
            let until = end.min(walk.next.saturating_add(SPAN_OPS));
            let span = IdSpan::new(peer, walk.next, until);
            for change in doc.export_json_in_id_span(span) {
                walk.change(canon, change);
            }
            if walk.next < until {
                let words = format!("the history of peer {peer} breaks at counter {}", walk.next);
                return Err(LeftAlone::new(Code::Undecodable, words));
            }
        }
    }
    Ok(())
}

/// The position in the walk through one peer's operations.
struct Walk {
    next: i32,
    before: Option<Head>,
    container: Option<ContainerID>,
}

/// The data that the operations of one change share.
#[derive(PartialEq, Eq)]
struct Head {
    timestamp: i64,
    message: Option<String>,
    /// The Lamport time minus the counter, which is constant in a change.
    lamport_offset: i64,
}

impl Walk {
    fn change(&mut self, canon: &mut Canon, change: JsonChange) {
        let head = Head {
            timestamp: change.timestamp,
            message: change.msg,
            lamport_offset: i64::from(change.lamport) - i64::from(change.id.counter),
        };
        let previous = ID::new(change.id.peer, change.id.counter - 1);
        if self.before.as_ref() != Some(&head) || change.deps != [previous] {
            canon.tag(0xff);
            canon.number(i64::from(change.id.counter));
            canon.number(head.timestamp);
            canon.tag(u8::from(head.message.is_some()));
            canon.text(head.message.as_deref().unwrap_or_default());
            canon.number(head.lamport_offset);
            // Sorted by whoever exports them.
            canon.unsigned(change.deps.len() as u64);
            for dep in &change.deps {
                canon.id(*dep);
            }
            self.before = Some(head);
        }
        for op in change.ops {
            self.op(canon, op);
        }
    }

    fn op(&mut self, canon: &mut Canon, op: JsonOp) {
        if self.container.as_ref() != Some(&op.container) {
            canon.tag(0xfe);
            canon.container(&op.container);
            self.container = Some(op.container);
        }
        // A gap shows as fewer operations than the span.
        if op.counter != self.next {
            return;
        }
        self.next += match op.content {
            JsonOpContent::Text(JsonTextOp::Insert { pos, text }) => {
                let mut units = 0;
                for (at, unit) in text.chars().enumerate() {
                    canon.tag(1);
                    canon.unsigned(u64::from(pos) + at as u64);
                    canon.unsigned(u64::from(u32::from(unit)));
                    units += 1;
                }
                units
            }
            JsonOpContent::List(JsonListOp::Insert { pos, value })
            | JsonOpContent::MovableList(JsonMovableListOp::Insert { pos, value }) => {
                for (at, value) in value.iter().enumerate() {
                    canon.tag(2);
                    canon.unsigned(u64::from(pos) + at as u64);
                    canon.value(value);
                }
                value.len() as i32
            }
            JsonOpContent::Text(JsonTextOp::Delete { pos, len, start_id })
            | JsonOpContent::List(JsonListOp::Delete { pos, len, start_id })
            | JsonOpContent::MovableList(JsonMovableListOp::Delete { pos, len, start_id }) => {
                deletions(canon, pos, len, start_id)
            }
            JsonOpContent::Text(JsonTextOp::Mark { start, end, style_key, style_value, info }) => {
                canon.tag(4);
                canon.unsigned(u64::from(start));
                canon.unsigned(u64::from(end));
                canon.text(&style_key);
                canon.value(&style_value);
                canon.tag(info);
                1
            }
            JsonOpContent::Text(JsonTextOp::MarkEnd) => {
                canon.tag(5);
                1
            }
            JsonOpContent::MovableList(JsonMovableListOp::Move { from, to, elem_id }) => {
                canon.tag(6);
                canon.unsigned(u64::from(from));
                canon.unsigned(u64::from(to));
                canon.wide(elem_id.peer);
                canon.unsigned(u64::from(elem_id.lamport));
                1
            }
            JsonOpContent::MovableList(JsonMovableListOp::Set { elem_id, value }) => {
                canon.tag(7);
                canon.wide(elem_id.peer);
                canon.unsigned(u64::from(elem_id.lamport));
                canon.value(&value);
                1
            }
            JsonOpContent::Map(JsonMapOp::Insert { key, value }) => {
                canon.tag(8);
                canon.text(&key);
                canon.value(&value);
                1
            }
            JsonOpContent::Map(JsonMapOp::Delete { key }) => {
                canon.tag(9);
                canon.text(&key);
                1
            }
            JsonOpContent::Tree(op) => {
                tree(canon, op);
                1
            }
            JsonOpContent::Future(op) => {
                // The types within have no name outside of Loro. Their debug form writes
                // every float so that it reads back as the same; only which NaN a counter was
                // given is not in it, and any of them makes that counter NaN.
                let words = match &op.value {
                    JsonFutureOp::Counter(by) => format!("counter {by:?}"),
                    JsonFutureOp::Unknown(what) => format!("unknown {what:?}"),
                };
                canon.tag(10);
                canon.number(i64::from(op.prop));
                canon.text(&words);
                1
            }
        };
    }
}

/// Hashes a run of deletions, one by one. A negative length runs backwards, from the last element
/// at `pos` to the first, which is `start_id`; a single one has no direction.
fn deletions(canon: &mut Canon, pos: i32, len: i32, start_id: ID) -> i32 {
    let count = i32::try_from(len.unsigned_abs()).unwrap_or(i32::MAX);
    for nth in 0..count {
        let (at, offset) = if len > 0 { (pos, nth) } else { (pos - nth, count - 1 - nth) };
        canon.tag(3);
        canon.number(i64::from(at));
        canon.id(start_id.inc(offset));
    }
    count
}

fn tree(canon: &mut Canon, op: JsonTreeOp) {
    match op {
        JsonTreeOp::Create { target, parent, fractional_index } => {
            canon.tag(11);
            canon.node(target);
            canon.id_or_none(parent.map(|parent| parent.id()));
            canon.bytes(fractional_index.as_bytes());
        }
        JsonTreeOp::Move { target, parent, fractional_index } => {
            canon.tag(12);
            canon.node(target);
            canon.id_or_none(parent.map(|parent| parent.id()));
            canon.bytes(fractional_index.as_bytes());
        }
        JsonTreeOp::Delete { target } => {
            canon.tag(13);
            canon.node(target);
        }
    }
}
