//! The built-in plugins, as components inside the binary.
//!
//! They are compiled by a build step of their own (`cargo plugins`), because a build script
//! that calls cargo waits for its own lock. A binary that was built before them says so
//! when a task names one. They are packed (zstd), because their line tables are several times
//! their code, and unpacked where they have to be compiled.
//!
//! Beside a component lies what it compiles to, so that a first start does not compile. Only a build
//! that is optimised has it for all of them: elsewhere the compiler would take longer than all starts do.

mod table;

use std::sync::OnceLock;

pub use self::table::{Entry, TABLE};

/// Their names, as a task gives them.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    TABLE.iter().map(|entry| entry.name)
}

/// Whether a task of that plugin has no limit of fuel by default.
pub fn is_uncounted(name: &str) -> bool {
    TABLE.iter().any(|entry| entry.name == name && !entry.counts)
}

/// How to get a binary that has them.
pub const FIX: &str =
    "run `cargo plugins` (after `rustup target add wasm32-wasip2`), then build again";

include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// A built-in plugin.
pub struct BuiltIn {
    /// Its name, as a task gives it.
    pub name: &'static str,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: &'static str,
    /// Whether the code that is with it counts instructions.
    counts: bool,
    /// The code, if there is any, and the component behind it.
    packed: &'static [u8],
    code_bytes: usize,
    component_bytes: usize,
    unpacked: OnceLock<Vec<u8>>,
}

impl BuiltIn {
    /// The component.
    pub fn component(&self) -> &[u8] {
        self.unpacked.get_or_init(|| self.unpack().split_off(self.code_bytes))
    }

    /// What the compiler has made of it when this binary was built, if it counts instructions or not
    /// as is asked. Nothing but the build script of this binary can have written it.
    pub(crate) fn code(&self, counts: bool) -> Option<Vec<u8>> {
        if self.code_bytes == 0 || self.counts != counts {
            return None;
        }
        let mut both = self.unpack();
        both.truncate(self.code_bytes);
        Some(both)
    }

    fn unpack(&self) -> Vec<u8> {
        let size = self.code_bytes + self.component_bytes;
        let both = zstd::bulk::decompress(self.packed, size);
        // Packed by the build script of this very binary.
        both.ok().filter(|both| both.len() == size).expect("this binary is damaged")
    }
}

impl AsRef<[u8]> for BuiltIn {
    fn as_ref(&self) -> &[u8] {
        self.component()
    }
}

/// A built-in plugin; an error where this binary has none; none for a name that is not built in.
pub fn find(name: &str) -> Option<Result<&'static BuiltIn, &'static str>> {
    let index = names().position(|n| n == name)?;
    Some(PLUGINS[index].as_ref().ok_or("the built-in plugins are not in this binary"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_built_in_names_have_components() {
        assert!(find("compaction").is_some());
        assert!(find("mine.wasm").is_none());
        for (plugin, entry) in PLUGINS.iter().zip(&TABLE) {
            let Some(plugin) = plugin else { continue };
            assert_eq!((plugin.name, plugin.counts), (entry.name, entry.counts));
            assert!(plugin.component().starts_with(b"\0asm"));
            assert_eq!(plugin.digest, crate::runtime::digest(plugin.component()));
            assert!(plugin.code(!entry.counts).is_none());
        }
    }
}
