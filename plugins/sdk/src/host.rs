//! The only module that calls the host: the imports in WebAssembly, the test's fixture in a native
//! build.

use crate::bindings::besom::task::activity::State;
use crate::bindings::besom::task::deliveries::Delivery;
use crate::bindings::besom::task::log::Level;
use crate::bindings::besom::task::store::{Columns, Range, Rows};
use crate::{Filter, Result, RowKey, Value};

type RawRow = Vec<Value>;

#[cfg(target_arch = "wasm32")]
mod imports {
    use super::*;
    use crate::bindings::besom::task::{activity, deliveries, log, store};

    pub(crate) fn get_many(
        of: Option<u32>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<RawRow>>> {
        store::get_many(of, collection, keys, columns)
    }

    pub(crate) fn read_range(of: Option<u32>, range: &Range) -> Result<Rows> {
        store::read_range(of, range)
    }

    pub(crate) fn read_columns(of: Option<u32>, range: &Range) -> Result<Columns> {
        store::read_columns(of, range)
    }

    pub(crate) fn count(of: Option<u32>, filters: &[Filter], limit: u32) -> Result<Vec<u32>> {
        store::count(of, filters, limit)
    }

    pub(crate) fn distinct(
        of: Option<u32>,
        range: &Range,
        after: Option<&Value>,
        limit: u32,
    ) -> Result<Vec<Value>> {
        store::distinct(of, range, after, limit)
    }

    pub(crate) fn tenants(range: &Range, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        store::tenants(range, after, limit)
    }

    pub(crate) fn states(of: Option<u32>, keys: &[String]) -> Result<Vec<State>> {
        activity::states(of, keys)
    }

    pub(crate) fn deliveries(
        of: Option<u32>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        deliveries::get_many(of, topic, keys)
    }

    pub(crate) fn log(level: Level, message: &str) {
        log::write(level, message);
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod imports {
    use super::*;
    use crate::testing;

    pub(crate) fn get_many(
        of: Option<u32>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<RawRow>>> {
        testing::with(|host| host.get_many(of, collection, keys, columns))
    }

    pub(crate) fn read_range(of: Option<u32>, range: &Range) -> Result<Rows> {
        testing::with(|host| host.read_range(of, range))
    }

    pub(crate) fn read_columns(of: Option<u32>, range: &Range) -> Result<Columns> {
        testing::with(|host| host.read_columns(of, range))
    }

    pub(crate) fn count(of: Option<u32>, filters: &[Filter], limit: u32) -> Result<Vec<u32>> {
        testing::with(|host| host.count(of, filters, limit))
    }

    pub(crate) fn distinct(
        of: Option<u32>,
        range: &Range,
        after: Option<&Value>,
        limit: u32,
    ) -> Result<Vec<Value>> {
        testing::with(|host| host.distinct(of, range, after, limit))
    }

    pub(crate) fn tenants(range: &Range, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
        testing::with(|host| host.tenants_of(range, after, limit))
    }

    pub(crate) fn states(of: Option<u32>, keys: &[String]) -> Result<Vec<State>> {
        testing::with(|host| host.states(of, keys))
    }

    pub(crate) fn deliveries(
        of: Option<u32>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        testing::with(|host| host.deliveries(of, topic, keys))
    }

    pub(crate) fn log(level: Level, message: &str) {
        testing::with(|host| host.log(level, message));
    }
}

pub(crate) use imports::*;
