//! See README.md beside this crate.

fn main() -> std::process::ExitCode {
    message_counting::main()
}
