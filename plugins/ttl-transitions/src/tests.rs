//! Runs the task against the in-memory host.

use besom_sdk::testing::Fixture;
use besom_sdk::{Change, GuardFailed, Proposal};

use super::*;

const NOW: Time = Time(1_750_000_000_000_000);
const HOUR_US: i64 = 3_600_000_000;

fn model() -> Fixture {
    let index = ("by_status_operation", &["status", "operation", "last_access_at"][..]);
    Fixture::new(NOW).table("workspaces", &["workspace_id"], &[index])
}

fn with(fixture: Fixture, id: &str, states: [&str; 3], access_us: i64) -> Fixture {
    let [status, operation, desired_state] = states;
    let row = [
        ("workspace_id", Value::from(id)),
        ("status", status.into()),
        ("operation", operation.into()),
        ("desired_state", desired_state.into()),
        ("version", 7i64.into()),
        ("standby_ttl_seconds", Value::Null),
        ("archive_ttl_seconds", 3_600i64.into()),
        ("last_access_at", Time(access_us).into()),
        ("last_manual_change_at", Value::Null),
    ];
    fixture.row("workspaces", "t", row)
}

fn running(fixture: Fixture, id: &str) -> Fixture {
    with(fixture, id, [RUNNING, NONE, RUNNING], NOW.0)
}

fn standby(fixture: Fixture, id: &str, access_us: i64) -> Fixture {
    with(fixture, id, [STANDBY, NONE, STANDBY], access_us)
}

fn verdict(fixture: &mut Fixture, id: &str) -> Verdict {
    fixture.act::<TtlTransitions>(&[("t", Candidate::new(id))]).unwrap().remove(0)
}

fn proposal(fixture: &mut Fixture, id: &str) -> Proposal {
    match verdict(fixture, id) {
        Verdict::Propose(proposal) => proposal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_scan_leaves_out_what_is_in_use_fresh_busy_or_on_its_way() {
    let mut fixture = ["active", "waiting", "idle", "unknown"].into_iter().fold(model(), running);
    for (id, state) in
        [("active", State::Active), ("waiting", State::Waiting), ("idle", State::Idle)]
    {
        fixture = fixture.activity(id, state);
    }
    fixture = standby(fixture, "stale", NOW.0 - HOUR_US);
    fixture = standby(fixture, "fresh", NOW.0 - HOUR_US + 1);
    fixture = with(fixture, "busy", [STANDBY, "STARTING", STANDBY], 0);
    fixture = with(fixture, "waking", [STANDBY, NONE, RUNNING], 0);
    fixture =
        with(fixture, "leaving", [RUNNING, NONE, STANDBY], 0).activity("leaving", State::Idle);
    let found = fixture.scan::<TtlTransitions>("t").unwrap();
    let keys: Vec<_> = found.iter().map(|candidate| &candidate.key[..]).collect();
    assert_eq!(keys, ["idle", "unknown", "stale"]);
    assert_eq!(found[0].version, format!("RUNNING|{}|7|-", NOW.0));
}

#[test]
fn a_tenant_with_either_kind_is_visited_once() {
    let mut fixture = standby(running(model(), "a"), "b", 0);
    assert_eq!(fixture.tenants::<TtlTransitions>().unwrap(), ["t"]);
    assert!(model().tenants::<TtlTransitions>().unwrap().is_empty());
}

#[test]
fn standing_by_is_guarded_by_what_was_read_and_by_idleness() {
    let mut fixture = running(model(), "ws-1").activity("ws-1", State::Idle);
    let proposal = proposal(&mut fixture, "ws-1");
    let key = vec![Value::from("ws-1")];
    let as_read = Guard::row("workspaces", key.clone())
        .equal("status", RUNNING)
        .equal("operation", NONE)
        .equal("desired_state", RUNNING)
        .equal("last_access_at", NOW)
        .equal("version", 7i64)
        .equal("last_manual_change_at", Value::Null);
    assert_eq!(proposal.guards, [as_read.into(), Guard::Idle("ws-1".into())]);
    assert!(matches!(proposal.on_guard_failed, GuardFailed::Skip(_)));
    let [Change::Update(update)] = &proposal.changes[..] else { panic!("{proposal:?}") };
    assert_eq!(update.key, key);
    let written: Vec<_> = update.fields.iter().map(|f| (&f.name[..], &f.value)).collect();
    assert_eq!(written, [("desired_state", &Value::from(STANDBY))]);
}

#[test]
fn columns_that_the_table_lacks_are_neither_read_nor_guarded_on() {
    const ALWAYS: [&str; 4] = ["status", "operation", "desired_state", "last_access_at"];
    let access_us = NOW.0 - HOUR_US;
    for also in [&TOUCHED[..], &["version"], &["last_manual_change_at"], &[]] {
        let mut row = vec![
            ("workspace_id", Value::from("w")),
            ("status", STANDBY.into()),
            ("operation", NONE.into()),
            ("desired_state", STANDBY.into()),
            ("standby_ttl_seconds", Value::Null),
            ("archive_ttl_seconds", 3_600i64.into()),
            ("last_access_at", Time(access_us).into()),
        ];
        row.extend(also.iter().map(|column| (*column, Value::from(1i64))));
        let mut fixture = model().row("workspaces", "t", row);
        for column in TOUCHED.into_iter().filter(|column| !also.contains(column)) {
            fixture = fixture.unmapped("workspaces", column);
        }
        let found = fixture.scan::<TtlTransitions>("t").unwrap();
        let seen = [STANDBY.to_owned(), access_us.to_string()].into_iter();
        let seen: Vec<String> = seen.chain(also.iter().map(|_| "1".to_owned())).collect();
        assert_eq!(found[0].version, seen.join("|"));
        let proposal = proposal(&mut fixture, "w");
        let [Guard::Columns(guard)] = &proposal.guards[..] else { panic!("{proposal:?}") };
        let guarded: Vec<&str> = guard.conditions.iter().map(|c| c.column.as_str()).collect();
        assert_eq!(guarded, [&ALWAYS, also].concat());
    }
}

#[test]
fn archiving_needs_no_activity() {
    let mut fixture = standby(model(), "ws-1", NOW.0 - HOUR_US);
    let before = fixture.calls();
    let proposal = proposal(&mut fixture, "ws-1");
    assert_eq!(fixture.calls() - before, 1);
    assert_eq!(proposal.guards.len(), 1);
    let [Change::Update(update)] = &proposal.changes[..] else { panic!("{proposal:?}") };
    assert_eq!(update.fields[0].value, Value::from(PENDING));
}

#[test]
fn every_skip_says_why() {
    for (mut fixture, expected) in [
        (model(), "the workspace is gone"),
        (running(model(), "w"), "activity unknown: not observed for long enough"),
        (running(model(), "w").activity("w", State::Active), "in use: a client is connected"),
        (running(model(), "w").activity("w", State::Waiting), "the idle timer is running"),
        (standby(model(), "w", NOW.0), "the TTL has not passed since the last access"),
        (with(model(), "w", [RUNNING, "STOPPING", STANDBY], 0), "an operation is in progress"),
    ] {
        assert_eq!(verdict(&mut fixture, "w"), Verdict::skip(expected));
    }
}

#[test]
fn a_batch_costs_two_reads_per_tenant() {
    let names: Vec<String> = (0..40).map(|n| format!("w{n}")).collect();
    let mut fixture = names
        .iter()
        .fold(model(), |fixture, name| running(fixture, name).activity(name, State::Idle));
    let items: Vec<_> = names.iter().map(|name| ("t", Candidate::new(name))).collect();
    let verdicts = fixture.act::<TtlTransitions>(&items).unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Propose(_))));
    assert_eq!(fixture.calls(), 2);
}
