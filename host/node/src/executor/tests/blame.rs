//! Failures of an item, of its task and of the infrastructure, and whose attempt they use.

use super::*;

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
    used_after_a_few(store::Error::Raised, Duration::ZERO);
}

/// The store is not slow if other batches are committed meanwhile.
#[test]
fn an_item_whose_own_changes_take_too_long_uses_an_attempt_after_a_few() {
    used_after_a_few(store::Error::TimedOut, Duration::from_secs(30));
}

/// The answers come after `took`, and others are committed meanwhile.
fn used_after_a_few(error: fn(String) -> store::Error, took: Duration) {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = vec![timer("sweep", 5, at(400)), timer("sweep", 6, at(500))];
    let (ticket, _) = acts(&bench.fed(&[], timers, vec![]))[0].clone();
    let (_, both) = commits(&bench.step(Event::Acted(ticket, acted(&["5", "6"])))).remove(0);
    let raised = || Err(error("terminating connection".into()));
    let pass = |bench: &mut Bench| {
        bench.now = bench.now + took;
        bench.executor.committed_at = Some(bench.now);
    };
    pass(&mut bench);
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
        pass(&mut bench);
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
            let done = Committed {
                outcomes,
                at: bench.now,
                runs_ended: vec![],
                braked: Default::default(),
            };
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

/// All other writes wait for the guards of one item, which fails after its attempts, but the next
/// item may be like it.
#[test]
fn a_task_whose_guards_take_too_long_again_and_again_pauses_ever_longer() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let mut begun = bench.fed(&[], vec![timer("sweep", 1, at(500))], vec![]);
    let mut pauses = Vec::new();
    for id in 1..=10 {
        let ticket = acts(&begun)[0].0;
        let (_, batch) =
            commits(&bench.step(Event::Acted(ticket, acted(&[&id.to_string()])))).remove(0);
        bench.now = bench.now + Duration::from_secs(1);
        let late = store::Error::GuardsTimedOut("guards took longer than 1000 ms".into());
        let told = bench.step(Event::Committed(ticket, batch.id, Err(late)));
        let (_, failed) = commits(&told).remove(0);
        let decision = &failed.entries[0].decision;
        assert!(
            matches!(decision, Decision::Settle(Settle::Retry { attempts: 1, .. })),
            "{decision:?}"
        );
        // The item's failure is recorded, which is no reason to continue.
        let outcomes = vec![Outcome::Retried(bench.now + Duration::from_secs(10_000))];
        let done =
            Committed { outcomes, at: bench.now, runs_ended: vec![], braked: Default::default() };
        bench.step(Event::Committed(ticket, failed.id, Ok(done)));
        let due = timer("sweep", id + 1, bench.now);
        bench.executor.timers.added(due.run_at);
        let held = told.iter().find_map(|command| match command {
            Command::Hold(_, Halted::Overrun { of: Overrun::Guards, rest, .. }) => Some(*rest),
            _ => None,
        });
        pauses.push(held.unwrap_or_default().as_secs());
        if let Some(rest) = held {
            bench.now = bench.now + rest - Duration::from_millis(1);
            assert_eq!(acts(&again(&mut bench, &due)), [], "it rests");
            bench.now = bench.now + Duration::from_millis(1);
        }
        begun = again(&mut bench, &due);
    }
    assert_eq!(pauses, [0, 0, 5, 10, 20, 40, 80, 160, 300, 300]);
}

/// Another attempt would read the same rows for the same answer.
#[test]
fn an_item_with_too_large_before_images_is_set_aside_at_once_and_its_task_pauses() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let mut begun = bench.fed(&[], vec![timer("sweep", 1, at(500))], vec![]);
    for id in 1..=3 {
        let ticket = acts(&begun)[0].0;
        let (_, batch) =
            commits(&bench.step(Event::Acted(ticket, acted(&[&id.to_string()])))).remove(0);
        let large = store::Error::TooLarge("larger than 10 bytes".into());
        let told = bench.step(Event::Committed(ticket, batch.id, Err(large)));
        let (_, failed) = commits(&told).remove(0);
        let decision = &failed.entries[0].decision;
        assert!(
            matches!(decision, Decision::Settle(Settle::Dead { attempts: 1, reason })
                if reason == "larger than 10 bytes"),
            "{decision:?}"
        );
        let done = Committed {
            outcomes: vec![Outcome::Dead("larger".into())],
            at: bench.now,
            runs_ended: vec![],
            braked: Default::default(),
        };
        bench.step(Event::Committed(ticket, failed.id, Ok(done)));
        let held = told.iter().any(|command| {
            matches!(command, Command::Hold(_, Halted::Overrun { of: Overrun::Images, .. }))
        });
        assert_eq!(held, id == 3);
        let due = timer("sweep", id + 1, bench.now);
        bench.executor.timers.added(due.run_at);
        begun = again(&mut bench, &due);
    }
    assert_eq!(acts(&begun), [], "it rests");
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
            let read = timers_read(&commands).unwrap_or_else(|| panic!("{commands:?}"));
            let other = timer("expire", 600 + times, at(600));
            let both = if others { vec![due.clone(), other] } else { vec![due.clone()] };
            bench.now = bench.now + Duration::from_millis(1);
            let acting = acts(&bench.step(Event::TimersRead(read, Ok(both))));
            if let [(other, keys)] = acting.as_slice() {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let told = bench.step(Event::Acted(*other, acted(&keys)));
                let (_, batch) = commits(&told).remove(0);
                bench.step(for_ticket(all_committed(&batch), *other));
            }
            bench.now = bench.now + Duration::from_secs(10);
            ticket = acts(&again(&mut bench, &due))[0].0;
        }
    }
}
