//! The command line of Besom. It is the only crate that names the adapters and connects them.

pub mod cli;
#[cfg(test)]
mod defaults;
