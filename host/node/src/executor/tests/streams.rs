//! Streams that are read again, and those that cannot be read.

use super::*;

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

#[test]
fn a_stream_that_cannot_be_read_holds_back_itself_alone() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let ticket = read_log(&bench.fed(&[("sweep", 0, 2), ("sweep", 1, 2)], vec![], vec![]));
    let gap = BrokenStream { partition: Partition(0), why: "1 is missing".into() };
    let looked = vec![Partition(0), Partition(1)];
    let items = vec![logged("sweep", "b", 1, 1)];
    let read = LogRead { items, broken: vec![gap.clone()], looked, rows_max: None };
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
    let left =
        Committed { outcomes, at: bench.now, runs_ended: vec![], braked: Default::default() };
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
