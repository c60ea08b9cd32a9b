//! The imports: `store`, `activity`, `log`, `deliveries`.
//!
//! A call to an import ends in one of three ways: with its result; with an error record that the
//! guest can handle, if it requested something that it may not have or that does not exist; or with
//! a [`Halt`] that ends the call without the guest's fault, if the infrastructure failed.

use besom_core::ids::Tenant;
use besom_core::value::{RowKey, Value};
use besom_snapshot::Cause;
use wasmtime::component::HasData;

use super::access::{Operation, Refusal};
use super::bindings::besom::task::{activity, deliveries, log, store, types};
use super::bounds::{self, at_most};
use super::guest::{Guest, Halt, Scope};
use super::{columns, convert, page};
use besom_ports::activity::State;
use besom_ports::store::{self as port, Error as StoreError};

/// Maximum number of rows in one page of a range read.
const PAGE_ROWS_MAX: u32 = 10_000;
/// Approximate maximum size of the rows in one page, in bytes; applied by the snapshot.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of keys in one `get-many` or `states`.
const KEYS_MAX: usize = 10_000;
/// Maximum number of filters in one `count`.
const FILTERS_MAX: usize = 1_000;
/// Maximum length of an activity key or a message key, in bytes; the same as for keys that a task
/// emits or guards on.
const KEY_BYTES_MAX: usize = 1_024;
/// Maximum number of tenants in one `tenants`.
const TENANTS_MAX: u32 = 10_000;
/// Maximum size of a token that marks the end of a page, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of columns in one read: that of a PostgreSQL table.
const COLUMNS_MAX: usize = 1_600;
/// Maximum number of values in an index prefix and of columns in a key: that of a PostgreSQL index.
pub(super) const PREFIX_MAX: usize = 32;
/// Maximum length of a log line, in bytes; the rest is cut off.
const LINE_BYTES_MAX: usize = 4 * 1024;
/// Maximum number of lines that one call passes to the host's log. Further lines are only captured.
const LINES_MAX: u32 = 64;

/// A result, an error record, or the end of the call.
type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

/// Why an import fails, before it is converted for the guest.
enum Failure {
    Refused(Refusal),
    Halted(Halt),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Failure {
        Failure::Halted(halt)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            // The guest named a column or an index that does not exist.
            StoreError::Invalid(message) => Refusal::new("invalid-request", message).into(),
            StoreError::TooLarge(message) => Refusal::new("limit-exceeded", message).into(),
            StoreError::Refused(cause, message) => Halt::Refused(cause, message).into(),
            StoreError::Fenced
            | StoreError::Busy(_)
            | StoreError::Unavailable(_)
            | StoreError::Raised(_)
            | StoreError::TimedOut(_)
            | StoreError::GuardsTimedOut(_)
            | StoreError::Damaged(_)
            | StoreError::Denied(_)
            | StoreError::Unknown(_) => Halt::Infrastructure(error.to_string()).into(),
        }
    }
}

impl From<convert::Malformed> for Failure {
    fn from(message: convert::Malformed) -> Failure {
        Refusal::new("invalid-request", message).into()
    }
}

fn answer<T>(result: Result<T, Failure>) -> Answer<T> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Failure::Refused(Refusal { code, message })) => Ok(Err(types::Error {
            code: code.to_owned(),
            message,
            retryable: false,
            details: Vec::new(),
        })),
        Err(Failure::Halted(halt)) => Err(halt.into()),
    }
}

/// The length of the longest key, in bytes.
fn longest(keys: &[String]) -> usize {
    keys.iter().map(String::len).max().unwrap_or(0)
}

/// The type by which the linker finds the guest in its store.
pub(super) struct Imports;

impl HasData for Imports {
    type Data<'a> = &'a mut Guest;
}

impl Guest {
    /// Waits for a read. If it ends at the deadline of the call, the fault is with the side that
    /// used the time: a guest that computed for most of it is not excused by its last read.
    async fn read<T>(&mut self, read: impl Future<Output = port::Result<T>>) -> Result<T, Failure> {
        match self.wait(read).await {
            Err(StoreError::Refused(Cause::Slow, _)) => Err(self.clock.verdict().into()),
            answer => Ok(answer?),
        }
    }

    async fn rows_by_key(
        &mut self,
        of: Option<u32>,
        collection: String,
        keys: Vec<types::RowKey>,
        columns: Vec<String>,
    ) -> Result<Vec<Option<types::Row>>, Failure> {
        self.count_call()?;
        let (view, tenant) = (self.view()?, self.tenant(of)?);
        at_most("columns in one read", columns.len(), COLUMNS_MAX)?;
        bounds::once(&columns)?;
        let names = columns.iter().map(String::as_str);
        self.access.to_columns(&collection, Operation::Read, names)?;
        at_most("keys in one `get-many`", keys.len(), KEYS_MAX)?;
        let widest = keys.iter().map(Vec::len).max().unwrap_or(0);
        at_most("values in one key", widest, PREFIX_MAX)?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.rows_left(keys.len() as u64)?;
        let keys: Vec<RowKey> = keys.into_iter().map(convert::values).collect::<Result<_, _>>()?;
        let collection = self.access.collection(collection);
        let rows = view.snapshot.get_many(tenant.as_ref(), &collection, &keys, &columns);
        let rows = self.read(rows).await?;
        self.count_rows(keys.len() as u64);
        Ok(rows.into_iter().map(|row| row.map(convert::row_to_wit)).collect())
    }

    /// Converts a range for the snapshot, if access to everything in it is granted.
    fn range(&self, range: store::Range, limit: u32) -> Result<port::Range, Failure> {
        at_most("columns in one read", range.columns.len(), COLUMNS_MAX)?;
        bounds::once(&range.columns)?;
        at_most("values in `prefix`", range.prefix.len(), PREFIX_MAX)?;
        bounds::conditions(&range.conditions)?;
        let bounds = range.prefix.iter().chain(&range.lower).chain(&range.upper);
        bounds.clone().try_for_each(bounds::value)?;
        let named = range.columns.iter().map(String::as_str);
        let compared = bounds::named(&range.conditions);
        self.access.to_columns(&range.collection, Operation::Read, named.chain(compared))?;
        at_most("bytes in `after`", range.after.as_ref().map_or(0, Vec::len), TOKEN_BYTES_MAX)?;
        Ok(port::Range {
            index: range.index.filter(|name| !name.is_empty()),
            prefix: convert::values(range.prefix)?,
            lower: range.lower.map(convert::value).transpose()?,
            upper: range.upper.map(convert::value).transpose()?,
            conditions: convert::conditions(range.conditions)?,
            columns: range.columns,
            descending: range.descending,
            beyond: None,
            limit,
            bytes_max: PAGE_BYTES_MAX,
            scan_max: self.rows_left(0)?,
            after: range.after,
            keys: range.collect || range.into.is_some(),
            collection: self.access.collection(range.collection),
        })
    }

    async fn rows_in_range(
        &mut self,
        of: Option<u32>,
        range: store::Range,
    ) -> Result<store::Rows, Failure> {
        let (port::RangePage { rows, next, .. }, read_set) = self.page(of, range).await?;
        Ok(store::Rows {
            rows: rows.into_iter().map(convert::row_to_wit).collect(),
            next,
            read_set,
        })
    }

    async fn columns_in_range(
        &mut self,
        of: Option<u32>,
        range: store::Range,
    ) -> Result<store::Columns, Failure> {
        let width = range.columns.len();
        let (port::RangePage { rows, next, .. }, read_set) = self.page(of, range).await?;
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        Ok(store::Columns { columns: columns::to_wit(width, rows), count, next, read_set })
    }

    /// Reads a page of a range, and adds its rows to a read set.
    async fn page(
        &mut self,
        of: Option<u32>,
        range: store::Range,
    ) -> Result<(port::RangePage, Option<u64>), Failure> {
        self.count_call()?;
        let (view, tenant) = (self.view()?, self.tenant(of)?);
        let left = u32::try_from(self.rows_left(0)?).unwrap_or(u32::MAX);
        let into = range.into;
        let limit = range.limit.min(PAGE_ROWS_MAX).min(left);
        let range = self.range(range, limit)?;
        if let Some(id) = into {
            self.sets.get(id, &range.collection, tenant.as_ref())?;
        }
        let page = view.snapshot.read_range(tenant.as_ref(), &range);
        let mut page = self.read(page).await?;
        self.count_rows(page.scanned.max(page.rows.len() as u64));
        let keys = std::mem::take(&mut page.keys);
        let read_set = match range.keys {
            true => Some(self.sets.collect(into, &range.collection, tenant.as_ref(), keys)?),
            false => None,
        };
        Ok((page, read_set))
    }

    async fn counts(
        &mut self,
        of: Option<u32>,
        filters: Vec<types::Filter>,
        limit: u32,
    ) -> Result<Vec<u32>, Failure> {
        self.count_call()?;
        let (view, tenant) = (self.view()?, self.tenant(of)?);
        at_most("filters in one `count`", filters.len(), FILTERS_MAX)?;
        for filter in &filters {
            bounds::conditions(&filter.conditions)?;
            let compared = bounds::named(&filter.conditions);
            self.access.to_columns(&filter.collection, Operation::Read, compared)?;
        }
        let mut counts = Vec::with_capacity(filters.len());
        for filter in filters {
            let left = self.rows_left(1)?;
            let filter = convert::filter(filter)?;
            let collection = self.access.collection(filter.collection);
            let limit = limit.min(u32::try_from(left).unwrap_or(u32::MAX));
            let before = view.snapshot.looked_at();
            let count =
                view.snapshot.count(tenant.as_ref(), &collection, &filter.conditions, limit);
            let count = self.read(count).await?;
            let looked = view.snapshot.looked_at().saturating_sub(before);
            self.count_rows(looked.max(u64::from(count)).max(1));
            counts.push(count);
        }
        Ok(counts)
    }

    /// Reads one row for each value: the next one whose value is beyond the last.
    async fn distinct_in_range(
        &mut self,
        of: Option<u32>,
        range: store::Range,
        after: Option<types::Value>,
        limit: u32,
    ) -> Result<Vec<types::Value>, Failure> {
        self.count_call()?;
        let (view, tenant) = (self.view()?, self.tenant(of)?);
        at_most("values in one `distinct`", limit as usize, KEYS_MAX)?;
        after.iter().try_for_each(bounds::value)?;
        let mut range = self.range(range, 1)?;
        let (column, has_tenants) = view.snapshot.bounded(&range).map_err(Failure::from)?;
        if tenant.is_none() && has_tenants {
            return Err(Refusal::new(
                "not-available",
                "`distinct` on a collection with tenants needs an item, or a scan per tenant",
            )
            .into());
        }
        (range.after, range.keys, range.descending) = (None, false, false);
        range.columns = vec![column];
        range.beyond = Some(after.map(convert::value).transpose()?.unwrap_or(Value::Null));
        let mut values = Vec::new();
        while values.len() < limit as usize {
            range.scan_max = self.rows_left(1)?;
            let page = self.read(view.snapshot.read_range(tenant.as_ref(), &range)).await?;
            self.count_rows(page.scanned.max(1));
            range.after = page.next;
            if let Some(found) = page.rows.into_iter().next().and_then(|row| row.into_iter().next())
            {
                (range.beyond, range.after) = (Some(found.clone()), None);
                values.push(convert::to_wit(found));
            } else if range.after.is_none() {
                break;
            }
        }
        Ok(values)
    }

    async fn tenants_in_range(
        &mut self,
        range: store::Range,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<String>, Failure> {
        self.count_call()?;
        let view = self.view()?;
        // A call for one tenant must not learn about other tenants.
        if !matches!(self.scope, Scope::Tenants(_) | Scope::Scan(None)) {
            return Err(Refusal::new(
                "not-available",
                "only `tenants`, and a `scan` over all tenants, may call `store.tenants`",
            )
            .into());
        }
        let limit = limit.min(TENANTS_MAX);
        let range = self.range(range, limit)?;
        let (mut after, mut names) = (after.map(Tenant::from), Vec::new());
        loop {
            let left = u32::try_from(self.rows_left(0)?).unwrap_or(u32::MAX);
            let asked = (limit - names.len() as u32).min(left);
            let before = view.snapshot.looked_at();
            let found = view.snapshot.tenants(&range, after.as_ref(), asked);
            let found = self.read(found).await?;
            let looked = view.snapshot.looked_at().saturating_sub(before);
            self.count_rows(looked.max(found.len() as u64));
            let is_last = found.len() < asked as usize;
            after = found.last().cloned();
            for tenant in found {
                // Items of such a tenant could not be stored; the others need not wait for it.
                match page::is_tenant(tenant.as_str()) {
                    Ok(()) => names.push(tenant.as_str().to_owned()),
                    Err((_, words)) => {
                        let collection = &range.collection;
                        tracing::warn!(%collection, "{words}: its rows are left out");
                    }
                }
            }
            if is_last || names.len() >= limit as usize {
                break;
            }
        }
        if let Scope::Tenants(given) = &mut self.scope {
            given.extend(names.iter().cloned());
        }
        Ok(names)
    }

    async fn activity_of(
        &mut self,
        of: Option<u32>,
        keys: Vec<String>,
    ) -> Result<Vec<activity::State>, Failure> {
        self.count_call()?;
        let view = self.view()?;
        self.tenant(of)?;
        self.access.to_activity()?;
        at_most("keys in one `states`", keys.len(), KEYS_MAX)?;
        at_most("bytes in a key", longest(&keys), KEY_BYTES_MAX)?;
        let states = self.wait(view.activity.states(&keys)).await;
        let states = states.map_err(|error| Halt::Infrastructure(error.to_string()))?;
        Ok(states
            .into_iter()
            .map(|state| match state {
                State::Active => activity::State::Active,
                State::Waiting => activity::State::Waiting,
                State::Idle => activity::State::Idle,
                State::Unknown => activity::State::Unknown,
            })
            .collect())
    }

    async fn own_deliveries(
        &mut self,
        of: Option<u32>,
        topic: String,
        keys: Vec<String>,
    ) -> Result<Vec<Option<deliveries::Delivery>>, Failure> {
        self.count_call()?;
        let (view, tenant) = (self.view()?, self.tenant(of)?);
        self.access.to_topic(&topic)?;
        at_most("keys in one `get-many`", keys.len(), KEYS_MAX)?;
        at_most("bytes in a key", longest(&keys), KEY_BYTES_MAX)?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.rows_left(keys.len() as u64)?;
        let task = self.task.clone();
        let found = view.snapshot.deliveries(&task, tenant.as_ref(), &topic, &keys);
        let found = self.read(found).await?;
        self.count_rows(keys.len() as u64);
        Ok(found.into_iter().map(|found| found.map(convert::delivery_to_wit)).collect())
    }

    fn log_line(&mut self, level: log::Level, message: &str) -> Result<(), Halt> {
        self.count_call()?;
        let line = &message[..message.floor_char_boundary(LINE_BYTES_MAX)];
        let word = match level {
            log::Level::Debug => "debug",
            log::Level::Info => "info",
            log::Level::Warn => "warn",
            log::Level::Error => "error",
        };
        for part in [word, ": ", line, "\n"] {
            self.capture.push(part.as_bytes());
        }
        let Some(missing) = self.log.line(&self.task, word, line) else { return Ok(()) };
        if self.meter.lines >= LINES_MAX {
            return Ok(());
        }
        self.meter.lines += 1;
        let task = &self.task;
        if missing > 0 {
            tracing::warn!(
                target: "besom::task", %task,
                "{missing} log lines before this one exceeded the rate of the task and were dropped"
            );
        }
        // A control character could imitate another line or change the colour.
        let line = line.escape_debug();
        match level {
            log::Level::Debug => tracing::debug!(target: "besom::task", %task, "{line}"),
            log::Level::Info => tracing::info!(target: "besom::task", %task, "{line}"),
            log::Level::Warn => tracing::warn!(target: "besom::task", %task, "{line}"),
            log::Level::Error => tracing::error!(target: "besom::task", %task, "{line}"),
        }
        if self.meter.lines == LINES_MAX {
            tracing::warn!(
                target: "besom::task", %task,
                "more than {LINES_MAX} log lines in one call: the rest is dropped"
            );
        }
        Ok(())
    }
}

impl types::Host for Guest {}

impl store::Host for Guest {
    async fn get_many(
        &mut self,
        of: Option<u32>,
        collection: String,
        keys: Vec<types::RowKey>,
        columns: Vec<String>,
    ) -> Answer<Vec<Option<types::Row>>> {
        answer(self.rows_by_key(of, collection, keys, columns).await)
    }

    async fn read_range(&mut self, of: Option<u32>, range: store::Range) -> Answer<store::Rows> {
        answer(self.rows_in_range(of, range).await)
    }

    async fn read_columns(
        &mut self,
        of: Option<u32>,
        range: store::Range,
    ) -> Answer<store::Columns> {
        answer(self.columns_in_range(of, range).await)
    }

    async fn count(
        &mut self,
        of: Option<u32>,
        filters: Vec<types::Filter>,
        limit: u32,
    ) -> Answer<Vec<u32>> {
        answer(self.counts(of, filters, limit).await)
    }

    async fn distinct(
        &mut self,
        of: Option<u32>,
        range: store::Range,
        after: Option<types::Value>,
        limit: u32,
    ) -> Answer<Vec<types::Value>> {
        answer(self.distinct_in_range(of, range, after, limit).await)
    }

    async fn tenants(
        &mut self,
        range: store::Range,
        after: Option<String>,
        limit: u32,
    ) -> Answer<Vec<String>> {
        answer(self.tenants_in_range(range, after, limit).await)
    }
}

impl activity::Host for Guest {
    async fn states(&mut self, of: Option<u32>, keys: Vec<String>) -> Answer<Vec<activity::State>> {
        answer(self.activity_of(of, keys).await)
    }
}

impl deliveries::Host for Guest {
    async fn get_many(
        &mut self,
        of: Option<u32>,
        topic: String,
        keys: Vec<String>,
    ) -> Answer<Vec<Option<deliveries::Delivery>>> {
        answer(self.own_deliveries(of, topic, keys).await)
    }
}

impl log::Host for Guest {
    async fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        Ok(self.log_line(level, &message)?)
    }
}
