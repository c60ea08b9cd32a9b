//! A hash over typed pieces, each told apart from the next.
//!
//! Decides: how a number, a text and a value are written, bit by bit. A float is its bits, so
//! that -0 is not 0 and every NaN is itself; a map is in the order of its keys, which mean
//! nothing by their order in Loro.

use loro::{ContainerID, ID, LoroValue, TreeID, TreeParentId};
use sha2::{Digest as _, Sha256};

/// A SHA-256 that is fed pieces.
pub struct Canon {
    hash: Sha256,
    /// Small pieces are gathered: the hash works in blocks.
    buffer: Vec<u8>,
}

/// Gathered up to here, in bytes.
const BUFFER_BYTES: usize = 4096;

impl Canon {
    /// Of nothing yet; `domain` keeps digests of different things apart.
    pub fn new(domain: &str) -> Canon {
        let mut canon = Canon { hash: Sha256::new(), buffer: Vec::with_capacity(BUFFER_BYTES) };
        canon.text(domain);
        canon
    }

    fn raw(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.hash.update(&self.buffer);
            self.buffer.clear();
        }
        if bytes.len() > BUFFER_BYTES {
            self.hash.update(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// What comes next.
    pub fn tag(&mut self, tag: u8) {
        self.raw(&[tag]);
    }

    /// A whole number.
    pub fn number(&mut self, number: i64) {
        self.raw(&number.to_le_bytes());
    }

    /// A length or an unsigned number.
    pub fn unsigned(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// A float, by its bits.
    pub fn float(&mut self, float: f64) {
        self.raw(&float.to_bits().to_le_bytes());
    }

    /// Bytes after their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.unsigned(bytes.len() as u64);
        self.raw(bytes);
    }

    /// A text after its length.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// An operation's identity.
    pub fn id(&mut self, id: ID) {
        self.unsigned(id.peer);
        self.number(i64::from(id.counter));
    }

    /// An identity that may be missing.
    pub fn id_or_none(&mut self, id: Option<ID>) {
        self.tag(u8::from(id.is_some()));
        if let Some(id) = id {
            self.id(id);
        }
    }

    /// A peer that may be missing.
    pub fn peer_or_none(&mut self, peer: Option<u64>) {
        self.tag(u8::from(peer.is_some()));
        self.unsigned(peer.unwrap_or_default());
    }

    /// A container's identity, with its type.
    pub fn container(&mut self, id: &ContainerID) {
        self.bytes(&id.to_bytes());
    }

    /// A tree node's identity.
    pub fn node(&mut self, node: TreeID) {
        self.id(node.id());
    }

    /// Where a tree node hangs.
    pub fn parent(&mut self, parent: TreeParentId) {
        match parent {
            TreeParentId::Root => self.tag(0),
            TreeParentId::Node(node) => {
                self.tag(1);
                self.node(node);
            }
            TreeParentId::Deleted => self.tag(2),
            TreeParentId::Unexist => self.tag(3),
        }
    }

    /// A value with everything in it. A container within is its identity alone: what is in it
    /// is said once, where the containers are listed.
    pub fn value(&mut self, value: &LoroValue) {
        match value {
            LoroValue::Null => self.tag(0),
            LoroValue::Bool(yes) => {
                self.tag(1);
                self.tag(u8::from(*yes));
            }
            LoroValue::Double(float) => {
                self.tag(2);
                self.float(*float);
            }
            LoroValue::I64(number) => {
                self.tag(3);
                self.number(*number);
            }
            LoroValue::Binary(bytes) => {
                self.tag(4);
                self.bytes(bytes);
            }
            LoroValue::String(text) => {
                self.tag(5);
                self.text(text);
            }
            LoroValue::List(list) => {
                self.tag(6);
                self.unsigned(list.len() as u64);
                for value in list.iter() {
                    self.value(value);
                }
            }
            LoroValue::Map(map) => {
                self.tag(7);
                self.entries(map.iter());
            }
            LoroValue::Container(id) => {
                self.tag(8);
                self.container(id);
            }
        }
    }

    /// Entries in the order of their keys.
    pub fn entries<'a>(&mut self, entries: impl Iterator<Item = (&'a String, &'a LoroValue)>) {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        self.unsigned(entries.len() as u64);
        for (key, value) in entries {
            self.text(key);
            self.value(value);
        }
    }

    /// The digest, in hexadecimal.
    pub fn finish(mut self) -> String {
        self.hash.update(&self.buffer);
        self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &LoroValue) -> String {
        let mut canon = Canon::new("test");
        canon.value(value);
        canon.finish()
    }

    fn map(entries: &[(&str, i64)]) -> LoroValue {
        let entries: Vec<_> =
            entries.iter().map(|(k, v)| ((*k).to_owned(), LoroValue::I64(*v))).collect();
        LoroValue::Map(entries.into())
    }

    #[test]
    fn values_that_loro_takes_for_equal_are_told_apart() {
        let nan = |bits| LoroValue::Double(f64::from_bits(bits));
        for (a, b) in [
            (LoroValue::Double(0.0), LoroValue::Double(-0.0)),
            (nan(0x7ff8_0000_0000_0000), nan(0x7ff8_0000_0000_0001)),
            (nan(0x7ff8_0000_0000_0000), nan(0xfff8_0000_0000_0000)),
            (LoroValue::I64(1), LoroValue::Double(1.0)),
            (LoroValue::Null, LoroValue::Bool(false)),
            (LoroValue::String("".into()), LoroValue::Binary(Vec::new().into())),
            (LoroValue::List(Vec::new().into()), map(&[])),
            (map(&[("", 1)]), map(&[("\0", 1)])),
        ] {
            assert_ne!(of(&a), of(&b), "{a:?} and {b:?}");
            assert_eq!(of(&a), of(&a.clone()), "{a:?}");
        }
    }

    #[test]
    fn the_order_of_keys_means_nothing() {
        let (forth, back) = ([("a", 1), ("b", 2), ("", 3)], [("", 3), ("b", 2), ("a", 1)]);
        assert_eq!(of(&map(&forth)), of(&map(&back)));
        assert_ne!(of(&map(&[("a", 1), ("b", 2)])), of(&map(&[("a", 2), ("b", 1)])));
    }

    #[test]
    fn pieces_longer_than_the_buffer_count_whole() {
        let long = "x".repeat(3 * BUFFER_BYTES);
        let other = format!("{}y", &long[1..]);
        assert_ne!(of(&LoroValue::String(long.into())), of(&LoroValue::String(other.into())));
    }
}
