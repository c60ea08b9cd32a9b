//! The built-in entity model and its documents.
//!
//! [`model`] has the default mapping of the built-in tasks and the tables of the demo. [`doc`]
//! imports, exports, describes and verifies documents; no other crate of the host compares their contents.
//! [`retention`] judges the settings of the task of that name.

pub mod doc;
pub mod model;
pub mod retention;
