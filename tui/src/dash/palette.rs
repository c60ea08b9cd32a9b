//! The command palette, searched by typing a part of a command's words.

use besom_snapshot::{NodeState, Subject};

use super::actions;
use super::confirm::Confirm;
use super::context::Context;
use super::everywhere;
use super::field::Field;
use super::key::{Code, Key};
use super::screens::{Place, Screen};
use super::state::ThemeChoice;

/// Commands shown at a time.
pub const SHOWN_MAX: usize = 10;

/// A command of the palette.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Press a key of the screen.
    Key(Key),
    /// Go to a screen.
    Go(Place),
    /// Show an object on a screen.
    Open(Place, Subject),
    /// Sort by a column of the screen.
    Sort(usize),
    /// Change the theme.
    Theme(ThemeChoice),
    /// Turn the mouse on or off.
    Mouse,
    /// Freeze or resume the display.
    Freeze,
    /// Show the previous snapshot.
    Back,
    /// Show the next snapshot.
    Forward,
    /// Go back by a minute.
    BackMinute,
    /// Go forward by a minute.
    ForwardMinute,
    /// Go back to the previous event.
    BackEvent,
    /// Open the help.
    Help,
    /// Open the palette.
    Palette,
    /// Type a filter.
    Filter,
    /// Sort by the next column.
    SortNext,
    /// Reverse the order of the table.
    Reverse,
    /// Go to the next screen.
    NextScreen,
    /// Go to the previous screen.
    PreviousScreen,
    /// Clear the message, or else the filter.
    Escape,
    /// Open the confirmation dialog of an action.
    Confirm(Box<Confirm>),
    /// Quit.
    Quit,
}

/// A command with its words.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its words.
    pub words: String,
    /// What it does.
    pub command: Command,
}

/// The open palette.
#[derive(Debug, Default)]
pub struct Palette {
    /// The search text.
    pub field: Field,
    entries: Vec<Entry>,
    /// The entries that match, best first.
    found: Vec<usize>,
    /// The index of the selected entry among those.
    pub at: usize,
}

fn entry(words: impl Into<String>, command: Command) -> Entry {
    Entry { words: words.into(), command }
}

impl Palette {
    /// The commands that are available now.
    pub fn open(screen: &dyn Screen, cx: &Context<'_>) -> Palette {
        let own = screen.commands(cx).into_iter();
        let mut entries: Vec<Entry> =
            own.map(|(words, key)| entry(words, Command::Key(key))).collect();
        entries.extend(everywhere::commands().map(|(words, command)| entry(words, command)));
        for (at, heading) in screen.headings().into_iter().enumerate() {
            if heading.sorts && !heading.name.is_empty() {
                let words = format!("sort by {}", heading.name.to_lowercase());
                entries.push(entry(words, Command::Sort(at)));
            }
        }
        if cx.live && !cx.readonly {
            entries.extend(changes(cx));
        }
        for task in &cx.snap.tasks {
            let subject = Subject::Task(task.name.clone());
            let open = |place| Command::Open(place, subject.clone());
            entries.push(entry(format!("show task {}", task.name), open(Place::Tasks)));
            entries.push(entry(format!("edit schedule of {}", task.name), open(Place::Edit)));
        }
        for node in &cx.snap.nodes {
            let open = Command::Open(Place::Overview, Subject::Node(node.name.clone()));
            entries.push(entry(format!("show node {}", node.name), open));
        }
        let mut palette = Palette { entries, ..Palette::default() };
        palette.search();
        palette
    }

    /// The matching commands, best first.
    pub fn found(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.found.iter().map(|at| &self.entries[*at])
    }

    /// Handles a key; `Some`: the palette closes, with the selected command, if any.
    pub fn key(&mut self, key: Key) -> Option<Option<Command>> {
        let last = self.found.len().saturating_sub(1);
        match key.code {
            Code::Esc => return Some(None),
            Code::Enter => {
                let chosen = self.found.get(self.at).map(|at| self.entries[*at].command.clone());
                return Some(chosen);
            }
            Code::Down | Code::Tab => self.at = (self.at + 1).min(last),
            Code::Up | Code::BackTab => self.at = self.at.saturating_sub(1),
            Code::PageDown => self.at = (self.at + SHOWN_MAX).min(last),
            Code::PageUp => self.at = self.at.saturating_sub(SHOWN_MAX),
            _ => {
                if self.field.key(key) {
                    self.search();
                }
            }
        }
        None
    }

    /// Takes pasted text.
    pub fn paste(&mut self, text: &str) {
        self.field.insert(text);
        self.search();
    }

    fn search(&mut self) {
        let wanted = self.field.text().trim().to_lowercase();
        // A run can be opened by its number, whether the snapshot contains it or not.
        self.entries.retain(|entry| !matches!(entry.command, Command::Open(_, Subject::Run(_))));
        if let Some(run) = wanted.strip_prefix("run ").and_then(|run| run.trim().parse().ok()) {
            let command = Command::Open(Place::Runs, Subject::Run(run));
            self.entries.push(entry(format!("run {run}"), command));
        }
        let scored = self.entries.iter().enumerate();
        let mut scored: Vec<(u32, usize)> =
            scored.filter_map(|(at, e)| Some((score(&wanted, &e.words)?, at))).collect();
        scored.sort_unstable();
        if wanted == "q" {
            let quit = |(_, at): &(u32, usize)| self.entries[*at].command != Command::Quit;
            scored.sort_by_key(quit);
        }
        self.found = scored.into_iter().map(|(_, at)| at).collect();
        self.at = 0;
    }
}

/// The commands that change something.
fn changes(cx: &Context<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut add = |words: String, confirm: Confirm| {
        entries.push(entry(words, Command::Confirm(Box::new(confirm))));
    };
    for task in cx.snap.tasks.iter().filter(|task| !task.orphaned) {
        let name = &task.name;
        add(format!("trigger {name}"), actions::trigger(name));
        match task.paused {
            None => add(format!("pause {name}"), actions::pause(name)),
            Some(_) => {
                add(format!("resume {name}"), actions::resume(task, false));
                if task.is_braked() {
                    add(format!("release {name} from its brakes"), actions::resume(task, true));
                    add(format!("pause {name} in place of its brake"), actions::take_over(task));
                }
                add(format!("discard what is planned of {name}"), actions::discard_planned(name));
            }
        }
    }
    match cx.snap.all_paused {
        None => add("pause all tasks".to_owned(), actions::pause_all()),
        Some(_) => add("resume all tasks".to_owned(), actions::resume_all()),
    }
    for run in cx.snap.runs.iter().filter(|run| run.state.is_active()) {
        add(format!("cancel run {} {}", run.id, run.task), actions::cancel(run.id, &run.task));
    }
    for node in &cx.snap.nodes {
        let name = &node.name;
        match node.state {
            NodeState::Active | NodeState::Joining => {
                add(format!("drain {name}"), actions::drain(name));
            }
            NodeState::Draining => add(format!("rejoin {name}"), actions::rejoin(name)),
            NodeState::Lost | NodeState::Unknown => {}
        }
    }
    if let Some(leader) = &cx.snap.leadership.leader {
        add(format!("resign leader {}", leader.node), actions::resign(&leader.node, leader.term));
    }
    entries
}

/// How poorly words match the input, 0 best; none: no match. The characters of the input must occur
/// in order; gaps cost, and gaps within words cost more than gaps between them.
fn score(wanted: &str, words: &str) -> Option<u32> {
    let mut score = 0;
    let mut rest = words.char_indices().peekable();
    let mut before = ' ';
    for c in wanted.chars().filter(|c| !c.is_whitespace()) {
        let mut skipped = 0;
        loop {
            let (_, next) = rest.next()?;
            let next = next.to_ascii_lowercase();
            let start = !before.is_alphanumeric();
            before = next;
            if next == c {
                score += if skipped > 0 && !start { 4 + skipped } else { u32::from(skipped > 0) };
                break;
            }
            skipped += 1;
        }
    }
    Some(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_the_beginnings_of_their_words() {
        let entries = ["pause compact-docs", "cancel run 8 compact", "theme light", "pause gc"];
        for (typed, best) in [
            ("pc", Some("pause compact-docs")),
            ("pagc", Some("pause gc")),
            ("th li", Some("theme light")),
            ("run 8", Some("cancel run 8 compact")),
            ("xyz", None),
        ] {
            let found = entries.iter().filter_map(|words| Some((score(typed, words)?, *words)));
            assert_eq!(found.min().map(|(_, words)| words), best, "{typed}");
        }
    }
}
