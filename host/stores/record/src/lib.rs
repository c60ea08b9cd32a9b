//! The recorded forms of rows, batches and reports, which the store adapters share. This crate
//! depends on no database.

pub mod begun;
pub mod images;
pub mod nodes;

/// The reason of an item whose row a guard has seen but the database did not delete.
pub fn kept(collection: &str) -> String {
    format!(
        "the database did not delete a row of {collection:?}: a trigger, a rule or a policy \
         prevents it"
    )
}
