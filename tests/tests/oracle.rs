//! Yjs itself judges what compaction makes of a document.
//!
//! `oracle/generate.mjs` writes update logs with Yjs, the binary compacts them end to end (native
//! results of the library are judged as well), and `oracle/judge.mjs` decides whether content,
//! state vector and deletions are the same bit for bit, and whether replicas with the old log still
//! merge with the new one. Needs Node.js 18 with npm (Debian: `nodejs npm`).

mod oracle {
    pub mod binary;
    pub mod node;
}
