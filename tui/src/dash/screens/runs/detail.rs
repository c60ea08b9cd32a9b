//! A run that is open: the questions about it, its log, and how it is displayed.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::item::End;
use besom_core::review::{Review, State};
use besom_core::time::Time;
use besom_snapshot::{Answer, ItemRow, Query, Run, RunDetail, Snapshot};

use super::log::Log;
use super::planned::{PlanLine, plan_lines};

/// How often the items of an active run are requested.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// A question without an answer is repeated after this time.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A host reads this many items of a run: with fewer, the list is complete.
const HISTORY_READ: usize = 500;

/// The pane below the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// The log.
    #[default]
    Log,
    /// Items without effects, with the reason.
    Items,
    /// The work of each node for the run.
    Nodes,
    /// What the run would change.
    Plan,
}

impl Pane {
    /// The next one; a run that is live from the beginning has no plan to show.
    pub fn next(self, has_plan: bool) -> Pane {
        match self {
            Pane::Log => Pane::Items,
            Pane::Items => Pane::Nodes,
            Pane::Nodes if has_plan => Pane::Plan,
            Pane::Nodes | Pane::Plan => Pane::Log,
        }
    }
}

/// A run that is open.
#[derive(Debug, Default)]
pub struct Detail {
    /// The number that the store assigned.
    pub id: u64,
    /// Its log.
    pub log: Log,
    /// The pane below the figures.
    pub pane: Pane,
    /// The first item shown.
    pub top: usize,
    /// The latest answer.
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

    /// The run in the snapshot, or in the latest answer if the snapshot does not contain it.
    pub fn run<'a>(&'a self, snapshot: &'a Snapshot) -> Option<&'a Run> {
        let answered = || self.answer.as_ref().map(|detail| &detail.run);
        snapshot.run(self.id).map(|run| &**run).or_else(answered)
    }

    /// The latest answer.
    pub fn answered(&self) -> Option<&RunDetail> {
        self.answer.as_deref()
    }

    /// What the run would change, if that is known.
    pub fn review(&self) -> Option<&Review> {
        self.answer.as_ref().and_then(|detail| detail.review.as_ref())
    }

    /// What the run would change, as lines; none: that is not known.
    pub fn plan(&self) -> Vec<PlanLine> {
        let rule = self.answered().and_then(|detail| detail.rule.as_deref());
        self.review().map(|review| plan_lines(review, rule)).unwrap_or_default()
    }

    /// Why the run could not be read.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Items that had no effects, which have a reason.
    pub fn without_effect(&self) -> impl Iterator<Item = &ItemRow> {
        let items = self.answer.iter().flat_map(|detail| &detail.items);
        items.filter(|item| item.outcome != End::Committed)
    }

    /// The latest answer, if it has all items that have ended.
    pub fn whole(&self) -> Option<&RunDetail> {
        self.answered().filter(|detail| detail.items.len() < HISTORY_READ)
    }

    /// When the first and the last of its items ended, if all items have been read.
    pub fn items_between(&self) -> Option<(Time, Time)> {
        let times = self.whole()?.items.iter().map(|item| item.at);
        Some((times.clone().min()?, times.max()?))
    }

    /// The number of items by node and outcome, among the newest ones.
    pub fn by_node(&self) -> BTreeMap<&str, BTreeMap<End, u64>> {
        let mut nodes: BTreeMap<&str, BTreeMap<End, u64>> = BTreeMap::new();
        for item in self.answer.iter().flat_map(|detail| &detail.items) {
            *nodes.entry(&item.node).or_default().entry(item.outcome).or_default() += 1;
        }
        nodes
    }

    /// The reasons of items without effects, most frequent first.
    pub fn reasons(&self) -> Vec<(&str, u64)> {
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for item in self.without_effect() {
            *reasons.entry(item.reason.as_deref().unwrap_or("no reason given")).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(reason, n)| (std::cmp::Reverse(*n), *reason));
        reasons
    }

    /// Sends the questions that are due; `ask` sends one and returns its ticket.
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
            // Questions from before the connection was lost are not answered any more.
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
        // An ended run does not change, but the latest answer may be older than its end.
        let over = self.answer.as_ref().is_some_and(|detail| detail.run.ended_at.is_some());
        let ended = snapshot.run(self.id).is_some_and(|run| run.ended_at.is_some());
        // It is decided, and the latest answer does not know.
        let waits = self.review().is_some_and(|review| review.state == State::Waiting);
        let decided = waits && snapshot.run(self.id).is_some_and(|run| !snapshot.waits(run));
        let every = if decided { ASK_EVERY / 5 } else { ASK_EVERY };
        !over && (ended || now.since(at) >= every)
    }

    /// Handles an answer; returns whether it was for this run.
    pub fn answer(&mut self, ticket: u64, answer: &Answer, now: Time) -> bool {
        if self.log_ticket == Some(ticket) {
            self.log_ticket = None;
            match answer {
                Answer::Log(page) => self.log.page(page.clone(), now),
                Answer::Refused(refusal) => self.log.refused(refusal.message.clone(), now),
                _ => self.log.refused("the host sent an unexpected answer".to_owned(), now),
            }
            return true;
        }
        if self.asked.is_none_or(|(asked, _)| asked != ticket) {
            return false;
        }
        (self.asked, self.answered_at) = (None, Some(now));
        match answer {
            Answer::Run(detail) if detail.run.id == self.id => {
                // A plan is what a person opens such a run for.
                if detail.review.is_some() && self.review().is_none() {
                    (self.pane, self.top) = (Pane::Plan, 0);
                }
                (self.answer, self.refusal) = (Some(detail.clone()), None);
            }
            Answer::Refused(refusal) => self.refusal = Some(refusal.message.clone()),
            _ => self.refusal = Some("the host sent an unexpected answer".to_owned()),
        }
        true
    }

    /// Everything known about the run, as JSON.
    pub fn export(&self, snapshot: &Snapshot) -> Option<String> {
        let answer = self.answered();
        // JSON inside a JSON string is hard to read, so valid JSON is embedded; other text stays text.
        let definition = answer.map(|detail| {
            let text = &detail.definition;
            serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.clone()))
        });
        let export = serde_json::json!({
            "run": self.run(snapshot)?,
            "outcomes": answer.map(|detail| &detail.outcomes),
            "items": answer.map(|detail| &detail.items),
            "review": self.review(),
            "rule": answer.and_then(|detail| detail.rule.as_ref()),
            "staying": answer.and_then(|detail| detail.staying.as_ref()),
            "definition": definition,
            "log": self.log.lines().collect::<Vec<_>>(),
            "log_lines_lost": self.log.lost(),
        });
        serde_json::to_string_pretty(&export).ok()
    }
}
