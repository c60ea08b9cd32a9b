//! The lib0 primitives of a Yjs V1 update: bytes, variable-length integers, strings.
//!
//! Decides strictly what is well formed. Every error names the byte at which reading failed.
//! Allocates nothing; a declared length is accepted only if enough bytes remain.

use std::fmt;

/// The largest integer that lib0 reads: JavaScript's `Number.MAX_SAFE_INTEGER`.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Why bytes are not a well-formed update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before a declared length.
    Truncated,
    /// Bytes remain after the update's end.
    Trailing,
    /// A variable-length integer above [`INTEGER_MAX`].
    Overflow,
    /// A string that is not UTF-8.
    Utf8,
    /// A kind of struct or content that Yjs 13 does not know.
    ContentKind(u8),
    /// A shared type that Yjs 13 does not know.
    TypeKind(u64),
    /// A value tag that lib0 does not know.
    ValueTag(u8),
    /// A text that is not JSON where JSON is required.
    Json,
    /// Options of a sub-document that are not an object.
    DocOptions,
    /// Values nested deeper than [`super::content::DEPTH_MAX`], or JSON than
    /// [`super::json::DEPTH_MAX`].
    Depth,
    /// A struct of length 0.
    Empty,
    /// Clocks beyond [`super::reader::CLOCK_MAX`].
    Clock,
    /// A client with two sections in one update.
    RepeatedClient,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Truncated => f.write_str("the update is truncated"),
            Malformed::Trailing => f.write_str("bytes remain after the end of the update"),
            Malformed::Overflow => f.write_str("an integer above 2^53 - 1"),
            Malformed::Utf8 => f.write_str("a string that is not UTF-8"),
            Malformed::ContentKind(kind) => write!(f, "unknown kind of content {kind}"),
            Malformed::TypeKind(kind) => write!(f, "unknown shared type {kind}"),
            Malformed::ValueTag(tag) => write!(f, "unknown value tag {tag}"),
            Malformed::Json => f.write_str("a text that is not JSON"),
            Malformed::DocOptions => {
                f.write_str("options of a sub-document that are not an object")
            }
            Malformed::Depth => f.write_str("values nested too deeply"),
            Malformed::Empty => f.write_str("a struct of length 0"),
            Malformed::Clock => f.write_str("a clock beyond 2^31 - 1"),
            Malformed::RepeatedClient => f.write_str("a client with two sections"),
        }
    }
}

/// An error with its place in the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The offset in bytes at which reading failed.
    pub offset: usize,
    /// The reason.
    pub malformed: Malformed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.malformed, self.offset)
    }
}

impl std::error::Error for Error {}

/// A position in an update.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A position at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The number of bytes read so far.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The number of bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The bytes read since `start`, an earlier [`Cursor::offset`].
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    /// An error at this position.
    pub fn error<T>(&self, malformed: Malformed) -> Result<T, Error> {
        Err(Error { offset: self.at, malformed })
    }

    /// Reads one byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Error> {
        match self.bytes.get(self.at) {
            Some(&byte) => {
                self.at += 1;
                Ok(byte)
            }
            None => self.error(Malformed::Truncated),
        }
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn take(&mut self, len: u64) -> Result<&'a [u8], Error> {
        if len > self.remaining() as u64 {
            return self.error(Malformed::Truncated);
        }
        let start = self.at;
        self.at += len as usize;
        Ok(&self.bytes[start..self.at])
    }

    /// Reads a variable-length unsigned integer, at most [`INTEGER_MAX`].
    #[inline]
    pub fn var_uint(&mut self) -> Result<u64, Error> {
        let start = self.at;
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if value > INTEGER_MAX || shift > 49 {
                return Err(Error { offset: start, malformed: Malformed::Overflow });
            }
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Skips a variable-length signed integer, with the sign and six bits in the first byte.
    pub fn skip_var_int(&mut self) -> Result<(), Error> {
        let start = self.at;
        let first = self.byte()?;
        let mut magnitude = u64::from(first & 0x3f);
        let mut shift = 6;
        let mut more = first & 0x80 != 0;
        while more {
            let byte = self.byte()?;
            magnitude |= u64::from(byte & 0x7f) << shift;
            if magnitude > INTEGER_MAX || shift > 48 {
                return Err(Error { offset: start, malformed: Malformed::Overflow });
            }
            shift += 7;
            more = byte & 0x80 != 0;
        }
        Ok(())
    }

    /// Reads the number of elements that follow, each of at least one byte.
    pub fn count(&mut self) -> Result<u64, Error> {
        let start = self.at;
        let count = self.var_uint()?;
        if count > self.remaining() as u64 {
            return Err(Error { offset: start, malformed: Malformed::Truncated });
        }
        Ok(count)
    }

    /// Reads a string, after its length in bytes.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, Error> {
        let len = self.var_uint()?;
        let start = self.at;
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes).map_err(|error| Error {
            offset: start + error.valid_up_to(),
            malformed: Malformed::Utf8,
        })
    }
}

/// Writes a variable-length unsigned integer.
pub fn write_var_uint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a string after its length in bytes.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write_var_uint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_end_at_the_largest_safe_one() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), INTEGER_MAX] {
            let mut bytes = Vec::new();
            write_var_uint(&mut bytes, value);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.var_uint(), Ok(value));
            assert_eq!(cursor.remaining(), 0);
        }
        let mut bytes = Vec::new();
        write_var_uint(&mut bytes, INTEGER_MAX + 1);
        let overflow = Error { offset: 0, malformed: Malformed::Overflow };
        assert_eq!(Cursor::new(&bytes).var_uint(), Err(overflow));
        assert_eq!(Cursor::new(&[0x80; 12]).var_uint(), Err(overflow));
        assert_eq!(Cursor::new(&[0x80; 12]).skip_var_int(), Err(overflow));
    }

    #[test]
    fn an_error_names_its_byte() {
        let mut cursor = Cursor::new(b"\x03ab");
        assert_eq!(cursor.string(), Err(Error { offset: 1, malformed: Malformed::Truncated }));
        let mut cursor = Cursor::new(b"\x03a\xffb");
        assert_eq!(cursor.string(), Err(Error { offset: 2, malformed: Malformed::Utf8 }));
    }
}
