//! Runs the task against the in-memory host.

use besom_sdk::testing::Fixture;
use besom_sdk::{Change, GuardFailed, Proposal};

use super::decide::{PENDING, RUNNING, STANDBY};
use super::*;

const NOW: Time = Time(1_750_000_000_000_000);

fn model() -> Fixture {
    let index = ("by_unsettled", &["unsettled", "workspace_id"][..]);
    Fixture::new(NOW).table(WORKSPACES, &["workspace_id"], &[index])
}

fn with(fixture: Fixture, id: &str, states: [&str; 3], archive: Option<&str>) -> Fixture {
    let [status, operation, desired_state] = states;
    let unsettled = i64::from(operation != NONE || status != desired_state);
    let row = [
        ("workspace_id", Value::from(id)),
        ("status", status.into()),
        ("operation", operation.into()),
        ("desired_state", desired_state.into()),
        ("archive_key", archive.map(str::to_owned).into()),
        ("version", 7i64.into()),
        ("unsettled", unsettled.into()),
    ];
    fixture.row(WORKSPACES, "t", row)
}

fn delivery() -> Delivery {
    let call = Call { operation_id: "op".into(), begun_us: NOW.0 - 1, failures: 0 };
    let at = Workspace {
        status: RUNNING.into(),
        operation: "STOPPING".into(),
        desired_state: STANDBY.into(),
        archive_key: None,
    };
    Delivery::pending(NOW, call::payload(Operation::Stop, &call, Some("t"), "w", &at))
}

fn verdict(fixture: &mut Fixture, id: &str) -> Verdict {
    fixture.act::<Reconciler>(&[("t", Candidate::new(id))]).unwrap().remove(0)
}

fn proposal(fixture: &mut Fixture, id: &str) -> Proposal {
    match verdict(fixture, id) {
        Verdict::Propose(proposal) => proposal,
        other => panic!("{other:?}"),
    }
}

/// Columns with what is written to them.
type Written = Vec<(String, Value)>;

/// Topics with the keys of what is emitted to them.
type Emitted = Vec<(String, String)>;

/// The columns that a proposal writes, and the topics that it emits to.
fn effects(proposal: &Proposal) -> (Written, Emitted) {
    let (mut written, mut emitted) = (Vec::new(), Vec::new());
    for change in &proposal.changes {
        match change {
            Change::Update(update) => {
                written.extend(update.fields.iter().map(|f| (f.name.clone(), f.value.clone())));
            }
            Change::Emit(message) => emitted.push((message.topic.clone(), message.key.clone())),
            other => panic!("{other:?}"),
        }
    }
    (written, emitted)
}

fn written(fields: &[(&str, Value)]) -> Written {
    fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

#[test]
fn a_step_begins_with_the_operation_and_the_call_in_one_commit() {
    let mut fixture = with(model(), "w", [RUNNING, NONE, STANDBY], None);
    let proposal = proposal(&mut fixture, "w");
    let as_read = Guard::row(WORKSPACES, vec!["w".into()])
        .equal("status", RUNNING)
        .equal("operation", NONE)
        .equal("desired_state", STANDBY)
        .equal("archive_key", Value::Null)
        .equal("version", 7i64);
    assert_eq!(proposal.guards, [as_read.into()]);
    assert!(matches!(proposal.on_guard_failed, GuardFailed::Retry(_)));
    let (fields, emitted) = effects(&proposal);
    assert_eq!(fields, written(&[("operation", "STOPPING".into())]));
    assert_eq!(emitted, [("workspace.stop".to_owned(), "w".to_owned())]);
}

#[test]
fn the_answer_ends_the_operation() {
    for (states, topic, body, status, archive) in [
        ([RUNNING, "STOPPING", STANDBY], "workspace.stop", "", STANDBY, None),
        ([STANDBY, "STARTING", STANDBY], "workspace.start", "", RUNNING, None),
        (
            [STANDBY, "ARCHIVING", PENDING],
            "workspace.archive",
            r#"{"archive_key":"s3://a"}"#,
            PENDING,
            Some("s3://a"),
        ),
        ([PENDING, "RESTORING", RUNNING], "workspace.restore", "", STANDBY, None),
    ] {
        let answered = delivery().answered(NOW, 200, body);
        let mut fixture =
            with(model(), "w", states, Some("old")).delivery("t", topic, "w", answered);
        let (fields, emitted) = effects(&proposal(&mut fixture, "w"));
        let expected = [
            ("status", Value::from(status)),
            ("operation", NONE.into()),
            ("archive_key", archive.map(str::to_owned).into()),
        ];
        assert_eq!(fields, written(&expected), "{topic}");
        assert!(emitted.is_empty());
    }
}

#[test]
fn a_refusal_is_tried_again_under_the_same_identity_and_its_reason_is_kept() {
    let refused = || {
        let ended = Time(NOW.0 - 60_000_000);
        let given_up = delivery().given_up(ended, "answered 409");
        let reply = besom_sdk::deliveries::Reply { status: 409, body: b"busy".into(), cut: false };
        Delivery { reply: Some(reply), ..given_up }
    };
    let at = |failures_max: i64| {
        with(model(), "w", [RUNNING, "STOPPING", STANDBY], None)
            .setting("failures_max", failures_max)
            .delivery("t", "workspace.stop", "w", refused())
    };
    let again = proposal(&mut at(2), "w");
    let [Change::Emit(message)] = &again.changes[..] else { panic!("{again:?}") };
    let said: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
    assert_eq!((&said["operation_id"], &said["failures"]), (&"op".into(), &1.into()));
    let failed = proposal(&mut at(1), "w");
    assert_eq!(effects(&failed).0, written(&[("operation", FAILED.into())]));
    let reason = failed.notes.iter().find(|note| note.name == "reason").unwrap();
    assert_eq!(reason.value, "answered 409: busy".into());
}

#[test]
fn the_scan_finds_what_is_to_be_done_and_leaves_what_only_waits() {
    let mut fixture = with(model(), "settled", [RUNNING, NONE, RUNNING], None);
    fixture = with(fixture, "sleep", [RUNNING, NONE, STANDBY], None);
    fixture = with(fixture, "on-its-way", [RUNNING, "STOPPING", STANDBY], None);
    fixture = fixture.delivery("t", "workspace.stop", "on-its-way", delivery());
    fixture = with(fixture, "stopped", [RUNNING, "STOPPING", STANDBY], None);
    fixture = fixture.delivery("t", "workspace.stop", "stopped", delivery().answered(NOW, 204, ""));
    fixture = with(fixture, "odd", ["LOST", NONE, RUNNING], None);
    let found = fixture.scan::<Reconciler>("t").unwrap();
    let mut keys: Vec<_> = found.iter().map(|candidate| &candidate.key[..]).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["sleep", "stopped"]);
}

#[test]
fn a_version_that_the_table_lacks_is_neither_read_nor_guarded_on() {
    let row = [
        ("workspace_id", Value::from("w")),
        ("status", RUNNING.into()),
        ("operation", NONE.into()),
        ("desired_state", STANDBY.into()),
        ("archive_key", Value::Null),
    ];
    let mut fixture = model().row(WORKSPACES, "t", row).unmapped(WORKSPACES, "version");
    let proposal = proposal(&mut fixture, "w");
    let [Guard::Columns(guard)] = &proposal.guards[..] else { panic!("{proposal:?}") };
    let guarded: Vec<&str> = guard.conditions.iter().map(|c| c.column.as_str()).collect();
    assert_eq!(guarded, DECIDING);
}

#[test]
fn every_skip_says_why() {
    for (states, expected) in [
        ([RUNNING, NONE, RUNNING], "already in its desired state"),
        ([RUNNING, "RESIZING", STANDBY], "its operation does not fit its status"),
    ] {
        let mut fixture = with(model(), "w", states, None);
        assert_eq!(verdict(&mut fixture, "w"), Verdict::skip(expected));
    }
    assert_eq!(verdict(&mut model(), "w"), Verdict::skip("the workspace is gone"));
}

#[test]
fn a_batch_costs_one_read_and_one_question_for_each_operation() {
    let names: Vec<String> = (0..40).map(|n| format!("w{n}")).collect();
    let mut fixture = names
        .iter()
        .fold(model(), |fixture, name| with(fixture, name, [RUNNING, "STOPPING", STANDBY], None));
    let items: Vec<_> = names.iter().map(|name| ("t", Candidate::new(name))).collect();
    let verdicts = fixture.act::<Reconciler>(&items).unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Propose(_))));
    assert_eq!(fixture.calls(), 2);
}
