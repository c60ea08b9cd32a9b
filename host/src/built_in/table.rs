//! The table of built-in plugins. The build script includes this file too, so it must not depend on
//! anything.

/// An entry of the table of built-in plugins.
pub struct Entry {
    /// Name of the plugin, as used in tasks.
    pub name: &'static str,
    /// Whether instructions are counted by default. Counting takes about a fifth of the time, so a trusted
    /// plugin that computes for long does without.
    pub counts: bool,
}

/// All built-in plugins.
pub const TABLE: [Entry; 5] = [
    Entry { name: "compaction", counts: false },
    Entry { name: "client-deactivation", counts: true },
    Entry { name: "share-expiry", counts: true },
    Entry { name: "ttl-transitions", counts: true },
    Entry { name: "reconciler", counts: true },
];
