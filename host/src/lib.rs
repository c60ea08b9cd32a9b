//! The command line of Besom. It is the only crate that names the adapters and connects them.

/// Writes a line to standard error. `eprintln!` would panic if nobody reads it any longer.
macro_rules! to_stderr {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

pub mod cli;
#[cfg(test)]
mod defaults;
