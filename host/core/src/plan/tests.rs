use std::time::Duration;

use super::*;
use crate::cron::Schedule;
use crate::mode::Mode;

pub(super) const TERM: Leadership = Leadership { term: Term(1), since: Time::EPOCH };
pub(super) const POLICY: Policy = Policy {
    overlap: Overlap::Skip,
    catch_up: CatchUp::Skip,
    jitter: Duration::ZERO,
    grace: GRACE_DEFAULT,
};

pub(super) fn minutely() -> Schedule {
    Schedule::parse("* * * * *", "UTC").unwrap()
}

pub(super) fn secs(s: i64) -> Time {
    Time::from_secs(s)
}

/// Decided up to the minute `last`.
pub(super) fn state(last: i64) -> TaskState {
    TaskState {
        task: "sweep".into(),
        schedule: minutely().canonical().to_owned(),
        last_slot: Some(secs(last * 60)),
        paused: None,
        tenant_cursor: None,
        queued_slots: Vec::new(),
    }
}

fn queued(last: i64, slots: &[i64]) -> TaskState {
    TaskState { queued_slots: slots.iter().map(|m| secs(m * 60)).collect(), ..state(last) }
}

fn active() -> Vec<ActiveRun> {
    let (slot, started_at) = (secs(60), secs(61));
    vec![ActiveRun { run: RunId(12), slot, started_at, trigger: Trigger::Schedule, held: false }]
}

/// A decision in short: rows by minute, `start` and `queue` by minute.
fn short(decision: &Decision) -> String {
    let minute = |t: Time| t.micros() / 60_000_000;
    let mut words: Vec<String> = decision
        .slots
        .iter()
        .map(|row| {
            let outcome = format!("{:?}", row.outcome).to_lowercase();
            if row.count == 1 {
                format!("{outcome} {}", minute(row.from))
            } else {
                format!("{outcome} {}-{}({})", minute(row.from), minute(row.to), row.count)
            }
        })
        .collect();
    words.extend(decision.starts.iter().map(|start| format!("start {}", minute(start.slot))));
    words.extend(decision.state.queued_slots.iter().map(|slot| format!("queue {}", minute(*slot))));
    words.join(", ")
}

#[test]
fn a_slot_on_time_meets_the_overlap_policy() {
    use Overlap::{Allow, Queue, Skip};
    for (overlap, state, active, expected) in [
        (Skip, state(9), vec![], "ran 10, start 10"),
        (Skip, state(9), active(), "skipped 10"),
        (Queue, state(9), vec![], "ran 10, start 10"),
        (Queue, state(9), active(), "queued 10, queue 10"),
        (Queue, queued(9, &[5]), active(), "skipped 10, queue 5"),
        (Allow, state(9), active(), "ran 10, start 10"),
        // The run has ended: the waiting slot runs first, and the current slot finds that run
        // active.
        (Queue, queued(9, &[5]), vec![], "ran 5, queued 10, start 5, queue 10"),
        (Queue, queued(10, &[5]), vec![], "ran 5, start 5"),
        (Skip, queued(10, &[5, 6]), vec![], "ran 5, start 5, queue 6"),
        (Skip, queued(10, &[5, 6]), active(), "queue 5, queue 6"),
        (Allow, queued(10, &[5, 6]), vec![], "ran 5, ran 6, start 5, start 6"),
        // Nothing is due.
        (Skip, state(10), vec![], ""),
        (Skip, state(10), active(), ""),
    ] {
        let policy = Policy { overlap, ..POLICY };
        let decision = decide(secs(601), TERM, Some(&minutely()), &policy, &state, &active);
        assert_eq!(short(&decision), expected, "{overlap:?} {state:?} {active:?}");
        assert_eq!(decision.state.last_slot, Some(secs(600)));
        assert_eq!(decision.next, Some(secs(660)));
    }
}

#[test]
fn missed_slots_meet_the_catch_up_policy() {
    use CatchUp::{All, Coalesce, Skip};
    // Decided up to minute 4; the leader came at 10:20 and decides at 10:30.
    let since = secs(620);
    for (catch_up, overlap, active, expected) in [
        (Skip, Overlap::Skip, vec![], "missed 5-9(5), ran 10, start 10"),
        (Skip, Overlap::Skip, active(), "missed 5-9(5), skipped 10"),
        (Skip, Overlap::Queue, active(), "missed 5-9(5), queued 10, queue 10"),
        (Coalesce, Overlap::Skip, vec![], "coalesced 5-9(5), ran 10, start 10"),
        (Coalesce, Overlap::Skip, active(), "coalesced 5-9(5), queued 10, queue 10"),
        (Coalesce, Overlap::Allow, active(), "coalesced 5-9(5), ran 10, start 10"),
        (All(0), Overlap::Skip, vec![], "missed 5-9(5), ran 10, start 10"),
        (All(1), Overlap::Skip, vec![], "missed 5-9(5), ran 10, start 10"),
        (
            All(3),
            Overlap::Skip,
            vec![],
            "missed 5-7(3), ran 8, queued 9-10(2), start 8, queue 9, queue 10",
        ),
        (
            All(3),
            Overlap::Queue,
            active(),
            "missed 5-7(3), queued 8-10(3), queue 8, queue 9, queue 10",
        ),
        (
            All(3),
            Overlap::Allow,
            vec![],
            "missed 5-7(3), ran 8, ran 9, ran 10, start 8, start 9, start 10",
        ),
        (
            All(99),
            Overlap::Allow,
            vec![],
            "ran 5, ran 6, ran 7, ran 8, ran 9, ran 10, start 5, start 6, start 7, start 8, start 9, start 10",
        ),
    ] {
        let policy = Policy { overlap, catch_up, ..POLICY };
        let leadership = Leadership { term: Term(1), since };
        let decision =
            decide(secs(630), leadership, Some(&minutely()), &policy, &state(4), &active);
        assert_eq!(short(&decision), expected, "{catch_up:?} {overlap:?}");
        assert_eq!(decision.state.last_slot, Some(secs(600)));
    }
}

#[test]
fn a_slot_older_than_the_grace_is_missed() {
    let daily = Schedule::parse("0 3 * * *", "UTC").unwrap();
    let three = secs(86_400 + 3 * 3_600);
    let state = TaskState {
        schedule: daily.canonical().to_owned(),
        last_slot: Some(three - Duration::from_secs(86_400)),
        ..state(0)
    };
    for (late, leads_since, expected) in [
        // A new leader comes 14 s late.
        (14, 14, (SlotOutcome::Ran, "on time")),
        (60, 14, (SlotOutcome::Ran, "on time")),
        (
            61,
            60,
            (
                SlotOutcome::Missed,
                "no leader from 1970-01-01T03:00:00Z to 1970-01-02T03:01:00Z; catch_up = \"skip\"",
            ),
        ),
        // The leader itself was suspended.
        (
            61,
            -600,
            (
                SlotOutcome::Missed,
                "the leader decided late, at 1970-01-02T03:01:01Z; catch_up = \"skip\"",
            ),
        ),
    ] {
        let since = if leads_since < 0 {
            Time::EPOCH
        } else {
            three + Duration::from_secs(leads_since as u64)
        };
        let leadership = Leadership { term: Term(2), since };
        let now = three + Duration::from_secs(late);
        let decision = decide(now, leadership, Some(&daily), &POLICY, &state, &[]);
        let row = &decision.slots[0];
        assert_eq!((row.outcome.clone(), row.reason.as_str()), expected, "{late} s late");
        assert_eq!((decision.slots.len(), row.count, row.term), (1, 1, Term(2)));
    }
}

#[test]
fn a_leader_that_is_late_within_the_grace_makes_no_flood() {
    let policy = Policy { overlap: Overlap::Allow, grace: Duration::from_secs(600), ..POLICY };
    let decision = decide(secs(630), TERM, Some(&minutely()), &policy, &state(4), &[]);
    assert_eq!(short(&decision), "coalesced 5-9(5), ran 10, start 10");
    assert_eq!(
        decision.slots[0].reason,
        "decided late, together with the slot at 1970-01-01T00:10:00Z"
    );
}

#[test]
fn a_new_schedule_counts_from_now() {
    for schedule in ["", "0 0 0 * * * UTC"] {
        let old = TaskState { schedule: schedule.into(), ..queued(4, &[3]) };
        let decision = decide(secs(630), TERM, Some(&minutely()), &POLICY, &old, &[]);
        assert_eq!(short(&decision), "skipped 3");
        assert_eq!(
            decision.slots[0].reason,
            "1970-01-01T00:03:00Z was waiting: the schedule was changed"
        );
        assert_eq!(decision.state.schedule, minutely().canonical());
        assert_eq!(decision.state.last_slot, Some(secs(630)));
        assert_eq!(decision.next, Some(secs(660)));
    }
    let unknown = TaskState { last_slot: None, ..state(0) };
    let decision = decide(secs(630), TERM, Some(&minutely()), &POLICY, &unknown, &[]);
    assert_eq!((short(&decision).as_str(), decision.next), ("", Some(secs(660))));
    let removed = decide(secs(630), TERM, None, &POLICY, &state(4), &[]);
    assert_eq!((short(&removed).as_str(), removed.next, removed.changed), ("", None, true));
    let same = decide(secs(640), TERM, None, &POLICY, &removed.state, &[]);
    assert!(!same.changed);
}

#[test]
fn a_pause_is_explained_by_who_and_why() {
    let pause = Pause { by: "anna".into(), reason: "migration".into(), since: secs(450) };
    let paused = TaskState { paused: Some(pause), ..queued(4, &[3]) };
    let decision = decide(secs(630), TERM, Some(&minutely()), &POLICY, &paused, &[]);
    assert_eq!(short(&decision), "paused 3, missed 5-7(3), paused 8-10(3)");
    assert_eq!(decision.slots[2].reason, "paused by anna since 1970-01-01T00:07:30Z: migration");
    // The rows of a pause grow together.
    let later = decide(secs(661), TERM, Some(&minutely()), &POLICY, &decision.state, &[]);
    let mut row = decision.slots[2].clone();
    assert!(row.absorb(&later.slots[0]));
    assert_eq!((row.from, row.to, row.count), (secs(480), secs(660), 4));
}

#[test]
fn rows_grow_together_only_while_they_say_the_same() {
    let skipped = |now, active: &[ActiveRun]| {
        let state = state(now / 60 - 1);
        decide(secs(now), TERM, Some(&minutely()), &POLICY, &state, active).slots.remove(0)
    };
    let mut row = skipped(600, &active());
    assert_eq!(row.reason, "run 12 has been active since 1970-01-01T00:01:01Z");
    assert!(row.absorb(&skipped(660, &active())));
    assert_eq!((row.from, row.to, row.count), (secs(600), secs(660), 2));
    assert!(!row.absorb(&skipped(660, &active())), "the same slot again");
    let other = [ActiveRun { run: RunId(13), ..active().remove(0) }];
    assert!(!row.absorb(&skipped(720, &other)), "another run");
    let mut ran = skipped(600, &[]);
    assert_eq!(ran.outcome, SlotOutcome::Ran);
    assert!(!ran.absorb(&skipped(660, &[])), "each run has its row");
}

#[test]
fn a_row_is_written_once_and_extends_only_the_last_one_before_it() {
    let row = |from: i64, to: i64, outcome: SlotOutcome| SlotRecord {
        task: "sweep".into(),
        from: secs(from),
        to: secs(to),
        count: 1,
        outcome,
        reason: "so".into(),
        run: None,
        term: Term(1),
    };
    let skipped = |from, to| row(from, to, SlotOutcome::Skipped);
    let paused = |from, to| row(from, to, SlotOutcome::Paused);
    let longer = |from, to, count| SlotRecord { count, ..skipped(from, to) };
    let ran = |at| row(at, at, SlotOutcome::Ran);
    for (slot, history, placed) in [
        (skipped(60, 60), vec![], Placed::New(skipped(60, 60))),
        (skipped(60, 60), vec![skipped(30, 30)], Placed::Last(longer(30, 60, 2))),
        (skipped(60, 60), vec![skipped(60, 60)], Placed::Known),
        (skipped(60, 60), vec![skipped(30, 90)], Placed::Known),
        (skipped(60, 60), vec![paused(90, 90), skipped(30, 60)], Placed::Known),
        (skipped(60, 60), vec![paused(30, 30)], Placed::New(skipped(60, 60))),
        // It overlaps what is known, or lies before it: no row may cover a slot twice.
        (skipped(60, 90), vec![skipped(60, 60)], Placed::New(skipped(60, 90))),
        (skipped(30, 30), vec![skipped(60, 60)], Placed::New(skipped(30, 30))),
        (ran(60), vec![ran(30)], Placed::New(ran(60))),
        (ran(60), vec![ran(60)], Placed::Known),
    ] {
        assert_eq!(slot.clone().place(&history), placed, "{slot:?} after {history:?}");
    }
}

#[test]
fn a_slot_that_ran_names_the_run_that_its_decision_started() {
    let new = |slot| NewRun {
        task: "sweep".into(),
        slot: secs(slot),
        trigger: Trigger::Schedule,
        digest: String::new(),
        definition: String::new(),
        mode: Mode::Live,
    };
    let row = |at: i64, outcome, run| SlotRecord {
        task: "sweep".into(),
        from: secs(at),
        to: secs(at),
        count: 1,
        outcome,
        reason: String::new(),
        run,
        term: Term(1),
    };
    let slots = vec![
        row(60, SlotOutcome::Ran, None),
        row(60, SlotOutcome::Skipped, None),
        row(60, SlotOutcome::Ran, Some(RunId(3))),
        row(90, SlotOutcome::Ran, None),
    ];
    let decision = SlotDecision { slots, runs: vec![new(30), new(60)], ..SlotDecision::default() };
    let runs: Vec<_> =
        decision.rows(&[RunId(7), RunId(8)]).into_iter().map(|row| row.run).collect();
    assert_eq!(runs, [Some(RunId(8)), None, Some(RunId(3)), None]);
}

#[test]
fn a_resumed_schedule_counts_from_now_and_never_goes_back() {
    assert_eq!(last_slot_on_resume(None, secs(60)), secs(60));
    assert_eq!(last_slot_on_resume(Some(secs(30)), secs(60)), secs(60));
    assert_eq!(last_slot_on_resume(Some(secs(90)), secs(60)), secs(90));
}

#[test]
fn jitter_delays_the_start_and_keeps_the_slot() {
    let policy = Policy { jitter: Duration::from_secs(3_600), ..POLICY };
    let task = TaskName::from("sweep");
    let start = start_of(&task, &minutely(), &policy, secs(600));
    assert!(start > secs(600) && start < secs(660), "never beyond the next slot: {start}");
    let decide_at = |now| decide(now, TERM, Some(&minutely()), &policy, &state(9), &[]);
    let early = decide_at(Time(start.micros() - 1));
    assert_eq!((short(&early).as_str(), early.next), ("", Some(start)));
    let due = decide_at(start);
    assert_eq!(short(&due), "ran 10, start 10");
    assert_eq!(due.next, Some(start_of(&task, &minutely(), &policy, secs(660))));
    let starts: std::collections::BTreeSet<i64> = (0..100)
        .map(|m| {
            start_of(&task, &minutely(), &policy, secs(m * 60)).micros() % 60_000_000 / 6_000_000
        })
        .collect();
    assert_eq!(starts.len(), 10, "evenly spread: every tenth of the minute has some");
}

#[test]
fn a_clock_that_goes_back_runs_nothing_twice() {
    let decision = decide(secs(550), TERM, Some(&minutely()), &POLICY, &state(10), &[]);
    assert_eq!((short(&decision).as_str(), decision.next), ("", Some(secs(660))));
    assert_eq!(decision.set_back, None);
    // A watermark further ahead would stop the task.
    for ahead in [61, 3_600, 10 * 365 * 86_400] {
        let far = TaskState { last_slot: Some(secs(550 + ahead)), ..state(0) };
        let decision = decide(secs(550), TERM, Some(&minutely()), &POLICY, &far, &[]);
        assert_eq!((short(&decision).as_str(), decision.next), ("", Some(secs(600))));
        assert_eq!(decision.set_back, Some(Duration::from_secs(ahead.unsigned_abs())));
        assert_eq!((decision.changed, decision.state.last_slot), (true, Some(secs(550))));
    }
}

#[test]
fn a_year_of_seconds_is_decided_at_once() {
    let schedule = Schedule::parse("@every 1s", "UTC").unwrap();
    let year = secs(365 * 86_400);
    let state = TaskState { schedule: schedule.canonical().to_owned(), ..state(0) };
    let policy = Policy { catch_up: CatchUp::All(u32::MAX), ..POLICY };
    let leadership = Leadership { term: Term(1), since: year };
    let decision = decide(year, leadership, Some(&schedule), &policy, &state, &[]);
    assert_eq!(decision.slots[0].count, 365 * 86_400 - u64::from(CATCH_UP_RUNS_MAX));
    assert_eq!(decision.state.queued_slots.len(), CATCH_UP_RUNS_MAX as usize - 1);
}

#[test]
fn a_run_that_is_asked_for_meets_overlap_and_pause() {
    let manual = || Trigger::Manual { by: "anna".into(), reason: "disk is full".into() };
    let pause = Pause { by: "bo".into(), reason: "migration".into(), since: secs(1) };
    let paused = TaskState { paused: Some(pause), ..state(1) };
    let busy = "run 12 has been active since 1970-01-01T00:01:01Z";
    for (trigger, overlap, state, active, expected) in [
        (manual(), Overlap::Skip, state(1), vec![], Ok("triggered by anna: disk is full")),
        (
            manual(),
            Overlap::Skip,
            paused.clone(),
            vec![],
            Err("no: paused by bo since 1970-01-01T00:00:01Z: migration".into()),
        ),
        (Trigger::Pass, Overlap::Skip, paused.clone(), vec![], Ok("run by `besom run`")),
        (
            manual(),
            Overlap::Skip,
            state(1),
            active(),
            Err(format!("no: {busy}; overlap = \"skip\" allows one run at a time")),
        ),
        (
            manual(),
            Overlap::Skip,
            state(1),
            vec![ActiveRun { held: true, ..active().remove(0) }],
            Err(format!(
                "no: {busy}, and its plan needs a decision first: `besom review show 12`, then `besom review approve \
                 12` or `besom review reject 12 --reason TEXT`"
            )),
        ),
        (
            Trigger::Manual { by: "anna".into(), reason: String::new() },
            Overlap::Skip,
            state(1),
            vec![],
            Ok("triggered by anna"),
        ),
        (manual(), Overlap::Queue, state(1), active(), Err(format!("later: waiting: {busy}"))),
        (manual(), Overlap::Allow, state(1), active(), Ok("triggered by anna: disk is full")),
        (Trigger::Takeover, Overlap::Skip, state(1), vec![], Ok("run at the leader's start")),
        (
            Trigger::Takeover,
            Overlap::Skip,
            state(1),
            active(),
            Err(format!("later: waiting: {busy}")),
        ),
        (
            Trigger::Takeover,
            Overlap::Skip,
            paused,
            vec![],
            Err("no: paused by bo since 1970-01-01T00:00:01Z: migration".into()),
        ),
    ] {
        let policy = Policy { overlap, ..POLICY };
        let found = match admit(secs(90), Term(4), trigger.clone(), &policy, &state, &active) {
            Admission::Start { start, record } => {
                assert_eq!(start, Start { slot: secs(90), trigger });
                assert_eq!((record.from, record.count, record.term), (secs(90), 1, Term(4)));
                Ok(record.reason)
            }
            Admission::Wait(reason) => Err(format!("later: {reason}")),
            Admission::Refuse(reason) => Err(format!("no: {reason}")),
        };
        assert_eq!(found, expected.map(str::to_owned));
    }
}
