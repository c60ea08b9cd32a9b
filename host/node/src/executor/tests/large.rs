//! The bytes of the commits under way are bounded.

use besom_ports::guests::Limits;

use super::*;

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

fn tickets_of(commits: &[(Ticket, Batch)]) -> Vec<Ticket> {
    commits.iter().map(|(ticket, _)| *ticket).collect()
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
    assert_eq!(tickets_of(&small), [c]);
    let commands = bench.step(for_ticket(all_committed(&first), a));
    let second = commits(&commands);
    assert_eq!(tickets_of(&second), [b]);
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
    assert_eq!(tickets_of(&sent), tickets[..2]);
    let (ticket, first) = sent.remove(0);
    let third = commits(&bench.step(for_ticket(all_committed(&first), ticket)));
    assert_eq!(tickets_of(&third), tickets[2..]);
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
    assert_eq!(tickets_of(&alone), [b]);
    let last = commits(&bench.step(for_ticket(all_committed(&alone[0].1), b)));
    assert_eq!(tickets_of(&last), [c]);
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
    assert_eq!(tickets_of(&due), [c]);
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

/// Their commits do not wait for the large ones either.
#[test]
fn tasks_whose_batches_are_small_begin_while_large_ones_wait_for_their_commit() {
    for (size, expected) in [(None, false), (Some(2_000), false), (Some(125), true)] {
        let (mut bench, tickets) = three([Lane::Normal; 3]);
        for ticket in tickets {
            bench.step(Event::Acted(ticket, emitted(&[1_900])));
        }
        bench.executor.sizes.remove(&TaskName::from("c"));
        if let Some(size) = size {
            bench.executor.sizes.insert("c".into(), size);
        }
        let stream =
            Stream { task: "c".into(), partition: Partition(1), acked: Seq(0), tail: Seq(1) };
        bench.executor.planned(true, None);
        bench.fill();
        let commands = bench.step(Event::Backlog(Ok(vec![stream])));
        let begun = commands.iter().any(|command| matches!(command, Command::ReadLog { .. }));
        assert_eq!(begun, expected, "{size:?}");
    }
}

#[test]
fn a_small_batch_halves_the_size_that_is_known_of_a_task() {
    let (mut bench, tickets) = three([Lane::Normal; 3]);
    let known = |bench: &Bench| bench.executor.sizes[&TaskName::from("a")];
    let commands = bench.step(Event::Acted(tickets[0], emitted(&[1_900])));
    let large = known(&bench);
    let (_, batch) = commits(&commands).remove(0);
    bench.step(for_ticket(all_committed(&batch), tickets[0]));
    let due = timer("a", 9, at(500));
    bench.executor.timers.added(due.run_at);
    let (ticket, _) = acts(&again(&mut bench, &due))[0].clone();
    bench.step(Event::Acted(ticket, emitted(&[1])));
    assert_eq!(known(&bench), large / 2);
}

/// What does not fit into one commit would be executed again.
#[test]
fn the_size_of_batches_follows_what_fits_into_one_commit() {
    let settings =
        Settings { due_ahead: Duration::ZERO, batches: PerLane::of(|_| 1), ..Settings::default() };
    let definition = definition("a", Lane::Normal);
    let limits = Limits { batch_items: 20, ..definition.limits.clone() };
    let definition = Arc::new(TaskDefinition { limits, ..TaskDefinition::clone(&definition) });
    let mut bench = Bench::with(settings, &[definition]);
    let timers = (1..=20).map(|id| timer("a", id, at(500))).collect();
    let mut commands = bench.fed(&[], timers, vec![]);
    let mut sizes = Vec::new();
    while let Some((ticket, keys)) = acts(&commands).pop() {
        let room = if sizes.is_empty() { 2 } else { usize::MAX };
        sizes.push(keys.len());
        let verdict = |(at, key): (usize, &String)| match at < room {
            true => Ok(delete(key)),
            false => Err(Fault::no_room()),
        };
        let verdicts = keys.iter().enumerate().map(verdict).collect();
        let result = Ok(Acted { verdicts, usage: Usage::default() });
        // While a batch is in its commit, the next one is executed.
        commands = bench.step(Event::Acted(ticket, result));
        let (ticket, batch) = commits(&commands).remove(0);
        commands.extend(bench.step(for_ticket(all_committed(&batch), ticket)));
    }
    assert_eq!(sizes, [20, 2, 4, 8, 4]);
}
