//! The built-in entity model and its documents.

pub mod doc;
pub mod model;
