//! The trait of a task, and its translation to the contract's exports.

use crate::bindings::besom::task::types as wire;
use crate::bindings::exports::besom::task::housekeeping::Guest;
use crate::store;
use crate::{Candidate, Context, Error, Item, Manifest, Page, Range, Result, Row, Verdict, log};

/// A task. Write [`describe`](Task::describe), [`candidates`](Task::candidates),
/// [`candidate`](Task::candidate) and [`act`](Task::act); override the others where one row
/// is not one candidate.
pub trait Task {
    /// What the task is, what it can be told, what it asks for.
    fn describe() -> Manifest;

    /// The rows that are candidates, as a range of a declared index: it serves both to find
    /// the tenants that have any and to scan each of them. The limit is the host's.
    fn candidates(ctx: &Context) -> Result<Range>;

    /// The candidate of a row of that range; none: it is not one after all. An error leaves
    /// the row out with a warning, so that one bad row never hides those behind it.
    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>>;

    /// One verdict per item, in their order; see [`each`]. An error fails the batch and is
    /// for what concerns all of it; what concerns one item is that item's verdict.
    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>>;

    /// The tenants after `after`, in order, that may have candidates.
    fn tenants(ctx: &Context, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        store::tenants(&Self::candidates(ctx)?, after, limit)
    }

    /// One page of at most `limit` candidates; `cursor` is what the page before returned as
    /// `next`.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let mut range = Self::candidates(ctx)?.limit(limit);
        range.after = cursor;
        let rows = store::page(None, &range)?;
        let scanned = rows.rows.len() as u64;
        let candidates = rows.rows.iter().filter_map(|row| match Self::candidate(ctx, row) {
            Ok(candidate) => candidate,
            Err(error) => {
                log::warn(format!("a row of {} is left out: {}", range.collection, error.message));
                None
            }
        });
        Ok(Page { candidates: candidates.collect(), next: rows.next, scanned, extra: Vec::new() })
    }
}

/// A verdict for each item and what was read for it. An error, of the reading or of the
/// decision, becomes the verdict of that item alone.
pub fn each<T>(
    items: &[Item],
    read: Vec<Result<T>>,
    mut decide: impl FnMut(&Item, T) -> Result<Verdict>,
) -> Result<Vec<Verdict>> {
    if read.len() != items.len() {
        let (read, items) = (read.len(), items.len());
        return Err(Error::permanent("contract", format!("{read} reads for {items} items")));
    }
    Ok(items
        .iter()
        .zip(read)
        .map(|(item, read)| read.and_then(|read| decide(item, read)).unwrap_or_else(Verdict::from))
        .collect())
}

impl<T: Task> Guest for T {
    fn describe() -> Manifest {
        T::describe()
    }

    fn tenants(ctx: wire::Context, after: Option<String>, limit: u32) -> Result<Vec<String>> {
        T::tenants(&ctx.into(), after.as_deref(), limit)
    }

    fn scan(ctx: wire::Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        T::scan(&ctx.into(), cursor, limit)
    }

    fn act(ctx: wire::Context, items: Vec<wire::Item>) -> Result<Vec<Verdict>> {
        let items: Vec<Item> =
            items.into_iter().enumerate().map(|(at, item)| Item::from_wire(at, item)).collect();
        T::act(&ctx.into(), &items)
    }
}
