//! Decides which mode is allowed now: the one that the settings request, or a merge, and why.
//!
//! Pure: it takes the attached clients with their vectors and returns a mode. It does not read, and
//! does not know what a format makes of the mode.
//!
//! A merge is always allowed. A **reset** gives everything a new identity, so no client may be
//! attached; the epoch informs clients that attach later. A **trim** removes history that
//! every attached client has seen, which each client reports in its vector. A client without a
//! vector may have seen nothing.

use besom_sdk::Value;

use crate::outcome::Mode;

/// The maximum number of attached clients for a trim: each costs a guard on its vector.
pub const CLIENTS_MAX: usize = 256;

/// The maximum number of snapshots for a reset: a new snapshot would bring the former identities
/// back, so a guard names those that were read.
pub const SNAPSHOTS_MAX: usize = 256;

/// The number of failed guards after which the item is merged, so that a document in constant use
/// does not starve.
pub const GUARD_FAILURES_MAX: u32 = 2;

/// The attached and attaching clients of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attached {
    /// The number of clients.
    pub count: usize,
    /// The first [`CLIENTS_MAX`] + 1 clients.
    pub clients: Vec<Client>,
    /// The lowest number up to which a client has pulled; none: there is no client.
    pub checkpoint: Option<i64>,
}

/// An attached or attaching client.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// The value of `client_id`.
    pub id: Value,
    /// The id as text, for reasons.
    pub name: String,
    /// The client's vector; none: it may have seen nothing. Read only for a trim.
    pub vector: Option<Vector>,
}

/// A client's version vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The vector in the encoding of the format's library.
    pub bytes: Vec<u8>,
    /// The number of the last change that the vector covers.
    pub server_seq: i64,
}

/// The mode to request from the format. `snapshots` is the number of snapshots that were read,
/// `failures` the number of guards of this item that have failed so far.
///
/// # Errors
/// The reason for a merge instead of `wanted`.
pub fn allowed(
    wanted: Mode,
    attached: &Attached,
    snapshots: usize,
    failures: u32,
) -> Result<Mode, String> {
    if wanted != Mode::Merge && failures >= GUARD_FAILURES_MAX {
        return Err(format!("contended: its guards failed {failures} times"));
    }
    match wanted {
        Mode::Merge => Ok(Mode::Merge),
        Mode::Reset if attached.count > 0 => {
            Err(format!("attached: {}", many(attached.count, "client")))
        }
        Mode::Reset if snapshots > SNAPSHOTS_MAX => {
            Err(format!("{snapshots} snapshots: a reset allows at most {SNAPSHOTS_MAX}"))
        }
        Mode::Reset => Ok(Mode::Reset),
        Mode::Trim if attached.count > CLIENTS_MAX => Err(format!(
            "attached: {} clients; a trim allows at most {CLIENTS_MAX}",
            attached.count
        )),
        Mode::Trim => match attached.clients.iter().find(|client| client.vector.is_none()) {
            Some(client) => Err(format!("no vector: the client {} has none", client.name)),
            None => Ok(Mode::Trim),
        },
    }
}

fn many(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, vector: Option<&[u8]>) -> Client {
        let vector = vector.map(|bytes| Vector { bytes: bytes.to_vec(), server_seq: 1 });
        Client { id: name.into(), name: name.into(), vector }
    }

    fn attached(clients: Vec<Client>) -> Attached {
        Attached { count: clients.len(), clients, checkpoint: Some(0) }
    }

    #[test]
    fn a_wish_is_passed_on_where_it_is_allowed_and_otherwise_says_why() {
        use Mode::{Merge, Reset, Trim};
        let nobody = Attached::default();
        let ann = attached(vec![client("ann", Some(b"v"))]);
        let both = attached(vec![client("ann", Some(b"v")), client("bob", None)]);
        let crowd = attached((0..257).map(|_| client("c", Some(b"v"))).collect());
        for (wanted, attached, snapshots, failures, expected) in [
            (Merge, &both, 999, 9, Ok(Merge)),
            (Reset, &nobody, 0, 0, Ok(Reset)),
            (Reset, &nobody, 256, 1, Ok(Reset)),
            (Reset, &ann, 0, 0, Err("attached: 1 client")),
            (Reset, &both, 0, 0, Err("attached: 2 clients")),
            (Reset, &nobody, 257, 0, Err("257 snapshots: a reset allows at most 256")),
            (Reset, &nobody, 0, 2, Err("contended: its guards failed 2 times")),
            (Trim, &nobody, 999, 0, Ok(Trim)),
            (Trim, &ann, 0, 1, Ok(Trim)),
            (Trim, &ann, 0, 2, Err("contended: its guards failed 2 times")),
            (Trim, &both, 0, 0, Err("no vector: the client bob has none")),
            (Trim, &crowd, 0, 0, Err("attached: 257 clients; a trim allows at most 256")),
        ] {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(allowed(wanted, attached, snapshots, failures), expected, "{wanted}");
        }
    }
}
