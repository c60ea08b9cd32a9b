//! Previews, and plans that wait for an approval.

use super::*;

/// The tasks in a mode, otherwise as [`tasks`].
fn in_mode(names: &[&str], mode: Mode) -> BTreeMap<TaskName, Scheduled> {
    let mut all = tasks(names);
    for scheduled in all.values_mut() {
        scheduled.definition = Arc::new(TaskDefinition { mode, ..(*scheduled.definition).clone() });
    }
    all
}

/// A leader whose task `sweep` has begun run 7 in that mode, and what it asked for.
fn begun(mode: Mode) -> (Planner, Vec<Command>) {
    let mut planner = leading(&["sweep"]);
    planner.redefine(at(0), &in_mode(&["sweep"], mode));
    let decided = decisions(&plan(&mut planner, at(11))).remove(0);
    assert_eq!(decided.decision.runs[0].mode, mode);
    let out = step(&mut planner, at(11), Event::Decided(decided, Ok(vec![RunId(7)])));
    (planner, out)
}

fn examines(commands: &[Command]) -> Option<(bool, u64)> {
    commands.iter().find_map(|command| match command {
        Command::Examine { run: RunId(7), held, planned, .. } => Some((*held, *planned)),
        _ => None,
    })
}

fn ends(commands: &[Command]) -> bool {
    commands
        .iter()
        .any(|command| matches!(command, Command::EndScan { end, .. } if end.run == RunId(7)))
}

/// The run has planned so many items, and its scan has ended.
fn planned(planner: &mut Planner, items: u64) -> Vec<Command> {
    let planned = Planned { planned: items, ..Planned::default() };
    step(planner, at(12), Event::Planned(RunId(7), Ok((planned, false))))
}

/// A review that waits for a decision until `at(100)`.
fn open() -> Opened {
    Opened { until: at(100), nothing: None }
}

/// A leader whose run 7 waits for an approval until `at(100)`.
fn waiting() -> Planner {
    let (mut planner, _) = begun(Mode::Approve);
    assert_eq!(examines(&planned(&mut planner, 3)), Some((true, 3)));
    let out = step(&mut planner, at(13), Event::Examined(RunId(7), Ok(Some(open()))));
    assert_eq!(out, []);
    planner
}

fn lapses(commands: &[Command]) -> Option<String> {
    commands.iter().find_map(|command| match command {
        Command::Lapse(RunId(7), why) => Some(why.clone()),
        _ => None,
    })
}

#[test]
fn a_preview_is_examined_and_ends_without_a_scan() {
    let (mut planner, out) = begun(Mode::Preview);
    assert_eq!((examines(&out), scan_of(&out)), (Some((false, 0)), None));
    assert_eq!(planner.changed_pauses().unwrap_or_default(), BTreeSet::new());
    let out = step(&mut planner, at(12), Event::Examined(RunId(7), Ok(None)));
    assert!(ends(&out), "{out:?}");
}

/// The examination of a preview is its scan.
#[test]
fn a_preview_whose_scan_fails_ends_with_the_error() {
    let (mut planner, _) = begun(Mode::Preview);
    let broken = Err(ScanError::Failed("a row is too large".into()));
    let out = step(&mut planner, at(12), Event::Examined(RunId(7), broken));
    let error = out.iter().find_map(|command| match command {
        Command::EndScan { end, .. } => end.error.as_deref(),
        _ => None,
    });
    assert_eq!(error, Some("a row is too large"), "{out:?}");
    assert_eq!(examines(&plan(&mut planner, at(20))), None);
}

/// What a held run has planned waits all the same.
#[test]
fn a_held_run_that_cannot_be_examined_is_examined_again() {
    let (mut planner, _) = begun(Mode::Approve);
    planned(&mut planner, 3);
    let broken = Err(ScanError::Failed("the review is too large".into()));
    assert_eq!(step(&mut planner, at(13), Event::Examined(RunId(7), broken)), []);
    assert_eq!(examines(&plan(&mut planner, at(20))), Some((true, 3)));
}

#[test]
fn an_examination_that_is_interrupted_is_repeated() {
    let (mut planner, _) = begun(Mode::Preview);
    let away = Err(ScanError::Infrastructure("away".into()));
    assert_eq!(step(&mut planner, at(12), Event::Examined(RunId(7), away)), []);
    assert_eq!(examines(&plan(&mut planner, at(20))), Some((false, 0)));
}

#[test]
fn a_plan_waits_and_its_task_executes_nothing_until_it_is_approved() {
    let mut planner = waiting();
    assert_eq!(planner.changed_pauses(), Some(["sweep".into()].into()));
    assert!(!plan(&mut planner, at(50)).iter().any(|c| matches!(c, Command::Lapse(..))));
    let slot = decisions(&plan(&mut planner, at(60)));
    assert!(slot.iter().all(|decided| decided.decision.runs.is_empty()), "no other run begins");
    let approve = Asked::Approve { run: RunId(7) };
    step(&mut planner, at(61), Event::Commands(Ok(vec![asked(1, approve)])));
    let first = applying(&plan(&mut planner, at(61))).expect("it is applied");
    assert_eq!(first.effect, CommandEffect::Approve(RunId(7), Brakes::default()));
    let out = step(&mut planner, at(61), Event::Applied(first, Ok(Applied::default())));
    assert!(ends(&out), "{out:?}");
    assert_eq!(planner.changed_pauses(), Some(BTreeSet::new()));
}

/// Whoever approves has the limits of the file in mind, and not those of the time at which the run began.
#[test]
fn an_approved_run_is_judged_by_the_present_brakes() {
    let mut planner = waiting();
    let mut all = in_mode(&["sweep"], Mode::Approve);
    let scheduled = all.get_mut(&TaskName::from("sweep")).expect("a task");
    let old = &scheduled.definition;
    let raised = TaskDefinition { brakes: brakes_of_other(), ..(**old).clone() };
    scheduled.definition = Arc::new(raised);
    planner.redefine(at(13), &all);
    let effect = applies(&mut planner, at(14), Asked::Approve { run: RunId(7) });
    assert_eq!(effect, CommandEffect::Approve(RunId(7), brakes_of_other()));
}

#[test]
fn a_run_that_has_planned_nothing_needs_no_approval() {
    let (mut planner, _) = begun(Mode::Approve);
    let out = planned(&mut planner, 0);
    assert!(ends(&out) && examines(&out).is_none(), "{out:?}");
}

#[test]
fn what_is_not_approved_in_time_lapses() {
    let mut planner = waiting();
    assert_eq!(lapses(&plan(&mut planner, at(99))), None);
    let why = lapses(&plan(&mut planner, at(100))).expect("it lapses");
    assert!(why.contains("approve_within"), "{why}");
    assert_eq!(lapses(&plan(&mut planner, at(101))), None, "it is requested once");
    step(&mut planner, at(101), Event::Lapsed(RunId(7), Err(store::Error::Busy("b".into()))));
    assert!(lapses(&plan(&mut planner, at(110))).is_some(), "the request was not recorded");
    step(&mut planner, at(110), Event::Lapsed(RunId(7), Ok(())));
    let effect = applies(&mut planner, at(111), Asked::Lapse { run: RunId(7) });
    let CommandEffect::Reject { state, run: RunId(7), .. } = effect else { panic!("{effect:?}") };
    assert_eq!(state, State::Lapsed);
}

/// What is blocked by a plan that would change nothing would wait for nothing.
#[test]
fn a_plan_that_would_change_nothing_ends_by_itself() {
    for pass in [false, true] {
        let mut planner = Planner::new(Settings { pass, ..Settings::default() });
        let (mut notices, mut out) = (Vec::new(), Vec::new());
        let all = in_mode(&["sweep"], Mode::Approve);
        planner.lead(at(0), fence(), Loaded::default(), &all, &mut notices, &mut out);
        let ask = |planner: &mut Planner, now| {
            let mut out = Vec::new();
            planner.plan(now, true, &mut out);
            out
        };
        // A host only records the beginning of the schedule.
        for decided in decisions(&ask(&mut planner, at(0))) {
            assert_eq!(decided.decision.runs, []);
            step(&mut planner, at(0), Event::Decided(decided, Ok(Vec::new())));
        }
        step(&mut planner, at(0), Event::Commands(Ok(Vec::new())));
        let begin = if pass { at(0) } else { at(11) };
        let decided = decisions(&ask(&mut planner, begin)).remove(0);
        step(&mut planner, begin, Event::Decided(decided, Ok(vec![RunId(7)])));
        planned(&mut planner, 3);
        let opened = Opened { nothing: Some("nothing would be changed".into()), ..open() };
        step(&mut planner, at(13), Event::Examined(RunId(7), Ok(Some(opened))));
        assert!(!planner.pass_is_complete(), "what was planned is discarded first");
        let why = lapses(&ask(&mut planner, at(13))).expect("a request");
        assert_eq!(why, "nothing would be changed");
        step(&mut planner, at(13), Event::Lapsed(RunId(7), Ok(())));
        let approve = asked(1, Asked::Approve { run: RunId(7) });
        let lapse = asked(2, Asked::Lapse { run: RunId(7) });
        ask(&mut planner, at(13));
        step(&mut planner, at(13), Event::Commands(Ok(vec![approve, lapse])));
        let first = applying(&ask(&mut planner, at(13))).expect("it is applied");
        let CommandEffect::NotWaiting(RunId(7), why) = &first.effect else { panic!("{first:?}") };
        assert_eq!(why, "run 7 needs no approval: nothing would be changed");
        step(&mut planner, at(13), Event::Applied(first, Ok(Applied::default())));
        let second = applying(&ask(&mut planner, at(13))).expect("it is applied");
        let CommandEffect::Reject { state, error: None, .. } = second.effect else {
            panic!("{second:?}")
        };
        assert_eq!(state, State::Done);
        step(&mut planner, at(13), Event::Applied(second, Ok(Applied::default())));
        assert!(ask(&mut planner, at(13)).contains(&Command::Reread));
        step(&mut planner, at(13), Event::Reread(Ok(Loaded::default())));
        ask(&mut planner, at(13));
        step(&mut planner, at(13), Event::Commands(Ok(Vec::new())));
        let out = ask(&mut planner, at(13));
        let begun = decisions(&out).into_iter().flat_map(|decided| decided.decision.runs);
        assert_eq!(begun.count(), 0, "it is not planned again at once");
        assert_eq!(planner.pass_is_complete(), pass);
    }
}

/// Whoever approves late does not see that the plan lapses in the meantime.
#[test]
fn an_approval_counts_by_the_time_of_its_submission() {
    let approve = |submitted| {
        let mut planner = waiting();
        let row = CommandRow { at: submitted, ..asked(1, Asked::Approve { run: RunId(7) }) };
        step(&mut planner, at(120), Event::Commands(Ok(vec![row])));
        applying(&plan(&mut planner, at(120))).expect("it is applied").effect.clone()
    };
    assert_eq!(approve(at(99)), CommandEffect::Approve(RunId(7), Brakes::default()));
    let late = approve(at(100));
    let CommandEffect::NotWaiting(RunId(7), why) = late else { panic!("{late:?}") };
    assert!(why.contains("approve_within") && why.contains("came later"), "{why}");
}

#[test]
fn a_plan_lapses_with_what_it_was_made_by_and_cannot_be_approved() {
    type Change = fn(&mut TaskDefinition);
    let changes: [(&str, Change); 5] = [
        ("the plugin", |task| task.digest = "another".into()),
        ("the settings", |task| {
            task.settings =
                vec![besom_core::value::Field::new("n", besom_core::value::Value::Null)];
        }),
        ("the topics", |task| task.topics = vec!["t".into()]),
        ("the mapping", |task| task.mapping = "another".into()),
        ("the mode", |task| task.mode = Mode::Live),
    ];
    for (what, change) in changes {
        let mut planner = waiting();
        let mut all = in_mode(&["sweep"], Mode::Approve);
        let scheduled = all.get_mut(&TaskName::from("sweep")).expect("the task");
        let mut definition = (*scheduled.definition).clone();
        change(&mut definition);
        scheduled.definition = Arc::new(definition);
        planner.redefine(at(15), &all);
        let lapse = lapses(&plan(&mut planner, at(15))).unwrap_or_default();
        assert_eq!(lapse, format!("{what} of the task changed"));
        let effect = applies(&mut planner, at(15), Asked::Approve { run: RunId(7) });
        let CommandEffect::NotWaiting(RunId(7), why) = effect else { panic!("{what}: {effect:?}") };
        assert!(why.starts_with(&format!("{what} of the task changed")), "{why}");
    }
    // What does not matter for the plan does not let it lapse.
    let mut planner = waiting();
    let mut all = in_mode(&["sweep"], Mode::Approve);
    let scheduled = all.get_mut(&TaskName::from("sweep")).expect("the task");
    let retry = besom_core::queue::RetryPolicy { attempts_max: 9, ..scheduled.definition.retry };
    scheduled.definition = Arc::new(TaskDefinition { retry, ..(*scheduled.definition).clone() });
    planner.redefine(at(20), &all);
    assert_eq!(lapses(&plan(&mut planner, at(21))), None);
    planner.redefine(at(22), &BTreeMap::new());
    let why = lapses(&plan(&mut planner, at(23))).unwrap_or_default();
    assert_eq!(why, "the task is no longer configured");
}

#[test]
fn a_rejection_and_a_cancellation_discard_what_was_planned() {
    for command in [Asked::Reject { run: RunId(7) }, Asked::Cancel { run: RunId(7) }] {
        let mut planner = waiting();
        let effect = applies(&mut planner, at(15), command);
        let CommandEffect::Reject { state, .. } = effect else { panic!("{effect:?}") };
        assert_eq!(state, State::Rejected);
        assert!(plan(&mut planner, at(15)).contains(&Command::Reread));
    }
    let (mut planner, _) = begun(Mode::Approve);
    let effect = applies(&mut planner, at(12), Asked::Approve { run: RunId(7) });
    let CommandEffect::NotWaiting(RunId(7), why) = effect else { panic!("{effect:?}") };
    assert!(why.contains("still planning"), "{why}");
    let effect = applies(&mut planner, at(12), Asked::Cancel { run: RunId(7) });
    assert!(matches!(effect, CommandEffect::Reject { .. }), "{effect:?}");
    let (mut planner, _) = scanning();
    for command in [Asked::Approve { run: RunId(7) }, Asked::Reject { run: RunId(7) }] {
        let effect = applies(&mut planner, at(12), command);
        let CommandEffect::NotWaiting(RunId(7), why) = effect else { panic!("{effect:?}") };
        assert_eq!(why, "run 7 does not wait for an approval");
    }
}

/// The next leader continues where the last one was: a review that is open is not opened again.
#[test]
fn a_plan_waits_under_the_next_leader_too() {
    let new = {
        let mut planner = leading(&["sweep"]);
        planner.redefine(at(0), &in_mode(&["sweep"], Mode::Approve));
        decisions(&plan(&mut planner, at(11))).remove(0).decision.runs.remove(0)
    };
    let run = || Run { mode: Mode::Approve, held: true, planned: 3, ..run_of(7, &new) };
    let lead = |waiting| {
        let mut planner = Planner::new(Settings::default());
        let (mut notices, mut out) = (Vec::new(), Vec::new());
        let loaded = Loaded { runs: vec![run()], waiting, ..Loaded::default() };
        let all = in_mode(&["sweep"], Mode::Approve);
        planner.lead(at(30), fence(), loaded, &all, &mut notices, &mut out);
        (planner, out)
    };
    let (mut planner, out) = lead(vec![(RunId(7), open())]);
    assert_eq!((scan_of(&out), examines(&out)), (None, None));
    assert_eq!(planner.changed_pauses(), Some(["sweep".into()].into()));
    let effect = applies(&mut planner, at(31), Asked::Approve { run: RunId(7) });
    assert_eq!(effect, CommandEffect::Approve(RunId(7), Brakes::default()));
    // Without a review, the scan goes on, and the plan is examined at its end.
    let (mut planner, out) = lead(vec![]);
    assert!(scan_of(&out).is_some(), "{out:?}");
    assert_eq!(examines(&planned(&mut planner, 0)), Some((true, 3)));
}

/// A pass ends while a plan waits, and executes it once it is approved.
#[test]
fn a_pass_does_not_wait_for_an_approval() {
    let mut planner = Planner::new(Settings { pass: true, ..Settings::default() });
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let all = in_mode(&["sweep"], Mode::Approve);
    planner.lead(at(0), fence(), Loaded::default(), &all, &mut notices, &mut out);
    let idle = |planner: &mut Planner, now| {
        let mut out = Vec::new();
        planner.plan(now, true, &mut out);
        out
    };
    idle(&mut planner, at(0));
    step(&mut planner, at(0), Event::Commands(Ok(Vec::new())));
    let decided = decisions(&idle(&mut planner, at(0))).remove(0);
    step(&mut planner, at(0), Event::Decided(decided, Ok(vec![RunId(7)])));
    planned(&mut planner, 2);
    assert!(!planner.pass_is_complete());
    step(&mut planner, at(1), Event::Examined(RunId(7), Ok(Some(open()))));
    assert!(planner.pass_is_complete());
    assert_eq!(planner.changed_pauses(), Some(["sweep".into()].into()));
    assert_eq!(decisions(&idle(&mut planner, at(2))), [], "it does not plan again");
}

/// A second plan of the same rows would wait as well.
#[test]
fn a_pass_begins_no_run_of_a_task_whose_plan_waits() {
    let new = {
        let mut planner = leading(&["sweep"]);
        planner.redefine(at(0), &in_mode(&["sweep"], Mode::Approve));
        decisions(&plan(&mut planner, at(11))).remove(0).decision.runs.remove(0)
    };
    let begin = |commands: Vec<CommandRow>| {
        let mut planner = Planner::new(Settings { pass: true, ..Settings::default() });
        let (mut notices, mut out) = (Vec::new(), Vec::new());
        let run = Run { mode: Mode::Approve, held: true, planned: 3, ..run_of(7, &new) };
        let loaded =
            Loaded { runs: vec![run], waiting: vec![(RunId(7), open())], ..Loaded::default() };
        let all = in_mode(&["sweep"], Mode::Approve);
        planner.lead(at(30), fence(), loaded, &all, &mut notices, &mut out);
        planner.plan(at(30), true, &mut out);
        assert_eq!(decisions(&out), [], "a decision may be pending");
        step(&mut planner, at(30), Event::Commands(Ok(commands)));
        out.clear();
        planner.plan(at(30), true, &mut out);
        assert_eq!(decisions(&out), []);
        (planner, out)
    };
    let (planner, _) = begin(Vec::new());
    assert!(planner.pass_is_complete());
    let (planner, out) = begin(vec![asked(1, Asked::Approve { run: RunId(7) })]);
    let effect = applying(&out).expect("it is applied").effect.clone();
    assert_eq!(effect, CommandEffect::Approve(RunId(7), Brakes::default()));
    assert!(!planner.pass_is_complete());
}
