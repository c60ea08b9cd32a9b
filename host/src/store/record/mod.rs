//! The recorded forms of values, rows and sets of rows, which the databases' adapters share. This
//! module depends on none of them.

pub(crate) mod begun;
pub(crate) mod encoding;
pub(crate) mod images;
pub(crate) mod nodes;
pub(crate) mod readset;
pub(crate) mod room;

/// The reason of an item whose row a guard has seen but the database did not delete.
pub(crate) fn kept(collection: &str) -> String {
    format!(
        "the database did not delete a row of {collection:?}: a trigger, a rule or a policy \
         prevents it"
    )
}
