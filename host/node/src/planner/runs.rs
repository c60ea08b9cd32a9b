//! Runs: started, scanned tenant by tenant, ended.

use besom_core::plan::{Admission, EndOfScan, admit};

use super::*;

impl Planner {
    /// Adds a run that is now under way.
    pub(super) fn adopt(
        &mut self,
        run: Run,
        definition: Arc<TaskDefinition>,
        opened: Option<Opened>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let id = run.id;
        if let Some(known) = self.runs.get(&id) {
            let of = |run: &Run| (run.task.clone(), run.slot, run.trigger.clone(), run.term);
            if of(&known.run) == of(&run) {
                return;
            }
            // The database was restored, and has given the number of a lost run again.
            self.ended(id, notices);
        }
        notices.push(Notice::Started(id, Arc::clone(&definition)));
        let mut next = Vec::new();
        let scans = !run.scan_done && run.mode != Mode::Preview && opened.is_none();
        let cycle = scans.then(|| self.cycle(&run, &definition, &mut next));
        let again = run.scan_done.then(|| (self.now, Self::look_at_end()));
        let review = self.reviewing(&run, opened, &mut next);
        self.pauses_changed |= run.held;
        let confirmed = run.planned;
        self.runs.insert(
            id,
            Active {
                run,
                definition,
                cycle,
                again,
                failures: 0,
                slow: 0,
                cancelled: None,
                stopped: None,
                review,
                confirmed,
            },
        );
        self.go_on(id, next, out);
    }

    /// Ends the scan of a run again. Two concurrent commits that take the last items of a run do
    /// not see each other, and the result of the later one may be lost with its connection; then
    /// only this check notices that the run has ended.
    fn look_at_end() -> fair::Command {
        fair::Command::End { cursor: None, error: None, cut: 0 }
    }

    fn cycle(
        &self,
        run: &Run,
        definition: &TaskDefinition,
        next: &mut Vec<fair::Command>,
    ) -> Cycle {
        let bounded = Quota {
            tenants: definition.tenants_per_run,
            candidates: u64::from(definition.candidates_per_tenant),
            page: self.settings.page,
            pages: self.settings.pages_max,
        };
        // Due items have to be planned before they fall due: such a run continues until its window
        // is complete. A pass continues until nothing is left.
        let complete = self.settings.pass || definition.lane.row().punctual;
        let quota = if complete {
            Quota { tenants: u32::MAX, candidates: u64::MAX, pages: u32::MAX, ..bounded }
        } else {
            bounded
        };
        if definition.per_tenant {
            let begin = self.tasks.get(&run.task).and_then(|task| task.state.tenant_cursor.clone());
            Cycle::over_tenants(quota, begin, next)
        } else {
            Cycle::single(quota, next)
        }
    }

    /// Turns the commands of the cycle into commands of the node.
    pub(super) fn go_on(&mut self, id: RunId, next: Vec<fair::Command>, out: &mut Vec<Command>) {
        let stopped = self.runs.get(&id).is_some_and(|active| self.is_stopped(&active.run.task));
        let (Some(fence), Some(active)) = (self.fence.clone(), self.runs.get_mut(&id)) else {
            return;
        };
        for command in next {
            if stopped && !matches!(command, fair::Command::End { .. }) {
                active.stopped = Some(command);
                continue;
            }
            let definition = Arc::clone(&active.definition);
            match command {
                fair::Command::Tenants { after, limit } => {
                    out.push(Command::Tenants { run: id, definition, after, limit });
                }
                fair::Command::Scan { tenant, limit, quota } => {
                    let fence = fence.clone();
                    let run = id;
                    let scan = Scan { fence, run, definition, tenant, limit, quota };
                    out.push(Command::Scan(scan));
                }
                fair::Command::End { .. } if active.needs_review() => {
                    out.push(active.examine(fence.clone(), command));
                }
                fair::Command::End { cursor, error, cut } => {
                    let task = self.tasks.get_mut(&active.run.task);
                    if let Some(task) = task.filter(|_| active.cycle.is_some()) {
                        task.state.tenant_cursor.clone_from(&cursor);
                    }
                    let error = active.cancelled.clone().or(error);
                    let cut = active.cycle.is_some().then(|| Cut {
                        task: active.run.task.to_string(),
                        tenants: cut,
                        candidates_max: definition.candidates_per_tenant,
                    });
                    let failures = definition
                        .brakes
                        .failures
                        .filter(|_| cut.is_some() && error.is_some() && active.cancelled.is_none());
                    let task = active.run.task.clone();
                    let end = EndOfScan { task, run: id, planned: active.confirmed, cursor, error };
                    out.push(Command::EndScan { fence: fence.clone(), end, cut, failures });
                }
            }
        }
    }

    pub(super) fn tenants(
        &mut self,
        id: RunId,
        result: Result<Vec<Tenant>, ScanError>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        match result {
            Ok(tenants) => {
                if let Some(active) = self.runs.get_mut(&id) {
                    active.slow = 0;
                }
                self.advance(id, fair::Event::Tenants(tenants), out);
            }
            Err(error) => self.scan_failed(id, error, notices, out),
        }
    }

    pub(super) fn planned(
        &mut self,
        id: RunId,
        result: Result<(Planned, bool), ScanError>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        match result {
            Ok((planned, more)) => {
                self.failures = 0;
                if planned.planned > 0 {
                    notices.push(Notice::Planned {
                        to_log: !planned.partitions.is_empty(),
                        earliest_due: planned.earliest_due,
                    });
                }
                if let Some(active) = self.runs.get_mut(&id) {
                    active.failures = 0;
                    active.slow = 0;
                    active.run.planned += planned.planned;
                    active.confirmed += planned.planned;
                    self.planned_in_round
                        .entry(active.run.task.clone())
                        .or_default()
                        .add(planned.planned, planned.digest);
                }
                let event =
                    fair::Event::Page { planned: planned.planned, left: planned.left, more };
                self.advance(id, event, out);
            }
            Err(error) => self.scan_failed(id, error, notices, out),
        }
    }

    fn scan_failed(
        &mut self,
        id: RunId,
        error: ScanError,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let error = match error {
            ScanError::Refused(Cause::Slow, words) if self.is_slow_again(id) => {
                ScanError::Failed(words)
            }
            error => error,
        };
        match error {
            ScanError::Failed(words) => self.advance(id, fair::Event::Failed(words), out),
            ScanError::Fenced => notices.push(Notice::Fenced),
            ScanError::Full(_) => {
                let at = self.now + Self::FULL_PAUSE;
                let Some(active) = self.runs.get_mut(&id) else { return };
                let command = active.cycle.as_ref().and_then(Cycle::pending);
                active.again = command.map(|command| (at, command));
            }
            ScanError::Infrastructure(_) | ScanError::Unknown(_) | ScanError::Refused(..) => {
                let now = self.now;
                if let (ScanError::Unknown(_), Some(active)) = (&error, self.runs.get_mut(&id)) {
                    // The page may be in the queues: its owners check, and a pass checks again.
                    notices.push(Notice::Planned { to_log: true, earliest_due: Some(now) });
                    active.run.planned += 1;
                    let task = active.run.task.clone();
                    self.planned_in_round.entry(task).or_default().add(1, 0);
                }
                let Some(active) = self.runs.get_mut(&id) else { return };
                let Some(command) = active.cycle.as_ref().and_then(Cycle::pending) else { return };
                let wait = HOLDS.pause(active.failures, 0);
                active.failures = active.failures.saturating_add(1);
                active.again = Some((now + wait, command));
            }
        }
    }

    /// Whether the reads of the same page were slow so often that the scan continues with the next
    /// tenant. An expensive tenant must not block those after it.
    fn is_slow_again(&mut self, id: RunId) -> bool {
        let Some(active) = self.runs.get_mut(&id) else { return false };
        active.slow += 1;
        let again = active.slow >= Self::SLOW_MAX;
        if again {
            active.slow = 0;
        }
        again
    }

    /// Repeats commands after a failure of the infrastructure.
    pub(super) fn repeat(&mut self, out: &mut Vec<Command>) {
        let due: Vec<(RunId, fair::Command)> = self
            .runs
            .iter_mut()
            .filter(|(_, active)| active.again.as_ref().is_some_and(|(at, _)| *at <= self.now))
            .filter_map(|(id, active)| active.again.take().map(|(_, command)| (*id, command)))
            .collect();
        for (id, command) in due {
            self.go_on(id, vec![command], out);
        }
    }

    fn advance(&mut self, id: RunId, event: fair::Event, out: &mut Vec<Command>) {
        let Some(active) = self.runs.get_mut(&id) else { return };
        let Some(cycle) = &mut active.cycle else { return };
        let mut next = Vec::new();
        if active.cancelled.is_some() {
            cycle.stop(&mut next);
        } else {
            cycle.step(event, &mut next);
        }
        if !next.is_empty() {
            // An earlier command that waits to be repeated would replace the next one while the task is
            // stopped, and its answer would be ignored.
            (active.again, active.stopped) = (None, None);
        }
        self.go_on(id, next, out);
    }

    /// Ends the scan of a cancelled run that waits for its task to work again.
    pub(super) fn stop_waiting(&mut self, id: RunId, out: &mut Vec<Command>) {
        let Some(active) = self.runs.get_mut(&id) else { return };
        if let (Some(_), Some(cycle)) = (active.stopped.take(), &mut active.cycle) {
            let mut next = Vec::new();
            cycle.stop(&mut next);
            self.go_on(id, next, out);
        }
    }

    pub(super) fn scan_ended(
        &mut self,
        id: RunId,
        result: store::Result<bool>,
        notices: &mut Vec<Notice>,
    ) {
        match result {
            Ok(ended) => {
                if self.settings.pass {
                    // A brake that this run has tripped belongs to the pass.
                    self.fetch_at = Some(self.now);
                    self.has_fetched = false;
                }
                if self.rereading {
                    self.scanned_meanwhile.insert(id);
                }
                let at = self.now + Self::END_PAUSE;
                if let Some(active) = self.runs.get_mut(&id) {
                    active.cycle = None;
                    active.again = Some((at, Self::look_at_end()));
                }
                if ended {
                    self.ended(id, notices);
                }
            }
            Err(error) => {
                self.failed(&error, notices);
                // The store does not know the run, or some of its pages: it was restored to an earlier state.
                if matches!(error, store::Error::Invalid(_)) {
                    self.read_again(true);
                }
                let at = self.hold_until.unwrap_or(self.now);
                if let Some(active) = self.runs.get_mut(&id) {
                    let pending = match &active.cycle {
                        Some(cycle) => cycle.pending(),
                        None => Some(Self::look_at_end()),
                    };
                    active.again = pending.map(|command| (at, command));
                }
            }
        }
    }

    /// Compares with the runs that had not ended when the store was read. A known run whose scan
    /// has ended and that is not among them was ended by the commit of another node. An unknown run
    /// was started by a decision whose answer is lost or still under way; it is adopted if the next
    /// check finds it too.
    pub fn still_active(&mut self, active: &[Run], notices: &mut Vec<Notice>) {
        if self.fence.is_none() {
            return;
        }
        let strange =
            |run: &&Run| self.tasks.contains_key(&run.task) && !self.runs.contains_key(&run.id);
        let strangers: BTreeSet<RunId> = active.iter().filter(strange).map(|run| run.id).collect();
        let active: BTreeSet<RunId> = active.iter().map(|run| run.id).collect();
        self.doubt |= strangers.intersection(&self.strangers).next().is_some();
        self.strangers = strangers;
        let over: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(id, run)| run.cycle.is_none() && !active.contains(id))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.ended(id, notices);
        }
    }

    /// A run has ended: its scan has ended, and none of its items is in the log.
    pub fn ended(&mut self, id: RunId, notices: &mut Vec<Notice>) {
        let Some(active) = self.runs.remove(&id) else { return };
        if self.settings.pass {
            self.over.insert(id);
        }
        if self.rereading {
            self.ended_meanwhile.insert(id);
        }
        notices.push(Notice::Ended(id));
        self.pauses_changed |= active.run.held;
        self.unpark();
        if let Some(task) = self.tasks.get_mut(&active.run.task) {
            // A slot may be waiting for it.
            task.next = Some(self.now);
        }
        if self.settings.pass && active.run.planned == 0 {
            self.unfinished.remove(&active.run.task);
        }
    }

    /// Starts the next round of a pass after the previous one has been worked off.
    pub(super) fn next_round(&mut self, fence: &FencingToken, idle: bool, out: &mut Vec<Command>) {
        let waiting: HashSet<TaskName> = self
            .runs
            .values()
            .filter(|active| active.waits())
            .map(|active| active.run.task.clone())
            .collect();
        // A decision about it may be pending.
        if !waiting.is_empty() && !self.has_applied_commands() {
            return;
        }
        // A further run would plan what waits already.
        self.unfinished.retain(|task| !waiting.contains(task));
        let busy = self.tasks.values().any(|task| task.deciding);
        let is_busy = |active: &Active| !active.waits() && !self.is_stopped(&active.run.task);
        let active = self.runs.values().any(is_busy);
        if busy || !idle || active || self.unfinished.is_empty() {
            return;
        }
        self.rounds += 1;
        self.planned_in_round.retain(|_, planned| planned.items > 0);
        let planned: u64 = self.planned_in_round.values().map(|planned| planned.items).sum();
        let has_planned = planned > 0;
        let kept = std::mem::take(&mut self.kept_in_round);
        if has_planned && !self.has_effects && kept >= planned {
            self.unfinished.clear();
            return;
        }
        // What has changed has another version.
        let still = match std::mem::take(&mut self.has_effects) {
            false => Still::Skip,
            true if self.planned_in_round == self.planned_before => Still::Repeat,
            true => Still::Plan,
        };
        self.idle_rounds = match has_planned && still != Still::Plan {
            true => self.idle_rounds + 1,
            false => 0,
        };
        let is_idle = self.idle_rounds >= self.settings.idle_rounds_max;
        if self.rounds > self.settings.rounds_max || is_idle {
            let mut tasks: Vec<TaskName> = self.planned_in_round.keys().cloned().collect();
            tasks.sort_unstable();
            let still = if is_idle { still } else { Still::Plan };
            self.endless = (!tasks.is_empty()).then_some(Endless { tasks, still });
            self.unfinished.clear();
            return;
        }
        // The effects of one task may create candidates of another: as long as any task planned
        // items, all of them scan again.
        if has_planned {
            self.unfinished = self
                .rounds_of()
                .filter(|task| !self.stopped.contains(task) && !waiting.contains(task))
                .collect();
        }
        self.planned_before = std::mem::take(&mut self.planned_in_round);
        let mut decision = SlotDecision::default();
        for (name, task) in &mut self.tasks {
            if !self.unfinished.contains(name) {
                continue;
            }
            let policy = task.scheduled.policy(self.settings.grace);
            let asked = admit(self.now, fence.term, Trigger::Pass, &policy, &task.state, &[]);
            if let Admission::Start { start, record } = asked {
                task.deciding = true;
                decision.slots.push(record);
                decision.runs.push(task.scheduled.run(start.slot, start.trigger));
            }
        }
        let decided = Decided { decision, next: Vec::new() };
        self.asked.push(decided.clone());
        out.push(Command::Decide(fence.clone(), Box::new(decided)));
    }

    /// Reads the stored state again, because the store may be older than it was. `went_back`: it is, so that
    /// pages that were planned may be lost.
    pub fn read_again(&mut self, went_back: bool) {
        self.doubt |= self.fence.is_some();
        self.went_back |= went_back && self.fence.is_some();
    }

    /// Requests the stored state once nothing is under way that would change it.
    pub(super) fn look_again(&mut self, out: &mut Vec<Command>) {
        if self.rereading || self.applying || self.tasks.values().any(|task| task.deciding) {
            return;
        }
        self.doubt = false;
        self.rereading = true;
        self.lost = std::mem::take(&mut self.went_back);
        self.ended_meanwhile.clear();
        self.scanned_meanwhile.clear();
        out.push(Command::Reread);
    }

    /// Adopts the stored state: runs that it does not contain are dropped, unknown runs are
    /// adopted, and slots are decided from its positions.
    pub(super) fn reread(
        &mut self,
        result: store::Result<Loaded>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        if !std::mem::take(&mut self.rereading) {
            return;
        }
        let loaded = match result {
            Ok(loaded) => loaded,
            Err(error) => {
                self.doubt = true;
                self.went_back |= self.lost;
                self.failed(&error, notices);
                return;
            }
        };
        self.strangers.clear();
        let mut states: BTreeMap<TaskName, TaskState> =
            loaded.states.into_iter().map(|state| (state.task.clone(), state)).collect();
        for (name, task) in &mut self.tasks {
            task.state = states.remove(name).unwrap_or_else(|| TaskState::initial(name.clone()));
            task.next = Some(self.now);
        }
        self.absent = states;
        self.take_pause_of_all();
        let there: BTreeSet<RunId> = loaded.runs.iter().map(|run| run.id).collect();
        let gone: Vec<RunId> = self.runs.keys().copied().filter(|id| !there.contains(id)).collect();
        for id in gone {
            self.ended(id, notices);
        }
        for run in loaded.runs {
            let Some(task) = self.tasks.get_mut(&run.task) else { continue };
            if self.ended_meanwhile.contains(&run.id) {
                continue;
            }
            let own = self.fence.as_ref().is_some_and(|fence| fence.term == run.term);
            task.at_start &= !(own && run.trigger == Trigger::Takeover);
            let definition = definition_of(&run, &task.scheduled.definition);
            let opened = opened(&loaded.waiting, run.id);
            if self.has_lost_scan(&run) {
                self.ended(run.id, notices);
            }
            self.adopt(run, definition, opened, notices, out);
        }
        // Commands that were applied are no longer pending.
        self.commands.clear();
        self.parked.clear();
        self.fetch_is_old = self.fetching;
        self.fetch_at = Some(self.now);
    }

    /// Whether the scan of a run has to begin again, because the store has lost its end or, where the store went
    /// back, may have lost pages. For a run that was triggered, no later one would find what it has lost.
    fn has_lost_scan(&self, stored: &Run) -> bool {
        let scans_there = !stored.scan_done && !self.scanned_meanwhile.contains(&stored.id);
        let known = self.runs.get(&stored.id);
        scans_there && known.is_some_and(|active| self.lost || active.cycle.is_none())
    }
}

#[cfg(test)]
mod tests;
