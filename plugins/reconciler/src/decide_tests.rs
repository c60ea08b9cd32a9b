use super::*;

const SEC: i64 = 1_000_000;
const NOW: i64 = 1_000_000 * SEC;
const BOUNDS: Bounds = Bounds {
    ask_every_us: 10 * SEC,
    operation_max_us: 3_600 * SEC,
    failures_max: 3,
    retry_after_us: 60 * SEC,
    failed_retry_us: 3_600 * SEC,
};

fn workspace(status: &str, operation: &str, desired: &str, archive: Option<&str>) -> Workspace {
    Workspace {
        status: status.into(),
        operation: operation.into(),
        desired_state: desired.into(),
        archive_key: archive.map(str::to_owned),
    }
}

fn call(failures: u32) -> Call {
    Call { operation_id: "id".into(), begun_us: NOW - 100 * SEC, failures }
}

fn answered(seconds_ago: i64, finished: bool, archive: Option<&str>) -> Sent {
    let at_us = NOW - seconds_ago * SEC;
    Sent::Answered { call: call(0), at_us, finished, archive_key: archive.map(str::to_owned) }
}

fn refused(seconds_ago: i64, failures: u32) -> Sent {
    Sent::Failed { call: call(failures), at_us: NOW - seconds_ago * SEC, reason: "no".into() }
}

#[track_caller]
fn check(workspace: &Workspace, sent: &Sent, expected: Decision) {
    assert_eq!(decide(workspace, sent, &BOUNDS, NOW), expected, "{workspace:?} {sent:?}");
}

#[test]
fn every_status_has_its_step_to_every_other() {
    let begin = Decision::Begin;
    for (status, desired, archive, expected) in [
        (RUNNING, RUNNING, None, Decision::Leave(Leave::Settled)),
        (RUNNING, STANDBY, None, begin(Operation::Stop)),
        (RUNNING, PENDING, None, begin(Operation::Stop)),
        (STANDBY, RUNNING, None, begin(Operation::Start)),
        (STANDBY, STANDBY, None, Decision::Leave(Leave::Settled)),
        (STANDBY, PENDING, None, begin(Operation::Archive)),
        (PENDING, PENDING, Some("a"), Decision::Leave(Leave::Settled)),
        (PENDING, STANDBY, Some("a"), begin(Operation::Restore)),
        (PENDING, RUNNING, Some("a"), begin(Operation::Restore)),
        (PENDING, STANDBY, None, begin(Operation::Provision)),
        (PENDING, RUNNING, None, begin(Operation::Provision)),
        (RUNNING, "DELETED", None, Decision::Leave(Leave::NoWay)),
        ("LOST", RUNNING, None, Decision::Leave(Leave::NoWay)),
    ] {
        check(&workspace(status, NONE, desired, archive), &Sent::Nothing, expected);
    }
}

#[test]
fn every_way_ends_where_it_is_to_be() {
    for status in [RUNNING, STANDBY, PENDING] {
        for desired in [RUNNING, STANDBY, PENDING] {
            let mut at = workspace(status, NONE, desired, (status == PENDING).then_some("a"));
            for _ in 0..3 {
                if let Some(operation) = at.next() {
                    assert_eq!(operation.from(), at.status);
                    at.status = operation.to().into();
                    at.archive_key = (operation == Operation::Archive).then(|| "b".into());
                }
            }
            assert_eq!(at.status, desired, "from {status}");
        }
    }
}

#[test]
fn an_operation_ends_with_its_answer_whatever_is_desired_by_then() {
    for desired in [RUNNING, STANDBY, PENDING] {
        for operation in Operation::ALL {
            let key = (operation == Operation::Archive).then(|| "new".to_owned());
            let before = operation.from() == PENDING;
            let finish = Decision::Finish { operation, call: call(0), archive_key: key };
            let at =
                workspace(operation.from(), operation.word(), desired, before.then_some("old"));
            check(&at, &answered(0, true, Some("new")), finish);
        }
    }
}

#[test]
fn what_is_on_its_way_is_waited_for() {
    let at = workspace(RUNNING, "STOPPING", STANDBY, None);
    check(&at, &Sent::UnderWay(call(0)), Decision::Leave(Leave::UnderWay));
    check(&at, &answered(9, false, None), Decision::Leave(Leave::GoingOn));
    check(&at, &answered(10, false, None), Decision::Again(Operation::Stop, call(0)));
    let slow = Call { begun_us: NOW - 3_600 * SEC, ..call(0) };
    let sent =
        Sent::Answered { call: slow.clone(), at_us: NOW, finished: false, archive_key: None };
    let reason = "not finished within operation_max".to_owned();
    check(&at, &sent, Decision::Fail(Operation::Stop, slow, reason));
}

#[test]
fn a_failure_is_tried_again_and_then_shown() {
    let at = workspace(STANDBY, "STARTING", RUNNING, None);
    let start = Operation::Start;
    check(&at, &refused(59, 0), Decision::Leave(Leave::Waiting));
    check(&at, &refused(60, 0), Decision::Again(start, call(1)));
    check(&at, &refused(60, 1), Decision::Again(start, call(2)));
    check(&at, &refused(0, 2), Decision::Fail(start, call(2), "no".into()));
    let archiving = workspace(STANDBY, "ARCHIVING", PENDING, None);
    check(&archiving, &answered(0, true, None), Decision::Leave(Leave::Waiting));
    check(&archiving, &answered(60, true, None), Decision::Again(Operation::Archive, call(1)));
}

#[test]
fn what_has_failed_waits_until_something_else_is_wanted_or_long_enough() {
    let failed = |status, desired| workspace(status, FAILED, desired, None);
    let begin = Decision::Begin;
    check(&failed(RUNNING, STANDBY), &refused(3_599, 2), Decision::Leave(Leave::Failed));
    check(&failed(RUNNING, STANDBY), &refused(3_600, 2), begin(Operation::Stop));
    check(&failed(RUNNING, STANDBY), &Sent::UnderWay(call(0)), Decision::Leave(Leave::Failed));
    check(&failed(RUNNING, RUNNING), &refused(0, 2), Decision::Clear);
    check(&failed(STANDBY, PENDING), &Sent::Nothing, begin(Operation::Archive));
}

#[test]
fn an_operation_that_is_not_ours_is_left_and_one_that_is_done_is_cleared() {
    for (status, operation, expected) in [
        (RUNNING, "RESIZING", Decision::Leave(Leave::OddOperation)),
        (RUNNING, "ARCHIVING", Decision::Leave(Leave::OddOperation)),
        (STANDBY, "STOPPING", Decision::Clear),
        (RUNNING, "STOPPING", Decision::Begin(Operation::Stop)),
    ] {
        check(&workspace(status, operation, STANDBY, None), &Sent::Nothing, expected);
    }
}

#[test]
fn pending_with_an_archive_is_shown_as_archived() {
    for (status, archive, shown) in [
        (PENDING, Some("a"), "ARCHIVED"),
        (PENDING, None, "PENDING"),
        (STANDBY, Some("a"), "STANDBY"),
    ] {
        assert_eq!(workspace(status, NONE, status, archive).shown(), shown);
    }
}

#[test]
fn a_word_is_one_operation_and_a_topic_another() {
    for operation in Operation::ALL {
        assert_eq!(Operation::of(operation.word()), Some(operation));
    }
    let mut topics = Operation::ALL.map(Operation::topic).to_vec();
    topics.dedup();
    assert_eq!(topics.len(), Operation::ALL.len());
    assert_eq!(Operation::of(NONE), None);
}
