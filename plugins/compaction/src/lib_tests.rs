use besom_sdk::testing::Fixture;
use besom_sdk::{Change, GuardFailed};
use yrs::{Doc, Options, Text, Transact};

use super::*;

/// Updates of one author who types "abc", a letter each.
fn typed() -> Vec<Vec<u8>> {
    let doc = Doc::with_options(Options::with_client_id(yrs::ClientID::new(7)));
    let text = doc.get_or_insert_text("t");
    ["a", "b", "c"]
        .iter()
        .map(|letter| {
            let mut txn = doc.transact_mut();
            let end = text.len(&txn);
            text.insert(&mut txn, end, letter);
            txn.commit();
            txn.encode_update_v1()
        })
        .collect()
}

fn host() -> Fixture {
    Fixture::new(Time(5_000_000))
        .setting("min_changes", 3i64)
        .table("documents", &["doc_id"], &[("by_pending", &["pending"])])
        .table("changes", &["doc_id", "server_seq"], &[])
        .table("snapshots", &["doc_id", "server_seq"], &[])
        .table(
            "attachments",
            &["doc_id", "client_id"],
            &[("by_document", &["doc_id", "client_id"])],
        )
}

fn with_document(host: Fixture, server_seq: i64, compacted_seq: i64) -> Fixture {
    let row = [
        ("doc_id", "d".into()),
        ("format", "yjs".into()),
        ("server_seq", server_seq.into()),
        ("compacted_seq", compacted_seq.into()),
        ("pending", (server_seq - compacted_seq).into()),
        ("epoch", 0i64.into()),
    ];
    host.row("documents", "t1", row)
}

fn with_change(host: Fixture, server_seq: i64, kind: &str, payload: &[u8]) -> Fixture {
    with_checked_change(host, server_seq, kind, payload, Value::Null)
}

fn with_checked_change(
    host: Fixture,
    server_seq: i64,
    kind: &str,
    payload: &[u8],
    checksum: Value,
) -> Fixture {
    let row = [
        ("doc_id", "d".into()),
        ("server_seq", server_seq.into()),
        ("lamport", (server_seq + 100).into()),
        ("kind", kind.into()),
        ("payload", payload.to_vec().into()),
        ("checksum", checksum),
    ];
    host.row("changes", "t1", row)
}

/// Edits at 1, 2 and 4, presence at 3 and 5.
fn three_edits() -> Fixture {
    let typed = typed();
    let mut host = with_document(host(), 5, 0);
    for (server_seq, payload) in [1, 2, 4].into_iter().zip(&typed) {
        host = with_change(host, server_seq, "edit", payload);
    }
    for server_seq in [3, 5] {
        host = with_change(host, server_seq, "presence", b"");
    }
    host
}

fn attached(host: Fixture, client: &str, state: &str, checkpoint: i64) -> Fixture {
    let row = [
        ("doc_id", "d".into()),
        ("client_id", client.into()),
        ("state", state.into()),
        ("server_seq", checkpoint.into()),
    ];
    host.row("attachments", "t1", row)
}

fn verdict(host: &mut Fixture) -> Verdict {
    let candidates = host.scan::<Compaction>("t1").unwrap();
    let candidate = candidates.into_iter().next().expect("the document is a candidate");
    host.act::<Compaction>(&[("t1", candidate)]).unwrap().remove(0)
}

fn proposal(host: &mut Fixture) -> Proposal {
    match verdict(host) {
        Verdict::Propose(proposal) => proposal,
        other => panic!("{other:?}"),
    }
}

fn field<'a>(fields: &'a [besom_sdk::Field], name: &str) -> &'a Value {
    &fields.iter().find(|field| field.name == name).unwrap_or_else(|| panic!("no {name}")).value
}

#[test]
fn the_edits_are_exchanged_for_one_at_the_number_of_the_last() {
    let mut host = three_edits();
    let proposal = proposal(&mut host);
    let [
        Change::DeleteReadSet(presence),
        Change::DeleteReadSet(edits),
        Change::Insert(row),
        Change::Update(document),
    ] = &proposal.changes[..]
    else {
        panic!("{:?}", proposal.changes)
    };
    let keys = |id| -> Vec<i64> {
        let set: &[besom_sdk::RowKey] = host.read_set(id);
        set.iter().map(|key| if let Value::Integer(n) = key[1] { n } else { 0 }).collect()
    };
    assert_eq!(keys(*edits), [1, 2, 4]);
    assert_eq!(keys(*presence), [3, 5]);

    for (name, value) in [
        ("server_seq", 4i64.into()),
        ("actor_id", ZERO_ACTOR.into()),
        ("client_seq", 0i64.into()),
        ("lamport", 105i64.into()),
        ("kind", "edit".into()),
    ] as [(&str, Value); 5]
    {
        assert_eq!(field(&row.fields, name), &value, "{name}");
    }
    assert_eq!(field(&document.fields, "compacted_seq"), &Value::Integer(5));
    assert_eq!(field(&document.fields, "compacted_at"), &Value::Timestamp(5_000_000));

    // Merge mode: nothing in it hinders a change that arrives or a client that attaches.
    let expected = [
        Guard::row("documents", vec!["d".into()])
            .equal("epoch", 0i64)
            .equal("compacted_seq", 0i64)
            .at_least("server_seq", 5i64)
            .into(),
        Guard::Complete(*edits),
    ];
    assert_eq!(proposal.guards, expected);
    assert!(matches!(proposal.on_guard_failed, GuardFailed::Skip(_)));
    assert_eq!(field(&proposal.notes, "verified"), &Value::Bool(true));
    assert_eq!(field(&proposal.notes, "rows_before"), &Value::Integer(5));
}

#[test]
fn presence_that_an_attached_client_has_not_passed_stays() {
    for (state, removed) in [("attached", &[3i64][..]), ("attaching", &[3]), ("detached", &[3, 5])]
    {
        let mut host = attached(attached(three_edits(), "a", state, 4), "b", "attached", 9);
        let proposal = proposal(&mut host);
        let Change::DeleteReadSet(presence) = proposal.changes[0] else { panic!("{proposal:?}") };
        let keys: Vec<Value> = host.read_set(presence).iter().map(|key| key[1].clone()).collect();
        let expected: Vec<Value> = removed.iter().map(|&n| n.into()).collect();
        assert_eq!(keys, expected, "{state}");
    }
}

#[test]
fn a_checksum_is_checked_and_written_where_the_product_has_one() {
    let typed = typed();
    let checksum = |payload: &[u8]| i64::from(checksum::crc32(payload)).into();
    let mut good = with_document(host(), 3, 0);
    for (server_seq, payload) in (1..).zip(&typed) {
        good = with_checked_change(good, server_seq, "edit", payload, checksum(payload));
    }
    let proposal = proposal(&mut good);
    let Some(Change::Insert(row)) = proposal.changes.get(1) else { panic!("{proposal:?}") };
    let Value::Bytes(payload) = field(&row.fields, "payload") else { panic!("{row:?}") };
    assert_eq!(field(&row.fields, "checksum"), &checksum(payload));

    let mut bad = with_document(host(), 3, 0);
    for (server_seq, payload) in (1..).zip(&typed) {
        bad = with_checked_change(bad, server_seq, "edit", payload, checksum(&typed[0]));
    }
    let Verdict::Dead(reason) = verdict(&mut bad) else { panic!("not dead") };
    assert!(reason.starts_with("checksum: the payload of change 2"), "{reason}");
}

#[test]
fn what_cannot_be_compacted_is_told_apart() {
    let typed = typed();
    let log = |rows: &[(i64, &[u8])], server_seq| {
        let mut host = with_document(host(), server_seq, 0);
        for (number, payload) in rows {
            host = with_change(host, *number, "edit", payload);
        }
        verdict(&mut host)
    };
    // A number is missing: a commit may be under way.
    let verdict = log(&[(1, &typed[0]), (3, &typed[1])], 3);
    let Verdict::Retry(retry) = verdict else { panic!("{verdict:?}") };
    assert!(retry.reason.starts_with("gap: change 2"), "{}", retry.reason);
    // The log is broken: somebody has to look at it.
    for (rows, start) in [
        ([(1, &typed[0][..]), (2, b"junk"), (3, &typed[1])], "undecodable: "),
        ([(1, &typed[0]), (2, &typed[2]), (3, &typed[2])], "hole: "),
    ] {
        let verdict = log(&rows, 3);
        let Verdict::Dead(reason) = verdict else { panic!("{verdict:?}") };
        assert!(reason.starts_with(start), "{reason}");
    }
    let Verdict::Dead(reason) = log(&[(1, &typed[0]), (2, b"junk"), (3, &typed[1])], 3) else {
        panic!("not dead")
    };
    assert!(reason.ends_with("(change 2)"), "{reason}");
}

#[test]
fn without_edits_to_exchange_only_the_mark_and_passed_presence_are_touched() {
    let mut host = with_change(with_document(host(), 3, 0), 3, "edit", &typed()[0]);
    for server_seq in [1, 2] {
        host = with_change(host, server_seq, "presence", b"");
    }
    // Somebody has yet to pass the presence.
    let blocked = proposal(&mut attached(host.clone(), "a", "attached", 0));
    let [Change::Update(document)] = &blocked.changes[..] else { panic!("{blocked:?}") };
    assert_eq!(field(&document.fields, "compacted_seq"), &Value::Integer(3));
    let [Guard::Columns(guard)] = &blocked.guards[..] else { panic!("{blocked:?}") };
    let guarded: Vec<&str> = guard.conditions.iter().map(|c| c.column.as_str()).collect();
    assert_eq!(guarded, ["epoch", "compacted_seq", "server_seq"]);
    assert_eq!(field(&blocked.notes, "mode"), &"prune".into());
    // Everybody has.
    let passed = proposal(&mut host);
    let [Change::DeleteReadSet(presence), Change::Update(_)] = passed.changes[..] else {
        panic!("{passed:?}")
    };
    assert_eq!(host.read_set(presence).len(), 2);
}

#[test]
fn a_snapshot_that_is_all_the_content_stays() {
    let row = [
        ("doc_id", "d".into()),
        ("server_seq", 4i64.into()),
        ("payload", typed()[0].clone().into()),
        ("checksum", Value::Null),
    ];
    let mut host = with_document(host(), 4, 0).row("snapshots", "t1", row);
    let proposal = proposal(&mut host);
    assert!(matches!(&proposal.changes[..], [Change::Update(_)]), "{:?}", proposal.changes);
}

#[test]
fn too_many_bytes_are_refused_while_reading() {
    let mut host = three_edits().setting("max_bytes", 20i64);
    let Verdict::Skip(skip) = verdict(&mut host) else { panic!("not skipped") };
    assert!(skip.settled && skip.reason.starts_with("left-alone: too-large"), "{}", skip.reason);
}

#[test]
fn documents_of_other_formats_and_with_few_changes_are_no_candidates() {
    let mut host = with_document(host(), 2, 0);
    assert_eq!(host.scan::<Compaction>("t1").unwrap(), []);
    let row = [
        ("doc_id", "l".into()),
        ("format", "sharedb".into()),
        ("server_seq", 9i64.into()),
        ("compacted_seq", 0i64.into()),
        ("pending", 9i64.into()),
        ("epoch", 0i64.into()),
    ];
    let mut host = host.row("documents", "t1", row);
    assert_eq!(host.scan::<Compaction>("t1").unwrap(), []);
}

#[test]
fn a_mode_that_a_format_has_not_is_refused_with_what_it_has() {
    let manifest = Compaction::describe();
    for format in Format::ALL {
        let name = mode_setting(format);
        let setting = manifest.settings.iter().find(|setting| setting.name == name);
        let choices = &setting.expect(&name).choices;
        for mode in format.modes() {
            assert!(choices.iter().any(|word| word == mode.as_str()), "{name} {mode}");
        }
    }
    let error = three_edits().setting("mode_yjs", "trim").scan::<Compaction>("t1");
    // A candidate that cannot be judged is left out of a scan; an item says why.
    assert_eq!(error, Ok(vec![]));
    let mut host = three_edits();
    let candidate = host.scan::<Compaction>("t1").unwrap().remove(0);
    for (setting, value) in [("mode_yjs", "trim"), ("deleted_content", "burn")] {
        let mut host = host.clone().setting(setting, value);
        let error = host.act::<Compaction>(&[("t1", candidate.clone())]).unwrap_err();
        assert!(!error.retryable && error.code == "invalid-setting", "{error:?}");
        let begins = format!("{value:?} is not a valid value for the setting {setting}: write \"");
        assert!(error.message.starts_with(&begins), "{}", error.message);
    }
}
