mod blame;
mod clock;
mod lanes;
mod large;
mod memory;
mod refusals;
mod rows;
mod stop;
mod stopped;
mod streams;

use besom_core::collection::{Collection, Column, Encoding, Operations};
use besom_core::ids::RunId;
use besom_core::item::Identity;
use besom_core::proposal::{Change, OnGuardFailed, Proposal, Settle, Verdict};
use besom_core::value::{Kind, Value};
use besom_snapshot::Cause;

use super::*;
use crate::fixture;
use besom_ports::guests::{Fault, Usage};
use besom_ports::store::BrokenStream;

const OWNED: [(Partition, OwnerEpoch); 2] =
    [(Partition(0), OwnerEpoch(7)), (Partition(1), OwnerEpoch(7))];

/// The result of reading streams, none of which is broken.
fn whole(items: Vec<Waiting>) -> LogRead {
    let looked = items.iter().map(|waiting| waiting.item.partition).collect();
    LogRead { items, looked, ..LogRead::default() }
}

fn at(ms: i64) -> Time {
    Time::from_millis(ms)
}

fn definition(name: &str, lane: Lane) -> Arc<TaskDefinition> {
    Arc::new(fixture::definition(name, lane))
}

fn item(task: &str, key: &str, partition: u32, due: Option<Time>) -> Item {
    Item {
        identity: Identity { task: task.into(), tenant: None, key: key.into(), due },
        route: key.into(),
        partition: Partition(partition),
        version: "1".into(),
        payload: Vec::new(),
        run: RunId(1),
        planned_at: at(0),
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: Vec::new(),
    }
}

fn logged(task: &str, key: &str, partition: u32, seq: u64) -> Waiting {
    Waiting {
        source: Source::Log(Seq(seq)),
        item: item(task, key, partition, None),
        run_at: Time::EPOCH,
    }
}

fn timer(task: &str, id: u64, due: Time) -> Waiting {
    Waiting {
        source: Source::Timer(id),
        item: item(task, &id.to_string(), 0, Some(due)),
        run_at: due,
    }
}

fn delete(key: &str) -> Verdict {
    Verdict::Propose(Proposal {
        guards: Vec::new(),
        changes: vec![Change::Delete {
            collection: "things".into(),
            key: vec![Value::Text(key.into())],
        }],
        on_guard_failed: OnGuardFailed::Skip("gone".into()),
        notes: Vec::new(),
    })
}

/// The only collection.
fn things() -> Arc<Collections> {
    let column = Column { kind: Kind::Text, encoding: Encoding::Native };
    let things = Collection {
        name: "things".into(),
        table: "things".into(),
        tenant: None,
        key: vec!["id".into()],
        columns: [("id".into(), column)].into(),
        indexes: BTreeMap::new(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    Arc::new([("things".into(), things)].into())
}

/// An executor under test, its clock, and its commands.
struct Bench {
    executor: Executor,
    now: Time,
    drawn: u64,
}

impl Bench {
    /// Nothing is executed ahead of its time, unless the test is about that.
    fn new(tasks: &[Arc<TaskDefinition>]) -> Bench {
        Bench::with(Settings { due_ahead: Duration::ZERO, ..Settings::default() }, tasks)
    }

    fn with(settings: Settings, tasks: &[Arc<TaskDefinition>]) -> Bench {
        let mut executor = Executor::new("n".into(), settings);
        let tasks = tasks.iter().map(|task| (task.name.clone(), Arc::clone(task))).collect();
        executor.define(tasks, things());
        executor.own(OWNED);
        let mut bench = Bench { executor, now: at(1_000), drawn: 0 };
        bench.fill();
        bench
    }

    fn fill(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        let drawn = &mut self.drawn;
        let mut draw = || {
            *drawn += 1;
            *drawn
        };
        self.executor.fill(self.now, true, &mut draw, &mut out);
        out
    }

    fn step(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.executor.step(self.now, event, &mut out);
        out.extend(self.fill());
        out
    }

    /// Answers the first reads: these streams, timers and retries.
    fn fed(
        &mut self,
        streams: &[(&str, u32, u64)],
        timers: Vec<Waiting>,
        retries: Vec<Waiting>,
    ) -> Vec<Command> {
        // Those of the lane of due items are read separately, and first.
        let definitions = self.executor.definitions.clone();
        let is_due = |task: &TaskName| definitions.get(task).is_some_and(|d| d.lane == Lane::Due);
        let both = definitions.keys().any(is_due) && !definitions.keys().all(is_due);
        let split = |items: Vec<Waiting>| -> Vec<Vec<Waiting>> {
            let due = |waiting: &Waiting| is_due(&waiting.item.identity.task);
            let (first, second) = items.into_iter().partition(|waiting| !both || due(waiting));
            if both { vec![first, second] } else { vec![first] }
        };
        let mut out = Vec::new();
        for (number, items) in (1..).zip(split(timers)) {
            out.extend(self.step(Event::TimersRead(number, Ok(items))));
        }
        for (number, items) in (1..).zip(split(retries)) {
            out.extend(self.step(Event::RetriesRead(number, Ok(items))));
        }
        let streams = streams.iter().map(|(task, partition, tail)| Stream {
            task: (*task).into(),
            partition: Partition(*partition),
            acked: Seq(0),
            tail: Seq(*tail),
        });
        out.extend(self.step(Event::Backlog(Ok(streams.collect()))));
        out
    }
}

fn acts(commands: &[Command]) -> Vec<(Ticket, Vec<String>)> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Act { ticket, items, .. } => {
                Some((*ticket, items.iter().map(|(_, item)| item.identity.key.clone()).collect()))
            }
            _ => None,
        })
        .collect()
}

fn commits(commands: &[Command]) -> Vec<(Ticket, Batch)> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Commit(ticket, batch) => Some((*ticket, (**batch).clone())),
            _ => None,
        })
        .collect()
}

/// The number of a read of timers.
fn timers_read(commands: &[Command]) -> Option<u64> {
    commands.iter().find_map(|command| match command {
        Command::ReadTimers(read, ..) => Some(read.number),
        _ => None,
    })
}

fn read_log(commands: &[Command]) -> Ticket {
    commands
        .iter()
        .find_map(|command| match command {
            Command::ReadLog { ticket, .. } => Some(*ticket),
            _ => None,
        })
        .expect("a read of the log")
}

fn acted(keys: &[&str]) -> Result<Acted, guests::Error> {
    let verdicts = keys.iter().map(|key| Ok(delete(key))).collect();
    Ok(Acted { verdicts, usage: Usage::default() })
}

fn all_committed(batch: &Batch) -> Event {
    Event::Committed(
        Ticket(0),
        batch.id,
        Ok(Committed {
            outcomes: batch.entries.iter().map(|_| Outcome::Committed).collect(),
            at: batch.as_of,
            runs_ended: Vec::new(),
            braked: Default::default(),
        }),
    )
}

fn for_ticket(event: Event, ticket: Ticket) -> Event {
    match event {
        Event::Committed(_, mark, result) => Event::Committed(ticket, mark, result),
        other => other,
    }
}

#[test]
fn a_batch_goes_from_its_streams_to_an_acknowledgement_under_the_owners_epoch() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 1), ("sweep", 1, 1)], vec![], vec![]));
    let items = vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 1, 1)];
    let commands = bench.step(Event::LogRead(ticket, Ok(whole(items))));
    assert_eq!(acts(&commands), [(ticket, vec!["a".to_owned(), "b".into()])]);
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["a", "b"])))).remove(0);
    assert!(batch.entries.iter().all(|entry| entry.epoch == OwnerEpoch(7)));
    bench.step(for_ticket(all_committed(&batch), ticket));
    assert!(bench.executor.is_idle() && bench.executor.is_drained(bench.now));
}

#[test]
fn items_of_one_route_or_one_row_are_never_in_one_batch() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 3), ("sweep", 1, 1)], vec![], vec![]));
    // The second item of stream 0 has the route of the first: it is left out, and so is the third.
    let items = vec![
        logged("sweep", "a", 0, 1),
        logged("sweep", "a", 0, 2),
        logged("sweep", "c", 0, 3),
        logged("sweep", "b", 1, 1),
    ];
    let commands = bench.step(Event::LogRead(ticket, Ok(whole(items))));
    assert_eq!(acts(&commands), [(ticket, vec!["a".to_owned(), "b".into()])]);
    // Both items propose to change the same row: the second is left for another commit.
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["x", "x"])))).remove(0);
    assert_eq!(batch.entries.len(), 1);
}

#[test]
fn an_unknown_result_is_looked_up_before_anything_else_happens_to_the_items() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let (ticket, _) = acts(&bench.fed(&[], vec![timer("sweep", 5, at(500))], vec![]))[0].clone();
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    let unknown = Err(store::Error::Unknown("cut off".into()));
    let commands = bench.step(Event::Committed(ticket, batch.id, unknown));
    assert_eq!(commands, [Command::FindCommit(ticket, batch.id)]);
    // The commit never happened: the same batch is sent again under another id.
    let (_, again) = commits(&bench.step(Event::Found(ticket, batch.id, Ok(None)))).remove(0);
    assert_ne!(again.id, batch.id);
    assert_eq!(again.entries, batch.entries);
    let unknown = Err(store::Error::Unknown("cut off".into()));
    bench.step(Event::Committed(ticket, again.id, unknown));
    let (outcomes, at) = (vec![Outcome::Committed], again.as_of);
    let found = Committed { outcomes, at, runs_ended: vec![], braked: Default::default() };
    let commands = bench.step(Event::Found(ticket, again.id, Ok(Some(found))));
    assert!(matches!(commands.as_slice(), [Command::Report(Report { committed: 1, .. })]));
    assert!(bench.executor.is_idle());
}

#[test]
fn who_owns_nothing_begins_nothing() {
    let mut bench = Bench::new(&[definition("expire", Lane::Due)]);
    bench.fed(&[], vec![timer("expire", 1, at(5_000))], vec![]);
    bench.executor.give_up(&mut Vec::new());
    bench.now = at(6_000);
    assert_eq!(bench.fill(), []);
    assert_eq!(bench.executor.deadline(), None);
}

#[test]
fn what_was_begun_is_abandoned_when_everything_is_given_up() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let mut commands = Vec::new();
    bench.executor.give_up(&mut commands);
    // Its guests are being stopped, and its begin may be recorded at this moment.
    assert_eq!(commands, []);
    let abandoned = bench.executor.ceased(ticket);
    assert!(matches!(abandoned, Some(Command::Abandon(_))), "{abandoned:?}");
    assert_eq!(bench.executor.ceased(ticket), None);

    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    let busy = Err(store::Error::Busy("locked".into()));
    bench.step(Event::Committed(ticket, batch.id, busy));
    bench.executor.give_up(&mut commands);
    assert_eq!(commands, [Command::Abandon(batch.id)], "it waited for the store");
}

#[test]
fn an_answer_that_comes_twice_changes_nothing_the_second_time() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 1)], vec![], vec![]));
    let read = || Event::LogRead(ticket, Ok(whole(vec![logged("sweep", "a", 0, 1)])));
    assert_eq!(acts(&bench.step(read())).len(), 1);
    assert_eq!(bench.step(read()), []);
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["a"])))).remove(0);
    assert_eq!(bench.step(Event::Acted(ticket, acted(&["a"]))), []);
    assert_eq!(bench.step(Event::Found(ticket, batch.id, Ok(None))), []);
    bench.step(for_ticket(all_committed(&batch), ticket));
    assert!(bench.executor.is_idle());
    bench.step(for_ticket(all_committed(&batch), ticket));
    assert!(bench.executor.is_idle() && bench.executor.is_drained(bench.now));
}

#[test]
fn an_answer_about_an_earlier_mark_says_nothing_of_a_later_one() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let (ticket, _) = acts(&bench.fed(&[], vec![timer("sweep", 5, at(500))], vec![]))[0].clone();
    let (_, first) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    let unknown = || Err(store::Error::Unknown("cut off".into()));
    bench.step(Event::Committed(ticket, first.id, unknown()));
    let (_, second) = commits(&bench.step(Event::Found(ticket, first.id, Ok(None)))).remove(0);
    // Copies of earlier answers about the first batch, while the second is being committed.
    let refused = Err(store::Error::Invalid("the commit was abandoned".into()));
    assert_eq!(bench.step(Event::Committed(ticket, first.id, refused)), []);
    assert_eq!(bench.step(Event::Committed(ticket, first.id, unknown())), []);
    assert_eq!(bench.step(Event::Found(ticket, first.id, Ok(None))), []);
    let commands = bench.step(for_ticket(all_committed(&second), ticket));
    assert!(matches!(commands.as_slice(), [Command::Report(Report { committed: 1, .. })]));
    assert!(bench.executor.is_idle());
}

#[test]
fn a_late_success_counts_whatever_its_batch_waits_for_meanwhile() {
    let busy = || store::Error::Busy("locked".into());
    let unknown = || store::Error::Unknown("cut off".into());
    for failed in [busy as fn() -> store::Error, unknown] {
        let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
        let (ticket, _) =
            acts(&bench.fed(&[], vec![timer("sweep", 5, at(500))], vec![]))[0].clone();
        let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
        bench.step(Event::Committed(ticket, batch.id, Err(failed())));
        let commands = bench.step(for_ticket(all_committed(&batch), ticket));
        let landed =
            |command: &Command| matches!(command, Command::Report(Report { committed: 1, .. }));
        assert!(commands.iter().any(landed), "{commands:?}");
        assert!(bench.executor.is_idle());
    }
}

/// The commands for what is started from now on, with that timer if timers are read again.
fn again(bench: &mut Bench, due: &Waiting) -> Vec<Command> {
    let commands = bench.fill();
    match timers_read(&commands) {
        Some(number) => bench.step(Event::TimersRead(number, Ok(vec![due.clone()]))),
        None => commands,
    }
}
