//! What the host listens to: an endpoint for products that report activity, and, on its own,
//! a ring of servers and keys.
//!
//! A Unix socket of mode 0600 by default. TCP is opt-in and needs a token, because loopback
//! is open to every local user and, through a browser, to every page; beyond this machine it
//! needs TLS as well. A request over TCP shows the token, names a host that is an address or `localhost`, and has no `Origin`. A web
//! page may open a WebSocket, from an origin that the configuration lists: it cannot set a
//! header, so it shows the token as a subprotocol, `besom.token.TOKEN`, beside `besom`.

mod activity;
pub mod admin;
mod connections;
pub mod host;
mod listen;
pub mod ring;
#[cfg(test)]
mod tests;
mod websocket;

pub use activity::{Connected, Endpoint, router};
pub use connections::Bounds;
pub use listen::{Bearer, CLOSE_MAX, Error, Listener, Peer, Rights, TlsFiles, Token, Tokens};
