//! The endpoint for messages of the product.

use axum::middleware::map_response;
use besom_core::ids::Tenant;
use besom_doubles::store::MemoryStore;
use besom_ports::store::Store;
use serde_json::{Value, json};

use super::*;
use crate::api::answers;
use crate::api::feed::{self, BATCH_MAX, BODY_BYTES_MAX, REQUESTS_MAX};
use crate::host::feed::{Bounds as Limits, Feed};

struct Site {
    _directory: tempfile::TempDir,
    path: PathBuf,
    store: Arc<MemoryStore>,
    serving: Serving,
}

impl Site {
    async fn new(limits: Limits) -> Site {
        let (_directory, path) = socket();
        let clock = Arc::new(|| Time::from_secs(1_750_000_000));
        let store = Arc::new(MemoryStore::new(16, Timeouts::default(), clock));
        let feed = Feed::new(store.clone(), vec!["t".into()], limits);
        let router = feed::router(feed).layer(map_response(answers::in_json));
        let serving = Serving::of(Listener::unix(&path).await.unwrap(), router);
        Site { _directory, path, store, serving }
    }

    async fn ask(&self, line: &str, body: &str) -> (u16, Value) {
        let (status, answer) = ask(&self.path, line, body).await;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer}")))
    }

    /// Tenant, key and payload of what is stored.
    fn stored(&self) -> Vec<(Option<String>, String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text");
        let row = |m: besom_doubles::store::Message| {
            (m.tenant.map(|tenant: Tenant| tenant.to_string()), m.key, text(m.payload))
        };
        self.store.outbox().into_iter().map(row).collect()
    }
}

fn row(tenant: Option<&str>, key: &str, payload: &str) -> (Option<String>, String, String) {
    (tenant.map(str::to_owned), key.into(), payload.into())
}

#[tokio::test]
async fn one_message_is_stored_once() {
    let site = Site::new(Limits::default()).await;
    let line = "POST /feed/t/a%2Fb?number=1&tenant=p";
    let stored = json!({"result": "stored", "sequence": 1});
    assert_eq!(site.ask(line, "{\"a\": 1}").await, (201, stored));
    assert_eq!(site.ask(line, "{\"a\": 1}").await, (200, json!({"result": "repeated"})));
    let differs = json!({"result": "differs", "error": "number 1 was stored with another payload"});
    assert_eq!(site.ask(line, "{\"a\":1}").await, (409, differs));
    let gap = json!({"result": "gap", "missing": 2,
        "error": "number 2 is missing: send it before number 4"});
    assert_eq!(site.ask("POST /feed/t/a%2Fb?number=4&tenant=p", "x").await, (409, gap));
    assert_eq!(site.ask("GET /feed/t/a%2Fb?tenant=p", "").await, (200, json!({"last": 1})));
    assert_eq!(site.ask("GET /feed/t/a%2Fb", "").await, (200, json!({"last": 0})));
    assert_eq!(site.stored(), [row(Some("p"), "a/b", "{\"a\": 1}")]);
    site.serving.end().await;
}

#[tokio::test]
async fn several_messages_have_an_answer_each() {
    let site = Site::new(Limits::default()).await;
    let body = r#"[{"key": "k", "number": 1, "data": {"n":  1.0}},
        {"key": "k", "number": 3, "data": 3}, {"key": "l", "tenant": "p", "data_base64": "eHk="}]"#;
    let results = json!({"results": [
        {"result": "stored", "sequence": 1},
        {"result": "gap", "missing": 2, "error": "number 2 is missing: send it before number 3"},
        {"result": "stored", "sequence": 1},
    ]});
    assert_eq!(site.ask("POST /feed/t", body).await, (409, results));
    // A JSON value is stored as it is spelt.
    assert_eq!(site.stored(), [row(None, "k", "{\"n\":  1.0}"), row(Some("p"), "l", "xy")]);
    let (status, answer) =
        site.ask("POST /feed/t", r#"[{"key": "k", "number": 2, "data": 2}]"#).await;
    assert_eq!((status, &answer["results"][0]["sequence"]), (201, &json!(2)));
    assert_eq!(site.ask("POST /feed/t", r#"[{"key": "m", "data": null}]"#).await.0, 201);
    assert_eq!(site.stored().last(), Some(&row(None, "m", "null")));
    site.serving.end().await;
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_with_the_reason() {
    let site = Site::new(Limits::default()).await;
    let many = format!("[{}]", vec!["{\"key\": \"k\", \"data\": 1}"; BATCH_MAX + 1].join(","));
    // More than the buffers of the socket hold: it is read before it is refused.
    let large = "x".repeat(5 * BODY_BYTES_MAX);
    let number = "numbers start at 1";
    for (line, body, status, words) in [
        ("POST /feed/u/k", "x", 404, "in its [topics] section, and restart the host"),
        ("GET /feed/u/k", "", 404, "takes no messages of the product"),
        ("POST /feed/t/k?number=0", "x", 400, number),
        ("POST /feed/t/k?number=-1", "x", 400, "invalid query"),
        ("POST /feed/t/k?nmber=1", "x", 400, "unknown field `nmber`"),
        ("GET /feed/t/k?number=1", "", 400, "takes no number"),
        ("POST /feed/t/%00", "x", 400, "the key contains a NUL"),
        ("POST /feed/t", "[]", 400, "send 1 to 1000 messages at once, not 0"),
        ("POST /feed/t?tenant=p", "[]", 400, "takes no query"),
        ("GET /feed/t/%00", "", 400, "the key contains a NUL"),
        ("GET /feed", "", 404, "there is nothing at this path"),
        ("PUT /feed/t/k", "x", 405, "does not take the method"),
        ("POST /feed/t/%FF", "x", 400, "UTF-8"),
        ("POST /feed/t/k?tenant=%FF", "x", 400, "the query is not UTF-8"),
        ("GET /feed/t/k?tenant=%FF", "", 400, "the query is not UTF-8"),
        ("POST /feed/t/k", &large, 413, "length limit exceeded"),
        ("POST /feed/t", &many, 400, "not 1001"),
        ("POST /feed/t", "{}", 400, "invalid body"),
        (
            "POST /feed/t",
            r#"[{"key": "k"}]"#,
            400,
            "message 1: it needs either data or data_base64",
        ),
        (
            "POST /feed/t",
            r#"[{"key": "k", "data": 1}, {"key": "k", "number": 0, "data": 1}]"#,
            400,
            "message 2: numbers start at 1; none is stored",
        ),
    ] {
        let (found, answer) = site.ask(line, body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(found == status && error.contains(words), "{line}: {found} {answer}");
    }
    assert_eq!(site.stored(), []);
    site.serving.end().await;
}

#[tokio::test]
async fn a_topic_whose_messages_wait_takes_no_more() {
    let limits = Limits { pending_messages: 2, ..Limits::default() };
    let site = Site::new(limits).await;
    assert_eq!(site.ask("POST /feed/t/k", "1").await.0, 201);
    assert_eq!(site.ask("POST /feed/t/k", "2").await.0, 201);
    let (status, answer) = site.ask("POST /feed/t/k", "3").await;
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(status == 503 && error.contains("reaches `delivery.pending_max`"), "{status} {answer}");
    assert_eq!(site.store.pending_messages(None, "t", 9).await.unwrap().messages, 2);

    // A producer that was not answered learns that its numbers are stored.
    let body = r#"[{"key": "l", "number": 1, "data": 1}, {"key": "l", "number": 2, "data": 2}]"#;
    let roomy = Site::new(Limits { pending_messages: 3, ..Limits::default() }).await;
    assert_eq!(roomy.ask("POST /feed/t", body).await.0, 201);
    assert_eq!(roomy.ask("POST /feed/t/l?number=3", "3").await.0, 201);
    assert_eq!(roomy.ask("POST /feed/t", body).await.0, 200);
    assert_eq!(roomy.ask("POST /feed/t/l?number=3", "4").await.0, 409);
    assert_eq!(roomy.ask("POST /feed/t/l?number=4", "4").await.0, 503);
    let both = r#"[{"key": "l", "number": 3, "data": 3}, {"key": "m", "number": 1, "data": 2}]"#;
    assert_eq!(roomy.ask("POST /feed/t", both).await.0, 503, "one of them is new");
    roomy.serving.end().await;
    site.serving.end().await;
}

#[tokio::test]
async fn only_so_many_requests_are_read_at_once() {
    let site = Site::new(Limits::default()).await;
    let mut slow = Vec::new();
    for _ in 0..REQUESTS_MAX {
        let mut stream = UnixStream::connect(&site.path).await.expect("somebody listens");
        let head = b"POST /feed/t/k HTTP/1.1\r\nhost: besom\r\ncontent-length: 2\r\n\r\nx";
        stream.write_all(head).await.expect("the head is taken");
        slow.push(stream);
    }
    // Their heads may not have been read yet: a request goes through until they have.
    let waits = async || {
        let asked = site.ask("POST /feed/t/l", "y");
        tokio::time::timeout(Duration::from_millis(300), asked).await.is_err()
    };
    let begin = std::time::Instant::now();
    while !waits().await {
        assert!(begin.elapsed() < PATIENCE, "no request waits");
    }
    slow.pop();
    assert_eq!(site.ask("POST /feed/t/m", "z").await.0, 201);
    drop(slow);
    site.serving.end().await;
}
