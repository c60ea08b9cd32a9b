//! What the conformance suite does not cover: the file, other processes, a full disk, violations
//! in the database's own words.

mod commit;
mod failures;
mod fixture;
mod mapping;
mod reads;
