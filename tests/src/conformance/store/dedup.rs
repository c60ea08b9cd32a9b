//! An item waits once; a settled skip and an open dead letter block one version.

use std::time::Duration;

use besom_core::item::Candidate;
use besom_ports::store::{End, Letters};

use crate::conformance::World;
use crate::conformance::tables::thing;
use crate::conformance::world::{apply, candidate, dead, due, retry, set_n, settled, skip, tenant};

fn version(version: &str) -> Candidate {
    Candidate { version: version.into(), ..candidate("k") }
}

/// Plans one candidate; returns how many were planned, deduplicated and blocked.
async fn offer(world: &World, candidate: Candidate) -> (u64, u64, u64) {
    let run = world.run("task").await;
    let planned = world.plan("task", run, vec![candidate]).await;
    (planned.planned, planned.deduplicated, planned.blocked)
}

const PLANNED: (u64, u64, u64) = (1, 0, 0);
const WAITS: (u64, u64, u64) = (0, 1, 0);
const BLOCKED: (u64, u64, u64) = (0, 0, 1);

/// Task, tenant, key and due time are an item's identity, and nothing else.
pub async fn the_identity_is_task_tenant_key_and_due(world: &mut World) {
    let soon = world.now + Duration::from_secs(60);
    assert_eq!(offer(world, candidate("k")).await, PLANNED);
    for (other, expected) in [
        (candidate("k"), WAITS),
        (Candidate { version: "v2".into(), ..candidate("k") }, WAITS),
        (Candidate { route: "r".into(), payload: vec![], ..candidate("k") }, WAITS),
        (candidate("k2"), PLANNED),
        (Candidate { tenant: Some(tenant("b")), ..candidate("k") }, PLANNED),
        (Candidate { tenant: None, ..candidate("k") }, PLANNED),
        (due("k", soon), PLANNED),
        (due("k", soon), WAITS),
        (due("k", soon + Duration::from_micros(1)), PLANNED),
    ] {
        assert_eq!(offer(world, other.clone()).await, expected, "{other:?}");
    }
    let run = world.run("another").await;
    assert_eq!(world.plan("another", run, vec![candidate("k")]).await.planned, 1);
}

/// A page with an item twice plans it once.
pub async fn equal_identities_within_a_page_count_once(world: &mut World) {
    let run = world.run("task").await;
    let planned = world.plan("task", run, vec![version("v1"), version("v2")]).await;
    assert_eq!((planned.planned, planned.deduplicated), (1, 1));
    assert_eq!(world.only("task").await.item.version, "v1");
}

/// An item among the retries is not planned again.
pub async fn an_item_among_the_retries_is_not_planned_again(world: &mut World) {
    world.settle(candidate("k"), retry(world.now, 1, "later")).await;
    assert_eq!(offer(world, candidate("k")).await, WAITS);
    world.balanced().await;
}

/// A skip that is not settled may be planned again at once.
pub async fn an_unsettled_skip_blocks_nothing(world: &mut World) {
    world.settle(candidate("k"), skip("not now")).await;
    assert_eq!(offer(world, candidate("k")).await, PLANNED);
}

/// A settled skip blocks its version until the item changes.
pub async fn a_settled_skip_blocks_its_version_only(world: &mut World) {
    world.settle(version("v1"), settled("left alone")).await;
    assert_eq!(offer(world, version("v1")).await, BLOCKED);
    world.reopen().await;
    assert_eq!(offer(world, version("v1")).await, BLOCKED);
    assert_eq!(offer(world, version("v2")).await, PLANNED);
    let row = world.history().await.remove(0);
    assert!(row.settled && row.outcome == End::Skipped, "{row:?}");
}

/// A settled skip blocks only the identity with the same due time.
pub async fn a_settled_skip_does_not_block_another_due_time(world: &mut World) {
    world.settle(candidate("k"), settled("left alone")).await;
    assert_eq!(offer(world, due("k", world.now)).await, PLANNED);
}

/// The last end of an item decides whether it is blocked.
pub async fn a_later_commit_lifts_a_settled_skip(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.settle(version("v1"), settled("left alone")).await;
    world.settle(version("v2"), apply(vec![], vec![set_n("t", 2)])).await;
    assert_eq!(offer(world, version("v1")).await, PLANNED);
}

/// An open dead letter blocks its version until the item changes.
pub async fn an_open_dead_letter_blocks_its_version_only(world: &mut World) {
    world.settle(version("v1"), dead("corrupt")).await;
    assert_eq!(offer(world, version("v1")).await, BLOCKED);
    assert_eq!(offer(world, version("v2")).await, PLANNED);
    let letters =
        world.store().dead_letters(&Default::default(), Letters::Open, None, 10).await.unwrap();
    assert_eq!(letters.len(), 1, "the old dead letter stays open");
    let audit = world.balanced().await;
    assert_eq!((audit.rows[0].counted.dead, audit.rows[0].counted.pending), (1, 1));
}
