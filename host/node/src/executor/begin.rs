//! What to start next: the lanes in their order, the tasks of a lane in turns, and within a task
//! due items before retries before the log.

use besom_core::undo;

use super::super::window::Window;
use super::*;

/// Maximum number of rows of ranges in a commit of a task with brakes: a limit is reached up to this.
const BRAKED_ROWS: u64 = 500;
/// Maximum number of rows of ranges in a commit of retries: the store is not asked whether others write.
const RETRIED_ROWS: u64 = 500;
/// How many times as long as a task's batches those of others take that it does not wait for.
const MUCH_LONGER: u32 = 4;

/// When each task had its last turn. Next is the one whose turn was the longest ago: a task
/// that often has one does not change the order of the others.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: u64,
    last: HashMap<TaskName, u64>,
}

impl Turns {
    /// The next of these tasks; of those without a turn yet, the first by name.
    pub(super) fn next<'a>(&self, tasks: impl Iterator<Item = &'a TaskName>) -> Option<TaskName> {
        tasks.min_by_key(|task| (self.last.get(*task), *task)).cloned()
    }

    pub(super) fn take(&mut self, task: &TaskName) {
        self.count += 1;
        self.last.insert(task.clone(), self.count);
    }

    pub(super) fn clear(&mut self) {
        self.last.clear();
    }
}

/// The tasks for which a lane has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// All tasks.
    Free,
    /// Only tasks whose batches do not take long; the others have their own places.
    Spare,
    /// Of those, only tasks whose batches are small: large ones wait for their commit.
    Small,
    /// No task.
    None,
}

impl Executor {
    /// Whether another batch may be started in the lane. A limited number of batches is executed at
    /// once, and a limited number of further ones may be waiting for their time or be in their
    /// commit. Work alternates between the guest's processor and the store's writer: while one
    /// batch is in its commit, the next one is already executed, but only one more, because its
    /// changes are held in memory.
    ///
    /// A batch that takes long has a place of its own, so that the others do not wait for a
    /// sleeping guest. Those of tasks that also take long wait for it, unless a single task has all
    /// places or each of the others takes several times as long. In a lane whose batches all take
    /// long, and much memory, there is no such place.
    ///
    /// Large batches are committed one after the other. Small ones do not wait for them in their
    /// commit, and so take no place from them here either.
    fn room(&self, lane: Lane) -> Room {
        // What could not be sent yet is held in memory as well.
        let is_crowded = self.crowded(Some(lane)) >= self.settings.commit_bytes_in_flight;
        let (most, ahead) = (self.settings.batches[lane], lane.row().ready);
        let (mut all, mut executing, mut long, mut large) = (0, 0, 0, 0);
        for flight in self.flights.values().filter(|flight| flight.lane == lane) {
            all += 1;
            executing += usize::from(flight.is_executing());
            long += usize::from(flight.is_executing() && self.takes_long(flight));
            large += usize::from(!flight.is_executing() && self.is_large(flight));
        }
        let apart = if lane.row().long { 0 } else { long.min(most) };
        let is_room = |apart: usize, large: usize| {
            all - apart - large < most + ahead && executing - apart < most
        };
        match is_crowded {
            false if is_room(0, 0) => Room::Free,
            false if is_room(apart, 0) => Room::Spare,
            _ if is_room(apart, large) => Room::Small,
            false | true => Room::None,
        }
    }

    pub(super) fn takes_long(&self, flight: &Flight) -> bool {
        self.now.since(flight.since) >= self.settings.long_after
    }

    fn admits(&self, room: Room, lane: Lane, task: &TaskName) -> bool {
        self.has_memory(room, lane, task) && self.has_place(room, lane, task)
    }

    fn has_place(&self, room: Room, lane: Lane, task: &TaskName) -> bool {
        match room {
            Room::Free => true,
            Room::None => false,
            Room::Small => self.has_small(task) && self.has_place(Room::Spare, lane, task),
            Room::Spare => {
                let executing =
                    || self.flights.values().filter(|f| f.lane == lane && f.is_executing());
                // One task may not hold all places while others wait.
                let of_one = || {
                    let mut holders = executing().map(|flight| &flight.task);
                    let first = holders.next();
                    holders.all(|task| Some(task) == first)
                };
                let much_longer = |takes: Duration| {
                    executing().all(|flight| self.takes(flight) >= takes * MUCH_LONGER)
                };
                let has_place = self.long.get(task).is_none_or(|takes| much_longer(*takes));
                !executing().any(|f| f.task == *task) && (has_place || of_one())
            }
        }
    }

    /// How long a batch takes that is being executed: as long as so far, or as its task's before.
    fn takes(&self, flight: &Flight) -> Duration {
        let before = self.long.get(&flight.task).copied().unwrap_or_default();
        self.now.since(flight.since).max(before)
    }

    /// Stops calls of tasks that are not known to take long, but do, while other tasks wait for a place.
    /// Otherwise, after a start, each such task would keep the others waiting for as long as its calls may
    /// take.
    pub(super) fn make_way(&mut self, out: &mut Vec<Command>) {
        let late = |flight: &Flight| {
            matches!(flight.phase, Phase::Acting { gives_way: false, .. })
                && self.now.since(flight.since) >= FIRST_CALL_MAX
                && !flight.lane.row().long
                && !self.long.contains_key(&flight.task)
        };
        let found = self.flights.iter().filter(|(_, flight)| late(flight));
        let found = found.filter(|(_, flight)| self.others_wait(flight.lane, &flight.task));
        let found: Vec<Ticket> = found.map(|(ticket, _)| *ticket).collect();
        for ticket in found {
            if let Some(Flight { phase: Phase::Acting { gives_way, .. }, .. }) =
                self.flights.get_mut(&ticket)
            {
                *gives_way = true;
                out.push(Command::StopAct(ticket));
            }
        }
    }

    /// Whether another task of the lane has items that could be executed now.
    fn others_wait(&self, lane: Lane, task: &TaskName) -> bool {
        let begins = |other: &TaskName| {
            other != task && !self.flights.values().any(|flight| flight.task == *other)
        };
        let mut logged = self.streams.keys().filter(|other| self.has_logged(other, lane));
        let waiting =
            [(&self.timers, self.now + self.settings.due_ahead), (&self.retries, self.now)];
        let mut waiting = waiting
            .into_iter()
            .flat_map(|(windows, until)| self.first_of_lane(windows.of(lane), lane, until))
            .map(|(other, _)| other)
            .filter(|other| !self.is_held(other));
        logged.any(begins) || waiting.any(|other| begins(&other))
    }

    pub(super) fn definition_of(&self, item: &Item) -> Option<&Arc<TaskDefinition>> {
        let current = self.definitions.get(&item.identity.task)?;
        Some(own_of(&self.of_runs, item).unwrap_or(current))
    }

    pub(super) fn batch_limit(&self, definition: &TaskDefinition) -> usize {
        if self.singly.get(&definition.name).is_some_and(|left| *left > 0) {
            1
        } else {
            let fitting = self.fitting.get(&definition.name).copied().unwrap_or(usize::MAX);
            let asked = definition.limits.batch_items.max(1) as usize;
            asked.min(self.settings.commit_items).min(fitting)
        }
    }

    /// Starts the next batch of timers of a punctual lane.
    pub(super) fn begin_due(
        &mut self,
        lane: Lane,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) -> bool {
        let ahead = self.now + self.settings.due_ahead;
        self.drop_unready(ahead, true);
        let room = self.room(lane);
        if room == Room::None {
            return false;
        }
        let first = self.next_due_task(lane, room, ahead);
        let Some((run_at, definition)) = first else { return false };
        self.due_turns.take(&definition.name);
        self.begin_by_time(true, self.due_until(run_at), definition, lane, random, out);
        true
    }

    /// The end of a batch whose first timer is due at `run_at`: it takes everything that is due by now,
    /// and of the rest only items whose due times are close together.
    fn due_until(&self, run_at: Time) -> Time {
        self.now.max(run_at + self.settings.due_span)
    }

    /// Starts a batch of timers or retries whose time comes by `until`.
    fn begin_by_time(
        &mut self,
        timers: bool,
        until: Time,
        definition: Arc<TaskDefinition>,
        lane: Lane,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        let limit = self.batch_limit(&definition);
        let taken = {
            let (of_runs, current) = (&self.of_runs, self.definitions.get(&definition.name));
            let window = if timers { &mut self.timers } else { &mut self.retries };
            window.take(&definition.name, until, limit, |waiting| {
                let own = own_of(of_runs, &waiting.item).or(current);
                own.is_some_and(|own| Arc::ptr_eq(own, &definition))
            })
        };
        self.launch(definition, lane, Vec::new(), taken, random, out);
    }

    /// The task whose timers are started next, and when its first timer is due. Tasks with late
    /// items take turns; otherwise the earliest due time decides.
    fn next_due_task(
        &self,
        lane: Lane,
        room: Room,
        ahead: Time,
    ) -> Option<(Time, Arc<TaskDefinition>)> {
        let may = |waiting: &&Waiting| {
            self.admits(room, lane, &waiting.item.identity.task)
                && self.definition_of(&waiting.item).is_some()
        };
        let timers = self.timers.of(lane);
        let late = timers.first_of_each(self.now).filter(may);
        let late = late.map(|waiting| &waiting.item.identity.task);
        let chosen = self.due_turns.next(late);
        let mut firsts = timers.first_of_each(ahead).filter(may);
        let first = match &chosen {
            Some(task) => firsts.find(|waiting| waiting.item.identity.task == *task),
            None => firsts.min_by_key(|waiting| waiting.run_at),
        }?;
        Some((first.run_at, Arc::clone(self.definition_of(&first.item)?)))
    }

    /// Drops timers or retries that are near their time and whose task is unknown or held. They
    /// remain in the store; otherwise they would fill the window.
    fn drop_unready(&mut self, until: Time, timers: bool) {
        let (definitions, held) = (&self.definitions, &self.held);
        let (paused, closed) = (&self.paused, &self.closed);
        let ready = |task: &TaskName| {
            definitions.contains_key(task)
                && held.get(task).is_none_or(|hold| hold.over)
                && !paused.contains(task)
                && !closed.contains(task)
        };
        let window = if timers { &mut self.timers } else { &mut self.retries };
        window.drop_unready(until, ready);
    }

    /// Whether a stream can be read, or may be tried again.
    fn is_whole(&self, task: &TaskName, partition: Partition) -> bool {
        self.broken.is_empty()
            || self.broken.get(&(task.clone(), partition)).is_none_or(|hold| hold.over)
    }

    /// Starts the next batch of a lane. Tasks take turns; within a task, due items come first, then
    /// retries. In a punctual lane, [`Executor::begin_due`] handles the former.
    pub(super) fn begin_next(
        &mut self,
        lane: Lane,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) -> bool {
        let room = self.room(lane);
        if room == Room::None {
            return false;
        }
        let until = if self.settings.ignore_backoff { Time::MAX } else { self.now };
        self.drop_unready(until, false);
        let fallen_due = match lane.row().punctual {
            true => HashMap::new(),
            false => {
                let ahead = self.now + self.settings.due_ahead;
                self.first_of_lane(self.timers.of(lane), lane, ahead)
            }
        };
        let retried = self.first_of_lane(self.retries.of(lane), lane, until);
        let logged = self.streams.keys().filter(|task| self.has_logged(task, lane));
        let ready = logged.chain(fallen_due.keys()).chain(retried.keys());
        let ready = ready.filter(|task| self.admits(room, lane, task));
        let Some(task) = self.turns.next(ready) else { return false };
        self.turns.take(&task);
        match (fallen_due.get(&task), retried.get(&task)) {
            (Some((run_at, definition)), _) => {
                let until = self.due_until(*run_at);
                self.begin_by_time(true, until, Arc::clone(definition), lane, random, out);
            }
            (None, Some((_, definition))) => {
                self.begin_by_time(false, until, Arc::clone(definition), lane, random, out);
            }
            (None, None) => self.begin_log(task, lane, random, out),
        }
        true
    }

    /// The first item of each task of a lane whose time comes by `until`: its time and its
    /// definition.
    fn first_of_lane(
        &self,
        window: &Window,
        lane: Lane,
        until: Time,
    ) -> HashMap<TaskName, (Time, Arc<TaskDefinition>)> {
        let firsts = window.first_of_each(until).filter_map(|waiting| {
            let task = &waiting.item.identity.task;
            let current = self.definitions.get(task).filter(|current| current.lane == lane)?;
            let own = own_of(&self.of_runs, &waiting.item).unwrap_or(current);
            Some((task.clone(), (waiting.run_at, Arc::clone(own))))
        });
        firsts.collect()
    }

    /// Whether items of the task are waiting in streams that can be read.
    fn has_logged(&self, task: &TaskName, lane: Lane) -> bool {
        self.definitions.get(task).is_some_and(|definition| definition.lane == lane)
            && !self.is_held(task)
            && self.streams[task].iter().any(|(partition, cursor)| {
                !cursor.held && cursor.acked < cursor.tail && self.is_whole(task, *partition)
            })
    }

    fn begin_log(
        &mut self,
        task: TaskName,
        lane: Lane,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        let definition = Arc::clone(&self.definitions[&task]);
        let limit = self.batch_limit(&definition);
        // A batch spans many streams, so that a thousand partitions with ten items each still fill
        // it; a batch with a long backlog leaves streams for the next one. How many items one
        // stream contributes is learned: if adjacent items of a stream share a document, only the
        // first of them fit into one batch, and more streams are needed to fill it.
        let each = self.yields.get(&task).map_or(limit, |items| (2 * items).clamp(1, limit));
        let mut expected = 0;
        let mut streams = Vec::new();
        let broken = &self.broken;
        let whole = |partition: Partition| {
            broken.is_empty() || broken.get(&(task.clone(), partition)).is_none_or(|hold| hold.over)
        };
        for (partition, cursor) in self.streams.get_mut(&task).into_iter().flatten() {
            if !cursor.held && cursor.acked < cursor.tail && expected < limit && whole(*partition) {
                cursor.held = true;
                expected += ((cursor.tail.0 - cursor.acked.0) as usize).min(each);
                streams.push((*partition, cursor.acked));
            }
        }
        let ticket = self.ticket();
        self.flights.insert(
            ticket,
            Flight {
                task: task.clone(),
                lane,
                commit: commit_id(random),
                streams: streams.iter().map(|(partition, _)| *partition).collect(),
                taken: Vec::new(),
                not_before: Time(i64::MIN),
                as_of: Time(i64::MIN),
                since: self.now,
                phase: Phase::Reading,
                revoked: false,
                bytes: 0,
                rows_max: match definition.brakes.counts() {
                    // A run that would exceed its limit changes nothing of a commit.
                    true => self.settings.commit_rows.min(BRAKED_ROWS),
                    false => self.settings.commit_rows,
                },
                failures: 0,
                definition: Arc::clone(&definition),
            },
        );
        out.push(Command::ReadLog {
            ticket,
            task: task.clone(),
            streams,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            each: u32::try_from(each).unwrap_or(u32::MAX),
            bytes_max: usize::try_from(definition.limits.batch_bytes).unwrap_or(usize::MAX),
        });
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }

    pub(super) fn launch(
        &mut self,
        definition: Arc<TaskDefinition>,
        lane: Lane,
        streams: Vec<Partition>,
        taken: Vec<Waiting>,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        let ticket = self.ticket();
        let flight = Flight {
            task: definition.name.clone(),
            definition,
            lane,
            commit: commit_id(random),
            streams,
            taken: taken.clone(),
            not_before: Time(i64::MIN),
            as_of: Time(i64::MIN),
            since: self.now,
            phase: Phase::Reading,
            revoked: false,
            bytes: 0,
            rows_max: self.settings.commit_rows.min(RETRIED_ROWS),
            failures: 0,
        };
        self.flights.insert(ticket, flight);
        self.execute(ticket, taken, out);
    }

    /// Selects those of `items` that may be executed together and executes them.
    pub(super) fn execute(&mut self, ticket: Ticket, items: Vec<Waiting>, out: &mut Vec<Command>) {
        let Some(mut flight) = self.flights.remove(&ticket) else { return };
        let mut cut = Cut::default();
        let mut routes = HashSet::new();
        let mut batch: Vec<Waiting> = Vec::with_capacity(items.len());
        let mut alone = false;
        let read = items.len();
        for waiting in items {
            let item = &waiting.item;
            let mut same_definition = false;
            if let Some(definition) = self.definition_of(item) {
                // The head of a stream may belong to a run with its own definition.
                if batch.is_empty() && !Arc::ptr_eq(definition, &flight.definition) {
                    flight.definition = Arc::clone(definition);
                }
                same_definition = Arc::ptr_eq(definition, &flight.definition);
            }
            // The commit decides what an undo puts back, one item after the other.
            let is_apart = item.identity.task.as_str() == undo::TASK
                || !routes.contains(&(item.identity.tenant.clone(), item.route.clone()));
            // An item during which a host died is executed alone, so that another death is
            // attributed to it only.
            let may =
                !alone && (batch.is_empty() || (same_definition && item.deaths == 0)) && is_apart;
            if cut.admit(waiting.source, item, may) {
                alone |= item.deaths > 0;
                routes.insert((item.identity.tenant.clone(), item.route.clone()));
                batch.push(waiting);
            } else {
                self.return_taken(&mut flight, &waiting, self.now);
            }
        }
        if batch.is_empty() {
            self.release(flight);
            return;
        }
        if !flight.streams.is_empty() {
            self.learn_yield(&flight, read, batch.len());
        }
        let policy = flight.definition.retry;
        if let [single] = batch.as_slice()
            && let Some(settle) = policy.deadly(&single.item)
        {
            let entry = self.entry(single.clone(), Decision::Settle(settle));
            self.send(ticket, flight, vec![entry], out);
            return;
        }
        flight.not_before = batch.iter().filter_map(timer_at).max().unwrap_or(Time(i64::MIN));
        flight.as_of = self.now.max(flight.not_before);
        out.push(Command::Act {
            ticket,
            commit: flight.commit,
            definition: Arc::clone(&flight.definition),
            now: flight.as_of,
            seed: (flight.commit.0 >> 64) as u64,
            items: batch.iter().map(|waiting| (waiting.source, waiting.item.clone())).collect(),
        });
        flight.phase = Phase::Acting { items: batch, gives_way: false };
        self.flights.insert(ticket, flight);
    }
}

impl Executor {
    /// Records how many items of a stream a batch could take if some did not fit; if all fitted,
    /// the next batch requests more.
    fn learn_yield(&mut self, flight: &Flight, read: usize, taken: usize) {
        let streams = flight.streams.len();
        let items = if taken == read {
            let known = self.yields.get(&flight.task).copied();
            known.map_or(usize::MAX / 4, |items| items.saturating_mul(2).min(usize::MAX / 4))
        } else {
            taken.div_ceil(streams)
        };
        self.yields.insert(flight.task.clone(), items);
    }
}

/// The earliest commit time of a timer. A retry may deliberately be taken early.
fn timer_at(waiting: &Waiting) -> Option<Time> {
    matches!(waiting.source, Source::Timer(_)).then_some(waiting.run_at)
}

fn commit_id(random: &mut dyn FnMut() -> u64) -> CommitId {
    CommitId(u128::from(random()) << 64 | u128::from(random()))
}

/// The definition with which the run of an item was started. After a restore of the database, the number of
/// a run that is lost may be that of another task's.
fn own_of<'a>(
    of_runs: &'a HashMap<RunId, Arc<TaskDefinition>>,
    item: &Item,
) -> Option<&'a Arc<TaskDefinition>> {
    of_runs.get(&item.run).filter(|own| own.name == item.identity.task)
}
