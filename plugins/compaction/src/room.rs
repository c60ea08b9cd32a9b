//! Whether there is room for what a document will need.
//!
//! Decides: yes or no, before anything is built. How much is needed, each format knows.

/// Whether that many bytes could be had right now, in one piece.
///
/// They are asked for and given back at once. In the sandbox linear memory has a limit, and
/// pages that nobody touches cost nothing; natively the answer is nearly always yes. A yes is
/// no promise: whoever allocates in between takes from the same room.
pub fn has_room(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let there = room.try_reserve_exact(bytes).is_ok();
    // Whoever compiles this sees that nothing is ever put there, and may leave the asking out.
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
