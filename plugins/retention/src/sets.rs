//! Items that stand for many rows: the rows between two places of the index. The commit judges each of them by the
//! conditions, so these have to say exactly which rows are meant.

use besom_sdk::prelude::*;
use besom_sdk::{Page, Range, RowRange};

use crate::condition::All;
use crate::{Action, Call, INTO, Plan, ROWS, SOON_MS, newest};

/// Maximum number of statements for the rows of one item.
const LISTS_MAX: usize = 8;
/// When rows that other transactions hold are tried again, in milliseconds.
const HELD_MS: u64 = 1_000;
/// The error of a read beyond what one call may read.
pub(crate) const LIMIT_EXCEEDED: &str = "limit-exceeded";
/// The note with the number of rows of an item, from which the host tells how many of them stayed as they were.
const PLANNED_ROWS: &str = "planned_rows";
/// Maximum number of pages that are read for one page of candidates.
const PAGES_MAX: usize = 32;

/// Maximum size of a place in an item, in bytes: a payload of 4 KiB has two.
const PLACE_BYTES_MAX: usize = 2_040;
/// Maximum size of a place in an item that also has the value of a group, in bytes.
const GROUP_PLACE_BYTES_MAX: usize = 1_500;
/// Why an item is left that does not go with the settings of the task.
pub(crate) const OTHERS: &str = "planned by other settings";
/// Maximum size of the key of an item, in bytes.
const KEY_BYTES_MAX: usize = 1_024;

/// Where a scan goes on: in which part of the index, and after which place there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of its prefix.
    pub(crate) part: u32,
    pub(crate) after: Option<Vec<u8>>,
}

impl Place {
    /// Behind a page of a part that goes on there, or else at the next part.
    pub(crate) fn past(part: u32, after: Option<Vec<u8>>) -> Place {
        let part = if after.is_none() { part.saturating_add(1) } else { part };
        Place { part, after }
    }
}

/// A page at the end of a range.
pub(crate) fn nothing() -> Page {
    Page { candidates: Vec::new(), next: None, scanned: 0, extra: Vec::new() }
}

/// The rows after one place of a part of the index, up to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The number of its prefix.
    pub(crate) prefix: u32,
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) until: Option<Vec<u8>>,
    pub(crate) rows: u32,
    /// With `keep`: the name of the group, empty if all rows are one group.
    pub(crate) group: Option<String>,
}

impl Part {
    /// Rows of a group after this place.
    pub(crate) fn of_group(name: &str, after: Option<Vec<u8>>, rows: u32) -> Part {
        Part { prefix: 0, after, until: None, rows, group: Some(name.to_owned()) }
    }

    /// No rows yet, after this place.
    fn from(place: &Place) -> Part {
        Part { prefix: place.part, after: place.after.clone(), until: None, rows: 0, group: None }
    }

    /// The item for its rows up to this place; `last` is what the last one is found by. A place that is too long is
    /// left out: the conditions say which rows are meant, and there are never more than planned.
    pub(crate) fn item(&mut self, last: &[Value], until: &Option<Vec<u8>>) -> Result<Candidate> {
        self.until.clone_from(until);
        let is_too_long = if self.group.is_some() { is_long_of_group } else { is_long };
        for place in [&mut self.after, &mut self.until] {
            place.take_if(|place| is_too_long(place));
        }
        Ok(Candidate::new(name_of(last)?).version(self.rows).payload(self.pack()))
    }

    /// As the payload of an item: the number of rows, then each place, with its length before it, then the number of
    /// the prefix if it is not the first or if the value of a group follows.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = self.rows.to_le_bytes().to_vec();
        for place in [&self.after, &self.until] {
            let length = place.as_ref().map_or(u32::MAX, |place| place.len() as u32);
            bytes.extend(length.to_le_bytes());
            bytes.extend(place.iter().flatten());
        }
        if self.prefix > 0 || self.group.is_some() {
            bytes.extend(self.prefix.to_le_bytes());
        }
        if let Some(group) = &self.group {
            bytes.extend((group.len() as u32).to_le_bytes());
            bytes.extend(group.as_bytes());
        }
        bytes
    }

    pub(crate) fn unpack(mut bytes: &[u8]) -> Option<Part> {
        let rows = number(&mut bytes)?;
        let mut place = || match number(&mut bytes)? {
            u32::MAX => Some(None),
            length => {
                let (place, rest) = bytes.split_at_checked(length as usize)?;
                bytes = rest;
                Some(Some(place.to_vec()))
            }
        };
        let (after, until) = (place()?, place()?);
        let prefix = if bytes.is_empty() { 0 } else { number(&mut bytes)? };
        let group = match bytes.is_empty() {
            true => None,
            false => {
                let length = number(&mut bytes)?;
                let (group, rest) = bytes.split_at_checked(length as usize)?;
                bytes = rest;
                Some(String::from_utf8(group.to_vec()).ok()?)
            }
        };
        bytes.is_empty().then_some(Part { prefix, after, until, rows, group })
    }
}

fn is_long(place: &[u8]) -> bool {
    place.len() > PLACE_BYTES_MAX
}

/// Whether a place does not fit into an item or a cursor that also has the value of a group.
pub(crate) fn is_long_of_group(place: &[u8]) -> bool {
    place.len() > GROUP_PLACE_BYTES_MAX
}

/// The key of an item, by `by` and the key of its last row. That key may hold NULL, a value of another kind than its
/// column, or a long text: then a digest is in its place.
fn name_of(last: &[Value]) -> Result<String> {
    match key::encode(last) {
        Ok(name) if name.len() <= KEY_BYTES_MAX => Ok(name),
        _ => {
            // FNV-1a
            let digest =
                format!("{last:?}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
                });
            let digest = Value::Bytes(digest.to_be_bytes().to_vec());
            key::encode(&[last.first().cloned().unwrap_or(Value::Null), digest])
        }
    }
}

pub(crate) fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

impl Plan {
    /// Whether its items are sets of rows with this `chunk`; `now` and `oldest` are microseconds since 1970.
    pub fn is_in_sets(self, chunk: i64, now: i64, oldest: i64) -> bool {
        let chunk = u32::try_from(chunk).unwrap_or_default();
        Call { plan: self, oldest: Time(oldest), chunk }.sets(Time(now)).is_some()
    }
}

impl Call {
    /// The conditions of sets of rows; none: each row is an item, because the conditions need more than
    /// the database can be asked alike, or because rows might match again after they are set.
    pub(crate) fn sets(&self, now: Time) -> Option<Vec<All>> {
        if self.chunk == 0 {
            return None;
        }
        let lists = self.plan.condition.exact(now, LISTS_MAX)?;
        if self.plan.way.keep.is_some() {
            let leaves = newest::leaves(&self.plan.condition, &self.plan.action);
            return (lists.len() == 1 && leaves).then_some(lists);
        }
        match &self.plan.action {
            Action::Delete | Action::Archive => Some(lists),
            Action::Set(_) => self.excludes(now).then_some(lists),
        }
    }

    /// Whether no row can match once it is set, now and a moment later, whatever else is in it.
    fn excludes(&self, now: Time) -> bool {
        let Action::Set(set) = &self.plan.action else { return false };
        [0, SOON_MS].into_iter().all(|ms| {
            let (later, oldest) = (now.plus_ms(ms), self.oldest.plus_ms(ms));
            let value = |column: &str| {
                set.set.iter().find(|(name, _)| name == column).map(|(_, literal)| literal.at(now))
            };
            let is_young = match value(&self.plan.by) {
                Some(Value::Timestamp(at)) => at > oldest.micros(),
                Some(Value::Date(day)) => Day(day) > Day::of(oldest),
                Some(_) => true,
                None => false,
            };
            is_young || self.plan.condition.fails(&value, later)
        })
    }

    /// The rows of a part of the index by these conditions.
    pub(crate) fn range_of(&self, conditions: All, prefix: &[Value]) -> Range {
        let mut range = Range::of(ROWS).upper(self.plan.oldest(self.oldest));
        range.index.clone_from(&self.plan.way.index);
        range.prefix = prefix.to_vec();
        range.conditions = conditions;
        range
    }

    /// The values of a part of the index; none: other settings had more parts.
    pub(crate) fn prefix(&self, part: u32) -> Option<&Vec<Value>> {
        self.plan.way.prefixes.get(part as usize)
    }

    /// The place of a cursor: with several parts, its number, and then the place in it.
    pub(crate) fn place(&self, cursor: Option<Vec<u8>>) -> Place {
        match cursor {
            Some(cursor) if self.plan.way.prefixes.len() > 1 => {
                let mut after = &cursor[..];
                let part = number(&mut after).unwrap_or(u32::MAX);
                Place { part, after: (!after.is_empty()).then(|| after.to_vec()) }
            }
            after => Place { part: 0, after },
        }
    }

    /// The cursor of a place; none: it is the end of the last part.
    pub(crate) fn cursor(&self, place: Place) -> Option<Vec<u8>> {
        match self.plan.way.prefixes.len() {
            1 => place.after,
            parts if place.part as usize >= parts => None,
            _ => {
                let after = place.after.unwrap_or_default();
                Some([&place.part.to_le_bytes()[..], &after].concat())
            }
        }
    }

    /// Pages of the index, each of as many rows as one item changes.
    pub(crate) fn scan_sets(
        &self,
        ctx: &Context,
        cursor: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<Page> {
        let described = &ctx.described(ROWS)?.key;
        let lists = self.sets(ctx.now).unwrap_or_default();
        // One list is what the pages are read by. Several are left to the commit, and counted here.
        let single = lists.len() == 1;
        let range = match lists.into_iter().next().filter(|_| single) {
            Some(list) => self.range_by(ctx, list)?,
            None => self.range(ctx)?,
        };
        let (mut page, mut place) = (nothing(), self.place(cursor));
        let mut part = Part::from(&place);
        let mut last: Vec<Value> = Vec::new();
        // The number of rows of a page is halved until it ends at a place that an item can have; 0: there is none.
        let mut size = self.chunk;
        for pages in 1.. {
            let Some(prefix) = self.prefix(place.part) else { break };
            let rows_left = self.chunk - part.rows;
            let limit_of_page = if size == 0 { rows_left } else { size.min(rows_left) };
            let mut range = range.clone().limit(limit_of_page);
            range.prefix.clone_from(prefix);
            range.after.clone_from(&place.after);
            let mut read = store::columns(None, range);
            let rows = match read.next() {
                Some(Ok(rows)) => rows,
                // What one call may read is used up.
                Some(Err(error)) if pages > 1 && error.code == LIMIT_EXCEEDED => break,
                Some(Err(error)) => return Err(error),
                None => break,
            };
            let mut until = read.after().map(<[u8]>::to_vec);
            if until.as_ref().is_some_and(|place| is_long(place)) {
                if size > 0 {
                    size = limit_of_page / 2;
                    continue;
                }
                // An item without an end; the next run goes on behind its rows.
                until = None;
            }
            let is_cut = limit_of_page < rows_left;
            size = self.chunk;
            page.scanned += rows.len() as u64;
            place = Place::past(place.part, until.clone());
            // Also what was read by the conditions: a database that enforces no types compares values of any.
            let meant = |row: &usize| {
                let value = |column: &str| rows.value(*row, column).unwrap_or(Value::Null);
                self.plan.takes(&value, ctx.now, self.oldest)
            };
            let mut found = (0..rows.len()).filter(meant);
            if let Some(row) = found.next_back() {
                part.rows += 1 + found.count() as u32;
                let names = std::iter::once(&self.plan.by).chain(described);
                last = names.map(|column| rows.value(row, column)).collect::<Result<_>>()?;
            }
            // A page that is short although there is more has used up what one call may read.
            let is_short = until.is_some() && rows.len() < limit_of_page as usize;
            let is_over = is_short || pages >= PAGES_MAX;
            // An item has rows of one part of the index.
            let is_whole = part.rows >= self.chunk || until.is_none() || is_cut;
            if part.rows > 0 && is_whole {
                page.candidates.push(part.item(&last, &until)?);
            }
            if part.rows == 0 || is_whole {
                part = Part::from(&place);
            }
            if is_over || page.candidates.len() >= limit as usize {
                break;
            }
        }
        if part.rows > 0 {
            page.candidates.push(part.item(&last, &place.after)?);
        }
        page.next = self.cursor(place);
        Ok(page)
    }

    /// Proposes the change of all rows of a set.
    ///
    /// # Errors
    /// The newest rows of its group cannot be read.
    pub(crate) fn act_on_set(&self, ctx: &Context, item: &Item) -> Result<Verdict> {
        let Some(lists) = self.sets(ctx.now) else {
            return Ok(Verdict::skip(OTHERS));
        };
        let Some(part) = Part::unpack(&item.payload) else {
            return Ok(Verdict::dead("its payload is malformed"));
        };
        // If not one row is changed, others may hold them all.
        let mut proposal =
            Proposal::new().or_retry(HELD_MS).note(PLANNED_ROWS, i64::from(part.rows));
        let ranges: Vec<RowRange> = match (&self.plan.way.keep, &part.group) {
            (Some(keep), Some(_)) => match self.beyond_newest(ctx, keep, (item, &part))? {
                Ok((range, newer)) => {
                    proposal = proposal.guard(newer);
                    vec![range]
                }
                Err(why) => return Ok(Verdict::skip(why)),
            },
            (None, None) => {
                let Some(prefix) = self.prefix(part.prefix) else {
                    return Ok(Verdict::skip(OTHERS));
                };
                let of = |conditions| {
                    let Part { after, until, rows, .. } = part.clone();
                    self.range_of(conditions, prefix).part(after, until, rows)
                };
                lists.into_iter().map(of).collect()
            }
            _ => return Ok(Verdict::skip(OTHERS)),
        };
        for range in ranges {
            proposal = match &self.plan.action {
                Action::Delete => proposal.delete_range(range),
                Action::Archive => proposal.move_range(range, INTO),
                Action::Set(set) => {
                    proposal.update_range_adding(range, set.set_at(ctx.now), set.added())
                }
            };
        }
        Ok(proposal.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_packed_and_nothing_else_is_unpacked() {
        let places = [None, Some(vec![]), Some(vec![1, 2, 255])];
        for after in &places {
            for until in &places {
                let (after, until) = (after.clone(), until.clone());
                let part = Part { prefix: 0, after, until, rows: 7, group: None };
                let mut bytes = part.pack();
                let later = Part { prefix: 3, ..part.clone() };
                assert_eq!(Part::unpack(&later.pack()), Some(later));
                for group in ["", "#7"] {
                    let of_group = Part { group: Some(group.into()), ..part.clone() };
                    assert_eq!(Part::unpack(&of_group.pack()), Some(of_group));
                }
                assert_eq!(Part::unpack(&bytes), Some(part));
                bytes.push(0);
                assert_eq!(Part::unpack(&bytes), None);
                for length in 0..bytes.len() - 1 {
                    assert_eq!(Part::unpack(&bytes[..length]), None);
                }
            }
        }
    }

    #[test]
    fn an_item_has_a_name_whatever_the_key_of_its_last_row_holds() {
        let (at, key) = (Value::Timestamp(7), |key: &str| Value::Text(key.to_owned()));
        let name = |last: Value| name_of(&[at.clone(), last]).expect("a name");
        assert_eq!(name(key("a\0b")), "!1970-01-01T00:00:00.000007Z/a%00b");
        let odd =
            [Value::Null, Value::Float(1.5), key(&"x".repeat(2_000)), key(&"x".repeat(2_001))];
        let names = odd.map(name);
        assert!(names.iter().all(|name| name.len() == 46), "{names:?}");
        assert!((1..4).all(|at| !names[..at].contains(&names[at])), "{names:?}");
    }
}
