//! Which store a host serves. Hosts of several stores can have the same socket, one after the other, because the
//! default one lies in the directory of the configuration or the database. A caller names the store that it means, and
//! a host of another store refuses its request.

use std::fmt::Display;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

/// The header with which a caller names the store that it means; without it, any host answers.
pub const STORE: &str = "besom-store";

/// A store, as callers and hosts tell it from others without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The store and the configuration that names it, for people.
    pub shown: String,
    /// Digests of what identifies it; two stores that share one are the same.
    digests: Vec<String>,
}

impl Served {
    /// A store with everything that identifies it: each name belongs to no other store.
    pub fn new(shown: String, names: impl IntoIterator<Item = String>) -> Served {
        let digest = |name: String| hex::encode(Sha256::digest(name));
        Served { shown, digests: names.into_iter().map(digest).collect() }
    }

    /// The value of the header [`STORE`].
    pub fn header(&self) -> String {
        self.digests.join(" ")
    }

    /// Whether the caller means this store, or any.
    fn is_meant(&self, headers: &HeaderMap) -> bool {
        let Some(meant) = headers.get(STORE) else { return true };
        let mut meant = meant.to_str().unwrap_or_default().split(' ');
        meant.any(|digest| self.digests.iter().any(|own| own == digest))
    }

    /// What a caller that means this store says about a host that has refused its request, with the fix. `theirs` is
    /// the host's answer, `key` the setting that names the socket.
    pub fn unlike(&self, theirs: &str, socket: impl Display, key: &str) -> String {
        format!(
            "{socket}: the host that listens there serves {theirs}, not {}: set {key} to another path in one of the \
             two configurations, or restart the host if its configuration has changed",
            self.shown
        )
    }
}

/// Refuses requests of callers that mean another store, with 421 and the name of this one.
pub fn only_for(router: Router, served: Option<&Served>) -> Router {
    match served {
        Some(served) => {
            router.layer(middleware::from_fn_with_state(Arc::new(served.clone()), if_meant))
        }
        None => router,
    }
}

async fn if_meant(State(served): State<Arc<Served>>, request: Request, next: Next) -> Response {
    match served.is_meant(request.headers()) {
        true => next.run(request).await,
        false => (StatusCode::MISDIRECTED_REQUEST, served.shown.clone()).into_response(),
    }
}
