//! Which of the modes is allowed now.
//!
//! Decides: whether the wish of the settings is passed on to the format, or a merge, and why.
//! Pure: who is attached and what they have told of themselves in, a mode out. Does not know
//! what a format makes of the wish, and does not read.
//!
//! A merge is always allowed. A **reset** gives everything a new identity, so nobody may be
//! attached, and who attaches later is told by the epoch. A **trim** drops the history that
//! every attached client has seen: each of them has to have told by its vector what that is.
//! One that has told nothing may have seen nothing.

use besom_sdk::Value;

use crate::outcome::Mode;

/// Attached clients up to which a trim is allowed: each costs a guard on its vector.
pub const CLIENTS_MAX: usize = 256;

/// Snapshots up to which a reset is allowed: one that appears meanwhile would bring the former
/// identities back, so the guard names those that were read.
pub const SNAPSHOTS_MAX: usize = 256;

/// Guards that may fail before the item is merged, so that a document on which there is always
/// somebody at work is not starved.
pub const GUARD_FAILURES_MAX: u32 = 2;

/// Who is attached, or about to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attached {
    /// How many.
    pub count: usize,
    /// They; not more than one beyond [`CLIENTS_MAX`].
    pub clients: Vec<Client>,
    /// The lowest number that one of them has pulled.
    pub checkpoint: Option<i64>,
}

/// A client that is attached, or about to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// Its id.
    pub id: Value,
    /// The same for a person.
    pub name: String,
    /// What it has told; none: nothing, so it may have seen nothing. Read for a trim only.
    pub vector: Option<Vector>,
}

/// A version vector as a client has told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// In the encoding of the format's library.
    pub bytes: Vec<u8>,
    /// Up to which change it stands.
    pub server_seq: i64,
}

/// The mode to be passed on for the one that is wanted. `snapshots` are those that were read,
/// `failures` the guards of this item that have failed so far.
///
/// # Errors
/// Why it is a merge instead.
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
            Err(format!("{snapshots} snapshots: at most {SNAPSHOTS_MAX} are reset"))
        }
        Mode::Reset => Ok(Mode::Reset),
        Mode::Trim if attached.count > CLIENTS_MAX => Err(format!(
            "attached: {} clients; the vectors of at most {CLIENTS_MAX} are held",
            attached.count
        )),
        Mode::Trim => match attached.clients.iter().find(|client| client.vector.is_none()) {
            Some(client) => Err(format!("no vector: the client {} has told none", client.name)),
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
            (Reset, &nobody, 257, 0, Err("257 snapshots: at most 256 are reset")),
            (Reset, &nobody, 0, 2, Err("contended: its guards failed 2 times")),
            (Trim, &nobody, 999, 0, Ok(Trim)),
            (Trim, &ann, 0, 1, Ok(Trim)),
            (Trim, &ann, 0, 2, Err("contended: its guards failed 2 times")),
            (Trim, &both, 0, 0, Err("no vector: the client bob has told none")),
            (Trim, &crowd, 0, 0, Err("attached: 257 clients; the vectors of at most 256 are held")),
        ] {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(allowed(wanted, attached, snapshots, failures), expected, "{wanted}");
        }
    }
}
