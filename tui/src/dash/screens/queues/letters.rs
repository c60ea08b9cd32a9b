//! The dead letters of a group, or all of them, page by page: the next page is requested near the
//! end of the list, and all pages for a search or a sort.

use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{DeadGroup, DeadPage, Letter, Query};

use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::table::{Column, SortKey, TableState, Width, plain};
use crate::dash::text;

/// The maximum number of letters kept; the others are available through the command line.
pub(super) const LETTERS_MAX: usize = 10_000;
/// After this time, an answer counts as lost with its connection.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The distance from the end at which the next page is requested.
const AHEAD: usize = 50;

type Col = Column<Letter>;

/// The columns of letters; those for letters of several groups are last.
const COLUMNS: &[Col] = &[
    Col::right("LETTER", Width::Fixed(8), 0, |letter, _| plain(letter.id.to_string()))
        .by(|letter, _| SortKey::Number(letter.id as f64)),
    Col::left("KEY", Width::Fill(20), 0, |letter, _| plain(&letter.key))
        .by(|letter, _| SortKey::Text(&letter.key)),
    Col::right("TRIES", Width::Fixed(5), 3, |letter, _| plain(letter.attempts.to_string()))
        .by(|letter, _| SortKey::Number(f64::from(letter.attempts))),
    Col::right("SET ASIDE", Width::Fixed(9), 1, |letter, _| plain(text::clock(letter.at)))
        .by(|letter, _| SortKey::Number(letter.at.0 as f64)),
    Col::left("TENANT", Width::Fixed(12), 2, |letter, _| {
        plain(letter.tenant.as_deref().unwrap_or("-"))
    })
    .by(|letter, _| SortKey::text(letter.tenant.as_deref())),
    Col::left("TASK", Width::Fixed(16), 4, |letter, _| plain(&letter.task))
        .by(|letter, _| SortKey::Text(&letter.task))
        .of_groups(),
    Col::left("ERROR", Width::Fill(20), 5, |letter, _| {
        plain(letter.errors.last().map_or("", String::as_str))
    })
    .by(|letter, _| SortKey::Text(letter.errors.last().map_or("", String::as_str)))
    .of_groups(),
];

/// The letters of a group, or all of them.
#[derive(Debug)]
pub(super) struct Letters {
    /// The task and the error of the group; none: all letters.
    pub of: Option<(String, String)>,
    /// Text that a shown letter contains in its key, tenant, task or one of its errors.
    pub filter: String,
    pub list: Vec<Letter>,
    /// Whether the host has older ones.
    pub more: bool,
    /// The pending question, whether its answer replaces the list, and when it was asked.
    asked: Option<(u64, bool, Time)>,
    pub table: TableState<u64>,
    /// Whether the selected letter is open, and the first line shown.
    pub opened: Option<u16>,
    /// The number of letters when they were requested.
    count: u64,
}

impl Letters {
    /// The letters of a group; requests the first page.
    pub(super) fn of(group: &DeadGroup, now: Time, out: &mut Outbox) -> Letters {
        Letters::open(Some((group.task.clone(), group.error.clone())), group.count, now, out)
    }

    /// All letters, given their number; requests the first page.
    pub(super) fn all(count: u64, now: Time, out: &mut Outbox) -> Letters {
        Letters::open(None, count, now, out)
    }

    fn open(of: Option<(String, String)>, count: u64, now: Time, out: &mut Outbox) -> Letters {
        let mut letters = Letters {
            of,
            filter: String::new(),
            list: Vec::new(),
            more: true,
            asked: None,
            table: TableState::unsorted(),
            opened: None,
            count,
        };
        letters.reload(now, out);
        letters
    }

    /// Whether these are the letters of a group.
    pub(super) fn is_of(&self, group: &DeadGroup) -> bool {
        self.of.as_ref().is_some_and(|(task, error)| *task == group.task && *error == group.error)
    }

    /// The columns for these letters.
    pub(super) fn columns(&self) -> &'static [Column<Letter>] {
        match self.of {
            Some(_) => &COLUMNS[..COLUMNS.partition_point(|column| !column.heading.of_groups)],
            None => COLUMNS,
        }
    }

    /// The letters that match the filter, in display order.
    pub(super) fn shown(&self, cx: &Context<'_>) -> Vec<&Letter> {
        let passes = |letter: &&Letter| {
            let named = [&letter.key, &letter.task].into_iter().chain(&letter.tenant);
            text::passes(&self.filter, named.chain(&letter.errors).map(String::as_str))
        };
        let letters = self.list.iter().filter(passes).collect();
        self.table.order.arrange(self.columns(), letters, cx)
    }

    /// Whether all letters are needed: for a filter or an order.
    fn wants_all(&self) -> bool {
        !self.filter.is_empty() || self.table.order.by.is_some()
    }

    fn ask(&mut self, anew: bool, now: Time, out: &mut Outbox) {
        let before = if anew { None } else { self.list.last().map(|letter| letter.id) };
        let (task, error) = self.of.clone().unzip();
        let query = Query::Dead { task, error, before };
        self.asked = Some((out.ask(query), anew, now));
    }

    /// Requests the first page again.
    pub(super) fn reload(&mut self, now: Time, out: &mut Outbox) {
        self.ask(true, now, out);
    }

    /// Requests the letters again if the group has changed or an answer was lost.
    pub(super) fn follow(&mut self, count: u64, now: Time, out: &mut Outbox) {
        let lost = self.asked.is_some_and(|(_, _, at)| now.since(at) > ANSWER_MAX);
        if lost || (count != self.count && self.asked.is_none()) {
            self.count = count;
            self.reload(now, out);
        } else {
            self.go_on(now, out);
        }
    }

    /// Requests the remaining letters if all are needed.
    pub(super) fn go_on(&mut self, now: Time, out: &mut Outbox) {
        if self.wants_all() {
            self.next_page(now, out);
        }
    }

    /// Whether an answer is pending.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether all letters that can be kept are here.
    pub(super) fn complete(&self) -> bool {
        self.asked.is_none() && (!self.more || self.list.len() >= LETTERS_MAX)
    }

    /// Requests the next page, if there is one and no request is pending.
    pub(super) fn next_page(&mut self, now: Time, out: &mut Outbox) {
        if self.more && self.asked.is_none() && self.list.len() < LETTERS_MAX {
            self.ask(false, now, out);
        }
    }

    /// Requests more letters near the end of the list.
    pub(super) fn near_end(&mut self, place: usize, cx: &Context<'_>, out: &mut Outbox) {
        if place + AHEAD > self.shown(cx).len() {
            self.next_page(cx.now, out);
        }
    }

    /// Handles a page; false: it answers another question.
    pub(super) fn take(&mut self, ticket: u64, page: Option<&DeadPage>, cx: &Context<'_>) -> bool {
        let Some((_, anew, _)) = self.asked.filter(|(asked, ..)| *asked == ticket) else {
            return false;
        };
        self.asked = None;
        let Some(page) = page else {
            // The request was refused: the frame has shown why.
            self.more = false;
            return true;
        };
        if anew {
            self.list.clear();
        }
        let last = self.list.last().map_or(u64::MAX, |letter| letter.id);
        self.list.extend(page.letters.iter().filter(|letter| letter.id < last).cloned());
        self.list.truncate(LETTERS_MAX);
        // An empty page ends the list, whatever it claims.
        self.more = page.more && !page.letters.is_empty();
        let ids = self.ids(cx);
        self.table.settle(&ids);
        true
    }

    /// The numbers of the shown letters.
    pub(super) fn ids(&self, cx: &Context<'_>) -> Vec<u64> {
        self.shown(cx).iter().map(|letter| letter.id).collect()
    }

    /// The selected letter.
    pub(super) fn chosen(&self, cx: &Context<'_>) -> Option<&Letter> {
        let shown = self.shown(cx);
        let ids: Vec<u64> = shown.iter().map(|letter| letter.id).collect();
        Some(shown[self.table.place(&ids)?])
    }
}

/// A letter in full, as lines.
pub(super) fn lines(letter: &Letter) -> Vec<String> {
    let tenant = letter.tenant.as_ref().map(|tenant| format!("  tenant {tenant}"));
    let due = letter.due.map(|due| format!("  due {due}"));
    let mut lines = vec![
        format!("letter {}  task {}{}", letter.id, letter.task, tenant.unwrap_or_default()),
        format!("key {}{}  version {}", letter.key, due.unwrap_or_default(), letter.version),
        format!(
            "attempts {}  set aside {}  run {}  slot {}  partition {}",
            letter.attempts, letter.at, letter.run, letter.planned_at, letter.partition
        ),
    ];
    lines.extend(letter.node.iter().map(|node| format!("set aside by {node}")));
    let attempts = letter.errors.len();
    for (n, error) in letter.errors.iter().enumerate().rev() {
        lines.push(format!("#{} of {attempts}  {error}", n + 1));
    }
    if letter.payload_bytes > 0 {
        lines.push(format!("payload, {}:", text::bytes(letter.payload_bytes)));
    }
    lines.extend(letter.payload.lines().map(|line| format!("  {line}")));
    lines
}

/// Letters as JSON, for a file.
pub(super) fn json(letters: &[Letter]) -> String {
    let text = serde_json::to_string_pretty(letters);
    text.unwrap_or_else(|fault| format!("[] // cannot be written: {fault}")) + "\n"
}

/// The file name for a task's letters: the task's name cannot lead to another directory.
pub(super) fn file_name(task: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let task: String = task.chars().take(60).map(plain).collect();
    format!("dead-letters-{task}.json")
}
