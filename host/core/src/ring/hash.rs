//! Hash functions of a ring: from bytes to a position on the circle.

use md5::Digest as _;
use serde::{Deserialize, Serialize};

/// A hash function of a ring. The same bytes always give the same position.
pub trait Hasher {
    /// The width of a position in bits, 1 to 64: positions are in `0..2^bits`.
    fn bits(&self) -> u32;

    /// The position of these bytes.
    fn hash(&self, bytes: &[u8]) -> u64;
}

impl<H: Hasher + ?Sized> Hasher for &H {
    fn bits(&self) -> u32 {
        (**self).bits()
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        (**self).hash(bytes)
    }
}

impl<H: Hasher + ?Sized> Hasher for Box<H> {
    fn bits(&self) -> u32 {
        (**self).bits()
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        (**self).hash(bytes)
    }
}

/// XXH3 with 64 bits: fast and evenly distributed. The same function as
/// [`partition_of`](crate::ids::partition_of) without a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xxh3;

impl Hasher for Xxh3 {
    fn bits(&self) -> u32 {
        64
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(bytes)
    }
}

/// The first four bytes of MD5, big-endian: 32 bits. For rings that must agree with others that use
/// it; nothing here is security-relevant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Md5;

impl Hasher for Md5 {
    fn bits(&self) -> u32 {
        32
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        let digest = md5::Md5::digest(bytes);
        u64::from(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

/// The hash functions by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashName {
    /// [`Xxh3`]
    #[default]
    Xxh3,
    /// [`Md5`]
    Md5,
}

impl HashName {
    /// The function.
    pub fn hasher(self) -> Box<dyn Hasher + Send + Sync> {
        match self {
            HashName::Xxh3 => Box::new(Xxh3),
            HashName::Md5 => Box::new(Md5),
        }
    }
}
