//! Commits: sent, held back for due items, and landed, with the resources that they release.

use besom_core::brake::{Used, Wanted};

use super::*;

impl Executor {
    pub(super) fn land(
        &mut self,
        flight: Flight,
        batch: &Batch,
        committed: Committed,
        out: &mut Vec<Command>,
    ) {
        self.failures = 0;
        let is_braked = |outcome: &Outcome| *outcome == Outcome::Left(LeftOut::Braked);
        let braked = committed.outcomes.iter().any(is_braked);
        if braked {
            self.trip(&flight.task, batch, &committed.braked, out);
        } else {
            self.committed_at = Some(self.now);
        }
        // The store's clock is further behind than a reading can be wrong. Nothing was committed:
        // the task pauses, and the clock is read again.
        let early = batch.as_of > committed.at;
        if batch.as_of > committed.at + Self::AHEAD_MAX {
            self.hold_task(&flight.task);
            out.push(Command::ReadClock);
        } else if braked {
            self.hold_task(&flight.task);
        } else if self.held.get(&flight.task).is_some_and(|hold| hold.over || !hold.despite_commits)
        {
            self.held.remove(&flight.task);
        }
        if early {
            out.push(Command::Abandon(batch.id));
        }
        if let Some(left) = self.singly.get_mut(&flight.task) {
            *left = left.saturating_sub(1);
        }
        let mut report = Report {
            task: flight.task.clone(),
            runs_ended: committed.runs_ended,
            committed: 0,
            kept: 0,
            skipped: 0,
            retried: 0,
            dead: 0,
            reason: None,
            disowned: false,
        };
        for (entry, outcome) in batch.entries.iter().zip(committed.outcomes) {
            let left = match outcome {
                Outcome::Left(why) => Some(why),
                _ => None,
            };
            if left.is_none() && !self.doubted.is_empty() && !is_settled(entry) {
                self.doubted.remove(&entry.item.identity);
            }
            match outcome {
                Outcome::Committed => report.committed += 1,
                Outcome::Kept => report.kept += 1,
                Outcome::Skipped(_) => report.skipped += 1,
                Outcome::Retried(at) => {
                    report.retried += 1;
                    let at = if self.settings.ignore_backoff { self.now } else { at };
                    self.retries.added(at);
                }
                Outcome::Dead(reason) => {
                    report.dead += 1;
                    report.reason.get_or_insert(reason);
                }
                Outcome::Left(why) => report.disowned |= why == LeftOut::NotOwner,
            }
            match entry.source {
                Source::Log(seq) => {
                    let cursor = self
                        .streams
                        .get_mut(&flight.task)
                        .and_then(|streams| streams.get_mut(&entry.item.partition));
                    match cursor {
                        Some(cursor) if left.is_none() => cursor.acked = cursor.acked.max(seq),
                        // The stream's cursor is not where it was expected: it is further ahead, or
                        // further back if the store was restored to an earlier state.
                        Some(_) if left == Some(LeftOut::NotThere) => {
                            self.forget(&flight.task, &[entry.item.partition]);
                        }
                        Some(_) | None => self.backlog_wanted = true,
                    }
                }
                Source::Timer(id) => match (left, entry.item.identity.due) {
                    (Some(LeftOut::NotDue | LeftOut::Braked), Some(due)) => {
                        let at = due.max(self.now + Self::NOT_DUE);
                        self.timers.put_back(at, waiting(entry, at));
                    }
                    _ => self.timers.finished(id),
                },
                Source::Retry(_) if matches!(left, Some(LeftOut::NotDue | LeftOut::Braked)) => {
                    let at = self.now + Self::NOT_DUE;
                    self.retries.put_back(at, waiting(entry, at));
                }
                Source::Retry(id) => self.retries.finished(id),
                Source::Unqueued(_) => {}
            }
        }
        self.release(Flight { taken: Vec::new(), ..flight });
        out.push(Command::Report(report));
    }

    /// Reports that a brake has stopped a batch, with what it wanted.
    fn trip(&mut self, task: &TaskName, batch: &Batch, used: &Used, out: &mut Vec<Command>) {
        out.push(Command::Abandon(batch.id));
        out.push(Command::Trip(task.clone(), Wanted::by_run(&batch.entries, used)));
    }

    pub(super) fn send(
        &mut self,
        ticket: Ticket,
        mut flight: Flight,
        entries: Vec<Entry>,
        out: &mut Vec<Command>,
    ) {
        let batch = Arc::new(Batch {
            id: flight.commit,
            node: self.node.clone(),
            entries,
            as_of: flight.as_of,
            idle: Vec::new(),
            activity_in_store: self.settings.activity_in_store,
            lane: flight.lane,
            braked: flight.definition.brakes.counts(),
        });
        flight.bytes = weight::of_batch(&batch);
        let known = self.sizes.get(&flight.task).copied().unwrap_or_default();
        self.sizes.insert(flight.task.clone(), flight.bytes.max(known / 2));
        let rows = weight::rows_of_batch(&batch);
        let definition = &flight.definition;
        let is_bounded = definition.rows_per_second.is_some() || definition.yields.is_some();
        if is_bounded && rows > 0 {
            let definition = Arc::clone(definition);
            out.push(Command::TakeRows { ticket, definition, rows });
            flight.phase = Phase::Rationed { batch, ask_at: None };
            self.flights.insert(ticket, flight);
        } else {
            self.set_off(ticket, flight, batch, out);
        }
    }

    /// Processes the answer to a request for rows of the budget.
    pub(super) fn rows_taken(
        &mut self,
        ticket: Ticket,
        result: store::Result<Allowance>,
        out: &mut Vec<Command>,
    ) {
        let Some(mut flight) = self.flights.remove(&ticket) else { return };
        let batch = match std::mem::replace(&mut flight.phase, Phase::Reading) {
            Phase::Rationed { batch, ask_at: None } => batch,
            // A repeated answer: the first one counted.
            phase => {
                flight.phase = phase;
                self.flights.insert(ticket, flight);
                return;
            }
        };
        let ask_at = match result {
            Ok(Allowance::Now) => return self.set_off(ticket, flight, batch, out),
            Ok(Allowance::NotBefore(at)) => {
                // The batch waits without executing anything: a death of this host would not be its
                // fault.
                out.push(Command::Abandon(flight.commit));
                at.max(self.now + Self::NOT_DUE)
            }
            Err(_) => {
                self.note_failure(true);
                self.hold_until.unwrap_or(self.now + HOLDS.first)
            }
        };
        flight.phase = Phase::Rationed { batch, ask_at: Some(ask_at) };
        self.flights.insert(ticket, flight);
    }

    /// Commits a batch that has everything it needs, or holds it back until its time.
    fn set_off(
        &mut self,
        ticket: Ticket,
        mut flight: Flight,
        batch: Arc<Batch>,
        out: &mut Vec<Command>,
    ) {
        if flight.revoked {
            out.push(Command::Abandon(flight.commit));
            self.release(flight);
            return;
        }
        if flight.not_before > self.now {
            let until = flight.not_before;
            flight.phase = Phase::Held { batch, since: until, until };
        } else if flight.lane.row().yields && self.due_within(self.cost(flight.bytes)) {
            let until = self.now + self.settings.heavy_wait_max;
            flight.phase = Phase::Held { batch, since: self.now, until };
        } else if self.is_large(&flight)
            && (self.crowded(None) > 0 || !self.fits(&flight, self.committing()))
        {
            flight.phase = Phase::Held { batch, since: self.now, until: self.now };
        } else {
            out.push(Command::Commit(ticket, Arc::clone(&batch)));
            flight.phase = Phase::Committing { batch, since: self.now };
        }
        self.flights.insert(ticket, flight);
    }

    pub(super) fn is_large(&self, flight: &Flight) -> bool {
        flight.bytes > self.small_max()
    }

    /// Whether the batches of the task are known to be small.
    pub(super) fn has_small(&self, task: &TaskName) -> bool {
        self.sizes.get(task).is_some_and(|bytes| *bytes <= self.small_max())
    }

    fn small_max(&self) -> usize {
        self.settings.commit_bytes_in_flight / SMALL
    }

    /// Whether a large batch can be sent beside others of that size.
    fn fits(&self, flight: &Flight, committing: usize) -> bool {
        let all = committing.saturating_add(flight.bytes);
        committing == 0 || all <= self.settings.commit_bytes_in_flight
    }

    /// The size of the large batches in their commit, in bytes.
    fn committing(&self) -> usize {
        let sent = |flight: &&Flight| matches!(flight.phase, Phase::Committing { .. });
        let large = self.flights.values().filter(sent).filter(|flight| self.is_large(flight));
        large.map(|flight| flight.bytes).sum()
    }

    /// The size of the large batches that only wait for those in their commit, in bytes: of one
    /// lane or of all.
    pub(super) fn crowded(&self, lane: Option<Lane>) -> usize {
        let waits = |flight: &&Flight| match flight.phase {
            Phase::Held { until, .. } => until.max(flight.not_before) <= self.now,
            _ => false,
        };
        let of_lane = |flight: &&Flight| lane.is_none_or(|lane| flight.lane == lane);
        let held = self.flights.values().filter(waits).filter(of_lane);
        held.filter(|flight| self.is_large(flight)).map(|flight| flight.bytes).sum()
    }

    pub(super) fn release_held(&mut self, out: &mut Vec<Command>) {
        let mut ready: Vec<Ticket> = self
            .flights
            .iter()
            .filter(|(_, flight)| match &flight.phase {
                Phase::Held { .. } if flight.not_before > self.now => false,
                Phase::Held { until, .. } => {
                    self.now >= *until
                        || (flight.lane.row().yields && self.draining.is_some())
                        || (flight.lane.row().yields
                            && self.hold_until.is_none()
                            && !self.due_within(self.cost(flight.bytes)))
                }
                _ => false,
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        // Punctual lanes first, then in the order of their begin, so that each has its turn.
        ready.sort_by_key(|ticket| (!self.flights[ticket].lane.row().punctual, *ticket));
        let (mut committing, mut is_full) = (self.committing(), false);
        for ticket in ready {
            if self.flights.get(&ticket).is_some_and(|flight| flight.revoked)
                && let Some(flight) = self.flights.remove(&ticket)
            {
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
                continue;
            }
            let Some(flight) = self.flights.get(&ticket) else { continue };
            if self.is_large(flight) {
                is_full |= !self.fits(flight, committing);
                if is_full {
                    continue;
                }
                committing += flight.bytes;
            }
            let Some(flight) = self.flights.get_mut(&ticket) else { continue };
            if let Phase::Held { batch, since, .. } =
                std::mem::replace(&mut flight.phase, Phase::Reading)
            {
                // The age of a commit counts from its first try.
                let since = if flight.failures == 0 { self.now } else { since };
                out.push(Command::Commit(ticket, Arc::clone(&batch)));
                flight.phase = Phase::Committing { batch, since };
            }
        }
    }

    /// When the commit of a batch that was ready since then is stopped, if the node is stopping.
    pub(super) fn stops_at(&self, since: Time) -> Option<Time> {
        self.draining.map(|draining| draining.max(since) + Self::STOPPING_COMMIT_MAX)
    }

    /// Puts back the batches that wait for rows of their task's budget, for the next owner; and, once
    /// the node has been stopping for a while, those that wait for their commit as well. Stops the
    /// commits that take long.
    pub(super) fn give_waiting_back(&mut self, draining: Time, out: &mut Vec<Command>) {
        let is_late = self.now >= draining + Self::STOPPING_COMMIT_MAX;
        let waits = |flight: &mut Flight| match flight.phase {
            Phase::Rationed { .. } => true,
            Phase::Held { .. } => is_late,
            _ => false,
        };
        let waiting: Vec<Flight> = self
            .flights
            .extract_if(.., |_, flight| waits(flight))
            .map(|(_, flight)| flight)
            .collect();
        for flight in waiting {
            out.push(Command::Abandon(flight.commit));
            self.release(flight);
        }
        for (ticket, flight) in &self.flights {
            if let Phase::Committing { since, .. } = flight.phase
                && self.stops_at(since).is_some_and(|at| at <= self.now)
                && self.stopped.insert(flight.commit)
            {
                out.push(Command::StopCommit(*ticket));
            }
        }
    }

    pub(super) fn ask_again(&mut self, out: &mut Vec<Command>) {
        for (ticket, flight) in &mut self.flights {
            match &mut flight.phase {
                Phase::Resolving { ask_at, .. } if ask_at.is_some_and(|at| at <= self.now) => {
                    *ask_at = None;
                    out.push(Command::FindCommit(*ticket, flight.commit));
                }
                Phase::Rationed { batch, ask_at } if ask_at.is_some_and(|at| at <= self.now) => {
                    *ask_at = None;
                    let rows = weight::rows_of_batch(batch);
                    let definition = Arc::clone(&flight.definition);
                    out.push(Command::TakeRows { ticket: *ticket, definition, rows });
                }
                _ => {}
            }
        }
    }

    /// Whether an item falls due, or a due batch is under way, while a commit of that duration
    /// would occupy the store.
    pub(super) fn due_within(&self, cost: Duration) -> bool {
        let end = self.now + cost;
        let punctual = |flight: &Flight| flight.lane.row().punctual;
        self.flights.values().any(|flight| punctual(flight) && flight.not_before <= end)
            || Lane::punctual()
                .any(|lane| self.timers.of(lane).next().is_some_and(|due| due <= end))
    }

    pub(super) fn cost(&self, bytes: usize) -> Duration {
        let kib = bytes as f64 / 1024.0;
        Duration::from_micros((kib * self.micros_per_kib) as u64 + 2_000)
    }

    pub(super) fn learn_cost(&mut self, bytes: usize, took: Duration) {
        let kib = (bytes as f64 / 1024.0).max(1.0);
        let sample = (took.as_micros() as f64 / kib).clamp(0.1, 100_000.0);
        self.micros_per_kib += 0.2 * (sample - self.micros_per_kib);
    }

    pub(super) fn entry(&self, waiting: Waiting, decision: Decision) -> Entry {
        let epoch = self.owned.get(&waiting.item.partition).copied().unwrap_or_default();
        Entry { source: waiting.source, item: waiting.item, epoch, decision }
    }

    /// Releases the streams and items that the flight holds.
    pub(super) fn release(&mut self, flight: Flight) {
        if let Some(streams) = self.streams.get_mut(&flight.task) {
            for partition in &flight.streams {
                if let Some(cursor) = streams.get_mut(partition) {
                    cursor.held = false;
                }
            }
        }
        for waiting in flight.taken {
            let at = waiting.run_at;
            self.put_back(at, waiting);
        }
    }

    pub(super) fn return_taken(&mut self, flight: &mut Flight, waiting: &Waiting, at: Time) {
        if let Some(index) = flight.taken.iter().position(|taken| taken.source == waiting.source) {
            let taken = flight.taken.swap_remove(index);
            let at = match taken.source {
                Source::Timer(_) => taken.run_at,
                Source::Log(_) | Source::Retry(_) | Source::Unqueued(_) => at.min(taken.run_at),
            };
            self.put_back(at, taken);
        }
    }

    pub(super) fn put_back(&mut self, at: Time, waiting: Waiting) {
        match waiting.source {
            Source::Timer(_) => self.timers.put_back(at, waiting),
            Source::Retry(_) => self.retries.put_back(at, waiting),
            Source::Log(_) | Source::Unqueued(_) => {}
        }
    }

    pub(super) fn forget_streams(&mut self, ticket: Ticket) {
        if let Some(flight) = self.flights.get(&ticket) {
            let (task, streams) = (flight.task.clone(), flight.streams.clone());
            self.forget(&task, &streams);
        }
    }

    pub(super) fn forget_streams_of(&mut self, flight: &Flight) {
        self.forget(&flight.task.clone(), &flight.streams.clone());
    }

    pub(super) fn forget(&mut self, task: &TaskName, partitions: &[Partition]) {
        if let Some(streams) = self.streams.get_mut(task) {
            for partition in partitions {
                streams.remove(partition);
            }
        }
        self.read_backlog();
    }

    /// Reads the positions of the streams again: an answer under way may be outdated.
    pub(super) fn read_backlog(&mut self) {
        self.backlog_wanted = true;
        self.backlog_void = self.backlog_reading;
    }

    pub(super) fn note_failure(&mut self, failed: bool) {
        if failed {
            let wait = HOLDS.pause(self.failures, 0);
            self.failures = self.failures.saturating_add(1);
            self.hold_until = Some(self.now + wait);
        } else {
            self.failures = 0;
        }
    }
}

fn waiting(entry: &Entry, run_at: Time) -> Waiting {
    Waiting { source: entry.source, item: entry.item.clone(), run_at }
}
