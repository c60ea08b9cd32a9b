//! Compaction on SQLite and PostgreSQL beside other writers: the component reads in one snapshot,
//! the database changes, and only then is its proposal committed.

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
