//! Decides whose begun batches count as deaths.
//!
//! A node records what it is about to execute, so that a death during the execution is counted.
//! Only a node that is gone has died: a node whose lease ended because the lease service was
//! unreachable is alive, has stopped by its own clock, and returns. An incarnation therefore counts
//! as dead once it has not been a member for a whole lease under one leader, or at once when its
//! node has been restarted, because two incarnations of a node never run together.
//!
//! This module does not know how begun batches are found or what a death means for an item.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::Incarnation;
use crate::time::Mono;

/// The incarnations that the leader is waiting for.
#[derive(Debug, Clone, Default)]
pub struct Burial {
    /// Incarnations that have begun batches but are not members, and since when.
    absent: BTreeMap<Incarnation, Mono>,
    look_at: Option<Mono>,
}

impl Burial {
    /// A leadership begins or members have left: the begun batches have to be read.
    pub fn look(&mut self, now: Mono) {
        self.look_at = Some(now);
    }

    /// The leadership has ended.
    pub fn cease(&mut self) {
        *self = Burial::default();
    }

    /// When [`Burial::is_due`] has to be called next.
    pub fn deadline(&self) -> Option<Mono> {
        self.look_at
    }

    /// Whether the begun batches have to be read now; if so, the read counts as under way.
    pub fn is_due(&mut self, now: Mono) -> bool {
        self.look_at.take_if(|at| now >= *at).is_some()
    }

    /// Takes the incarnations that have begun batches; none: no answer. Returns the dead ones. An
    /// incarnation that still has begun batches at the next read is returned again.
    pub fn begun(
        &mut self,
        now: Mono,
        lease: Duration,
        begun: Option<&[Incarnation]>,
        members: &[Incarnation],
    ) -> Vec<Incarnation> {
        let Some(begun) = begun else {
            self.look_at = Some(now + lease / 4);
            return Vec::new();
        };
        let known = std::mem::take(&mut self.absent);
        let absent = begun.iter().filter(|node| !members.contains(node));
        self.absent =
            absent.map(|node| (node.clone(), known.get(node).copied().unwrap_or(now))).collect();
        let replaced =
            |node: &Incarnation| members.iter().any(|m| m.node_name() == node.node_name());
        let dead = |(node, since): &(&Incarnation, &Mono)| now >= **since + lease || replaced(node);
        let dead: Vec<Incarnation> =
            self.absent.iter().filter(dead).map(|(node, _)| node.clone()).collect();
        // The dead are read again as well, because the burial may fail.
        let next = self.absent.values().map(|since| (*since + lease).max(now + lease / 4)).min();
        self.look_at = self.look_at.into_iter().chain(next).min();
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(8);

    fn names(names: &[&str]) -> Vec<Incarnation> {
        names.iter().map(|name| Incarnation::from(*name)).collect()
    }

    fn at(second: u64) -> Mono {
        Mono(second * 1_000_000)
    }

    fn look(
        burial: &mut Burial,
        second: u64,
        begun: &[&str],
        members: &[&str],
    ) -> Vec<Incarnation> {
        burial.look(at(second));
        assert!(burial.is_due(at(second)) && !burial.is_due(at(second)));
        burial.begun(at(second), LEASE, Some(&names(begun)), &names(members))
    }

    #[test]
    fn who_has_been_away_for_a_lease_is_dead() {
        let mut burial = Burial::default();
        let members = ["a-00000001"];
        assert!(look(&mut burial, 0, &["a-00000001", "b-00000002"], &members).is_empty());
        assert_eq!(burial.deadline(), Some(at(8)));
        assert!(look(&mut burial, 7, &["b-00000002"], &members).is_empty());
        assert_eq!(look(&mut burial, 8, &["b-00000002"], &members), names(&["b-00000002"]));
        assert_eq!(burial.deadline(), Some(at(10)), "the burial may have failed");
        assert!(look(&mut burial, 10, &[], &members).is_empty());
        assert_eq!(burial.deadline(), None);
    }

    #[test]
    fn who_comes_back_within_a_lease_is_not() {
        let mut burial = Burial::default();
        let all = ["a-00000001", "b-00000002"];
        assert!(look(&mut burial, 0, &all, &all[..1]).is_empty());
        assert!(look(&mut burial, 5, &all, &all).is_empty());
        assert!(look(&mut burial, 9, &all, &all[..1]).is_empty());
        assert_eq!(burial.deadline(), Some(at(17)), "its absence counts anew");
    }

    #[test]
    fn an_earlier_start_of_a_node_that_is_there_is_dead_at_once() {
        let mut burial = Burial::default();
        let dead = look(&mut burial, 0, &["b-00000002"], &["a-00000001", "b-00000003"]);
        assert_eq!(dead, names(&["b-00000002"]));
    }

    #[test]
    fn without_an_answer_it_is_asked_again() {
        let mut burial = Burial::default();
        burial.look(at(0));
        assert!(burial.is_due(at(0)));
        assert!(burial.begun(at(0), LEASE, None, &[]).is_empty());
        assert_eq!(burial.deadline(), Some(at(2)));
    }
}
