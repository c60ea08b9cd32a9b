//! `[coordination]` and `[ring]`: how the nodes of a cluster find each other, and the ring of
//! `besom ring serve`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::ring::{HashName, Placement};
use serde::Serialize;

use super::judge::Judge;
use super::keys::keys;
use super::quantity::{ms, secs};
use super::sections::Sections;

keys! {
    /// How the nodes of a cluster find each other. Without etcd, the store elects the leader.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Coordination in [coordination] {
        /// Endpoints of etcd, such as ["http://10.0.0.1:2379"]; https:// for TLS.
        pub etcd: Vec<String>;
        /// Name of the cluster: the same on all its nodes, and different from other clusters.
        // Part of every etcd key.
        pub cluster: String = "besom";
        /// etcd user, if etcd requires authentication; requires password_file.
        pub user: Option<String>;
        /// File (mode 0600) with the password of that user.
        pub password_file: Option<PathBuf>;
        /// Certificate authorities for verifying etcd (PEM) (default: the system's).
        pub ca: Option<PathBuf>;
        /// Client certificate (PEM), if etcd requires one; requires key.
        pub cert: Option<PathBuf>;
        /// Private key of cert (PEM, mode 0600).
        pub key: Option<PathBuf>;
        /// Interval at which a node looks for items that the leader has planned for it, if it is not notified
        /// earlier.
        pub poll_every: Duration = "1s", within ms(10)..=secs(600);
        /// Interval at which a node compares its partitions with the store.
        pub verify_every: Duration = "30s", within ms(100)..=secs(3_600);
    }
}

keys! {
    /// The ring of `besom ring serve`. The ring of the cluster has no settings.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Ring in [ring] {
        /// Hash function: "xxh3", or "md5" (the first four bytes).
        // Of servers and keys.
        pub hash: HashName = "xxh3", one of &["xxh3", "md5"] => |word| match word {
            "md5" => HashName::Md5,
            _ => HashName::Xxh3,
        };
        /// How a hash is mapped to a server: "consistent" or "modulo".
        pub placement: Placement = "consistent", one of &["consistent", "modulo"] => |word| match word {
            "modulo" => Placement::Modulo,
            _ => Placement::Consistent,
        };
        /// Number of points on the circle of a server with weight 1.
        pub virtual_nodes: u32 = 1024, within 1..=VIRTUAL_NODES_MAX;
    }
}

impl Coordination {
    /// Whether this node is part of a cluster.
    pub fn is_cluster(&self) -> bool {
        !self.etcd.is_empty()
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

/// Reports keys of `[coordination]` that are valid alone but not in combination.
pub(super) fn judge(sections: &Sections, judge: &mut Judge<'_>) {
    let c = &sections.coordination;
    for endpoint in &c.etcd {
        let rest = endpoint.strip_prefix("http://").or(endpoint.strip_prefix("https://"));
        if !rest.is_some_and(|host| host.contains(':') && !host.starts_with(':')) {
            let message = format!("`{endpoint}` is not an etcd endpoint");
            judge.error(
                "coordination.etcd",
                message,
                "write http://host:2379 or https://host:2379",
            );
        }
    }
    if c.is_cluster() && sections.store.url.is_none() {
        let message =
            "coordination.etcd is for several nodes, but the store is a file on one machine";
        let fix = "set store.url to a PostgreSQL server, or remove etcd";
        judge.error("coordination.etcd", message, fix);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !c.cluster.chars().all(plain) || c.cluster.len() > CLUSTER_BYTES_MAX {
        let message = format!("`{}` is not a valid name for a cluster", c.cluster);
        let fix = format!("use letters, digits, '-', '_' and '.', at most {CLUSTER_BYTES_MAX}");
        judge.error("coordination.cluster", message, fix);
    }
    let password = ("password_file", c.password_file.is_some());
    judge.require_both("coordination", ("user", c.user.is_some()), password);
    let cert = c.cert.is_some();
    judge.require_both("coordination", ("cert", cert), ("key", c.key.is_some()));
    let secure = c.etcd.iter().any(|endpoint| endpoint.starts_with("https://"));
    for (path, is_set) in [("coordination.ca", c.ca.is_some()), ("coordination.cert", cert)] {
        if is_set && c.is_cluster() && !secure {
            let message = format!("{path} requires TLS, but every endpoint is http://");
            judge.error(path, message, "write https:// in coordination.etcd, or remove it");
        }
    }
}
