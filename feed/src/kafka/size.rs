//! What the brokers refuse for its size, which the client cannot know before: the limit is a setting of each
//! topic (`max.message.bytes`). A message of which a record is refused is set aside.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};

use super::Record;
use crate::Error;
use crate::message::Message;
use crate::order::Key;

/// A record that follows from a batch.
pub(super) struct Outgoing<'a> {
    /// Its partition, if that is fixed.
    pub(super) partition: Option<i32>,
    pub(super) record: Record,
    pub(super) of: Origin<'a>,
}

/// What a record follows from.
pub(super) enum Origin<'a> {
    Message(&'a Message),
    State(&'a Key),
    /// What is set aside.
    Letter(&'a Message),
}

/// Partition and offset of a message that was read.
pub(super) type Place = (i32, i64);

pub(super) fn place(message: &Message) -> Place {
    (message.partition, message.offset)
}

/// What the brokers refuse of a batch for its size.
#[derive(Default)]
pub(super) struct Refused {
    /// The messages, each with the reason.
    pub(super) messages: BTreeMap<Place, String>,
    /// How many bytes the dead letters of these messages can have.
    pub(super) letters: BTreeMap<Place, usize>,
}

impl Refused {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.letters.is_empty()
    }

    /// Refuses what a record follows from.
    ///
    /// # Errors
    /// There is nothing smaller that could be written.
    pub(super) fn add(
        &mut self,
        outgoing: &Outgoing<'_>,
        accepted: &[Message],
    ) -> Result<(), Error> {
        let (topic, bytes) = (&outgoing.record.topic, outgoing.record.bytes());
        let reason =
            format!("a record of {bytes} bytes for {topic} is larger than its max.message.bytes");
        let message = match outgoing.of {
            Origin::Message(message) => Some(message),
            // The last one has made it as large as it is.
            Origin::State(key) => accepted
                .iter()
                .rfind(|one| one.key == *key && !self.messages.contains_key(&place(one))),
            Origin::Letter(message) => {
                // Without payload and headers, if that was not tried before.
                let tried = self.letters.insert(place(message), bytes - 1);
                return tried.map_or(Ok(()), |_| Err(Error::Again(reason)));
            }
        };
        let message = message.ok_or_else(|| Error::Again(reason.clone()))?;
        self.messages.insert(place(message), reason);
        Ok(())
    }
}

/// Notes which records the brokers refuse for their size.
#[derive(Default)]
pub(super) struct Deliveries {
    too_large: Mutex<Vec<usize>>,
}

impl Deliveries {
    pub(super) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.too_large.lock().expect("no holder panics"))
    }
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, which: usize) {
        use RDKafkaErrorCode::MessageSizeTooLarge;
        if let Err((KafkaError::MessageProduction(MessageSizeTooLarge), _)) = result {
            self.too_large.lock().expect("no holder panics").push(which);
        }
    }
}
