//! The owners of partitions, and the journal of arrivals for them.

use besom_core::ids::{Incarnation, OwnerEpoch, Partition};
use besom_core::ownership::{Claim, PartitionRow, RingPosition};
use besom_core::time::Time;

use super::state::State;
use besom_ports::store::Arrivals;

/// Who owns a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) node: Incarnation,
    pub(super) epoch: OwnerEpoch,
    pub(super) at: RingPosition,
}

impl State {
    pub(super) fn partition_table(&self) -> Vec<PartitionRow> {
        (0..self.partitions)
            .map(Partition)
            .map(|partition| {
                let owner = self.owners.get(&partition);
                PartitionRow {
                    partition,
                    owner: owner.map(|owner| owner.node.clone()),
                    epoch: owner.map(|owner| owner.epoch).unwrap_or_default(),
                    at: owner.map(|owner| owner.at).unwrap_or_default(),
                }
            })
            .collect()
    }

    /// Assigns the partition to the node under a new epoch.
    pub(super) fn take(
        &mut self,
        node: &Incarnation,
        partition: Partition,
        at: Option<RingPosition>,
    ) -> OwnerEpoch {
        let known = self.owners.get(&partition);
        let epoch = OwnerEpoch(known.map_or(0, |owner| owner.epoch.0) + 1);
        let at = at.or(known.map(|owner| owner.at)).unwrap_or_default();
        self.owners.insert(partition, Owner { node: node.clone(), epoch, at });
        epoch
    }

    pub(super) fn claim_partitions(
        &mut self,
        node: &Incarnation,
        at: RingPosition,
        claims: &[Claim],
    ) -> Vec<(Partition, OwnerEpoch)> {
        let mut taken = Vec::new();
        let count = self.partitions;
        for claim in claims.iter().filter(|claim| claim.partition.0 < count) {
            let known = self.owners.get(&claim.partition);
            let epoch = known.map(|owner| owner.epoch).unwrap_or_default();
            let claimed_at = known.map(|owner| owner.at).unwrap_or_default();
            if epoch == claim.seen && claimed_at < at {
                taken.push((claim.partition, self.take(node, claim.partition, Some(at))));
            }
        }
        taken
    }

    /// Records an arrival for the partition's owner.
    pub(super) fn arrived(&mut self, log: bool, timer: Option<Time>, retry: Option<Time>) {
        if log || timer.is_some() || retry.is_some() {
            let mark = self.arrivals.len() as u64 + 1;
            self.arrivals.push(Arrivals { mark, log, timer, retry });
        }
    }

    pub(super) fn arrivals(&self, since: u64) -> Arrivals {
        let earliest = |a: Option<Time>, b: Option<Time>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mark = self.arrivals.len() as u64;
        if since > mark {
            let any = Some(Time(i64::MIN));
            return Arrivals { mark, log: true, timer: any, retry: any };
        }
        let new = self.arrivals.iter().skip(usize::try_from(since).unwrap_or(usize::MAX));
        let all = Arrivals { mark: since, ..Arrivals::default() };
        new.fold(all, |all, one| Arrivals {
            mark: one.mark,
            log: all.log || one.log,
            timer: earliest(all.timer, one.timer),
            retry: earliest(all.retry, one.retry),
        })
    }
}
