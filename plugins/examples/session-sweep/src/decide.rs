//! Whether a session may go.

use besom_sdk::Time;

/// What is to become of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Delete it, if it still expires at that instant.
    Delete(Time),
    /// Leave it, for that reason.
    Leave(&'static str),
}

/// Decides about a session as it was read: none if its row is gone, and within, none if it
/// never expires.
pub fn decide(expiry: Option<Option<Time>>, now: Time, keep_ms: u64) -> Decision {
    match expiry {
        None => Decision::Leave("deleted already"),
        Some(None) => Decision::Leave("it does not expire any more"),
        Some(Some(expires_at)) if expires_at <= now.minus_ms(keep_ms) => {
            Decision::Delete(expires_at)
        }
        Some(Some(_)) => Decision::Leave("extended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_goes_when_it_has_been_expired_for_long_enough() {
        let now = Time(10_000_000);
        for (expiry, keep_ms, expected) in [
            (Some(Some(Time(10_000_000))), 0, Decision::Delete(Time(10_000_000))),
            (Some(Some(Time(10_000_001))), 0, Decision::Leave("extended")),
            (Some(Some(Time(9_000_000))), 1_000, Decision::Delete(Time(9_000_000))),
            (Some(Some(Time(9_000_001))), 1_000, Decision::Leave("extended")),
            (Some(None), 0, Decision::Leave("it does not expire any more")),
            (None, 0, Decision::Leave("deleted already")),
        ] {
            assert_eq!(decide(expiry, now, keep_ms), expected, "{expiry:?}, {keep_ms} ms");
        }
    }
}
