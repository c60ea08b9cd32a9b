//! What the host listens to: an endpoint for products that report activity, and, on its own,
//! a ring of servers and keys.
//!
//! A Unix socket of mode 0600 by default. TCP is opt-in and needs a token, because loopback
//! is open to every local user and, through a browser, to every page; beyond this machine it
//! needs TLS as well. A request over TCP shows the token, names a host that is an address or `localhost`, and has no `Origin`. A web
//! page may open a WebSocket, from an origin that the configuration lists: it cannot set a
//! header, so it shows a ticket as a subprotocol, `besom.ticket.TICKET`, beside `besom`. A ticket is
//! signed for one id and ends at a time; the token, which reports for every id, is refused there.

mod activity;
pub mod admin;
mod connections;
pub mod host;
mod listen;
pub mod ring;
#[cfg(test)]
mod tests;
mod tokens;
mod websocket;

pub use activity::{Connected, Endpoint, Sockets, router};
pub use connections::{Bounds, CONNECTIONS_MAX_DEFAULT};
pub use listen::{CLOSE_MAX, Error, Listener, Pages, Peer, Rights, TlsFiles};
pub use tokens::{Bearer, Tickets, Token, Tokens};
