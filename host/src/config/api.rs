//! `[api]`: where the host is asked how it is, and told what to do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::diagnostic::{Diagnostic, Place};
use super::keys::{Key, Slot};
use super::sections::{Section, Sections};

/// The admin API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Api {
    /// Its Unix socket.
    pub socket: PathBuf,
    /// Whether nobody may change anything by it.
    pub readonly: bool,
    /// Its TCP address; none: not reachable by TCP.
    pub tcp: Option<SocketAddr>,
    /// The file with the tokens of TCP callers that may change things.
    pub token_file: Option<PathBuf>,
    /// The file with the tokens of TCP callers that may only look.
    pub readonly_token_file: Option<PathBuf>,
    /// The certificate that TCP callers see (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    pub tls_key: Option<PathBuf>,
    /// The authority that certificates of TCP callers come from (PEM).
    pub tls_client_ca: Option<PathBuf>,
    /// Connections at once, of the Unix socket and of the TCP address each.
    pub connections_max: u32,
}

impl Api {
    /// Relative paths are meant from `dir`.
    pub(super) fn settle_paths(&mut self, dir: &Path) {
        let files = [
            &mut self.token_file,
            &mut self.readonly_token_file,
            &mut self.tls_cert,
            &mut self.tls_key,
            &mut self.tls_client_ca,
        ];
        for path in files.into_iter().flatten() {
            *path = dir.join(&path);
        }
    }
}

/// `[api]`
pub(super) const API: Section = Section {
    name: "api",
    doc: "The admin API: what `besom top` looks at and acts by.",
    keys: &[
        Key {
            name: "socket",
            default: "",
            doc: "Its Unix socket (mode 0600); by default besom.sock beside the database.",
            slot: Slot::Path(|s| &mut s.api.socket),
        },
        Key {
            name: "readonly",
            default: "false",
            doc: "Whether callers may only look, whoever they are.",
            slot: Slot::Bool(|s| &mut s.api.readonly),
        },
        Key {
            name: "tcp",
            default: "",
            doc: "A TCP address to listen on as well; needs token_file or readonly_token_file.",
            slot: Slot::OptionalAddress(|s| &mut s.api.tcp),
        },
        Key {
            name: "token_file",
            default: "",
            doc: "The file (mode 0600) with the tokens of TCP callers that may change things: a \
                  line each, TOKEN or NAME TOKEN. It is read again when it changes.",
            slot: Slot::OptionalPath(|s| &mut s.api.token_file),
        },
        Key {
            name: "readonly_token_file",
            default: "",
            doc: "The file (mode 0600) with the tokens of TCP callers that may only look.",
            slot: Slot::OptionalPath(|s| &mut s.api.readonly_token_file),
        },
        Key {
            name: "tls_cert",
            default: "",
            doc: "The certificate of the TCP address (PEM, with its chain); needed beyond loopback.",
            slot: Slot::OptionalPath(|s| &mut s.api.tls_cert),
        },
        Key {
            name: "tls_key",
            default: "",
            doc: "The key of tls_cert (PEM, mode 0600).",
            slot: Slot::OptionalPath(|s| &mut s.api.tls_key),
        },
        Key {
            name: "tls_client_ca",
            default: "",
            doc: "The authority (PEM) that callers' certificates have to come from; by default \
                  callers need none.",
            slot: Slot::OptionalPath(|s| &mut s.api.tls_client_ca),
        },
        Key {
            name: "connections_max",
            default: "64",
            doc: "Connections at once, of the Unix socket and of the TCP address each. At the bound the \
                  one that has waited for its next request for the longest is closed for a newcomer.",
            slot: Slot::U32(|s| &mut s.api.connections_max, 8, 100_000),
        },
    ],
};

/// The keys of a section that make its TCP address one with TLS.
pub(super) struct TlsKeys {
    pub(super) tcp: Option<SocketAddr>,
    pub(super) cert: bool,
    pub(super) key: bool,
    pub(super) client_ca: bool,
}

impl TlsKeys {
    pub(super) fn judge(
        &self,
        section: &str,
        place: &impl Fn(&str) -> Place,
        problems: &mut Vec<Diagnostic>,
    ) {
        let mut wrong = |key: &str, message: String, fix: &str| {
            problems.push(Diagnostic::error(place(key), message).fix(fix));
        };
        if self.cert != self.key {
            let (there, missing) =
                if self.cert { ("tls_cert", "tls_key") } else { ("tls_key", "tls_cert") };
            let message = format!("{section}.{there} is of no use without {missing}");
            wrong(there, message, "set both, or neither");
        }
        if self.client_ca && !self.cert {
            let message = format!("{section}.tls_client_ca is of no use without tls_cert");
            wrong("tls_client_ca", message, "set tls_cert and tls_key as well");
        }
        let beyond = self.tcp.filter(|address| !address.ip().is_loopback());
        if let Some(address) = beyond
            && !self.cert
        {
            let message = format!(
                "other machines can reach {address}, and tokens would cross the network in clear"
            );
            wrong("tcp", message, "set tls_cert and tls_key, or listen on 127.0.0.1");
        }
    }
}

/// What can be said only of several keys together.
pub(super) fn judge(
    sections: &Sections,
    place: impl Fn(&str) -> Place,
    problems: &mut Vec<Diagnostic>,
) {
    let api = &sections.api;
    if api.tcp.is_some() && api.token_file.is_none() && api.readonly_token_file.is_none() {
        problems
            .push(Diagnostic::error(place("tcp"), "callers over TCP have to show a token").fix(
            "set api.token_file, or api.readonly_token_file, to a file (mode 0600) that holds one",
        ));
    }
    let tls = TlsKeys {
        tcp: api.tcp,
        cert: api.tls_cert.is_some(),
        key: api.tls_key.is_some(),
        client_ca: api.tls_client_ca.is_some(),
    };
    tls.judge("api", &place, problems);
    if api.token_file.is_some() && api.token_file == api.readonly_token_file {
        problems.push(
            Diagnostic::error(place("readonly_token_file"), "one token cannot mean both")
                .fix("give those who may only look another token"),
        );
    }
}
