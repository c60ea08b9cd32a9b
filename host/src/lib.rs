//! The command line of Besom.

pub mod cli;
#[cfg(test)]
mod defaults;
