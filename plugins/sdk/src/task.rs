//! The trait that a task implements, and its translation to the exports of the contract.

use crate::bindings::besom::task::types as wire;
use crate::bindings::exports::besom::task::housekeeping::Guest;
use crate::key::UNFIT;
use crate::store;
use crate::{Candidate, Context, Error, Item, Manifest, Page, Range, Result, Row, Verdict, log};

/// A task. Implement [`describe`](Task::describe), [`candidates`](Task::candidates),
/// [`candidate`](Task::candidate) and [`act`](Task::act); override the other functions if one
/// row is not one candidate.
pub trait Task {
    /// The task's name, settings and requested rights. Called when the plugin is loaded.
    fn describe() -> Manifest;

    /// The rows that may be candidates, as a range of a declared index. The range is used to
    /// find the tenants that have candidates, and to scan each of them. The host sets its limit.
    ///
    /// # Errors
    /// An error fails the scan.
    fn candidates(ctx: &Context) -> Result<Range>;

    /// The candidate for a row of that range; none: the row is not a candidate.
    ///
    /// # Errors
    /// An error excludes the row and logs a warning, so that one invalid row does not block the
    /// rows after it. The host counts rows with the error `unfit-key` as left out.
    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>>;

    /// One verdict per item, in their order; see [`each`].
    ///
    /// # Errors
    /// An error fails the whole batch. Report a problem of one item as the verdict of that item.
    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>>;

    /// At most `limit` tenants after `after`, in order, that may have candidates. By default
    /// those with rows in the range of [`candidates`](Task::candidates).
    ///
    /// # Errors
    /// An error fails the scan.
    fn tenants(ctx: &Context, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        store::tenants(&Self::candidates(ctx)?, after, limit)
    }

    /// One page of at most `limit` candidates; `cursor` is the `next` of the previous page.
    ///
    /// # Errors
    /// An error fails the scan.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let mut range = Self::candidates(ctx)?.limit(limit);
        range.after = cursor;
        scanned(&range, |row| Self::candidate(ctx, row))
    }
}

/// Reads a page of a range and returns the candidates among its rows. An error of `candidate`
/// excludes the row and logs a warning. For a row with the error `unfit-key` a candidate with an empty key and
/// the message as its version is returned, which the host leaves out, counts and tells of.
///
/// # Errors
/// The page cannot be read.
pub fn scanned(
    range: &Range,
    mut candidate: impl FnMut(&Row) -> Result<Option<Candidate>>,
) -> Result<Page> {
    let rows = store::page(None, range)?;
    let scanned = rows.rows.len() as u64;
    let candidates = rows.rows.iter().filter_map(|row| match candidate(row) {
        Ok(candidate) => candidate,
        Err(error) => {
            log::warn(format!("skipped a row of {}: {}", range.collection, error.message));
            (error.code == UNFIT).then(|| Candidate::new("").version(error.message))
        }
    });
    Ok(Page { candidates: candidates.collect(), next: rows.next, scanned, extra: Vec::new() })
}

/// Calls `decide` with each item and what was read for it. An error of the read or of `decide`
/// becomes the verdict of that item alone: a retry if the error is retryable, otherwise dead.
///
/// # Errors
/// `contract` if `read` and `items` differ in length.
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
