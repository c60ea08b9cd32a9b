//! The besom binary, built together with the tests that start it, so that no earlier build is
//! tested by mistake.

fn main() -> std::process::ExitCode {
    besom::cli::main()
}
