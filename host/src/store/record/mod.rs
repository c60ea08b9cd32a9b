//! How values, rows and sets of rows are recorded: what the databases' adapters share, because
//! it is the same whichever of them records it. It knows none of them.

pub(crate) mod begun;
pub(crate) mod encoding;
pub(crate) mod ends;
pub(crate) mod images;
pub(crate) mod nodes;
pub(crate) mod readset;
pub(crate) mod room;
