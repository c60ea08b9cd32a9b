//! A run whose scan has ended is checked until it has ended itself.

use besom_core::collection::Operations;
use besom_core::ids::Term;
use besom_core::mode::Mode;
use besom_core::value::{Field, Value};

use super::*;
use crate::fixture;
use besom_ports::guests::Lane;

const BEGIN: Time = Time::from_secs(1_750_000_000);
const RUN: RunId = RunId(7);

fn definition() -> Arc<TaskDefinition> {
    Arc::new(fixture::definition("task", Lane::Normal))
}

/// A run whose scan has ended, and whose last item was taken without the planner noticing.
fn forgotten() -> Run {
    Run {
        id: RUN,
        task: "task".into(),
        slot: BEGIN,
        trigger: Trigger::Schedule,
        term: Term(1),
        digest: "d".into(),
        definition: String::new(),
        started_at: BEGIN,
        ended_at: None,
        scan_done: true,
        error: None,
        planned: 2,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 2,
        mode: Mode::Live,
        held: false,
    }
}

fn ends(out: &[Command]) -> usize {
    out.iter().filter(|c| matches!(c, Command::EndScan { end, .. } if end.run == RUN)).count()
}

#[test]
fn a_run_that_nobody_has_ended_is_ended_by_the_next_leader_or_in_a_while() {
    let mut planner = Planner::new(Settings::default());
    let tasks = BTreeMap::from([(
        TaskName::from("task"),
        Scheduled { definition: definition(), schedule: None },
    )]);
    let fence = FencingToken { term: Term(2), token_hash: [0; 32] };
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let loaded = Loaded { runs: vec![forgotten()], ..Loaded::default() };
    planner.lead(BEGIN, fence, loaded, &tasks, &mut notices, &mut out);
    planner.plan(BEGIN, false, &mut out);
    assert_eq!(ends(&out), 1, "{out:?}");

    // Its last items are under way: it is checked again later.
    let mut out = Vec::new();
    planner.step(BEGIN, Event::ScanEnded(RUN, Ok(false)), &mut notices, &mut out);
    planner.plan(BEGIN, false, &mut out);
    assert_eq!(ends(&out), 0, "{out:?}");
    let later = BEGIN + Planner::END_PAUSE;
    planner.plan(later, false, &mut out);
    assert_eq!(ends(&out), 1, "{out:?}");

    // The store is unavailable: the check is repeated.
    let away = store::Error::Unavailable("away".into());
    planner.step(later, Event::ScanEnded(RUN, Err(away)), &mut notices, &mut out);
    let mut out = Vec::new();
    planner.plan(later + HOLDS.max, false, &mut out);
    assert_eq!(ends(&out), 1, "{out:?}");

    planner.step(later, Event::ScanEnded(RUN, Ok(true)), &mut notices, &mut out);
    assert!(notices.iter().any(|n| matches!(n, Notice::Ended(RUN))), "{notices:?}");
    let mut out = Vec::new();
    planner.plan(later + 2 * Planner::END_PAUSE, false, &mut out);
    assert_eq!(ends(&out), 0, "{out:?}");
}

/// A tenant whose scan costs more than a call may take does not block the others: after several
/// attempts the scan continues with the next tenant, and the run records the error.
#[test]
fn a_scan_that_is_slow_each_time_is_passed_over() {
    let mut planner = Planner::new(Settings::default());
    let definition =
        TaskDefinition { per_tenant: true, tenants_per_run: 9, ..(*definition()).clone() };
    let scheduled = Scheduled { definition: Arc::new(definition), schedule: None };
    let tasks = BTreeMap::from([(TaskName::from("task"), scheduled)]);
    let fence = FencingToken { term: Term(2), token_hash: [0; 32] };
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let run = Run { scan_done: false, ..forgotten() };
    let loaded = Loaded { runs: vec![run], ..Loaded::default() };
    planner.lead(BEGIN, fence, loaded, &tasks, &mut notices, &mut out);
    let tenants = vec![Tenant::from("costly"), Tenant::from("plain")];
    planner.step(BEGIN, Event::Tenants(RUN, Ok(tenants)), &mut notices, &mut out);
    let scanned = |out: &[Command]| match out.last() {
        Some(Command::Scan(Scan { tenant: Some(tenant), .. })) => tenant.as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(scanned(&out), "costly");
    let mut now = BEGIN;
    for times in 1..=Planner::SLOW_MAX {
        let slow = ScanError::Refused(Cause::Slow, "the reads take all the time".into());
        let mut out = Vec::new();
        planner.step(now, Event::Planned(RUN, Err(slow)), &mut notices, &mut out);
        now = now + HOLDS.max;
        planner.plan(now, false, &mut out);
        let expected = if times < Planner::SLOW_MAX { "costly" } else { "plain" };
        assert_eq!(scanned(&out), expected, "after {times} times");
    }
    let mut out = Vec::new();
    let done = (Planned::default(), false);
    planner.step(now, Event::Planned(RUN, Ok(done)), &mut notices, &mut out);
    // No tenant is left: the run ends with the error.
    planner.step(now, Event::Tenants(RUN, Ok(vec![])), &mut notices, &mut out);
    let ended = out.iter().find_map(|command| match command {
        Command::EndScan { end, .. } => Some(end.error.clone()),
        _ => None,
    });
    let said = ended.expect("an end").expect("an error");
    assert_eq!(said, "tenant costly: the reads take all the time");
}

/// A page is sent twice, and only the second answer says that it was planned. The first one's repetition
/// came due while the task was paused and took the place of the next command, so that the run stayed active
/// forever (seed 317 of a cluster).
#[test]
fn a_page_that_was_planned_is_not_repeated_in_place_of_the_next_command() {
    let mut planner = Planner::new(Settings::default());
    let definition =
        TaskDefinition { per_tenant: true, tenants_per_run: 9, ..(*definition()).clone() };
    let scheduled = Scheduled { definition: Arc::new(definition), schedule: None };
    let task = TaskName::from("task");
    let tasks = BTreeMap::from([(task.clone(), scheduled)]);
    let fence = FencingToken { term: Term(2), token_hash: [0; 32] };
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let run = Run { scan_done: false, ..forgotten() };
    let mut state = TaskState::initial(task.clone());
    state.tenant_cursor = Some("before".into());
    let loaded = Loaded { states: vec![state], runs: vec![run], ..Loaded::default() };
    planner.lead(BEGIN, fence, loaded, &tasks, &mut notices, &mut out);
    let found = Ok(vec![Tenant::from("only")]);
    planner.step(BEGIN, Event::Tenants(RUN, found), &mut notices, &mut out);
    assert!(matches!(out.last(), Some(Command::Scan(_))), "{out:?}");

    let unknown = ScanError::Unknown("no answer".into());
    planner.step(BEGIN, Event::Planned(RUN, Err(unknown)), &mut notices, &mut out);
    let pause = Pause { by: "ana".into(), reason: "INC-7".into(), since: BEGIN };
    planner.note_pause(&task, Some(&pause));
    out.clear();
    let planned = (Planned::default(), false);
    planner.step(BEGIN, Event::Planned(RUN, Ok(planned)), &mut notices, &mut out);
    let later = BEGIN + HOLDS.max;
    planner.plan(later, false, &mut out);
    assert_eq!(ends(&out), 0, "{out:?}");
    planner.note_pause(&task, None);
    planner.plan(later, false, &mut out);
    // The cycle began in the middle: its first half is next.
    let asks = |c: &Command| matches!(c, Command::Tenants { run: RUN, after: None, .. });
    assert!(out.iter().any(asks), "{out:?}");
    out.clear();
    planner.step(later, Event::Tenants(RUN, Ok(vec![])), &mut notices, &mut out);
    assert_eq!(ends(&out), 1, "{out:?}");
}

#[test]
fn a_run_has_what_it_began_with_and_is_still_granted() {
    let all = Operations { read: true, insert: true, update: true, delete: true };
    let with = |operations, columns: &[&str], topics: &[&str], wide: bool, settings: i64| {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        TaskDefinition {
            grants: [("things".into(), operations)].into(),
            columns: [("things".into(), columns)].into(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            all_tenants: wide,
            activity: wide,
            settings: vec![Field::new("n", Value::Integer(settings))],
            ..fixture::definition("task", Lane::Normal)
        }
    };
    let began = with(all, &["id", "name"], &["told", "heard"], true, 1);
    let run = Run { definition: serde_json::to_string(&began).unwrap(), ..forgotten() };
    let less = Operations { delete: false, ..all };
    let current = Arc::new(with(less, &["id", "other"], &["heard", "more"], false, 2));
    let expected = with(less, &["id"], &["heard"], false, 1);
    assert_eq!(*definition_of(&run, &current), expected);
    // What is granted in addition is for later runs.
    let wider = Arc::new(with(all, &["id", "name", "other"], &["told", "heard", "more"], true, 2));
    assert_eq!(*definition_of(&run, &wider), began);
    // The component of another digest cannot be called any more.
    let replaced = Arc::new(TaskDefinition { digest: "new".into(), ..(*wider).clone() });
    assert_eq!(definition_of(&run, &replaced), replaced);
}

/// A restored database gives the number of a run that it has lost to another one.
#[test]
fn a_number_that_is_given_again_is_another_run() {
    let definition = |name: &str| Arc::new(fixture::definition(name, Lane::Normal));
    let scheduled = |name: &str| Scheduled { definition: definition(name), schedule: None };
    let tasks: BTreeMap<TaskName, Scheduled> =
        ["task", "other"].iter().map(|name| (TaskName::from(*name), scheduled(name))).collect();
    let fence = FencingToken { term: Term(2), token_hash: [0; 32] };
    let loaded = |task: &str| Loaded {
        runs: vec![Run { task: task.into(), scan_done: false, ..forgotten() }],
        ..Loaded::default()
    };
    let mut planner = Planner::new(Settings::default());
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    planner.lead(BEGIN, fence, loaded("task"), &tasks, &mut notices, &mut out);
    notices.clear();
    for again in [false, true] {
        out.clear();
        planner.read_again(false);
        planner.plan(BEGIN, false, &mut out);
        assert!(out.contains(&Command::Reread), "{out:?}");
        let read = Event::Reread(Ok(loaded("other")));
        planner.step(BEGIN, read, &mut notices, &mut out);
        let active: Vec<_> = planner.active().map(|(run, _)| run.task.clone()).collect();
        assert_eq!(active, [TaskName::from("other")]);
        let led = |c: &Notice| matches!(c, Notice::Started(RUN, d) if d.name.as_str() == "other");
        assert_eq!(notices.iter().filter(|notice| led(notice)).count(), 1, "{again}");
    }
    assert!(matches!(notices[..], [Notice::Ended(RUN), Notice::Started(..)]), "{notices:?}");
}

/// A planner whose run 7 scans.
fn scanning() -> Planner {
    let tasks = BTreeMap::from([(
        TaskName::from("task"),
        Scheduled { definition: definition(), schedule: None },
    )]);
    let fence = FencingToken { term: Term(2), token_hash: [0; 32] };
    let mut planner = Planner::new(Settings::default());
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    planner.lead(BEGIN, fence, stored(false), &tasks, &mut notices, &mut out);
    assert_eq!(scans(&out), 1, "{out:?}");
    planner
}

/// The stored state with that run.
fn stored(scan_done: bool) -> Loaded {
    Loaded { runs: vec![Run { scan_done, ..forgotten() }], ..Loaded::default() }
}

fn scans(out: &[Command]) -> usize {
    out.iter().filter(|c| matches!(c, Command::Scan(scan) if scan.run == RUN)).count()
}

/// The scans that begin as the state is read again; `meanwhile` happens before the answer.
fn scans_again(planner: &mut Planner, went_back: bool, meanwhile: Option<Event>) -> usize {
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    planner.read_again(went_back);
    planner.plan(BEGIN, false, &mut out);
    assert!(out.contains(&Command::Reread), "{out:?}");
    out.clear();
    if let Some(event) = meanwhile {
        planner.step(BEGIN, event, &mut notices, &mut out);
    }
    planner.step(BEGIN, Event::Reread(Ok(stored(false))), &mut notices, &mut out);
    scans(&out)
}

/// A restored database has forgotten that a scan has ended, and what it has planned.
#[test]
fn a_scan_whose_end_the_store_has_lost_begins_again() {
    for went_back in [false, true] {
        let mut planner = scanning();
        let (mut notices, mut out) = (Vec::new(), Vec::new());
        planner.step(BEGIN, Event::ScanEnded(RUN, Ok(false)), &mut notices, &mut out);
        assert_eq!(scans_again(&mut planner, went_back, None), 1, "{went_back}");
        assert_eq!(scans_again(&mut planner, false, None), 0, "it scans already");
    }
    let ends = Event::ScanEnded(RUN, Ok(false));
    let again = scans_again(&mut scanning(), true, Some(ends));
    assert_eq!(again, 0, "the store was read before the scan ended");
}

#[test]
fn a_scan_begins_again_if_the_store_went_back_meanwhile() {
    assert_eq!(scans_again(&mut scanning(), false, None), 0);
    assert_eq!(scans_again(&mut scanning(), true, None), 1);

    // The state could not be read: the scan begins again with the next answer.
    let mut planner = scanning();
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    planner.read_again(true);
    planner.plan(BEGIN, false, &mut out);
    let away = store::Error::Unavailable("away".into());
    planner.step(BEGIN, Event::Reread(Err(away)), &mut notices, &mut out);
    planner.plan(BEGIN + HOLDS.max, false, &mut out);
    out.clear();
    planner.step(BEGIN, Event::Reread(Ok(stored(false))), &mut notices, &mut out);
    assert_eq!(scans(&out), 1, "{out:?}");
}

/// A store that was restored, which no probe has noticed yet, refuses to end a scan whose pages it has lost.
#[test]
fn a_scan_whose_pages_the_store_has_lost_begins_again() {
    let mut planner = scanning();
    let (mut notices, mut out) = (Vec::new(), Vec::new());
    let page = Ok((Planned { planned: 3, ..Planned::default() }, false));
    planner.step(BEGIN, Event::Planned(RUN, page), &mut notices, &mut out);
    let ends = out.iter().find_map(|command| match command {
        Command::EndScan { end, .. } => Some(end.planned),
        _ => None,
    });
    assert_eq!(ends, Some(forgotten().planned + 3), "{out:?}");
    let lost = store::Error::Invalid("run 7 of task has planned 2 items, not 5".into());
    planner.step(BEGIN, Event::ScanEnded(RUN, Err(lost)), &mut notices, &mut out);
    out.clear();
    planner.plan(BEGIN + HOLDS.max, false, &mut out);
    assert!(out.contains(&Command::Reread), "{out:?}");
    out.clear();
    planner.step(BEGIN, Event::Reread(Ok(stored(false))), &mut notices, &mut out);
    assert_eq!(scans(&out), 1, "{out:?}");
}
