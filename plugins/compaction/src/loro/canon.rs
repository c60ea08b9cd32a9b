//! Writes the parts of Loro documents as pieces of a hash.
//!
//! Decides how each value is written, bit by bit. A float is written as its bits, so that -0
//! differs from 0 and NaNs are distinct. A map is written in the order of its keys, because Loro
//! does not order them.

use loro::{ContainerID, ID, LoroValue, TreeID, TreeParentId};

use crate::canon::Canon;

impl Canon {
    /// Adds the identity of an operation.
    pub fn id(&mut self, id: ID) {
        self.wide(id.peer);
        self.number(i64::from(id.counter));
    }

    /// Adds an identity that may be missing.
    pub fn id_or_none(&mut self, id: Option<ID>) {
        self.tag(u8::from(id.is_some()));
        if let Some(id) = id {
            self.id(id);
        }
    }

    /// Adds a peer that may be missing.
    pub fn peer_or_none(&mut self, peer: Option<u64>) {
        self.tag(u8::from(peer.is_some()));
        if let Some(peer) = peer {
            self.wide(peer);
        }
    }

    /// Adds the identity of a container, with its type.
    pub fn container(&mut self, id: &ContainerID) {
        self.bytes(&id.to_bytes());
    }

    /// Adds the identity of a tree node.
    pub fn node(&mut self, node: TreeID) {
        self.id(node.id());
    }

    /// Adds the parent of a tree node.
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

    /// A value with everything in it. A contained container is written as its identity only: its
    /// content is written once, where the containers are listed.
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

    /// Adds entries in the order of their keys.
    pub fn entries<'a>(&mut self, entries: impl Iterator<Item = (&'a String, &'a LoroValue)>) {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        self.unsigned(entries.len() as u64);
        for (key, value) in entries {
            self.text(key);
            self.value(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &LoroValue) -> [u8; 32] {
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
}
