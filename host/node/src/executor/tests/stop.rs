//! A node that stops waits only so long for a commit.

use super::*;

/// A batch in its commit, and that it was asked to stop: not before the commit has had its time.
fn stopping() -> (Bench, Ticket, Batch) {
    let mut bench = Bench::new(&[definition("sweep", Lane::Normal)]);
    let (ticket, _) = acts(&bench.fed(&[], vec![timer("sweep", 5, at(500))], vec![]))[0].clone();
    let (_, batch) = commits(&bench.step(Event::Acted(ticket, acted(&["5"])))).remove(0);
    bench.now = bench.now + Duration::from_secs(60);
    bench.executor.drain(bench.now);
    assert_eq!(bench.fill(), []);
    bench.now = bench.executor.deadline().expect("the end of the wait");
    assert_eq!(bench.fill(), [Command::StopCommit(ticket)]);
    assert_eq!(bench.fill(), [], "it is asked once");
    (bench, ticket, batch)
}

fn unknown() -> store::Result<Committed> {
    Err(store::Error::Unknown("stopped".into()))
}

#[test]
fn a_commit_that_was_stopped_is_looked_up_and_not_sent_again() {
    let (mut bench, ticket, batch) = stopping();
    let commands = bench.step(Event::Committed(ticket, batch.id, unknown()));
    assert_eq!(commands, [Command::FindCommit(ticket, batch.id)]);
    let commands = bench.step(Event::Found(ticket, batch.id, Ok(None)));
    let abandoned = |command: &Command| matches!(command, Command::Abandon(_));
    assert!(commands.iter().all(abandoned), "{commands:?}");
    assert!(bench.executor.is_idle());
}

#[test]
fn a_commit_that_happened_before_it_was_stopped_counts() {
    let (mut bench, ticket, batch) = stopping();
    bench.step(Event::Committed(ticket, batch.id, unknown()));
    let (outcomes, at) = (vec![Outcome::Committed], batch.as_of);
    let found = Committed { outcomes, at, runs_ended: vec![], braked: Default::default() };
    let commands = bench.step(Event::Found(ticket, batch.id, Ok(Some(found))));
    assert!(matches!(commands.as_slice(), [Command::Report(Report { committed: 1, .. })]));
    assert!(bench.executor.is_idle());
}

/// Each of them could take as long again.
#[test]
fn what_the_store_could_not_take_is_given_back_after_the_wait() {
    let (mut bench, ticket, batch) = stopping();
    let busy = Err(store::Error::Busy("a lock".into()));
    let commands = bench.step(Event::Committed(ticket, batch.id, busy));
    assert_eq!(commands, [Command::Abandon(batch.id)]);
    assert!(bench.executor.is_idle());
}
