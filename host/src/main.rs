//! The `besom` binary; everything else is in the library.

fn main() -> std::process::ExitCode {
    besom::cli::main()
}
