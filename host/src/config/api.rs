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
    /// The file with the token of TCP callers that may change things.
    pub token_file: Option<PathBuf>,
    /// The file with the token of TCP callers that may only look.
    pub readonly_token_file: Option<PathBuf>,
}

impl Api {
    /// Relative paths are meant from `dir`.
    pub(super) fn settle_paths(&mut self, dir: &Path) {
        for path in [&mut self.token_file, &mut self.readonly_token_file].into_iter().flatten() {
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
            doc: "The file (mode 0600) with the token of TCP callers that may change things.",
            slot: Slot::OptionalPath(|s| &mut s.api.token_file),
        },
        Key {
            name: "readonly_token_file",
            default: "",
            doc: "The file (mode 0600) with the token of TCP callers that may only look.",
            slot: Slot::OptionalPath(|s| &mut s.api.readonly_token_file),
        },
    ],
};

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
    if api.token_file.is_some() && api.token_file == api.readonly_token_file {
        problems.push(
            Diagnostic::error(place("readonly_token_file"), "one token cannot mean both")
                .fix("give those who may only look another token"),
        );
    }
}
