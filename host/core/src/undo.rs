//! What can be undone, and how its rows are named.
//!
//! This module decides what the words of a request mean and when an item counts as undone. Which rows can be
//! put back is decided by the store, inside the commit.

use std::collections::BTreeSet;
use std::fmt;

use crate::command::{Undo, counted};
use crate::ids::{RunId, TaskName};
use crate::time::Time;
use crate::value::{Field, Value};

/// The task whose items put rows back. No task of the configuration may have this name.
pub const TASK: &str = "undo";

/// Whether a task is stopped by a pause of all tasks. What a person takes back goes on: it is why everything was
/// stopped.
pub fn stops_with_all(task: &TaskName) -> bool {
    task.as_str() != TASK
}

/// How the reason of a committed item begins that has not put back every row.
pub const STAY: &str = "rows that stay as they are: ";

/// How the reason of a committed item begins of which only chosen rows were put back, and none of these stays.
pub const UNCHOSEN: &str = "rows that were not chosen: ";

/// Whether an item that ended with this reason has put back every row.
pub fn is_whole(reason: Option<&str>) -> bool {
    reason.is_none_or(|reason| !reason.starts_with(STAY) && !reason.starts_with(UNCHOSEN))
}

/// What is between the number of the rows that stay and the first of them, if there are several.
pub const FIRST_OF_THEM: &str = ", the first of them ";

/// The rows that an item leaves as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Their number, as far as it is known.
    pub rows: u64,
    /// Whether there may be more of them.
    pub or_more: bool,
}

/// What the reason of a committed item says about the rows that stay; `None`: it has put back every row.
pub fn left(reason: Option<&str>) -> Option<Left> {
    let stay = reason?.strip_prefix(STAY)?;
    let several = stay.split_once(FIRST_OF_THEM).and_then(|(rows, _)| rows.parse().ok());
    // Without the name of a row, it is about all rows of the item.
    Some(Left { rows: several.unwrap_or(1), or_more: several.is_none() && !stay.contains("): ") })
}

/// What the reason of a committed item says beside the rows that stay.
pub fn notes_of(reason: Option<&str>) -> Vec<String> {
    let all = reason.into_iter().flat_map(|reason| reason.split(BETWEEN_NOTES));
    all.filter(|note| is_whole(Some(note))).map(str::to_owned).collect()
}

/// What is between the notes of a reason.
pub const BETWEEN_NOTES: &str = "; ";

/// The settings of the run of a request; `request` tells it from every other one.
pub fn settings(undo: &Undo, request: &str) -> Vec<Field> {
    let forced = serde_json::to_string(&undo.forced).unwrap_or_default();
    let rows = serde_json::to_string(&undo.rows).unwrap_or_default();
    vec![
        Field::new("target", Value::Text(undo.target.clone())),
        Field::new("forced", Value::Json(forced)),
        Field::new("request", Value::Text(request.to_owned())),
        Field::new("plan_again", Value::Bool(undo.plan_again)),
        Field::new("rows", Value::Json(rows)),
    ]
}

/// Reverses [`settings`]; `None`: they are of no request.
pub fn requested(settings: &[Field]) -> Option<(Undo, String)> {
    let value = |name: &str| settings.iter().find(|field| field.name == name).map(|f| &f.value);
    match (value("target")?, value("forced")?, value("request")?) {
        (Value::Text(target), Value::Json(forced), Value::Text(request)) => {
            let forced = serde_json::from_str(forced).ok()?;
            // Requests of earlier versions do not say these.
            let plan_again = value("plan_again") == Some(&Value::Bool(true));
            let rows = match value("rows") {
                Some(Value::Json(rows)) => serde_json::from_str(rows).ok()?,
                _ => Default::default(),
            };
            Some((Undo { target: target.clone(), forced, plan_again, rows }, request.clone()))
        }
        _ => None,
    }
}

/// The items to be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// All items of a run.
    Run(RunId),
    /// The items of a run with this key, or the one with this number in the history.
    Item(RunId, String),
    /// The items of a task that ended in this span.
    Span {
        /// The task.
        task: TaskName,
        /// The first instant.
        from: Time,
        /// The last instant.
        to: Time,
    },
}

impl Target {
    /// Parses `RUN`, `RUN/ITEM` or `TASK@FROM..TO`.
    ///
    /// # Errors
    /// What is wrong and how it is written.
    pub fn parse(text: &str) -> Result<Target, String> {
        let wrong = |what: String| {
            format!(
                "{what}: write the number of a run (`besom runs ls`), RUN/ITEM with the key of an item or #NUMBER \
                 (`besom quarantine show RUN`), or TASK@FROM..TO with instants such as 2026-01-31T08:00:00Z"
            )
        };
        let run = |number: &str| number.parse().ok().filter(|number| *number > 0).map(RunId);
        if let Some(run) = run(text) {
            return Ok(Target::Run(run));
        }
        if let Some((number, item)) = text.split_once('/')
            && let Some(run) = run(number)
        {
            return match item {
                "" => Err(wrong(format!("`{text}` names no item"))),
                item => Ok(Target::Item(run, item.to_owned())),
            };
        }
        let Some((task, span)) = text.rsplit_once('@') else {
            return Err(wrong(format!("`{text}` names nothing that can be undone")));
        };
        let Some((from, to)) = span.split_once("..") else {
            return Err(wrong(format!("`{span}` is not a span of time")));
        };
        let instant = |text: &str| {
            let parsed = text.parse::<jiff::Timestamp>().map(Time::from_jiff);
            parsed.map_err(|error| wrong(format!("`{text}` is not an instant ({error})")))
        };
        let (from, to) = (instant(from)?, instant(to)?);
        match task {
            "" => Err(wrong("the task is missing before @".to_owned())),
            _ if from > to => Err(wrong(format!("`{span}` ends before it begins"))),
            task => Ok(Target::Span { task: TaskName::from(task), from, to }),
        }
    }

    /// The number of the item in the history, if it is named by that.
    pub fn number(&self) -> Option<u64> {
        match self {
            Target::Item(_, item) => item.strip_prefix('#')?.parse().ok(),
            Target::Run(_) | Target::Span { .. } => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Run(run) => write!(f, "{run}"),
            Target::Item(run, item) => write!(f, "{run}/{item}"),
            Target::Span { task, from, to } => write!(f, "{task}@{from}..{to}"),
        }
    }
}

/// Rows that have come back with other values than they had: a trigger, a default or a changed type has set them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Differing {
    /// Number of rows.
    pub rows: u64,
    /// The columns that differ in any of them.
    pub columns: BTreeSet<String>,
    /// The names of the first of them, at most [`DIFFERING_SHOWN`].
    pub first: Vec<String>,
}

/// Maximum number of rows that [`Differing`] names.
pub const DIFFERING_SHOWN: usize = 3;

const DIFFER: &str = " came back with other values in ";
const SET_BY: &str = ": a trigger, a default or a changed type has set them";

impl Differing {
    /// Adds a row in which these columns differ, if any do.
    pub fn add(&mut self, columns: Vec<String>, name: impl FnOnce() -> String) {
        if columns.is_empty() {
            return;
        }
        self.rows += 1;
        self.columns.extend(columns);
        if self.first.len() < DIFFERING_SHOWN {
            self.first.push(name());
        }
    }

    /// Adds others.
    pub fn merge(&mut self, others: Differing) {
        self.rows += others.rows;
        self.columns.extend(others.columns);
        let room = DIFFERING_SHOWN.saturating_sub(self.first.len());
        self.first.extend(others.first.into_iter().take(room));
    }

    /// Reverses its words, alone or as a part of the reason of an item. Names of rows that have the words in
    /// themselves are not taken apart: the number is right, and the first name has all of them.
    pub fn parse(words: &str) -> Option<Differing> {
        let (rows, rest) = words.strip_suffix(SET_BY)?.split_once(DIFFER)?;
        let rows =
            rows.strip_suffix(" row").or_else(|| rows.strip_suffix(" rows"))?.parse().ok()?;
        let (columns, names) = rest.split_once(" (of ")?;
        let names = names.strip_suffix(')')?;
        let names = names.split_once(AND_MORE).map_or(names, |(names, _)| names);
        Some(Differing {
            rows,
            columns: columns.split(", ").map(str::to_owned).collect(),
            first: names.split(BETWEEN).map(str::to_owned).collect(),
        })
    }
}

const BETWEEN: &str = " and ";
const AND_MORE: &str = ", and ";

impl fmt::Display for Differing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let (rows, columns) = (counted(self.rows, "row"), columns.join(", "));
        write!(f, "{rows}{DIFFER}{columns} (of {}", self.first.join(BETWEEN))?;
        match self.rows.saturating_sub(self.first.len() as u64) {
            0 => {}
            more => write!(f, "{AND_MORE}{more} more")?,
        }
        write!(f, "){SET_BY}")
    }
}

/// The name of a row in lists and in the file of `--force-keys`: the collection, then the values of the key.
pub fn row_name(collection: &str, key: &[Value]) -> String {
    let value = |value: &Value| match value {
        Value::Bytes(bytes) => format!("x'{}'", hex::encode(bytes)),
        other => other.shown(),
    };
    format!("{collection} ({})", key.iter().map(value).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_run_an_item_or_a_span_of_a_task() {
        assert_eq!(Target::parse("7"), Ok(Target::Run(RunId(7))));
        assert_eq!(Target::parse("7/a/b"), Ok(Target::Item(RunId(7), "a/b".into())));
        assert_eq!(Target::parse("7/#12").map(|target| target.number()), Ok(Some(12)));
        let span = "old@2026-01-31T08:00:00Z..2026-01-31T09:00:00Z";
        let parsed = Target::parse(span).unwrap();
        assert!(
            matches!(&parsed, Target::Span { task, from, to } if task.as_str() == "old" && from < to)
        );
        assert_eq!(Target::parse(&parsed.to_string()), Ok(parsed));
        for (wrong, why) in [
            ("", "names nothing"),
            ("0", "names nothing"),
            ("seven", "names nothing"),
            ("7/", "names no item"),
            ("old@yesterday", "not a span"),
            ("old@2026-01-31T08:00:00Z..noon", "`noon` is not an instant"),
            ("@2026-01-31T08:00:00Z..2026-01-31T09:00:00Z", "the task is missing"),
            ("old@2026-01-31T09:00:00Z..2026-01-31T08:00:00Z", "ends before it begins"),
        ] {
            let refused = Target::parse(wrong).unwrap_err();
            assert!(
                refused.contains(why) && refused.contains("besom runs ls"),
                "{wrong}: {refused}"
            );
        }
    }

    #[test]
    fn a_request_passes_through_the_settings_of_its_run() {
        let rows = [("7/#1".to_owned(), ["t (1)".to_owned()].into())].into();
        let forced = vec!["t (\"a\")".into()];
        let undo = Undo { target: "7".into(), forced, plan_again: true, rows };
        let of = settings(&undo, "command 3");
        assert_eq!(requested(&of), Some((undo.clone(), "command 3".to_owned())));
        let only = |item| undo.only(item).map(|rows| rows.len());
        assert_eq!(
            (only("7/#1"), only("7/#2"), Undo::default().only("7/#1")),
            (Some(1), Some(0), None)
        );
        let rows = Default::default();
        let earlier = Some((Undo { plan_again: false, rows, ..undo }, "command 3".to_owned()));
        assert_eq!(requested(&of[..3]), earlier);
        assert_eq!(requested(&of[1..]), None);
    }

    #[test]
    fn rows_that_differ_are_named_and_summed_up_from_their_words() {
        let mut all = Differing::default();
        all.add(Vec::new(), || unreachable!("nothing differs"));
        all.add(vec!["rowid".into()], || "t (1)".into());
        let one = "1 row came back with other values in rowid (of t (1)): a trigger, a default or a changed type has \
                   set them";
        assert_eq!(all.to_string(), one);
        assert_eq!(Differing::parse(one), Some(all.clone()));
        for id in 2..=5 {
            all.add(vec!["at".into()], || format!("t ({id})"));
        }
        let said = all.to_string();
        assert!(
            said.starts_with("5 rows came back with other values in at, rowid (of t (1) and t (2) and t (3), and 2 more):"),
            "{said}"
        );
        assert_eq!(Differing::parse(&said), Some(all.clone()));
        let mut sum = all.clone();
        sum.merge(all.clone());
        assert_eq!((sum.rows, sum.first, sum.columns), (10, all.first, all.columns));
        assert_eq!(Differing::parse("it was changed since"), None);
    }

    #[test]
    fn a_reason_is_taken_apart_into_its_notes() {
        let reason = format!("{STAY}t (1): it was changed since; one thing; another");
        assert_eq!(notes_of(Some(&reason)), ["one thing", "another"]);
        assert_eq!(notes_of(Some("one thing")), ["one thing"]);
        assert_eq!(notes_of(None), Vec::<String>::new());
    }

    #[test]
    fn a_reason_says_how_many_rows_stay() {
        let of = |why: &str| left(Some(&format!("{STAY}{why}"))).map(|of| (of.rows, of.or_more));
        assert_eq!(of("t (1): it was changed since; one thing"), Some((1, false)));
        assert_eq!(of("12, the first of them t (1): it was changed since"), Some((12, false)));
        assert_eq!(of("what was kept of them was removed"), Some((1, true)));
        assert_eq!((left(Some("one thing")), left(None)), (None, None));
        let unchosen = format!("{UNCHOSEN}9; one thing");
        assert_eq!((left(Some(&unchosen)), is_whole(Some(&unchosen))), (None, false));
    }

    #[test]
    fn a_row_is_named_by_its_collection_and_its_key() {
        let key = [Value::Text("a\"b".into()), Value::Integer(-1), Value::Bytes(vec![0, 255])];
        assert_eq!(row_name("docs", &key), r#"docs ("a\"b", -1, x'00ff')"#);
    }
}
