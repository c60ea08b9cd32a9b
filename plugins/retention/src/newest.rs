//! The newest rows of each group, which stay (`keep` and `per`). A row goes only if at least `keep` rows of its group
//! are newer, so rows of the same instant as the last one that stays stay as well. A guard counts the newer rows
//! again in the commit.

use besom_sdk::prelude::*;
use besom_sdk::{Comparison, Condition as Tested, Filter, Page, Range, RowRange};

use crate::condition::{All, Columns, Condition, Kind};
use crate::sets::{self, Part};
use crate::{Action, Call, Mapped, ROWS, Rules, SOON_MS, Wrong, hints, values, whole};

/// Maximum number of rows of a group that stay: so many rows a guard counts.
pub(crate) const KEEP_MAX: i64 = 1_000;
/// Maximum number of groups whose rows one call of the host counts.
const BATCH_MAX: u32 = 64;
/// Maximum number of rows that one call of the host counts.
const COUNTED: u32 = 8_192;
/// Maximum number of such calls for one page of candidates.
const BATCHES: u32 = 16;
/// Maximum size of the value of a group in a cursor or an item, in bytes as a key.
const GROUP_BYTES_MAX: usize = 1_024;

/// Which rows stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keep {
    /// The number of rows of each group, at least.
    pub(crate) rows: u32,
    /// The column of which all rows of a group have the same value; none: all rows are one group.
    pub(crate) per: Option<String>,
    /// The number of columns of the index before that column.
    before: usize,
}

impl Keep {
    /// The rule of the settings; none: no rows stay because of their number.
    pub(crate) fn read(rules: &Rules, mapped: &Mapped<'_>) -> Result<Option<Keep>, Wrong> {
        let per = &rules.per;
        let rows = u32::try_from(rules.keep).unwrap_or_default();
        match (rows, &per[..]) {
            (0, "") => return Ok(None),
            (0, _) => {
                let message =
                    "it has no effect without `keep`, the number of rows that stay of each group";
                return Err(whole("per", message));
            }
            (_, "") => return Ok(Some(Keep { rows, per: None, before: 0 })),
            _ => {}
        }
        let message = match mapped.kind(per) {
            Some(Kind::Integer | Kind::Text | Kind::Uuid | Kind::Bytes | Kind::Date) => {
                return Ok(Some(Keep { rows, per: Some(per.clone()), before: 0 }));
            }
            Some(_) => format!(
                "the values of `{per}` do not name groups: name a column of integers, texts, UUIDs, bytes or dates"
            ),
            None => {
                let hint = hints::column(per, &mapped.names(), false);
                format!("there is no column `{per}`{hint}")
            }
        };
        Err(whole("per", message))
    }

    /// The rule with its place in an index of these columns; none: the column is not before `by`.
    pub(crate) fn placed(&self, before: &[String]) -> Option<Keep> {
        let Some(per) = &self.per else { return Some(self.clone()) };
        let before = before.iter().position(|column| column == per)?;
        Some(Keep { before, ..self.clone() })
    }

    /// The faults of settings that do not go with the rule. The database counts the rows that stay, and changes the
    /// others together.
    pub(crate) fn faults(
        &self,
        rules: &Rules,
        condition: &Condition,
        action: &Action,
    ) -> Option<Wrong> {
        if rules.chunk == 0 {
            return Some(whole("chunk", "with `keep`, it is at least 1"));
        }
        if condition.exact(Time(0), 1).is_none() {
            let message = "with `keep`, rows are counted by conditions that are joined by `and` and that all databases \
                           compare alike: no `or` (for one column, `in`), no `=` or `!=` with instants, no floats, no \
                           decimals";
            return Some(whole("where", message));
        }
        if matches!(action, Action::Set(_)) && !leaves(condition, action) {
            let message =
                "with `keep`, what is set has to make `where` false, whatever else is in the row";
            return Some(whole("set", message));
        }
        None
    }
}

/// Whether no row meets the condition once it is set.
pub(crate) fn leaves(condition: &Condition, action: &Action) -> bool {
    let Action::Set(set) = action else { return true };
    let value = |column: &str| {
        set.set.iter().find(|(name, _)| name == column).map(|(_, literal)| literal.at(Time(0)))
    };
    [0, SOON_MS].into_iter().all(|ms| condition.fails(&value, Time(0).plus_ms(ms)))
}

/// Where a scan goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    /// The name of the group; empty: the only one, or none yet.
    group: String,
    /// The place in that group; none: behind it.
    after: Option<Vec<u8>>,
}

impl Place {
    fn pack(&self) -> Vec<u8> {
        let mut bytes = (self.group.len() as u32).to_le_bytes().to_vec();
        bytes.extend(self.group.as_bytes());
        bytes.push(self.after.is_some().into());
        bytes.extend(self.after.iter().flatten());
        bytes
    }

    fn unpack(mut bytes: &[u8]) -> Option<Place> {
        let length = sets::number(&mut bytes)?;
        let (group, rest) = bytes.split_at_checked(length as usize)?;
        let (is_within, after) = rest.split_first()?;
        let group = String::from_utf8(group.to_vec()).ok()?;
        Some(Place { group, after: (*is_within == 1).then(|| after.to_vec()) })
    }
}

/// A group.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    /// The value as a key after a mark, as it may be empty; empty: all rows are one group.
    name: String,
    value: Option<Value>,
}

/// What is before the value of a group in its name.
const MARK: char = '=';

impl Group {
    /// None: its value is too long, or of another kind than its column.
    fn of(value: Value) -> Option<Group> {
        let name = format!("{MARK}{}", key::encode(std::slice::from_ref(&value)).ok()?);
        (name.len() <= GROUP_BYTES_MAX).then_some(Group { name, value: Some(value) })
    }

    /// The group of an item; none: it was planned by other settings.
    fn named(name: &str, keep: &Keep) -> Option<Group> {
        match (name, &keep.per) {
            ("", None) => Some(Group { name: String::new(), value: None }),
            ("", _) | (_, None) => None,
            (name, Some(_)) => {
                let value = key::decode(name.strip_prefix(MARK)?).ok()?.pop()?;
                Some(Group { name: name.to_owned(), value: Some(value) })
            }
        }
    }
}

impl Call {
    /// The conditions that the rows of all groups meet; none: other settings are needed.
    fn counted(&self, now: Time) -> Option<All> {
        let mut lists = self.sets(now)?;
        lists.pop().filter(|_| lists.is_empty())
    }

    /// The rows of the index with the values that `where` fixes before the column of the groups.
    fn all_groups(&self, keep: &Keep, conditions: All) -> Range {
        let mut range = Range::of(ROWS);
        range.index.clone_from(&self.plan.way.index);
        range.prefix = self.plan.way.prefixes[0][..keep.before].to_vec();
        range.conditions = conditions;
        range
    }

    /// All rows of a group with a value in `by`.
    fn group(&self, keep: &Keep, group: &Group, mut conditions: All) -> Range {
        conditions.push(Tested::of(&self.plan.by, Comparison::NotEqual, Value::Null));
        let mut range = self.all_groups(keep, conditions);
        range.prefix.extend(group.value.clone());
        range.prefix.extend_from_slice(&self.plan.way.prefixes[0][keep.before..]);
        range
    }

    /// The rows of a group that meet the conditions, and these.
    fn filter(&self, keep: &Keep, group: &Group, conditions: All) -> Filter {
        let mut filter = Filter { collection: ROWS.to_owned(), conditions };
        if let (Some(per), Some(value)) = (&keep.per, &group.value) {
            filter = filter.equal(per, value.clone());
        }
        filter.not_null(&self.plan.by)
    }

    /// The instant of the last of the newest rows that stay; none: the group has no others.
    fn last_kept(
        &self,
        of: Option<&Item>,
        (keep, group): (&Keep, &Group),
        conditions: All,
        now: Time,
    ) -> Result<Option<Value>> {
        let newest = self.group(keep, group, conditions).columns(self.plan.columns()).descending();
        let (mut seen, mut last_kept) = (0, None);
        for row in store::rows(of, newest.limit(keep.rows + 1)) {
            let row = row?;
            // A database that enforces no types compares values of any.
            if !self.plan.meets(&values(&row), now) {
                continue;
            }
            if seen == keep.rows {
                return Ok(last_kept);
            }
            seen += 1;
            last_kept = Some(row.value(&self.plan.by)?);
        }
        Ok(None)
    }

    /// The rows of a group that are older than the last one that stays, and old enough.
    fn beneath(
        &self,
        (keep, group): (&Keep, &Group),
        last_kept: &Value,
        mut conditions: All,
    ) -> Range {
        conditions.push(Tested::of(&self.plan.by, Comparison::Below, last_kept.clone()));
        self.group(keep, group, conditions).upper(self.plan.oldest(self.oldest))
    }

    /// Items for the rows of each group beyond those that stay.
    pub(crate) fn scan_groups(
        &self,
        ctx: &Context,
        keep: &Keep,
        cursor: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<Page> {
        let begin = match &cursor {
            Some(cursor) => Place::unpack(cursor),
            None => Some(Place::default()),
        };
        let (Some(conditions), Some(begin)) = (self.counted(ctx.now), begin) else {
            return Ok(sets::nothing());
        };
        let at = begin.clone();
        let mut walk = Walk {
            call: self,
            ctx,
            keep,
            conditions,
            limit,
            page: sets::nothing(),
            at,
            left_out: 0,
        };
        let is_over = match walk.run() {
            // What one call may read is used up.
            Err(error) if error.code == sets::LIMIT_EXCEEDED && walk.at != begin => false,
            is_over => is_over?,
        };
        let mut page = walk.page;
        page.next = (!is_over).then(|| walk.at.pack());
        // As for a row with such a key: the host counts it and tells of it.
        let per = keep.per.as_deref().unwrap_or_default();
        let message = format!("a value of `{per}` is too long or of another kind");
        let room = (limit as usize).saturating_sub(page.candidates.len());
        let left_out = Candidate::new("").version(message);
        page.candidates.extend(std::iter::repeat_n(left_out, room.min(walk.left_out)));
        Ok(page)
    }

    /// The range of an item and the guard that keeps enough newer rows, or why nothing is to be changed.
    pub(crate) fn beyond_newest(
        &self,
        ctx: &Context,
        keep: &Keep,
        (item, part): (&Item, &Part),
    ) -> Result<std::result::Result<(RowRange, Guard), &'static str>> {
        let Some(conditions) = self.counted(ctx.now) else { return Ok(Err(sets::OTHERS)) };
        let group = part.group.as_deref().and_then(|name| Group::named(name, keep));
        let Some(group) = group else { return Ok(Err(sets::OTHERS)) };
        let of = (keep, &group);
        let Some(last_kept) = self.last_kept(Some(item), of, conditions.clone(), ctx.now)? else {
            return Ok(Err("its group has no more rows than stay"));
        };
        let newer = self.filter(keep, &group, conditions.clone());
        let newer = newer.at_least(&self.plan.by, last_kept.clone()).at_least_rows(keep.rows);
        let range = self.beneath(of, &last_kept, conditions);
        Ok(Ok((range.part(part.after.clone(), part.until.clone(), part.rows), newer)))
    }
}

/// One page of a scan.
struct Walk<'a> {
    call: &'a Call,
    ctx: &'a Context,
    keep: &'a Keep,
    conditions: All,
    /// Maximum number of candidates.
    limit: u32,
    page: Page,
    /// Where the next page goes on, if this one ends.
    at: Place,
    /// The number of groups whose value cannot be part of a cursor.
    left_out: usize,
}

impl Walk<'_> {
    /// Whether all groups are done; otherwise the page is full.
    fn run(&mut self) -> Result<bool> {
        let mut last = Group::named(&self.at.group, self.keep);
        if let (Some(group), Some(after)) = (&last, self.at.after.clone())
            && !self.group(group, Some(after))?
        {
            return Ok(false);
        }
        if self.keep.per.is_none() {
            let all = last.filter(|_| self.at.after.is_none());
            return all.map_or(Ok(true), |all| self.group(&all, None));
        }
        let mut last = last.take().and_then(|group| group.value);
        let all = self.call.all_groups(self.keep, Vec::new());
        let batch = (COUNTED / (self.keep.rows + 1)).clamp(1, BATCH_MAX);
        let begin = self.at.clone();
        for batches in 1.. {
            let values = store::distinct(None, &all, last.as_ref(), batch)?;
            if values.is_empty() {
                return Ok(true);
            }
            last = values.last().cloned();
            let had_room = self.groups(values)?;
            if !had_room || batches >= BATCHES && self.at != begin {
                break;
            }
        }
        Ok(false)
    }

    /// Whether there was room for all of these groups.
    fn groups(&mut self, values: Vec<Value>) -> Result<bool> {
        let mut groups = Vec::with_capacity(values.len());
        for value in values {
            match Group::of(value) {
                Some(group) => groups.push(group),
                None => self.left_out += 1,
            }
        }
        let filter = |group: &Group| self.call.filter(self.keep, group, self.conditions.clone());
        let filters: Vec<Filter> = groups.iter().map(filter).collect();
        let counts = store::count(None, &filters, self.keep.rows + 1)?;
        for (group, count) in groups.iter().zip(counts) {
            self.page.scanned += u64::from(count);
            if count > self.keep.rows && (self.is_full() || !self.group(group, None)?) {
                return Ok(false);
            }
            self.at = Place { group: group.name.clone(), after: None };
        }
        Ok(groups.is_empty() || !self.is_full())
    }

    fn is_full(&self) -> bool {
        self.page.candidates.len() >= self.limit as usize
    }

    /// Adds items for the rows of a group after a place. Whether there was room for all of them.
    fn group(&mut self, group: &Group, mut after: Option<Vec<u8>>) -> Result<bool> {
        let (call, now, of) = (self.call, self.ctx.now, (self.keep, group));
        let last_kept = call.last_kept(None, of, self.conditions.clone(), now)?;
        let Some(last_kept) = last_kept else { return Ok(true) };
        let columns = call.read_columns(self.ctx)?;
        let beneath = call.beneath(of, &last_kept, self.conditions.clone());
        let beneath = beneath.columns(columns).limit(call.chunk);
        loop {
            let read = store::page(None, &Range { after: after.clone(), ..beneath.clone() })?;
            self.page.scanned += read.rows.len() as u64;
            let meant = |row: &&Row| call.plan.takes(&values(row), now, call.oldest);
            let found: Vec<&Row> = read.rows.iter().filter(meant).collect();
            if let Some(row) = found.last() {
                let names = std::iter::once(&call.plan.by).chain(&self.ctx.described(ROWS)?.key);
                let last = group.value.clone().map(Ok).into_iter();
                let last = last.chain(names.map(|column| row.value(column)));
                let last = last.collect::<Result<Vec<_>>>()?;
                let mut part = Part::of_group(&group.name, after, found.len() as u32);
                self.page.candidates.push(part.item(&last, &read.next)?);
            }
            // The next run finds the rows behind a place that is too long for a cursor.
            after = read.next.filter(|place| !sets::is_long_of_group(place));
            if after.is_none() {
                return Ok(true);
            }
            self.at = Place { group: group.name.clone(), after: after.clone() };
            if self.is_full() {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_packed_and_nothing_else_is_unpacked() {
        for after in [None, Some(vec![]), Some(vec![1, 0, 255])] {
            for group in ["", "#7", "~a/b"] {
                let place = Place { group: group.into(), after: after.clone() };
                let bytes = place.pack();
                assert_eq!(Place::unpack(&bytes), Some(place));
                assert_eq!(Place::unpack(&bytes[..3]), None);
                assert_eq!(Place::unpack(&bytes[..4 + group.len()]), None);
            }
        }
    }
}
