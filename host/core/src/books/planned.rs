//! What becomes of planned items that an operator discards.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{End, Tally, Write};
use crate::ids::{Partition, Seq, TaskName};
use crate::item::{Item, Source};

/// Discards waiting items; those of the log are the first of their streams, in order. Nothing blocks
/// planning them again: an operator discards them because of a fault of the task, not of the items.
pub fn discard_planned<'a>(
    waiting: &'a [(Source, Item)],
    reason: &'a str,
) -> (Vec<Write<'a>>, Tally<'a>) {
    let (mut writes, mut tally) = (Vec::with_capacity(waiting.len() * 2), Tally::default());
    let mut passed: BTreeMap<(&TaskName, Partition), (Seq, Seq)> = BTreeMap::new();
    for (at, (source, item)) in waiting.iter().enumerate() {
        let source = *source;
        tally.took(&item.identity, item.run, source);
        tally.of(&item.identity).discarded += 1;
        tally.ended(item.run);
        if let Source::Log(seq) = source {
            passed.entry((&item.identity.task, item.partition)).or_insert((seq, seq)).1 = seq;
        }
        let reason = Some(Cow::Borrowed(reason));
        let end = End::Discarded;
        writes.push(Write::Remove { item, source });
        writes.push(Write::History { at, item, end, settled: false, reason, notes: &[] });
    }
    for ((task, partition), (first, upto)) in passed {
        let after = Seq(first.0.saturating_sub(1));
        writes.push(Write::Acknowledge { task, partition, after, upto });
    }
    (writes, tally)
}
