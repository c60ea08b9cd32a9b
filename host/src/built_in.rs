//! The built-in plugins, as components inside the binary.
//!
//! They are compiled by a build step of their own (`cargo plugins`), because a build script
//! that calls cargo waits for its own lock. A binary that was built before them says so
//! when a task names one.

/// Their names, as a task gives them.
pub const NAMES: [&str; 5] =
    ["compaction", "client-deactivation", "share-expiry", "ttl-transitions", "reconciler"];

/// Those whose fuel is not counted unless a task says so: they compute for long, and are no code of
/// a stranger's.
const UNCOUNTED: [&str; 1] = ["compaction"];

/// Whether a task of that plugin has no limit of fuel by default.
pub fn is_uncounted(name: &str) -> bool {
    UNCOUNTED.contains(&name)
}

/// How to get a binary that has them.
pub const FIX: &str =
    "run `cargo plugins` (after `rustup target add wasm32-wasip2`), then build again";

include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// The component of a built-in plugin; an error where this binary has none; none for a
/// name that is not built in.
pub fn component(name: &str) -> Option<Result<&'static [u8], &'static str>> {
    let index = NAMES.iter().position(|n| *n == name)?;
    Some(COMPONENTS[index].ok_or("the built-in plugins are not in this binary"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_built_in_names_have_components() {
        assert!(component("compaction").is_some());
        assert!(component("mine.wasm").is_none());
        for component in COMPONENTS.into_iter().flatten() {
            assert!(component.starts_with(b"\0asm"));
        }
    }
}
