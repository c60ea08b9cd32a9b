//! Identifiers as newtypes, so that a term cannot be mistaken for an epoch.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub std::sync::Arc<str>);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(s: &str) -> Self {
                Self(s.into())
            }
        }
        impl From<String> for $name {
            fn from(s: String) -> Self {
                Self(s.into())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id! {
    /// The name of a task: its table's name in `besom.toml`.
    TaskName
}
text_id! {
    /// One process incarnation of a node: `{name}-{incarnation}`, never used twice.
    Incarnation
}
text_id! {
    /// The value of a tenant column, as text.
    Tenant
}
impl TaskName {
    /// Stands for all tasks where one is paused or resumed. No task can have this name.
    pub const ALL: &'static str = "*";

    /// Whether it stands for all tasks.
    pub fn is_all(&self) -> bool {
        self.as_str() == TaskName::ALL
    }
}

impl Incarnation {
    /// The incarnation with this number of the node with this name.
    pub fn new(node: &str, number: u32) -> Incarnation {
        Incarnation::from(format!("{node}-{number:08x}"))
    }

    /// The node's name, the same after a restart. An incarnation without a number (the command line)
    /// has its own name.
    pub fn node_name(&self) -> &str {
        let is_drawn = |end: &str| end.len() == 8 && end.bytes().all(|b| b.is_ascii_hexdigit());
        match self.0.rsplit_once('-') {
            Some((name, end)) if is_drawn(end) => name,
            _ => &self.0,
        }
    }
}

number_id! {
    /// The number of one leadership; it only increases.
    Term(u64)
}
number_id! {
    /// The number of one ownership of a partition; it only increases.
    OwnerEpoch(u64)
}
number_id! {
    /// A fixed hash bucket of keys, the unit of ownership.
    Partition(u32)
}
number_id! {
    /// A position in a stream. The first item has position 1.
    Seq(u64)
}
number_id! {
    /// One activation of a task, numbered by the store from 1.
    RunId(u64)
}

impl RunId {
    /// The run of an item that no run has planned ([`crate::item::Source::Unqueued`]).
    pub const NONE: RunId = RunId(0);
}

/// The unique mark of one commit, by which an unknown result is looked up. The sender of the batch
/// draws it at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitId(pub u128);

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The proof of leadership that accompanies every write of a leader: the store refuses it once the
/// fence is higher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencingToken {
    /// The term under which the writer leads.
    pub term: Term,
    /// SHA-256 of the leader's secret token: two leaders cannot share a term by accident.
    pub token_hash: [u8; 32],
}

/// The partition of an item: xxh3-64 over tenant and route, separated so that
/// `("a", "bc")` and `("ab", "c")` differ, modulo the number of partitions.
///
/// # Panics
/// Never for `partitions > 0`, which the store guarantees at its creation.
pub fn partition_of(tenant: Option<&str>, route: &str, partitions: u32) -> Partition {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    if let Some(tenant) = tenant {
        hasher.update(&(tenant.len() as u64).to_le_bytes());
        hasher.update(tenant.as_bytes());
    }
    hasher.update(route.as_bytes());
    Partition((hasher.digest() % u64::from(partitions)) as u32)
}
