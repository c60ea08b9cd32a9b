//! Reviews: what a run would change is examined before the end of its scan is recorded, and of a held run
//! it waits for a decision.
//!
//! ```text
//!   preview ──> examine ──> shown ──> end of scan
//!   approve ──> scan, plan ──> examine ──> waits ──┬─ approved ──> end of scan, execution
//!                                                  └─ rejected, lapsed, nothing to change ──> discarded
//! ```

use super::*;

impl Active {
    /// Whether its review waits for a decision of a person.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.review, Reviewing::Waits { opened, .. } if opened.nothing.is_none())
    }

    /// Why its review needs no decision; none: it needs one, or is not open.
    fn nothing(&self) -> Option<&String> {
        match &self.review {
            Reviewing::Waits { opened, .. } => opened.nothing.as_ref(),
            _ => None,
        }
    }

    /// The error with which its scan has ended.
    fn scan_error(&self) -> Option<String> {
        match &self.review {
            Reviewing::Waits { end: fair::Command::End { error, .. }, .. } => error.clone(),
            _ => None,
        }
    }

    /// When its review lapses.
    pub(super) fn expires_at(&self) -> Option<Time> {
        match &self.review {
            Reviewing::Waits { opened, lapsing: false, .. } => Some(opened.until),
            _ => None,
        }
    }

    /// Whether it has to be examined before the end of its scan is recorded. A held run that has planned
    /// nothing needs no decision.
    pub(super) fn needs_review(&self) -> bool {
        let is_new = !self.run.scan_done && self.review == Reviewing::Open;
        is_new && (self.run.mode == Mode::Preview || (self.run.held && self.run.planned > 0))
    }

    /// The command to examine it; `end` follows.
    pub(super) fn examine(&mut self, fence: FencingToken, end: fair::Command) -> Command {
        let error = match &end {
            fair::Command::End { error, .. } => error.clone(),
            fair::Command::Tenants { .. } | fair::Command::Scan { .. } => None,
        };
        self.review = Reviewing::Examined(end);
        Command::Examine {
            fence,
            run: self.run.id,
            definition: Arc::clone(&self.definition),
            held: self.run.held,
            planned: self.run.planned,
            error,
        }
    }

    fn not_in_time(&self) -> String {
        let within = self.definition.approve_within;
        format!("not approved within {} s (approve_within)", within.as_secs())
    }

    /// What has changed since it began to plan, so that what it has planned cannot be approved.
    fn outdated(&self, task: Option<&Task>) -> Option<String> {
        let Some(task) = task else { return Some("the task is no longer configured".to_owned()) };
        let Some(planned) = TaskDefinition::of_run(&self.run) else {
            return Some("another version of Besom has planned it".to_owned());
        };
        planned.outdated_by(&task.scheduled.definition)
    }
}

impl Planner {
    /// How far the review of a run is that is led from now on. A preview has only to be examined.
    pub(super) fn reviewing(
        &self,
        run: &Run,
        opened: Option<Opened>,
        next: &mut Vec<fair::Command>,
    ) -> Reviewing {
        // The cycle of a run that an earlier leader has completed is not known any more.
        let cursor = self.tasks.get(&run.task).and_then(|task| task.state.tenant_cursor.clone());
        let end = fair::Command::End { cursor, error: run.error.clone(), cut: 0 };
        match opened {
            Some(opened) => Reviewing::Waits { opened, end, lapsing: false },
            None if run.mode == Mode::Preview && !run.scan_done => {
                next.push(end);
                Reviewing::Open
            }
            None => Reviewing::Open,
        }
    }

    /// Whether a run of the task is held, so that nothing of the task is executed.
    pub(super) fn held_tasks(&self) -> impl Iterator<Item = &TaskName> {
        self.runs.values().filter(|active| active.run.held).map(|active| &active.run.task)
    }

    pub(super) fn examined(
        &mut self,
        id: RunId,
        result: Result<Option<Opened>, ScanError>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let pass = self.settings.pass;
        let Some(active) = self.runs.get_mut(&id) else { return };
        let Reviewing::Examined(end) = std::mem::take(&mut active.review) else { return };
        match result {
            Ok(Some(opened)) => {
                active.failures = 0;
                active.review = Reviewing::Waits { opened, end, lapsing: false };
                if pass {
                    // A further run would plan the same again.
                    let task = active.run.task.clone();
                    self.unfinished.remove(&task);
                    self.planned_in_round.remove(&task);
                }
            }
            Ok(None) => {
                active.failures = 0;
                active.review = Reviewing::Done;
                self.go_on(id, vec![end], out);
            }
            Err(ScanError::Failed(words)) if !active.run.held => {
                active.failures = 0;
                active.review = Reviewing::Done;
                let end = failed(end, words);
                self.go_on(id, vec![end], out);
            }
            Err(ScanError::Fenced) => notices.push(Notice::Fenced),
            Err(_) => {
                let wait = HOLDS.pause(active.failures, 0);
                active.failures = active.failures.saturating_add(1);
                active.again = Some((self.now + wait, end));
            }
        }
    }

    /// Requests to discard what was planned by runs whose reviews have lapsed, or need no decision.
    pub(super) fn lapse_outdated(&mut self, out: &mut Vec<Command>) {
        let Planner { runs, tasks, now, .. } = self;
        let is_open = |active: &Active| matches!(active.review, Reviewing::Waits { .. });
        for (id, active) in runs.iter_mut().filter(|(_, active)| is_open(active)) {
            let outdated = active.outdated(tasks.get(&active.run.task));
            let not_in_time = active.not_in_time();
            let Reviewing::Waits { opened, lapsing, .. } = &mut active.review else { continue };
            let late = (opened.until <= *now).then_some(not_in_time);
            let why = opened.nothing.clone().or(late).or(outdated);
            let Some(why) = why.filter(|_| !*lapsing) else { continue };
            *lapsing = true;
            out.push(Command::Lapse(*id, why));
        }
    }

    pub(super) fn lapsed(
        &mut self,
        id: RunId,
        result: store::Result<()>,
        notices: &mut Vec<Notice>,
    ) {
        self.fetch_at = Some(self.now);
        let Err(error) = result else { return };
        if let Some(active) = self.runs.get_mut(&id)
            && let Reviewing::Waits { lapsing, .. } = &mut active.review
        {
            *lapsing = false;
        }
        self.failed(&error, notices);
    }

    /// The effect of an approval that was submitted `at` this time.
    pub(super) fn approval(&self, id: RunId, at: Time) -> Result<CommandEffect, String> {
        let Some(active) = self.runs.get(&id) else { return Err(not_active(id)) };
        if let Some(why) = active.nothing() {
            return Err(format!("run {id} needs no approval: {why}"));
        }
        if !active.waits() {
            return Err(match active.run.held {
                true => format!("run {id} is still planning: approve it when its review is open"),
                false => format!("run {id} does not wait for an approval"),
            });
        }
        if let Reviewing::Waits { opened, .. } = &active.review
            && at >= opened.until
        {
            return Err(format!(
                "{}, and the approval came later: its review lapses",
                active.not_in_time()
            ));
        }
        match active.outdated(self.tasks.get(&active.run.task)) {
            Some(why) => Err(format!("{why} since run {id} began to plan: its review lapses")),
            // The limits may have changed since it began to plan.
            None => {
                Ok(CommandEffect::Approve(id, self.brakes_of(&active.run.task).unwrap_or_default()))
            }
        }
    }

    /// The effect of the engine's own request to end a review.
    pub(super) fn lapse(&self, id: RunId) -> Result<(CommandEffect, String), String> {
        let is_nothing = self.runs.get(&id).is_some_and(|active| active.nothing().is_some());
        let state = if is_nothing { State::Done } else { State::Lapsed };
        let effect = self.rejection(id, state, None)?;
        Ok((effect, format!("{}, and what was planned discarded", state.as_str())))
    }

    /// The effect of a rejection or of a lapse, or with an error, of a cancellation.
    pub(super) fn rejection(
        &self,
        id: RunId,
        state: State,
        error: Option<String>,
    ) -> Result<CommandEffect, String> {
        let Some(active) = self.runs.get(&id) else { return Err(not_active(id)) };
        if !active.run.held {
            return Err(format!("run {id} does not wait for an approval"));
        }
        // An error of the scan stays that of the run.
        let error = error.or_else(|| active.scan_error());
        Ok(CommandEffect::Reject { task: active.run.task.clone(), run: id, state, error })
    }

    /// What a run has planned was approved.
    pub(super) fn approved(&mut self, id: RunId, out: &mut Vec<Command>) {
        self.pauses_changed = true;
        let Some(active) = self.runs.get_mut(&id) else { return };
        active.run.held = false;
        if let Reviewing::Waits { end, .. } = std::mem::replace(&mut active.review, Reviewing::Done)
        {
            self.go_on(id, vec![end], out);
        }
    }
}

/// The end of a scan that has failed. What had ended it before counts.
fn failed(end: fair::Command, words: String) -> fair::Command {
    match end {
        fair::Command::End { cursor, error, cut } => {
            fair::Command::End { cursor, error: error.or(Some(words)), cut }
        }
        fair::Command::Tenants { .. } | fair::Command::Scan { .. } => end,
    }
}

fn not_active(id: RunId) -> String {
    format!(
        "run {id} is not active: it has ended, or its task is not in the leader's configuration"
    )
}
