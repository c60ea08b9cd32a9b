//! The meaning of the store's port, by subject.

pub mod anchors;
pub mod audit;
pub mod books;
pub mod changes;
pub mod claims;
pub mod commands;
pub mod dead_letters;
pub mod deaths;
pub mod dedup;
pub mod fence;
pub mod guards;
pub mod images;
pub mod infrastructure;
pub mod mapping;
pub mod ownership;
pub mod planning;
pub mod prune;
pub mod ranges;
pub mod read_sets;
pub mod settling;
pub mod slots;
pub mod snapshots;
pub mod streams;
pub mod tenants;
pub mod timers;
pub mod violations;
