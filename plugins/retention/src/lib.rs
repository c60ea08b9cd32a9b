//! Built-in task `retention`: deletes, moves or changes rows that are older than a given age, or than the newest
//! rows of their group, of any table that the configuration maps.
//!
//! ```toml
//! [tasks.old-sessions]
//! plugin = "retention"
//! schedule = "@hourly"
//! collections.rows = "sessions"
//! settings = { by = "expire_date", older_than = "14d" }
//! ```
//!
//! The host passes the mapping of `rows` with each call. [`plan`] turns it and the settings into a plan; the
//! host calls it as well when it reads the configuration, so that faults are found there.

pub mod condition;
mod hints;
mod newest;
mod sets;
mod token;

use std::cmp::Reverse;
use std::ops::Range as Bytes;

use besom_sdk::prelude::*;
use besom_sdk::{Comparison, Condition as Tested, Page, Range, scanned};

pub use besom_sdk::{Described, PartialIndex};
use condition::{Assignments, Columns, Condition, Kind};
pub use condition::{Fault, Written};
use newest::Keep;
use sets::Place;

/// Maximum number of rows that one run plans per tenant, unless the operator sets another.
const PLANNED_MAX: i64 = 100_000;
/// The number of rows of one item, unless the operator sets another.
const CHUNK: i64 = 500;
/// Maximum number of rows of one item.
const CHUNK_MAX: i64 = 10_000;
/// Maximum number of parts of an index that are read one after the other.
const PREFIXES_MAX: usize = 32;
/// Maximum number of conditions that are left to the database.
const IMPLIED_MAX: usize = 32;
/// Maximum size of the place of a row in a cursor, in bytes; the number of a part is before it.
const CURSOR_BYTES_MAX: usize = 4 * 1024 - 4;
/// A row that is set and would match again within this time would be changed by every run.
const SOON_MS: u64 = 60_000;
/// The first instant that every store can hold: the year 1.
const FIRST: Time = Time(-62_135_596_800_000_000);

/// The collection that the plugin works on.
pub const ROWS: &str = "rows";
/// The collection into which rows are moved.
pub const INTO: &str = "into";

/// What happens to a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// It is deleted.
    Delete,
    /// These columns are set.
    Set(Assignments),
    /// It is moved into the other collection.
    Archive,
}

/// The settings, as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The timestamp or date that tells the age of a row.
    pub by: String,
    /// The index to read by; empty: the one with the most columns that `where` fixes before `by`.
    pub index: String,
    /// Which rows are meant.
    pub condition: String,
    /// `delete`, `set` or `archive`.
    pub action: String,
    /// The columns that are set.
    pub set: String,
    /// How many of the newest rows of each group stay; 0: rows stay because of their age only.
    pub keep: i64,
    /// The column of which all rows of a group have the same value; empty: all rows are one group.
    pub per: String,
    /// The number of rows of one item; 0: each row is an item.
    pub chunk: i64,
}

/// A fault of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The setting.
    pub setting: &'static str,
    /// The bytes of its value that are wrong; none: the value as a whole.
    pub range: Option<Bytes<usize>>,
    /// What is wrong, and how to correct it.
    pub message: String,
}

/// What the task does with the rows of a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    by: String,
    /// Whether `by` is a date, and no timestamp.
    by_day: bool,
    way: Way,
    condition: Condition,
    /// The kinds of its columns.
    kinds: Vec<(String, Kind)>,
    action: Action,
}

/// How the rows are read: by the parts of an index in which its columns before `by` have these values, one after
/// the other.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    /// None: the key.
    index: Option<String>,
    /// At least one, of the same length; without the value of a group.
    prefixes: Vec<Vec<Value>>,
    /// Which rows stay whatever their age is.
    keep: Option<Keep>,
}

/// What a way has to serve.
struct Wanted<'a> {
    by: &'a str,
    condition: &'a Condition,
    keep: Option<&'a Keep>,
}

impl Way {
    /// The way by an index with these columns; none: it has a column before `by` that the condition does not fix
    /// and that names no groups, or too many parts.
    fn by(index: Option<&String>, columns: &[String], wanted: &Wanted<'_>) -> Option<Way> {
        let Wanted { by, condition, keep } = wanted;
        let before = columns.iter().position(|column| column == by)?;
        let before = &columns[..before];
        let keep =
            keep.map(|keep| keep.placed(before)).map_or(Some(None), |keep| keep.map(Some))?;
        let per = keep.as_ref().and_then(|keep| keep.per.as_ref());
        // A group has rows of one part.
        let parts_max = if keep.is_some() { 1 } else { PREFIXES_MAX };
        let mut prefixes = vec![Vec::new()];
        for column in before.iter().filter(|column| Some(*column) != per) {
            let values = condition.fixed(column)?;
            if prefixes.len() * values.len() > parts_max {
                return None;
            }
            let with = |prefix: &Vec<Value>| {
                let prefix = prefix.clone();
                values.iter().map(move |value| [&prefix[..], std::slice::from_ref(value)].concat())
            };
            prefixes = prefixes.iter().flat_map(with).collect();
        }
        Some(Way { index: index.cloned(), prefixes, keep })
    }

    /// The way by the index of that name, or by the one with the most fixed columns before `by`; of several, one that
    /// leaves out rows, then the key, then the one with the fewest columns.
    fn of(rows: &Described, name: &str, wanted: &Wanted<'_>) -> Result<Way, Wrong> {
        let Wanted { by, condition, keep } = wanted;
        let per = keep.and_then(|keep| keep.per.as_deref());
        let wrong = |setting, message| Err(Wrong { setting, range: None, message });
        let whole = rows.indexes.iter().map(|(name, columns)| (Some(name), columns, &[][..]));
        let partial =
            rows.partial.iter().map(|one| (Some(&one.name), &one.columns, &one.not_null[..]));
        let all = std::iter::once((None, &rows.key, &[][..])).chain(whole).chain(partial);
        // Rows that the index leaves out are not meant.
        let lost = |not_null: &[String]| {
            let may_be_null = |column: &&String| {
                let null = |of: &str| (of == column.as_str()).then_some(Value::Null);
                column != by && !condition.fails(&null, Time(0))
            };
            not_null.iter().find(may_be_null).cloned()
        };
        if name.is_empty() {
            let ways = all.filter_map(|(index, columns, not_null)| {
                let way = Way::by(index, columns, wanted).filter(|_| lost(not_null).is_none())?;
                let fixed = way.prefixes[0].len();
                let rank =
                    (Reverse(fixed), Reverse(not_null.len()), index.is_some(), columns.len());
                Some((rank, way))
            });
            let best = ways.min_by_key(|(rank, _)| *rank);
            return best.map(|(_, way)| way).map_or_else(
                || {
                    let message = match (per, keep) {
                        (Some(per), _) => format!(
                            "no mapped index begins with `{per}` and `{by}`, beside columns that `where` fixes to one \
                             value, so all rows would be read: create an index on both, and add it to the indexes of the \
                             collection"
                        ),
                        (None, Some(_)) => format!(
                            "no mapped index begins with `{by}`, or with columns that `where` fixes to one value before \
                             it, so all rows would be read: create an index on it, and add it to the indexes of the \
                             collection"
                        ),
                        (None, None) => format!(
                            "no mapped index begins with `{by}`, or with columns that `where` fixes before it, so all \
                             rows would be read: create an index on it, and add it to the indexes of the collection"
                        ),
                    };
                    wrong("by", message)
                },
                Ok,
            );
        }
        let Some((index, columns, not_null)) =
            all.clone().find(|(known, ..)| known.is_some_and(|known| known == name))
        else {
            let names: Vec<&str> =
                all.filter_map(|(known, ..)| known.map(String::as_str)).collect();
            let names = names.join(", ");
            return wrong("index", format!("there is no index `{name}`; the indexes are {names}"));
        };
        let Some(way) = Way::by(index, columns, wanted) else {
            let columns = columns.join(", ");
            let message = match (per, keep) {
                (Some(per), _) => format!(
                    "the index `{name}` ({columns}) does not begin with `{per}` and `{by}`, beside columns that `where` \
                     fixes to one value, as with `state = 'done'`"
                ),
                (None, Some(_)) => format!(
                    "the index `{name}` ({columns}) does not begin with `{by}`, and `where` does not fix the columns \
                     before it to one value, as with `state = 'done'`"
                ),
                (None, None) => format!(
                    "the index `{name}` ({columns}) does not begin with `{by}`, and `where` does not fix the columns \
                     before it, as with `state = 'done'` or `state in ('done', 'failed')`, to at most {PREFIXES_MAX} \
                     values"
                ),
            };
            return wrong("index", message);
        };
        match lost(not_null) {
            None => Ok(way),
            Some(column) => wrong(
                "index",
                format!(
                    "the index `{name}` has no rows whose `{column}` is null: add `{column} is not null` to `where`, \
                     or name another index"
                ),
            ),
        }
    }
}

struct Mapped<'a>(&'a Described);

impl Columns for Mapped<'_> {
    fn kind(&self, name: &str) -> Option<Kind> {
        let (_, ty) = self.0.columns.iter().find(|(known, _)| known == name)?;
        Kind::named(ty)
    }

    fn names(&self) -> Vec<String> {
        self.0.columns.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The plan for a collection. `into` is the collection into which rows are moved, if the task names one.
///
/// # Errors
/// The first fault of the settings.
pub fn plan(rows: &Described, into: Option<&Described>, rules: &Rules) -> Result<Plan, Wrong> {
    planned(rows, into, rules).map_err(|mut all| all.swap_remove(0))
}

/// All faults of the settings that are independent of each other. An empty `by` is none of them: a setting that is
/// missing is told by whoever reads the settings.
pub fn faults(rows: &Described, into: Option<&Described>, rules: &Rules) -> Vec<Wrong> {
    let mut all = planned(rows, into, rules).err().unwrap_or_default();
    all.retain(|wrong| wrong.setting != "by" || !rules.by.is_empty());
    all
}

fn whole(setting: &'static str, message: impl Into<String>) -> Wrong {
    Wrong { setting, range: None, message: message.into() }
}

fn within(setting: &'static str) -> impl Fn(Fault) -> Wrong {
    move |Fault { range, message }| Wrong { setting, range: Some(range), message }
}

/// The faults are at least one.
fn planned(rows: &Described, into: Option<&Described>, rules: &Rules) -> Result<Plan, Vec<Wrong>> {
    let mapped = Mapped(rows);
    let by = &rules.by;
    let mut all = Vec::new();
    let mut keep = |found: Wrong| all.push(found);
    let tells = tells_age(&mapped, by).map_err(&mut keep).is_ok();
    let condition =
        Condition::read(&rules.condition, &mapped).map_err(|f| keep(within("where")(f))).ok();
    let newest = Keep::read(rules, &mapped).map_err(&mut keep).ok();
    let way = condition.as_ref().filter(|_| tells).zip(newest.as_ref());
    let way = way.and_then(|(condition, newest)| {
        let wanted = Wanted { by, condition, keep: newest.as_ref() };
        Way::of(rows, &rules.index, &wanted).map_err(&mut keep).ok()
    });
    let action = action(rows, into, rules, condition.as_ref()).map_err(&mut keep).ok();
    if let (Some(condition), Some(Some(newest)), Some(action)) = (&condition, &newest, &action) {
        newest.faults(rules, condition, action).map(&mut keep);
    }
    let (Some(condition), Some(way), Some(action), true) = (condition, way, action, all.is_empty())
    else {
        return Err(all);
    };
    let by_day = mapped.kind(by) == Some(Kind::Date);
    let kinds = condition.columns().into_keys();
    let kinds = kinds.filter_map(|column| Some((column.to_owned(), mapped.kind(column)?)));
    let kinds = kinds.collect();
    Ok(Plan { by: by.clone(), by_day, way, condition, kinds, action })
}

/// Whether a column is a timestamp or a date.
fn tells_age(mapped: &Mapped<'_>, by: &str) -> Result<(), Wrong> {
    let message = match mapped.kind(by) {
        Some(Kind::Timestamp | Kind::Date) => return Ok(()),
        Some(Kind::Integer) => format!(
            "`{by}` is a number: if it counts since 1970, map it as {{ type = \"timestamp\", encoding = \
             \"seconds\" }} (or \"millis\"; an integer as it is counts microseconds, \"native\")"
        ),
        Some(Kind::Float | Kind::Decimal) => format!(
            "`{by}` is a number with a fraction, which tells no age: add a column that the database computes of \
             it, a timestamp or an integer, with an index, and map that one"
        ),
        Some(Kind::Text) => format!(
            "`{by}` is mapped as text, which tells no age: if its texts are instants in UTC, map it as {{ type = \
             \"timestamp\", encoding = \"rfc3339_millis\" }} (2026-01-31T08:00:00.000Z; docs/tables.md has the other \
             encodings), or if they are days such as 2026-01-31, as \"date\""
        ),
        Some(_) => {
            format!("`{by}` is no timestamp and no date, and tells no age: name one that is")
        }
        None => {
            let hint = hints::column(by, &mapped.names(), false);
            format!("there is no column `{by}`{hint}")
        }
    };
    Err(whole("by", message))
}

/// What happens to the rows. Without a condition, which has a fault, what is set is not compared with it.
fn action(
    rows: &Described,
    into: Option<&Described>,
    rules: &Rules,
    condition: Option<&Condition>,
) -> Result<Action, Wrong> {
    let mapped = Mapped(rows);
    let action = match rules.action.as_str() {
        "set" => {
            let set = condition::assignments(&rules.set, &mapped).map_err(within("set"))?;
            let of_key = |column: &&str| rows.key.iter().any(|own| own == column);
            if let Some(column) = set.columns().find(of_key) {
                let message = format!("`{column}` belongs to the key, which is never changed");
                return Err(whole("set", message));
            }
            // A column may round what it stores, so that the row would match for ever.
            let is_exact =
                |column: &str| !matches!(mapped.kind(column), Some(Kind::Float | Kind::Decimal));
            let is_tested = |column: &str| {
                let tested = |condition: &Condition| condition.columns().contains_key(column);
                column == rules.by || condition.is_none_or(tested) && is_exact(column)
            };
            if !set.set.iter().any(|(column, _)| is_tested(column)) {
                let message = "every row would match again at the next run: test a column in `where` that \
                               `set` changes, such as where = \"archived_at is null\" with set = \"archived_at = now\"";
                return Err(whole("set", message));
            }
            Action::Set(set)
        }
        _ if !rules.set.trim().is_empty() => {
            return Err(whole("set", "it has no effect without action = \"set\""));
        }
        "archive" => {
            let Some(into) = into else {
                let message = "name the collection into which the rows are moved: collections.into = \"NAME\"";
                return Err(whole("action", message));
            };
            fits(rows, into).map_err(|message| whole("action", message))?;
            Action::Archive
        }
        _ => Action::Delete,
    };
    if into.is_some() && action != Action::Archive {
        let message = "`collections.into` has no effect without action = \"archive\"";
        return Err(whole("action", message));
    }
    Ok(action)
}

/// The columns that `set` changes; none if it has a fault, or another action.
pub fn columns_set(rows: &Described, rules: &Rules) -> Vec<String> {
    let set = match rules.action.as_str() {
        "set" => condition::assignments(&rules.set, &Mapped(rows)).unwrap_or_default(),
        _ => condition::Assignments::default(),
    };
    set.columns().map(str::to_owned).collect()
}

/// The texts that `where` and `set` write out for columns, and NULL in `set`, with their setting.
pub fn written(rows: &Described, rules: &Rules) -> Vec<(&'static str, Written)> {
    let mapped = Mapped(rows);
    let compared = condition::compared_with(&rules.condition, &mapped);
    let set = match rules.action.as_str() {
        "set" => condition::set_to(&rules.set, &mapped),
        _ => Vec::new(),
    };
    let compared = compared.into_iter().map(|one| ("where", one));
    compared.chain(set.into_iter().map(|one| ("set", one))).collect()
}

/// Whether rows can be moved, as far as the mapping shows.
fn fits(rows: &Described, into: &Described) -> Result<(), String> {
    for (name, ty) in &rows.columns {
        let other = into.columns.iter().find(|(known, _)| known == name);
        match other.map(|(_, other)| other) {
            None => {
                return Err(format!(
                    "the rows have a column `{name}`, which the collection that they are moved into does not have"
                ));
            }
            Some(other) if other != ty => {
                return Err(format!(
                    "`{name}` is mapped as {ty}, and as {other} in the collection that the rows are moved into"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Plan {
    /// The index that it reads by; none: the key.
    pub fn index(&self) -> Option<&str> {
        self.way.index.as_deref()
    }

    /// The last value of `by` that is old enough. A day is as old as its beginning in UTC.
    fn oldest(&self, oldest: Time) -> Value {
        match self.by_day {
            true => Day::of(oldest).into(),
            false => oldest.into(),
        }
    }

    /// Whether a row is old enough and meant. A database that enforces no types may have a value of another kind,
    /// which meets no condition.
    fn takes(&self, value: &dyn Fn(&str) -> Value, now: Time, oldest: Time) -> bool {
        let is_old = match value(&self.by) {
            Value::Timestamp(at) => at <= oldest.micros(),
            Value::Date(day) => Day(day) <= Day::of(oldest),
            _ => false,
        };
        is_old && self.meets(value, now)
    }

    /// Whether a row has an age and is meant, however old it is.
    fn meets(&self, value: &dyn Fn(&str) -> Value, now: Time) -> bool {
        let tells = match value(&self.by) {
            Value::Timestamp(_) => !self.by_day,
            Value::Date(_) => self.by_day,
            _ => false,
        };
        let is_of_kind = |(column, kind): &(String, Kind)| kind.has(&value(column));
        tells && self.kinds.iter().all(is_of_kind) && self.condition.holds(value, now) == Some(true)
    }

    /// The columns that the decision depends on, without repetition.
    fn columns(&self) -> Vec<&str> {
        let mut all: Vec<&str> = vec![&self.by];
        for (column, _) in self.condition.columns() {
            if !all.contains(&column) {
                all.push(column);
            }
        }
        all
    }
}

/// The task.
#[derive(Debug)]
pub struct Retention;

/// What a call works with.
struct Call {
    plan: Plan,
    oldest: Time,
    /// The number of rows of one item; 0: each row is an item.
    chunk: u32,
}

fn call(ctx: &Context) -> Result<Call> {
    let chunk: i64 = ctx.setting("chunk")?;
    let rules = Rules {
        chunk,
        keep: ctx.setting("keep")?,
        per: ctx.setting("per")?,
        by: ctx.setting("by")?,
        index: ctx.setting("index")?,
        condition: ctx.setting("where")?,
        action: ctx.setting("action")?,
        set: ctx.setting("set")?,
    };
    let into = ctx.described(INTO).ok();
    let plan = plan(ctx.described(ROWS)?, into, &rules).map_err(
        |Wrong { setting, message, .. }| {
            Error::permanent("invalid-setting", format!("{setting}: {message}"))
        },
    )?;
    let oldest = ctx.now.minus_ms(ctx.duration_ms("older_than")?).max(FIRST);
    Ok(Call { plan, oldest, chunk: u32::try_from(chunk).unwrap_or_default() })
}

impl Call {
    /// The rows that may be taken, with their key and what the decision depends on, of the first part of the index.
    fn range(&self, ctx: &Context) -> Result<Range> {
        self.range_by(ctx, self.implied(ctx.now))
    }

    fn implied(&self, now: Time) -> condition::All {
        self.plan.condition.implied(now).into_iter().take(IMPLIED_MAX).collect()
    }

    /// The same by these conditions.
    fn range_by(&self, ctx: &Context, conditions: condition::All) -> Result<Range> {
        let columns = self.read_columns(ctx)?;
        Ok(self.range_of(conditions, &self.plan.way.prefixes[0]).columns(columns))
    }

    /// The key, and the columns that the decision depends on.
    fn read_columns<'a>(&'a self, ctx: &'a Context) -> Result<impl Iterator<Item = &'a str>> {
        let key = &ctx.described(ROWS)?.key;
        let others =
            self.plan.columns().into_iter().filter(|one| !key.iter().any(|own| own == one));
        Ok(key.iter().map(String::as_str).chain(others))
    }

    fn candidate(&self, ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        if !self.plan.takes(&values(row), ctx.now, self.oldest) {
            return Ok(None);
        }
        let Described { key, columns, .. } = ctx.described(ROWS)?;
        let value = |column: &String| {
            let value = row.value(column)?;
            let own = columns.iter().find(|(name, _)| name == column);
            let own = own.and_then(|(_, ty)| Kind::named(ty));
            // A database that enforces no types would not find the row by it again.
            match value == Value::Null || own.is_some_and(|own| !own.has(&value)) {
                true => Err(unfit(column, &value)),
                false => Ok(value),
            }
        };
        let candidate = Candidate::of(&key.iter().map(value).collect::<Result<Vec<_>>>()?)?;
        Ok(Some(match row.value(&self.plan.by)? {
            Value::Date(day) => candidate.version(Day(day)),
            _ => candidate.version(row.get::<Time>(&self.plan.by)?),
        }))
    }
}

fn unfit(column: &str, value: &Value) -> Error {
    let held = match value {
        Value::Null => "NULL",
        _ => "a value of another kind",
    };
    let message = format!("`{column}` holds {held}: correct the row, or map another key");
    Error::permanent(key::UNFIT, message)
}

fn values(row: &Row) -> impl Fn(&str) -> Value {
    |column| row.value(column).unwrap_or(Value::Null)
}

impl Task for Retention {
    fn describe() -> Manifest {
        let mut manifest = Manifest::new("retention", env!("CARGO_PKG_VERSION"))
            .doc("Deletes, moves or changes the rows of a collection that are older than an age, or than the newest of their group.")
            .setting(
                Setting::text("by", "")
                    .required()
                    .doc("The timestamp or date that tells the age of a row."),
            )
            .setting(
                Setting::duration("older_than", "0s")
                    .doc("How long ago `by` is at least. 0s: for a column that holds the expiry."),
            )
            .setting(Setting::text("where", "").doc(
                "Which rows are meant, such as `state = 'closed' and kept is null`; empty: all.",
            ))
            .setting(
                Setting::text("action", "delete")
                    .choices(["delete", "set", "archive"])
                    .doc("What happens to the rows."),
            )
            .setting(Setting::text("set", "").doc(
                "With action = \"set\": the columns that are set, such as `state = 'old', old_at = now`.",
            ))
            .setting(
                Setting::text("index", "")
                    .doc("The mapped index to read by; empty: the one with the most columns that `where` fixes before `by`."),
            )
            .setting(
                Setting::integer("chunk", CHUNK)
                    .minimum(0_i64)
                    .maximum(CHUNK_MAX)
                    .doc("The number of rows that are changed together; 0: each row by itself."),
            )
            .setting(
                Setting::integer("keep", 0_i64)
                    .minimum(0_i64)
                    .maximum(newest::KEEP_MAX)
                    .doc("How many of the newest rows of each group stay, whatever their age is; 0: age alone decides."),
            )
            .setting(Setting::text("per", "").doc(
                "With `keep`: the column of which all rows of a group have the same value; empty: all rows are one group.",
            ))
            .collection(Access::to(ROWS).described().read().update().delete())
            .collection(Access::to(INTO).described().insert().when_named());
        // Read by the host, as all settings that it uses itself.
        manifest.extra.push(besom_sdk::Field {
            name: "candidates_per_project".into(),
            value: PLANNED_MAX.into(),
        });
        manifest
    }

    /// Only tells which tenants are scanned, so several parts of the index are one range here.
    fn candidates(ctx: &Context) -> Result<Range> {
        let call = call(ctx)?;
        if call.plan.way.prefixes.len() == 1 && call.plan.way.keep.is_none() {
            return call.range(ctx);
        }
        let oldest = call.plan.oldest(call.oldest);
        let old = Tested::of(&call.plan.by, Comparison::AtMost, oldest);
        let conditions = call.implied(ctx.now).into_iter().chain([old]).collect();
        Ok(Range { index: call.plan.way.index, conditions, ..Range::of(ROWS) })
    }

    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        call(ctx)?.candidate(ctx, row)
    }

    /// As by default, but the settings are read once for each page and not for each row.
    fn scan(ctx: &Context, cursor: Option<Vec<u8>>, limit: u32) -> Result<Page> {
        let call = call(ctx)?;
        if let Some(keep) = &call.plan.way.keep {
            return call.scan_groups(ctx, keep, cursor, limit);
        }
        if call.sets(ctx.now).is_some() {
            return call.scan_sets(ctx, cursor, limit);
        }
        let Place { part, after } = call.place(cursor);
        let Some(prefix) = call.prefix(part) else { return Ok(sets::nothing()) };
        let range = Range { prefix: prefix.clone(), after, ..call.range(ctx)? };
        let mut page = call.scan_rows(ctx, range, limit)?;
        page.next = call.cursor(Place::past(part, page.next));
        Ok(page)
    }

    /// Reads the rows again, and guards each with the values that the decision depends on: a row that is
    /// changed before the commit is left for the next run.
    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let call = call(ctx)?;
        // A set has its place in the payload, a row in the key.
        let mut verdicts = Vec::with_capacity(items.len());
        for together in items.chunk_by(|a, b| a.payload.is_empty() == b.payload.is_empty()) {
            match together[0].payload.is_empty() {
                true => verdicts.extend(call.act_on_rows(ctx, together)?),
                false => verdicts.extend(
                    together
                        .iter()
                        .map(|item| call.act_on_set(ctx, item).unwrap_or_else(Verdict::from)),
                ),
            }
        }
        Ok(verdicts)
    }
}

impl Call {
    /// A page of rows. It ends at a row whose place fits into a cursor: rows with longer places are left out by their
    /// keys, and would otherwise keep the rows behind them.
    fn scan_rows(&self, ctx: &Context, mut range: Range, limit: u32) -> Result<Page> {
        let (mut page, mut size) = (sets::nothing(), limit);
        loop {
            range.limit = size;
            let mut more = match scanned(&range, |row| self.candidate(ctx, row)) {
                // What one call may read is used up.
                Err(error) if page.scanned > 0 && error.code == sets::LIMIT_EXCEEDED => {
                    return Ok(page);
                }
                more => more?,
            };
            let is_long = more.next.as_ref().is_some_and(|next| next.len() > CURSOR_BYTES_MAX);
            if is_long && size > 1 {
                size /= 2;
                continue;
            }
            page.scanned += more.scanned;
            page.candidates.append(&mut more.candidates);
            size = limit.saturating_sub(page.candidates.len() as u32);
            range.after = more.next;
            if !is_long || size == 0 {
                // The next run begins again, if all of the page were such rows.
                page.next = range.after.filter(|_| !is_long);
                return Ok(page);
            }
        }
    }

    fn act_on_rows(&self, ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let Call { plan, oldest, .. } = self;
        if plan.way.keep.is_some() {
            return Ok(items.iter().map(|_| Verdict::skip(sets::OTHERS)).collect());
        }
        let oldest = *oldest;
        let columns = plan.columns();
        let rows = store::get_each(items, ROWS, &columns, Item::key_values)?;
        each(items, rows, |item, row| {
            let Some(row) = row else { return Ok(Verdict::skip("already deleted")) };
            let value = values(&row);
            if !plan.takes(&value, ctx.now, oldest) {
                return Ok(Verdict::skip("changed since it was planned"));
            }
            let key = item.key_values()?;
            let mut guard = Guard::row(ROWS, key.clone()).equal(&plan.by, value(&plan.by));
            for (column, by_value) in plan.condition.columns() {
                guard = match value(column) {
                    found if by_value || found == Value::Null => guard.equal(column, found),
                    _ => guard.not_equal(column, Value::Null),
                };
            }
            let proposal = Proposal::new()
                .guard(guard)
                .or_skip("changed since it was read")
                .note(&plan.by, value(&plan.by));
            Ok(match &plan.action {
                Action::Delete => proposal.delete(ROWS, key).into(),
                Action::Archive => proposal.move_range(Range::of(ROWS).row(key), INTO).into(),
                Action::Set(set) => {
                    let columns: Vec<(&str, Value)> = set.set_at(ctx.now).collect();
                    let sum = |column: &str, value: Value| match value {
                        Value::Integer(was) => {
                            let by = set.added().find(|(name, _)| *name == column);
                            Value::Integer(was.saturating_add(by.map_or(0, |(_, by)| by)))
                        }
                        other => other,
                    };
                    let after = |column: &str| {
                        let own = columns.iter().find(|(name, _)| *name == column);
                        own.map_or_else(|| sum(column, value(column)), |(_, value)| value.clone())
                    };
                    // Also a moment later: `now` was set, and has passed.
                    let (later, limit) = (ctx.now.plus_ms(SOON_MS), oldest.plus_ms(SOON_MS));
                    if plan.takes(&after, ctx.now, oldest) || plan.takes(&after, later, limit) {
                        return Ok(Verdict::dead(
                            "the row would match again after it is set: correct `where` or `set`",
                        ));
                    }
                    match set.add.is_empty() {
                        true => proposal.update(ROWS, key, columns).into(),
                        false => {
                            let row = Range::of(ROWS).row(key);
                            proposal.update_range_adding(row, columns, set.added()).into()
                        }
                    }
                }
            })
        })
    }
}

besom_sdk::export!(Retention);

#[cfg(test)]
mod tests;
