//! Runs the task against the in-memory host.

use besom_sdk::testing::Fixture;
use besom_sdk::{Change, Guard, GuardFailed, Proposal};

use super::*;

const NOW: Time = Time(1_750_000_000_000_000);
const DAY_US: i64 = 86_400_000_000;

fn model() -> Fixture {
    let both = &["doc_id", "client_id"][..];
    Fixture::new(NOW)
        .table("clients", &["client_id"], &[("by_status_updated", &["status", "updated_at"])])
        .table("attachments", both, &[("by_client", &["client_id", "doc_id"])])
        .table("documents", &["doc_id"], &[])
        .table("changes", &["doc_id", "server_seq"], &[("by_lamport", &["doc_id", "lamport"])])
}

trait Rows {
    fn client(self, id: &str, status: &str, idle_us: i64) -> Self;
    fn attached(self, document: &str, client: &str, state: &str) -> Self;
    fn document(self, id: &str, changes: &[(i64, i64)]) -> Self;
}

impl Rows for Fixture {
    fn client(self, id: &str, status: &str, idle_us: i64) -> Fixture {
        let row = [
            ("client_id", Value::from(id)),
            ("status", status.into()),
            ("updated_at", Time(NOW.0 - idle_us).into()),
        ];
        self.row("clients", "t", row)
    }

    fn attached(self, document: &str, client: &str, state: &str) -> Fixture {
        let row = [
            ("doc_id", Value::from(document)),
            ("client_id", client.into()),
            ("state", state.into()),
            ("server_seq", 3i64.into()),
            ("client_seq", 2i64.into()),
        ];
        self.row("attachments", "t", row)
    }

    /// A document with changes of these (server_seq, lamport).
    fn document(self, id: &str, changes: &[(i64, i64)]) -> Fixture {
        let server_seq = changes.last().map_or(0, |(seq, _)| *seq);
        let row = [("doc_id", Value::from(id)), ("server_seq", server_seq.into())];
        changes.iter().fold(self.row("documents", "t", row), |fixture, (seq, lamport)| {
            let row = [
                ("doc_id", Value::from(id)),
                ("server_seq", (*seq).into()),
                ("lamport", (*lamport).into()),
            ];
            fixture.row("changes", "t", row)
        })
    }
}

fn keys(fixture: &mut Fixture) -> Vec<String> {
    let found = fixture.scan::<ClientDeactivation>("t").unwrap();
    found.into_iter().map(|candidate| candidate.key).collect()
}

fn verdict(fixture: &mut Fixture, key: &str) -> Verdict {
    let candidate = Candidate::new(key);
    fixture.act::<ClientDeactivation>(&[("t", candidate)]).unwrap().remove(0)
}

fn proposal(fixture: &mut Fixture, key: &str) -> Proposal {
    match verdict(fixture, key) {
        Verdict::Propose(proposal) => proposal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn attachments_come_first_and_then_the_client() {
    let mut fixture = model()
        .client("old", "activated", 3 * DAY_US)
        .attached("d1", "old", "attached")
        .attached("d2", "old", "detached")
        .attached("d3", "old", "attaching")
        .client("free", "activated", 2 * DAY_US)
        .attached("d1", "free", "detached")
        .client("edge", "activated", DAY_US)
        .client("busy", "activated", DAY_US - 1)
        .client("gone", "deactivated", 9 * DAY_US);
    assert_eq!(keys(&mut fixture), ["d1/old", "d3/old", "free", "edge"]);
    let found = fixture.scan::<ClientDeactivation>("t").unwrap();
    assert_eq!(found[1].route.as_deref(), Some("d3"));
    assert_eq!(fixture.tenants::<ClientDeactivation>().unwrap(), ["t"]);
}

#[test]
fn a_client_with_more_documents_than_a_page_takes_several_scans() {
    // The fixture's pages hold two candidates.
    let fixture = model()
        .client("many", "activated", 4 * DAY_US)
        .client("one", "activated", 3 * DAY_US)
        .attached("d1", "one", "attached")
        .client("two", "activated", 2 * DAY_US)
        .attached("d1", "two", "attached")
        .attached("d2", "two", "attached");
    let documents = ["d1", "d2", "d3"];
    let mut fixture = documents.iter().fold(fixture, |f, d| f.attached(d, "many", "attached"));
    assert_eq!(keys(&mut fixture), ["d1/many", "d2/many", "d1/one", "d1/two", "d2/two"]);
}

#[test]
fn a_detachment_is_one_proposal_behind_everything_it_read() {
    // The highest Lamport time does not stand at the highest sequence number.
    let mut fixture = model()
        .client("c", "activated", 2 * DAY_US)
        .attached("d", "c", "attached")
        .document("d", &[(1, 4), (2, 9), (3, 7)]);
    let proposal = proposal(&mut fixture, "d/c");

    let (document, client) = (Value::from("d"), Value::from("c"));
    let both = vec![document.clone(), client.clone()];
    let guards: [Guard; 3] = [
        Guard::row("clients", vec![client])
            .equal("status", "activated")
            .equal("updated_at", Time(NOW.0 - 2 * DAY_US))
            .into(),
        Guard::row("attachments", both.clone())
            .equal("state", "attached")
            .equal("server_seq", 3i64)
            .equal("client_seq", 2i64)
            .into(),
        Guard::row("documents", vec![document]).equal("server_seq", 3i64).into(),
    ];
    assert_eq!(proposal.guards, guards);
    assert_eq!(proposal.on_guard_failed, GuardFailed::Retry(200));

    let [
        Change::Insert(change),
        Change::Update(head),
        Change::Update(checkpoint),
        Change::Delete(vector),
        Change::Delete(presence),
        Change::Emit(message),
    ] = &proposal.changes[..]
    else {
        panic!("{proposal:?}")
    };
    let value = |fields: &[besom_sdk::Field], name: &str| {
        fields.iter().find(|field| field.name == name).map(|field| field.value.clone())
    };
    for (name, expected) in [
        ("server_seq", 4i64.into()),
        ("client_seq", 3i64.into()),
        ("lamport", 10i64.into()),
        ("actor_id", Value::from("c")),
        ("kind", "presence".into()),
    ] {
        assert_eq!(value(&change.fields, name), Some(expected), "{name}");
    }
    assert_eq!(value(&head.fields, "server_seq"), Some(4i64.into()));
    assert_eq!(value(&head.fields, "updated_at"), Some(NOW.into()));
    assert_eq!(value(&checkpoint.fields, "state"), Some("detached".into()));
    assert_eq!(value(&checkpoint.fields, "server_seq"), Some(4i64.into()));
    assert_eq!((&vector.collection[..], &vector.key), ("version_vectors", &both));
    assert_eq!((&presence.collection[..], &presence.key), ("presences", &both));
    assert_eq!((&message.topic[..], &message.key[..]), ("DocChanged", "d"));
    assert_eq!(message.payload, br#"{"kind":"presence","server_seq":4}"#);
}

#[test]
fn a_client_is_deactivated_only_while_nothing_of_it_is_attached() {
    let mut fixture = model().client("c", "activated", 2 * DAY_US);
    let proposal = proposal(&mut fixture, "c");
    let attached = Filter::of("attachments").equal("client_id", "c").not_equal("state", "detached");
    assert_eq!(proposal.guards[1], attached.absent());
    let [Change::Update(update)] = &proposal.changes[..] else { panic!("{proposal:?}") };
    assert_eq!(update.fields[0].value, Value::from("deactivated"));
}

#[test]
fn what_has_changed_since_the_scan_is_left_alone() {
    let idle = 2 * DAY_US;
    for (mut fixture, key, expected) in [
        (model(), "c", Verdict::skip("the client is gone")),
        (model().client("c", "activated", 5), "c", Verdict::skip("the client was active again")),
        (model().client("c", "activated", 5), "d/c", Verdict::skip("the client was active again")),
        (
            model().client("c", "deactivated", idle),
            "c",
            Verdict::skip("the client is not activated"),
        ),
        (model().client("c", "activated", idle), "d/c", Verdict::skip("already detached")),
        (
            model().client("c", "activated", idle).attached("d", "c", "attached"),
            "d/c",
            Verdict::dead("the document d/c does not exist"),
        ),
        (model(), "a/b/c", Verdict::dead("malformed-key: \"a/b/c\" does not name a client")),
    ] {
        assert_eq!(verdict(&mut fixture, key), expected);
    }
}

#[test]
fn a_malformed_item_keeps_nobody_from_theirs() {
    let mut fixture = model()
        .client("c", "activated", 2 * DAY_US)
        .attached("d", "c", "attached")
        .document("d", &[(1, 1)]);
    let items = ["a/b/c", "d/c", "%zz", "c"].map(|key| ("t", Candidate::new(key)));
    let verdicts = fixture.act::<ClientDeactivation>(&items).unwrap();
    assert!(matches!(
        verdicts[..],
        [Verdict::Dead(_), Verdict::Propose(_), Verdict::Dead(_), Verdict::Propose(_)]
    ));
}

#[test]
fn a_batch_of_one_document_costs_four_reads() {
    let names: Vec<String> = (0..30).map(|n| format!("c{n}")).collect();
    let fixture = model().document("d", &[(1, 1)]);
    let mut fixture = names.iter().fold(fixture, |fixture, name| {
        fixture.client(name, "activated", 2 * DAY_US).attached("d", name, "attached")
    });
    let found = fixture.scan::<ClientDeactivation>("t").unwrap();
    let items: Vec<_> = found.into_iter().map(|candidate| ("t", candidate)).collect();
    let before = fixture.calls();
    let verdicts = fixture.act::<ClientDeactivation>(&items).unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Propose(_))));
    assert_eq!(fixture.calls() - before, 4);
}
