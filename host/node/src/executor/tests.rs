use besom_core::collection::{Collection, Column, Encoding, Operations};
use besom_core::ids::RunId;
use besom_core::item::Identity;
use besom_core::proposal::{Change, OnGuardFailed, Proposal, Settle, Verdict};
use besom_core::snapshot::Cause;
use besom_core::value::{Kind, Value};

use super::*;
use crate::fixture;
use besom_ports::guests::{Fault, Usage};
use besom_ports::store::BrokenStream;

const OWNED: [(Partition, OwnerEpoch); 2] =
    [(Partition(0), OwnerEpoch(7)), (Partition(1), OwnerEpoch(7))];

/// The result of reading streams, none of which is broken.
fn whole(items: Vec<Waiting>) -> LogRead {
    let looked = items.iter().map(|waiting| waiting.item.partition).collect();
    LogRead { items, broken: Vec::new(), looked }
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
fn a_failure_of_the_infrastructure_puts_everything_back_and_counts_nothing() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let due = timer("sweep", 5, at(500));
    let commands = bench.fed(&[], vec![due.clone()], vec![]);
    let (ticket, _) = acts(&commands)[0].clone();
    let away = guests::Error::Infrastructure("the store is away".into());
    let commands = bench.step(Event::Acted(ticket, Err(away)));
    assert!(matches!(commands.as_slice(), [Command::Abandon(_)]), "{commands:?}");
    // Nothing is started for a while; then the same item, with no attempt used.
    let wake = bench.executor.deadline().expect("a time to try again");
    assert!(wake > bench.now);
    bench.now = wake;
    let commands = again(&mut bench, &due);
    match commands.iter().find(|command| matches!(command, Command::Act { .. })) {
        Some(Command::Act { items, .. }) => assert_eq!(items[0].1, due.item),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_that_the_store_could_not_take_is_sent_again_unchanged() {
    for error in [store::Error::Busy("b".into()), store::Error::Unavailable("u".into())] {
        let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
        let (ticket, _) =
            acts(&bench.fed(&[], vec![timer("sweep", 5, at(500))], vec![]))[0].clone();
        let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
        assert_eq!(commits(&bench.step(Event::Committed(ticket, batch.id, Err(error)))), []);
        bench.now = bench.executor.deadline().expect("a time to try again");
        assert_eq!(commits(&bench.fill()), [(ticket, batch)]);
    }
}

/// A store that is busy with the rows of one batch answers the others; one that is away does not.
#[test]
fn only_a_store_that_is_away_holds_other_tasks() {
    for (error, goes_on) in
        [(store::Error::Busy("b".into()), true), (store::Error::Unavailable("u".into()), false)]
    {
        let tasks = [definition("sweep", Lane::Normal), definition("other", Lane::Normal)];
        let mut bench = Bench::new(&tasks);
        let timers = vec![timer("sweep", 5, at(500)), timer("other", 6, at(1_010))];
        let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
        let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
        bench.step(Event::Committed(ticket, batch.id, Err(error)));
        bench.now = at(1_010);
        let begun = acts(&bench.fill());
        assert_eq!(begun.len() == 1, goes_on, "{begun:?}");
    }
}

#[test]
fn a_row_that_somebody_has_locked_delays_its_own_item_alone() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(400)), timer("sweep", 6, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let (_, both) = commits(&bench.step(Event::Acted(ticket, acted(&["5", "6"])))).remove(0);
    assert_eq!(both.entries.len(), 2);
    let locked = || Err(store::Error::Busy("lock timeout".into()));
    // The commit has waited for the lock: each item is tried alone.
    bench.now = bench.now + Duration::from_secs(5);
    let begun = acts(&bench.step(Event::Committed(ticket, both.id, locked())));
    let [(ticket, five), (other, six)] = &begun[..] else { panic!("{begun:?}") };
    assert_eq!((&five[..], &six[..]), (&["5".to_owned()][..], &["6".to_owned()][..]));
    let (ticket, other) = (*ticket, *other);
    let (_, single) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    bench.now = bench.now + Duration::from_secs(5);
    // No other batch was committed: the store may be the cause.
    assert_eq!(commits(&bench.step(Event::Committed(ticket, single.id, locked()))), []);
    bench.now = bench.executor.deadline().expect("a time to try again");
    let commands = bench.fill();
    let (ticket, again) = commits(&commands).remove(0);
    assert_eq!(again.id, single.id);
    let (_, neighbour) = commits(&bench.step(Event::Acted(other, acted(&["6"])))).remove(0);
    bench.step(for_ticket(all_committed(&neighbour), other));
    bench.now = bench.now + Duration::from_secs(5);
    let commands = bench.step(Event::Committed(ticket, again.id, locked()));
    let (_, apart) = commits(&commands).remove(0);
    assert!(
        matches!(
            &apart.entries[0].decision,
            Decision::Settle(Settle::Retry { run_at, attempts: 0, guard_retries: 0, reason })
                if *run_at > bench.now && reason == "lock timeout"
        ),
        "{:?}",
        apart.entries
    );
}

/// A trigger of the product raises an error for one row as if the server were shutting down. The
/// database answers, so a single item is to blame after a few repetitions, even if nothing else is
/// committed in the meantime.
#[test]
fn an_item_for_which_alone_the_database_raises_an_error_uses_an_attempt_after_a_few() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(400)), timer("sweep", 6, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let (_, both) = commits(&bench.step(Event::Acted(ticket, acted(&["5", "6"])))).remove(0);
    let raised = || Err(store::Error::Raised("terminating connection".into()));
    // Each is tried alone.
    let begun = acts(&bench.step(Event::Committed(ticket, both.id, raised())));
    let [(first, five), (other, six)] = &begun[..] else { panic!("{begun:?}") };
    assert_eq!((&five[..], &six[..]), (&["5".to_owned()][..], &["6".to_owned()][..]));
    let mut ticket = *first;
    let (_, neighbour) = commits(&bench.step(Event::Acted(*other, acted(&["6"])))).remove(0);
    bench.step(for_ticket(all_committed(&neighbour), *other));
    let mut retry = Waiting { source: Source::Retry(9), ..timer("sweep", 5, at(400)) };
    for times in 1..=Executor::RAISED_MAX {
        let (_, single) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
        let told = bench.step(Event::Committed(ticket, single.id, raised()));
        let postponed = bench.now + Executor::POSTPONED;
        if times == 1 {
            // It moves to the retries, and its stream or timer continues.
            let (_, apart) = commits(&told).remove(0);
            assert!(
                matches!(
                    &apart.entries[0].decision,
                    Decision::Settle(Settle::Retry { run_at, attempts: 0, reason, .. })
                        if *run_at == postponed && reason == "terminating connection"
                ),
                "{:?}",
                apart.entries
            );
            let outcomes = vec![Outcome::Retried(postponed)];
            let done = Committed { outcomes, at: bench.now, runs_ended: vec![] };
            bench.step(Event::Committed(ticket, apart.id, Ok(done)));
        } else if times < Executor::RAISED_MAX {
            assert_eq!(commits(&told), [], "the {times}. time");
        } else {
            let (_, failed) = commits(&told).remove(0);
            assert!(
                matches!(
                    &failed.entries[0].decision,
                    Decision::Settle(Settle::Retry { attempts: 1, reason, .. })
                        if reason == "terminating connection"
                ),
                "{:?}",
                failed.entries
            );
            return;
        }
        bench.now = postponed;
        retry.run_at = postponed;
        let commands = bench.fill();
        let read = commands.iter().find_map(|command| match command {
            Command::ReadRetries(read, ..) => Some(read.number),
            _ => None,
        });
        let commands = match read {
            Some(number) => bench.step(Event::RetriesRead(number, Ok(vec![retry.clone()]))),
            None => commands,
        };
        ticket = acts(&commands)[0].0;
    }
}

/// A row whose commit ends the connection, for example because its trigger crashes the server's
/// process: other items are committed in the meantime, so the store is not away.
#[test]
fn an_item_that_alone_loses_its_connection_uses_an_attempt_if_others_are_committed() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(400)), timer("sweep", 6, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let (_, both) = commits(&bench.step(Event::Acted(ticket, acted(&["5", "6"])))).remove(0);
    let batch = |key: u64| {
        let mut single = both.clone();
        single.entries.retain(|entry| entry.item.identity.key == key.to_string());
        single
    };
    let max = Executor::TROUBLED_MAX;
    for times in 1..=max {
        assert_eq!(bench.executor.is_doubted(&batch(5), max), times == max, "the {times}. time");
    }
    // It starts again, and a commit of the item ends it.
    assert!(!bench.executor.is_doubted(&batch(5), max));
    assert!(!bench.executor.is_doubted(&both, 1), "several items are not to blame");
    bench.step(for_ticket(all_committed(&both), ticket));
    assert!(bench.executor.doubted.is_empty());
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
    let found = Committed { outcomes, at, runs_ended: vec![] };
    let commands = bench.step(Event::Found(ticket, again.id, Ok(Some(found))));
    assert!(matches!(commands.as_slice(), [Command::Report(Report { committed: 1, .. })]));
    assert!(bench.executor.is_idle());
}

#[test]
fn an_item_during_which_a_host_died_is_executed_alone_and_at_last_not_at_all() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let mut suspect = timer("sweep", 5, at(400));
    suspect.item.deaths = 1;
    let commands = bench.fed(&[], vec![suspect, timer("sweep", 6, at(500))], vec![]);
    let keys: Vec<_> = acts(&commands).into_iter().map(|(_, keys)| keys).collect();
    assert_eq!(keys, [vec!["5".to_owned()], vec!["6".into()]]);

    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let mut deadly = timer("sweep", 5, at(400));
    deadly.item.deaths = 3;
    let commands = bench.fed(&[], vec![deadly], vec![]);
    assert_eq!(acts(&commands), []);
    let (_, batch) = commits(&commands).remove(0);
    assert!(matches!(
        batch.entries[0].decision,
        Decision::Settle(Settle::Dead { attempts: 0, .. })
    ));
}

#[test]
fn a_fault_costs_its_item_an_attempt_and_its_neighbours_nothing() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(400)), timer("sweep", 6, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let fault = Fault::new("fuel", "all fuel consumed");
    let result = Acted { verdicts: vec![Err(fault), Ok(delete("6"))], usage: Usage::default() };
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, Ok(result)))).remove(0);
    let [failed, fine] = batch.entries.as_slice() else { panic!("{batch:?}") };
    assert!(matches!(
        &failed.decision,
        Decision::Settle(Settle::Retry { attempts: 1, reason, .. }) if reason == "all fuel consumed"
    ));
    assert!(matches!(fine.decision, Decision::Apply { .. }));
}

#[test]
fn an_item_that_was_not_reached_costs_no_attempt_and_comes_alone() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = [4, 5, 6].map(|id| timer("sweep", id, at(100 * id as i64)));
    let (ticket, _) = acts(&bench.fed(&[], timers.to_vec(), vec![]))[0].clone();
    let missed = || Err(Fault::not_reached());
    let verdicts = vec![Ok(delete("4")), missed(), missed()];
    let result = Acted { verdicts, usage: Usage::default() };
    let commands = bench.step(Event::Acted(ticket, Ok(result)));
    let (_, batch) = commits(&commands).remove(0);
    assert_eq!(batch.entries.len(), 1);
    let mut alone = acts(&commands);
    let result = Acted { verdicts: vec![missed()], usage: Usage::default() };
    let (ticket, _) = alone[0].clone();
    // Nothing is committed of a batch of which nothing was reached.
    let commands = bench.step(Event::Acted(ticket, Ok(result)));
    assert_eq!(commits(&commands), []);
    assert!(matches!(commands[0], Command::Abandon(_)), "{commands:?}");
    alone.extend(acts(&commands));
    let keys: Vec<_> = alone.into_iter().map(|(_, keys)| keys).collect();
    assert_eq!(keys, [["5"], ["6"], ["5"]]);
    let attempts = |command: &Command| match command {
        Command::Act { items, .. } => items.iter().map(|(_, item)| item.attempts).sum(),
        _ => 0,
    };
    assert_eq!(commands.iter().map(attempts).sum::<u32>(), 0);
}

#[test]
fn a_guest_that_takes_long_leaves_its_place_to_other_tasks() {
    let names = ["one", "other", "third"];
    for lane in [Lane::Due, Lane::Normal, Lane::Heavy] {
        let mut bench = Bench::with(
            Settings { due_ahead: Duration::ZERO, ..Settings::default() },
            &names.map(|name| definition(name, lane)),
        );
        let streams = [("one", 0, 9), ("other", 0, 9), ("one", 1, 9), ("third", 0, 9)];
        let commands = bench.fed(&streams, vec![], vec![]);
        let (one, other) = (Ticket(1), Ticket(2));
        assert_eq!(read_log(&commands), one);
        for (ticket, task) in [(one, "one"), (other, "other")] {
            bench.step(Event::LogRead(ticket, Ok(whole(vec![logged(task, "a", 0, 1)]))));
        }
        assert_eq!(bench.executor.flights().count(), 2, "the lane is full");
        bench.now = bench.executor.deadline().expect("the time at which both take long");
        let reads = bench.fill();
        let read: Vec<_> = reads
            .iter()
            .filter_map(|command| match command {
                Command::ReadLog { task, .. } => Some(task.as_str()),
                _ => None,
            })
            .collect();
        let expected: &[&str] = if lane == Lane::Heavy { &[] } else { &["third"] };
        assert_eq!(read, expected, "{lane:?}");
    }
}

#[test]
fn a_task_whose_last_batch_took_long_gets_no_place_apart() {
    let names = ["one", "other", "third"];
    let mut bench = Bench::new(&names.map(|name| definition(name, Lane::Normal)));
    let timers = vec![timer("third", 7, at(100))];
    let (third, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    bench.now = bench.now + Duration::from_secs(1);
    let commands = bench.step(Event::Acted(third, acted(&["7"])));
    let (_, batch) = commits(&commands).remove(0);
    bench.step(for_ticket(all_committed(&batch), third));
    bench.executor.planned(true, None);
    bench.fill();
    let streams = ["one", "other", "third"].map(|task| Stream {
        task: task.into(),
        partition: Partition(0),
        acked: Seq(0),
        tail: Seq(9),
    });
    bench.step(Event::Backlog(Ok(streams.to_vec())));
    bench.now = bench.executor.deadline().expect("the time at which both take long");
    let reads = bench.fill().into_iter().filter(|c| matches!(c, Command::ReadLog { .. }));
    assert_eq!(reads.count(), 0);
}

#[test]
fn retries_and_late_timers_take_turns_with_the_work_of_other_tasks() {
    let tasks = [definition("one", Lane::Normal), definition("other", Lane::Normal)];
    let settings = Settings { batches: PerLane::of(|_| 1), ..Settings::default() };
    let mut bench = Bench::with(settings, &tasks);
    let retry = |id: u64| Waiting { source: Source::Retry(id), ..timer("one", id, at(10)) };
    let late = |task: &str, id: u64| timer(task, id, at(id as i64));
    let timers = [1, 2, 3, 4, 5, 6].map(|id| late("one", id)).into_iter();
    let timers = timers.chain([late("other", 7)]).collect();
    let retries = [11, 12].map(retry).to_vec();
    let mut commands = bench.fed(&[("other", 1, 1)], timers, retries);
    let mut begun: Vec<(String, Vec<String>)> = Vec::new();
    // Each task has more to do than a batch holds, and the other one is next.
    while begun.len() < 5 {
        if let Some(Command::ReadLog { ticket, .. }) =
            commands.iter().find(|command| matches!(command, Command::ReadLog { .. }))
        {
            let log = whole(vec![logged("other", "logged", 1, 1)]);
            commands = bench.step(Event::LogRead(*ticket, Ok(log)));
        }
        let acting = acts(&commands);
        let [(ticket, keys)] = &acting[..] else { panic!("{begun:?}, then {commands:?}") };
        let flight = bench.executor.flights.get(ticket).expect("it is in flight");
        assert_eq!(flight.lane, Lane::Normal, "what is due makes no other lane of it");
        begun.push((flight.task.to_string(), keys.clone()));
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        commands = bench.step(Event::Acted(*ticket, acted(&keys)));
        for (ticket, batch) in commits(&commands) {
            commands.extend(bench.step(for_ticket(all_committed(&batch), ticket)));
        }
    }
    let of = |task: &str, keys: &[&str]| {
        (task.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
    };
    let expected = [
        of("one", &["1", "2", "3", "4"]),
        of("other", &["7"]),
        of("one", &["5", "6"]),
        of("other", &["logged"]),
        of("one", &["11", "12"]),
    ];
    assert_eq!(begun, expected);
}

/// The operator assigns the lane: a plugin that plans due items does not get another lane by that.
#[test]
fn what_falls_due_is_executed_in_the_lane_of_its_task() {
    for lane in [Lane::Due, Lane::Normal, Lane::Heavy] {
        let settings = Settings::default();
        let mut bench = Bench::with(settings, &[definition("sweep", lane)]);
        let commands = bench.fed(&[], vec![timer("sweep", 1, at(60_000))], vec![]);
        assert_eq!(acts(&commands), []);
        bench.now = bench.executor.deadline().expect("a time before it is due");
        let (ticket, keys) = acts(&bench.fill())[0].clone();
        assert_eq!(keys, ["1"]);
        let lanes: Vec<Lane> = bench.executor.flights().map(|flight| flight.lane).collect();
        assert_eq!(lanes, [lane]);
        assert_eq!(commits(&bench.step(Event::Acted(ticket, acted(&["1"])))), [], "{lane:?}");
        bench.now = at(59_999);
        assert_eq!(commits(&bench.fill()), [], "{lane:?}: it is not due yet");
        bench.now = at(60_000);
        let (_, batch) = commits(&bench.fill()).remove(0);
        assert_eq!(batch.lane, lane);
    }
}

/// Regardless of how much a task of another lane has planned, and how late it is.
#[test]
fn what_other_lanes_have_planned_is_no_wall_for_what_is_due() {
    let tasks = [definition("expire", Lane::Due), definition("sweep", Lane::Normal)];
    let settings = Settings { window: 4, batches: PerLane::of(|_| 1), ..Settings::default() };
    let mut bench = Bench::with(settings, &tasks);
    let late: Vec<Waiting> = (1..=4).map(|id| timer("sweep", id, at(id as i64))).collect();
    let commands = bench.fed(&[], [vec![timer("expire", 9, at(2_000))], late].concat(), vec![]);
    let [(_, keys)] = &acts(&commands)[..] else { panic!("{commands:?}") };
    assert_eq!(keys.len(), 4, "the lane of the others is full from now on");
    let more = bench.executor.timers.of(Lane::Normal).reads();
    let rest = (5..=8).map(|id| timer("sweep", id, at(id as i64))).collect();
    bench.step(Event::TimersRead(more, Ok(rest)));
    bench.now = at(2_000);
    let keys: Vec<_> = acts(&bench.fill()).into_iter().map(|(_, keys)| keys).collect();
    assert_eq!(keys, [["9".to_owned()]]);
}

/// A new version of a plugin may work in another lane.
#[test]
fn a_task_that_changes_its_lane_takes_what_waits_with_it() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let late = [timer("sweep", 1, at(10)), timer("sweep", 2, at(5_000))];
    let (ticket, _) = acts(&bench.fed(&[], late.to_vec(), vec![]))[0].clone();
    let due = definition("sweep", Lane::Due);
    bench.executor.define([(due.name.clone(), due)].into(), Arc::default());
    let commands = bench.fill();
    let Some(Command::ReadTimers(read, tasks, _)) =
        commands.iter().find(|c| matches!(c, Command::ReadTimers(..)))
    else {
        panic!("{commands:?}")
    };
    assert_eq!(**tasks, ["sweep".into()]);
    let commands = bench.step(Event::TimersRead(read.number, Ok(late.to_vec())));
    assert_eq!(acts(&commands), [], "what is executed already is not executed twice");
    bench.step(Event::Acted(ticket, Err(guests::Error::Stopped("a test".into()))));
    bench.now = at(5_000);
    let keys: Vec<_> = acts(&bench.fill()).into_iter().map(|(_, keys)| keys).collect();
    assert_eq!(keys, [["1".to_owned(), "2".to_owned()]]);
}

#[test]
fn a_batch_that_the_store_refuses_comes_back_one_by_one() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(400)), timer("sweep", 6, at(500))];
    let (ticket, keys) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    assert_eq!(keys.len(), 2);
    let (_, both) = commits(&bench.step(Event::Acted(ticket, acted(&["5", "6"])))).remove(0);
    let refused = || Err(store::Error::Invalid("no such column".into()));
    let commands = bench.step(Event::Committed(ticket, both.id, refused()));
    let (ticket, keys) = acts(&commands)[0].clone();
    assert_eq!(keys, ["5"]);
    let (_, single) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    let commands = bench.step(Event::Committed(ticket, single.id, refused()));
    let (_, batch) = commits(&commands).remove(0);
    assert_ne!(batch.id, single.id, "another content is another commit");
    assert!(matches!(
        &batch.entries[0].decision,
        Decision::Settle(Settle::Retry { reason, .. }) if reason == "no such column"
    ));
}

#[test]
fn a_heavy_commit_lets_due_items_go_first_but_not_for_ever() {
    let tasks = [definition("grind", Lane::Heavy), definition("expire", Lane::Due)];
    let mut bench = Bench::new(&tasks);
    let commands = bench.fed(&[("grind", 0, 1)], vec![timer("expire", 9, at(1_001))], vec![]);
    let ticket = read_log(&commands);
    bench.step(Event::LogRead(ticket, Ok(whole(vec![logged("grind", "a", 0, 1)]))));
    // The timer falls due within the estimated duration of the commit.
    assert_eq!(commits(&bench.step(Event::Acted(ticket, acted(&["a"])))), []);
    bench.now = at(1_001);
    let commands = bench.fill();
    let (due, _) = acts(&commands)[0].clone();
    let (_, batch) = commits(&bench.step(Event::Acted(due, acted(&["9"])))).remove(0);
    let commands = bench.step(for_ticket(all_committed(&batch), due));
    assert_eq!(commits(&commands).len(), 1, "the heavy one goes once nothing is due");

    let mut bench = Bench::new(&tasks);
    let commands = bench.fed(&[("grind", 0, 1)], vec![timer("expire", 9, at(1_001))], vec![]);
    let ticket = read_log(&commands);
    bench.step(Event::LogRead(ticket, Ok(whole(vec![logged("grind", "a", 0, 1)]))));
    bench.step(Event::Acted(ticket, acted(&["a"])));
    bench.now = at(1_001);
    assert_eq!(acts(&bench.fill()).len(), 1);
    // The due batch does not come back: the heavy commit has waited long enough.
    bench.now = at(1_000) + Settings::default().heavy_wait_max;
    assert_eq!(commits(&bench.fill()).len(), 1);
}

#[test]
fn tasks_of_a_lane_take_turns() {
    let settings =
        Settings { batches: PerLane::of(|_| 1), due_ahead: Duration::ZERO, ..Settings::default() };
    let mut bench = Bench::new(&[definition("a", Lane::Normal), definition("b", Lane::Normal)]);
    bench.executor.settings = settings;
    let mut commands = bench.fed(&[("a", 0, 3), ("b", 1, 3)], vec![], vec![]);
    let mut order = Vec::new();
    for round in 0..4 {
        let ticket = read_log(&commands);
        let task = match &commands.iter().find(|c| matches!(c, Command::ReadLog { .. })) {
            Some(Command::ReadLog { task, .. }) => task.to_string(),
            _ => unreachable!("found above"),
        };
        let seq = 1 + round / 2;
        let waiting = logged(&task, &format!("{task}{seq}"), u32::from(task == "b"), seq);
        order.push(task);
        bench.step(Event::LogRead(ticket, Ok(whole(vec![waiting]))));
        commands = bench.step(Event::Acted(ticket, acted(&["k"])));
        let (_, batch) = commits(&commands).remove(0);
        commands.extend(bench.step(for_ticket(all_committed(&batch), ticket)));
    }
    assert_eq!(order, ["a", "b", "a", "b"]);
}

#[test]
fn an_idle_executor_sleeps_until_the_next_due_item() {
    let mut bench = Bench::new(&[definition("expire", Lane::Due)]);
    let commands = bench.fed(&[], vec![timer("expire", 1, at(60_000))], vec![]);
    assert_eq!(acts(&commands), []);
    assert_eq!(bench.fill(), []);
    assert_eq!(bench.executor.deadline(), Some(at(60_000)));
}

#[test]
fn an_item_is_executed_ahead_of_its_time_and_committed_not_before_it() {
    let mut bench = Bench::with(Settings::default(), &[definition("expire", Lane::Due)]);
    let timers = vec![
        timer("expire", 1, at(60_000)),
        timer("expire", 2, at(60_002)),
        timer("expire", 3, at(60_010)),
    ];
    assert_eq!(acts(&bench.fed(&[], timers, vec![])), []);
    bench.now = bench.executor.deadline().expect("a time before the first is due");
    assert_eq!(bench.now, at(60_000) - Settings::default().due_ahead);
    let commands = bench.fill();
    // Items with close due times form one batch, executed as of the latest.
    let [Command::Act { ticket: first, now, items, .. }] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    assert_eq!((*now, items.len()), (at(60_002), 2));
    let first = *first;
    bench.now = bench.executor.deadline().expect("a time before the last is due");
    let (_, keys) = acts(&bench.fill())[0].clone();
    assert_eq!((bench.now, keys), (at(59_990), vec!["3".to_owned()]));
    assert_eq!(commits(&bench.step(Event::Acted(first, acted(&["1", "2"])))), []);
    bench.now = at(60_001);
    assert_eq!(commits(&bench.fill()), [], "the second is not due yet");
    assert_eq!(bench.executor.deadline(), Some(at(60_002)));
    bench.now = at(60_002);
    let (ticket, batch) = commits(&bench.fill()).remove(0);
    assert_eq!((ticket, batch.entries.len()), (first, 2));
    // By the store's clock it was too early: both are executed again a moment later.
    let early = vec![Outcome::Left(LeftOut::NotDue); 2];
    let early = Committed { outcomes: early, at: at(60_001), runs_ended: vec![] };
    let commands = bench.step(Event::Committed(first, batch.id, Ok(early)));
    let (again, keys) = acts(&commands)[0].clone();
    assert_eq!(keys, ["1", "2"]);
    assert_eq!(commits(&bench.step(Event::Acted(again, acted(&["1", "2"])))), []);
    bench.now = at(60_003);
    assert_eq!(commits(&bench.fill()).len(), 1);
}

#[test]
fn what_is_late_is_executed_in_whole_batches() {
    let mut bench = Bench::with(Settings::default(), &[definition("expire", Lane::Due)]);
    let timers = (1..=4).map(|id| timer("expire", id, at(100 * id as i64))).collect();
    let keys: Vec<_> = acts(&bench.fed(&[], timers, vec![])).into_iter().map(|a| a.1).collect();
    assert_eq!(keys, [["1", "2", "3", "4"]]);
}

#[test]
fn no_batch_has_more_items_than_one_commit_may_have() {
    let settings = Settings { commit_items: 3, due_ahead: Duration::ZERO, ..Settings::default() };
    for retried in [false, true] {
        let mut bench = Bench::with(settings.clone(), &[definition("sweep", Lane::Normal)]);
        let late: Vec<Waiting> = (1..=4)
            .map(|id| match retried {
                false => timer("sweep", id, at(500)),
                true => Waiting { source: Source::Retry(id), ..timer("sweep", id, at(500)) },
            })
            .collect();
        let (timers, retries) = if retried { (vec![], late) } else { (late, vec![]) };
        let sizes: Vec<usize> =
            acts(&bench.fed(&[], timers, retries)).iter().map(|(_, keys)| keys.len()).collect();
        assert_eq!(sizes, [3, 1], "the task itself would take four");
    }
}

#[test]
fn while_a_batch_is_at_its_commit_one_more_is_executed() {
    let settings = Settings { batches: PerLane::of(|_| 1), ..Settings::default() };
    for lane in [Lane::Normal, Lane::Heavy] {
        one_more_is_executed(Bench::with(settings.clone(), &[definition("grind", lane)]));
    }
}

fn one_more_is_executed(mut bench: Bench) {
    let commands = bench.fed(&[("grind", 0, 9), ("grind", 1, 9)], vec![], vec![]);
    let first = read_log(&commands);
    bench.step(Event::LogRead(first, Ok(whole(vec![logged("grind", "a", 0, 1)]))));
    let commands = bench.step(Event::Acted(first, acted(&["a"])));
    assert_eq!(commits(&commands).len(), 1);
    let second = read_log(&commands);
    bench.step(Event::LogRead(second, Ok(whole(vec![logged("grind", "b", 1, 1)]))));
    let commands = bench.step(Event::Acted(second, acted(&["b"])));
    assert_eq!(commits(&commands).len(), 1);
    assert!(!commands.iter().any(|command| matches!(command, Command::ReadLog { .. })));
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

/// A task with a budget of rows, with a batch of two items that was executed; and its request for
/// rows.
fn rationed() -> (Bench, Ticket, Vec<Command>) {
    let task = TaskDefinition {
        rows_per_second: NonZeroU32::new(10),
        ..(*definition("sweep", Lane::Normal)).clone()
    };
    let mut bench = Bench::new(&[Arc::new(task)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 2)], vec![], vec![]));
    let items = vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 0, 2)];
    bench.step(Event::LogRead(ticket, Ok(whole(items))));
    let asked = bench.step(Event::Acted(ticket, acted(&["a", "b"])));
    (bench, ticket, asked)
}

fn rows_asked(commands: &[Command]) -> Option<u64> {
    commands.iter().find_map(|command| match command {
        Command::TakeRows { rows, .. } => Some(*rows),
        _ => None,
    })
}

#[test]
fn a_batch_of_a_rationed_task_is_committed_once_its_rows_are_taken() {
    let (mut bench, ticket, asked) = rationed();
    assert_eq!((rows_asked(&asked), commits(&asked).len()), (Some(2), 0));
    let granted = bench.step(Event::RowsTaken(ticket, Ok(Allowance::Now)));
    assert_eq!(commits(&granted).len(), 1);
    let again = bench.step(Event::RowsTaken(ticket, Ok(Allowance::Now)));
    assert_eq!(commits(&again).len(), 0, "an answer that came twice");
}

#[test]
fn what_has_to_wait_for_rows_asks_again_at_the_time_it_was_told() {
    let (mut bench, ticket, _) = rationed();
    let until = at(1_700);
    let told = bench.step(Event::RowsTaken(ticket, Ok(Allowance::NotBefore(until))));
    assert_eq!((rows_asked(&told), commits(&told).len()), (None, 0));
    assert_eq!(bench.executor.deadline(), Some(until));
    bench.now = until;
    assert_eq!(rows_asked(&bench.fill()), Some(2));
    assert_eq!(rows_asked(&bench.fill()), None, "the question is under way");
    assert_eq!(commits(&bench.step(Event::RowsTaken(ticket, Ok(Allowance::Now)))).len(), 1);
}

/// Nothing is executed while waiting: a host that dies then is not counted, and a host that stops
/// does not wait for the budget.
#[test]
fn what_waits_for_rows_is_not_in_execution_and_is_given_back_by_a_host_that_stops() {
    let (mut bench, ticket, _) = rationed();
    let told = bench.step(Event::RowsTaken(ticket, Ok(Allowance::NotBefore(at(9_000)))));
    assert!(told.iter().any(|command| matches!(command, Command::Abandon(_))), "{told:?}");
    bench.executor.drain();
    bench.fill();
    assert!(bench.executor.is_idle());
}

#[test]
fn without_an_answer_about_rows_nothing_is_committed_and_it_is_asked_again() {
    let (mut bench, ticket, _) = rationed();
    let away = store::Error::Unavailable("away".into());
    let told = bench.step(Event::RowsTaken(ticket, Err(away)));
    assert_eq!((rows_asked(&told), commits(&told).len()), (None, 0));
    bench.now = bench.executor.deadline().expect("a time to ask again");
    assert_eq!(rows_asked(&bench.fill()), Some(2));
}

/// The commands for what is started from now on, with that timer if timers are read again.
fn again(bench: &mut Bench, due: &Waiting) -> Vec<Command> {
    let commands = bench.fill();
    let read = commands.iter().find_map(|command| match command {
        Command::ReadTimers(read, ..) => Some(read.number),
        _ => None,
    });
    match read {
        Some(number) => bench.step(Event::TimersRead(number, Ok(vec![due.clone()]))),
        None => commands,
    }
}

/// Whether an item was blamed, with its first attempt.
fn is_failed(told: &[Command]) -> bool {
    commits(told).iter().any(|(_, batch)| {
        let decision = &batch.entries[0].decision;
        matches!(decision, Decision::Settle(Settle::Retry { attempts: 1, .. }))
    })
}

/// If nothing else is committed, a slow store cannot be distinguished from a slow item; but an item
/// is not tried forever.
#[test]
fn an_item_whose_reads_are_slow_is_blamed_in_the_end_where_nothing_else_is_committed() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let due = timer("sweep", 5, at(500));
    let mut ticket = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].0;
    for times in 1..=Executor::SLOW_ALONE_MAX {
        let told = slow(&mut bench, ticket);
        assert_eq!(is_failed(&told), times == Executor::SLOW_ALONE_MAX, "the {times}. time");
        bench.now = bench.now + Duration::from_secs(10);
        if times < Executor::SLOW_ALONE_MAX {
            ticket = acts(&again(&mut bench, &due))[0].0;
        }
    }
}

/// Only an item that is slow every time is to blame: any other result resets the counter.
#[test]
fn an_item_that_was_slow_and_then_was_not_is_not_blamed_for_both() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let due = timer("sweep", 5, at(500));
    let mut ticket = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].0;
    for _ in 0..3 {
        for _ in 1..Executor::SLOW_ALONE_MAX {
            let told = slow(&mut bench, ticket);
            assert!(!is_failed(&told), "{told:?}");
            bench.now = bench.now + Duration::from_secs(10);
            ticket = acts(&again(&mut bench, &due))[0].0;
        }
        let away = guests::Error::Infrastructure("the store is away".into());
        bench.step(Event::Acted(ticket, Err(away)));
        bench.now = bench.now + Duration::from_secs(10);
        ticket = acts(&again(&mut bench, &due))[0].0;
    }
}

/// An infrastructure failure that affects only one task holds that task and is finally attributed
/// to it.
#[test]
fn a_task_that_alone_meets_failures_of_the_infrastructure_holds_nobody_else() {
    for others in [false, true] {
        let mut bench =
            Bench::new(&[definition("sweep", Lane::Normal), definition("expire", Lane::Normal)]);
        let due = timer("sweep", 5, at(500));
        let mut ticket = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].0;
        for times in 1..=Executor::TROUBLED_MAX {
            let away = guests::Error::Infrastructure("no connection".into());
            let told = bench.step(Event::Acted(ticket, Err(away)));
            let last = times == Executor::TROUBLED_MAX;
            assert_eq!(is_failed(&told), last && others, "{others}: the {times}. time");
            if last {
                break;
            }
            // Only this task is held.
            bench.executor.planned(false, Some(at(600)));
            let other = timer("expire", 600 + u64::from(times), at(600));
            bench.now = bench.now + Duration::from_millis(1);
            let commands = if others { again(&mut bench, &other) } else { Vec::new() };
            for (other, keys) in acts(&commands) {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let told = bench.step(Event::Acted(other, acted(&keys)));
                let (_, batch) = commits(&told).remove(0);
                bench.step(for_ticket(all_committed(&batch), other));
            }
            bench.now = bench.now + Duration::from_secs(10);
            ticket = acts(&again(&mut bench, &due))[0].0;
        }
    }
}

/// Executes one timer of `sweep` whose reads are slow; returns the resulting commands.
fn slow(bench: &mut Bench, ticket: Ticket) -> Vec<Command> {
    let slow = guests::Error::Refused(Cause::Slow, "the reads take all the time".into());
    bench.step(Event::Acted(ticket, Err(slow)))
}

/// If the store is slow for all tasks, no dead letter is created; an item that is slow alone
/// becomes one in the end, and other tasks are not held.
#[test]
fn an_item_whose_reads_are_slow_is_blamed_once_others_are_committed_meanwhile() {
    for others in [false, true] {
        let mut bench =
            Bench::new(&[definition("sweep", Lane::Normal), definition("expire", Lane::Normal)]);
        let due = timer("sweep", 5, at(500));
        let mut ticket = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].0;
        for times in 1..=3 {
            let told = slow(&mut bench, ticket);
            let blamed = commits(&told);
            if times == 3 && others {
                let entries = &blamed[0].1.entries;
                let Decision::Settle(Settle::Retry { attempts: 1, .. }) = &entries[0].decision
                else {
                    panic!("{entries:?}")
                };
                break;
            }
            assert!(blamed.is_empty(), "{others}: the {times}. time: {told:?}");
            // Only this task is held: a timer of another one is executed and committed.
            bench.executor.planned(false, Some(at(600)));
            let commands = bench.fill();
            let Some(Command::ReadTimers(read, ..)) =
                commands.iter().find(|c| matches!(c, Command::ReadTimers(..)))
            else {
                panic!("{commands:?}")
            };
            let other = timer("expire", 600 + times, at(600));
            let both = if others { vec![due.clone(), other] } else { vec![due.clone()] };
            bench.now = bench.now + Duration::from_millis(1);
            let acting = acts(&bench.step(Event::TimersRead(read.number, Ok(both))));
            if let [(other, keys)] = acting.as_slice() {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let told = bench.step(Event::Acted(*other, acted(&keys)));
                let (_, batch) = commits(&told).remove(0);
                bench.step(for_ticket(all_committed(&batch), *other));
            }
            bench.now = bench.now + Duration::from_secs(10);
            let mut commands = bench.fill();
            if let Some(number) = commands.iter().find_map(|command| match command {
                Command::ReadTimers(read, ..) => Some(read.number),
                _ => None,
            }) {
                commands = bench.step(Event::TimersRead(number, Ok(vec![due.clone()])));
            }
            ticket = acts(&commands)[0].0;
        }
    }
}

/// A revoked right takes effect immediately: what was executed with it is not committed.
#[test]
fn nothing_is_committed_with_a_right_that_was_taken_away() {
    let granted = |delete: bool| {
        let operations = Operations { read: true, delete, ..Operations::default() };
        Arc::new(TaskDefinition {
            grants: [("things".into(), operations)].into(),
            ..(*definition("sweep", Lane::Normal)).clone()
        })
    };
    // All rights are present, one is revoked, the task itself is removed.
    for (less, now) in [(false, Some(granted(true))), (true, Some(granted(false))), (true, None)] {
        let mut bench = Bench::new(&[granted(true)]);
        let ticket = read_log(&bench.fed(&[("sweep", 0, 1)], vec![], vec![]));
        bench.step(Event::LogRead(ticket, Ok(whole(vec![logged("sweep", "a", 0, 1)]))));
        let now = now.map(|now| (now.name.clone(), now));
        bench.executor.define(now.into_iter().collect(), Arc::default());
        let told = bench.step(Event::Acted(ticket, acted(&["a"])));
        assert_eq!(commits(&told).len(), usize::from(!less), "{told:?}");
        assert_eq!(told.iter().any(|c| matches!(c, Command::Abandon(_))), less, "{told:?}");
    }
}

/// A missing privilege is not an item's fault: the task is not tried for a while, no attempt is
/// used, and other tasks continue.
#[test]
fn what_the_database_refuses_holds_its_task_alone_and_costs_no_attempt() {
    let mut bench =
        Bench::new(&[definition("sweep", Lane::Normal), definition("expire", Lane::Normal)]);
    let due = timer("sweep", 5, at(500));
    let (ticket, _) = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].clone();
    let denied = store::Error::Refused(Cause::Privilege, "permission denied".into());
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    let commands = bench.step(Event::Committed(ticket, batch.id, Err(denied)));
    assert!(matches!(commands.as_slice(), [Command::Abandon(_)]), "{commands:?}");
    // The task is held, but the other one is not: its timer is read and executed in the meantime.
    bench.executor.planned(false, Some(at(600)));
    let commands = bench.fill();
    let Some(Command::ReadTimers(read, ..)) =
        commands.iter().find(|c| matches!(c, Command::ReadTimers(..)))
    else {
        panic!("{commands:?}")
    };
    let both = vec![due.clone(), timer("expire", 6, at(600))];
    let commands = bench.step(Event::TimersRead(read.number, Ok(both)));
    let keys: Vec<_> = acts(&commands).into_iter().map(|(_, keys)| keys).collect();
    assert_eq!(keys, [vec!["6".to_owned()]]);
    // The timer is then read again, with no attempt used.
    bench.now = bench.now + Duration::from_secs(1);
    let commands = bench.fill();
    let Some(Command::ReadTimers(read, ..)) =
        commands.iter().find(|c| matches!(c, Command::ReadTimers(..)))
    else {
        panic!("{commands:?}")
    };
    let commands = bench.step(Event::TimersRead(read.number, Ok(vec![due.clone()])));
    match commands.iter().find(|command| matches!(command, Command::Act { .. })) {
        Some(Command::Act { items, .. }) => assert_eq!(items[0].1, due.item),
        other => panic!("{other:?}"),
    }
}

/// A proposal for a collection that is not mapped.
fn unmapped(key: &str) -> Verdict {
    let Verdict::Propose(mut proposal) = delete(key) else { panic!("a proposal") };
    proposal.changes =
        vec![Change::Delete { collection: "gone".into(), key: vec![Value::Text(key.into())] }];
    Verdict::Propose(proposal)
}

/// The verdicts on the items that a command executes, each made by `verdict`.
fn answered(commands: &[Command], verdict: impl Fn(&str) -> Result<Verdict, Fault>) -> Event {
    let (ticket, keys) = acts(commands).remove(0);
    let verdicts = keys.iter().map(|key| verdict(key)).collect();
    Event::Acted(ticket, Ok(Acted { verdicts, usage: Usage::default() }))
}

#[test]
fn items_that_are_refused_in_a_row_for_one_reason_hold_their_task_and_stay() {
    let settings =
        Settings { due_ahead: Duration::ZERO, refused_items_max: 3, ..Settings::default() };
    let mut bench = Bench::with(settings, &[definition("sweep", Lane::Normal)]);
    let timers: Vec<Waiting> = (4..7).map(|id| timer("sweep", id, at(id as i64))).collect();
    let begun = bench.fed(&[], timers.clone(), vec![]);
    let commands = bench.step(answered(&begun, |key| Ok(unmapped(key))));
    let [Command::Hold(task, reason), Command::Abandon(_), rest @ ..] = commands.as_slice() else {
        panic!("{commands:?}")
    };
    assert_eq!((task.as_str(), reason.as_str()), ("sweep", "there is no collection \"gone\""));
    assert!(commits(rest).is_empty() && acts(rest).is_empty(), "{rest:?}");

    // The next try holds the task again; once the mapping is corrected, the same items commit.
    let retry = |bench: &mut Bench| {
        bench.now = bench.now + Duration::from_secs(10);
        let commands = bench.fill();
        let read = commands.iter().find_map(|command| match command {
            Command::ReadTimers(read, ..) => Some(read.number),
            _ => None,
        });
        bench.step(Event::TimersRead(read.expect("a read"), Ok(timers.clone())))
    };
    let begun = retry(&mut bench);
    let refused = Fault { refused: Some("not granted".into()), ..Fault::new("contract", "no") };
    let commands = bench.step(answered(&begun, |_| Err(refused.clone())));
    assert!(matches!(commands[0], Command::Hold(..)), "{commands:?}");
    let begun = retry(&mut bench);
    let (_, batch) = commits(&bench.step(answered(&begun, |key| Ok(delete(key))))).remove(0);
    let attempts: Vec<u32> = batch.entries.iter().map(|entry| entry.item.attempts).collect();
    assert_eq!(attempts, [0, 0, 0]);
}

#[test]
fn a_refused_item_beside_an_accepted_one_fails_alone() {
    let settings =
        Settings { due_ahead: Duration::ZERO, refused_items_max: 1, ..Settings::default() };
    let mut bench = Bench::with(settings, &[definition("sweep", Lane::Normal)]);
    let timers = (4..7).map(|id| timer("sweep", id, at(id as i64))).collect();
    let begun = bench.fed(&[], timers, vec![]);
    let answer = |key: &str| Ok(if key == "5" { delete(key) } else { unmapped(key) });
    let (_, batch) = commits(&bench.step(answered(&begun, answer))).remove(0);
    let failed = |entry: &Entry| {
        matches!(&entry.decision, Decision::Settle(Settle::Retry { attempts: 1, reason, .. })
            if reason == "there is no collection \"gone\"")
    };
    let failed: Vec<bool> = batch.entries.iter().map(failed).collect();
    assert_eq!(failed, [true, false, true]);
}

/// Its row was removed while nothing waited, and as many items have arrived since: the position that
/// was seen still exists.
#[test]
fn a_stream_that_begins_again_up_to_the_same_position_is_executed() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 1)], vec![], vec![]));
    bench.step(Event::LogRead(ticket, Ok(whole(vec![logged("sweep", "a", 0, 1)]))));
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["a"])))).remove(0);
    bench.step(for_ticket(all_committed(&batch), ticket));

    bench.executor.planned(true, None);
    let stream =
        Stream { task: "sweep".into(), partition: Partition(0), acked: Seq(0), tail: Seq(1) };
    assert!(matches!(bench.fill().as_slice(), [Command::Backlog(_)]));
    // The first answer may be older than the acknowledgement.
    let commands = bench.step(Event::Backlog(Ok(vec![stream.clone()])));
    assert!(matches!(commands.as_slice(), [Command::Backlog(_)]), "{commands:?}");
    let commands = bench.step(Event::Backlog(Ok(vec![stream])));
    let read = commands.iter().find_map(|command| match command {
        Command::ReadLog { streams, .. } => Some(streams.clone()),
        _ => None,
    });
    assert_eq!(read, Some(vec![(Partition(0), Seq(0))]), "{commands:?}");
}

/// The store's clock went back further than a reading of it can be wrong.
#[test]
fn what_was_decided_ahead_of_the_stores_clock_waits_and_the_clock_is_read_again() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 1)], vec![], vec![]));
    let read = whole(vec![logged("sweep", "a", 0, 1)]);
    let (ticket, _) = acts(&bench.step(Event::LogRead(ticket, Ok(read))))[0].clone();
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["a"])))).remove(0);
    assert_eq!(batch.as_of, bench.now);
    let outcomes = vec![Outcome::Left(LeftOut::NotDue)];
    let left = Committed { outcomes, at: batch.as_of - Duration::from_secs(1), runs_ended: vec![] };
    let commands = bench.step(Event::Committed(ticket, batch.id, Ok(left)));
    assert!(commands.contains(&Command::ReadClock), "{commands:?}");
    assert!(commands.contains(&Command::Abandon(batch.id)), "{commands:?}");
    assert_eq!(acts(&commands), []);
    assert!(!bench.executor.is_drained(bench.now), "it still waits");
}

#[test]
fn a_stream_that_cannot_be_read_holds_back_itself_alone() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 2), ("sweep", 1, 2)], vec![], vec![]));
    let gap = BrokenStream { partition: Partition(0), why: "1 is missing".into() };
    let looked = vec![Partition(0), Partition(1)];
    let items = vec![logged("sweep", "b", 1, 1)];
    let read = LogRead { items, broken: vec![gap.clone()], looked };
    let commands = bench.step(Event::LogRead(ticket, Ok(read)));
    assert_eq!(acts(&commands), [(ticket, vec!["b".to_owned()])]);
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["b"])))).remove(0);
    let commands = bench.step(for_ticket(all_committed(&batch), ticket));
    let Some(Command::ReadLog { ticket, streams, .. }) =
        commands.iter().find(|c| matches!(c, Command::ReadLog { .. }))
    else {
        panic!("{commands:?}")
    };
    assert_eq!(*streams, [(Partition(1), Seq(1))], "the broken one is left alone");
    let (ticket, read) = (*ticket, whole(vec![logged("sweep", "c", 1, 2)]));
    bench.step(Event::LogRead(ticket, Ok(read)));
    // The item is tried again alone.
    let again = bench.executor.deadline().expect("a time to try it again");
    bench.now = again;
    let commands = bench.fill();
    assert!(commands.iter().any(|c| matches!(c, Command::Backlog(_))), "{commands:?}");
    // The stream was renumbered in the meantime, after its last number.
    let repaired =
        Stream { task: "sweep".into(), partition: Partition(0), acked: Seq(2), tail: Seq(3) };
    let commands = bench.step(Event::Backlog(Ok(vec![repaired])));
    let tried = commands.iter().any(|command| {
        matches!(command, Command::ReadLog { streams, .. } if *streams == [(Partition(0), Seq(2))])
    });
    assert!(tried, "{commands:?}");
}

#[test]
fn a_stream_whose_positions_went_back_is_executed_from_where_the_store_stands() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let stream = |acked, tail| Stream {
        task: "sweep".into(),
        partition: Partition(0),
        acked: Seq(acked),
        tail: Seq(tail),
    };
    bench.step(Event::TimersRead(1, Ok(Vec::new())));
    bench.step(Event::RetriesRead(1, Ok(Vec::new())));
    bench.step(Event::Backlog(Ok(vec![stream(90, 90)])));
    // A copy from before the last items was restored, and two more have arrived since.
    bench.executor.planned(true, None);
    bench.fill();
    let out = bench.step(Event::Backlog(Ok(vec![stream(40, 42)])));
    let read = out.iter().find_map(|command| match command {
        Command::ReadLog { streams, .. } => Some(streams.clone()),
        _ => None,
    });
    assert_eq!(read, Some(vec![(Partition(0), Seq(40))]));
    // Items that were done after the copy are waiting again.
    assert!(out.iter().any(|command| matches!(command, Command::ReadTimers(..))), "{out:?}");
    assert!(out.iter().any(|command| matches!(command, Command::ReadRetries(..))), "{out:?}");
}

/// The store was restored to a slightly earlier state, so that only the commit detects it.
#[test]
fn a_stream_that_is_further_back_than_was_thought_is_read_from_where_it_stands() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 3)], vec![], vec![]));
    let read = whole(vec![logged("sweep", "a", 0, 1), logged("sweep", "b", 0, 2)]);
    bench.step(Event::LogRead(ticket, Ok(read)));
    let (ticket, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["a", "b"])))).remove(0);
    let commands = bench.step(for_ticket(all_committed(&batch), ticket));
    let ticket = read_log(&commands);
    // An answer that is older than what follows is ignored.
    bench.executor.planned(true, None);
    assert!(bench.fill().iter().any(|command| matches!(command, Command::Backlog(_))));
    let read = whole(vec![logged("sweep", "c", 0, 3)]);
    bench.step(Event::LogRead(ticket, Ok(read)));
    let (ticket, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["c"])))).remove(0);
    let outcomes = vec![Outcome::Left(LeftOut::NotThere)];
    let left = Committed { outcomes, at: bench.now, runs_ended: vec![] };
    bench.step(Event::Committed(ticket, batch.id, Ok(left)));
    let stream = |acked| {
        let (task, partition, tail) = ("sweep".into(), Partition(0), Seq(3));
        vec![Stream { task, partition, acked: Seq(acked), tail }]
    };
    let commands = bench.step(Event::Backlog(Ok(stream(2))));
    assert!(commands.iter().any(|command| matches!(command, Command::Backlog(_))), "{commands:?}");
    let commands = bench.step(Event::Backlog(Ok(stream(1))));
    let read = commands.iter().find_map(|command| match command {
        Command::ReadLog { streams, .. } => Some(streams.clone()),
        _ => None,
    });
    assert_eq!(read, Some(vec![(Partition(0), Seq(1))]));
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A hold is measured by the store's clock, which may be wrong while it begins.
#[test]
fn a_hold_ends_in_time_although_the_clock_was_set_back() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    bench.now = bench.now + HOUR;
    let due = timer("sweep", 5, at(500));
    let ticket = acts(&bench.fed(&[], vec![due.clone()], vec![]))[0].0;
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    // The store's clock is right again: the batch is an hour early, and the task is held.
    let outcomes = vec![Outcome::Left(LeftOut::NotDue)];
    let left = Committed { outcomes, at: batch.as_of - HOUR, runs_ended: vec![] };
    let commands = bench.step(Event::Committed(ticket, batch.id, Ok(left)));
    assert_eq!((acts(&commands), bench.executor.is_held(&"sweep".into())), (vec![], true));
    bench.now = bench.now - HOUR;
    assert_eq!(acts(&again(&mut bench, &due)), [], "it is still held");
    bench.now = bench.now + Duration::from_secs(1);
    assert_eq!(acts(&again(&mut bench, &due)).len(), 1);
}

/// Such a batch would occupy its lane until the time that the wrong clock showed.
#[test]
fn batches_executed_ahead_of_a_wrong_time_are_given_back() {
    let mut bench = Bench::with(Settings::default(), &[definition("expire", Lane::Due)]);
    let later = bench.now + HOUR;
    bench.now = later - Settings::default().due_ahead;
    let ticket = acts(&bench.fed(&[], vec![timer("expire", 1, later)], vec![]))[0].0;
    assert_eq!(commits(&bench.step(Event::Acted(ticket, acted(&["1"])))), []);
    bench.now = bench.now - HOUR;
    let commands = bench.fill();
    let given_back = commands.iter().any(|c| matches!(c, Command::Abandon(_)));
    assert!(given_back && bench.executor.is_idle(), "{commands:?}");
    let read = commands.iter().find_map(|command| match command {
        Command::ReadTimers(read, ..) => Some(read.number),
        _ => None,
    });
    let read = read.expect("the timers are read again");
    let overdue = timer("expire", 2, bench.now - Duration::from_secs(1));
    let timers = Ok(vec![overdue, timer("expire", 1, later)]);
    let keys: Vec<_> = acts(&bench.step(Event::TimersRead(read, timers))).into_iter().collect();
    assert_eq!(keys.iter().map(|(_, keys)| keys.clone()).collect::<Vec<_>>(), [["2"]]);
}

#[test]
fn readings_of_the_clock_may_differ_by_less_than_a_second() {
    let mut bench = Bench::with(Settings::default(), &[definition("expire", Lane::Due)]);
    let due = bench.now + Duration::from_millis(5);
    let ticket = acts(&bench.fed(&[], vec![timer("expire", 1, due)], vec![]))[0].0;
    assert_eq!(commits(&bench.step(Event::Acted(ticket, acted(&["1"])))), []);
    bench.now = bench.now - Duration::from_millis(900);
    assert_eq!(bench.fill(), []);
    bench.now = due;
    assert_eq!(commits(&bench.fill()).len(), 1);
}

/// A message of that size in each verdict.
fn emitted(bytes: &[usize]) -> Result<Acted, guests::Error> {
    let verdict = |bytes: &usize| {
        let payload = vec![0; *bytes];
        Ok(Verdict::Propose(Proposal {
            guards: Vec::new(),
            changes: vec![Change::Emit { topic: "t".into(), key: "k".into(), payload }],
            on_guard_failed: OnGuardFailed::Skip("gone".into()),
            notes: Vec::new(),
        }))
    };
    Ok(Acted { verdicts: bytes.iter().map(verdict).collect(), usage: Usage::default() })
}

/// Three tasks with one batch each. Up to 2,000 bytes are committed at once; a batch of up to 125
/// bytes is small.
fn three(lanes: [Lane; 3]) -> (Bench, Vec<Ticket>) {
    let settings = Settings {
        due_ahead: Duration::ZERO,
        batches: PerLane::of(|_| 3),
        commit_bytes_in_flight: 2_000,
        ..Settings::default()
    };
    let names = ["a", "b", "c"];
    let tasks: Vec<_> =
        names.iter().zip(lanes).map(|(name, lane)| definition(name, lane)).collect();
    let mut bench = Bench::with(settings, &tasks);
    let timers = (1..).zip(names).map(|(id, name)| timer(name, id, at(500))).collect();
    let mut begun = acts(&bench.fed(&[], timers, vec![]));
    begun.sort_by(|one, other| one.1.cmp(&other.1));
    (bench, begun.into_iter().map(|(ticket, _)| ticket).collect())
}

#[test]
fn a_large_commit_waits_until_others_have_landed_and_a_small_one_does_not() {
    let (mut bench, tickets) = three([Lane::Normal; 3]);
    let [a, b, c] = tickets[..] else { panic!("{tickets:?}") };
    let (_, first) = commits(&bench.step(Event::Acted(a, emitted(&[1_500])))).remove(0);
    assert_eq!(commits(&bench.step(Event::Acted(b, emitted(&[1_000])))), []);
    // Nothing but the answer of the first ends the wait.
    assert!(bench.executor.deadline().is_none_or(|at| at > bench.now));
    bench.now = bench.now + Duration::from_millis(100);
    assert_eq!(commits(&bench.fill()), []);
    let small = commits(&bench.step(Event::Acted(c, emitted(&[10]))));
    assert_eq!(small.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [c]);
    let commands = bench.step(for_ticket(all_committed(&first), a));
    let second = commits(&commands);
    assert_eq!(second.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [b]);
    // Its first try begins now: the wait for others is not held against it.
    let busy = Err(store::Error::Busy("b".into()));
    bench.now = bench.now + Duration::from_millis(500);
    let commands = bench.step(Event::Committed(b, second[0].1.id, busy));
    assert_eq!(acts(&commands), []);
    bench.now = bench.executor.deadline().expect("a time to try again");
    assert_eq!(commits(&bench.fill()), second);
}

#[test]
fn commits_that_are_within_the_bound_together_are_under_way_together() {
    let (mut bench, tickets) = three([Lane::Normal; 3]);
    let mut sent = Vec::new();
    for ticket in &tickets {
        sent.extend(commits(&bench.step(Event::Acted(*ticket, emitted(&[700])))));
    }
    // Each weighs its message, the names and a row.
    assert_eq!(sent.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets[..2]);
    let (ticket, first) = sent.remove(0);
    let third = commits(&bench.step(for_ticket(all_committed(&first), ticket)));
    assert_eq!(third.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets[2..]);
}

#[test]
fn a_batch_above_the_bound_is_committed_alone_and_no_other_passes_it() {
    let (mut bench, tickets) = three([Lane::Normal; 3]);
    let [a, b, c] = tickets[..] else { panic!("{tickets:?}") };
    let (_, first) = commits(&bench.step(Event::Acted(a, emitted(&[500])))).remove(0);
    assert_eq!(commits(&bench.step(Event::Acted(b, emitted(&[9_000])))), []);
    // It would fit beside the first, but then the large one might wait for ever.
    assert_eq!(commits(&bench.step(Event::Acted(c, emitted(&[500])))), []);
    let alone = commits(&bench.step(for_ticket(all_committed(&first), a)));
    assert_eq!(alone.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [b]);
    let last = commits(&bench.step(for_ticket(all_committed(&alone[0].1), b)));
    assert_eq!(last.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [c]);
    bench.step(for_ticket(all_committed(&last[0].1), c));
    assert!(bench.executor.is_idle());
}

#[test]
fn due_items_are_committed_before_other_batches_that_wait() {
    let (mut bench, tickets) = three([Lane::Normal, Lane::Normal, Lane::Due]);
    let [a, b, c] = tickets[..] else { panic!("{tickets:?}") };
    let (_, first) = commits(&bench.step(Event::Acted(a, emitted(&[1_900])))).remove(0);
    assert_eq!(commits(&bench.step(Event::Acted(b, emitted(&[1_900])))), []);
    assert_eq!(commits(&bench.step(Event::Acted(c, emitted(&[1_900])))), []);
    let due = commits(&bench.step(for_ticket(all_committed(&first), a)));
    assert_eq!(due.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [c]);
}

#[test]
fn nothing_is_begun_in_a_lane_while_too_much_of_it_waits_for_its_commit() {
    let (mut bench, tickets) = three([Lane::Normal; 3]);
    let [a, b, c] = tickets[..] else { panic!("{tickets:?}") };
    let (_, first) = commits(&bench.step(Event::Acted(a, emitted(&[1_900])))).remove(0);
    bench.step(Event::Acted(b, emitted(&[1_900])));
    let stream = Stream { task: "c".into(), partition: Partition(1), acked: Seq(0), tail: Seq(1) };
    bench.step(Event::Acted(c, emitted(&[1_900])));
    bench.executor.planned(true, None);
    bench.fill();
    let reads = |commands: &[Command]| {
        commands.iter().any(|command| matches!(command, Command::ReadLog { .. }))
    };
    assert!(!reads(&bench.step(Event::Backlog(Ok(vec![stream])))));
    assert!(reads(&bench.step(for_ticket(all_committed(&first), a))));
}
