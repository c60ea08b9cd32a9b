//! The delivery of messages while a host leads, and their receiver, which refuses some and whose answers may be
//! lost.

use std::time::Duration;

use besom_core::delivery::{
    Answer, Claimed, Command, Event, Machine, Refused, Reply, Rules, Settings,
};
use besom_core::ids::{FencingToken, Term};
use besom_core::time::{Mono, Time};
use besom_ports::store::{Error, Result, Store as _};
use rand::Rng as _;

use super::invariants::{Step, now};
use super::script::TOPIC;
use super::words;
use super::world::{Coming, World, name};

/// The delivery of one leadership.
pub(super) struct Outbox {
    fence: FencingToken,
    machine: Machine,
    /// The wake-up that is planned.
    wake_at: Option<Time>,
}

impl Outbox {
    fn new(fence: FencingToken, now: Mono) -> Outbox {
        let rules = Rules {
            timeout: Duration::from_secs(2),
            // Nothing is given up.
            attempts_max: u32::MAX,
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(2),
            concurrency: 8,
        };
        let settings = Settings {
            topics: [(TOPIC.to_owned(), rules)].into(),
            concurrency: 8,
            poll: Duration::from_secs(1),
        };
        Outbox { fence, machine: Machine::new(settings, now), wake_at: None }
    }
}

impl World<'_> {
    /// A host has begun or ceased to lead.
    pub(super) fn begin_delivery(&mut self, node: usize, life: u64) {
        let Some(host) = self.alive(node, life) else { return };
        let mono = host.ports.clock.now().mono;
        let fence = host.leads.and_then(|_| host.node.fence().cloned());
        let term = fence.as_ref().map(|fence| fence.term);
        host.outbox = fence.map(|fence| Outbox::new(fence, mono));
        if let Some(term) = term {
            self.schedule(Duration::ZERO, Coming::Outbox { node, life, term, event: Event::Tick });
        }
    }

    /// Delivery handles an event, as [`besom_engine::host::deliver`] does.
    pub(super) fn step_outbox(&mut self, node: usize, life: u64, term: Term, event: Event) {
        let at = self.now();
        let random = self.random.random();
        let Some(host) = self.alive(node, life) else { return };
        let wait = host.paused_until.since(at);
        if !wait.is_zero() {
            return self.schedule(wait, Coming::Outbox { node, life, term, event });
        }
        let mono = host.ports.clock.now().mono;
        let Some(outbox) = host.outbox.as_mut().filter(|outbox| outbox.fence.term == term) else {
            return;
        };
        if event == Event::Tick {
            outbox.wake_at = None;
        }
        let mut commands = Vec::new();
        outbox.machine.step(mono, event, &mut || random, &mut commands);
        let wake = outbox.machine.deadline().map(|deadline| {
            // A timer has a resolution of a millisecond.
            Duration::from_millis(deadline.since(mono).as_millis() as u64 + 1)
        });
        let wake = wake.filter(|wait| outbox.wake_at.is_none_or(|planned| at + *wait < planned));
        if let Some(wait) = wake {
            outbox.wake_at = Some(at + wait);
        }
        let fence = outbox.fence.clone();
        if let Some(wait) = wake {
            self.schedule(wait, Coming::Outbox { node, life, term, event: Event::Tick });
        }
        for command in commands {
            let said = || format!("{} {}", name(node, life), words::delivery(&command));
            let (wait, fence) = (self.latency(said), fence.clone());
            self.schedule(wait, Coming::Ask { node, life, fence, command });
        }
    }

    /// A command of delivery reaches the store or the receiver.
    pub(super) fn ask(&mut self, node: usize, life: u64, fence: &FencingToken, command: Command) {
        // A request in transit survives its sender.
        let store = match self.alive(node, life) {
            Some(host) => host.store.clone(),
            None => self.connect(),
        };
        let event = match command {
            Command::Claim { ended, claim } => {
                Event::Claimed(told(now(store.claim_messages(fence, &ended, &claim))))
            }
            Command::Send(message) => {
                let id = message.id;
                Event::Answered(id, self.receive(&message))
            }
        };
        let said = || format!("an answer to the delivery of {}", name(node, life));
        let (wait, term) = (self.latency(said), fence.term);
        self.schedule(wait, Coming::Outbox { node, life, term, event });
    }

    /// The receiver takes a message or refuses it; what it takes it may fail to confirm.
    fn receive(&mut self, message: &Claimed) -> Answer {
        let reply = |status| Reply { status, body: Vec::new(), cut: false };
        if self.troubled() && self.chance(8) {
            return Answer::Replied { reply: reply(503), retry_after: None };
        }
        let store = self.root.handle();
        self.check(|invariant| invariant.step(&Step::Received { message, store: &store }));
        if self.troubled() && self.chance(10) {
            return Answer::Failed("no answer".to_owned());
        }
        Answer::Replied { reply: reply(200), retry_after: None }
    }
}

/// What delivery learns of the store.
fn told<T>(answer: Result<T>) -> std::result::Result<T, Refused> {
    answer.map_err(|error| match error {
        Error::Fenced => Refused::Fenced,
        _ => Refused::Later,
    })
}
