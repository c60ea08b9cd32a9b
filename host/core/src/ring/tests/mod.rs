//! The guarantees of the rings.

use std::num::NonZeroU32;

mod assignment;
mod circle;
mod hash_ring;
mod seed;

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count of a test")
}
