//! A guest may read what its manifest requests and the operator grants, of its own tenant.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use besom_core::ids::Tenant;
use besom_core::value::{Field, Value};
use besom_ports::guests::{Call, Error, Guests as _, Limits};

use super::host::{Nobody, Things, act, call, hostile, items, limits, things, told};

#[tokio::test]
async fn a_read_beyond_the_grants_is_refused_with_a_stable_code() {
    let cases = [
        // Requested by the manifest, not granted by the operator.
        ("read-secrets", "not-granted"),
        // Granted, not requested.
        ("read-others", "not-granted"),
        ("read-secret-columns", "not-granted"),
        ("read-column", "not-granted"),
        ("distinct-secrets", "not-granted"),
        ("read-hidden-column", "not-granted"),
        ("activity", "not-granted"),
        ("read-for-nobody", "no-such-item"),
        // A topic that is not in the manifest, and a query that names no item.
        ("read-gossip", "not-granted"),
        ("deliveries-for-nobody", "no-such-item"),
        ("tenants", "not-available"),
        ("read-all", "answered"),
        // A query whose planning would take longer than the database's checks for interrupts.
        ("read-many-conditions", "limit-exceeded"),
        ("read-many-columns", "limit-exceeded"),
        ("read-many-keys", "limit-exceeded"),
        ("deliveries-many-keys", "limit-exceeded"),
        ("read-long-prefix", "limit-exceeded"),
        ("read-long-value", "limit-exceeded"),
        ("read-many-values", "limit-exceeded"),
        ("distinct-too-many", "limit-exceeded"),
        ("deliveries-long-key", "limit-exceeded"),
    ];
    for (key, code) in cases {
        assert_eq!(told(key).await, code, "{key}");
    }
}

#[tokio::test]
async fn only_the_columns_that_the_operator_grants_are_read_and_written() {
    let (runtime, loaded) = hostile().await;
    let columns = [("things".to_owned(), vec!["id".to_owned()])].into();
    let call = Call { columns: Arc::new(columns), ..call(&loaded.digest, limits()) };
    let keys = ["read-all", "read-columns", "bad-decimal"];
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(keys)).await.unwrap();
    let told: Vec<String> = acted.verdicts.iter().map(|v| format!("{v:?}")).collect();
    assert!(told[0].contains("answered"), "{told:?}");
    assert!(told[1].contains("the column `things.name` is not granted"), "{told:?}");
    assert!(told[2].contains("the column `things.state` is not granted"), "{told:?}");
}

#[tokio::test]
async fn a_page_by_columns_has_what_its_rows_have() {
    let names: String = (0..10).map(|id| format!("é{id}")).collect();
    let said = format!("10 rows, 45, {names}, 45, {}, true", 5 * 1_000 + 2 + 4 + 6 + 8);
    assert_eq!(told("read-columns").await, said);
}

#[tokio::test]
async fn rows_are_counted_up_to_a_limit_and_values_come_once_in_order() {
    assert_eq!(told("count").await, "[5, 2]");
    assert_eq!(told("distinct").await, "[Value::Integer(5), Value::Integer(6), Value::Integer(7)]");
    assert_eq!(told("distinct-all").await, "10");
}

#[tokio::test]
async fn a_task_asks_about_its_own_messages_and_the_host_says_whose_they_are() {
    assert_eq!(told("read-deliveries").await, "hostile a cleaned");
}

#[tokio::test]
async fn rows_are_counted_over_the_whole_call() {
    let little = Limits { rows_read: 15, ..limits() };
    let acted = act(little, &["read-all", "read-all", "read-all"]).await.unwrap();
    let told: Vec<String> = acted.verdicts.iter().map(|v| format!("{v:?}")).collect();
    assert!(told[0].contains("answered"), "{told:?}");
    assert!(told[2].contains("limit-exceeded"), "{told:?}");
    assert!(acted.usage.rows_read <= 20, "{:?}", acted.usage);
}

/// What a question costs is what the database examines for it, not what it returns.
#[tokio::test]
async fn rows_that_are_examined_count_although_none_is_returned() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    let things = Arc::new(Things { examined: 400, ..Things::default() });
    let acted = runtime.act(&call, things.clone(), Arc::new(Nobody), &items(["read-slow"])).await;
    let fault = acted.unwrap().verdicts.remove(0).unwrap_err();
    assert!(fault.message.contains("calls to imports"), "{}", fault.message);
    // The third question exceeds 1,000 rows, and the plugin asks on.
    assert_eq!(things.reads.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn reads_end_with_the_time_of_their_call_and_have_its_bounds() {
    let (runtime, loaded) = hostile().await;
    let limits = Limits { read_bytes: 12_345, wall_ms: 60_000, ..limits() };
    let call = call(&loaded.digest, limits);
    let (things, begun) = (things(), Instant::now());
    let acted = runtime.act(&call, things.clone(), Arc::new(Nobody), &items(["read-all"])).await;
    assert!(acted.unwrap().verdicts[0].is_ok());
    let (deadline, bytes) = *things.bounds.lock().unwrap();
    let wall = deadline.expect("a deadline").duration_since(begun);
    assert!(wall >= Duration::from_secs(60), "{wall:?}");
    assert!(wall <= begun.elapsed() + Duration::from_secs(60), "{wall:?}");
    assert_eq!(bytes, 12_345);
}

#[tokio::test]
async fn a_scan_is_held_against_the_contract() {
    let (runtime, loaded) = hostile().await;
    let tenant = Tenant::from("a");
    let scan = async |how: &str| {
        let settings = vec![Field::new("scan", Value::Text(how.into()))];
        let call = Call { settings, ..call(&loaded.digest, limits()) };
        runtime.scan(&call, things(), Arc::new(Nobody), Some(&tenant), None, 3).await
    };
    let page = scan("well").await.unwrap();
    let keys: Vec<&str> = page.candidates.iter().map(|c| c.key.as_str()).collect();
    assert_eq!((keys, page.next, page.scanned), (vec!["k0", "k1", "k2"], None, 7));
    assert!(page.candidates.iter().all(|c| c.tenant.as_ref() == Some(&tenant)));
    let most = limits().rows_read;
    assert_eq!(scan("scanned").await.unwrap().scanned, most, "it cannot have looked at more");
    for (how, cause, says) in [
        ("too-many", "contract", "returned 4 candidates; the limit is 3"),
        ("fat", "limit", "payload of the candidate `fat` has 4097 bytes: at most 4096"),
    ] {
        let Err(Error::Guest(fault)) = scan(how).await else { panic!("{how} passed") };
        assert_eq!(fault.cause, cause);
        assert!(fault.message.contains(says), "{}", fault.message);
    }
}

/// Such a tenant must not keep the others waiting.
#[tokio::test]
async fn tenants_whose_items_cannot_be_stored_are_left_out() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    for limit in [2, 3, 10] {
        let given = runtime.tenants(&call, things(), Arc::new(Nobody), None, limit).await.unwrap();
        assert_eq!(given, [Tenant::from("a"), Tenant::from("b")], "at most {limit}");
    }
}

#[tokio::test]
async fn only_a_scan_over_all_tenants_may_ask_for_them() {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits());
    let tenants = runtime.tenants(&call, things(), Arc::new(Nobody), None, 10).await.unwrap();
    assert_eq!(tenants, [Tenant::from("a"), Tenant::from("b")]);
}

/// Without `all_tenants` a task cannot read several tenants at once, nor return an invented tenant
/// name, which could carry data of one tenant to a call for another.
#[tokio::test]
async fn a_task_without_all_tenants_may_only_ask_which_there_are() {
    let (runtime, loaded) = hostile().await;
    let tenants = async |how: &str, all_tenants: bool| {
        let settings = vec![Field::new("scan", Value::Text(how.into()))];
        let call = Call { settings, all_tenants, ..call(&loaded.digest, limits()) };
        runtime.tenants(&call, things(), Arc::new(Nobody), None, 10).await
    };
    assert_eq!(tenants("well", false).await.unwrap(), [Tenant::from("a"), Tenant::from("b")]);
    assert_eq!(tenants("tenants-fewer", false).await.unwrap(), [Tenant::from("a")]);
    for how in ["tenants-read", "tenants-get", "tenants-exists", "tenants-deliveries"] {
        assert!(tenants(how, true).await.is_ok(), "{how}");
    }
    for how in
        ["tenants-read", "tenants-get", "tenants-exists", "tenants-deliveries", "tenants-activity"]
    {
        let refused = tenants(how, false).await;
        let Err(Error::Guest(fault)) = refused else { panic!("{how}: {refused:?}") };
        assert!(fault.message.contains("`not-available`"), "{how}: {}", fault.message);
    }
    // Values of one tenant after those of another would be in no order.
    let Err(Error::Guest(fault)) = tenants("tenants-distinct", true).await else {
        panic!("values of all tenants passed")
    };
    assert!(fault.message.contains("needs an item"), "{}", fault.message);
    let Err(Error::Guest(fault)) = tenants("tenants-invented", false).await else {
        panic!("a name that is made up passed")
    };
    assert_eq!(fault.cause, "contract");
    assert!(fault.message.contains("`SECRET` was not returned"), "{}", fault.message);
    assert_eq!(tenants("tenants-invented", true).await.unwrap().len(), 3);
}

/// Without `all_tenants` a call has items of one tenant only, so that no data of one tenant is
/// present when verdicts for another are made.
#[tokio::test]
async fn items_of_two_tenants_are_in_two_calls_unless_all_are_granted() {
    let (runtime, loaded) = hostile().await;
    for (all_tenants, instances) in [(true, 1), (false, 2)] {
        let call = Call { all_tenants, ..call(&loaded.digest, limits()) };
        let mut batch = items(["one", "panic", "three", "four"]);
        for at in [1, 3] {
            batch[at].identity.tenant = Some(Tenant::from("b"));
        }
        let quiet: Vec<_> =
            batch.iter().filter(|item| item.identity.key != "panic").cloned().collect();
        let acted = runtime.act(&call, things(), Arc::new(Nobody), &quiet).await.unwrap();
        assert_eq!(acted.usage.instances, instances);
        // The verdicts are in the order of the items.
        let acted = runtime.act(&call, things(), Arc::new(Nobody), &batch).await.unwrap();
        let failed: Vec<bool> = acted.verdicts.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false, false]);
    }
}
