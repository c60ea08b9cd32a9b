//! The built-in plugins by name. The build script reads this file as well, so it needs nothing else.

/// A built-in plugin, before it is built.
pub struct Entry {
    /// Its name, as a task gives it.
    pub name: &'static str,
    /// Whether its instructions are counted unless a task says otherwise. Not those of what computes
    /// for long: it is no stranger's code, and counting costs a fifth of the time.
    pub counts: bool,
}

/// All of them.
pub const TABLE: [Entry; 5] = [
    Entry { name: "compaction", counts: false },
    Entry { name: "client-deactivation", counts: true },
    Entry { name: "share-expiry", counts: true },
    Entry { name: "ttl-transitions", counts: true },
    Entry { name: "reconciler", counts: true },
];
