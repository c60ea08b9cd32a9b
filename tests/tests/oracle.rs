//! Yjs itself judges what compaction makes of a document.
//!
//! `oracle/generate.mjs` writes update logs with Yjs, they are compacted by the binary end to
//! end (what the library does natively is judged beside it), and `oracle/judge.mjs` says whether
//! the content, the state vector and the deletions are the same bit by bit, and whether replicas
//! that kept the old log go on merging with the new one. Needs Node.js 18 with npm (Debian:
//! `nodejs npm`).

mod oracle {
    pub mod binary;
    pub mod node;
}
