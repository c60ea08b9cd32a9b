//! The exchange between a form and the host that owns the file: the file as it was opened, the
//! preview of an edit, and the saving.
//!
//! ```text
//!   file ──> typed ──pause──> preview ──> answer (diff, problems)
//!                └─────────save, base digest──> saved | refused: the file is looked at again
//! ```
//! Nothing here writes the file: the host does, and only if the file is the one that was opened.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{Answer, ConfigFile, Edit, Edited, Query};

/// Without input for this long, a preview is requested.
pub const PAUSE: Duration = Duration::from_millis(300);
/// How often the file is read while a form is open.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A question without an answer is repeated after this time.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A save without an answer is abandoned after this time.
pub const SAVING_MAX: Duration = Duration::from_secs(30);

type Changes = BTreeMap<String, Option<String>>;

/// News for the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The file has arrived for the first time, or after a reload.
    Opened,
    /// The file was saved.
    Saved,
    /// The file was not saved, for this reason.
    NotSaved(String),
}

/// The exchange of one form.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// The file that the edit is based on.
    pub file: Option<ConfigFile>,
    /// The file on disk, if it differs.
    pub theirs: Option<ConfigFile>,
    /// Why the file could not be read.
    pub refusal: Option<String>,
    /// The preview of the edit, and the changes that it belongs to.
    pub preview: Option<(Changes, Edited)>,
    /// Why the preview failed.
    pub preview_refusal: Option<String>,
    looked: Option<(u64, Time)>,
    look_at: Option<Time>,
    asked: Option<(u64, Time, Changes)>,
    typed_at: Option<Time>,
    saving: Option<(u64, Time)>,
    reopen: bool,
}

impl Exchange {
    /// The values have changed: a preview is requested after a pause.
    pub fn typed(&mut self, now: Time) {
        self.typed_at = Some(now);
    }

    /// Whether a save is under way.
    pub fn saves(&self) -> bool {
        self.saving.is_some()
    }

    /// Whether the file has changed on disk since it was opened.
    pub fn is_stale(&self) -> bool {
        self.theirs.is_some()
    }

    /// The questions that are due; `ask` sends one and returns its ticket.
    pub fn due(
        &mut self,
        task: &str,
        changes: &Changes,
        now: Time,
        mut ask: impl FnMut(Query) -> u64,
    ) {
        let overdue = |at: Time| now.since(at) >= ANSWER_MAX;
        if self.looked.is_none_or(|(_, at)| overdue(at)) && self.look_at.is_none_or(|at| now >= at)
        {
            self.looked = Some((ask(Query::Config), now));
        }
        let Some(file) = &self.file else { return };
        let waits = self.asked.as_ref().is_some_and(|(_, at, _)| !overdue(*at));
        let paused = self.typed_at.is_some_and(|at| now.since(at) >= PAUSE);
        if paused && !waits {
            self.typed_at = None;
            if changes.is_empty() {
                (self.preview, self.preview_refusal) = (None, None);
                return;
            }
            let edit = Edit {
                task: task.to_owned(),
                base: file.digest.clone(),
                set: changes.clone(),
                save: false,
                reason: String::new(),
            };
            self.asked = Some((ask(Query::Edit(edit)), now, changes.clone()));
        }
    }

    /// When the next question is due.
    pub fn next(&self, now: Time) -> Time {
        let look = match self.looked {
            Some((_, at)) => at + ANSWER_MAX,
            None => self.look_at.unwrap_or(now),
        };
        let typed = self.typed_at.map(|at| at + PAUSE).filter(|_| self.file.is_some());
        let typed = typed.map(|at| match &self.asked {
            Some((_, asked, _)) => at.max(*asked + ANSWER_MAX),
            None => at,
        });
        typed.map_or(look, |at| at.min(look))
    }

    /// The request that saves; none: the file has not been read, or a save is under way.
    pub fn save(&mut self, task: &str, set: Changes, reason: &str) -> Option<Edit> {
        if self.saves() {
            return None;
        }
        let base = self.file.as_ref()?.digest.clone();
        let (task, reason) = (task.to_owned(), reason.to_owned());
        Some(Edit { task, base, set, save: true, reason })
    }

    /// Records that the save was sent.
    pub fn sent(&mut self, ticket: u64, now: Time) {
        self.saving = Some((ticket, now));
    }

    /// Bases the edit on the file on disk.
    pub fn reload(&mut self, now: Time) {
        match self.theirs.take() {
            Some(theirs) => self.file = Some(theirs),
            None => (self.reopen, self.looked, self.look_at) = (true, None, Some(now)),
        }
        (self.preview, self.preview_refusal) = (None, None);
        self.typed_at = Some(now);
    }

    /// Handles a lost connection: pending questions are repeated. A pending save may or may not
    /// have succeeded; the file shows which.
    pub fn lost(&mut self) -> Option<News> {
        (self.looked, self.look_at) = (None, None);
        if let Some((_, at, _)) = self.asked.take() {
            self.typed_at = Some(at);
        }
        let why = "the connection was lost; the file below shows whether the edit was saved";
        self.saving.take().map(|_| News::NotSaved(why.to_owned()))
    }

    /// Abandons a save without an answer.
    pub fn overdue(&mut self, now: Time) -> Option<News> {
        self.saving.take_if(|(_, at)| now.since(*at) >= SAVING_MAX)?;
        (self.looked, self.look_at) = (None, None);
        let why = "the host has not answered; the file below shows whether the edit was saved";
        Some(News::NotSaved(why.to_owned()))
    }

    /// Handles an answer; none: it contains no news or belongs to another form.
    pub fn answer(&mut self, ticket: u64, answer: &Answer, now: Time) -> Option<News> {
        if self.looked.is_some_and(|(asked, _)| asked == ticket) {
            self.looked = None;
            self.look_at = Some(now + LOOK_EVERY);
            return self.looked_at(answer);
        }
        if self.saving.is_some_and(|(asked, _)| asked == ticket) {
            self.saving = None;
            // Whatever the result, the file is read again.
            self.look_at = Some(now);
            return Some(self.saved(answer));
        }
        if let Some((_, _, changes)) = self.asked.take_if(|(asked, ..)| *asked == ticket) {
            match answer {
                Answer::Edited(edited) => {
                    self.preview = Some((changes, edited.clone()));
                    self.preview_refusal = None;
                }
                Answer::Refused(refusal) => {
                    self.preview = None;
                    self.preview_refusal = Some(refusal.message.clone());
                }
                _ => {}
            }
        }
        None
    }

    fn looked_at(&mut self, answer: &Answer) -> Option<News> {
        match answer {
            Answer::Config(file) => {
                self.refusal = None;
                match &self.file {
                    Some(open) if !self.reopen => {
                        let same = open.digest == file.digest;
                        self.theirs = (!same).then(|| file.clone());
                        if same {
                            // The lock may have changed.
                            self.file = Some(file.clone());
                        }
                        None
                    }
                    _ => {
                        self.reopen = false;
                        self.file = Some(file.clone());
                        Some(News::Opened)
                    }
                }
            }
            Answer::Refused(refusal) => {
                self.refusal = Some(refusal.message.clone());
                None
            }
            _ => None,
        }
    }

    fn saved(&mut self, answer: &Answer) -> News {
        match answer {
            Answer::Edited(edited) if edited.saved => {
                // The saved file is now the current one; its text arrives with the next read.
                self.reopen = true;
                if let Some(file) = &mut self.file {
                    file.digest.clone_from(&edited.digest);
                }
                (self.preview, self.theirs) = (None, None);
                News::Saved
            }
            Answer::Edited(edited) => {
                let problem = edited.problems.iter().find(|problem| !problem.warning);
                News::NotSaved(match problem {
                    Some(problem) if problem.fix.is_empty() => problem.message.clone(),
                    Some(problem) => format!("{}; {}", problem.message, problem.fix),
                    None => "the file has changed on disk since it was read".to_owned(),
                })
            }
            Answer::Refused(refusal) => News::NotSaved(refusal.message.clone()),
            _ => News::NotSaved("the host sent an unexpected answer".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use besom_snapshot::Refusal;

    use super::*;

    const S: fn(i64) -> Time = Time::from_secs;

    fn file(digest: &str) -> Answer {
        Answer::Config(ConfigFile { digest: digest.into(), ..ConfigFile::default() })
    }

    fn changes() -> Changes {
        [("schedule".to_owned(), Some("@daily".to_owned()))].into()
    }

    /// What is asked now, with the ticket 7.
    fn due(exchange: &mut Exchange, now: Time) -> Vec<Query> {
        let mut asked = Vec::new();
        exchange.due("a", &changes(), now, |query| {
            asked.push(query);
            7
        });
        asked
    }

    fn opened() -> Exchange {
        let mut exchange = Exchange::default();
        assert_eq!(due(&mut exchange, S(0)), [Query::Config]);
        assert_eq!(exchange.answer(7, &file("one"), S(0)), Some(News::Opened));
        exchange
    }

    #[test]
    fn a_saving_that_nobody_answers_is_given_up_and_the_file_is_looked_at() {
        let mut exchange = opened();
        assert!(exchange.save("a", changes(), "why").is_some());
        exchange.sent(9, S(1));
        assert!(exchange.saves() && exchange.save("a", changes(), "again").is_none());
        assert_eq!(exchange.overdue(S(30)), None);
        assert!(matches!(exchange.overdue(S(31)), Some(News::NotSaved(_))));
        assert!(!exchange.saves());
        assert_eq!(due(&mut exchange, S(31)), [Query::Config]);
        assert_eq!(exchange.answer(9, &file("late"), S(32)), None, "the save was abandoned");
    }

    #[test]
    fn a_lost_connection_asks_again_what_was_asked() {
        let mut exchange = opened();
        exchange.typed(S(1));
        assert_eq!(due(&mut exchange, S(2)).len(), 1, "the preview");
        exchange.sent(9, S(2));
        assert!(matches!(exchange.lost(), Some(News::NotSaved(_))));
        assert_eq!(due(&mut exchange, S(3)).len(), 2, "the file and the preview");
        assert_eq!(exchange.lost(), None);
    }

    #[test]
    fn a_refusal_keeps_what_is_there() {
        let mut exchange = opened();
        exchange.typed(S(1));
        due(&mut exchange, S(2));
        let refused = Answer::Refused(Refusal { message: "no such task".into() });
        assert_eq!(exchange.answer(7, &refused, S(2)), None);
        assert_eq!(exchange.preview_refusal.as_deref(), Some("no such task"));
        assert_eq!(due(&mut exchange, S(5)), [Query::Config]);
        exchange.answer(7, &refused, S(5));
        assert_eq!(exchange.refusal.as_deref(), Some("no such task"));
        assert!(exchange.file.is_some() && !exchange.is_stale());
    }

    #[test]
    fn another_file_is_stale_until_it_is_taken() {
        let mut exchange = opened();
        assert_eq!(due(&mut exchange, S(4)), [], "it was read a moment ago");
        due(&mut exchange, S(5));
        assert_eq!(exchange.answer(7, &file("two"), S(5)), None);
        assert!(exchange.is_stale());
        exchange.reload(S(6));
        assert!(!exchange.is_stale());
        assert_eq!(exchange.save("a", changes(), "").map(|edit| edit.base).as_deref(), Some("two"));
    }
}
