//! The dead letters of a group, page by page: the next page is asked for when somebody comes
//! near the end of what is there.

use std::time::Duration;

use besom_core::snapshot::{DeadGroup, DeadPage, Letter, Query};
use besom_core::time::Time;

use crate::dash::effect::Outbox;
use crate::dash::table::TableState;
use crate::dash::text;

/// Letters held of a group; the rest is for the command line.
pub(super) const LETTERS_MAX: usize = 10_000;
/// An answer that takes longer was lost with its connection.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// So near to the end the next page is asked for.
const AHEAD: usize = 50;

/// The letters of a group.
#[derive(Debug)]
pub(super) struct Letters {
    pub task: String,
    pub error: String,
    pub list: Vec<Letter>,
    /// Whether there are older ones on the host.
    pub more: bool,
    /// The question that is open, whether its answer begins the list anew, and when it was asked.
    asked: Option<(u64, bool, Time)>,
    pub table: TableState<u64>,
    /// Whether the chosen one is open, and its first line shown.
    pub opened: Option<u16>,
    /// How many there were when they were asked for.
    count: u64,
}

impl Letters {
    /// The letters of a group; the first page is asked for.
    pub(super) fn of(group: &DeadGroup, now: Time, out: &mut Outbox) -> Letters {
        let mut letters = Letters {
            task: group.task.clone(),
            error: group.error.clone(),
            list: Vec::new(),
            more: true,
            asked: None,
            table: TableState::unsorted(),
            opened: None,
            count: group.count,
        };
        letters.reload(now, out);
        letters
    }

    /// Whether they are those of a group.
    pub(super) fn is_of(&self, group: &DeadGroup) -> bool {
        self.task == group.task && self.error == group.error
    }

    fn ask(&mut self, anew: bool, now: Time, out: &mut Outbox) {
        let before = if anew { None } else { self.list.last().map(|letter| letter.id) };
        let query =
            Query::Dead { task: Some(self.task.clone()), error: Some(self.error.clone()), before };
        self.asked = Some((out.ask(query), anew, now));
    }

    /// Asks for the first page again.
    pub(super) fn reload(&mut self, now: Time, out: &mut Outbox) {
        self.ask(true, now, out);
    }

    /// Asks again when others, or we, have changed the group, and when an answer never came.
    pub(super) fn follow(&mut self, count: u64, now: Time, out: &mut Outbox) {
        let lost = self.asked.is_some_and(|(_, _, at)| now.since(at) > ANSWER_MAX);
        if lost || (count != self.count && self.asked.is_none()) {
            self.count = count;
            self.reload(now, out);
        }
    }

    /// Whether an answer is awaited.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether everything that can be held is here.
    pub(super) fn complete(&self) -> bool {
        self.asked.is_none() && (!self.more || self.list.len() >= LETTERS_MAX)
    }

    /// Asks for the next page, if there is one and none is under way.
    pub(super) fn next_page(&mut self, now: Time, out: &mut Outbox) {
        if self.more && self.asked.is_none() && self.list.len() < LETTERS_MAX {
            self.ask(false, now, out);
        }
    }

    /// Asks for more when the end is near.
    pub(super) fn near_end(&mut self, place: usize, now: Time, out: &mut Outbox) {
        if place + AHEAD > self.list.len() {
            self.next_page(now, out);
        }
    }

    /// Takes a page in; false: it is the answer to something else.
    pub(super) fn take(&mut self, ticket: u64, page: Option<&DeadPage>) -> bool {
        let Some((_, anew, _)) = self.asked.filter(|(asked, ..)| *asked == ticket) else {
            return false;
        };
        self.asked = None;
        let Some(page) = page else {
            // It was refused: the frame has said why.
            self.more = false;
            return true;
        };
        if anew {
            self.list.clear();
        }
        let last = self.list.last().map_or(u64::MAX, |letter| letter.id);
        self.list.extend(page.letters.iter().filter(|letter| letter.id < last).cloned());
        self.list.truncate(LETTERS_MAX);
        // A page that brings nothing ends the list, whatever it says.
        self.more = page.more && !page.letters.is_empty();
        let ids = self.ids();
        self.table.settle(&ids);
        true
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.list.iter().map(|letter| letter.id).collect()
    }

    /// The chosen letter.
    pub(super) fn chosen(&self) -> Option<&Letter> {
        let ids = self.ids();
        self.list.get(self.table.place(&ids)?)
    }
}

/// A letter in full, line by line.
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
    let attempts = letter.errors.len();
    for (n, error) in letter.errors.iter().enumerate().rev() {
        lines.push(format!("#{} of {attempts}  {error}", n + 1));
    }
    lines.push(format!("payload, {}:", text::bytes(letter.payload_bytes)));
    lines.extend(letter.payload.lines().map(|line| format!("  {line}")));
    lines
}

/// Letters as JSON, for a file.
pub(super) fn json(letters: &[Letter]) -> String {
    let text = serde_json::to_string_pretty(letters);
    text.unwrap_or_else(|fault| format!("[] // they cannot be written: {fault}")) + "\n"
}

/// The name of a file for the letters of a task: nothing of the task's name can lead elsewhere.
pub(super) fn file_name(task: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let task: String = task.chars().take(60).map(plain).collect();
    format!("dead-letters-{task}.json")
}
