//! The leader's writes while planning: slots and runs, pages of candidates, the end of a scan.

use besom_core::books::{Admitted, CursorMove, Found, Known, admit};
use besom_core::ids::{FencingToken, Partition, RunId, Seq, TaskName, Term};
use besom_core::item::{Candidate, Identity, Item};
use besom_core::mode::Mode;
use besom_core::plan::{NewRun, Placed, Run, Seen, SlotDecision, SlotRecord, TaskState};
use besom_core::time::Time;

use super::fault::Broken;
use super::state::{Numbered, State};
use besom_ports::store::{
    DeadLetter, EndOfScan, Error, PlanPage, Planned, Result, late_copy, started,
};

/// How old the state is from which [`Broken::EarlyNumbers`] draws numbers.
const EARLY: std::time::Duration = std::time::Duration::from_millis(250);

impl State {
    pub(super) fn decide_slots(
        &mut self,
        fence: &FencingToken,
        decision: &SlotDecision,
        now: Time,
    ) -> Result<Vec<RunId>> {
        self.check_fence(fence)?;
        if self.is_broken(Broken::Slots) {
            return Ok(self.carry_out(fence, decision, now));
        }
        if let Some(task) = decision.seen.iter().find(|seen| !self.stands_at(seen)) {
            let runs = decision.runs.iter().filter_map(|new| self.run_of_slot(new));
            let started = runs.filter(|run| run.term == fence.term).map(|run| run.id).collect();
            return late_copy(&task.task, decision, started);
        }
        for new in &decision.runs {
            if let Some(run) = self.run_of_slot(new) {
                started(new, fence.term, (run.id, run.term))?;
            }
        }
        Ok(self.carry_out(fence, decision, now))
    }

    fn carry_out(
        &mut self,
        fence: &FencingToken,
        decision: &SlotDecision,
        now: Time,
    ) -> Vec<RunId> {
        let ids: Vec<RunId> =
            decision.runs.iter().map(|new| self.start(new, fence.term, now)).collect();
        for slot in decision.rows(&ids) {
            self.record_slot(slot);
        }
        for state in &decision.states {
            let paused = self.tasks.get(&state.task).and_then(|known| known.paused.clone());
            self.tasks.insert(state.task.clone(), TaskState { paused, ..state.clone() });
        }
        ids
    }

    fn stands_at(&self, seen: &Seen) -> bool {
        match self.tasks.get(&seen.task) {
            Some(known) => seen.is_at(known.last_slot, &known.queued_slots),
            None => seen.is_at(None, &[]),
        }
    }

    /// The existing run of a slot, if it can have only one.
    fn run_of_slot(&self, new: &NewRun) -> Option<&Run> {
        self.runs
            .values()
            .filter(|_| new.trigger.is_of_slot())
            .find(|run| (new.slot, &new.task, &new.trigger) == (run.slot, &run.task, &run.trigger))
    }

    fn start(&mut self, new: &NewRun, term: Term, now: Time) -> RunId {
        if let Some(run) = self.run_of_slot(new).filter(|_| !self.is_broken(Broken::Slots)) {
            return run.id;
        }
        let id = RunId(self.next_id(Numbered::Run));
        let run = Run {
            id,
            task: new.task.clone(),
            slot: new.slot,
            trigger: new.trigger.clone(),
            term,
            digest: new.digest.clone(),
            definition: new.definition.clone(),
            started_at: now,
            ended_at: None,
            scan_done: false,
            error: None,
            planned: 0,
            deduplicated: 0,
            blocked: 0,
            open: 0,
            scanned: 0,
            mode: new.mode,
            held: new.mode == Mode::Approve,
        };
        self.runs.insert(id, run);
        id
    }

    /// Adds a row to the slot history, or extends the last one.
    fn record_slot(&mut self, slot: SlotRecord) {
        let of_task = self.slots.iter().enumerate().filter(|(_, known)| known.task == slot.task);
        let last = of_task.clone().max_by_key(|(at, known)| (known.to, *at)).map(|(at, _)| at);
        let covering = of_task.filter(|(_, known)| known.from <= slot.from && known.to >= slot.to);
        let others = covering.map(|(at, _)| at).filter(|at| Some(*at) != last);
        let history = last.into_iter().chain(others).map(|at| self.slots[at].clone());
        let history: Vec<SlotRecord> = history.collect();
        match (slot.place(&history), last) {
            (Placed::Known, _) => {}
            (Placed::Last(row), Some(last)) => self.slots[last] = row,
            (Placed::Last(row) | Placed::New(row), _) => self.slots.push(row),
        }
    }

    pub(super) fn plan_page(
        &mut self,
        fence: &FencingToken,
        page: &PlanPage,
        now: Time,
    ) -> Result<Planned> {
        self.check_fence(fence)?;
        let slot = match self.runs.get(&page.run) {
            Some(run) if run.task == page.task && !run.scan_done => run.slot,
            Some(run) if run.task != page.task => {
                let (id, own, other) = (run.id, &run.task, &page.task);
                return Err(Error::Invalid(format!("run {id} belongs to {own}, not to {other}")));
            }
            Some(run) => {
                return Err(Error::Invalid(format!("the scan of run {} has ended", run.id)));
            }
            None => return Err(Error::Invalid(format!("there is no run {}", page.run))),
        };
        let known =
            |at: usize, _| -> Result<Known> { Ok(self.known(&page.task, &page.candidates[at])) };
        let Admitted { items, logged, cursor, tally, planned } =
            admit(page, self.partitions, known)?;
        for new in items {
            self.enqueue(new.item(page, slot), now);
        }
        self.add(&tally, now);
        self.arrived(!planned.partitions.is_empty(), planned.earliest_due, None);
        let account = (page.task.clone(), page.tenant.clone());
        match cursor {
            CursorMove::Stay => None,
            CursorMove::Begin => self.cursors.remove(&account),
            CursorMove::To(cursor) => self.cursors.insert(account, (now, cursor.to_vec())),
        };
        if let Some(run) = self.runs.get_mut(&page.run) {
            run.planned += planned.planned;
            run.open += logged;
            run.deduplicated += planned.deduplicated;
            run.blocked += planned.blocked;
            run.scanned += page.scanned;
        }
        Ok(planned)
    }

    pub(super) fn known(&self, task: &TaskName, candidate: &Candidate) -> Known {
        let Candidate { tenant, key, due, version, .. } = candidate.clone();
        let identity = Identity { task: task.clone(), tenant, key, due };
        let dead = |letter: &DeadLetter| {
            let item = &letter.item;
            letter.is_open() && item.identity == identity && item.version == version
        };
        let found = Found {
            waits: self.waiting.contains(&identity),
            settled: self.settled.get(&identity).is_some_and(|of| of.contains_key(&version)),
            dead: self.dead.values().any(dead),
        };
        found.known()
    }

    /// Adds a new item to where it waits.
    fn enqueue(&mut self, item: Item, now: Time) {
        self.waiting.insert(item.identity.clone());
        if item.identity.due.is_some() {
            let id = self.next_id(Numbered::Timer);
            self.timers.insert(id, item);
            return;
        }
        let place: (_, Partition) = (item.identity.task.clone(), item.partition);
        let is_early = self.is_broken(Broken::EarlyNumbers);
        let stream = self.streams.entry(place.clone()).or_default();
        let mut next = Seq(stream.tail.0 + 1);
        if is_early {
            let (at, seen) = self.early.entry(place).or_insert((now, stream.tail));
            if now.since(*at) > EARLY {
                (*at, *seen) = (now, stream.tail);
            } else if now > *at {
                // A page of its own transaction, which has not seen the one before.
                (*at, next) = (now, Seq(seen.0.max(stream.acked.0) + 1));
            }
        }
        stream.tail = stream.tail.max(next);
        stream.items.insert(next, (now, item));
    }

    pub(super) fn end_scan(
        &mut self,
        fence: &FencingToken,
        end: &EndOfScan,
        now: Time,
    ) -> Result<bool> {
        self.check_fence(fence)?;
        let known = self.runs.get(&end.run).filter(|known| known.task == end.task);
        end.check(known.map(|known| known.planned)).map_err(Error::Invalid)?;
        if known.is_some_and(|known| !known.scan_done) {
            if let Some(state) = self.tasks.get_mut(&end.task) {
                state.tenant_cursor.clone_from(&end.cursor);
            }
            self.stop_scan(end.run, end.error.as_deref(), now);
        }
        Ok(self.runs.get(&end.run).is_some_and(|run| run.ended_at.is_some()))
    }

    /// Ends the scan of a run, and the run if it has nothing in the log. A scan that has already
    /// ended keeps its result.
    pub(super) fn stop_scan(&mut self, run: RunId, error: Option<&str>, now: Time) {
        if let Some(run) = self.runs.get_mut(&run).filter(|run| !run.scan_done) {
            run.scan_done = true;
            run.error = error.map(str::to_owned);
        }
        self.end_if_complete(run, now);
    }
}
