//! Which entries of a batch are left out of its commit.
//!
//! ```text
//!   entry ── its partition's owner ── its due time ── its place ──> committed
//!               │ another               │ ahead          │ elsewhere
//!            NotOwner                 NotDue          NotThere
//! ```
//! A stream continues at its cursor or is left out as a whole: its items are acknowledged in order.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, LeftOut};
use crate::ids::{Incarnation, OwnerEpoch, Partition, Seq, TaskName};
use crate::item::Source;
use crate::time::Time;

/// The owner of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The owning node.
    pub node: &'a str,
    /// The epoch under which it owns the partition.
    pub epoch: OwnerEpoch,
}

/// What a store finds, under its locks, about the entries of a batch. Nothing is asked about an
/// entry that was never queued.
pub trait Places {
    /// Why a question has no answer.
    type Error;

    /// The owner of the partition of the entry's item; none: nobody owns it.
    ///
    /// # Errors
    /// Those of the store.
    fn owner(&mut self, entry: &Entry) -> Result<Option<Owner<'_>>, Self::Error>;

    /// The last acknowledged position of a stream; none: there is no such stream. It is asked once
    /// for each stream.
    ///
    /// # Errors
    /// Those of the store.
    fn acked(&mut self, task: &TaskName, partition: Partition) -> Result<Option<Seq>, Self::Error>;

    /// Whether an item with the same identity, partition and run is at the entry's place. It is
    /// asked at most once for each entry, and for a timer or a retry only if nothing else leaves the
    /// entry out: a store may take the item away in the same step.
    ///
    /// # Errors
    /// Those of the store.
    fn is_there(&mut self, at: usize, entry: &Entry) -> Result<bool, Self::Error>;
}

/// A stream of the batch.
struct Stream {
    /// The position that continues it; none: it does not exist.
    next: Option<Seq>,
    left_out: Option<LeftOut>,
}

/// Why each entry is left out of a commit of `node` at `now` by the store's clock; none: it is not.
///
/// # Errors
/// The first error of `places`.
pub fn left_out<P: Places>(
    entries: &[Entry],
    node: &Incarnation,
    now: Time,
    places: &mut P,
) -> Result<Vec<Option<LeftOut>>, P::Error> {
    let mut streams: BTreeMap<(&TaskName, Partition), Stream> = BTreeMap::new();
    let mut left = vec![None; entries.len()];
    let mut taken: BTreeSet<Source> = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Source::Unqueued(_) = entry.source {
            continue;
        }
        let owner = places.owner(entry)?;
        let owned = owner == Some(Owner { node: node.as_str(), epoch: entry.epoch });
        let Source::Log(seq) = entry.source else {
            let timer = matches!(entry.source, Source::Timer(_));
            left[at] = if !owned {
                Some(LeftOut::NotOwner)
            } else if timer && entry.item.identity.due.is_some_and(|due| due > now) {
                Some(LeftOut::NotDue)
            } else if !taken.insert(entry.source) || !places.is_there(at, entry)? {
                Some(LeftOut::NotThere)
            } else {
                None
            };
            continue;
        };
        let (task, partition) = (&entry.item.identity.task, entry.item.partition);
        let stream = match streams.entry((task, partition)) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(unknown) => {
                let acked = places.acked(task, partition)?;
                let next = acked.map(|acked| Seq(acked.0 + 1));
                unknown.insert(Stream { next, left_out: None })
            }
        };
        if !owned {
            stream.left_out = Some(LeftOut::NotOwner);
        } else if stream.left_out.is_none()
            && (stream.next != Some(seq) || !places.is_there(at, entry)?)
        {
            stream.left_out = Some(LeftOut::NotThere);
        }
        stream.next = stream.next.map(|next| Seq(next.0 + 1));
    }
    for (left, entry) in left.iter_mut().zip(entries) {
        if let Source::Log(_) = entry.source {
            let stream = streams.get(&(&entry.item.identity.task, entry.item.partition));
            *left = stream.and_then(|stream| stream.left_out);
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::books::tests::{entry_of, item};
    use crate::proposal::Settle;
    use crate::queue::Decision;

    /// Partitions 0 and 1 belong to `node` under epoch 1; the streams are acknowledged up to 3.
    struct Found {
        missing: Vec<Source>,
        asked: Vec<usize>,
    }

    impl Places for Found {
        type Error = Infallible;

        fn owner(&mut self, entry: &Entry) -> Result<Option<Owner<'_>>, Infallible> {
            let node = match entry.item.partition.0 {
                0 | 1 => "node",
                2 => "another",
                _ => return Ok(None),
            };
            Ok(Some(Owner { node, epoch: OwnerEpoch(1) }))
        }

        fn acked(&mut self, task: &TaskName, _: Partition) -> Result<Option<Seq>, Infallible> {
            Ok((task.as_str() == "t").then_some(Seq(3)))
        }

        fn is_there(&mut self, at: usize, entry: &Entry) -> Result<bool, Infallible> {
            self.asked.push(at);
            Ok(!self.missing.contains(&entry.source))
        }
    }

    fn at(partition: u32, source: Source) -> Entry {
        let settle = Settle::Skip { reason: String::new(), settled: false };
        let entry = entry_of(item("k"), source, Decision::Settle(settle));
        Entry { item: crate::item::Item { partition: Partition(partition), ..entry.item }, ..entry }
    }

    fn log(partition: u32, seq: u64) -> Entry {
        at(partition, Source::Log(Seq(seq)))
    }

    fn due(seconds: i64, source: Source) -> Entry {
        let mut entry = at(0, source);
        entry.item.identity.due = Some(Time::from_secs(seconds));
        entry
    }

    fn check(entries: &[Entry], missing: &[Source]) -> (Vec<Option<LeftOut>>, Vec<usize>) {
        let mut found = Found { missing: missing.to_vec(), asked: Vec::new() };
        let now = Time::from_secs(60);
        let Ok(left) = left_out(entries, &Incarnation::from("node"), now, &mut found);
        (left, found.asked)
    }

    const THERE: Option<LeftOut> = None;
    const NOT_THERE: Option<LeftOut> = Some(LeftOut::NotThere);
    const NOT_OWNER: Option<LeftOut> = Some(LeftOut::NotOwner);
    const NOT_DUE: Option<LeftOut> = Some(LeftOut::NotDue);

    #[test]
    fn a_stream_continues_at_its_cursor_or_is_left_out_as_a_whole() {
        let gone = [Source::Log(Seq(5))];
        let under_two_epochs = [log(0, 4), Entry { epoch: OwnerEpoch(2), ..log(0, 5) }, log(0, 6)];
        let mut of_no_stream = log(0, 4);
        of_no_stream.item.identity.task = "other".into();
        for (entries, missing, left) in [
            (vec![log(0, 4), log(0, 5), log(1, 4)], &[][..], vec![THERE; 3]),
            (vec![log(0, 3), log(0, 4)], &[], vec![NOT_THERE; 2]),
            (vec![log(0, 5)], &[], vec![NOT_THERE]),
            (vec![log(0, 4), log(0, 6)], &[], vec![NOT_THERE; 2]),
            (vec![log(0, 4), log(0, 4)], &[], vec![NOT_THERE; 2]),
            (vec![log(0, 4), log(0, 5), log(1, 4)], &gone, vec![NOT_THERE, NOT_THERE, THERE]),
            (vec![log(2, 4), log(0, 4), log(3, 4)], &[], vec![NOT_OWNER, THERE, NOT_OWNER]),
            (under_two_epochs.to_vec(), &[], vec![NOT_OWNER; 3]),
            (vec![log(0, 7), log(2, 4)], &[], vec![NOT_THERE, NOT_OWNER]),
            (vec![of_no_stream], &[], vec![NOT_THERE]),
        ] {
            assert_eq!(check(&entries, missing).0, left, "{entries:?}");
        }
    }

    #[test]
    fn a_timer_or_a_retry_is_taken_once_by_its_owner_and_not_before_it_is_due() {
        let (timer, retry) = (Source::Timer(1), Source::Retry(1));
        for (entries, missing, left, asked) in [
            (vec![due(60, timer), due(61, retry)], &[][..], vec![THERE, THERE], vec![0, 1]),
            (vec![due(61, timer)], &[timer], vec![NOT_DUE], vec![]),
            (vec![due(60, timer), due(60, timer)], &[], vec![THERE, NOT_THERE], vec![0]),
            (vec![at(0, retry)], &[retry], vec![NOT_THERE], vec![0]),
            (vec![at(2, retry), at(0, timer)], &[], vec![NOT_OWNER, THERE], vec![1]),
            (vec![at(9, Source::Unqueued(crate::ids::Term(1)))], &[], vec![THERE], vec![]),
        ] {
            assert_eq!(check(&entries, missing), (left, asked), "{entries:?}");
        }
    }
}
