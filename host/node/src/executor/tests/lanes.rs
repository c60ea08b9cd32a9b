//! Which task is executed when: lanes, turns, and what is due.

use super::*;

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

/// Otherwise, after a start, each task whose calls wait for the database would have its turn before.
#[test]
fn a_first_call_that_takes_long_gives_its_place_to_a_task_that_waits() {
    let names = ["one", "other", "third"];
    let mut bench = Bench::new(&names.map(|name| definition(name, Lane::Normal)));
    bench.fed(&[("one", 0, 9), ("other", 0, 9)], vec![], vec![]);
    for (ticket, task) in [(Ticket(1), "one"), (Ticket(2), "other")] {
        bench.step(Event::LogRead(ticket, Ok(whole(vec![logged(task, "a", 0, 1)]))));
    }
    let begun = bench.now;
    bench.now = begun + FIRST_CALL_MAX;
    assert_eq!(bench.fill(), [], "nobody waits");
    // The memory of `third` is not known, so it begins beside none that take long and use much.
    for task in ["one", "other"] {
        bench.executor.memory.insert(task.into(), 128 << 20);
    }
    let mut streams = waiting(&[("one", 0), ("other", 0), ("third", 0)]);
    bench.executor.planned(true, None);
    bench.fill();
    let commands = bench.step(Event::Backlog(Ok(streams.clone())));
    assert_eq!(commands, [Command::StopAct(Ticket(1)), Command::StopAct(Ticket(2))]);
    assert_eq!(bench.fill(), [], "each is asked once");
    let stopped = || Err(guests::Error::Stopped("others wait".into()));
    let commands = bench.step(Event::Acted(Ticket(1), stopped()));
    let read = commands.iter().find_map(|command| match command {
        Command::ReadLog { task, ticket, .. } => Some((task.as_str(), *ticket)),
        _ => None,
    });
    assert_eq!(read, Some(("third", Ticket(3))), "{commands:?}");
    bench.step(Event::Acted(Ticket(2), stopped()));
    bench.step(Event::LogRead(Ticket(3), Ok(whole(vec![logged("third", "a", 0, 1)]))));
    let (_, batch) = commits(&bench.step(Event::Acted(Ticket(3), acted(&["a"])))).remove(0);
    bench.step(for_ticket(all_committed(&batch), Ticket(3)));
    // The items were not lost, no attempt is counted, and the second call may take its time.
    streams.truncate(2);
    bench.executor.planned(true, None);
    bench.fill();
    let reads = bench.step(Event::Backlog(Ok(streams)));
    let again = bench.executor.flights().filter(|flight| flight.task.as_str() == "one").count();
    assert_eq!(again, 1, "{reads:?}");
    assert_eq!(bench.executor.long.len(), 2);
    bench.now = bench.now + Duration::from_secs(9);
    let stops = bench.fill().into_iter().filter(|c| matches!(c, Command::StopAct(_)));
    assert_eq!(stops.count(), 0);
}

/// Tasks of the lane normal. The last batch of `third` took a second.
fn after_a_long_batch(names: &[&str]) -> Bench {
    let tasks: Vec<_> = names.iter().map(|name| definition(name, Lane::Normal)).collect();
    let mut bench = Bench::new(&tasks);
    let timers = vec![timer("third", 7, at(100))];
    let (third, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    bench.now = bench.now + Duration::from_secs(1);
    let commands = bench.step(Event::Acted(third, acted(&["7"])));
    let (_, batch) = commits(&commands).remove(0);
    bench.step(for_ticket(all_committed(&batch), third));
    bench.executor.planned(true, None);
    bench.fill();
    bench
}

/// Streams with nine items each, by task and partition.
fn waiting(streams: &[(&str, u32)]) -> Vec<Stream> {
    let stream = |(task, partition): &(&str, u32)| Stream {
        task: (*task).into(),
        partition: Partition(*partition),
        acked: Seq(0),
        tail: Seq(9),
    };
    streams.iter().map(stream).collect()
}

#[test]
fn a_task_whose_last_batch_took_long_gets_no_place_apart() {
    let mut bench = after_a_long_batch(&["one", "other", "third"]);
    bench.step(Event::Backlog(Ok(waiting(&[("one", 0), ("other", 0), ("third", 0)]))));
    bench.now = bench.executor.deadline().expect("the time at which both take long");
    let reads = bench.fill().into_iter().filter(|c| matches!(c, Command::ReadLog { .. }));
    assert_eq!(reads.count(), 0);
}

/// Tasks whose calls sleep take each place they can get, and a turn among them takes seconds.
#[test]
fn a_task_that_takes_long_does_not_wait_for_tasks_that_take_much_longer() {
    for (seconds, expected) in [([5, 4], 1), ([5, 3], 0)] {
        // The last batch of `third` took one second.
        let mut bench = after_a_long_batch(&["one", "other", "third"]);
        for (task, seconds) in ["one", "other"].into_iter().zip(seconds) {
            bench.executor.long.insert(task.into(), Duration::from_secs(seconds));
        }
        bench.step(Event::Backlog(Ok(waiting(&[("one", 0), ("other", 0), ("third", 0)]))));
        bench.now = bench.executor.deadline().expect("the time at which both take long");
        let reads = bench.fill().into_iter().filter(|c| matches!(c, Command::ReadLog { .. }));
        assert_eq!(reads.count(), expected, "{seconds:?}");
    }
}

/// A task whose slow and quick calls alternate would otherwise count as quick half of the time.
#[test]
fn a_quick_batch_halves_what_is_known_of_a_task_that_takes_long() {
    let mut bench = after_a_long_batch(&["third"]);
    let mut known = Vec::new();
    for id in 8..12 {
        known.push(bench.executor.long.get(&TaskName::from("third")).map(Duration::as_millis));
        let due = timer("third", id, at(100));
        bench.executor.timers.added(due.run_at);
        let begun = again(&mut bench, &due);
        let (ticket, keys) = acts(&begun)[0].clone();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let commands = bench.step(Event::Acted(ticket, acted(&keys)));
        let (_, batch) = commits(&commands).remove(0);
        bench.step(for_ticket(all_committed(&batch), ticket));
    }
    assert_eq!(known, [Some(1000), Some(500), Some(250), None]);
}

#[test]
fn a_task_that_holds_all_places_leaves_one_to_each_task_that_takes_long_too() {
    let mut bench = after_a_long_batch(&["one", "third"]);
    let streams = waiting(&[("one", 0), ("one", 1), ("third", 0)]);
    let reads = |commands: Vec<Command>| -> Vec<(Ticket, String)> {
        let read = |command| match command {
            Command::ReadLog { ticket, task, .. } => Some((ticket, task.to_string())),
            _ => None,
        };
        commands.into_iter().filter_map(read).collect()
    };
    let begun = reads(bench.step(Event::Backlog(Ok(streams[..2].to_vec()))));
    for (ticket, _) in &begun {
        bench.step(Event::LogRead(*ticket, Ok(whole(vec![logged("one", "a", 0, 1)]))));
    }
    bench.now = bench.executor.deadline().expect("the time at which it takes long");
    bench.executor.planned(true, None);
    bench.fill();
    let begun = reads(bench.step(Event::Backlog(Ok(streams))));
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert_eq!(begun[0].1, "third");
}

/// Otherwise the tasks behind the one that has most turns would never have any.
#[test]
fn a_task_with_many_turns_does_not_change_the_order_of_the_others() {
    let mut turns = super::begin::Turns::default();
    let tasks = ["a", "b", "c"].map(TaskName::from);
    let quick = TaskName::from("quick");
    let mut had = Vec::new();
    for _ in 0..6 {
        turns.take(&quick);
        let next = turns.next(tasks.iter()).expect("one of them");
        turns.take(&next);
        had.push(next.to_string());
    }
    assert_eq!(had, ["a", "b", "c", "a", "b", "c"]);
    assert_eq!(turns.next([&quick, &tasks[1]].into_iter()), Some(tasks[1].clone()));
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
    let early = Committed {
        outcomes: early,
        at: at(60_001),
        runs_ended: vec![],
        braked: Default::default(),
    };
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
