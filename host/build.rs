//! Strips the released program. `strip` in the release profile would be a difference to the profile of
//! build scripts, and Cargo would compile the compiler of plugins twice.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    if is("PROFILE", "release") && is("DEBUG", "false") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bin=besom=-Wl,--strip-all");
    }
}
