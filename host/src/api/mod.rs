//! What the host listens to: an endpoint for products that report activity.
//!
//! A Unix socket of mode 0600 by default. TCP is opt-in and needs a token, because loopback
//! is open to every local user and, through a browser, to every page: a request over TCP
//! shows the token, names a host that is an address or `localhost`, and has no `Origin`.

mod activity;
mod listen;
#[cfg(test)]
mod tests;

pub use activity::router;
pub use listen::{CLOSE_MAX, Error, Listener, Token};
