//! The besom binary.
fn main() {}
