//! The meaning of the membership port: two nodes, and another incarnation of the first.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use besom_core::ring::NodeName;
use besom_core::time::Time;
use besom_ports::coordination::{Campaign, Coordination, Error};
use besom_ports::members::{Announcement, Member, MemberState, Members, StoreAway};

/// Leases of 15 s, and three handles.
pub struct Company {
    /// Node `n1`.
    pub one: Arc<dyn Members>,
    /// The same node's leadership.
    pub one_leads: Arc<dyn Coordination>,
    /// Node `n2`.
    pub two: Arc<dyn Members>,
    /// The same node's leadership.
    pub two_leads: Arc<dyn Coordination>,
    /// Another incarnation that is called `n1`.
    pub twin: Arc<dyn Members>,
    /// Lets lease time pass.
    pub advance: Box<dyn Fn(Duration)>,
    /// Keeps the adapter's server until the test ends.
    pub keep: Box<dyn std::any::Any>,
}

const SECOND: Duration = Duration::from_secs(1);

fn says(state: MemberState) -> Announcement {
    let weight = NonZeroU32::new(3).expect("a weight");
    Announcement { addr: "10.0.0.1:7350".into(), weight, state }
}

async fn join(node: &Arc<dyn Members>) -> u64 {
    node.join(&says(MemberState::Active)).await.expect("it joins")
}

async fn names(node: &Arc<dyn Members>) -> Vec<String> {
    let members = node.members().await.expect("an answer").members;
    members.iter().map(|member| member.name.to_string()).collect()
}

async fn find(node: &Arc<dyn Members>, name: &str) -> Option<Member> {
    node.members().await.expect("an answer").get(name).cloned()
}

fn n(i: u32) -> NodeName {
    NodeName::from(format!("n{i}"))
}

/// Nodes read what the others have announced, in the order of the names.
pub async fn a_node_that_joined_is_a_member(company: &mut Company) {
    assert!(names(&company.one).await.is_empty());
    join(&company.two).await;
    let revision = join(&company.one).await;
    let seen = company.two.members().await.unwrap();
    assert!(seen.revision >= revision, "{seen:?}");
    let read: Vec<&str> = seen.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(read, ["n1", "n2"]);
    let one = &seen.members[0];
    assert!(one.incarnation.as_str().starts_with("n1"), "{one:?}");
    assert_eq!((&*one.addr, one.weight.get()), ("10.0.0.1:7350", 3));
    assert_eq!(one.state, MemberState::Active);
    assert_eq!(company.one.members().await.unwrap().members, seen.members);
}

/// Joining again updates the announcement and registers no second member.
pub async fn a_member_says_something_new_by_joining_again(company: &mut Company) {
    let first = company.one.join(&says(MemberState::Joining)).await.unwrap();
    let second = join(&company.one).await;
    assert!(second > first, "{first}, {second}");
    assert_eq!(names(&company.two).await, ["n1"]);
    assert_eq!(find(&company.two, "n1").await.unwrap().state, MemberState::Active);
}

/// Only active members are part of the ring.
pub async fn the_ring_is_made_of_active_members(company: &mut Company) {
    company.one.join(&says(MemberState::Joining)).await.unwrap();
    join(&company.two).await;
    let ring = company.one.members().await.unwrap().ring();
    assert_eq!(ring.len(), 1);
    assert_eq!((ring[0].name.as_str(), ring[0].weight.get()), ("n2", 3));
}

/// A membership lasts while it is kept alive.
pub async fn a_member_that_is_kept_alive_stays(company: &mut Company) {
    join(&company.one).await;
    for _ in 0..4 {
        (company.advance)(SECOND * 10);
        assert!(company.one.keep_alive().await.unwrap());
    }
    assert_eq!(names(&company.two).await, ["n1"]);
}

/// A membership that is not kept alive ends; the node learns of it and can join again.
pub async fn a_member_that_is_not_kept_alive_is_gone(company: &mut Company) {
    assert!(!company.one.keep_alive().await.unwrap(), "it has not joined");
    join(&company.one).await;
    (company.advance)(SECOND * 16);
    assert!(names(&company.two).await.is_empty());
    assert!(!company.one.keep_alive().await.unwrap());
    join(&company.one).await;
    assert!(company.one.keep_alive().await.unwrap());
    assert_eq!(names(&company.two).await, ["n1"]);
}

/// Joining renews the lease, as does every call from which a caller counts its trust.
pub async fn joining_again_prolongs_the_lease(company: &mut Company) {
    join(&company.one).await;
    (company.advance)(SECOND * 10);
    join(&company.one).await;
    (company.advance)(SECOND * 10);
    assert!(company.one.keep_alive().await.unwrap());
}

/// A node that leaves is removed at once; leaving again is no error.
pub async fn a_member_that_left_is_gone_at_once(company: &mut Company) {
    company.one.leave().await.unwrap();
    join(&company.one).await;
    join(&company.two).await;
    company.one.leave().await.unwrap();
    assert_eq!(names(&company.two).await, ["n2"]);
    assert!(!company.one.keep_alive().await.unwrap());
    company.one.leave().await.unwrap();
    join(&company.one).await;
    assert_eq!(names(&company.two).await, ["n1", "n2"]);
}

/// Any process can set a member's state; nothing else changes.
pub async fn a_state_is_set_by_anyone(company: &mut Company) {
    join(&company.one).await;
    let before = find(&company.one, "n1").await.unwrap();
    assert!(company.two.set_state(&n(1), MemberState::Draining).await.unwrap());
    let after = find(&company.one, "n1").await.unwrap();
    assert_eq!(after, Member { state: MemberState::Draining, ..before });
    assert!(company.one.keep_alive().await.unwrap());
    assert!(company.one.set_state(&n(1), MemberState::Active).await.unwrap());
    assert_eq!(find(&company.two, "n1").await.unwrap().state, MemberState::Active);
    assert!(!company.one.set_state(&n(7), MemberState::Draining).await.unwrap());
    (company.advance)(SECOND * 16);
    assert!(!company.two.set_state(&n(1), MemberState::Draining).await.unwrap());
}

fn misses(aside: bool) -> Option<StoreAway> {
    Some(StoreAway { since: Time::from_secs(7), why: "refused".into(), aside })
}

/// The others read what a member cannot reach, whatever else it announces.
pub async fn a_member_that_misses_the_store_says_so_until_it_says_something_else(
    company: &mut Company,
) {
    assert!(!company.one.say_of_store(None).await.unwrap(), "it has not joined");
    join(&company.one).await;
    let before = company.two.members().await.unwrap().revision;
    assert!(company.one.say_of_store(misses(false)).await.unwrap());
    let after = company.two.members().await.unwrap();
    assert!(after.revision > before, "the others hear of it");
    assert_eq!(after.get("n1").unwrap().store_away, misses(false));
    assert!(company.two.set_state(&n(1), MemberState::Draining).await.unwrap());
    assert_eq!(find(&company.two, "n1").await.unwrap().store_away, misses(false));
    // A lost membership is joined again with the last report about the store.
    (company.advance)(SECOND * 16);
    join(&company.one).await;
    assert_eq!(find(&company.two, "n1").await.unwrap().store_away, misses(false));
    assert!(company.one.say_of_store(None).await.unwrap());
    let member = find(&company.two, "n1").await.unwrap();
    assert_eq!((member.store_away, member.state), (None, MemberState::Active));
}

/// A node that stands aside remains a member and owns nothing.
pub async fn a_member_that_stands_aside_has_no_part_of_the_ring(company: &mut Company) {
    join(&company.one).await;
    join(&company.two).await;
    assert!(company.one.say_of_store(misses(true)).await.unwrap());
    let seen = company.two.members().await.unwrap();
    let ring: Vec<_> = seen.ring().iter().map(|member| member.name.to_string()).collect();
    assert_eq!(
        (names(&company.two).await, ring),
        (vec!["n1".into(), "n2".into()], vec!["n2".into()])
    );
    assert!(company.one.keep_alive().await.unwrap());
    assert!(company.one.say_of_store(None).await.unwrap());
    assert_eq!(company.two.members().await.unwrap().ring().len(), 2);
}

/// A node waits for a dead incarnation of its name; one that stays alive is another node with that
/// name.
pub async fn a_second_node_of_one_name_waits_and_is_then_refused(company: &mut Company) {
    join(&company.one).await;
    for _ in 0..4 {
        let early = company.twin.join(&says(MemberState::Active)).await;
        assert!(matches!(early, Err(Error::Unavailable(_))), "{early:?}");
        (company.advance)(SECOND * 4);
        assert!(company.one.keep_alive().await.unwrap());
    }
    let late = company.twin.join(&says(MemberState::Active)).await;
    assert!(matches!(late, Err(Error::Refused(_))), "{late:?}");
    let incarnation = find(&company.two, "n1").await.unwrap().incarnation;
    assert!(company.one.keep_alive().await.unwrap(), "it has lost nothing by that");
    assert_eq!(find(&company.two, "n1").await.unwrap().incarnation, incarnation);
}

/// A restarted node follows its dead incarnation.
pub async fn a_new_incarnation_follows_a_dead_one(company: &mut Company) {
    join(&company.one).await;
    let old = find(&company.two, "n1").await.unwrap().incarnation;
    let early = company.twin.join(&says(MemberState::Active)).await;
    assert!(matches!(early, Err(Error::Unavailable(_))), "{early:?}");
    (company.advance)(SECOND * 15);
    join(&company.twin).await;
    assert_ne!(find(&company.two, "n1").await.unwrap().incarnation, old);
    assert!(!company.one.keep_alive().await.unwrap(), "the old one stays lost");
}

/// Membership and leadership share one lease.
pub async fn whoever_leaves_leads_no_longer(company: &mut Company) {
    join(&company.one).await;
    let Campaign::Won(fence) = company.one_leads.campaign(None).await.unwrap() else {
        panic!("the leadership is free");
    };
    (company.advance)(SECOND * 10);
    assert!(company.one.keep_alive().await.unwrap());
    (company.advance)(SECOND * 10);
    assert!(company.one_leads.renew(&fence).await.unwrap(), "one lease carries both");
    company.one.leave().await.unwrap();
    assert!(!company.one_leads.renew(&fence).await.unwrap());
    assert!(matches!(company.two_leads.campaign(None).await, Ok(Campaign::Won(_))));
}

/// A candidate is registered, but owns nothing before it joins.
pub async fn a_candidate_that_has_not_joined_is_joining(company: &mut Company) {
    assert!(matches!(company.one_leads.campaign(None).await, Ok(Campaign::Won(_))));
    assert_eq!(find(&company.two, "n1").await.unwrap().state, MemberState::Joining);
    assert!(!company.one.keep_alive().await.unwrap(), "it has not joined");
    join(&company.one).await;
    assert!(company.one.keep_alive().await.unwrap());
    assert_eq!(find(&company.two, "n1").await.unwrap().state, MemberState::Active);
}

/// A waiting caller learns of a change long before the timeout, even of one that happened before it
/// began to wait.
pub async fn a_change_of_the_members_is_announced(company: &mut Company) {
    let since = company.one.members().await.unwrap().revision;
    let waiter = Arc::clone(&company.one);
    let (_, joined) = tokio::join!(waiter.members_changed(since, SECOND * 60), join(&company.two));
    assert!(joined > since);
    waiter.members_changed(since, SECOND * 60).await;
    let since = company.one.members().await.unwrap().revision;
    let (_, left) = tokio::join!(waiter.members_changed(since, SECOND * 60), company.two.leave());
    left.unwrap();
    assert!(names(&company.one).await.is_empty());
}
