//! A hash over typed pieces, in an unambiguous encoding.
//!
//! The encoding is compact, because a guest hashes without the processor's SHA instructions, and
//! documents consist mostly of small numbers.

use sha2::{Digest as _, Sha256};

/// A SHA-256 over pieces.
pub struct Canon {
    hash: Sha256,
    /// Buffers small pieces, because the hash works in blocks.
    buffer: Vec<u8>,
}

/// The size of the buffer in bytes.
const BUFFER_BYTES: usize = 4096;

impl Canon {
    /// An empty hash; `domain` separates digests of different things.
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

    /// Adds a tag for the kind of the next piece.
    pub fn tag(&mut self, tag: u8) {
        self.raw(&[tag]);
    }

    /// Adds an integer in zigzag encoding, so that small negative numbers are short as well.
    pub fn number(&mut self, number: i64) {
        self.unsigned((number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
    }

    /// Adds a length or an unsigned number as LEB128: small numbers are short, and no encoding is a
    /// prefix of another.
    pub fn unsigned(&mut self, number: u64) {
        let (mut bytes, mut len, mut rest) = ([0; 10], 0, number);
        while rest > 0x7f {
            bytes[len] = rest as u8 | 0x80;
            rest >>= 7;
            len += 1;
        }
        bytes[len] = rest as u8;
        self.raw(&bytes[..=len]);
    }

    /// Adds a number with uniformly distributed bits, in eight bytes.
    pub fn wide(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// Adds a float by its bits, so that -0 and NaN payloads are distinct.
    pub fn float(&mut self, float: f64) {
        self.wide(float.to_bits());
    }

    /// Adds bytes with their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.unsigned(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Adds a text with its length in bytes.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// The digest of all pieces.
    pub fn finish(mut self) -> [u8; 32] {
        self.hash.update(&self.buffer);
        self.hash.finalize().into()
    }

    /// The digest of all pieces in hexadecimal.
    pub fn finish_hex(self) -> String {
        self.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Canon)) -> Vec<u8> {
        let mut canon = Canon::new("");
        write(&mut canon);
        canon.buffer.split_off(1)
    }

    /// The number that the bytes begin with, and the bytes behind it.
    fn read(bytes: &[u8]) -> (u64, &[u8]) {
        let len = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let number = bytes[..len]
            .iter()
            .enumerate()
            .fold(0, |sum, (at, byte)| sum | u64::from(byte & 0x7f) << (7 * at));
        (number, &bytes[len..])
    }

    #[test]
    fn numbers_are_read_back_from_what_is_written_of_them() {
        let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        let all: Vec<u64> = edges.collect();
        let bytes = written(|canon| all.iter().for_each(|number| canon.unsigned(*number)));
        let mut rest = bytes.as_slice();
        for expected in &all {
            let (found, behind) = read(rest);
            assert_eq!(found, *expected);
            rest = behind;
        }
        assert!(rest.is_empty());
        assert_eq!(written(|canon| canon.unsigned(127)).len(), 1);
        assert_eq!(written(|canon| canon.unsigned(u64::MAX)).len(), 10);
    }

    #[test]
    fn numbers_below_zero_are_told_apart_from_those_above() {
        let all = [0, 1, -1, 2, -2, 63, -64, 64, i64::MAX, i64::MIN, i64::MIN + 1];
        for (at, a) in all.iter().enumerate() {
            let bytes = written(|canon| canon.number(*a));
            let (found, _) = read(&bytes);
            let back = (found >> 1).cast_signed() ^ -((found & 1).cast_signed());
            assert_eq!(back, *a);
            for b in &all[..at] {
                assert_ne!(bytes, written(|canon| canon.number(*b)), "{a} {b}");
            }
        }
        assert_eq!(written(|canon| canon.number(-64)).len(), 1);
    }

    #[test]
    fn where_pieces_are_gathered_up_makes_no_difference() {
        let long = vec![7; 3 * BUFFER_BYTES];
        for len in [0, 1, BUFFER_BYTES - 5, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES] {
            let mut canon = Canon::new("test");
            let mut whole = Sha256::new();
            whole.update(b"\x04test");
            for _ in 0..3 {
                canon.tag(9);
                canon.raw(&long[..len]);
                whole.update([9]);
                whole.update(&long[..len]);
            }
            let whole: [u8; 32] = whole.finalize().into();
            assert_eq!(canon.finish(), whole, "{len}");
        }
    }
}
