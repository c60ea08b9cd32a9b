//! What a node reads about the partitions has consequences for its leadership.

use besom_core::election::CampaignResult;
use besom_core::ids::FencingToken;
use besom_core::time::Time;

use super::*;
use crate::planner::{self, Loaded};
use crate::{Command as NodeCommand, Event as NodeEvent, Node, Now, Raise, Role, Work, executor};

const TIMING: Timing = Timing { ttl: Duration::from_secs(15), renew: Duration::from_secs(5) };
const NOW: Now = Now { wall: Time::from_secs(1_750_000_000), mono: Mono::START };

fn step(node: &mut Node, event: NodeEvent) -> Vec<NodeCommand> {
    let mut out = Vec::new();
    node.step(NOW, event, &mut out);
    out
}

/// A node of a cluster that leads under that term.
fn leading(fence: &FencingToken) -> Node {
    let settings = crate::Settings {
        node: Incarnation::from("one"),
        timing: TIMING,
        executor: executor::Settings::default(),
        planner: planner::Settings::default(),
        drain_max: Duration::from_secs(10),
        prune_every: Duration::from_secs(3_600),
        cluster: Some(Settings {
            partitions: NonZeroU32::MIN,
            verify_every: Duration::from_secs(10),
            poll_every: Duration::from_secs(1),
        }),
    };
    let mut node = Node::new(settings, Work::default(), [7; 32], NOW);
    step(&mut node, NodeEvent::Tick);
    let won = CampaignResult::Won(fence.clone());
    step(&mut node, NodeEvent::Campaigned(NOW.mono, won));
    step(&mut node, NodeEvent::Raised(fence.clone(), Raise::Done(Vec::new())));
    step(&mut node, NodeEvent::Loaded(fence.clone(), Ok(Loaded::default())));
    assert_eq!(node.role(), Role::Leading);
    node
}

/// The lease service was restored after a leader of the term 14 had been elected, which had not reached the
/// store. Some nodes had seen that term and claimed under it; the others could not claim until the term of
/// the leader was above it (seed 266 of a cluster).
#[test]
fn a_leader_gives_up_a_term_below_that_of_a_claim() {
    let fence = FencingToken { term: Term(13), token_hash: [7; 32] };
    let claimed = |term| {
        let row = PartitionRow {
            partition: Partition(0),
            owner: Some("two".into()),
            epoch: OwnerEpoch(6),
            at: RingPosition { term: Term(term), revision: 61 },
        };
        NodeEvent::Holdings(Event::Table(Ok(vec![row])))
    };
    let mut node = leading(&fence);
    step(&mut node, claimed(13));
    assert_eq!(node.role(), Role::Leading);
    let out = step(&mut node, claimed(14));
    assert!(out.contains(&NodeCommand::Resign(fence)), "{out:?}");
    assert_eq!(node.role(), Role::Following);
    let out = step(&mut node, NodeEvent::Resigned);
    assert!(out.contains(&NodeCommand::Campaign { at_least: Some(Term(14)) }), "{out:?}");
}
