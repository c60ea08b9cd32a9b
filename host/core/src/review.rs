//! Reviews: what a run would change, shown to a person before anything is committed.
//!
//! A preview is only shown. What a run in the mode `approve` has planned waits for a decision: nothing
//! of it is committed until a person approves it, and it is discarded if a person rejects it or if it
//! lapses.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, TaskName};
use crate::proposal::{Change, Proposal, RowRange};
use crate::time::Time;

/// The author of a decision that the engine takes: a review has lapsed.
pub const BY: &str = "besom";

/// How a review stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is a preview: there is nothing to decide.
    Shown,
    /// It waits for a decision.
    Waiting,
    /// A person has approved it: what was planned is executed.
    Approved,
    /// A person has rejected it: what was planned is discarded.
    Rejected,
    /// It was not approved in time, or what it was about has changed: what was planned is discarded.
    Lapsed,
    /// Nobody has to decide: nothing would be changed, and what was planned is discarded. Or what was left after
    /// an approval was discarded.
    Done,
}

impl State {
    /// The word for it, in JSON, in the store and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Shown => "shown",
            State::Waiting => "waiting",
            State::Approved => "approved",
            State::Rejected => "rejected",
            State::Lapsed => "lapsed",
            State::Done => "done",
        }
    }

    /// The state with this word; none: there is no such state.
    pub fn parse(word: &str) -> Option<State> {
        use State::{Approved, Done, Lapsed, Rejected, Shown, Waiting};
        let all = [Shown, Waiting, Approved, Rejected, Lapsed, Done];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

/// A review.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The run that it is about, whose number it has.
    pub run: RunId,
    /// The task of the run.
    pub task: TaskName,
    /// When it was opened.
    pub opened_at: Time,
    /// When it lapses; none: it is only shown.
    pub expires_at: Option<Time>,
    /// How it stands.
    pub state: State,
    /// Who has decided; empty: nobody yet.
    pub by: String,
    /// The reason of the decision.
    pub reason: String,
    /// When it was decided; none: it was not.
    pub decided_at: Option<Time>,
    /// What the run would change.
    pub plan: Plan,
}

/// How a review stands, and who has decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// How it stands.
    pub state: State,
    /// Who has decided; empty: nobody yet.
    pub by: String,
    /// The reason of the decision.
    pub reason: String,
    /// When it was decided; none: it was not.
    pub decided_at: Option<Time>,
}

impl From<&Review> for Standing {
    fn from(review: &Review) -> Standing {
        let (by, reason) = (review.by.clone(), review.reason.clone());
        Standing { state: review.state, by, reason, decided_at: review.decided_at }
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.state.as_str())?;
        f.write_str(" already")?;
        if !self.by.is_empty() {
            write!(f, ", by {}", self.by)?;
        }
        if let Some(at) = self.decided_at {
            write!(f, " at {at}")?;
        }
        if !self.reason.is_empty() {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

/// A review to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct NewReview {
    /// The run that it is about.
    pub run: RunId,
    /// How long it may wait for a decision; none: it is only shown.
    pub within: Option<std::time::Duration>,
    /// What the run would change.
    pub plan: Plan,
}

/// What a run would change, as its items were examined: each was decided by its plugin, and its changes
/// were made in a transaction that was rolled back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// Number of items: planned ones, or candidates that were found.
    pub items: u64,
    /// How many of them were examined.
    pub examined: u64,
    /// Why not all of them; none: all were.
    pub partial: Option<String>,
    /// Examined items that would change something.
    pub changing: u64,
    /// What all items ask for; none: they were not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<Whole>,
    /// Whether everything was examined and nothing would be changed: nobody has to decide.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nothing: bool,
    /// Why a brake would stop the run and pause its task; none: no limit is known to be exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brake: Option<String>,
    /// The rows that the examined items would change.
    pub rows: Vec<Rows>,
    /// About how many rows the collections have of which rows would be changed or go, as far as it is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sizes: Sizes,
    /// Size of these rows as they would be kept for undo, in bytes; 0 if the task keeps none.
    pub bytes: u64,
    /// The messages that the examined items would emit.
    pub messages: Vec<Messages>,
    /// Why examined items would change nothing, the most frequent first.
    pub others: Vec<Others>,
    /// Examples, in the order of the plan: among them the first and the last examined item.
    pub samples: Vec<Sample>,
}

/// About how many rows collections have, by name.
pub type Sizes = BTreeMap<String, u64>;

/// What the items of a plan ask for, examined or not. An item whose rows are not read before the commit, such as a
/// range, asks for as many as it may change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Whole {
    /// Number of items that ask for something.
    pub items: u64,
    /// The rows that these would change at most; those that go with them are not counted.
    pub rows: Vec<Rows>,
    /// The messages that these would emit at most.
    pub messages: Vec<Messages>,
    /// Why not all items were asked; none: all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

/// A number of rows of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// The collection.
    pub collection: String,
    /// `delete`, `move`, `update`, `insert`.
    pub operation: Operation,
    /// The number of rows.
    pub rows: u64,
}

/// What happens to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// It is deleted.
    Delete,
    /// It is moved to another collection.
    Move,
    /// Columns of it are set.
    Update,
    /// It is inserted.
    Insert,
}

impl Operation {
    /// The word for it, in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Delete => "delete",
            Operation::Move => "move",
            Operation::Update => "update",
            Operation::Insert => "insert",
        }
    }
}

/// A number of messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// The topic.
    pub topic: String,
    /// The number of messages.
    pub count: u64,
}

/// Items that would change nothing, or only some of their rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// `skip`, `retry`, `dead`, `fault`, `refused`, `partial`, `locked`, `left_out`,
    /// `not_planned`.
    pub verdict: String,
    /// Why.
    pub reason: String,
    /// The number of items.
    pub count: u64,
}

/// An example of an item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Its tenant.
    pub tenant: Option<String>,
    /// Its key.
    pub key: String,
    /// Its due time.
    pub due: Option<Time>,
    /// Its place among the items of the plan, from 1; 0: it is not known. Of more items than are examined at most, a
    /// place between the first and the last ones is approximate.
    pub place: u64,
    /// The number of rows that it would change.
    pub rows: u64,
    /// The first of them.
    pub changes: Vec<RowChange>,
}

/// How a row would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowChange {
    /// The collection.
    pub collection: String,
    /// The key of the row.
    pub key: String,
    /// The values of the key, for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_values: Vec<serde_json::Value>,
    /// What happens to it.
    pub operation: Operation,
    /// Of a row that is deleted, moved or inserted, its columns; of another, the columns that change.
    pub columns: Vec<ColumnChange>,
}

/// How a column would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnChange {
    /// The name of the column.
    pub name: String,
    /// Its value before; none: the row does not exist.
    pub before: Option<String>,
    /// Its value afterwards; none: the row is gone.
    pub after: Option<String>,
    /// Its value before, for programs: a number, a text, null; bytes in hexadecimal, instants as RFC 3339. None: there
    /// is none, or it is too large.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub before_value: Option<serde_json::Value>,
    /// Its value afterwards, for programs.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub after_value: Option<serde_json::Value>,
}

/// A value that is there, also if it is null.
fn some<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}

/// The verdict of an item that the database or a guard refuses.
pub const REFUSED: &str = "refused";
/// Maximum number of samples of a plan.
pub const SAMPLES_MAX: usize = 10;
/// Number of samples from the beginning of a plan, and from its end, that are never left out for others.
const SAMPLES_OF_AN_END: usize = 2;
/// Maximum number of rows of a sample.
pub const CHANGES_MAX: usize = 5;
/// Maximum number of reasons of items that change nothing.
pub const OTHERS_MAX: usize = 20;

impl Sample {
    /// Its place in front of its name: `item 7, `; empty: it is not known.
    pub fn placed(&self) -> String {
        match self.place {
            0 => String::new(),
            place => format!("item {place}, "),
        }
    }
}

impl Plan {
    /// Whether it deletes, moves or changes rows of which nothing is kept for undo.
    pub fn is_final(&self) -> bool {
        self.bytes == 0 && self.rows.iter().any(|rows| rows.operation != Operation::Insert)
    }

    /// Adds rows of a collection.
    pub fn add_rows(&mut self, collection: &str, operation: Operation, rows: u64) {
        add_rows(&mut self.rows, collection, operation, rows);
    }

    /// Adds messages of a topic.
    pub fn add_messages(&mut self, topic: &str, count: u64) {
        add_messages(&mut self.messages, topic, count);
    }

    /// Adds an item that would change nothing, or only some of its rows.
    pub fn add_other(&mut self, verdict: &str, reason: &str) {
        let same = |other: &Others| other.verdict == verdict && other.reason == reason;
        let known = self.others.iter().position(same);
        if let Some(known) = known.and_then(|at| self.others.get_mut(at)) {
            known.count += 1;
        } else if self.others.len() < OTHERS_MAX {
            let (verdict, reason) = (verdict.to_owned(), reason.to_owned());
            self.others.push(Others { verdict, reason, count: 1 });
        } else if let Some(last) = self.others.last_mut() {
            (last.verdict, last.reason) = ("other".into(), "for other reasons".into());
            last.count += 1;
        }
    }

    /// Adds an example. Of too many, those are kept that are spread over the plan, with the first and the last.
    pub fn add_sample(&mut self, sample: Sample) {
        let at = self.samples.partition_point(|known| known.place <= sample.place);
        self.samples.insert(at, sample);
        let count = self.samples.len();
        if count <= SAMPLES_MAX {
            return;
        }
        let gap = |at: &usize| self.samples[at + 1].place - self.samples[at - 1].place;
        if let Some(at) = (SAMPLES_OF_AN_END..count - SAMPLES_OF_AN_END).min_by_key(gap) {
            self.samples.remove(at);
        }
    }

    /// How many items the database refuses to carry out, and the most frequent reason; none: it refuses none.
    pub fn refused(&self) -> Option<(u64, &str)> {
        let refused = || self.others.iter().filter(|other| other.verdict == REFUSED);
        let most = refused().max_by_key(|other| other.count)?;
        Some((refused().map(|other| other.count).sum(), &most.reason))
    }

    /// Why nobody has to decide; none: somebody has to.
    pub fn why_nothing(&self) -> Option<String> {
        let counted = |items| crate::command::counted(items, "item");
        let none = self.none();
        self.nothing.then(|| match self.refused() {
            Some((items, reason)) => {
                format!("{none}; the database refuses {}: {reason}", counted(items))
            }
            None => match self.others.iter().max_by_key(|other| other.count) {
                Some(most) => {
                    let items = counted(most.count);
                    format!("{none}; {items}: {}", most.reason)
                }
                None => none.to_owned(),
            },
        })
    }

    /// The number of rows that would be changed.
    pub fn changed(&self) -> u64 {
        self.rows.iter().map(|rows| rows.rows).sum()
    }

    /// The rows of the collection that would be deleted or moved, at most; none: not all items were asked.
    pub fn goes_at_most(&self, collection: &str) -> Option<u64> {
        let whole = self.whole.as_ref().filter(|whole| whole.partial.is_none())?;
        Some(goes(&whole.rows, collection))
    }

    /// The rows of the collection that the examined items would delete or move.
    pub fn goes(&self, collection: &str) -> u64 {
        goes(&self.rows, collection)
    }

    /// What would be changed, in a few words: `1,200 rows of sessions deleted`. Of a plan of which only a part was
    /// examined, what all of its items ask for; if not all were asked, what there is at least.
    pub fn words(&self) -> String {
        let mut words = in_words(&self.rows, &self.messages, &self.sizes);
        if self.partial.is_some() {
            words = match self.whole.as_ref().filter(|whole| whole.partial.is_none()) {
                Some(whole) => whole.words(&self.rows, &self.sizes),
                None => words.map(|words| format!("at least {words}")),
            };
        }
        words.unwrap_or_else(|| self.none().to_owned())
    }

    /// What is said of a plan in which no change was found. One that is incomplete may have missed some.
    fn none(&self) -> &'static str {
        match self.partial {
            None => "nothing would be changed",
            Some(_) => "no change was found, but the plan is incomplete",
        }
    }

    /// The rows of the examined items, if these are not all: `10,000 rows of sessions deleted`.
    pub fn examined_words(&self) -> Option<String> {
        self.partial.as_ref()?;
        in_words(&self.rows, &self.messages, &Sizes::new())
    }

    /// The collections of which rows would be changed or go, each once.
    pub fn of_whose_rows(&self) -> BTreeSet<&str> {
        let asked = self.whole.iter().flat_map(|whole| &whole.rows);
        let all = self.rows.iter().chain(asked);
        let known = all.filter(|of| of.operation != Operation::Insert);
        known.map(|of| of.collection.as_str()).collect()
    }
}

impl Whole {
    /// Adds what an item asks for. Ranges with the same bounds have the same rows, whatever their conditions are.
    pub fn add(&mut self, proposal: &Proposal) {
        let mut ranges: Vec<(&RowRange, Rows)> = Vec::new();
        for change in &proposal.changes {
            let (operation, rows) = match change {
                Change::Emit { topic, .. } => {
                    add_messages(&mut self.messages, topic, 1);
                    continue;
                }
                Change::Insert { .. } | Change::Upsert { .. } | Change::Restore(_) => {
                    (Operation::Insert, change.rows())
                }
                Change::Update { .. } | Change::Increment { .. } | Change::UpdateRange { .. } => {
                    (Operation::Update, change.rows())
                }
                Change::Delete { .. } | Change::DeleteReadSet(_) | Change::DeleteRange(_) => {
                    (Operation::Delete, change.rows())
                }
                Change::MoveRange { .. } => (Operation::Move, change.rows()),
            };
            let collection = change.collections().collect::<Vec<_>>().join(", ");
            let Some(range) = change.range() else {
                add_rows(&mut self.rows, &collection, operation, rows);
                continue;
            };
            let same = |(known, of): &&mut (&RowRange, Rows)| {
                of.operation == operation && known.has_bounds_of(range)
            };
            match ranges.iter_mut().find(same) {
                Some((_, known)) => known.rows = known.rows.max(rows),
                None => ranges.push((range, Rows { collection, operation, rows })),
            }
        }
        for (_, Rows { collection, operation, rows }) in ranges {
            add_rows(&mut self.rows, &collection, operation, rows);
        }
        self.items += 1;
    }

    /// The number of rows that would be changed at most.
    pub fn changed(&self) -> u64 {
        self.rows.iter().map(|rows| rows.rows).sum()
    }

    /// What would be changed, in a few words: `at most 1,200 rows of sessions deleted, in 3 items`; none: nothing.
    /// What goes with these rows is in `examined` alone.
    fn words(&self, examined: &[Rows], sizes: &Sizes) -> Option<String> {
        let words = in_words(&self.rows, &self.messages, sizes)?;
        let is_asked = |of: &&Rows| self.rows.iter().any(|all| all.collection == of.collection);
        let others = examined.iter().filter(|of| !is_asked(of));
        let others: Vec<&str> = others.map(|of| of.collection.as_str()).collect();
        let with = match others.as_slice() {
            [] => String::new(),
            others => format!(", with what refers to them in {}", others.join(", ")),
        };
        let items = crate::command::counted(self.items, "item");
        Some(format!("at most {words}{with}, in {items}"))
    }
}

fn goes(all: &[Rows], collection: &str) -> u64 {
    let goes = |of: &&Rows| {
        of.collection == collection && matches!(of.operation, Operation::Delete | Operation::Move)
    };
    all.iter().filter(goes).map(|of| of.rows).sum()
}

fn add_rows(all: &mut Vec<Rows>, collection: &str, operation: Operation, rows: u64) {
    if rows == 0 {
        return;
    }
    let same = |r: &&mut Rows| r.collection == collection && r.operation == operation;
    match all.iter_mut().find(same) {
        Some(known) => known.rows += rows,
        None => {
            all.push(Rows { collection: collection.to_owned(), operation, rows });
            all.sort_by(|a, b| (a.operation, &a.collection).cmp(&(b.operation, &b.collection)));
        }
    }
}

fn add_messages(all: &mut Vec<Messages>, topic: &str, count: u64) {
    match all.iter_mut().find(|known| known.topic == topic) {
        Some(known) => known.count += count,
        None => all.push(Messages { topic: topic.to_owned(), count }),
    }
}

/// Which part of their collection these rows are, if that is known; new ones are none of it.
pub fn share_of(rows: &Rows, sizes: &Sizes) -> Option<String> {
    let size = sizes.get(&rows.collection).filter(|_| rows.operation != Operation::Insert)?;
    Some(share(rows.rows, *size))
}

/// Which part of a collection of about so many rows these are: `4 % of about 30000`.
pub fn share(rows: u64, size: u64) -> String {
    // What was counted when it was estimated may be less.
    let size = size.max(rows);
    let tenths = (u128::from(rows) * 1_000).checked_div(u128::from(size)).unwrap_or(0);
    let part = match tenths {
        0 if rows > 0 => "less than 0.1".to_owned(),
        tenths if tenths < 100 && tenths % 10 > 0 => format!("{}.{}", tenths / 10, tenths % 10),
        tenths => (tenths / 10).to_string(),
    };
    format!("{part} % of about {size}")
}

/// Rows, with their share of their collections as far as these are known, and messages in words; none: there are
/// none.
fn in_words(rows: &[Rows], messages: &[Messages], sizes: &Sizes) -> Option<String> {
    let one = |rows: &Rows| {
        let did = match rows.operation {
            Operation::Delete => "deleted",
            Operation::Move => "moved",
            Operation::Update => "changed",
            Operation::Insert => "inserted",
        };
        let of = crate::command::counted(rows.rows, "row");
        let share = share_of(rows, sizes).map(|share| format!(" ({share})")).unwrap_or_default();
        format!("{of} of {} {did}{share}", rows.collection)
    };
    let mut words: Vec<String> = rows.iter().map(one).collect();
    words.extend(messages.iter().map(|of| {
        let messages = crate::command::counted(of.count, "message");
        format!("{messages} to {} sent", of.topic)
    }));
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::proposal::{Condition, OnGuardFailed};
    use crate::value::Value;

    #[test]
    fn rows_of_one_kind_are_added_up_and_deletions_come_first() {
        let mut plan = Plan::default();
        plan.add_rows("a", Operation::Insert, 1);
        plan.add_rows("b", Operation::Delete, 2);
        plan.add_rows("b", Operation::Delete, 3);
        plan.add_rows("b", Operation::Update, 0);
        plan.add_messages("gone", 1);
        let words = "5 rows of b deleted, 1 row of a inserted, 1 message to gone sent";
        assert_eq!((plan.words().as_str(), plan.changed()), (words, 6));
        assert_eq!(Plan::default().words(), "nothing would be changed");
    }

    #[test]
    fn rows_are_told_with_their_share_of_the_collection() {
        for (rows, size, words) in [
            (500, 30_000, "1.6 % of about 30000"),
            (600, 30_000, "2 % of about 30000"),
            (9_000, 30_000, "30 % of about 30000"),
            (1, 30_000, "less than 0.1 % of about 30000"),
            (40, 30, "100 % of about 40"),
        ] {
            assert_eq!(share(rows, size), words);
        }
        let sizes = Sizes::from([("b".to_owned(), 20)]);
        let mut plan = Plan { sizes, ..Plan::default() };
        plan.add_rows("b", Operation::Delete, 5);
        plan.add_rows("b", Operation::Insert, 1);
        plan.add_rows("a", Operation::Update, 1);
        let words =
            "5 rows of b deleted (25 % of about 20), 1 row of a changed, 1 row of b inserted";
        assert_eq!(plan.words(), words);
        assert_eq!(plan.of_whose_rows().into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn an_incomplete_plan_never_says_that_nothing_would_be_changed() {
        let partial = || Some("the examination failed".to_owned());
        let words = "no change was found, but the plan is incomplete";
        for whole in
            [None, Some(Whole::default()), Some(Whole { partial: partial(), ..Whole::default() })]
        {
            let plan = Plan { partial: partial(), nothing: true, whole, ..Plan::default() };
            assert_eq!(
                (plan.words().as_str(), plan.why_nothing().as_deref()),
                (words, Some(words))
            );
        }
    }

    fn places(given: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut plan = Plan::default();
        given.for_each(|place| plan.add_sample(Sample { place, ..Sample::default() }));
        plan.samples.iter().map(|sample| sample.place).collect()
    }

    #[test]
    fn samples_are_spread_over_the_plan() {
        assert_eq!(places([3, 1, 2].into_iter()), [1, 2, 3]);
        for places in [places(1..=1_000), places((1..=1_000).rev())] {
            assert_eq!(places.len(), SAMPLES_MAX);
            assert!(places.starts_with(&[1, 2]) && places.ends_with(&[999, 1_000]), "{places:?}");
            let gap = places.windows(2).map(|two| two[1] - two[0]).max();
            assert!(gap < Some(300), "{places:?}");
        }
    }

    fn range(rows: u32, column: &str, until: u8) -> Change {
        Change::DeleteRange(Arc::new(RowRange {
            collection: "s".into(),
            conditions: vec![Condition::equal(column, Value::Null)],
            until: Some(vec![until]),
            rows,
            ..RowRange::default()
        }))
    }

    fn proposal(changes: Vec<Change>) -> Proposal {
        let on_guard_failed = OnGuardFailed::Retry(1);
        Proposal { guards: Vec::new(), changes, on_guard_failed, notes: Vec::new() }
    }

    #[test]
    fn ranges_with_other_bounds_have_other_rows() {
        let mut whole = Whole::default();
        let changes = [("a", 1), ("b", 1), ("a", 2)].map(|(column, until)| range(9, column, until));
        whole.add(&proposal(changes.into()));
        assert_eq!((whole.items, whole.changed()), (1, 18));
    }

    /// Only a part of it was examined, so what all items ask for is what a person decides about.
    #[test]
    fn a_plan_of_which_a_part_was_examined_states_its_sum() {
        let mut whole = Whole::default();
        for rows in [1_000, 1_000, 400] {
            let emit =
                Change::Emit { topic: "gone".into(), key: String::new(), payload: Vec::new() };
            // Two alternatives of one condition.
            whole.add(&proposal(vec![range(rows, "a", 1), range(rows, "b", 1), emit]));
        }
        assert_eq!((whole.items, whole.changed()), (3, 2_400));
        let partial = Some("a part of it".to_owned());
        let mut plan = Plan { whole: Some(whole), partial, ..Plan::default() };
        let words = "at most 2400 rows of s deleted, 3 messages to gone sent";
        assert_eq!(plan.words(), format!("{words}, in 3 items"));
        plan.add_rows("s", Operation::Delete, 1_000);
        plan.add_rows("notes", Operation::Delete, 7);
        let with = ", with what refers to them in notes";
        assert_eq!(plan.words(), format!("{words}{with}, in 3 items"));
        assert_eq!((plan.goes("s"), plan.goes_at_most("s")), (1_000, Some(2_400)));
        let examined = "7 rows of notes deleted, 1000 rows of s deleted";
        assert_eq!(plan.examined_words().as_deref(), Some(examined));
        // Not all items were asked: what was examined is what there is at least.
        if let Some(whole) = &mut plan.whole {
            whole.partial = Some("it takes too long".into());
        }
        assert_eq!(plan.words(), format!("at least {examined}"));
        assert_eq!(plan.goes_at_most("s"), None);
        // All of it was examined: the rows are known.
        plan.partial = None;
        assert_eq!((plan.words(), plan.examined_words()), (examined.to_owned(), None));
    }

    #[test]
    fn rare_reasons_are_counted_together() {
        let mut plan = Plan::default();
        for at in 0..OTHERS_MAX + 5 {
            plan.add_other("skip", &at.to_string());
        }
        let last = plan.others.last().expect("a reason");
        assert_eq!(
            (plan.others.len(), last.reason.as_str(), last.count),
            (OTHERS_MAX, "for other reasons", 6)
        );
    }

    #[test]
    fn a_plan_that_needs_no_decision_says_why() {
        let mut plan = Plan { nothing: true, ..Plan::default() };
        assert_eq!(plan.why_nothing().as_deref(), Some("nothing would be changed"));
        plan.add_other("skip", "still in use");
        let why = plan.why_nothing().unwrap_or_default();
        assert_eq!(why, "nothing would be changed; 1 item: still in use");
        for reason in ["locked", "FOREIGN KEY", "FOREIGN KEY"] {
            plan.add_other(REFUSED, reason);
        }
        let why = plan.why_nothing().unwrap_or_default();
        assert_eq!(why, "nothing would be changed; the database refuses 3 items: FOREIGN KEY");
        assert_eq!(Plan { nothing: false, ..plan }.why_nothing(), None);
    }

    #[test]
    fn a_null_is_told_from_a_value_that_is_not_there() {
        let column = ColumnChange {
            name: "n".into(),
            before: Some("null".into()),
            after: None,
            before_value: Some(serde_json::Value::Null),
            after_value: None,
        };
        let text = serde_json::to_string(&column).expect("JSON");
        assert_eq!(serde_json::from_str::<ColumnChange>(&text).expect("a column"), column);
        let older = r#"{"name":"n","before":"null","after":null}"#;
        let older: ColumnChange = serde_json::from_str(older).expect("a column");
        assert_eq!((older.before_value, older.after_value), (None, None));
    }

    #[test]
    fn each_word_names_its_state() {
        for word in ["shown", "waiting", "approved", "rejected", "lapsed", "done"] {
            assert_eq!(State::parse(word).map(State::as_str), Some(word));
        }
    }
}
