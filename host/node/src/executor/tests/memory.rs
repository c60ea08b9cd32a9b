//! The memory of a lane's batches is bounded.

use besom_ports::guests::Limits;

use super::*;

const MIB: u64 = 1 << 20;

/// Tasks of that lane whose calls may use 100 MiB, and the memory known of each, in MiB. Four batches
/// are executed at once, and large ones begin below 128 MiB.
fn bench(lane: Lane, tasks: &[(&str, Option<u64>)]) -> Bench {
    let settings = Settings {
        due_ahead: Duration::ZERO,
        batches: PerLane::of(|_| 4),
        memory_in_flight: 128 * MIB,
        ..Settings::default()
    };
    let definitions: Vec<_> = tasks
        .iter()
        .map(|(name, _)| {
            let plain = fixture::definition(name, lane);
            let limits = Limits { memory_bytes: 100 * MIB, ..plain.limits.clone() };
            Arc::new(TaskDefinition { limits, ..plain })
        })
        .collect();
    let mut bench = Bench::with(settings, &definitions);
    for (name, known) in tasks {
        if let Some(mib) = known {
            bench.executor.memory.insert((*name).into(), mib * MIB);
        }
    }
    bench
}

/// Begins one batch of each task that may begin: its ticket and its task.
fn begun(bench: &mut Bench, names: &[&str]) -> Vec<(Ticket, String)> {
    let timers = (1..).zip(names).map(|(id, name)| timer(name, id, at(500))).collect();
    tasks(&bench.fed(&[], timers, vec![]))
}

fn tasks(commands: &[Command]) -> Vec<(Ticket, String)> {
    let task = |command: &Command| match command {
        Command::Act { ticket, definition, .. } => Some((*ticket, definition.name.to_string())),
        _ => None,
    };
    commands.iter().filter_map(task).collect()
}

fn names(begun: &[(Ticket, String)]) -> Vec<&str> {
    let mut names: Vec<_> = begun.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn tasks_whose_calls_use_much_take_turns_and_others_do_not_wait_for_them() {
    let known = [("a", Some(90)), ("b", Some(90)), ("c", Some(90)), ("small", Some(1))];
    for (lane, expected) in [
        (Lane::Due, &["a", "b", "small"][..]),
        (Lane::Normal, &["a", "b", "small"]),
        (Lane::Heavy, &["a", "b", "c", "small"]),
    ] {
        let mut bench = bench(lane, &known);
        let first = begun(&mut bench, &["a", "b", "c", "small"]);
        assert_eq!(names(&first), expected, "{lane:?}");
        if lane == Lane::Heavy {
            continue;
        }
        // The call has ended, and its changes are small.
        let key = if first[0].1 == "a" { "1" } else { "2" };
        let next = tasks(&bench.step(Event::Acted(first[0].0, acted(&[key]))));
        assert_eq!(names(&next), ["c"], "{lane:?}");
    }
}

#[test]
fn a_task_that_needs_more_than_the_bound_begins_beside_small_ones() {
    let mut bench = bench(Lane::Normal, &[("huge", Some(500)), ("small", Some(16))]);
    assert_eq!(names(&begun(&mut bench, &["huge", "small"])), ["huge", "small"]);
}

/// Two of them already may use more than the bound.
#[test]
fn a_task_of_which_nothing_is_known_takes_a_free_place_and_counts_as_all_that_it_may_use() {
    let mut bench = bench(Lane::Normal, &[("a", None), ("b", None), ("large", Some(20))]);
    assert_eq!(names(&begun(&mut bench, &["a", "b", "large"])), ["a", "b"]);
}

#[test]
fn what_a_task_uses_is_learned_from_its_calls() {
    let mut bench = bench(Lane::Normal, &[("a", None)]);
    let mut known = Vec::new();
    bench.fed(&[], vec![], vec![]);
    for (id, used) in (1..).zip([Some(40), Some(2), None, Some(2)]) {
        let due = timer("a", id, at(500));
        bench.executor.timers.added(due.run_at);
        let commands = again(&mut bench, &due);
        let (ticket, _) = tasks(&commands).remove(0);
        let result = match used {
            Some(mib) => Ok(Acted {
                usage: Usage { memory_bytes: mib * MIB, ..Usage::default() },
                ..acted(&[&id.to_string()]).expect("verdicts")
            }),
            None => Err(guests::Error::Guest(Fault::new("trap", "unreachable"))),
        };
        let (_, batch) = commits(&bench.step(Event::Acted(ticket, result))).remove(0);
        bench.step(for_ticket(all_committed(&batch), ticket));
        known.push(bench.executor.memory[&TaskName::from("a")] / MIB);
    }
    assert_eq!(known, [40, 20, 100, 50]);
}
