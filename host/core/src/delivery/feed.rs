//! Messages that a product itself enters, beside those that tasks emit.
//!
//! A product may number its messages of each topic, tenant and key from 1. The store then has each
//! number once and none without the one before it: a repeated message is not stored again, and a missing one
//! is noticed before anything after it is stored.

use serde::Serialize;

use super::PAYLOAD_BYTES_MAX;
use crate::ids::Tenant;

/// Maximum size of a topic, a tenant or a key, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// A message that a product offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its topic, which decides the route.
    pub topic: String,
    /// Its tenant, if it has one.
    pub tenant: Option<Tenant>,
    /// Its key: the messages of one topic, tenant and key are delivered in order.
    pub key: String,
    /// The product's own number among the messages of its topic, tenant and key; `None`: the message is
    /// stored as often as it is offered.
    pub number: Option<u64>,
    /// Its content, at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: Vec<u8>,
}

/// What became of a message that a product offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Entered {
    /// It is stored.
    Stored {
        /// Its number among all messages of its topic, tenant and key.
        sequence: u64,
    },
    /// A message with this number was stored before, and nothing is known that differs.
    Repeated,
    /// A message with this number was stored before, and has another payload.
    Differs,
    /// It is not stored, because an earlier number is missing.
    Gap {
        /// The first number that is missing.
        missing: u64,
    },
}

/// What a number means where `last` is the highest one stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The message is stored, and this is the highest number from now on.
    New(u64),
    /// The number was used before.
    Known(u64),
    /// This number is missing.
    Gap(u64),
}

/// Judges the number of a message.
pub fn judge(last: u64, number: Option<u64>) -> Judged {
    match number {
        None => Judged::New(last),
        Some(number) if number <= last => Judged::Known(number),
        Some(number) if number == last + 1 => Judged::New(number),
        Some(_) => Judged::Gap(last + 1),
    }
}

/// Checks that every store can hold a message.
///
/// # Errors
/// What is wrong with it, and the limit.
pub fn check(offered: &Offered) -> Result<(), String> {
    let Offered { topic, tenant, key, number, payload } = offered;
    let tenant = tenant.as_ref().map(Tenant::as_str);
    for (what, text) in [("topic", Some(topic.as_str())), ("tenant", tenant), ("key", Some(key))] {
        let Some(text) = text else { continue };
        if text.is_empty() {
            return Err(format!("the {what} is empty"));
        }
        if text.contains('\0') {
            return Err(format!("the {what} contains a NUL"));
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(format!("the {what} has {} bytes; at most {NAME_BYTES_MAX}", text.len()));
        }
    }
    if *number == Some(0) {
        return Err("numbers start at 1".into());
    }
    // The largest number of a database's integer.
    if number.is_some_and(|number| number > i64::MAX as u64) {
        return Err("the number is too large".into());
    }
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(format!(
            "the payload has {} bytes; at most {PAYLOAD_BYTES_MAX}",
            payload.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_known_or_shows_a_gap() {
        assert_eq!(judge(0, Some(1)), Judged::New(1));
        assert_eq!(judge(4, Some(5)), Judged::New(5));
        assert_eq!(judge(4, Some(4)), Judged::Known(4));
        assert_eq!(judge(4, Some(1)), Judged::Known(1));
        assert_eq!(judge(4, Some(6)), Judged::Gap(5));
        assert_eq!(judge(0, Some(u64::MAX)), Judged::Gap(1));
    }

    #[test]
    fn a_message_without_a_number_leaves_the_last_number() {
        assert_eq!(judge(4, None), Judged::New(4));
        assert_eq!(judge(0, None), Judged::New(0));
    }

    #[test]
    fn what_no_store_takes_is_refused_with_its_reason() {
        let offered = |topic: &str, key: &str, number, bytes| Offered {
            topic: topic.into(),
            tenant: None,
            key: key.into(),
            number,
            payload: vec![0; bytes],
        };
        let refused = |offered: Offered| check(&offered).expect_err("refused");
        assert_eq!(check(&offered("t", "k", Some(1), PAYLOAD_BYTES_MAX)), Ok(()));
        assert_eq!(refused(offered("", "k", None, 0)), "the topic is empty");
        assert_eq!(refused(offered("t", "a\0", None, 0)), "the key contains a NUL");
        let long = "k".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(refused(offered("t", &long, None, 0)), "the key has 513 bytes; at most 512");
        assert_eq!(refused(offered("t", "k", Some(0), 0)), "numbers start at 1");
        assert_eq!(refused(offered("t", "k", Some(u64::MAX), 0)), "the number is too large");
        let large = offered("t", "k", None, PAYLOAD_BYTES_MAX + 1);
        assert_eq!(refused(large), "the payload has 1048577 bytes; at most 1048576");
        let empty = Offered { tenant: Some("".into()), ..offered("t", "k", None, 0) };
        assert_eq!(refused(empty), "the tenant is empty");
    }
}
