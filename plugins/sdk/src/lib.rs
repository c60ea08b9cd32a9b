//! The SDK for Besom tasks in Rust.
//!
//! A task finds rows that are no longer needed ([`Task::candidates`],
//! [`Task::candidate`]) and decides what happens to each ([`Task::act`]). It never
//! writes: it returns [`Verdict`]s, and the host applies the proposed changes in one
//! transaction after it has checked their guards.
//!
//! ```
//! use besom_sdk::prelude::*;
//!
//! struct Drafts;
//!
//! impl Task for Drafts {
//!     fn describe() -> Manifest {
//!         Manifest::new("drafts", env!("CARGO_PKG_VERSION"))
//!             .doc("Deletes drafts that have not changed for a month.")
//!             .setting(Setting::duration("older_than", "30d").doc("Age at deletion."))
//!             .collection(Access::to("drafts").read().delete().columns(["draft_id", "touched_at"]))
//!     }
//!
//!     fn candidates(ctx: &Context) -> Result<Range> {
//!         let oldest = ctx.now.minus_ms(ctx.duration_ms("older_than")?);
//!         Ok(Range::of("drafts").index("by_touched").upper(oldest).columns(["draft_id", "touched_at"]))
//!     }
//!
//!     fn candidate(_: &Context, row: &Row) -> Result<Option<Candidate>> {
//!         let touched: Time = row.get("touched_at")?;
//!         Ok(Some(Candidate::of(&[row.value("draft_id")?])?.version(touched)))
//!     }
//!
//!     fn act(_: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
//!         let rows = store::get_each(items, "drafts", &["touched_at"], |item| item.key_values())?;
//!         each(items, rows, |item, row| {
//!             let Some(row) = row else { return Ok(Verdict::skip("already deleted")) };
//!             let touched: Time = row.get("touched_at")?;
//!             let key = item.key_values()?;
//!             Ok(Proposal::new()
//!                 .guard(Guard::row("drafts", key.clone()).equal("touched_at", touched))
//!                 .delete("drafts", key)
//!                 .into())
//!         })
//!     }
//! }
//!
//! besom_sdk::export!(Drafts);
//! ```
//!
//! The host's imports exist only in WebAssembly. In a native build, the same calls reach
//! the in-memory host that a test has set up with [`testing`].

#[doc(hidden)]
pub mod bindings;

pub mod activity;
// Without atomics there is one thread, as the allocator requires.
#[cfg(any(
    test,
    all(feature = "allocator", target_family = "wasm", not(target_feature = "atomics"))
))]
mod allocator;
mod candidate;
mod columns;
mod context;
pub mod deliveries;
mod error;
mod host;
pub mod key;
pub mod log;
mod manifest;
mod proposal;
mod row;
pub mod store;
mod task;
pub mod testing;
mod time;
mod value;

pub use bindings::besom::task::store::Range;
pub use bindings::besom::task::types::{
    Candidate, Change, ColumnGuard, Comparison, Condition, Error, Field, Filter, Guard,
    GuardFailed, Lane, Manifest, Operations, Page, Proposal, ReadSetId, RowKey, RowRange, Setting,
    SettingKind, Test, Value, Verdict,
};
pub use context::{Context, Described, Item, PartialIndex};
pub use manifest::Access;
pub use row::Row;
pub use task::{Task, each, scanned};
pub use time::{Day, Time, parse_duration_ms};
pub use value::FromValue;

/// The result of a function that calls the host or decodes what the host returned.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The names that most tasks need: `use besom_sdk::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Access, Candidate, Comparison, Context, Day, Error, Filter, Guard, Item, Lane, Manifest,
        Proposal, Range, Result, Row, Setting, Task, Time, Value, Verdict, activity, deliveries,
        each, key, log, store,
    };
}

/// Exports a [`Task`] as the component's `besom:task/housekeeping`. Call it once per crate,
/// with the name of a type of that crate. In a native build it exports nothing, so that the
/// crate can have ordinary tests.
#[macro_export]
macro_rules! export {
    ($task:ident) => {
        #[cfg(target_arch = "wasm32")]
        $crate::bindings::export_world!($task with_types_in $crate::bindings);
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn() -> $crate::Manifest = <$task as $crate::Task>::describe;
    };
}
