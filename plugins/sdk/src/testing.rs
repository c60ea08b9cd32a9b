//! An in-memory host, so that the tests of a task run natively and in milliseconds.
//!
//! It answers reads and counts calls. It evaluates no guards and applies no changes, which are
//! tested with the host itself: the tests of a task inspect its verdicts.
#![cfg(not(target_arch = "wasm32"))]

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::bindings::besom::task::activity::State;
use crate::bindings::besom::task::deliveries::Delivery;
use crate::bindings::besom::task::log::Level;
use crate::bindings::besom::task::store::{Column, Columns, PackedBytes, Range, Rows};
use crate::{
    Candidate, Comparison, Condition, Context, Described, Error, Field, Filter, Item, ReadSetId,
    Result, RowKey, Task, Test, Time, Value, Verdict,
};

/// The page size of a scan in tests, small so that paging is always exercised.
const SCAN_ROWS: u32 = 2;

type Named = BTreeMap<String, Value>;

/// The in-memory host: tables, activity, messages, settings and the present.
#[derive(Clone, Debug)]
pub struct Fixture {
    now: Time,
    horizon_ms: u64,
    settings: Vec<Field>,
    unmapped: Vec<(String, String)>,
    described: Vec<Described>,
    tables: BTreeMap<String, Table>,
    activity: BTreeMap<String, State>,
    /// The latest message, by tenant, topic and key.
    deliveries: BTreeMap<(String, String, String), Delivery>,
    /// The tenant of each item of the current `act`; `scanned` is that of the current scan.
    tenants: Vec<Option<String>>,
    scanned: Option<String>,
    calls: usize,
    guard_retries: u32,
    logged: Vec<String>,
    /// The keys of the collected rows; the id of a read set is its index.
    read_sets: Vec<Vec<RowKey>>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    key: Vec<String>,
    indexes: BTreeMap<String, Vec<String>>,
    rows: Vec<(String, Named)>,
}

impl Table {
    /// The columns of the index of a range.
    fn index(&self, range: &Range) -> Result<&[String]> {
        let Some(name) = &range.index else { return Ok(&self.key) };
        self.indexes.get(name).map(Vec::as_slice).ok_or_else(|| {
            let message = format!("{} has no index {name}", range.collection);
            Error::permanent("no-such-index", message)
        })
    }
}

thread_local! {
    static HOST: RefCell<Option<Fixture>> = const { RefCell::new(None) };
}

/// Calls the host of the current test.
pub(crate) fn with<T>(f: impl FnOnce(&mut Fixture) -> T) -> T {
    HOST.with_borrow_mut(|host| {
        let Some(host) = host else {
            panic!("a native build has a host only inside the calls of a Fixture")
        };
        f(host)
    })
}

impl Fixture {
    /// An empty host whose present is `now`.
    pub fn new(now: Time) -> Fixture {
        Fixture {
            now,
            horizon_ms: 0,
            settings: Vec::new(),
            unmapped: Vec::new(),
            described: Vec::new(),
            tables: BTreeMap::new(),
            activity: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            tenants: Vec::new(),
            scanned: None,
            calls: 0,
            guard_retries: 0,
            logged: Vec::new(),
            read_sets: Vec::new(),
        }
    }

    /// Sets the present.
    pub fn at(mut self, now: Time) -> Fixture {
        self.now = now;
        self
    }

    /// Sets the time in milliseconds until the host calls `scan` again; 0 by default.
    pub fn horizon_ms(mut self, ms: u64) -> Fixture {
        self.horizon_ms = ms;
        self
    }

    /// Sets a setting; all others have their defaults. A duration is an integer of
    /// milliseconds.
    pub fn setting(mut self, name: &str, value: impl Into<Value>) -> Fixture {
        self.settings.push(Field { name: name.into(), value: value.into() });
        self
    }

    /// Sets the number of failed guards of every item from now on ([`Item::guard_retries`]).
    pub fn guard_retries(mut self, count: u32) -> Fixture {
        self.guard_retries = count;
        self
    }

    /// Removes an optional column from the mapping.
    pub fn unmapped(mut self, collection: &str, column: &str) -> Fixture {
        self.unmapped.push((collection.to_owned(), column.to_owned()));
        self
    }

    /// Adds an empty collection with its key columns (without the tenant) and its indexes.
    pub fn table(mut self, name: &str, key: &[&str], indexes: &[(&str, &[&str])]) -> Fixture {
        let owned = |columns: &[&str]| columns.iter().map(|&c| c.to_owned()).collect::<Vec<_>>();
        let indexes = indexes.iter().map(|(name, columns)| ((*name).to_owned(), owned(columns)));
        let table = Table { key: owned(key), indexes: indexes.collect(), rows: Vec::new() };
        self.tables.insert(name.into(), table);
        self
    }

    /// Describes a collection to the task: its columns have these types.
    ///
    /// # Panics
    /// If the collection was not added with [`Fixture::table`].
    pub fn described(mut self, name: &str, columns: &[(&str, &str)]) -> Fixture {
        let Some(table) = self.tables.get(name) else { panic!("no table {name}") };
        self.described.push(Described {
            collection: name.into(),
            key: table.key.clone(),
            columns: columns.iter().map(|&(name, ty)| (name.into(), ty.into())).collect(),
            indexes: table.indexes.clone().into_iter().collect(),
            partial: Vec::new(),
        });
        self
    }

    /// Adds a row to a collection.
    ///
    /// # Panics
    /// If the collection was not added with [`Fixture::table`].
    pub fn row<'a>(
        mut self,
        table: &str,
        tenant: &str,
        row: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Fixture {
        let columns = row.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let Some(table) = self.tables.get_mut(table) else { panic!("no table {table}") };
        table.rows.push((tenant.into(), columns));
        self
    }

    /// Sets the state of an activity key; all others are unknown.
    pub fn activity(mut self, key: &str, state: State) -> Fixture {
        self.activity.insert(key.into(), state);
        self
    }

    /// Sets the latest message that the task has emitted for a tenant, topic and key.
    pub fn delivery(mut self, tenant: &str, topic: &str, key: &str, found: Delivery) -> Fixture {
        self.deliveries.insert((tenant.into(), topic.into(), key.into()), found);
        self
    }

    /// Scans a tenant and returns the candidates of all pages.
    ///
    /// # Errors
    /// The error of the task's `scan`.
    ///
    /// # Panics
    /// If a required setting is missing, or a page has more candidates than requested.
    pub fn scan<T: Task>(&mut self, tenant: &str) -> Result<Vec<Candidate>> {
        self.scanned = Some(tenant.into());
        let ctx = self.context::<T>(Some(tenant));
        let (mut candidates, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.call(|| T::scan(&ctx, cursor.take(), SCAN_ROWS))?;
            let found = page.candidates.len();
            assert!(found <= SCAN_ROWS as usize, "{found} candidates, {SCAN_ROWS} were asked for");
            candidates.extend(page.candidates);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(candidates),
            }
        }
    }

    /// All tenants that the task reports to have candidates.
    ///
    /// # Errors
    /// The error of the task's `tenants`.
    pub fn tenants<T: Task>(&mut self) -> Result<Vec<String>> {
        let ctx = self.context::<T>(None);
        self.call(|| T::tenants(&ctx, None, u32::MAX))
    }

    /// The verdicts on candidates in one batch, each given with its tenant. Every item is at its
    /// first attempt.
    ///
    /// # Errors
    /// The error of the task's `act`.
    pub fn act<T: Task>(&mut self, candidates: &[(&str, Candidate)]) -> Result<Vec<Verdict>> {
        let ctx = self.context::<T>(None);
        let items: Vec<Item> = candidates
            .iter()
            .zip(0..)
            .map(|((tenant, candidate), index)| Item {
                index,
                tenant: Some((*tenant).to_owned()),
                key: candidate.key.clone(),
                route: candidate.route.clone().unwrap_or_else(|| candidate.key.clone()),
                due: candidate.due.map(Time),
                version: candidate.version.clone(),
                payload: candidate.payload.clone(),
                run: 1,
                attempt: 1,
                guard_retries: self.guard_retries,
                planned_at: self.now,
                extra: Vec::new(),
            })
            .collect();
        self.tenants = items.iter().map(|item| item.tenant.clone()).collect();
        self.call(|| T::act(&ctx, &items))
    }

    /// The number of calls of the host so far, except for logging.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// The lines logged so far.
    pub fn logged(&self) -> &[String] {
        &self.logged
    }

    /// The keys of the rows that a read set has collected, in the order they were read.
    pub fn read_set(&self, id: ReadSetId) -> &[RowKey] {
        &self.read_sets[id as usize]
    }

    fn context<T: Task>(&self, tenant: Option<&str>) -> Context {
        let declared = T::describe().settings.into_iter();
        let settings = declared.map(|setting| {
            let given = self.settings.iter().rev().find(|field| field.name == setting.name);
            let value = given.map(|field| field.value.clone()).or(setting.default);
            let Some(value) = value else { panic!("the setting {} is required", setting.name) };
            Field { name: setting.name, value }
        });
        Context {
            task: "test".into(),
            now: self.now,
            seed: 0,
            tenant: tenant.map(str::to_owned),
            horizon_ms: self.horizon_ms,
            settings: settings.collect(),
            unmapped: self.unmapped.clone(),
            described: self.described.clone(),
            extra: Vec::new(),
        }
    }

    /// Runs `f` with this fixture as the host that the task calls.
    fn call<T>(&mut self, f: impl FnOnce() -> T) -> T {
        HOST.set(Some(self.clone()));
        let result = f();
        *self = with(|host| host.clone());
        HOST.set(None);
        result
    }

    fn table_of(&self, name: &str) -> Result<&Table> {
        self.tables
            .get(name)
            .ok_or_else(|| Error::permanent("not-granted", format!("no collection {name}")))
    }

    fn tenant(&self, of: Option<u32>) -> Option<&str> {
        match of {
            Some(index) => self.tenants[index as usize].as_deref(),
            None => self.scanned.as_deref(),
        }
    }

    pub(crate) fn get_many(
        &mut self,
        of: Option<u32>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Vec<Value>>>> {
        self.calls += 1;
        let (table, tenant) = (self.table_of(collection)?, self.tenant(of));
        keys.iter()
            .map(|key| {
                let row = table.rows.iter().find(|(owner, row)| {
                    Some(owner.as_str()) == tenant
                        && table.key.iter().map(|c| &row[c]).eq(key.iter())
                });
                row.map(|(_, row)| project(row, columns)).transpose()
            })
            .collect()
    }

    pub(crate) fn read_range(&mut self, of: Option<u32>, range: &Range) -> Result<Rows> {
        self.calls += 1;
        let matching = self.matching(self.tenant(of), range)?;
        let start = match range.after.as_deref() {
            Some(cursor) => cursor.try_into().map_or(0, u64::from_le_bytes) as usize,
            None => 0,
        };
        let end = matching.len().min(start + range.limit as usize);
        let rows = matching[start..end].iter().map(|(_, row)| project(row, &range.columns));
        let rows = rows.collect::<Result<_>>()?;
        let next = (end < matching.len()).then(|| (end as u64).to_le_bytes().to_vec());
        let read_set = if range.collect {
            let key = &self.table_of(&range.collection)?.key;
            let keys: Vec<RowKey> = matching[start..end]
                .iter()
                .map(|(_, row)| key.iter().map(|column| row[column].clone()).collect())
                .collect();
            let id = range.into.unwrap_or_else(|| {
                self.read_sets.push(Vec::new());
                self.read_sets.len() as u64 - 1
            });
            self.read_sets[id as usize].extend(keys);
            Some(id)
        } else {
            None
        };
        Ok(Rows { rows, next, read_set })
    }

    pub(crate) fn read_columns(&mut self, of: Option<u32>, range: &Range) -> Result<Columns> {
        let Rows { rows, next, read_set } = self.read_range(of, range)?;
        let column = |at: usize| column(rows.iter().map(|row| row[at].clone()).collect());
        let columns = (0..range.columns.len()).map(column).collect();
        Ok(Columns { columns, count: rows.len() as u32, next, read_set })
    }

    pub(crate) fn count(
        &mut self,
        of: Option<u32>,
        filters: &[Filter],
        limit: u32,
    ) -> Result<Vec<u32>> {
        self.calls += 1;
        let tenant = self.tenant(of);
        let count = |filter: &Filter| {
            let rows = self.table_of(&filter.collection)?.rows.iter();
            let matching = rows.filter(|(owner, row)| {
                Some(owner.as_str()) == tenant && filter.conditions.iter().all(|c| holds(c, row))
            });
            Ok(matching.take(limit as usize).count() as u32)
        };
        filters.iter().map(count).collect()
    }

    pub(crate) fn distinct(
        &mut self,
        of: Option<u32>,
        range: &Range,
        after: Option<&Value>,
        limit: u32,
    ) -> Result<Vec<Value>> {
        self.calls += 1;
        let range = Range { descending: false, ..range.clone() };
        let column = &self.table_of(&range.collection)?.index(&range)?[range.prefix.len()];
        let rows = self.matching(self.tenant(of), &range)?;
        let values = rows.into_iter().map(|(_, row)| &row[column]);
        let mut values: Vec<Value> = values
            .filter(|value| **value != Value::Null)
            .filter(|value| {
                after.is_none_or(|after| compare(value, after).is_some_and(Ordering::is_gt))
            })
            .cloned()
            .collect();
        values.dedup();
        values.truncate(limit as usize);
        Ok(values)
    }

    pub(crate) fn tenants_of(
        &mut self,
        range: &Range,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<String>> {
        self.calls += 1;
        let matching = self.matching(None, range)?;
        let mut tenants: Vec<String> =
            matching.into_iter().map(|(tenant, _)| tenant.clone()).collect();
        tenants.sort();
        tenants.dedup();
        tenants.retain(|tenant| after.is_none_or(|after| tenant.as_str() > after));
        tenants.truncate(limit as usize);
        Ok(tenants)
    }

    pub(crate) fn states(&mut self, _: Option<u32>, keys: &[String]) -> Result<Vec<State>> {
        self.calls += 1;
        Ok(keys
            .iter()
            .map(|key| self.activity.get(key).copied().unwrap_or(State::Unknown))
            .collect())
    }

    pub(crate) fn deliveries(
        &mut self,
        of: Option<u32>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        self.calls += 1;
        let tenant = self.tenant(of).unwrap_or_default().to_owned();
        let place = |key: &String| (tenant.clone(), topic.to_owned(), key.clone());
        Ok(keys.iter().map(|key| self.deliveries.get(&place(key)).cloned()).collect())
    }

    pub(crate) fn log(&mut self, _: Level, message: &str) {
        self.logged.push(message.to_owned());
    }

    /// The rows of a range in its order; of all tenants if `tenant` is none.
    fn matching(&self, tenant: Option<&str>, range: &Range) -> Result<Vec<&(String, Named)>> {
        let table = self.table_of(&range.collection)?;
        let index = table.index(range)?;
        let bounded = index.get(range.prefix.len());
        let within = |row: &Named| {
            index.iter().zip(&range.prefix).all(|(column, value)| row[column] == *value)
                && bounded.is_none_or(|column| {
                    range.lower.as_ref().is_none_or(|lower| at_least(&row[column], lower))
                        && range.upper.as_ref().is_none_or(|upper| at_least(upper, &row[column]))
                })
                && range.conditions.iter().all(|condition| holds(condition, row))
        };
        let mut rows: Vec<_> = table
            .rows
            .iter()
            .filter(|(owner, row)| tenant.is_none_or(|t| t == owner) && within(row))
            .collect();
        rows.sort_by(|(_, a), (_, b)| {
            let order = index.iter().chain(&table.key).map(|c| compare(&a[c], &b[c]));
            order.fold(Ordering::Equal, |so_far, next| so_far.then(next.unwrap_or(Ordering::Equal)))
        });
        if range.descending {
            rows.reverse();
        }
        Ok(rows)
    }
}

/// Packs integers and byte strings as the host does; all other kinds stay values.
fn column(values: Vec<Value>) -> Column {
    let integers = values.iter().map(|value| match value {
        Value::Integer(integer) => Some(*integer),
        _ => None,
    });
    let bytes = values.iter().map(|value| match value {
        Value::Bytes(bytes) => Some(bytes.as_slice()),
        _ => None,
    });
    match (integers.collect::<Option<Vec<_>>>(), bytes.collect::<Option<Vec<_>>>()) {
        (Some(integers), _) if !values.is_empty() => Column::Integers(integers),
        (_, Some(bytes)) if !values.is_empty() => {
            let ends = bytes.iter().scan(0, |end, bytes| {
                *end += bytes.len() as u32;
                Some(*end)
            });
            Column::Bytes(PackedBytes { ends: ends.collect(), bytes: bytes.concat() })
        }
        _ => Column::Values(values),
    }
}

fn project(row: &Named, columns: &[String]) -> Result<Vec<Value>> {
    let value = |column: &String| {
        row.get(column)
            .cloned()
            .ok_or_else(|| Error::permanent("no-such-column", format!("no column {column}")))
    };
    columns.iter().map(value).collect()
}

fn holds(condition: &Condition, row: &Named) -> bool {
    let value = &row[&condition.column];
    match &condition.test {
        Test::Value(test) => compares(value, test.comparison, &test.value),
        Test::Column(test) => compares(value, test.comparison, &row[&test.column]),
        Test::OneOf(values) => values.contains(value),
        Test::NoneOf(values) => !values.contains(value),
        Test::StartsWith(beginning) => {
            matches!(value, Value::Text(text) if text.starts_with(beginning.as_str()))
        }
    }
}

fn compares(a: &Value, comparison: Comparison, b: &Value) -> bool {
    match comparison {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
        Comparison::Below => compare(a, b).is_some_and(Ordering::is_lt),
        Comparison::AtMost => at_least(b, a),
        Comparison::AtLeast => at_least(a, b),
        Comparison::Above => compare(a, b).is_some_and(Ordering::is_gt),
    }
}

fn at_least(value: &Value, bound: &Value) -> bool {
    compare(value, bound).is_some_and(Ordering::is_ge)
}

/// None if the kinds differ or cannot be ordered.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Integer(a), Value::Integer(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => {
            Some(a.cmp(b))
        }
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Uuid(a), Value::Uuid(b)) => Some(a.cmp(b)),
        (Value::Date(a), Value::Date(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
