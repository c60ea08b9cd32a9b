//! Decides whether a session is deleted, without reading anything.

use besom_sdk::Time;

/// The outcome for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Delete the session if its row still has this expiry.
    Delete(Time),
    /// Keep the session, for this reason.
    Leave(&'static str),
}

/// Decides on a session as it was read. The outer `None` means that the row is gone, the inner
/// `None` that the session never expires. A session is deleted `keep_ms` after its expiry.
pub fn decide(expiry: Option<Option<Time>>, now: Time, keep_ms: u64) -> Decision {
    match expiry {
        None => Decision::Leave("already deleted"),
        Some(None) => Decision::Leave("no longer expires"),
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
            (Some(None), 0, Decision::Leave("no longer expires")),
            (None, 0, Decision::Leave("already deleted")),
        ] {
            assert_eq!(decide(expiry, now, keep_ms), expected, "{expiry:?}, {keep_ms} ms");
        }
    }
}
