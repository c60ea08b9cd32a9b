//! Decides when a client is stale, and how one of its documents is detached. Pure: instants are
//! in microseconds.
//!
//! Every decision is made twice, with the rows of the scan and again with those of `act`; the
//! guards then tie the commit to what `act` has read.

/// The status of a client that may edit.
pub const ACTIVATED: &str = "activated";
/// The status of a client that was deactivated.
pub const DEACTIVATED: &str = "deactivated";
/// The state of an attachment that has ended.
pub const DETACHED: &str = "detached";

/// A client as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// [`ACTIVATED`], [`DEACTIVATED`] or another status of the product.
    pub status: String,
    /// When the client was last active.
    pub updated_us: i64,
}

/// An attachment as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// [`DETACHED`] or a state that counts as attached.
    pub state: String,
    /// The sequence number of the client's last change.
    pub client_seq: i64,
}

/// The head of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The sequence number of the last change.
    pub server_seq: i64,
    /// The highest Lamport time of its changes; none: it has no changes.
    pub lamport_max: Option<i64>,
}

/// The change that clears the presence. Its numbers also become the attachment's checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    /// The sequence number in the document.
    pub server_seq: i64,
    /// The sequence number among the client's changes.
    pub client_seq: i64,
    /// Higher than the Lamport time of every change of the document.
    pub lamport: i64,
}

/// Why an item is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The client's row does not exist.
    ClientGone,
    /// The status of the client is not [`ACTIVATED`].
    NotActivated,
    /// The client was active within the threshold.
    ActiveAgain,
    /// The attachment does not exist or is detached.
    Detached,
}

impl Leave {
    /// The reason in the history.
    pub fn reason(self) -> &'static str {
        match self {
            Leave::ClientGone => "the client is gone",
            Leave::NotActivated => "the client is not activated",
            Leave::ActiveAgain => "the client was active again",
            Leave::Detached => "already detached",
        }
    }
}

/// The outcome for an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Detach it with this change.
    Append(Clear),
    /// Skip the item.
    Leave(Leave),
    /// The document does not exist: a person has to examine the attachment.
    NoDocument,
    /// A sequence number or Lamport time has reached its maximum.
    Exhausted,
}

/// The latest activity with which a client is stale, inclusive.
pub fn stale_since_us(now_us: i64, threshold_ms: u64) -> i64 {
    let threshold_us = i64::try_from(threshold_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
    now_us.saturating_sub(threshold_us)
}

/// Checks that a client is stale: activated, and idle for the whole threshold.
///
/// # Errors
/// The reason why it is not stale.
pub fn stale(client: Option<&Client>, now_us: i64, threshold_ms: u64) -> Result<(), Leave> {
    let Some(client) = client else { return Err(Leave::ClientGone) };
    if client.status != ACTIVATED {
        return Err(Leave::NotActivated);
    }
    if client.updated_us > stale_since_us(now_us, threshold_ms) {
        return Err(Leave::ActiveAgain);
    }
    Ok(())
}

/// Decides how to detach an attachment of a stale client.
pub fn detach(attachment: Option<&Attachment>, head: Option<Head>) -> Detach {
    let Some(attachment) = attachment.filter(|attachment| attachment.state != DETACHED) else {
        return Detach::Leave(Leave::Detached);
    };
    let Some(head) = head else { return Detach::NoDocument };
    let next = (
        head.server_seq.checked_add(1),
        attachment.client_seq.checked_add(1),
        head.lamport_max.unwrap_or(0).checked_add(1),
    );
    match next {
        (Some(server_seq), Some(client_seq), Some(lamport)) => {
            Detach::Append(Clear { server_seq, client_seq, lamport })
        }
        _ => Detach::Exhausted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_750_000_000_000_000;
    const DAY_MS: u64 = 86_400_000;
    const DAY_US: i64 = 86_400_000_000;

    fn client(status: &str, updated_us: i64) -> Client {
        Client { status: status.into(), updated_us }
    }

    #[test]
    fn a_client_is_stale_from_the_threshold_on() {
        for (client, expected) in [
            (Some(client("activated", NOW - DAY_US)), Ok(())),
            (Some(client("activated", NOW - DAY_US - 1)), Ok(())),
            (Some(client("activated", NOW - DAY_US + 1)), Err(Leave::ActiveAgain)),
            (Some(client("activated", NOW + DAY_US)), Err(Leave::ActiveAgain)),
            (Some(client("deactivated", NOW - 9 * DAY_US)), Err(Leave::NotActivated)),
            (Some(client("", NOW - 9 * DAY_US)), Err(Leave::NotActivated)),
            (None, Err(Leave::ClientGone)),
        ] {
            assert_eq!(stale(client.as_ref(), NOW, DAY_MS), expected, "{client:?}");
        }
    }

    #[test]
    fn an_endless_threshold_leaves_everybody_alone() {
        let ancient = client("activated", 0);
        assert_eq!(stale(Some(&ancient), NOW, u64::MAX), Err(Leave::ActiveAgain));
    }

    #[test]
    fn the_clear_follows_everything_the_document_and_the_client_have() {
        let attachment =
            |state: &str, client_seq| Some(Attachment { state: state.into(), client_seq });
        let head = |server_seq, lamport_max| Some(Head { server_seq, lamport_max });
        let clear = |server_seq, client_seq, lamport| {
            Detach::Append(Clear { server_seq, client_seq, lamport })
        };
        for (attachment, head, expected) in [
            (attachment("attached", 4), head(10, Some(25)), clear(11, 5, 26)),
            (attachment("attaching", 0), head(0, None), clear(1, 1, 1)),
            (attachment("detached", 4), head(10, Some(25)), Detach::Leave(Leave::Detached)),
            (None, head(10, Some(25)), Detach::Leave(Leave::Detached)),
            (attachment("attached", 4), None, Detach::NoDocument),
            (attachment("detached", 4), None, Detach::Leave(Leave::Detached)),
            (attachment("attached", 4), head(i64::MAX, Some(1)), Detach::Exhausted),
            (attachment("attached", i64::MAX), head(1, Some(1)), Detach::Exhausted),
            (attachment("attached", 4), head(1, Some(i64::MAX)), Detach::Exhausted),
        ] {
            assert_eq!(detach(attachment.as_ref(), head), expected, "{attachment:?} {head:?}");
        }
    }
}
