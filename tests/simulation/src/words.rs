//! Commands and events in the words of a trace: one line each, with everything by which a thing, a batch, a run or a
//! partition is searched for.

use std::fmt::Display;

use besom_core::delivery;
use besom_core::election::CampaignResult;
use besom_core::ids::{CommitId, OwnerEpoch, Partition};
use besom_core::item::{Item, Source};
use besom_core::plan::{SlotDecision, SlotOutcome};
use besom_core::proposal::{Settle, Verdict};
use besom_core::time::Time;
use besom_node::{Command, Event, Raise, executor, holdings, planner};
use besom_ports::store::{
    Allowance, Committed, Decision, EndOfScan, Entry, Outcome, PartitionRow, Result, Waiting,
};

use super::world::START;

/// What a node wants; `None`: nothing that the world would have to carry out.
pub(super) fn command(command: &Command) -> Option<String> {
    Some(match command {
        Command::Campaign { at_least: None } => "campaigns".to_owned(),
        Command::Campaign { at_least: Some(term) } => format!("campaigns above term {term}"),
        Command::Renew(fence) => format!("renews its lease of term {}", fence.term),
        Command::Resign(fence) => format!("resigns from term {}", fence.term),
        Command::Raise(fence) => format!("raises the fence to term {}", fence.term),
        Command::Load(fence) => format!("reads the state of the tasks for term {}", fence.term),
        Command::LookForBegun(_) => "looks for begun batches".to_owned(),
        Command::Bury(_, dead) => format!("counts the deaths of {}", list(dead)),
        Command::Executor(_, command) => return of_executor(command),
        Command::Holdings(command) => of_holdings(command),
        Command::Planner(term, command) => format!("{}, term {term}", of_planner(command)),
        Command::Probe(..) => "probes the store".to_owned(),
        Command::StoreWentBack { seen } => {
            format!("finds that the store went back, after term {seen}")
        }
        Command::TellOfStore(Some(away)) if away.aside => {
            "tells that it has no store, and steps aside".to_owned()
        }
        Command::TellOfStore(Some(_)) => "tells that it has no store".to_owned(),
        Command::TellOfStore(None) => "tells that it has the store again".to_owned(),
        Command::Prune(fence) => format!("prunes, term {}", fence.term),
        Command::StopGuests { .. } | Command::Finished => return None,
    })
}

fn of_executor(command: &executor::Command) -> Option<String> {
    use executor::Command;
    let of = |scope: &executor::Scope| match scope {
        None => String::new(),
        Some(partitions) => format!(" in partitions {}", list(partitions.iter())),
    };
    Some(match command {
        Command::Backlog(scope) => format!("reads the backlog{}", of(scope)),
        Command::ReadLog { task, streams, .. } => {
            let streams = streams.iter().map(|(at, acked)| format!("partition {at} after {acked}"));
            format!("reads the log of {task}: {}", list(streams))
        }
        Command::ReadTimers(_, tasks, scope) => {
            format!("reads the timers of {}{}", list(tasks.iter()), of(scope))
        }
        Command::ReadRetries(_, tasks, scope) => {
            format!("reads the retries of {}{}", list(tasks.iter()), of(scope))
        }
        Command::Act { commit, definition, items, .. } => {
            let items = items.iter().map(|(source, item)| place(*source, item));
            let (batch, digest) = (short(*commit), &definition.digest);
            format!("begins batch {batch} with {digest}: {}", list(items))
        }
        Command::Abandon(commit) => format!("abandons batch {}", short(*commit)),
        Command::TakeRows { definition, rows, .. } => {
            format!("takes {rows} rows for {}", definition.name)
        }
        Command::Commit(_, batch) => {
            let entries = batch.entries.iter().map(|entry| {
                let Entry { source, item, epoch, decision } = entry;
                let place = place(*source, item);
                format!("{place} epoch {epoch}: {}", of_decision(decision))
            });
            format!("commits batch {}: {}", short(batch.id), list(entries))
        }
        Command::StopCommit(_) => "stops waiting for a commit".to_owned(),
        Command::StopAct(_) => "stops an execution".to_owned(),
        Command::FindCommit(_, commit) => format!("looks up batch {}", short(*commit)),
        Command::Hold(task, why) => format!("holds {task}: {why:?}"),
        Command::Trip(task, runs) => {
            format!("requests a pause of {task}: a brake stops runs {}", list(runs.keys()))
        }
        Command::ReadClock | Command::Report(_) => return None,
    })
}

fn of_holdings(command: &holdings::Command) -> String {
    use holdings::Command;
    match command {
        Command::Join => "joins".to_owned(),
        Command::Keep => "renews its membership".to_owned(),
        Command::Leave => "leaves".to_owned(),
        Command::ReadTable => "reads the table of partitions".to_owned(),
        Command::Claim(at, claims) => {
            let claims = claims.iter().map(|c| format!("{} from epoch {}", c.partition, c.seen));
            let (claims, term, revision) = (list(claims), at.term, at.revision);
            format!("claims partitions {claims}, by term {term} and revision {revision}")
        }
        Command::LookForArrivals(_) => "looks for arrivals".to_owned(),
    }
}

fn of_planner(command: &planner::Command) -> String {
    use planner::Command;
    match command {
        Command::Decide(_, decided) => format!("decides {}", of_slots(&decided.decision)),
        Command::Tenants { run, definition, after, .. } => {
            let after = after.as_ref().map_or(String::new(), |after| format!(" after {after}"));
            format!("asks for tenants of run {run} of {}{after}", definition.name)
        }
        Command::Scan(scan) => {
            let task = &scan.definition.name;
            let tenant = scan.tenant.as_ref().map_or("all tenants", |tenant| tenant.as_str());
            format!("scans {tenant} for run {} of {task}", scan.run)
        }
        Command::EndScan { end: EndOfScan { run, error, .. }, .. } => {
            let error = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
            format!("ends the scan of run {run}{error}")
        }
        Command::Examine { run, .. } => format!("examines run {run}"),
        Command::Lapse(run, why) => format!("discards run {run}: {why}"),
        Command::FetchCommands => "reads the commands".to_owned(),
        Command::Apply(_, applying) => {
            format!("applies command {}: {:?}", applying.row.id, applying.row.command)
        }
        Command::Reread => "reads the state of the tasks again".to_owned(),
    }
}

fn of_slots(decision: &SlotDecision) -> String {
    let ran = decision.runs.iter().map(|run| format!("{} runs at {}", run.task, time(run.slot)));
    let others = decision.slots.iter().filter(|slot| slot.outcome != SlotOutcome::Ran);
    let others = others.map(|slot| {
        let outcome = slot.outcome.as_str();
        format!("{} {outcome} at {} ({} slots)", slot.task, time(slot.to), slot.count)
    });
    let all: Vec<String> = ran.chain(others).collect();
    if all.is_empty() { "nothing".to_owned() } else { list(all) }
}

fn of_decision(decision: &Decision) -> String {
    match decision {
        Decision::Apply { proposal, .. } => format!("{} changes", proposal.changes.len()),
        Decision::Settle(Settle::Skip { reason, .. }) => format!("skip ({reason})"),
        Decision::Settle(Settle::Retry { run_at, reason, .. }) => {
            format!("retry at {} ({reason})", time(*run_at))
        }
        Decision::Settle(Settle::Dead { reason, .. }) => format!("set aside ({reason})"),
    }
}

/// What a node learns; `None`: nothing.
pub(super) fn event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Tick => "the time".to_owned(),
        Event::LeaderChanged => "the leader may have changed".to_owned(),
        Event::Campaigned(_, CampaignResult::Won(fence)) => {
            format!("it has won term {}", fence.term)
        }
        Event::Campaigned(_, CampaignResult::Held(wait)) => {
            format!("the lease is held for {:.3} s", wait.as_secs_f64())
        }
        Event::Campaigned(_, CampaignResult::Failed) => "no answer to its campaign".to_owned(),
        Event::Renewed(_, answer) => of_renewal("lease", *answer),
        Event::Resigned => "it has resigned".to_owned(),
        Event::NotResigned(_) => "no answer to its resignation".to_owned(),
        Event::Raised(fence, Raise::Done(owned)) => {
            format!("the fence is at term {}, it owns partitions {}", fence.term, epochs(owned))
        }
        Event::Raised(_, Raise::Fenced(term)) => format!("the fence is at term {term} already"),
        Event::Raised(_, Raise::Failed) => "the fence could not be raised".to_owned(),
        Event::Loaded(_, loaded) | Event::Planner(_, planner::Event::Reread(loaded)) => {
            answered(loaded, |loaded| {
                let runs = loaded.runs.iter().map(|run| format!("{} ({})", run.id, run.task));
                format!("active runs: {}", list(runs))
            })
        }
        Event::Executor(_, event) => of_executor_event(event),
        Event::Holdings(event) => of_holdings_event(event),
        Event::Planner(_, event) => return of_planner_event(event),
        Event::Barred(bar, is_barred) => {
            let word = if *is_barred { "may not lead" } else { "may lead" };
            format!("it {word}, as far as its {bar:?} is concerned")
        }
        Event::Begun(_, begun) => answered(begun, |nodes| format!("begun by {}", list(nodes))),
        Event::Probed { answered: true, .. } => "the store answers".to_owned(),
        Event::Probed { .. } => "the store does not answer".to_owned(),
        Event::StoreWentBack => "the store went back".to_owned(),
        Event::ToldOfStore(_, told) => format!("the others know of its store: {told}"),
        Event::Pruned(more) => answered(more, |more| format!("pruned, and there is more: {more}")),
        Event::Nudged => "a command was submitted".to_owned(),
        Event::Reconfigured(_) => "the plugins were replaced".to_owned(),
        Event::Shutdown => "shut down".to_owned(),
    })
}

fn of_executor_event(event: &executor::Event) -> String {
    use executor::Event;
    match event {
        Event::Backlog(streams) => answered(streams, |streams| {
            let streams = streams.iter().map(|stream| {
                let (task, partition) = (&stream.task, stream.partition);
                format!("{task} in partition {partition} after {} to {}", stream.acked, stream.tail)
            });
            format!("backlog: {}", list(streams))
        }),
        Event::LogRead(_, read) => answered(read, |read| format!("log: {}", waiting(&read.items))),
        Event::TimersRead(_, read) => answered(read, |read| format!("timers: {}", waiting(read))),
        Event::RetriesRead(_, read) => answered(read, |read| format!("retries: {}", waiting(read))),
        Event::Acted(_, Ok(acted)) => {
            let verdicts = acted.verdicts.iter().map(|verdict| match verdict {
                Ok(Verdict::Propose(_)) => "propose".to_owned(),
                Ok(Verdict::Skip { reason, .. }) => format!("skip ({reason})"),
                Ok(Verdict::Retry { reason, .. }) => format!("retry ({reason})"),
                Ok(Verdict::Dead { reason }) => format!("set aside ({reason})"),
                Err(fault) => format!("failed ({})", fault.message),
            });
            format!("verdicts: {}", list(verdicts))
        }
        Event::Acted(_, Err(error)) => format!("the execution failed: {error}"),
        Event::RowsTaken(_, taken) => answered(taken, |taken| match taken {
            Allowance::Now => "the rows are granted".to_owned(),
            Allowance::NotBefore(at) => format!("no rows before {}", time(*at)),
        }),
        Event::Committed(_, id, result) => {
            format!("batch {}: {}", short(*id), answered(result, committed))
        }
        Event::Found(_, id, found) => {
            let said = answered(found, |found| match found {
                Some(done) => committed(done),
                None => "was not committed and never will be".to_owned(),
            });
            format!("batch {}: {said}", short(*id))
        }
    }
}

fn of_holdings_event(event: &holdings::Event) -> String {
    use holdings::Event;
    match event {
        Event::Joined(_, true) => "it has joined".to_owned(),
        Event::Joined(_, false) => "it has not joined".to_owned(),
        Event::Kept(_, answer) => of_renewal("membership", *answer),
        Event::Left => "it has left".to_owned(),
        Event::Members(term, seen) => {
            let members = seen.members.iter().map(|member| {
                let away = if member.store_away.is_some() { " (without the store)" } else { "" };
                format!("{}{away}", member.incarnation)
            });
            format!("members at revision {}, term {term}: {}", seen.revision, list(members))
        }
        Event::Table(table) => answered(table, |rows| format!("the table: {}", owners(rows))),
        Event::Claimed(claimed) => {
            answered(claimed, |won| format!("it has claimed partitions {}", epochs(won)))
        }
        Event::Arrived(arrived) => answered(arrived, |arrived| {
            let holdings::Arrived { arrivals, runs, paused } = arrived;
            let timer =
                arrivals.timer.map_or(String::new(), |at| format!(", timer at {}", time(at)));
            let retry =
                arrivals.retry.map_or(String::new(), |at| format!(", retry at {}", time(at)));
            let runs = list(runs.iter().map(|run| run.id));
            let (log, paused) = (arrivals.log, list(paused));
            format!("arrived: log {log}{timer}{retry}; active runs: {runs}; paused: {paused}")
        }),
    }
}

fn of_planner_event(event: &planner::Event) -> Option<String> {
    use planner::Event;
    let scanned = |run, said: std::result::Result<String, &planner::ScanError>| {
        format!("run {run}: {}", said.unwrap_or_else(|error| format!("{error:?}")))
    };
    Some(match event {
        Event::Decided(decided, started) => {
            let slots = of_slots(&decided.decision);
            answered(started, |runs| format!("started runs {}: {slots}", list(runs)))
        }
        Event::Tenants(run, tenants) => {
            let tenants = tenants.as_ref().map(|tenants| format!("tenants: {}", list(tenants)));
            scanned(*run, tenants)
        }
        Event::Planned(run, planned) => {
            let planned = planned.as_ref().map(|(planned, goes_on)| {
                let (new, known, blocked) =
                    (planned.planned, planned.deduplicated, planned.blocked);
                let rest = if *goes_on { ", and there is more" } else { "" };
                format!("{new} planned, {known} wait already, {blocked} blocked{rest}")
            });
            scanned(*run, planned)
        }
        Event::ScanEnded(run, ended) => {
            let said = answered(ended, |ended| format!("the scan has ended, the run: {ended}"));
            format!("run {run}: {said}")
        }
        Event::Commands(Ok(commands)) if commands.is_empty() => return None,
        Event::Commands(commands) => answered(commands, |rows| {
            let rows = rows.iter().map(|row| format!("{} ({})", row.id, row.command.verb()));
            format!("commands: {}", list(rows))
        }),
        Event::Applied(applying, applied) => {
            let row = &applying.row;
            let said = answered(applied, |applied| {
                let (runs, dead) = (list(&applied.runs), applied.dead);
                format!("applied; started runs: {runs}; {dead} items discarded or moved")
            });
            format!("command {} ({}): {said}", row.id, row.command.verb())
        }
        Event::Examined(run, examined) => {
            scanned(*run, examined.as_ref().map(|_| "examined".into()))
        }
        Event::Lapsed(run, lapsed) => {
            format!("run {run}: {}", answered(lapsed, |()| "lapsed".into()))
        }
        // As after a takeover.
        Event::Reread(_) => return None,
    })
}

fn of_renewal(what: &str, answer: Option<bool>) -> String {
    match answer {
        Some(true) => format!("its {what} is renewed"),
        Some(false) => format!("its {what} has ended"),
        None => format!("no answer about its {what}"),
    }
}

/// What delivery wants.
pub(super) fn delivery(command: &delivery::Command) -> String {
    match command {
        delivery::Command::Claim { ended, claim } => {
            let room = claim.room.iter().map(|(topic, limit)| format!("{limit} of {topic}"));
            let ended = ended.iter().map(|attempt| format!("{} {:?}", attempt.id, attempt.end));
            format!("claims messages: {}; notes attempts: {}", list(room), list(ended))
        }
        delivery::Command::Send(message) => {
            let (key, sequence, attempt) = (&message.key, message.sequence, message.attempt);
            let payload = String::from_utf8_lossy(&message.payload);
            format!("sends {payload}: number {sequence} of {key}, attempt {attempt}")
        }
    }
}

/// A time of the store's clock, in seconds since the world began.
pub(super) fn time(at: Time) -> String {
    format!("{:.3}", (at.0 - START.0) as f64 / 1e6)
}

/// The first digits of a commit.
fn short(commit: CommitId) -> String {
    let mut digits = commit.to_string();
    digits.truncate(8);
    digits
}

fn place(source: Source, item: &Item) -> String {
    let (key, partition, run) = (&item.identity.key, item.partition, item.run);
    let source = match source {
        Source::Log(seq) => format!("log {seq}"),
        Source::Timer(id) => format!("timer {id}"),
        Source::Retry(id) => format!("retry {id}"),
        Source::Unqueued(_) => "unqueued".to_owned(),
    };
    format!("{key} ({source} in partition {partition}, run {run})")
}

fn waiting(items: &[Waiting]) -> String {
    list(items.iter().map(|waiting| place(waiting.source, &waiting.item)))
}

fn committed(done: &Committed) -> String {
    let outcomes = done.outcomes.iter().map(|outcome| match outcome {
        Outcome::Committed => "committed".to_owned(),
        Outcome::Kept => "kept".to_owned(),
        Outcome::Skipped(reason) => format!("skipped ({reason})"),
        Outcome::Retried(at) => format!("retried at {}", time(*at)),
        Outcome::Dead(error) => format!("set aside ({error})"),
        Outcome::Left(why) => format!("left ({why:?})"),
    });
    format!("{} at {}", list(outcomes), time(done.at))
}

fn epochs(owned: &[(Partition, OwnerEpoch)]) -> String {
    list(owned.iter().map(|(partition, epoch)| format!("{partition} with epoch {epoch}")))
}

fn owners(rows: &[PartitionRow]) -> String {
    list(rows.iter().map(|row| {
        let owner = row.owner.as_ref().map_or("nobody", |owner| owner.as_str());
        format!("{} of {owner} with epoch {}", row.partition, row.epoch)
    }))
}

fn answered<T>(answer: &Result<T>, said: impl FnOnce(&T) -> String) -> String {
    match answer {
        Ok(answer) => said(answer),
        Err(error) => error.to_string(),
    }
}

fn list<T: Display>(parts: impl IntoIterator<Item = T>) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.to_string()).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}
