//! The built-in plugins, embedded in the binary as components.
//!
//! A separate build step (`cargo plugins`) builds them, because a build script that calls cargo would wait
//! for its own lock. A binary built without them reports an error when a task names one. Components are
//! compressed with zstd, because their line tables are several times larger than their code.
//!
//! The compiled code of a component is embedded too, so that the first start does not compile. Only an
//! optimized build has it for all components; in other builds, compiling would take longer than it saves.

mod table;

use std::sync::OnceLock;

pub use self::table::{Absence, Entry, TABLE};

/// Returns the names of the built-in plugins, as used in tasks.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    TABLE.iter().map(|entry| entry.name)
}

/// Returns what is known of a built-in plugin, or `None` if the name is not that of one.
pub fn entry(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.name == name)
}

/// Whether a task with this plugin has no fuel limit by default.
pub fn is_uncounted(name: &str) -> bool {
    entry(name).is_some_and(|entry| !entry.counts)
}

/// The fix for a binary without the built-in plugins.
pub const FIX: &str =
    "run `cargo plugins` (after `rustup target add wasm32-wasip2`), then build again";

include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// A built-in plugin with its component.
pub struct BuiltIn {
    /// Name of the plugin, as used in tasks.
    pub name: &'static str,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: &'static str,
    /// Whether the embedded code counts instructions.
    counts: bool,
    /// The compiled code, if any, followed by the component; compressed.
    packed: &'static [u8],
    code_bytes: usize,
    component_bytes: usize,
    unpacked: OnceLock<Vec<u8>>,
}

impl BuiltIn {
    /// Returns the component, which is decompressed once.
    pub fn component(&self) -> &[u8] {
        self.unpacked.get_or_init(|| self.unpack().split_off(self.code_bytes))
    }

    /// Returns the embedded compiled code if it counts instructions as requested. The code is trusted,
    /// because only the build script of this binary can have written it.
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
        release(self.packed);
        // Compressed by the build script of this binary.
        both.ok().filter(|both| both.len() == size).expect("this binary is damaged")
    }
}

/// Gives the memory of bytes back that are part of this program's file: they are read once, and would stay resident.
fn release(packed: &'static [u8]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let page = rustix::param::page_size();
        let start = packed.as_ptr().addr();
        let first = start.next_multiple_of(page) - start;
        let bytes = packed.len().saturating_sub(first) / page * page;
        if bytes > 0 {
            // SAFETY: these are whole pages within the bytes, which are mapped from the file of this program and are
            // never written. The next read maps them from the file again.
            let pages = unsafe { packed.as_ptr().add(first) };
            // SAFETY: as above. Advice that is not taken changes nothing.
            let _ = unsafe { madvise(pages.cast_mut().cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = packed;
}

impl AsRef<[u8]> for BuiltIn {
    fn as_ref(&self) -> &[u8] {
        self.component()
    }
}

/// Returns a built-in plugin by name, or `None` if the name is not that of a built-in plugin.
///
/// # Errors
/// The inner result is an error if this binary was built without the built-in plugins.
pub fn find(name: &str) -> Option<Result<&'static BuiltIn, &'static str>> {
    entry(name)?;
    let built = PLUGINS.iter().find(|plugin| plugin.name == name);
    Some(built.ok_or("this binary was built without the built-in plugins"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_built_in_names_have_components() {
        assert!(find("compaction").is_some());
        assert!(find("mine.wasm").is_none());
        for plugin in &PLUGINS {
            let entry = entry(plugin.name).expect("an entry of the table");
            assert_eq!(plugin.counts, entry.counts);
            assert!(plugin.component().starts_with(b"\0asm"));
            assert_eq!(plugin.digest, crate::digest(plugin.component()));
            // What was given back is read again.
            assert_eq!(plugin.unpack().split_off(plugin.code_bytes), plugin.component());
            assert!(plugin.code(!entry.counts).is_none());
        }
    }
}
