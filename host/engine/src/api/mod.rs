//! The host's HTTP endpoints: activity reports and messages of products, the admin API, the host's
//! status, and a standalone ring of servers and keys.
//!
//! By default they listen on a Unix socket of mode 0600. TCP is opt-in and requires a token,
//! because loopback is open to every local user and, through a browser, to every web page; an
//! address that other machines can reach also requires TLS. A request over TCP sends the token, has
//! a `Host` that is an address or `localhost` (checked without TLS), and has no `Origin`.
//!
//! A web page may only open a WebSocket, and only from an origin that the configuration lists. It
//! cannot set a header, so it sends a ticket as a subprotocol, `besom.ticket.TICKET`, in addition
//! to `besom`. A ticket is signed for one id and expires; the token, which allows reports for every
//! id, is rejected there.

mod activity;
pub mod admin;
mod answers;
mod connections;
pub mod feed;
pub mod host;
mod listen;
pub mod ring;
mod served;
#[cfg(test)]
mod tests;
mod tokens;
mod websocket;

use std::sync::Arc;

use axum::Router;
use axum::middleware::map_response;

use crate::host::feed::Feed;

pub use activity::{Connected, Endpoint, Sockets, router};
pub use connections::{Bounds, CONNECTIONS_MAX_DEFAULT};
pub use listen::{CLOSE_MAX, Error, Listener, Pages, Peer, Rights, TlsFiles};
pub use served::{STORE, Served, only_for};
pub use tokens::{Tickets, Token, Tokens};

/// The routes of both endpoints that a product calls: reports of activity, and its messages.
pub fn of_products(endpoint: Arc<Endpoint>, feed: Arc<Feed>) -> Router {
    router(endpoint).merge(feed::router(feed)).layer(map_response(answers::in_json))
}
