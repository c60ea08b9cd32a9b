//! Computes which history all attached clients have, from their version vectors.
//!
//! Decides how far history may be trimmed at most. An absent entry counts as 0, and a vector that
//! cannot be read prevents any trim.

use loro::{PeerID, VersionVector};

/// The version vectors of the attached clients.
#[derive(Clone, Debug)]
pub struct Vectors(Vec<VersionVector>);

impl Vectors {
    /// Decodes vectors in the encoding of `VersionVector::encode`.
    ///
    /// # Errors
    /// The first vector that is invalid, with the reason.
    pub fn decode(encoded: &[&[u8]]) -> Result<Vectors, String> {
        let all = encoded.len();
        let decode = |(nth, bytes): (usize, &&[u8])| {
            decode(bytes).map_err(|why| format!("vector {} of {all} {why}", nth + 1))
        };
        encoded.iter().enumerate().map(decode).collect::<Result<_, _>>().map(Vectors)
    }

    /// The history of a document at version `doc` that every client has; all of it if there is no
    /// client.
    pub fn minimum(&self, doc: &VersionVector) -> VersionVector {
        let least = |peer: &PeerID, end: i32| {
            let of = |vector: &VersionVector| vector.get(peer).copied().unwrap_or(0);
            self.0.iter().map(of).min().unwrap_or(end).min(end)
        };
        doc.iter()
            .map(|(peer, end)| (*peer, least(peer, *end)))
            .filter(|(_, end)| *end > 0)
            .collect()
    }

    /// The index of the first client that lacks part of `needed`.
    pub fn first_without(&self, needed: &VersionVector) -> Option<usize> {
        self.0.iter().position(|vector| !vector.includes_vv(needed))
    }

    /// The index of the first client with a change that the document does not have and that may
    /// have been made before the client saw `start`, and that change's peer.
    ///
    /// Such a change depends on history that a trim would remove, so no client could import it.
    /// A change that continues from an operation that the trimmed document keeps is safe.
    pub fn first_ahead(
        &self,
        doc: &VersionVector,
        start: &VersionVector,
    ) -> Option<(usize, PeerID)> {
        let of = |vector: &VersionVector, peer: &PeerID| vector.get(peer).copied().unwrap_or(0);
        self.0.iter().enumerate().find_map(|(client, vector)| {
            let unknown = |(peer, end): &(&PeerID, &i32)| {
                **end > of(doc, peer) && of(doc, peer) <= of(start, peer)
            };
            vector.iter().filter(unknown).map(|(peer, _)| *peer).min().map(|peer| (client, peer))
        })
    }
}

fn decode(bytes: &[u8]) -> Result<VersionVector, String> {
    let vector = VersionVector::decode(bytes).map_err(|error| format!("is invalid: {error}"))?;
    if let Some((peer, counter)) = vector.iter().find(|(_, counter)| **counter < 0) {
        return Err(format!("has the counter {counter} for peer {peer}"));
    }
    // Trailing bytes, or a peer that occurs twice.
    if vector.encode().len() != bytes.len() {
        return Err(format!("has trailing bytes or a repeated peer in its {} bytes", bytes.len()));
    }
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries<'a> = &'a [(u64, i32)];

    fn vv(entries: Entries<'_>) -> VersionVector {
        entries.iter().copied().collect()
    }

    fn vectors(all: &[Entries<'_>]) -> Vectors {
        Vectors(all.iter().map(|entries| vv(entries)).collect())
    }

    #[test]
    fn the_minimum_is_what_everybody_has() {
        let doc = vv(&[(1, 10), (2, 20)]);
        let cases: &[(&[Entries<'_>], Entries<'_>)] = &[
            (&[], &[(1, 10), (2, 20)]),
            (&[&[(1, 10), (2, 20)]], &[(1, 10), (2, 20)]),
            (&[&[(1, 3), (2, 20)], &[(1, 10), (2, 5)]], &[(1, 3), (2, 5)]),
            // Absent counts as 0.
            (&[&[(1, 3)], &[(1, 10), (2, 5)]], &[(1, 3)]),
            (&[&[], &[(1, 10), (2, 20)]], &[]),
            // Not beyond the document, nor of peers that it does not know.
            (&[&[(1, 99), (2, 20), (3, 7)]], &[(1, 10), (2, 20)]),
        ];
        for (clients, expected) in cases {
            assert_eq!(vectors(clients).minimum(&doc), vv(expected), "{clients:?}");
        }
    }

    #[test]
    fn what_is_no_vector_is_told() {
        let whole = vv(&[(1, 10), (2, 20)]).encode();
        let mut longer = whole.clone();
        longer.push(0);
        let negative = vv(&[(1, -1)]).encode();
        for (bytes, expected) in [
            (&whole[..], true),
            (&vv(&[]).encode()[..], true),
            (&whole[..whole.len() - 1], false),
            (&longer, false),
            (&negative, false),
            (&[], false),
            (&[0xff; 4], false),
        ] {
            assert_eq!(Vectors::decode(&[bytes]).is_ok(), expected, "{bytes:?}");
            assert_eq!(Vectors::decode(&[&whole, bytes]).is_ok(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_change_that_only_a_client_has_may_hold_the_start_back() {
        let (doc, start) = (vv(&[(1, 10), (2, 20)]), vv(&[(1, 5), (2, 20)]));
        for (client, expected) in [
            (&[(1, 10), (2, 20)][..], None),
            (&[(1, 2)], None),
            // Goes on from operation 9 of peer 1, which stays.
            (&[(1, 11), (2, 20)], None),
            // Goes on from operation 19 of peer 2, which goes.
            (&[(1, 10), (2, 21)], Some((1, 2))),
            // Begins from who knows where.
            (&[(1, 10), (2, 20), (3, 1)], Some((1, 3))),
        ] {
            let clients = vectors(&[&[(1, 10), (2, 20)], client]);
            assert_eq!(clients.first_ahead(&doc, &start), expected, "{client:?}");
        }
    }
}
