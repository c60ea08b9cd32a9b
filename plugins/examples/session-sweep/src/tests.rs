//! Runs the task against the in-memory host, without WebAssembly or a database.

use besom_sdk::Change;
use besom_sdk::testing::Fixture;

use super::*;

const NOW: Time = Time(1_750_000_000_000_000);

fn sessions(rows: &[(&str, Option<i64>)]) -> Fixture {
    let fixture = Fixture::new(NOW)
        .table("sessions", &["session_id"], &[("by_expiry", &["expires_at"])])
        .setting("keep", 60_000i64);
    rows.iter().fold(fixture, |fixture, (id, expires)| {
        let row = [("session_id", Value::from(*id)), ("expires_at", expires.map(Time).into())];
        fixture.row("sessions", "", row)
    })
}

const OLD: i64 = NOW.0 - 60_000_000;

#[test]
fn only_what_expired_long_enough_ago_is_planned() {
    let rows = [("a", Some(OLD - 1)), ("b", Some(OLD)), ("c", Some(OLD + 1)), ("forever", None)];
    let found = sessions(&rows).scan::<SessionSweep>("").unwrap();
    let keys: Vec<_> = found.iter().map(|candidate| &candidate.key[..]).collect();
    assert_eq!(keys, ["a", "b"]);
}

#[test]
fn a_session_is_deleted_only_as_it_was_read() {
    let mut fixture = sessions(&[("a", Some(OLD))]);
    let verdicts = fixture.act::<SessionSweep>(&[("", Candidate::new("a"))]).unwrap();
    let [Verdict::Propose(proposal)] = &verdicts[..] else { panic!("{verdicts:?}") };
    let key = vec![Value::from("a")];
    let guard = Guard::row("sessions", key.clone()).equal("expires_at", Time(OLD));
    assert_eq!(proposal.guards, [guard.into()]);
    assert!(matches!(&proposal.changes[..], [Change::Delete(row)] if row.key == key));
}

#[test]
fn extended_and_deleted_sessions_are_left_and_their_neighbours_go_on() {
    let mut fixture = sessions(&[("a", Some(OLD)), ("b", Some(NOW.0)), ("c", None)]);
    let items = ["a", "b", "c", "d"].map(|id| ("", Candidate::new(id)));
    let verdicts = fixture.act::<SessionSweep>(&items).unwrap();
    assert!(matches!(verdicts[0], Verdict::Propose(_)));
    let skips = ["extended", "no longer expires", "already deleted"].map(Verdict::skip);
    assert_eq!(verdicts[1..], skips);
    assert_eq!(fixture.calls(), 1);
}

#[test]
fn the_guide_shows_this_very_source() {
    let guide = include_str!("../../../../docs/writing-a-task.md");
    assert!(guide.contains(include_str!("lib.rs")), "copy src/lib.rs into docs/writing-a-task.md");
}
