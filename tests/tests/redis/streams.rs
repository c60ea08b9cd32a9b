//! Streams of Redis as brokers: what arrives, in which order, and what is held while it does not.
//! Over the store in memory and real servers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::command::MessageSelector;
use besom_core::delivery::State;
use besom_ports::store::{Command, CommandEffect};
use besom_tests::adapters::redis::{cluster, single};
use besom_tests::conformance::world::fence;
use besom_tests::servers::certificates::Authority;
use besom_tests::servers::redis::Redis;
use besom_tests::way::{Way, emitted, until};
use redis::{Connection, cmd};

/// The entries of a stream: the fields of each.
fn entries(connection: &mut Connection, stream: &str) -> Vec<BTreeMap<String, String>> {
    let entries: Vec<(String, BTreeMap<String, String>)> =
        cmd("XRANGE").arg(stream).arg("-").arg("+").query(connection).expect("the stream");
    entries.into_iter().map(|(_, fields)| fields).collect()
}

/// What a consumer keeps that drops repeated messages: the payloads of each key. A number that is
/// left out is an error.
fn consumed(entries: &[BTreeMap<String, String>]) -> BTreeMap<String, Vec<String>> {
    let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in entries {
        let kept = of.entry(entry["subject"].clone()).or_default();
        let number: usize = entry["sequence"].parse().expect("a number");
        assert!(number <= kept.len() + 1, "{} follows {}", number, kept.len());
        if number == kept.len() + 1 {
            kept.push(entry["data"].clone());
        }
    }
    of
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_as_events_in_the_order_of_their_keys() {
    let server = single();
    let way = Way::new(&server.url(), "batch = 100\nschema = \"urn:example\"").await;
    way.emit(0..1_000, 7);
    assert!(entries(&mut server.connect(), "t").is_empty(), "nobody leads");
    way.lead(1).await;
    way.until_delivered(1_000).await;
    let all = entries(&mut server.connect(), "t");
    assert_eq!(all.len(), 1_000);
    assert_eq!(consumed(&all), emitted(1_000, 7));
    let first = &all[0];
    let of = |name: &str| first.get(name).map_or("", String::as_str);
    assert_eq!(
        ["specversion", "type", "subject", "sequence", "datacontenttype", "dataschema", "data"]
            .map(of),
        ["1.0", "t", "0", "00000000000000000001", "application/json", "urn:example", "{\"n\":0}"]
    );
    assert_eq!((of("id").len(), of("besomtenant")), (32, "p"));
    assert_eq!(of("source"), format!("urn:besom:{}", way.store.identity()));
    let ids: std::collections::BTreeSet<_> = all.iter().map(|entry| &entry["id"]).collect();
    assert_eq!(ids.len(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_structured_event_is_one_field() {
    let server = single();
    let more = "envelope = \"structured\"\nstream = \"events\"\nlength_max = 1000";
    let way = Way::new(&server.url(), more).await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_delivered(1).await;
    let all = entries(&mut server.connect(), "events");
    let event: serde_json::Value = serde_json::from_str(&all[0]["event"]).expect("JSON");
    assert_eq!((&event["data"]["n"], &event["subject"]), (&0.into(), &"0".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_a_leader_that_is_replaced_lose_nothing() {
    let mut server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let way = Way::new(&server.url(), "batch = 50").await;
    way.lead(1).await;
    for (term, from) in [(2, 0), (3, 1_000), (4, 2_000)] {
        way.emit(from..from + 1_000, 10);
        until("some arrive", async || way.in_state(State::Delivered).await.len() > from + 100)
            .await;
        server.kill();
        way.lead(term).await;
        way.until_held("Redis").await;
        server.restart();
    }
    way.until_delivered(3_000).await;
    assert_eq!(consumed(&entries(&mut server.connect(), "t")), emitted(3_000, 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_waited_for_within_the_timeout() {
    let server = Redis::start(&[]);
    let way = Way::new(&server.url(), "").await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_delivered(1).await;
    server.freeze();
    way.emit(1..100, 1);
    way.until_held("no answer within").await;
    server.thaw();
    way.until_delivered(100).await;
    assert_eq!(consumed(&entries(&mut server.connect(), "t")), emitted(100, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_holds_its_messages_and_says_why() {
    let server = Redis::start(&["--maxmemory-policy", "noeviction"]);
    let _: String = server.command("CONFIG SET maxmemory 1");
    let way = Way::new(&server.url(), "").await;
    way.emit(0..20, 3);
    way.lead(1).await;
    way.until_held("maxmemory").await;
    let _: String = server.command("CONFIG SET maxmemory 0");
    way.until_delivered(20).await;
    assert_eq!(consumed(&entries(&mut server.connect(), "t")), emitted(20, 3));

    let _: String = server.command("SET wrong x");
    let way = Way::new(&server.url(), "stream = \"wrong\"").await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_held("WRONGTYPE").await;
    let _: i64 = server.command("DEL wrong");
    way.until_delivered(1).await;

    let way = Way::new(&server.url(), "stream = \"replicated\"\nreplicas = 1").await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_held("only 0 of 1 replicas").await;
    // However often it is tried again, nothing is appended without a replica.
    let tries = || async { way.in_state(State::Pending).await[0].delivery.attempts };
    while tries().await < 4 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(entries(&mut server.connect(), "replicated").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_redis_cannot_take_is_discarded_and_the_others_arrive() {
    let server = Redis::start(&["--proto-max-bulk-len", "1048576"]);
    let way = Way::new(&server.url(), "").await;
    let message = |key: &str, text: &str| (key.to_owned(), text.to_owned());
    let large = "x".repeat(2 << 20);
    let before = [message("a", "before"), message("a", &large)];
    way.emit_as_they_are(before.into_iter().chain([message("a", "after"), message("b", "too")]));
    way.lead(1).await;
    way.until_delivered(1).await;
    way.until_held("").await;
    let pending = way.in_state(State::Pending).await;
    let stuck = pending.iter().find(|m| m.delivery.error.is_some()).expect("one with an error");
    assert_eq!(stuck.delivery.payload.len(), large.len());
    let which = MessageSelector { ids: vec![stuck.delivery.id], ..MessageSelector::default() };
    let command = Command::DiscardMessages(which.clone());
    let id = way.store.submit(&command, "ann", "too large").await.expect("it is submitted");
    let effect = CommandEffect::DiscardMessages(which);
    let (fence, letters) = (fence(1), NonZeroU32::MIN);
    let asked = way.store.command(id).await.expect("it is read").expect("it is there");
    let applied = way.store.apply_command(&fence, &asked, &effect, "given up", letters).await;
    assert_eq!(applied.expect("it is applied").messages, 1);
    way.until_delivered(3).await;
    let mut arrived: Vec<_> = entries(&mut server.connect(), "t");
    arrived.dedup();
    let arrived: Vec<_> = arrived.iter().map(|entry| entry["data"].as_str()).collect();
    assert_eq!(arrived, ["before", "after", "too"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_read_from_its_file_at_each_connection() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Redis::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let set = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let _: String = server.command("ACL SETUSER feed on >right ~t +xadd +multi +exec");
    set("wrong-secret\n");
    let more = format!("user = \"feed\"\npassword_file = \"{}\"", file.display());
    let way = Way::new(&server.url(), &more).await;
    way.emit(0..5, 1);
    way.lead(1).await;
    way.until_held("authentication failed").await;
    let pending = way.in_state(State::Pending).await;
    assert!(!format!("{pending:?}").contains("wrong-secret"), "{pending:?}");
    set("right\n");
    way.until_delivered(5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_found_by_any_of_its_servers() {
    let cluster = cluster();
    for (n, stream) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let way = Way::new(&cluster.nodes[n % 3].url(), &format!("stream = \"{stream}\"")).await;
        way.emit(0..200, 3);
        way.lead(1).await;
        way.until_delivered(200).await;
    }
    let urls: Vec<_> =
        cluster.urls().iter().map(|url| url["redis://".len()..].to_owned()).collect();
    let url = format!("redis://{}", urls.join(","));
    let way = Way::new(&url, "stream = \"e\"").await;
    way.emit(0..200, 3);
    way.lead(1).await;
    way.until_delivered(200).await;
    let mut holders = 0;
    for stream in ["a", "b", "c", "d", "e"] {
        for node in &cluster.nodes {
            let length: Result<u64, _> = cmd("XLEN").arg(stream).query(&mut node.connect());
            if let Ok(length @ 1..) = length {
                assert_eq!(length, 200, "{stream}");
                assert_eq!(consumed(&entries(&mut node.connect(), stream)), emitted(200, 3));
                holders += 1;
            }
        }
    }
    assert_eq!(holders, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_identified_by_its_certificate() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let (ca, unknown) =
        (write("ca.pem", ours.certificate()), write("others.pem", others.certificate()));
    let (cert, key) = ours.sign("127.0.0.1", false);
    let (cert, key) = (write("cert.pem", &cert), write("key.pem", &key));
    let server = Redis::start_secure(&cert, &key, &ca, &["--tls-auth-clients", "no"]);
    let url = format!("rediss://127.0.0.1:{}", server.port());
    for (ca, is_known) in [(&ca, true), (&unknown, false)] {
        let way = Way::trusting(Some(ca), &url, "").await;
        way.emit(0..10, 3);
        way.lead(1).await;
        match is_known {
            true => way.until_delivered(10).await,
            false => way.until_held("certificate").await,
        }
    }
}
