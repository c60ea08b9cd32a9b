//! A message of Besom as it is in a topic of Kafka.

use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Headers as _};

use xxhash_rust::xxh3::Xxh3Default;

use crate::order::Key;
use crate::sink::SetAside;

/// How messages are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// By the header `ce_sequence`: each (tenant, key) counts from 1.
    Sequence,
    /// By the offset alone: every record is new. For topics that one transaction fills, as those of a
    /// [`KafkaSink`](crate::kafka::KafkaSink).
    Offsets,
}

/// A message.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its partition.
    pub partition: i32,
    /// Its place in the partition.
    pub offset: i64,
    /// Tenant and key.
    pub key: Key,
    /// Its number among those of the key; 0 if offsets number it.
    pub number: u64,
    /// The value of the record.
    pub payload: Vec<u8>,
    /// The headers of the record.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// A message, or one whose number cannot be read.
pub(crate) type Read = Result<Message, Box<SetAside>>;

impl Message {
    /// Reads a record.
    ///
    /// # Errors
    /// What is missing, with as much of the message as there is.
    pub(crate) fn read(record: &BorrowedMessage<'_>, numbering: Numbering) -> Read {
        let headers = record.headers().into_iter().flat_map(|headers| {
            headers.iter().map(|one| (one.key.to_owned(), one.value.unwrap_or_default().to_vec()))
        });
        let mut message = Message {
            partition: record.partition(),
            offset: record.offset(),
            key: Key {
                tenant: String::new(),
                key: String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned(),
            },
            number: 0,
            payload: record.payload().unwrap_or_default().to_vec(),
            headers: headers.collect(),
        };
        if numbering == Numbering::Offsets {
            return Ok(message);
        }
        message.key.tenant = message.text("ce_besomtenant").unwrap_or_default().to_owned();
        let number = match message.text("ce_sequence").map(str::parse::<u64>) {
            Some(Ok(number)) if number > 0 => number,
            Some(_) => {
                let reason = "the header ce_sequence is no number".into();
                return Err(Box::new(SetAside { message, reason }));
            }
            None => {
                let why = "there is no header ce_sequence: is the topic's `envelope` binary?";
                return Err(Box::new(SetAside { message, reason: why.into() }));
            }
        };
        message.number = number;
        Ok(message)
    }

    /// A header that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        std::str::from_utf8(value).ok()
    }

    /// A digest of what a repetition repeats: the id, and the payload.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        digest.update(self.text("ce_id").unwrap_or_default().as_bytes());
        digest.update(&[0]);
        digest.update(&self.payload);
        digest.digest()
    }

    /// The header `ce_time` as a number that grows with time, to the millisecond; 0: there is none.
    pub(crate) fn time(&self) -> u64 {
        let Some(text) = self.text("ce_time") else { return 0 };
        let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str, count: usize| -> String {
            text.chars().filter(char::is_ascii_digit).take(count).collect()
        };
        format!("{:0<14}{:0<3}", digits(seconds, 14), digits(fraction, 3)).parse().unwrap_or(0)
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        size_of::<Message>() + self.key.key.len() + self.payload.len() + headers.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> u64 {
        let headers = vec![("ce_time".to_owned(), time.as_bytes().to_vec())];
        let key = Key { tenant: String::new(), key: "k".into() };
        Message { partition: 0, offset: 0, key, number: 1, payload: vec![], headers }.time()
    }

    #[test]
    fn a_later_time_is_a_higher_number() {
        let times = [
            "",
            "1999-12-31T23:59:59.999999Z",
            "2026-11-30T07:14:00Z",
            "2026-11-30T07:14:00.001Z",
            "2026-11-30T07:14:00.5Z",
            "2026-11-30T07:14:00.512345Z",
            "2026-11-30T07:14:01Z",
        ];
        assert!(times.map(at).is_sorted_by(|a, b| a < b), "{:?}", times.map(at));
    }
}
