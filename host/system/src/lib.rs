//! What a host does with its own machine: child processes with limits, files with secrets.

pub mod child;
pub mod secret;
