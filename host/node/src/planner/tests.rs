//! How the planner handles answers that are lost, rejected or from an older store.

mod reviews;

use besom_core::cron::Schedule;
use besom_core::ids::Term;
use besom_core::mode::Mode;

use super::*;
use crate::fixture;
use besom_ports::guests::Lane;
use besom_ports::store::{Command as Asked, Progress};

fn at(s: i64) -> Time {
    Time::from_secs(1_800_000_000 + s)
}

fn fence() -> FencingToken {
    FencingToken { term: Term(3), token_hash: [3; 32] }
}

fn tasks(names: &[&str]) -> BTreeMap<TaskName, Scheduled> {
    let scheduled = |name: &&str| {
        let definition = definition(name);
        let schedule = Some(Schedule::parse("@every 10s", "UTC").expect("a schedule"));
        (TaskName::from(*name), Scheduled { definition, schedule })
    };
    names.iter().map(scheduled).collect()
}

fn definition(name: &str) -> Arc<TaskDefinition> {
    let schedule = Some("@every 10s".into());
    Arc::new(TaskDefinition { schedule, ..fixture::definition(name, Lane::Normal) })
}

/// A planner that leads these tasks, none of which is due yet.
fn leading(names: &[&str]) -> Planner {
    let mut planner = Planner::new(Settings::default());
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let loaded = Loaded::default();
    planner.lead(at(0), fence(), loaded, &tasks(names), &mut notices, &mut out);
    // Each task is seen for the first time: only the beginning of its schedule is recorded.
    for decided in decisions(&plan(&mut planner, at(0))) {
        let runs = (1..=decided.decision.runs.len() as u64).map(RunId).collect();
        step(&mut planner, at(0), Event::Decided(decided, Ok(runs)));
    }
    step(&mut planner, at(0), Event::Commands(Ok(Vec::new())));
    planner
}

fn plan(planner: &mut Planner, now: Time) -> Vec<Command> {
    let mut out = Vec::new();
    planner.plan(now, false, &mut out);
    out
}

fn step(planner: &mut Planner, now: Time, event: Event) -> Vec<Command> {
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    planner.step(now, event, &mut notices, &mut out);
    out
}

fn decisions(commands: &[Command]) -> Vec<Decided> {
    let decided = |command: &Command| match command {
        Command::Decide(_, decided) => Some((**decided).clone()),
        _ => None,
    };
    commands.iter().filter_map(decided).collect()
}

fn run_of(id: u64, new: &NewRun) -> Run {
    Run {
        id: RunId(id),
        task: new.task.clone(),
        slot: new.slot,
        trigger: new.trigger.clone(),
        term: fence().term,
        digest: new.digest.clone(),
        definition: new.definition.clone(),
        started_at: new.slot,
        ended_at: None,
        scan_done: false,
        error: None,
        planned: 0,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 0,
        mode: Mode::Live,
        held: false,
    }
}

#[test]
fn a_decision_whose_answer_is_lost_is_read_again_and_its_run_is_led() {
    let mut planner = leading(&["sweep"]);
    let decided = decisions(&plan(&mut planner, at(11))).remove(0);
    let run = run_of(7, &decided.decision.runs[0]);
    let states = decided.decision.states.clone();
    step(&mut planner, at(11), Event::Decided(decided, Err(store::Error::Unknown("?".into()))));
    // Nothing is decided before the state of the store has been read.
    assert_eq!(plan(&mut planner, at(12)), [Command::Reread]);
    assert_eq!(plan(&mut planner, at(12)), []);
    let loaded = Loaded { states, runs: vec![run], ..Loaded::default() };
    let led = step(&mut planner, at(12), Event::Reread(Ok(loaded)));
    assert!(
        led.iter().any(|command| matches!(command, Command::Scan(scan) if scan.run == RunId(7))
            || matches!(command, Command::Tenants { run: RunId(7), .. })),
        "{led:?}"
    );
    assert_eq!(decisions(&plan(&mut planner, at(12))), [], "the slot has its run");
}

#[test]
fn what_the_store_refuses_of_one_task_does_not_hold_the_others() {
    let mut planner = leading(&["grind", "sweep"]);
    let decided = decisions(&plan(&mut planner, at(11)));
    assert_eq!(decided.len(), 2, "each in its own transaction");
    for decided in decided {
        let refused = decided.next[0].0 == TaskName::from("grind");
        let answer = match refused {
            true => Err(store::Error::Invalid("it has its run".into())),
            false => Ok(vec![RunId(8)]),
        };
        step(&mut planner, at(11), Event::Decided(decided, answer));
    }
    let active: Vec<RunId> = planner.active().map(|(run, _)| run.id).collect();
    assert_eq!(active, [RunId(8)]);
    assert_eq!(plan(&mut planner, at(11)), [Command::Reread]);
}

/// A leader whose clock was ahead has already run the slot; the store rejects it from this leader.
#[test]
fn a_slot_that_ran_before_does_not_hold_up_those_behind_it() {
    let mut planner = leading(&["sweep"]);
    let refused = || Err(store::Error::Invalid("sweep has a run for the slot".into()));
    let (mut now, mut last) = (11, None);
    while last.is_none() && now < 20 {
        for decided in decisions(&plan(&mut planner, at(now))) {
            if decided.decision.runs.is_empty() {
                last = Some(decided);
                break;
            }
            step(&mut planner, at(now), Event::Decided(decided, refused()));
            // The store knows no more than the planner does.
            plan(&mut planner, at(now));
            let states = vec![TaskState {
                schedule: "@every 10s".into(),
                last_slot: Some(at(0)),
                ..TaskState::initial("sweep".into())
            }];
            let loaded = Loaded { states, ..Loaded::default() };
            step(&mut planner, at(now), Event::Reread(Ok(loaded)));
        }
        now += 1;
    }
    let decided = last.expect("the slot is left");
    assert_eq!(decided.decision.slots, [], "what has become of it is written already");
    assert_eq!(decided.decision.states[0].last_slot, Some(at(10)));
    step(&mut planner, at(now), Event::Decided(decided, Ok(Vec::new())));
    let next = decisions(&plan(&mut planner, at(21))).remove(0);
    assert_eq!(next.decision.runs[0].slot, at(20));
}

#[test]
fn an_answer_to_an_earlier_decision_says_nothing_of_a_later_one() {
    let mut planner = leading(&["sweep"]);
    let first = decisions(&plan(&mut planner, at(10))).remove(0);
    let answer = |planner: &mut Planner, now, decided: &Decided, id| {
        let runs = decided.decision.runs.iter().map(|_| RunId(id)).collect();
        step(planner, at(now), Event::Decided(decided.clone(), Ok(runs)));
    };
    answer(&mut planner, 10, &first, 1);
    planner.ended(RunId(1), &mut Vec::new());
    let second = decisions(&plan(&mut planner, at(20))).remove(0);
    assert_eq!(second.decision.states[0].last_slot, Some(at(20)));
    // The answer arrives twice, while the second decision is on its way.
    answer(&mut planner, 20, &first, 1);
    assert_eq!(decisions(&plan(&mut planner, at(20))), []);
    answer(&mut planner, 20, &second, 2);
    answer(&mut planner, 20, &first, 1);
    planner.ended(RunId(2), &mut Vec::new());
    let third = decisions(&plan(&mut planner, at(30))).remove(0);
    assert_eq!(third.decision.runs[0].slot, at(30), "no slot is decided twice");
}

#[test]
fn a_run_that_the_store_does_not_have_is_dropped() {
    let mut planner = leading(&["sweep"]);
    let decided = decisions(&plan(&mut planner, at(11))).remove(0);
    step(&mut planner, at(11), Event::Decided(decided, Ok(vec![RunId(9)])));
    let unknown = Err(store::Error::Invalid("there is no run 9".into()));
    step(&mut planner, at(12), Event::ScanEnded(RunId(9), unknown));
    let commands = plan(&mut planner, at(13));
    assert!(commands.contains(&Command::Reread), "{commands:?}");
    step(&mut planner, at(13), Event::Reread(Ok(Loaded::default())));
    assert_eq!(planner.active().count(), 0);
}

#[test]
fn a_stranger_is_taken_up_when_it_is_seen_twice() {
    let mut planner = leading(&["sweep"]);
    let new =
        Scheduled::run(&tasks(&["sweep"])[&TaskName::from("sweep")], at(5), Trigger::Schedule);
    let runs = [run_of(5, &new)];
    planner.still_active(&runs, &mut Vec::new());
    assert_eq!(plan(&mut planner, at(6)).iter().filter(|c| **c == Command::Reread).count(), 0);
    planner.still_active(&runs, &mut Vec::new());
    assert_eq!(plan(&mut planner, at(6)), [Command::Reread]);
    step(
        &mut planner,
        at(6),
        Event::Reread(Ok(Loaded { runs: runs.to_vec(), ..Loaded::default() })),
    );
    assert_eq!(planner.active().map(|(run, _)| run.id).collect::<Vec<_>>(), [RunId(5)]);
}

#[test]
fn a_command_whose_answer_is_lost_is_sent_again_as_it_was_and_its_run_is_found() {
    let mut planner = leading(&["sweep"]);
    let row = CommandRow {
        id: 1,
        command: Asked::Trigger { task: "sweep".into() },
        by: "ops".into(),
        reason: "now".into(),
        at: at(1),
        applied_at: None,
        result: None,
        refused: false,
    };
    let apply = |commands: &[Command]| {
        commands.iter().find_map(|command| match command {
            Command::Apply(_, applying) => Some(applying.clone()),
            _ => None,
        })
    };
    step(&mut planner, at(1), Event::Commands(Ok(vec![row])));
    let first = apply(&plan(&mut planner, at(1))).expect("the command is applied");
    let CommandEffect::Slots(decision) = &first.effect else { panic!("{first:?}") };
    let run = run_of(4, &decision.runs[0]);
    let lost = Err(store::Error::Unknown("?".into()));
    step(&mut planner, at(1), Event::Applied(first.clone(), lost));
    assert_eq!(plan(&mut planner, at(2)), [Command::Reread]);
    let loaded = Loaded { runs: vec![run], ..Loaded::default() };
    step(&mut planner, at(2), Event::Reread(Ok(loaded)));
    assert_eq!(planner.active().count(), 1, "it is led, though nobody has answered");
    assert_eq!(apply(&plan(&mut planner, at(2))).as_ref(), Some(&first));
}

/// A pass leads, so it applies what was asked for while nobody led; what concerns other tasks or a
/// running host stays in the store, and does not keep the pass from ending.
#[test]
fn a_pass_applies_waiting_commands_before_its_first_round_and_leaves_those_for_a_host() {
    let mut planner = Planner::new(Settings { pass: true, ..Settings::default() });
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    planner.lead(at(0), fence(), Loaded::default(), &tasks(&["sweep"]), &mut notices, &mut out);
    let idle = |planner: &mut Planner, now| {
        let mut out = Vec::new();
        planner.plan(now, true, &mut out);
        out
    };
    assert_eq!(idle(&mut planner, at(0)), [Command::FetchCommands], "nothing is planned yet");
    let asked = [
        Asked::Pause { task: "other".into() },
        Asked::RetryDead(Default::default()),
        Asked::Cancel { run: RunId(7) },
    ];
    let rows = asked.into_iter().zip(1..).map(|(command, id)| CommandRow {
        id,
        command,
        by: "ops".into(),
        reason: String::new(),
        at: at(-1),
        applied_at: None,
        result: None,
        refused: false,
    });
    let rows: Vec<CommandRow> = rows.collect();
    step(&mut planner, at(0), Event::Commands(Ok(rows.clone())));
    let commands = idle(&mut planner, at(0));
    let [Command::Apply(_, applying)] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(applying.row.id, 2);
    assert!(!planner.pass_is_complete());
    step(&mut planner, at(0), Event::Applied(applying.clone(), Ok(Applied::default())));
    let decided = decisions(&idle(&mut planner, at(0)));
    assert_eq!(decided.len(), 1, "then its first round begins");
    step(&mut planner, at(0), Event::Decided(decided[0].clone(), Ok(vec![RunId(1)])));
    planner.ended(RunId(1), &mut Vec::new());
    assert!(planner.pass_is_complete());
    // The others are read again, and left again.
    let left: Vec<CommandRow> = rows.into_iter().filter(|row| row.id != 2).collect();
    assert_eq!(idle(&mut planner, at(1)), [Command::FetchCommands]);
    step(&mut planner, at(1), Event::Commands(Ok(left)));
    assert_eq!(idle(&mut planner, at(1)), []);
    assert!(planner.pass_is_complete());
}

/// A leader of one task that has read these commands.
fn leading_with(commands: Vec<CommandRow>) -> Planner {
    let mut planner = leading(&["sweep"]);
    step(&mut planner, at(1), Event::Commands(Ok(commands)));
    planner
}

fn asked(id: u64, command: Asked) -> CommandRow {
    CommandRow {
        id,
        command,
        by: "ops".into(),
        reason: String::new(),
        at: at(0),
        applied_at: None,
        result: None,
        refused: false,
    }
}

fn applying(commands: &[Command]) -> Option<Box<Applying>> {
    commands.iter().find_map(|command| match command {
        Command::Apply(_, applying) => Some(applying.clone()),
        _ => None,
    })
}

/// A restored database gives the number of a command that it has lost to another one.
#[test]
fn commands_that_were_read_before_the_state_was_read_again_are_not_applied() {
    let mut planner = leading(&["sweep"]);
    assert_eq!(plan(&mut planner, at(1)), [Command::FetchCommands]);
    planner.read_again(true);
    assert_eq!(plan(&mut planner, at(1)), [Command::Reread]);
    let pause = || vec![asked(1, Asked::Pause { task: "sweep".into() })];
    step(&mut planner, at(2), Event::Reread(Ok(Loaded::default())));
    step(&mut planner, at(2), Event::Commands(Ok(pause())));
    let out = plan(&mut planner, at(2));
    assert_eq!(applying(&out), None, "{out:?}");
    assert!(out.contains(&Command::FetchCommands), "{out:?}");
    step(&mut planner, at(2), Event::Commands(Ok(pause())));
    assert!(applying(&plan(&mut planner, at(2))).is_some());
}

/// The commands behind it keep their turn.
#[test]
fn a_command_with_progress_continues_before_the_next_one() {
    let mut planner = leading_with(vec![
        asked(1, Asked::RetryDead(Default::default())),
        asked(2, Asked::Pause { task: "sweep".into() }),
    ]);
    for _ in 0..3 {
        let first = applying(&plan(&mut planner, at(1))).expect("a step");
        assert_eq!(first.row.id, 1);
        let some = Applied { dead: 3, progress: Some(Progress::begin(9)), ..Applied::default() };
        let (mut notices, mut out) = (Vec::new(), Vec::new());
        planner.step(at(1), Event::Applied(first, Ok(some)), &mut notices, &mut out);
        assert_eq!(notices, [Notice::Revived], "the first letters are executed at once");
        assert!(!planner.has_applied_commands());
    }
    let last = applying(&plan(&mut planner, at(1))).expect("the last step");
    step(&mut planner, at(1), Event::Applied(last, Ok(Applied::default())));
    assert_eq!(applying(&plan(&mut planner, at(1))).expect("the next command").row.id, 2);
}

#[test]
fn a_command_that_keeps_failing_takes_fewer_letters_and_is_refused_with_the_reason() {
    let mut planner = leading_with(vec![asked(1, Asked::RetryDead(Default::default()))]);
    let mut now = at(1);
    let mut sizes = Vec::new();
    for _ in 0..Settings::default().command_attempts_max {
        now = now + HOLDS.max;
        let tried = applying(&plan(&mut planner, now)).expect("it is tried again");
        assert!(!tried.effect.is_refusal());
        sizes.push(tried.letters.get());
        let slow = store::Error::Busy("statement timeout".into());
        step(&mut planner, now, Event::Applied(tried, Err(slow)));
    }
    assert_eq!(sizes, [1_000, 500, 250, 125, 62, 31, 15, 7]);
    // A store that is away is waited for.
    for _ in 0..20 {
        now = now + HOLDS.max;
        let given_up = applying(&plan(&mut planner, now)).expect("it is refused");
        let words = "it failed 8 times in a row: the store is busy: statement timeout";
        assert_eq!(given_up.effect, CommandEffect::Refuse(words.into()));
        let away = store::Error::Unavailable("away".into());
        step(&mut planner, now, Event::Applied(given_up, Err(away)));
    }
    now = now + HOLDS.max;
    let given_up = applying(&plan(&mut planner, now)).expect("it is refused");
    step(&mut planner, now, Event::Applied(given_up, Ok(Applied::default())));
    assert!(applying(&plan(&mut planner, now)).is_none());
}

#[test]
fn only_failures_in_a_row_count_against_a_command() {
    let mut planner = leading_with(vec![asked(1, Asked::RetryDead(Default::default()))]);
    let mut now = at(1);
    for round in 0..40 {
        now = now + HOLDS.max;
        let tried = applying(&plan(&mut planner, now)).expect("it is tried again");
        assert!(!tried.effect.is_refusal(), "{round}");
        let answer = match round % 4 {
            3 => Ok(Applied { progress: Some(Progress::begin(9)), ..Applied::default() }),
            _ => Err(store::Error::Busy("deadlock".into())),
        };
        step(&mut planner, now, Event::Applied(tried, answer));
    }
}

fn pause_of(by: &str) -> Pause {
    Pause { by: by.into(), reason: "INC-7".into(), since: at(1) }
}

/// Lets the leader apply a command, and returns what it decided.
fn applies(planner: &mut Planner, now: Time, command: Asked) -> CommandEffect {
    step(planner, now, Event::Commands(Ok(vec![asked(1, command)])));
    let applying = applying(&plan(planner, now)).expect("it is applied");
    let effect = applying.effect.clone();
    step(planner, now, Event::Applied(applying, Ok(Applied::default())));
    effect
}

/// A leader whose task `sweep` scans in run 7, and the scan.
fn scanning() -> (Planner, Scan) {
    let mut planner = leading(&["sweep"]);
    let decided = decisions(&plan(&mut planner, at(11))).remove(0);
    let scans = step(&mut planner, at(11), Event::Decided(decided, Ok(vec![RunId(7)])));
    let scan = scan_of(&scans).expect("a scan");
    (planner, scan)
}

fn scan_of(commands: &[Command]) -> Option<Scan> {
    commands.iter().find_map(|command| match command {
        Command::Scan(scan) => Some(scan.clone()),
        _ => None,
    })
}

fn page() -> Event {
    Event::Planned(RunId(7), Ok((Planned::default(), true)))
}

#[test]
fn the_scan_of_a_paused_task_waits_and_goes_on_after_it() {
    let (mut planner, _) = scanning();
    let effect = applies(&mut planner, at(12), Asked::Pause { task: "sweep".into() });
    assert_eq!(effect, CommandEffect::Pause("sweep".into()));
    assert_eq!(planner.changed_pauses(), Some(["sweep".into()].into()));
    assert_eq!(planner.changed_pauses(), None);
    assert_eq!(scan_of(&step(&mut planner, at(12), page())), None, "no further page");
    assert_eq!(scan_of(&plan(&mut planner, at(30))), None);
    let resume = Asked::Resume { task: "sweep".into(), release: false };
    let effect = applies(&mut planner, at(31), resume);
    assert_eq!(effect, CommandEffect::Resume("sweep".into(), Default::default()));
    assert_eq!(planner.changed_pauses(), Some(BTreeSet::new()));
    assert!(scan_of(&plan(&mut planner, at(31))).is_some(), "the run goes on");
}

#[test]
fn a_cancelled_run_of_a_paused_task_ends_at_once() {
    let (mut planner, _) = scanning();
    applies(&mut planner, at(12), Asked::Pause { task: "sweep".into() });
    step(&mut planner, at(12), page());
    step(
        &mut planner,
        at(13),
        Event::Commands(Ok(vec![asked(2, Asked::Cancel { run: RunId(7) })])),
    );
    let cancel = applying(&plan(&mut planner, at(13))).expect("it is applied");
    let ended = step(&mut planner, at(13), Event::Applied(cancel, Ok(Applied::default())));
    assert!(
        ended.iter().any(|c| matches!(c, Command::EndScan { end, .. } if end.run == RunId(7))),
        "{ended:?}"
    );
}

#[test]
fn a_pause_of_all_tasks_is_the_pause_of_each_and_of_later_ones() {
    let mut planner = leading(&["grind", "sweep"]);
    let all = TaskName::from(TaskName::ALL);
    applies(&mut planner, at(1), Asked::Pause { task: all.clone() });
    let both = ["grind", "sweep"].map(TaskName::from);
    assert_eq!(planner.changed_pauses(), Some(both.into()));
    for decided in decisions(&plan(&mut planner, at(11))) {
        assert_eq!(decided.decision.runs, []);
        assert_eq!(decided.decision.slots[0].outcome, SlotOutcome::Paused);
        assert_eq!(decided.decision.states[0].paused, None, "it is not paused by itself");
    }
    planner.redefine(at(12), &tasks(&["grind", "new"]));
    let both = ["grind", "new"].map(TaskName::from);
    assert_eq!(planner.changed_pauses(), Some(both.into()));
    let trigger = applies(&mut planner, at(13), Asked::Trigger { task: "new".into() });
    assert!(trigger.is_refusal(), "{trigger:?}");
    let resume = Asked::Resume { task: "new".into(), release: false };
    let effect = applies(&mut planner, at(13), resume);
    let CommandEffect::Refuse(why) = effect else { panic!("{effect:?}") };
    assert!(why.contains("`besom resume --all`"), "{why}");
    applies(&mut planner, at(14), Asked::Pause { task: "new".into() });
    let resume = asked(99, Asked::Resume { task: "new".into(), release: false });
    step(&mut planner, at(15), Event::Commands(Ok(vec![resume])));
    let resumed = applying(&plan(&mut planner, at(15))).expect("it is applied");
    assert!(resumed.result.starts_with("resumed; all tasks are paused"), "{}", resumed.result);
    // Another leader finds it.
    let state = TaskState { paused: Some(pause_of("ana")), ..TaskState::initial(all) };
    let mut planner = Planner::new(Settings::default());
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let loaded = Loaded { states: vec![state], ..Loaded::default() };
    planner.lead(at(0), fence(), loaded, &tasks(&["sweep"]), &mut notices, &mut out);
    assert_eq!(planner.changed_pauses(), Some(["sweep".into()].into()));
}

#[test]
fn planned_items_are_discarded_only_of_a_task_that_stands_still() {
    let (mut planner, _) = scanning();
    let discard = || Asked::DiscardPlanned { task: "sweep".into() };
    let effect = applies(&mut planner, at(12), discard());
    let CommandEffect::Refuse(why) = effect else { panic!("{effect:?}") };
    assert!(why.contains("`besom task pause sweep --reason TEXT`"), "{why}");
    let trip = besom_core::brake::Trip::Failures { run: RunId(7), wanted: 3, allowed: 3 };
    applies(&mut planner, at(12), Asked::Brake { task: "sweep".into(), trip });
    let effect = applies(&mut planner, at(12), discard());
    assert!(matches!(effect, CommandEffect::DiscardPlanned(..)), "{effect:?}");
    // The runs that the store has ended with it are read.
    assert!(plan(&mut planner, at(12)).contains(&Command::Reread));
}

#[test]
fn a_run_is_cut_where_its_window_closes_and_goes_on_in_the_next() {
    // The test begins at 08:00.
    let opens = 60;
    let window = besom_core::window::Window::read("08:01-08:02", "UTC").expect("a window");
    let windows = besom_core::window::Windows::new(vec![window]);
    let mut all = tasks(&["sweep"]);
    let scheduled = all.get_mut(&TaskName::from("sweep")).expect("the task");
    scheduled.definition = Arc::new(TaskDefinition { windows, ..(*scheduled.definition).clone() });
    let mut planner = leading(&["sweep"]);
    planner.redefine(at(0), &all);
    let closed = decisions(&plan(&mut planner, at(11))).remove(0);
    let slot = &closed.decision.slots[0];
    assert_eq!((slot.outcome.clone(), closed.decision.runs.len()), (SlotOutcome::Paused, 0));
    assert!(slot.reason.starts_with("outside its windows: it opens at "), "{}", slot.reason);
    step(&mut planner, at(11), Event::Decided(closed, Ok(vec![])));
    let mut started = None;
    for second in opens..opens + 25 {
        for decided in decisions(&plan(&mut planner, at(second))) {
            let runs: Vec<RunId> = decided.decision.runs.iter().map(|_| RunId(7)).collect();
            let out = step(&mut planner, at(second), Event::Decided(decided, Ok(runs)));
            started = started.or(scan_of(&out));
        }
    }
    assert!(started.is_some(), "a slot in the window has a run");
    let cut = step(&mut planner, at(opens + 60), page());
    assert_eq!(scan_of(&cut), None, "the window has closed");
    assert_eq!(scan_of(&plan(&mut planner, at(opens + 600))), None);
    let day = 86_400;
    assert!(scan_of(&plan(&mut planner, at(opens + day))).is_some(), "the same run goes on");
}

/// A pass over `sweep`, whose pause is that one, that leaves `other` out.
fn passing(paused: Option<Pause>) -> Planner {
    let mut planner = Planner::new(Settings { pass: true, ..Settings::default() });
    planner.leave_out(&[("other".into(), brakes_of_other())].into());
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let state = |task: &str, paused| TaskState { paused, ..TaskState::initial(task.into()) };
    let states = vec![state("sweep", paused), state("other", Some(pause_of("brake")))];
    let loaded = Loaded { states, ..Loaded::default() };
    planner.lead(at(0), fence(), loaded, &tasks(&["sweep"]), &mut notices, &mut out);
    step(&mut planner, at(0), Event::Commands(Ok(vec![])));
    planner
}

fn brakes_of_other() -> Brakes {
    let deletes = Some(besom_core::brake::DeletesMax::Rows(7));
    Brakes { deletes, ..Brakes::default() }
}

#[test]
fn a_pass_applies_what_is_asked_of_a_task_that_it_leaves_out() {
    let task = || TaskName::from("other");
    let mut planner = passing(None);
    let effect = applies(&mut planner, at(1), Asked::Pause { task: task() });
    assert_eq!(effect, CommandEffect::Pause(task()), "in place of the brake");
    let effect = applies(&mut planner, at(1), Asked::Pause { task: task() });
    assert!(effect.is_refusal(), "{effect:?}");
    let effect = applies(&mut planner, at(1), Asked::Resume { task: task(), release: false });
    assert_eq!(effect, CommandEffect::Resume(task(), brakes_of_other()), "its limits stay");
    let effect = applies(&mut passing(None), at(1), Asked::DiscardPlanned { task: task() });
    assert!(matches!(effect, CommandEffect::DiscardPlanned(..)), "{effect:?}");
    // A run of it, or a task that the file does not have, is left to a host.
    for asked_of_host in [Asked::Trigger { task: task() }, Asked::Pause { task: "unknown".into() }]
    {
        let mut planner = passing(None);
        step(&mut planner, at(1), Event::Commands(Ok(vec![asked(1, asked_of_host)])));
        assert_eq!(applying(&plan(&mut planner, at(1))), None);
    }
}

/// Whoever has paused the task before: the pass does no more of it.
#[test]
fn a_brake_ends_the_pass_of_a_task_that_is_paused_already() {
    let trip = || besom_core::brake::Trip::Failures { run: RunId(7), wanted: 3, allowed: 3 };
    let brake = || Asked::Brake { task: "sweep".into(), trip: trip() };
    for (by, expected) in
        [("brake", CommandEffect::Pause("sweep".into())), ("ana", CommandEffect::Note)]
    {
        let mut planner = passing(Some(pause_of(by)));
        let mut out = Vec::new();
        planner.plan(at(0), true, &mut out);
        let decided = decisions(&out).remove(0);
        let scans = step(&mut planner, at(0), Event::Decided(decided, Ok(vec![RunId(7)])));
        assert!(scan_of(&scans).is_some(), "{by}: a paused task is included");
        assert!(!planner.pass_is_complete());
        assert_eq!(applies(&mut planner, at(1), brake()), expected, "{by}");
        assert_eq!(planner.changed_pauses(), Some(["sweep".into()].into()), "{by}");
        assert_eq!(scan_of(&step(&mut planner, at(1), page())), None, "{by}");
        assert!(planner.pass_is_complete(), "{by}");
        let effect = applies(&mut planner, at(1), brake());
        assert!(effect.is_refusal(), "{by}: once is enough: {effect:?}");
    }
    // A host leaves the pause as it is.
    let mut planner = leading(&["sweep"]);
    applies(&mut planner, at(1), Asked::Pause { task: "sweep".into() });
    assert!(applies(&mut planner, at(1), brake()).is_refusal());
}

#[test]
fn a_person_takes_over_the_pause_of_a_brake() {
    let mut planner = leading(&["sweep"]);
    let trip = besom_core::brake::Trip::Failures { run: RunId(7), wanted: 3, allowed: 3 };
    let row =
        CommandRow { by: "brake".into(), ..asked(1, Asked::Brake { task: "sweep".into(), trip }) };
    step(&mut planner, at(1), Event::Commands(Ok(vec![row])));
    let brake = applying(&plan(&mut planner, at(1))).expect("it is applied");
    step(&mut planner, at(1), Event::Applied(brake, Ok(Applied::default())));
    let pause = || Asked::Pause { task: "sweep".into() };
    step(&mut planner, at(2), Event::Commands(Ok(vec![asked(2, pause())])));
    let taken = applying(&plan(&mut planner, at(2))).expect("it is applied");
    assert_eq!(taken.effect, CommandEffect::Pause("sweep".into()));
    assert!(taken.result.starts_with("paused, in place of the brake"), "{}", taken.result);
    step(&mut planner, at(2), Event::Applied(taken, Ok(Applied::default())));
    assert!(applies(&mut planner, at(3), pause()).is_refusal(), "of a person there is one");
}
