//! How values, rows and sets of rows are recorded: what the databases' adapters share, because
//! it is the same whichever of them records it. It knows none of them.

pub(crate) mod begun;
pub(crate) mod encoding;
pub(crate) mod ends;
pub(crate) mod images;
pub(crate) mod nodes;
pub(crate) mod readset;
pub(crate) mod room;

/// Said of an item whose row a guard has seen, and the database has not deleted.
pub(crate) fn kept(collection: &str) -> String {
    format!(
        "the database keeps the row of {collection:?} that was to be deleted: a trigger, a rule or a policy"
    )
}
