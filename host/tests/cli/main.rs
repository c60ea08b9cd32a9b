//! The real binary: the names, exit codes and JSON shapes that scripts rely on.
//!
//! One file per subject; `site` is the directory in which verbs are run.

mod components;
mod configuration;
mod database;
mod documents;
mod edit;
mod retention;
mod site;
mod verbs;
