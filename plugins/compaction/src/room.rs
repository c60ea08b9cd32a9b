//! Checks whether memory suffices for a document, before anything is built. Each format estimates
//! its own need.

/// Whether `bytes` can be allocated now, in one block.
///
/// The block is allocated and freed at once. In the sandbox, linear memory has a limit, and
/// untouched pages cost nothing; natively the result is nearly always true. It does not guarantee
/// later allocations.
pub fn has_room(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let there = room.try_reserve_exact(bytes).is_ok();
    // Without this the compiler may remove the allocation, because it is never used.
    std::hint::black_box(&mut room);
    there
}

#[cfg(test)]
mod tests {
    use super::has_room;

    #[test]
    fn room_is_for_what_an_address_space_can_hold() {
        for (bytes, expected) in [
            (0, true),
            (1, true),
            (1 << 20, true),
            (isize::MAX as usize, false),
            (usize::MAX, false),
        ] {
            assert_eq!(has_room(bytes), expected, "{bytes}");
        }
    }
}
