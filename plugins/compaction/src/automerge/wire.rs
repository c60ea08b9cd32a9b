//! Bytes of a chunk, read strictly: every fault has its place.
//!
//! Decides what is a number (LEB128, shortest form only), and never reads beyond the end. Knows
//! nothing about the meaning of the numbers.

use std::fmt;

/// An error with its place in the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The offset in bytes.
    pub at: usize,
    /// The reason.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.what)
    }
}

/// A reader over bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether all bytes were read.
    pub fn is_done(&self) -> bool {
        self.left() == 0
    }

    /// An error at the current offset.
    pub fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { at: self.at, what: what.into() }
    }

    /// Reads `len` bytes.
    pub fn take(&mut self, len: u64, of: &str) -> Result<&'a [u8], Fault> {
        let left = self.left();
        match usize::try_from(len) {
            Ok(len) if len <= left => {
                let taken = &self.bytes[self.at..self.at + len];
                self.at += len;
                Ok(taken)
            }
            _ => Err(self.fault(format!("{of} has {len} bytes, but {left} are left"))),
        }
    }

    /// Reads an array of bytes.
    pub fn array<const N: usize>(&mut self, of: &str) -> Result<[u8; N], Fault> {
        let taken = self.take(N as u64, of)?;
        Ok(taken.try_into().expect("as many bytes as were asked for"))
    }

    /// Reads an unsigned number.
    pub fn number(&mut self, of: &str) -> Result<u64, Fault> {
        let start = self.at;
        let fault = |what: &str| Fault { at: start, what: format!("{of} {what}") };
        let mut number = 0u64;
        for shift in (0..).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(|| fault("ends within a number"))?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return Err(fault("is a number of more than 64 bits"));
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(fault("is a number that is not in its shortest form"));
                }
                break;
            }
        }
        Ok(number)
    }

    /// Reads a signed number.
    pub fn signed(&mut self, of: &str) -> Result<i64, Fault> {
        let start = self.at;
        let fault = |what: &str| Fault { at: start, what: format!("{of} {what}") };
        let (mut number, mut before) = (0i64, 0u8);
        for shift in (0..).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(|| fault("ends within a number"))?;
            self.at += 1;
            if shift == 63 && byte != 0 && byte != 0x7f {
                return Err(fault("is a number of more than 64 bits"));
            }
            number |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let extends =
                    (byte == 0 && before & 0x40 == 0) || (byte == 0x7f && before & 0x40 != 0);
                if shift > 0 && extends {
                    return Err(fault("is a number that is not in its shortest form"));
                }
                if shift < 57 && byte & 0x40 != 0 {
                    number |= -1 << (shift + 7);
                }
                break;
            }
            before = byte;
        }
        Ok(number)
    }

    /// Reads bytes after their length.
    pub fn prefixed(&mut self, of: &str) -> Result<&'a [u8], Fault> {
        let len = self.number(of)?;
        self.take(len, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_their_shortest_form_only() {
        let unsigned: [(&[u8], Option<u64>); 9] = [
            (&[0], Some(0)),
            (&[0x7f], Some(127)),
            (&[0x80, 1], Some(128)),
            (&[0x80, 0], None),
            (&[0x80], None),
            (&[], None),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Some(u64::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], None),
            (&[0xff; 11], None),
        ];
        for (bytes, expected) in unsigned {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.number("n").ok(), expected, "{bytes:x?}");
        }
        let min = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
        let signed: [(&[u8], Option<i64>); 9] = [
            (&[0], Some(0)),
            (&[0x3f], Some(63)),
            (&[0x40], Some(-64)),
            (&[0x7f], Some(-1)),
            (&[0xc0, 0], Some(64)),
            (&[0xff, 0x7f], None),
            (&[0x80, 0], None),
            (&min, Some(i64::MIN)),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2], None),
        ];
        for (bytes, expected) in signed {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.signed("n").ok(), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut reader = Reader::new(&[3, b'a', b'b']);
        let fault = reader.prefixed("the word").unwrap_err();
        assert_eq!(fault, Fault { at: 1, what: "the word has 3 bytes, but 2 are left".into() });
    }
}
