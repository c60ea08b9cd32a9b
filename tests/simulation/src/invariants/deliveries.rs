//! Messages of a key are numbered without gaps and received in the order of their numbers; at rest everything
//! is delivered. A message may be received again, but not for the first time after a later one.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::delivery::{Claimed, State};
use besom_core::ids::Tenant;
use besom_doubles::store::Message;

use super::{Invariant, Rest, Step};

type Stream = (String, Option<Tenant>, String);

#[derive(Default)]
pub(super) struct Deliveries {
    /// The contents that were received: each names a thing, and no name is given twice.
    received: BTreeSet<Vec<u8>>,
    /// Whether a backup has been restored. A host that ran on may then note a message as delivered that has the
    /// number of another one.
    went_back: bool,
}

impl Invariant for Deliveries {
    fn name(&self) -> &'static str {
        "deliveries"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        match step {
            Step::Restored => self.went_back = true,
            Step::Received { message, store } => {
                if !self.received.insert(message.payload.clone()) {
                    return Vec::new();
                }
                let early = store.look_into_outbox(|all| self.passed(message, all));
                let said =
                    |number| format!("{message:?} is received, and {number} of its key waits");
                return early.into_iter().map(said).collect();
            }
            _ => {}
        }
        Vec::new()
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut numbers: BTreeMap<Stream, BTreeSet<u64>> = BTreeMap::new();
        for message in rest.store.outbox() {
            let (sequence, state) = (message.sequence(), message.state());
            let stream = (message.topic, message.tenant, message.key);
            let was_received = self.went_back || self.received.contains(&message.payload);
            if state != State::Delivered || !was_received {
                let (state, word) = (state.word(), if was_received { "" } else { "not " });
                wrong.push(format!("{stream:?}: {sequence} is {state} and was {word}received"));
            }
            if !numbers.entry(stream.clone()).or_default().insert(sequence) {
                wrong.push(format!("{stream:?}: two messages have the number {sequence}"));
            }
        }
        for (stream, numbers) in numbers {
            if numbers.last() != Some(&(numbers.len() as u64)) {
                wrong.push(format!("{stream:?}: the numbers {numbers:?} have a gap"));
            }
        }
        wrong
    }
}

impl Deliveries {
    /// The number of a message that should have been received before this one; none: there is none, or this
    /// one is of a time that a backup has replaced. It may have been emitted again since, with the same number.
    fn passed(&self, message: &Claimed, all: &[Message]) -> Option<u64> {
        let number = message.sequence;
        all.iter().find(|known| {
            (&known.payload, known.sequence(), known.emitted_at())
                == (&message.payload, number, message.at)
        })?;
        let of = |known: &&Message| {
            (&known.topic, &known.tenant, &known.key)
                == (&message.topic, &message.tenant, &message.key)
        };
        let mut earlier = all.iter().filter(of).filter(|known| known.sequence() < number);
        let waits = earlier.find(|known| {
            known.state() == State::Pending && !self.received.contains(&known.payload)
        });
        waits.map(Message::sequence)
    }
}
