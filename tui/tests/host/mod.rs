//! A host that answers a dashboard's questions from one run with a log and one file.

use besom_core::item::End;
use besom_core::time::Time;
use besom_samples::{NOW, ago_ms, small};
use besom_snapshot::{
    Answer, ConfigFile, DiffKind, DiffLine, Edit, Edited, ItemRow, LogLine, LogPage, Problem,
    Query, Refusal, Run, RunDetail, RunPage, TaskPast,
};
use besom_tui::dash::{Effect, Feed, Input};

use crate::common::Dashboard;

/// The file's path.
pub const PATH: &str = "/etc/besom/besom.toml";
/// Its digest.
pub const DIGEST: &str = "5ac1b0f2";
/// Its text.
pub const FILE: &str = "# The housekeeping of prod.
[store]
url = \"postgres://db/prod\"

[tasks.compact-docs]
plugin = \"compaction\"
schedule = \"*/5 * * * *\"

[tasks.share-expiry]
plugin = \"share-expiry\"
schedule = \"* * * * *\"    # every minute, see INC-300
timezone = \"UTC\"
overlap = \"skip\"

[tasks.share-expiry.limits]
fuel = 2_000_000_000
";
/// The number of the last line of the log.
pub const LAST_LINE: u64 = 46;

const HOSTILE: &str = "\x1b]0;owned\x07\x1b[2J\u{202e}evil\u{200b}\u{9b}31m\r\n\t";

/// A host.
pub struct Host {
    /// The requests so far.
    pub asked: Vec<Query>,
    /// Why the file cannot be replaced.
    pub lock: Option<String>,
    /// Why the next save is refused.
    pub refuse: Option<String>,
    /// The diagnostics of every edit.
    pub problem: Option<Problem>,
    /// Whether all of its texts contain control characters.
    pub hostile: bool,
    file: String,
    digest: String,
    /// The number of effects of the dashboard that were handled.
    seen: usize,
    now: Time,
}

impl Host {
    /// A host with the file and the log above.
    pub fn new() -> Host {
        Host {
            asked: Vec::new(),
            lock: None,
            refuse: None,
            problem: None,
            hostile: false,
            file: FILE.to_owned(),
            digest: DIGEST.to_owned(),
            seen: 0,
            now: NOW,
        }
    }

    /// Another user replaces the file.
    pub fn replace(&mut self, text: &str, digest: &str) {
        (self.file, self.digest) = (text.to_owned(), digest.to_owned());
    }

    /// The requested edits.
    pub fn edits(&self) -> Vec<Edit> {
        let edit = |query: &Query| match query {
            Query::Edit(edit) => Some(edit.clone()),
            _ => None,
        };
        self.asked.iter().filter_map(edit).collect()
    }

    /// Answers all requests, and those that follow from the answers.
    pub fn answer(&mut self, dashboard: &mut Dashboard) {
        self.seen = self.seen.min(dashboard.effects.len());
        while self.seen < dashboard.effects.len() {
            let effect = dashboard.effects[self.seen].clone();
            self.seen += 1;
            if let Effect::Ask { ticket, query } = effect {
                let answer = self.said(&query);
                self.asked.push(query);
                dashboard.input(Input::Feed(Feed::Answer { ticket, answer }));
            }
        }
    }

    /// Lets milliseconds pass as a shell does: a tick whenever the dashboard wants one.
    pub fn pass(&mut self, dashboard: &mut Dashboard, ms: i64) {
        let until = Time(self.now.0 + ms * 1_000);
        while self.now < until {
            let next = dashboard.state.next_tick().min(until);
            assert!(next > self.now, "the dashboard wants to be woken at once, for ever");
            self.now = next;
            dashboard.input(Input::Tick(self.now));
            self.answer(dashboard);
        }
    }

    fn said(&mut self, query: &Query) -> Answer {
        match query {
            Query::Config => Answer::Config(ConfigFile {
                host: "node-a".into(),
                path: PATH.into(),
                digest: self.digest.clone(),
                text: self.foreign(&self.file),
                locked: self.lock.clone(),
            }),
            Query::Edit(edit) if edit.save => match self.refuse.take() {
                Some(message) => Answer::Refused(Refusal { message }),
                None => {
                    let edited = self.edited(edit);
                    let schedule = edit.set.get("schedule").cloned().flatten().unwrap_or_default();
                    self.file = self.file.replace("\"* * * * *\"", &format!("\"{schedule}\""));
                    self.digest = "saved".into();
                    Answer::Edited(Edited { saved: true, digest: self.digest.clone(), ..edited })
                }
            },
            Query::Edit(edit) => Answer::Edited(self.edited(edit)),
            Query::Run { run } => match detail(*run) {
                Some(mut detail) => {
                    for item in &mut detail.items {
                        item.key = self.foreign(&item.key);
                        item.reason = item.reason.as_deref().map(|reason| self.foreign(reason));
                    }
                    Answer::Run(Box::new(detail))
                }
                None => Answer::Refused(Refusal { message: format!("there is no run {run}") }),
            },
            Query::Log { after, .. } => Answer::Log(self.log(*after)),
            Query::Past { task, .. } => {
                let snap = small();
                let of_task = snap.task(task).expect("a task of the sample");
                Answer::Past(TaskPast {
                    task: task.clone(),
                    slots: of_task.slots.clone(),
                    runs: of_task.last.iter().rev().cloned().collect(),
                    ..TaskPast::default()
                })
            }
            Query::Runs { tasks, .. } => {
                let runs = small().runs.iter().map(|run| (**run).clone()).collect::<Vec<_>>();
                let wanted = |run: &Run| tasks.is_empty() || tasks.contains(&run.task);
                let runs = runs.into_iter().filter(wanted).collect();
                Answer::Runs(RunPage { runs, more: false })
            }
            other => Answer::Refused(Refusal { message: format!("{other:?} is not asked here") }),
        }
    }

    fn foreign(&self, text: &str) -> String {
        if self.hostile { format!("{text}{HOSTILE}") } else { text.to_owned() }
    }

    fn edited(&self, edit: &Edit) -> Edited {
        let schedule = edit.set.get("schedule").cloned().flatten().unwrap_or_default();
        let line = |kind, line, text: &str| DiffLine { kind, line, text: self.foreign(text) };
        let new = format!("schedule = \"{schedule}\"    # every minute, see INC-300");
        let old = "schedule = \"* * * * *\"    # every minute, see INC-300";
        let problem = Problem {
            warning: true,
            key: None,
            line: 7,
            column: 1,
            chars: 8,
            text: self.foreign("schedule"),
            message: self.foreign("compact-docs has no time zone"),
            fix: self.foreign("UTC is taken"),
        };
        Edited {
            diff: vec![
                line(DiffKind::Kept, 10, "plugin = \"share-expiry\""),
                line(DiffKind::Removed, 11, old),
                line(DiffKind::Added, 11, &new),
                line(DiffKind::Kept, 12, "timezone = \"UTC\""),
            ],
            problems: vec![self.problem.clone().unwrap_or(problem)],
            saved: false,
            digest: self.digest.clone(),
        }
    }

    fn log(&self, after: u64) -> LogPage {
        let line = |no, ms, level: &str, text: &str, dropped| LogLine {
            no,
            at: ago_ms(ms),
            node: self.foreign("node-c"),
            level: level.into(),
            text: self.foreign(text),
            dropped,
        };
        let lines = [
            line(1, 8_204, "info", "batch 412 expired=100 kept=3", 0),
            line(2, 7_101, "warn", "share:9f31 has 18,204 children, walking", 0),
            line(3, 3_880, "info", "share:9f31 4,000/18,204", 0),
            line(4, 2_412, "debug", "cursor at 9f31/5200", 0),
            line(45, 1_204, "info", "batch 413 expired=98 kept=2", 38),
            line(LAST_LINE, 204, "error", "share:77aa is gone", 0),
        ];
        let shift = if self.hostile && after >= LAST_LINE { after } else { 0 };
        let lines = lines.into_iter().map(|line| LogLine { no: line.no + shift, ..line });
        let lines = lines.filter(|line| line.no > after).collect();
        LogPage { lines, dropped: 38, open: true }
    }
}

/// The ends of the items of the active run.
fn detail(run: u64) -> Option<RunDetail> {
    let snapshot = besom_samples::small();
    let run = (**snapshot.run(run)?).clone();
    let item = |key: &str, ms, outcome, reason: Option<&str>| ItemRow {
        tenant: Some("acme".into()),
        key: key.into(),
        at: ago_ms(ms),
        outcome,
        reason: reason.map(Into::into),
        node: "node-c-7d3f".into(),
        ..ItemRow::default()
    };
    Some(RunDetail {
        run,
        rows: 2_571,
        outcomes: [(End::Committed, 198), (End::Skipped, 2), (End::Discarded, 22)].into(),
        items: vec![
            item("share:77aa", 204, End::Dead, Some("the row is gone")),
            item("share:31ee", 900, End::Skipped, Some("guard did not hold: expires_at")),
            item("share:0001", 1_000, End::Committed, None),
        ],
        definition: "{\"plugin\":\"share-expiry\"}".into(),
        review: None,
        staying: None,
        rule: None,
    })
}
