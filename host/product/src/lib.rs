//! The built-in entity model and its documents.
//!
//! [`model`] has the default mapping of the built-in tasks and the tables of the demo. [`doc`]
//! imports, exports, describes and verifies documents; [`retention`] judges the settings of that task. No other crate of the host compares the
//! contents of documents.

pub mod doc;
pub mod model;
pub mod retention;
