//! The meaning of the coordination port: one lease, several nodes.

use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::{FencingToken, Term};
use besom_ports::coordination::{Campaign, Coordination};

/// A lease of 15 s and two nodes that want it, named `n1` and `n2`.
pub struct Contest {
    /// Node `n1`.
    pub one: Arc<dyn Coordination>,
    /// Node `n2`.
    pub two: Arc<dyn Coordination>,
    /// Lets lease time pass.
    pub advance: Box<dyn Fn(Duration)>,
    /// Keeps the adapter's server or file until the test ends.
    pub keep: Box<dyn std::any::Any>,
}

const SECOND: Duration = Duration::from_secs(1);

async fn win(node: &Arc<dyn Coordination>) -> FencingToken {
    match node.campaign(None).await.unwrap() {
        Campaign::Won(fence) => fence,
        held => panic!("the lease is free: {held:?}"),
    }
}

async fn lose(node: &Arc<dyn Coordination>) -> (Term, Duration) {
    match node.campaign(None).await.unwrap() {
        Campaign::Held { leader, retry_in } => (leader.term, retry_in),
        won => panic!("the lease is held: {won:?}"),
    }
}

/// One node leads; the other learns which node leads, and for how long.
pub async fn one_node_wins_and_the_other_learns_who(contest: &mut Contest) {
    assert_eq!(contest.one.leader().await.unwrap(), None);
    let fence = win(&contest.one).await;
    let (term, retry_in) = lose(&contest.two).await;
    assert_eq!(term, fence.term);
    assert!(retry_in > Duration::ZERO && retry_in <= SECOND * 15, "{retry_in:?}");
    let leader = contest.two.leader().await.unwrap().expect("somebody leads");
    assert!(leader.node.as_str().starts_with("n1"), "{leader:?}");
    assert_eq!((leader.term, leader.token_hash), (fence.term, fence.token_hash));
}

/// After an unknown result a node finds its own success.
pub async fn a_second_campaign_of_the_leader_finds_its_own_success(contest: &mut Contest) {
    let fence = win(&contest.one).await;
    assert_eq!(win(&contest.one).await, fence);
}

/// A lease lasts while it is renewed.
pub async fn a_renewed_lease_does_not_expire(contest: &mut Contest) {
    let fence = win(&contest.one).await;
    for _ in 0..5 {
        (contest.advance)(SECOND * 10);
        assert!(contest.one.renew(&fence).await.unwrap());
    }
    lose(&contest.two).await;
}

/// A lease that nobody renews is free, and the old leader cannot renew it.
pub async fn an_expired_lease_is_lost_and_free(contest: &mut Contest) {
    let old = win(&contest.one).await;
    (contest.advance)(SECOND * 16);
    assert!(!contest.one.renew(&old).await.unwrap());
    assert_eq!(contest.two.leader().await.unwrap(), None);
    let new = win(&contest.two).await;
    assert!(new.term > old.term, "a term only grows");
    assert_ne!(new.token_hash, old.token_hash);
    assert!(!contest.one.renew(&old).await.unwrap());
    lose(&contest.one).await;
}

/// After a resignation another node wins at once.
pub async fn a_resigned_lease_is_free_at_once(contest: &mut Contest) {
    let old = win(&contest.one).await;
    contest.one.resign(&old).await.unwrap();
    assert_eq!(contest.one.leader().await.unwrap(), None);
    assert!(!contest.one.renew(&old).await.unwrap());
    assert!(win(&contest.two).await.term > old.term);
}

/// A late resignation does not affect the successor.
pub async fn resigning_a_lost_lease_changes_nothing(contest: &mut Contest) {
    let old = win(&contest.one).await;
    (contest.advance)(SECOND * 16);
    let new = win(&contest.two).await;
    contest.one.resign(&old).await.unwrap();
    assert!(contest.two.renew(&new).await.unwrap());
}

/// A campaign wins a term above the one that the store has recorded.
pub async fn a_campaign_wins_a_term_above_the_one_it_names(contest: &mut Contest) {
    let first = match contest.one.campaign(Some(Term(41))).await.unwrap() {
        Campaign::Won(fence) => fence,
        held => panic!("the lease is free: {held:?}"),
    };
    assert_eq!(first.term, Term(42));
    contest.one.resign(&first).await.unwrap();
    let second = match contest.two.campaign(Some(Term(7))).await.unwrap() {
        Campaign::Won(fence) => fence,
        held => panic!("the lease is free: {held:?}"),
    };
    assert!(second.term > first.term);
}

/// A leader that the store refuses because of a later term wins a term above that one.
pub async fn a_leader_below_the_term_it_names_wins_a_later_one(contest: &mut Contest) {
    let low = win(&contest.one).await;
    let high = match contest.one.campaign(Some(Term(low.term.0 + 10))).await.unwrap() {
        Campaign::Won(fence) => fence,
        held => panic!("the lease is its own: {held:?}"),
    };
    assert!(high.term > Term(low.term.0 + 10), "{high:?}");
    assert!(!contest.one.renew(&low).await.unwrap());
    assert!(contest.one.renew(&high).await.unwrap());
    assert_eq!(lose(&contest.two).await.0, high.term);
}

/// A waiting watcher learns of a resignation long before its timeout.
pub async fn a_change_is_announced(contest: &mut Contest) {
    let fence = win(&contest.one).await;
    let watcher = Arc::clone(&contest.two);
    let (_, resigned) = tokio::join!(watcher.changed(SECOND * 30), contest.one.resign(&fence));
    resigned.unwrap();
    win(&contest.two).await;
}
