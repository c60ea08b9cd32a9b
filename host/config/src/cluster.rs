//! `[coordination]` and `[ring]`: how the nodes of a cluster find each other, and the ring of
//! `besom ring serve`.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use besom_core::ring::{HashName, Placement};
use serde::Serialize;

use super::diagnostic::{Diagnostic, Place};
use super::keys::{Key, Setter};
use super::sections::{Section, Sections};

/// The settings of `[coordination]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Coordination {
    /// Endpoints of etcd; if empty, the lease in the store elects the leader.
    pub etcd: Vec<String>,
    /// Name of the cluster, part of every etcd key.
    pub cluster: String,
    /// etcd user.
    pub user: Option<String>,
    /// File with the password of that user.
    pub password_file: Option<PathBuf>,
    /// Certificate authorities for etcd (PEM).
    pub ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM).
    pub cert: Option<PathBuf>,
    /// Private key of `cert` (PEM).
    pub key: Option<PathBuf>,
    /// Interval at which a node looks for planned items if it is not notified.
    pub poll_every: Duration,
    /// Interval at which a node compares its partitions with the store.
    pub verify_every: Duration,
}

/// The settings of `[ring]`, for `besom ring serve`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Ring {
    /// Hash function of servers and keys.
    pub hash: HashName,
    /// How a hash is mapped to a server.
    pub placement: Placement,
    /// Number of points of a server with weight 1.
    pub virtual_nodes: u32,
}

impl Coordination {
    /// Whether this node is part of a cluster.
    pub fn is_cluster(&self) -> bool {
        !self.etcd.is_empty()
    }

    /// Resolves relative paths against `dir`.
    pub(super) fn settle_paths(&mut self, dir: &Path) {
        let files = [&mut self.password_file, &mut self.ca, &mut self.cert, &mut self.key];
        for path in files.into_iter().flatten() {
            *path = dir.join(&path);
        }
    }
}

impl Ring {
    /// Number of points of a server with weight 1.
    pub fn virtual_nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.virtual_nodes).unwrap_or(NonZeroU32::MIN)
    }
}

/// Maximum number of points of a server with weight 1.
const VIRTUAL_NODES_MAX: u32 = 1 << 20;

/// Maximum length of the name of a cluster, in bytes.
const CLUSTER_BYTES_MAX: usize = 128;

/// `[coordination]`
pub(super) const COORDINATION: Section = Section {
    name: "coordination",
    doc: "How the nodes of a cluster find each other. Without etcd, the store elects the leader.",
    keys: &[
        Key {
            name: "etcd",
            default: "",
            doc: "Endpoints of etcd, such as [\"http://10.0.0.1:2379\"]; https:// for TLS.",
            setter: Setter::Texts(|s| &mut s.coordination.etcd),
        },
        Key {
            name: "cluster",
            default: "\"besom\"",
            doc: "Name of the cluster: the same on all its nodes, and different from other clusters.",
            setter: Setter::Text(|s| &mut s.coordination.cluster),
        },
        Key {
            name: "user",
            default: "",
            doc: "etcd user, if etcd requires authentication; requires password_file.",
            setter: Setter::OptionalText(|s| &mut s.coordination.user),
        },
        Key {
            name: "password_file",
            default: "",
            doc: "File (mode 0600) with the password of that user.",
            setter: Setter::OptionalPath(|s| &mut s.coordination.password_file),
        },
        Key {
            name: "ca",
            default: "",
            doc: "Certificate authorities for verifying etcd (PEM) (default: the system's).",
            setter: Setter::OptionalPath(|s| &mut s.coordination.ca),
        },
        Key {
            name: "cert",
            default: "",
            doc: "Client certificate (PEM), if etcd requires one; requires key.",
            setter: Setter::OptionalPath(|s| &mut s.coordination.cert),
        },
        Key {
            name: "key",
            default: "",
            doc: "Private key of cert (PEM, mode 0600).",
            setter: Setter::OptionalPath(|s| &mut s.coordination.key),
        },
        Key {
            name: "poll_every",
            default: "\"1s\"",
            doc: "Interval at which a node looks for items that the leader has planned for it, if it is \
                  not notified earlier.",
            setter: Setter::Duration(
                |s| &mut s.coordination.poll_every,
                Duration::from_millis(10),
                Duration::from_secs(600),
            ),
        },
        Key {
            name: "verify_every",
            default: "\"30s\"",
            doc: "Interval at which a node compares its partitions with the store.",
            setter: Setter::Duration(
                |s| &mut s.coordination.verify_every,
                Duration::from_millis(100),
                Duration::from_secs(3_600),
            ),
        },
    ],
};

/// `[ring]`
pub(super) const RING: Section = Section {
    name: "ring",
    doc: "The ring of `besom ring serve`. The ring of the cluster has no settings.",
    keys: &[
        Key {
            name: "hash",
            default: "\"xxh3\"",
            doc: "Hash function: \"xxh3\", or \"md5\" (the first four bytes).",
            setter: Setter::Choice(&["xxh3", "md5"], |s, word| {
                s.ring.hash = if word == "md5" { HashName::Md5 } else { HashName::Xxh3 };
            }),
        },
        Key {
            name: "placement",
            default: "\"consistent\"",
            doc: "How a hash is mapped to a server: \"consistent\" or \"modulo\".",
            setter: Setter::Choice(&["consistent", "modulo"], |s, word| {
                s.ring.placement =
                    if word == "modulo" { Placement::Modulo } else { Placement::Consistent };
            }),
        },
        Key {
            name: "virtual_nodes",
            default: "1024",
            doc: "Number of points on the circle of a server with weight 1.",
            setter: Setter::U32(|s| &mut s.ring.virtual_nodes, 1, VIRTUAL_NODES_MAX),
        },
    ],
};

/// Reports keys that are valid alone but not in combination. `place` locates a key of `[coordination]`.
pub(super) fn judge(
    sections: &Sections,
    place: impl Fn(&str) -> Place,
    problems: &mut Vec<Diagnostic>,
) {
    let c = &sections.coordination;
    let mut wrong = |key: &str, message: String, fix: &str| {
        problems.push(Diagnostic::error(place(key), message).fix(fix));
    };
    for endpoint in &c.etcd {
        let rest = endpoint.strip_prefix("http://").or(endpoint.strip_prefix("https://"));
        if !rest.is_some_and(|host| host.contains(':') && !host.starts_with(':')) {
            let message = format!("`{endpoint}` is not an etcd endpoint");
            wrong("etcd", message, "write http://host:2379 or https://host:2379");
        }
    }
    if c.is_cluster() && sections.store.url.is_none() {
        let message =
            "coordination.etcd is for several nodes, but the store is a file on one machine";
        wrong("etcd", message.to_owned(), "set store.url to a PostgreSQL server, or remove etcd");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !c.cluster.chars().all(plain) || c.cluster.len() > CLUSTER_BYTES_MAX {
        let message = format!("`{}` is not a valid name for a cluster", c.cluster);
        let fix = format!("use letters, digits, '-', '_' and '.', at most {CLUSTER_BYTES_MAX}");
        wrong("cluster", message, &fix);
    }
    for (have, other, has, lacks) in [
        ("user", "password_file", c.user.is_some(), c.password_file.is_none()),
        ("password_file", "user", c.password_file.is_some(), c.user.is_none()),
        ("cert", "key", c.cert.is_some(), c.key.is_none()),
        ("key", "cert", c.key.is_some(), c.cert.is_none()),
    ] {
        if has && lacks {
            let message = format!("coordination.{have} requires coordination.{other}");
            wrong(have, message, &format!("set coordination.{other} as well, or remove {have}"));
        }
    }
    let secure = c.etcd.iter().any(|endpoint| endpoint.starts_with("https://"));
    for (key, there) in [("ca", c.ca.is_some()), ("cert", c.cert.is_some())] {
        if there && !c.etcd.is_empty() && !secure {
            let message = format!("coordination.{key} requires TLS, but every endpoint is http://");
            wrong(key, message, "write https:// in coordination.etcd, or remove it");
        }
    }
}
