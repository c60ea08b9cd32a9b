//! What a host does with its own machine: child processes with limits, files with secrets, memory.
//!
//! This crate depends on no other crate of Besom. The callers decide what a child process works on
//! and which file holds which secret.

pub mod child;
pub mod memory;
pub mod secret;
