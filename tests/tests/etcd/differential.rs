//! The model in memory and the real etcd, given the same random operations, answer the same.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::{FencingToken, Term};
use besom_doubles::coordination::MemoryLease;
use besom_ports::coordination::{Campaign, Coordination, Error, Result};
use besom_ports::members::{Announcement, Member, MemberState, Members};
use besom_tests::adapters::Hand;
use besom_tests::adapters::etcd::{Cluster, TTL, Timeline};
use besom_tests::conformance::block_on;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// Histories, and operations of each.
const HISTORIES: u64 = 12;
const STEPS: usize = 60;

/// Name and incarnation of each handle. Two have the same name.
const NODES: [(&str, &str); 4] = [("n1", "n1-a"), ("n2", "n2-a"), ("n3", "n3-a"), ("n1", "n1-b")];

/// One node of one side: leadership and membership, and the fences that it has won.
struct Node<T> {
    handle: Arc<T>,
    fences: Vec<FencingToken>,
}

#[derive(Debug, Clone)]
enum Operation {
    Campaign(usize, Option<Term>),
    /// With the fencing token of an earlier win.
    Renew(usize, usize),
    Resign(usize, usize),
    Join(usize, u32, MemberState),
    KeepAlive(usize),
    SetState(usize, usize, MemberState),
    Leave(usize),
    Look(usize),
    Advance(Duration),
}

/// The part of an answer in which both sides have to agree, without tokens, revisions and messages.
#[derive(Debug, PartialEq)]
enum Answer {
    Won(Term),
    Held(String, Term),
    Said(bool),
    Leader(Option<(String, Term)>, Vec<Member>),
    Done,
    Waits,
    Refused,
}

fn of<T>(result: Result<T>, answer: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(value) => answer(value),
        Err(Error::Unavailable(_)) => Answer::Waits,
        Err(Error::Refused(_)) => Answer::Refused,
    }
}

fn draw(random: &mut SmallRng) -> Operation {
    let node = random.random_range(0..NODES.len());
    let state = match random.random_range(0..3) {
        0 => MemberState::Joining,
        1 => MemberState::Active,
        _ => MemberState::Draining,
    };
    match random.random_range(0..20) {
        0..4 => {
            let least = random.random_bool(0.2).then(|| Term(random.random_range(0..30)));
            Operation::Campaign(node, least)
        }
        4..7 => Operation::Renew(node, random.random_range(0..2)),
        7 => Operation::Resign(node, random.random_range(0..2)),
        8..11 => Operation::Join(node, random.random_range(1..9), state),
        11..14 => Operation::KeepAlive(node),
        14 => Operation::SetState(node, random.random_range(0..NODES.len()), state),
        15 => Operation::Leave(node),
        16..18 => Operation::Look(node),
        _ => Operation::Advance(Duration::from_secs(random.random_range(1..12))),
    }
}

async fn carry_out<T: Coordination + Members>(
    nodes: &mut [Node<T>],
    operation: &Operation,
) -> Answer {
    let fence = |node: &Node<T>, back: usize| node.fences.iter().rev().nth(back).cloned();
    match *operation {
        Operation::Campaign(n, least) => {
            let answer = nodes[n].handle.campaign(least).await;
            of(answer, |campaign| match campaign {
                Campaign::Won(fence) => {
                    let term = fence.term;
                    if !nodes[n].fences.contains(&fence) {
                        nodes[n].fences.push(fence);
                    }
                    Answer::Won(term)
                }
                Campaign::Held { leader, retry_in } => {
                    assert!(retry_in <= TTL, "{retry_in:?}");
                    Answer::Held(leader.node.to_string(), leader.term)
                }
            })
        }
        Operation::Renew(n, back) => match fence(&nodes[n], back) {
            Some(fence) => of(nodes[n].handle.renew(&fence).await, Answer::Said),
            None => Answer::Done,
        },
        Operation::Resign(n, back) => match fence(&nodes[n], back) {
            Some(fence) => of(nodes[n].handle.resign(&fence).await, |()| Answer::Done),
            None => Answer::Done,
        },
        Operation::Join(n, weight, state) => {
            let weight = NonZeroU32::new(weight).expect("a weight");
            let said = Announcement { addr: format!("10.0.0.{n}:1"), weight, state };
            of(nodes[n].handle.join(&said).await, |_| Answer::Done)
        }
        Operation::KeepAlive(n) => of(nodes[n].handle.keep_alive().await, Answer::Said),
        Operation::SetState(n, of_node, state) => {
            let name = NODES[of_node].0.into();
            of(nodes[n].handle.set_state(&name, state).await, Answer::Said)
        }
        Operation::Leave(n) => of(nodes[n].handle.leave().await, |()| Answer::Done),
        Operation::Look(n) => {
            let leader = nodes[n].handle.leader().await.expect("an answer");
            let leader = leader.map(|leader| (leader.node.to_string(), leader.term));
            of(nodes[n].handle.members().await, |all| Answer::Leader(leader, all.members))
        }
        Operation::Advance(_) => Answer::Done,
    }
}

#[test]
fn the_model_and_etcd_answer_the_same() {
    for history in 0..HISTORIES {
        let mut random = SmallRng::seed_from_u64(history);
        let timeline = Timeline::new(Cluster::shared().urls());
        let hand = Hand::new();
        let lease = MemoryLease::new(TTL, hand.clock());
        let mut real: Vec<_> = NODES
            .iter()
            .map(|(name, start)| Node { handle: timeline.handle(name, start), fences: vec![] })
            .collect();
        let mut model: Vec<_> = NODES
            .iter()
            .map(|(name, start)| {
                let handle = lease.handle_named((*name).into(), (*start).into(), "host");
                Node { handle: Arc::new(handle), fences: vec![] }
            })
            .collect();
        let mut done = Vec::new();
        block_on(async {
            for _ in 0..STEPS {
                let operation = draw(&mut random);
                if let Operation::Advance(span) = operation {
                    hand.advance(span);
                    timeline.advance(span);
                }
                let expected = carry_out(&mut model, &operation).await;
                let found = carry_out(&mut real, &operation).await;
                done.push((operation, expected));
                let (_, expected) = done.last().expect("just pushed");
                assert_eq!(*expected, found, "history {history}: {done:#?}");
            }
        });
    }
}
