//! The example's binary, built together with the tests that start it.

fn main() -> std::process::ExitCode {
    message_counting::main()
}
