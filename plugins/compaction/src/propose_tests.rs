use besom_sdk::testing::Fixture;
use besom_sdk::{Change, GuardFailed};

use super::*;
use crate::outcome::Digests;
use crate::wish::{Attached, Client, Vector};

fn item() -> Item {
    Item {
        index: 0,
        tenant: Some("t1".into()),
        key: "d".into(),
        route: "d".into(),
        due: None,
        version: String::new(),
        payload: Vec::new(),
        run: 1,
        attempt: 1,
        guard_retries: 0,
        planned_at: Time(0),
        extra: Vec::new(),
    }
}

fn client(name: &str, server_seq: i64) -> Client {
    let vector = Some(Vector { bytes: vec![0], server_seq });
    Client { id: name.into(), name: name.into(), vector }
}

fn log(clients: Vec<Client>, snapshot_numbers: Vec<i64>) -> Log {
    Log {
        rows: Vec::new(),
        snapshot: None,
        edits: None,
        passed_presence: None,
        snapshots: None,
        snapshot_numbers,
        attached: Attached { count: clients.len(), clients, checkpoint: None },
        presence_until: 0,
        has_checksums: false,
    }
}

const DOCUMENT: Document = Document { epoch: 4, server_seq: 9, compacted_seq: 2 };

fn subject<'a>(item: &'a Item, log: &'a Log, wanted: Mode) -> Subject<'a> {
    let zero_actor = crate::ZERO_ACTOR;
    let format = Format::Yjs;
    Subject { item, document: &DOCUMENT, log, format, wanted, instead: None, zero_actor }
}

fn document() -> besom_sdk::ColumnGuard {
    Guard::row("documents", vec!["d".into()]).equal("epoch", 4i64).equal("compacted_seq", 2i64)
}

fn attached() -> Filter {
    Filter::of("attachments").equal("doc_id", "d").not_equal("state", "detached")
}

#[test]
fn a_trim_holds_the_vectors_it_was_made_by_and_keeps_everybody_else_out() {
    let (item, log) = (item(), log(vec![client("ann", 7), client("bob", 0)], vec![3]));
    let proposal = subject(&item, &log, Mode::Trim).guarded(Mode::Trim).unwrap();
    let vector = |name: &str, server_seq: i64| -> Guard {
        let row = Guard::row("version_vectors", vec!["d".into(), name.into()]);
        row.at_least("server_seq", server_seq).into()
    };
    let expected: [Guard; 4] = [
        document().at_least("server_seq", 9i64).into(),
        vector("ann", 7),
        vector("bob", 0),
        attached().not_equal("client_id", "ann").not_equal("client_id", "bob").absent(),
    ];
    assert_eq!(proposal.guards, expected);
    assert_eq!(proposal.on_guard_failed, GuardFailed::Retry(GUARD_RETRY_MS));
}

#[test]
fn a_reset_holds_everything_still() {
    let (item, log) = (item(), log(Vec::new(), vec![3, 5]));
    let proposal = subject(&item, &log, Mode::Reset).guarded(Mode::Reset).unwrap();
    let snapshots = Filter::of("snapshots").equal("doc_id", "d");
    let expected: [Guard; 3] = [
        document().equal("server_seq", 9i64).into(),
        attached().absent(),
        snapshots.not_equal("server_seq", 3i64).not_equal("server_seq", 5i64).absent(),
    ];
    assert_eq!(proposal.guards, expected);
    assert_eq!(proposal.on_guard_failed, GuardFailed::Retry(GUARD_RETRY_MS));
}

/// Asks within a host that has these vectors.
struct Asking;

thread_local! {
    static SEEN: std::cell::RefCell<Vec<Proposal>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Task for Asking {
    fn describe() -> Manifest {
        Manifest::new("asking", "1.0.0")
    }

    fn candidates(_: &Context) -> Result<Range> {
        Ok(Range::of("version_vectors"))
    }

    fn candidate(_: &Context, _: &Row) -> Result<Option<Candidate>> {
        Ok(None)
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let log = log(vec![client("ann", 7)], Vec::new());
        let plan = decide::Plan {
            target: 9,
            server_seq: 8,
            lamport: 30,
            feed: vec![&b"1"[..], b"2"],
            numbers: vec![7, 8],
        };
        for mode in [Mode::Merge, Mode::Trim, Mode::Reset] {
            let compacted = Compacted {
                update: b"12".to_vec(),
                mode,
                merged_because: None,
                digests: Digests { before: "b".into(), after: "a".into() },
                bytes_before: 2,
                remarks: Vec::new(),
            };
            let subject = Subject { instead: Some("why"), ..subject(&items[0], &log, Mode::Trim) };
            let proposal = subject.exchange(ctx, &plan, &compacted)?;
            SEEN.with_borrow_mut(|seen| seen.push(proposal));
        }
        Ok(vec![Verdict::skip("asked")])
    }
}

#[test]
fn vectors_that_mean_nothing_any_more_go_with_the_history_they_spoke_of() {
    let mut host = Fixture::new(Time(5)).table("version_vectors", &["doc_id", "client_id"], &[]);
    for (doc, client) in [("c", "ann"), ("d", "ann"), ("d", "bob"), ("d", "cid")] {
        let row = [("doc_id", doc.into()), ("client_id", client.into())];
        host = host.row("version_vectors", "t1", row);
    }
    host.act::<Asking>(&[("t1", Candidate::new("d"))]).unwrap();
    let seen = SEEN.take();
    let [merge, trim, reset] = &seen[..] else { panic!("three modes") };
    let note = |proposal: &Proposal, name: &str| {
        proposal.notes.iter().find(|note| note.name == name).map(|note| note.value.clone())
    };
    let document = |proposal: &Proposal| match proposal.changes.last() {
        Some(Change::Update(update)) => {
            let fields = update.fields.iter();
            fields.map(|f| (f.name.clone(), f.value.clone())).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let mark: [(String, Value); 2] =
        [("compacted_seq".into(), 9i64.into()), ("compacted_at".into(), Time(5).into())];

    assert!(matches!(&merge.changes[..], [Change::Insert(_), Change::Update(_)]), "{merge:?}");
    assert_eq!(document(merge), mark);
    assert_eq!(note(merge, "wanted"), Some("trim".into()));
    assert_eq!(note(merge, "instead"), Some("why".into()));

    let [Change::Delete(bob), Change::Delete(cid), Change::Insert(_), Change::Update(_)] =
        &trim.changes[..]
    else {
        panic!("{trim:?}")
    };
    assert_eq!([&bob.key[1], &cid.key[1]], [&Value::from("bob"), &Value::from("cid")]);
    assert_eq!(document(trim), mark);
    assert_eq!((note(trim, "wanted"), note(trim, "epoch_after")), (None, None));

    let [Change::DeleteReadSet(vectors), Change::Insert(_), Change::Update(_)] = reset.changes[..]
    else {
        panic!("{reset:?}")
    };
    let gone: Vec<&Value> = host.read_set(vectors).iter().map(|key| &key[1]).collect();
    assert_eq!(gone, [&Value::from("ann"), &"bob".into(), &"cid".into()]);
    assert_eq!(document(reset), [&mark[..], &[("epoch".into(), 5i64.into())]].concat());
    assert_eq!(note(reset, "epoch_before"), Some(4i64.into()));
    assert_eq!(note(reset, "epoch_after"), Some(5i64.into()));
}
