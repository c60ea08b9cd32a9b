//! A host: the loop, what it reports, and its API.

pub mod api;
pub mod gather;
pub mod host;
