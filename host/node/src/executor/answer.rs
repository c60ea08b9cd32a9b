//! The effect of answers from guests and the store on the batches in flight.

use besom_core::proposal::{Settle, Verdict};
use besom_core::queue::set_aside;
use besom_core::weight::of_proposal;
use besom_ports::guests::Fault;
use besom_snapshot::Cause;

use super::*;
use crate::weight::rows_of_ranges;

impl Executor {
    pub(super) fn backlog(&mut self, result: store::Result<Vec<Stream>>) {
        self.backlog_reading = false;
        self.note_failure(result.is_err());
        if std::mem::take(&mut self.backlog_void) {
            return;
        }
        let Ok(streams) = result else {
            self.backlog_wanted = true;
            return;
        };
        let mut went_back = false;
        for stream in streams {
            if !self.owned.contains_key(&stream.partition) {
                continue;
            }
            let cursor = self
                .streams
                .entry(stream.task.clone())
                .or_default()
                .entry(stream.partition)
                .or_insert_with(|| Cursor::new(&stream));
            let behind = stream.acked < cursor.acked && !cursor.held;
            // An answer that was requested after an acknowledgement contains it.
            let is_certain = cursor.doubt.is_some_and(|seen| stream.acked < seen);
            if !cursor.held && (stream.tail < cursor.tail || is_certain) {
                // A position that was seen has disappeared: the store was restored to an earlier
                // state, or the row of the stream was removed.
                went_back = true;
                *cursor = Cursor::new(&stream);
                continue;
            }
            // The answer may be older than an acknowledgement that was made in the meantime: the
            // next one decides.
            cursor.doubt = behind.then_some(cursor.acked);
            self.backlog_wanted |= behind;
            cursor.tail = cursor.tail.max(stream.tail);
            if !cursor.held {
                cursor.acked = cursor.acked.max(stream.acked);
            }
        }
        if went_back {
            self.timers.reread(self.now);
            self.retries.reread(self.now);
        }
    }

    pub(super) fn log_read(
        &mut self,
        ticket: Ticket,
        result: store::Result<LogRead>,
        out: &mut Vec<Command>,
    ) {
        self.note_failure(result.is_err());
        let reading = self.flights.get(&ticket).map(|flight| &flight.phase);
        if !matches!(reading, Some(Phase::Reading)) {
            return;
        }
        match result {
            Ok(LogRead { items, broken, looked, rows_max }) => {
                if let (Some(flight), Some(max)) = (self.flights.get_mut(&ticket), rows_max) {
                    flight.rows_max = flight.rows_max.min(max);
                }
                self.note_broken(ticket, &broken, &looked);
                if items.is_empty() && broken.is_empty() {
                    // Another node has acknowledged items: read the cursors again.
                    self.forget_streams(ticket);
                }
                self.execute(ticket, items, out);
            }
            Err(_) => {
                if let Some(flight) = self.flights.remove(&ticket) {
                    self.release(flight);
                }
            }
        }
    }

    /// Holds back the streams that cannot be read, and releases those that can be read again.
    fn note_broken(
        &mut self,
        ticket: Ticket,
        broken: &[store::BrokenStream],
        looked: &[Partition],
    ) {
        if broken.is_empty() && self.broken.is_empty() {
            return;
        }
        let Some(flight) = self.flights.get(&ticket) else { return };
        for partition in flight.streams.iter().filter(|partition| looked.contains(partition)) {
            let stream = (flight.task.clone(), *partition);
            if broken.iter().any(|broken| broken.partition == *partition) {
                let before = self.broken.get(&stream).copied();
                let hold = Hold::again(before, self.now, &Self::BROKEN);
                self.broken.insert(stream, hold);
            } else {
                self.broken.remove(&stream);
            }
        }
    }

    pub(super) fn acted(
        &mut self,
        ticket: Ticket,
        result: Result<Acted, guests::Error>,
        out: &mut Vec<Command>,
    ) {
        let Some(mut flight) = self.flights.remove(&ticket) else { return };
        let (items, gave_way) = match std::mem::replace(&mut flight.phase, Phase::Reading) {
            Phase::Acting { items, gives_way } => (items, gives_way),
            // A repeated answer: the first one counted.
            phase => {
                flight.phase = phase;
                self.flights.insert(ticket, flight);
                return;
            }
        };
        let known = self.long.remove(&flight.task).unwrap_or_default();
        let takes = self.now.since(flight.since).max(known / 2);
        if takes >= self.settings.long_after {
            self.long.insert(flight.task.clone(), takes);
        }
        match &result {
            Ok(acted) => self.learn_memory(&flight, Some(&acted.usage)),
            Err(guests::Error::Guest(_)) => self.learn_memory(&flight, None),
            Err(_) => {}
        }
        // Any other result shows that the items were not slow again.
        if !matches!(result, Err(guests::Error::Refused(Cause::Slow, _))) && !self.slow.is_empty() {
            for waiting in &items {
                self.slow.remove(&waiting.item.identity);
            }
        }
        if !matches!(result, Err(guests::Error::Infrastructure(_))) {
            self.troubled.remove(&flight.task);
        }
        let verdicts = result.as_ref().map_or(&[][..], |acted| &acted.verdicts);
        let faults = || verdicts.iter().filter_map(|verdict| verdict.as_ref().err());
        let missed = faults().filter(|fault| fault.is_not_reached()).count();
        let mut is_full = faults().any(Fault::is_no_room);
        let all = |words: &str| items.iter().map(|_| Some(Err(Failed::own(words)))).collect();
        let said: Vec<Option<Result<Verdict, Failed>>> = match result {
            Ok(acted) if acted.verdicts.len() == items.len() => acted
                .verdicts
                .into_iter()
                .zip(&items)
                .map(|(said, waiting)| match said {
                    Ok(verdict) => Some(self.mapped(waiting, verdict)),
                    Err(fault) if fault.is_not_reached() || fault.is_no_room() => None,
                    Err(fault) => Some(Err(fault.into())),
                })
                .collect(),
            Ok(acted) => {
                all(&format!("{} verdicts for {} items", acted.verdicts.len(), items.len()))
            }
            Err(guests::Error::Guest(fault)) => {
                items.iter().map(|_| Some(Err(fault.clone().into()))).collect()
            }
            Err(guests::Error::Refused(Cause::Slow, why)) if self.is_blamed(&flight, &items) => {
                all(&why)
            }
            Err(guests::Error::Refused(..)) => {
                self.hold_task(&flight.task);
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
                return;
            }
            Err(guests::Error::Infrastructure(why)) if self.is_its_own(&flight, &items) => {
                all(&why)
            }
            // The other results of the store show its condition; one task does not hold back the
            // others.
            Err(guests::Error::Infrastructure(_)) => {
                self.hold_task(&flight.task);
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
                return;
            }
            Err(guests::Error::Stopped(_)) if gave_way => {
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
                return;
            }
            Err(guests::Error::Stopped(_) | guests::Error::NotLoaded(_)) => {
                self.note_failure(true);
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
                return;
            }
        };
        if let Some(reason) = self.refused_by_all(&flight.task, &said) {
            // Every item of the task has the fault: none is to blame, and each stays where it is.
            self.hold_task(&flight.task);
            out.push(Command::Hold(flight.task.clone(), Halted::Refused(reason)));
            out.push(Command::Abandon(flight.commit));
            self.release(flight);
            return;
        }
        if missed > 0 {
            // Other items used up the time of the call: each is tried alone.
            let count = u32::try_from(missed).unwrap_or(u32::MAX);
            self.singly.insert(flight.task.clone(), count);
        }
        let definition = Arc::clone(&flight.definition);
        let undo = !definition.keep_removed.is_zero();
        let (mut cut, mut touched) = (Cut::default(), Touched::default());
        let (mut bytes, mut rows) = (0, 0);
        let mut entries = Vec::with_capacity(items.len());
        for (waiting, said) in items.into_iter().zip(said) {
            let Some(said) = said else {
                cut.admit(waiting.source, &waiting.item, false);
                self.return_taken(&mut flight, &waiting, self.now);
                continue;
            };
            let said = said.map_err(|failed| failed.words);
            let decision = decide(&definition.retry, &waiting.item, self.now, said, undo);
            let may = match &decision {
                Decision::Apply { proposal, .. } => {
                    bytes += of_proposal(proposal);
                    rows += rows_of_ranges(proposal);
                    let fits = bytes <= self.settings.commit_bytes && rows <= flight.rows_max;
                    let fits = fits || entries.is_empty();
                    is_full |= !fits;
                    fits && touched.claim(&self.collections, &waiting.item, proposal)
                }
                Decision::Settle(_) => true,
            };
            if cut.admit(waiting.source, &waiting.item, may) {
                entries.push(self.entry(waiting, decision));
            } else {
                self.return_taken(&mut flight, &waiting, self.now);
            }
        }
        self.learn_room(&flight, entries.len(), is_full);
        if entries.is_empty() {
            out.push(Command::Abandon(flight.commit));
            self.release(flight);
            return;
        }
        self.send(ticket, flight, entries, out);
    }

    /// Learns how many items of the task have verdicts that fit into one commit: a further one would be
    /// executed in vain. After a batch with room for more, twice as many are tried.
    fn learn_room(&mut self, flight: &Flight, entries: usize, is_full: bool) {
        if is_full {
            self.fitting.insert(flight.task.clone(), entries.max(1));
        } else if let Some(limit) = self.fitting.get_mut(&flight.task)
            && entries >= *limit
        {
            *limit *= 2;
            if *limit >= self.settings.commit_items {
                self.fitting.remove(&flight.task);
            }
        }
    }

    /// The verdict, unless it is a proposal that the mapping rules out. A value of another kind than
    /// its column's is left to the store, which compares the mapping with the rows.
    fn mapped(&self, waiting: &Waiting, verdict: Verdict) -> Result<Verdict, Failed> {
        let Verdict::Propose(proposal) = &verdict else { return Ok(verdict) };
        let tenant = waiting.item.identity.tenant.as_ref();
        match refusal::check(&self.collections, tenant, proposal) {
            Err(misfit) if !misfit.is_kind => {
                let reason = misfit.reason;
                Err(Failed { words: reason.clone(), refused: Some(reason) })
            }
            Ok(()) | Err(_) => {
                match check_changes_of_one_row(&self.collections, tenant, proposal) {
                    Ok(()) => Ok(verdict),
                    Err(words) => Err(Failed::own(&words)),
                }
            }
        }
    }

    /// The reason for which the items of a task have been refused so often in a row that they are
    /// not to blame.
    fn refused_by_all(
        &mut self,
        task: &TaskName,
        said: &[Option<Result<Verdict, Failed>>],
    ) -> Option<String> {
        let max = self.settings.refused_items_max;
        let judgements = said.iter().map(|said| match said {
            Some(Ok(Verdict::Propose(_))) => Judgement::Accepted,
            Some(Err(Failed { refused: Some(reason), .. })) => Judgement::Refused(reason),
            Some(Ok(_) | Err(_)) | None => Judgement::Other,
        });
        let streak = self.refused.entry(task.clone()).or_default();
        let reason = streak.add(judgements, max).map(str::to_owned);
        if streak.is_over() {
            self.refused.remove(task);
        }
        reason
    }

    /// Whether the batch is to blame for reads that used up the time of its call. A single item is
    /// to blame after [`Executor::SLOW_MAX`] such calls in a row if the store committed other work
    /// in the meantime, otherwise after [`Executor::SLOW_ALONE_MAX`]. Until then no attempt is
    /// used, so that a store that is slow for all tasks creates no dead letters.
    fn is_blamed(&mut self, flight: &Flight, items: &[Waiting]) -> bool {
        let [single] = items else {
            // The item to blame is identified alone, and the others continue.
            let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
            self.singly.insert(flight.task.clone(), count);
            return false;
        };
        if self.slow.len() >= Self::SLOW_KEPT_MAX {
            self.slow.clear();
        }
        let new = Slow { times: 0, since: self.now };
        let slow = self.slow.entry(single.item.identity.clone()).or_insert(new);
        slow.times += 1;
        let others = self.committed_at.is_some_and(|at| at > slow.since);
        let blamed = slow.times >= Self::SLOW_MAX && others || slow.times >= Self::SLOW_ALONE_MAX;
        if blamed {
            self.slow.remove(&single.item.identity);
        }
        blamed
    }

    /// Whether a failure of the infrastructure is caused by the task after all: it happened
    /// [`Executor::TROUBLED_MAX`] times in a row while the store committed other work. Then a
    /// single item is to blame.
    fn is_its_own(&mut self, flight: &Flight, items: &[Waiting]) -> bool {
        let new = Slow { times: 0, since: self.now };
        let troubled = self.troubled.entry(flight.task.clone()).or_insert(new);
        troubled.times = troubled.times.saturating_add(1);
        let others = self.committed_at.is_some_and(|at| at > troubled.since);
        if troubled.times < Self::TROUBLED_MAX || !others {
            return false;
        }
        if items.len() > 1 {
            let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
            self.singly.insert(flight.task.clone(), count);
            return false;
        }
        true
    }

    /// The batch that an answer about a commit belongs to, and its phase. Answers about an earlier
    /// commit id of the batch are dropped.
    fn answered(&mut self, ticket: Ticket, mark: CommitId) -> Option<(Flight, Phase)> {
        self.flights.get(&ticket).filter(|flight| flight.commit == mark)?;
        let mut flight = self.flights.remove(&ticket)?;
        let phase = std::mem::replace(&mut flight.phase, Phase::Reading);
        Some((flight, phase))
    }

    pub(super) fn committed(
        &mut self,
        ticket: Ticket,
        mark: CommitId,
        result: store::Result<Committed>,
        out: &mut Vec<Command>,
    ) {
        let Some((mut flight, phase)) = self.answered(ticket, mark) else { return };
        let (batch, since, error) = match (phase, result) {
            (Phase::Committing { batch, since }, Ok(committed)) => {
                if flight.lane.row().yields {
                    self.learn_cost(flight.bytes, self.now.since(since));
                }
                return self.land(flight, &batch, committed, out);
            }
            // A commit that has happened counts, whatever the batch is waiting for.
            (Phase::Held { batch, .. } | Phase::Resolving { batch, .. }, Ok(committed)) => {
                return self.land(flight, &batch, committed, out);
            }
            (Phase::Committing { batch, since }, Err(error)) => (batch, since, error),
            // A failure answers the latest request, or none.
            (phase, _) => {
                flight.phase = phase;
                self.flights.insert(ticket, flight);
                return;
            }
        };
        match error {
            store::Error::Unknown(_) => {
                flight.phase = Phase::Resolving { batch, ask_at: Some(self.now) };
                self.flights.insert(ticket, flight);
            }
            store::Error::Busy(words) if self.is_of_one(&flight, &batch, since, true) => {
                self.set_apart(ticket, flight, Arc::unwrap_or_clone(batch), words, out);
            }
            store::Error::TimedOut(words) if self.is_of_one(&flight, &batch, since, true) => {
                self.doubt(ticket, flight, batch, Self::RAISED_MAX, words, out);
            }
            store::Error::Unavailable(words) if self.is_of_one(&flight, &batch, since, false) => {
                self.doubt(ticket, flight, batch, Self::TROUBLED_MAX, words, out);
            }
            store::Error::Raised(words) if !batch.entries.iter().all(is_settled) => {
                self.doubt(ticket, flight, batch, Self::RAISED_MAX, words, out);
            }
            error @ (store::Error::Busy(_)
            | store::Error::TimedOut(_)
            | store::Error::Raised(_)
            | store::Error::Unavailable(_)
            | store::Error::Damaged(_)
            | store::Error::Denied(_)) => {
                let wait = HOLDS.pause(flight.failures, 0);
                flight.failures += 1;
                // A store that is busy with these rows answers other batches.
                if !matches!(error, store::Error::Busy(_) | store::Error::TimedOut(_)) {
                    self.note_failure(true);
                }
                if self.now.since(since) > self.settings.commit_age_max {
                    out.push(Command::Abandon(flight.commit));
                    self.release(flight);
                    return;
                }
                let until = self.now + wait;
                let until = self.hold_until.map_or(until, |held| held.max(until));
                flight.phase = Phase::Held { batch, since, until };
                self.flights.insert(ticket, flight);
            }
            store::Error::Fenced => {
                out.push(Command::Abandon(flight.commit));
                self.forget_streams_of(&flight);
                self.release(flight);
            }
            store::Error::Refused(..) => {
                self.hold_task(&flight.task);
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
            }
            store::Error::GuardsTimedOut(words) => {
                self.rest(&flight.task, &batch, (Overrun::Guards, &words), out);
                self.refused(ticket, flight, Arc::unwrap_or_clone(batch), words, out);
            }
            store::Error::TooLarge(words) => {
                self.rest(&flight.task, &batch, (Overrun::Images, &words), out);
                // Another attempt would use as much of the store for the same answer.
                let settled = |item: &Item, _| set_aside(item, words.clone());
                self.blame(ticket, flight, Arc::unwrap_or_clone(batch), settled, out);
            }
            store::Error::Invalid(words) => {
                self.refused(ticket, flight, Arc::unwrap_or_clone(batch), words, out);
            }
        }
    }

    /// Whether the store cannot commit the batch because of a single item, for example because its
    /// row is locked or a trigger does not end. The commit has waited for a lock, or has failed
    /// again. A store that answers may have one such item among several; if it does not answer, a
    /// single item is judged by what other batches committed in the meantime.
    fn is_of_one(&self, flight: &Flight, batch: &Batch, since: Time, answers: bool) -> bool {
        let again = flight.failures > 0 || self.now.since(since) >= Self::LOCK_WAITED;
        let others = self.committed_at.is_some_and(|at| at > since);
        let several = answers && batch.entries.len() > 1;
        again && (several || others) && !batch.entries.iter().all(is_settled)
    }

    /// Postpones a single item, or fails it if it is to blame after `max` such answers in a row.
    fn doubt(
        &mut self,
        ticket: Ticket,
        flight: Flight,
        batch: Arc<Batch>,
        max: u32,
        words: String,
        out: &mut Vec<Command>,
    ) {
        let blamed = self.is_doubted(&batch, max);
        let batch = Arc::unwrap_or_clone(batch);
        match blamed {
            true => self.refused(ticket, flight, batch, words, out),
            false => self.set_apart(ticket, flight, batch, words, out),
        }
    }

    /// Pauses a task whose items use up the time of the guards or the room for before-images, each
    /// alone: every other write waits meanwhile. The pauses grow, so that the task takes ever less of
    /// the store's time.
    fn rest(
        &mut self,
        task: &TaskName,
        batch: &Batch,
        (of, words): (Overrun, &str),
        out: &mut Vec<Command>,
    ) {
        let [single] = batch.entries.as_slice() else { return };
        // A single pass ends after the attempts of its items, and somebody waits for it.
        if is_settled(single) || self.settings.ignore_backoff {
            return;
        }
        let new = Slow { times: 0, since: self.now };
        let overrun = self.overrun.entry(task.clone()).or_insert(new);
        if self.now.since(overrun.since) > Self::OVERRUN_FORGOTTEN {
            overrun.times = 0;
        }
        overrun.since = self.now;
        overrun.times = overrun.times.saturating_add(1);
        if let Some(repeated) = overrun.times.checked_sub(Self::OVERRUN_FREE + 1) {
            let rest = Self::RESTS.pause(repeated, 0);
            let hold =
                Hold { until: self.now + rest, failures: 0, over: false, despite_commits: true };
            self.held.insert(task.clone(), hold);
            let halted = Halted::Overrun { of, words: words.to_owned(), rest };
            out.push(Command::Hold(task.clone(), halted));
        }
    }

    /// Whether a single item is to blame for the store's rejections as if it were away: they have
    /// repeated `max` times in a row for this item alone.
    pub(super) fn is_doubted(&mut self, batch: &Batch, max: u32) -> bool {
        let [single] = batch.entries.as_slice() else { return false };
        if self.doubted.len() >= Self::SLOW_KEPT_MAX {
            self.doubted.clear();
        }
        let identity = &single.item.identity;
        let times = self.doubted.entry(identity.clone()).or_default();
        *times += 1;
        let blamed = *times >= max;
        if blamed {
            self.doubted.remove(identity);
        }
        blamed
    }

    /// Postpones a single item while the others continue; if there are several items, each is tried
    /// alone. No attempt is used, because the cause may be another transaction.
    fn set_apart(
        &mut self,
        ticket: Ticket,
        mut flight: Flight,
        mut batch: Batch,
        words: String,
        out: &mut Vec<Command>,
    ) {
        out.push(Command::Abandon(flight.commit));
        let entry = match batch.entries.pop() {
            Some(entry) if batch.entries.is_empty() => entry,
            _ => {
                let count = u32::try_from(batch.entries.len() + 1).unwrap_or(u32::MAX);
                self.singly.insert(flight.task.clone(), count);
                return self.release(flight);
            }
        };
        if let Source::Retry(_) = entry.source {
            let waits = flight.taken.iter().position(|taken| taken.source == entry.source);
            if let Some(waiting) = waits.map(|index| flight.taken.swap_remove(index)) {
                self.put_back(self.now + Self::POSTPONED, waiting);
            }
            return self.release(flight);
        }
        let policy = flight.definition.retry;
        let settle = policy.postponed(&entry.item, self.now, Self::POSTPONED, words);
        flight.commit = next_mark(flight.commit);
        let entry = Entry { decision: Decision::Settle(settle), ..entry };
        self.send(ticket, flight, vec![entry], out);
    }

    /// The store can never commit the batch as it is. One of its items is to blame: they are tried
    /// one by one, and a single item that is rejected has failed.
    pub(super) fn refused(
        &mut self,
        ticket: Ticket,
        flight: Flight,
        batch: Batch,
        words: String,
        out: &mut Vec<Command>,
    ) {
        let policy = flight.definition.retry;
        let failed = |item: &Item, now| policy.failed(item, now, Duration::ZERO, words.clone());
        self.blame(ticket, flight, batch, failed, out);
    }

    /// Finds the item that is to blame, and settles it as `settled` says.
    fn blame(
        &mut self,
        ticket: Ticket,
        mut flight: Flight,
        batch: Batch,
        settled: impl Fn(&Item, Time) -> Settle,
        out: &mut Vec<Command>,
    ) {
        if batch.entries.len() > 1 {
            let count = u32::try_from(batch.entries.len()).unwrap_or(u32::MAX);
            self.singly.insert(flight.task.clone(), count);
            out.push(Command::Abandon(flight.commit));
            self.release(flight);
            return;
        }
        if batch.entries.iter().any(is_settled) {
            // The batch contains no item that could be blamed.
            self.note_failure(true);
            out.push(Command::Abandon(flight.commit));
            self.release(flight);
            return;
        }
        let entries = batch
            .entries
            .into_iter()
            .map(|entry| {
                let settle = settled(&entry.item, self.now);
                Entry { decision: Decision::Settle(settle), ..entry }
            })
            .collect();
        // A different content needs a different commit.
        out.push(Command::Abandon(flight.commit));
        flight.commit = next_mark(flight.commit);
        self.send(ticket, flight, entries, out);
    }

    pub(super) fn found(
        &mut self,
        ticket: Ticket,
        mark: CommitId,
        result: store::Result<Option<Committed>>,
        out: &mut Vec<Command>,
    ) {
        let Some((mut flight, phase)) = self.answered(ticket, mark) else { return };
        flight.phase = match (phase, result) {
            (Phase::Resolving { batch, .. }, Ok(Some(committed))) => {
                return self.land(flight, &batch, committed, out);
            }
            (Phase::Resolving { mut batch, .. }, Ok(None)) => {
                // The commit never happened, and the store has abandoned its id: the same batch can
                // be sent again under another id.
                out.push(Command::Abandon(mark));
                flight.commit = next_mark(mark);
                Arc::make_mut(&mut batch).id = flight.commit;
                Phase::Held { batch, since: self.now, until: self.now }
            }
            (Phase::Resolving { batch, .. }, Err(_)) => {
                self.note_failure(true);
                Phase::Resolving { batch, ask_at: self.hold_until }
            }
            // No request is open.
            (phase, _) => phase,
        };
        self.flights.insert(ticket, flight);
    }
}

/// Why an item failed in its execution.
struct Failed {
    /// The reason, as recorded with the item.
    words: String,
    /// The reason that other items share, if it may be a fault of the whole task.
    refused: Option<String>,
}

impl Failed {
    fn own(words: &str) -> Failed {
        Failed { words: words.to_owned(), refused: None }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Failed {
        Failed { words: fault.message, refused: fault.refused }
    }
}

/// Another commit id that is as unlikely to collide as the one before.
fn next_mark(mark: CommitId) -> CommitId {
    CommitId(mark.0.wrapping_add(1))
}
