//! The loop around [`besom_core::delivery`]: while this node leads, it carries out the commands of
//! that machine over the store and the courier. It decides nothing.
//!
//! It runs beside the node and does not affect it: it has no part in the lease, and in a store with
//! one writer its writes have the lowest priority.

use std::sync::Arc;
use std::time::Duration;

use besom_core::delivery::{Claimed, Command, Event, Machine, Refused, Settings};
use besom_core::ids::FencingToken;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::clock;
use besom_ports::courier::Courier;
use besom_ports::store::{self, Store};

/// The pause before delivery is restarted after a bug.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time without any event before the machine is stepped anyway.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// What delivery needs.
#[derive(Clone)]
pub struct Delivery {
    /// Delivers the messages.
    pub courier: Arc<dyn Courier>,
    /// The topics and the limits of delivery.
    pub settings: Settings,
}

/// Delivers while this node leads, until `fence` is closed. Attempts under way are dropped when the
/// leadership ends; the next leader repeats them with the same idempotency key.
pub async fn deliver(
    store: Arc<dyn Store>,
    delivery: Delivery,
    mut fence: watch::Receiver<Option<FencingToken>>,
) {
    loop {
        let Ok(leading) = fence.wait_for(Option::is_some).await.map(|fence| fence.clone()) else {
            return;
        };
        let Some(leading) = leading else { continue };
        tokio::select! {
            () = until_fenced(&store, &delivery, &leading) => {}
            // Attempts under way are dropped here.
            _ = fence.wait_for(|now| now.as_ref() != Some(&leading)) => {}
        }
        // If another node leads, this node's election discovers it as well.
        if fence.wait_for(|now| now.as_ref() != Some(&leading)).await.is_err() {
            return;
        }
    }
}

/// Delivers under one fence until the store rejects it.
async fn until_fenced(store: &Arc<dyn Store>, delivery: &Delivery, fence: &FencingToken) {
    while let Err(error) = lead(store, delivery, fence).await {
        // A bug in one attempt. Its message becomes visible again after its hold.
        tracing::error!(%error, "a delivery attempt has failed unexpectedly; restarting delivery");
        tokio::time::sleep(BEGIN_AGAIN).await;
    }
}

async fn lead(
    store: &Arc<dyn Store>,
    delivery: &Delivery,
    fence: &FencingToken,
) -> Result<(), tokio::task::JoinError> {
    let mut random = SmallRng::from_os_rng();
    let mut machine = Machine::new(delivery.settings.clone(), clock::mono());
    // Dropped with all its tasks when the leadership ends.
    let mut under_way: JoinSet<Event> = JoinSet::new();
    let mut event = Event::Tick;
    while !machine.is_fenced() {
        let mut commands = Vec::new();
        machine.step(clock::mono(), event, &mut || random.random(), &mut commands);
        for command in commands {
            let (store, fence) = (Arc::clone(store), fence.clone());
            match command {
                Command::Claim { room, hold } => under_way.spawn(async move {
                    let claimed = store.claim_messages(&fence, &room, hold).await;
                    Event::Claimed(claimed.map_err(|error| refused("claimed", &error)))
                }),
                Command::Note(attempts) => under_way.spawn(async move {
                    let noted = store.end_attempts(&fence, &attempts).await;
                    Event::Noted(noted.map_err(|error| refused("marked", &error)))
                }),
                Command::Send(message) => {
                    let key = idempotency_key(store.identity(), &message);
                    let courier = Arc::clone(&delivery.courier);
                    under_way.spawn(async move {
                        let answer = courier.send(&message, &key).await;
                        tracing::debug!(
                            message = message.id,
                            topic = message.topic,
                            attempt = message.attempt,
                            ?answer,
                            "a delivery attempt has ended"
                        );
                        Event::Answered(message.id, answer)
                    })
                }
            };
        }
        let sleep = machine.deadline().map(|at| at.since(clock::mono()));
        event = tokio::select! {
            Some(done) = under_way.join_next() => done?,
            () = tokio::time::sleep(sleep.unwrap_or(LOOK_MAX)) => Event::Tick,
        };
    }
    Ok(())
}

fn refused(what: &str, error: &store::Error) -> Refused {
    match error {
        store::Error::Fenced => Refused::Fenced,
        // The host ends and says why.
        store::Error::Damaged(_) => Refused::Later,
        error => {
            tracing::warn!(%error, "messages cannot be {what}; retrying");
            Refused::Later
        }
    }
}

/// The idempotency key: the same for every attempt of a message, and different from that of any
/// other message, including messages of other stores and messages to which a restored copy of this
/// store assigns the same number.
pub fn idempotency_key(identity: &str, message: &Claimed) -> String {
    let mut hash = Sha256::new();
    hash.update(identity.as_bytes());
    hash.update([0]);
    hash.update(message.id.to_be_bytes());
    hash.update(message.at.micros().to_be_bytes());
    hex::encode(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use besom_core::time::Time;

    use super::*;

    #[test]
    fn a_key_is_of_one_message_of_one_store_and_of_all_its_attempts() {
        let message = |id, at, attempt| Claimed {
            id,
            at: Time(at),
            task: None,
            tenant: None,
            topic: "t".into(),
            key: "k".into(),
            payload: Vec::new(),
            attempt,
        };
        let key = idempotency_key("store", &message(7, 9, 1));
        assert_eq!(key.len(), 32);
        assert_eq!(key, idempotency_key("store", &message(7, 9, 2)));
        for other in [
            idempotency_key("other", &message(7, 9, 1)),
            idempotency_key("store", &message(8, 9, 1)),
            idempotency_key("store", &message(7, 10, 1)),
        ] {
            assert_ne!(key, other);
        }
    }
}
