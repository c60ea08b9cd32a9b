//! The names of the keys and the format of their values.

use std::num::NonZeroU32;

use besom_core::ids::{FencingToken, Incarnation, Term};
use besom_core::ring::NodeName;
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

use besom_ports::coordination::{Error, LeaderRecord, Result};
use besom_ports::members::{Announcement, Member, MemberState, StoreAway};

/// Maximum length of the name of a cluster or a node, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// The names of a cluster's keys.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
    own: String,
}

impl Keys {
    /// The keys of a cluster, for use by that node.
    pub(super) fn new(cluster: &str, node: &str) -> Result<Keys> {
        check("cluster", "[coordination] cluster", cluster)?;
        check("node", "[node] name", node)?;
        let prefix = format!("/besom/{cluster}/");
        Ok(Keys { own: format!("{prefix}members/{node}"), prefix })
    }

    pub(super) fn term(&self) -> String {
        format!("{}term", self.prefix)
    }

    pub(super) fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    pub(super) fn store(&self) -> String {
        format!("{}store", self.prefix)
    }

    /// The prefix of the keys of all members.
    pub(super) fn members(&self) -> String {
        format!("{}members/", self.prefix)
    }

    /// The key of this node's member.
    pub(super) fn own(&self) -> String {
        self.own.clone()
    }

    /// The key of the member with that name.
    pub(super) fn member(&self, name: &NodeName) -> String {
        format!("{}members/{name}", self.prefix)
    }
}

/// Checks that a name is a single level of a key and readable in all tools.
fn check(what: &str, setting: &str, name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fine) {
        return Err(Error::Refused(format!(
            "`{name}` is not a valid name for a {what}: use at most {NAME_BYTES_MAX} letters, \
             digits, '-', '_' and '.' in {setting}"
        )));
    }
    Ok(())
}

/// The value of `leader`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaderValue {
    pub(super) node: Incarnation,
    pub(super) hostname: String,
    pub(super) term: Term,
    /// Identifies the attempt, so that its node recognizes it.
    pub(super) nonce: String,
    #[serde(with = "hexadecimal")]
    pub(super) token_sha256: [u8; 32],
    /// In microseconds since 1970, like all times.
    pub(super) elected_at: Time,
    pub(super) renewed_at: Time,
}

impl LeaderValue {
    pub(super) fn fence(&self) -> FencingToken {
        FencingToken { term: self.term, token_hash: self.token_sha256 }
    }

    pub(super) fn into_record(self) -> LeaderRecord {
        LeaderRecord {
            node: self.node,
            hostname: self.hostname,
            term: self.term,
            token_hash: self.token_sha256,
            elected_at: self.elected_at,
            renewed_at: self.renewed_at,
        }
    }
}

/// The value of `members/{node}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberValue {
    pub(super) incarnation: Incarnation,
    pub(super) addr: String,
    pub(super) weight: NonZeroU32,
    pub(super) state: MemberState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) store_away: Option<StoreAway>,
}

impl MemberValue {
    pub(super) fn new(
        incarnation: &Incarnation,
        said: &Announcement,
        store_away: Option<StoreAway>,
    ) -> MemberValue {
        MemberValue {
            incarnation: incarnation.clone(),
            addr: said.addr.clone(),
            weight: said.weight,
            state: said.state,
            store_away,
        }
    }

    pub(super) fn into_member(self, name: &str) -> Member {
        Member {
            name: name.into(),
            incarnation: self.incarnation,
            addr: self.addr,
            weight: self.weight,
            state: self.state,
            store_away: self.store_away,
        }
    }
}

/// Encodes a value.
pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|e| Error::Refused(format!("a value cannot be written as JSON: {e}")))
}

/// Decodes a value that this or another version has written.
pub(super) fn decode<T: for<'de> Deserialize<'de>>(key: &str, value: &[u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|e| {
        Error::Refused(format!(
            "the key {key} in etcd has an unknown format ({e}): another program or a newer version \
             of Besom writes to it; use another [coordination] cluster"
        ))
    })
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 32], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(d)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| D::Error::custom("not 64 hexadecimal digits"))?;
        Ok(bytes)
    }
}
