//! The besom binary.

fn main() -> std::process::ExitCode {
    besom::cli::main()
}
