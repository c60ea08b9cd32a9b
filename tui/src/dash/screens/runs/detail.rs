//! One run that is looked at: what is asked about it, its log, and how it is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::snapshot::{Answer, ItemRow, LogLine, Query, Run, RunDetail, Snapshot};
use besom_core::time::Time;
use serde::Serialize;

use super::log::Log;

/// How often the items of a run that goes on are asked for.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// A question that was not answered is asked again after this.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A host reads so many items of a run: with fewer, all of them are there.
const HISTORY_READ: usize = 500;

/// What stands below the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// The log.
    #[default]
    Log,
    /// Items that had no effect, with the reason.
    Items,
    /// What each node does for the run.
    Nodes,
}

impl Pane {
    /// The next one.
    pub fn next(self) -> Pane {
        match self {
            Pane::Log => Pane::Items,
            Pane::Items => Pane::Nodes,
            Pane::Nodes => Pane::Log,
        }
    }
}

/// A run that is looked at.
#[derive(Debug, Default)]
pub struct Detail {
    /// Its number.
    pub id: u64,
    /// Its log.
    pub log: Log,
    /// What stands below the figures.
    pub pane: Pane,
    /// The first item shown.
    pub top: usize,
    /// What was answered last.
    answer: Option<Box<RunDetail>>,
    refusal: Option<String>,
    asked: Option<(u64, Time)>,
    answered_at: Option<Time>,
    log_ticket: Option<u64>,
    was_live: bool,
}

impl Detail {
    /// Looks at a run.
    pub fn open(id: u64) -> Detail {
        Detail { id, was_live: true, ..Detail::default() }
    }

    /// The run: as the picture has it, or, when it is too old for that, as it was answered.
    pub fn run<'a>(&'a self, snapshot: &'a Snapshot) -> Option<&'a Run> {
        let answered = || self.answer.as_ref().map(|detail| &detail.run);
        snapshot.run(self.id).map(|run| &**run).or_else(answered)
    }

    /// What was answered.
    pub fn answered(&self) -> Option<&RunDetail> {
        self.answer.as_deref()
    }

    /// Why the run could not be had.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Items that had no effect and say why.
    pub fn without_effect(&self) -> impl Iterator<Item = &ItemRow> {
        let items = self.answer.iter().flat_map(|detail| &detail.items);
        items.filter(|item| item.outcome != "committed")
    }

    /// When the first and the last of its items ended, where all of them were read.
    pub fn items_between(&self) -> Option<(Time, Time)> {
        let detail = self.answer.as_ref().filter(|detail| detail.items.len() < HISTORY_READ)?;
        let times = detail.items.iter().map(|item| item.at);
        Some((times.clone().min()?, times.max()?))
    }

    /// Items by the node that brought them to an end, as far as the newest tell.
    pub fn by_node(&self) -> BTreeMap<&str, BTreeMap<&str, u64>> {
        let mut nodes: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for item in self.answer.iter().flat_map(|detail| &detail.items) {
            *nodes.entry(&item.node).or_default().entry(&item.outcome).or_default() += 1;
        }
        nodes
    }

    /// Reasons of items without effect, the most frequent first.
    pub fn reasons(&self) -> Vec<(&str, u64)> {
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for item in self.without_effect() {
            *reasons.entry(item.reason.as_deref().unwrap_or("no reason given")).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(reason, n)| (std::cmp::Reverse(*n), *reason));
        reasons
    }

    /// Sends the questions that are due; `ask` sends one and gives its ticket.
    pub fn ask(
        &mut self,
        snapshot: &Snapshot,
        live: bool,
        now: Time,
        mut ask: impl FnMut(Query) -> u64,
    ) {
        if !live {
            self.was_live = false;
            return;
        }
        if !std::mem::replace(&mut self.was_live, true) {
            // What was asked before the connection was lost is not answered any more.
            self.asked = None;
            self.log.reconnected();
        }
        if self.is_due(snapshot, now) {
            self.asked = Some((ask(Query::Run { run: self.id }), now));
        }
        if let Some(query) = self.log.ask(self.id, now) {
            self.log_ticket = Some(ask(query));
        }
    }

    /// When the next question is due; none: never.
    pub fn due(&self, now: Time) -> Option<Time> {
        self.log.due(now)
    }

    fn is_due(&self, snapshot: &Snapshot, now: Time) -> bool {
        if let Some((_, at)) = self.asked {
            return now.since(at) >= ANSWER_MAX;
        }
        let Some(at) = self.answered_at else { return true };
        // What has ended changes no more; but the answer may be of before.
        let over = self.answer.as_ref().is_some_and(|detail| detail.run.ended_at.is_some());
        let ended = snapshot.run(self.id).is_some_and(|run| run.ended_at.is_some());
        !over && (ended || now.since(at) >= ASK_EVERY)
    }

    /// Takes an answer in; whether it was one of this run's.
    pub fn answer(&mut self, ticket: u64, answer: &Answer, now: Time) -> bool {
        if self.log_ticket == Some(ticket) {
            self.log_ticket = None;
            match answer {
                Answer::Log(page) => self.log.page(page.clone(), now),
                Answer::Refused(refusal) => self.log.refused(refusal.message.clone(), now),
                _ => self.log.refused("the host gave another answer".to_owned(), now),
            }
            return true;
        }
        if self.asked.is_none_or(|(asked, _)| asked != ticket) {
            return false;
        }
        (self.asked, self.answered_at) = (None, Some(now));
        match answer {
            Answer::Run(detail) if detail.run.id == self.id => {
                (self.answer, self.refusal) = (Some(detail.clone()), None);
            }
            Answer::Refused(refusal) => self.refusal = Some(refusal.message.clone()),
            _ => self.refusal = Some("the host gave another answer".to_owned()),
        }
        true
    }

    /// Everything that is known of the run, as JSON.
    pub fn export(&self, snapshot: &Snapshot) -> Option<String> {
        #[derive(Serialize)]
        struct Export<'a> {
            run: &'a Run,
            outcomes: Option<&'a std::collections::BTreeMap<String, u64>>,
            items: Option<&'a [ItemRow]>,
            definition: Option<serde_json::Value>,
            log: Vec<&'a LogLine>,
            log_lines_lost: u64,
        }
        let answer = self.answer.as_deref();
        let export = Export {
            run: self.run(snapshot)?,
            outcomes: answer.map(|detail| &detail.outcomes),
            items: answer.map(|detail| detail.items.as_slice()),
            // JSON within JSON is for nobody; what is none stays text.
            definition: answer.map(|detail| {
                let text = &detail.definition;
                serde_json::from_str(text)
                    .unwrap_or_else(|_| serde_json::Value::String(text.clone()))
            }),
            log: self.log.lines().collect(),
            log_lines_lost: self.log.lost(),
        };
        serde_json::to_string_pretty(&export).ok()
    }
}
