//! A host: the loop, what it reports, and its API.
//!
//! [`host`] runs a node on an async runtime: it carries out the node's commands over the ports.
//! [`gather`] reads the state of the deployment for viewers, and [`api`] serves it. This crate names no
//! adapter; the command line opens them.

pub mod api;
pub mod gather;
pub mod host;
