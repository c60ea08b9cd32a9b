//! What the host or the database refuses.

use besom_core::value::Field;

use super::*;

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
    let read = timers_read(&commands).unwrap_or_else(|| panic!("{commands:?}"));
    let both = vec![due.clone(), timer("expire", 6, at(600))];
    let commands = bench.step(Event::TimersRead(read, Ok(both)));
    let keys: Vec<_> = acts(&commands).into_iter().map(|(_, keys)| keys).collect();
    assert_eq!(keys, [vec!["6".to_owned()]]);
    // The timer is then read again, with no attempt used.
    bench.now = bench.now + Duration::from_secs(1);
    let commands = bench.fill();
    let read = timers_read(&commands).unwrap_or_else(|| panic!("{commands:?}"));
    let commands = bench.step(Event::TimersRead(read, Ok(vec![due.clone()])));
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
    assert_eq!(task.as_str(), "sweep");
    assert_eq!(*reason, Halted::Refused("there is no collection \"gone\"".into()));
    assert!(commits(rest).is_empty() && acts(rest).is_empty(), "{rest:?}");

    // The next try holds the task again; once the mapping is corrected, the same items commit.
    let retry = |bench: &mut Bench| {
        bench.now = bench.now + Duration::from_secs(10);
        let commands = bench.fill();
        let read = timers_read(&commands).expect("a read");
        bench.step(Event::TimersRead(read, Ok(timers.clone())))
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

/// The store would read and write the row for each change before it finds that out.
#[test]
fn an_item_that_changes_one_row_too_often_fails_alone_before_its_commit() {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let timers = (4..6).map(|id| timer("sweep", id, at(id as i64))).collect();
    let begun = bench.fed(&[], timers, vec![]);
    let often = |key: &str| {
        let Verdict::Propose(mut proposal) = delete(key) else { panic!("a proposal") };
        let id = Field { name: "id".into(), value: Value::Text(key.into()) };
        let upsert = Change::Upsert { collection: "things".into(), fields: vec![id] };
        proposal.changes = vec![upsert; 17];
        Verdict::Propose(proposal)
    };
    let answer = |key: &str| Ok(if key == "5" { delete(key) } else { often(key) });
    let (_, batch) = commits(&bench.step(answered(&begun, answer))).remove(0);
    let failed = |entry: &Entry| {
        matches!(&entry.decision, Decision::Settle(Settle::Retry { attempts: 1, reason, .. })
            if reason == "17 changes of one row: at most 16")
    };
    let failed: Vec<bool> = batch.entries.iter().map(failed).collect();
    assert_eq!(failed, [true, false]);
}
