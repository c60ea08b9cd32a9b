//! Compaction on SQLite and PostgreSQL while others are at work: the component reads in one snapshot,
//! something happens in the database, and only then is its proposal committed.

mod compaction {
    pub mod chain;
    pub mod concurrency;
    pub mod long;
    pub mod memory;
    pub mod modes;
    pub mod order;
    pub mod states;
    pub mod verify;
}
