//! The dead letters of a group, page by page: the next page is asked for when somebody comes
//! near the end of what is there.

use besom_core::snapshot::{DeadGroup, DeadPage, Letter, Query};

use crate::dash::effect::Outbox;
use crate::dash::table::TableState;
use crate::dash::text;

/// Letters held of a group; the rest is for the command line.
pub(super) const LETTERS_MAX: usize = 10_000;
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
    /// The question that is open, and whether its answer begins the list anew.
    asked: Option<(u64, bool)>,
    pub table: TableState<u64>,
    /// Whether the chosen one is open, and its first line shown.
    pub opened: Option<u16>,
    /// How many there were when they were asked for.
    count: u64,
}

impl Letters {
    /// The letters of a group; the first page is asked for.
    pub(super) fn of(group: &DeadGroup, out: &mut Outbox) -> Letters {
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
        letters.reload(out);
        letters
    }

    /// Whether they are those of a group.
    pub(super) fn is_of(&self, group: &DeadGroup) -> bool {
        self.task == group.task && self.error == group.error
    }

    fn ask(&mut self, anew: bool, out: &mut Outbox) {
        let before = if anew { None } else { self.list.last().map(|letter| letter.id) };
        let query =
            Query::Dead { task: Some(self.task.clone()), error: Some(self.error.clone()), before };
        self.asked = Some((out.ask(query), anew));
    }

    /// Asks for the first page again.
    pub(super) fn reload(&mut self, out: &mut Outbox) {
        self.ask(true, out);
    }

    /// Asks again when others, or we, have changed the group; gives up an answer that never came.
    pub(super) fn follow(&mut self, count: u64, live: bool, out: &mut Outbox) {
        if live && count != self.count && self.asked.is_none() {
            self.count = count;
            self.reload(out);
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
    pub(super) fn next_page(&mut self, out: &mut Outbox) {
        if self.more && self.asked.is_none() && self.list.len() < LETTERS_MAX {
            self.ask(false, out);
        }
    }

    /// Asks for more when the end is near.
    pub(super) fn near_end(&mut self, place: usize, out: &mut Outbox) {
        if place + AHEAD > self.list.len() {
            self.next_page(out);
        }
    }

    /// Takes a page in; false: it is the answer to something else.
    pub(super) fn take(&mut self, ticket: u64, page: Option<&DeadPage>) -> bool {
        let Some((_, anew)) = self.asked.filter(|(asked, _)| *asked == ticket) else {
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

    /// The question was lost with the connection.
    pub(super) fn forget(&mut self) {
        self.asked = None;
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
