//! The besom binary, built together with the tests that start it: one of an earlier build
//! is never tested by mistake.

fn main() -> std::process::ExitCode {
    besom::cli::main()
}
