//! The checks of proposals. A violation is a fault of its own item only.

use std::sync::Arc;

use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Condition, Guard, Verdict};
use besom_core::value::{Field, Value};
use besom_ports::guests::{Guests as _, Limits};

use super::host::{
    Nobody, ROWS, act, behaved, call, hostile, items, limits, things, told, verdict,
};

#[tokio::test]
async fn a_proposal_beyond_the_grants_or_limits_fails_its_item_alone() {
    let cases = [
        ("insert", "contract", "does not request `insert` on `things`"),
        ("delete-elsewhere", "contract", "does not request the collection `elsewhere`"),
        ("delete-secrets", "contract", "does not request `delete` on `secrets`"),
        ("update-column", "contract", "does not request the column `things.hidden`"),
        ("emit-undeclared", "contract", "`gossip` is not in the manifest"),
        ("guard-idle", "contract", "does not request activity"),
        ("bad-decimal", "contract", "`1e3` is not a valid decimal number"),
        ("unknown-read-set", "contract", "the read set 99 was not returned"),
        ("delete-many", "limit", "11 rows to delete: at most 10"),
        ("change-many", "limit", "101 changes: at most 100"),
        ("guard-many-conditions", "limit", "65 conditions in one query: at most 64"),
        ("guard-many-rows", "limit", "1001 rows that a guard counts: at most 1000"),
        ("guard-secrets", "contract", "does not request the collection `elsewhere`"),
        ("add-a-text", "contract", "an increment must be an integer: `things.state`"),
        ("add-twice", "contract", "sets `state` twice"),
        ("emit-long-key", "limit", "2000 bytes in the key of a message: at most 1024"),
        ("emit-nul-key", "contract", "the key of a message contains a NUL"),
        ("emit-much", "limit", "bytes in all messages: at most 4194304"),
    ];
    let keys: Vec<&str> = cases.iter().map(|case| case.0).chain(["fine", "emit"]).collect();
    let acted = act(Limits { hostcall_fuel: 16 << 20, ..limits() }, &keys).await.unwrap();
    // An invalid verdict is not a trap: the batch is not called again.
    assert_eq!(acted.usage.instances, 1);
    for ((key, cause, says), verdict) in cases.iter().zip(&acted.verdicts) {
        let fault = verdict.as_ref().expect_err(key);
        assert_eq!(fault.cause, *cause, "{key}: {}", fault.message);
        assert!(fault.message.contains(says), "{key}: {}", fault.message);
    }
    assert_eq!(acted.verdicts[cases.len()], behaved());
    let Ok(Verdict::Propose(proposal)) = &acted.verdicts[cases.len() + 1] else {
        panic!("{:?}", acted.verdicts)
    };
    assert!(matches!(&proposal.changes[..], [Change::Emit { topic, .. }] if topic == "cleaned"));
}

/// What is counted, missing and added reaches the commit, and names that nobody knows are ignored.
#[tokio::test]
async fn a_proposal_is_taken_as_the_contract_says() {
    let acted = act(limits(), &["guard-rows", "add-to-range", "extras"]).await.unwrap();
    let proposals = acted.verdicts.into_iter().map(|verdict| match verdict {
        Ok(Verdict::Propose(proposal)) => proposal,
        other => panic!("{other:?}"),
    });
    let [guarded, added, extras] = proposals.collect::<Vec<_>>().try_into().unwrap();
    let [Guard::Missing { collection, key }, Guard::AtLeast(_, 2), Guard::AtMost(filter, 1_000)] =
        &guarded.guards[..]
    else {
        panic!("{guarded:?}")
    };
    assert_eq!((collection.as_str(), &key[..]), ("things", &[Value::Integer(99)][..]));
    assert_eq!(filter.conditions, [Condition::equal("id", Value::Integer(1))]);
    let [Change::UpdateRange { range, fields, increments }] = &added.changes[..] else {
        panic!("{added:?}")
    };
    assert_eq!((range.collection.as_str(), range.rows), ("things", 10));
    assert_eq!(fields[..], [Field::new("name", Value::Text("older".into()))]);
    assert_eq!(increments[..], [Field::new("state", Value::Integer(2))]);
    assert_eq!(extras.notes[0], Field::new("known", Value::Integer(0)));
    assert_eq!(told("words").await, "well and \u{e9}\n");
}

#[tokio::test]
async fn a_topic_needs_the_manifest_and_the_configuration() {
    let (runtime, loaded) = hostile().await;
    let mut call = call(&loaded.digest, limits());
    call.topics.clear();
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(["emit"])).await.unwrap();
    let fault = acted.verdicts[0].as_ref().unwrap_err();
    assert!(fault.message.contains("`cleaned` is not granted"), "{}", fault.message);
}

#[tokio::test]
async fn a_read_set_holds_the_rows_of_its_items_tenant() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    let mut batch = items(["delete-read", "delete-read"]);
    batch[1].identity.tenant = Some(Tenant::from("b"));
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
    for (verdict, first) in acted.verdicts.iter().zip([0, ROWS]) {
        let Ok(Verdict::Propose(proposal)) = verdict else { panic!("{verdict:?}") };
        let [Change::DeleteReadSet(set)] = &proposal.changes[..] else { panic!("{proposal:?}") };
        let expected: Vec<_> = (first..first + ROWS).map(|id| vec![Value::Integer(id)]).collect();
        assert_eq!(set.keys().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn the_rows_of_read_sets_count_as_deletes() {
    assert!(verdict("delete-read").await.is_ok());
    let little = Limits { deletes: ROWS as u64 - 1, ..limits() };
    let acted = act(little, &["delete-read", "fine"]).await.unwrap();
    let fault = acted.verdicts[0].as_ref().unwrap_err();
    assert_eq!(fault.message, "10 rows to delete: at most 9");
    assert_eq!(acted.verdicts[1], behaved());
}
