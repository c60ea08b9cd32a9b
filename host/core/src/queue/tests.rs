use std::sync::Arc;

use super::*;
use crate::collection::Collection;
use crate::ids::{RunId, Seq};
use crate::item::Identity;
use crate::proposal::ReadSet;
use crate::value::Field;

const POLICY: RetryPolicy = RetryPolicy {
    attempts_max: 3,
    backoff: Duration::from_secs(1),
    backoff_max: Duration::from_secs(60),
    guard_retries_max: 2,
    deaths_max: 3,
};

fn item(key: &str) -> Item {
    Item {
        identity: Identity {
            task: "sweep".into(),
            tenant: Some("acme".into()),
            key: key.into(),
            due: None,
        },
        route: key.into(),
        partition: Partition(3),
        version: "1".into(),
        payload: Vec::new(),
        run: RunId(1),
        planned_at: Time::EPOCH,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: Vec::new(),
    }
}

#[test]
fn a_failing_item_is_tried_as_often_as_the_policy_says_and_then_set_aside() {
    let mut item = item("a");
    for attempts in 1..POLICY.attempts_max {
        match POLICY.failed(&item, Time::EPOCH, Duration::ZERO, "boom".into()) {
            Settle::Retry { attempts: counted, .. } => assert_eq!(counted, attempts),
            other => panic!("{other:?}"),
        }
        item.attempts = attempts;
    }
    assert_eq!(
        POLICY.failed(&item, Time::EPOCH, Duration::ZERO, "boom".into()),
        Settle::Dead { attempts: POLICY.attempts_max, reason: "boom".into() }
    );
}

#[test]
fn what_its_plugin_gives_up_was_tried_once_more() {
    let mut item = item("a");
    for tried in [0, 2] {
        item.attempts = tried;
        let said = Ok(Verdict::Dead { reason: "damaged".into() });
        let decided = decide(&POLICY, &item, Time::EPOCH, said, true);
        let expected = Settle::Dead { attempts: tried + 1, reason: "damaged".into() };
        assert_eq!(decided, Decision::Settle(expected));
    }
}

#[test]
fn a_plugin_that_asks_for_a_longer_wait_gets_it() {
    let after = Duration::from_secs(500);
    match POLICY.failed(&item("a"), Time::EPOCH, after, String::new()) {
        Settle::Retry { run_at, .. } => assert_eq!(run_at, Time::from_secs(500)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_guard_consumes_no_attempt_and_ends_as_contended() {
    let mut item = item("a");
    item.attempts = 1;
    for guard_retries in 1..=POLICY.guard_retries_max {
        match POLICY.guard_failed(&item, Time::EPOCH, &OnGuardFailed::Retry(10)) {
            Settle::Retry { attempts, guard_retries: counted, run_at, .. } => {
                assert_eq!((attempts, counted), (1, guard_retries));
                assert!(run_at >= Time::from_millis(10) && run_at <= Time::from_millis(11));
            }
            other => panic!("{other:?}"),
        }
        item.guard_retries = guard_retries;
    }
    match POLICY.guard_failed(&item, Time::EPOCH, &OnGuardFailed::Retry(10)) {
        Settle::Skip { reason, settled: false } => assert!(reason.starts_with("contended")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_item_that_killed_three_hosts_is_not_executed_again() {
    let mut item = item("a");
    item.deaths = 2;
    assert_eq!(POLICY.deadly(&item), None);
    item.deaths = 3;
    assert!(matches!(POLICY.deadly(&item), Some(Settle::Dead { attempts: 0, .. })));
}

#[test]
fn an_item_left_out_holds_back_its_stream_and_nothing_else() {
    let mut cut = Cut::default();
    let mut other = item("b");
    other.partition = Partition(4);
    assert!(cut.admit(Source::Log(Seq(1)), &item("a"), true));
    assert!(!cut.admit(Source::Log(Seq(2)), &item("a"), false));
    assert!(!cut.admit(Source::Log(Seq(3)), &item("c"), true));
    assert!(cut.admit(Source::Log(Seq(1)), &other, true));
    assert!(!cut.admit(Source::Timer(1), &item("a"), false));
    assert!(cut.admit(Source::Timer(2), &item("a"), true));
}

#[test]
fn two_proposals_touch_the_same_row_in_whatever_way_they_name_it() {
    let mut collections = Collections::new();
    collections.insert(
        "changes".into(),
        Collection {
            name: "changes".into(),
            table: "changes".into(),
            tenant: Some("project_id".into()),
            key: vec!["doc".into(), "seq".into()],
            columns: Default::default(),
            indexes: Default::default(),
            anchors: Vec::new(),
            dependants: Vec::new(),
            not_null: Default::default(),
            accept_cascades: false,
        },
    );
    let key = vec![Value::Text("d".into()), Value::Integer(7)];
    let named = |value| vec![Field::new("seq", value), Field::new("doc", Value::Text("d".into()))];
    let set = |numbers: &[i64]| {
        Change::DeleteReadSet(Arc::new(ReadSet {
            collection: "changes".into(),
            prefix: vec![Value::Text("d".into())],
            rest: numbers.iter().map(|n| vec![Value::Integer(*n)]).collect(),
        }))
    };
    let same = [
        Change::Insert { collection: "changes".into(), fields: named(Value::Integer(7)) },
        Change::Delete { collection: "changes".into(), key: key.clone() },
        Change::Update { collection: "changes".into(), key, fields: Vec::new() },
        set(&[6, 7]),
    ];
    let propose = |change: &Change| Proposal {
        guards: Vec::new(),
        changes: vec![change.clone()],
        on_guard_failed: OnGuardFailed::Skip(String::new()),
        notes: Vec::new(),
    };
    for first in &same {
        for second in &same {
            let mut touched = Touched::default();
            assert!(touched.claim(&collections, &item("a"), &propose(first)));
            assert!(!touched.claim(&collections, &item("b"), &propose(second)));
            let mut elsewhere = item("b");
            elsewhere.identity.tenant = Some("globex".into());
            assert!(touched.claim(&collections, &elsewhere, &propose(second)));
        }
        let mut touched = Touched::default();
        assert!(touched.claim(&collections, &item("a"), &propose(first)));
        assert!(touched.claim(&collections, &item("b"), &propose(&set(&[8, 9]))));
    }
}

#[test]
fn an_item_changes_one_row_at_most_sixteen_times_whatever_the_changes_are() {
    let collections: Collections = [(
        "changes".to_owned(),
        Collection {
            name: "changes".into(),
            table: "changes".into(),
            tenant: Some("project".into()),
            key: vec!["id".into()],
            columns: Default::default(),
            indexes: Default::default(),
            anchors: Vec::new(),
            dependants: Vec::new(),
            not_null: Default::default(),
            accept_cascades: false,
        },
    )]
    .into();
    let id = |id: i64| Field { name: "id".into(), value: Value::Integer(id) };
    let (collection, key) = (|| "changes".to_owned(), |id: i64| vec![Value::Integer(id)]);
    let upsert = |row| Change::Upsert { collection: collection(), fields: vec![id(row)] };
    let insert = |row| Change::Insert { collection: collection(), fields: vec![id(row)] };
    let update = |row| Change::Update { collection: collection(), key: key(row), fields: vec![] };
    let increment =
        |row| Change::Increment { collection: collection(), key: key(row), fields: vec![] };
    let delete = |row| Change::Delete { collection: collection(), key: key(row) };
    let all: [&dyn Fn(i64) -> Change; 4] = [&upsert, &update, &increment, &delete];
    let checked = |changes: Vec<Change>| {
        let proposal = Proposal {
            guards: Vec::new(),
            changes,
            on_guard_failed: OnGuardFailed::Skip(String::new()),
            notes: Vec::new(),
        };
        check_changes_of_one_row(&collections, Some(&"acme".into()), &proposal)
    };
    let of_one = |count: usize| (0..count).map(|n| all[n % 4](7)).collect::<Vec<_>>();
    assert_eq!(checked(of_one(16)), Ok(()));
    let words = "17 changes of one row: at most 16";
    assert_eq!(checked(of_one(17)), Err(words.into()));
    for change in all {
        assert_eq!(checked((0..17).map(|_| change(7)).collect()), Err(words.into()));
        assert_eq!(checked((0..17).map(change).collect()), Ok(()));
    }
    // The database may give each of them a key.
    assert_eq!(checked((0..17).map(|_| insert(7)).collect()), Ok(()));
}

#[test]
fn candidates_of_one_route_are_planned_as_far_apart_as_the_page_allows() {
    let check = |routes: &str, expected: &str| {
        let page = routes.split(' ').enumerate().map(|(number, route)| Candidate {
            tenant: Some("acme".into()),
            key: format!("{route}{number}"),
            route: route.into(),
            due: None,
            version: String::new(),
            payload: Vec::new(),
        });
        let ordered: Vec<String> = apart(page.collect()).into_iter().map(|c| c.key).collect();
        assert_eq!(ordered.join(" "), expected, "{routes}");
    };
    check("a b c", "a0 b1 c2");
    check("a a b a b c", "a0 b2 c5 a1 b4 a3");
    check("b b a a", "b0 a2 b1 a3");
}
