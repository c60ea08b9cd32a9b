//! `[api]`: the admin API, which shows and controls the host.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

use super::judge::Judge;
use super::keys::keys;

keys! {
    /// The admin API, which `besom top` uses.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Api in [api] {
        /// Unix socket of the API, mode 0600 (default: besom.sock beside the SQLite file, or with PostgreSQL
        /// beside the configuration).
        pub socket: PathBuf;
        /// Whether all callers have read-only access.
        pub readonly: bool = false;
        /// TCP address to listen on as well; requires token_file or readonly_token_file.
        pub tcp: Option<SocketAddr>;
        /// File (mode 0600) with the tokens of TCP callers with full access, one TOKEN or NAME TOKEN per
        /// line; it is read again when it changes.
        pub token_file: Option<PathBuf>;
        /// File (mode 0600) with the tokens of TCP callers with read-only access.
        pub readonly_token_file: Option<PathBuf>;
        /// Certificate of the TCP address (PEM, with its chain); required unless it is loopback.
        pub tls_cert: Option<PathBuf>;
        /// Private key of tls_cert (PEM, mode 0600).
        pub tls_key: Option<PathBuf>;
        /// Certificate authority (PEM) for client certificates of TCP callers (default: client certificates
        /// are not required).
        pub tls_client_ca: Option<PathBuf>;
        /// Maximum number of connections, for the Unix socket and the TCP address each. At the limit, a new
        /// connection closes the one that has been idle for longest.
        pub connections_max: u32 = 64, within 8..=100_000;
    }
}

/// The keys of a section that configure TLS for its TCP address.
pub(super) struct TlsKeys {
    pub(super) tcp: Option<SocketAddr>,
    pub(super) cert: bool,
    pub(super) key: bool,
    pub(super) client_ca: bool,
}

impl TlsKeys {
    pub(super) fn judge(&self, section: &str, judge: &mut Judge<'_>) {
        let [cert, key, client_ca] =
            ["tls_cert", "tls_key", "tls_client_ca"].map(|key| format!("{section}.{key}"));
        if self.cert != self.key {
            let (there, missing) = if self.cert { (&cert, &key) } else { (&key, &cert) };
            judge.error(there, format!("{there} requires {missing}"), "set both or neither");
        }
        if self.client_ca && !self.cert {
            let message = format!("{client_ca} requires {cert}");
            judge.error(&client_ca, message, "set tls_cert and tls_key as well");
        }
        let beyond = self.tcp.filter(|address| !address.ip().is_loopback());
        if let Some(address) = beyond
            && !self.cert
        {
            let message = format!(
                "other machines can reach {address}, and tokens would be sent without encryption"
            );
            let fix = "set tls_cert and tls_key, or listen on 127.0.0.1";
            judge.error(&format!("{section}.tcp"), message, fix);
        }
    }
}

/// Reports keys of `[api]` that are valid alone but not in combination.
pub(super) fn judge(api: &Api, judge: &mut Judge<'_>) {
    if api.tcp.is_some() && api.token_file.is_none() && api.readonly_token_file.is_none() {
        let fix = "set api.token_file or api.readonly_token_file to a file (mode 0600) that contains a token";
        judge.error("api.tcp", "api.tcp requires tokens for its callers", fix);
    }
    let tls = TlsKeys {
        tcp: api.tcp,
        cert: api.tls_cert.is_some(),
        key: api.tls_key.is_some(),
        client_ca: api.tls_client_ca.is_some(),
    };
    tls.judge("api", judge);
    if api.token_file.is_some() && api.token_file == api.readonly_token_file {
        let message = "api.token_file and api.readonly_token_file must be different files";
        let fix = "put the read-only tokens into another file";
        judge.error("api.readonly_token_file", message, fix);
    }
}
